"""Shares of bags with intervals that know of groups, thresholds for a wanted share, and differences of two figures."""

from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from midam.data.validate import as_array
from midam.errors import ConfigError, require
from midam.evaluate.intervals import FEW_GROUPS
from midam.evaluate.ranking import check_bags, check_two_classes, group_numbers


class Estimate(NamedTuple):
    """A figure and its 95% interval.

    Attributes
    ----------
    value, low, high : float
        The figure and its bounds.
    bags : int
        Bags that it rests on.
    """

    value: float
    low: float
    high: float
    bags: int


def proportion(hits: ArrayLike, *, groups: ArrayLike | None = None) -> Estimate | None:
    """Share of the bags for which `hits` [n] is true, with Wilson's 95% interval; None without bags.

    Where some of the `groups` [n] hold several bags, the interval counts the bags divided by the design effect
    (variance of the share over whole groups, by that over bags), or the groups where there are fewer than 10 of them,
    or where all bags agree.

    References
    ----------
    Wilson (1927), Journal of the American Statistical Association 22:209. Kish (1965), Survey Sampling, section 8.2.

    Examples
    --------
    >>> found = proportion([True, True, True, False])
    >>> found.value, round(found.low, 3), round(found.high, 3), found.bags
    (0.75, 0.301, 0.954, 4)
    """
    right = as_array(hits).astype(bool)
    if not right.size:
        return None
    share, trials = float(right.mean()), float(right.size)
    units = group_numbers(groups, right.size)
    if units is not None and (count := int(units.max()) + 1) < right.size:
        spread = np.bincount(units, weights=right - share)
        trials = float(count)
        if count >= FEW_GROUPS and 0 < share < 1:
            clustered = float((spread**2).sum()) / right.size**2 * count / (count - 1)
            trials = max(right.size / max(1.0, clustered * right.size / (share * (1 - share))), trials)
    return Estimate(share, *wilson(share, trials), right.size)


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Wilson's 95% score interval of a share of so many trials, which need be no whole number.

    Examples
    --------
    >>> [round(bound, 3) for bound in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    z = float(scipy.stats.norm.ppf(0.975))
    widen = 1 + z**2 / trials
    center = (share + z**2 / (2 * trials)) / widen
    half = z * float(np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))) / widen
    # Exactly 0 and 1 at the ends, where rounding would leave 1e-17.
    return 0.0 if share == 0 else center - half, 1.0 if share == 1 else center + half


def difference(first: Estimate, second: Estimate) -> Estimate:
    """The first figure minus the second, of different bags, from their two intervals.

    References
    ----------
    Zou and Donner (2008), Statistics in Medicine 27:1693.

    Examples
    --------
    >>> found = difference(Estimate(0.9, 0.8, 0.95, 50), Estimate(0.7, 0.6, 0.8, 50))
    >>> [round(number, 3) for number in found[:3]]
    [0.2, 0.059, 0.312]
    """
    value = first.value - second.value
    below = float(np.hypot(first.value - first.low, second.high - second.value))
    above = float(np.hypot(first.high - first.value, second.value - second.low))
    return Estimate(value, value - below, value + above, first.bags + second.bags)


def threshold_for(
    labels: ArrayLike, scores: ArrayLike, *, sensitivity: float | None = None, specificity: float | None = None
) -> float:
    """Threshold that reaches a wanted sensitivity, or specificity, on these bags; pass validation bags.

    Of all that reach it, the one that costs least of the other; it lies halfway to the next score. A bag is called
    positive from this score on.

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        As of `midam.evaluate.ranking.auroc`.
    sensitivity, specificity : float in (0, 1]
        What is wanted; exactly one of them.

    Raises
    ------
    ConfigError
        If not exactly one of them is given, in (0, 1].
    MidamError
        As of `midam.evaluate.ranking.auroc`.

    Examples
    --------
    >>> labels, scores = [0, 0, 0, 1, 1, 1], [0.0, 1.0, 4.0, 2.0, 5.0, 6.0]
    >>> threshold_for(labels, scores, sensitivity=0.6), threshold_for(labels, scores, specificity=0.6)
    (4.5, 1.5)
    """
    for name, share in (("sensitivity", sensitivity), ("specificity", specificity)):
        if share is not None:
            require(share, float, name, "give a share in (0, 1]")
    wanted = sensitivity if specificity is None else specificity
    if wanted is None or (sensitivity is not None and specificity is not None) or not 0 < wanted <= 1:
        raise ConfigError(
            f"Expected a sensitivity or a specificity in (0, 1], got {sensitivity} and {specificity}; give one of them."
        )
    y, s = check_bags(labels, scores)
    check_two_classes(y)
    values = np.unique(s)
    if sensitivity is not None:
        of_pos = np.sort(s[y == 1])[::-1]
        at = int(np.searchsorted(values, of_pos[_needed(wanted, of_pos.size) - 1]))
        return float(values[0]) if at == 0 else _between(values[at - 1], values[at])
    of_neg = np.sort(s[y == 0])
    at = int(np.searchsorted(values, of_neg[_needed(wanted, of_neg.size) - 1]))
    return float(np.nextafter(values[at], np.inf)) if at + 1 == values.size else _between(values[at], values[at + 1])


def _needed(share: float, count: int) -> int:
    """Bags that make up a share; a share such as 0.9 of 10 bags is 9 of them, whatever its rounding."""
    return max(1, int(np.ceil(share * count - 1e-9)))


def _between(low: np.float64, high: np.float64) -> float:
    middle = low / 2 + high / 2
    return float(middle if middle > low else high)
