"""Confidence intervals of the AUROC with reliable coverage, and the comparison of two scores on the same bags.

`auroc_interval` states the rule; ``benchmarks/coverage.py`` measures its coverage.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.errors import ConfigError
from midam.evaluate.ranking import Labels, Scores, check_bags, check_two_classes, placements, units_of

Bounds = tuple[float, float]
Z95 = float(scipy.special.ndtri(0.975))  # scipy.stats would take a second to import
# With fewer independent units in the smaller class, the logit DeLong interval alone covers too little.
FEW_UNITS = 200
# With fewer groups in a class the design effect cannot be estimated; group counts then replace bag counts.
FEW_GROUPS = 10
# Differences and variances below this are rounding: equal placements may differ in the last bit.
_ALIKE = 1e-12


class Interval(NamedTuple):
    """A confidence interval, in [0, 1], and its method.

    Examples
    --------
    >>> interval = auroc_interval([0, 0, 0, 1, 1, 1], [0.1, 0.2, 0.6, 0.4, 0.7, 0.9])
    >>> round(interval.low, 2), round(interval.high, 2), interval.method
    (0.26, 0.99, 'logit-delong + score')
    """

    low: float
    high: float
    method: str  # "logit-delong", "clustered logit-delong" (either with " + score"), "score" or "score (groups)"


def auroc_interval(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    folds: ArrayLike | None = None,
    fold_count: int | None = None,
    level: float = 0.95,
) -> Interval:
    """Return a confidence interval of the AUROC with correct coverage also for few bags and near 1.

    - Independent bags: the DeLong interval on the logit scale. With fewer than 200 bags in the smaller class it is
      widened to contain Newcombe's score interval too ("logit-delong + score"). If the DeLong variance is zero or
      cannot be estimated (AUROC 0 or 1, all scores equal, one bag of a class), the score interval is used alone
      ("score").
    - Groups of several bags: placements add up within a group, and groups are the independent units (Obuchowski 1997,
      "clustered logit-delong"). It is widened likewise if fewer than 200 groups hold the rarer class. The score
      interval then counts the bags divided by the design effect (clustered over plain DeLong variance), or the groups
      if fewer than 10 hold a class. If the AUROC is 0 or 1: the score interval of the group counts ("score (groups)").

    Near AUROC 1 the coverage is above the nominal one; simulated coverage: ``records/coverage.md``.

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        Bag labels, 0 or 1, and finite bag scores, larger means more positive.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag, used if a group holds several bags.
    folds : array_like, shape [N], optional
        Folds of cross-validated scores, disjoint by group: only pairs of bags of one fold are compared. The models of k
        folds share training bags, so the variance is 1 + k / (k - 1) times DeLong's (Nadeau and Bengio 2003). One fold
        has one model, and counts as none.
    fold_count : int, optional
        Number of all folds, where `folds` holds only some of them.
    level : float, default 0.95
        Nominal coverage, in (0, 1).

    Raises
    ------
    MidamError
        As in `midam.evaluate.ranking.auroc`; for a level outside (0, 1).

    References
    ----------
    DeLong et al. (1988), Biometrics 44:837. Sun and Xu (2014), IEEE Signal Processing Letters 21:1389. Newcombe (2006),
    Statistics in Medicine 25:559, method 5. Obuchowski (1997), Biometrics 53:567.

    Examples
    --------
    >>> interval = auroc_interval([0] * 10 + [1] * 10, range(20))
    >>> round(interval.low, 3), interval.high, interval.method
    (0.8, 1.0, 'score')
    """
    y, s = check_bags(labels, scores, groups, folds)
    folds = None if folds is None or len(np.unique(np.asarray(folds))) == 1 else folds
    check_two_classes(y)
    if not 0 < level < 1:
        raise ConfigError(f"Expected a level in (0, 1), got {level}; pass for example level=0.95.")
    z = float(scipy.stats.norm.ppf((1 + level) / 2))
    units, grouped = units_of(groups, y.size)
    of_pos, of_neg = placements(y, s, folds)
    area, shared, counts = float(of_pos.mean()), _shared(folds, fold_count), _classes_of(units, y)
    variance, sizes = shared * _variance(y, of_pos, of_neg, units), [count / shared for count in counts]
    if area in (0.0, 1.0) or not variance > 0:
        return Interval(*_auroc_bounds(area, sizes, z), "score (groups)" if grouped else "score")
    plain = _variance(y, of_pos, of_neg, np.arange(y.size))
    if grouped and min(counts) >= FEW_GROUPS and plain > 0:
        effect = max(1.0, variance / plain)
        sizes = [max(side.size / effect, size) for side, size in zip((of_pos, of_neg), sizes)]
    score = None if min(counts) >= FEW_UNITS else _auroc_bounds(area, sizes, z)
    return logit_interval(area, variance, "clustered logit-delong" if grouped else "logit-delong", score, z=z)


def logit_interval(
    center: float, variance: float, method: str, bounds: Bounds | None, *, z: float = Z95, name: str = "score"
) -> Interval:
    """Return the normal interval on the logit scale, widened to contain the `bounds` by the method `name`, if given."""
    half = z * np.sqrt(variance) / (center * (1 - center))
    low, high = (float(scipy.special.expit(scipy.special.logit(center) + side * half)) for side in (-1, 1))
    if bounds is None:
        return Interval(low, high, method)
    return Interval(min(low, bounds[0]), max(high, bounds[1]), f"{method} + {name}")


def paired_delong(
    labels: ArrayLike,
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    folds: ArrayLike | None = None,
) -> tuple[float, float, float, float]:
    """Compare two AUROCs on the same bags by DeLong's covariance; with groups, by Obuchowski's.

    - Independent bags: the normal interval of DeLong's variance. It is approximate below 20 bags per class.
    - Groups of several bags: placements add up within a group, and groups are the independent units (Obuchowski 1997).
      The quantile is that of Student's t with one degree of freedom less than the number of groups of the rarer class,
      because few groups give a poor estimate of the variance between groups. It is approximate below 20 groups per
      class.

    If the variance of the difference is zero (a perfect score against a constant one), or cannot be estimated (one bag
    or group of a class), the interval combines the two score intervals, of bags or of groups, as if independent (Zou
    and Donner 2008, Statistics in Medicine 27:1693), and the p-value belongs to it. Scores with the same ranking have
    the difference 0 without an interval. Simulated coverage: ``records/coverage.md``. Parameters, errors and references
    are those of `auroc_interval`.

    Returns
    -------
    tuple of float
        AUROC of a minus AUROC of b, lower and upper bound (in [-1, 1]), two-sided p-value of equality.

    Examples
    --------
    >>> y = [0, 0, 0, 1, 1, 1]
    >>> difference, low, high, p = paired_delong(y, [1, 2, 4, 3, 5, 6], [3, 1, 4, 2, 6, 5])
    >>> round(difference, 3), round(p, 3)
    (0.111, 0.48)
    """
    y, a = check_bags(labels, scores_a, scores_b, groups, folds)
    _, b = check_bags(labels, scores_b)
    check_two_classes(y)
    units, grouped = units_of(groups, y.size)
    (a_pos, a_neg), (b_pos, b_neg) = (placements(y, scores, folds) for scores in (a, b))
    d_pos, d_neg = a_pos - b_pos, a_neg - b_neg
    variance, counts, shared = _variance(y, d_pos, d_neg, units), _classes_of(units, y), _shared(folds)
    areas, sizes = (float(a_pos.mean()), float(b_pos.mean())), [count / shared for count in counts]
    degrees = min(counts) - 1 if grouped and variance > 0 else 0

    def bounds() -> list[Bounds]:
        return [_auroc_bounds(area, sizes, Z95) for area in areas]

    return paired_difference(areas, np.append(d_pos, d_neg), shared * variance, bounds, degrees)


def paired_difference(
    values: tuple[float, float], moves: NDArray[Any], variance: float, bounds: Callable[[], Sequence[Any]], degrees: int
) -> tuple[float, float, float, float]:
    """Return the difference of two metrics of the same bags, its bounds, and the p-value of equality.

    `moves` are the influences of bags or groups on the difference: if all are 0, the two rank alike, and there is no
    interval. `variance` is that of the difference, and `degrees` those of Student's t, 0 for the normal law. Without
    variance, the `bounds` of the two metrics, or their intervals, are combined as if independent.
    """
    law = scipy.stats.t(degrees) if degrees > 0 else scipy.stats.norm()
    difference, quantile = values[0] - values[1], float(law.ppf(0.975))
    if np.abs(moves).max() < _ALIKE and abs(difference) < _ALIKE:
        return 0.0, 0.0, 0.0, 1.0
    if variance > _ALIKE**2:
        below = above = quantile * float(np.sqrt(variance))
    else:
        (a_low, a_high, *_), (b_low, b_high, *_) = bounds()
        below = float(np.hypot(values[0] - a_low, b_high - values[1]))
        above = float(np.hypot(a_high - values[0], values[1] - b_low))
    towards_zero = below if difference > 0 else above
    p = float(2 * law.sf(abs(difference) / towards_zero * quantile))
    return difference, max(difference - below, -1.0), min(difference + above, 1.0), p


def _shared(folds: ArrayLike | None, fold_count: int | None = None) -> float:
    """Return the factor of the variance of cross-validated scores, whose models share training bags.

    It is that of the corrected resampled t for k folds, 1 + k / (k - 1), or k' of k: Nadeau and Bengio (2003), Machine
    Learning 52:239. On noise in groups, DeLong's variance of folds alone is half of the true one.
    """
    count = 1 if folds is None else len(np.unique(np.asarray(folds)))
    return 1.0 if count < 2 else 1 + count / ((fold_count or count) - 1)


def _classes_of(units: NDArray[np.intp], labels: Labels) -> tuple[int, int]:
    """Return the numbers of units with a positive bag and with a negative bag."""
    return np.unique(units[labels == 1]).size, np.unique(units[labels == 0]).size


def _auroc_bounds(area: float, sizes: Sequence[float], z: float) -> Bounds:
    """Return the score interval of an AUROC: Newcombe's method 5, whose V has the mean class size for both sizes."""
    pairs = sizes[0] * sizes[1]
    return score_bounds(area, 1 / pairs, sum(sizes) / (2 * pairs), z=z)


def score_bounds(
    area: float, alone: float, shared: float, *, z: float = Z95, effect: float = 1.0
) -> tuple[float, float]:
    """Solve ``|area - x| = z sqrt(V(x))`` for x on both sides; `effect` is the design effect.

    ``V(x) = x (1 - x) [alone + (shared - alone) ((1 - x)/(2 - x) + x/(1 + x))]``, see
    `midam.evaluate.ranking.Pairs.spread`: the covariance of pairs that share their upper or their lower bag is that of
    exponential scores (Hanley and McNeil), hence ``V(x) = V(1 - x)``. With more than two label values, a bag can also
    be the upper bag of one pair and the lower bag of another: an error in its score helps one pair and hurts the other,
    so such pairs count as uncorrelated.
    """
    alone = alone * effect**2
    others = max(shared * effect - alone, 0.0)

    def excess(x: float, center: float) -> float:
        spread = alone + others * ((1 - x) / (2 - x) + x / (1 + x))
        return (center - x) ** 2 - z**2 * x * (1 - x) * spread

    def lower(center: float) -> float:
        # For the center 1, x = 1 solves the equation too; the bound is the other root.
        if center <= 0:
            return 0.0
        return float(scipy.optimize.brentq(excess, 0.0, min(center, 1 - 1e-12), args=(center,), xtol=1e-14))

    return lower(area), 1.0 - lower(1.0 - area)


def _variance(labels: Labels, of_pos: Scores, of_neg: Scores, units: NDArray[np.intp]) -> float:
    """Return the variance of the mean placement over independent units; NaN if a class has one unit.

    Obuchowski (1997): centered placements add up within a group, and those of its positive and negative bags are
    correlated. With one bag per unit it is DeLong's variance.
    """
    units = np.unique(units, return_inverse=True)[1]
    pos, neg = (
        np.bincount(units[labels == label], weights=(placed - placed.mean()) / placed.size, minlength=units.max() + 1)
        for label, placed in ((1, of_pos), (0, of_neg))
    )
    positives, negatives = _classes_of(units, labels)
    if min(positives, negatives) < 2:
        return float("nan")
    variance = positives / (positives - 1) * (pos @ pos) + negatives / (negatives - 1) * (neg @ neg)
    variance += 2 * pos.size / (pos.size - 1) * (pos @ neg)
    return float(variance) if variance > _ALIKE**2 else 0.0
