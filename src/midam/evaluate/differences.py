"""Which of two scores ranks the same bags better: the difference of their C-indices, or macro AUROCs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from midam.errors import OneClassError
from midam.evaluate.classes import class_aurocs, class_moves, macro_auroc_interval
from midam.evaluate.concordance import concordance_interval, concordance_moves, units_of_sides
from midam.evaluate.intervals import Interval
from midam.evaluate.ranking import Pairs, units_of

_ALIKE = 1e-12


def paired_concordance(
    pairs: Pairs, scores_a: ArrayLike, scores_b: ArrayLike, *, groups: ArrayLike | None = None, level: float = 0.95
) -> tuple[float, float, float, float]:
    """Difference of two C-indices on the same bags, from what each bag, or group of bags, moves it by.

    The interval is the normal one of the infinitesimal jackknife; over groups the quantile is that of Student's t with
    one degree of freedom less than the groups of the smaller side. Where the variance is zero or cannot be estimated
    the interval combines those of `concordance_interval` as if independent (Zou and Donner 2008, Statistics in Medicine
    27:1693), and the p-value belongs to it. Scores that rank alike have the difference 0 without an interval. Below 20
    bags (groups) of a side it is approximate. For 0 and 1 it is `midam.evaluate.intervals.paired_delong`, up to
    ``1 / N``.

    Parameters
    ----------
    pairs, groups, level
        As of `midam.evaluate.concordance.concordance_interval`, also the errors.
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
    values = pairs.concordance(scores_a), pairs.concordance(scores_b)
    units, grouped = units_of(groups, pairs.sides[0].size)
    first, second = (concordance_moves(pairs, own, of) for own, of in zip((scores_a, scores_b), values))
    moves, fewest = np.bincount(units, weights=first - second), units_of_sides(pairs, units)[0]
    factor = np.sqrt(fewest / (fewest - 1)) if fewest > 1 else np.nan

    def intervals() -> list[Interval]:
        return [concordance_interval(pairs, own, groups=groups, level=level) for own in (scores_a, scores_b)]

    law = scipy.stats.t(fewest - 1) if grouped and fewest > 1 else scipy.stats.norm()
    return _difference(values, moves, factor, intervals, law=law, level=level)


def paired_macro_auroc(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, *, groups: ArrayLike | None = None, level: float = 0.95
) -> tuple[float, float, float, float]:
    """Difference of two macro AUROCs on the same bags, like `paired_concordance`.

    Parameters as of `midam.evaluate.classes.macro_auroc_interval`, scores [N, C]; an `OneClassError` where no
    column has bags of both kinds. Where the variance is zero the two intervals are those of `macro_auroc_interval`.
    """
    y = np.asarray(labels, dtype=np.float64)
    a, b = np.asarray(scores_a, dtype=np.float64), np.asarray(scores_b, dtype=np.float64)
    areas = class_aurocs(y, a), class_aurocs(y, b)
    used = np.flatnonzero(np.isfinite(areas[0])).tolist()
    if not used:
        raise OneClassError("Expected bags of both kinds of some class, got none; evaluate on bags of several classes.")
    units, grouped = units_of(groups, len(y))
    first, second = (np.mean([class_moves(y[:, c], own[:, c], units)[0] for c in used], axis=0) for own in (a, b))
    values = float(areas[0][used].mean()), float(areas[1][used].mean())

    def intervals() -> list[Interval]:
        found = (macro_auroc_interval(y, own, groups=groups, level=level) for own in (a, b))
        return [own for own in found if own is not None]

    law = scipy.stats.t(units.max()) if grouped else scipy.stats.norm()
    return _difference(values, first - second, 1.0, intervals, law=law, level=level)


def _difference(
    values: tuple[float, float],
    moves: NDArray[Any],
    factor: float,
    intervals: Callable[[], list[Interval]],
    *,
    law: Any,
    level: float,
) -> tuple[float, float, float, float]:
    """Difference, bounds and p-value from the moves of units; `intervals` are asked for where these tell nothing."""
    difference = values[0] - values[1]
    if np.abs(moves).max() < _ALIKE and abs(difference) < _ALIKE:
        return 0.0, 0.0, 0.0, 1.0
    quantile = float(law.ppf((1 + level) / 2))
    variance = float((moves**2).sum()) * factor**2
    if variance > _ALIKE**2:
        below = above = quantile * float(np.sqrt(variance))
    else:
        a, b = intervals()
        below = float(np.hypot(values[0] - a.low, b.high - values[1]))
        above = float(np.hypot(a.high - values[0], values[1] - b.low))
    towards_zero = below if difference > 0 else above
    p = float(2 * law.sf(abs(difference) / towards_zero * quantile))
    return difference, max(difference - below, -1.0), min(difference + above, 1.0), p
