"""Baselines of images: by their colors, or by the size of what a volume shows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.baselines import BagStatisticsLogistic, BagStatisticsTrees
from midam.compare.folds import Positions
from midam.data.bags import Bags
from midam.data.validate import row_chunks
from midam.errors import ConfigError

_STACKED = 2  # axes of an instance, channel and place, from which it is an image


def color_statistics(bags: Bags, index: Positions) -> NDArray[np.float64]:
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


def voxel_counts(bags: Bags, index: Positions) -> NDArray[np.float64]:
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


class ColorLogistic(BagStatisticsLogistic):
    """`rgb-logistic`."""

    statistics = staticmethod(color_statistics)


class ColorTrees(BagStatisticsTrees):
    """`rgb-trees`."""

    statistics = staticmethod(color_statistics)


class VoxelLogistic(BagStatisticsLogistic):
    """`voxel-logistic`."""

    statistics = staticmethod(voxel_counts)


def _chunks(bags: Bags, number: int) -> Iterator[NDArray[Any]]:
    if len(bags.instance_shape) < _STACKED:
        raise ConfigError(
            f"Expected images for this baseline, got instances of shape {list(bags.instance_shape)} (in "
            f"{bags.source}); name a baseline of feature vectors, such as bag-statistics-logistic."
        )
    for low, high in row_chunks(bags.instances, bags.starts[[number]], bags.sizes[[number]]):
        yield np.asarray(bags.instances[low:high])
