"""Statistics of bags: a row of numbers for each bag, whatever its size."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import row_chunks
from midam.errors import ConfigError, nearest

Positions = NDArray[np.int64]
Statistics = NDArray[np.float64]

# Each takes the instances of a bag, [n, D].
STATISTICS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "mean": lambda x: x.mean(0),
    "min": lambda x: x.min(0),
    "max": lambda x: x.max(0),
    "std": lambda x: x.std(0),
    "median": lambda x: np.median(x, axis=0),
    "size": lambda x: np.array([len(x)]),
}
USUAL = ("mean", "min", "max", "std")
_STACKED = 2  # axes of an instance, channel and place, from which it is an image


def bag_statistics(bags: Bags, index: Positions, names: Sequence[str] = USUAL) -> Statistics:
    """Statistics of each feature over each bag at the positions `index`, [n, 4 D]: all means, then all minima, ...

    `names` are some of `STATISTICS`; "size", the number of instances, is one column.

    Examples
    --------
    >>> bags = Bags.from_list([[[1.0, 5.0], [3.0, 5.0]]])
    >>> bag_statistics(bags, np.array([0])).tolist()
    [[2.0, 5.0, 1.0, 5.0, 3.0, 5.0, 1.0, 0.0]]
    """
    for name in names:
        if name not in STATISTICS:
            raise ConfigError(f"Expected a known statistic, got {name!r}; {nearest(name, STATISTICS)}")
    if not names:
        raise ConfigError(f"Expected at least one statistic, got none; name some of {', '.join(STATISTICS)}.")
    return np.stack([np.concatenate([STATISTICS[name](x) for name in names]) for x in flat_bags(bags, index)])


def flat_bags(bags: Bags, index: Positions) -> Iterator[Statistics]:
    """Instances of each bag as float64 rows [n_i, D], a bag at a time."""
    for i in index:
        yield np.asarray(bags[i], dtype=np.float64).reshape(int(bags.sizes[i]), -1)


def color_statistics(bags: Bags, index: Positions) -> Statistics:
    """Mean and standard deviation [n, 2 C] of each channel over all pixels of each bag, read by chunks."""
    found = []
    for number in index.tolist():
        count, total, squares = 0, np.zeros(bags.instance_shape[0]), np.zeros(bags.instance_shape[0])
        for chunk in _chunks(bags, number):
            pixels = chunk.reshape(*chunk.shape[:2], -1).astype(np.float64)
            count += pixels.shape[0] * pixels.shape[2]
            total += pixels.sum(axis=(0, 2))
            squares += (pixels**2).sum(axis=(0, 2))
        mean = total / count
        found.append(np.concatenate([mean, np.sqrt(np.maximum(squares / count - mean**2, 0))]))
    return np.stack(found)


def voxel_counts(bags: Bags, index: Positions) -> Statistics:
    """Voxels [n, 1] of each bag above its least intensity, the background of a scan, read by chunks."""
    found = []
    for number in index.tolist():
        least, voxels, ground = np.inf, 0, 0
        for chunk in _chunks(bags, number):
            # A lower intensity is the new background.
            ground = ground if least <= chunk.min() else 0
            least = min(least, float(chunk.min()))
            ground += int((chunk == least).sum())
            voxels += chunk.size
        found.append([float(voxels - ground)])
    return np.array(found)


def _chunks(bags: Bags, number: int) -> Iterator[NDArray[Any]]:
    if len(bags.instance_shape) < _STACKED:
        raise ConfigError(
            f"Expected images for statistics of pixels, got instances of shape {list(bags.instance_shape)} (in "
            f"{bags.source}); take those of feature vectors, such as bag-statistics-logistic or BagStatistics."
        )
    for low, high in row_chunks(bags.instances, bags.starts[[number]], bags.sizes[[number]]):
        yield np.asarray(bags.instances[low:high])
