"""Facts about labels, warnings of problems that can spoil a result, and quick checks for leaks of the label.

A leak is a feature, a covariate or the bag size that reveals the label.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import missing_of
from midam.data.missing import fill_values, impute, missing_shares
from midam.data.on_disk import on_disk
from midam.data.target_labels import CODED, TargetLabels
from midam.errors import given, listed
from midam.evaluate.classes import class_aurocs, class_intervals, one_against_rest
from midam.evaluate.ranking import FEW_BAGS, Pairs
from midam.evaluate.survival import median_follow_up
from midam.report.words import METRIC_NAMES
from midam.targets import Target, target_of

UNITS = {"multiclass": "class", "ordinal": "grade", "multilabel": "label"}
_TELLS = {  # of other targets, "the label"
    "survival": "who has the event first",
    "ordinal": "the grade",
    "continuous": "the number",
}
MANY_BAGS = 20_000  # for more bags, a bootstrap of the groups takes minutes
PLURALS = {"class": "classes", "grade": "grades", "label": "labels"}
MOST = 0.98  # a feature with a higher AUROC or C-index is reported
_NUMBERS = 4_000_000  # limit of bags times features in the comparison
_BAGS, _FEWEST, _ROWS = 2000, 100, 1000  # most and fewest bags in the check, and most instances of each
_BYTES = 1 << 26  # limit of bytes that are read from a file
_PAIRS, _AT_A_TIME = 4000, 512
_CHANCE = 0.01  # probability that any uninformative feature is reported
_ALONE = f"single {{}} rank the bags alone, {{}} above {MOST}: {{}}; if one of them is the label in another form, {{}}"
_MISSING = " by whether it is missing"

Numbers = NDArray[np.float64]


def label_facts(target: Target, values: NDArray[Any]) -> dict[str, float | None]:
    """Return the number of bags of each class, grade or label by its name, or else facts such as quartiles.

    `values` [N] or [N, L] are those of `Target.values`. None is a median that is not reached.

    Examples
    --------
    >>> from midam.targets import target_named
    >>> label_facts(target_named(None), np.array([0, 1, 1]))
    {'positive': 2}
    """
    if target.name == "binary":
        return {"positive": int(values.sum())}
    if target.name == "survival":
        time, event = values.T
        median = median_follow_up(time, event)  # by the reverse Kaplan-Meier estimator
        return {"events": int(event.sum()), "median follow-up": median, "longest time": float(time.max())}
    if target.name == "continuous":
        heads = ("lowest", "quarter", "median", "three quarters", "highest")
        return dict(zip(heads, np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist()))
    if target.name not in UNITS:  # of a plug-in
        return {}
    several = target.name == "multilabel"
    columns = values if several else one_against_rest(values[:, 0], len(target.names))
    counts: dict[str, float | None] = dict(zip(map(str, target.names), (columns == 1).sum(axis=0).tolist()))
    return counts | ({"entries unknown": int(np.isnan(values).sum())} if several else {})


def rarest(target: Target, values: NDArray[Any]) -> int | None:
    """Return the number of bags of the rarest class, grade or label, or with the event; None for numbers."""
    facts = label_facts(target, values)
    if target.name == "binary":
        return int(min(values.sum(), len(values) - values.sum()))
    if target.name == "survival":
        return int(facts["events"] or 0)
    return min(int(facts[str(name)] or 0) for name in target.names) if target.name in UNITS else None


def label_warnings(bags: Bags) -> Iterator[str]:
    """Yield warnings of missing or rare classes, labels or events."""
    outcome = bags.outcome
    if outcome is None:
        if bags.labels is not None:
            yield from _rare("class", ("negative", "positive"), one_against_rest(bags.labels, 2))
    elif outcome.target in UNITS:
        yield from _rare(UNITS[outcome.target], outcome.names, _columns(outcome))
        yield from _alike(outcome) if outcome.target == "multilabel" else ()
    elif outcome.target == "survival":
        events = int(outcome.values[:, 1].sum())
        if events < FEW_BAGS:
            few = f"few events: {events}; intervals will be wide"
            yield few if events else "no events: nothing can be trained or tested"
    elif len(np.unique(outcome.values)) == 1:
        yield "one number alone: nothing can be trained or tested"


def size_warnings(bags: Bags) -> Iterator[str]:
    """Yield a warning if bag sizes rank the bags; the level is 0.95 for all classes or labels together."""
    if bags.outcome is None and bags.labels is None:
        return
    target, outcome, sizes = target_of(bags), bags.outcome, bags.sizes.astype(np.float64)
    advice = "compare your result with it, and prefer poolings that do not depend on the size"
    groups, values = bags.groups if len(bags) <= MANY_BAGS else None, target.values(bags)
    if outcome is not None and target.count > 1:
        labels = _columns(outcome)
        scores = np.repeat(sizes[:, None], labels.shape[1], axis=1)
        intervals = class_intervals(labels, scores, groups=groups, level=1 - 0.05 / labels.shape[1])
        areas = class_aurocs(labels, scores)
        telling = [at for at, ci in enumerate(intervals) if ci is not None and not ci.low <= 0.5 <= ci.high]
        telling.sort(key=lambda at: -abs(areas[at] - 0.5))
        if telling:
            unit, texts = UNITS[outcome.target], [f"{areas[at]:.3f} for {outcome.names[at]}" for at in telling]
            alone = f"its AUROC alone is {listed(texts)} (intervals at 95% for all {len(intervals)} exclude 0.5)"
            yield f"the bag size predicts the {unit}: {alone}; {advice}"
        return
    ci = target.estimate(values, sizes, groups=groups)
    if ci is not None and not ci.low <= 0.5 <= ci.high:
        area = f"{METRIC_NAMES[target.metric]} alone is {ci.value:.3f} (95% CI {ci.low:.3f} to {ci.high:.3f})"
        yield f"the bag size predicts {_TELLS.get(target.name, 'the label')}: its {area}; {advice}"


def label_codes(bags: Bags) -> NDArray[np.int64] | None:
    """Return numbers [N] that are equal if the labels of two bags are equal; None for unlabeled bags."""
    if bags.outcome is None:
        return bags.labels
    known = np.nan_to_num(bags.outcome.values, nan=-1.0)  # NaN is an unknown label, and not equal to itself
    return np.unique(known, axis=0, return_inverse=True)[1].reshape(-1)


def _columns(outcome: TargetLabels) -> NDArray[np.float64]:
    """Return classes, grades or labels as columns [N, C] of 1 and 0, with NaN if unknown."""
    values = outcome.values
    return one_against_rest(values[:, 0], len(outcome.names)) if outcome.target in CODED else values


def _rare(unit: str, names: Sequence[str], columns: NDArray[np.float64]) -> Iterator[str]:
    """Yield warnings of classes, grades or labels, columns [N, C] of 1 and 0, that few bags have, or lack."""
    kinds = (("with", 1), ("without", 0)) if unit == "label" else (("of", 1),)
    for relation, value in kinds:
        counts_by_name = list(zip(names, (columns == value).sum(axis=0).tolist()))
        none = [name for name, count in counts_by_name if count == 0]
        few = [f"{name} ({count})" for name, count in counts_by_name if 0 < count < FEW_BAGS]
        if none:
            yield f"no bags {relation} the {unit} {listed(none)}: nothing can be trained or tested of it"
        if few:
            yield f"few bags {relation} a {unit}: {listed(few)}; intervals will be wide"


def _alike(outcome: TargetLabels) -> Iterator[str]:
    """Yield warnings of labels that are equal in all bags, such as a copied column."""
    columns: dict[bytes, list[str]] = {}
    for name, column in zip(outcome.names, np.nan_to_num(outcome.values, nan=-1.0).T):
        columns.setdefault(column.tobytes(), []).append(name)
    for names in columns.values():
        if len(names) > 1:
            yield f"labels that are the same in all bags: {listed(names)}"


class _Single(NamedTuple):
    """A feature or covariate that alone ranks the bags: name, AUROC or C-index, and its statistic in words."""

    name: str
    area: float
    by: str


class _Label(NamedTuple):
    """A label that orders bags: values [N] of two classes, NaN if unknown, or numbers with comparable pairs."""

    values: Numbers
    pairs: Pairs | None


def feature_warnings(
    bags: Bags, gaps: NDArray[np.float32] | None = None, columns: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield warnings of single features or covariates that alone rank the bags above 0.98.

    The statistics of a feature in a bag are mean, max, min, range, distance from the median of all bags, and the share
    of missing values; `gaps` [N, D] holds these shares if missing values were filled. `columns` names the column of
    each feature, where they differ.
    """
    labels = _labels(bags)
    if not labels:
        return
    measure = "C-index" if labels[0].pairs is not None else "AUROC"
    features = _single_features(bags, gaps) if len(bags.instance_shape) == 1 else []
    way_out = "write the features again without it"
    if bags.feature_names is not None:
        known = columns or {}
        names = list(dict.fromkeys(known.get(leak.name, leak.name) for leak in features))
        way_out += f", or leave it out of a table with {given(ignore=names)}"
    covariates = list(_single_covariates(bags, labels))
    checks = (("features", features, way_out), ("covariates", covariates, "leave it out of `covariates`"))
    for kind, leaks, advice in checks:
        if leaks:
            areas = [f"{leak.name} ({leak.area:.3f}{leak.by})" for leak in leaks]
            yield _ALONE.format(kind, measure, listed(areas), advice)


def _single_features(bags: Bags, gaps: NDArray[np.float32] | None) -> list[_Single]:
    """Return single features that rank the bags, or a sample of the bags."""
    if gaps is None and (gaps := missing_shares(bags)) is not None:
        bags = impute(bags, fill_values(bags, "median"))
    width = bags.instance_shape[0]
    row_bytes = max(1, bags.instances.itemsize * width)
    most = max(_FEWEST, min(_BAGS, _NUMBERS // width))
    if on_disk(bags.instances):
        most = max(_FEWEST // 2, min(most, _BYTES // (row_bytes * int(np.minimum(bags.sizes, _ROWS).mean() + 1))))
    rng = np.random.default_rng(0)
    positions = np.arange(len(bags)) if len(bags) <= most else np.sort(rng.choice(len(bags), most, replace=False))
    part = bags.subset(positions)
    labels = _labels(part)
    names = [f"feature {n}" for n in range(width)] if bags.feature_names is None else list(bags.feature_names)
    mean, high, low = np.empty((3, len(part), width), dtype=np.float64)
    for place, (start, size) in enumerate(zip(part.starts.tolist(), part.sizes.tolist())):
        rows = np.asarray(part.instances[start : start + min(size, _ROWS)], dtype=np.float64)
        mean[place], high[place], low[place] = rows.mean(0), rows.max(0), rows.min(0)
    middle = np.median(mean, axis=0)
    distance = {" by its distance from the median": np.maximum(high - middle, middle - low)}
    table = {" by its mean": mean, " by its max": high, " by its min": low, " by its range": high - low, **distance}
    if int(part.sizes.max()) == 1:
        table = {" by its value": mean, **distance}
    # Where sizes alone rank the bags almost as well as a reported feature, so do max and min of any feature.
    elif any(_area(label, part.sizes.astype(np.float64), tests=len(labels)) > MOST - 0.1 for label in labels):
        table = {" by its mean": mean}
    if gaps is not None:
        table = {_MISSING: gaps[positions], **table}
    areas, tests = np.zeros((len(table), width)), len(table) * width * len(labels)
    for row, columns in zip(areas, table.values()):
        for first in range(0, width, _AT_A_TIME):
            block = columns[:, first : first + _AT_A_TIME]
            ranks = scipy.stats.rankdata(block, axis=0)
            row[first : first + _AT_A_TIME] = np.max([_areas(label, block, ranks, tests=tests) for label in labels], 0)
    best, by = areas.max(axis=0), areas.argmax(axis=0)
    singles = [_Single(names[at], float(best[at]), list(table)[by[at]]) for at in np.flatnonzero(best > MOST)]
    return sorted(singles, key=lambda single: -single.area)


def _single_covariates(bags: Bags, labels: Sequence[_Label]) -> Iterator[_Single]:
    """Yield covariates whose values rank the bags, or whose missing values do.

    The value of a category is the mean label of its bags.
    """
    if bags.covariates is None:
        return
    for name, column in zip(bags.covariates.names, bags.covariates.columns):
        area, present = 0.0, ~missing_of(column)
        gaps = max(_area(label, present.astype(np.float64), tests=len(labels)) for label in labels)
        if gaps > MOST:
            yield _Single(name, gaps, _MISSING)
            continue
        for label in _labels(bags.subset(present)) if present.any() else ():
            known_values = column[present]
            values = known_values if known_values.dtype.kind == "f" else _encoded(known_values, label.values)
            area = max(area, _area(label, values, tests=len(labels)))
        if area > MOST:
            yield _Single(name, area, "")


def _encoded(words: NDArray[np.str_], label: Numbers) -> Numbers:
    """Return the mean label of each category; for a category of fewer than three bags, the mean of all bags."""
    _, codes, counts = np.unique(words, return_inverse=True, return_counts=True)
    filled = np.nan_to_num(label, nan=float(np.nanmean(label)))
    return np.where(counts >= 3, np.bincount(codes, weights=filled) / counts, filled.mean())[codes]


def _labels(bags: Bags) -> list[_Label]:
    """Return the labels that order the bags: two classes, each class or label, or pairs of numbers or times."""
    if bags.outcome is None:
        return [] if bags.labels is None else [_Label(bags.labels.astype(np.float64), None)]
    values, target = bags.outcome.values, bags.outcome.target
    if target in ("multilabel", "multiclass"):
        return [_Label(column, None) for column in _columns(bags.outcome).T]
    if target == "survival":
        return [_Label(values[:, 0], Pairs.of_times(*values.T)), _Label(values[:, 1], None)]
    return [_Label(values[:, 0], Pairs.of_numbers(values[:, 0]))]


def _area(label: _Label, values: Numbers, *, tests: int) -> float:
    """Return `_areas` of one column [N]."""
    return float(_areas(label, values[:, None], scipy.stats.rankdata(values)[:, None], tests=tests)[0])


def _areas(label: _Label, columns: Numbers, ranks: Numbers, *, tests: int) -> Numbers:
    """Return AUROC or C-index of each column [N, K] in its better direction; 0 if chance explains it.

    `ranks` [N, K] are the ranks of the columns.
    """
    if label.pairs is not None:
        return _concordances(label, columns, tests=tests)
    labeled = ~np.isnan(label.values)
    y = label.values[labeled] == 1
    if not labeled.all():
        ranks = scipy.stats.rankdata(columns[labeled], axis=0)
    positives, negatives = int(y.sum()), int((~y).sum())
    if not positives or not negatives:
        return np.zeros(columns.shape[1])
    wins = y.astype(np.float64) @ ranks - positives * (positives + 1) / 2
    spread = math.sqrt((positives + negatives + 1) / (12 * positives * negatives))
    return _beyond_chance(wins / (positives * negatives), spread, tests)


def _concordances(label: _Label, columns: Numbers, *, tests: int) -> Numbers:
    """Return C-indices, exact for columns that are high in a sample of pairs with different labels, else 0."""
    count, pairs = len(columns), label.pairs
    if pairs is None or not pairs.total > 0:
        return np.zeros(columns.shape[1])
    few = np.arange(0, count, max(1, count // 200))
    sample = columns[few]
    order = np.argsort(label.values[few], kind="stable")
    first, second = np.triu_indices(len(few), k=max(1, len(few) // 3))  # pairs far apart in the order of the label
    sampled = np.random.default_rng(0).permutation(len(first))[:_PAIRS]
    low, high = sample[order[first[sampled]]], sample[order[second[sampled]]]
    shares = ((high > low) + 0.5 * (high == low)).mean(axis=0)
    areas = np.full(columns.shape[1], 0.5)
    for at in np.flatnonzero(np.maximum(shares, 1 - shares) > MOST - 0.1).tolist():
        areas[at] = pairs.concordance(columns[:, at])
    return _beyond_chance(areas, math.sqrt((2 * count + 5) / (18 * count * (count - 1))), tests)


def _beyond_chance(areas: Numbers, spread: float, tests: int) -> Numbers:
    """Return areas in their better direction, at least 0.5; 0 if so many tests may reach them by chance."""
    turned = np.maximum(areas, 1 - areas)
    by_chance = 2 * scipy.stats.norm.sf((turned - 0.5) / spread) * tests
    return np.where(by_chance < _CHANCE, turned, 0.0)
