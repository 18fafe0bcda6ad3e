"""The folds that all methods share, and the validation part inside a training part."""

import hashlib
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.splits import check_disjoint, class_counts, most_parts, split_bags, stratified_folds
from midam.data.validate import both_classes
from midam.errors import BagDataError, ConfigError

Positions = NDArray[np.int64]
Parts = tuple[Positions, Positions]  # to train and to validate on


class Fold(NamedTuple):
    """One split of the bags, named by its two numbers; the repeat is the seed of its trials."""

    repeat: int
    fold: int
    train: Positions
    test: Positions


def repeated_folds(bags: Bags, *, repeats: int, folds: int) -> list[Fold]:
    """Repeated k-fold splits, stratified by label and disjoint by group; without groups, each bag is its own.

    Repeat r is shuffled with seed r. The folds are reduced, with one warning, until each test part holds both classes
    and two positive groups (with one, an AUROC ranks a single patient), but to no less than two. Fewer than two groups
    of a class are a `BagDataError`.

    Examples
    --------
    >>> bags = Bags.from_list([[[float(i)]] for i in range(8)], [0, 1] * 4)
    >>> [(f.repeat, f.fold, len(f.train), len(f.test)) for f in repeated_folds(bags, repeats=1, folds=2)]
    [(0, 0, 4, 4), (0, 1, 4, 4)]
    """
    both_classes(bags)
    labels, units = bags.require_labels(), _units(bags)
    unit = "bags" if bags.groups is None else "groups"
    possible = most_parts(class_counts(labels, units))
    if possible < 2:
        negative, positive = (class_counts(labels, units) > 0).sum(axis=0).tolist()
        raise BagDataError(
            f"Expected at least two {unit} of each class, one to train on and one to test on, got {positive} with "
            f"positive and {negative} with negative bags (in {bags.source}); add bags of the rarer class."
        )
    count = min(folds, possible)
    made = _repeated(bags, repeats=repeats, folds=count)
    while count > 2 and any(_positive_units(bags, fold) < 2 for fold in made):
        count -= 1
        made = _repeated(bags, repeats=repeats, folds=count)
    if count < folds:
        warnings.warn(
            f"{folds} folds reduced to {count}: no more of them can each test two positive and a negative of the "
            f"{unit} (in {bags.source})",
            UserWarning,
            stacklevel=2,
        )
    return made


def fold_remarks(bags: Bags, folds: Sequence[Fold]) -> list[str]:
    """Sentences on folds whose test part ranks a single positive group."""
    single = sum(_positive_units(bags, fold) == 1 for fold in folds)
    unit = "bag" if bags.groups is None else "group"
    return [f"{single} of {len(folds)} folds test a single positive {unit}"] if single else []


def check_folds(bags: Bags, folds: Sequence[Fold]) -> list[Fold]:
    """Folds with int64 positions; refuses none, equal names, foreign positions, and bags or groups on both sides."""
    found = [Fold(int(r), int(f), np.asarray(a, dtype=np.int64), np.asarray(b, np.int64)) for r, f, a, b in folds]
    if not found:
        raise ConfigError("Expected at least one fold, got none; pass the folds to compare on.")
    if len({(f.repeat, f.fold) for f in found}) < len(found):
        raise ConfigError("Expected folds of different (repeat, fold), got one twice; number them.")
    for fold in found:
        used = np.concatenate([fold.train, fold.test])
        if not len(fold.train) or not len(fold.test) or used.min() < 0 or used.max() >= len(bags):
            raise ConfigError(
                f"Expected positions 0 to {len(bags) - 1} for training and test, got others or none (in repeat "
                f"{fold.repeat}, fold {fold.fold}); pass positions in the bags."
            )
        if len(np.unique(used)) < len(used):
            raise ConfigError(
                f"Expected each bag once, got one twice (in repeat {fold.repeat}, fold {fold.fold}); "
                "training and test bags must be disjoint."
            )
        if bags.groups is not None:
            sides = np.repeat(["train", "test"], [len(fold.train), len(fold.test)])
            check_disjoint(sides, bags.groups[used])
    return found


def folds_digest(folds: Sequence[Fold]) -> str:
    """SHA-256 of the numbers and positions of the folds."""
    digest = hashlib.sha256()
    for fold in folds:
        digest.update(f"{fold.repeat},{fold.fold},{len(fold.train)}".encode())
        digest.update(fold.train.tobytes() + fold.test.tobytes())
    return digest.hexdigest()


def one_class(bags: Bags, positions: Positions) -> bool:
    """Whether the bags at these positions lack a class."""
    labels = bags.require_labels()[positions]
    return bool(labels.min() == labels.max())


def validation_part(bags: Bags, train: Positions, *, fraction: float, seed: int) -> Parts | None:
    """Split training bags into parts to train and, a `fraction`, to validate on: stratified, disjoint by group.

    None where the parts cannot both hold both classes.
    """
    groups = None if bags.groups is None else bags.groups[train]
    try:
        parts = split_bags(
            bags.require_labels()[train], groups=groups, fractions=(1 - fraction, fraction, 0.0), seed=seed
        )
    except BagDataError:
        return None
    return train[parts == "train"], train[parts == "val"]


def inner_folds(bags: Bags, train: Positions, *, seed: int) -> list[Positions]:
    """Test positions among the training bags of up to five folds; none where two folds cannot hold both classes."""
    labels, units = bags.require_labels()[train], _units(bags)[train]
    count = min(5, most_parts(class_counts(labels, units)))
    if count < 2:
        return []
    numbers = stratified_folds(labels, groups=None if bags.groups is None else units, folds=count, seed=seed)
    return [np.flatnonzero(numbers == fold) for fold in range(count)]


def _repeated(bags: Bags, *, repeats: int, folds: int) -> list[Fold]:
    labels = bags.require_labels()
    made = []
    for repeat in range(repeats):
        numbers = stratified_folds(labels, groups=bags.groups, folds=folds, seed=repeat)
        made += [Fold(repeat, f, np.flatnonzero(numbers != f), np.flatnonzero(numbers == f)) for f in range(folds)]
    return made


def _units(bags: Bags) -> NDArray[np.str_]:
    """Group of each bag; without groups, the bag itself."""
    return np.arange(len(bags)).astype(str) if bags.groups is None else bags.groups


def _positive_units(bags: Bags, fold: Fold) -> int:
    return len(np.unique(_units(bags)[fold.test[bags.require_labels()[fold.test] == 1]]))
