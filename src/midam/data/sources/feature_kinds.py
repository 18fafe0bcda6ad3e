"""Kinds of a table's feature columns: numbers, truth values, dates or categories; and ids, which are left out."""

import re
import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data import covariates
from midam.data.sources import table_columns as tables
from midam.data.sources.request import Request
from midam.errors import BagDataError, Note, given, listed
from midam.lazy_imports import pandas as pd
from midam.names import merge_words, warn_of_alike
from midam.synonyms import is_id_like

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
    columns: list[covariates.Column] | None
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
            values, is_code = self.frame[name].dropna(), tables.is_code_like(name)
            named = is_code or is_id_like(name)
            if name in taken or values.empty or not (named or values.max() >= 19000101):
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
    if dates := covariates.packed_dates(distinct):
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
    faults: tables.Faults,
    *,
    labels: Sequence[NDArray[np.float64]],
) -> Kinds:
    """Read feature columns with the kinds of a run, or with kinds inferred from the values; other text stays as it is.

    `codes` [M] are the bags of the rows, and `labels` the known labels of the bags, each as numbers [N].
    """
    where = request.where
    of_instances = [name for name in request.categories if name not in request.covariate_columns]
    wanted = [("categories", name) for name in of_instances if request.features is None]
    tables.require_columns(features, wanted, where)
    columns, changed, notes = list[covariates.Column](), dict[str, Any](), dict[str, str]()
    firsts = np.unique(codes, return_index=True)[1]
    new = not request.require_labels and len(firsts) <= FEW
    for name in features:
        raw, kind = frame[name], "" if request.kinds is None else request.kinds.get(name, "number")
        if name in request.categories or (not kind and isinstance(raw.dtype, pd.CategoricalDtype)):
            kind = "category"
        values = raw if kind == "category" else tables.plain_numbers(raw)
        if raw is not values:
            changed[name] = values
            if any(isinstance(value, timedelta) for value in raw.dropna().iloc[:1]):
                notes[name] = "durations, in seconds"
        if request.features is None and not kind and is_id_like(name) and _names_rows(values, firsts):
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
        columns.append(covariates.Column(name, "number" if made is None else kind, names))  # type: ignore[arg-type]
        if made is not None:
            changed[name] = made
    kept = [column.name for column in columns]
    plain = all(column.kind == "number" for column in columns)
    return Kinds(frame.assign(**changed) if changed else frame, kept, None if plain else columns, notes)


def _words(values: "pd.Series[Any]", where: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct values of a column as categories, with "" (missing) last, and the place of each row."""
    of_row, distinct = pd.factorize(values)
    words = (*(covariates.category_of(value, where) for value in distinct), "")
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
    if tables.is_group_like(name):
        return ""
    if pd.api.types.is_datetime64_any_dtype(values) or covariates.are_dates(words):
        return "time"
    if _numbers(words):
        return "number"
    bags = np.unique(firsts)
    constant = len(bags) < len(firsts) and bool((of_row == of_row[firsts]).all())
    if constant and (known <= tables.SPLIT_NAMES.keys() or _tells(name, of_row[bags], labels or ())):
        return ""
    rows, least = (of_row[bags], _BAGS) if constant and len(bags) > FEW else (of_row, ROWS)
    often = labels is None or int((rows < len(words) - 1).sum()) >= least * len(known)
    numbers = [word for word in known if covariates.number_of(word) is not None or _AMOUNT.fullmatch(word.upper())]
    return "category" if often and len(known) <= MOST and 2 * len(numbers) < len(known) else ""


def holds_amounts(values: "pd.Series[Any]") -> bool:
    """Return whether most texts of a column are amounts such as 5%, $5.00 and 1,000."""
    words = values.dropna().astype(str).str.strip().str.upper().unique().tolist()
    return 2 * sum(_AMOUNT.fullmatch(word) is not None for word in words) > len(words)


def _tells(name: str, values: NDArray[np.int64], labels: Sequence[NDArray[np.float64]]) -> bool:
    """Return whether values [N] of bags tell a label: by the name of the column, or as each value has one label."""
    if tables.is_label_like(name):
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
        days = covariates.days_of(words, name, where, kind="column") if words else None
        if days is None:
            return None
        return covariates.with_zones(days[of_row], np.array([*map(covariates.zone_of, words)])[of_row].tolist())
    utc = pd.to_datetime(values, utc=True)
    days = covariates.days_since(utc.dt.tz_localize(None).to_numpy(dtype="datetime64[ms]"))
    zone = getattr(getattr(values.dtype, "pyarrow_dtype", values.dtype), "tz", None)
    if zone is None:
        return days, ()
    shifts = utc.dt.tz_convert(zone).dt.tz_localize(None) - utc.dt.tz_localize(None)
    of_row, distinct = pd.factorize(shifts)
    offsets = np.array([*map(covariates.offset_words, [*distinct, *distinct[:1]])] or [""])  # the last where missing
    return covariates.with_zones(days, offsets[of_row].tolist())


def _numbers(words: tuple[str, ...]) -> tuple[NDArray[np.float64], str] | None:
    """Return a number for each word and a note, if all are times of day, or stand for yes or no; otherwise None."""
    if (hours := covariates.hours_of(words)) is not None:
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
