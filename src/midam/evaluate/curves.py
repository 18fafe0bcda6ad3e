"""Curves of scored bags: ROC curves, also of folds, and the net benefit."""

import numpy as np
from numpy.typing import ArrayLike

from midam.errors import ConfigError, OneClassError
from midam.evaluate.ranking import Labels, Scores, check_probabilities, part_numbers


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
    from sklearn.metrics import roc_curve

    fold_of = np.zeros(labels.size) if folds is None else part_numbers(folds, labels.size, kind="fold")
    masks = [fold_of == fold for fold in np.unique(fold_of)]
    parts = [mask for mask in masks if 0 < labels[mask].sum() < mask.sum()]
    if not parts:
        raise OneClassError("Expected a fold with bags of both classes, got none; take fewer folds.")
    curves = [roc_curve(labels[part], scores[part], drop_intermediate=False)[:2] for part in parts]
    if len(curves) == 1:
        return curves[0]
    pairs = [labels[part].sum() * (labels[part] == 0).sum() for part in parts]
    at, sides = np.unique(np.concatenate([fall for fall, _ in curves])), list[Scores]()
    for side in ("left", "right"):  # below and above a step
        heights = list[Scores]()
        for fall, recall in curves:
            place = np.searchsorted(fall, at, side=side) - (side == "right")
            heights.append(np.where(fall[place] == at, recall[place], np.interp(at, fall, recall)))
        sides.append(np.average(heights, axis=0, weights=pairs))
    return np.repeat(at, 2), np.stack(sides, axis=1).reshape(-1)


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
        Acting on no bag has net benefit 0, acting on all bags that of probabilities 1.

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
    hits, alarms = (y_p.size - np.searchsorted(np.sort(y_p), t, side="left") for y_p in (p[y == 1], p[y == 0]))
    return np.asarray((hits - alarms * t / (1 - t)) / y.size)
