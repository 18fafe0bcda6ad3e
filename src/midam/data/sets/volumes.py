"""Many volumes in one array, as slices or as whole volumes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.on_disk import Rows
from midam.data.sources.formats.resampling import Resampling
from midam.data.sources.formats.volumes import kept_slices
from midam.data.sources.imageoptions import ImageOptions
from midam.errors import ConfigError


class VolumeRows(Rows):
    """Slices [1, H, W] or whole volumes [1, D, H, W] of an array [N, D, H, W], resampled when they are read.

    `kept` [M, 2] are volume and slice of each row. Another process maps the file of a memory map anew.
    """

    def __init__(self, volumes: NDArray[Any], kept: NDArray[np.int64], options: ImageOptions) -> None:
        self._volumes, self._kept, self._options = volumes, kept, options
        self._plan = Resampling.of(options, None, small=True)
        self._sliced = np.moveaxis(volumes, 1 + (options.axis or 0), 1)
        depth, height, width = self._plan.shape(self._sliced.shape[1:4] if options.volume else (1, *self._plane()))
        self.shape = (len(kept), 1, depth, height, width) if options.volume else (len(kept), 1, height, width)
        self.dtype = self._plan.dtype(volumes.dtype)

    @property
    def plan(self) -> str:
        """How volumes are cut and resampled."""
        return repr(self._options)

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows at `positions` [m]."""
        found = np.empty((len(positions), *self.shape[1:]), self.dtype)
        volume, number = self._kept[positions].T
        if self._options.volume:
            for place, v in enumerate(volume.tolist()):
                found[place, 0] = self._plan(self._sliced[v])
        elif len(positions):
            found[:, 0] = self._plan(self._sliced[volume, number])
        return found

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the rows low, ..., high - 1."""
        return self.gather(np.arange(low, high))

    def close(self) -> None:
        """Nothing is held open but the map of the array."""

    def __reduce__(self) -> tuple[Any, ...]:
        path = getattr(self._volumes, "filename", None)
        if path is None:
            return VolumeRows, (self._volumes, self._kept, self._options)
        return _mapped, (str(path), self._kept, self._options)

    def _plane(self) -> tuple[int, int]:
        return self._sliced.shape[2], self._sliced.shape[3]


def bags_of_volumes(
    volumes: NDArray[Any],
    *,
    ids: NDArray[np.str_],
    labels: NDArray[np.int64],
    options: ImageOptions,
    source: str,
    **others: Any,
) -> Bags:
    """Bags of an array of volumes [N, D, H, W]; those of a memory map stay on disk, others are cut now.

    A volume that is not finite or shows nothing is refused; `others` are groups and splits.

    Examples
    --------
    >>> volumes = np.eye(3)[None] * np.ones((2, 4, 1, 1))
    >>> bags = bags_of_volumes(volumes, ids=["a", "b"], labels=[0, 1], options=ImageOptions(), source="here")
    >>> bags.sizes, bags.instance_shape
    (array([4, 4]), (1, 3, 3))
    """
    if options.spacing is not None:
        raise ConfigError(f"Expected no `spacing` with arrays, whose spacing is unknown, got some for {source}.")
    axis = 1 + (options.axis or 0)
    places = []
    for number, volume in enumerate(volumes):
        inside, _ = kept_slices(np.moveaxis(volume, axis - 1, 0), options, where=f"{source}, bag {ids[number]}")
        inside = np.zeros(1, dtype=np.int64) if options.volume else inside
        places.append(np.stack([np.full(len(inside), number), inside], axis=1))
    kept, sizes = np.concatenate(places), np.array([len(part) for part in places])
    rows = VolumeRows(volumes, kept, options)
    return Bags(
        rows if isinstance(volumes, np.memmap) else rows.read(0, len(rows)),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        ids=ids,
        labels=labels,
        coords=None if options.volume else kept[:, 1:],
        cut=options.cut("volume" if options.volume else "slices"),
        source=source,
        **others,
    )


def _mapped(path: str, kept: NDArray[np.int64], options: ImageOptions) -> VolumeRows:
    return VolumeRows(np.load(path, mmap_mode="r"), kept, options)
