"""Covariates: metadata of bags, such as age, sex and stage of a patient; and the kinds of instance columns."""

import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import as_array, check_length, refuse_other_order, usable, wanted
from midam.errors import BagDataError, Note, given, listed, nearest
from midam.names import EXACT, is_missing, merge_words, name_of, names_of

Kind = Literal["number", "category"]
_MISSING = frozenset({"?", "<na>", "n/a", "na", "nan", "nat", "null"})  # besides those of `is_missing`
_COMMAS = re.compile(r"[+-]?\d*(,\d+)+")  # of decimals, or between thousands
TRUTHS = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}
_CODE = re.compile(r"0\d+(\.\d*)?")  # 0117 is a code rather than a number
_ADVICE = "correct it, or leave the field empty where the value is not known"
_FEWEST = 3  # from so many numbers on that all look like 20230131, they are taken for dates
_MOST_CODES, _ROWS_OF_CODE = 100, 5  # of few values, often repeated
_FEW = 20  # with at most so many different values, numbers may be categories


@dataclass(frozen=True, eq=False)
class Covariates:
    """Raw columns of N bags, as they were read; a coder that is fitted on training bags encodes them.

    A column of numbers alone holds numbers; true and false become 1 and 0, dates such as 2023-01-31, 2023-01, 2023-W05
    and 2023-Q1 days since 1970-01-01, and times of day such as 14:05 hours; any other column holds categories. An empty
    field, None, NaN and the words NA, N/A, None, null and ? count as missing.

    Attributes
    ----------
    names : tuple of str
        Unique, at least one.
    columns : tuple of arrays [N]
        Numbers as float64, NaN where they are missing; categories as str, empty where they are missing.

    Examples
    --------
    >>> covariates = Covariates.of({"age": [63, None, 71.5], "sex": ["f", "m", ""]})
    >>> covariates.summary()
    'age (number, 1 missing), sex (category: f, m; 1 missing)'
    """

    names: tuple[str, ...]
    columns: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, columns: Mapping[str, ArrayLike], *, categories: Collection[str] = (), source: str = "memory") -> Self:
        """Make covariates from columns [N] by name: numbers, strings, booleans or None.

        Columns among `categories` hold categories, even if all their values look like numbers.

        A `BagDataError` names a value that does not fit its column, such as infinity or a word among numbers.

        1, 1.0 and "1" are the same category, and so are words that differ only in case or in blanks around them; texts
        that differ in zeros, such as "1" and "01", are different ones.
        """
        names, values = tuple(map(name_of, columns)), columns.values()
        refuse_other_order(*values)
        return cls(names, tuple(_column(name, x, source, worded=name in categories) for name, x in zip(names, values)))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kind of each column."""
        return tuple("number" if column.dtype.kind == "f" else "category" for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def subset(self, index: Any) -> Self:
        """Return the covariates of the bags at these positions [n], or of a mask [N]."""
        return type(self)(self.names, tuple(column[index] for column in self.columns))

    def select(self, names: Sequence[str], *, source: str) -> Self:
        """Return the columns with these names, in this order; a `BagDataError` names a missing one."""
        for name in names:
            if name not in self.names:
                got = f"{', '.join(self.names)} (in {source}); {nearest(name, self.names)}"
                raise BagDataError(f"Expected the covariate {name!r}, got {got}")
        return type(self)(tuple(names), tuple(self.columns[self.names.index(name)] for name in names))

    def summary(self) -> str:
        """Describe the columns in a line."""
        return ", ".join(map(_summary, self.names, self.columns))

    def values(self) -> dict[str, list[Any]]:
        """Return the values by name, ready for JSON: numbers, strings, None if they are missing."""
        columns = zip(self.names, self.columns)
        return {name: np.where(missing_of(x), np.array(None), x.astype(object)).tolist() for name, x in columns}

    def check(self, ids: NDArray[np.str_], source: str) -> None:
        """Refuse covariates without columns, with duplicate names, or without one value for each bag."""
        if not self.names or len(set(self.names)) < len(self.names):
            got = f"{', '.join(self.names) or 'none'} (in {source}); rename them, or leave them out"
            raise BagDataError(f"Expected covariates of different names, got {got}.")
        for name, column in zip(self.names, self.columns):
            check_length(column, len(ids), f"value of the covariate {name!r}", source)


class Column(NamedTuple):
    """A column of instances; `midam.data.column_codes` turns columns into features if some are not numbers.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : {"number", "category", "time"}
        For categories, the instances hold positions in `words` (-1: missing); for times, days since 1970-01-01.
    words : tuple of str
        The categories.
    """

    name: str
    kind: Literal["number", "category", "time"] = "number"
    words: tuple[str, ...] = ()


def missing_of(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a column [N] has no value."""
    return np.isnan(column) if column.dtype.kind == "f" else column == ""


def category_of(value: object, where: str = "memory") -> str:
    """Return a value as a category: text as it is written, without blanks around it; a number in its shortest form.

    A missing value is "".
    """
    text = "" if value is None else names_of([value if isinstance(value, bytes) else str(value)], where)[0]
    if is_missing(text) or text.casefold() in _MISSING:
        return ""
    if isinstance(value, str | bytes) or text.removeprefix("-").isdecimal():
        return text  # 0117 and 117 are two codes; long whole numbers stay exact
    number = number_of(text)
    return text if number is None else str(int(number)) if number == int(number) else repr(number)


def number_of(text: str) -> float | None:
    """Return the finite number that a text stands for; None for another text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None  # Python reads 1_000 as a number


def example_of_codes(words: Sequence[str]) -> str:
    """Return what shows that numbers may be codes: a word that begins with 0, or two of few words that are one number.

    It is a phrase, "such as 250.1 and 250.10"; "" if there is neither.
    """
    begins = next((word for word in words if _CODE.fullmatch(word)), None)
    if begins is not None:
        return f"such as {begins}, which begins with 0"
    distinct, seen = dict.fromkeys(words), dict[float | None, str]()
    if len(distinct) > _MOST_CODES or _ROWS_OF_CODE * len(distinct) > len(words):
        return ""
    for word in sorted(distinct, key=lambda word: number_of(word) or 0.0):
        other = seen.setdefault(number_of(word), word)
        if other != word and number_of(word) is not None:
            return f"such as {other} and {word}"
    return ""


def _column(name: str, values: ArrayLike, source: str, *, worded: bool) -> NDArray[Any]:
    array = as_array(values)
    if array.dtype.kind == "M":
        _note(f"the covariate {name} holds dates, which are read as days since 1970-01-01", source)
        return days_since(array)
    if array.dtype.kind == "m":
        return array / np.timedelta64(1, "s")
    large = array.dtype.kind in "iu" and bool((array >= EXACT).any())
    if array.dtype.kind in "biuf" and not (large or worded):
        numbers = array.astype(np.float64)
        _check_usable(name, numbers, source)
        _note_of_packed_dates(numbers, name, source)
        return numbers
    words = [category_of(x, f"{source}, covariate {name}") for x in as_array(values, object).ravel().tolist()]
    nonempty = [word for word in words if word]
    truths = {word.casefold() for word in nonempty} <= TRUTHS.keys()
    parsed = {word: TRUTHS[word.casefold()] if truths else number_of(word) for word in nonempty}
    texts = nonempty if worded else [word for word, number in parsed.items() if number is None]
    if not texts:
        _check_usable(name, np.array([parsed[word] for word in nonempty], dtype=np.float64), source)
    if not texts and not any(word.isdecimal() and int(word) >= EXACT for word in parsed):
        numbers = np.array([parsed.get(word) for word in words], dtype=np.float64)
        _note_of_packed_dates(numbers, name, source)
        if alike := example_of_codes(nonempty):
            text = f"numbers in the covariate {name} may be codes, {alike}: if so"
            _note(f"{text}, train with {given(categories=[name])}", source)
        return numbers.reshape(array.shape)
    if texts and not worded:  # other columns hold categories, or whole numbers that float64 cannot distinguish: names
        of_day, since = "times of day, which are read as hours", "dates, which are read as days since 1970-01-01"
        for times, words_for in ((hours_of(words), of_day), (days_of(words, name, source), since)):
            if times is not None:
                _note(f"the covariate {name} holds {words_for}", source)
                return times.reshape(array.shape)
        _refuse_nearly_numbers(name, parsed, texts, source)
    # Words that differ only in case are all written as the first of them.
    spelled = merge_words(nonempty, f"categories of the covariate {name!r}", source=source) | {"": ""}
    return np.array([spelled[word.casefold()] for word in words], dtype=np.str_).reshape(array.shape)


def _check_usable(name: str, numbers: NDArray[np.float64], source: str) -> None:
    """Refuse infinite numbers, and numbers too large for models."""
    for got in numbers[~usable(numbers) & ~np.isnan(numbers)][:1]:
        raise BagDataError(f"Expected {wanted(got)} in the covariate {name!r}, got {got:g} (in {source}); {_ADVICE}.")


def _refuse_nearly_numbers(name: str, parsed: Mapping[str, float | None], texts: Sequence[str], source: str) -> None:
    """Refuse a column of numbers with a typing error or commas: it would pass for categories."""
    commas = [word for word in texts if _COMMAS.fullmatch(word)]
    slip = len(parsed) > _FEW and 2 * len(texts) < len(parsed)
    if slip or len(commas) == len(texts):
        advice = "write plain numbers, such as 1000.5" if commas else _ADVICE
        text = f"Expected numbers in the covariate {name!r}, got {(commas or texts)[0]!r} (in {source}); {advice}"
        raise BagDataError(f"{text}; if these are categories, train with {given(categories=[name])}.")


def _summary(name: str, column: NDArray[Any]) -> str:
    gaps = int(missing_of(column).sum())
    gap_text = [f"{gaps} missing"] if gaps else []
    if column.dtype.kind == "f":
        return f"{name} ({', '.join(['number', *gap_text])})"
    words = listed(np.unique(column[column != ""]).tolist())
    return f"{name} ({'; '.join([f'category: {words}', *gap_text])})"


_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400
_ISO = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d.*)?")
_PART = "(0?[1-9]|[12][0-9]|3[01])"  # of a date: its day or month
# Not a version, such as 2.1.0.
_OTHER = re.compile(rf"(\d{{4}}([./-]){_PART}\2{_PART}|{_PART}([./-]){_PART}\6(\d{{4}}|\d{{2}}))([T ,]+\d.*)?")
_SPAN = re.compile(r"((?:1[89]|2[01])\d{2})(?:-(0[1-9]|1[0-2])|-?Q([1-4])|-(W\d{2}))")  # month, quarter, week
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")


def days_of(words: Sequence[str], name: str, source: str, *, kind: str = "covariate") -> NDArray[np.float64] | None:
    """Return strings [N] as days since 1970-01-01, NaN for empty strings; None if they are not dates.

    Dates are written as 2023-01-31, with or without a time, or as `date_of` takes them. Dates in another order,
    impossible dates and other texts among dates are refused, since each would become a category.
    """
    if not are_dates(words):
        return None
    days = {word: _days(word) for word in words if word}
    wrong = [word for word, day in days.items() if day is None]
    if wrong:
        other = ", or train with a number, such as the age" if kind == "covariate" else ""
        advice = f"write all dates in this form{other}"
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", wrong[0]):
            advice = "correct this day, which no calendar has"
        got = f"{wrong[0]!r} (in {source}); {advice}; if these are categories, train with {given(categories=[name])}"
        raise BagDataError(f"Expected dates as 2023-01-31 in the {kind} {name!r}, got {got}.")
    return np.array([days.get(word) for word in words], dtype=np.float64)


def are_dates(words: Sequence[str]) -> bool:
    """Return whether most of the words that are not empty are dates in some order."""
    nonempty = [word for word in words if word]
    return 2 * sum(any(form.fullmatch(word) for form in (_ISO, _OTHER, _SPAN)) for word in nonempty) > len(nonempty)


def hours_of(words: Sequence[str]) -> NDArray[np.float64] | None:
    """Return times of day [N], such as 14:05 and 14:05:30, as hours, NaN for empty strings; None for other words."""
    clocks = {word: _CLOCK.fullmatch(word) for word in words if word}
    if not clocks or not all(clocks.values()):
        return None
    parts = [clock.groups("0") if (clock := clocks.get(word)) else ("nan",) * 3 for word in words]
    return np.array(parts, dtype=np.float64) @ [1, 1 / 60, 1 / 3600]


def date_of(word: str) -> str:
    """Return the first day of a month, quarter or week, such as 2023-01, 2023-Q1 and 2023-W05; other text as it is."""
    span = _SPAN.fullmatch(word)
    if span is None:
        return word
    year, month, quarter, week = span.groups()
    if not week:
        return f"{year}-{int(month or 3 * int(quarter) - 2):02}-01"
    try:
        return f"{datetime.fromisoformat(word):%Y-%m-%d}"
    except ValueError:  # week 53 of a year of 52
        return word


def days_since(times: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Return times as days since 1970-01-01; NaT becomes NaN."""
    seconds = times.astype("datetime64[ms]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / (1000 * _DAY))


def _note_of_packed_dates(numbers: NDArray[np.float64], name: str, source: str) -> None:
    """Note that numbers look like dates such as 20230131 or 20230131235959, and are read as plain numbers."""
    if dates := packed_dates(numbers):
        text = f"the covariate {name} is read as a plain number, but {dates[0]} may be a date"
        _note(f"{text}: write dates as {dates[1]} to count days", source)


def packed_dates(numbers: NDArray[np.float64]) -> tuple[str, str] | None:
    """Return the first number and its date as text if all are dates such as 20230131 or 20230131235959."""
    distinct = np.unique(numbers[~np.isnan(numbers)])
    dates = distinct // (1 if not len(distinct) or distinct[0] < 1e8 else 10_000 if distinct[0] < 1e12 else 1_000_000)
    if len(distinct) < _FEWEST or (distinct != distinct // 1).any() or not 19000101 <= dates[0] <= dates[-1] < 21010101:
        return None
    texts = [f"{number:.0f}" for number in distinct]
    words = [f"{text[:4]}-{text[4:6]}-{text[6:8]}" for text in texts]
    return (texts[0], words[0]) if all(_days(word) is not None for word in words) else None


def _days(word: str) -> float | None:
    """Return the time that a text states as days since 1970-01-01, in UTC if it has an offset; None for other text."""
    if not _ISO.fullmatch(word := date_of(word)):
        return None
    date, *time = re.split("[T ]", word, maxsplit=1)
    text = "T".join(["-".join(part.zfill(2) for part in date.split("-")), *time])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _ORIGIN).total_seconds() / _DAY


def _note(text: str, source: str) -> None:
    warnings.warn(f"{text} (in {source})", Note, stacklevel=6)
