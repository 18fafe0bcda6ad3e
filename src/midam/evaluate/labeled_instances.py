"""Metrics of instance scores against known labels of instances, with intervals that resample whole groups of bags.

`instance_metrics` has the formulas.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.bags import Bags
from midam.data.instance_labels import labels_of
from midam.data.validate import as_array, check_length, instance_label_array, refuse_other_order
from midam.errors import BagDataError
from midam.evaluate.intervals import FEW_GROUPS
from midam.evaluate.proportions import Estimate, wilson
from midam.evaluate.ranking import check_scores, counted_auprc, counted_auroc, resampled_areas, unit_draws, units_of

FIGURES = ("auroc_in_bag", "auprc_in_bag", "hit_rate", "auroc", "auprc")
"""Names of the metrics; the first three are means over bags."""
IN_BAG = FIGURES[:3]


@dataclass(frozen=True)
class InstanceMetrics:
    """Metrics of instance scores, each with a 95% interval; `bags` of an estimate counts the bags that it uses.

    Attributes
    ----------
    bags, instances, positives : int
        Bags with a labeled instance, labeled instances, and positive ones.
    auroc_in_bag, auprc_in_bag : Estimate or None
        Mean AUROC and average precision of the bags that hold both labels; None without such a bag.
    hit_rate : Estimate or None
        Share of positive bags whose top instance is positive.
    auroc, auprc : Estimate or None
        Pooled over all labeled instances; None if all have one label.
    chance : dict
        Expected value of random scores, by metric.

    Examples
    --------
    The third instance of the first bag decides, and has the highest score:

    >>> metrics = instance_metrics([0, 0, 1, 0, 0], [0.1, 0.2, 0.9, 0.1, 0.0], sizes=[3, 2])
    >>> metrics.positives, metrics.auroc_in_bag.value, metrics.hit_rate.value
    (1, 1.0, 1.0)
    """

    bags: int
    instances: int
    positives: int
    auroc_in_bag: Estimate | None = None
    auprc_in_bag: Estimate | None = None
    hit_rate: Estimate | None = None
    auroc: Estimate | None = None
    auprc: Estimate | None = None
    chance: dict[str, float] = field(default_factory=dict)

    def entries(self) -> dict[str, Any]:
        """Return counts, values, intervals and values of chance as JSON can hold them, as in summary.json."""
        entries: dict[str, Any] = {"bags": self.bags, "instances": self.instances, "positives": self.positives}
        for name in FIGURES:
            estimate: Estimate | None = getattr(self, name)
            entries[name] = None if estimate is None else estimate.value
            entries[f"{name}_ci95"] = None if estimate is None else [estimate.low, estimate.high]
            entries[f"{name}_bags"] = 0 if estimate is None else estimate.bags
        return {**entries, "chance": self.chance}


def evaluate_instances(bags: Bags, scores: ArrayLike, *, resamples: int = 1000) -> InstanceMetrics:
    """Evaluate instance scores against the instance labels of bags, see `instance_metrics`.

    Parameters
    ----------
    bags : Bags
        With `instance_labels`, some of which may be unknown. Groups and labels of two classes are used if known.
    scores : array_like, shape [num_instances]
        Scores, bag after bag, such as `midam.evaluate.instance_ranks` gives them.
    resamples : int
        Of the bootstrap.

    Raises
    ------
    BagDataError
        If the bags have no instance labels, or the scores do not fit.

    Examples
    --------
    >>> bags = Bags.from_list([[[0.0], [1.0], [2.0]], [[3.0], [4.0]]], [1, 0], instance_labels=[0, 0, 1, 0, 0])
    >>> metrics = evaluate_instances(bags, [0.1, 0.3, 0.2, 0.0, 0.0])
    >>> metrics.auroc_in_bag.value, metrics.hit_rate.value, metrics.auroc.value
    (0.5, 0.0, 0.75)
    """
    labels = labels_of(bags)
    if labels is None:
        raise BagDataError(
            f"Expected labels of instances, got none (in {bags.source}); name their column with `instance_label`."
        )
    known: dict[str, Any] = {"bag_labels": bags.labels, "groups": bags.groups}
    return instance_metrics(labels, scores, bags.sizes, **known, resamples=resamples)


def instance_metrics(
    labels: ArrayLike,
    scores: ArrayLike,
    sizes: ArrayLike,
    *,
    bag_labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    resamples: int = 1000,
) -> InstanceMetrics:
    """Return metrics of the scores of M instances of N bags, bag after bag.

    A score, such as a contribution or its rank, should be higher for an instance that makes its
    bag positive. Let bag i hold the labeled instances J_i: the positive ones P_i, and the others N_i. Instances without
    a label count nowhere.

    - AUROC of a bag: ``sum over p in P_i, q in N_i of ([s_p > s_q] + [s_p = s_q] / 2) / (|P_i| |N_i|)``.
    - Average precision of a bag: the mean over p in P_i of the share of P_i among the instances of J_i with s >= s_p.
    - Hit of a bag: the share of P_i among the instances of J_i with the highest score.

    *In a bag* is the mean over the bags that hold both labels; the hit rate is the mean over those of them that are
    positive. *Pooled* are the AUROC and the average precision of all labeled instances of all bags, on one scale: they
    ask whether scores can be compared between bags too, and count large bags more. `chance` is what random scores
    reach: the mean of |P_i| / |J_i|, or the same of all instances.

    Intervals are percentiles of a bootstrap of whole groups (patients), or of bags without groups, since the instances
    of a bag are not independent. With fewer than 10 of these units, or if the bootstrap has no spread, they are widened
    to contain Wilson's interval of as many trials.

    Parameters
    ----------
    labels, scores : array_like, shape [M]
        Labels 0 or 1, NaN if unknown, and finite scores; higher means that the instance makes its bag more positive.
    sizes : array_like of int, shape [N]
        Number of instances of each bag, at least 1.
    bag_labels : array_like, shape [N], optional
        Labels of the bags; the hit rate counts those of label 1, by default all.
    groups : array_like of str, shape [N], optional
        Groups (patients), which are resampled; default: bags.
    resamples : int
        Resamples of the bootstrap, >= 1.

    Raises
    ------
    BagDataError
        For labels, scores, sizes or groups that do not fit.

    References
    ----------
    Field and Welsh (2007), Journal of the Royal Statistical Society B 69:369. Wilson (1927), Journal of the American
    Statistical Association 22:209.

    Examples
    --------
    >>> metrics = instance_metrics([0, 1, 0, 1, 0], [1, 3, 2, 1, 2], sizes=[3, 2])
    >>> metrics.auroc_in_bag.value, metrics.hit_rate.value, round(metrics.auprc.value, 3)
    (0.5, 0.5, 0.7)
    """
    refuse_other_order(labels, scores)
    refuse_other_order(sizes, bag_labels, groups)
    counts = as_array(sizes).astype(np.int64)
    y = instance_label_array(labels, int(counts.sum()), "instance labels")
    s = check_scores(scores, len(y))
    units = units_of(groups, len(counts))[0]
    positive = np.ones(len(counts), bool) if bag_labels is None else as_array(bag_labels) == 1
    check_length(positive, len(counts), "label", "the labels of the bags")
    known = ~np.isnan(y)
    bag, right, s = np.repeat(np.arange(len(counts)), counts)[known], y[known] == 1, s[known]
    total = np.bincount(bag, minlength=len(counts))
    above = np.bincount(bag[right], minlength=len(counts))
    both, labeled, shares = (above > 0) & (above < total), total > 0, above / np.maximum(total, 1)
    among = {"auroc_in_bag": both, "auprc_in_bag": both, "hit_rate": both & positive}
    present = np.unique(units[labeled])
    units = np.searchsorted(present, units)
    estimates, chance = dict[str, Any](), dict[str, float]()
    for name, values in zip(IN_BAG, _by_bag(bag, right, s, len(counts))):
        inside = among[name]
        if inside.any():
            estimates[name] = _mean_in_bag(values[inside], units[inside], len(present), resamples)
            chance[name] = 0.5 if name == "auroc_in_bag" else float(shares[inside].mean())
    if 0 < right.sum() < len(right):
        for name, area in resampled_areas(right, s, units[bag], resamples=resamples).items():
            estimates[name] = _estimate(*area, len(present), int(labeled.sum()))
        chance |= {"auroc": 0.5, "auprc": float(right.mean())}
    return InstanceMetrics(int(labeled.sum()), len(right), int(right.sum()), **estimates, chance=chance)


def _by_bag(
    bag: NDArray[np.int64], right: NDArray[np.bool_], scores: NDArray[np.float64], bags: int
) -> NDArray[np.float64]:
    """Return AUROC, average precision and hit of each bag, [3, N]; they mean nothing for bags of one label."""
    metrics = np.zeros((3, bags))
    ends = np.flatnonzero(np.diff(bag, append=-1)) + 1
    for start, end in zip([0, *ends[:-1]], ends):
        distinct, at = np.unique(-scores[start:end], return_inverse=True)
        sides = (right[start:end], ~right[start:end])
        true, false = (np.bincount(at[side], minlength=len(distinct))[None] for side in sides)
        hit = true[0, 0] / (true[0, 0] + false[0, 0])
        metrics[:, bag[start]] = counted_auroc(true, false)[0], counted_auprc(true, false)[0], hit
    return metrics


def _mean_in_bag(values: NDArray[np.float64], units: NDArray[np.intp], count: int, resamples: int) -> Estimate:
    """Return the mean of the values [n] of some bags, with its interval over their `units` [n], of `count` units."""
    tables = [np.bincount(units, weights, minlength=count) for weights in (values, np.ones(len(units)))]
    drawn = [[counts @ table for table in tables] for counts in unit_draws(count, resamples)]
    total, bags = (np.concatenate(part) for part in zip(*drawn))
    return _estimate(float(values.mean()), total[bags > 0] / bags[bags > 0], len(np.unique(units)), len(values))


def _estimate(value: float, resampled: NDArray[np.float64], units: int, bags: int) -> Estimate:
    """Return a value with the percentiles of its resamples, widened for few units, or without spread."""
    low, high = np.quantile(resampled, (0.025, 0.975)).tolist() if len(resampled) else (value, value)
    if units < FEW_GROUPS or not low < high:
        at_least = wilson(value, units)
        low, high = min(low, at_least[0]), max(high, at_least[1])
    return Estimate(value, min(low, value), max(high, value), bags)
