"""The bags of the study of remembering: a made table, digits of which no two are alike, tables, histology, volumes.

No test bag is among those on which settings were chosen. Of sets without a published split one half of the bags
chooses, by four folds, and test bags come from the other half. Of the digits a third of the images is for test bags
alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.sources.request import ImageOptions
from midam.data.splits import stratified_folds
from midam.data.store import is_store, open_store
from midam.imaging.embedding import embed_bags
from studies.images.sets import make_set
from studies.sets import catalog

FOLDS = 4  # trainings of which validation bags choose
CHOOSING = tuple(range(100, 100 + FOLDS))  # their repeats
NETWORK = "efficientnet-lite0"
_NINE, _SIDE = 9, 8
_TURN, _STRETCH, _SHIFT, _NOISE = 15.0, 0.15, 1.0, 1.0  # degrees, share, pixels, shades of 16
_IMAGES_AT_ONCE = 20_000
_FEATURES, _SPREAD, _SHIFTS, _ALONE = 12, 0.5, (1.8, 1.5, -1.5), 0.03  # of the made table


@dataclass(frozen=True, eq=False)
class Split:
    """Bags of one repeat: what is trained and what is scored on them, and witnesses where they are known."""

    bags: Bags
    train: NDArray[np.int64]
    score: NDArray[np.int64]
    witness: NDArray[np.bool_] | None = None  # [instances]


@dataclass(frozen=True)
class Digits:
    """Bags of distorted digits; a positive one holds a share of nines, a negative one none."""

    size: int
    share: float = 0.05
    train: int = 400  # bags, half of them positive
    score: int = 200
    # Share of the usual distortion. Not in the name of a trial of the study of remembering, where it is 1
    distortion: float = field(default=1.0, repr=False)

    def load(self, repeat: int, folder: Path) -> Split:  # noqa: ARG002
        """Draw the bags of a repeat. Each instance is a distortion of its own: no two are alike."""
        images, digits = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(digits))
        tested, others = np.split(order, [len(order) // 3])
        rng = np.random.default_rng([repeat, self.size])
        if repeat in CHOOSING:
            tested, others = np.split(rng.permutation(others), [len(others) // 3])
        parts, nines = [], []
        for rows, count in ((others, self.train), (tested, self.score)):
            drawn = rng.choice(rows[digits[rows] != _NINE], (count, self.size))
            found = round(self.share * self.size)
            drawn[1::2, :found] = rng.choice(rows[digits[rows] == _NINE], (count // 2, found))
            flat = rng.permuted(drawn, axis=1).reshape(-1)
            parts.append(distort(images[flat], rng, amount=self.distortion))
            nines.append(digits[flat] == _NINE)
        center, scale = float(parts[0].mean(dtype=np.float64)), float(parts[0].std(dtype=np.float64))
        total = self.train + self.score
        bags = Bags(
            np.concatenate([((part - center) / scale).astype(np.float16) for part in parts]),
            starts=np.arange(total) * self.size,
            sizes=np.full(total, self.size),
            labels=np.arange(total) % 2,
            source="distorted nines",
        )
        return Split(bags, np.arange(self.train), np.arange(self.train, total), np.concatenate(nines))


@dataclass(frozen=True)
class Customers:
    """Bags of rows of a made table, few of them positive: in 1 to 3 rows of these three features are shifted together.

    An ordinary row may have one of the three shifted. Bags differ in level.
    """

    train: int = 6000  # bags
    score: int = 1500
    size: int = 30
    share: float = 0.12  # of positive bags

    def load(self, repeat: int, folder: Path) -> Split:  # noqa: ARG002
        """Draw the bags of a repeat."""
        rng, total = np.random.default_rng([repeat, self.size]), self.train + self.score
        labels = (rng.random(total) < self.share).astype(np.int64)
        x = rng.normal(size=(total, self.size, _FEATURES)) + rng.normal(0, _SPREAD, (total, 1, _FEATURES))
        found = np.arange(self.size) < rng.integers(1, 4, total)[:, None]
        witness = rng.permuted(found & (labels[:, None] == 1), axis=1)
        for column, shift in enumerate(_SHIFTS):
            alone = (rng.random(witness.shape) < _ALONE) & ~witness
            x[..., column] += shift * (witness | alone)
        bags = Bags(
            x.reshape(-1, _FEATURES).astype(np.float32),
            starts=np.arange(total) * self.size,
            sizes=np.full(total, self.size),
            labels=labels,
            source="customers",
        )
        return Split(bags, np.arange(self.train), np.arange(self.train, total), witness.reshape(-1))


@dataclass(frozen=True)
class Real:
    """A set of the catalog, whole bags in memory."""

    name: str
    patch: int | None = None  # side of the patches of images
    vectors: bool = False  # slices pass once through a frozen network

    def load(self, repeat: int, folder: Path) -> Split:
        """Return the split of a repeat."""
        bags = _read(self, folder)
        labels, groups = bags.require_labels(), bags.groups
        if bags.splits is not None:
            train, val, test = (bags.where_split(split) for split in ("train", "val", "test"))
            return Split(bags, train, test) if repeat not in CHOOSING else _fold(bags, np.append(train, val), repeat)
        halves = stratified_folds(labels, groups=groups, folds=2, seed=0)
        chosen, judged = np.flatnonzero(halves == 0), np.flatnonzero(halves == 1)
        if repeat in CHOOSING:
            return _fold(bags, chosen, repeat)
        tested = judged[_folds(bags, judged, folds=2, seed=repeat) == 0]
        return Split(bags, np.setdiff1d(np.arange(len(bags)), tested), tested)


def distort(images: NDArray[np.float64], rng: np.random.Generator, *, amount: float = 1.0) -> NDArray[np.float32]:
    """Turn, stretch and shift each digit [M, 64] in its own way, and add noise; `amount` is a share of all of these.

    Examples
    --------
    >>> twice = distort(np.tile(load_digits().data[:1], (2, 1)), np.random.default_rng(0))
    >>> twice.shape, bool((twice[0] == twice[1]).any())
    ((2, 64), False)
    """
    found = []
    for part in np.array_split(images, max(1, len(images) // _IMAGES_AT_ONCE)):
        shape = (len(part), 1, 1)
        turn = np.deg2rad(amount * rng.uniform(-_TURN, _TURN, shape))
        stretch = 1 + amount * rng.uniform(-_STRETCH, _STRETCH, shape)
        down, right = (amount * rng.uniform(-_SHIFT, _SHIFT, shape) for _ in range(2))
        middle = (_SIDE - 1) / 2
        y, x = np.mgrid[:_SIDE, :_SIDE] - middle
        rows = (np.cos(turn) * y - np.sin(turn) * x) / stretch + middle + down
        columns = (np.sin(turn) * y + np.cos(turn) * x) / stretch + middle + right
        numbers = np.broadcast_to(np.arange(len(part)).reshape(shape), rows.shape)
        moved = map_coordinates(part.reshape(-1, _SIDE, _SIDE), [numbers, rows, columns], order=1, mode="constant")
        found.append((moved.reshape(len(part), -1) + rng.normal(0, amount * _NOISE, part.shape)).astype(np.float32))
    return np.concatenate(found)


def _folds(bags: Bags, rows: NDArray[np.int64], *, folds: int, seed: int) -> NDArray[np.int64]:
    groups = None if bags.groups is None else np.asarray(bags.groups)[rows]
    return stratified_folds(bags.require_labels()[rows], groups=groups, folds=folds, seed=seed)


def _fold(bags: Bags, rows: NDArray[np.int64], repeat: int) -> Split:
    tested = _folds(bags, rows, folds=FOLDS, seed=0) == CHOOSING.index(repeat)
    return Split(bags, rows[~tested], rows[tested])


@lru_cache(maxsize=1)
def _read(data: Real, folder: Path) -> Bags:
    if data.name == "adrenal" and not data.vectors:
        return make_set(catalog.load("adrenal"), volumes=True, halve=True).bags
    if not data.vectors:
        options: Mapping[str, Any] = {} if data.patch is None else {"images": ImageOptions(patch_size=data.patch)}
        return catalog.load(data.name, **options)
    place = folder / "sets" / f"{data.name}-{NETWORK}-tracked"
    if not is_store(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        embed_bags(make_set(catalog.load(data.name), volumes=True).bags, NETWORK, place)
    stored = open_store(place)
    return stored.replace(instances=np.asarray(stored.instances[:]))
