"""Facts about bags, and warnings of problems in the data that spoil a result before training begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.filesize import decimal

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder, missing_text
from midam.data.instance_labels import label_counts
from midam.data.missing import marked_missing
from midam.data.sources.patients import group_origin
from midam.data.splits import check_disjoint
from midam.data.validate import SPLITS
from midam.errors import LeakageError, given, listed
from midam.evaluate.classes import one_against_rest
from midam.evaluate.ranking import FEW_BAGS
from midam.evaluate.survival import median_follow_up
from midam.report.leaks import (
    duplicate_warnings,
    feature_warnings,
    mixture_warnings,
    overlap_warnings,
    size_warnings,
)
from midam.settings import DataSettings
from midam.targets import Target, target_of
from midam.targets.binary import Binary
from midam.targets.columns import ColumnTarget, Multilabel
from midam.targets.ranked import Continuous
from midam.targets.survival import Survival

PLURALS = {"multiclass": "classes", "ordinal": "grades", "multilabel": "labels"}
_EXACT_BYTES = 1 << 28  # of instances, up to which all are read
_SHOWN = 30  # limit of listed classes


@dataclass(frozen=True)
class BagDescription:
    """Facts about bags, and warnings.

    Attributes
    ----------
    facts : dict
        Facts by name, in the order of display.
    warnings, notes : list of str
        Problems that can spoil a result; checks that were skipped, or made on a sample.
    """

    facts: dict[str, Any]
    warnings: list[str]
    notes: list[str]


def describe_bags(name: str, bags: Bags, *, data: DataSettings | None = None) -> BagDescription:
    """Describe labeled or unlabeled bags, and look for problems in them.

    Up to 256 MiB of instances are read completely. In more, constant features are not searched, and duplicate bags only
    if the bags have digests, as in a store. `name` is the path of the data, or their name. Bags may have
    missing values: features are described by the others. Categories and times are described by the features that the
    settings `data` make of them.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0, 5.0]], [[2.0, 5.0]], [[1.0, 5.0]]], labels=[0, 1, 1])
    >>> print(describe_bags("toy", bags).warnings[0])
    few bags of a class: negative (1), positive (2); intervals will be wide
    """
    coder = ColumnCoder.fit(bags, data or DataSettings())
    text = missing_text(bags, f"need {given(impute='median')} to train")
    bags = bags if coder is None else coder.encode(bags)
    notes = [text] if text else []
    traps = [*_label_warnings(bags), *_size_warnings(bags), *_group_warnings(bags)]
    train = np.ones(len(bags), dtype=np.bool_) if bags.splits is None else bags.splits == "train"
    if train.any():
        traps += feature_warnings(bags.subset(train), columns=None if coder is None else coder.column_of)
    traps += mixture_warnings(bags)
    exact = bags.instances.nbytes <= _EXACT_BYTES
    if bags.digests is not None or exact:
        traps += [*duplicate_warnings(bags), *overlap_warnings(bags)]
    else:
        notes.append("duplicate bags were not searched: import the data into a store to find them")
    if len(bags.instance_shape) == 1 and exact:
        traps += _constant_warnings(bags)
    elif len(bags.instance_shape) == 1:
        notes.append("constant features were not searched: the instances are larger than 256 MiB")
    traps += [line] if (line := marked_missing(bags)) else []
    return BagDescription(bag_facts(name, bags), traps, notes)


def bag_facts(name: str, bags: Bags) -> dict[str, Any]:
    """Return facts about bags that are at the path `name`."""
    labels, sizes = bags.labels, bags.sizes
    facts: dict[str, Any] = {}
    if bags.covariates is not None:
        facts["covariates"] = bags.covariates.summary()
    facts |= {
        "bags": str(len(bags)) if bags.outcome is not None else f"{len(bags)} ({_positives(labels)})",
        "instances": f"{bags.num_instances}, {sizes.min()} to {sizes.max()} per bag, median {np.median(sizes):g}",
        "instance shape": f"{list(bags.instance_shape)} of {bags.instances.dtype}",
    }
    if labels is not None and bags.classes is not None:
        facts["classes"] = f"{bags.classes[1]} is positive, {bags.classes[0]} negative"
    if bags.outcome is not None:
        facts |= {"target": bags.outcome.target, **_label_facts(bags)}
    if bags.splits is not None:
        facts["splits"] = ", ".join(_split(bags, part) for part in SPLITS)
    if bags.groups is not None:
        facts |= {"groups": len(np.unique(bags.groups)), "groups from": group_origin(bags)}
    if bags.coords is not None:
        facts["coordinates"] = f"{bags.coords.shape[1]} an instance, {bags.coords.dtype}"
    if bags.instance_labels is not None:
        counts = label_counts(bags)
        kinds = zip(counts.sum(axis=0).tolist(), ("positive", "negative", "unknown"))
        positive = f"positive ones in {(counts[:, 0] > 0).sum()} bags"
        facts["instance labels"] = ", ".join(f"{count} {kind}" for count, kind in kinds if count) + f"; {positive}"
    if bags.cut is not None:
        facts["cut"] = ", ".join(f"{key} {value}" for key, value in bags.cut.items() if value is not None)
    place = Path(name)
    if place.exists():
        facts["on disk"] = decimal(stored_bytes(place))
    return facts


def _label_facts(bags: Bags) -> dict[str, str]:
    """Return the number of bags of each class, grade or label in one line, or facts about numbers or times."""
    target, values = target_of(bags), target_of(bags).values(bags)
    if isinstance(target, Survival):
        median = median_follow_up(*values.T)  # by the reverse Kaplan-Meier estimator
        follow_up = "not reached" if median is None else f"{median:.4g}"
        return {"events": f"{int(values[:, 1].sum())}", "median follow-up": follow_up}
    if isinstance(target, Continuous):
        low, median, high = np.quantile(values, (0, 0.5, 1))
        return {"numbers": f"{low:.4g} to {high:.4g}, median {median:.4g}"}
    if target.name not in PLURALS:  # of a plug-in
        return {}
    counts = [f"{name} {count}" for name, count in zip(target.names, (_columns(target, values) == 1).sum(axis=0))]
    unknown = int(np.isnan(values).sum())
    counts += [f"entries unknown {unknown}"] if unknown else []
    return {PLURALS[target.name]: listed(counts, most=_SHOWN)}


def _columns(target: Target, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return classes, grades or labels as columns [N, C] of 1 and 0, with NaN if unknown."""
    if isinstance(target, ColumnTarget):
        return target.table(values)
    return one_against_rest(values.reshape(len(values), -1)[:, 0], len(target.names))


def _label_warnings(bags: Bags) -> Iterator[str]:
    """Yield warnings of missing or rare classes, labels or events."""
    if bags.outcome is None and bags.labels is None:
        return
    target, values = target_of(bags), target_of(bags).values(bags)
    if isinstance(target, Survival):
        events = int(values[:, 1].sum())
        if events < FEW_BAGS:
            wide = f"few events: {events}; intervals will be wide"
            yield wide if events else "no events: nothing can be trained or tested"
    elif isinstance(target, Binary) or target.name in PLURALS:
        columns = _columns(target, values)
        with_it, without = (columns == 1).sum(axis=0), (columns == 0).sum(axis=0)
        counts = np.minimum(with_it, without) if isinstance(target, Multilabel) else with_it
        names: Sequence[Any] = ("negative", "positive") if isinstance(target, Binary) else target.names
        none = [str(name) for name, count in zip(names, counts) if count == 0]
        few = [f"{name} ({count})" for name, count in zip(names, counts) if 0 < count < FEW_BAGS]
        if none:
            kind = "with or without" if isinstance(target, Multilabel) else "of class"
            yield f"no bags {kind} {listed(none)}: nothing can be trained or tested of it"
        if few:
            yield f"few bags of a class: {listed(few)}; intervals will be wide"
    elif len(np.unique(values)) == 1:
        yield "one number alone: nothing can be trained or tested"


def stored_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _positives(labels: NDArray[np.int64] | None) -> str:
    return "unlabeled" if labels is None else f"{int(labels.sum())} positive"


def _split(bags: Bags, part: str) -> str:
    inside = bags.splits == part
    positives = "" if bags.labels is None else f" ({_positives(bags.labels[inside])})"
    return f"{part} {np.count_nonzero(inside)}{positives}"


def _size_warnings(bags: Bags) -> Iterator[str]:
    median = float(np.median(bags.sizes))
    small = np.flatnonzero(bags.sizes <= max(1.0, median / 100))
    if median >= 10 and len(small):
        most = int(bags.sizes[small].max())
        median_text = f"where the median is {median:g} ({listed(bags.ids[small].tolist(), most=3)})"
        yield f"near-empty bags: {len(small)} of at most {most} instances, {median_text}"
    yield from size_warnings(bags)


def _group_warnings(bags: Bags) -> Iterator[str]:
    if bags.groups is None or bags.splits is None:
        return
    try:
        check_disjoint(bags.splits, bags.groups)
    except LeakageError as error:
        yield f"groups that cross splits: {str(error).removeprefix('Expected each group in one split, got ')}"


def _constant_warnings(bags: Bags) -> Iterator[str]:
    rows = np.concatenate([np.asarray(bags[at]) for at in range(len(bags))])
    constant = ~(np.fmin.reduce(rows) < np.fmax.reduce(rows))  # also without any value
    names = np.array(bags.feature_names or range(len(constant)), dtype=np.str_)
    coded = {name.partition("=")[0] for name in names.tolist() if "=" in name}
    # `color other` is for categories to come: it is constant where all are frequent.
    same = [name for name in names[constant].tolist() if name.removesuffix(" other") not in coded]
    if same and bags.num_instances > 1:
        yield f"constant features: {len(same)} of {len(constant)} ({listed(same, most=3)})"
