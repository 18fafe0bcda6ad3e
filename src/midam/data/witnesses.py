"""Witnesses that are known: which instances they are, how many a bag holds, and the chance of a draw to hold one."""

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags


def marks_of(bags: Bags) -> NDArray[np.bool_] | None:
    """Which instances are witnesses, bag after bag [num_instances]; None where that is not known."""
    if bags.witnesses is None:
        return None
    spans = zip(bags.starts.tolist(), bags.sizes.tolist())
    return np.concatenate([bags.witnesses[start : start + size] for start, size in spans])


def counts_of(bags: Bags) -> NDArray[np.int64]:
    """Number of known witnesses of each bag, int64 [N]; 0 of negative bags, and where none is known."""
    marks = marks_of(bags)
    if marks is None:
        return np.zeros(len(bags), dtype=np.int64)
    counts: NDArray[np.int64] = np.add.reduceat(marks, np.cumsum(bags.sizes) - bags.sizes, dtype=np.int64)
    return counts if bags.labels is None else counts * bags.labels
