"""A folder of feature files with a label table, or a manifest of files: bags that stay in these files."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import bag_names, first_names
from midam.data.sources.file_set import FileRows, FileSet
from midam.data.sources.find_files import find_files, warn_of_left_alone
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, refuse_unused
from midam.data.sources.label_table import LabelTable, read_labels
from midam.data.sources.probe import OnFile, kinds_of
from midam.data.sources.table_columns import (
    PATIENT_COLUMNS,
    binary_labels,
    find_column,
    read_names_table,
    require_columns,
    split_names,
)
from midam.errors import BagDataError, ConfigError, DataNotFoundError


def read_folder(
    folder: str | Path,
    table: LabelTable | None,
    *,
    bag_by: str = "slide",
    options: ImageOptions = DEFAULTS,
    require_labels: bool = True,
    on_file: OnFile | None = None,
) -> Bags:
    """Read bags from a folder with one file for each slide, image or volume: of features, or that itself.

    Parameters
    ----------
    folder : str or Path
        Bags by slide are named by `midam.data.sources.file_names.bag_names`.
    table : LabelTable, optional
        Labels, patients, splits; files that it does not name are left out, with a warning. Without one all files of
        the format are read, and what is of no known format is warned of.
    bag_by : {"slide", "patient"}
        One bag for each file, grouped by patient; or one for each patient, its files in the order of their names.
    options : ImageOptions
        How images, slides and volumes are cut; refused where they do not apply, unless `require_labels` is False.
    require_labels : bool, default True
        Refuse to read without labels.
    on_file : callable, optional
        Called with the number of files that have been looked at and the number of all.

    Returns
    -------
    Bags
        Their instances are read from the files when they are asked for.

    Raises
    ------
    BagDataError, ConfigError, DataNotFoundError
        If a file or a table cannot be used, or they do not fit; naming it.
    """
    folder = Path(folder)
    if table is None and require_labels:
        raise ConfigError(
            f"Expected --labels FILE for a folder of features, got none (in {folder}); name the label table."
        )
    paths = find_files(folder, leave=[] if table is None else [p for p in (table.path, table.slides) if p is not None])
    names = bag_names(paths, folder)
    if require_labels:
        refuse_unused(options, [kind for path in paths for kind in kinds_of(path)], where=str(folder))
    if table is None:
        if bag_by == "patient":
            raise ConfigError(
                f"Expected --labels FILE with bags by patient, got none (in {folder}); name a table of patients."
            )
        warn_of_left_alone(folder, paths)
        return assemble(paths, names, options=options, source=str(folder), on_file=on_file)
    said = read_labels(table, names, source=str(folder), require_labels=require_labels)
    paths, names = [paths[i] for i in said.index], [names[i] for i in said.index]
    bags, groups = np.array(names), said.groups
    if bag_by == "patient":
        if said.patients is None:
            raise BagDataError(
                f"Expected a column of patients, got none that is full (in {table.path}); name it with --groups, or "
                "leave out --bag-by patient."
            )
        # A patient who is a bag is no group beside it.
        bags, groups = said.patients, groups if table.group_column is not None else None
    order = np.argsort(bags, kind="stable")
    return assemble(
        [paths[i] for i in order],
        bags[order],
        labels=None if said.labels is None else said.labels[order],
        groups=None if groups is None else groups[order],
        splits=None if said.splits is None else said.splits[order],
        options=options,
        source=str(folder),
        on_file=on_file,
    )


def read_manifest(
    path: str | Path,
    *,
    bag_column: str = "bag",
    label_column: str = "label",
    group_column: str | None = None,
    split_column: str | None = None,
    positive: str | None = None,
    skip_missing: bool = False,
    options: ImageOptions = DEFAULTS,
    require_labels: bool = True,
    on_file: OnFile | None = None,
) -> Bags:
    """Read bags from a manifest: a CSV or TSV with the columns bag, path, label and perhaps group and split.

    A row is a file; several rows of one bag are several files of it, in the order of the rows. Paths are relative to
    the manifest's folder. Without a column group, that of the patient is the group, as in label tables. Parameters and
    errors as of `read_folder` and `midam.data.sources.label_table.LabelTable`.
    """
    path, where = Path(path), str(path)
    frame = read_names_table(path)
    labelled = require_labels or (label_column in frame.columns and not frame[label_column].isna().all())
    split_column = split_column or ("split" if "split" in frame.columns else None)
    if group_column is None:
        patient = find_column(frame, ("group", *PATIENT_COLUMNS))
        group_column = None if patient in (bag_column, label_column, split_column) else patient
    wanted = [bag_column, "path", *([label_column] if labelled else [])]
    wanted += [name for name in (group_column, split_column) if name is not None]
    require_columns(frame, wanted, where)
    for name in wanted:
        if frame[name].isna().any():
            line = int(np.argmax(frame[name].isna())) + 2
            raise BagDataError(f"Expected a {name} in each row, got none (in {where}, line {line}); fill it in.")
    found = np.array([(path.parent / name).exists() for name in frame["path"]])
    if not found.all():
        names = frame["path"][~found].tolist()
        text = f"{len(names)} of {len(frame)} rows: {first_names(names)} (in {where})"
        if not skip_missing or not found.any():
            raise DataNotFoundError(
                f"Expected a file for each row, got none for {text}; correct the paths, or leave such rows out with "
                "--missing skip."
            )
        warnings.warn(f"no file, hence left out: {text}", UserWarning, stacklevel=3)
        frame = frame[found]
    paths = [path.parent / name for name in frame["path"]]
    if require_labels:
        refuse_unused(options, [kind for file in paths for kind in kinds_of(file)], where=where)
    splits = None if split_column is None else split_names(frame[split_column].to_numpy(dtype=np.str_), where)
    return assemble(
        paths,
        frame[bag_column].to_numpy(dtype=np.str_),
        labels=binary_labels(frame, label_column, positive, where=where) if labelled else None,
        groups=None if group_column is None else frame[group_column].to_numpy(dtype=np.str_),
        splits=splits,
        options=options,
        source=where,
        on_file=on_file,
    )


def assemble(
    paths: Sequence[Path],
    bags: ArrayLike,
    *,
    labels: NDArray[np.int64] | None = None,
    groups: NDArray[np.str_] | None = None,
    splits: NDArray[np.str_] | None = None,
    options: ImageOptions = DEFAULTS,
    source: str,
    on_file: OnFile | None = None,
) -> Bags:
    """Bags over files; bag, label, group and split of each file are given, and agree within a bag.

    Raises
    ------
    BagDataError
        If they do not agree, or a file cannot be used.
    """
    names = np.asarray(bags, dtype=np.str_)
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[codes]  # bags in the order of their first files
    order = np.argsort(rank, kind="stable")
    opens = np.flatnonzero(np.append(True, np.diff(rank[order]) != 0))
    paths = [paths[i] for i in order]

    def of_bag(what: str, values: NDArray[Any] | None) -> NDArray[Any] | None:
        if values is None:
            return None
        own: NDArray[Any] = values[order][opens]
        wrong = np.flatnonzero(values[order] != own[rank[order]])
        if len(wrong):
            at = int(wrong[0])
            raise BagDataError(
                f"Expected one {what} in a bag, got {own[rank[order][at]]} and {values[order][at]} (in {source}, bag "
                f"{names[order][at]}, {paths[at].name}); correct the table."
            )
        return own

    own_labels, own_groups, own_splits = of_bag("label", labels), of_bag("group", groups), of_bag("split", splits)
    files = FileSet.probed(paths, options, on_file=on_file)
    ends = np.append(opens[1:], len(paths))
    return Bags(
        FileRows(files),
        starts=files.offsets[opens],
        sizes=files.offsets[ends] - files.offsets[opens],
        ids=names[order][opens],
        labels=own_labels,
        groups=own_groups,
        splits=own_splits,
        coords=None if files.facts[0].coords_width is None else FileRows(files, "coords"),
        sources=["; ".join(str(path) for path in paths[a:b]) for a, b in zip(opens, ends)],
        attributes=_attributes(files, opens, ends),
        cut=_cut(files),
        source=source,
    )


def _attributes(files: FileSet, opens: NDArray[np.int64], ends: NDArray[np.int64]) -> list[str] | None:
    if not any(fact.attributes for fact in files.facts):
        return None
    said = [{path.name: fact.attributes} for path, fact in zip(files.paths, files.facts)]
    return [json.dumps({name: own for one in said[a:b] for name, own in one.items()}) for a, b in zip(opens, ends)]


def _cut(files: FileSet) -> dict[str, Any] | None:
    """How images, slides or volumes were cut; None of features."""
    kind = files.facts[0].attributes.get("features", {}).get("kind")
    if kind not in ("patches", "slices", "volume"):
        return None
    found = files.options.cut(kind)
    if kind == "patches":
        # What was read, not what was asked for: level 0 has a magnification too, and an image has none.
        read_at = {fact.attributes.get("coords", {}).get("target_magnification") for fact in files.facts}
        only = read_at.pop() if len(read_at) == 1 else None
        found["magnification"] = float(only) if isinstance(only, float | int) else None
    return found
