"""Label tables: CLAM's, STAMP's, or any CSV with a column that names files and a column that labels them.

Files whose attributes state labels serve as a label table too.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.left_out import LeftOut
from midam.data.sources import table_columns as tables
from midam.data.sources.file_names import NameIndex
from midam.data.sources.labels import gap_advice, label_columns, word_of
from midam.data.sources.patients import FILE, by_patient
from midam.data.sources.request import Request
from midam.data.sources.table_columns import BagColumns, Table
from midam.data.sources.table_files import read_names
from midam.data.validate import TwoNames
from midam.errors import BagDataError, Note, given, listed
from midam.lazy_imports import pandas as pd
from midam.names import name_of, names_of

_FILE, _NAME, _ROW = "_file", "_name", "_row"  # columns of the position and name of the file, and of the line


class Labeled(NamedTuple):
    """Labels and other metadata of files, from a table or the files themselves."""

    files: NDArray[np.int64]  # positions of the files, ascending
    bags: NDArray[np.str_]  # the bag of each of these files
    table: dict[str, Any]  # of `Table.of_bags`, of the bags in the order of their first files

    def of(self, bags: Bags) -> Bags:
        """Return the bags (of one file each) that the table names, with their labels and metadata."""
        known = {name: value for name, value in self.table.items() if value is not None}
        return bags.subset(self.files).replace(**{"labels": None, "outcome": None, **known})


def read_labels(
    request: Request, files: NameIndex, *, groups: Sequence[str] | None = None, usual: TwoNames | None = None
) -> Labeled:
    """Read the labels and metadata of files from the label table of a request, by their names without suffix.

    A row may be a patient, for bags with known `groups` or files named by TCGA or BIDS, see `by_patient`. The `usual`
    classes apply if the table has no others. Files without a row, and rows without a label, are left out with a
    warning, and so are rows without a file if the request skips missing ones. Two names of one file, two values for one
    file, and doubtful labels are refused. If the request names no column of groups, a column named group or a column of
    patients gives the groups; a column named split gives the splits.
    """
    where = request.where
    frame = read_names(where, request)
    if request.slides is not None:
        frame = _join(frame, request)
    frame = tables.with_groups(frame, request)
    applies = request.bag_column != "bag" and (request.require_labels or request.bag_column in frame.columns)
    column = request.bag_column if applies else None
    avoid = (*label_columns(frame.columns, request), *request.covariate_columns)
    fault, file_column = None, column
    try:
        file_column = tables.find_file_column(frame, files, column, avoid=avoid, where=where)
    except BagDataError as error:
        fault = error
    columns = [name for name in frame.columns if name not in avoid] if column is None else [column]
    known_as = file_column if fault is None and (column is None or files.count(frame[column].dropna())) else None
    spread = by_patient(frame, files.names, groups, request, named=known_as, columns=columns)
    if spread is not None:
        labels = _labeled(spread, files, FILE, request, usual)
        keep = groups is None or request.groups is not None
        return labels if keep else labels._replace(table={**labels.table, "groups": None})
    if fault is not None and column is None and groups:
        first, last = str(fault).rsplit("; ", 1)
        raise BagDataError(f"{first}, or the patients, such as {groups[0]!r}; {last}")
    if fault is not None:
        raise fault
    return _labeled(frame, files, str(file_column), request, usual)


def labels_of_files(request: Request, names: Sequence[str], attributes: Sequence[Mapping[str, object]]) -> Labeled:
    """Read metadata from attributes of files, named as columns of a table; errors and warnings as in `read_labels`.

    If the request ignores bad labels, all files are kept, and columns that some files lack are ignored.
    """
    where = request.where
    texts = [{name_of(key): names_of([x], where)[0] or None for key, x in entry.items()} for entry in attributes]
    frame = pd.DataFrame(texts, index=range(len(names)), dtype=object)
    frame = tables.with_groups(tables.without_words(frame, frame.columns, request), request)
    label = label_columns(frame.columns, request)
    silent = int(frame[list(label)].isna().all(axis=1).sum()) if set(label) <= set(frame.columns) else 0
    if request.bad_labels == "ignore":
        if 0 < silent < len(frame):
            text = f"labels are ignored, as scoring needs none: {silent} of {len(frame)} files have none (in {where})"
            warnings.warn(text, Note, stacklevel=4)
        frame = frame[[name for name in frame if name in request.covariate_columns or frame[name].notna().all()]]
    frame = frame.assign(**{FILE: list(names)})
    if tables.has_labels(frame, request):
        tables.require_columns(frame.columns, [("label_column", name) for name in label], where)
        frame = frame.dropna(subset=list(label), how="all")
    return _labeled(frame, NameIndex(names), FILE, request, unit="file")


def _labeled(
    frame: "pd.DataFrame",
    files: NameIndex,
    column: str,
    request: Request,
    usual: TwoNames | None = None,
    *,
    unit: Literal["line", "file"] = "line",
) -> Labeled:
    """Read the labels and other metadata of the files that the `column` of a table names."""
    columns = tables.columns_of(frame, request)
    if columns.label:
        frame = _without_unlabeled(frame, columns.label, column, request)
    frame = _matched(frame, files, column, request)
    patient, group = owners(frame, columns, column)
    columns = columns._replace(group=group)
    words = {word_of(value).casefold() for name in columns.label for value in frame[name]}
    free = request.positive is None and (request.classes is None or request.target in ("auto", "binary"))
    fits = free and words <= {word_of(name).casefold() for name in usual or ()}
    request = request.changed(classes=usual) if fits else request
    by_patient = request.bag_by == "patient"
    if by_patient and patient is None:
        got = f"none (in {request.where})"
        raise BagDataError(f"Expected a column of patients without gaps, got {got}; name it with `groups`.")
    first = 2 if unit == "line" else 1
    table = Table(request.where, frame, unit=unit, first=first, owner="file")
    table.find_bags(_NAME)
    frame, columns = table.one_each(columns, request, [column] if patient is None else [column, patient])
    table.refuse()
    table = Table(request.where, frame, unit=unit, first=first)
    table.find_bags(str(patient) if by_patient else _NAME)
    fields = table.of_bags(columns, request, of_files=True)
    table.refuse()
    if by_patient and columns.group == patient and request.groups is None:
        fields["groups"] = None  # a patient that is a bag is not a group too
    return Labeled(frame[_FILE].to_numpy(dtype=np.int64), table.ids[table.codes], fields)


def _without_unlabeled(frame: "pd.DataFrame", label: Sequence[str], column: str, request: Request) -> "pd.DataFrame":
    """Return the table without rows that have no label, with a warning."""
    empty = frame[list(label)].isna().all(axis=1)
    if not empty.any():
        return frame
    advice = next(filter(None, (gap_advice(request, name, "") for name in label)), "")
    text = f"{int(empty.sum())} of {len(frame)} rows have no {', '.join(label)} and are left out (in {request.where})"
    _warn(f"{text}; {advice}" if advice else text)
    names = frame[column][empty].dropna().astype(str).tolist()
    request.left_out.extend(LeftOut(name, "", f"no {', '.join(label)} in {request.where}") for name in names)
    return frame[~empty]


def owners(frame: "pd.DataFrame", columns: BagColumns, bag: str) -> tuple[str | None, str | None]:
    """Return the columns of the patients and of the groups; if there is only one, it serves as both.

    They are no labels or splits, and the groups are not those of the `bag` or file itself.
    """
    group, free = columns.group, frame.drop(columns=[*columns.label, *filter(None, [columns.split])])
    patient = tables.find_column(free, tables.PATIENT_COLUMNS)
    if patient in tables.group_parts(group):  # the same number at two sites means two patients
        patient = group
    groups = group or tables.find_column(free.drop(columns=bag, errors="ignore"), tables.GROUP_COLUMNS)
    groups = None if groups == bag else groups
    if patient is None or (group is not None and frame[patient].isna().any()):
        patient = groups
    return patient, groups


def _join(patients: "pd.DataFrame", request: Request) -> "pd.DataFrame":
    """Add the files of a slide table to a table of patients; patients without files stay, without a file name."""
    slides = read_names(str(request.slides))
    keys = [tables.find_column(frame, tables.PATIENT_COLUMNS) for frame in (patients, slides)]
    for key, path in zip(keys, (request.labels, request.slides)):
        if key is None:
            known = ", ".join(tables.PATIENT_COLUMNS)
            raise BagDataError(f"Expected a column of patients ({known}), got none (in {path}); rename it.")
    slides = slides.rename(columns={str(keys[1]): str(keys[0])})
    one, other = patients[str(keys[0])].dropna(), slides[str(keys[0])].dropna()
    if not one.isin(other).any():
        names, others = (", ".join(part.unique()[:3]) for part in (one, other))
        got = f"{names} in {request.labels} and {others} in {request.slides}"
        raise BagDataError(f"Expected patients of both tables, got none: {got}; write their names alike.")
    extra = [c for c in slides.columns if c == keys[0] or c not in patients.columns]
    return patients.reset_index(names=_ROW).merge(slides[extra], on=str(keys[0]), how="left").set_index(_ROW)


def _matched(frame: "pd.DataFrame", files: NameIndex, column: str, request: Request) -> "pd.DataFrame":
    """Return the rows of the files, in file order, with the position and the name of each."""
    patient, where = tables.find_column(frame, tables.PATIENT_COLUMNS), request.where
    positions = [files.find(value) if isinstance(value, str) else None for value in frame[column]]
    frame = frame.assign(**{_FILE: [-1 if position is None else position for position in positions]})
    unmatched = frame[frame[_FILE] < 0]
    if len(unmatched):
        names = unmatched[column].fillna(unmatched[patient] if patient else "(empty)").fillna("(empty)").tolist()
        if request.missing == "error":
            got = f"{len(unmatched)} of {len(frame)}: {listed(names)} (in {request.path_or_name}, table {where})"
            advice = f"add the files, or leave such rows out with {given(missing='skip')}"
            raise BagDataError(f"Expected a file for each row, got none for {got}; {advice}.")
        _warn(f"{len(unmatched)} of {len(frame)} rows have no file and are left out: {listed(names)} (in {where})")
        request.left_out.extend(LeftOut(str(name), "", f"no file in {request.path_or_name}") for name in names)
        frame = frame[frame[_FILE] >= 0]
    extra = sorted(set(range(len(files.names))) - set(frame[_FILE]))
    if len(extra) == len(files.names):
        raise BagDataError(f"Expected rows for the files, got no complete row (in {where}); fill the table.")
    if extra:
        names = [files.names[position] for position in extra]
        count = f"{len(extra)} of {len(files.names)} files"
        _warn(f"{count} have no label and are left out: {listed(names)} (in {request.path_or_name})")
        request.left_out.extend(LeftOut(name, "", f"no row in {where}") for name in names)
    frame = frame.sort_values(_FILE, kind="stable")
    return frame.assign(**{_NAME: [files.names[position] for position in frame[_FILE]]})


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)
