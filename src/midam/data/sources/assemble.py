"""Bags over files: which files are one bag, and what is known of it."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.bag_files import ROWS, SEPARATOR
from midam.data.bags import Bags
from midam.data.covariates import Covariates, missing_of
from midam.data.left_out import LeftOut, lost_bags
from midam.data.outcome import Outcome
from midam.data.sources.file_names import distinct_names, first_names
from midam.data.sources.file_rows import FileRows, FileSet
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions
from midam.data.sources.probe import FileFacts, sift_files
from midam.data.sources.request import OnFile
from midam.data.validate import ClassName
from midam.errors import BagDataError, fault_list


def assemble(
    paths: Sequence[Path],
    bags: ArrayLike,
    *,
    labels: NDArray[np.int64] | None = None,
    classes: tuple[ClassName, ClassName] | None = None,
    outcome: Outcome | None = None,
    covariates: Covariates | None = None,
    groups: NDArray[np.str_] | None = None,
    splits: NDArray[np.str_] | None = None,
    options: ImageOptions = DEFAULTS,
    source: str,
    reader: str | None = None,
    on_file: OnFile | None = None,
    by_name: bool = False,
    skip: bool = False,
    left_out: list[LeftOut] | None = None,
) -> Bags:
    """Bags over files, of which these are given, in the order of their first files, or `by_name`.

    Files without instances are left out, with `skip` those too that cannot be used; they are added to `left_out`.
    """
    names = np.asarray(bags, dtype=np.str_)
    facts, wrong = sift_files(paths, options, reader=reader, on_file=on_file, skip=skip)
    if wrong:
        kept = np.array([fact is not None for fact in facts])
        lost = [LeftOut(str(names[at]), str(paths[at]), why, int(kept[names == names[at]].sum())) for at, why in wrong]
        _warn_of_lost(lost, len(paths), source)
        (left_out if left_out is not None else []).extend(lost)
        paths, facts, names = [p for p, k in zip(paths, kept) if k], [f for f in facts if f is not None], names[kept]
        labels, groups, splits = (None if part is None else part[kept] for part in (labels, groups, splits))
        outcome = None if outcome is None else replace(outcome, values=outcome.values[kept])
        covariates = None if covariates is None else covariates.subset(np.flatnonzero(kept))
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    rank = codes if by_name else np.argsort(np.argsort(first))[codes]
    order = np.argsort(rank, kind="stable")
    opens = np.flatnonzero(np.append(True, np.diff(rank[order]) != 0))
    paths = [paths[i] for i in order]

    def of_bag(what: str, values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else compared(what, values[order], values[order][opens])

    def covariate(name: str, column: NDArray[Any]) -> NDArray[Any]:
        known, first_known = np.flatnonzero(~missing_of(column[order])), opens.copy()
        first_known[rank[order][known[::-1]]] = known[::-1]
        found = column[order][first_known]
        gaps = missing_of(column[order])
        compared(name, np.where(gaps, found[rank[order]], column[order]), found)
        return found

    def compared(what: str, values: NDArray[Any], own: NDArray[Any]) -> NDArray[Any]:
        differs = values != own[rank[order]]
        if values.dtype.kind == "f":  # what is not known is the same in both
            differs = differs & ~(np.isnan(values) & np.isnan(own[rank[order]]))
        differs = differs.any(axis=1) if values.ndim == 2 else differs
        for at in np.flatnonzero(differs)[:1].tolist():
            raise BagDataError(
                f"Expected one {what} in a bag, got {own[rank[order][at]]} and {values[at]} (in {source}, bag "
                f"{names[order][at]}, {paths[at].name}); correct the table."
            )
        return own

    own_labels, own_groups, own_splits = of_bag("label", labels), of_bag("group", groups), of_bag("split", splits)
    own_values = of_bag("label", None if outcome is None else outcome.values)
    if covariates is not None:
        covariates = replace(covariates, columns=tuple(map(covariate, covariates.names, covariates.columns)))
    files = FileSet.probed(paths, [facts[i] for i in order], options, reader=reader)
    ends = np.append(opens[1:], len(paths))
    ranges = list(zip(opens.tolist(), ends.tolist()))
    told = any(fact.attributes for fact in files.facts) or len(ranges) < len(paths)
    return Bags(
        FileRows(files),
        sizes=files.offsets[ends] - files.offsets[opens],
        ids=names[order][opens],
        labels=own_labels,
        classes=classes,
        outcome=None if outcome is None or own_values is None else replace(outcome, values=own_values),
        covariates=covariates,
        groups=own_groups,
        splits=own_splits,
        coords=FileRows.places(files),
        feature_names=files.feature_names,
        sources=[SEPARATOR.join(str(path) for path in paths[a:b]) for a, b in ranges],
        attributes=[json.dumps(_attributes(paths[a:b], files.facts[a:b])) for a, b in ranges] if told else None,
        cut=_cut(files),
        source=source,
    )


def _attributes(paths: Sequence[Path], facts: Sequence[FileFacts]) -> dict[str, Any]:
    """Attributes of the files of a bag, by name; of several also how many instances each has."""
    rows = [{ROWS: fact.rows} if len(facts) > 1 else {} for fact in facts]
    return {
        name: {**own, **fact.attributes} for name, own, fact in zip(distinct_names(paths), rows, facts, strict=True)
    }


def _warn_of_lost(lost: Sequence[LeftOut], count: int, source: str) -> None:
    """Warn of files that are left out, with the reasons, and of bags that are left out with them."""
    bags = lost_bags(lost)
    have = "1 bag has" if len(bags) == 1 else f"{len(bags)} bags have"
    rest = f"; {have} no other file: {first_names(bags)}" if bags else ""
    reasons = [f"{first_names(names)}: {why}" for why, names in _reasons(lost)]
    head = f"{len(lost)} of {count} files are left out"
    only = f"{head}: {reasons[0]}{rest} (in {source})"
    warnings.warn(only if len(reasons) == 1 else fault_list(f"{head}{rest} (in {source}):", reasons), stacklevel=4)


def _reasons(lost: Sequence[LeftOut]) -> list[tuple[str, list[str]]]:
    """Names of files under each reason, in which the path of each is left out."""
    reasons: dict[str, list[str]] = {}
    for row in lost:
        reasons.setdefault(row.reason.replace(f" (in {row.file})", "").removesuffix("."), []).append(
            Path(row.file).name
        )
    return list(reasons.items())


def _cut(files: FileSet) -> dict[str, Any] | None:
    """How images, slides or volumes were cut; None of features."""
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
