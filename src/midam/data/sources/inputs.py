"""Readers of stores, npz archives, tables and digits.

An npz archive has ``X`` [instances, ...], ``bag``
[instances] and ``y`` [bags], and is never unpickled. A manifest is a CSV or TSV with the columns bag, path, label and
perhaps group and split. A table of instances has one column of the bag, one of the label, and the rest are features.
"""

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import are_dates
from midam.data.digits import DIGITS
from midam.data.left_out import WHEN_MADE, LeftOut, left_out_words
from midam.data.sources import BagReader, bag_reader
from midam.data.sources import table_columns as tables
from midam.data.sources.assemble import assemble
from midam.data.sources.file_names import NameIndex, check_options
from midam.data.sources.formats.npy import read_archive, refuse_near
from midam.data.sources.formats.open_file import FEATURE_NAMES, require_file
from midam.data.sources.frames import TABLE_OPTIONS, table_arrays
from midam.data.sources.label_table import owners, read_labels
from midam.data.sources.labels import SURVIVAL, as_asked, code_labels, labels_or_none
from midam.data.sources.request import COLUMNS, COVARIATES, LABELS, SPLITS, Request, file_suffix
from midam.data.sources.table_columns import Table
from midam.data.sources.table_files import EXCEL, INSTANCES, NAMES, header_of, read_instances, read_names, table_file
from midam.data.store import format as form
from midam.data.store import is_store, open_store
from midam.data.target_labels import TargetLabels
from midam.data.validate import check_feature_names, name_array
from midam.errors import BagDataError, ConfigError, DataNotFoundError, Note, given, listed, plural
from midam.lazy_imports import pandas as pd
from midam.names import on_disk
from midam.settings.data import DataSettings


class StoreReader(BagReader):
    """Reader of a store with its own labels."""

    what = "a store without `labels`"
    parameters: ClassVar[tuple[str, ...]] = (*COVARIATES, *SPLITS, "target", "positive")
    with_labels: ClassVar[tuple[str, ...]] = (*COLUMNS, *LABELS)

    def takes(self, request: Request) -> bool:
        """Return whether the folder is a store, or one that lacks its description, which `read` refuses."""
        path = request.path
        parts = (path / form.INSTANCES, path / form.TABLE)
        return path.is_dir() and (is_store(path) or all(part.exists() for part in parts))

    def read(self, request: Request) -> Bags:
        """Open the store."""
        return with_asked_labels(_stored_covariates(_open_store(request), request), request)


class RelabeledStoreReader(StoreReader):
    """Reader of a store with the labels of a table, and the groups and splits of the table, if it has any.

    The classes of the store, such as those from `positive` at its import, apply to the table too. Covariates are those
    of the table or, if it lacks some of them, all those of the store.
    """

    what = "a store"
    parameters = (*COLUMNS, *COVARIATES, *LABELS, *SPLITS)

    def takes(self, request: Request) -> bool:
        """Return whether the folder is a store, and a label table is named."""
        return request.labels is not None and super().takes(request)

    def read(self, request: Request) -> Bags:
        """Open the store, and read the table."""
        bags = _open_store(request)
        columns = header_of(Path(str(request.labels)), sheet=request.sheet)
        of_table = set(request.covariate_columns) <= set(columns)
        if bags.covariates is None or (request.covariate_columns and of_table):
            bags = bags.replace(covariates=None)
        else:
            bags, request = _stored_covariates(bags, request), request.changed(covariates=(), site_column=None)
        groups = None if bags.groups is None else bags.groups.tolist()
        # The class names of the store apply to a table with the same labels.
        files = NameIndex(bags.ids.tolist(), source=request.path_or_name)
        labeled = read_labels(request, files, groups=groups, usual=bags.classes)
        stored = None if request.header_groups(columns) else bags.subset(labeled.files).groups
        return labeled.of(bags).replace(groups=_whole_groups(stored, labeled.table["groups"], request))


def _whole_groups(
    stored: NDArray[np.str_] | None, of_table: NDArray[np.str_] | None, request: Request
) -> NDArray[np.str_] | None:
    """Return the groups of a table; if they would split groups of the store [N], join both, so each stays whole."""
    if stored is None or of_table is None:
        return stored if of_table is None else of_table
    names, group = np.unique(stored, return_inverse=True)
    others, other = np.unique(of_table, return_inverse=True)
    counts = np.bincount(np.unique(np.stack([group, other]), axis=1)[0])
    if counts.max() == 1:
        return of_table
    where = f"split {plural(int((counts > 1).sum()), 'group')} of the store, such as {names[counts > 1][0]}"
    if request.groups is not None:
        advice = "bags of one may be in two splits"
        warnings.warn(f"the groups of the table {where} (in {request.labels}): {advice}", stacklevel=4)
        return of_table
    advice = "they are merged, so that each stays whole; to use only the table's, name their column as `groups`"
    warnings.warn(f"the groups of the table would {where} (in {request.labels}): {advice}", stacklevel=4)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(names) + len(others)
    graph = coo_array((np.ones(len(group)), (group, other + len(names))), shape=(size, size))
    part = connected_components(graph, directed=False)[1][: len(names)]
    return names[np.unique(part, return_index=True)[1]][part[group]]


def _open_store(request: Request) -> Bags:
    """Open a store, and warn about bags and files that its import left out."""
    bags = open_store(request.path, reads=request.reads)
    if bags.left_out:
        text = f"{left_out_words(bags.left_out)} {WHEN_MADE}: {form.DESCRIPTION} lists them (in {request.path})"
        warnings.warn(text, stacklevel=4)
    return bags


class DigitsReader(BagReader):
    """Reader of a set of digits, by name."""

    what = "a set of digits, which is no table"
    parameters = (*SPLITS, "target", "positive")

    def takes(self, request: Request) -> bool:
        """Return whether the source is the name of such a set."""
        return request.path_or_name in DIGITS

    def read(self, request: Request) -> Bags:
        """Make the set."""
        return with_asked_labels(DIGITS[request.path_or_name](), request)


def with_asked_labels(bags: Bags, request: Request) -> Bags:
    """Return bags that have their own labels, with the classes or labels of the request in its order.

    Bags of another target than the request names, or of other classes, are refused, or lose their labels.
    """
    outcome = bags.known_labels
    if outcome is None:
        return bags
    known = labels_or_none(request, lambda: as_asked(outcome, request, bags.ids.tolist()))
    return bags.replace(labels=None, outcome=known)


def _stored_covariates(bags: Bags, request: Request) -> Bags:
    """Return bags of a store with the covariates that a request names, and no others."""
    known = {} if bags.covariates is None else bags.covariates.values()
    if known and not request.covariate_columns and request.require_labels:
        text = f"the covariates {', '.join(known)} are not used: name them with `covariates` (in {bags.source})"
        warnings.warn(text, Note, stacklevel=4)
    return bags.replace(**tables.read_covariates(known, request.changed(named=bags.source)))


KEYS = ("X", "bag", "y", "time", "event", "names", "ids", "group", "split", "coords", "instance_label", FEATURE_NAMES)
_NO_LENGTH = ("names", FEATURE_NAMES)  # have neither one entry per bag nor one per instance
_FLAT = ("ids", "group", "split")  # have one axis
_OF_INSTANCES = ("X", "bag", "coords", "instance_label")
_OF_BAGS = {"ids": "ids", "groups": "group", "splits": "split", "coords": "coords", "instance_labels": "instance_label"}
_SAME = {
    **{name: "group" for patient in tables.PATIENT_COLUMNS for name in (patient, f"{patient}s")},
    **{"id": "ids", "coord": "coords"},
    **dict.fromkeys(("witness", "inst_labels", "instance_labels", "y_inst"), "instance_label"),
    **dict.fromkeys(("feature_name", "features_names", "featurenames", "columns", "column_names"), FEATURE_NAMES),
}


class ArchiveReader(BagReader):
    """Reader of an npz file of all bags.

    Keys: ``X`` [M, ...] instances; ``bag`` [M] bag number of each instance, 0 to N - 1; ``y`` [N] labels: two classes,
    more, grades or numbers; or ``y`` [N, L] of several labels, 0, 1 or NaN, with optional ``names`` [L]; or ``time``
    and ``event`` [N]. Optional keys: ``ids``, ``group``, ``split`` [N]; ``coords`` [M, C]; ``instance_label`` [M], 1
    for instances that make their bag positive, else 0, NaN if unknown; ``feature_names`` [D].
    """

    what = "an npz file, whose groups and splits are its keys group and split"
    suffixes = (".npz",)
    parameters = (*COVARIATES, "positive", "target", "grades", "impute", *SPLITS)

    def read(self, request: Request) -> Bags:
        """Read the file."""
        path = request.path
        require_file(path)
        arrays, others = read_archive(path, (*KEYS, *request.covariate_columns))
        tables.require_columns([*arrays, *others], request.named_covariates, str(path))
        refuse_near(others, arrays, KEYS, path, **_SAME)
        survival = {"time", "event"} <= arrays.keys() and ("y" not in arrays or request.target == "survival")
        labeled = SURVIVAL if survival else ("y",)
        required = ("X", "bag", *labeled) if request.require_labels else ("X", "bag")
        for key in required:
            if key not in arrays:
                got = f"no {key} but {', '.join(arrays) or 'others'} (in {path}); save the array under the key {key}"
                raise BagDataError(f"Expected the keys {', '.join(required)}, got {got}.")
        _check_lengths(arrays, path)
        present = set(labeled) <= arrays.keys()
        labels = labels_or_none(request, lambda: _labels(arrays, request, labeled)) if present else None
        fields: dict[str, Any] = {name: arrays.get(key) for name, key in _OF_BAGS.items()}
        return Bags.from_arrays(
            arrays["X"].astype(arrays["X"].dtype.newbyteorder("="), copy=False),
            arrays["bag"],
            outcome=labels,
            **tables.read_covariates(arrays, request),
            **fields,
            feature_names=arrays[FEATURE_NAMES].tolist() if FEATURE_NAMES in arrays else None,
            source=str(path),
            missing=bool(request.impute),
        )


def _labels(arrays: Mapping[str, NDArray[Any]], request: Request, keys: Sequence[str]) -> TargetLabels:
    """Return the labels of the keys y, or time and event."""
    y, where = arrays[keys[0]], request.where
    if len(keys) == 1 and y.ndim == 2:
        names = name_array(arrays.get("names", np.arange(y.shape[1])), where).tolist()
        check_feature_names(names, y.shape[1], f"{where}, key names", kind="labels")
        return code_labels({name: y[:, place].tolist() for place, name in enumerate(names)}, request)
    columns, ids = {key: _plain(arrays[key]).tolist() for key in keys}, arrays.get("ids", np.arange(len(y))).tolist()
    return code_labels(columns, request, ids=ids, origin="key {}")


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels as they were written: bytes as text, and short floats as the decimals that they stand for."""
    if values.dtype.kind == "f" and values.dtype.itemsize < np.dtype(np.float64).itemsize:
        return values.astype(np.str_).astype(np.float64)
    return name_array(values) if values.dtype.kind in "SU" else values


def _check_lengths(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse arrays whose length does not fit their key."""
    for key, array in arrays.items():
        if array.ndim == 0:
            raise BagDataError(f"Expected an array, got a single value (in {path}, key {key}); save an array.")
    instances, numbers = len(arrays["X"]), arrays["bag"]
    count: int | None = int(numbers.max()) + 1 if numbers.size and numbers.dtype.kind in "iu" else None
    for key, array in arrays.items():
        unit, length = ("instance", instances) if key in _OF_INSTANCES else ("bag", count)
        shape = list(array.shape) if key in _FLAT and array.ndim > 1 else len(array)
        # More labels than bag numbers means an empty bag, which the check of the bags names.
        more = key in _NO_LENGTH or (key == "y" and length is not None and len(array) > length)
        if length is not None and shape != length and not more:
            wanted, got = f"{length} entries, one for each {unit}", f"{shape} (in {path}, key {key})"
            raise BagDataError(f"Expected {wanted}, got {got}; give one for each {unit}.")


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
        columns = tables.columns_of(frame, request, ("bag_column", bag), ("", "path"))
        columns = columns._replace(group=owners(frame, columns, bag)[1])
        table = Table(str(path), frame)
        table.faults += table.gaps_in((bag, "path", columns.group, columns.split), request)
        table.refuse()
        places = np.array([on_disk(path.parent / name) for name in frame["path"]], dtype=object)
        exists = np.array([place.exists() for place in places])
        if not exists.all():
            names = frame["path"][~exists].tolist()
            text = f"{len(names)} of {len(frame)} rows: {listed(names)} (in {path})"
            if request.missing == "error" or not exists.any():
                advice = f"correct the paths, or leave such rows out with {given(missing='skip')}"
                raise DataNotFoundError(f"Expected a file for each row, got none for {text}; {advice}.")
            warnings.warn(f"rows without a file are left out: {text}", stacklevel=3)
            kept = frame[bag][exists].value_counts()
            for bag_id, name in zip(frame[bag][~exists].tolist(), names):
                request.left_out.append(LeftOut(str(bag_id), name, "no file", int(kept.get(bag_id, 0))))
        paths = places[exists].tolist()
        check_options(request, paths)
        table = Table(str(path), frame[exists])
        table.find_bags(bag)
        files = pd.DataFrame({"path": [os.path.realpath(place) for place in paths], "bag": table.codes})
        table.faults += table.fault(files.duplicated(), "path", "a file once in a bag", "remove the second row")
        fields = table.of_bags(columns, request, of_files=True)
        table.refuse()
        ids, groups = table.ids[table.codes], fields["groups"]
        files["group"] = ids if groups is None else groups[table.codes]
        shared = files["path"].duplicated() & (files.groupby("path")["group"].transform("nunique") > 1)
        for row in np.flatnonzero(shared)[:1].tolist():
            text = f"{paths[row].name} is in several bags (in {path}, line {table.number(row)}, bag {ids[row]})"
            warnings.warn(f"{text}: give these one group", stacklevel=3)
        return assemble(paths, ids, request, table=fields)


class TableReader(BagReader):
    """Reader of a CSV, TSV, Excel or Parquet table with a row per instance; bags are in the order of their first rows.

    Label, group and split are the same in all rows of a bag. Every column that is not named is a feature, numeric and
    finite: float32 if the file holds nothing wider, else float64.
    """

    what = "a table of instances, whose labels are a column of it"
    suffixes = INSTANCES
    parameters = (*TABLE_OPTIONS, *SPLITS, "sheet", "impute")

    def read(self, request: Request) -> Bags:
        """Read the table; without `require_labels` every column but the bag's may be absent."""
        return Bags.from_arrays(**table_arrays(_open_table(request), request))


def _open_table(request: Request) -> Table:
    require_file(request.path)
    if request.sheet is not None and request.require_labels and file_suffix(request.path) != EXCEL:
        raise ConfigError(f"Expected no `sheet` with {request.path.name}, got {request.sheet!r}; leave it out.")
    file = table_file(request.path, request.sheet)
    gaps = f"drop it, or train with {given(impute='median')}"
    return Table(str(file.path), read_instances(file, request), unit=file.unit, first=file.first, gaps=gaps)


def rows_of(source: str, ids: Collection[str], settings: DataSettings) -> dict[str, dict[str, list[Any]]]:
    """Return where instances of bags are in their table, by bag: the true "line" (or "row") of each, and its "time".

    The time is the text of the first column that holds dates, None where it is missing; without such a column, there is
    none. The result is empty for data other than tables of instances. What to warn of was said when the bags were read.
    """
    request = Request(source, bag_column=settings.bag_column, sheet=settings.sheet, reader=settings.reader)
    if not isinstance(bag_reader(request), TableReader):
        return {}
    with warnings.catch_warnings(action="ignore"):
        table = _open_table(request)
        table.name_values([request.bag_column], [])
        table.find_bags(request.bag_column)
    times, rows_by_bag = _times(table.frame), dict[str, dict[str, list[Any]]]()
    rows_of_bag = pd.Series(table.codes).groupby(table.codes).indices
    for code in np.flatnonzero(np.isin(table.ids, list(ids))).tolist():
        rows = list(rows_of_bag[code])
        dated = {} if times is None else {"time": [times[row] for row in rows]}
        rows_by_bag[str(table.ids[code])] = {table.unit: [table.number(row) for row in rows], **dated}
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
