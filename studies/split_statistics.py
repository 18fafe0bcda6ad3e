"""Statistics of trials that share test sets: the sampling unit is the split, not the trial.

The 5 folds of a split are tested on the same bags. With split means m_1 .. m_K,

    mean m, interval m -+ t_{K-1} s / sqrt(K),  s the standard deviation of the split means,

and a new mean over k splits falls, with 95%, into m -+ t_{K-1} s sqrt(1/k + 1/K). The splits of one data set overlap in
their training bags, so that both intervals are slightly too narrow. Intervals of an AUROC are cut at 0 and 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from midam.errors import ConfigError


@dataclass(frozen=True)
class Estimate:
    """A mean with an interval."""

    # The interval covers 95%
    mean: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether the interval contains a value."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self:}"

    def __format__(self, sign: str) -> str:
        """Return mean and interval with three decimals; ``+`` adds signs."""
        return f"{self.mean:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


def split_means(values: Mapping[int, Sequence[float]]) -> list[float]:
    """Return the mean of each split, in the order of the splits; a split without a trial is left out.

    Examples
    --------
    >>> split_means({1: [0.5, 0.7], 0: [0.9]})
    [0.9, 0.6]
    """
    return [float(np.mean(values[split])) for split in sorted(values) if len(values[split])]


def paired_interval(values: ArrayLike, others: ArrayLike) -> Estimate:
    """Return the mean difference of two AUROCs over the same splits, and its 95% interval.

    Examples
    --------
    >>> print(paired_interval([0.9, 0.8], [0.8, 0.7]))
    0.100 [0.100, 0.100]
    """
    differences = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    return mean_interval(differences.tolist(), bounds=(-1.0, 1.0))


def mean_interval(means: Sequence[float], *, bounds: tuple[float, float] = (0.0, 1.0)) -> Estimate:
    """Return the mean over splits and its 95% interval (t, K - 1 degrees of freedom).

    Examples
    --------
    >>> print(mean_interval([0.6, 0.7, 0.8]))
    0.700 [0.452, 0.948]
    """
    return _interval(means, scale=1 / len(means) if means else 0.0, bounds=bounds)


def predictive_interval(means: Sequence[float], *, count: int = 3) -> Estimate:
    """Return the mean over splits, and the 95% interval of the mean of `count` new splits.

    Examples
    --------
    >>> print(predictive_interval([0.6, 0.7, 0.8]))
    0.700 [0.349, 1.000]
    """
    return _interval(means, scale=1 / count + (1 / len(means) if means else 0.0), bounds=(0.0, 1.0))


def _interval(means: Sequence[float], *, scale: float, bounds: tuple[float, float]) -> Estimate:
    if len(means) < 2:
        raise ConfigError(f"Expected at least 2 splits for an interval, got {len(means)}; run more splits.")
    mean = float(np.mean(means))
    half = float(stats.t.ppf(0.975, len(means) - 1)) * float(np.std(means, ddof=1)) * scale**0.5
    return Estimate(mean, max(bounds[0], mean - half), min(bounds[1], mean + half))
