"""Last known scores of the instances of a training set: 2 bytes each, and an index of the high ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.errors import CheckpointError

FAN_OUT = 32
_LEVELS = 2
_CANDIDATES = 64
_KEPT_CHANGES = 64  # epochs
_LARGEST = float(np.finfo(np.float16).max)
_NOTHING = -2 * _LARGEST  # below any logit that is remembered


class ScoreMemory:
    """The last logit z seen of each instance of N bags, in float16; -inf where none was seen yet.

    Above the logits stand the log-sums of the weights of each 32 of them, and of each 32 of these: they find an
    instance in proportion to exp(z) without a pass over its bag. Beside them stand up to 64 `candidates` a bag, its
    highest when it was last passed over.

    Parameters
    ----------
    sizes : array of int, shape [N]
        Instances of each bag, >= 1.

    Attributes
    ----------
    passes : int
        How often all bags have been passed over.
    drift : float
        How far the logits of the last draws had moved since they were remembered: the root mean square of the
        difference, in standard deviations of the new logits. 0 right after a pass, NaN while none was drawn again.
    candidates : int32 array [N, C]
        Positions in the bag of the highest instances at the last pass, 0 before the first; of bags of fewer than C,
        some repeated.

    Examples
    --------
    >>> memory = ScoreMemory([2, 1])
    >>> memory.fill(np.array([0.5, 2.0, -1.0]))
    >>> memory.at(np.array([0]), np.array([[1, 0]])).tolist()
    [[2.0, 0.5]]
    """

    def __init__(self, sizes: ArrayLike) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.passes, self.drift = 0, float("nan")
        # -inf everywhere: nothing is known.
        self._levels = [_Level.empty(self.sizes, np.float16)]
        for _ in range(_LEVELS):
            self._levels.append(_Level.empty(-(-self._levels[-1].sizes // FAN_OUT), np.float64))
        self.candidates = np.zeros((len(self.sizes), min(_CANDIDATES, int(self.sizes.max(initial=1)))), np.int32)
        self._log_sums: NDArray[np.float64] | None = None
        # Instances (bags, positions) whose sums are of before, and brought up to date when they are asked for.
        self._changed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []

    def at(self, bags: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Remembered logits [V, S] of the instances `slots` [V, S] of the bags [V]."""
        lowest = self._levels[0]
        return lowest.values[lowest.starts[bags][:, None] + slots].astype(np.float32)

    def log_sums(self) -> NDArray[np.float64]:
        """Log sum_j exp(z_j) of each bag, [N], over the instances that were seen; -inf where none was."""
        if self._log_sums is None or self._changed:
            self._sum_changed()
            top = self._levels[-1]
            largest = np.maximum(np.maximum.reduceat(top.values, top.starts), _NOTHING)
            weights = np.exp(top.values - np.repeat(largest, top.sizes))
            with np.errstate(divide="ignore"):
                self._log_sums = largest + np.log(np.add.reduceat(weights, top.starts))
        return self._log_sums

    def sample(self, bags: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw a position [V] in each of the bags [V] (which may repeat), in proportion to exp(z).

        Something of these bags was seen.
        """
        log_sums, top = self.log_sums(), self._levels[-1]
        ends = np.cumsum(np.exp(top.values - np.repeat(np.maximum(log_sums, _NOTHING), top.sizes)))
        last = top.starts + top.sizes - 1
        low = np.concatenate([[0.0], ends[last[:-1]]])[bags]
        target = low + rng.random(len(bags)) * (ends[last[bags]] - low)
        chosen: NDArray[np.int64] = np.searchsorted(ends, target, side="right")
        chosen = np.clip(chosen, top.starts[bags], last[bags]) - top.starts[bags]
        for level in reversed(self._levels[:-1]):
            values, held = level.children(bags, chosen)
            weights = np.exp(values - values.max(axis=1, keepdims=True))
            inner = np.cumsum(weights, axis=1)
            inside = (inner <= rng.random(len(bags))[:, None] * inner[:, -1:]).sum(axis=1)
            chosen = chosen * FAN_OUT + np.minimum(inside, held - 1)
        return chosen

    def bag_log_sum(self, bag: int) -> float:
        """Log sum_j exp(z_j) of one bag, from its logits; -inf where none was seen."""
        lowest = self._levels[0]
        start = lowest.starts[bag]
        own = lowest.values[start : start + lowest.sizes[bag]].astype(np.float32)
        top = own.max()
        return float(top + np.log(np.exp(own - top).sum())) if top > -np.inf else -np.inf

    def fill(self, z: NDArray[Any], *, first: int = 0) -> None:
        """Remember the logits z of a run of instances, bag after bag, of which `first` is the flat position.

        The pass is done with the last instance.
        """
        values = self._levels[0].values
        values[first : first + len(z)] = np.clip(z, -_LARGEST, _LARGEST)
        if first + len(z) == len(values):
            self.passes, self.drift = self.passes + 1, 0.0
            self._sum_all()
            self._find_candidates()

    def observe(
        self, bags: NDArray[np.int64], slots: NDArray[np.int64], mask: NDArray[np.bool_], z: NDArray[Any]
    ) -> None:
        """Remember the logits z [V, B] of drawn instances, the later ones of equals."""
        lowest = self._levels[0]
        owner, inside = np.broadcast_to(bags[:, None], slots.shape)[mask], slots[mask]
        where = lowest.starts[owner] + inside
        new, old = np.clip(z[mask], -_LARGEST, _LARGEST).astype(np.float32), lowest.values[where].astype(np.float32)
        known = old > -np.inf
        if known.any():
            moved = float(np.sqrt(np.square(new[known] - old[known]).mean()))
            self.drift = moved / max(float(new.std()), 1e-6)
        lowest.values[where] = new
        self._changed.append((owner, inside))
        if len(self._changed) > _KEPT_CHANGES:
            self._sum_changed()

    def state_dict(self) -> dict[str, Any]:
        """State to resume from."""
        return {
            "values": torch.from_numpy(self._levels[0].values.copy()),
            "candidates": torch.from_numpy(self.candidates.copy()),
            "passes": self.passes,
            "drift": self.drift,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; the memory of other bags, or a damaged one, is a `CheckpointError`."""
        lowest = self._levels[0]
        if len(state["values"]) != len(lowest.values) or state["candidates"].shape != self.candidates.shape:
            raise CheckpointError(
                f"Expected the remembered scores of {len(lowest.values)} instances, got {len(state['values'])}; resume "
                "with the data of the run."
            )
        candidates = state["candidates"].numpy()
        inside = (candidates >= 0) & (candidates < self.sizes[:, None])
        if not inside.all():
            bag, place = np.argwhere(~inside)[0]
            raise CheckpointError(
                f"Expected candidates among the {self.sizes[bag]} instances of bag {bag} (from 0), got position "
                f"{candidates[bag, place]}; restore a copy of the checkpoint, or start a new run."
            )
        lowest.values[:] = state["values"].numpy()
        self.candidates = candidates.astype(np.int32)
        self.passes, self.drift = int(state["passes"]), float(state["drift"])
        self._sum_all()

    def _sum_changed(self) -> None:
        if not self._changed:
            return
        owner, inside = (np.concatenate(column) for column in zip(*self._changed))
        for below, level in zip(self._levels, self._levels[1:]):
            touched = np.unique(level.starts[owner] + inside // FAN_OUT)
            owner = level.owner(touched)
            inside = touched - level.starts[owner]
            level.values[touched] = below.sums(owner, inside)
        self._changed, self._log_sums = [], None

    def _sum_all(self) -> None:
        for below, level in zip(self._levels, self._levels[1:]):
            everything = np.arange(len(level.values))
            # In parts, for a store's worth of instances.
            for part in np.array_split(everything, max(1, len(everything) // 65536)):
                owner = level.owner(part)
                level.values[part] = below.sums(owner, part - level.starts[owner])
        self._changed, self._log_sums = [], None

    def _find_candidates(self) -> None:
        width, lowest = self.candidates.shape[1], self._levels[0]
        for bag, (start, size) in enumerate(zip(lowest.starts.tolist(), lowest.sizes.tolist())):
            own = lowest.values[start : start + size].astype(np.float32)
            candidates = first_largest(own[None], width)[0] if size > width else np.resize(np.arange(size), width)
            self.candidates[bag] = candidates


def first_largest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Positions [V, count] of the largest of values [V, S], ascending; of equals the first, whatever the processor.

    `numpy.argpartition` breaks ties as the vector instructions of the processor have it.

    Examples
    --------
    >>> first_largest(np.array([[0.0, 2.0, 1.0, 1.0]]), 2).tolist()
    [[1, 2]]
    """
    least = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    above, equal = values > least, values == least
    room = count - above.sum(axis=1, keepdims=True)
    taken = above | (equal & (np.cumsum(equal, axis=1) <= room))
    return np.nonzero(taken)[1].reshape(len(values), count)


@dataclass(frozen=True, eq=False)
class _Level:
    """Numbers of each bag, bag after bag: the logits, or the log-sums over each 32 numbers of the level below."""

    values: NDArray[Any]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def empty(cls, sizes: NDArray[np.int64], dtype: Any) -> "_Level":
        return cls(np.full(int(sizes.sum()), -np.inf, dtype=dtype), np.cumsum(sizes) - sizes, sizes)

    def owner(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bag of each flat position."""
        return np.searchsorted(self.starts, positions, side="right") - 1

    def children(
        self, bags: NDArray[np.int64], parents: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The 32 numbers [V, 32] below each parent (its position in the bag, [V]), and how many there are, [V]."""
        first = parents * FAN_OUT
        held = np.minimum(self.sizes[bags] - first, FAN_OUT)
        column = np.arange(FAN_OUT)
        where = (self.starts[bags] + first)[:, None] + np.minimum(column, held[:, None] - 1)
        values = self.values[where].astype(np.float64)
        values[column >= held[:, None]] = -np.inf
        return values, held

    def sums(self, bags: NDArray[np.int64], parents: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log-sums [V] of the weights below each parent."""
        values, _ = self.children(bags, parents)
        top = np.maximum(values.max(axis=1), _NOTHING)
        with np.errstate(divide="ignore"):
            sums: NDArray[np.float64] = top + np.log(np.exp(values - top[:, None]).sum(axis=1))
        return sums
