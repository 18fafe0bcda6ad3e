"""The folds that all methods share, and the validation part inside a training part."""

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.request import Request
from midam.data.sources.split_table import fold_numbers, read_splits
from midam.data.splits import check_disjoint
from midam.errors import BagDataError, ConfigError, require_counts
from midam.methods.inner_folds import Positions, ranked, trainable, units_of_bags
from midam.targets import target_of

Parts = tuple[Positions, Positions]  # positions for training and for validation


class Fold(NamedTuple):
    """One split of the bags, named by repeat and fold; the repeat is the seed of its trials.

    Examples
    --------
    A custom fold for `midam.compare.run_comparison`:

    >>> fold = Fold(repeat=0, fold=0, train=np.arange(8), test=np.arange(8, 10))
    >>> len(fold.train), fold.test.tolist()
    (8, [8, 9])
    """

    repeat: int
    fold: int
    train: Positions
    test: Positions


def repeated_folds(bags: Bags, *, repeats: int, folds: int) -> list[Fold]:
    """Return repeated k-fold splits, stratified by label and disjoint by group; without groups, each bag is a group.

    Repeat r is shuffled with seed r. The number of folds is reduced, with a warning, until each test part holds both
    classes and two positive groups (with one, an AUROC ranks a single patient), but not below two. Fewer than two
    groups of a class raise a `BagDataError`.

    For other targets than two classes, bags are stratified by `midam.targets.Target.strata`, and the number of folds is
    reduced until the labels of each test part rank two groups above others.

    Examples
    --------
    >>> bags = Bags.from_list([[[float(i)]] for i in range(8)], [0, 1] * 4)
    >>> [(f.repeat, f.fold, len(f.train), len(f.test)) for f in repeated_folds(bags, repeats=1, folds=2)]
    [(0, 0, 4, 4), (0, 1, 4, 4)]
    """
    require_counts(repeats=repeats)
    require_counts(2, folds=folds)
    target_of(bags).check(bags)
    unit = "bags" if bags.groups is None else "groups"
    count = min(folds, _most_folds(bags, unit))
    splits = _repeated(bags, repeats=repeats, folds=count)
    while count > 2 and any(_ranked_units(bags, fold) < 2 for fold in splits):
        count -= 1
        splits = _repeated(bags, repeats=repeats, folds=count)
    if count < folds:
        warnings.warn(
            f"{folds} folds reduced to {count}: with more, a fold would lack two {unit} to rank above others (in "
            f"{bags.source})",
            stacklevel=2,
        )
    return splits


def table_folds(bags: Bags, path: str | Path, *, groups: str | None = None, skip_missing: bool = False) -> list[Fold]:
    """Return the folds of a table of CLAM or Patho-Bench, or the single split of another table, see `read_splits`.

    Training and validation bags of the table form the training part, from which methods take new validation bags. A
    fold leaves out bags that it does not name. A fold without training or test bags raises a `BagDataError`.
    """
    made = []
    request = Request(bags.source, split_file=path, groups=groups, missing="skip" if skip_missing else "error")
    request.left_out.extend(bags.left_out)
    numbers: list[int | None] = [*fold_numbers(path)]
    for number in numbers or [None]:
        splits = read_splits(bags, request.changed(fold=number))
        test, train = np.flatnonzero(splits == "test"), np.flatnonzero(np.isin(splits, ("train", "val")))
        if not len(test) or not len(train):
            where = "" if number is None else f", fold {number}"
            raise BagDataError(
                f"Expected training and test bags in each fold, got {len(train)} and {len(test)} (in {path}{where}); "
                "correct the table."
            )
        made.append(Fold(0, number or 0, train, test))
    return check_folds(bags, made)


def fold_remarks(bags: Bags, folds: Sequence[Fold]) -> list[str]:
    """Return notes on folds whose test part ranks a single group, and on classes that some folds cannot rank."""
    single = sum(_ranked_units(bags, fold) == 1 for fold in folds)
    unit, target = "bag" if bags.groups is None else "group", target_of(bags)
    remarks = [f"{single} of {len(folds)} folds rank a single {unit} above others"] if single else []
    lacking = dict.fromkeys(target.columns, 0)
    for fold in folds if target.count > 1 else []:
        for name, (above, below) in zip(target.columns, target.sides(target.values(bags)[fold.test]), strict=True):
            lacking[name] += not (above.any() and below.any())
    few = [f"{name} ({count})" for name, count in lacking.items() if count]
    if few:
        kind = "a class" if target.pairs == "classes" else "a label"
        remarks.append(f"the macro AUROC of a fold leaves out {kind} without an AUROC: {', '.join(few)}")
    return remarks


def check_folds(bags: Bags, folds: Sequence[Fold]) -> list[Fold]:
    """Return folds with int64 positions; refuse empty, duplicate, invalid or overlapping ones."""
    checked = [Fold(int(r), int(f), np.asarray(a, dtype=np.int64), np.asarray(b, np.int64)) for r, f, a, b in folds]
    if not checked:
        raise ConfigError("Expected at least one fold, got none; pass the folds to compare on.")
    if len({(f.repeat, f.fold) for f in checked}) < len(checked):
        raise ConfigError("Expected folds with different (repeat, fold), got a duplicate; number them.")
    for fold in checked:
        used = np.concatenate([fold.train, fold.test])
        if not len(fold.train) or not len(fold.test) or used.min() < 0 or used.max() >= len(bags):
            raise ConfigError(
                f"Expected positions 0 to {len(bags) - 1} for training and test, got others or none (in repeat "
                f"{fold.repeat}, fold {fold.fold}); pass positions in the bags."
            )
        if len(np.unique(used)) < len(used):
            raise ConfigError(
                f"Expected each bag once, got a duplicate (in repeat {fold.repeat}, fold {fold.fold}); "
                "training and test bags must be disjoint."
            )
        if bags.groups is not None:
            check_disjoint(np.repeat(["train", "test"], [len(fold.train), len(fold.test)]), bags.groups[used])
    return checked


def folds_digest(folds: Sequence[Fold]) -> str:
    """Return the SHA-256 of the numbers and positions of the folds."""
    digest = hashlib.sha256()
    for fold in folds:
        digest.update(f"{fold.repeat},{fold.fold},{len(fold.train)}".encode())
        digest.update(fold.train.tobytes() + fold.test.tobytes())
    return digest.hexdigest()


def validation_part(bags: Bags, train: Positions, *, fraction: float, seed: int) -> Parts | None:
    """Split training bags into a training and a validation part, a `fraction` of them: stratified, disjoint by group.

    None if both parts cannot hold both classes; for other targets, if one part cannot train or the other not be ranked.
    """
    target, groups = target_of(bags), None if bags.groups is None else bags.groups[train]
    values = target.values(bags)[train]
    try:
        parts = target.split(values, groups=groups, fractions=(1 - fraction, fraction, 0.0), seed=seed)
    except BagDataError:
        return None
    inner, val = train[parts == "train"], train[parts == "val"]
    return (inner, val) if trainable(bags, inner) and (ranked(bags, val) or not len(val)) else None


def _most_folds(bags: Bags, unit: str) -> int:
    """Return the largest possible number of folds; raise a `BagDataError` if it is below two."""
    target, units = target_of(bags), units_of_bags(bags)
    values = target.values(bags)
    possible = target.most_folds(values, units)
    if possible < 2:
        got = " and ".join(str(len(np.unique(units[side]))) for side in target.sides(values)[0])
        raise BagDataError(
            f"Expected at least two {unit} that the labels rank above others, and two below, to train and test on, got "
            f"{got} (in {bags.source}); add bags."
        )
    return possible


def _repeated(bags: Bags, *, repeats: int, folds: int) -> list[Fold]:
    target = target_of(bags)
    values, splits = target.values(bags), []
    for repeat in range(repeats):
        numbers = target.folds(values, groups=bags.groups, folds=folds, seed=repeat)
        splits += [Fold(repeat, f, np.flatnonzero(numbers != f), np.flatnonzero(numbers == f)) for f in range(folds)]
    return splits


def _ranked_units(bags: Bags, fold: Fold) -> int:
    """Return how many groups the labels of the test bags rank above others, the maximum over label columns."""
    target, units = target_of(bags), units_of_bags(bags)[fold.test]
    sides = target.sides(target.values(bags)[fold.test])
    return max(len(np.unique(units[above])) if below.any() else 0 for above, below in sides)
