"""The bags of the study of draws on real data, and an encoder of images that two cores can train many times."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.data.sources.request import ImageOptions
from midam.data.splits import stratified_folds
from midam.errors import DataNotFoundError
from midam.train.trials import Trial
from studies.images.sets import make_set
from studies.regime.bags import Counts

FOLDS, PARTS = 10, 5
_MNIST = Path("digits/mnist_20k.npz")
_NINE = 9
# Of MNIST's training images; the test images are those of the test bags.
_TRAIN_SHARE = 0.8


class SmallConv(nn.Module):
    """Two convolutions that halve the sides, and a layer of 64 tanh units.

    Examples
    --------
    >>> import torch
    >>> SmallConv(3)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 64])
    """

    repeatable = True

    def __init__(self, in_channels: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(in_channels, 16, 5, stride=2, padding=2), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, 64), nn.Tanh()),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Encodings [M, 64] of images [M, C, H, W]."""
        found: Tensor = self.layers(images)
        return found


@dataclass(frozen=True, eq=False)
class RealSet:
    """Bags of one repeat, and what is trained and scored on them: validation bags, if any, then test bags."""

    bags: Bags
    trials: tuple[Trial, ...]
    validation: int  # How many of the scored bags choose


def load_real(name: str, repeat: int) -> RealSet:
    """Return a set: a name of the catalog, ``colon/16`` for patches of 16 pixels, or ``mnist/500/1``, size/witnesses.

    Tabular bags: stratified 10-fold cross-validation. Images: one of five parts tests, one validates, three train,
    disjoint by group; adrenal and digits have their own splits. MNIST: bags drawn from disjoint images.
    """
    family, *sizes = name.split("/")
    if family == "mnist":
        return mnist_bags(int(sizes[0]), witnesses=int(sizes[1]), repeat=repeat)
    bags = _image_bags(name) if family in _IMAGES else _tabular_bags(name)
    return _SPLITS.get(family, _parted)(bags, repeat)


def mnist_bags(size: int, *, witnesses: int, repeat: int, counts: Counts | None = None) -> RealSet:
    """Return bags of MNIST images [1, 28, 28]; a positive one holds so many nines, a negative one none."""
    counts = counts or Counts()
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([repeat, size, witnesses, 28])))
    drawn = []
    for split, (images, digits) in zip(("train", "val", "test"), _mnist(repeat)):
        rows = rng.choice(np.flatnonzero(digits != _NINE), (len(counts.positions(split)), size))
        rows[1::2, :witnesses] = rng.choice(np.flatnonzero(digits == _NINE), (len(rows) // 2, witnesses))
        drawn.append(images[rng.permuted(rows, axis=1).reshape(-1)])
    bags = Bags(
        np.concatenate(drawn)[:, None],
        starts=np.arange(counts.total) * size,
        sizes=np.full(counts.total, size),
        labels=np.arange(counts.total) % 2,
        source="mnist nines",
    )
    train, val, test = (counts.positions(split) for split in ("train", "val", "test"))
    return RealSet(bags, (Trial(train, np.concatenate([val, test]), repeat),), len(val))


def cross_validated(bags: Bags, repeat: int) -> RealSet:
    """Return the trials of a 10-fold cross-validation, whose seed is the repeat."""
    labels = bags.require_labels()
    folds = stratified_folds(labels, folds=FOLDS, seed=repeat)
    trials = (Trial(np.flatnonzero(folds != k), np.flatnonzero(folds == k), repeat) for k in range(FOLDS))
    return RealSet(bags, tuple(trials), 0)


def _parted(bags: Bags, repeat: int) -> RealSet:
    parts = stratified_folds(bags.require_labels(), groups=bags.groups, folds=PARTS, seed=repeat)
    test, val = np.flatnonzero(parts == 0), np.flatnonzero(parts == 1)
    return RealSet(bags, (Trial(np.flatnonzero(parts > 1), np.concatenate([val, test]), repeat),), len(val))


def _published(bags: Bags, repeat: int) -> RealSet:
    train, val, test = (bags.where_split(split) for split in ("train", "val", "test"))
    return RealSet(bags, (Trial(train, np.concatenate([val, test]), repeat),), len(val))


@lru_cache(maxsize=1)
def _image_bags(name: str) -> Bags:
    family, *side = name.split("/")
    if family != "adrenal":
        return catalog.load(family, images=ImageOptions(patch_size=int(side[0])))
    return make_set(catalog.load(family), volumes=True, halve=True).bags


@lru_cache(maxsize=8)
def _tabular_bags(name: str) -> Bags:
    return catalog.load(name)


@lru_cache(maxsize=1)
def _mnist(repeat: int) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Images and digits for training, validation and test; which of the training images validate is by the repeat."""
    path = Path(os.environ.get("MIDAM_DATA", "")).expanduser() / _MNIST
    if not path.is_file():
        raise DataNotFoundError(f"Expected MNIST, got no file {path}; set MIDAM_DATA to the folder with {_MNIST}.")
    with np.load(path, allow_pickle=False) as archive:
        images, digits, *test = (archive[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    order = np.random.Generator(np.random.Philox(repeat)).permutation(len(digits))
    cuts = np.split(order, [int(_TRAIN_SHARE * len(order))])
    return [*((images[rows], digits[rows]) for rows in cuts), (test[0], test[1])]


_IMAGES = ("breast", "colon", "adrenal")
_SPLITS: dict[str, Callable[[Bags, int], RealSet]] = {
    **dict.fromkeys(("adrenal", "digits"), _published),
    **dict.fromkeys(("musk1", "musk2", "elephant", "fox", "tiger"), cross_validated),
}
