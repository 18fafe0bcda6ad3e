"""Codes that turn columns of instances into numbers: categories, dates and missing values.

They are learned from training bags and kept with the model.
"""

import warnings
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.covariate_codes import Code, Coder, category_code
from midam.data.covariates import Column, category_of, without_zones
from midam.data.missing import fill_values, impute, missing_counts, missing_shares, place_name
from midam.data.on_disk import on_disk
from midam.errors import BagDataError, ConfigError, Note, given, listed
from midam.names import name_of
from midam.settings.data import DataSettings, TimeFeature

_SHOWN = 3  # columns in a note
MOST = 100  # categories of a column that get a feature each, at most
_WEEK, _THURSDAY, _HOURS = 7, 3, 24  # 1970-01-01 was a Thursday, day 3 of a week that begins on Monday


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class ColumnCode:
    """Code that turns one column of instances into features.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : {"number", "category", "time"}
        A number stays as it is.
    category : Code, optional
        Features of a category.
    times : tuple of str
        Features of a time.
    missing : bool
        Whether a last feature marks missing numbers or times.
    zoned : bool, optional
        Whether the times had a time zone in training; None for a run of before, whose hours and weekdays are in UTC.
    """

    name: Annotated[str, AfterValidator(name_of)]
    kind: Literal["number", "category", "time"]
    category: Code | None = None
    times: tuple[TimeFeature, ...] = ()
    missing: bool = False
    zoned: bool | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.kind == "category":
            return () if self.category is None else self.category.features
        names = (self.name,) if self.kind == "number" else tuple(f"{self.name} {part}" for part in self.times)
        return (*names, f"{self.name} missing") if self.missing else names


@dataclass(frozen=True)
class ColumnCoder(Coder):
    """Encoder of raw columns of instances as features.

    A category is 1 in its own feature; a category of fewer than 3 training bags, or beyond the 100 most frequent, is 1
    only in the feature "other". A categorical column with missing values in training gets a last feature that marks
    them; with the setting `indicators`, so do numbers and times. A time becomes the setting's `time_features`: days
    since the first and until the last instance of its bag, hour, weekday (0: Monday), and days since 1970-01-01. Hour
    and weekday are those of the clock as written, days and times between instances are in UTC.

    Attributes
    ----------
    codes : tuple of ColumnCode
        One for each column, in the order of the columns.

    Examples
    --------
    >>> columns = [Column("amount"), Column("channel", "category", ("app", "web"))]
    >>> x = np.array([[5.0, 0.0], [6.0, 1.0], [7.0, 0.0], [8.0, 0.0]])
    >>> bags = Bags(x, sizes=[2, 1, 1], feature_names=["amount", "channel"], columns=columns)
    >>> coder = ColumnCoder.fit(bags, DataSettings())
    >>> coder.features
    ('amount', 'channel=app', 'channel other')
    >>> coder.encode(bags)[0].tolist()
    [[5.0, 1.0, 0.0], [6.0, 0.0, 1.0]]
    """

    codes: tuple[ColumnCode, ...]

    @classmethod
    def fit(cls, train: Bags, settings: DataSettings) -> Self | None:
        """Learn codes from training bags; return None if all columns stay as they are.

        A time column whose features do not vary is left out with a warning, as is a categorical column without a
        category in 3 bags, unless its values are missing in part.
        """
        if train.columns is None and not settings.indicators:
            return None
        columns, rows = _columns(train), train.rows()
        x, owner = train.instances[rows], np.repeat(np.arange(len(train)), train.sizes)
        coder = cls(tuple(_code(column, x[:, i], owner, train, settings) for i, column in enumerate(columns)))
        if not coder.features:
            raise BagDataError(f"Expected a column whose values differ, got none (in {train.source}); add columns.")
        return coder if train.columns is not None or any(code.missing for code in coder.codes) else None

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Kind of each column by name, for `midam.read_bags`."""
        return {code.name: code.kind for code in self.codes}

    @cached_property
    def of_categories(self) -> dict[str, str]:
        """Column of each feature that codes a category."""
        return {name: code.name for code in self.codes if code.kind == "category" for name in code.features}

    def encode(self, bags: Bags) -> Bags:
        """Return the same bags with features instead of columns; the columns are in the order of the codes.

        Warn about categories that no training bag had; refuse values of another kind than in training.
        """
        rows, parts = bags.rows(), []
        for i, (code, column) in enumerate(zip(self.codes, _columns(bags), strict=True)):
            parts += _encoded(code, column, bags.instances[:, i], rows, bags)
        features = np.stack(parts, axis=1) if parts else np.empty((len(bags.instances), 0))
        return bags.replace(instances=features, feature_names=self.features, columns=None, digests=None)


class Prepared(NamedTuple):
    """Bags of numbers without gaps, with the code and the fill values that were fitted on training bags.

    `columns` is the text of a `ColumnCoder`; `imputed` holds "how", the fill "values" of the features and "missing",
    the number of filled gaps; `gaps` [N, D] is the share of filled values of each feature in each bag; `missing` holds
    the number of missing values of each column that has some, categories too.
    """

    bags: Bags
    columns: str | None = None
    imputed: dict[str, Any] | None = None
    gaps: NDArray[np.float32] | None = None
    missing: dict[str, int] | None = None


def needs_preparing(bags: Bags, settings: DataSettings) -> bool:
    """Return whether bags need an encoding or fill values that are fitted on training bags."""
    return bags.columns is not None or (settings.impute != "none" and bool(missing_counts(bags).any()))


def prepare(bags: Bags, settings: DataSettings, *, train: Any, note: bool = False) -> Prepared:
    """Encode the columns of bags and fill their gaps as the settings say, fitted on the bags at positions `train`.

    With `note`, report the filled values.
    """
    if settings.indicators and settings.impute == "none":
        raise ConfigError(f"Expected `impute` with `indicators`, got none; add {given(impute='median')}.")
    coder = ColumnCoder.fit(bags.subset(train), settings)
    bags = bags if coder is None else coder.encode(bags)
    text = None if coder is None else coder.to_json()
    if settings.impute == "none":
        bags.check(finite=coder is not None or not on_disk(bags.instances))
        if coder is None:
            return Prepared(bags)
    numbers, categories = missing_by_column(bags, coder)
    if note:
        note_of_filled(bags, settings.impute, coder)
    if settings.impute == "none":
        return Prepared(bags, text, missing=numbers | categories)
    values = fill_values(bags.subset(train), settings.impute)
    facts = {"how": settings.impute, "values": values.tolist(), "missing": sum(numbers.values())}
    return Prepared(impute(bags, values), text, facts, missing_shares(bags), numbers | categories)


def missing_by_column(bags: Bags, coder: ColumnCoder | None) -> tuple[dict[str, int], dict[str, int]]:
    """Return the missing values of columns of numbers or times, and of categories, that have some.

    The bags are encoded by the coder, or have raw columns or none, and are not filled.
    """
    if coder is None:
        counts = missing_counts(bags)
        coded = [at for at, column in enumerate(bags.columns or ()) if column.kind == "category"]
        numbers = {place_name(bags, at): int(counts[tuple(at)]) for at in np.argwhere(counts)}
        absent = {at: int((bags.instances[bags.rows(), at] < 0).sum()) for at in coded}
        return numbers, {place_name(bags, np.array([at])): count for at, count in absent.items() if count}
    x, missing = bags.instances[bags.rows()], (dict[str, int](), dict[str, int]())
    for code, end in zip(coder.codes, np.cumsum([len(code.features) for code in coder.codes])):
        if code.features:
            last, marked = x[:, end - 1], code.features[-1] == f"{code.name} missing"
            if count := int((last == 1 if marked else np.isnan(last)).sum()):
                missing[code.kind == "category"][code.name] = count
    return missing


def missing_text(bags: Bags, coder: ColumnCoder | None, fate: str) -> str:
    """Return how many values are missing, and in which columns most; "" if none are.

    The bags are as for `missing_by_column`; `fate` says what happens to missing numbers and times.
    """
    parts = []
    for counts, words in zip(missing_by_column(bags, coder), (fate, "of categories are marked by a feature")):
        most = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]
        parts += [f"{sum(counts.values())} missing values {words}: {listed(most, most=_SHOWN)}"] if most else []
    return f"{'; '.join(parts)} (in {bags.source})" if parts else ""


def note_of_filled(
    bags: Bags, method: str, coder: ColumnCoder | None = None, *, fitted_on: str = "the training bags"
) -> None:
    """Note how many missing values are filled, what fills them, and which columns miss most."""
    fate = "are filled with " + ("0" if method == "zero" else f"the {method} of {fitted_on}")
    if text := missing_text(bags, coder, fate):
        warnings.warn(text, Note, stacklevel=4)


def _columns(bags: Bags) -> tuple[Column, ...]:
    if bags.columns is not None:
        return bags.columns
    if bags.feature_names is None:
        raise BagDataError(
            f"Expected features with names, got none (in {bags.source}); give `feature_names`, or leave out "
            "`indicators`."
        )
    return tuple(map(Column, bags.feature_names))


def _code(column: Column, x: NDArray[Any], owner: NDArray[np.int64], train: Bags, settings: DataSettings) -> ColumnCode:
    if column.kind == "category":
        return ColumnCode(column.name, "category", _category(column, x, owner, train))
    gaps = np.isnan(x)
    missing = settings.indicators and bool(gaps.any()) and not gaps.all()
    if column.kind == "number":
        return ColumnCode(column.name, "number", missing=missing)
    if gaps.all():
        _left_out(column, "no value in any training bag", train)
        return ColumnCode(column.name, "time")
    rows = np.arange(len(x))
    utc, clock = without_zones(x, column.words)
    values_of = {part: _time(part, utc, clock, rows, owner) for part in settings.time_features}
    days = np.floor(clock[~gaps]).astype("datetime64[D]")
    if (days == days.astype("datetime64[M]")).all():
        values_of.pop("weekday", None)  # months and quarters are written as their first day
    times = tuple(part for part, values in values_of.items() if np.nanmin(values) < np.nanmax(values))
    if not times:
        _left_out(column, "the same time in all training bags", train)
    return ColumnCode(column.name, "time", times=times, missing=missing and bool(times), zoned=any(column.words))


def _category(column: Column, x: NDArray[Any], owner: NDArray[np.int64], train: Bags) -> Code | None:
    """Return the code of a column; it counts bags, since a category of one bag's instances would name the bag."""
    pairs = np.unique(np.stack([owner, x.astype(np.int64)], axis=1), axis=0)[:, 1]
    counts = np.bincount(pairs[pairs >= 0], minlength=len(column.words))
    words = np.array(column.words, dtype=np.str_)
    code = category_code(column.name, words[counts > 0], counts[counts > 0], missing=bool((x < 0).any()), most=MOST)
    if code.categories or (code.missing and (x >= 0).any()):
        return code
    got = "no category in 3 of the training bags" if counts.any() else "no value in any training bag"
    _left_out(column, got, train)
    return None


def _left_out(column: Column, got: str, train: Bags) -> None:
    warnings.warn(f"the column {column.name} is left out: it has {got} (in {train.source})", stacklevel=6)


def _encoded(
    code: ColumnCode, column: Column, x: NDArray[Any], rows: NDArray[np.int64], bags: Bags
) -> list[NDArray[Any]]:
    if code.kind == "category":
        return [] if code.category is None else [*_one_hot(code.category, column, x, rows, bags).T]
    gaps = np.isnan(x)
    if column.kind != code.kind and not gaps[rows].all():
        raise BagDataError(
            f"Expected the column {code.name!r} to hold {_KINDS[code.kind]} as in training, got {_KINDS[column.kind]} "
            f"(in {bags.source}); correct it, or leave its fields empty."
        )
    if code.kind == "number":
        features = [x]
    else:
        owner = np.repeat(np.arange(len(bags)), bags.sizes)
        utc, clock = without_zones(x, column.words if column.kind == "time" else ())
        if code.zoned is not None and code.zoned != any(column.words) and not gaps[rows].all():
            had, has = ("have no time zone", "had one") if code.zoned else ("have a time zone", "had none")
            text = f"the times of {code.name} {had}, and {has} in training: hour and weekday are read as written"
            warnings.warn(f"{text} (in {bags.source})", stacklevel=4)
        features = [_time(part, utc, utc if code.zoned is None else clock, rows, owner) for part in code.times]
    return [*features, gaps.astype(np.float64)] if code.missing else features


_KINDS = {"number": "numbers", "category": "categories", "time": "dates"}


def _one_hot(code: Code, column: Column, x: NDArray[Any], rows: NDArray[np.int64], bags: Bags) -> NDArray[np.float64]:
    words: tuple[str, ...] = column.words
    if column.kind != "category":  # bags read without the run may hold only numbers, or nothing
        values, of_row = np.unique(np.where(np.isnan(x), np.nan, x), return_inverse=True)
        words, x = tuple(category_of(float(value)) for value in values), of_row.astype(np.float64)
    return code.one_hot(words, x.astype(np.int64), used=rows, kind="column", source=bags.source)


def _time(
    part: TimeFeature, days: NDArray[Any], clock: NDArray[Any], rows: NDArray[np.int64], owner: NDArray[np.int64]
) -> NDArray[Any]:
    """Return a feature of times: days since 1970-01-01 in UTC, and by the clock as written.

    `owner` is the bag of each of the `rows`.
    """
    if part == "days":
        return days
    if part == "hour":
        return clock % 1 * _HOURS
    if part == "weekday":
        return (np.floor(clock) + _THURSDAY) % _WEEK
    first = part == "since-first"
    ends = np.full(owner[-1] + 1, np.inf if first else -np.inf)
    (np.fmin if first else np.fmax).at(ends, owner, days[rows])
    elapsed = np.zeros(len(days))
    elapsed[rows] = np.abs(days[rows] - ends[owner])
    elapsed[np.isnan(days)] = np.nan
    return elapsed


def refuse_columns(bags: Bags, caller: str) -> None:
    """Refuse bags with columns that are not numbers yet."""
    if bags.columns is not None:
        names = [column.name for column in bags.columns if column.kind != "number"]
        raise BagDataError(
            f"Expected numbers for {caller}, got categories or dates in {listed(names)} (in {bags.source}); train with "
            f"`midam fit` or an estimator, which encode them, or leave them out with {given(ignore_columns=names)}."
        )
