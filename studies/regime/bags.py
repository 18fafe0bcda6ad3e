"""Bags of real handwritten digits in any size: the material of the study of regimes.

An instance is one of the 1797 8x8 digits that scikit-learn carries (Alpaydin and Kaynak, UCI 1998), or the vector of a
digit of MNIST that a pretrained network made; nines are the witnesses. A bag draws its instances with replacement from
the images of its split, so that it may be larger than the collection; bags of different splits share no image.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.store import is_store, open_store
from midam.embed.bags import embed_bags
from midam.errors import ConfigError, DataNotFoundError

_NINE = 9
_PER_BAG = 500  # images that are embedded as one bag
_CLIP = 3.0  # deviations, as the library clips vectors by default
PIXELS = 64
_SHARES = (0.6, 0.15, 0.25)  # of the images: train, validation, test


@dataclass(frozen=True)
class Counts:
    """Bags of a set."""

    # Even: half of each is positive
    train: int = 96
    val: int = 48
    test: int = 100

    @property
    def total(self) -> int:
        """All bags."""
        return self.train + self.val + self.test

    def positions(self, split: str, *, place: int = 0) -> NDArray[np.int64]:
        """Return where the bags of a split ("train", "val", "test") stand, in set number `place` of several.

        Examples
        --------
        >>> Counts(train=2, val=2, test=4).positions("val", place=1)
        array([10, 11])
        """
        ends = dict(zip(("train", "val", "test"), np.cumsum([self.train, self.val, self.test])))
        low = place * self.total
        return np.arange(low + ends[split] - getattr(self, split), low + ends[split])


def nine_bags(
    size: int, *, sets: Sequence[tuple[int, int]], counts: Counts | None = None, vectors: Path | None = None
) -> Bags:
    """Draw several sets of bags of one size, one set after the other, in the order of `Counts.positions`.

    A positive bag of the set ``(positive, repeat)`` holds `positive` nines, a negative one none. A set is a pure
    function of its two numbers and `size`; which images belong to which split depends on the repeat alone. Pixels are
    centered and scaled by the mean and the standard deviation of all pixels of the training images of the repeat, in
    float16: a digit has 17 shades, and bags of thousands fill the memory. Instances are the `vectors` of MNIST in the
    store that `embed_digits` made, where it is given: as many principal components of those of the training images as a
    digit has pixels, each standardized and cut off at 3 deviations.

    Examples
    --------
    >>> bags = nine_bags(20, sets=[(2, 0), (5, 0)])
    >>> len(bags), bags.num_instances, int(bags.labels[:96].sum())
    (488, 9760, 48)
    """
    counts = counts or Counts()
    width = scaled_images(sets[0][1], vectors).shape[1]
    instances = np.empty((len(sets), counts.total, size, width), dtype=np.float16)
    for own, (positive, repeat) in zip(instances, sets):
        if not 1 <= positive <= size:
            raise ConfigError(f"Expected 1 to {size} witnesses in a bag of {size}, got {positive}; choose another.")
        rows = draw_rows(size, positive=positive, repeat=repeat, counts=counts, vectors=vectors)
        scaled_images(repeat, vectors).take(rows, axis=0, out=own)
    total = len(sets) * counts.total
    return Bags(
        instances.reshape(-1, width),
        starts=np.arange(total) * size,
        sizes=np.full(total, size),
        labels=np.arange(total) % 2,
        source="nines",
    )


def image_bags(size: int, *, positive: int, repeat: int, counts: Counts, vectors: Path) -> Bags:
    """Return the bags of one set of `nine_bags`, of the images [1, 28, 28] of which the vectors were made."""
    rows = draw_rows(size, positive=positive, repeat=repeat, counts=counts, vectors=vectors)
    return Bags.from_list([mnist()[0][own, None] for own in rows], (np.arange(len(rows)) % 2).tolist())


def single_images(rows: NDArray[np.int64], vectors: Path) -> Bags:
    """Return bags of one image of MNIST each; the nines are positive."""
    return Bags.from_list(list(mnist()[0][rows, None, None]), is_nine(rows, vectors).astype(int).tolist())


def draw_rows(
    size: int, *, positive: int, repeat: int, counts: Counts, vectors: Path | None = None
) -> NDArray[np.int64]:
    """Return the image [bags, n] of each instance of a repeat; every second bag is positive."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([repeat, size, positive])))
    drawn = []
    for split, (nines, others) in split_images(repeat, vectors).items():
        rows = rng.choice(others, (len(counts.positions(split)), size))
        rows[1::2, :positive] = rng.choice(nines, (len(rows) // 2, positive))
        drawn.append(rng.permuted(rows, axis=1))
    return np.concatenate(drawn)


def is_nine(rows: NDArray[np.int64], vectors: Path | None = None) -> NDArray[np.bool_]:
    """Which images are witnesses."""
    found: NDArray[np.bool_] = _digits(vectors)[1][rows] == _NINE
    return found


@lru_cache(maxsize=8)
def split_images(repeat: int, vectors: Path | None = None) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the images of each split, the nines and the others, disjoint between the splits."""
    target = _digits(vectors)[1]
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([repeat])))
    parts = []
    for rows in (np.flatnonzero(target == _NINE), np.flatnonzero(target != _NINE)):
        cuts = (np.cumsum(_SHARES[:2]) * len(rows)).astype(np.int64)
        parts.append(np.split(rng.permutation(rows), cuts))
    return dict(zip(("train", "val", "test"), zip(*parts)))


@lru_cache(maxsize=8)
def scaled_images(repeat: int, vectors: Path | None = None) -> NDArray[np.float16]:
    """Return all images, centered and scaled by the training images of a repeat; vectors by principal components."""
    images = _digits(vectors)[0]
    own = images[np.concatenate(split_images(repeat, vectors)["train"])]
    if vectors is None:
        return ((images - own.mean()) / own.std()).astype(np.float16)
    _, parts = eigh(np.cov(own.T), subset_by_index=(own.shape[1] - min(PIXELS, own.shape[1]), own.shape[1] - 1))
    found, center = images @ parts, own.mean(axis=0) @ parts
    return np.clip((found - center) / (own @ parts).std(axis=0), -_CLIP, _CLIP).astype(np.float16)


def embed_digits(network: str, count: int, *, cache: Path) -> Path:
    """Pass the first digits of MNIST once through a network; returns the store of their vectors, and makes it once."""
    place = cache / "sets" / f"digits-{count}-{network}"
    if not is_store(place):
        parts = np.split(mnist()[0][:count, None], range(_PER_BAG, count, _PER_BAG))
        place.parent.mkdir(parents=True, exist_ok=True)
        embed_bags(Bags.from_list(parts, [number % 2 for number in range(len(parts))]), network, place)
    return place


@lru_cache(maxsize=2)
def _digits(vectors: Path | None = None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if vectors is None:
        found = load_digits()
        return found.data, found.target
    rows = np.asarray(open_store(vectors).instances[:]).astype(np.float64)
    return rows, mnist()[1][: len(rows)]


@lru_cache(maxsize=1)
def mnist() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [20000, 28, 28] of MNIST in the folder of the real data, and their digits."""
    path = Path(os.environ.get("MIDAM_DATA", ".")) / "digits" / "mnist_20k.npz"
    if not path.is_file():
        raise DataNotFoundError(f"Expected MNIST, got no file (at {path}); set MIDAM_DATA to the folder that holds it.")
    with np.load(path) as file:
        images, digits = (np.concatenate([file[f"{name}_{part}"] for part in ("train", "test")]) for name in "xy")
    return images, digits.astype(np.int64)
