"""The normalised set kernel: `k(X, Z) = sum_x sum_z exp(-gamma |x - z|^2)`, over `sqrt(k(X, X) k(Z, Z))`.

Gartner, Flach, Kowalczyk and Smola (2002), Multi-instance kernels, ICML.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

Rows = NDArray[np.float64]

_CHUNK_ENTRIES = 4_000_000
_MEDIAN_ROWS = 500


def median_gamma(rows: Rows, *, seed: int) -> float:
    """1 / the median squared distance of up to 500 random rows; 1 where that is zero.

    Examples
    --------
    >>> median_gamma(np.array([[0.0], [2.0]]), seed=0)
    0.25
    """
    chosen = np.random.default_rng(seed).permutation(len(rows))[:_MEDIAN_ROWS]
    distances = pdist(rows[chosen], "sqeuclidean")
    median = float(np.median(distances)) if len(distances) else 0.0
    return 1 / median if median > 0 else 1.0


def set_kernels(left: Sequence[Rows], right: Sequence[Rows], *, gammas: ArrayLike) -> Rows:
    """Normalised kernel of each bag of `left` with each of `right`, for several gammas in one pass.

    Parameters
    ----------
    left, right : sequence of float64 array [n_i, D]
        Bags as rows.
    gammas : array_like [G]
        Widths of the RBF, > 0.

    Returns
    -------
    float64 array [G, len(left), len(right)]
        Values in [0, 1]. Time grows with the product of the numbers of instances, memory does not.

    Examples
    --------
    >>> bag = np.array([[0.0], [1.0]])
    >>> set_kernels([bag], [bag], gammas=[1.0]).round(12)
    array([[[1.]]])
    """
    widths = np.atleast_1d(np.asarray(gammas, dtype=np.float64))
    columns = np.concatenate(right)
    starts = np.cumsum([0, *(len(bag) for bag in right[:-1])])
    step = max(1, _CHUNK_ENTRIES // len(columns))
    kernel = np.zeros((len(widths), len(left), len(right)))
    for i, bag in enumerate(left):
        for low in range(0, len(bag), step):
            distances = cdist(bag[low : low + step], columns, "sqeuclidean")
            for g, gamma in enumerate(widths):
                kernel[g, i] += np.add.reduceat(np.exp(-gamma * distances).sum(axis=0), starts)
    norms = np.sqrt(_own(left, widths)[:, :, None] * _own(right, widths)[:, None, :])
    return np.asarray(kernel / norms)


def _own(bags: Sequence[Rows], widths: NDArray[np.float64]) -> Rows:
    """Kernel of each bag with itself, [G, N]."""
    own = np.zeros((len(widths), len(bags)))
    for i, bag in enumerate(bags):
        step = max(1, _CHUNK_ENTRIES // len(bag))
        for low in range(0, len(bag), step):
            distances = cdist(bag[low : low + step], bag, "sqeuclidean")
            own[:, i] += [float(np.exp(-gamma * distances).sum()) for gamma in widths]
    return own
