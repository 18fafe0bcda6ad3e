"""One Zarr array or group a slide; versions 2 and 3 of the format."""

from pathlib import Path
from typing import Any

from midam.data.sources.formats.open_file import OpenFile, need, of_datasets, sound
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.reader import FileReader, file_suffix


class ZarrReader(FileReader):
    """An array, or a group with the arrays of an HDF5 file."""

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
        return of_datasets(arrays, node, path)
