"""Tables of names: which columns they have, and what splits and labels stand in them."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import NameIndex
from midam.data.sources.formats.open_file import sound
from midam.data.sources.reader import Request
from midam.errors import BagDataError, ConfigError, DataNotFoundError, given, nearest

if TYPE_CHECKING:
    import pandas as pd

FILE_COLUMNS = ("bag", "slide_id", "filename", "slide", "id", "file", "path", "0")  # DSMIL's list has a column 0
PATIENT_COLUMNS = (
    *("patient", "patient_id", "patientid", "case_id", "case", "submitter_id"),
    *("subject", "subject_id", "participant_id"),  # of BIDS and its like
)
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def read_names_table(path: str | Path) -> "pd.DataFrame":
    """Read a CSV or TSV of names as text, each value without blanks around it; an empty field is NaN."""
    import pandas as pd  # noqa: PLC0415

    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(f"Expected a table, got none (in {path}); check the path.")
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise BagDataError(f"Expected a .csv or .tsv table, got another suffix (in {path}); save it as CSV.")
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    with sound("a table with a header line", path, advice="correct the file"):
        first_line(path, separator)
        empty = ["", "NA", "N/A", "nan", "NaN"]
        frame = pd.read_csv(
            path, sep=separator, dtype=str, encoding="utf-8-sig", keep_default_na=False, na_values=empty
        )
    frame.columns = frame.columns.str.strip()
    for name in frame.columns:
        frame[name] = frame[name].str.strip()
    frame = frame.dropna(how="all").reset_index(drop=True)
    if not len(frame):
        raise BagDataError(f"Expected at least one row, got none (in {path}); fill the table.")
    return frame


def first_line(path: Path, separator: str = ",") -> list[str]:
    """Fields of the first line; a second line that is longer is refused, for pandas would take its first field away."""
    with (
        path.open(newline="", encoding="utf-8-sig") as file,
        sound("lines of a table", path, advice="correct the file"),
    ):
        lines = csv.reader(file, delimiter=separator)
        first, second = next(lines, []), next(lines, [])
    if len(second) > len(first):
        raise BagDataError(
            f"Expected {len(first)} fields in each line as in the first, got {len(second)} in line 2 (in {path}); "
            "correct the file."
        )
    return first


def require_columns(frame: "pd.DataFrame", columns: Iterable[tuple[str, str | None]], where: str) -> None:
    """Refuse a table without these columns; each comes with the parameter that named it, if one did."""
    present = [str(name) for name in frame.columns]
    for parameter, name in columns:
        if name is not None and name not in present:
            of = f" of `{parameter}`" if parameter else ""
            raise BagDataError(
                f"Expected the column {name!r}{of}, got none (in {where}); name the right one: "
                f"{nearest(name, present, count=3)}"
            )


def has_labels(frame: "pd.DataFrame", request: Request) -> bool:
    """Whether labels are asked for, or there are some all the same."""
    column = request.label_column
    return request.require_labels or (column in frame.columns and not bool(frame[column].isna().all()))


def find_column(frame: "pd.DataFrame", candidates: Sequence[str]) -> str | None:
    """First column that bears one of the names, in any case."""
    lowered = {str(name).lower(): str(name) for name in reversed(frame.columns)}
    return next((lowered[name] for name in candidates if name in lowered), None)


def find_file_column(
    frame: "pd.DataFrame", files: NameIndex, named: str | None, *, avoid: str, where: str, source: str
) -> str:
    """Column that names the files: the one given, one with a usual name, or the only one with the most names."""
    if named is not None:
        require_columns(frame, [("bag_column", named)], where)
        return named
    counts = {str(c): files.count(frame[c].dropna()) for c in frame.columns if c != avoid}
    usual = [name for name in (find_column(frame, [name]) for name in FILE_COLUMNS) if name and counts.get(name)]
    chosen = usual[0] if usual else max(counts, key=lambda name: counts[name], default="")
    if not counts.get(chosen):
        raise BagDataError(
            f"Expected a column that names the files, such as {files.names[0]!r} of {source}, got none among "
            f"{', '.join(counts) or 'no columns'} (in {where}); name it with `bag_column`, or give the table of slides "
            "as `slides`."
        )
    found = {c: [files.certain(value) if isinstance(value, str) else None for value in frame[c]] for c in counts}
    own = found.pop(chosen)
    for name, other in found.items():
        both = [(a, b) for a, b in zip(own, other) if a is not None and b is not None]
        as_many = len({*other} - {None}) >= max(1, len({*own} - {None}))
        if as_many and (not both or any(a != b for a, b in both)):
            raise ConfigError(
                f"Expected one column that names the files, got {chosen!r} and {name!r}, which do not name the "
                f"same files in the same rows (in {where}); say which with `bag_column`, or leave the other one out of "
                "the table."
            )
    return chosen


def split_names(values: NDArray[np.str_], where: str) -> NDArray[np.str_]:
    """Splits under their canonical names."""
    unknown = sorted({value for value in values.tolist() if value.lower() not in SPLIT_NAMES})
    if unknown:
        raise BagDataError(f"Expected a split of train, val, test, got {unknown[0]!r} (in {where}); rename the split.")
    return np.array([SPLIT_NAMES[value.lower()] for value in values.tolist()], dtype=np.str_)


def binary_labels(frame: "pd.DataFrame", column: str, positive: str | None, *, where: str) -> NDArray[np.int64]:
    """Labels of a column without gaps: 1 where it is `positive`, or the numbers 0 and 1."""
    known = sorted(set(frame[column]))
    got = f"in column {column}, got {', '.join(known[:8])} (in {where})"
    if positive is not None and positive not in known:
        raise BagDataError(f"Expected the positive value {positive!r} {got}; name one of these as `positive`.")
    if positive is None and not set(known) <= {"0", "1", "0.0", "1.0"}:
        raise BagDataError(
            f"Expected labels 0 and 1 {got}; say which value is positive, such as {given(positive=known[-1])}."
        )
    ones = ("1", "1.0") if positive is None else (positive,)
    return np.array([value in ones for value in frame[column]], dtype=np.int64)
