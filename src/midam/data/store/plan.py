"""The journal of an import: which bags are on the disk already, for which plan; held by one import at a time."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midam.data.bags import Bags, bag_digests
from midam.data.locked_lines import LockedLines
from midam.data.on_disk import Rows
from midam.errors import StoreError


@dataclass(frozen=True)
class WrittenBag:
    """A bag that is in the files of the store.

    Attributes
    ----------
    number : int
        Its position among the bags.
    digest : str
        Of its content, see `midam.data.bags.bag_digests`.
    coords_digest : str or None
        Of its coordinates.
    """

    number: int
    digest: str
    coords_digest: str | None


class Journal(LockedLines):
    """A file of one line for the plan and one for each bag that is written.

    Parameters
    ----------
    path : Path
        The file; made where there is none.
    owner : str
        The store that is written, for the message.

    Raises
    ------
    StoreError
        If another process holds the journal.
    """

    def __init__(self, path: Path, *, owner: str) -> None:
        busy = (
            f"Expected no other import to {owner}, got one that is running; wait for its end, or choose another place."
        )
        super().__init__(path, busy=StoreError(busy))

    def written(self, plan: str) -> list[WrittenBag] | None:
        """Bags that are written; None if the journal is of another plan.

        The first line that is no bag is cut off, with all that follow. An empty journal is of every plan.
        """
        lines = self.read()
        if not lines:
            self.cut(0)
            return []
        if lines[0] != plan.encode():
            return None
        size = len(lines[0]) + 1
        found: dict[int, WrittenBag] = {}
        for line in lines[1:]:
            try:
                bag = WrittenBag(*json.loads(line))
            except (TypeError, ValueError):
                break
            found[bag.number] = bag
            size += len(line) + 1
        self.cut(size)
        return list(found.values())

    def begin(self, plan: str) -> None:
        """Forget what is written, and note the plan."""
        self.cut(0)
        self.append(f"{plan}\n")

    def add(self, bags: list[WrittenBag]) -> None:
        """Note bags; they are noted for good when this returns, and none of them is if it fails."""
        lines = [json.dumps([bag.number, bag.digest, bag.coords_digest]) + "\n" for bag in bags]
        self.append("".join(lines))


def plan_digest(bags: Bags) -> str:
    """SHA-256 of what a store of these bags will hold, as far as it can be told before they are read.

    Files count by path, size and time of their last change, and by what their rows are made with; bags that do not
    come from files by their content.
    """
    files = _files(bags)
    plan = {
        "ids": bags.ids.tolist(),
        "sizes": bags.sizes.tolist(),
        "labels": None if bags.labels is None else bags.labels.tolist(),
        "texts": {
            name: None if getattr(bags, name) is None else getattr(bags, name).tolist()
            for name in ("groups", "splits", "sources", "attributes")
        },
        "dtype": bags.instances.dtype.str,
        "shape": bags.instance_shape,
        "coords": None if bags.coords is None else [bags.coords.dtype.str, *bags.coords.shape[1:]],
        "feature_names": bags.feature_names,
        "cut": bags.cut,
        "source": bags.source,
        "starts": bags.starts.tolist(),
        "rows": bags.instances.plan if isinstance(bags.instances, Rows) else "",
        "files": [_stamp(path) for path in files] if files else [bag_digests(bags), _coords_digest(bags)],
    }
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _files(bags: Bags) -> list[Path]:
    """Files that all of the instances and coordinates come from; none where a part is in memory alone."""
    found: list[Path] = []
    for rows in (bags.instances, bags.coords):
        if rows is None:
            continue
        files: Any = rows.paths if isinstance(rows, Rows) else (getattr(rows, "filename", None),)
        if not files or None in files:
            return []
        found += [Path(file) for file in files]
    return found


def _stamp(path: Path) -> list[Any]:
    """Path, size and time of a file; those of all files of a folder, whose own time is not that of its content."""
    if path.is_dir():
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [str(path), [_stamp(file) for file in files]]
    facts = path.stat()
    return [str(path), facts.st_size, facts.st_mtime_ns]


def _coords_digest(bags: Bags) -> str | None:
    if bags.coords is None:
        return None
    digest = hashlib.sha256()
    for number in range(len(bags)):
        digest.update(np.ascontiguousarray(bags.places(number)).data)
    return digest.hexdigest()
