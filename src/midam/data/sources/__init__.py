"""Readers of bags: by catalogue name, from a store, a file, a manifest or a folder of files."""

import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from midam.data.bags import Bags
from midam.data.on_disk import ReadsName
from midam.data.sets import catalog
from midam.data.sources.file_names import first_names
from midam.data.sources.folder import read_folder, read_manifest
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, refuse_unused
from midam.data.sources.instance_table import read_table
from midam.data.sources.label_table import LabelTable, MissingName, read_labels
from midam.data.sources.npz import read_npz
from midam.data.sources.probe import OnFile
from midam.data.sources.split_table import read_splits
from midam.data.store import is_store, open_store
from midam.errors import ConfigError, DataNotFoundError

__all__ = ["read_bags"]

BagBy = Literal["slide", "patient"]
_TABLES = (".csv", ".tsv", ".parquet")


def read_bags(
    path_or_name: str | Path,
    *,
    bag_column: str = "bag",
    label_column: str = "label",
    group_column: str | None = None,
    split_column: str | None = None,
    coord_columns: Sequence[str] = (),
    ignore_columns: Sequence[str] = (),
    labels: str | Path | None = None,
    slides: str | Path | None = None,
    positive: str | None = None,
    bag_by: BagBy = "slide",
    split_file: str | Path | None = None,
    fold: int | None = None,
    missing: MissingName = "error",
    images: ImageOptions = DEFAULTS,
    reads: ReadsName = "auto",
    require_labels: bool = True,
    on_file: OnFile | None = None,
) -> Bags:
    """Read bags from the catalogue, a store, a file, a manifest or a folder of files.

    Parameters
    ----------
    path_or_name : str or Path
        A catalogue name (`midam.data.sets.catalog.names`); the folder of a store (`midam.data.store`); a folder with a
        file for each bag, of features or an image, slide or volume (`midam.data.sources.folder.read_folder`); a
        manifest, which is a ``.csv`` or ``.tsv`` file with a column ``path``
        (`midam.data.sources.folder.read_manifest`); or an ``.npz``, ``.csv``, ``.tsv`` or ``.parquet`` file of
        instances.
    bag_column, label_column, group_column, split_column
        Columns of a table of instances, of a manifest, or of the label table,
        where the column that names the files is found if none is given.
    coord_columns, ignore_columns
        Columns of a table of instances.
    labels, slides, positive, missing
        Label table of a folder, or other labels for a store; see `midam.data.sources.label_table.LabelTable`.
    bag_by : {"slide", "patient"}
        Of a folder: a bag for each file, or for each patient.
    split_file, fold
        Table of splits for any data; see `midam.data.sources.split_table.read_splits`. Bags that it does not name are
        left out, with a warning.
    images : ImageOptions
        How images, slides and volumes are cut into instances; `midam.data.sources.imageoptions`.
    reads : {"auto", "mmap", "pread"}
        How a store is read; see `midam.data.on_disk.RowFile`.
    require_labels : bool, default True
        Refuse data without labels. False, as for prediction, also ignores column names that do not apply.
    on_file : callable, optional
        Called with the number of feature files that have been looked at and the number of all.

    Returns
    -------
    Bags
        The bags, checked. Those of a store or of feature files stay on disk, and their values are checked when they
        are read.

    Raises
    ------
    DataNotFoundError
        If there is neither such a file nor such a name; the message lists near names.
    BagDataError
        If the data cannot be used; the message names file, column and bag.
    ConfigError
        If a setting is given that does not apply to the data.

    Examples
    --------
    >>> len(read_bags("digits"))
    360
    """
    how = _Reading(
        bag_column=bag_column,
        label_column=label_column,
        group_column=group_column,
        split_column=split_column,
        coord_columns=tuple(coord_columns),
        ignore_columns=tuple(ignore_columns),
        labels=labels,
        slides=slides,
        positive=positive,
        bag_by=bag_by,
        split_file=split_file,
        fold=fold,
        missing=missing,
        images=images,
    )
    kind = _kind(path_or_name, how)
    _check_applies(kind, str(path_or_name), how, strict=require_labels)
    bags = _read(kind, path_or_name, how, reads=reads, require_labels=require_labels, on_file=on_file)
    return bags if split_file is None else _split(bags, split_file, how)


@dataclass(frozen=True)
class _Reading:
    """The settings of `read_bags` that depend on the kind of data."""

    bag_column: str = "bag"
    label_column: str = "label"
    group_column: str | None = None
    split_column: str | None = None
    coord_columns: tuple[str, ...] = ()
    ignore_columns: tuple[str, ...] = ()
    labels: str | Path | None = None
    slides: str | Path | None = None
    positive: str | None = None
    bag_by: BagBy = "slide"
    split_file: str | Path | None = None
    fold: int | None = None
    missing: MissingName = "error"
    images: ImageOptions = DEFAULTS

    def table(self) -> LabelTable | None:
        """The label table, if there is one."""
        if self.labels is None:
            return None
        return LabelTable(
            self.labels,
            slides=self.slides,
            file_column=None if self.bag_column == "bag" else self.bag_column,
            label_column=self.label_column,
            positive=self.positive,
            group_column=self.group_column,
            split_column=self.split_column,
            missing=self.missing,
        )


_COLUMNS = ("bag_column", "label_column", "group_column", "split_column")
_LABELS = ("labels", "slides", "positive", "missing")
_ANY = ("split_file", "fold")
_CUT = ("name", "manifest", "folder")  # kinds that may be cut into instances; their readers look closer
_APPLY: dict[str, tuple[str, tuple[str, ...]]] = {
    "name": ("a set of the catalogue, which is no table", (*_ANY, "missing")),
    "npz": ("an npz file, whose groups and splits are its keys group and split", (*_ANY, "missing")),
    "table": ("a table of instances", (*_COLUMNS, "coord_columns", "ignore_columns", *_ANY, "missing")),
    "manifest": ("a manifest", (*_COLUMNS, "positive", "missing", *_ANY)),
    "folder": ("a folder of features", (*_COLUMNS, *_LABELS, "bag_by", *_ANY)),
    "store": ("a store without --labels", (*_ANY, "missing")),
    "relabelled store": ("a store", (*_COLUMNS, *_LABELS, *_ANY)),
}
_FLAGS = {"group_column": "groups", "split_column": "split", "coord_columns": "coords", "ignore_columns": "ignore"}
# What a run cannot have brought along from other data.
_GIVEN_HERE = ("labels", "slides", "split_file", "fold")


def _kind(path_or_name: str | Path, how: _Reading) -> str:
    name, path = str(path_or_name), Path(path_or_name)
    suffix = path.suffix.lower()
    if catalog.is_name(name):
        return "name"
    if path.is_dir():
        # instances.bin alone is a damaged store, which says so itself.
        stored = is_store(path) or (path / "instances.bin").exists()
        return "folder" if not stored else "store" if how.labels is None else "relabelled store"
    if suffix in _TABLES:
        return "manifest" if _has_paths(path) and "path" not in how.ignore_columns else "table"
    if suffix == ".npz":
        return "npz"
    near = difflib.get_close_matches(name, catalog.names(), n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"names in the catalogue: {', '.join(catalog.names())}."
    raise DataNotFoundError(
        f"Expected a catalogue name, a store, a folder of features, or a .npz, .csv, .tsv or .parquet file, got "
        f"{name!r}; {hint}"
    )


def _has_paths(path: Path) -> bool:
    if path.suffix.lower() == ".parquet" or not path.is_file():
        return False
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        line = file.readline(2**20).strip("\r\n")
    return "path" in [name.strip(' "') for name in line.split("\t" if path.suffix.lower() == ".tsv" else ",")]


def _check_applies(kind: str, name: str, how: _Reading, *, strict: bool) -> None:
    text, allowed = _APPLY[kind]
    for setting in fields(how):
        if setting.name in (*allowed, "images") or getattr(how, setting.name) == setting.default:
            continue
        if strict or setting.name in _GIVEN_HERE:
            flag = _FLAGS.get(setting.name, setting.name).replace("_", "-")
            raise ConfigError(f"Expected no --{flag} with {text}, got some for {name}; leave it out.")
    if strict and kind not in _CUT:
        refuse_unused(how.images, (), where=f"{name}, {text}")
    if how.fold is not None and how.split_file is None:
        raise ConfigError(f"Expected --split-file with --fold, got --fold {how.fold} alone; name the split table.")
    if how.slides is not None and how.labels is None:
        raise ConfigError("Expected --labels with --slides, got none; name the table of patients.")
    if how.split_file is not None and how.split_column is not None:
        raise ConfigError("Expected --split or --split-file, got both; leave one out.")


def _read(
    kind: str,
    path_or_name: str | Path,
    how: _Reading,
    *,
    reads: ReadsName,
    require_labels: bool,
    on_file: OnFile | None,
) -> Bags:
    path = Path(path_or_name)
    if kind in ("name", "npz"):
        if kind == "name":
            return catalog.load(str(path_or_name), images=how.images, on_file=on_file)
        return read_npz(path, require_labels=require_labels)
    if kind == "folder":
        return read_folder(
            path,
            how.table(),
            bag_by=how.bag_by,
            options=how.images,
            require_labels=require_labels,
            on_file=on_file,
        )
    columns: dict[str, Any] = {name: getattr(how, name) for name in _COLUMNS}
    if kind == "manifest":
        return read_manifest(
            path,
            **columns,
            positive=how.positive,
            skip_missing=how.missing == "skip",
            options=how.images,
            require_labels=require_labels,
            on_file=on_file,
        )
    if kind == "table":
        return read_table(
            path,
            **columns,
            coord_columns=how.coord_columns,
            ignore_columns=how.ignore_columns,
            require_labels=require_labels,
        )
    bags, table = open_store(path, reads=reads), how.table()
    return bags if table is None else _relabel(bags, table, require_labels=require_labels)


def _relabel(bags: Bags, table: LabelTable, *, require_labels: bool) -> Bags:
    """Bags with the labels of a table, and its groups and splits where it has any."""
    said = read_labels(table, bags.ids.tolist(), source=bags.source, require_labels=require_labels)
    news = {"groups": said.groups, "splits": said.splits}
    known = {name: value for name, value in news.items() if value is not None}
    return bags.subset(said.index).replace(labels=said.labels, **known)


def _split(bags: Bags, split_file: str | Path, how: _Reading) -> Bags:
    """Bags with the splits of a table, without those that it does not name."""
    splits = read_splits(
        split_file,
        bags.ids.tolist(),
        groups=None if bags.groups is None else bags.groups.tolist(),
        fold=how.fold,
        skip_missing=how.missing == "skip",
        source=bags.source,
    )
    named = splits != ""
    if not named.all():
        text = f"{int((~named).sum())} of {len(bags)} bags: {first_names(bags.ids[~named].tolist())}"
        warnings.warn(f"no split, hence left out: {text} (in {split_file})", UserWarning, stacklevel=3)
    return bags.subset(np.flatnonzero(named)).replace(splits=splits[named])
