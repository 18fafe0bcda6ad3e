"""Draws of a step: its bags, from queues by class or site; and rules by which instances of a bag are drawn."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.data.score_memory import ScoreMemory
from midam.errors import BagDataError, CheckpointError


class ClassQueue:
    """The bags of one class in random order, without end."""

    def __init__(self, members: NDArray[np.int64], *, seed: int, purpose: tuple[int, ...]) -> None:
        self._members, self._queue = members, members[:0]
        self._seed, self._purpose, self._shuffles = seed, purpose, 0

    def __len__(self) -> int:
        return len(self._members)

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as the class has."""
        taken, self._queue = self._queue[:count], self._queue[count:]
        missing = count - len(taken)
        if missing:
            fresh = generator(self._seed, self._shuffles, *self._purpose).permutation(self._members)
            self._shuffles += 1
            if not len(taken):
                self._queue = fresh[missing:]
                return fresh[:missing]
            # Bags of this batch that the new permutation brings up early keep their turn: they head the queue.
            chosen = np.flatnonzero(~np.isin(fresh, taken))[:missing]
            taken = np.concatenate([taken, fresh[chosen]])
            self._queue = np.delete(fresh, chosen)
        return taken

    def state_dict(self) -> dict[str, Any]:
        """State to resume from."""
        return {"shuffles": self._shuffles, "queue": torch.from_numpy(self._queue.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; that of other bags is a `CheckpointError`."""
        queue = np.array(state["queue"].numpy(), dtype=np.int64)
        if not np.isin(queue, self._members).all():
            raise CheckpointError(
                "Expected a sampler state of these bags, got bags of another class; resume with the data of the run."
            )
        self._queue, self._shuffles = queue, int(state["shuffles"])


class Turns:
    """Queues that are taken from by turns, without end; `kind` is what messages call them."""

    def __init__(self, queues: "Sequence[Queue]", kind: str) -> None:
        self._queues, self._kind, self._turn = queues, kind, 0

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as there are.

        A queue with fewer bags than its turns gives all, and the others the rest.
        """
        left = np.array([len(queue) for queue in self._queues])
        counts = np.zeros_like(left)
        while counts.sum() < count:
            number = self._turn % len(left)
            self._turn += 1
            if left[number]:
                left[number] -= 1
                counts[number] += 1
        return np.concatenate([queue.take(own) for queue, own in zip(self._queues, counts.tolist()) if own])

    def state_dict(self) -> dict[str, Any]:
        """State to resume from."""
        return {"turn": self._turn, "queues": [queue.state_dict() for queue in self._queues]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; that of other bags is a `CheckpointError`."""
        if len(state["queues"]) != len(self._queues):
            raise CheckpointError(
                f"Expected a sampler state of {len(self._queues)} {self._kind}, got {len(state['queues'])}; resume "
                "with the data of the run."
            )
        for queue, own in zip(self._queues, state["queues"]):
            queue.load_state_dict(own)
        self._turn = int(state["turn"])


Queue = ClassQueue | Turns


def queue_of(members: NDArray[np.int64], sites: NDArray[np.int64] | None, *, seed: int, purpose: int) -> Queue:
    """The queue of the bags of a class, with turns of the sites [N] of all bags where there are some."""
    if sites is None:
        return ClassQueue(members, seed=seed, purpose=(purpose,))
    own = sites[members]
    # numpy takes a 0 at the end of a seed for none: sites count from 1.
    queues = [ClassQueue(members[own == at], seed=seed, purpose=(purpose, at + 1)) for at in np.unique(own).tolist()]
    return Turns(queues, "sites of a class")


def site_codes(sites: ArrayLike | None, count: int) -> NDArray[np.int64] | None:
    """Numbers of the sites of `count` bags, from 0; None where there are no sites."""
    if sites is None:
        return None
    codes = np.unique(np.asarray(sites), return_inverse=True)[1]
    if codes.shape != (count,):
        raise BagDataError(f"Expected one site for each of {count} bags, got shape {codes.shape}; give as many.")
    return codes


def generator(seed: int, counter: int, *purpose: int) -> np.random.Generator:
    """Random numbers of a seed, a counter (an epoch, a shuffle) and what they are for."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, counter, *purpose])))


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
