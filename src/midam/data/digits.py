"""Bags of the 1797 handwritten digits (8x8) in scikit-learn (Alpaydin and Kaynak, UCI 1998)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.data.validate import SPLITS

_SEEDS = {"digits": 2023, "digits-classes": 2024, "digits-labels": 2025}
_BAGS = {"train": 200, "val": 60, "test": 100}
_SHARES = (0.6, 0.15, 0.25)  # of the digits: bags of two splits share no digit
_NINE = 9
# Sets of ten classes or labels have 20 test bags of each class: with fewer, confidence intervals are wide.
_MORE_BAGS = {"train": 200, "val": 60, "test": 200}
_MORE_SHARES = (0.5, 0.15, 0.35)
_TEN = 10
_NAMES = [str(digit) for digit in range(_TEN)]

Rows = NDArray[np.int64]


def digit_bags() -> Bags:
    """Return the bags of ``digits``, always the same: 5 to 15 digits [64] in [0, 1]; 1 to 3 nines if positive."""
    images, digits, rng = _source("digits")
    nines = _parts(rng.permutation(np.flatnonzero(digits == _NINE)), _SHARES)
    others = _parts(rng.permutation(np.flatnonzero(digits != _NINE)), _SHARES)
    members: list[Rows] = []
    labels: list[int] = []
    for split, nine, other in zip(SPLITS, nines, others, strict=True):
        signs = rng.permutation(np.arange(_BAGS[split]) % 2)
        members += [_draw(nine, other, bool(sign), rng) for sign in signs]
        labels += signs.tolist()
    bags = _bags("digits", images, members, _BAGS, labels=labels)
    return bags.replace(instance_labels=digits[np.concatenate(members)] == _NINE)


def class_bags() -> Bags:
    """Return the bags of ``digits-classes``: 5 to 15 digits; the class is the most frequent digit, a third of them."""
    images, digits, rng = _source("digits-classes")
    pools = _parts_by_digit(digits, rng)
    members: list[Rows] = []
    classes: list[int] = []
    for split, pool in zip(SPLITS, pools, strict=True):
        bag_digits = rng.permutation(np.arange(_MORE_BAGS[split]) % _TEN)
        members += [_draw_most(digits, pool, int(digit), rng) for digit in bag_digits]
        classes += bag_digits.tolist()
    outcome = TargetLabels.of("multiclass", classes, names=_NAMES)
    bags = _bags("digits-classes", images, members, _MORE_BAGS, outcome=outcome)
    return bags.replace(instance_labels=digits[np.concatenate(members)] == np.repeat(classes, bags.sizes))


def label_bags() -> Bags:
    """Return the bags of ``digits-labels``: 2 to 6 digits; the labels are the digits that occur."""
    images, digits, rng = _source("digits-labels")
    members: list[Rows] = []
    for split, pool in zip(SPLITS, _parts_by_digit(digits, rng), strict=True):
        sizes = rng.integers(2, 6, _MORE_BAGS[split], endpoint=True)
        members += [rng.choice(pool, size, replace=False) for size in sizes]
    labels = [np.isin(np.arange(_TEN), digits[rows]) for rows in members]
    outcome = TargetLabels.of("multilabel", labels, names=_NAMES)
    return _bags("digits-labels", images, members, _MORE_BAGS, outcome=outcome)


DIGITS: dict[str, Callable[[], Bags]] = {
    "digits": digit_bags,
    "digits-classes": class_bags,
    "digits-labels": label_bags,
}


def _source(name: str) -> tuple[NDArray[np.float32], Rows, np.random.Generator]:
    """Return images [1797, 64] in [0, 1], the digit of each, and the random generator of a set."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.Generator(np.random.Philox(_SEEDS[name]))
    return (digits.data / 16).astype(np.float32), digits.target.astype(np.int64), rng


def _bags(
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


def _parts(rows: Rows, shares: tuple[float, float, float]) -> list[Rows]:
    """Return the rows of the three splits."""
    return np.split(rows, (np.cumsum(shares[:2]) * len(rows)).astype(np.int64))


def _parts_by_digit(digits: Rows, rng: np.random.Generator) -> list[Rows]:
    """Return the rows of the three splits, with similar shares of each digit."""
    by_digit = [_parts(rng.permutation(np.flatnonzero(digits == digit)), _MORE_SHARES) for digit in range(_TEN)]
    return [np.concatenate(part) for part in zip(*by_digit, strict=True)]


def _draw(nines: Rows, others: Rows, positive: bool, rng: np.random.Generator) -> Rows:
    """Draw the rows of one bag, in random order."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = int(rng.integers(1, 3, endpoint=True)) if positive else 0
    chosen = [rng.choice(nines, count, replace=False), rng.choice(others, size - count, replace=False)]
    return rng.permutation(np.concatenate(chosen))


def _draw_most(digits: Rows, pool: Rows, digit: int, rng: np.random.Generator) -> Rows:
    """Draw the rows of one bag, in random order: a third show this digit, fewer any other."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = max(2, round(size / 3))
    matching, others = pool[digits[pool] == digit], pool[digits[pool] != digit]
    noise = rng.choice(others, size - count, replace=False)
    while np.bincount(digits[noise]).max() >= count:
        noise = rng.choice(others, size - count, replace=False)
    return rng.permutation(np.concatenate([rng.choice(matching, count, replace=False), noise]))
