"""Metrics of bag scores: discrimination, an operating point, and the summary that a run writes.

AUROC and AUPRC need no threshold. Sensitivity, specificity, balanced accuracy and F1 belong to a threshold, which
:func:`operating_point` chooses on validation bags; a bag is called positive when its score is at least the threshold.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.metrics import average_precision_score

from midam.errors import BagDataError, OneClassError
from midam.evaluate.calibrate import calibration_line
from midam.evaluate.intervals import auroc_interval
from midam.evaluate.ranking import auroc, check_bags, check_two_classes, group_numbers

__all__ = ["auprc", "auroc", "operating_point", "summarize", "threshold_metrics"]

FEW_BAGS = 20


def auprc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Area under the precision-recall curve as average precision, ``sum_k (R_k - R_{k-1}) P_k``.

    Parameters
    ----------
    labels : array_like, shape [N]
        Bag labels, 0 or 1.
    scores : array_like, shape [N]
        Bag scores, finite, larger means more positive.

    Returns
    -------
    float
        Average precision in (0, 1]; a useless score has about the share of positive bags.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    OneClassError
        All bags have one label.

    Examples
    --------
    >>> round(auprc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    y, s = check_bags(labels, scores)
    check_two_classes(y)
    return float(average_precision_score(y, s))


def operating_point(labels: ArrayLike, scores: ArrayLike) -> float:
    """Threshold that maximises Youden's J = sensitivity + specificity - 1; pass validation bags.

    Candidates are the midpoints between neighbouring scores and the lowest score (all bags positive). Among equal J the
    one with the smallest difference of sensitivity and specificity wins, then the lower threshold.

    Parameters
    ----------
    labels : array_like, shape [N]
        Bag labels, 0 or 1.
    scores : array_like, shape [N]
        Bag scores, finite, larger means more positive.

    Returns
    -------
    float
        Threshold; a bag is positive when its score is at least this.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    OneClassError
        All bags have one label.

    References
    ----------
    Youden (1950), Cancer 3:32.

    Examples
    --------
    >>> operating_point([0, 0, 1, 1], [0.0, 1.0, 2.0, 3.0])
    1.5
    """
    y, s = check_bags(labels, scores)
    positives, negatives = check_two_classes(y)
    values, place = np.unique(s, return_inverse=True)
    of_pos = np.bincount(place.reshape(-1)[y == 1], minlength=values.size)
    of_neg = np.bincount(place.reshape(-1)[y == 0], minlength=values.size)
    # Bags at or above each distinct score. Integers keep equal J equal.
    true_pos = positives - np.cumsum(of_pos) + of_pos
    false_pos = negatives - np.cumsum(of_neg) + of_neg
    youden = true_pos * negatives - false_pos * positives
    imbalance = np.abs(true_pos * negatives - (negatives - false_pos) * positives)
    best = int(np.lexsort((values, imbalance, -youden))[0])
    if best == 0:
        return float(values[0])
    middle = values[best - 1] / 2 + values[best] / 2
    # Neighbouring floats have no number between them.
    return float(middle if middle > values[best - 1] else values[best])


def threshold_metrics(labels: ArrayLike, scores: ArrayLike, threshold: float) -> dict[str, Any]:
    """Sensitivity, specificity, balanced accuracy and F1 at a threshold.

    Parameters
    ----------
    labels : array_like, shape [N]
        Bag labels, 0 or 1.
    scores : array_like, shape [N]
        Bag scores, finite, larger means more positive.
    threshold : float
        A bag is called positive when its score is at least this.

    Returns
    -------
    dict
        `threshold`, `sensitivity`, `sensitivity_ci95`, `specificity`, `specificity_ci95`, `balanced_accuracy`, `f1`:
        floats in [0, 1], intervals as [low, high] (Wilson, bags taken as independent), None where a class that the
        number needs is absent.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.

    References
    ----------
    Wilson (1927), Journal of the American Statistical Association 22:209.

    Examples
    --------
    >>> found = threshold_metrics([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8], 0.5)
    >>> found["sensitivity"], found["specificity"], found["f1"]
    (0.5, 0.5, 0.5)
    """
    y, s = check_bags(labels, scores)
    called = s >= threshold
    positives, negatives = int((y == 1).sum()), int((y == 0).sum())
    true_pos, true_neg = int((called & (y == 1)).sum()), int((~called & (y == 0)).sum())
    sensitivity = true_pos / positives if positives else None
    specificity = true_neg / negatives if negatives else None
    both = sensitivity is not None and specificity is not None
    either = positives + int(called.sum())
    return {
        "threshold": float(threshold),
        "sensitivity": sensitivity,
        "sensitivity_ci95": _wilson(true_pos, positives),
        "specificity": specificity,
        "specificity_ci95": _wilson(true_neg, negatives),
        "balanced_accuracy": (true_pos / positives + true_neg / negatives) / 2 if both else None,
        "f1": 2 * true_pos / either if either else None,
    }


def summarize(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    threshold: float | None = None,
    probabilities: ArrayLike | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """All that a run reports about scored bags, ready for JSON (None in place of a number that does not exist).

    Parameters
    ----------
    labels : array_like, shape [N]
        Bag labels, 0 or 1.
    scores : array_like, shape [N]
        Bag scores, finite, larger means more positive.
    groups : array_like of str, shape [N], optional
        The unit (patient) of each bag.
    threshold : float, optional
        Operating point chosen on validation bags.
    probabilities : array_like, shape [N], optional
        Calibrated probabilities of the positive class, in [0, 1].
    seed : int, default 0
        Seed of the cluster bootstrap.

    Returns
    -------
    dict
        `auroc`, `auroc_ci95`, `auroc_method`, `auprc`, `bags`, `positives`; `groups` (their number) where known;
        `at_threshold` (:func:`threshold_metrics`) with a threshold; `brier`, `calibration_slope` and
        `calibration_intercept` with probabilities; `warnings`, a list of sentences.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.

    Examples
    --------
    >>> found = summarize([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> found["auroc"], found["auroc_method"], found["positives"], len(found["warnings"])
    (0.75, 'logit-delong + score', 2, 1)
    """
    y, s = check_bags(labels, scores)
    units = group_numbers(groups, y.size)
    positives = int(y.sum())
    result: dict[str, Any] = {"auroc": None, "auroc_ci95": None, "auroc_method": None, "auprc": None}
    warnings = _few_bags(positives, y.size - positives)
    try:
        interval = auroc_interval(y, s, groups=groups, seed=seed)
        area, precision = auroc(y, s), auprc(y, s)
        result = {
            "auroc": area,
            "auroc_ci95": [interval.low, interval.high],
            "auroc_method": interval.method,
            "auprc": precision,
        }
    except OneClassError as error:
        warnings = [f"No AUROC and no AUPRC: {error}"]
    result |= {"bags": int(y.size), "positives": positives}
    clustered = False
    if units is not None:
        result["groups"] = int(units.max()) + 1
        clustered = result["groups"] < y.size
    if threshold is not None:
        result["at_threshold"] = threshold_metrics(y, s, threshold)
        if clustered:
            warnings.append(
                "Some groups hold several bags: the intervals of sensitivity and specificity take bags as independent "
                "and are too narrow."
            )
    if probabilities is not None:
        result |= _calibration(y, probabilities)
    return result | {"warnings": warnings}


def _few_bags(positives: int, negatives: int) -> list[str]:
    """Return one sentence where a class has too few bags for an exact interval."""
    if min(positives, negatives) >= FEW_BAGS:
        return []
    return [
        f"Fewer than {FEW_BAGS} bags in a class ({positives} positive, {negatives} negative): "
        "the interval of the AUROC is wide and its coverage approximate."
    ]


def _calibration(labels: np.ndarray[Any, Any], probabilities: ArrayLike) -> dict[str, float | None]:
    """Brier score and the calibration line of checked probabilities."""
    _, p = check_bags(labels, probabilities)
    if p.min() < 0 or p.max() > 1:
        strange = int(np.flatnonzero((p < 0) | (p > 1))[0])
        raise BagDataError(
            f"Expected probabilities in [0, 1], got {p[strange]} (bag {strange}); calibrate the scores first."
        )
    line = calibration_line(labels, p)
    slope, intercept = line if line is not None else (None, None)
    brier = float(np.mean((p - labels) ** 2))
    return {"brier": brier, "calibration_slope": slope, "calibration_intercept": intercept}


def _wilson(hits: int, trials: int) -> list[float] | None:
    """Wilson's 95% score interval of a proportion."""
    if trials == 0:
        return None
    z = float(norm.ppf(0.975))
    share, widen = hits / trials, 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / widen
    half = z * float(np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))) / widen
    # Exactly 0 and 1 at the ends, where rounding would leave 1e-17.
    return [0.0 if hits == 0 else centre - half, 1.0 if hits == trials else centre + half]
