"""The concordance index (C-index): the share of comparable pairs that scores order correctly, and its interval.

The C-index extends the AUROC to labels other than 0 and 1: 1/2 is chance, 1 perfect. `midam.evaluate.ranking` defines
comparable pairs.
"""

import numpy as np
from numpy.typing import ArrayLike

from midam.data.validate import refuse_other_order
from midam.evaluate.intervals import (
    FEW_GROUPS,
    FEW_UNITS,
    Interval,
    logit_interval,
    paired_difference,
    score_bounds,
)
from midam.evaluate.ranking import Pairs, Positions, Scores, units_of

# Above it a few badly ranked bags determine the C-index, and even a large sample may hold none of them.
_NEAR_ONE = 0.95
# A variance below this is rounding.
_NOTHING = 1e-24


def concordance_interval(pairs: Pairs, scores: ArrayLike, *, groups: ArrayLike | None = None) -> Interval:
    """Return a 95% confidence interval of a C-index, in [0, 1], with correct coverage also for few bags and near 1.

    - The variance is that of the infinitesimal jackknife: it adds up the influence of each bag, or each group of bags,
      on the C-index ("logit-jackknife", over groups "cluster-jackknife"). The interval is computed on the logit scale.
    - If the smaller side has fewer than 200 bags (groups), or the C-index is above 0.95 or below 0.05, the interval is
      widened to contain a score interval too ("+ score"). A side are the bags that belong above another bag, or those
      that belong below. Without variance (C-index 0 or 1, one bag on a side) the score interval is used alone
      ("score"). It is Newcombe's interval of the AUROC, extended to any pairs by the number of pairs that share a bag.
      With groups it counts the bags divided by the design effect (the jackknife variance over groups divided by that
      over bags), or the groups if fewer than 10 are on a side ("score (groups)").

    The coverage is above the nominal one; without the score interval it falls
    far below if a few bags, which the sample may not hold, are ranked badly. A bootstrap does not cover better:
    ``python benchmarks/target_coverage.py``.

    Parameters
    ----------
    pairs : Pairs
        The comparable pairs.
    scores : array_like, shape [N]
        Scores of the bags.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag.

    Raises
    ------
    MidamError
        As in `Pairs.concordance`.

    References
    ----------
    Therneau and Atkinson (2024), Concordance, vignette of the R package survival. Newcombe (2006), Statistics in
    Medicine 25:559, method 5.

    Examples
    --------
    >>> interval = concordance_interval(Pairs.of_numbers(range(20)), range(20))
    >>> round(interval.low, 2), interval.high, interval.method
    (0.86, 1.0, 'score')
    """
    refuse_other_order(*pairs.made_from, scores, groups)
    center = pairs.concordance(scores)
    bags = np.arange(pairs.sides[0].size)
    units, grouped = units_of(groups, bags.size)
    moves = concordance_moves(pairs, scores, center)
    fewest, most = units_of_sides(pairs, units)
    variance = moves_variance(moves, units, fewest)
    effect = most
    if fewest >= FEW_GROUPS and (plain := moves_variance(moves, bags, units_of_sides(pairs, bags)[0])) > 0:
        effect = float(np.clip(variance / plain, 1.0, most))
    score = score_bounds(center, *pairs.spread, effect=effect)
    if not variance > 0 or center in (0.0, 1.0):
        return Interval(*score, "score (groups)" if grouped else "score")
    method = "cluster-jackknife" if grouped else "logit-jackknife"
    many = fewest >= FEW_UNITS and 1 - _NEAR_ONE <= center <= _NEAR_ONE
    return logit_interval(center, variance, method, None if many else score)


def concordance_moves(pairs: Pairs, scores: ArrayLike, center: float) -> Scores:
    """Return the derivative of the C-index `center` with respect to the weight of each bag, [N]."""
    won, compared = pairs.wins(scores)
    return (won - center * compared) / pairs.total


def units_of_sides(pairs: Pairs, units: Positions) -> tuple[int, float]:
    """Return the number of units (bags or groups) on the smaller side, and the larger mean number of bags per unit."""
    bags = [int(side.sum()) for side in pairs.sides]
    counts = [np.unique(units[side]).size for side in pairs.sides]
    return min(counts), max(bag / count for bag, count in zip(bags, counts))


def moves_variance(moves: Scores, units: Positions, fewest: int) -> float:
    """Return the variance of the infinitesimal jackknife over units; NaN if a side has one unit."""
    if fewest < 2:
        return float("nan")
    variance = float((np.bincount(units, weights=moves) ** 2).sum()) * fewest / (fewest - 1)
    return variance if variance > _NOTHING else 0.0


def paired_concordance(
    pairs: Pairs, scores_a: ArrayLike, scores_b: ArrayLike, *, groups: ArrayLike | None = None
) -> tuple[float, float, float, float]:
    """Compare two C-indices on the same bags by the influence of each bag, or group of bags, on their difference.

    The interval is the normal interval of the infinitesimal jackknife; over groups the quantile is that of Student's t
    with one degree of freedom less than the number of groups on the smaller side. If the variance is zero or cannot be
    estimated, the interval combines those of `concordance_interval` as if independent (Zou and Donner 2008, Statistics
    in Medicine 27:1693), and the p-value belongs to it. Scores with the same ranking have the difference 0 without an
    interval. With fewer than 20 bags (groups) on a side the interval is approximate. For labels 0 and 1 it is
    `midam.evaluate.intervals.paired_delong`, up to ``1 / N``.

    Parameters
    ----------
    pairs, groups
        As in `midam.evaluate.concordance.concordance_interval`, which raises the same errors.
    scores_a, scores_b : array_like, shape [N]
        The two scores of each bag.

    Returns
    -------
    tuple of float
        C-index of a minus C-index of b, lower and upper bound (in [-1, 1]), two-sided p-value of equality.

    Examples
    --------
    >>> pairs = Pairs.of_numbers(range(6))
    >>> difference, low, high, p = paired_concordance(pairs, [1, 2, 4, 3, 5, 6], [3, 1, 4, 2, 6, 5])
    >>> round(difference, 3), round(p, 3)
    (0.2, 0.058)
    """
    refuse_other_order(*pairs.made_from, scores_a, scores_b, groups)
    values = pairs.concordance(scores_a), pairs.concordance(scores_b)
    units, grouped = units_of(groups, pairs.sides[0].size)
    first, second = (concordance_moves(pairs, scores, value) for scores, value in zip((scores_a, scores_b), values))
    moves, fewest = first - second, units_of_sides(pairs, units)[0]

    def bounds() -> list[Interval]:
        return [concordance_interval(pairs, scores, groups=groups) for scores in (scores_a, scores_b)]

    variance, degrees = moves_variance(moves, units, fewest), fewest - 1 if grouped else 0
    return paired_difference(values, np.bincount(units, weights=moves), variance, bounds, degrees)
