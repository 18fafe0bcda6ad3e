"""Statistics of bags: a row of numbers for each bag, whatever its size."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.validate import row_chunks
from midam.errors import ConfigError, nearest

Positions = NDArray[np.int64]
Statistics = NDArray[np.float64]

STATISTICS = ("mean", "min", "max", "std", "median", "size")
USUAL = ("mean", "min", "max", "std")
_STACKED = 2  # an instance with at least so many axes (channel and place) is an image
_MOST_NUMBERS = 2**18  # numbers that are read at a time: 2 MiB as float64
_ROUNDING = 2.0**-46  # relative difference up to which computed float64 numbers count as equal
_COARSE = 2.0**14  # size over range above which float32 leaves fewer than 10 bits to the range


def alike(low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether numbers from `low` to `high` [D] differ only by rounding; different whole numbers do not."""
    whole = (low == np.round(low)) & (high == np.round(high))
    return np.asarray((low == high) | (~whole & (high - low <= _ROUNDING * np.maximum(np.abs(low), np.abs(high)))))


def coarse(low: NDArray[Any], high: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether float32 is too coarse for numbers from `low` to `high` [D], whose range is relatively small."""
    return np.asarray(~alike(low, high) & (np.maximum(np.abs(low), np.abs(high)) > _COARSE * (high - low)))


def bag_statistics(bags: Bags, index: Positions, names: Sequence[str] = USUAL) -> Statistics:
    """Return statistics [n, 4 D] of each feature over the bags at positions `index`: all means, then all minima, ...

    `names` are some of `STATISTICS`; "size", the number of instances, is one column. Large bags are read by chunks,
    with the same result, unless `names` holds "median".

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
    return np.stack([np.concatenate(_of_bag(bags, number, names)) for number in index.tolist()])


def color_statistics(bags: Bags, index: Positions) -> Statistics:
    """Return mean and standard deviation [n, 2 C] of each channel over all pixels of each bag, read by chunks."""
    columns = []
    for number in index.tolist():
        count, (mean, squares) = 0, np.zeros((2, bags.instance_shape[0]))
        low, high = np.full(len(mean), np.inf), np.full(len(mean), -np.inf)
        for chunk in _chunks(bags, number):
            pixels = chunk.swapaxes(0, 1).reshape(len(mean), -1).astype(np.float64)
            low, high = np.minimum(low, pixels.min(axis=1)), np.maximum(high, pixels.max(axis=1))
            # Chan, Golub and LeVeque (1979): squares about the mean of a chunk are merged without cancellation.
            share, step = pixels.shape[1] / (count + pixels.shape[1]), pixels.mean(axis=1) - mean
            squares += ((pixels - pixels.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) + count * share * step**2
            mean, count = mean + share * step, count + pixels.shape[1]
        deviation = np.where(alike(low, high), 0.0, np.sqrt(squares / count))
        columns.append(np.concatenate([np.clip(mean, low, high), deviation]))
    return np.stack(columns)


def voxel_counts(bags: Bags, index: Positions) -> Statistics:
    """Count the voxels [n, 1] of each bag above its lowest intensity, the background of a scan; read by chunks."""
    counts = []
    for number in index.tolist():
        least, voxels, ground = np.inf, 0, 0
        for chunk in _chunks(bags, number):
            # A lower intensity is the new background.
            ground = ground if least <= chunk.min() else 0
            least = min(least, float(chunk.min()))
            ground += int((chunk == least).sum())
            voxels += chunk.size
        counts.append([float(voxels - ground)])
    return np.array(counts)


def _of_bag(bags: Bags, number: int, names: Sequence[str]) -> list[NDArray[Any]]:
    """Return each of the named statistics of one bag."""
    start, size = int(bags.starts[number]), int(bags.sizes[number])
    width = math.prod(bags.instance_shape)
    step = max(1, _MOST_NUMBERS // width)
    # numpy sums a single column pairwise, which a sum over parts would not repeat to the last bit.
    whole = _flat(bags[number]) if size <= step or width == 1 or "median" in names else None

    def parts() -> Iterator[Statistics]:
        if whole is not None:
            yield whole
            return
        for first in range(start, start + size, step):
            yield _flat(bags.instances[first : min(first + step, start + size)])

    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    total: Any = None
    squares: Any = None
    for rows in parts():
        low, high, total = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0)), _added(total, rows)
    mean = np.clip(total / size, low, high)
    values = {"size": np.array([size]), "min": low, "max": high, "mean": mean}
    if "std" in names:
        for rows in parts():
            squares = _added(squares, (rows - mean) ** 2)
        values["std"] = np.where(alike(low, high), 0.0, np.sqrt(squares / size))
    if whole is not None and "median" in names:
        values["median"] = np.median(whole, axis=0)
    return [values[name] for name in names]


def _added(total: Statistics | None, rows: Statistics) -> Statistics:
    """Add rows to `total` one after the other, as numpy adds rows, so that reading in parts changes no bit."""
    return np.asarray((rows if total is None else np.concatenate([total[None], rows])).sum(0))


def _flat(instances: NDArray[Any]) -> Statistics:
    """Return instances as float64 rows."""
    return np.asarray(instances, dtype=np.float64).reshape(len(instances), -1)


def _chunks(bags: Bags, number: int) -> Iterator[NDArray[Any]]:
    """Yield a bag of images in chunks."""
    if len(bags.instance_shape) < _STACKED:
        got = f"instances of shape {list(bags.instance_shape)} (in {bags.source})"
        raise ConfigError(f"Expected images for statistics of pixels, got {got}; use statistics of features.")
    for low, high in row_chunks(bags.instances, bags.starts[[number]], bags.sizes[[number]]):
        yield np.asarray(bags.instances[low:high])
