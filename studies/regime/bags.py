"""Bags of real handwritten digits in any size: the material of the study of regimes.

An instance is one of the 1797 8x8 digits that scikit-learn carries (Alpaydin and Kaynak, UCI 1998); nines are the
witnesses. A bag draws its instances with replacement from the images of its split, so that it may be larger than the
collection; bags of different splits share no image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.errors import ConfigError

_NINE = 9
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


def witnesses(size: int, rate: float) -> int:
    """Return the witnesses of a positive bag: the rate's share of the bag, at least one.

    Examples
    --------
    >>> witnesses(5000, 0.001), witnesses(50, 0.001), witnesses(50, 0.1)
    (5, 1, 5)
    """
    return max(1, round(size * rate))


def nine_bags(size: int, *, sets: Sequence[tuple[int, int]], counts: Counts | None = None) -> Bags:
    """Draw several sets of bags of one size, one set after the other, in the order of `Counts.positions`.

    A positive bag of the set ``(positive, repeat)`` holds `positive` nines, a negative one none. A set is a pure
    function of its two numbers and `size`; which images belong to which split depends on the repeat alone. Pixels are
    centered and scaled by the mean and the standard deviation of all pixels of the training images of the repeat, in
    float16: a digit has 17 shades, and bags of thousands fill the memory.

    Examples
    --------
    >>> bags = nine_bags(20, sets=[(2, 0), (5, 0)])
    >>> len(bags), bags.num_instances, int(bags.labels[:96].sum())
    (488, 9760, 48)
    """
    counts = counts or Counts()
    instances = np.empty((len(sets), counts.total, size, PIXELS), dtype=np.float16)
    for own, (positive, repeat) in zip(instances, sets):
        if not 1 <= positive <= size:
            raise ConfigError(f"Expected 1 to {size} witnesses in a bag of {size}, got {positive}; choose another.")
        scaled_images(repeat).take(draw_rows(size, positive=positive, repeat=repeat, counts=counts), axis=0, out=own)
    total = len(sets) * counts.total
    return Bags(
        instances.reshape(-1, PIXELS),
        starts=np.arange(total) * size,
        sizes=np.full(total, size),
        labels=np.arange(total) % 2,
        source="nines",
    )


def draw_rows(size: int, *, positive: int, repeat: int, counts: Counts) -> NDArray[np.int64]:
    """Return the image [bags, n] of each instance of a repeat; every second bag is positive."""
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([repeat, size, positive])))
    drawn = []
    for split, (nines, others) in split_images(repeat).items():
        rows = rng.choice(others, (len(counts.positions(split)), size))
        rows[1::2, :positive] = rng.choice(nines, (len(rows) // 2, positive))
        drawn.append(rng.permuted(rows, axis=1))
    return np.concatenate(drawn)


def is_nine(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which images are witnesses."""
    found: NDArray[np.bool_] = _digits()[1][rows] == _NINE
    return found


@lru_cache(maxsize=8)
def split_images(repeat: int) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the images of each split, the nines and the others, disjoint between the splits."""
    target = _digits()[1]
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([repeat])))
    parts = []
    for rows in (np.flatnonzero(target == _NINE), np.flatnonzero(target != _NINE)):
        cuts = (np.cumsum(_SHARES[:2]) * len(rows)).astype(np.int64)
        parts.append(np.split(rng.permutation(rows), cuts))
    return dict(zip(("train", "val", "test"), zip(*parts)))


@lru_cache(maxsize=8)
def scaled_images(repeat: int) -> NDArray[np.float16]:
    """Return all images, centered and scaled by the pixels of the training images of a repeat."""
    images = _digits()[0]
    own = images[np.concatenate(split_images(repeat)["train"])]
    scaled: NDArray[np.float16] = ((images - own.mean()) / own.std()).astype(np.float16)
    return scaled


@lru_cache(maxsize=1)
def _digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    found = load_digits()
    return found.data, found.target
