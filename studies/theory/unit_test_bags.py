"""Three tests of the MIL assumption on synthetic bags (Raff and Holt, NeurIPS 2023).

The instances in a bag make it positive. A model that uses the absence of an instance as a sign of a positive bag trains
well, but fails when the instance appears. The instances have 16 coordinates, each N(mean, sd); a bag has 1 to 10
background instances N(0, 1), and:

1. single concept: a positive bag holds 1 to 3 instances of N(0, 3) or N(1, 1). A poison N(-10, 0.1) lies in each
   negative training bag and in each positive test bag.
2. multi concept: a positive bag holds 1 to 3 pairs of N(2, 0.1) and N(3, 0.1), a negative one a single instance of one
   of them. Poison lies in each negative and in 10% of the positive training bags, and in each positive test bag.
3. false frequency: the concepts are N(2, 0.1) and N(-2, 0.1), in pairs in a positive bag; a negative bag holds one of
   them, once in training and 35 to 39 times in the test.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import ConfigError

TESTS = {1: "single concept", 2: "multi concept", 3: "false frequency"}
DIMENSIONS = 16
_POISON = (-10.0, 0.1)
_PAIRS = {2: ((2.0, 0.1), (3.0, 0.1)), 3: ((2.0, 0.1), (-2.0, 0.1))}
_POISONED_POSITIVES = 0.1

Array = NDArray[np.float32]


def unit_test_bags(test: int, *, seeds: Sequence[int], bags: int = 200) -> Bags:
    """Draw a number of bags of each class for each part of a test, for several seeds, which are the groups.

    Examples
    --------
    >>> drawn = unit_test_bags(1, seeds=[0, 1], bags=5)
    >>> len(drawn), drawn.instance_shape, sorted(set(drawn.groups.tolist()))
    (60, (16,), ['0', '1'])
    """
    if test not in TESTS:
        raise ConfigError(f"Expected the number of a test, 1 to {len(TESTS)}, got {test}; choose one.")
    arrays, labels, splits, groups = [], [], [], []
    for seed in seeds:
        rng = np.random.default_rng([test, seed])
        for split in ("train", "val", "test"):
            for label in (1, 0) * bags:
                arrays.append(_bag(rng, test, label=label, train=split != "test"))
                labels.append(label)
                splits.append(split)
                groups.append(str(seed))
    return Bags.from_list(arrays, labels, splits=splits, groups=groups, source=f"unit test {test}")


def _bag(rng: np.random.Generator, test: int, *, label: int, train: bool) -> Array:
    parts = [_draw(rng, 0.0, 1.0, int(rng.integers(1, 11)))]
    parts += _single(rng, label) if test == 1 else _pairs(rng, test, label=label, train=train)
    if _poisoned(rng, test, label=label, train=train):
        parts.append(_draw(rng, *_POISON, 1))
    return np.concatenate(parts)


def _single(rng: np.random.Generator, label: int) -> list[Array]:
    if not label:
        return []
    concept = (0.0, 3.0) if rng.random() < 0.5 else (1.0, 1.0)
    return [_draw(rng, *concept, int(rng.integers(1, 4)))]


def _pairs(rng: np.random.Generator, test: int, *, label: int, train: bool) -> list[Array]:
    concepts = _PAIRS[test]
    if label:
        count = int(rng.integers(1, 4))
        return [_draw(rng, *concept, count) for concept in concepts]
    count = 1 if test == 2 or train else int(rng.integers(35, 40))
    return [_draw(rng, *concepts[int(rng.integers(2))], count)]


def _poisoned(rng: np.random.Generator, test: int, *, label: int, train: bool) -> bool:
    if test == 3:
        return False
    if not train:
        return bool(label)
    return not label or (test == 2 and rng.random() < _POISONED_POSITIVES)


def _draw(rng: np.random.Generator, mean: float, sd: float, count: int) -> Array:
    return rng.normal(mean, sd, (count, DIMENSIONS)).astype(np.float32)
