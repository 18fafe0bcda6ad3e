"""Bags in a table: one row an instance, one column the bag, one the label, the rest features."""

import csv
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.formats.open_file import need, sound
from midam.data.sources.reader import COLUMNS, SPLITS, BagReader, Request
from midam.data.sources.table_columns import PATIENT_COLUMNS, SPLIT_NAMES, binary_labels, has_labels, require_columns
from midam.data.validate import str_array, usable, wanted
from midam.errors import BagDataError, DataNotFoundError, given

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


class TableReader(BagReader):
    """A CSV, TSV or Parquet table with one row for each instance; bags are in the order of their first rows.

    Label, group and split are the same in all rows of a bag. Every column that is not named is a feature, numeric and
    finite: float32 where the file holds nothing wider, else float64.
    """

    what = "a table of instances"
    suffixes = (".csv", ".tsv", ".parquet")
    parameters = (*COLUMNS, "coord_columns", "ignore_columns", *SPLITS)

    def read(self, request: Request) -> Bags:
        """Read the table; without `require_labels` every column but the bag's may be absent."""
        path = request.path
        if not path.is_file():
            raise DataNotFoundError(f"Expected a file, got none (in {path}); check the path.")
        texts = [name for name in (request.bag_column, request.group_column, request.split_column) if name is not None]
        frame = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_text(path, texts)
        return _bags(_Table(str(path), frame, "row" if path.suffix.lower() == ".parquet" else "line"), request)


def bags_of_frame(frame: "pd.DataFrame", request: Request) -> Bags:
    """Bags of a data frame, as the table reader reads a file; the request's source is what messages call it.

    The bags stand in the column `bag_column`, or in the first of two levels of the index where there is no such column.
    """
    import pandas as pd  # noqa: PLC0415

    where, columns = str(request.source), [str(name) for name in frame.columns]
    for name in columns:
        if columns.count(name) > 1:
            raise BagDataError(f"Expected unique column names, got {name!r} several times (in {where}); rename them.")
    bag = request.bag_column
    table = frame.set_axis(columns, axis=1).reset_index(drop=True)
    if frame.index.nlevels == 2 and bag not in columns:
        table.insert(0, bag, frame.index.get_level_values(0).to_numpy())
    elif bag not in columns:
        raise BagDataError(
            f"Expected the bags in the column {bag!r} or in the first of two levels of the index, got neither (in "
            f"{where}); name the column with {given(bag_column=columns[0] if columns else 'bag')}, or set the index."
        )
    named = [(name, getattr(request, name)) for name in ("group_column", "split_column")]
    named += [(name, column) for name in ("coord_columns", "ignore_columns") for column in getattr(request, name)]
    require_columns(table, named, where)
    label, classes = request.label_column, None
    if label in columns and (request.positive is not None or not pd.api.types.is_numeric_dtype(table[label])):
        texts = table[[label]].astype(str)
        table[label] = binary_labels(texts, label, request.positive, where=where)
        names = sorted(set(texts[label]), key=lambda name: name == request.positive)
        classes = names if len(names) == 2 and request.positive is not None else None
    return _bags(_Table(where, table, "row"), request).replace(classes=classes)


def _bags(table: "_Table", request: Request) -> Bags:
    """Bags of a table; without `require_labels` every column but the bag's may be absent."""
    bag, label, group, split = (getattr(request, name) for name in COLUMNS)
    coords, ignored = list(request.coord_columns), list(request.ignore_columns)
    if not request.require_labels:
        here = set(table.frame.columns)
        group, split = (name if name in here else None for name in (group, split))
        coords, ignored = ([name for name in names if name in here] for names in (coords, ignored))
    label = label if has_labels(table.frame, request) else None
    named = [*zip(COLUMNS, (bag, label, group, split)), *(("coord_columns", name) for name in coords)]
    require_columns(table.frame, [*named, *(("ignore_columns", name) for name in ignored)], table.where)
    table.find_bags(bag)
    labels = None if label is None else table.labels(label)
    special = {bag, group, split, request.label_column, *coords, *ignored}
    features = [str(name) for name in table.frame.columns if name not in special]
    if not features:
        raise BagDataError(f"Expected at least one feature column, got none (in {table.where}); add numeric columns.")
    instances = table.numbers(features)
    table.warn_of_patients(features)
    return Bags.from_arrays(
        instances,
        table.codes,
        labels,
        ids=table.ids,
        groups=None if group is None else table.constant(group),
        splits=None if split is None else table.splits(split),
        coords=table.numbers(coords) if coords else None,
        feature_names=features,
        source=table.where,
    )


class _Table:
    """A data frame that knows where it is from, and the bag of each row once `find_bags` has named them."""

    codes: NDArray[np.int64]
    ids: NDArray[np.str_]

    def __init__(self, where: str, frame: "pd.DataFrame", unit: Literal["row", "line"]) -> None:
        self.where, self.frame, self._unit = where, frame, unit

    def place(self, row: int, column: str) -> str:
        """Where a value stands, in the words of a message; rows are numbered as the file counts them, from 1."""
        line = int(self.frame.index[row]) + {"row": 1, "line": 2}[self._unit]
        bag = f", bag {self.ids[self.codes[row]]}" if self.codes[row] >= 0 else ""
        return f"in {self.where}, {self._unit} {line}, column {column}{bag}"

    def find_bags(self, column: str) -> None:
        """Number the bags by the column that names them."""
        import pandas as pd  # noqa: PLC0415

        if len(self.frame) == 0:
            raise BagDataError(f"Expected at least one row, got none (in {self.where}); add the instances.")
        codes, names = pd.factorize(self.frame[column].astype(str))
        self.codes, self.ids = codes.astype(np.int64), np.asarray(names, dtype=np.str_)
        for row in np.flatnonzero(self.frame[column].isna())[:1]:
            raise BagDataError(f"Expected a bag in each row, got none ({self.place(int(row), column)}); name the bag.")

    def constant(self, column: str) -> NDArray[Any]:
        """Value of each bag in a column that is constant in a bag."""
        values = self.frame[column]
        first = np.unique(self.codes, return_index=True)[1]
        own = values.iloc[first[self.codes]]
        differs = (values.to_numpy() != own.to_numpy()) & ~(values.isna().to_numpy() & own.isna().to_numpy())
        for row in np.flatnonzero(differs)[:1].tolist():
            raise BagDataError(
                f"Expected one {column} in a bag, got {own.iloc[row]} and {values.iloc[row]} "
                f"({self.place(row, column)}); correct the column {column}."
            )
        return np.asarray(values.iloc[first])

    def labels(self, column: str) -> NDArray[Any]:
        """Label of each bag as a number; NaN where it is missing."""
        import pandas as pd  # noqa: PLC0415

        numbers = pd.to_numeric(self.frame[column], errors="coerce")
        self._refuse(numbers.isna() & ~self.frame[column].isna(), column, "labels 0 or 1", "recode the labels")
        self.frame[column] = numbers
        return self.constant(column)

    def splits(self, column: str) -> NDArray[np.str_]:
        """Split of each bag under its canonical name."""
        names = self.frame[column].astype(str).str.strip().str.lower().map(SPLIT_NAMES)
        self._refuse(names.isna(), column, "a split of train, val, test", "rename the split")
        self.frame[column] = names
        return str_array(self.constant(column))

    def numbers(self, columns: list[str]) -> NDArray[Any]:
        """Values of numeric columns, [M, len(columns)]; finite."""
        import pandas as pd  # noqa: PLC0415

        dtypes = self.frame.dtypes[columns].tolist()  # a table of many columns takes its time to give each of them
        for column, dtype in zip(columns, dtypes):
            if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
                values = self.frame[column]
                wrong = pd.to_numeric(values.astype(str), errors="coerce").isna()
                named = column.lower() in PATIENT_COLUMNS
                other = f"name it with {given(group_column=column)}" if named else "correct it"
                leave = f"{other}, or leave the column out with {given(ignore_columns=[column])}"
                self._refuse(wrong if wrong.any() else ~wrong, column, f"numbers in column {column}", leave)
        narrow = all(str(dtype) in ("float32", "float16") for dtype in dtypes)
        array: NDArray[Any] = self.frame[columns].to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
        for row, at in np.argwhere(~usable(array))[:1].tolist():
            place = self.place(row, columns[at])
            raise BagDataError(f"Expected {wanted(array[row, at])}, got {array[row, at]} ({place}); drop or impute it.")
        return array

    def warn_of_patients(self, features: Sequence[str]) -> None:
        """Warn of features that bear the name of patients, and are constant in each bag."""
        for column in features:
            named = column.lower() in PATIENT_COLUMNS
            if named and (self.frame[column].groupby(self.codes).nunique() <= 1).all():
                group, leave = given(group_column=column), given(ignore_columns=[column])
                warnings.warn(
                    f"column {column} is read as a feature (in {self.where}): if it names patients, give {group}, so "
                    f"that no patient is in two splits, or leave it out with {leave}",
                    stacklevel=5,
                )

    def _refuse(self, wrong: "pd.Series[bool]", column: str, expected: str, advice: str) -> None:
        """Refuse a column that is wrong somewhere; the message names the first such row."""
        for row in np.flatnonzero(wrong)[:1].tolist():
            got = str(self.frame[column].iloc[row])
            raise BagDataError(f"Expected {expected}, got {got!r} ({self.place(row, column)}); {advice}.")


def _read_text(path: Path, names: list[str]) -> "pd.DataFrame":
    """Read CSV or TSV; bags, groups and splits stay text, so that the bag 007 keeps its zeros."""
    import pandas as pd  # noqa: PLC0415

    separator = _SEPARATORS[path.suffix.lower()]
    what = "a table with a header line and as many fields in each line"
    # pandas only warns of rows that are longer than the header, and cuts them.
    with (
        sound(what, path, advice="correct the file"),
        warnings.catch_warnings(action="error", category=pd.errors.ParserWarning),
    ):
        _check_header(path, separator)
        texts = dict.fromkeys(names, str)
        # Blank lines keep the row number in step with the line number.
        frame = pd.read_csv(path, sep=separator, dtype=texts, index_col=False, skip_blank_lines=False, low_memory=False)
    return frame.dropna(how="all") if frame.iloc[:, :1].isna().any(axis=None) else frame


def _check_header(path: Path, separator: str) -> None:
    """Refuse nameless and repeated columns: pandas would rename them, and they would pass for features."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file, delimiter=separator), [])
    counts = Counter(header)
    for number, name in enumerate(header, start=1):
        if not name.strip():
            raise BagDataError(
                f"Expected a name for each column, got none for column {number} (in {path}); name the column, or "
                "write the table without its row numbers."
            )
        if counts[name] > 1:
            raise BagDataError(
                f"Expected unique column names, got {name!r} {counts[name]} times (in {path}); rename them."
            )


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415

    need("pyarrow", "Parquet", path, extra="parquet")
    with sound("a Parquet file", path, advice="write the file anew"):
        frame = pd.read_parquet(path, page_checksum_verification=True).reset_index(drop=True)
    for name in [name for name, dtype in frame.dtypes.items() if dtype == "object"]:
        nested = frame[name].map(lambda value: isinstance(value, Collection) and not isinstance(value, str | bytes))
        for row in np.flatnonzero(nested)[:1].tolist():
            got = type(frame[name].iloc[row]).__name__
            raise BagDataError(
                f"Expected one value in each field, got {got} (in {path}, row {row + 1}, column {name}); write a "
                "column for each number."
            )
    return frame
