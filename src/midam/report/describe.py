"""Facts about bags, and warnings of problems in the data that spoil a result before training begins."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import ColumnCoder, missing_text
from midam.data.digests import set_digests
from midam.data.instance_labels import label_counts
from midam.data.missing import marked_missing
from midam.data.sources.patients import group_origin
from midam.data.splits import check_disjoint
from midam.data.validate import SPLITS, row_chunks
from midam.errors import LeakageError, given, listed, plural
from midam.report import label_facts
from midam.settings import DataSettings
from midam.targets import target_of

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
    traps = [*label_facts.label_warnings(bags), *_size_warnings(bags), *_group_warnings(bags)]
    train = np.ones(len(bags), dtype=np.bool_) if bags.splits is None else bags.splits == "train"
    if train.any():
        traps += label_facts.feature_warnings(bags.subset(train), columns=None if coder is None else coder.column_of)
    exact = bags.instances.nbytes <= _EXACT_BYTES
    if bags.digests is not None or exact:
        traps += _duplicate_warnings(bags)
    else:
        notes.append("duplicate bags were not searched: import the data into a store to find them")
    if len(bags.instance_shape) == 1 and exact:
        traps += _constant_warnings(bags)
    elif len(bags.instance_shape) == 1:
        notes.append("constant features were not searched: the instances are larger than 256 MiB")
    traps += [line] if (line := marked_missing(bags)) else []
    return BagDescription(bag_facts(name, bags), traps, notes)


def leaks(
    bags: Bags, training: NDArray[np.bool_], gaps: NDArray[np.float32] | None, columns: Mapping[str, str] | None
) -> list[str]:
    """Return at most three lines on features, bag sizes and duplicate bags that reveal the label, by quick checks.

    Single features, covariates and bag sizes are checked in the `training` bags [N], duplicates among all bags, but
    only if the bags have digests. `gaps` and `columns` are as in `feature_warnings`.
    """
    train = bags.subset(training).replace(groups=None)
    sizes = label_facts.size_warnings(train) if len(train) <= label_facts.MANY_BAGS else ()
    copies = _duplicate_warnings(bags) if bags.digests is not None else ()
    single = label_facts.feature_warnings(train, None if gaps is None else gaps[training], columns)
    return ["; ".join(lines) for part in (single, sizes, copies) if (lines := list(part))]


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
        facts["on disk"] = format_bytes(stored_bytes(place))
    return facts


def _label_facts(bags: Bags) -> dict[str, str]:
    """Return the facts about labels in words: counts of classes in one line, and other facts one by one."""
    target = target_of(bags)
    facts = label_facts.label_facts(target, target.values(bags))
    texts = {name: "not reached" if fact is None else f"{fact:.4g}" for name, fact in facts.items()}
    if (unit := label_facts.UNITS.get(target.name)) is None:
        return texts
    return {label_facts.PLURALS[unit]: listed([f"{name} {text}" for name, text in texts.items()], most=_SHOWN)}


def stored_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def format_bytes(count: int) -> str:
    """Format a number of bytes.

    Examples
    --------
    >>> format_bytes(512), format_bytes(1_500_000)
    ('512 B', '1.5 MB')
    """
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**power:.1f} {'kMGT'[power - 1]}B" if power else f"{count} B"


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
    yield from label_facts.size_warnings(bags)


def _group_warnings(bags: Bags) -> Iterator[str]:
    if bags.groups is None or bags.splits is None:
        return
    try:
        check_disjoint(bags.splits, bags.groups)
    except LeakageError as error:
        yield f"groups that cross splits: {str(error).removeprefix('Expected each group in one split, got ')}"


def _duplicate_warnings(bags: Bags) -> Iterator[str]:
    digests, kinds, counts = np.unique(set_digests(bags), return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(counts > 1)
    if not len(repeated):
        return
    first = bags.ids[kinds == repeated[0]]
    yield f"duplicate bags: {counts[repeated].sum()} bags have the content of another, such as {listed(first, most=3)}"
    for name, column in (("differ in label", label_facts.label_codes(bags)), ("are in several splits", bags.splits)):
        if column is None:
            continue
        _, codes = np.unique(column, return_inverse=True)
        pairs = np.unique(np.stack([kinds, codes]), axis=1)
        mixed = np.flatnonzero(np.bincount(pairs[0], minlength=len(digests)) > 1)
        if len(mixed):
            names = listed(bags.ids[kinds == mixed[0]], most=3)
            yield f"duplicate bags that {name}: {plural(len(mixed), 'set')}, such as {names}"


def _constant_warnings(bags: Bags) -> Iterator[str]:
    order = np.argsort(bags.starts, kind="stable")
    spans = row_chunks(bags.instances, bags.starts[order], bags.sizes[order])
    chunks = (np.asarray(bags.instances[low:high]) for low, high in spans)
    lows, highs = zip(*((np.fmin.reduce(chunk), np.fmax.reduce(chunk)) for chunk in chunks))
    constant = ~(np.fmin.reduce(lows) < np.fmax.reduce(highs))  # also without any value
    names = np.array(bags.feature_names or range(len(constant)), dtype=np.str_)
    coded = {name.partition("=")[0] for name in names.tolist() if "=" in name}
    # `color other` is for categories to come: it is constant where all are frequent.
    same = [name for name in names[constant].tolist() if name.removesuffix(" other") not in coded]
    if same and bags.num_instances > 1:
        yield f"constant features: {len(same)} of {len(constant)} ({listed(same, most=3)})"
