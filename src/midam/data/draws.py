"""Draw rules: which instances of a bag a step encodes, and what a weighted draw has to be corrected by."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Drawn(NamedTuple):
    """Instances drawn from bags, B a bag.

    Attributes
    ----------
    slots : int64 array [..., B]
        Positions inside the bag, in [0, n); 0 where masked.
    mask : bool array [..., B]
        True where an instance was drawn; at least one a bag.
    log_ratio : float32 array [..., B], optional
        ``log(n q_j)`` of draws with replacement from probabilities q, see
        `midam.functional.logmean.importance_logits`. None: uniform draws, which need no correction.
    """

    slots: NDArray[np.int64]
    mask: NDArray[np.bool_]
    log_ratio: NDArray[np.float32] | None = None


class Draw:
    """Base of the draw rules.

    A rule is made by name with the settings and sizes that its constructor asks for: ``num_instances`` (B),
    ``num_bags``, ``seed`` and any other setting.
    """

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:
        """Draw the instances of an epoch.

        Parameters
        ----------
        bags : int64 array [T, K]
            Positions of the bags of each step in the training set.
        sizes : int64 array [T, K]
            Their numbers of instances.
        width : int
            B, at most the size of the largest bag.
        rng : numpy.random.Generator
            The same for the same seed and epoch.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs beside seed and epoch: tensors, numbers, strings, lists and dictionaries only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""


class Uniform(Draw):
    """min(n, B) distinct instances, uniformly."""

    def draw(self, bags: NDArray[np.int64], sizes: NDArray[np.int64], *, width: int, rng: np.random.Generator) -> Drawn:  # noqa: ARG002
        """Draw the instances of an epoch."""
        return Drawn(*uniform_slots(sizes, width, rng))


def uniform_slots(
    sizes: ArrayLike, num_instances: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw min(n, B) distinct positions of each bag, uniformly without replacement.

    Floyd's algorithm over all bags at once: B rounds of random numbers, whatever the size of a bag.

    Parameters
    ----------
    sizes : array of int, any shape [...]
        Instances of each bag (n), at least 1.
    num_instances : int >= 1
        Positions to draw from each (B).
    rng : numpy.random.Generator
        Source of the draws.

    Returns
    -------
    slots : int64 array [..., B]
        Positions in [0, n), ascending; 0 where masked.
    mask : bool array [..., B]
        True for the first min(n, B) of each bag.

    References
    ----------
    Bentley and Floyd, "Programming pearls: a sample of brilliance", CACM 30(9), 1987.

    Examples
    --------
    >>> slots, mask = uniform_slots([10**6, 2], 3, np.random.default_rng(0))
    >>> mask.tolist()
    [[True, True, True], [True, True, False]]
    >>> slots[1].tolist()
    [0, 1, 0]
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
        found = np.where(seen, last, candidate)
        slots[:, number] = np.where(number < drawn, found, slots[:, number]) if short else found
    slots.sort(axis=1)
    mask = np.arange(num_instances) < drawn[:, None]
    if short:
        slots[~mask] = 0
    return slots.reshape(*shape, num_instances), mask.reshape(*shape, num_instances)
