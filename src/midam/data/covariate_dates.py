"""Covariates that are dates: as days since 1970, the same for one bag as for many, and whatever was read before."""

import re
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from midam.errors import BagDataError, Note

_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86400
_ISO = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d.*)?")
_OTHER = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([T ,]+\d.*)?")
_FEWEST = 3  # so many numbers that all could be dates written together are hardly anything else


def days_of(words: Sequence[str], name: str, source: str) -> NDArray[np.float64] | None:
    """Days since 1970-01-01 of the texts [N], NaN where one is empty; None of others, with a note of dates.

    Dates are written as 2023-01-31, with or without a time. Those in another order, those that no calendar has, and
    other texts among dates are refused: they would be one category a day.
    """
    given = [word for word in words if word]
    dates = [word for word in given if _ISO.fullmatch(word) or _OTHER.fullmatch(word)]
    if not given or 2 * len(dates) <= len(given):
        return None
    days = {word: _days(word) for word in given}
    wrong = [word for word, day in days.items() if day is None]
    if wrong:
        raise BagDataError(
            f"Expected dates as 2023-01-31 in the covariate {name!r}, got {wrong[0]!r} (in {source}); write all dates "
            "so, or a number instead, such as the age."
        )
    _note(f"the covariate {name} holds dates, which are read as days since 1970-01-01", source)
    return np.array([days.get(word) for word in words], dtype=np.float64)


def days_of_times(times: NDArray[np.datetime64], name: str, source: str) -> NDArray[np.float64]:
    """As `days_of`, of an array of times; NaT is NaN."""
    _note(f"the covariate {name} holds dates, which are read as days since 1970-01-01", source)
    seconds = times.astype("datetime64[ms]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / (1000 * _DAY))


def note_of_packed_dates(numbers: NDArray[np.float64], name: str, source: str) -> None:
    """Say of numbers that all could be dates such as 20230131, or 20230131235959, that they count no days."""
    known = np.unique(numbers[~np.isnan(numbers)])
    dates = known // (1 if not len(known) or known[0] < 1e8 else 10_000 if known[0] < 1e12 else 1_000_000)
    if len(known) >= _FEWEST and (known == known // 1).all() and 19000101 <= dates[0] <= dates[-1] < 21010101:
        texts = [f"{number:.0f}" for number in known]
        if all(_days(f"{text[:4]}-{text[4:6]}-{text[6:8]}") is not None for text in texts):
            text = f"the covariate {name} may hold dates, as {texts[0]}, and is read as a plain number"
            _note(f"{text}: write them as {texts[0][:4]}-{texts[0][4:6]}-{texts[0][6:8]} to count days", source)


def _days(word: str) -> float | None:
    if not _ISO.fullmatch(word):
        return None
    date, *time = re.split("[T ]", word, maxsplit=1)
    text = "T".join(["-".join(part.zfill(2) for part in date.split("-")), *time])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return (found - _ORIGIN).total_seconds() / _DAY


def _note(text: str, source: str) -> None:
    warnings.warn(f"{text} (in {source})", Note, stacklevel=6)
