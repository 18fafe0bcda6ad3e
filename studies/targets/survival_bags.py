"""Bags with a time and an event; the share of a rare instance determines the hazard.

An instance is one of the 8x8 digits of scikit-learn; nines are the rare instances. Bags of different splits share no
image. The share of nines in a bag is log-uniform between two bounds, its hazard is a power of the share, and censoring
is independent of it. Thus the best ranking is known: by the share.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels

_NINE = 9
_SHARES = (0.6, 0.15, 0.25)  # of the images: train, validation, test


@dataclass(frozen=True)
class Bag:
    """Distribution of the bags.

    `size` instances a bag, a share of nines between `least` and `most`, hazard ``(share / least) ** power``, and the
    share of bags that are censored.
    """

    size: int = 2000
    least: float = 0.002
    most: float = 0.05
    power: float = 1.5
    censored: float = 0.3


@dataclass(frozen=True)
class Counts:
    """Number of bags of each split."""

    train: int = 300
    val: int = 200
    test: int = 300

    @property
    def total(self) -> int:
        """Return the number of all bags."""
        return self.train + self.val + self.test


def survival_bags(bag: Bag, counts: Counts, *, repeat: int) -> tuple[Bags, NDArray[np.float64]]:
    """Return the bags of a repeat with their splits, and the log hazard of each bag, [N].

    Examples
    --------
    >>> bags, hazard = survival_bags(Bag(size=50), Counts(20, 10, 10), repeat=0)
    >>> len(bags), bags.outcome.target, hazard.shape
    (40, 'survival', (40,))
    """
    rng = np.random.Generator(np.random.Philox([2023, repeat]))
    digits = load_digits()
    share = np.exp(rng.uniform(np.log(bag.least), np.log(bag.most), counts.total))
    nines = np.maximum(np.rint(share * bag.size).astype(np.int64), 1)
    splits = np.repeat(["train", "val", "test"], [counts.train, counts.val, counts.test])
    parts = {kind: _parts(rng.permutation(np.flatnonzero((digits.target == _NINE) == kind))) for kind in (True, False)}
    rows = np.empty((counts.total, bag.size), dtype=np.int64)
    for own, split, count in zip(rows, splits, nines):
        at = ("train", "val", "test").index(split)
        chosen = [rng.choice(parts[True][at], count), rng.choice(parts[False][at], bag.size - count)]
        own[:] = rng.permutation(np.concatenate(chosen))
    pixels = digits.data.astype(np.float32)
    known = np.unique(rows[splits == "train"])
    pixels = ((pixels - pixels[known].mean()) / pixels[known].std()).astype(np.float16)
    hazard = bag.power * np.log(nines / bag.size / bag.least)
    times = _times(hazard, bag.censored, rng)
    bags = Bags.from_list(
        list(pixels[rows]), outcome=TargetLabels.of("survival", times, names=("time", "event")), splits=splits
    )
    return bags, hazard


def _times(hazard: NDArray[np.float64], censored: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return time and event of each bag: exponential with its hazard, and this share of events is censored."""
    event = rng.exponential(1.0, len(hazard)) / np.exp(hazard)
    waiting = rng.exponential(1.0, len(hazard))
    low, high = -20.0, 20.0
    for _ in range(60):  # rate of censoring by bisection, because the share is monotone in it
        middle = (low + high) / 2
        low, high = (middle, high) if (waiting / np.exp(middle) < event).mean() < censored else (low, middle)
    hidden = waiting / np.exp(low)
    return np.stack([np.minimum(event, hidden), event <= hidden], axis=1).astype(np.float64)


def _parts(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of the three splits."""
    return np.split(rows, (np.cumsum(_SHARES[:2]) * len(rows)).astype(np.int64))
