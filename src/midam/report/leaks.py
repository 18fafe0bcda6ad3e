"""Quick checks for leaks of the label: a feature, a covariate, the bag size or a copy of a bag that reveals it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import missing_of
from midam.data.digests import instance_hashes, set_digests
from midam.data.missing import fill_values, impute, missing_shares
from midam.data.on_disk import on_disk
from midam.errors import given, listed, plural
from midam.evaluate.classes import class_aurocs, class_intervals
from midam.evaluate.ranking import Pairs
from midam.report.words import METRIC_NAMES
from midam.targets import target_of
from midam.targets.columns import ColumnTarget

_MOST = 0.98  # a feature with a higher AUROC or C-index is reported
_NUMBERS = 4_000_000  # limit of bags times features, and of pairs of bags, in the comparison
_BAGS, _FEWEST, _ROWS = 2000, 100, 1000  # most and fewest bags in the check, and most instances of each
_BYTES = 1 << 26  # limit of bytes that are read from a file
# Width of vectors from which a mixture is looked for; bags that are looked at, fewest of a part, and rows of each bag.
_WIDE, _PROBED, _LEAST, _FIRST = 64, 200, 3, 64
_AT_A_TIME, _ALIKE = 512, 0.5
_HOLDERS, _DIFFERENT = 20, 0.95  # most bags that hold a shared instance, and least share of instances that differ
_CHANCE = 0.01  # probability that any uninformative feature is reported
_ALONE = f"single {{}} rank the bags alone, {{}} above {_MOST}: {{}}; if one of them is the label in another form, {{}}"
_MISSING = " by whether it is missing"

Numbers = NDArray[np.float64]


def size_warnings(bags: Bags) -> Iterator[str]:
    """Yield a warning if bag sizes rank the bags; the level is 0.95 for all classes or labels together."""
    if bags.outcome is None and bags.labels is None:
        return
    target, sizes = target_of(bags), bags.sizes.astype(np.float64)
    groups, values, telling = bags.groups, target.values(bags), list[str]()
    if isinstance(target, ColumnTarget):
        labels = target.table(values)
        scores = np.repeat(sizes[:, None], target.count, axis=1)
        intervals = class_intervals(labels, scores, groups=groups, level=1 - 0.05 / target.count)
        rows = zip(class_aurocs(labels, scores).tolist(), target.names, intervals)
        clear = [(area, name) for area, name, ci in rows if ci is not None and not ci.low <= 0.5 <= ci.high]
        telling = [f"{area:.3f} for {name}" for area, name in sorted(clear, key=lambda row: -abs(row[0] - 0.5))]
    elif (ci := target.estimate(values, sizes, groups=groups)) is not None and not ci.low <= 0.5 <= ci.high:
        telling.append(f"{ci.value:.3f} (95% CI {ci.low:.3f} to {ci.high:.3f})")
    if telling:
        metric = METRIC_NAMES[target.metric].removeprefix("macro ")
        text = f"the bag size predicts the label: its {metric} alone is {listed(telling)}; compare your result with it"
        yield f"{text}, and prefer poolings that do not depend on the size"


def duplicate_warnings(bags: Bags) -> Iterator[str]:
    """Yield warnings of bags with the content of another, also of those with another label or in another split."""
    digests, kinds, counts = np.unique(set_digests(bags), return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return
    first = bags.ids[kinds == repeated[0]]
    yield f"duplicate bags: {counts[repeated].sum()} bags have the content of another, such as {listed(first, most=3)}"
    # NaN is an unknown label, and not equal to itself.
    labels = bags.labels if bags.outcome is None else np.nan_to_num(bags.outcome.values, nan=-1.0)
    columns = {"differ in label": labels, "are in several splits": bags.splits}
    for name, column in ((name, column) for name, column in columns.items() if column is not None):
        codes = np.unique(column, axis=0, return_inverse=True)[1].reshape(-1)
        pairs = np.unique(np.stack([kinds, codes]), axis=1)
        mixed = np.flatnonzero(np.bincount(pairs[0], minlength=len(digests)) > 1)
        if len(mixed):
            names = listed(bags.ids[kinds == mixed[0]], most=3)
            yield f"duplicate bags that {name}: {plural(len(mixed), 'set')}, such as {names}"


def overlap_warnings(bags: Bags) -> Iterator[str]:
    """Yield a warning of bags, not of one group or split, that share half of the instances of one of them or more.

    Shared instances count by how few bags hold them, so that chance explains no pair. Instances with so few values that
    they repeat in a bag are not compared; equal bags are those of `duplicate_warnings`.
    """
    hashes = instance_hashes(bags)
    if hashes is None:
        return
    owners, kinds = np.repeat(np.arange(len(bags)), bags.sizes), np.unique(hashes, return_inverse=True)[1]
    counts = scipy.sparse.coo_array((np.ones(len(kinds)), (owners, kinds))).tocsr()  # which adds up repeated instances
    holders, different, content = np.bincount(counts.indices), np.diff(counts.indptr), np.array(set_digests(bags))
    rare = np.flatnonzero((holders > 1) & (holders <= min(_HOLDERS, len(bags) - 1)))
    if different.sum() < _DIFFERENT * len(kinds) or (holders[rare] ** 2).sum() > _NUMBERS:
        return
    counts, surprise = counts[:, rare], np.log((len(bags) - 1) / (holders[rare] - 1))
    held = counts.sign()
    shared, weights = ((part.tocsr() @ held.T).sorted_indices() for part in (counts, held * surprise))
    one, other = shared.nonzero()
    overlap = 2 * shared.data >= bags.sizes[one]
    overlap &= weights.data > math.log(len(bags) ** 2 / _CHANCE) + different[one] * math.log(2)
    for names in (content, bags.groups, bags.splits):
        if names is not None:
            overlap &= names[one] != names[other]
    if overlap.any():
        one, other = bags.ids[one[overlap]], bags.ids[other[overlap]]
        text = f"bags that share instances: {len(np.unique(one))} have half of theirs or more in common with another"
        yield f"{text}, such as {one[0]} with {other[0]}; if one trains and one tests the model, give them one group"


def mixture_warnings(bags: Bags) -> Iterator[str]:
    """Yield a warning of wide vectors whose means in the bags form two parts far apart, as those of two networks do.

    Half of the variance of the means lies along one line, and a gap there is as wide as half of their range. Two parts
    that are the classes are a matter of `feature_warnings`.
    """
    if len(bags.instance_shape) > 1 or bags.instance_shape[0] < _WIDE or len(bags) < 2 * _LEAST:
        return
    places = np.unique(np.linspace(0, len(bags) - 1, _PROBED).astype(np.int64))
    ends = zip(bags.starts[places].tolist(), (bags.starts + np.minimum(bags.sizes, _FIRST))[places].tolist())
    means = np.nan_to_num([np.mean(bags.instances[low:high], axis=0, dtype=np.float64) for low, high in ends])
    spread = means.std(axis=0)
    means = (means - means.mean(axis=0)) / np.where(spread > 0, spread, 1)
    sides, lengths, _ = np.linalg.svd(means, full_matrices=False)
    line = np.sort(sides[:, 0])
    last = int(np.diff(line).argmax())
    if 2 * (line[last + 1] - line[last]) <= line[-1] - line[0] or 2 * lengths[0] ** 2 <= (lengths**2).sum():
        return
    above = sides[:, 0] > line[last]
    low, high = bags.ids[places[~above]], bags.ids[places[above]]
    classes = bags.labels is not None and len(np.unique(bags.labels[places] == above)) == 1
    if min(len(low), len(high)) >= _LEAST and not classes:
        text = (
            f"the features of {len(low)} bags, such as {low[0]}, are far from those of {len(high)}, such as {high[0]}"
        )
        yield f"{text}: if two networks or normalizations made them, extract all alike"


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
        names = list(dict.fromkeys((columns or {}).get(leak.name, leak.name) for leak in features))
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
    elif any(_area(label, part.sizes.astype(np.float64), tests=len(labels)) > _MOST - 0.1 for label in labels):
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
    singles = [_Single(names[at], float(best[at]), list(table)[by[at]]) for at in np.flatnonzero(best > _MOST)]
    return sorted(singles, key=lambda single: -single.area)


def _single_covariates(bags: Bags, labels: Sequence[_Label]) -> Iterator[_Single]:
    """Yield covariates whose values rank the bags, or whose missing values do.

    The value of a category is the mean label of its bags.
    """
    if bags.covariates is None:
        return
    for name, column in zip(bags.covariates.names, bags.covariates.columns):
        present = ~missing_of(column)
        areas = [(_area(label, present.astype(np.float64), tests=len(labels)), _MISSING) for label in labels]
        for label in _labels(bags.subset(present)) if present.any() else ():
            values = column[present] if column.dtype.kind == "f" else _encoded(column[present], label.values)
            areas.append((_area(label, values, tests=len(labels)), ""))
        if max(areas)[0] > _MOST:
            yield _Single(name, *max(areas))


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
    if isinstance(known := target_of(bags), ColumnTarget):
        return [_Label(column, None) for column in known.table(values).T]
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
        return _concordances(label, columns, ranks, label.pairs, tests=tests)
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


def _concordances(label: _Label, columns: Numbers, ranks: Numbers, pairs: Pairs, *, tests: int) -> Numbers:
    """Return C-indices, exact for columns whose rank correlation with the label is not small, else 0."""
    count, areas = len(columns), np.full(columns.shape[1], 0.5)
    if not pairs.total > 0:
        return np.zeros(columns.shape[1])
    with np.errstate(invalid="ignore"):  # of constant columns
        alike = np.corrcoef(scipy.stats.rankdata(label.values), ranks, rowvar=False)[0, 1:]
    for at in np.flatnonzero(np.abs(alike) > _ALIKE).tolist():
        areas[at] = pairs.concordance(columns[:, at])
    return _beyond_chance(areas, math.sqrt((2 * count + 5) / (18 * count * (count - 1))), tests)


def _beyond_chance(areas: Numbers, spread: float, tests: int) -> Numbers:
    """Return areas in their better direction, at least 0.5; 0 if so many tests may reach them by chance."""
    turned = np.maximum(areas, 1 - areas)
    by_chance = 2 * scipy.stats.norm.sf((turned - 0.5) / spread) * tests
    return np.where(by_chance < _CHANCE, turned, 0.0)
