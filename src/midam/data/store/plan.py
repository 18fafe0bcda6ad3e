"""The plan of an import: what a store will hold, so that a stopped import continues with the same data alone."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from midam.data.bags import Bags
from midam.data.digests import bag_digests, facts_of, hash_rows
from midam.data.instance_labels import labels_of
from midam.data.on_disk import Rows

_TEXTS = ("sources", "attributes")


def plan_digest(bags: Bags) -> str:
    """Return the SHA-256 of a store's future content: files by path, size, time and options, memory by content."""
    files, labels = _files(bags), labels_of(bags)
    origin = list(getattr(bags.instances, "origin", ()))  # digests of the source, which is faster
    stamps = {path: stamp(path) for path in dict.fromkeys(files)}  # coordinates mostly share the instances' files
    content = [stamps[path] for path in files] if files else [origin or bag_digests(bags), _coords_digest(bags)]
    plan = {
        **facts_of(bags, content),
        "texts": {name: None if getattr(bags, name) is None else getattr(bags, name).tolist() for name in _TEXTS},
        "coords": None if bags.coords is None else [bags.coords.dtype.str, *bags.coords.shape[1:]],
        "instance_labels": None if labels is None else hashlib.sha256(labels.tobytes()).hexdigest(),
        "feature_names": bags.feature_names,
        "cut": bags.cut,
        "classes": bags.classes,
        "source": bags.source,
        "starts": bags.starts.tolist(),
        "rows": bags.instances.plan if isinstance(bags.instances, Rows) else "",
    }
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _files(bags: Bags) -> list[Path]:
    """Return the files of instances and coordinates; an empty list if a part of them is only in memory."""
    paths: list[Path] = []
    for rows in (bags.instances, bags.coords):
        if rows is None:
            continue
        files: Any = rows.paths if isinstance(rows, Rows) else (getattr(rows, "filename", None),)
        if not files or None in files:
            return []
        paths += [Path(file) for file in files]
    return paths


def stamp(path: Path) -> list[Any]:
    """Return path, size and time of a file, or of all files in a folder, whose own time ignores their content."""
    if path.is_dir():
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [str(path), [stamp(file) for file in files]]
    facts = path.stat()
    return [str(path), facts.st_size, facts.st_mtime_ns]


def _coords_digest(bags: Bags) -> str | None:
    if bags.coords is None:
        return None
    digest = hashlib.sha256()
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        hash_rows(bags.coords, start, size, digest)
    return digest.hexdigest()
