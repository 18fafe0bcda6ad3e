"""Draw rules: which instances of a bag a step encodes, and what a weighted draw has to be corrected by."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.score_memory import ScoreMemory


class Drawn(NamedTuple):
    """Instances drawn from bags, B per bag.

    `log_ratio` is ``log(n q_j)`` of draws with replacement from probabilities q, see
    `midam.functional.logmean.importance_logits`; None for uniform draws, which need no correction.
    """

    slots: NDArray[np.int64]  # [..., B], positions inside the bag, in [0, n); 0 where masked
    mask: NDArray[np.bool_]  # [..., B], True where an instance was drawn; at least one per bag
    log_ratio: NDArray[np.float32] | None = None  # [..., B]


class Draw:
    """Base of the draw rules.

    A rule is made by name with what its constructor asks for: ``num_instances`` (B), ``num_bags``, ``sizes`` (int64
    [N], instances of each bag), ``seed``, and any other setting.

    Attributes
    ----------
    remembers : bool
        It depends on the last scores of the instances, and has a `memory`.
    memory : ScoreMemory or None
        A training leaves there the logit of each instance that a step has encoded, and fills it again when `pass_due`
        says so.
    """

    remembers: ClassVar[bool] = False
    memory: ScoreMemory | None = None

    def pass_due(self, epoch: int) -> bool:  # noqa: ARG002
        """Whether epoch `epoch` (from 0) begins with a pass over all bags that fills the memory."""
        return False

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for the draws of epoch `epoch` (from 0)."""

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:
        """Draw the instances of an epoch.

        `bags` and `sizes` [T, K] are the positions of each step's bags in the training set and their numbers of
        instances, `width` is B, at most the largest size; `rng` is the same for the same seed and epoch.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """State to resume from, next to seed and epoch: tensors, numbers, strings, lists and dictionaries only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""

    def diagnose(self, bags: NDArray[np.int64], drawn: Drawn) -> dict[str, float]:  # noqa: ARG002
        """Figures of an epoch's draws by name, NaN where there is none: columns of metrics.csv. Called after `draw`."""
        return {}


class Uniform(Draw):
    """min(n, B) distinct instances, uniformly."""

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:  # noqa: ARG002
        """Draw the instances of an epoch."""
        return Drawn(*uniform_slots(sizes, width, rng))


def uniform_slots(
    sizes: ArrayLike, num_instances: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw min(n, B) distinct positions of each bag of n >= 1 instances (`sizes` [...]), uniformly.

    Returns slots [..., B], ascending and 0 where masked, and a mask [..., B], True for the first min(n, B). Floyd's
    algorithm (Bentley and Floyd, CACM 30(9), 1987) over all bags at once takes B rounds of random numbers.
    """
    shape = np.shape(sizes)
    size = np.asarray(sizes, dtype=np.int64).reshape(-1)
    drawn = np.minimum(size, num_instances)
    short = bool((drawn < num_instances).any())
    # An undrawn place holds the largest int64: it matches no position and sorts last.
    slots = np.full((len(size), num_instances), np.iinfo(np.int64).max)
    lasts = np.maximum(size - drawn + np.arange(num_instances)[:, None], 0)
    candidates = rng.integers(0, lasts, endpoint=True)
    for number, (last, candidate) in enumerate(zip(lasts, candidates)):
        seen = (slots[:, :number] == candidate[:, None]).any(axis=1)
        chosen = np.where(seen, last, candidate)
        slots[:, number] = np.where(number < drawn, chosen, slots[:, number]) if short else chosen
    slots.sort(axis=1)
    mask = np.arange(num_instances) < drawn[:, None]
    if short:
        slots[~mask] = 0
    return slots.reshape(*shape, num_instances), mask.reshape(*shape, num_instances)
