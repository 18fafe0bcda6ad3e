"""Labels of bags of any target: two classes or more, several labels, grades, numbers, survival."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import check_length, usable
from midam.errors import BagDataError, plural
from midam.names import name_of

CODED = ("multiclass", "ordinal")  # targets of several classes, whose values are positions in the names
_MOST_SHOWN = 8
_LEAST = np.finfo(np.float32).tiny


@dataclass(frozen=True, eq=False)
class TargetLabels:
    """Labels of N bags, as numbers.

    | target | values | names |
    |---|---|---|
    | binary | [N, 1], 0 or 1 | of the two classes, "0" and "1" by default |
    | multiclass | [N, 1], position of the class in the names | of the classes |
    | ordinal | [N, 1], position of the grade in the names | of the grades, the lowest first |
    | multilabel | [N, L], 0 or 1, NaN where it is not known | of the L labels |
    | continuous | [N, 1], any number | of the number |
    | survival | [N, 2], time above 0; event: 1 if it happened at that time, 0 if not until then | of both |

    Attributes
    ----------
    target : str
        Name of the target, a row of `midam.registry.TARGETS`.
    values : float64 array [N, L]
        See the table.
    names : tuple of str
        See the table.

    Examples
    --------
    >>> grades = TargetLabels.of("ordinal", [0, 2, 1], names=("low", "mid", "high"))
    >>> len(grades), grades.columns()
    (3, {'label': ['low', 'high', 'mid']})
    """

    target: str
    values: NDArray[np.float64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, target: str, values: ArrayLike, *, names: Sequence[object]) -> Self:
        """Make labels from values [N] or [N, L]; `Bags` checks them."""
        array = np.asarray(values, dtype=np.float64)
        return cls(target, array[:, None] if array.ndim == 1 else array, tuple(map(name_of, names)))

    def __len__(self) -> int:
        return len(self.values)

    def subset(self, index: Any) -> Self:
        """Return the labels of the bags at these positions [n], or of a mask [N]."""
        return type(self)(self.target, self.values[index], self.names)

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns of a table of the bags: names of classes and grades, numbers, None for an unknown label.

        The column is "label"; several labels have a column each ("label_NAME"), survival has "time" and "event".
        """
        if self.target in ("binary", *CODED):
            return {"label": [self.names[code] for code in self.values[:, 0].astype(np.int64)]}
        if self.target == "survival":
            return {"time": self.values[:, 0].tolist(), "event": self.values[:, 1].astype(np.int64).tolist()}
        if self.target == "multilabel":
            known = [[None if np.isnan(value) else int(value) for value in column] for column in self.values.T]
            return {f"label_{name}": column for name, column in zip(self.names, known)}
        return {"label": self.values[:, 0].tolist()}

    @classmethod
    def of_columns(cls, target: str, names: Sequence[str], table: Mapping[str, Sequence[str]]) -> Self:
        """Make labels from the columns that `columns` returns, as strings; "" is an unknown label.

        Examples
        --------
        >>> columns = {"label_a": ["1", ""], "label_b": ["0", "1"]}
        >>> TargetLabels.of_columns("multilabel", ["a", "b"], columns).values.tolist()
        [[1.0, 0.0], [nan, 1.0]]
        """
        if target in ("binary", *CODED):
            codes = {name_of(name): code for code, name in enumerate(names)}
            return cls.of(target, [codes[name_of(word)] for word in table["label"]], names=names)
        columns = {"survival": ["time", "event"], "multilabel": [f"label_{name}" for name in names]}
        texts = [table[column] for column in columns.get(target, ["label"])]
        numbers = [[float(word) if word else math.nan for word in column] for column in texts]
        return cls.of(target, np.array(numbers).T, names=names)

    def check(self, ids: NDArray[np.str_], source: str) -> None:
        """Refuse values that do not fit the target; the `BagDataError` names the first bag at fault."""
        check_length(self.values[:, 0], len(ids), "outcome", source)
        if len(set(self.names)) < len(self.names):
            raise BagDataError(f"Expected unique names, got {', '.join(self.names)} (in {source}); rename them.")
        width = {"survival": 2, "multilabel": len(self.names)}.get(self.target, 1)
        if self.values.shape[1] != width:
            expected, got = plural(width, "column"), self.values.shape[1]
            raise BagDataError(f"Expected {expected} for {self.target!r}, got {got} (in {source}); give as many.")
        for wrong, wanted, advice in self._faults():
            rows = np.flatnonzero(wrong)
            if len(rows):
                got = ", ".join(f"{value:g}" for value in self.values[rows[0]][:_MOST_SHOWN])
                more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
                raise BagDataError(f"Expected {wanted}, got {got} (in {source}, bag {ids[rows[0]]}{more}); {advice}.")

    def _faults(self) -> Iterator[tuple[Any, str, str]]:
        """Yield a mask [N] of the wrong rows, the expected values, and advice."""
        x, first, correct = self.values, self.values[:, 0], "correct it, or leave such bags out"
        if self.target in CODED:
            count = len(self.names)
            wrong = ~((first >= 0) & (first < count) & (first == np.floor(first)))
            yield wrong, f"positions of {count} names", "number them from 0"
        elif self.target == "multilabel":
            yield ~((x == 0) | (x == 1) | np.isnan(x)).all(axis=1), "labels 0, 1 or NaN", "recode the labels"
            yield np.isnan(x).all(axis=1), "at least one known label of each bag", "leave such bags out"
        elif self.target == "continuous":
            yield ~usable(x).all(axis=1), "a number of at most 1.8e19 for each bag", correct
        elif self.target == "survival":
            yield ~(first > 0), "times above 0 and an event of 0 or 1", correct
            yield ~usable(first) | (first < _LEAST), "times of 1.2e-38 to 1.8e19", "give them in another unit"
            advice = "recode the event: a competing one, such as a transplant, counts as 0"
            yield (x[:, 1] != 0) & (x[:, 1] != 1), "a time and an event of 0 (censored) or 1", advice
