"""Instances that stay in the files of other tools, read in place; the files of each bag, such as slides or scans."""

import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.on_disk import Rows, stamp_of
from midam.data.sources.file_names import distinct_names, file_name
from midam.data.sources.formats.open_file import OpenFile, sound
from midam.data.sources.probe import AGAIN, OR_SKIP, FileFacts, open_file, places_width
from midam.data.sources.request import ImageOptions
from midam.data.validate import feature_order, refuse_not_finite
from midam.errors import BagDataError, Note, given, listed

_HANDLES = 64  # files open at a time, far below the limit of a process
# Attributes of files that `warn_of_scans` looks at; how many times as wide pixels may be.
_OF_SCANS, _COARSE = ("doubt", "aside", "flat", "resized", "tilt", "pixel_mm"), 2.0
_HELD_BYTES = 256 * 2**20  # in memory, of files that cannot be read in part


class Parts(ABC):
    """Parts that hold the instances, one after the other: files, or the items of a data set.

    A part is opened when it is read, and opened again after too many others, or in another process.
    """

    paths: Sequence[Path] = ()  # where the parts are files
    plan: str = ""  # other options that the rows depend on
    _once = False

    def __init__(self, names: Sequence[object], facts: Sequence[FileFacts]) -> None:
        self.names = list(names)  # names of the parts in messages
        self.facts = list(facts)
        self.offsets = np.concatenate([[0], np.cumsum([fact.rows for fact in facts], dtype=np.int64)])
        self.feature_names = next((fact.names for fact in facts if fact.names is not None), None)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    @abstractmethod
    def open(self, number: int) -> OpenFile:
        """Open one part."""

    def order(self, number: int) -> list[int] | None:
        """Return the positions of the features `feature_names` in a part; None if they are in this order."""
        names = self.facts[number].names
        if names is None or self.feature_names is None or names == self.feature_names:
            return None
        return feature_order(self.feature_names, names, reference=str(self.names[0]), where=str(self.names[number]))

    def once(self) -> Self:
        """Return the same parts for a thread that reads each once, in order: only the last stays in memory."""
        parts = copy(self)
        parts._once = True
        return parts

    def read(self, number: int, column: str, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Read ascending and distinct rows of the column "features" or "coords" of one part."""
        places = self.facts[number].places
        if column == "coords" and places is not None:
            return places[index]  # without decoding anything
        self._leave_inherited()
        with self._lock:
            opened = self._opened(number)
            if opened.serial:
                return np.asarray(getattr(opened, column)[index])
        return np.asarray(getattr(opened, column)[index])

    def close(self) -> None:
        """Close all parts; a later read opens them again."""
        self._leave_inherited()
        with self._lock:
            for opened in self._open.values():
                opened.close()
            self._open.clear()
            self._handles = self._held = 0

    def _opened(self, number: int) -> OpenFile:
        if number not in self._open:
            opened = self._open[number] = self.open(number)
            self._handles, self._held = self._handles + opened.handle, self._held + opened.held
        self._open.move_to_end(number)
        most = 0 if self._once else _HELD_BYTES
        while len(self._open) > 1 and (self._handles > _HANDLES or self._held > most):
            _, oldest = self._open.popitem(last=False)
            self._handles, self._held = self._handles - oldest.handle, self._held - oldest.held
            oldest.close()
        return self._open[number]

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[int, OpenFile] = OrderedDict()
        self._handles = self._held = 0

    def _leave_inherited(self) -> None:
        """Close files that a fork copied, without the copied lock: a thread that does not exist here may hold it."""
        if self._process != os.getpid():
            inherited = list(self._open.values())
            self._forget()
            for opened in inherited:
                opened.close()


class FileSet(Parts):
    """Files of instances."""

    def __init__(
        self, paths: Sequence[Path], facts: Sequence[FileFacts], options: ImageOptions, reader: str | None
    ) -> None:
        super().__init__(paths, facts)
        self.paths, self.options, self.reader = list(paths), options, reader
        self.plan = repr((options, reader))
        self._stamps = [stamp_of(path.stat()) for path in paths]

    def open(self, number: int) -> OpenFile:
        """Open a file."""
        return open_file(self.paths[number], self.options, self.facts[number].places, reader=self.reader)

    def read(self, number: int, column: str, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Read rows of one file; refuse a file that has changed or become unreadable."""
        path = self.paths[number]
        with sound(f"readable {column}", path, advice=f"copy or write the file again{OR_SKIP}"):
            if stamp_of(path.stat()) != self._stamps[number]:
                raise BagDataError(f"Expected the file as first read, got a changed one (in {path}); restore it.")
            return super().read(number, column, index)


def warn_of_scans(paths: Sequence[Path], facts: Sequence[FileFacts]) -> None:
    """Warn once about scans that may be wrong, or that were changed without a request."""
    attributes = [fact.attributes.get("file", {}) for fact in facts]

    def with_key(key: str) -> list[tuple[Path, Any]]:
        return [(path, entry[key]) for path, entry in zip(paths, attributes) if key in entry]

    doubts, aside, flat, resized, tilted, pixels = map(with_key, _OF_SCANS)
    all_of = f"of {len(paths)}"
    if doubts:
        first, doubt = doubts[0]
        warnings.warn(f"{len(doubts)} {all_of} files are doubtful, the first {first}: {doubt}", stacklevel=4)
    if aside:
        text = f"{sum(number for _, number in aside)} images that are not slices, such as localizers, are left out"
        warnings.warn(f"{text} of {len(aside)} {all_of} scans, the first {aside[0][0]}", Note, stacklevel=4)
    if flat:
        kinds = listed(sorted({str(kind) for _, kind in flat}))
        text = f"{len(flat)} {all_of} files or folders hold images without a position ({kinds})"
        warnings.warn(f"{text}: each image is an instance, in no order", Note, stacklevel=4)
    if tilted:
        first, degrees = tilted[0]
        text = f"the gantry was tilted in {len(tilted)} {all_of} scans, the first {first} by {degrees}\N{DEGREE SIGN}"
        warnings.warn(f"{text}: their slices are shifted against each other, which is not corrected", stacklevel=4)
    ends = sorted(size for _, size in pixels)
    if ends and ends[-1] > _COARSE * ends[0] and not resized:  # else a run compares them with those of its training
        text = f"pixels of scans are {ends[0]:g} to {ends[-1]:g} mm wide, so that the same structure differs in size"
        warnings.warn(f"{text}: give one size, such as {given(spacing=ends[len(ends) // 2])}", stacklevel=4)
    series = Counter(entry.get("SeriesDescription", "") for entry in attributes if entry.get("modality") == "MR")
    if len(series) > 1:
        counts = listed([f"{count} {name or 'unnamed'}" for name, count in series.most_common()])
        warnings.warn(f"scans of several series ({counts}): if their contrasts differ, keep one", Note, stacklevel=4)
    if resized:
        first, size = resized[0]
        text = f"slices of {len(resized)} {all_of} scans have another size than those of the run, the first {first} has"
        warnings.warn(f"{text} {size}: they are resized and padded, and keep their proportions", Note, stacklevel=4)


class FileRows(Rows):
    """Instances, or their coordinates, of many `Parts` as one array; features that are not finite are refused."""

    def __init__(self, files: Parts, column: Literal["features", "coords"] = "features") -> None:
        self.files, self.column = files, column
        self.paths, self.plan = tuple(files.paths), f"{column} {files.plan}"
        first, total = files.facts[0], int(files.offsets[-1])
        shape, types = first.instance_shape, {fact.dtype for fact in files.facts}
        if column == "coords":
            width, nan = places_width(files.facts), np.dtype(np.float16)
            # A file without coordinates of the usual width gives NaN.
            types = {(fact.coords_dtype if fact.coords_width == width else nan) or nan for fact in files.facts}
            shape = (width or 0,)
        self.shape, self.dtype = (total, *shape), np.result_type(*types)

    @classmethod
    def places(cls, files: Parts) -> "FileRows | None":
        """Return the coordinates of files; None if no file has any."""
        return None if places_width(files.facts) is None else cls(files, "coords")

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the instances at `positions` [m]; each file is visited once."""
        rows, back = np.unique(positions, return_inverse=True)
        bounds = np.searchsorted(rows, self.files.offsets)
        return self._read(bounds, lambda begin, end, at: rows[begin:end] - at)[back]

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the instances low, ..., high - 1."""
        bounds = np.clip(self.files.offsets, low, high) - low
        return self._read(bounds, lambda begin, end, at: slice(low + begin - at, low + end - at))

    def _read(
        self, bounds: NDArray[np.int64], index_of: Callable[[int, int, int], slice | NDArray[np.int64]]
    ) -> NDArray[Any]:
        """Return rows of all files: bounds[i] to bounds[i + 1] are from file i, at positions of `index_of`."""
        rows = np.empty((int(bounds[-1]), *self.shape[1:]), self.dtype)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            begin, end = int(bounds[number]), int(bounds[number + 1])
            if self.column == "coords" and self.files.facts[number].coords_width != self.shape[1]:
                rows[begin:end] = np.nan
                continue
            index = index_of(begin, end, int(self.files.offsets[number]))
            part = self.files.read(number, self.column, index)
            self._check(part, index, end - begin, self.files.names[number])
            order = self.files.order(number) if self.column == "features" else None
            rows[begin:end] = part if order is None else part[:, order]
        return rows

    def close(self) -> None:
        """Close the files."""
        self.files.close()

    def _check(self, part: NDArray[Any], index: slice | NDArray[np.int64], count: int, name: object) -> None:
        if len(part) != count:
            raise BagDataError(f"Expected {count} rows, got {len(part)} (in {name}); the file has changed, try again.")
        if self.column == "features":
            refuse_not_finite(part, index, str(name), advice=f"{AGAIN}{OR_SKIP if self.paths else ''}")


SEPARATOR = "\n"  # between the files of a bag in `Bags.sources`
ROWS = "rows"  # key in `Bags.attributes`: number of instances of a file, where a bag has several
SLICES = "slices"  # key in `Bags.attributes`: attributes of a scan's slices, a list for each name
SLICE_COLUMNS = (
    *("slice_index", "instance_number", "frame_number", "sop_instance_uid", "position_mm"),
    *("view", "laterality", "slice_file"),
)


@dataclass(frozen=True)
class BagFile:
    """A file of a bag."""

    name: str  # file name, with the folders that make it unique in the bag
    path: Path
    rows: range  # positions of its instances in the bag
    attributes: Mapping[str, Any]  # of each array

    @property
    def stem(self) -> str:
        """Name without the suffix."""
        folders, _, _ = self.name.rpartition("/")
        return f"{folders}/{file_name(self.path)}" if folders else file_name(self.path)


def source_paths(bags: Bags, index: int) -> list[Path]:
    """Return the files that a bag was read from; an empty list if they are unknown."""
    if bags.sources is None:
        return []
    return [Path(path) for path in str(bags.sources[index]).split(SEPARATOR)]


def files_of(bags: Bags, index: int) -> list[BagFile]:
    """Return the files of a bag in order, with their instances; an empty list if they are unknown."""
    paths = source_paths(bags, index)
    described = bags.described(index)
    known = len(described) == len(paths)
    attributes: list[Mapping[str, Any]] = list(described.values()) if known else [{}] * len(paths)
    names = list(described) if known else distinct_names(paths)
    size = int(bags.sizes[index])
    ends = [0, *accumulate(int(entry.get(ROWS, size)) for entry in attributes)]  # a single file states none
    if ends[-1] != size:
        return []
    rows = [range(begin, end) for begin, end in pairwise(ends)]
    return [BagFile(*facts) for facts in zip(names, paths, rows, attributes, strict=True)]


def instance_columns(bags: Bags, index: int) -> dict[str, list[Any]]:
    """Return columns [n] with the origin of each instance of a bag: its file and its slice.

    The column `file` holds the name of the file. Slices add `slice_index` (number in the file), `instance_number`,
    `frame_number` (from 1, in files of several frames), `sop_instance_uid`, `position_mm`, and of X-rays `view` and
    `laterality`, as far as the files hold them, and `slice_file`, the name of the file; unknown entries are None.
    """
    files = files_of(bags, index)
    columns: dict[str, list[Any]] = {"file": [one.name for one in files for _ in one.rows]} if files else {}
    sliced = [dict(one.attributes.get("file", {}).get(SLICES, {})) for one in files]
    places = bags.places(index) if any(sliced) else None
    if places is None or places.shape[1] != 1:
        return columns
    for name in SLICE_COLUMNS:
        if any(name in slices for slices in sliced):
            by_slice = [dict(enumerate(slices.get(name, ()))) for slices in sliced]
            rows = [(entries, row) for one, entries in zip(files, by_slice) for row in one.rows]
            columns[name] = [entries.get(int(places[row, 0])) for entries, row in rows]
    return columns
