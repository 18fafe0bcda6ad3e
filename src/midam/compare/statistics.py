"""Intervals for repeated cross-validation, whose trials share training bags.

The plain t interval takes trials as independent and is far too narrow. The correction of Nadeau and Bengio (2003,
Machine Learning 52:239) adds the share of test to training bags: with J trials of variance s^2, the squared error of
their mean is `(1/J + n_test/n_train) s^2`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class CorrectedInterval(NamedTuple):
    """A mean over trials and its interval; NaN where there is none."""

    mean: float
    low: float
    high: float
    trials: int


def corrected_interval(values: ArrayLike, *, ratio: float, level: float = 0.95) -> CorrectedInterval:
    """Mean of the trials and the corrected resampled t interval, with J - 1 degrees of freedom.

    The bounds are NaN for fewer than two trials, or trials without spread.

    Parameters
    ----------
    values : array_like, shape [J]
        One finite figure (an AUROC, a paired difference) per trial.
    ratio : float > 0
        Test bags over training bags of a trial, 1/9 for 10 folds.
    level : float in (0, 1), default 0.95
        Level of the interval.

    Examples
    --------
    >>> found = corrected_interval([0.8, 0.9, 1.0], ratio=0.5)
    >>> round(found.mean, 3), round(found.high - found.mean, 4)
    (0.9, 0.3928)
    """
    x = np.asarray(values, dtype=np.float64)
    mean = float(x.mean()) if x.size else np.nan
    if x.size < 2 or np.ptp(x) == 0:
        return CorrectedInterval(mean, np.nan, np.nan, x.size)
    half = float(stats.t.ppf((1 + level) / 2, x.size - 1) * np.sqrt((1 / x.size + ratio) * x.var(ddof=1)))
    return CorrectedInterval(mean, mean - half, mean + half, x.size)
