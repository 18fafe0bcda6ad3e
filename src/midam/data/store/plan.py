"""The plan of an import, and which of its bags are on the disk already, as its journal says."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from midam.data.bags import Bags, bag_digests, hash_rows
from midam.data.on_disk import Rows
from midam.files import Journal


class WrittenBag(NamedTuple):
    """A bag that is in the files of the store: its position, and the digests of its content and coordinates."""

    number: int
    digest: str
    coords_digest: str | None


def written_bags(journal: Journal, plan: str) -> list[WrittenBag] | None:
    """Bags that a journal holds; None if it is of another plan. An empty journal is of every plan.

    The first line is the plan. The first other one that is no bag is cut off, with all that follow.
    """
    if not journal.rows and journal.damaged is None:
        return []
    if journal.rows[:1] != [plan]:
        return None
    found: dict[int, WrittenBag] = {}
    count = 1
    for row in journal.rows[1:]:
        if not isinstance(row, list) or len(row) != len(WrittenBag._fields):
            break
        found[row[0]] = WrittenBag(*row)
        count += 1
    journal.keep(count)
    return list(found.values())


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
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        hash_rows(bags.coords, start, size, digest)
    return digest.hexdigest()
