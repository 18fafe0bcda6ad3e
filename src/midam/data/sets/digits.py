"""Bags of the 1797 handwritten digits (8x8) that scikit-learn carries (Alpaydin and Kaynak, UCI 1998)."""

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import SPLITS

_SEED = 2023
_BAGS = {"train": 200, "val": 60, "test": 100}
_SHARES = (0.6, 0.15, 0.25)  # of the digits, so that bags of two splits share none
_NINE = 9


def digit_bags() -> Bags:
    """The bags of the set ``digits``, always the same: 5 to 15 digits [64] in [0, 1]; 1 to 3 nines make it positive."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    digits = load_digits()
    images = (digits.data / 16).astype(np.float32)
    rng = np.random.Generator(np.random.Philox(_SEED))
    nines = _parts(rng.permutation(np.flatnonzero(digits.target == _NINE)))
    others = _parts(rng.permutation(np.flatnonzero(digits.target != _NINE)))
    members: list[NDArray[np.int64]] = []
    labels: list[int] = []
    for split, nine, other in zip(SPLITS, nines, others, strict=True):
        signs = rng.permutation(np.arange(_BAGS[split]) % 2)
        members += [_draw(nine, other, bool(sign), rng) for sign in signs]
        labels += signs.tolist()
    bags = Bags.from_list(
        [images[rows] for rows in members],
        labels,
        ids=[f"{split}-{number:04d}" for split in SPLITS for number in range(_BAGS[split])],
        splits=np.repeat(SPLITS, [_BAGS[split] for split in SPLITS]),
        source="digits",
    )
    return bags.replace(witnesses=digits.target[np.concatenate(members)] == _NINE)


def _parts(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Rows of the three splits."""
    return np.split(rows, (np.cumsum(_SHARES[:2]) * len(rows)).astype(np.int64))


def _draw(
    nines: NDArray[np.int64], others: NDArray[np.int64], positive: bool, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Rows of one bag in random order."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = int(rng.integers(1, 3, endpoint=True)) if positive else 0
    chosen = [rng.choice(nines, count, replace=False), rng.choice(others, size - count, replace=False)]
    return rng.permutation(np.concatenate(chosen))
