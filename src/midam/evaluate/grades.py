"""Bags of ordered grades: agreement by the quadratic kappa, and the cuts of the score that reach the most of it.

Grades are codes 0 to G - 1. A grade is called by the cuts that a score has reached: from the first of them on it is 1.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import ConfigError, OneClassError
from midam.evaluate.classes import check_codes, confusion_matrix
from midam.evaluate.ranking import Scores, check_scores

_MOST_ROUNDS = 100


def quadratic_kappa(grades: ArrayLike, predicted: ArrayLike, count: int) -> float | None:
    """Cohen's kappa with quadratic weights (Cohen 1968): 1 perfect, 0 what chance reaches with these frequencies.

    None where all bags have one grade and are called that one. A `BagDataError` for codes outside 0 to `count` - 1.

    Examples
    --------
    >>> round(quadratic_kappa([0, 1, 2, 2], [0, 1, 1, 2], 3), 3)
    0.8
    """
    confusion = confusion_matrix(grades, predicted, count)
    weights = _weights(count)
    chance = np.outer(confusion.sum(axis=1), confusion.sum(axis=0)) / confusion.sum()
    expected = float((weights * chance).sum())
    return 1 - float((weights * confusion).sum()) / expected if expected > 0 else None


class Cuts:
    """Cuts of the score, ascending: what is decided by the place of a score among them."""

    cuts_: list[float]

    def to_dict(self) -> dict[str, Any]:
        """The cuts, for JSON or a checkpoint."""
        self._check_fitted()
        return {"cuts": list(self.cuts_)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build fitted cuts from `to_dict`; a `ConfigError` for anything else."""
        made = cls()
        made.cuts_ = check_cuts(values)
        return made

    def _check_fitted(self) -> None:
        if not hasattr(self, "cuts_"):
            raise ConfigError("Expected fitted cuts, got none; call fit first.")


class GradeCuts(Cuts):
    """Cuts of the score between grades, those with the largest quadratic kappa on validation bags.

    They are found exactly: with the costs of all grades at each score, the kappa is one minus a ratio of two sums over
    bags, which Dinkelbach's iteration maximizes; each of its rounds finds the best cuts by dynamic programming. A cut
    lies halfway between two scores; of equal cuts no bag gets the grade between them. Where no cuts beat chance, every
    bag is called the median grade, and a warning says so.

    Attributes
    ----------
    cuts_ : list of float
        The G - 1 cuts, ascending.

    References
    ----------
    Dinkelbach (1967), Management Science 13:492.

    Examples
    --------
    >>> decision = GradeCuts().fit([0.1, 0.2, 0.4, 0.5, 0.7, 0.9], [0, 0, 1, 1, 2, 2], count=3)
    >>> [round(cut, 2) for cut in decision.cuts_], decision.predict([0.0, 0.35, 1.0]).tolist()
    ([0.3, 0.6], [0, 1, 2])
    """

    def fit(self, scores: ArrayLike, grades: ArrayLike, *, count: int) -> Self:
        """Find the cuts on the scores [N] and grades [N], 0 to `count` - 1, of validation bags of two grades or more.

        A `BagDataError` for values that cannot be used, an `OneClassError` for bags of one grade.
        """
        y = check_codes(grades, count)
        s = check_scores(scores, y.size)
        if y.min() == y.max():
            raise OneClassError(f"Expected bags of two grades or more, got grade {y[0]} alone; choose on other bags.")
        values, place = np.unique(s, return_inverse=True)
        weights = _weights(count)
        # Cost of each grade at each score: what it differs from the bags there, and by chance.
        cost, chance = np.zeros((2, values.size, count))
        np.add.at(cost, place.reshape(-1), weights[y])
        np.add.at(chance, place.reshape(-1), weights[y].mean(axis=0))
        median = np.quantile(y, 0.5, method="lower")
        ratio, starts = 1.0, np.where(np.arange(1, count) <= median, 0, values.size)
        for _ in range(_MOST_ROUNDS):
            found = _best_starts(cost - ratio * chance)
            called = np.searchsorted(found, np.arange(values.size), side="right")
            rows = np.arange(values.size)
            lower = float(cost[rows, called].sum() / chance[rows, called].sum())
            if lower >= ratio - 1e-12:
                break
            ratio, starts = lower, found
        if ratio == 1.0:
            what = f"every bag is called grade {median}, the median of the validation bags."
            message = f"Expected scores that rank validation bags, got none better than chance; {what}"
            warnings.warn(message, UserWarning, stacklevel=2)
        self.cuts_ = [_cut(values, int(start)) for start in starts]
        return self

    def predict(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Grades [N] of scores [N]."""
        self._check_fitted()
        return np.searchsorted(self.cuts_, np.asarray(scores, dtype=np.float64), side="right")


def check_cuts(values: Mapping[str, Any]) -> list[float]:
    """Cuts of a dictionary ``{"cuts": [...]}``; a `ConfigError` unless they are finite numbers that ascend."""
    cuts = values.get("cuts")
    if set(values) != {"cuts"} or not isinstance(cuts, Sequence) or isinstance(cuts, str):
        raise ConfigError(f"Expected the key cuts with a list, got {dict(values)}; pass to_dict's result.")
    try:
        numbers = [float(cut) for cut in cuts]
    except (TypeError, ValueError):
        numbers = [float("nan")]
    if not np.isfinite(numbers).all() or sorted(numbers) != numbers:
        raise ConfigError(f"Expected finite cuts that ascend, got {list(cuts)}; fit again.")
    return numbers


def _weights(count: int) -> Scores:
    return np.subtract.outer(np.arange(count), np.arange(count)).astype(np.float64) ** 2


def _best_starts(cost: Scores) -> NDArray[np.intp]:
    """First row of grades 1 to G - 1, ascending, with the least sum of costs [K, G]; K for a grade that none gets."""
    sums = np.concatenate([np.zeros((1, cost.shape[1])), np.cumsum(cost, axis=0)])
    best, froms = sums[:, 0], []
    for grade in range(1, cost.shape[1]):
        gain = best - sums[:, grade]
        least = np.minimum.accumulate(gain)
        new = np.append(True, gain[1:] < least[:-1])
        froms.append(np.maximum.accumulate(np.where(new, np.arange(gain.size), 0)))
        best = least + sums[:, grade]
    starts, end = np.zeros(len(froms), dtype=np.intp), len(cost)
    for grade in reversed(range(len(froms))):
        end = starts[grade] = froms[grade][end]
    return starts


def _cut(values: Scores, start: int) -> float:
    """Number that exactly the values from `start` on have reached."""
    if start == 0:
        return float(values[0])
    if start == values.size:
        return float(np.nextafter(values[-1], np.inf))
    middle = values[start - 1] / 2 + values[start] / 2
    return float(middle if middle > values[start - 1] else values[start])
