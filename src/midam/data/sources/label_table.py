"""Label tables of the field: CLAM's, STAMP's, or any CSV with a column that names files and one that labels them."""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.sources.file_names import NameIndex, first_names
from midam.data.sources.table_columns import (
    PATIENT_COLUMNS,
    binary_labels,
    find_column,
    find_file_column,
    read_names_table,
    require_columns,
    split_names,
)
from midam.errors import BagDataError

MissingName = Literal["error", "skip"]


@dataclass(frozen=True)
class LabelTable:
    """How to read a label table.

    Attributes
    ----------
    path : str or Path
        CSV or TSV with column names.
    slides : str or Path, optional
        Second table, of patients and their files, where the first one is of patients (STAMP).
    file_column : str, optional
        Column that names the files; default: the one that does.
    label_column : str
        Column of the label.
    positive : str, optional
        Value that is label 1, every other is 0; default: the labels are 0 and 1.
    group_column : str, optional
        Column of the group; default: that of the patient, where there is one.
    split_column : str, optional
        Column of the split.
    missing : {"error", "skip"}
        What to do about rows whose file is missing.
    """

    path: str | Path
    slides: str | Path | None = None
    file_column: str | None = None
    label_column: str = "label"
    positive: str | None = None
    group_column: str | None = None
    split_column: str | None = None
    missing: MissingName = "error"


@dataclass(frozen=True)
class Labelled:
    """What a table says of the files that it names.

    Attributes
    ----------
    index : array of int64 [n]
        Positions of these files, ascending.
    labels : array of int64 [n] or None
        0 or 1.
    patients, groups, splits : array of str [n] or None
        As the table says.
    """

    index: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    patients: NDArray[np.str_] | None
    groups: NDArray[np.str_] | None
    splits: NDArray[np.str_] | None


def read_labels(table: LabelTable, names: Sequence[str], *, source: str, require_labels: bool = True) -> Labelled:
    r"""Read what a label table says of files.

    Parameters
    ----------
    table : LabelTable
        Which table, and which of its columns.
    names : sequence of str
        Names of the files, without suffix.
    source : str
        Where the files are, for messages.
    require_labels : bool, default True
        Refuse a table without the label column. False, as for prediction, lets every column that was named be absent.

    Raises
    ------
    DataNotFoundError
        If there is no such table.
    BagDataError
        If a column is missing, a row names no file (unless such rows are skipped), two names mean one file, a
        file has two labels, or the labels are not 0 and 1.
    ConfigError
        If two columns name different files.

    Warns
    -----
    UserWarning
        Of files without a row, and of rows without a label or a file, that are left out.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
    >>> _ = path.write_text("case_id,slide_id,label\np1,a,tumor\np2,b,normal\n")
    >>> read_labels(LabelTable(path, positive="tumor"), ["a", "b"], source="h5_files").labels
    array([1, 0])
    """
    frame = read_names_table(table.path)
    if table.slides is not None:
        frame = _join(frame, table)
    where = str(table.path)
    files = NameIndex(names)
    if not require_labels:
        table = _present(table, frame)
    column = find_file_column(frame, files, table.file_column, avoid=table.label_column, where=where, source=source)
    labelled = require_labels or (table.label_column in frame.columns and not frame[table.label_column].isna().all())
    if labelled:
        require_columns(frame, [table.label_column], where, hint="name it with --label-column")
        empty = frame[table.label_column].isna()
        if empty.any():
            _warn(f"{int(empty.sum())} of {len(frame)} rows have no {table.label_column} and are left out (in {where})")
            frame = frame[~empty]
    frame = _matched(frame, files, column, table, source)
    require_columns(frame, [c for c in (table.group_column, table.split_column) if c is not None], where)
    patient = find_column(frame, PATIENT_COLUMNS)
    group = table.group_column or (None if patient == column else patient)
    if patient is None or (table.group_column is not None and frame[patient].isna().any()):
        patient = table.group_column

    def values(name: str | None) -> NDArray[np.str_] | None:
        return None if name is None else _filled(frame, name, column, where)

    splits = values(table.split_column)
    return Labelled(
        index=frame["_file"].to_numpy(dtype=np.int64),
        labels=binary_labels(frame, table.label_column, table.positive, where=where) if labelled else None,
        patients=values(patient),
        groups=values(group),
        splits=None if splits is None else split_names(splits, where),
    )


def _present(table: LabelTable, frame: pd.DataFrame) -> LabelTable:
    """Leave out the columns that are absent."""

    def present(name: str | None) -> str | None:
        return name if name in frame.columns else None

    return dataclasses.replace(
        table,
        file_column=present(table.file_column),
        group_column=present(table.group_column),
        split_column=present(table.split_column),
    )


def _join(patients: pd.DataFrame, table: LabelTable) -> pd.DataFrame:
    """Add the files of a slide table to a table of patients; patients without files stay, without a name."""
    slides = read_names_table(table.slides or "")
    keys = [find_column(frame, PATIENT_COLUMNS) for frame in (patients, slides)]
    for key, path in zip(keys, (table.path, table.slides)):
        if key is None:
            raise BagDataError(
                f"Expected a column of patients ({', '.join(PATIENT_COLUMNS)}), got none (in {path}); rename it."
            )
    _refuse_conflicts(patients, str(keys[0]), table.label_column, str(table.path))
    patients = patients.drop_duplicates(subset=[str(keys[0])])
    slides = slides.rename(columns={str(keys[1]): str(keys[0])})
    extra = [c for c in slides.columns if c == keys[0] or c not in patients.columns]
    return patients.merge(slides[extra], on=str(keys[0]), how="left")


def _matched(frame: pd.DataFrame, files: NameIndex, column: str, table: LabelTable, source: str) -> pd.DataFrame:
    """Rows of the table that name a file, one a file, in the order of the files; `_file` is its position."""
    where, patient = str(table.path), find_column(frame, PATIENT_COLUMNS)
    found = [None if pd.isna(value) else files.find(value) for value in frame[column]]
    frame = frame.assign(_file=[-1 if position is None else position for position in found])
    lost = frame[frame["_file"] < 0]
    if len(lost):
        names = lost[column].fillna(lost[patient] if patient else "(empty)").fillna("(empty)").tolist()
        if table.missing == "error":
            raise BagDataError(
                f"Expected a file for each row, got none for {len(lost)} of {len(frame)}: {first_names(names)} (in "
                f"{source}, table {where}); add the files, or leave such rows out with --missing skip."
            )
        _warn(f"{len(lost)} of {len(frame)} rows have no file and are left out: {first_names(names)} (in {where})")
        frame = frame[frame["_file"] >= 0]
    _refuse_aliases(frame, files, column, where)
    extra = sorted(set(range(len(files.names))) - set(frame["_file"]))
    if len(extra) == len(files.names):
        raise BagDataError(f"Expected rows for the files, got none that is complete (in {where}); fill the table.")
    if extra:
        names = [files.names[position] for position in extra]
        count = f"{len(extra)} of {len(files.names)} files"
        _warn(f"{count} have no label and are left out: {first_names(names)} (in {source})")
    for name in (table.label_column, table.group_column, table.split_column, patient):
        _refuse_conflicts(frame, "_file", name, where, shown=column)
    return frame.drop_duplicates(subset=["_file"]).sort_values("_file", kind="stable")


def _refuse_aliases(frame: pd.DataFrame, files: NameIndex, column: str, where: str) -> None:
    """Refuse rows of different names that hit one file: all but one mean another that is missing."""
    counts = frame.groupby("_file", sort=False)[column].nunique()
    for position in counts.index[counts > 1][:1]:
        names = frame[column][frame["_file"] == position].unique()
        raise BagDataError(
            f"Expected one row for the file {files.names[position]!r}, got the names {names[0]!r} and {names[1]!r} (in "
            f"{where}, column {column}); keep the row that means it, or add the other file under a name of its own."
        )


def _refuse_conflicts(
    frame: pd.DataFrame, key: str, column: str | None, where: str, *, shown: str | None = None
) -> None:
    """Refuse several values of a column under one key."""
    if column is None or column not in frame.columns:
        return
    counts = frame.groupby(key, sort=False)[column].nunique()
    wrong = counts[counts > 1]
    if len(wrong):
        rows = frame[frame[key] == wrong.index[0]]
        values = rows[column].dropna().unique()
        raise BagDataError(
            f"Expected one {column} for {rows[shown or key].iloc[0]}, got {values[0]} and {values[1]} (in {where}); "
            "correct the table."
        )


def _filled(frame: pd.DataFrame, name: str, shown: str, where: str) -> NDArray[np.str_]:
    gaps = frame[frame[name].isna()]
    if len(gaps):
        raise BagDataError(
            f"Expected a {name} in each row, got none for {gaps[shown].iloc[0]} (in {where}); fill it in."
        )
    return frame[name].to_numpy(dtype=np.str_)


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
