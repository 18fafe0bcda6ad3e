"""Statistics of bags: a row of numbers for each bag, whatever its size."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import ConfigError, nearest

Positions = NDArray[np.int64]
Statistics = NDArray[np.float64]

STATISTICS = ("mean", "min", "max", "std", "median", "size")
USUAL = ("mean", "min", "max", "std")
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
