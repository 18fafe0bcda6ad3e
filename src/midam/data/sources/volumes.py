"""One volume a file, as slices along an axis or as one three-dimensional instance."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.columns import ArrayColumn, Column, OpenFile
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.lazy import Lazy, LazyColumn
from midam.data.sources.resampling import Resampling
from midam.errors import BagDataError


@dataclass(frozen=True)
class Volume:
    """A volume that is read.

    Attributes
    ----------
    data : array [D, H, W]
        Intensities, slices along the first axis; in memory or memory-mapped.
    spacing : tuple of 3 float or None
        Millimetres from voxel to voxel along these axes; None where the file does not say.
    small : bool
        Whether uint8 stays uint8. Not where files of one set differ in type, as scans do.
    """

    data: NDArray[Any]
    spacing: tuple[float, float, float] | None = None
    small: bool = False


def open_volume(
    path: Path,
    options: ImageOptions,
    read: Callable[[], Volume],
    *,
    held: int,
    said: dict[str, Any],
    places: Places | None = None,
) -> OpenFile:
    """Open a volume as its slices [n, 1, H, W], or as one instance [1, 1, D, H, W]; it is read when that is asked for.

    Arrays of uint8 or bool stay uint8 unless they are windowed; all else becomes float32.

    Parameters
    ----------
    path : Path
        The file or folder, for messages.
    options : ImageOptions
        What is made of it.
    read : callable
        Reads the volume, sliced along its first axis.
    held : int
        Bytes that it takes in memory.
    said : dict
        What the file says of itself.
    places : array of int64 [n, 1], optional
        Numbers of the slices that are instances, where they are known.

    Returns
    -------
    OpenFile
        `coords` [n, 1] are the numbers of the slices in the volume, int64; whole volumes have none.

    Raises
    ------
    BagDataError
        When it is read: if it holds NaN or infinity, or one intensity alone.
    """
    cut = Lazy(lambda: cut_volume(read(), options, where=str(path), places=places))
    coords = None if options.volume else LazyColumn(lambda: cut()[1])
    kind = {"kind": "volume" if options.volume else "slices"}
    return OpenFile(
        LazyColumn(lambda: cut()[0]), coords, attributes={"features": kind, "file": said}, held=held, handle=False
    )


def open_array(
    array: NDArray[Any], path: Path, options: ImageOptions, *, held: int, places: Places | None = None
) -> OpenFile:
    """Open a three-dimensional array as a volume."""
    axis = 0 if options.axis is None else options.axis
    volume = Volume(np.moveaxis(array, axis, 0), small=True)
    return open_volume(path, options, lambda: volume, held=held, said={"axis": axis}, places=places)


def cut_volume(
    volume: Volume, options: ImageOptions, *, where: str, places: Places | None = None
) -> tuple[Column, Column]:
    """Instances of a volume, and the numbers of its slices; parameters and errors as of `open_volume`."""
    data = volume.data
    if data.ndim != 3 or data.dtype.kind not in "biuf" or 0 in data.shape:
        raise BagDataError(
            f"Expected a volume of three axes of real numbers, got {data.dtype} {list(data.shape)} (in {where}); "
            "write one file for each volume and sequence."
        )
    if options.spacing is not None and volume.spacing is None:
        raise BagDataError(
            f"Expected a volume that says its spacing, got an array (in {where}); leave out --spacing, or convert it "
            "to NIfTI."
        )
    least = 0.0
    if places is None or options.spacing is not None:  # then what is padded has the least intensity
        kept, least = filled_slices(data, where=where)
        kept = kept if options.drop_empty and not options.volume else np.arange(len(data))
        places = kept[:, None]
    plan = Resampling.of(options, volume.spacing, least=least, small=volume.small)
    column: Column = _Whole(data, plan) if options.volume else Slices(data, places[:, 0], plan)
    return column, ArrayColumn(places)


def filled_slices(data: NDArray[Any], *, where: str) -> tuple[NDArray[np.int64], float]:
    """Numbers of the slices that somewhere exceed the least intensity of their volume [D, H, W], and that intensity.

    Raises
    ------
    BagDataError
        If the volume holds NaN or infinity, or one intensity alone.

    Examples
    --------
    >>> filled_slices(np.array([[[0, 0]], [[0, 5]]]), where="scan")
    (array([1]), 0.0)
    """
    low, high = data.min(axis=(1, 2)), data.max(axis=(1, 2))
    wrong = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
    if len(wrong):
        raise BagDataError(
            f"Expected finite intensities, got NaN or infinity in slice {wrong[0]} of {len(data)} (in {where}); "
            "convert the scan anew, or leave it out."
        )
    kept = np.flatnonzero(high > low.min())
    if not len(kept):
        raise BagDataError(
            f"Expected a volume that shows something, got {low[0]:g} in every voxel (in {where}); leave it out."
        )
    return kept, float(low.min())


class Slices:
    """Slices of a volume, resampled when they are read.

    Parameters
    ----------
    data : array [D, H, W]
        The volume.
    kept : array of int64 [n]
        Numbers of its slices that are instances.
    plan : Resampling
        Which leaves the first axis as it is.
    """

    def __init__(self, data: NDArray[Any], kept: NDArray[np.int64], plan: Resampling) -> None:
        self._data, self._kept, self._plan = data, kept, plan
        _, height, width = plan.shape((1, data.shape[1], data.shape[2]))
        self.shape = (len(kept), 1, height, width)
        self.dtype = plan.dtype(data.dtype)

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the slices low, ..., high - 1."""
        return self.gather(np.arange(low, high))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the slices [m]."""
        return self._plan(self._data[self._kept[rows]])[:, None]


class _Whole:
    """A volume as its only row."""

    def __init__(self, data: NDArray[Any], plan: Resampling) -> None:
        self._data, self._plan = data, plan
        self.shape = (1, 1, *plan.shape((data.shape[0], data.shape[1], data.shape[2])))
        self.dtype = plan.dtype(data.dtype)

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the volume."""
        return self.gather(np.arange(low, high))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the volume, or nothing."""
        return self._plan(self._data)[None, None] if len(rows) else np.empty((0, *self.shape[1:]), self.dtype)
