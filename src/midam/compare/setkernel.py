"""The normalized set kernel: `k(X, Z) = sum_x sum_z exp(-gamma |x - z|^2)`, over `sqrt(k(X, X) k(Z, Z))`.

Gartner, Flach, Kowalczyk and Smola (2002), Multi-instance kernels, ICML.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

Rows = NDArray[np.float64]

_CHUNK_ENTRIES = 4_000_000
_MEDIAN_ROWS = 500


def median_gamma(rows: Rows, *, seed: int) -> float:
    """1 / the median squared distance of up to 500 random rows; 1 where that is zero."""
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_MEDIAN_ROWS]
    distances = pdist(rows[chosen], "sqeuclidean")
    median = float(np.median(distances)) if len(distances) else 0.0
    return 1 / median if median > 0 else 1.0


def set_kernels(left: Sequence[Rows], right: Sequence[Rows], *, gammas: ArrayLike) -> Rows:
    """Kernel [G, len(left), len(right)] of each bag of `left` with each of `right`, for G gammas in one pass."""
    widths = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    columns = np.concatenate(right)
    starts = np.cumsum([0, *(len(bag) for bag in right[:-1])])
    kernel = np.zeros((len(widths), len(left), len(right)))
    for i, bag in enumerate(left):
        for distances in _distances(bag, columns):
            for g, gamma in enumerate(widths):
                kernel[g, i] += np.add.reduceat(np.exp(-gamma * distances).sum(axis=0), starts)
    own = [np.zeros((len(widths), len(bags))) for bags in (left, right)]
    for sums, bags in zip(own, (left, right)):
        for i, bag in enumerate(bags):
            for distances in _distances(bag, bag):
                sums[:, i] += [float(np.exp(-gamma * distances).sum()) for gamma in widths]
    return np.asarray(kernel / np.sqrt(own[0][:, :, None] * own[1][:, None, :]))


def _distances(bag: Rows, columns: Rows) -> Iterator[Rows]:
    """Squared distances of the rows of a bag to the columns, a chunk of rows at a time."""
    step = max(1, _CHUNK_ENTRIES // len(columns))
    for low in range(0, len(bag), step):
        yield cdist(bag[low : low + step], columns, "sqeuclidean")
