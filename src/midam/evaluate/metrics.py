"""Metrics of bag scores: discrimination, an operating point, and the summary that a run writes.

AUROC and AUPRC need no threshold. Sensitivity, specificity, balanced accuracy and F1 belong to a threshold, which
`midam.evaluate.operating_points` choose on validation bags; a bag is called positive if its score is at least this.

A metric is a function of labels [N] and scores [N], and of its further parameters: `threshold`, `probabilities` or
`groups`. It returns a number, or None if it is undefined. `midam.registry.METRICS` lists the metrics with a name.
What each run reports is in `summarize`; `midam.report.terminal` and `midam.targets.base.CardWords` list what is shown.
"""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from midam.errors import BagDataError, ConfigError, OneClassError, first_line, require
from midam.evaluate.calibrate import calibration_line
from midam.evaluate.intervals import auroc_interval
from midam.evaluate.proportions import Estimate, called_right
from midam.evaluate.ranking import (
    FEW_BAGS,
    auroc,
    check_bags,
    check_probabilities,
    check_two_classes,
    group_numbers,
    resampled_areas,
    units_of,
)
from midam.registry import METRICS, build

GIVEN: dict[str, Any] = dict.fromkeys(("threshold", "probabilities", "groups"))
NEAR_CHANCE = 0.6
"""AUROC below which a model counts as not having learned."""
_MOST_ENTRIES = 20_000_000  # of the bootstrap, resamples times bags
_NOTHING = 1e-12  # range of equal resamples, due to rounding


def auprc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Return the area under the precision-recall curve as average precision, ``sum_k (R_k - R_{k-1}) P_k``, in (0, 1].

    For a useless score it is about the share of positive bags. Parameters and errors are those of
    `midam.evaluate.ranking.auroc`.

    Examples
    --------
    >>> round(auprc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    from sklearn.metrics import average_precision_score

    y, s = check_bags(labels, scores)
    check_two_classes(y)
    return float(average_precision_score(y, s))


def auprc_estimate(labels: ArrayLike, scores: ArrayLike, *, groups: ArrayLike | None = None) -> Estimate:
    """Return `auprc` with the 95% percentile interval of a bootstrap of whole groups, or of bags without groups.

    The bounds are NaN if all resamples agree, as when all positive bags come first.
    """
    (y, s), value = check_bags(labels, scores, groups), auprc(labels, scores)
    resamples = int(np.clip(_MOST_ENTRIES // y.size, 200, 1000))
    _, drawn = resampled_areas(y == 1, s, units_of(groups, y.size)[0], resamples=resamples)["auprc"]
    low, high = np.quantile(drawn, [0.025, 0.975]) if np.ptp(drawn) > _NOTHING else (np.nan, np.nan)
    return Estimate(value, float(low), float(high), y.size)


def sensitivity(labels: ArrayLike, scores: ArrayLike, threshold: float) -> float | None:
    """Return the share of positive bags with a score of at least the threshold; None without positive bags."""
    share = called_right(labels, scores, threshold=threshold, label=1)
    return share and share.value


def specificity(labels: ArrayLike, scores: ArrayLike, threshold: float) -> float | None:
    """Return the share of negative bags with a score below the threshold; None without negative bags."""
    share = called_right(labels, scores, threshold=threshold, label=0)
    return share and share.value


def balanced_accuracy(labels: ArrayLike, scores: ArrayLike, threshold: float) -> float | None:
    """Return the mean of sensitivity and specificity; None without bags of both classes."""
    parts = sensitivity(labels, scores, threshold), specificity(labels, scores, threshold)
    return None if parts[0] is None or parts[1] is None else (parts[0] + parts[1]) / 2


def f1(labels: ArrayLike, scores: ArrayLike, threshold: float) -> float | None:
    """Return the harmonic mean of precision and sensitivity; None if no bag is positive or called positive."""
    y, s = check_bags(labels, scores)
    called = s >= threshold
    either = int(y.sum()) + int(called.sum())
    return 2 * int(called[y == 1].sum()) / either if either else None


def brier(labels: ArrayLike, scores: ArrayLike, probabilities: ArrayLike) -> float:  # noqa: ARG001
    """Return the mean squared error of probabilities in [0, 1]."""
    y, p = check_probabilities(labels, probabilities)
    return float(np.mean((p - y) ** 2))


def threshold_metrics(
    labels: ArrayLike, scores: ArrayLike, threshold: float, *, groups: ArrayLike | None = None
) -> dict[str, Any]:
    """Return sensitivity, specificity, balanced accuracy and F1 at a threshold: a bag is positive from this score on.

    The values are floats in [0, 1] and intervals [low, high] (Wilson 1927, that of whole groups if `groups` [N] hold
    several bags: `midam.evaluate.proportions.proportion`), or None if a class that they need is absent.

    Examples
    --------
    >>> found = threshold_metrics([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8], 0.5)
    >>> found["sensitivity"], found["specificity"], found["f1"]
    (0.5, 0.5, 0.5)
    """
    if not (isinstance(threshold, float) and math.isinf(threshold)):
        require(threshold, float, "threshold", "choose one with `operating_points`")
    result: dict[str, Any] = {"threshold": float(threshold)}
    for name, label in (("sensitivity", 1), ("specificity", 0)):
        share = called_right(labels, scores, threshold=threshold, label=label, groups=groups)
        result |= {name: share and share.value, f"{name}_ci95": share and [share.low, share.high]}
    result["balanced_accuracy"] = balanced_accuracy(labels, scores, threshold)
    return result | {"f1": f1(labels, scores, threshold)}


def measure(
    names: Sequence[str], values: Any, scores: Any, given: Mapping[str, Any] = GIVEN, *, target: str = "binary"
) -> dict[str, float | None]:
    """Compute metrics by their names in `midam.registry.METRICS`.

    A metric gets `values` (labels [N] of two classes, or those of the target), `scores`, and the entries of `given`
    that are its parameters; an unknown entry of `given` is None. Its value is None if it is not finite, if it needs
    both classes and one is missing, or if it needs an unknown entry. An unknown name, a metric with other required
    parameters, or one that cannot take these labels raises a `ConfigError`.

    Examples
    --------
    >>> measure(["auroc", "sensitivity"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.8])
    {'auroc': 0.75, 'sensitivity': None}
    """
    known = {name: value for name, value in given.items() if value is not None}
    result: dict[str, float | None] = {}
    for name in names:
        required = check_metric(name, given, target=target)
        metric, value = partial(METRICS.find(name), values, scores), None
        if required <= set(known):
            try:
                value = build(metric, part=f"the metric {name!r}", offered=known, arguments={})
            except OneClassError:
                value = None
            except ConfigError:
                raise
            except (BagDataError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"Expected metrics for the target {target!r}, got {name!r}, which fails: {first_line(error)}; "
                    "choose another."
                ) from error
        result[name] = float(value) if value is not None and math.isfinite(value) else None
    return result


def check_metric(name: str, given: Collection[str], *, target: str) -> set[str]:
    """Return a metric's required parameters besides labels and scores; raise a `ConfigError` if one is not given."""
    metric = METRICS.find(name)
    keywords = list(inspect.signature(metric).parameters.items())[2:]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = {key for key, parameter in keywords if parameter.kind in kinds and parameter.default is parameter.empty}
    for key in sorted(required - set(given)):
        raise ConfigError(
            f"Expected metrics for the target {target!r}, got {name!r}, which needs {key!r}; choose a metric whose "
            f"parameters are among {', '.join(given)}."
        )
    return required


def summarize(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    folds: ArrayLike | None = None,
    threshold: float | None = None,
    probabilities: ArrayLike | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, Any]:
    """Return all metrics that a run reports about scored bags, ready for JSON; an undefined number is None.

    A `BagDataError` is raised if the arrays do not match, or hold invalid values.

    Parameters
    ----------
    labels, scores, groups, folds : array_like, shape [N]
        As in `midam.evaluate.intervals.auroc_interval`; groups and folds are optional.
    threshold : float, optional
        Operating point chosen on validation bags.
    probabilities : array_like, shape [N], optional
        Calibrated probabilities of the positive class, in [0, 1].
    metrics : sequence of str
        Further metrics, see `measure`.

    Returns
    -------
    dict
        `auroc`, `auroc_ci95`, `auroc_method`, `auprc`, `bags`, `positives`; `groups` (their number) if known;
        `at_threshold` (`threshold_metrics`) with a threshold; `brier`, `calibration_slope` and `calibration_intercept`
        with probabilities; `metrics`, further metrics by name; `warnings`, a list of sentences.

    Examples
    --------
    >>> found = summarize([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> found["auroc"], found["auroc_method"], found["positives"], len(found["warnings"])
    (0.75, 'logit-delong + score', 2, 1)
    """
    y, s = check_bags(labels, scores, groups, folds, probabilities)
    units = group_numbers(groups, y.size)
    positives = int(y.sum())
    result: dict[str, Any] = dict.fromkeys(("auroc", "auroc_ci95", "auroc_method", "auprc"))
    warnings = []
    if min(positives, y.size - positives) < FEW_BAGS:
        few = f"Fewer than {FEW_BAGS} bags in a class ({positives} positive, {y.size - positives} negative)"
        warnings.append(f"{few}: the interval of the AUROC is wide and its coverage approximate.")
    try:
        interval, area = auroc_interval(y, s, groups=groups, folds=folds), auroc(y, s, folds=folds)
        result = {"auroc": area, "auroc_ci95": [interval.low, interval.high], "auroc_method": interval.method}
        result["auprc"] = auprc(y, s)
    except OneClassError as error:
        warnings = [f"No AUROC and no AUPRC: {error}"]
    result |= {"bags": int(y.size), "positives": positives}
    if units is not None:
        result["groups"] = int(units.max()) + 1
    if threshold is not None:
        result["at_threshold"] = threshold_metrics(y, s, threshold, groups=groups)
    if probabilities is not None:
        line = calibration_line(y, probabilities) or (None, None)
        result["brier"] = brier(y, s, probabilities)
        result |= {"calibration_slope": line[0], "calibration_intercept": line[1]}
    if metrics:
        given = {"threshold": threshold, "probabilities": probabilities, "groups": groups}
        result["metrics"] = measure(metrics, y, s, given)
    return result | {"warnings": warnings}
