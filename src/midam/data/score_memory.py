"""Last known scores of the instances of a training set: 2 bytes each, and a list of the highest."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import other_data
from midam.errors import CheckpointError

_CANDIDATES = 64
_LARGEST = float(np.finfo(np.float16).max)


class ScoreMemory:
    """Memory of the last logit z of each instance of N bags, in float16; -inf for instances not seen yet.

    It also keeps up to 64 `candidates` per bag: the highest instances of the last pass.

    Parameters
    ----------
    sizes : array of int, shape [N]
        Instances of each bag, >= 1.

    Attributes
    ----------
    passes : int
        Number of passes over all bags.
    drift : float
        Movement of the logits of the last draws since they were remembered: the root mean square of the difference, in
        standard deviations of the new logits. 0 right after a pass, NaN until an instance is drawn again.
    candidates : int32 array [N, C]
        Positions in the bag of the highest instances at the last pass, 0 before the first pass; repeated in bags of
        fewer than C instances.

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
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._values = np.full(int(self.sizes.sum()), -np.inf, dtype=np.float16)
        self.candidates = np.zeros((len(self.sizes), min(_CANDIDATES, int(self.sizes.max(initial=1)))), np.int32)

    def at(self, bags: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the remembered logits [V, S] of the instances `slots` [V, S] of the bags [V]."""
        return self._values[self._starts[bags][:, None] + slots].astype(np.float32)

    def bag_log_sum(self, bag: int) -> float:
        """Return log sum_j exp(z_j) over the remembered logits of one bag; -inf if no instance was seen."""
        start = self._starts[bag]
        logits = self._values[start : start + self.sizes[bag]].astype(np.float32)
        top = logits.max()
        return float(top + np.log(np.exp(logits - top).sum())) if top > -np.inf else -np.inf

    def fill(self, z: NDArray[Any], *, first: int = 0) -> None:
        """Remember the logits z of consecutive instances, bag after bag, from the flat position `first` on.

        The pass ends with the last instance.
        """
        values = self._values
        values[first : first + len(z)] = np.clip(z, -_LARGEST, _LARGEST)
        if first + len(z) == len(values):
            self.passes, self.drift = self.passes + 1, 0.0
            self._find_candidates()

    def observe(
        self, bags: NDArray[np.int64], slots: NDArray[np.int64], mask: NDArray[np.bool_], z: NDArray[Any]
    ) -> None:
        """Remember the logits z [V, B] of drawn instances; of an instance drawn twice, the later one."""
        where = (self._starts[bags][:, None] + slots)[mask]
        new, old = np.clip(z[mask], -_LARGEST, _LARGEST).astype(np.float32), self._values[where].astype(np.float32)
        known = old > -np.inf
        if known.any():
            moved = float(np.sqrt(np.square(new[known] - old[known]).mean()))
            self.drift = moved / max(float(new.std()), 1e-6)
        self._values[where] = new

    def state_dict(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {
            "values": torch.from_numpy(self._values.copy()),
            "candidates": torch.from_numpy(self.candidates.copy()),
            "passes": self.passes,
            "drift": self.drift,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`; the memory of other bags or a damaged one raises a `CheckpointError`."""
        if len(state["values"]) != len(self._values) or state["candidates"].shape != self.candidates.shape:
            raise other_data(f"the remembered scores of {len(self._values)} instances", len(state["values"]))
        candidates = state["candidates"].numpy()
        inside = (candidates >= 0) & (candidates < self.sizes[:, None])
        if not inside.all():
            bag, place = np.argwhere(~inside)[0]
            raise CheckpointError(
                f"Expected candidates among the {self.sizes[bag]} instances of bag {bag} (from 0), got position "
                f"{candidates[bag, place]}; restore a copy of the checkpoint, or start a new run."
            )
        self._values[:] = state["values"].numpy()
        self.candidates = candidates.astype(np.int32)
        self.passes, self.drift = int(state["passes"]), float(state["drift"])

    def _find_candidates(self) -> None:
        width = self.candidates.shape[1]
        for bag, (start, size) in enumerate(zip(self._starts.tolist(), self.sizes.tolist())):
            logits = self._values[start : start + size].astype(np.float32)
            candidates = first_largest(logits[None], width)[0] if size > width else np.resize(np.arange(size), width)
            self.candidates[bag] = candidates


def first_largest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the positions [V, count] of the largest values of [V, S], ascending; the first of ties, on any processor.

    In `numpy.argpartition`, the order of ties depends on the vector instructions of the processor.

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
