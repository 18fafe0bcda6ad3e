"""The bags of the study of draws on real data, and an encoder of images that two cores can train many times."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.sets import catalog
from midam.data.sources.request import ImageOptions
from midam.data.splits import stratified_folds
from midam.registry import ENCODERS
from midam.train.trials import Trial
from studies.images.sets import make_set

FOLDS, PARTS = 10, 5


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


SMALL_CONV = f"{__name__}.SmallConv"  # as published trials name it
ENCODERS.add(SMALL_CONV, SmallConv)


@dataclass(frozen=True, eq=False)
class RealSet:
    """Bags of one repeat, and what is trained and scored on them: validation bags, if any, then test bags."""

    bags: Bags
    trials: tuple[Trial, ...]
    validation: int  # How many of the scored bags choose


def load_real(name: str, repeat: int) -> RealSet:
    """Return a set: a name of the catalog, or ``colon/16`` for patches of 16 pixels.

    Tabular bags: stratified 10-fold cross-validation. Images: one of five parts tests, one validates, three train,
    disjoint by group; adrenal and digits have their own splits.
    """
    family = name.split("/", maxsplit=1)[0]
    bags = _image_bags(name) if family in _IMAGES else _tabular_bags(name)
    return _SPLITS.get(family, _parted)(bags, repeat)


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


_IMAGES = ("breast", "colon", "adrenal")
_SPLITS: dict[str, Callable[[Bags, int], RealSet]] = {
    **dict.fromkeys(("adrenal", "digits"), _published),
    **dict.fromkeys(("musk1", "musk2", "elephant", "fox", "tiger"), cross_validated),
}
