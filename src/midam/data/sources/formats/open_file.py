"""An open file of instances: its arrays, which are read by position, and its attributes."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from midam.errors import BagDataError, DataNotFoundError, MidamError, first_line, need_package
from midam.files import size_text
from midam.names import missing

T = TypeVar("T")

_HELD = ("unable to lock file", "already open for write", "being used by another process", "Too many open files")
FEATURES = ("features", "feats")
COORDS = "coords"
FEATURE_NAMES = "feature_names"
ARRAYS = (*FEATURES, COORDS, FEATURE_NAMES)
_SMALL, _GROWTH = 1 << 30, 2000  # bytes that need no check; how much larger than its file the content may be


class Column(Protocol):
    """Interface of the rows of an array in a file; a NumPy array has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape [n, ...]."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the numbers."""

    def __getitem__(self, index: slice | NDArray[np.int64], /) -> NDArray[Any]:
        """Return the rows of a slice, or at ascending and distinct positions [m]."""


@dataclass(frozen=True)
class OpenFile:
    """An open file.

    Attributes
    ----------
    features, coords : Column
        Instances [n, ...], and their coordinates [n, C], if any.
    cut : {"", "patches", "slices", "volume"}
        Parts into which an image, slide or volume was cut; empty if the file holds instances.
    attributes : dict
        Attributes of the file, its features and its coordinates, under "file", "features" and "coords".
    held, close : int, callable
        Bytes that the file keeps in memory; function that closes it.
    serial, handle : bool
        Whether only one thread at a time may read; whether a file handle of the system is open.
    names : sequence of str, optional
        Names of the features, if the file states them.

    Examples
    --------
    >>> file = OpenFile(np.array([[0.5, 1.0], [0.7, 2.0]]), names=("area", "count"))
    >>> file.features[1:].tolist(), file.names
    ([[0.7, 2.0]], ('area', 'count'))
    """

    features: Column
    coords: Column | None = None
    cut: Literal["", "patches", "slices", "volume"] = ""
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: int = 0
    serial: bool = False
    handle: bool = True
    close: Callable[[], None] = lambda: None
    names: Sequence[str] | None = None


class Lazy(Generic[T]):
    """A value that is made once, on first use by any thread; after a failure, the next use tries again."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: list[T] = []

    def __call__(self) -> T:
        """Return the value."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
        return self._made[0]


class LazyColumn:
    """Rows of a file that is read as a whole on first use."""

    def __init__(self, column: Callable[[], Column]) -> None:
        self._column = column

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape [n, ...]."""
        return self._column().shape

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the numbers."""
        return self._column().dtype

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        return self._column()[index]


class CutRows:
    """Instances of an image, slide or volume; `instance` returns the one of a number whenever it is read."""

    def __init__(self, shape: tuple[int, ...], dtype: "np.dtype[Any]", instance: Callable[[int], NDArray[Any]]) -> None:
        self.shape, self.dtype, self._instance = shape, dtype, instance

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        numbers = np.arange(self.shape[0])[index].tolist()
        rows = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        for place, number in enumerate(numbers):
            rows[place] = self._instance(number)
        return rows


def cut_file(
    kind: Literal["patches", "slices", "volume"],
    make: Callable[[], tuple[Column, Column]],
    attributes: Mapping[str, Mapping[str, Any]],
    **facts: Any,
) -> OpenFile:
    """Return an open file whose instances and coordinates are made on first use."""
    lazy, places = Lazy(make), LazyColumn(lambda: lazy()[1])
    attributes = {"features": {"kind": kind}, **attributes}
    coords = None if kind == "volume" else places
    return OpenFile(LazyColumn(lambda: lazy()[0]), coords, kind, attributes=attributes, **facts)


def pick_arrays(arrays: Mapping[str, Any], path: Path) -> tuple[Any, Any, Any]:
    """Return ``features`` or ``feats`` of a file, and its ``coords`` and ``feature_names``, None if absent.

    Without features, the error names the arrays of the file.
    """
    for name in FEATURES:
        if name in arrays:
            return arrays[name], arrays.get(COORDS), arrays.get(FEATURE_NAMES)
    got = f"{', '.join(sorted(map(str, arrays))) or 'none'} (in {path})"
    raise BagDataError(f"Expected a dataset named {' or '.join(FEATURES)}, got {got}; name the instances so.")


def squeezed(array: Any) -> Any:
    """Return an array of the shape `squeezed_shape`."""
    return array.reshape(squeezed_shape(array.shape))


def squeezed_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return [1, n, D], [n, 1, D] and [n, D, 1, 1] as [n, D], and any other shape as it is.

    Examples
    --------
    >>> squeezed_shape([1, 9, 512]), squeezed_shape([9, 512, 1, 1]), squeezed_shape([9, 1, 32, 32])
    ((9, 512), (9, 512), (9, 1, 32, 32))
    """
    if len(shape) == 3 and shape[0] == 1:
        return tuple(shape[1:])
    flat = len(shape) > 2 and math.prod(shape[1:]) == max(shape[1:])
    return (shape[0], max(shape[1:])) if flat else tuple(shape)


def need(module: str, kind: str, path: Path, *, extra: str, package: str = "") -> Any:
    """Import the package that reads files of this kind; where it is missing, the error says how to install it."""
    return need_package(module, f"to read {kind}", extra=extra, package=package, where=path)


@contextmanager
def sound(
    expected: str, path: Path, *, advice: str = "copy or write the file again", close: Callable[[], None] | None = None
) -> Iterator[None]:
    """Turn any error of a library about a damaged file into a `BagDataError` that names it; then `close` the file."""
    try:
        yield
    except Exception as error:  # a decoder of foreign bytes raises any error, from KeyError to MemoryError
        if close is not None:
            close()
        if isinstance(error, MidamError):
            raise
        text = " ".join(str(error).split())
        if getattr(error, "errno", None) is not None or any(words in text for words in _HELD):
            advice = "close it in other programs, grant access, raise `ulimit -n`, or try again"
            raise BagDataError(f"Expected a file that can be read, got: {text} (in {path}); {advice}.") from error
        text = text if " " in text else first_line(error)  # a bare number or name says nothing
        raise BagDataError(f"Expected {expected}, got: {text} (in {path}); {advice}.") from error


def require_file(path: Path, kind: str = "a file") -> None:
    """Refuse a missing file, and one without a byte, as a broken download leaves it."""
    if not path.is_file():
        raise DataNotFoundError(missing(path, kind))
    refuse_empty(path)


def refuse_empty(path: Path) -> None:
    """Refuse a file without a byte."""
    if path.is_file() and not path.stat().st_size:
        raise BagDataError(f"Expected a file with content, got an empty one (in {path}); copy or write it again.")


def refuse_growth(opened: OpenFile, path: Path) -> None:
    """Refuse a file whose content would be far larger than real compression allows.

    Headers are trusted before the content is read, so a file of a few bytes could ask for all memory.
    """
    size = opened.held
    for column in (opened.features, opened.coords):
        if column is not None and not isinstance(column, LazyColumn):
            size = max(size, math.prod(column.shape) * column.dtype.itemsize)
    if size > _SMALL:
        on_disk = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        check_growth(size, on_disk, str(path), small=_SMALL, most=_GROWTH)


def check_growth(size: int, packed: int, where: str, *, small: int, most: int = 200) -> None:
    """Refuse content above the size `small` that is more than `most` times as large as it is when it is `packed`."""
    if size > max(small, most * packed):
        got = f"{size_text(size)} in {size_text(packed)} (in {where}); write the file again"
        raise BagDataError(f"Expected content that grows at most {most} times when it is read, got {got}.")
