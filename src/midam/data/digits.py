"""Bags of the 1797 handwritten digits (8x8) in scikit-learn (Alpaydin and Kaynak, UCI 1998)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import SPLITS

_SEED = 2023
_BAGS = (200, 60, 100)  # of each split
_SHARES = (0.6, 0.75)  # of the digits, up to the end of train and of val: bags of two splits share no digit
_NINE = 9


def digit_bags() -> Bags:
    """Return the bags of ``digits``, always the same: 5 to 15 digits [64] in [0, 1]; 1 to 3 nines if positive."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.Generator(np.random.Philox(_SEED))
    kinds = [rng.permutation(np.flatnonzero(kind)) for kind in (digits.target == _NINE, digits.target != _NINE)]
    nines, others = (np.split(rows, (np.array(_SHARES) * len(rows)).astype(np.int64)) for rows in kinds)
    members: list[NDArray[np.int64]] = []
    labels: list[int] = []
    for count, nine, other in zip(_BAGS, nines, others, strict=True):
        signs = rng.permutation(np.arange(count) % 2)
        members += [_draw(nine, other, bool(sign), rng) for sign in signs]
        labels += signs.tolist()
    return Bags.from_list(
        [(digits.data[rows] / 16).astype(np.float32) for rows in members],
        labels,
        ids=[f"{split}-{number:04d}" for split, count in zip(SPLITS, _BAGS) for number in range(count)],
        splits=np.repeat(SPLITS, _BAGS),
        instance_labels=digits.target[np.concatenate(members)] == _NINE,
        source="digits",
    )


DIGITS: dict[str, Callable[[], Bags]] = {"digits": digit_bags}


def _draw(
    nines: NDArray[np.int64], others: NDArray[np.int64], positive: bool, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the rows of one bag, in random order."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = int(rng.integers(1, 3, endpoint=True)) if positive else 0
    chosen = [rng.choice(nines, count, replace=False), rng.choice(others, size - count, replace=False)]
    return rng.permutation(np.concatenate(chosen))
