"""Samplers: they draw the bags of a batch (S+, S-) from queues by class, and the instances of a bag (B).

Draws come from Philox, keyed by (seed, epoch, purpose): a resume needs only the queue of each class.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import binary_labels, check_length, int_array, other_data, refuse_other_order, require_both
from midam.errors import BagDataError, require_counts, require_counts_if_given


class ClassQueue:
    """Endless queue of the bags of one class in random order."""

    def __init__(self, members: NDArray[np.int64], *, seed: int, purpose: int) -> None:
        self._members, self._queue = members, members[:0]
        self._seed, self._purpose, self._shuffles = seed, purpose, 0

    def __len__(self) -> int:
        return len(self._members)

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as the class has."""
        taken, self._queue = self._queue[:count], self._queue[count:]
        missing = count - len(taken)
        if missing:
            fresh = generator(self._seed, self._shuffles, self._purpose).permutation(self._members)
            self._shuffles += 1
            # Bags of this batch that come early in the new permutation keep their turn: they head the queue.
            unused = np.flatnonzero(~np.isin(fresh, taken))[:missing]
            taken = np.concatenate([taken, fresh[unused]])
            self._queue = np.delete(fresh, unused)
        return taken

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"shuffles": self._shuffles, "queue": torch.from_numpy(self._queue.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        queue = np.array(state["queue"].numpy(), dtype=np.int64)
        if not np.isin(queue, self._members).all():
            raise other_data("a sampler state of these bags", "one of other bags")
        self._queue, self._shuffles = queue, int(state["shuffles"])


def generator(seed: int, counter: int, *purpose: int) -> np.random.Generator:
    """Return the random generator of a seed, a counter (an epoch or a shuffle) and a purpose."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, counter, *purpose])))


def uniform_slots(
    sizes: ArrayLike, num_instances: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw min(n, B) distinct positions of each bag of n >= 1 instances (`sizes` [...]), uniformly.

    Returns slots [..., B], ascending and 0 where masked, and a mask [..., B], True for the first min(n, B). Floyd's
    algorithm (Bentley and Floyd, CACM 30(9), 1987) over all bags at once takes B rounds of random numbers.
    """
    shape = np.shape(sizes)
    size = np.asarray(sizes, dtype=np.int64).reshape(-1)
    counts = np.minimum(size, num_instances)
    short = bool((counts < num_instances).any())
    # An undrawn place holds the largest int64: it matches no position and sorts last.
    slots = np.full((len(size), num_instances), np.iinfo(np.int64).max)
    lasts = np.maximum(size - counts + np.arange(num_instances)[:, None], 0)
    candidates = rng.integers(0, lasts, endpoint=True)
    for number, (last, candidate) in enumerate(zip(lasts, candidates)):
        slot = np.where((slots[:, :number] == candidate[:, None]).any(axis=1), last, candidate)
        slots[:, number] = np.where(number < counts, slot, slots[:, number]) if short else slot
    slots.sort(axis=1)
    mask = np.arange(num_instances) < counts[:, None]
    if short:
        slots[~mask] = 0
    return slots.reshape(*shape, num_instances), mask.reshape(*shape, num_instances)


_PURPOSE_SLOTS = 2  # bags of a class have its label, bags of a stratum a larger number


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """All draws of one epoch: T steps of K bags, positive ones first and distinct within a step, B instances each.

    Examples
    --------
    Two steps of one positive and one negative bag, 3 instances each; one bag holds only 2 instances:

    >>> sampler = BagSampler([1, 1, 0, 0], [5, 5, 5, 2], num_positive=1, num_negative=1, num_instances=3)
    >>> plan = sampler.epoch()
    >>> len(plan), plan.bags.shape, plan.slots.shape, int(plan.mask.sum())
    (2, torch.Size([2, 2]), torch.Size([2, 2, 3]), 11)
    """

    bags: torch.Tensor  # int64 [T, K], positions of the bags
    slots: torch.Tensor | None  # int64 [T, K, B], ascending positions in the bag, 0 where masked; None: whole bags
    mask: torch.Tensor | None  # bool [T, K, B], True where an instance was drawn; None: whole bags

    def __len__(self) -> int:
        return len(self.bags)

    def part(self, select: Callable[[torch.Tensor], torch.Tensor]) -> "EpochPlan":
        """Return the plan of some bags of each step: `select` takes their values from those of all, [T, K, ...]."""
        slots, mask = (None if x is None else select(x).contiguous() for x in (self.slots, self.mask))
        return EpochPlan(select(self.bags).contiguous(), slots, mask)


class Sampler(ABC):
    """Base of the samplers: queues of bags by class or stratum, and B instances of each bag of a step, uniformly.

    An epoch has T = ceil(N / (S+ + S-)) steps. Each queue runs through a random permutation of its bags, shuffled again
    when it is exhausted, so the visits of two of its bags differ by at most one.

    Parameters
    ----------
    labels, sizes : array of int, shape [N]
        Class or stratum, and number of instances, of each bag.
    num_positive, num_negative : int, default 8
        Positive (S+) and negative (S-) bags of a step.
    num_instances : int or None
        Instances drawn from a bag of n (B): min(n, B) distinct ones, uniformly. None: whole bags.
    seed : int >= 0, default 0
        Seed of the draws.

    Attributes
    ----------
    num_positive, num_negative, steps_per_epoch : int
        S+, S- and T in force; a step has S+ + S- bags.
    """

    def __init__(
        self,
        labels: ArrayLike,
        sizes: ArrayLike,
        *,
        num_positive: int = 8,
        num_negative: int = 8,
        num_instances: int | None,
        seed: int = 0,
    ) -> None:
        require_counts(num_positive=num_positive, num_negative=num_negative)
        require_counts_if_given(num_instances=num_instances)
        self._sizes = int_array(sizes, "sizes", "memory")
        if self._sizes.min(initial=1) < 1:
            raise BagDataError(f"Expected bags of at least one instance, got a size of {self._sizes.min()}; drop it.")
        refuse_other_order(labels, sizes)
        codes, purposes = self._coded(labels)
        check_length(codes, len(self._sizes), "label", "memory")
        members = {code: np.flatnonzero(codes == code) for code in purposes}
        self._queues = [ClassQueue(members[code], seed=seed, purpose=purposes[code]) for code in purposes]
        self.num_positive, self.num_negative = self._fitted(num_positive, num_negative)
        self._seed = seed
        self._width = None if num_instances is None else min(num_instances, int(self._sizes.max(initial=1)))
        self._epoch = self._turn = 0

    @abstractmethod
    def _coded(self, labels: ArrayLike) -> tuple[NDArray[np.int64], dict[int, int]]:
        """Return the code [N] of the queue of each bag, and the purpose of the random numbers of each queue."""

    @abstractmethod
    def _fitted(self, num_positive: int, num_negative: int) -> tuple[int, int]:
        """Return the numbers of positive and negative bags of a step, of which there are enough."""

    @abstractmethod
    def take(self) -> NDArray[np.int64]:
        """Take the distinct bags of the next step from the queues."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps T: an epoch draws at least as many bags as there are."""
        return -(-len(self._sizes) // (self.num_positive + self.num_negative))

    def epoch(self) -> EpochPlan:
        """Draw the next epoch."""
        bags = np.array([self.take() for _ in range(self.steps_per_epoch)], dtype=np.int64)
        slots = mask = None
        if self._width is not None:
            rng = generator(self._seed, self._epoch, _PURPOSE_SLOTS)
            slots, mask = map(torch.from_numpy, uniform_slots(self._sizes[bags], self._width, rng))
        self._epoch += 1
        return EpochPlan(torch.from_numpy(bags), slots, mask)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from: epoch, turn, and queue and number of shuffles of each class or stratum."""
        queues = [queue.state_dict() for queue in self._queues]
        return {"epoch": self._epoch, "num_bags": len(self._sizes), "turn": self._turn, "queues": queues}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        if state["num_bags"] != len(self._sizes):
            raise other_data(f"the sampler state of {len(self._sizes)} bags", f"one of {state['num_bags']}")
        if len(state["queues"]) != len(self._queues):
            raise other_data(f"a sampler state of {len(self._queues)} strata", len(state["queues"]))
        for queue, queue_state in zip(self._queues, state["queues"]):
            queue.load_state_dict(queue_state)
        self._epoch, self._turn = int(state["epoch"]), int(state["turn"])


class BagSampler(Sampler):
    """Draw batches of S+ positive and S- negative bags, and B instances of each bag; see `Sampler`.

    `labels` are 0 or 1. A class smaller than its part of a step gives all its bags, with one warning; without bags of a
    class, a `OneClassError` is raised.

    Examples
    --------
    >>> sampler = BagSampler([1, 1, 0, 0, 0], [9, 9, 9, 9, 2], num_positive=1, num_negative=2, num_instances=3)
    >>> plan = sampler.epoch()
    >>> tuple(plan.bags.shape), tuple(plan.slots.shape)
    ((2, 3), (2, 3, 3))
    """

    def _coded(self, labels: ArrayLike) -> tuple[NDArray[np.int64], dict[int, int]]:
        return binary_labels(labels), {1: 1, 0: 0}

    def _fitted(self, num_positive: int, num_negative: int) -> tuple[int, int]:
        positives, negatives = map(len, self._queues)
        require_both(positives, negatives, "memory")
        fitted = min(num_positive, positives), min(num_negative, negatives)
        if fitted != (num_positive, num_negative):
            text = f"Expected {num_positive} positive and {num_negative} negative bags, got {positives} and {negatives}"
            warnings.warn(f"{text}: a batch now holds {fitted[0]} positive and {fitted[1]} negative bags", stacklevel=4)
        return fitted

    def take(self) -> NDArray[np.int64]:
        """Take S+ positive and S- negative bags, the positive ones first."""
        counts = (self.num_positive, self.num_negative)
        return np.concatenate([queue.take(count) for queue, count in zip(self._queues, counts)])


class StrataSampler(Sampler):
    """Draw batches of S = S+ + S- bags, at most N, in which strata of bags take turns; see `Sampler`.

    `labels` are the strata, such as classes; with a single one, all bags share one permutation. A stratum with fewer
    bags than its turns in a step gives all of them; the others give the rest.

    Examples
    --------
    >>> sampler = StrataSampler([0, 0, 0, 0, 1, 2], [9] * 6, num_positive=1, num_negative=2, num_instances=3)
    >>> strata = np.array([0, 0, 0, 0, 1, 2])[sampler.epoch().bags]
    >>> np.sort(strata, axis=1).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """

    def _coded(self, labels: ArrayLike) -> tuple[NDArray[np.int64], dict[int, int]]:
        names, codes = np.unique(int_array(labels, "strata", "memory"), return_inverse=True)
        return codes, {code: _PURPOSE_SLOTS + 1 + code for code in range(len(names))}

    def _fitted(self, num_positive: int, num_negative: int) -> tuple[int, int]:
        count = len(self._sizes)
        fitted = min(num_positive, max(count - 1, 1))
        return fitted, min(num_negative, max(count - fitted, 1))

    def take(self) -> NDArray[np.int64]:
        """Take S bags, from one stratum after the other while they have bags left in this step."""
        remaining = np.array([len(queue) for queue in self._queues])
        counts, count = np.zeros_like(remaining), min(self.num_positive + self.num_negative, int(remaining.sum()))
        while counts.sum() < count:
            number = self._turn % len(remaining)
            self._turn += 1
            if remaining[number]:
                remaining[number] -= 1
                counts[number] += 1
        return np.concatenate([queue.take(share) for queue, share in zip(self._queues, counts.tolist()) if share])
