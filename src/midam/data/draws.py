"""Draws of a step: its bags, from queues by class or site, and the instances of each bag, uniformly."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import check_length, other_data


class ClassQueue:
    """Endless queue of the bags of one class in random order."""

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


class Turns:
    """Endless queue that takes from several queues in turn; messages call these queues `kind`."""

    def __init__(self, queues: "Sequence[Queue]", kind: str) -> None:
        self._queues, self._kind, self._turn = queues, kind, 0

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags, at most as many as there are.

        A queue with fewer bags than its turns gives all of them; the others give the rest.
        """
        remaining = np.array([len(queue) for queue in self._queues])
        counts = np.zeros_like(remaining)
        while counts.sum() < count:
            number = self._turn % len(remaining)
            self._turn += 1
            if remaining[number]:
                remaining[number] -= 1
                counts[number] += 1
        return np.concatenate([queue.take(share) for queue, share in zip(self._queues, counts.tolist()) if share])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"turn": self._turn, "queues": [queue.state_dict() for queue in self._queues]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        if len(state["queues"]) != len(self._queues):
            raise other_data(f"a sampler state of {len(self._queues)} {self._kind}", len(state["queues"]))
        for queue, queue_state in zip(self._queues, state["queues"]):
            queue.load_state_dict(queue_state)
        self._turn = int(state["turn"])


class Classes:
    """Queue of the bags of two classes; a step takes the positive bags first."""

    def __init__(self, positive: "Queue", negative: "Queue", num_positive: int) -> None:
        self._queues, self._num_positive = {"positive": positive, "negative": negative}, num_positive

    def take(self, count: int) -> NDArray[np.int64]:
        """Take ``count`` distinct bags."""
        counts = (self._num_positive, count - self._num_positive)
        return np.concatenate([queue.take(share) for queue, share in zip(self._queues.values(), counts)])

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {name: queue.state_dict() for name, queue in self._queues.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the state of other bags raises a `CheckpointError`."""
        for name, queue in self._queues.items():
            queue.load_state_dict(state[name])


Queue = ClassQueue | Turns


def queue_of(members: NDArray[np.int64], sites: NDArray[np.int64] | None, *, seed: int, purpose: int) -> Queue:
    """Return the queue of the bags of a class; with `sites` [N] of all bags, the sites take turns."""
    if sites is None:
        return ClassQueue(members, seed=seed, purpose=(purpose,))
    site_of = sites[members]
    # numpy ignores a 0 at the end of a seed: sites count from 1.
    numbers = np.unique(site_of).tolist()
    queues = [ClassQueue(members[site_of == at], seed=seed, purpose=(purpose, at + 1)) for at in numbers]
    return Turns(queues, "sites of a class")


def site_codes(sites: ArrayLike | None, count: int) -> NDArray[np.int64] | None:
    """Return the sites of `count` bags as numbers from 0; None without sites."""
    if sites is None:
        return None
    codes = np.unique(np.asarray(sites), return_inverse=True)[1]
    check_length(codes, count, "site", "memory")
    return codes


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
        repeated = (slots[:, :number] == candidate[:, None]).any(axis=1)
        slot = np.where(repeated, last, candidate)
        slots[:, number] = np.where(number < counts, slot, slots[:, number]) if short else slot
    slots.sort(axis=1)
    mask = np.arange(num_instances) < counts[:, None]
    if short:
        slots[~mask] = 0
    return slots.reshape(*shape, num_instances), mask.reshape(*shape, num_instances)
