"""Curves of scored bags with pointwise bands from one bootstrap of groups or bags, and the net benefit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.brief import BriefRepr
from midam.data.validate import as_array
from midam.errors import ConfigError, OneClassError, require_counts
from midam.evaluate.metrics import auprc
from midam.evaluate.proportions import Estimate
from midam.evaluate.ranking import (
    Labels,
    Positions,
    Scores,
    check_bags,
    check_probabilities,
    check_two_classes,
    class_resamples,
    part_numbers,
    units_of,
)

# Limits of the bootstrap: resamples times bags in all (time), and at once (memory).
_MOST_ENTRIES, _CHUNK_ENTRIES = 20_000_000, 1_000_000
_FEWEST = 200
_NOTHING = 1e-12  # range of equal resamples, due to rounding
_GRID = np.linspace(0, 1, 101)
_PERCENT = np.arange(100) / 100  # threshold probabilities of the net benefit
_Parts = Sequence[slice | NDArray[np.bool_]]


@dataclass(frozen=True, repr=False)
class Band(BriefRepr):
    """A curve, with its pointwise 95% band at points along it.

    Attributes
    ----------
    x, y : array of float64, shape [P]
        The curve.
    at, low, high : array of float64, shape [G]
        The band.
    """

    x: Scores
    y: Scores
    at: Scores
    low: Scores
    high: Scores


@dataclass(frozen=True)
class Bands:
    """Curves of the same scored bags.

    Attributes
    ----------
    roc : Band
        Sensitivity along 1 - specificity.
    precision : Band
        Precision along sensitivity (recall).
    auprc : Estimate
        Average precision with its interval; the bounds are NaN if all resamples agree (all positive bags first).
    benefit : Band or None
        Net benefit along the threshold probability; None without probabilities.
    resamples : int
        Number of bootstrap resamples.

    Examples
    --------
    >>> bands = curve_bands([0, 1] * 20, [0.0, 1.0] * 10 + [0.5, 0.4] * 10, resamples=200)
    >>> round(bands.auprc.value, 2), bands.roc.x.shape == bands.roc.y.shape, bands.resamples
    (0.83, True, 200)
    """

    roc: Band
    precision: Band
    auprc: Estimate
    benefit: Band | None
    resamples: int


def curve_bands(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    folds: ArrayLike | None = None,
    resamples: int = 1000,
) -> Bands:
    """Compute ROC, precision-recall and decision curve, with percentile bands from a bootstrap of groups.

    Parameters
    ----------
    labels, scores : array_like, shape [N]
        As in `midam.evaluate.ranking.auroc`.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag; default: each bag is a unit.
    probabilities : array_like, shape [N], optional
        Calibrated probabilities, for the net benefit.
    folds : array_like, shape [N], optional
        Folds of cross-validated scores: the ROC curve is the mean of theirs, see `roc_points`; the others pool them.
    resamples : int, default 1000
        At least 200; with more than 20 000 bags, fewer resamples are drawn, but at least 200.

    Raises
    ------
    MidamError
        As in `midam.evaluate.ranking.auroc`; for fewer than 200 resamples.

    References
    ----------
    Field and Welsh (2007), Journal of the Royal Statistical Society B 69:369, the bootstrap of whole groups.

    Examples
    --------
    >>> found = curve_bands([0, 1] * 20, [0.0, 1.0] * 10 + [0.5, 0.4] * 10)
    >>> at = list(found.roc.at).index(0.5)
    >>> bool(found.roc.low[at] <= found.roc.high[at]), found.benefit is None
    (True, True)
    """
    y, s = check_bags(labels, scores, groups, probabilities, folds)
    check_two_classes(y)
    require_counts(_FEWEST, resamples=resamples)
    count = int(max(_FEWEST, min(resamples, _MOST_ENTRIES // y.size)))
    units, _ = units_of(groups, y.size)
    p = None if probabilities is None else np.asarray(probabilities, dtype=np.float64)
    sensitivity, precision, average, benefit = (
        np.concatenate(part) for part in zip(*_resampled(y, s, units, p, parts=_parts(y, folds), resamples=count))
    )
    true, false = _cumulated(y, s)
    recall = true[0] / true[0, -1]
    low, high = np.quantile(average, [0.025, 0.975]) if np.ptp(average) > _NOTHING else (np.nan, np.nan)
    return Bands(
        roc=_band(*roc_points(y, s, folds), _GRID, sensitivity),
        precision=_band(recall, true[0] / (true[0] + false[0]), _GRID, precision),
        auprc=Estimate(auprc(y, s), float(low), float(high), y.size),
        benefit=None if p is None else _band(_PERCENT, net_benefit(y, p, _PERCENT), _PERCENT, benefit),
        resamples=count,
    )


def _band(x: Scores, y: Scores, at: Scores, resampled: Scores) -> Band:
    return Band(x, y, at, *np.nanquantile(resampled, [0.025, 0.975], axis=0))


def roc_points(labels: Labels, scores: Scores, folds: ArrayLike | None = None) -> tuple[Scores, Scores]:
    """Return 1 - specificity and sensitivity along the ROC curve of bags of both classes.

    With `folds` [N] it is the mean curve of the folds, at equal specificity, weighted by their pairs: the area under it
    is the AUROC within folds (`midam.evaluate.ranking.auroc`).

    Examples
    --------
    >>> x, y = roc_points(np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.6, 0.8]), [0, 0, 1, 1])
    >>> float(np.trapezoid(y, x))
    1.0
    """
    curves = [[x[0] for x in _curve(*_cumulated(labels[i], scores[i]))] for i in _parts(labels, folds)]
    if len(curves) == 1:
        return curves[0][1], curves[0][2]
    at, total = np.unique(np.concatenate([fall for _, fall, _ in curves])), sum(pairs for pairs, *_ in curves)
    sides = np.zeros((at.size, 2))  # below and above a step
    for pairs, fall, recall in curves:
        first, last = np.searchsorted(fall, at), np.searchsorted(fall, at, side="right") - 1
        between = np.interp(at, fall, recall)
        for side, place in enumerate((first, last)):
            sides[:, side] += pairs / total * np.where(fall[place] == at, recall[place], between)
    return np.repeat(at, 2), sides.reshape(-1)


def _parts(labels: Labels, folds: ArrayLike | None) -> _Parts:
    """Return the bags of each fold with both classes, at least one; without folds, all bags."""
    if folds is None:
        return [slice(None)]
    fold_of = part_numbers(folds, labels.size, kind="fold")
    masks = (fold_of == fold for fold in range(int(fold_of.max()) + 1))
    parts = [mask for mask in masks if 0 < labels[mask].sum() < mask.sum()]
    if not parts:
        raise OneClassError("Expected a fold with bags of both classes, got none; take fewer folds.")
    return parts


def _curve(true: Scores, false: Scores) -> tuple[Scores, Scores, Scores]:
    """Return pairs [R], 1 - specificity [R, S] and sensitivity [R, S] from 0 to 1, from cumulated bags [R, S]."""
    fall, recall = (np.pad(x / np.maximum(x[:, -1:], 1), ((0, 0), (1, 0))) for x in (false, true))
    return true[:, -1] * false[:, -1], fall, recall


def _cumulated(labels: Labels, scores: Scores, weights: Scores | None = None) -> tuple[Scores, Scores]:
    """Return the positive and negative bags at or above each distinct score, descending: [R, S] for weights [R, N]."""
    order = np.argsort(-scores, kind="stable")
    ties = np.flatnonzero(np.diff(scores[order], prepend=np.inf) < 0)
    w = np.ones((1, labels.size)) if weights is None else weights[:, order]
    positive = labels[order] == 1
    true, false = (np.add.reduceat(w * of_class, ties, axis=1).cumsum(axis=1) for of_class in (positive, ~positive))
    return true, false


def _resampled(
    labels: Labels, scores: Scores, units: Positions, probabilities: Scores | None, *, parts: _Parts, resamples: int
) -> Iterator[tuple[Scores, Scores, Scores, Scores]]:
    """Yield sensitivity and precision [R, G], average precision [R] and net benefit [R, T] of R resamples at a time."""
    for weights in class_resamples(labels, units, seed=0, resamples=resamples, entries=_CHUNK_ENTRIES):
        true, false = _cumulated(labels, scores, weights)
        recall = true / true[:, -1:]
        share = true / np.maximum(true + false, 1e-12)  # a resample can lack the highest bags
        weighted, total = np.zeros((len(weights), _GRID.size)), np.zeros((len(weights), 1))
        for part in parts:
            whole = isinstance(part, slice)
            summed = (true, false) if whole else _cumulated(labels[part], scores[part], weights[:, part])
            pairs, *curves = _curve(*summed)
            weighted += pairs[:, None] * np.stack([np.interp(_GRID, *curve) for curve in zip(*curves)])
            total += pairs[:, None]
        sensitivity = weighted / np.where(total > 0, total, np.nan)  # a resample can lack folds with both classes
        at = np.stack([np.minimum(np.searchsorted(r, _GRID - 1e-12), r.size - 1) for r in recall])
        at = np.maximum(at, np.argmax(recall > 0, axis=1)[:, None])
        average = (np.diff(recall, prepend=0.0, axis=1) * share).sum(axis=1)
        benefit = np.zeros((len(weights), _PERCENT.size))
        if probabilities is not None:
            benefit = _weighted_benefit(labels, probabilities, _PERCENT, weights)
        yield sensitivity, np.take_along_axis(share, at, axis=1), average, benefit


def _weighted_benefit(labels: Labels, probabilities: Scores, thresholds: Scores, weights: Scores) -> Scores:
    """Return the net benefit [R, T] of bags with weights [R, N]."""
    order = np.argsort(-probabilities, kind="stable")
    w, positive = weights[:, order], labels[order] == 1
    acted = probabilities.size - np.searchsorted(np.sort(probabilities), thresholds, side="left")
    sums = (np.pad((w * selected).cumsum(axis=1), ((0, 0), (1, 0))) for selected in (positive, ~positive))
    hits, alarms = (total[:, acted] for total in sums)
    return np.asarray((hits - alarms * thresholds / (1 - thresholds)) / w.sum(axis=1, keepdims=True))


def net_benefit(labels: ArrayLike, probabilities: ArrayLike, thresholds: ArrayLike) -> Scores:
    """Return the net benefit of acting on bags whose probability is at least the threshold.

    At threshold probability t it is ``TP/N - FP/N * t/(1 - t)``: true positives per bag, minus false positives per bag
    at the exchange rate that t implies. Acting from 10% on accepts nine false alarms for each case found.

    Parameters
    ----------
    labels, probabilities : array_like, shape [N]
        Labels 0 or 1, and probabilities of the positive class.
    thresholds : array_like, shape [T]
        Threshold probabilities in [0, 1).

    Returns
    -------
    array of float64, shape [T]
        Acting on no bag has net benefit 0.

    Raises
    ------
    BagDataError
        If the arrays do not match, or hold invalid values.
    ConfigError
        If a threshold is outside [0, 1).

    References
    ----------
    Vickers and Elkin (2006), Medical Decision Making 26:565.

    Examples
    --------
    >>> net_benefit([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8], [0.0, 0.2, 0.5]).tolist()
    [0.5, 0.4375, 0.0]
    """
    y, p = check_probabilities(labels, probabilities)
    t = np.asarray(thresholds, dtype=np.float64)
    if not ((t >= 0) & (t < 1)).all():
        raise ConfigError(f"Expected threshold probabilities in [0, 1), got {t.min()} to {t.max()}; leave others out.")
    return _weighted_benefit(y, p, t, np.ones((1, y.size)))[0]


def net_benefit_of_all(labels: ArrayLike, thresholds: ArrayLike) -> Scores:
    """Return the net benefit [T] of acting on every bag, a baseline for a model; parameters as in `net_benefit`."""
    y = as_array(labels)
    return net_benefit(y, np.ones(y.shape), thresholds)
