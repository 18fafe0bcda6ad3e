"""Readers of tables: a manifest with a row for each file, and a table with a row for each instance.

A manifest is a CSV or TSV with the columns bag, path, label and perhaps group and split. A table of instances has one
column of the bag, one of the label, and the rest are features.
"""

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.covariates import are_dates
from midam.data.left_out import LeftOut
from midam.data.sources import table_columns as tables
from midam.data.sources import table_files
from midam.data.sources.assemble import assemble
from midam.data.sources.file_names import check_options
from midam.data.sources.frames import Table, table_arrays
from midam.data.sources.label_table import columns_of, metadata
from midam.data.sources.labels import label_columns
from midam.data.sources.reader import BagReader, bag_reader
from midam.data.sources.request import COLUMNS, COVARIATES, SPLITS, Request, file_suffix
from midam.data.sources.table_files import INSTANCES, NAMES, PARQUET, TEXTS, header_of, read_instances, read_names
from midam.errors import DataNotFoundError, given, listed
from midam.lazy_imports import pandas as pd
from midam.names import on_disk
from midam.settings.data import DataSettings


class ManifestReader(BagReader):
    """Reader of a table with a row per file, by its path from the table's folder.

    A column of patients gives the groups if no column of groups is named.
    """

    what = "a manifest"
    suffixes = NAMES
    parameters = (*COLUMNS, *COVARIATES, "positive", "target", "grades", "sheet", *SPLITS, "images")

    def takes(self, request: Request) -> bool:
        """Return whether a table has a column path."""
        path = request.path
        if not super().takes(request) or "path" in request.ignore or not path.is_file():
            return False
        return "path" in header_of(path, sheet=request.sheet)

    def read(self, request: Request) -> Bags:
        """Read the manifest, and inspect each file."""
        path, bag = request.path, request.bag_column
        frame = read_names(path, request, raw="path")
        frame = tables.with_groups(frame, request)
        label, group, split = columns_of(frame, request, ("bag_column", bag), ("", "path"))
        if group is None:
            patient = tables.find_column(frame, tables.GROUP_COLUMNS)
            group = None if patient in (bag, *label_columns(frame.columns, request), split) else patient
        ignoring = request.bad_labels == "ignore"
        full = () if ignoring or len(label) > 1 else label
        tables.refuse_empty_fields(frame, (bag, "path", *full, group, split), request)
        places = pd.Series([on_disk(path.parent / name) for name in frame["path"]], index=frame.index)
        exists = np.array([place.exists() for place in places])
        if not exists.all():
            names = frame["path"][~exists].tolist()
            text = f"{len(names)} of {len(frame)} rows: {listed(names)} (in {path})"
            if request.missing == "error" or not exists.any():
                raise DataNotFoundError(
                    f"Expected a file for each row, got none for {text}; correct the paths, or leave such rows out "
                    f"with {given(missing='skip')}."
                )
            warnings.warn(f"rows without a file are left out: {text}", stacklevel=3)
            kept = frame[bag][exists].value_counts()
            for bag_id, name in zip(frame[bag][~exists].tolist(), names):
                request.left_out.append(LeftOut(str(bag_id), name, "no file", int(kept.get(bag_id, 0))))
            frame = frame[exists]
        paths = places[frame.index].tolist()
        check_options(request, paths)
        ids = frame[bag].to_numpy(dtype=np.str_)
        table = metadata(frame, request, label, group, split, ids=ids.tolist())
        where = [f"{request.where}, line {row + 2}, bag {name}" for row, name in zip(frame.index, ids)]
        return assemble(paths, ids, request, table=table, where=where)


class TableReader(BagReader):
    """Reader of a CSV, TSV, Excel or Parquet table with a row per instance; bags are in the order of their first rows.

    Label, group and split are the same in all rows of a bag. Every column that is not named is a feature, numeric and
    finite: float32 if the file holds nothing wider, else float64.
    """

    what = "a table of instances"
    suffixes = INSTANCES
    parameters = (
        *(*COLUMNS, *COVARIATES, *SPLITS),
        *("instance_label", "coords", "ignore", "positive", "target", "grades", "sheet", "impute"),
    )

    def read(self, request: Request) -> Bags:
        """Read the table; without `require_labels` every column but the bag's may be absent."""
        return Bags.from_arrays(**table_arrays(_open(request), request))


def _open(request: Request) -> Table:
    path = request.path
    suffix, gaps = file_suffix(path), f"drop it, or train with {given(impute='median')}"
    unit, first = "line" if suffix in TEXTS else "row", 1 if suffix == PARQUET else 2
    return Table(str(path), read_instances(path, request), unit=unit, first=first, gaps=gaps)


def rows_of(source: str, ids: Collection[str], settings: DataSettings) -> dict[str, dict[str, list[Any]]]:
    """Return where instances of bags are in their table, by bag: the true "line" (or "row") of each, and its "time".

    The time is the text of the first column that holds dates, None where it is missing; without such a column, there is
    none. The result is empty for data other than tables of instances.
    """
    bag = settings.bag_column
    request = Request(source, bag_column=bag, sheet=settings.sheet, reader=settings.reader)
    if not isinstance(bag_reader(request), TableReader):
        return {}
    table = _open(request)
    table.name_values([bag], [])
    table.find_bags(bag)
    times, rows_by_bag = _times(table.frame), dict[str, dict[str, list[Any]]]()
    line_of = table_files.record_lines(request.path).__getitem__ if table.unit == "line" else int
    order, ends = np.argsort(table.codes, kind="stable"), np.cumsum(np.bincount(table.codes, minlength=len(table.ids)))
    for code in np.flatnonzero(np.isin(table.ids, list(ids))).tolist():
        rows = order[0 if code == 0 else ends[code - 1] : ends[code]].tolist()
        dated = {} if times is None else {"time": [times[row] for row in rows]}
        rows_by_bag[str(table.ids[code])] = {table.unit: [line_of(table.number(row)) for row in rows], **dated}
    return rows_by_bag


def _times(frame: "pd.DataFrame") -> list[str | None] | None:
    """Return the texts of the first column that holds dates; None without one."""
    for name in frame.columns:
        values = frame[name]
        dated = pd.api.types.is_datetime64_any_dtype(values)
        if not dated and not pd.api.types.is_numeric_dtype(values):
            dated = bool(values.notna().any()) and are_dates([str(word) for word in values.dropna().unique()])
        if dated:
            return [None if pd.isna(value) else str(value).removesuffix(" 00:00:00") for value in values]
    return None
