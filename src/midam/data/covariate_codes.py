"""Covariates coded as numbers; the code is learned from training bags alone, and kept with the model."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, FiniteFloat, TypeAdapter
from pydantic.dataclasses import dataclass

from midam.data.covariates import Covariates, category_of, missing_of, number_of
from midam.errors import BagDataError, listed, with_article
from midam.names import name_of

if TYPE_CHECKING:
    from midam.data.bags import Bags

LEAST = 3  # fewest training bags of a category with its own column
_CLIP = 10.0  # standard deviations: a typing error must not decide alone
_MANY = 5  # more categories may nearly identify the bags
_FEW = 20  # so few categories are taken for ids only if all differ
Name = Annotated[str, AfterValidator(name_of)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Code:
    """Code that turns one covariate into columns of numbers.

    Attributes
    ----------
    name : str
        Name of the covariate.
    missing : bool
        Whether some training bags lack it: then a last column marks where it is missing.
    center, scale : float
        Mean and standard deviation of a number over the training bags that have it.
    categories : tuple of str, optional
        Categories with their own column; None for a number.
    rare : tuple of str
        Rare categories, such as those of fewer than 3 training bags; they share a column with unknown categories.
    """

    name: Name
    missing: bool
    center: FiniteFloat = 0.0
    scale: Annotated[FiniteFloat, Field(gt=0)] = 1.0
    categories: tuple[Name, ...] | None = None
    rare: tuple[Name, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns."""
        names = [self.name] if self.categories is None else [f"{self.name}={word}" for word in self.categories]
        other = [] if self.categories is None else [f"{self.name} other"]
        return (*names, *other, *([f"{self.name} missing"] if self.missing else []))

    def one_hot(
        self, words: Sequence[str], codes: NDArray[np.int64], *, used: Any = slice(None), kind: str, source: str
    ) -> NDArray[np.float64]:
        """Return the columns of categories, which are the `words` at these `codes` (-1: missing).

        Warn about missing and new words among the `used` rows; `kind` is "covariate", of bags, or "column".
        """
        unit = "bag" if kind == "covariate" else "instance"
        known_words = {*(self.categories or ()), *self.rare}
        words = [twin if word not in known_words and (twin := _twin(word)) in known_words else word for word in words]
        place_of = {word.casefold(): place for place, word in enumerate(self.categories or ())}
        # The last column is for rare and unknown words; an empty one has none.
        place_of_word = [place_of.get(word.casefold(), len(place_of)) if word else -1 for word in words]
        places = np.array([*place_of_word, -1], dtype=np.int64)[codes]
        known = codes[used][codes[used] >= 0]
        _warn_of_missing(self, places[used] < 0, kind, unit, source)
        _warn_of_unseen(self, words, np.bincount(known, minlength=len(words)), unit, source)
        encoded = np.asarray(places[:, None] == np.arange(len(place_of) + 1), dtype=np.float64)
        return np.column_stack([encoded, places < 0]) if self.missing else encoded


def _twin(word: str) -> str:
    """Return 7.0 for 7 and 7 for 7.0: pandas writes the whole numbers of a column with gaps as decimals."""
    whole = word.removesuffix(".0")
    if not whole.isdecimal():
        return word
    return f"{word}.0" if whole == word else whole


@dataclass(frozen=True)
class Coder:
    """Base of the coders, which hold `codes` and are stored as text."""

    codes: tuple[Any, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the P columns."""
        return tuple(name for code in self.codes for name in code.features)

    def to_json(self) -> str:
        """Return text that `from_json` reads."""
        return json.dumps([asdict(code) for code in self.codes])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the coder that a text of `to_json` describes; raise a `ValueError` for another text."""
        return cls(codes=TypeAdapter(get_type_hints(cls)["codes"]).validate_json(text))


@dataclass(frozen=True)
class CovariateCoder(Coder):
    """Encoder of the covariates of bags as numbers [N, P].

    A number is standardized by the training bags that have it, clipped to 10 standard deviations, and 0 where it is
    missing. A category is 1 in its own column; a category that is rare or unknown in training is 1 only in the column
    "other". If some training bags lack a covariate, its last column marks the bags that lack it.

    Attributes
    ----------
    codes : tuple of Code
        One for each covariate.

    Examples
    --------
    >>> train = Covariates.of({"age": [50, 60, 70, None], "sex": ["f", "m", "f", "f"]})
    >>> coder = CovariateCoder.fit(train)
    >>> coder.features
    ('age', 'age missing', 'sex=f', 'sex other')
    >>> coder.matrix(train).round(2).tolist()[1:]
    [[0.0, 0.0, 0.0, 1.0], [1.22, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]
    """

    codes: tuple[Code, ...]

    @classmethod
    def fit(cls, train: Covariates, *, source: str = "memory") -> Self:
        """Learn codes from training bags; leave out constant covariates with a warning, refuse covariates of ids."""
        codes: list[Code] = []
        for name, column in zip(train.names, train.columns):
            missing = missing_of(column)
            values = np.unique(column[~missing])
            if len(values) < 2 and (missing.all() or not missing.any()):
                got = f"only {values[0]}" if len(values) else "none"
            elif column.dtype.kind == "f":
                codes.append(_number_code(name, column[~missing], missing=bool(missing.any())))
                continue
            else:
                code = _category_code(name, column[~missing], missing=bool(missing.any()), source=source)
                if code.categories or code.missing:
                    codes.append(code)
                    continue
                got = f"each of its categories fewer than {LEAST} times"
            warnings.warn(f"the covariate {name} is left out: the training bags have {got} (in {source})", stacklevel=4)
        return cls(tuple(codes))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return tuple(code.name for code in self.codes)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kind of each covariate, "number" or "category"."""
        return tuple("number" if code.categories is None else "category" for code in self.codes)

    @property
    def width(self) -> int:
        """Number of columns P."""
        return len(self.features)

    def encode(self, bags: "Bags") -> NDArray[np.float64]:
        """Return the columns [N, P] of bags; refuse bags without a covariate, or with text instead of a number."""
        if bags.covariates is None:
            raise BagDataError(
                f"Expected the covariates {', '.join(self.names)} as in training, got none (in {bags.source}); add "
                "their columns."
            )
        return self.matrix(bags.covariates, ids=bags.ids, source=bags.source)

    def matrix(
        self, covariates: Covariates, *, ids: NDArray[np.str_] | None = None, source: str = "memory"
    ) -> NDArray[np.float64]:
        """Return the columns of covariates as `encode` does; messages name bags by `ids`, by default their numbers."""
        selected = covariates.select(self.names, source=source)
        names = np.arange(len(selected)).astype(np.str_) if ids is None else ids
        parts = [_encoded(code, column, names, source) for code, column in zip(self.codes, selected.columns)]
        return np.concatenate(parts, axis=1)


def _number_code(name: str, values: NDArray[np.float64], *, missing: bool) -> Code:
    scale = float(values.std())
    # Rounding may leave a deviation even if all known values are equal.
    scale = scale if len(np.unique(values)) > 1 and scale > 0 else 1.0
    return Code(name, missing, center=float(values.mean()), scale=scale)


def _category_code(name: str, values: NDArray[np.str_], *, missing: bool, source: str) -> Code:
    words, counts = np.unique(values, return_counts=True)
    if len(words) > max(_FEW, len(values) // 2) or len(words) == len(values) > 2:
        raise BagDataError(
            f"Expected numbers or categories in the covariate {name!r}, got {len(words)} different values for "
            f"{len(values)} training bags: {listed(words.tolist())} (in {source}); leave it out, as it names the bags."
        )
    fault, digits = "", sum(any(map(str.isdigit, word)) for word in words.tolist())
    if 2 * len(words) > len(values) and len(words) > _MANY:
        fault = f"for {len(values)} training bags, few bags in each: merge categories, or leave it out"
    elif len(words) > _MANY * 2 and 2 * digits > len(words):
        fault = f"that hold numbers, such as {listed(words.tolist())}, whose order is lost: write times and "
        fault += "amounts as numbers, dates as 2023-01-31"
    if fault:
        warnings.warn(f"the covariate {name} has {len(words)} categories {fault} (in {source})", stacklevel=5)
    return category_code(name, words, counts, missing=missing)


def category_code(
    name: str, words: NDArray[np.str_], counts: NDArray[np.int64], *, missing: bool, most: int | None = None
) -> Code:
    """Return the code of categories with these counts of training bags; all but the `most` frequent are rare."""
    frequent = np.isin(np.arange(len(words)), np.argsort(-counts, kind="stable")[:most]) & (counts >= LEAST)
    return Code(name, missing, categories=tuple(words[frequent].tolist()), rare=tuple(words[~frequent].tolist()))


def _encoded(code: Code, column: NDArray[Any], ids: NDArray[np.str_], source: str) -> NDArray[np.float64]:
    if code.categories is not None:
        # A column of categories may hold only numbers if only some of its bags are read.
        words, codes = np.unique([category_of(value) for value in column.tolist()], return_inverse=True)
        return code.one_hot(words.tolist(), codes, kind="covariate", source=source)
    missing = missing_of(column)
    _warn_of_missing(code, missing, "covariate", "bag", source)
    if column.dtype.kind != "f":
        wrong = next(row for row, word in enumerate(column.tolist()) if word and number_of(word) is None)
        raise BagDataError(
            f"Expected numbers in the covariate {code.name!r} as in training, got {str(column[wrong])!r} (in {source}, "
            f"bag {ids[wrong]}); correct it, or leave the field empty."
        )
    scaled = np.where(missing, 0.0, ((column - code.center) / code.scale).clip(-_CLIP, _CLIP))
    return np.column_stack([scaled, missing] if code.missing else [scaled])


def _warn_of_missing(code: Code, missing: NDArray[np.bool_], kind: str, unit: str, source: str) -> None:
    """Warn about missing values of a column that no training bag lacks."""
    if missing.any() and not code.missing:
        substitute = "the mean" if code.categories is None else "no category"
        text = f"the {kind} {code.name} is missing in {int(missing.sum())} of {len(missing)} {unit}s"
        warnings.warn(f"{text}, but in no training bag: {substitute} is used (in {source})", stacklevel=5)


def _warn_of_unseen(code: Code, words: Sequence[str], counts: NDArray[np.int64], unit: str, source: str) -> None:
    """Warn about words, with their counts, that no training bag had."""
    known_words = {word.casefold() for word in ("", *(code.categories or ()), *code.rare)}
    new = {word: int(count) for word, count in zip(words, counts) if count and word.casefold() not in known_words}
    if new:
        shown = listed(sorted({word.casefold(): word for word in reversed(new)}.values()))
        text = f"{sum(new.values())} of {int(counts.sum())} {unit}s have {with_article(code.name)} that no training bag"
        warnings.warn(f"{text} had: {shown}; scored as unknown (in {source})", stacklevel=6)


def fit_coder(train: "Bags") -> CovariateCoder | None:
    """Return the coder of the covariates of training bags; None if no covariate varies."""
    if train.covariates is None:
        return None
    coder = CovariateCoder.fit(train.covariates, source=train.source)
    return coder if coder.width else None
