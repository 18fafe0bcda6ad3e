"""Columns of tables: their names, covariates, faults, and the kinds of features: numbers, dates or categories; ids."""

import json
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam import errors
from midam.data import covariates as forms
from midam.data.covariates import Column, Covariates, number_of
from midam.data.sources.file_names import NameIndex
from midam.data.sources.labels import code_labels, gap_advice, label_columns, labels_or_none, named_words
from midam.data.sources.request import Request
from midam.data.validate import site_array
from midam.errors import BagDataError, ConfigError, Note, given, listed
from midam.lazy_imports import pandas as pd
from midam.names import alike, is_missing, merge_words, name_of, names_of, warn_of_alike

FILE_COLUMNS = ("bag", "slide_id", "filename", "slide", "id", "file", "path", "0")  # DSMIL's list has a column 0
PATIENT_COLUMNS = (
    *("patient", "patient_id", "patientid", "case_id", "case", "submitter_id"),
    *("subject", "subject_id", "participant_id"),  # of BIDS and its like
)
GROUP_COLUMNS = ("group", *PATIENT_COLUMNS)
_SIGNS = re.compile(r"[\W_]")
_OF_GROUP = re.compile(
    r"(patient|pat|pid|mrn|subject|case|participant|person|slide|group)s?(id|no|nr|number|code|name|group)?"
)
_OF_LABEL = re.compile(r"(labels?|target|class|outcome|event|time|survival|status|diagnosis|grade|stage|death)(_.*)?")
_OF_ROW = re.compile(r"(instance|unnamed|row|index|idx|level|tile|patch)s?(id|no|nr|number|index)?")
_OF_CODE = re.compile(r".*(code|zip|mcc|type|category|channel|country|region|branch|merchant|department|icd(9|10|11)?)")
SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SPLIT_NAMES["testing"] = "test"
_SHOWN, _SEVERAL = 10, 5


def require_columns(known: Iterable[object], columns: Iterable[tuple[str, str | None]], where: str) -> None:
    """Refuse a table of `known` columns that lacks some of `columns`, each given with its parameter, if any."""
    present = [str(name) for name in known]
    absent = [(parameter, name) for parameter, name in columns if name is not None and name not in present]
    if absent:
        text = " and ".join(f"{name!r}" + (f" of `{parameter}`" if parameter else "") for parameter, name in absent)
        advice = errors.nearest(absent[0][1], present, count=3)
        raise BagDataError(
            f"Expected the column{'s' * (len(absent) > 1)} {text}, got none (in {where}); name another: {advice}"
        )


def group_parts(column: str | None) -> tuple[str, ...]:
    """Return the columns that together name the group: both of `site,patient`, or a single one."""
    return () if column is None else tuple(name_of(part) for part in column.split(","))


def with_groups(frame: "pd.DataFrame", request: Request) -> "pd.DataFrame":
    """Return the table; if several columns name the group (`site,patient`), add a column of values site/patient.

    A name that holds the separator is quoted, so that two groups never get the same name.
    """
    column, parts = request.groups, group_parts(request.groups)
    present = set(map(str, frame.columns))
    if column is None or len(parts) < 2 or column in present or request.header_groups(present):
        return frame
    if not (request.require_labels or present >= {*parts}):
        return frame
    require_columns(frame.columns, [("groups", name) for name in parts], request.where)
    rows = zip(*(names_in(frame[name], request.where).tolist() for name in parts), strict=True)
    joined = ["/".join(map(_quoted, row)) if all(isinstance(name, str) for name in row) else np.nan for row in rows]
    return frame.assign(**{column: np.array(joined, dtype=object)})


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False) if "/" in name or name.startswith('"') else name


def names_in(values: "pd.Series[Any]", where: object) -> "pd.Series[Any]":
    """Return the values of a column as names; missing values stay missing. Messages call the table `where`."""
    codes, distinct = pd.factorize(values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values)
    kind = np.dtype(getattr(values.dtype, "numpy_dtype", values.dtype if isinstance(values.dtype, np.dtype) else "O"))
    parts: Any = map(kind.type, distinct) if kind.kind == "f" else distinct  # pandas turns short decimals into float
    names = np.array([*names_of(parts, f"{where}, column {values.name}"), np.nan], dtype=object)
    return pd.Series(names[codes], index=values.index, dtype=object)


def without_words(frame: "pd.DataFrame", columns: Iterable[object], request: Request) -> "pd.DataFrame":
    """Return the table with words such as NA or None in `columns` as gaps, except words that name a class of labels.

    `request.read_as_missing` records the words that are read as gaps, for the messages about gaps.
    """
    gaps, labels = {}, label_columns(frame.columns, request)
    for name in dict.fromkeys(map(str, columns)):
        if name not in frame.columns:
            continue
        words = words_for_none(frame[name].dropna().unique(), named_words(request) if name in labels else ())
        if words:
            rows = frame[name].isin(words)
            gaps[name] = frame[name].mask(rows)
            counts = frame[name][rows].astype(str).str.strip().value_counts()
            request.read_as_missing[name] = ", ".join(f"{word!r} in {count} rows" for word, count in counts.items())
    return frame.assign(**gaps)


def words_for_none(values: Iterable[object], named: Collection[str] = ()) -> list[str]:
    """Return the texts among the values that stand for a missing value, unless they are `named`."""
    texts = (value for value in values if isinstance(value, str) and value.strip())
    return [text for text in dict.fromkeys(texts) if is_missing(text, named)]


def has_labels(frame: "pd.DataFrame", request: Request) -> bool:
    """Return whether labels are required, or are there anyway."""
    columns = label_columns(frame.columns, request)
    complete = all(column in frame.columns for column in columns)
    return request.require_labels or (complete and not all(bool(frame[column].isna().all()) for column in columns))


def is_code_like(name: str) -> bool:
    """Return whether a column of this name may hold codes, such as icd10 or zip."""
    return _OF_CODE.fullmatch(name.lower()) is not None


def plain_numbers(values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return numbers such as `decimal.Decimal` as float64, durations as seconds; other columns as they are."""
    if isinstance(values.dtype, pd.CategoricalDtype) and pd.api.types.is_numeric_dtype(values.cat.categories):
        return values.astype(np.float64)
    kind = values.dtype.kind
    boxed = values.dtype == object or (kind == "O" and pd.api.types.is_numeric_dtype(values))
    objects = values.dropna() if boxed else values.iloc[:0]
    if kind == "m" or (len(objects) and all(isinstance(value, timedelta) for value in objects)):
        return (pd.to_timedelta(values) / pd.Timedelta(seconds=1)).astype(np.float64)
    if not len(objects) or not all(isinstance(value, Real | Decimal) for value in objects):
        return values
    return pd.Series([np.nan if pd.isna(value) else float(value) for value in values], values.index, dtype=np.float64)


def find_column(frame: "pd.DataFrame", candidates: Sequence[str]) -> str | None:
    """Return the first column that has one of the names, in any case: patient_id, PatientID or Patient ID."""
    plain = {_SIGNS.sub("", str(name).lower()): str(name) for name in reversed(frame.columns)}
    return next((plain[key] for name in candidates if (key := _SIGNS.sub("", name)) in plain), None)


def is_group_like(name: str) -> bool:
    """Return whether a column has a name of patients or other groups: patient, PatientID, case_no, slide group."""
    return name.lower() in GROUP_COLUMNS or _OF_GROUP.fullmatch(re.sub(r"[^a-z]", "", name.lower())) is not None


def is_label_like(name: str) -> bool:
    """Return whether a column has a name of labels: label, label_er, time, event, grade, status."""
    return _OF_LABEL.fullmatch(name.strip().lower()) is not None


def is_row_like(name: str) -> bool:
    """Return whether a column has a name of instance numbers: instance, instance_id, index, level_1, row."""
    return _OF_ROW.fullmatch(re.sub(r"[^a-z]", "", name.lower())) is not None


def find_file_column(
    frame: "pd.DataFrame", files: NameIndex, named: str | None, *, avoid: Sequence[str], where: str
) -> str:
    """Return the column that names the files: the given one, a usual name, or the only one with the most names."""
    if named is not None:
        require_columns(frame.columns, [("bag_column", named)], where)
        return named
    counts = {str(c): files.count(frame[c].dropna()) for c in frame.columns if c not in avoid}
    common = [name for name in (find_column(frame, [name]) for name in FILE_COLUMNS) if name and counts.get(name)]
    chosen = common[0] if common else max(counts, key=lambda name: counts[name], default="")
    if not counts.get(chosen):
        near = alike([*files.names, *(str(value) for c in counts for value in frame[c].dropna().unique())])
        twins = [(same[0], same[-1]) for same in near if same[0] in files.names and same[-1] not in files.names]
        differ = f"; {twins[0][0]} and {twins[0][1]} differ" if twins else ""
        raise BagDataError(
            f"Expected a column that names the files, such as {files.names[0]!r} of {files.source}, got none among "
            f"{', '.join(counts) or 'no columns'} (in {where}){differ}; name it with `bag_column`, or give the table "
            "of slides as `slides`."
        )
    positions = {c: [files.certain(value) if isinstance(value, str) else None for value in frame[c]] for c in counts}
    chosen_files = positions.pop(chosen)
    for name, other in positions.items():
        pairs = [(a, b) for a, b in zip(chosen_files, other) if a is not None and b is not None]
        as_many = len({*other} - {None}) >= max(1, len({*chosen_files} - {None}))
        if as_many and (not pairs or any(a != b for a, b in pairs)):
            raise ConfigError(
                f"Expected one column that names the files, got {chosen!r} and {name!r}, which do not name the "
                f"same files in the same rows (in {where}); say which with `bag_column`, or leave the other one out of "
                "the table."
            )
    return chosen


def split_names(values: NDArray[np.str_], where: str) -> NDArray[np.str_]:
    """Return the splits under their canonical names."""
    unknown = sorted({value for value in values.tolist() if value.lower() not in SPLIT_NAMES})
    if unknown:
        got = listed([*map(repr, unknown)], most=3)
        raise BagDataError(f"Expected a split of train, val, test, got {got} (in {where}); rename the split.")
    return np.array([SPLIT_NAMES[value.lower()] for value in values.tolist()], dtype=np.str_)


class Faults:
    """Faults of a table, by kind; messages call its rows `unit`, "line" or "row"."""

    def __init__(self, where: str, unit: str = "line") -> None:
        self._where, self._unit = where, unit
        self.messages: list[str] = []

    def add(self, expected: str, got: object, place: str, rows: Sequence[int], *, advice: str) -> None:
        """Add a fault: the value `got` at its first `place`, and all its rows, numbered as in the file."""
        numbers = listed([str(row) for row in rows], most=_SHOWN)
        more = f"; {len(rows)} such {self._unit}s: {numbers}" if len(rows) > 1 else ""
        self.messages.append(f"Expected {expected}, got {got} ({place}{more}); {advice}.")

    def add_error(self, error: BagDataError) -> None:
        """Add a fault that another function found."""
        text = str(error)
        self.messages.append(text if self._where in text else errors.with_place(error, f"in {self._where}"))

    def refuse(self) -> None:
        """Raise a `BagDataError` that lists all faults, if there are any."""
        head = f"Expected a sound table, got {len(self.messages)} kinds of faults (in {self._where}); correct them:"
        if self.messages:
            raise BagDataError(errors.fault_list(head, self.messages, most=_SHOWN))


def refuse_empty_fields(
    frame: "pd.DataFrame", columns: Iterable[str | None], request: Request, *, shown: str | None = None
) -> None:
    """Refuse empty fields of columns, all at once; messages give their lines, or their values of the column `shown`."""
    faults, labels = Faults(request.where), label_columns(frame.columns, request)
    for name in dict.fromkeys(filter(None, columns)):
        gaps = frame[frame[name].isna()]
        if len(gaps):
            lines, got, place = (gaps.index + 2).tolist(), "none", f"in {request.where}"
            if shown is None:
                place += f", line {lines[0]}"
            else:
                lines, got = [], f"none for {listed(gaps[shown].tolist(), most=_SHOWN)}"
            advice = gap_advice(request, name, "fill it in", label=name in labels)
            faults.add(f"{errors.with_article(name)} in each row", got, place, lines, advice=advice)
    faults.refuse()


def metadata(
    frame: "pd.DataFrame",
    request: Request,
    label: Sequence[str],
    group: str | None,
    split: str | None,
    *,
    ids: Sequence[str],
    of_files: bool = True,
) -> dict[str, Any]:
    """Return the outcome, groups, splits and covariates of the rows of a table, as `Bags` takes them; None if absent.

    `ids` are the names of the bags of the rows, for messages. Of a table `of_files`, warn about columns that may name
    patients; those of a table of instances are its features.
    """
    columns = {name: frame[name].tolist() for name in label}
    outcome = labels_or_none(request, lambda: code_labels(columns, request, ids=ids)) if label else None
    group = None if request.header_groups(frame.columns) else group
    if of_files and group is None and request.require_labels and not request.header_groups(frame.columns):
        free = frame.columns.difference([*label, split, *request.covariate_columns])
        others = [name for name in free if is_group_like(name) and 1 < frame[name].nunique() < len(set(ids))]
        if others:
            text = f"if {listed(others)} names patients (in {request.where}), give {given(groups=others[0])}"
            warnings.warn(f"{text}, so that no patient is in two splits", stacklevel=4)
    groups, splits = (None if name is None else frame[name].to_numpy(dtype=np.str_) for name in (group, split))
    splits = None if splits is None else split_names(splits, request.where)
    return {"outcome": outcome, "groups": groups, "splits": splits, "covariates": read_covariates(frame, request)}


def columns_of(
    frame: "pd.DataFrame", request: Request, *others: tuple[str, str | None], split_by_name: bool = True
) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the columns of the label, the group and the split; refuse a table that lacks a named column.

    `others` are further required columns, each with the parameter that names it. With `split_by_name`, the splits may
    stand in a column split that is not named.
    """
    label, group, split = label_columns(frame.columns, request), request.groups, request.split
    group = None if request.header_groups(frame.columns) else group
    if not request.require_labels:
        group, split = (name if name in frame.columns else None for name in (group, split))
    by_name = split_by_name and split is None and request.split_file is None
    if by_name and "split" in frame.columns and "split" not in label:
        split = "split"
    if request.bad_labels == "ignore":
        split = None  # scores need none
    label = label if has_labels(frame, request) else ()
    parameters = [*others, *(("label_column", name) for name in label), ("groups", group)]
    parameters += [("split", split), *request.named_covariates]
    require_columns(frame.columns, parameters, request.where)
    return label, group, split


def read_covariates(columns: Any, request: Request) -> Covariates | None:
    """Return the covariates and the site that a request names, from a frame or columns by name; None without.

    A missing column is refused. Before a training, a note describes each covariate.
    """
    if not request.covariate_columns:
        return None
    where = request.where
    require_columns(columns, request.named_covariates, where)
    values = {name: columns[name] for name in request.covariate_columns}
    covariates = Covariates.of(values, categories=request.category_columns, source=where)
    for name, column in zip(covariates.names, covariates.columns):
        missing_words = words_for_none(np.asarray(columns[name]).ravel().tolist())
        words = request.read_as_missing.get(name) or ", ".join(map(repr, missing_words))
        if words and column.dtype.kind != "f" and request.require_labels:
            text = f"{words} of column {name} counts as a missing value (in {where})"
            warnings.warn(f"{text}; if it is a category, write another word", Note, stacklevel=4)
    return noted(covariates, request, where)


def noted(covariates: Covariates, request: Request, where: str) -> Covariates:
    """Return the same covariates; before a training, note the kind of each. The site alone is not a covariate."""
    if request.require_labels and request.covariates:
        selected = covariates.select(request.covariates, source=where)
        warnings.warn(f"covariates: {selected.summary()} (in {where})", Note, stacklevel=5)
        for name, column in zip(selected.names, selected.columns):
            if count := _ids(name, column):
                kind = "whole numbers" if column.dtype.kind == "f" else "words"
                text = f"the covariate {name} seems to be an id, with {count} {kind} in {len(column)} bags"
                warnings.warn(f"{text}: leave it out (in {where})", stacklevel=5)
    return covariates


def split_sites(
    covariates: Covariates | None, request: Request, where: str
) -> tuple[NDArray[np.str_] | None, Covariates | None]:
    """Return the sites that a request names, which were read as a covariate, and the covariates that it names."""
    if request.site_column is None or covariates is None:
        return None, covariates
    (column,) = covariates.select([request.site_column], source=where).columns
    sites = site_array(column, where)
    if request.require_labels:
        names = np.unique(sites[sites != ""]).tolist()
        message = f"sites: {len(names)} in the column {request.site_column} ({listed(names)}) (in {where})"
        warnings.warn(message, Note, stacklevel=4)
    return sites, covariates.select(request.covariates, source=where) if request.covariates else None


def _ids(name: str, column: NDArray[Any]) -> int:
    """Count the ids in a covariate [N] that is named as ids and holds many; 0 for others, such as names of sites."""
    values = column[~forms.missing_of(column)]
    count = len(np.unique(values))
    if column.dtype.kind == "f":
        called = errors.is_id_like(name) or is_group_like(name) or (is_row_like(name) and count == len(values))
        called = called and bool((values == np.round(values)).all())
    else:
        called = is_group_like(name) and "group" not in name.lower()
    return count if called and count > _SEVERAL else 0


MOST, ROWS = 100, 5  # text of at most so many values, each in so many rows on average, is categories
_OF_TIME = re.compile(r".*(time|date|stamp|unix|epoch).*|(.*[^a-z])?ts([^a-z].*)?")
_SECONDS, _SPAN = 9e8, 1.3e9  # unix seconds from 1998 to 2039
_DIGITS = r"(\d+|\d{1,3}([.' ]\d{3}|,\d{2,3})+)([.,]\d*)?"  # 1,000.50; not a version, such as 2.1.0
_AMOUNT = re.compile(rf"[-+(]?\s*[$\u00a3\u20ac\u00a5]?\s*[-+]?{_DIGITS}\s*([%$\u00a3\u20ac\u00a5]|[A-Z]{{3}})?\)?")
_BAGS = 3  # of each category on average, if each bag has one
_TRUE, _FALSE = {"true", "yes", "t", "y"}, {"false", "no", "f", "n"}
FEW = 8  # bags: with no more of them, a column may look like ids by chance
_CODES = 3  # from so many different whole numbers on, they may be codes


class Kinds(NamedTuple):
    """The table with its features as numbers, their names, their kinds, and a note on each that was not a number."""

    frame: "pd.DataFrame"
    features: list[str]
    columns: list[Column] | None
    notes: dict[str, str]

    def report(self, where: str) -> None:
        """Note the kinds of columns, and warn about numbers in columns with names of codes."""
        if self.notes:
            shown = ", ".join(f"{name} ({note})" for name, note in self.notes.items())
            kept = [name for name in self.notes if name in self.features]
            leave = f"; leave out columns that are not features with {given(ignore=kept[-1:])}" if kept else ""
            text = f"columns that are not plain numbers: {shown} (in {where}){leave}"
            warnings.warn(text, Note, stacklevel=6)
        coded = [column.name for column in self.columns or () if column.kind != "number"]
        codes, taken = [], {*coded, *self.notes}
        for name in self.features:
            values, is_code = self.frame[name].dropna(), is_code_like(name)
            named = is_code or errors.is_id_like(name)
            if name in taken or values.empty or not (named or float(values.max()) >= 19000101):
                continue
            distinct = np.unique(values.to_numpy(dtype=np.float64))
            whole = bool((distinct == np.floor(distinct)).all())
            if len(distinct) < _CODES or not (whole or is_code):
                continue
            if whole and (instead := _times_in(name, distinct)):
                text = f"column {name} is read as a plain number, but {distinct[0]:.0f} may be a time"
                warnings.warn(f"{text}: write times as {instead} (in {where})", stacklevel=6)
            elif is_code or (named and ROWS * len(distinct) <= len(values)):
                codes.append(name)
        if codes:
            text = f"numbers in {listed(codes)} are read as amounts: if they are codes"
            warnings.warn(f"{text}, give {given(categories=codes)} (in {where})", stacklevel=6)


def _times_in(name: str, distinct: NDArray[np.float64]) -> str | None:
    """Return how to write times that all these whole numbers seem to be: 20230131, or seconds since 1970."""
    if dates := forms.packed_dates(distinct):
        return dates[1]
    scale = max((scale for scale in (1.0, 1e3, 1e6, 1e9) if _SECONDS * scale <= distinct[0]), default=0.0)
    if not scale or distinct[-1] > (_SECONDS + _SPAN) * scale or not _OF_TIME.fullmatch(name.lower()):
        return None
    return f"{np.datetime64(int(distinct[0] / scale), 's')}".replace("T", " ")


def read_kinds(
    frame: "pd.DataFrame",
    features: Sequence[str],
    codes: NDArray[np.int64],
    request: Request,
    faults: Faults,
    *,
    labels: Sequence[NDArray[np.float64]],
) -> Kinds:
    """Read feature columns with the kinds of a run, or with kinds inferred from the values; other text stays as it is.

    `codes` [M] are the bags of the rows, and `labels` the known labels of the bags, each as numbers [N].
    """
    where = request.where
    of_instances = [name for name in request.categories if name not in request.covariate_columns]
    wanted = [("categories", name) for name in of_instances if request.features is None]
    require_columns(features, wanted, where)
    columns, changed, notes = list[Column](), dict[str, Any](), dict[str, str]()
    firsts = np.unique(codes, return_index=True)[1]
    new = not request.require_labels and len(firsts) <= FEW
    for name in features:
        raw, kind = frame[name], "" if request.kinds is None else request.kinds.get(name, "number")
        if name in request.categories or (not kind and isinstance(raw.dtype, pd.CategoricalDtype)):
            kind = "category"
        values = raw if kind == "category" else plain_numbers(raw)
        if raw is not values:
            changed[name] = values
            if any(isinstance(value, timedelta) for value in raw.dropna().iloc[:1]):
                notes[name] = "durations, in seconds"
        if request.features is None and not kind and errors.is_id_like(name) and _names_rows(values, firsts):
            notes[name] = "an id of each row, left out"
            continue
        words: tuple[str, ...] = ()
        names: tuple[str, ...] = ()
        made, of_row = None, codes
        if kind == "category" or not pd.api.types.is_numeric_dtype(values):
            words, of_row = _words(values, f"{where}, column {name}")
        kind = kind or _kind(name, values, words, of_row, firsts[codes], labels=None if new else labels)
        try:
            if kind == "category":
                made, names = _places(words, of_row, name, where)
                if name not in request.categories:
                    notes[name] = f"{len(names)} categories"
            elif kind == "time" and (times := _times(values, words, of_row, name, where)) is not None:
                made, names = times
                zones = listed([f"UTC{offset}" if offset else "no zone" for offset in names])
                notes[name] = f"dates, hour and weekday as written: {zones}" if names else "dates"
            elif kind == "number" and words and (numbers := _numbers(words)) is not None:
                made, notes[name] = numbers[0][of_row], numbers[1]
        except BagDataError as error:
            faults.add_error(error)
            made = np.zeros(len(frame))
        columns.append(Column(name, "number" if made is None else kind, names))  # type: ignore[arg-type]
        if made is not None:
            changed[name] = made
    kept = [column.name for column in columns]
    plain = all(column.kind == "number" for column in columns)
    return Kinds(frame.assign(**changed) if changed else frame, kept, None if plain else columns, notes)


def _words(values: "pd.Series[Any]", where: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct values of a column as categories, with "" (missing) last, and the place of each row."""
    of_row, distinct = pd.factorize(values)
    words = (*(forms.category_of(value, where) for value in distinct), "")
    return words, np.where(of_row < 0, len(words) - 1, of_row)


def _kind(
    name: str,
    values: "pd.Series[Any]",
    words: tuple[str, ...],
    of_row: NDArray[np.int64],
    firsts: NDArray[np.intp],
    *,
    labels: Sequence[NDArray[np.float64]] | None,
) -> str:
    """Return the kind of a column; "" for text to refuse: many values, nearly numbers, patients, splits, or a label.

    `firsts` [M] is the first row of the bag of each row. Of text with one value in each bag, bags count instead of
    rows. New bags, whose `labels` are None, may hold each category once.
    """
    known = {word.casefold() for word in words if word}
    if not known:
        return "number"
    if is_group_like(name):
        return ""
    if pd.api.types.is_datetime64_any_dtype(values) or forms.are_dates(words):
        return "time"
    if _numbers(words):
        return "number"
    bags = np.unique(firsts)
    constant = len(bags) < len(firsts) and bool((of_row == of_row[firsts]).all())
    if constant and (known <= SPLIT_NAMES.keys() or _tells(name, of_row[bags], labels or ())):
        return ""
    rows, least = (of_row[bags], _BAGS) if constant and len(bags) > FEW else (of_row, ROWS)
    often = labels is None or int((rows < len(words) - 1).sum()) >= least * len(known)
    numbers = [word for word in known if number_of(word) is not None or _AMOUNT.fullmatch(word.upper())]
    return "category" if often and len(known) <= MOST and 2 * len(numbers) < len(known) else ""


def holds_amounts(values: "pd.Series[Any]") -> bool:
    """Return whether most texts of a column are amounts such as 5%, $5.00 and 1,000."""
    words = values.dropna().astype(str).str.strip().str.upper().unique().tolist()
    return 2 * sum(_AMOUNT.fullmatch(word) is not None for word in words) > len(words)


def _tells(name: str, values: NDArray[np.int64], labels: Sequence[NDArray[np.float64]]) -> bool:
    """Return whether values [N] of bags tell a label: by the name of the column, or as each value has one label."""
    if is_label_like(name):
        return True
    repeated = FEW < len(values) >= 2 * len(np.unique(values))
    ends = [pd.Series(label).groupby(values).agg(["min", "max"]).dropna() for label in labels if repeated]
    return any((end["min"] == end["max"]).all() and end["min"].nunique() > 1 for end in ends)


def _places(
    words: tuple[str, ...], of_row: NDArray[np.int64], name: str, where: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the place of each row's category, -1 if missing, and the categories, which ignore case."""
    spelled = merge_words([word for word in words if word], f"categories of column {name}", source=where)
    names = tuple(sorted(spelled.values()))
    warn_of_alike({f"categories of column {name}": names}, source=where)
    place = {word.casefold(): number for number, word in enumerate(names)}
    return np.array([place.get(word.casefold(), -1) for word in words], dtype=np.float64)[of_row], names


def _times(
    values: "pd.Series[Any]", words: tuple[str, ...], of_row: NDArray[np.int64], name: str, where: str
) -> tuple[NDArray[np.float64], tuple[str, ...]] | None:
    """Return a column of times as `with_zones` does; None for another column."""
    if not pd.api.types.is_datetime64_any_dtype(values):
        days = forms.days_of(words, name, where, kind="column") if words else None
        if days is None:
            return None
        return forms.with_zones(days[of_row], np.array([*map(forms.zone_of, words)])[of_row].tolist())
    utc = pd.to_datetime(values, utc=True)
    days = forms.days_since(utc.dt.tz_localize(None).to_numpy(dtype="datetime64[ms]"))
    zone = getattr(getattr(values.dtype, "pyarrow_dtype", values.dtype), "tz", None)
    if zone is None:
        return days, ()
    shifts = utc.dt.tz_convert(zone).dt.tz_localize(None) - utc.dt.tz_localize(None)
    of_row, distinct = pd.factorize(shifts)
    offsets = np.array([*map(forms.offset_words, [*distinct, *distinct[:1]])] or [""])  # the last where missing
    return forms.with_zones(days, offsets[of_row].tolist())


def _numbers(words: tuple[str, ...]) -> tuple[NDArray[np.float64], str] | None:
    """Return a number for each word and a note, if all are times of day, or stand for yes or no; otherwise None."""
    if (hours := forms.hours_of(words)) is not None:
        return hours, "times of day, in hours"
    plain = [word.casefold() for word in words]
    if not set(plain) <= {"", *_TRUE, *_FALSE}:
        return None
    values = np.array([np.nan if not word else float(word in _TRUE) for word in plain])
    return values, "1 for yes, 0 for no" if any(words) else "empty"


def _names_rows(values: "pd.Series[Any]", firsts: NDArray[np.intp]) -> bool:
    """Return whether a column has a different value, a whole number or a text, in each row of many bags."""
    if not FEW < len(firsts) < len(values) or not values.is_unique or values.isna().any():
        return False
    return not pd.api.types.is_numeric_dtype(values) or bool((values == np.floor(values)).all())
