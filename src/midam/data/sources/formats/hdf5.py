"""One HDF5 file a slide, as CLAM, TRIDENT and STAMP write them."""

from pathlib import Path
from typing import Any

from midam.data.sources.formats.open_file import OpenFile, need, of_datasets, sound
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.reader import FileReader


class Hdf5Reader(FileReader):
    """Datasets ``features`` or ``feats`` [n, ...] and, where there are any, ``coords`` [n, C]."""

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
                return of_datasets(arrays, file, path, close=file.close)
        except BaseException:
            file.close()
            raise
