"""Small synthetic bag sets to test defaults, in addition to real sets: four kinds of positive bags."""

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags

_BAGS = 120
_FEATURES = 40


def synthetic_sets(*, bags: int = _BAGS, every: int = 2, seed: int = 0, strength: float = 1.0) -> dict[str, Bags]:
    """Make the sets of bags of 4 to 16 instances with 40 features; one of `every` so many is positive.

    `strength` is that of the signal, from 0, noise, to 1.

    Examples
    --------
    >>> sets = synthetic_sets()
    >>> sorted(sets), len(sets["pair"]), int(sets["pair"].labels.sum())
    (['pair', 'shift', 'sparse', 'witness'], 120, 60)
    """
    rng = np.random.default_rng(seed)
    made: dict[str, list[NDArray[np.float64]]] = {"witness": [], "shift": [], "pair": [], "sparse": []}
    labels = (np.arange(bags) % every == every - 1).astype(int)
    for number, label in enumerate(labels):
        sizes = rng.integers(4, 17, size=len(made))
        few = int(rng.integers(1, 4))
        made["witness"].append(_normal(rng, sizes[0]))
        made["witness"][-1][:few, :8] += strength * label
        made["shift"].append(_normal(rng, sizes[1]))
        made["shift"][-1][:, :8] += 0.3 * strength * label
        made["pair"].append(_normal(rng, sizes[2]))
        kinds = (True, True) if label else ((False, False), (True, False), (False, True))[number // 2 % 3]
        for row, present in enumerate(kinds):
            made["pair"][-1][row, 8 * row : 8 * row + 8] += 1.5 * strength * present
        made["sparse"].append(_counts(rng, sizes[3], rate=0.1))
        made["sparse"][-1][:few, :8] += label * _counts(rng, few, rate=0.4 * strength)[:, :8]
    return {name: Bags.from_list(parts, labels, source=f"synthetic {name}") for name, parts in made.items()}


def _normal(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    return rng.normal(size=(size, _FEATURES))


def _counts(rng: np.random.Generator, size: int, *, rate: float) -> NDArray[np.float64]:
    present = rng.random((size, _FEATURES)) < rate
    return np.where(present, np.exp(rng.normal(scale=1.5, size=(size, _FEATURES))), 0.0)
