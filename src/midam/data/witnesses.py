"""Witnesses that are known: which instances they are, how many a bag holds, and the chance of a draw to hold one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    found: NDArray[np.int64] = np.add.reduceat(marks, np.cumsum(bags.sizes) - bags.sizes, dtype=np.int64)
    return found if bags.labels is None else found * bags.labels


def chance_of_a_witness(sizes: ArrayLike, counts: ArrayLike, num_instances: int) -> NDArray[np.float64]:
    """Chance [N] that a uniform draw of `num_instances` holds one of the `counts` witnesses of a bag of `sizes`.

    ``1 - C(n - k, B) / C(n, B)``, of B distinct instances; 1 where the whole bag is drawn and has a witness.

    Examples
    --------
    >>> chance_of_a_witness([500, 5000, 4], [1, 5, 1], 16).round(3).tolist()
    [0.032, 0.016, 1.0]
    """
    n, k = np.asarray(sizes, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    missed = np.ones(n.shape)
    for drawn in range(num_instances):
        left = n - drawn
        missed *= np.where(left > 0, np.clip((left - k) / np.maximum(left, 1), 0, 1), 1)
    return 1 - missed
