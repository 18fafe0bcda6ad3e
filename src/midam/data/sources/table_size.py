"""What a table takes of memory, by its rows and bytes, before it is read: one that does not fit is refused."""

import zipfile
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from midam.data.free_memory import fits, require_free
from midam.data.sources.formats.open_file import need, sound
from midam.data.sources.reader import file_suffix

EXCEL_ROWS = 2**20
_CHUNK = 1 << 20
_OF_TEXT, _OF_FIELD = 2, 16  # bytes of memory for each byte of a text table, and for each field
_MOST_OF_BYTE = _OF_TEXT + _OF_FIELD  # of a text of one-letter fields; a packed one has 1032 bytes for one at most
_MOST_PACKED = 1032
_OF_CELL, _OF_EMPTY = 64, 16  # bytes of memory for each cell of a sheet with a value, and for one without


def require_fits(path: Path) -> None:
    """Refuse a table (text, packed or not, Excel, Parquet) of more rows and bytes than the free memory can hold."""
    suffix = file_suffix(path)
    if suffix == ".parquet":
        _check_parquet(path)
    elif suffix == ".xlsx":
        _check_excel(path)
    else:
        _check_text(path, packed=suffix.endswith(".gz"))


def _check_parquet(path: Path) -> None:
    parquet = need("pyarrow.parquet", "Parquet", path, extra="parquet")
    with sound("a Parquet file", path, advice="write the file again"):
        facts = parquet.read_metadata(path)
        unpacked = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
    # Equal values are stored once, and take 8 bytes each when they are read.
    _require(max(unpacked, 8 * facts.num_rows * facts.num_columns), f"{facts.num_rows} rows", path)


def _check_text(path: Path, *, packed: bool) -> None:
    """Count what a text unpacks to, unless it would fit in the worst case."""
    from midam.data.sources.table_files import open_bytes, separator_of  # they check each other

    if fits(path.stat().st_size * (_MOST_PACKED if packed else 1) * _MOST_OF_BYTE):
        return
    mark, size, lines, fields = separator_of(path).encode(), 0, 0, 0
    with sound("a table of text", path, advice="correct the file"), open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            size, lines = size + len(chunk), lines + chunk.count(b"\n")
            fields += chunk.count(mark) + chunk.count(b"\n")
            _require(_OF_TEXT * size + _OF_FIELD * fields, f"more than {lines} lines", path)


def _check_excel(path: Path) -> None:
    """Count the cells of the sheets as they would be read: what the file says of their number may be anything."""
    with sound("an Excel workbook (.xlsx)", path, advice="save it again, or as CSV"), zipfile.ZipFile(path) as book:
        members = book.infolist()
        sheets = [member for member in members if member.filename.startswith("xl/worksheets/")]
        _require(sum(member.file_size for member in members if member not in sheets), "texts", path)
        for member in sheets:
            if member.filename.endswith(".xml"):
                with book.open(member) as stream:
                    _count_cells(stream, path)


def _count_cells(stream: IO[bytes], path: Path) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    row = cells = column = widest = empty = 0

    def begin(name: str, found: dict[str, Any]) -> None:
        nonlocal row, cells, column, widest, empty
        kind, place = name.rpartition(" ")[2], found.get("r", "")
        if kind == "row":
            row, column = int(place) if place else row + 1, 0
        elif kind == "c":
            number = _column(place) or column + 1
            empty, cells, column = empty + max(0, number - column - 1), cells + 1, number
            widest = max(widest, column)

    parser.StartElementHandler = begin
    while chunk := stream.read(_CHUNK):
        parser.Parse(chunk)
        # Rows that the file passes over are filled in.
        _require(_OF_CELL * (cells + row) + _OF_EMPTY * empty, f"{row} rows of up to {widest} columns", path)


def _column(place: str) -> int:
    """Number of the column of a cell such as AB12, from 1."""
    found = 0
    for letter in place:
        if not "A" <= letter <= "Z":
            break
        found = 26 * found + ord(letter) - 64
    return found


def _require(needed: int, what: str, path: Path) -> None:
    require_free(needed, f"a table of {what}", source=str(path))
