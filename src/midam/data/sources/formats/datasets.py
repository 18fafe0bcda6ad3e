"""Datasets of HDF5 and Zarr, of which rows are read in place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import COORDS, OpenFile, need, pick_features, sound
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.reader import FileReader, file_suffix


class Hdf5Reader(FileReader):
    """One HDF5 file a slide, of CLAM, TRIDENT or STAMP: ``features`` or ``feats`` [n, ...], and perhaps ``coords``."""

    what = "features"
    suffixes = (".h5", ".hdf5")

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a file; needs the package h5py."""
        h5py: Any = need("h5py", "HDF5", path, extra="hdf5")
        with sound("a whole HDF5 file", path, OSError):
            file = h5py.File(path, "r")
        try:
            with sound("a sound HDF5 file", path, OSError, RuntimeError, KeyError):
                # A group of that name is no array.
                arrays = {name: node for name, node in file.items() if isinstance(node, h5py.Dataset)}
                return _of_datasets(arrays, file, path, close=file.close)
        except BaseException:
            file.close()
            raise


class ZarrReader(FileReader):
    """One Zarr array a slide, or a group with the arrays of an HDF5 file; versions 2 and 3 of the format."""

    what = "features"
    suffixes = (".zarr",)

    def takes(self, path: Path) -> bool:
        """By the suffix; a store is a folder, or a file."""
        return file_suffix(path) in self.suffixes

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a store; needs the package zarr."""
        zarr: Any = need("zarr", "Zarr", path, extra="zarr")
        with sound("a Zarr array or group", path, OSError, ValueError, KeyError, TypeError):
            node = zarr.open(str(path), mode="r")
            arrays = {"features": node} if isinstance(node, zarr.Array) else dict(node.arrays())
        return _of_datasets(arrays, node, path)


class DatasetColumn:
    """Rows of a dataset [n, ...] of HDF5 or Zarr; [1, n, D] is read as [n, D]."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        shape = tuple(int(n) for n in dataset.shape)
        self._nested = len(shape) == 3 and shape[0] == 1
        self.shape = shape[1:] if self._nested else shape
        self.dtype = np.dtype(dataset.dtype)
        chunks = getattr(dataset, "chunks", None)
        self._chunk = int(chunks[1 if self._nested else 0]) if chunks else 1

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        if isinstance(index, slice):
            return np.asarray(self._dataset[(0, index) if self._nested else index])
        # A list of rows costs h5py several times as much as slices, of which each chunk is read once.
        apart = (np.diff(index) != 1) & (np.diff(index // self._chunk) != 0)
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        begin = 0
        for rows in np.split(index, np.flatnonzero(apart) + 1) if len(index) else []:
            found[begin : begin + len(rows)] = self[int(rows[0]) : int(rows[-1]) + 1][rows - rows[0]]
            begin += len(rows)
        return found


def _of_datasets(arrays: Mapping[str, Any], root: Any, path: Path, **options: Any) -> OpenFile:
    """Features and coordinates among the datasets of a file, with the attributes of each and of the file."""
    features, coords = pick_features(arrays, path), arrays.get(COORDS)
    nodes = {"file": None if root is features else root, "features": features, "coords": coords}
    said = {
        name: {str(key): _plain(value) for key, value in dict(getattr(node, "attrs", {})).items()}
        for name, node in nodes.items()
    }
    return OpenFile(
        DatasetColumn(features),
        None if coords is None else DatasetColumn(coords),
        attributes={name: values for name, values in said.items() if values},
        serial=True,
        **options,
    )


def _plain(value: Any) -> Any:
    """An attribute as plain Python values."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool | dict) else str(value)
