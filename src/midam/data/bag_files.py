"""The files that a bag was read from, such as the slides or scans of a patient, and the instances of each file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.bags import Bags
from midam.data.sources.file_names import distinct_names, file_name
from midam.data.sources.file_rows import FileRows

SEPARATOR = "; "  # between the files of a bag in `Bags.sources`
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
    pieces, names = str(bags.sources[index]).split(SEPARATOR), list(bags.described(index))
    if len(names) in (0, len(pieces)):
        return [Path(piece) for piece in pieces]
    paths, held = list[Path](), list[str]()
    for piece in pieces:  # a name may hold the separator
        held.append(piece)
        path = SEPARATOR.join(held)
        if len(paths) < len(names) and path.endswith(names[len(paths)]):
            paths, held = [*paths, Path(path)], []
    return [Path(piece) for piece in pieces] if held else paths


def files_of(bags: Bags, index: int) -> list[BagFile]:
    """Return the files of a bag in order, with their instances; an empty list if they are unknown."""
    paths, described = source_paths(bags, index), bags.described(index)
    known = len(described) == len(paths)
    attributes: list[Mapping[str, Any]] = list(described.values()) if known else [{}] * len(paths)
    names = list(described) if known else distinct_names(paths)
    ends = _ends(bags, index, attributes)
    if ends is None:
        return []
    rows = [range(begin, end) for begin, end in pairwise([0, *ends])]
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


def _ends(bags: Bags, index: int, attributes: Sequence[Mapping[str, Any]]) -> list[int] | None:
    """Return the end position of each file's instances in a bag; None if it is unknown."""
    size, count = int(bags.sizes[index]), len(attributes)
    if count < 2:
        return [size] if count else None
    if isinstance(bags.instances, FileRows):
        offsets = bags.instances.files.offsets - bags.starts[index]
        ends = offsets[(offsets > 0) & (offsets <= size)].tolist()
    elif all(ROWS in entry for entry in attributes):
        ends = list(accumulate(int(entry[ROWS]) for entry in attributes))
    elif bags.coords is not None and bags.coords.shape[1] == 1:
        # Of a store that lacks them: the numbers of slices begin again at each scan.
        places = np.asarray(bags.places(index))[:, 0]
        ends = [*(np.flatnonzero(np.diff(places) <= 0) + 1).tolist(), size]
    else:
        return None
    return ends if len(ends) == count and ends[-1] == size else None
