"""Known witnesses: which instances they are, and how many a bag holds."""

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags


def marks_of(bags: Bags) -> NDArray[np.bool_] | None:
    """Return which instances are witnesses, bag after bag [num_instances]; None if unknown."""
    return None if bags.witnesses is None else bags.witnesses[bags.rows()]


def counts_of(bags: Bags) -> NDArray[np.int64]:
    """Return the number of known witnesses of each bag, int64 [N]; 0 for negative bags and if none is known."""
    marks = marks_of(bags)
    if marks is None:
        return np.zeros(len(bags), dtype=np.int64)
    counts: NDArray[np.int64] = np.add.reduceat(marks, np.cumsum(bags.sizes) - bags.sizes, dtype=np.int64)
    return counts if bags.labels is None else counts * bags.labels
