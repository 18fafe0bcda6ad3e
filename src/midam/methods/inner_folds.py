"""Inner folds of training bags, on which a method chooses; which bags can be ranked, and trained on."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import BagDataError
from midam.targets import target_of

if TYPE_CHECKING:
    from midam.train.side import Trial

MANY, _FEW_FOLDS = 500, 3  # for more bags, only three inner folds are used
MOST_NUMBERS = 2**26  # in the instances of trials that are trained side by side
Positions = NDArray[np.int64]


def units_of_bags(bags: Bags) -> NDArray[np.str_]:
    """Return the group of each bag; without groups, each bag is its own."""
    return np.arange(len(bags)).astype(str) if bags.groups is None else bags.groups


def ranked(bags: Bags, positions: NDArray[np.int64]) -> bool:
    """Return whether the main metric of these bags can be computed: for two classes, whether they hold both."""
    target = target_of(bags)
    return target.has_metric(target.values(bags)[positions])


def trainable(bags: Bags, positions: NDArray[np.int64]) -> bool:
    """Return whether a model can be trained on these bags: for two classes, whether they hold both."""
    try:
        target_of(bags).check(bags.subset(positions))
    except BagDataError:
        return False
    return True


def fold_numbers(bags: Bags, *, seed: int) -> Positions | None:
    """Return the fold of each bag, of up to five folds that are disjoint by group; None if two are impossible."""
    target = target_of(bags)
    values = target.values(bags)
    count = min(5, target.most_folds(values, units_of_bags(bags)))
    return None if count < 2 else target.folds(values, groups=bags.groups, folds=count, seed=seed)


def inner_folds(bags: Bags, train: Positions, *, seed: int) -> list[Positions]:
    """Return the test positions of up to five folds of the training bags; empty if two folds are impossible.

    Only folds whose test bags can be ranked and whose other bags can be trained on are returned.
    """
    numbers = fold_numbers(bags.subset(train), seed=seed)
    if numbers is None:
        return []
    tests, every = [np.flatnonzero(numbers == fold) for fold in range(numbers.max() + 1)], np.arange(len(train))
    return [fold for fold in tests if ranked(bags, train[fold]) and trainable(bags, train[np.setdiff1d(every, fold)])]


def inner_trials(bags: Bags, train: Positions, *, seed: int) -> "list[Trial]":
    """Return trials of the inner folds of the training bags: all five, or three of them for more than 500 bags."""
    from midam.train.side import Trial  # imports torch

    folds = inner_folds(bags, train, seed=seed)[: _FEW_FOLDS if len(train) > MANY else None]
    return [Trial(np.setdiff1d(train, train[test]), train[test], seed) for test in folds]
