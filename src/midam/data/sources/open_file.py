"""What the readers of single files share: a column of rows that is read by position, and an opened file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from midam.errors import BagDataError

FEATURES = ("features", "feats")
COORDS = "coords"


class Column(Protocol):
    """Rows of one array of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, ...]."""
        ...

    @property
    def dtype(self) -> "np.dtype[Any]":
        """In the byte order of the machine."""
        ...

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the rows low, ..., high - 1."""
        ...

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows [m], ascending and distinct."""
        ...


class ArrayColumn:
    """Rows of an array in memory or memory-mapped."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        self.shape = tuple(array.shape)
        self.dtype = array.dtype.newbyteorder("=")

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the rows low, ..., high - 1."""
        return np.array(self._array[low:high], dtype=self.dtype)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the rows [m]."""
        return np.array(self._array[rows], dtype=self.dtype)


class DatasetColumn:
    """Rows of a dataset of HDF5 or Zarr.

    Parameters
    ----------
    dataset : h5py.Dataset or zarr.Array
        [n, ...], or [1, n, D], which is read as [n, D].
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        shape = tuple(int(n) for n in dataset.shape)
        self._nested = len(shape) == 3 and shape[0] == 1
        self.shape = shape[1:] if self._nested else shape
        self.dtype = np.dtype(dataset.dtype).newbyteorder("=")
        chunks = getattr(dataset, "chunks", None)
        self._chunk = int(chunks[1 if self._nested else 0]) if chunks else 1

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Read the rows low, ..., high - 1."""
        index = (0, slice(low, high)) if self._nested else slice(low, high)
        return np.asarray(self._dataset[index], dtype=self.dtype)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Read the rows [m], ascending and distinct; each chunk once."""
        # A plain slice takes a short way through h5py; a list of rows costs several times as much.
        apart = (np.diff(rows) != 1) & (np.diff(rows // self._chunk) != 0)
        opens = np.flatnonzero(np.append(True, apart)) if len(rows) else np.empty(0, dtype=np.int64)
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for begin, end in zip(opens.tolist(), [*opens[1:].tolist(), len(rows)]):
            first = int(rows[begin])
            found[begin:end] = self.read(first, int(rows[end - 1]) + 1)[rows[begin:end] - first]
        return found


@dataclass(frozen=True)
class OpenFile:
    """A file that is open for reading.

    Attributes
    ----------
    features : Column
        Instances [n, ...].
    coords : Column or None
        Their places [n, C].
    attributes : dict
        What the file says about itself, its features and its coordinates, under "file", "features" and "coords".
    held : int
        Bytes that it keeps in memory.
    serial : bool
        Whether one thread at a time may read.
    handle : bool
        Whether it holds a file of the system open.
    close : callable
        Closes it.
    """

    features: Column
    coords: Column | None = None
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: int = 0
    serial: bool = False
    handle: bool = True
    close: Callable[[], None] = lambda: None


def pick_features(names: Mapping[str, Any], path: Path) -> Any:
    """Find the features among the arrays of a file: `features`, `feats`, or the only array beside the coordinates.

    Raises
    ------
    BagDataError
        If there are none, naming what there is.
    """
    for name in FEATURES:
        if name in names:
            return names[name]
    raise BagDataError(
        f"Expected a dataset named {' or '.join(FEATURES)}, got {', '.join(sorted(map(str, names))) or 'none'} (in "
        f"{path}); write the instances under one of these names."
    )


def squeezed(array: NDArray[Any]) -> NDArray[Any]:
    """[1, n, D] as [n, D]."""
    return array[0] if array.ndim == 3 and len(array) == 1 else array


def plain_attributes(**nodes: Any) -> dict[str, dict[str, Any]]:
    """Attributes of nodes as plain Python values; nodes without any are left out."""
    found = {}
    for name, node in nodes.items():
        values = {str(key): _plain(value) for key, value in dict(getattr(node, "attrs", {})).items()}
        if values:
            found[name] = values
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str | int | float | bool | dict) else str(value)
