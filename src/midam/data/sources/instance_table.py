"""Bags in a table: one row an instance, one column the bag, one the label, the rest features."""

from midam.data.bags import Bags
from midam.data.sources.frames import Table, table_arrays
from midam.data.sources.reader import BagReader
from midam.data.sources.request import COLUMNS, COVARIATES, SPLITS, Request, file_suffix
from midam.data.sources.table_files import EXCEL, TEXTS, read_instances
from midam.errors import DataNotFoundError, given

_PARQUET = ".parquet"


class TableReader(BagReader):
    """A CSV, TSV, Excel or Parquet table with one row for each instance; bags are in the order of their first rows.

    Label, group and split are the same in all rows of a bag. Every column that is not named is a feature, numeric and
    finite: float32 where the file holds nothing wider, else float64.
    """

    what = "a table of instances"
    suffixes = (*TEXTS, EXCEL, _PARQUET)
    parameters = (
        *(*COLUMNS, *COVARIATES, *SPLITS),
        *("coord_columns", "ignore_columns", "positive", "target", "grades", "sheet", "impute"),
    )

    def read(self, request: Request) -> Bags:
        """Read the table; without `require_labels` every column but the bag's may be absent."""
        path = request.path
        if not path.is_file():
            raise DataNotFoundError(f"Expected a file, got none (in {path}); check the path.")
        frame = read_instances(path, request)
        suffix, gaps = file_suffix(path), f"drop it, or train with {given(impute='median')}"
        unit, first = "line" if suffix in TEXTS else "row", 1 if suffix == _PARQUET else 2
        table = Table(str(path), frame, unit=unit, first=first, gaps=gaps)
        return Bags.from_arrays(**table_arrays(table, request))
