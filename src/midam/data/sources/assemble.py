"""Bags over files: the files of each bag, with its labels and metadata."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from midam.data.bags import Bags, taken
from midam.data.left_out import LeftOut, lost_bags
from midam.data.sources import table_columns as tables
from midam.data.sources.file_names import distinct_names
from midam.data.sources.file_rows import ROWS, SEPARATOR, FileRows, FileSet, warn_of_scans
from midam.data.sources.probe import FileFacts, sift_files
from midam.data.sources.request import Request
from midam.errors import BagDataError, fault_list, listed
from midam.lazy_imports import pandas as pd

_BAGS, _ROWS = 16, 64  # whose features are looked at


def assemble(
    paths: Sequence[Path],
    bags: ArrayLike,
    request: Request,
    *,
    table: Mapping[str, Any] | None = None,
    by_name: bool = False,
) -> Bags:
    """Make bags of files, from the bag of each file; they are in the order of their first files, or `by_name`.

    The `table` holds parameters of `Bags` with a value for each bag, in the order of their first files.

    Files without instances are left out, and so are unusable files if the request skips missing ones; `left_out` of the
    request lists them.
    """
    names, source, options, reader = np.asarray(bags, dtype=np.str_), str(request.path), request.images, request.reader
    rows, _ = pd.factorize(names)  # of the table, for each file
    facts, wrong = sift_files(paths, request)
    kept = np.array([*facts])
    if wrong:
        others = {at: int((names[kept] == names[at]).sum()) for at in wrong}
        lost = [LeftOut(str(names[at]), str(paths[at]), why, others[at]) for at, why in wrong.items()]
        _warn_of_lost(lost, len(paths), source)
        request.left_out.extend(lost)
    at = kept[np.argsort((names if by_name else rows)[kept], kind="stable")]
    names, paths = names[at], [paths[i] for i in at]
    files = FileSet(paths, [facts[i] for i in at], options, reader)
    warn_of_scans(paths, files.facts)
    opens = np.flatnonzero(np.append(True, np.diff(rows[at]) != 0))  # number of the first file of each bag
    ends = np.append(opens[1:], len(at))
    parts = [(paths[a:b], files.facts[a:b]) for a, b in zip(opens, ends)]
    for name, (_, bag_facts) in zip(names[opens].tolist(), parts):
        _refuse_series(bag_facts, f"{source}, bag {name}")
    described = any(fact.attributes for fact in files.facts) or len(parts) < len(at)
    bags = Bags(
        FileRows(files),
        sizes=files.offsets[ends] - files.offsets[opens],
        ids=names[opens],
        **taken(table or {}, rows[at[opens]]),
        coords=FileRows.places(files),
        feature_names=files.feature_names,
        sources=[SEPARATOR.join(map(str, bag_paths)) for bag_paths, _ in parts],
        attributes=[json.dumps(_attributes(*part)) for part in parts] if described else None,
        cut=_cut(files),
        source=source,
    )
    if request.features is None and bags.feature_names is not None:
        _warn_of_names(bags, bags.feature_names)
    return bags


def _warn_of_names(bags: Bags, names: Sequence[str]) -> None:
    """Warn of features named as patients, labels, bags or rows, with values as those have."""
    like = (tables.is_group_like, tables.is_label_like, tables.is_row_like, tables.is_truth_like)
    files = tables.FILE_COLUMNS[:-1]
    places = [at for at, name in enumerate(names) if name.lower() in files or any(alike(name) for alike in like)]
    ends = bags.starts + np.minimum(bags.sizes, _ROWS)
    rows = [bags.instances[low:high][:, places] for low, high in zip(bags.starts[:_BAGS], ends)] if places else []
    gaps = np.concatenate([np.diff(part, axis=0) for part in rows] or [np.ones((0, 0))])
    odd = [(x == 0).all() or tables.numbers_rows(x) or tables.is_truth_like(names[at]) for at, x in zip(places, gaps.T)]
    if doubtful := [names[at] for at, wrong in zip(places, odd) if wrong]:
        text = f"columns of the files are features: {listed(doubtful)} (in {bags.source}); leave out of the files what"
        warnings.warn(f"{text} names patients or bags, numbers the rows, or reveals the label", stacklevel=5)


def _refuse_series(facts: Sequence[FileFacts], where: str) -> None:
    """Refuse a bag of several series of one CT, MR or PET study, such as T1 and T2."""
    heads = [fact.attributes.get("file", {}) for fact in facts]
    series = {(head.get("StudyInstanceUID"), head.get("SeriesDescription")) for head in heads if "plane" in head}
    studies = [study for study, name in series if study and name]
    if len(set(studies)) < len(studies):
        names = listed(sorted({repr(name) for _, name in series if name}))
        advice = "keep the files of one of them, or make each a bag"
        raise BagDataError(f"Expected one series of a study in a bag, got {names} (in {where}); {advice}.")


def _attributes(paths: Sequence[Path], facts: Sequence[FileFacts]) -> dict[str, Any]:
    """Return the attributes of the files of a bag, by name, and of several files also the number of instances."""
    sizes = [{ROWS: fact.rows} if len(facts) > 1 else {} for fact in facts]
    files = zip(distinct_names(paths), sizes, facts, strict=True)
    return {name: {**size, **fact.attributes} for name, size, fact in files}


def _warn_of_lost(lost: Sequence[LeftOut], count: int, source: str) -> None:
    """Warn about files that are left out, with the reasons, and about bags that are left out with them."""
    bags = lost_bags(lost)
    have = "1 bag has" if len(bags) == 1 else f"{len(bags)} bags have"
    rest = f"; {have} no other file: {listed(bags)}" if bags else ""
    files: dict[str, list[str]] = {}  # by reason, which does not repeat their paths
    for row in lost:
        why = row.reason.replace(f" (in {row.file})", "").removesuffix(".")
        files.setdefault(why, []).append(Path(row.file).name)
    reasons = [f"{listed(names)}: {why}" for why, names in files.items()]
    head = f"{len(lost)} of {count} files are left out"
    only = f"{head}: {reasons[0]}{rest} (in {source})"
    warnings.warn(only if len(reasons) == 1 else fault_list(f"{head}{rest} (in {source}):", reasons), stacklevel=4)


def _cut(files: FileSet) -> dict[str, Any] | None:
    """Return how images, slides or volumes were cut; None for features."""
    kind = files.facts[0].cut
    if not kind:
        return None
    cut = files.options.cut(kind)
    if kind == "patches":
        # The magnification that was read, not the requested one: level 0 has one too, and an image has none.
        read_at = {fact.attributes.get("coords", {}).get("target_magnification") for fact in files.facts}
        only = read_at.pop() if len(read_at) == 1 else None
        cut["magnification"] = float(only) if isinstance(only, float | int) else None
    return cut
