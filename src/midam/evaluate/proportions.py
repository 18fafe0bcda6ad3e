"""Shares of bags with intervals that account for groups, thresholds by a rule, and differences of two metrics."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import as_array, refuse_other_order
from midam.errors import BagDataError, OneClassError
from midam.evaluate.intervals import FEW_GROUPS, Z95, auroc_interval
from midam.evaluate.ranking import Scores, auroc, check_bags, check_two_classes, units_of
from midam.reading import Form, Number
from midam.settings.training import threshold_rule

RULES = (
    *("youden", "sensitivity=0.95", "sensitivity=0.9", "specificity=0.9", "specificity=0.95", "f1", "ppv=0.5"),
    "cost=10:1",
)
"""Threshold rules that a report always shows."""
# Relative difference of two numbers that files, which hold nine digits, tell apart.
APART = 1e-8


class Estimate(NamedTuple):
    """A metric and its 95% interval.

    Attributes
    ----------
    value, low, high : float
        The metric and its bounds.
    bags : int
        Number of bags that it is computed from.

    Examples
    --------
    >>> sensitivity = proportion([True] * 18 + [False] * 2)
    >>> f"{sensitivity.value:.2f} [{sensitivity.low:.2f}, {sensitivity.high:.2f}] of {sensitivity.bags} bags"
    '0.90 [0.70, 0.97] of 20 bags'
    """

    value: float
    low: float
    high: float
    bags: int


def estimate_of(value: float | None, bounds: Sequence[float] | None, bags: int) -> Estimate | None:
    """Return the estimate of a value and its two bounds, NaN for unknown bounds; None without a value."""
    low, high = bounds or (np.nan, np.nan)
    return None if value is None else Estimate(value, low, high, bags)


def proportion(
    hits: ArrayLike, *, groups: ArrayLike | None = None, among: NDArray[np.bool_] | None = None
) -> Estimate | None:
    """Return the share of bags for which `hits` [n] is true, with Wilson's 95% interval; None without bags.

    Only the bags for which `among` [n] is true count, by default all. If some of the `groups` [n] hold several bags,
    the interval counts the bags divided by the design effect (variance of the share over whole groups divided by that
    over bags). With fewer than 10 groups, or if all bags agree, it counts the groups.

    References
    ----------
    Wilson (1927), Journal of the American Statistical Association 22:209. Kish (1965), Survey Sampling, section 8.2.

    Examples
    --------
    >>> found = proportion([True, True, True, False])
    >>> found.value, round(found.low, 3), round(found.high, 3), found.bags
    (0.75, 0.301, 0.954, 4)
    """
    refuse_other_order(hits, groups, among)
    right = as_array(hits)
    if not np.isin(right, (0, 1)).all():
        raise BagDataError("Expected hits as truth values, got others; compare scores with a threshold.")
    if among is not None:
        inside = as_array(among, bool)
        right, groups = right[inside], None if groups is None else as_array(groups, object)[inside]
    if not right.size:
        return None
    share, trials = float(right.mean()), float(right.size)
    units, grouped = units_of(groups, right.size)
    if grouped:
        count = int(units.max()) + 1
        spread = np.bincount(units, weights=right - share)
        trials = float(count)
        if count >= FEW_GROUPS and 0 < share < 1:
            clustered = float((spread**2).sum()) / right.size**2 * count / (count - 1)
            trials = max(right.size / max(1.0, clustered * right.size / (share * (1 - share))), trials)
    return Estimate(share, *wilson(share, trials), right.size)


def called_right(
    labels: ArrayLike, scores: ArrayLike, *, threshold: float | None, label: int, groups: ArrayLike | None = None
) -> Estimate | None:
    """Return the share of the bags of a class, 1 or 0, that a threshold calls correctly, as `proportion`.

    None without such bags, or without a threshold.
    """
    y, s = check_bags(labels, scores, groups)
    return None if threshold is None else proportion((s >= threshold) == y, groups=groups, among=y == label)


def auroc_estimate(
    labels: ArrayLike, scores: ArrayLike, *, folds: ArrayLike | None = None, **options: Any
) -> Estimate | None:
    """Return the AUROC with its interval; None if there is none.

    `folds` and the `options` are those of `midam.evaluate.intervals.auroc_interval`.
    """
    try:
        low, high, _ = auroc_interval(labels, scores, folds=folds, **options)
    except OneClassError:
        return None
    return Estimate(auroc(labels, scores, folds=folds), low, high, as_array(scores).size)


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Return Wilson's 95% score interval of a share of `trials` trials, which need not be a whole number.

    Examples
    --------
    >>> [round(bound, 3) for bound in wilson(0.5, 10)]
    [0.237, 0.763]
    """
    widen = 1 + Z95**2 / trials
    center = (share + Z95**2 / (2 * trials)) / widen
    half = Z95 * float(np.sqrt(share * (1 - share) / trials + Z95**2 / (4 * trials**2))) / widen
    # Exactly 0 and 1 at the ends, without a rounding error of 1e-17.
    return 0.0 if share == 0 else center - half, 1.0 if share == 1 else center + half


def difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the first metric minus the second, of different bags, with an interval from their two intervals.

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


class OperatingPoint(Form):
    """A rule, its threshold on the score, and a note if the rule cannot be met or calls all bags the same.

    `by_fold` are the thresholds of cross-validated bags, in the order of the folds: that of a fold is what the others
    choose.

    Examples
    --------
    >>> labels, scores = [0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.4, 0.6, 0.7, 0.9]
    >>> for point in operating_points(labels, scores, ["youden", "specificity=0.9"]):
    ...     print(point.rule, round(point.threshold, 2))
    youden 0.3
    specificity=0.9 0.65
    """

    rule: str
    threshold: Number
    note: str | None = None
    by_fold: list[Number] | None = None


def operating_points(labels: ArrayLike, scores: ArrayLike, rules: Sequence[str] = RULES) -> list[OperatingPoint]:
    """Choose the scores from which a bag is called positive, by rules; pass bags that were not used in training.

    Candidates are the midpoints between neighboring scores, a threshold just below all scores (all bags positive) and
    one just above them (no bag positive). "youden" maximizes J = sensitivity + specificity - 1 (Youden 1950); of equal
    J, the smallest difference between the two wins. "sensitivity=0.9" is the highest threshold that reaches this
    sensitivity, "specificity=0.95" the lowest that reaches this specificity. "ppv=0.5" has the highest sensitivity of
    the thresholds that reach this PPV; if none does, it has the highest PPV, with a note. "f1" maximizes F1, and
    "cost=10:1" minimizes 10 times the missed positive bags plus the false alarms. Of equally good thresholds the lowest
    is chosen.

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        As in `midam.evaluate.ranking.auroc`.
    rules : sequence of str
        As in these examples; another rule raises a `ConfigError`.

    Examples
    --------
    >>> labels, scores = [0, 0, 0, 1, 1, 1], [0.0, 1.0, 4.0, 2.0, 5.0, 6.0]
    >>> points = operating_points(labels, scores, ["sensitivity=0.6", "specificity=0.6", "cost=10:1"])
    >>> [point.threshold for point in points]
    [4.5, 1.5, 1.5]
    """
    y, s = check_bags(labels, scores)
    positives, negatives = check_two_classes(y)
    values, place = np.unique(s, return_inverse=True)
    of_pos, of_neg = (np.bincount(place.reshape(-1)[y == label], minlength=values.size) for label in (1, 0))
    # Bags at or above each distinct score, and above all scores. Integers keep ties exact.
    hits = np.append(positives - np.cumsum(of_pos) + of_pos, 0)
    alarms = np.append(negatives - np.cumsum(of_neg) + of_neg, 0)
    points = []
    for rule in rules:
        at, note = _best_place(rule, hits, alarms)
        if note is None and rule != "youden" and at in (0, values.size):
            note = f"The threshold for {rule} calls {'every bag' if at == 0 else 'no bag'} positive."
        points.append(OperatingPoint(rule=rule, threshold=cut_below(values, at), note=note))
    return points


def cut_below(values: Scores, start: int) -> float:
    """Return a threshold that exactly the ascending `values` from position `start` on reach, also with nine digits."""
    if start == 0:
        return float(values[0] - APART * abs(values[0]))
    if start == values.size:
        return float(np.nextafter(values[-1] + APART * abs(values[-1]), np.inf))
    middle = values[start - 1] / 2 + values[start] / 2
    # Neighboring floats have no number between them.
    return float(middle if middle > values[start - 1] else values[start])


def _best_place(rule: str, hits: NDArray[np.int64], alarms: NDArray[np.int64]) -> tuple[int, str | None]:
    """Return the position of a rule's threshold among those with these hits and false alarms, the lowest first."""
    name, number = threshold_rule(rule)
    positives, negatives, places = int(hits[0]), int(alarms[0]), np.arange(hits.size)
    cleared, precision = negatives - alarms, hits / np.maximum(hits + alarms, 1)
    imprecise = precision < number - 1e-9
    keys = {  # keys to minimize, the last key first
        "youden": (places, np.abs(hits * negatives - cleared * positives), alarms * positives - hits * negatives),
        "f1": (places, -hits / (hits + alarms + positives)),
        "sensitivity": (-places, hits < _needed(number, positives)),
        "specificity": (places, cleared < _needed(number, negatives)),
        "ppv": (-hits, -precision) if imprecise.all() else (alarms, -hits, imprecise),
        "cost": (places, number * (positives - hits) + alarms),
    }
    best, note = int(np.lexsort(keys[name])[0]), None
    if name == "ppv" and imprecise.all():
        note = f"Expected a threshold with {rule}, got a PPV of at most {precision[best]:.2f}, which is used instead."
    return best, note


def _needed(share: float, count: int) -> int:
    """Return the number of bags that reach a share; 0.9 of 10 bags is 9, whatever the rounding."""
    return max(1, int(np.ceil(share * count - 1e-9)))
