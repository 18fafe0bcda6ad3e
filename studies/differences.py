"""Paired differences of two methods for the pages of studies: mean, corrected 95% interval, Holm's correction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from midam.compare.summary import corrected_interval
from studies.split_statistics import Estimate

_LEVEL = 0.05


def paired(difference: NDArray[np.float64], *, ratio: float | None = None) -> str:
    """Return the mean of the differences [J] on one set, and its Nadeau-Bengio corrected interval.

    `ratio` is the ratio of test to training bags of a trial; without it, the trials are the folds of a
    cross-validation.

    Examples
    --------
    >>> paired(np.array([0.01, 0.02, 0.03]))
    '+0.020 [-0.019, +0.059]'
    """
    if not difference.any():
        return "+0.000 (equal in each fold)"
    gap = corrected_interval(difference, ratio=ratio or 1 / (len(difference) - 1))
    return str(Difference(gap.mean, gap.low, gap.high))


class Difference(NamedTuple):
    """A mean difference and its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def over_sets(gaps: Sequence[NDArray[np.float64]], *, ratio: float | None = None) -> Difference:
    """Return the mean over sets and its interval; each set has a separate corrected variance.

    Examples
    --------
    >>> print(over_sets([np.array([0.01, 0.02, 0.03]), np.zeros(3)]))
    +0.010 [-0.010, +0.030]
    """
    found = [corrected_interval(gap, ratio=ratio or 1 / (len(gap) - 1)) for gap in gaps]
    # If all folds are equal, there is no variance to correct.
    halves = [(own.high - own.low) / 2 if np.ptp(gap) > 0 else 0.0 for own, gap in zip(found, gaps, strict=True)]
    half = float(np.sqrt(np.sum(np.square(halves)))) / len(found)
    mean = float(np.mean([own.mean for own in found]))
    return Difference(mean, mean - half, mean + half)


def holm(differences: Sequence[tuple[float, float, float]], *, freedom: int | Sequence[int]) -> list[float]:
    """Return p-values of 95% t intervals (mean, low, high), adjusted for their number by Holm's rule.

    `freedom` is the degrees of freedom of all intervals or of each. A comparison with an interval without width, or
    with NaN as bounds, counts with a p-value of 1.

    Examples
    --------
    >>> [round(p, 3) for p in holm([(0.02, 0.0, 0.04), (0.02, 0.0, 0.04), (0.0, -0.1, 0.1)], freedom=9)]
    [0.15, 0.15, 1.0]
    """
    mean, low, high = np.asarray(differences, dtype=np.float64).reshape(-1, 3).T
    half = np.where(np.isfinite(high - low) & (high > low), (high - low) / 2, np.inf)
    degrees = np.broadcast_to(freedom, half.shape)
    single = 2 * stats.t.sf(np.abs(mean) / half * stats.t.ppf(0.975, degrees), degrees)
    order = np.argsort(single, kind="stable")
    found = np.empty(len(single))
    found[order] = np.maximum.accumulate(np.minimum(1, single[order] * np.arange(len(single), 0, -1)))
    return [float(value) for value in found]


def left_after_holm(differences: Mapping[str, Estimate], *, freedom: int | Sequence[int]) -> str:
    """Return a sentence with the differences, means and 95% t intervals by name, of which Holm's rule leaves p < 0.05.

    Examples
    --------
    >>> left_after_holm({"a": Estimate(0.5, 0.4, 0.6), "b": Estimate(0.0, -0.1, 0.1)}, freedom=9)
    "After Holm's correction over these 2 differences p < 0.05 is left for 1: a (p = 0.000)."
    """
    intervals = [(one.mean, one.low, one.high) for one in differences.values()]
    p = dict(zip(differences, holm(intervals, freedom=freedom)))
    left = [f"{name} (p = {value:.3f})" for name, value in p.items() if value < _LEVEL]
    listed = f" {len(left)}: {'; '.join(left)}." if left else f" none; the smallest p is {min(p.values()):.2f}."
    return f"After Holm's correction over these {len(p)} differences p < {_LEVEL:g} is left for{listed}"
