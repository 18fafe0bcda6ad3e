"""Datasets of HDF5 and Zarr, whose rows are read in place."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import FileReader
from midam.data.sources.formats import open_file
from midam.data.sources.formats.open_file import ARRAYS, FEATURE_NAMES, FEATURES, OpenFile, need, pick_arrays, sound
from midam.data.sources.request import ImageOptions, Places, file_suffix
from midam.errors import BagDataError
from midam.reading import parse_json, read_bytes

_METADATA = 1 << 20  # bytes of the metadata of a Zarr array
_WHOLE = "copy the data into one file, such as with h5repack"
_CODECS = (
    *("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma", "bytes", "transpose", "endian", "sharding_indexed"),
    *("crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3", "shuffle", "delta", "fixedscaleoffset"),
    *("quantize", "bitround", "packbits", "astype"),
)


class Hdf5Reader(FileReader):
    """Reader of one HDF5 file per slide from CLAM, TRIDENT or STAMP: ``features`` or ``feats`` [n, ...], ``coords``.

    Coordinates are optional. ``feature_names``, a dataset or an attribute of the features or the file, may name the
    features.
    """

    what = "features"
    suffixes = (".h5", ".hdf5")
    tells_labels = True

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a file; needs the package h5py."""
        h5py: Any = need("h5py", "HDF5", path, extra="hdf5")
        with sound("a whole HDF5 file", path):
            file = h5py.File(path, "r")
        with sound("a sound HDF5 file", path, close=file.close):
            nodes = {name: _own_node(h5py, file, name, path) for name in ARRAYS if name in file}
            # A group of that name is not an array.
            arrays = {name: node for name, node in nodes.items() if isinstance(node, h5py.Dataset)}
            for name, node in arrays.items():
                _refuse_foreign(node, name, path)
            return _of_datasets(arrays | _other_names(file.keys()), file, path, close=file.close)


class ZarrReader(FileReader):
    """Reader of one Zarr array per slide, or a group with the arrays of `Hdf5Reader`; Zarr versions 2 and 3."""

    what = "features"
    suffixes = (".zarr",)
    tells_labels = True

    def takes(self, path: Path) -> bool:
        """Return whether the suffix fits; a Zarr store is a folder or a file."""
        return file_suffix(path) in self.suffixes

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:  # noqa: ARG002
        """Open a store; needs the package zarr."""
        zarr: Any = need("zarr", "Zarr", path, extra="zarr")
        with sound("a Zarr array or group", path):
            if not path.is_dir():
                raise BagDataError(f"Expected a Zarr folder, got a file (in {path}); unpack it.")
            whole = "shape" in _zarr_metadata(path)
            # The arrays are opened one by one: a group may hold other metadata of its arrays, which was not checked.
            names = [""] if whole else [name for name in ARRAYS if "shape" in _zarr_metadata(path / name)]
            for name in names:
                _refuse_codecs(path / name)
            arrays = {name or FEATURES[0]: zarr.open_array(str(path / name), mode="r") for name in names}
            root = None if whole else zarr.open_group(str(path), mode="r", use_consolidated=False)
            lacking = [name for name, array in arrays.items() if array.nchunks_initialized < array.nchunks]
            doubt = f"chunks of {' and '.join(lacking)} are missing, and are read as the fill value" if lacking else ""
            others = _other_names(file.name for file in path.iterdir() if file.is_dir())
            return _of_datasets(arrays | others, root, path, doubt=doubt)

    def verify(self, path: Path) -> None:
        """Compare the length of each chunk with that in its header."""
        with sound("a Zarr array or group", path):
            for name in ("", *ARRAYS):
                _refuse_cut(path, path / name)


def _own_node(h5py: Any, file: Any, name: str, path: Path) -> Any:
    """Return a node of the root; refuse a link, which may lead to another file or nowhere."""
    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        advice = "store the array itself under this name" if isinstance(link, h5py.SoftLink) else _WHOLE
        raise BagDataError(f"Expected {name!r} in the file itself, got a link (in {path}); {advice}.")
    return file[name]


def _refuse_foreign(data: Any, name: str, path: Path) -> None:
    """Refuse a dataset whose numbers are in another file, or were never written and would read as zeros."""
    if data.external or data.is_virtual:
        raise BagDataError(f"Expected {name!r} in the file itself, got data of another file (in {path}); {_WHOLE}.")
    if data.shape is None or not data.size:
        return
    chunks = data.chunks and math.prod(-(-size // chunk) for size, chunk in zip(data.shape, data.chunks))
    written = data.id.get_num_chunks() == chunks if chunks else data.id.get_storage_size() > 0
    if not written:
        got = f"a part of it (in {path}): the rest was never written"
        raise BagDataError(f"Expected {name!r} {list(data.shape)} in full, got {got}; extract the slide again.")


def _zarr_metadata(folder: Path) -> dict[str, Any]:
    """Return the metadata of a folder that is a Zarr array; empty for any other folder."""
    for name in (".zarray", "zarr.json"):
        if (folder / name).is_file():
            metadata = parse_json(read_bytes(folder / name, error=BagDataError, most=_METADATA))
            return metadata if isinstance(metadata, dict) else {}
    return {}


def _refuse_codecs(folder: Path) -> None:
    """Refuse codecs that are not known to compress or filter numbers: others, such as pickle, can run code."""

    def named(value: Any) -> list[str]:
        if isinstance(value, list):
            return [name for one in value for name in named(one)]
        if not isinstance(value, dict):
            return [] if value is None else [str(value)]
        inner = dict(value.get("configuration") or {})
        return [str(value.get("id", value.get("name"))), *named(inner.get("codecs")), *named(inner.get("index_codecs"))]

    metadata = _zarr_metadata(folder)
    codecs = named([metadata.get(key) for key in ("compressor", "filters", "codecs")])
    wrong = [name for name in codecs if name.removeprefix("numcodecs.") not in _CODECS]
    if wrong or metadata.get("dtype") == "|O":
        got = f"the codec {wrong[0]!r}" if wrong else "Python objects"
        known = f"({', '.join(_CODECS[:8])}, ...)"
        raise BagDataError(f"Expected plain numbers with known codecs {known}, got {got} (in {folder}); use one.")


def _refuse_cut(path: Path, folder: Path) -> None:
    """Refuse Blosc chunks of another length than their headers state: the decoder would read past the end."""
    metadata = _zarr_metadata(folder)
    last = [metadata.get("compressor"), *(metadata.get("codecs") or [])][0 if "compressor" in metadata else -1]
    if not isinstance(last, dict) or "blosc" not in (last.get("id"), last.get("name")):
        return
    chunks = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith((".", "zarr"))]
    for file in sorted(chunks):
        with file.open("rb") as chunk:
            header = chunk.read(16)
        if int.from_bytes(header[12:], "little") != file.stat().st_size:
            raise BagDataError(f"Expected whole chunks, got {file.name} of another size (in {path}); write it again.")


class DatasetColumn:
    """Rows of a dataset [n, ...] of HDF5 or Zarr, in the shape `squeezed_shape`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._nested = len(dataset.shape) == 3 and dataset.shape[0] == 1
        self.shape = open_file.squeezed_shape(dataset.shape)
        self.dtype = np.dtype(dataset.dtype)
        chunks = getattr(dataset, "chunks", None)
        self._chunk = int(chunks[1 if self._nested else 0]) if chunks else 1

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        if isinstance(index, slice):
            rows = np.asarray(self._dataset[(0, index) if self._nested else index])
            return rows.reshape(len(rows), *self.shape[1:])
        # In h5py, a list of rows takes several times as long as slices, which read each chunk once.
        apart = (np.diff(index) != 1) & (np.diff(index // self._chunk) != 0)
        values = np.empty((len(index), *self.shape[1:]), self.dtype)
        begin = 0
        for rows in np.split(index, np.flatnonzero(apart) + 1) if len(index) else []:
            values[begin : begin + len(rows)] = self[int(rows[0]) : int(rows[-1]) + 1][rows - rows[0]]
            begin += len(rows)
        return values


def _other_names(names: Iterable[str]) -> dict[str, Any]:
    """Return the names that a message about missing features shows."""
    return dict.fromkeys(name for name in names if name not in ARRAYS)


def _of_datasets(arrays: Mapping[str, Any], root: Any, path: Path, *, doubt: str = "", **options: Any) -> OpenFile:
    """Return the features and coordinates among datasets, with the attributes of each and of the file, and a doubt."""
    features, coords, names = pick_arrays(arrays, path)
    nodes = {"file": root, "features": features, "coords": coords}
    attributes = {
        name: {str(key): _plain(value) for key, value in dict(getattr(node, "attrs", {})).items()}
        for name, node in nodes.items()
    }
    attributes["file"] = {**({"doubt": doubt} if doubt else {}), **attributes["file"]}
    names = None if names is None else _plain(np.asarray(names[...]))
    for entry in (attributes["features"], attributes["file"]):
        names = entry.pop(FEATURE_NAMES, None) if names is None else names
    return OpenFile(
        DatasetColumn(features),
        None if coords is None else DatasetColumn(coords),
        attributes={name: values for name, values in attributes.items() if values},
        serial=True,
        names=names,
        **options,
    )


def _plain(value: Any) -> Any:
    """Return an attribute as plain Python values."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool | dict) else str(value)
