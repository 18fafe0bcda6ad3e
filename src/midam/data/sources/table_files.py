"""Files of tables, of instances or of names, as data frames: CSV and TSV, packed or not, Excel and Parquet."""

import csv
import gzip
import io
import re
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast
from xml.parsers import expat

from midam.data.covariates import example_of_codes
from midam.data.on_disk import ON_DISK, fits, require_free
from midam.data.sources.formats.open_file import check_growth, need, require_file, sound
from midam.data.sources.labels import label_columns
from midam.data.sources.request import COLUMNS, Request, file_suffix
from midam.data.sources.table_columns import FILE_COLUMNS, group_parts, is_group_like, names_in, without_words
from midam.data.validate import check_feature_names
from midam.errors import BagDataError, Note, given, listed, nearest, with_place
from midam.lazy_imports import pandas as pd
from midam.names import EXACT, MISSING, name_of, names_of, on_disk, text_of

TEXTS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
EXCEL, PARQUET = ".xlsx", ".parquet"
NAMES = (*TEXTS, EXCEL)  # formats of tables of names
INSTANCES = (*NAMES, PARQUET)  # of tables of instances
EXCEL_ROWS = 2**20
_DECIMAL = re.compile(r"\s*[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?\s*")
_DECLARED = re.compile(r"\"?sep=([,;|\t])\"?\r?\n", re.IGNORECASE)
_TEXT_TYPES = ("string", "large_string", "binary", "large_binary")  # of Parquet
_FIRST_ROWS = 1000  # in which codes are looked for
_EMPTY = ["", *sorted(MISSING)]
_CHUNK = 1 << 20
_OF_TEXT, _OF_FIELD = 2, 16  # bytes of memory for each byte of a text table, and for each field
_MOST_OF_BYTE = _OF_TEXT + _OF_FIELD  # of a text of one-letter fields; gzip packs at most 1032 bytes into one
_MOST_PACKED = 1032
_SMALL = 1 << 26  # bytes of a text, or of a part of a workbook, that need no check
_OF_CELL, _OF_EMPTY = 64, 16  # bytes of memory for each cell of a sheet with a value, and for one without
_AS_TEXT: dict[str, Any] = {"dtype": str, "na_values": [""]}  # options of pandas that read all columns as text


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let `csv` read fields as long as pandas does, such as reports; its limit is one of the whole process."""
    before = csv.field_size_limit(1 << 24)  # letters
    try:
        yield
    finally:
        csv.field_size_limit(before)


class TextTable:
    """A CSV or TSV, packed or not; messages call its rows `unit`, and the one below the header has the number `first`.

    A TSV has tabs. The separator of a CSV is that of a first line ``sep=;``, as Excel writes it, or the most frequent
    of ",", ";" and tab in the header outside of quotes; in a tie, the comma. Several lines above the header that begin
    with # are skipped, as cBioPortal writes them.
    """

    unit, first = "line", 2

    def __init__(self, path: Path) -> None:
        self.path, self._packed, self._skipped = path, file_suffix(path).endswith(".gz"), 0
        with sound_text("a table of text", path), self._open() as file:
            lines = [file.readline(_CHUNK)]
            while lines[-1].startswith("#"):
                lines.append(file.readline(_CHUNK))
        comments = len(lines) - 1 if len(lines) > 2 else 0  # a single one may be the header, such as #bag,label
        declared, plain = _DECLARED.fullmatch(lines[0]), re.sub(r'"[^"]*"', "", lines[comments])
        self._skipped = comments if declared is None else 1
        usual = max(",;\t", key=plain.count) if declared is None else declared[1]
        self.separator = "\t" if ".tsv" in file_suffix(path) else usual

    def _open_bytes(self) -> IO[bytes]:
        return cast(IO[bytes], gzip.open(self.path)) if self._packed else self.path.open("rb")

    def _open(self) -> IO[str]:
        """Open the text after a byte order mark and the lines above the header."""
        file = io.TextIOWrapper(self._open_bytes(), newline="", encoding="utf-8-sig")
        for _ in range(self._skipped):
            file.readline()
        return file

    @cached_property
    def header(self) -> list[str]:
        """Names of the columns, as they are written."""
        with sound_text("lines of a table", self.path), self._open() as file, _long_fields():
            return next(csv.reader(file, delimiter=self.separator), [])

    def require_fits(self) -> None:
        """Count the bytes and fields of the unpacked text, unless the worst case would fit."""
        worst = self.path.stat().st_size * _MOST_OF_BYTE * (_MOST_PACKED if self._packed else 1)
        if worst <= _SMALL or fits(worst):
            return
        mark, size, lines, fields = self.separator.encode(), 0, 0, 0
        with sound("a table of text", self.path, advice="correct the file"), self._open_bytes() as file:
            while chunk := file.read(_CHUNK):
                size, lines = size + len(chunk), lines + chunk.count(b"\n")
                fields += chunk.count(mark) + chunk.count(b"\n")
                _require_memory(_OF_TEXT * size + _OF_FIELD * fields, f"more than {lines} lines", self.path)

    def read(self, *, rows: int | None = None, **options: Any) -> "pd.DataFrame":
        """Read all rows, or the first ones, with options of pandas.

        The index counts the lines to a row from that below the header, also blank ones, those above the header and,
        without `rows`, those in quotes.
        """
        if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # whose default rounds twice
            options["float_precision"] = "round_trip"
        with sound_text("a table with a header line and as many fields in each line", self.path):
            settings: dict[str, Any] = {"sep": self.separator, "skiprows": self._skipped, "nrows": rows, **options}
            settings |= {"encoding": "utf-8-sig", "index_col": False, "skip_blank_lines": False, "low_memory": False}
            frame = pd.read_csv(self.path, **settings)
        frame.index += self._skipped
        return frame if rows is not None else self._with_lines(frame)

    def _with_lines(self, frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return the table with an index that counts line breaks in quotes, unless `csv` cannot read the table.

        If there are such line breaks, text after a closing quote is refused: of a field that only begins with a quote,
        and of all lines up to the next one, pandas makes one field.
        """
        lines = list[int]()
        with self._open() as file:
            count = sum(1 for _ in file)
        if count > len(frame) + 1:
            with self._open() as file, _long_fields():
                records = csv.reader(file, delimiter=self.separator, strict=True)
                try:
                    lines = [self._skipped + records.line_num - 1 for _ in records][: len(frame)]
                except csv.Error as error:
                    if "expected after" in str(error):
                        got = f"text after one (in {self.path}, line {self._skipped + records.line_num})"
                        advice = "write a quote inside of a field twice, or lines are lost"
                        raise BagDataError(f"Expected quotes around whole fields, got {got}; {advice}.") from error
        return frame.set_axis(lines, axis=0) if lines and len(lines) == len(frame) else frame


class ExcelTable:
    """A sheet of a workbook, the first by default."""

    unit, first, separator = "row", 2, ","

    def __init__(self, path: Path, sheet: str | None) -> None:
        need("openpyxl", "Excel", path, extra="excel")
        self.path, self.sheet = path, sheet

    @cached_property
    def _book(self) -> "pd.ExcelFile":
        return pd.ExcelFile(io.BytesIO(self.path.read_bytes()), engine="openpyxl")  # which leaves no file open

    @cached_property
    def _name(self) -> str:
        """Name of the sheet, as it is written."""
        names = {name_of(name): str(name) for name in self._book.sheet_names}
        if self.sheet is not None and self.sheet not in names:
            advice = nearest(self.sheet, names, count=3)
            raise BagDataError(f"Expected the sheet {self.sheet!r} of `sheet`, got none (in {self.path}); {advice}")
        return next(iter(names.values())) if self.sheet is None else names[self.sheet]

    def _parse(self, **options: Any) -> "pd.DataFrame":
        with (
            sound("an Excel workbook (.xlsx)", self.path, advice="save it again, or as CSV"),
            warnings.catch_warnings(action="ignore"),  # about parts that openpyxl ignores: styles, drop-down lists
        ):
            return self._book.parse(self._name, **options)

    @cached_property
    def header(self) -> list[str]:
        """Cells of the first row, "" where they are empty."""
        first = self._parse(header=None, nrows=1, dtype=str)
        return ["" if pd.isna(name) else str(name) for name in (first.iloc[0] if len(first) else [])]

    def require_fits(self) -> None:
        """Count the cells of the sheets as they would be read: the number that the file states may be wrong."""
        with (
            sound("an Excel workbook (.xlsx)", self.path, advice="save it again, or as CSV"),
            zipfile.ZipFile(self.path) as book,
        ):
            members = book.infolist()
            sheets = [member for member in members if member.filename.startswith("xl/worksheets/")]
            texts = [member for member in members if member not in sheets]
            _require_memory(sum(member.file_size for member in texts), "texts", self.path)
            for member in texts:
                where = f"{self.path}, part {member.filename}"
                check_growth(member.file_size, member.compress_size, where, small=_SMALL)
            for member in sheets:
                if member.filename.endswith(".xml"):
                    with book.open(member) as stream:
                        self._count_cells(stream)

    def _count_cells(self, stream: IO[bytes]) -> None:
        coordinate_to_tuple = need("openpyxl.utils.cell", "Excel", self.path, extra="excel").coordinate_to_tuple
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
            _require_memory(needed, f"{row} rows of up to {widest} columns", self.path)

    def read(self, *, rows: int | None = None, **options: Any) -> "pd.DataFrame":
        """Read all rows, or the first ones, with options of pandas; note that there are other sheets."""
        frame = self._parse(nrows=EXCEL_ROWS if rows is None else rows, **options)
        if len(frame) >= EXCEL_ROWS:
            wanted = f"Expected at most {EXCEL_ROWS} rows, as many as a sheet of Excel holds"
            raise BagDataError(f"{wanted}, got more (in {self.path}); save the table as CSV or Parquet.")
        sheets = self._book.sheet_names
        if self.sheet is None and len(sheets) > 1 and rows is None:
            text = f"{self._name!r} is read, the first of {len(sheets)} sheets (in {self.path})"
            warnings.warn(f"{text}; {given(sheet=name_of(sheets[1]))} reads another", Note, stacklevel=4)
        return frame


class ParquetTable:
    """A Parquet file; the named index of pandas is a column, unless it only counts the rows."""

    unit, first, separator = "row", 1, ","

    def __init__(self, path: Path) -> None:
        self.path, self._parquet = path, need("pyarrow.parquet", "Parquet", path, extra="parquet")
        with sound("a Parquet file", path, advice="write the file again"):
            self._facts = self._parquet.read_metadata(path)
            self._schema = self._facts.schema.to_arrow_schema()

    @property
    def header(self) -> list[str]:
        """Names of the columns, as they are written."""
        return list(self._schema.names)

    def require_fits(self) -> None:
        """Compare the metadata with the free memory: equal numbers are stored once, but each takes 8 bytes or more."""
        packed = expanded = 0
        for group in map(self._facts.row_group, range(self._facts.num_row_groups)):
            for place in range(self._facts.num_columns):
                chunk, column = group.column(place), self._facts.schema.column(place)
                packed += chunk.total_uncompressed_size
                in_list = column.max_definition_level > 1 and column.physical_type == "BYTE_ARRAY"
                expanded += chunk.num_values * max(8, chunk.total_uncompressed_size if in_list else column.length)
        _require_memory(max(packed, expanded), f"{self._facts.num_rows} rows", self.path)

    def read(self, **_: Any) -> "pd.DataFrame":
        """Read the file; equal texts are one object, so that they take no more memory than in the file."""
        texts = [field.name for field in self._schema if str(field.type) in _TEXT_TYPES]
        with sound("a Parquet file", self.path, advice="write the file again"):
            table = self._parquet.read_table(self.path, read_dictionary=texts, page_checksum_verification=True)
            frame = table.to_pandas()
            columns = (self._schema.pandas_metadata or {}).get("columns", ())
            kinds = {one["name"]: "category" for one in columns if one["pandas_type"] == "categorical"}
            # Categories that are numbers come back as numbers.
            frame = frame.astype({name: kind for name, kind in kinds.items() if name in frame.columns})
        named = [name for name in frame.index.names if name is not None and not isinstance(frame.index, pd.RangeIndex)]
        frame = frame.reset_index(named, allow_duplicates=True).reset_index(drop=True)
        return frame.astype({name: object for name in texts if name in frame})


TableFile = TextTable | ExcelTable | ParquetTable


def table_file(path: Path, sheet: str | None = None) -> TableFile:
    """Return the table in a file, by its suffix."""
    if path.name.startswith("~$") and file_suffix(path) == EXCEL:
        raise BagDataError(f"Expected a table, got a lock file of Office (in {path}); name {path.name[2:]} itself.")
    if file_suffix(path) == EXCEL:
        return ExcelTable(path, sheet)
    return ParquetTable(path) if file_suffix(path) == PARQUET else TextTable(path)


def header_of(path: Path, *, sheet: str | None = None) -> list[str]:
    """Return the names of the columns, without blanks around them; none for a file that is not a table."""
    try:
        file = table_file(path, sheet)
        if isinstance(file, ExcelTable):  # of the others, only the header is read
            file.require_fits()
        return names_of(file.header, path)
    except Exception:  # its reader reports the fault
        return []


def worded_columns(present: Iterable[object], request: Request) -> tuple[str, ...]:
    """Return the columns of words among those `present`: labels, bags, groups, splits, covariates and sites."""
    columns = [getattr(request, name) for name in COLUMNS if getattr(request, name) is not None]
    return (*label_columns(present, request), *columns, *group_parts(request.groups), *request.covariate_columns)


def read_instances(file: TableFile, request: Request) -> "pd.DataFrame":
    """Read a table of numbers, in which names (bags, labels, groups, categories) stay text: 007 keeps its zeros.

    Words such as NA are missing values, but not yet in `worded_columns`, which
    `midam.data.sources.table_columns.without_words` handles. The index is that of `TableFile.read`. Columns without a
    name, and two of the same name, are refused. Numbers with a decimal comma are read if the separator is not a comma,
    with a note.
    """
    ids = {request.bag_column, *group_parts(request.groups)}
    header = _header(file)
    worded = worded_columns(header.values(), request)
    labels = label_columns(header.values(), request)
    as_text = {*(getattr(request, name) for name in COLUMNS), *labels, *ids, *request.category_columns}
    as_text.difference_update(labels[: request.target == "continuous" or len(labels) > 1])  # a number or a time
    gaps = {column: [""] if name in worded else _EMPTY for column, name in header.items()}
    texts = {column: str for column, name in header.items() if name in as_text}
    frame = _read(file, [column for column, name in header.items() if name in ids], dtype=texts, na_values=gaps)
    if isinstance(file, ParquetTable):
        return frame
    if frame.iloc[:, :1].isna().any(axis=None):
        frame = frame.dropna(how="all")
    if request.features is None or file.separator != ",":
        first = _read(file, rows=_FIRST_ROWS, **_AS_TEXT)
    if request.features is None:
        _warn_of_codes(frame, first, {*worded, *request.ignore} - {*request.covariate_columns}, file.path)
    return frame if file.separator == "," else _with_points(frame, first, as_text, file.path)


def _warn_of_codes(frame: "pd.DataFrame", first: "pd.DataFrame", known: Collection[str], path: Path) -> None:
    """Warn about texts in the first rows that may be codes, but become one number: 0117 and 117, 250.10 and 250.1."""
    numeric = {str(name) for name, kind in frame.dtypes.items() if kind.kind in "if"} - {*known, *FILE_COLUMNS}
    numeric = {name for name in numeric if not is_group_like(name)}
    codes = dict[str, str]()
    for name, values in zip(first.columns, first.to_numpy(dtype=object).T):  # a column of a frame takes 0.1 ms
        words = [value.strip() for value in values if isinstance(value, str)] if name in numeric else []
        if example := example_of_codes(words):
            codes[str(name)] = example
    if codes:
        text = f"numbers in {listed(list(codes))} may be codes, {next(iter(codes.values()))}"
        warnings.warn(f"{text}: if so, give {given(categories=list(codes))} (in {path})", stacklevel=4)


def read_names(path: str | Path, request: Request | None = None, *, raw: str | None = None) -> "pd.DataFrame":
    """Read a table of names as text, each value in the form of `midam.names.name_of`; an empty field is NaN.

    So is a word such as NA, unless a request names it as a class of its labels. The index is that of `TableFile.read`.
    The values of the column `raw` only lose the blanks around them.
    """
    path = on_disk(path)
    require_file(path, "a table")
    if file_suffix(path) not in NAMES:
        raise BagDataError(f"Expected a table ({', '.join(NAMES)}), got another suffix (in {path}); save it as CSV.")
    asked = () if request is None else (request.bag_column, *group_parts(request.groups))
    file = table_file(path, None if request is None else request.sheet)
    header = {column: name for column, name in _header(file, nameless=True).items() if name != raw}
    usual = [name for name in header.values() if name.lower() in FILE_COLUMNS or is_group_like(name)]
    frame = _read(file, [column for column, name in header.items() if name in (*asked, *usual)], **_AS_TEXT)
    for name in frame.columns:
        words = frame[name].astype(object).str.strip() if name == raw else names_in(frame[name], path)
        frame[name] = words.where(~words.isin([""] if request is not None else _EMPTY))
    frame = frame if request is None else without_words(frame, frame.columns.difference([raw]), request)
    frame = frame.dropna(how="all")
    if not len(frame):
        raise BagDataError(f"Expected at least one row, got none (in {path}); fill the table.")
    return frame


def _header(file: TableFile, *, nameless: bool = False) -> dict[str, str]:
    """Return the name of each column of a table that fits into memory; those of a text may be `nameless`."""
    file.require_fits()
    check_header(file.header, file.path, nameless=nameless and isinstance(file, TextTable))
    return {column: name_of(column) for column in file.header}


def _read(file: TableFile, ids: Sequence[str] = (), *, rows: int | None = None, **options: Any) -> "pd.DataFrame":
    """Read a table of unique columns, some of them `ids`, with options of pandas."""
    if isinstance(file, ExcelTable):  # they take the place of the dtype
        options["converters"] = dict.fromkeys(ids, _cell)
    return renamed(file.read(rows=rows, keep_default_na=False, **options), file.path)


def renamed(frame: "pd.DataFrame", path: object) -> "pd.DataFrame":
    """Return a table in the byte order of the machine, with columns named by `name_of`; refuse equal names."""
    names = names_of(frame.columns, path)
    check_feature_names(names, len(names), str(path), kind="columns")
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


def _cell(value: object) -> object:
    """Return the cell of an id as text, but a large number as a decimal, which is no name: Excel rounds it."""
    return float(value) if isinstance(value, int | float) and abs(value) >= EXACT else str(value)


@contextmanager
def sound_text(expected: str, path: Path) -> Iterator[None]:
    """Act as `sound` for a text table; the error about another encoding says how to convert it.

    pandas only warns about rows that are longer than the header, and cuts them.
    """
    with (
        sound(expected, path, advice="correct the file"),
        warnings.catch_warnings(action="error", category=pd.errors.ParserWarning),
    ):
        try:
            yield
        except (MemoryError, pd.errors.ParserError) as error:
            if isinstance(error, MemoryError) or "out of memory" in str(error):  # a limit that `require_fits` ignores
                raise BagDataError(
                    f"Expected a table that fits into the memory that this process may use, got a larger one (in "
                    f"{path}); raise that limit, or {ON_DISK}."
                ) from error
            raise
        except pd.errors.ParserWarning as error:
            got = f"got: {str(error).partition('.')[0]}, in the first line below it (in {path}); name all columns"
            raise BagDataError(f"Expected a header line and as many fields in each line, {got}.") from error
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
    named = [name for name in names if name]
    check_feature_names(named, len(named), str(path), kind="columns")


def _with_points(frame: "pd.DataFrame", first: "pd.DataFrame", texts: Collection[str], path: Path) -> "pd.DataFrame":
    """Read columns as numbers if all their values are numbers, some with a decimal comma; `first` are texts of rows."""
    columns, numbers = list[str](), frame.columns.difference(list(texts), sort=False)
    for name in numbers:
        values = frame[name][~frame[name].isin(MISSING)].dropna()
        if not pd.api.types.is_numeric_dtype(values) and len(values):
            words = values.astype(str)
            if words.str.fullmatch(_DECIMAL).all() and words.str.contains(",").any():
                columns.append(name)
                frame[name] = pd.to_numeric(frame[name].astype(str).str.replace(",", "."), errors="coerce")
    if grouped := dict(_grouped(first[numbers], alone=bool(columns))):
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


def _grouped(first: "pd.DataFrame", *, alone: bool) -> Iterator[tuple[str, str]]:
    """Yield columns where the point may separate thousands, with a number such as 1.234.

    All others are such numbers or whole ones below 1000, of which there must be one unless the former may be `alone`. A
    number such as 0.123 in a column shows that its points are decimal signs.
    """
    for name in first.columns:
        words = first[name].dropna().astype(str).str.strip()
        small, grouped = (words.str.fullmatch(form) for form in (r"-?\d{1,3}", r"-?[1-9]\d{0,2}(\.\d{3})+"))
        if grouped.any() and words.str.fullmatch(r"-?([1-9]\d{0,2}(\.\d{3})*|0)").all() and (alone or small.any()):
            yield name, str(words[grouped].iloc[0])


def _require_memory(needed: int, content: str, path: Path) -> None:
    require_free(needed, f"a table of {content}", source=str(path))
