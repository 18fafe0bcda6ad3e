"""Marks of `witness-search`: which instances of the positive bags count as witnesses, by scores of other bags' models.

The instances of all bags are numbered bag after bag; `first` and `sizes` [N] are the first number and the count of
each bag's instances.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
MOST_MARKS = 10  # in one bag
_DOUBT = 0.02  # weight of a bag whose highest instance is below the median of negative bags


@dataclass(frozen=True, eq=False)
class Marks:
    """Instances that are taken for witnesses.

    Attributes
    ----------
    rows, bag : int64 array [m]
        Numbers of the instances, and the bag of each.
    weight : float64 array [m]
        Weight of each in a training; the weights of a bag sum to at most 1.
    """

    rows: Integers
    bag: Integers
    weight: Numbers

    def same(self, other: "Marks") -> bool:
        """Return whether both mark the same instances."""
        return np.array_equal(self.rows, other.rows)


@dataclass(frozen=True, eq=False)
class Layout:
    """Bags as the search needs them.

    Attributes
    ----------
    first, sizes : int64 array [N]
        Number of each bag's first instance, and its number of instances.
    positive : bool array [N]
        Whether a bag is positive.
    fold : int64 array [N]
        Fold of each bag: its instances are scored by the model of the bags of all other folds.
    """

    first: Integers
    sizes: Integers
    positive: NDArray[np.bool_]
    fold: Integers

    @property
    def folds(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    @property
    def bag(self) -> Integers:
        """Bag of each instance [M]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def highest(self, scores: Numbers) -> Numbers:
        """Return the highest score [N] of each bag, from scores [M] of instances."""
        return np.asarray(np.maximum.reduceat(scores, self.first))


def novel_marks(layout: Layout, novelty: Numbers) -> Marks:
    """Return the first marks: the instance of each positive bag with the greatest novelty [M]."""
    return _top(layout, novelty)


def next_marks(layout: Layout, scores: Numbers, novelty: Numbers, *, share: float, several: bool) -> Marks:
    """Return the marks of the next round, the instance of each positive bag with the highest merit.

    The merit is the score plus `share` times the novelty, both standardized within the positive bags of a fold. A bag
    whose highest score is below the median highest score of the negative bags of its fold gets little weight: its mark
    is probably wrong, or its label is. All comparisons are within a fold, whose bags one model has scored.

    Parameters
    ----------
    layout : Layout
        The bags.
    scores, novelty : float array [M]
        Scores of the instances by models of other folds, and their novelty; only those of positive bags count.
    share : float
        Weight of the novelty, at least 0.
    several : bool
        Also mark instances that score higher than any instance of the fold's negative bags, at most ten in a bag.

    Examples
    --------
    The second instance of bag 0 scores higher than the negative bag 1, and is marked:

    >>> layout = Layout(np.array([0, 2]), np.array([2, 1]), np.array([True, False]), np.array([0, 0]))
    >>> marks = next_marks(layout, np.array([0.1, 0.9, 0.5]), np.zeros(3), share=1.0, several=False)
    >>> marks.rows.tolist(), marks.weight.tolist()
    ([1], [1.0])
    """
    merit, of_instance = np.full(len(scores), -np.inf), layout.fold[layout.bag]
    positive, highest = layout.positive[layout.bag], layout.highest(scores)
    middle, most = np.full(layout.folds, -np.inf), np.full(layout.folds, np.inf)
    for fold in range(layout.folds):
        rows = positive & (of_instance == fold)
        merit[rows] = _standardized(scores[rows]) + share * _standardized(novelty[rows])
        negative = highest[(layout.fold == fold) & ~layout.positive]
        if len(negative):
            middle[fold], most[fold] = np.median(negative), negative.max()
    marks = _top(layout, merit)
    trust = np.where(highest < middle[layout.fold], _DOUBT, 1.0)
    if several:
        above = np.flatnonzero(positive & (scores > most[of_instance]))
        marks = _joined(layout, marks.rows, above, scores)
    counts = np.bincount(marks.bag, minlength=len(trust))
    return Marks(marks.rows, marks.bag, (trust / np.maximum(counts, 1))[marks.bag])


def _top(layout: Layout, merit: Numbers) -> Marks:
    """Mark the first instance of the highest merit [M] in each positive bag."""
    bag = np.flatnonzero(layout.positive)
    rows = [
        first + int(np.argmax(merit[first : first + size]))
        for first, size in zip(layout.first[bag].tolist(), layout.sizes[bag].tolist())
    ]
    return Marks(np.array(rows, dtype=np.int64), bag, np.ones(len(bag)))


def _joined(layout: Layout, rows: Integers, others: Integers, scores: Numbers) -> Marks:
    """Mark `rows`, one in each positive bag, and the highest of the `others`, at most ten in a bag."""
    others = np.setdiff1d(others, rows)
    bag = layout.bag[others]
    order = np.lexsort((others, -scores[others], bag))
    others, bag = others[order], bag[order]
    rank = np.arange(len(bag)) - np.searchsorted(bag, bag)
    every = np.sort(np.append(rows, others[rank < MOST_MARKS - 1]))
    return Marks(every, layout.bag[every], np.ones(len(every)))


def _standardized(values: Numbers) -> Numbers:
    spread = float(values.std()) if len(values) else 0.0
    return np.asarray((values - values.mean()) / spread) if spread > 0 else np.zeros(len(values))


def pooled(layout: Layout, scores: Numbers, temperature: float) -> Numbers:
    """Return the score [N] of each bag: the highest of its instances for temperature 0, else the smoothed maximum.

    The smoothed maximum is ``t log mean exp(s / t)``, close to the mean for a large temperature t.
    """
    highest = layout.highest(scores)
    if temperature == 0:
        return highest
    sums = np.add.reduceat(np.exp((scores - highest[layout.bag]) / temperature), layout.first)
    return np.asarray(highest + temperature * np.log(sums / layout.sizes))
