"""What a table takes of memory, by its rows and bytes, before it is read: one that does not fit is refused."""

import zipfile
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat

from midam.data.free_memory import fits, require_free
from midam.data.sources.formats.open_file import need, sound
from midam.data.sources.reader import file_suffix
from midam.errors import BagDataError
from midam.files import size_text

EXCEL_ROWS = 2**20
_CHUNK = 1 << 20
_OF_TEXT, _OF_FIELD = 2, 16  # bytes of memory for each byte of a text table, and for each field
_MOST_OF_BYTE = _OF_TEXT + _OF_FIELD  # of a text of one-letter fields; a packed one has 1032 bytes for one at most
_MOST_PACKED = 1032
_SMALL, _GROWTH = 1 << 26, 200  # bytes of a part of a workbook that need no check; how much larger it may be unpacked
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
        # Equal values are stored once, and take 8 bytes each when they are read, texts their length.
        needed = max(unpacked, 8 * facts.num_rows * facts.num_columns)
        _require(needed, f"{facts.num_rows} rows", path)
        _require(needed + _texts(parquet, facts, path), f"{facts.num_rows} rows of texts", path)


def _texts(parquet: Any, facts: Any, path: Path) -> int:
    """Bytes of the texts of a Parquet file; where even the longest for each row would fit, a bound on them."""
    found = 0
    groups = range(facts.num_row_groups)
    for number, column in ((i, facts.schema.column(i)) for i in range(facts.num_columns)):
        if column.physical_type != "BYTE_ARRAY":
            found += max(column.length, 0) * facts.num_rows
            continue
        chunks = [facts.row_group(group).column(number) for group in groups]
        worst = sum(chunk.total_uncompressed_size * chunk.num_values for chunk in chunks)
        if fits(worst) or column.max_definition_level > 1:  # nested ones are refused, but only once they are read
            found += worst
            continue
        compute = need("pyarrow.compute", "Parquet", path, extra="parquet")
        with parquet.ParquetFile(path, read_dictionary=[column.path]) as file:
            for group in groups:
                for chunk in file.read_row_group(group, columns=[column.path]).column(0).chunks:
                    if not hasattr(chunk, "dictionary"):  # decimals
                        found += chunk.nbytes
                        continue
                    lengths = compute.binary_length(chunk.dictionary).cast("int64")
                    found += compute.sum(lengths.take(chunk.indices)).as_py() or 0
    return found


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
        texts = [member for member in members if member not in sheets]
        _require(sum(member.file_size for member in texts), "texts", path)
        for member in texts:
            if member.file_size > max(_SMALL, _GROWTH * member.compress_size):
                raise BagDataError(
                    f"Expected texts and styles that grow at most {_GROWTH} times when they are read, got "
                    f"{size_text(member.file_size)} (in {path}, part {member.filename}); save it again, or as CSV."
                )
        for member in sheets:
            if member.filename.endswith(".xml"):
                with book.open(member) as stream:
                    _count_cells(stream, path)


def _count_cells(stream: IO[bytes], path: Path) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    row = cells = column = widest = 0

    def begin(name: str, found: dict[str, Any]) -> None:
        nonlocal row, cells, column, widest
        kind, place = name.rpartition(" ")[2], found.get("r", "")
        if kind == "row":
            row, column = int(place) if place else row + 1, 0
        elif kind == "c":
            cells, column = cells + 1, _column(place) or column + 1
            widest = max(widest, column)

    parser.StartElementHandler = begin
    while chunk := stream.read(_CHUNK):
        parser.Parse(chunk)
        # Rows that the file passes over are filled in, and all rows are made as wide as the widest.
        needed = _OF_CELL * (cells + row) + _OF_EMPTY * max(0, row * widest - cells)
        _require(needed, f"{row} rows of up to {widest} columns", path)


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
