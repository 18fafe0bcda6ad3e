"""Codes that turn columns into features: columns of instances, with dates and categories, and covariates of bags.

They are learned from training bags and kept with the model.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, FiniteFloat, TypeAdapter
from pydantic.dataclasses import dataclass

from midam.data.bags import Bags
from midam.data.covariates import Column, Covariates, category_of, number_of
from midam.data.missing import fill_values, impute, missing_counts, missing_shares, place_name
from midam.data.on_disk import Rows, on_disk
from midam.errors import BagDataError, ConfigError, Note, given, listed, with_article
from midam.names import name_of
from midam.settings.data import DataSettings, TimeFeature

LEAST = 3  # fewest training bags of a category with its own feature
MOST = 100  # categories of a column of instances that get a feature each, at most
_CLIP = 10.0  # standard deviations of a covariate: a typing error must not decide alone
_FEW = 20  # so few categories are taken for ids only if all differ
_SHOWN = 3  # columns in a note
_WEEK, _THURSDAY, _HOURS = 7, 3, 24  # 1970-01-01 was a Thursday, day 3 of a week that begins on Monday
_KINDS = {"number": "numbers", "category": "categories", "time": "dates"}
Name = Annotated[str, AfterValidator(name_of)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Code:
    """Code that turns one column into features.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : {"number", "category", "time"}
        A number stays as it is, or is standardized.
    missing : bool
        Whether a last feature marks missing values.
    center, scale : float
        Mean and standard deviation of a covariate over the training bags that have it; no center for other numbers.
    categories : tuple of str
        Categories with their own feature.
    rare : tuple of str
        Rare categories, such as those of fewer than 3 training bags; they share a feature with unknown categories.
    times : tuple of str
        Features of a time.
    """

    name: Name
    kind: Literal["number", "category", "time"] = "number"
    missing: bool = False
    center: FiniteFloat | None = None
    scale: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    categories: tuple[Name, ...] = ()
    rare: tuple[Name, ...] = ()
    times: tuple[TimeFeature, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features; none for a column that is left out."""
        if self.kind == "number":
            names = [self.name]
        elif self.kind == "time":
            names = [f"{self.name} {part}" for part in self.times]
        else:
            names = [*(f"{self.name}={word}" for word in self.categories), f"{self.name} other"]
            names = names if self.categories or self.missing else []
        return (*names, f"{self.name} missing") if self.missing else tuple(names)


class Table(NamedTuple):
    """Columns of instances (`kind` "column") or of bags ("covariate"), and the bag of each row that counts."""

    columns: tuple[Column, ...]
    values: Sequence[NDArray[Any]]  # of each column, [M]
    rows: NDArray[np.int64]  # that count, bag after bag [m]
    owner: NDArray[np.int64]  # the bag of each of them
    ids: NDArray[np.str_]
    source: str
    kind: Literal["column", "covariate"]

    @classmethod
    def of_instances(cls, bags: Bags) -> Self:
        """Return the columns of the instances of bags."""
        columns = bags.columns
        if columns is None and bags.feature_names is None:
            advice = "give `feature_names`, or no `indicators`"
            raise BagDataError(f"Expected features with names, got none (in {bags.source}); {advice}.")
        columns = columns or tuple(map(Column, bags.feature_names or ()))
        owner = np.repeat(np.arange(len(bags)), bags.sizes)
        values = [bags.instances[:, place] for place in range(len(columns))]
        return cls(columns, values, bags.rows(), owner, bags.ids, bags.source, "column")

    @classmethod
    def of_covariates(cls, covariates: Covariates, ids: NDArray[np.str_] | None, source: str) -> Self:
        """Return the columns of covariates of bags with these `ids`, by default their numbers."""
        columns, values, rows = list[Column](), list[NDArray[Any]](), np.arange(len(covariates))
        for name, column in zip(covariates.names, covariates.columns):
            words, codes = np.unique(column, return_inverse=True)
            number = column.dtype.kind == "f"
            columns.append(Column(name) if number else Column(name, "category", tuple(filter(None, words.tolist()))))
            values.append(column if number else codes - int("" in words))  # the empty word, the first, is a gap
        ids = rows.astype(np.str_) if ids is None else ids
        return cls(tuple(columns), values, rows, rows, ids, source, "covariate")

    @property
    def unit(self) -> str:
        """What a row is."""
        return "bag" if self.kind == "covariate" else "instance"


@dataclass(frozen=True)
class Coder:
    """Base of the coders, which hold `codes` and are stored as text.

    A category is 1 in its own feature; a category of fewer than 3 training bags, or unknown, is 1 only in the feature
    "other". A last feature marks missing values of a category if some were missing in training.

    Attributes
    ----------
    codes : tuple of Code
        One for each column, in the order of the columns.
    """

    codes: tuple[Code, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the P features."""
        return tuple(name for code in self.codes for name in code.features)

    @property
    def column_of(self) -> dict[str, str]:
        """Column of each feature."""
        return {name: code.name for code in self.codes for name in code.features}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Kind of each column by name, for `midam.read_bags`."""
        return {code.name: code.kind for code in self.codes}

    def to_json(self) -> str:
        """Return text that `from_json` reads."""
        return json.dumps([asdict(code) for code in self.codes])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the coder that a text of `to_json` describes; raise a `ValueError` for another text."""
        return cls(codes=TypeAdapter(tuple[Code, ...]).validate_json(text))

    def _encoded(self, table: Table) -> NDArray[np.float64]:
        """Return the features [M, P] of a table with the columns of the codes, in their order."""
        known = zip(self.codes, table.columns, table.values, strict=True)
        parts = [part for code, column, x in known for part in _encoded(code, column, x, table)]
        return np.stack(parts, axis=1) if parts else np.empty((len(table.values[0]), 0))


@dataclass(frozen=True)
class ColumnCoder(Coder):
    """Encoder of raw columns of instances as features.

    Categories are coded as `Coder` says, at most the 100 most frequent. A number stays as it is. A time becomes the
    setting's `time_features`: days since the first and until the last instance of its bag, hour, weekday (0: Monday),
    and days since 1970-01-01, in UTC if the times state an offset. With the setting `indicators`, a last feature marks
    missing numbers and times too.

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

    @classmethod
    def fit(cls, train: Bags, settings: DataSettings) -> Self | None:
        """Learn codes from training bags; return None if all columns stay as they are.

        A time column whose features do not vary is left out with a warning, as is a categorical column without a
        category in 3 bags, unless its values are missing in part.
        """
        if train.columns is None and (not settings.indicators or isinstance(train.instances, Rows)):
            return None  # nothing is missing on disk
        table = Table.of_instances(train)
        values = (x[table.rows] for x in table.values)
        coder = cls(tuple(_code(column, x, table, settings) for column, x in zip(table.columns, values)))
        if not coder.features:
            raise BagDataError(f"Expected a column whose values differ, got none (in {train.source}); add columns.")
        return coder if train.columns is not None or any(code.missing for code in coder.codes) else None

    @cached_property
    def of_categories(self) -> dict[str, str]:
        """Column of each feature that codes a category."""
        return {name: code.name for code in self.codes if code.kind == "category" for name in code.features}

    def encode(self, bags: Bags) -> Bags:
        """Return the same bags with features instead of columns; the columns are in the order of the codes.

        Warn about categories that no training bag had; refuse values of another kind than in training.
        """
        features = self._encoded(Table.of_instances(bags))
        return bags.replace(instances=features, feature_names=self.features, columns=None, digests=None)


@dataclass(frozen=True)
class CovariateCoder(Coder):
    """Encoder of the covariates of bags as numbers [N, P].

    Categories are coded as `Coder` says. A number is standardized by the training bags that have it, clipped to 10
    standard deviations, and 0 where it is missing. If some training bags lack a covariate, its last feature marks the
    bags that lack it.

    Examples
    --------
    >>> train = Covariates.of({"age": [50, 60, 70, None], "sex": ["f", "m", "f", "f"]})
    >>> coder = CovariateCoder.fit(train)
    >>> coder.features
    ('age', 'age missing', 'sex=f', 'sex other')
    >>> coder.matrix(train).round(2).tolist()[1:]
    [[0.0, 0.0, 0.0, 1.0], [1.22, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]
    """

    @classmethod
    def fit(cls, train: Covariates, *, source: str = "memory") -> Self:
        """Learn codes from training bags; leave out constant covariates with a warning, refuse covariates of ids."""
        table = Table.of_covariates(train, None, source)
        codes = [_code(column, x, table) for column, x in zip(table.columns, table.values)]
        return cls(tuple(code for code in codes if code.features))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return tuple(code.name for code in self.codes)

    @property
    def width(self) -> int:
        """Number of features P."""
        return len(self.features)

    def encode(self, bags: Bags) -> NDArray[np.float64]:
        """Return the features [N, P] of bags; refuse bags without a covariate, or with text instead of a number."""
        if bags.covariates is None:
            wanted = f"the covariates {', '.join(self.names)} as in training"
            raise BagDataError(f"Expected {wanted}, got none (in {bags.source}); add their columns.")
        return self.matrix(bags.covariates, ids=bags.ids, source=bags.source)

    def matrix(
        self, covariates: Covariates, *, ids: NDArray[np.str_] | None = None, source: str = "memory"
    ) -> NDArray[np.float64]:
        """Return the features of covariates as `encode` does; messages name bags by `ids`, by default their numbers."""
        return self._encoded(Table.of_covariates(covariates.select(self.names, source=source), ids, source))


def fit_coder(train: Bags) -> CovariateCoder | None:
    """Return the coder of the covariates of training bags; None if no covariate varies."""
    if train.covariates is None:
        return None
    coder = CovariateCoder.fit(train.covariates, source=train.source)
    return coder if coder.width else None


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
    coder, raw = ColumnCoder.fit(bags.subset(train), settings), bags
    bags = bags if coder is None else coder.encode(bags)
    text = None if coder is None else coder.to_json()
    if settings.impute == "none":
        if coder is not None or not on_disk(bags.instances):
            bags.check()
        if coder is None:
            return Prepared(bags)
    numbers, categories = missing_by_column(raw)
    if note:
        note_of_filled(raw, settings.impute)
    if settings.impute == "none":
        return Prepared(bags, text, missing=numbers | categories)
    values = fill_values(bags.subset(train), settings.impute)
    facts = {"how": settings.impute, "values": values.tolist(), "missing": sum(numbers.values())}
    return Prepared(impute(bags, values), text, facts, missing_shares(bags), numbers | categories)


def missing_by_column(bags: Bags) -> tuple[dict[str, int], dict[str, int]]:
    """Return the missing values of columns of numbers or times, and of categories, that have some.

    The bags have raw columns or none, and are not filled.
    """
    counts = missing_counts(bags)
    coded = [at for at, column in enumerate(bags.columns or ()) if column.kind == "category"]
    numbers = {place_name(bags, at): int(counts[tuple(at)]) for at in np.argwhere(counts)}
    absent = {at: int((bags.instances[bags.rows(), at] < 0).sum()) for at in coded}
    return numbers, {place_name(bags, np.array([at])): count for at, count in absent.items() if count}


def missing_text(bags: Bags, fate: str) -> str:
    """Return how many values are missing, and in which columns most; "" if none are.

    The bags are as for `missing_by_column`; `fate` says what happens to missing numbers and times.
    """
    parts = []
    for counts, words in zip(missing_by_column(bags), (fate, "of categories are marked by a feature")):
        most = [f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])]
        parts += [f"{sum(counts.values())} missing values {words}: {listed(most, most=_SHOWN)}"] if most else []
    return f"{'; '.join(parts)} (in {bags.source})" if parts else ""


def note_of_filled(bags: Bags, method: str, *, fitted_on: str = "the training bags") -> None:
    """Note how many missing values are filled, what fills them, and which columns miss most."""
    fate = "are filled with " + ("0" if method == "zero" else f"the {method} of {fitted_on}")
    if text := missing_text(bags, fate):
        warnings.warn(text, Note, stacklevel=4)


def _code(column: Column, x: NDArray[Any], table: Table, settings: DataSettings | None = None) -> Code:
    """Return the code of a column from its values [m] in training; without features, it is left out.

    Columns of instances have `settings`, covariates have none: their numbers are standardized.
    """
    gaps = x < 0 if column.kind == "category" else np.isnan(x)
    known = np.unique(x[~gaps])
    if settings is None and len(known) < 2 and (gaps.all() or not gaps.any()):
        only = column.words[0] if column.words and len(known) else next(iter(known), None)
        return _left_out(column, "none" if only is None else f"only {only}", table)
    if column.kind == "category":
        if settings is None:
            _check_categories(column, int((~gaps).sum()), table)
        code, got = _category_code(column, x, table), f"each category fewer than {LEAST} times"
        kept = code.categories or (code.missing and not gaps.all())
        return code if kept else _left_out(column, "no value" if gaps.all() else got, table)
    if settings is None:
        scale = float(x[~gaps].std())
        # Rounding may leave a deviation even if all known values are equal.
        scale = scale if len(known) > 1 and scale > 0 else 1.0
        return Code(column.name, missing=bool(gaps.any()), center=float(x[~gaps].mean()), scale=scale)
    missing = settings.indicators and bool(gaps.any()) and not gaps.all()
    if column.kind == "number":
        return Code(column.name, missing=missing)
    if gaps.all():
        return _left_out(column, "no value", table)
    values_of = {part: _time(part, x, np.arange(len(x)), table.owner) for part in settings.time_features}
    days = np.floor(x[~gaps]).astype("datetime64[D]")
    if (days == days.astype("datetime64[M]")).all():
        values_of.pop("weekday", None)  # months and quarters are written as their first day
    times = tuple(part for part, values in values_of.items() if np.nanmin(values) < np.nanmax(values))
    return (
        Code(column.name, "time", times=times, missing=missing) if times else _left_out(column, "the same time", table)
    )


def _check_categories(column: Column, count: int, table: Table) -> None:
    """Refuse categories of a covariate that name its `count` bags."""
    words, source = column.words, table.source
    if len(words) > max(_FEW, count // 2) or len(words) == count > 2:
        got = f"{len(words)} different values for {count} training bags: {listed(words)} (in {source})"
        wanted = f"numbers or categories in the covariate {column.name!r}"
        raise BagDataError(f"Expected {wanted}, got {got}; leave it out, as it names the bags.")


def _category_code(column: Column, x: NDArray[Any], table: Table) -> Code:
    """Return the code of a column; it counts bags, since a category of one bag's instances would name the bag."""
    pairs = np.unique(np.stack([table.owner, x.astype(np.int64)], axis=1), axis=0)[:, 1]
    counts = np.bincount(pairs[pairs >= 0], minlength=len(column.words))
    words = np.array(column.words, dtype=np.str_)[counts > 0]
    counts = counts[counts > 0]
    most = MOST if table.kind == "column" else None
    frequent = np.isin(np.arange(len(words)), np.argsort(-counts, kind="stable")[:most]) & (counts >= LEAST)
    categories, rare = (tuple(part.tolist()) for part in (words[frequent], words[~frequent]))
    return Code(column.name, "category", bool((x < 0).any()), categories=categories, rare=rare)


def _left_out(column: Column, got: str, table: Table) -> Code:
    text = f"the {table.kind} {column.name} is left out: the training bags have {got}"
    warnings.warn(f"{text} (in {table.source})", stacklevel=6)
    return Code(column.name, "category" if column.kind == "category" else "time")


def _encoded(code: Code, column: Column, x: NDArray[Any], table: Table) -> list[NDArray[Any]]:
    """Return the features of a column, each [M]."""
    if code.kind == "category":
        return [*_one_hot(code, column, x, table).T] if code.features else []
    gaps = x < 0 if column.kind == "category" else np.isnan(x)
    if column.kind != code.kind and not gaps[table.rows].all():
        _refuse_kind(code, column, x, table)
    if code.center is not None:
        _warn_of_missing(code, gaps, table)
        z, count = (x - code.center) / code.scale, len(table.rows)
        off = int((np.abs(z[table.rows]) > _CLIP).sum())
        if 2 * off >= max(count, 1):
            text = f"the {table.kind} {code.name} is far from that of training in {off} of {count} {table.unit}s"
            warnings.warn(f"{text} (in {table.source}); if its unit differs, scores are wrong", stacklevel=6)
        features = [np.where(gaps, 0.0, z.clip(-_CLIP, _CLIP))]
    elif code.kind == "number":
        features = [x]
    else:
        features = [_time(part, x, table.rows, table.owner) for part in code.times]
    return [*features, gaps.astype(np.float64)] if code.missing else features


def _refuse_kind(code: Code, column: Column, x: NDArray[Any], table: Table) -> None:
    """Refuse a column of another kind than in training; name the first value and bag at fault."""
    got, where = _KINDS[column.kind], table.source
    if column.kind == "category":
        used = x[table.rows].astype(np.int64)
        wrong = [place for place, word in enumerate(column.words) if number_of(word) is None]
        row = int(np.argmax(np.isin(used, wrong))) if wrong else int(np.argmax(used >= 0))
        got, where = repr(column.words[used[row]]), f"{where}, bag {table.ids[table.owner[row]]}"
    wanted = f"{_KINDS[code.kind]} in the {table.kind} {code.name!r} as in training"
    raise BagDataError(f"Expected {wanted}, got {got} (in {where}); correct it, or leave the field empty.")


def _one_hot(code: Code, column: Column, x: NDArray[Any], table: Table) -> NDArray[np.float64]:
    """Return the features of categories; warn about missing and new ones among the rows that count."""
    words: Sequence[str] = column.words
    if column.kind != "category":  # bags read without the run may hold only numbers, or nothing
        values, of_row = np.unique(np.where(np.isnan(x), np.nan, x), return_inverse=True)
        words, x = [category_of(float(value)) for value in values], of_row.astype(np.float64)
    codes, known_words = x.astype(np.int64), {*code.categories, *code.rare}
    words = [twin if word not in known_words and (twin := _twin(word)) in known_words else word for word in words]
    place_of = {word.casefold(): place for place, word in enumerate(code.categories)}
    # The last column is for rare and unknown words; an empty one has none.
    place_of_word = [place_of.get(word.casefold(), len(place_of)) if word else -1 for word in words]
    places = np.array([*place_of_word, -1], dtype=np.int64)[codes]
    known = codes[table.rows][codes[table.rows] >= 0]
    _warn_of_missing(code, places[table.rows] < 0, table)
    _warn_of_unseen(code, words, np.bincount(known, minlength=len(words)), table)
    encoded = np.asarray(places[:, None] == np.arange(len(place_of) + 1), dtype=np.float64)
    return np.column_stack([encoded, places < 0]) if code.missing else encoded


def _twin(word: str) -> str:
    """Return 7.0 for 7 and 7 for 7.0: pandas writes the whole numbers of a column with gaps as decimals."""
    whole = word.removesuffix(".0")
    if not whole.isdecimal():
        return word
    return f"{word}.0" if whole == word else whole


def _warn_of_missing(code: Code, missing: NDArray[np.bool_], table: Table) -> None:
    """Warn about missing values of a column that no training bag lacks."""
    if missing.any() and not code.missing:
        substitute = "the mean" if code.kind == "number" else "no category"
        text = f"the {table.kind} {code.name} is missing in {int(missing.sum())} of {len(missing)} {table.unit}s"
        warnings.warn(f"{text}, but in no training bag: {substitute} is used (in {table.source})", stacklevel=7)


def _warn_of_unseen(code: Code, words: Sequence[str], counts: NDArray[np.int64], table: Table) -> None:
    """Warn about words, with their counts, that no training bag had."""
    known_words = {word.casefold() for word in ("", *code.categories, *code.rare)}
    new = {word: int(count) for word, count in zip(words, counts) if count and word.casefold() not in known_words}
    if new:
        shown = listed(sorted({word.casefold(): word for word in reversed(new)}.values()))
        count = f"{sum(new.values())} of {len(table.rows)} {table.unit}s"
        text = f"{count} have {with_article(code.name)} that no training bag had: {shown}; scored as unknown"
        warnings.warn(f"{text} (in {table.source})", stacklevel=7)


def _time(part: TimeFeature, days: NDArray[Any], rows: NDArray[np.int64], owner: NDArray[np.int64]) -> NDArray[Any]:
    """Return a feature of times, which are days since 1970-01-01; `owner` is the bag of each of the `rows`."""
    if part == "days":
        return days
    if part == "hour":
        return days % 1 * _HOURS
    if part == "weekday":
        return (np.floor(days) + _THURSDAY) % _WEEK
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
        got = f"categories or dates in {listed(names)} (in {bags.source}); train with `midam fit` or an estimator"
        advice = f"which encode them, or leave them out with {given(ignore=names)}"
        raise BagDataError(f"Expected numbers for {caller}, got {got}, {advice}.")
