"""Splits of bags, stratified by label and disjoint by group (patient, slide): no test group is in the training set."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.data.validate import SPLITS, binary_labels, check_length, group_array, name_array, refuse_other_order
from midam.errors import BagDataError, ConfigError, LeakageError, given
from midam.names import warn_of_alike


def split_bags(
    labels: ArrayLike, *, groups: ArrayLike | None = None, fractions: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0
) -> NDArray[np.str_]:
    """Split bags into train, val and test: stratified by label, disjoint by group.

    Groups are assigned by decreasing size, each to the split where it brings the shares of both classes closest to the
    wanted shares.

    Parameters
    ----------
    labels : array of int, shape [N]
        0 or 1.
    groups : array of str, shape [N], optional
        Bags of one group stay together. Default: each bag is its own group.
    fractions : three floats in [0, 1], sum 1, default (0.6, 0.2, 0.2)
        Wanted shares of train, val and test; a split of share 0 stays empty.
    seed : int >= 0, default 0
        Seed of the shuffle.

    Returns
    -------
    array of str, shape [N]
        ``"train"``, ``"val"`` or ``"test"``; each split holds both classes, or a `BagDataError` is raised.

    Examples
    --------
    >>> splits = split_bags([0, 1] * 10, seed=1)
    >>> [int((splits == name).sum()) for name in ("train", "val", "test")]
    [12, 4, 4]
    """
    if groups is not None:
        warn_of_alike({"groups": name_array(groups).ravel().tolist()}, source="memory")
    return split_strata(labels, groups=groups, fractions=fractions, seed=seed, binary=True)


def stratified_folds(
    labels: ArrayLike, *, groups: ArrayLike | None = None, folds: int = 10, seed: int = 0, binary: bool = True
) -> NDArray[np.int64]:
    """Give each bag the number of the fold that tests it, 0 to folds - 1.

    Without groups, this is scikit-learn's shuffled StratifiedKFold; with groups, the rule of `split_bags`, which,
    unlike StratifiedGroupKFold, gives each fold both classes or raises an error.

    `labels` and `groups` [N] and `seed` are as in `split_bags`; `folds` is at least 2. If they are not `binary`,
    `labels` are any strata, which the rule of `split_bags` spreads; a small one may be missing in a fold.

    Examples
    --------
    >>> import numpy as np
    >>> np.bincount(stratified_folds([0] * 6 + [1] * 4, folds=2))
    array([5, 5])
    """
    if folds < 2:
        raise ConfigError(f"Expected at least 2 folds, got {folds}; set a larger number.")
    if groups is not None or not binary:
        return _assign(labels, groups, np.full(folds, 1 / folds), seed=seed, part="fold", binary=binary)
    from sklearn.model_selection import StratifiedKFold

    labels = binary_labels(labels)
    _require_both(class_counts(labels, np.arange(len(labels))), folds, part="fold", unit="bags")
    numbers = np.empty(len(labels), dtype=np.int64)
    splitter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=seed % 2**32)  # that scikit-learn takes
    for fold, (_, tested) in enumerate(splitter.split(np.zeros(len(labels)), labels)):
        numbers[tested] = fold
    return numbers


def split_strata(
    strata: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    binary: bool = False,
) -> NDArray[np.str_]:
    """Split bags by any number of strata (int [N]), as `split_bags` does by label.

    A small stratum may be missing in a split; with `binary` labels, each split holds both classes.

    Examples
    --------
    >>> splits = split_strata([0] * 5 + [1] * 5 + [2] * 10, seed=1)
    >>> [int((splits == name).sum()) for name in ("train", "val", "test")]
    [12, 4, 4]
    """
    shares = _shares(fractions)
    used = np.flatnonzero(shares)
    return np.array(SPLITS)[used[_assign(strata, groups, shares[used], seed=seed, part="split", binary=binary)]]


def check_disjoint(splits: ArrayLike, groups: ArrayLike, *, allow_leakage: bool = False) -> None:
    """Refuse splits that share a group, unless `allow_leakage`, with a `LeakageError` that names some of the groups.

    Examples
    --------
    >>> check_disjoint(["train", "test"], ["patient-1", "patient-2"])
    """
    if allow_leakage:
        return
    refuse_other_order(splits, groups)
    splits = name_array(splits).ravel()
    groups = group_array(groups, np.empty(0, np.str_), "memory")
    check_length(splits, len(groups), "split", "memory")
    pairs = np.unique(np.stack([groups, splits]), axis=1)
    names, counts = np.unique(pairs[0], return_counts=True)
    shared = names[counts > 1]
    if len(shared):
        examples = "; ".join(f"{name} in {' and '.join(pairs[1, pairs[0] == name])}" for name in shared[:3])
        got, allow = f"{len(shared)} of {len(names)} groups in several ({examples})", given(allow_leakage=True)
        raise LeakageError(f"Expected each group in one split, got {got}; split by group, or allow it with {allow}.")


def class_counts(labels: NDArray[np.int64], groups: ArrayLike, *, classes: int = 2) -> NDArray[np.int64]:
    """Count the bags of each class in each group, [G, classes]."""
    codes = np.unique(groups, return_inverse=True)[1]
    return np.stack([np.bincount(codes, weights=labels == value) for value in range(classes)], axis=1).astype(np.int64)


def most_parts(counts: NDArray[np.int64]) -> int:
    """Return the largest number of parts that can each hold both classes, in one group or in two."""
    negative, positive = (counts > 0).T
    return int((negative & positive).sum() + min((negative & ~positive).sum(), (positive & ~negative).sum()))


def _shares(fractions: Sequence[float]) -> NDArray[np.float64]:
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (3,) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ConfigError(f"Expected three fractions that sum to 1, got {fractions}; set train, val and test.")
    return shares


def _assign(
    strata: ArrayLike, groups: ArrayLike | None, shares: NDArray[np.float64], *, seed: int, part: str, binary: bool
) -> NDArray[np.int64]:
    """Give each bag the number of a part: groups stay together, strata are spread, and no part is empty.

    With `binary` labels, each part gets both classes.
    """
    refuse_other_order(strata, groups)
    numbers = binary_labels(strata) if binary else np.unique(np.asarray(strata), return_inverse=True)[1]
    codes, unit = np.arange(len(numbers)), "bags"  # each is its own group
    if groups is not None:
        names, unit = group_array(groups, np.empty(0, np.str_), "memory"), "groups"
        check_length(names, len(numbers), "group", "memory")
        codes = np.unique(names, return_inverse=True)[1]
    counts = class_counts(numbers, codes, classes=2 if binary else int(numbers.max(initial=0)) + 1)
    if binary:
        _require_both(counts, len(shares), part=part, unit=unit)
    elif len(counts) < len(shares):
        wanted = f"at least {len(shares)} {unit} for as many {part}s"
        raise BagDataError(f"Expected {wanted}, got {len(counts)}; ask for fewer or add bags.")
    order = np.random.default_rng(seed).permutation(len(counts))
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    parts = _fill(counts, order, shares, {})
    needed = counts.T if binary else counts.sum(axis=1)[None]
    if not np.all([np.bincount(parts, weights=of_stratum, minlength=len(shares)) for of_stratum in needed]):
        smallest = zip(order[::-1].tolist(), np.argsort(shares, kind="stable").tolist())
        parts = _fill(counts, order, shares, _seeds(counts, order, shares) if binary else dict(smallest))
    return parts[codes]


def _require_both(counts: NDArray[np.int64], parts: int, *, part: str, unit: str) -> None:
    """Refuse groups of these class counts if they are too few for this number of parts with both classes."""
    if most_parts(counts) < parts:
        negative, positive = (counts > 0).sum(axis=0).tolist()
        raise BagDataError(
            f"Expected enough {unit} for {parts} {part}s that each hold both classes, got {positive} {unit} "
            f"with positive and {negative} with negative bags; ask for fewer {part}s or add bags."
        )


def _fill(
    counts: NDArray[np.int64], order: NDArray[np.int64], shares: NDArray[np.float64], fixed: dict[int, int]
) -> NDArray[np.int64]:
    """Assign each group to the part where it most reduces the squared distance to the wanted shares of all classes."""
    parts = np.full(len(counts), -1)
    filled = np.zeros((len(shares), counts.shape[1]))
    weights = counts / counts.sum(axis=0)
    for group, part in fixed.items():
        parts[group] = part
        filled[part] += weights[group]
    for group in order:
        if parts[group] < 0:
            missing = shares[:, None] - filled
            parts[group] = ((missing - weights[group]) ** 2 - missing**2).sum(axis=1).argmin()
            filled[parts[group]] += weights[group]
    return parts


def _seeds(counts: NDArray[np.int64], order: NDArray[np.int64], shares: NDArray[np.float64]) -> dict[int, int]:
    """Give each part a first group, or pair of groups, with both classes: small ones to small parts."""
    ascending = order[::-1].tolist()
    negative = [g for g in ascending if counts[g, 1] == 0]
    positive = [g for g in ascending if counts[g, 0] == 0]
    mixed = [g for g in ascending if counts[g].all()]
    starters = [(n, p) for n, p in zip(negative, positive, strict=False)] + [(g,) for g in mixed]
    starters.sort(key=lambda groups: sum(int(counts[g].sum()) for g in groups))
    parts = np.argsort(shares, kind="stable").tolist()
    return {group: part for part, groups in zip(parts, starters, strict=False) for group in groups}
