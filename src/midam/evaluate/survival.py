"""Times to an event: Kaplan-Meier curves with Greenwood intervals, follow-up, bags at risk.

Bags that are censored at the time of an event count as at risk for the event.
"""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.evaluate.ranking import Scores, check_numbers, check_times


class SurvivalCurve(NamedTuple):
    """A Kaplan-Meier curve: constant from each time on, 1 before the first; arrays [K] for the distinct times.

    Attributes
    ----------
    time : array of float64
        Distinct times, ascending.
    at_risk, events : array of int64
        Bags that were neither censored nor had the event before this time; events at this time.
    survival, low, high : array of float64
        Share without event after this time, and its pointwise interval.

    Examples
    --------
    >>> curve = kaplan_meier(time=[1, 2, 2, 3, 4], event=[1, 1, 0, 1, 0])
    >>> for row in zip(curve.time, curve.at_risk, curve.events, curve.survival.round(2)):
    ...     print(*row)
    1.0 5 1 0.8
    2.0 4 1 0.6
    3.0 2 1 0.3
    4.0 1 0 0.3
    """

    time: Scores
    at_risk: NDArray[np.int64]
    events: NDArray[np.int64]
    survival: Scores
    low: Scores
    high: Scores


def kaplan_meier(time: ArrayLike, event: ArrayLike) -> SurvivalCurve:
    """Compute the Kaplan-Meier curve ``S(t) = prod_k (1 - d_k / n_k)`` with pointwise 95% intervals.

    The intervals use Greenwood's variance on the log(-log S) scale, so they stay in [0, 1]. Before the first event they
    are [1, 1]; once the curve has reached 0, the lower bound is 0 and the upper bound stays constant.

    Parameters
    ----------
    time, event : array_like, shape [N]
        Times to the event, or to censoring where `event` is 0.

    Raises
    ------
    BagDataError
        If the arrays do not match, or hold invalid values.

    References
    ----------
    Kaplan and Meier (1958), Journal of the American Statistical Association 53:457. Kalbfleisch and Prentice (2002),
    The Statistical Analysis of Failure Time Data, section 1.4.

    Examples
    --------
    >>> curve = kaplan_meier([1, 2, 2, 3, 4], [1, 1, 0, 1, 0])
    >>> curve.time.tolist(), curve.survival.round(2).tolist()
    ([1.0, 2.0, 3.0, 4.0], [0.8, 0.6, 0.3, 0.3])
    """
    t, e = check_times(time, event)
    times = np.unique(t)
    at_risk, events = bags_at_risk(t, times), np.bincount(np.searchsorted(times, t[e]), minlength=times.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        survival = np.cumprod(1.0 - events / at_risk, dtype=np.float64)
        greenwood = np.cumsum(events / (at_risk * (at_risk - events)))
        half = float(scipy.stats.norm.ppf(0.975)) * np.sqrt(greenwood) / np.log(survival)
        low, high = survival ** np.exp(-half), survival ** np.exp(half)
    low, high = (np.where(survival == 1, 1.0, bound) for bound in (low, high))
    ended = int((survival > 0).sum())
    low[ended:], high[ended:] = 0.0, high[ended - 1] if ended else 1.0
    return SurvivalCurve(times, at_risk, events, survival, low, high)


def median_time(curve: SurvivalCurve) -> float | None:
    """Return the first time at which the curve is at most 1/2; None if it never is."""
    below = np.flatnonzero(curve.survival <= 0.5 + 1e-9)  # a product that is 1/2 may round to more
    return float(curve.time[below[0]]) if below.size else None


def median_follow_up(time: ArrayLike, event: ArrayLike) -> float | None:
    """Return the median follow-up by the reverse Kaplan-Meier curve, whose event is censoring (Schemper, Smith 1996).

    None if the curve does not reach 1/2.

    Examples
    --------
    >>> median_follow_up([1, 2, 3, 4, 5], [1, 0, 1, 0, 0])
    4.0
    """
    t, e = check_times(time, event)
    return median_time(kaplan_meier(t, ~e))


def bags_at_risk(time: ArrayLike, at: ArrayLike) -> NDArray[np.int64]:
    """Return the number of bags at risk at each of the times `at`: the row below a Kaplan-Meier plot.

    Examples
    --------
    >>> bags_at_risk([1, 2, 2, 3], [0, 2, 4]).tolist()
    [4, 3, 0]
    """
    t = check_numbers(time)
    return t.size - np.searchsorted(np.sort(t), at, side="left")
