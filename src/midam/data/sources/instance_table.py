"""Bags in a table: one row an instance, one column the bag, one the label, the rest features."""

import csv
import difflib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.table_columns import PATIENT_COLUMNS
from midam.data.validate import str_array
from midam.errors import BagDataError, DataNotFoundError, MidamError

_SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_table(
    path: str | Path,
    *,
    bag_column: str = "bag",
    label_column: str = "label",
    group_column: str | None = None,
    split_column: str | None = None,
    coord_columns: Sequence[str] = (),
    ignore_columns: Sequence[str] = (),
    require_labels: bool = True,
) -> Bags:
    r"""Read bags from a CSV, TSV or Parquet table with one row for each instance.

    Parameters
    ----------
    path : str or Path
        The file; its suffix (``.csv``, ``.tsv``, ``.parquet``) tells the format. A CSV file starts with column names.
    bag_column : str, default "bag"
        Names the bag of each row. Bags stand in the order of their first rows, which need not be adjacent.
    label_column : str, default "label"
        0 or 1, the same in all rows of a bag.
    group_column, split_column : str, optional
        The same in all rows of a bag. Splits are train, val (valid, validation) and test, in upper or lower case.
    coord_columns : sequence of str, default ()
        Numeric columns with the place of an instance; no features.
    ignore_columns : sequence of str, default ()
        Columns to leave out. Every other column is a feature and must be numeric and finite.
    require_labels : bool, default True
        Refuse a table without the label column. False, as for prediction, lets every column but the bag's be absent.

    Returns
    -------
    Bags
        The bags, checked. Features are float32 where the file holds nothing wider, else float64.

    Raises
    ------
    DataNotFoundError
        If there is no such file.
    BagDataError
        If the table does not fit; the message names file, line, column and bag.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "bags.csv"
    >>> _ = path.write_text("bag,label,size\na,1,0.5\na,1,0.7\nb,0,0.1\n")
    >>> read_table(path).ids.tolist()
    ['a', 'b']
    """
    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(f"Expected a file, got none (in {path}); check the path.")
    names = [name for name in (bag_column, group_column, split_column) if name is not None]
    table = _Table(path, _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_text(path, names))
    if not require_labels:
        here = set(table.frame.columns)
        group_column, split_column = (name if name in here else None for name in (group_column, split_column))
        coord_columns = [name for name in coord_columns if name in here]
        ignore_columns = [name for name in ignore_columns if name in here]
    has_labels = require_labels or label_column in table.frame.columns
    names = [name for name in (bag_column, group_column, split_column) if name is not None]
    table.require([*names, *([label_column] if has_labels else []), *coord_columns, *ignore_columns])
    codes, ids = table.bags(bag_column)
    labels = table.labels(label_column, codes, ids) if has_labels else None
    if labels is not None and not require_labels and pd.isna(labels).all():
        labels = None
    special = {*names, label_column, *coord_columns, *ignore_columns}
    features = [str(name) for name in table.frame.columns if name not in special]
    if not features:
        raise BagDataError(f"Expected at least one feature column, got none (in {path}); add numeric columns.")
    instances = table.numbers(features, codes, ids)
    table.warn_of_patients(features, codes)
    return Bags.from_arrays(
        instances,
        codes,
        labels,
        ids=ids,
        groups=None if group_column is None else table.constant(group_column, codes, ids),
        splits=None if split_column is None else table.splits(split_column, codes, ids),
        coords=table.numbers(list(coord_columns), codes, ids) if coord_columns else None,
        feature_names=features,
        source=str(path),
    )


class _Table:
    """A data frame that knows its file; its index counts the lines from ``offset``."""

    def __init__(self, path: Path, frame: pd.DataFrame) -> None:
        self.path = path
        self.frame = frame
        self._unit, self._offset = ("row", 1) if path.suffix.lower() == ".parquet" else ("line", 2)

    def line(self, row: int) -> str:
        """Name a row as the file counts it, from 1."""
        return f"{self._unit} {int(self.frame.index[row]) + self._offset}"

    def require(self, columns: Sequence[str]) -> None:
        """Refuse a table without these columns."""
        present = [str(name) for name in self.frame.columns]
        for column in columns:
            if column not in present:
                near = difflib.get_close_matches(column, present, n=3) or present[:8]
                raise BagDataError(
                    f"Expected a column {column!r}, got none (in {self.path}); near or first columns: "
                    f"{', '.join(near)}; name the right one."
                )

    def bags(self, column: str) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
        """Bag number of each row, and the names of the bags."""
        if len(self.frame) == 0:
            raise BagDataError(f"Expected at least one row, got none (in {self.path}); add the instances.")
        missing = np.flatnonzero(self.frame[column].isna())
        if len(missing):
            raise BagDataError(
                f"Expected a bag in each row, got none (in {self.path}, {self.line(missing[0])}, column {column}); "
                "name the bag."
            )
        codes, names = pd.factorize(self.frame[column].astype(str))
        return codes.astype(np.int64), np.asarray(names, dtype=np.str_)

    def constant(self, column: str, codes: NDArray[np.int64], ids: NDArray[np.str_]) -> NDArray[Any]:
        """Value of each bag in a column that is constant in a bag."""
        values = self.frame[column]
        first = np.unique(codes, return_index=True)[1]
        own = values.iloc[first[codes]]
        differs = (values.to_numpy() != own.to_numpy()) & ~(values.isna().to_numpy() & own.isna().to_numpy())
        rows = np.flatnonzero(differs)
        if len(rows):
            row = int(rows[0])
            raise BagDataError(
                f"Expected one {column} in a bag, got {own.iloc[row]} and {values.iloc[row]} "
                f"(in {self.path}, {self.line(row)}, bag {ids[codes[row]]}); correct the column {column}."
            )
        return np.asarray(values.iloc[first])

    def labels(self, column: str, codes: NDArray[np.int64], ids: NDArray[np.str_]) -> NDArray[Any]:
        """Label of each bag as a number; NaN where it is missing."""
        values = self.frame[column]
        numbers = pd.to_numeric(values, errors="coerce")
        rows = np.flatnonzero(numbers.isna() & ~values.isna())
        if len(rows):
            row = int(rows[0])
            raise BagDataError(
                f"Expected labels 0 or 1, got {str(values.iloc[row])!r} (in {self.path}, {self.line(row)}, column "
                f"{column}, bag {ids[codes[row]]}); recode the labels."
            )
        self.frame[column] = numbers
        return self.constant(column, codes, ids)

    def splits(self, column: str, codes: NDArray[np.int64], ids: NDArray[np.str_]) -> NDArray[np.str_]:
        """Split of each bag under its canonical name."""
        names = self.frame[column].astype(str).str.strip().str.lower().map(_SPLIT_NAMES)
        unknown = np.flatnonzero(names.isna())
        if len(unknown):
            row = int(unknown[0])
            raise BagDataError(
                f"Expected a split of train, val, test, got {str(self.frame[column].iloc[row])!r} (in {self.path}, "
                f"{self.line(row)}, column {column}, bag {ids[codes[row]]}); rename the split."
            )
        self.frame[column] = names
        return str_array(self.constant(column, codes, ids))

    def numbers(self, columns: list[str], codes: NDArray[np.int64], ids: NDArray[np.str_]) -> NDArray[Any]:
        """Values of numeric columns, [M, len(columns)]; finite."""
        for column in columns:
            values = self.frame[column]
            if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_complex_dtype(values):
                row = int(np.argmax(pd.to_numeric(values.astype(str), errors="coerce").isna()))
                other = f"name it with --groups {column} (group_column)" if _of_patients(column) else "correct it"
                raise BagDataError(
                    f"Expected numbers in column {column}, got {str(values.iloc[row])!r} (in {self.path}, "
                    f"{self.line(row)}, bag {ids[codes[row]]}); {other}, or leave the column out with "
                    f"--ignore {column} (ignore_columns)."
                )
        narrow = all(str(self.frame[column].dtype) in ("float32", "float16") for column in columns)
        array: NDArray[Any] = self.frame[columns].to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            row, place = int(bad[0, 0]), int(bad[0, 1])
            raise BagDataError(
                f"Expected finite numbers, got {array[row, place]} (in {self.path}, {self.line(row)}, column "
                f"{columns[place]}, bag {ids[codes[row]]}); drop or impute it."
            )
        return array

    def warn_of_patients(self, features: Sequence[str], codes: NDArray[np.int64]) -> None:
        """Say that a column which bears the name of patients, and is constant in each bag, is taken for a feature."""
        for column in features:
            if _of_patients(column) and (self.frame[column].groupby(codes).nunique() <= 1).all():
                warnings.warn(
                    f"column {column} is read as a feature (in {self.path}): if it names patients, give --groups "
                    f"{column}, so that no patient is in two splits, or leave it out with --ignore {column}",
                    UserWarning,
                    stacklevel=5,
                )


def _of_patients(column: str) -> bool:
    return column.lower() in PATIENT_COLUMNS


def _read_text(path: Path, names: list[str]) -> pd.DataFrame:
    """Read CSV or TSV; bags, groups and splits stay text, so that the bag 007 keeps its zeros."""
    separator = _SEPARATORS[path.suffix.lower()]
    try:
        _check_header(path, separator)
        with warnings.catch_warnings():
            # pandas only warns of rows that are longer than the header, and cuts them.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                sep=separator,
                dtype=dict.fromkeys(names, str),
                index_col=False,
                skip_blank_lines=False,  # keeps the row number in step with the line number
                low_memory=False,
            )
    except (ValueError, pd.errors.ParserWarning, OSError) as error:
        if isinstance(error, MidamError):
            raise
        raise BagDataError(
            f"Expected a table with a header line and as many fields in each line, got: {str(error).strip()} "
            f"(in {path}); correct the file."
        ) from error
    return frame.dropna(how="all")


def _check_header(path: Path, separator: str) -> None:
    """Refuse nameless and repeated columns: pandas would rename them, and they would pass for features."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file, delimiter=separator), [])
    for number, name in enumerate(header, start=1):
        if not name.strip():
            raise BagDataError(
                f"Expected a name for each column, got none for column {number} (in {path}); name the column, or "
                "write the table without its row numbers."
            )
        if header.count(name) > 1:
            raise BagDataError(
                f"Expected unique column names, got {name!r} {header.count(name)} times (in {path}); rename them."
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path).reset_index(drop=True)
    except ImportError as error:
        raise MidamError(
            f"Expected the package pyarrow to read Parquet, got none (in {path}); install midam[parquet]."
        ) from error
    except (ValueError, OSError) as error:
        raise BagDataError(f"Expected a Parquet file, got: {error} (in {path}); write the file anew.") from error
