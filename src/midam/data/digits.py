"""Bags of the 1797 handwritten digits (8x8) in scikit-learn (Alpaydin and Kaynak, UCI 1998)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import SPLITS

_SEED = 2023
_BAGS = {"train": 200, "val": 60, "test": 100}
_SHARES = (0.6, 0.15, 0.25)  # of the digits: bags of two splits share no digit
_NINE = 9

Rows = NDArray[np.int64]


def digit_bags() -> Bags:
    """Return the bags of ``digits``, always the same: 5 to 15 digits [64] in [0, 1]; 1 to 3 nines if positive."""
    images, digits, rng = digit_images(_SEED)
    nines = split_rows(rng.permutation(np.flatnonzero(digits == _NINE)), _SHARES)
    others = split_rows(rng.permutation(np.flatnonzero(digits != _NINE)), _SHARES)
    members: list[Rows] = []
    labels: list[int] = []
    for split, nine, other in zip(SPLITS, nines, others, strict=True):
        signs = rng.permutation(np.arange(_BAGS[split]) % 2)
        members += [_draw(nine, other, bool(sign), rng) for sign in signs]
        labels += signs.tolist()
    bags = bags_of_digits("digits", images, members, _BAGS, labels=labels)
    return bags.replace(instance_labels=digits[np.concatenate(members)] == _NINE)


DIGITS: dict[str, Callable[[], Bags]] = {"digits": digit_bags}


def digit_images(seed: int) -> tuple[NDArray[np.float32], Rows, np.random.Generator]:
    """Return images [1797, 64] in [0, 1], the digit of each, and the random generator of a seed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.Generator(np.random.Philox(seed))
    return (digits.data / 16).astype(np.float32), digits.target.astype(np.int64), rng


def bags_of_digits(
    name: str, images: NDArray[np.float32], members: list[Rows], counts: Mapping[str, int], **labels: Any
) -> Bags:
    """Return bags of these rows of the images, split after split."""
    return Bags.from_list(
        [images[rows] for rows in members],
        ids=[f"{split}-{number:04d}" for split in SPLITS for number in range(counts[split])],
        splits=np.repeat(SPLITS, [counts[split] for split in SPLITS]),
        source=name,
        **labels,
    )


def split_rows(rows: Rows, shares: tuple[float, float, float]) -> list[Rows]:
    """Return the rows of the three splits."""
    return np.split(rows, (np.cumsum(shares[:2]) * len(rows)).astype(np.int64))


def _draw(nines: Rows, others: Rows, positive: bool, rng: np.random.Generator) -> Rows:
    """Draw the rows of one bag, in random order."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = int(rng.integers(1, 3, endpoint=True)) if positive else 0
    chosen = [rng.choice(nines, count, replace=False), rng.choice(others, size - count, replace=False)]
    return rng.permutation(np.concatenate(chosen))
