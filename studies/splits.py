"""The data sets and splits of the studies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit

from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.errors import BagDataError
from studies.sets import catalog
from studies.sets.npz import read_npz
from studies.sets.tabular import content_digest

FOLDS = 5
_TEST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Split:
    """A trial's bags: 0.9/0.1 into training part and test, then one of 5 folds of the training part for validation."""

    # Number of the split, which is its seed, and of the fold
    split: int
    fold: int
    # Positions of the bags
    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]
    seed_offset: int = 0  # Number of a repeated training on the same bags

    @property
    def score(self) -> NDArray[np.int64]:
        """Return validation bags, then test bags."""
        return np.concatenate([self.val, self.test])

    @property
    def seed(self) -> int:
        """Return the seed of weights and sampling, different for each trial."""
        return self.split * FOLDS + self.fold + self.seed_offset


def paper_splits(labels: NDArray[np.int64], *, splits: Sequence[int], folds: int = FOLDS) -> list[Split]:
    """Return the paper's trials: stratified random splits with these seeds, the first `folds` of 5 folds each.

    Examples
    --------
    >>> found = paper_splits(np.arange(60) % 2, splits=[0, 1])
    >>> len(found), len(found[0].train), len(found[0].val), len(found[0].test)
    (10, 43, 11, 6)
    """
    found = []
    for split in splits:
        shuffle = StratifiedShuffleSplit(n_splits=1, test_size=_TEST_SHARE, random_state=split)
        part, test = next(shuffle.split(np.zeros(len(labels)), labels))
        part, test = np.sort(part), np.sort(test)
        numbers = stratified_folds(labels[part], folds=FOLDS, seed=split)
        found += [Split(split, fold, part[numbers != fold], part[numbers == fold], test) for fold in range(folds)]
    return found


def published_folds(name: str, bags: Bags) -> tuple[Bags, NDArray[np.bool_]] | None:
    """Return a set in the order of its file with its published folds, or None if it has none.

    In the folds, bool [repeats, folds, N], True marks a training bag.
    """
    if name not in catalog.CATALOG or bags.source != name:
        return None
    place = catalog.describe(name)["location"]
    if place is None or not Path(place).is_file():
        return None
    with np.load(place, allow_pickle=False) as archive:
        folds = archive["folds_train"].astype(bool) if "folds_train" in archive.files else None
    if folds is None:
        return None
    # catalog.load would change the order of the bags, and the folds would not match.
    ordered = read_npz(place)
    if content_digest(ordered) != catalog.CATALOG[name].digest or folds.shape[-1] != len(ordered):
        raise BagDataError(f"Expected the bags of {name} with folds for each, got others (in {place}); fetch it again.")
    return ordered, folds
