"""The plan of an import, and its bags that are on the disk already."""

import hashlib
import json
import os
import re
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from midam.data.bags import Bags
from midam.data.digests import bag_digests, described, hash_rows
from midam.data.on_disk import Rows
from midam.data.store.format import TEXTS
from midam.data.witnesses import marks_of
from midam.files import Journal

_DIGEST = re.compile(r"[0-9a-f]{64}")


class WrittenBag(NamedTuple):
    """A bag that is in the files of the store, and the digests of its content and coordinates."""

    number: int
    digest: str
    coords_digest: str | None


def written_bags(journal: Journal, plan: str, count: int) -> list[WrittenBag] | None:
    """Bags of a journal of this plan of `count`, which is cut at the first row that is none; None of another plan."""
    if not journal.rows and journal.damaged is None:
        return []
    if journal.rows[:1] != [plan]:
        return None
    rows = list(takewhile(lambda row: _is_bag(row, count), journal.rows[1:]))
    bags = {row[0]: WrittenBag(*row) for row in rows}
    journal.keep(len(rows) + 1)
    return list(bags.values())


def _is_bag(row: Any, count: int) -> bool:
    if not isinstance(row, list) or len(row) != len(WrittenBag._fields):
        return False
    number, *digests = row if row[2] is not None else row[:2]
    named = type(number) is int and 0 <= number < count
    return named and all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in digests)


def plan_digest(bags: Bags) -> str:
    """SHA-256 of what a store will hold: of files by path, size, time and options, of memory by content."""
    files = _files(bags)
    plan: dict[str, Any] = {
        "ids": bags.ids.tolist(),
        "sizes": bags.sizes.tolist(),
        "labels": None if bags.labels is None else bags.labels.tolist(),
        "texts": {name: None if getattr(bags, name) is None else getattr(bags, name).tolist() for name in TEXTS[1:]},
        "dtype": bags.instances.dtype.str,
        "shape": bags.instance_shape,
        "coords": None if bags.coords is None else [bags.coords.dtype.str, *bags.coords.shape[1:]],
        "witnesses": _witness_digest(bags),
        "feature_names": bags.feature_names,
        "cut": bags.cut,
        "classes": bags.classes,
        "source": bags.source,
        "starts": bags.starts.tolist(),
        "rows": bags.instances.plan if isinstance(bags.instances, Rows) else "",
        "files": [_stamp(path) for path in files] if files else [_contents(bags), _coords_digest(bags)],
    }
    if bags.outcome is not None:
        plan["outcome"] = described(bags.outcome)
    if bags.covariates is not None:
        plan["covariates"] = bags.covariates.values()
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _contents(bags: Bags) -> list[str]:
    """Digests of the instances, or of their source, which is faster."""
    return list(getattr(bags.instances, "origin", ())) or bag_digests(bags)


def _files(bags: Bags) -> list[Path]:
    """Files of instances and coordinates; none where a part of them is in memory alone."""
    paths: list[Path] = []
    for rows in (bags.instances, bags.coords):
        if rows is None:
            continue
        files: Any = rows.paths if isinstance(rows, Rows) else (getattr(rows, "filename", None),)
        if not files or None in files:
            return []
        paths += [Path(file) for file in files]
    return paths


def _stamp(path: Path) -> list[Any]:
    """Path, size and time of a file, or of all files of a folder, whose own time does not depend on its content."""
    if path.is_dir():
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [str(path), [_stamp(file) for file in files]]
    facts = path.stat()
    return [str(path), facts.st_size, facts.st_mtime_ns]


def _witness_digest(bags: Bags) -> str | None:
    marks = marks_of(bags)
    return None if marks is None else hashlib.sha256(np.packbits(marks).tobytes()).hexdigest()


def _coords_digest(bags: Bags) -> str | None:
    if bags.coords is None:
        return None
    digest = hashlib.sha256()
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        hash_rows(bags.coords, start, size, digest)
    return digest.hexdigest()
