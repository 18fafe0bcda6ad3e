"""Metrics of several classes or labels: AUROC of each class against the rest, their mean, and predicted classes.

Labels are a table [N, C] of 0 and 1. For classes, 1 is in the column of the bag's class (`one_against_rest`); for
several labels, NaN is an unknown label. A bag with an unknown label is left out of that column.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import as_array, refuse_other_order
from midam.errors import BagDataError, OneClassError
from midam.evaluate.intervals import (
    FEW_UNITS,
    Interval,
    auroc_interval,
    logit_interval,
    paired_difference,
)
from midam.evaluate.ranking import Scores, auroc, one_per_bag, placements, refuse, units_of

_NOTHING = 1e-24


def one_against_rest(codes: ArrayLike, count: int) -> Scores:
    """Return labels, float64 [N, C], for class codes [N] from 0 to C - 1: 1 in the column of the bag's class.

    Examples
    --------
    >>> one_against_rest([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.eye(count)[check_codes(codes, count)]


def class_aurocs(labels: ArrayLike, scores: ArrayLike) -> Scores:
    """Return the AUROC of each column, [C], by midranks; NaN for a column without bags of both kinds.

    Parameters
    ----------
    labels : array_like, shape [N, C]
        1, 0, or NaN if unknown.
    scores : array_like, shape [N, C]
        Finite scores, larger means more of this class.

    Raises
    ------
    BagDataError
        If the tables do not match, or hold invalid values.

    Examples
    --------
    >>> class_aurocs([[1, 0], [0, 1], [1, float("nan")]], [[0.9, 0.2], [0.3, 0.1], [0.8, 0.5]]).tolist()
    [1.0, 0.0]
    """
    y, s = check_table(labels, scores)
    areas = np.full(y.shape[1], np.nan)
    for column, known in enumerate(np.isfinite(y).T):
        kinds = y[known, column]
        if 0 < kinds.sum() < len(kinds):
            areas[column] = auroc(kinds, s[known, column])
    return areas


def macro_auroc(labels: ArrayLike, scores: ArrayLike) -> float | None:
    """Return the mean AUROC of the columns with bags of both kinds; None without such columns. See `class_aurocs`."""
    areas = class_aurocs(labels, scores)
    return float(np.nanmean(areas)) if np.isfinite(areas).any() else None


def macro_auroc_interval(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    columns: Sequence[Interval | None] | None = None,
) -> Interval | None:
    """Return the confidence interval of `macro_auroc`, from the influence of each bag, or group of bags.

    The variance adds up the placements of a bag in all columns, because columns share bags ("logit-delong"; over groups
    "cluster-delong"); the interval is computed on the logit scale. If a column has fewer than 200 bags (groups) of a
    kind, the interval is widened to contain a second one ("+ columns"): the intervals of the columns, combined by their
    correlation (MOVER), where a column without variance counts as correlated with all others. Without variance the
    second interval is used alone ("columns"). A bootstrap of bags or groups covers less: it misses rare classes and
    rare errors.

    None if no column has bags of both kinds. The parameters are those of `class_aurocs` and
    `midam.evaluate.intervals.auroc_interval`, whose intervals of the columns may be passed as `columns`.

    References
    ----------
    DeLong et al. (1988), Biometrics 44:837. Obuchowski (1997), Biometrics 53:567. Zou and Donner (2008), Statistics in
    Medicine 27:1693.
    """
    y, s = check_table(labels, scores, groups)
    areas = class_aurocs(y, s)
    used = np.flatnonzero(np.isfinite(areas))
    if not used.size:
        return None
    intervals = class_intervals(y, s, groups=groups) if columns is None else columns
    bounds = np.array([interval[:2] for interval in intervals if interval is not None])
    units, grouped = units_of(groups, len(y))
    moves, fewest = zip(*(class_moves(y[:, column], s[:, column], units) for column in used))
    gaps = areas[used] - bounds[:, 0], bounds[:, 1] - areas[used]
    covariance = np.array(moves) @ np.array(moves).T / used.size**2
    scale = np.sqrt(np.diag(covariance))
    still = scale**2 < _NOTHING
    correlation = np.ones_like(covariance)
    correlation[np.ix_(~still, ~still)] = covariance[np.ix_(~still, ~still)] / np.outer(scale[~still], scale[~still])
    center, variance = float(areas[used].mean()), float(covariance.sum())
    combined = [np.sqrt(max(gap @ correlation @ gap, 0.0)) / used.size for gap in gaps]
    low, high = max(center - combined[0], 0.0), min(center + combined[1], 1.0)
    if variance < _NOTHING or center in (0.0, 1.0):
        return Interval(low, high, "columns")
    method, second = "cluster-delong" if grouped else "logit-delong", None if min(fewest) >= FEW_UNITS else (low, high)
    return logit_interval(center, variance, method, second, name="columns")


def class_intervals(
    labels: ArrayLike, scores: ArrayLike, *, groups: ArrayLike | None = None, level: float = 0.95
) -> list[Interval | None]:
    """Return `midam.evaluate.intervals.auroc_interval` of each column; None for a column without bags of both kinds."""
    y, s = check_table(labels, scores, groups)
    names, intervals = None if groups is None else np.asarray(groups, dtype=object), list[Interval | None]()
    for column, known in enumerate(np.isfinite(y).T):
        kinds, units = y[known, column], None if names is None else names[known]
        both = 0 < kinds.sum() < len(kinds)
        intervals.append(auroc_interval(kinds, s[known, column], groups=units, level=level) if both else None)
    return intervals


def check_codes(codes: ArrayLike, count: int, *more: ArrayLike) -> NDArray[np.int64]:
    """Return codes [N] as int64; raise a `BagDataError` for codes not in [0, `count`), or as `check_table`."""
    refuse_other_order(codes, *more)
    y = one_per_bag(codes, kind="code")
    refuse(y, ~np.isin(y, np.arange(count)), f"codes 0 to {count - 1}", "recode the labels")
    return y.astype(np.int64)


def check_table(labels: ArrayLike, scores: ArrayLike, *more: ArrayLike | None) -> tuple[Scores, Scores]:
    """Return labels [N, C] and scores [N, C] as float64.

    Raise a `BagDataError` for no bag, different shapes, a label other than 0, 1 and NaN, a score that is not finite, or
    tables of the same bags or columns in different orders, among them `more`.
    """
    refuse_other_order(labels, scores, *more)
    y, s = as_array(labels, np.float64), as_array(scores, np.float64)
    if y.ndim != 2 or y.shape != s.shape or y.size == 0:
        raise BagDataError(
            f"Expected labels and scores as tables [N, C], got shapes {y.shape} and {s.shape}; pass two."
        )
    refuse(y, ~(np.isin(y, (0, 1)) | np.isnan(y)), "labels 0, 1 and NaN", "correct them")
    refuse(s, ~np.isfinite(s), "finite scores", "correct them")
    return y, s


def class_moves(labels: Scores, scores: Scores, units: NDArray[np.intp]) -> tuple[Scores, int]:
    """Return the influence of each unit on the AUROC of a column, [U], and the number of units of the rarer kind."""
    known = np.flatnonzero(np.isfinite(labels))
    kinds, known_units = labels[known].astype(np.int64), units[known]
    moves, fewest = np.zeros(int(units.max()) + 1), len(units)
    for kind, placed in zip((1, 0), placements(kinds, scores[known])):
        kind_units = known_units[kinds == kind]
        count = np.unique(kind_units).size
        centered = (placed - placed.mean()) / placed.size * np.sqrt(count / max(count - 1, 1))
        moves += np.bincount(kind_units, weights=centered, minlength=moves.size)
        fewest = min(fewest, count)
    return moves, fewest


def paired_macro_auroc(
    labels: ArrayLike, scores_a: ArrayLike, scores_b: ArrayLike, *, groups: ArrayLike | None = None
) -> tuple[float, float, float, float]:
    """Compare two macro AUROCs on the same bags, like `midam.evaluate.concordance.paired_concordance`.

    The parameters are those of `macro_auroc_interval`, with scores [N, C]. An `OneClassError` is
    raised if no column has bags of both kinds. If the variance is zero, the intervals of `macro_auroc_interval` are
    combined.
    """
    (y, a), (_, b) = check_table(labels, scores_a, scores_b, groups), check_table(labels, scores_b)
    areas = class_aurocs(y, a), class_aurocs(y, b)
    used = np.flatnonzero(np.isfinite(areas[0])).tolist()
    if not used:
        raise OneClassError("Expected bags of both kinds of some class, got none; evaluate on bags of several classes.")
    units, grouped = units_of(groups, len(y))
    first, second = (np.mean([class_moves(y[:, c], scores[:, c], units)[0] for c in used], axis=0) for scores in (a, b))
    values, moves = (float(areas[0][used].mean()), float(areas[1][used].mean())), first - second

    def bounds() -> list[Interval | None]:
        return [macro_auroc_interval(y, scores, groups=groups) for scores in (a, b)]

    return paired_difference(values, moves, float((moves**2).sum()), bounds, int(units.max()) if grouped else 0)
