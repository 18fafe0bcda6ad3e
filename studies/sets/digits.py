"""Bags of handwritten digits with other labels than ``digits`` of midam: a class of ten, and several labels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.digits import digit_bags
from midam.data.target_labels import TargetLabels
from midam.data.validate import SPLITS

# Such sets have 20 test bags of each class: with fewer, confidence intervals are wide.
_BAGS = {"train": 200, "val": 60, "test": 200}
_SHARES = (0.5, 0.15, 0.35)
_TEN = 10
_NAMES = [str(digit) for digit in range(_TEN)]

Rows = NDArray[np.int64]


def class_bags() -> Bags:
    """Return the bags of ``digits-classes``: 5 to 15 digits; the class is the most frequent digit, a third of them."""
    images, digits, rng = digit_images(2024)
    pools = _parts_by_digit(digits, rng)
    members: list[Rows] = []
    classes: list[int] = []
    for split, pool in zip(SPLITS, pools, strict=True):
        bag_digits = rng.permutation(np.arange(_BAGS[split]) % _TEN)
        members += [_draw_most(digits, pool, int(digit), rng) for digit in bag_digits]
        classes += bag_digits.tolist()
    outcome = TargetLabels.of("multiclass", classes, names=_NAMES)
    bags = bags_of_digits("digits-classes", images, members, _BAGS, outcome=outcome)
    return bags.replace(instance_labels=digits[np.concatenate(members)] == np.repeat(classes, bags.sizes))


def label_bags() -> Bags:
    """Return the bags of ``digits-labels``: 2 to 6 digits; the labels are the digits that occur."""
    images, digits, rng = digit_images(2025)
    members: list[Rows] = []
    for split, pool in zip(SPLITS, _parts_by_digit(digits, rng), strict=True):
        sizes = rng.integers(2, 6, _BAGS[split], endpoint=True)
        members += [rng.choice(pool, size, replace=False) for size in sizes]
    labels = [np.isin(np.arange(_TEN), digits[rows]) for rows in members]
    outcome = TargetLabels.of("multilabel", labels, names=_NAMES)
    return bags_of_digits("digits-labels", images, members, _BAGS, outcome=outcome)


DRAWN = {"digits": digit_bags, "digits-classes": class_bags, "digits-labels": label_bags}


def digit_images(seed: int) -> tuple[NDArray[np.float32], Rows, np.random.Generator]:
    """Return images [1797, 64] in [0, 1], the digit of each, and the random generator of a seed."""
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


def _parts_by_digit(digits: Rows, rng: np.random.Generator) -> list[Rows]:
    """Return the rows of the three splits, with similar shares of each digit."""
    shuffled = [rng.permutation(np.flatnonzero(digits == digit)) for digit in range(_TEN)]
    by_digit = [np.split(rows, (np.cumsum(_SHARES[:2]) * len(rows)).astype(np.int64)) for rows in shuffled]
    return [np.concatenate(part) for part in zip(*by_digit, strict=True)]


def _draw_most(digits: Rows, pool: Rows, digit: int, rng: np.random.Generator) -> Rows:
    """Draw the rows of one bag, in random order: a third show this digit, fewer any other."""
    size = int(rng.integers(5, 15, endpoint=True))
    count = max(2, round(size / 3))
    matching, others = pool[digits[pool] == digit], pool[digits[pool] != digit]
    noise = rng.choice(others, size - count, replace=False)
    while np.bincount(digits[noise]).max() >= count:
        noise = rng.choice(others, size - count, replace=False)
    return rng.permutation(np.concatenate([rng.choice(matching, count, replace=False), noise]))
