"""Files of tables, of instances or of names, as data frames: CSV and TSV, packed or not, Excel and Parquet."""

import csv
import gzip
import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, cast
from xml.parsers import expat

from midam.data.covariates import example_of_codes
from midam.data.on_disk import ON_DISK, fits, require_free
from midam.data.sources.formats.open_file import check_growth, need, require_file, sound
from midam.data.sources.labels import label_columns
from midam.data.sources.request import COLUMNS, Request, file_suffix
from midam.data.sources.table_columns import FILE_COLUMNS, group_parts, is_group_like, names_in, without_words
from midam.errors import BagDataError, ConfigError, Note, given, listed, nearest, with_place
from midam.lazy_imports import pandas as pd
from midam.names import EXACT, MISSING, name_of, names_of, on_disk, text_of

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
EXCEL, PARQUET = ".xlsx", ".parquet"
NAMES = (*TEXTS, EXCEL)  # formats of tables of names
INSTANCES = (*NAMES, PARQUET)  # of tables of instances
_DECIMAL = re.compile(r"\s*[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?\s*")
_DECLARED = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=([,;|\t])\"?\r?\n", re.IGNORECASE)
_FIRST_ROWS = 1000  # in which codes are looked for
csv.field_size_limit(2**31 - 1)  # letters: pandas reads longer fields than the limit of `csv`, such as reports
_EMPTY = ["", *sorted(MISSING)]
_Options = Callable[[Sequence[str]], dict[str, Any]]  # of pandas, for a header


def worded_columns(present: Iterable[object], request: Request) -> tuple[str, ...]:
    """Return the columns of words among those `present`: labels, bags, groups, splits, covariates and sites."""
    columns = [getattr(request, name) for name in COLUMNS if getattr(request, name) is not None]
    return (*label_columns(present, request), *columns, *group_parts(request.groups), *request.covariate_columns)


def read_instances(path: Path, request: Request) -> "pd.DataFrame":
    """Read a table of numbers, in which names (bags, labels, groups, categories) stay text: 007 keeps its zeros.

    Words such as NA are missing values, but not yet in `worded_columns`, which
    `midam.data.sources.table_columns.without_words` handles. The index is that of `_read`. Columns
    without a name, and two of the same name, are refused. Numbers with a decimal comma are read if the separator is not
    a comma, with a note. The named index of a Parquet file of pandas is a column, unless it only counts the rows.
    """
    require_file(path)
    suffix = file_suffix(path)
    ids = {request.bag_column, *group_parts(request.groups)}
    as_text = {*(getattr(request, name) for name in COLUMNS), *ids, *request.category_columns}
    if suffix == PARQUET:
        sheet_of(request, path)
        require_fits(path)
        need("pyarrow", "Parquet", path, extra="parquet")
        with sound("a Parquet file", path, advice="write the file again"):
            frame = pd.read_parquet(path, page_checksum_verification=True)
            facts = need("pyarrow.parquet", "Parquet", path, extra="parquet").read_schema(path).pandas_metadata or {}
            kinds = {one["name"]: "category" for one in facts.get("columns", ()) if one["pandas_type"] == "categorical"}
            # Categories that are numbers come back as numbers.
            frame = frame.astype({name: kind for name, kind in kinds.items() if name in frame.columns})
        named = [name for name in frame.index.names if name is not None and not isinstance(frame.index, pd.RangeIndex)]
        return renamed(frame.reset_index(named, allow_duplicates=True).reset_index(drop=True), path)

    def options(header: Sequence[str]) -> dict[str, Any]:
        worded = worded_columns(map(name_of, header), request)
        as_text.update(label_columns(map(name_of, header), request)[1:])  # the event; the first may be a time
        words = {name: [""] if name_of(name) in worded else _EMPTY for name in header}
        return {"dtype": {name: str for name in header if name_of(name) in as_text}, "na_values": words}

    frame = _read(path, options, sheet_of(request, path), lambda name: name in ids)
    if frame.iloc[:, :1].isna().any(axis=None):
        frame = frame.dropna(how="all")
    if request.features is None:
        words = set(worded_columns(frame.columns, request)) - set(request.covariate_columns)
        _warn_of_codes(frame, {*as_text, *words, *request.ignore}, path, sheet_of(request, path))
    return frame if suffix == EXCEL or separator_of(path) == "," else _with_points(frame, as_text, path)


def _warn_of_codes(frame: "pd.DataFrame", known: Collection[str], path: Path, sheet: str | None) -> None:
    """Warn about texts in the first rows that may be codes, but become one number: 0117 and 117, 250.10 and 250.1."""
    names = [name for name in frame.columns if name not in {*known, *FILE_COLUMNS} and not is_group_like(name)]
    names = [name for name in names if frame[name].dtype.kind in "if"]
    first = _first_words(path, sheet) if names else frame
    codes, example = list[str](), ""
    for name in names:
        if alike := example_of_codes(first[name].dropna().astype(str).str.strip().tolist()):
            codes, example = [*codes, name], example or alike
    if codes:
        text = f"numbers in {listed(codes)} may be codes, {example}"
        warnings.warn(f"{text}: if so, give {given(categories=codes)} (in {path})", stacklevel=4)


def _first_words(path: Path, sheet: str | None = None) -> "pd.DataFrame":
    """Return the first rows of a table as text."""
    if file_suffix(path) == EXCEL:
        return _read_excel(path, _as_text, sheet, lambda _: False, rows=_FIRST_ROWS)
    return _read(path, lambda header: _as_text(header) | {"nrows": _FIRST_ROWS}, sheet, lambda _: False)


def read_names(path: str | Path, request: Request | None = None, *, raw: str | None = None) -> "pd.DataFrame":
    """Read a table of names as text, each value in the form of `midam.names.name_of`; an empty field is NaN.

    So is a word such as NA, unless a request names it as a class of its labels. The index is that of `_read`. The
    values of the column `raw` only lose the blanks around them.
    """
    path = on_disk(path)
    require_file(path, "a table")
    if file_suffix(path) not in NAMES:
        raise BagDataError(f"Expected a table ({', '.join(NAMES)}), got another suffix (in {path}); save it as CSV.")
    sheet = sheet_of(request, path) if request is not None and file_suffix(path) == EXCEL else None
    asked = () if request is None else (request.bag_column, *group_parts(request.groups))

    def is_id(name: str) -> bool:
        return name != raw and (name in asked or name.lower() in FILE_COLUMNS or is_group_like(name))

    frame = _read(path, _as_text, sheet, is_id, nameless=True)
    for name in frame.columns:
        words = frame[name].astype(object).str.strip() if name == raw else names_in(frame[name], path)
        frame[name] = words.where(~words.isin([""] if request is not None else _EMPTY))
    frame = frame if request is None else without_words(frame, frame.columns.difference([raw]), request)
    frame = frame.dropna(how="all")
    if not len(frame):
        raise BagDataError(f"Expected at least one row, got none (in {path}); fill the table.")
    return frame


def _as_text(_header: Sequence[str]) -> dict[str, Any]:
    """Return the options of pandas that read all columns as text."""
    return {"dtype": str, "na_values": [""]}


def _read(
    path: Path, options: _Options, sheet: str | None, is_id: Callable[[str], bool], *, nameless: bool = False
) -> "pd.DataFrame":
    """Read a text table, or a sheet of a workbook, with the options of pandas for its header; see `_cell` for ids.

    The index follows the line numbers of the file: it counts blank lines, lines before the header, and line breaks in
    quotes, unless only the first rows are read. Columns of a text table may be `nameless`.
    """
    require_fits(path)
    if file_suffix(path) == EXCEL:
        return _read_excel(path, options, sheet, is_id)
    separator, skipped = separator_of(path), _preamble(path)[1]
    settings: dict[str, Any] = {"skip_blank_lines": False, "keep_default_na": False, "low_memory": False}
    # pandas only warns about rows that are longer than the header, and cuts them.
    with (
        sound_text("a table with a header line and as many fields in each line", path),
        warnings.catch_warnings(action="error", category=pd.errors.ParserWarning),
    ):
        header = first_line(path, separator)
        check_header(header, path, nameless=nameless)
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # whose default rounds twice
            settings["float_precision"] = "round_trip"
        settings |= {"sep": separator, "index_col": False, "skiprows": skipped, **options(header)}
        frame = pd.read_csv(path, encoding="utf-8-sig", **settings)
        if "nrows" in settings or _line_breaks(path) <= len(frame) + skipped + 1:
            lines = []
        else:
            lines = _record_lines(path, separator, skipped)[: len(frame)]
    return renamed(frame.set_axis(lines if len(lines) == len(frame) else frame.index + skipped, axis=0), path)


def renamed(frame: "pd.DataFrame", path: object) -> "pd.DataFrame":
    """Return a table in the byte order of the machine, with columns named by `name_of`; refuse equal names."""
    names = names_of(frame.columns, path)
    _refuse_repeated(names, path)
    frame = frame.set_axis(names, axis=1)
    other = [name for name, dtype in frame.dtypes.items() if getattr(dtype, "byteorder", "=") in "<>"]
    return frame.astype({name: frame[name].to_numpy().dtype.newbyteorder("=") for name in other}) if other else frame


def check_fields(frame: "pd.DataFrame", columns: Iterable[object], where: object) -> None:
    """Refuse lists and the like in the `columns` of a table, and text that is not valid Unicode."""
    for name in [name for name in map(str, columns) if name in frame.columns and frame[name].dtype == "object"]:
        for row, value in enumerate(frame[name], 1):
            try:
                if isinstance(value, str | bytes):
                    text_of(value)
                elif isinstance(value, Collection):
                    got = type(value).__name__
                    raise BagDataError(f"Expected one value in each field, got {got}; write a column for each number.")
            except BagDataError as error:
                raise BagDataError(with_place(error, f"in {where}, row {row}, column {name}")) from None


def sheet_of(request: Request, path: str | Path) -> str | None:
    """Return the sheet that a request names; refuse it for a table without sheets."""
    if request.sheet is not None and file_suffix(Path(path)) != EXCEL:
        if request.require_labels:
            raise ConfigError(f"Expected no `sheet` with {Path(path).name}, got {request.sheet!r}; leave it out.")
        return None
    return request.sheet


def separator_of(path: Path) -> str:
    """Return the separator of a text table: a tab in a TSV; in a CSV the most frequent of ",", ";" and tab in line 1.

    In a tie, the comma wins; quoted separators do not count.
    """
    if ".tsv" in file_suffix(path):
        return "\t"
    with sound_text("a table of text", path):
        if declared := _preamble(path)[0]:
            return declared
        with open_text(path) as file:
            line = re.sub(r'"[^"]*"', "", file.readline(2**20))
    return max(",;\t", key=line.count)


def _preamble(path: Path) -> tuple[str, int]:
    """Return the separator that a first line `sep=;` names, as Excel writes it, and the number of lines to the header.

    Without such a line, the separator is "", and the lines are those that begin with #, as cBioPortal writes them.
    """
    with open_bytes(path) as file:
        first = file.read(32)
        if match := _DECLARED.match(first):
            return match[1].decode("ascii"), 1
        file.seek(3 * first.startswith(b"\xef\xbb\xbf"))
        count = sum(1 for _ in takewhile(lambda line: line.startswith(b"#"), iter(partial(file.readline, 2**20), b"")))
    return "", count if count > 1 else 0  # a single one may be a header, such as #bag,label


def open_text(path: Path) -> IO[str]:
    """Open a text table, packed or not; skip a byte order mark and the lines before the header."""
    skipped = _preamble(path)[1]
    file = io.TextIOWrapper(open_bytes(path), newline="", encoding="utf-8-sig")
    for _ in range(skipped):
        file.readline()
    return file


def open_bytes(path: Path) -> IO[bytes]:
    """Open the bytes of a text table, packed or not."""
    return cast(IO[bytes], gzip.open(path)) if file_suffix(path).endswith(".gz") else path.open("rb")


def first_line(path: Path, separator: str = ",") -> list[str]:
    """Return the fields of the first line; refuse an empty one, and a longer second one, which pandas would cut."""
    with open_text(path) as file, sound_text("lines of a table", path):
        lines = csv.reader(file, delimiter=separator)
        first, second = next(lines, []), next(lines, [])
    if lines.line_num > 1 and not "".join(first).strip():
        raise BagDataError(f"Expected words or numbers in the first line, got an empty line (in {path}); remove it.")
    if len(second) > len(first):
        text = f"Expected {len(first)} fields in each line as in the first, got {len(second)} in line 2 (in {path})"
        raise BagDataError(f"{text}; correct the file.")
    return first


def _line_breaks(path: Path) -> int:
    with open_bytes(path) as file:
        return sum(chunk.count(b"\n") for chunk in iter(partial(file.read, _CHUNK), b""))


def _record_lines(path: Path, separator: str, skipped: int) -> list[int]:
    """Return the number of lines between a header of one line and each record; none if `csv` cannot read the table."""
    with open_text(path) as file, suppress(csv.Error):
        lines = csv.reader(file, delimiter=separator)
        return [skipped + lines.line_num - 1 for _ in lines]
    return []


def header_of(path: Path, *, sheet: str | None = None) -> list[str]:
    """Return the names of the columns, without blanks around them; none for a file that is not a table."""
    try:
        if file_suffix(path) == EXCEL:
            require_fits(path)
            header = list(_read_excel(path, _as_text, sheet, is_group_like, rows=0).columns)
        elif file_suffix(path) == PARQUET:
            header = need("pyarrow.parquet", "Parquet", path, extra="parquet").read_schema(path).names
        else:
            with open_text(path) as file:
                header = next(csv.reader([file.readline(2**20)], delimiter=separator_of(path)), [])
    except Exception:  # its reader reports the fault
        return []
    return names_of(header, path)


def _read_excel(
    path: Path, options: _Options, sheet: str | None, is_id: Callable[[str], bool], *, rows: int | None = None
) -> "pd.DataFrame":
    """Read a sheet of a workbook, the first by default."""
    need("openpyxl", "Excel", path, extra="excel")
    with (
        sound("an Excel workbook (.xlsx)", path, advice="save it again, or as CSV"),
        warnings.catch_warnings(action="ignore"),  # about parts that openpyxl ignores: styles, drop-down lists
        pd.ExcelFile(path, engine="openpyxl") as book,
    ):
        names = {name_of(name): str(name) for name in book.sheet_names}
        if sheet is not None and sheet not in names:
            raise BagDataError(
                f"Expected the sheet {sheet!r} of `sheet`, got none (in {path}); {nearest(sheet, names, count=3)}"
            )
        sheet_name = next(iter(names.values())) if sheet is None else names[sheet]
        first = book.parse(sheet_name, header=None, nrows=1, dtype=str)
        header = ["" if pd.isna(name) else str(name) for name in (first.iloc[0] if len(first) else [])]
        check_header(header, path)
        nrows = EXCEL_ROWS if rows is None else rows
        # They take the place of the dtype.
        cells: dict[int | str, Callable[[Any], Any]] = {name: _cell for name in header if is_id(name_of(name))}
        frame = book.parse(sheet_name, nrows=nrows, keep_default_na=False, converters=cells, **options(header))
        if len(frame) >= EXCEL_ROWS:
            raise BagDataError(
                f"Expected at most {EXCEL_ROWS} rows, as many as a sheet of Excel holds, got more (in {path}); save "
                "the table as CSV or Parquet."
            )
    if sheet is None and len(names) > 1 and rows is None:
        text = f"{sheet_name!r} is read, the first of {len(names)} sheets (in {path})"
        warnings.warn(f"{text}; {given(sheet=list(names)[1])} reads another", Note, stacklevel=4)
    return renamed(frame, path)


def _cell(value: object) -> object:
    """Return the cell of an id as text, but a large number as a decimal, which is no name: Excel rounds it."""
    return float(value) if isinstance(value, int | float) and abs(value) >= EXACT else str(value)


@contextmanager
def sound_text(expected: str, path: Path) -> Iterator[None]:
    """Act as `sound` for a text table; the error about another encoding says how to convert it."""
    with sound(expected, path, advice="correct the file"):
        try:
            yield
        except (MemoryError, pd.errors.ParserError) as error:
            if isinstance(error, MemoryError) or "out of memory" in str(error):  # a limit that `require_fits` ignores
                raise BagDataError(
                    f"Expected a table that fits into the memory that this process may use, got a larger one (in "
                    f"{path}); raise that limit, or {ON_DISK}."
                ) from error
            raise
        except UnicodeDecodeError as error:
            byte = f"a byte 0x{error.object[error.start]:02X} of another encoding"
            raise BagDataError(
                f"Expected text in UTF-8, got {byte} (in {path}); save it as UTF-8: in Excel, as 'CSV UTF-8'."
            ) from error


def check_header(header: list[str], path: Path, *, nameless: bool = False) -> None:
    """Refuse a header without columns, and nameless or repeated columns, which pandas would rename to features."""
    names = names_of(header, path)
    if not any(names):
        text = f"Expected the names of the columns in the first line, got none (in {path})"
        raise BagDataError(f"{text}; write them there, and remove empty lines above them.")
    if "" in names and not nameless:
        raise BagDataError(
            f"Expected a name for each column, got none for column {names.index('') + 1} (in {path}); name the column, "
            "or write the table without its row numbers."
        )
    _refuse_repeated([name for name in names if name], path)


def _refuse_repeated(names: Sequence[str], path: object) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise BagDataError(f"Expected unique column names, got {name!r} {count} times (in {path}); rename them.")


def _with_points(frame: "pd.DataFrame", texts: Iterable[str], path: Path) -> "pd.DataFrame":
    """Read columns as numbers if all their values are numbers, some with a decimal comma."""
    columns, numbers = list[str](), frame.columns.difference(list(texts), sort=False)
    for name in numbers:
        values = frame[name][~frame[name].isin(MISSING)].dropna()
        if not pd.api.types.is_numeric_dtype(values) and len(values):
            words = values.astype(str)
            if words.str.fullmatch(_DECIMAL).all() and words.str.contains(",").any():
                columns.append(name)
                frame[name] = pd.to_numeric(frame[name].astype(str).str.replace(",", "."), errors="coerce")
    if grouped := dict(_grouped(numbers, path, alone=bool(columns))):
        number = next(iter(grouped.values()))
        text = f"{number} in {listed(list(grouped))}, perhaps thousands (in {path})"
        advice = f"write all numbers alike, such as {number.replace('.', '')}"
        if columns:
            raise BagDataError(f"Expected one decimal sign in a file, got 1,5 in some columns and {text}; {advice}.")
        warnings.warn(f"the point is read as a decimal sign, but others have none, in {text}: {advice}", stacklevel=4)
    if columns:
        text = f"column {columns[0]}" + (f" and {len(columns) - 1} more" if len(columns) > 1 else "")
        warnings.warn(f"commas in {text} are read as decimal points: 1,5 is 1.5 (in {path})", Note, stacklevel=4)
    return frame


def _grouped(names: Iterable[str], path: Path, *, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield columns where the point may separate thousands, with a number such as 1.234.

    All others are such numbers or whole ones below 1000, of which there must be one unless the former may be `alone`. A
    number such as 0.123 in a column shows that its points are decimal signs.
    """
    first = _first_words(path)
    for name in names:
        words = first[name].dropna().astype(str).str.strip()
        small, grouped = (words.str.fullmatch(form) for form in (r"-?\d{1,3}", r"-?[1-9]\d{0,2}(\.\d{3})+"))
        if grouped.any() and words.str.fullmatch(r"-?([1-9]\d{0,2}(\.\d{3})*|0)").all() and (alone or small.any()):
            yield name, str(words[grouped].iloc[0])


EXCEL_ROWS = 2**20
_CHUNK = 1 << 20
_OF_TEXT, _OF_FIELD = 2, 16  # bytes of memory for each byte of a text table, and for each field
_MOST_OF_BYTE = _OF_TEXT + _OF_FIELD  # of a text of one-letter fields; gzip packs at most 1032 bytes into one
_MOST_PACKED = 1032
_SMALL = 1 << 26  # bytes of a part of a workbook that need no check
_OF_CELL, _OF_EMPTY = 64, 16  # bytes of memory for each cell of a sheet with a value, and for one without


def require_fits(path: Path) -> None:
    """Refuse a table (text, packed or not, Excel, Parquet) of more rows and bytes than the free memory can hold."""
    checks = {PARQUET: _check_parquet, EXCEL: _check_excel}
    checks.get(file_suffix(path), _check_text)(path)


def _check_parquet(path: Path) -> None:
    parquet = need("pyarrow.parquet", "Parquet", path, extra="parquet")
    with sound("a Parquet file", path, advice="write the file again"):
        facts = parquet.read_metadata(path)
        unpacked = sum(facts.row_group(number).total_byte_size for number in range(facts.num_row_groups))
        # Equal values are stored once, but each takes 8 bytes when it is read, and a text takes its length.
        needed = max(unpacked, 8 * facts.num_rows * facts.num_columns)
        _require_memory(needed, f"{facts.num_rows} rows", path)
        _require_memory(needed + _texts(parquet, facts, path), f"{facts.num_rows} rows of texts", path)


def _texts(parquet: Any, facts: Any, path: Path) -> int:
    """Return the bytes of the texts of a Parquet file, or a bound if even the longest text in each row would fit."""
    total = 0
    groups = range(facts.num_row_groups)
    for number, column in ((i, facts.schema.column(i)) for i in range(facts.num_columns)):
        if column.physical_type != "BYTE_ARRAY":
            total += max(column.length, 0) * facts.num_rows
            continue
        chunks = [facts.row_group(group).column(number) for group in groups]
        worst = sum(chunk.total_uncompressed_size * chunk.num_values for chunk in chunks)
        if fits(worst) or column.max_definition_level > 1:  # nested columns are refused, but only once they are read
            total += worst
            continue
        compute = need("pyarrow.compute", "Parquet", path, extra="parquet")
        with parquet.ParquetFile(path, read_dictionary=[column.path]) as file:
            for group in groups:
                for chunk in file.read_row_group(group, columns=[column.path]).column(0).chunks:
                    if not hasattr(chunk, "dictionary"):  # decimals
                        total += chunk.nbytes
                        continue
                    lengths = compute.binary_length(chunk.dictionary).cast("int64")
                    total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


def _check_text(path: Path) -> None:
    """Count the bytes and fields of an unpacked text, unless the worst case would fit."""
    growth = _MOST_PACKED if file_suffix(path).endswith(".gz") else 1
    if fits(path.stat().st_size * growth * _MOST_OF_BYTE):
        return
    mark, size, lines, fields = separator_of(path).encode(), 0, 0, 0
    with sound("a table of text", path, advice="correct the file"), open_bytes(path) as file:
        while chunk := file.read(_CHUNK):
            size, lines = size + len(chunk), lines + chunk.count(b"\n")
            fields += chunk.count(mark) + chunk.count(b"\n")
            _require_memory(_OF_TEXT * size + _OF_FIELD * fields, f"more than {lines} lines", path)


def _check_excel(path: Path) -> None:
    """Count the cells of the sheets as they would be read: the number that the file states may be wrong."""
    with sound("an Excel workbook (.xlsx)", path, advice="save it again, or as CSV"), zipfile.ZipFile(path) as book:
        members = book.infolist()
        sheets = [member for member in members if member.filename.startswith("xl/worksheets/")]
        texts = [member for member in members if member not in sheets]
        _require_memory(sum(member.file_size for member in texts), "texts", path)
        for member in texts:
            check_growth(member.file_size, member.compress_size, f"{path}, part {member.filename}", small=_SMALL)
        for member in sheets:
            if member.filename.endswith(".xml"):
                with book.open(member) as stream:
                    _count_cells(stream, path)


def _count_cells(stream: IO[bytes], path: Path) -> None:
    coordinate_to_tuple = need("openpyxl.utils.cell", "Excel", path, extra="excel").coordinate_to_tuple
    parser = expat.ParserCreate(namespace_separator=" ")
    row = cells = column = widest = 0

    def begin(name: str, attributes: dict[str, Any]) -> None:
        nonlocal row, cells, column, widest
        kind, place = name.rpartition(" ")[2], attributes.get("r", "")
        if kind == "row":
            row, column = int(place) if place else row + 1, 0
        elif kind == "c":
            cells, column = cells + 1, coordinate_to_tuple(place)[1] if place else column + 1
            widest = max(widest, column)

    parser.StartElementHandler = begin
    while chunk := stream.read(_CHUNK):
        parser.Parse(chunk)
        # Reading fills in rows that the file skips, and makes all rows as wide as the widest.
        needed = _OF_CELL * (cells + row) + _OF_EMPTY * max(0, row * widest - cells)
        _require_memory(needed, f"{row} rows of up to {widest} columns", path)


def _require_memory(needed: int, content: str, path: Path) -> None:
    require_free(needed, f"a table of {content}", source=str(path))
