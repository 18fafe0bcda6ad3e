"""What a command has left in a folder, without what tells the time."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml


def contents(place: Path) -> dict[str, str]:
    """Digest of each file in a folder, without what tells the time, and the log of a run, which a stop adds to."""
    files = sorted(path for path in place.rglob("*") if path.name != "LOG" and not path.is_dir())
    return {str(path.relative_to(place)): hashlib.sha256(_timeless(path)).hexdigest() for path in files}


def _timeless(path: Path) -> bytes:
    """Bytes of a file, without the seconds and bytes that were measured."""
    if path.name == "last.pt":
        return _tree({key: value for key, value in torch.load(path, weights_only=True).items() if key != "seconds"})
    if path.name == "summary.json":
        return json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "seconds"}).encode()
    if path.parent.name == "compare":
        return _COMPARED.get(path.name, Path.read_bytes)(path)
    return path.read_bytes()


def _tree(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes() + str((value.dtype, value.shape)).encode()
    if isinstance(value, dict):
        return b"".join(str(key).encode() + _tree(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return b"".join(map(_tree, value))
    return repr(value).encode()


_MEASURED = ["seconds"]


def _trials(path: Path) -> bytes:
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_json(path, lines=True)
    keys = [key for key in ("method", "repeat", "fold") if key in frame]
    frame = frame.drop(columns=[key for key in _MEASURED if key in frame]).sort_values(keys)
    return frame.to_csv(index=False).encode()


def _words(path: Path) -> bytes:
    """A report without its numbers and drawings, among which are the times of the trials."""
    return re.sub(rb"data:[^\"']*|[0-9.]+", b"#", path.read_bytes())


def _record(path: Path) -> bytes:
    """What a comparison was called with, without the digests of its tables, which hold the times of the trials."""
    record = yaml.safe_load(path.read_text())
    record.pop("files", None)
    return json.dumps(record, sort_keys=True).encode()


_COMPARED: dict[str, Callable[[Path], bytes]] = {
    "trials.csv": _trials,
    "trials.jsonl": _trials,
    "summary.csv": _trials,
    "summary.md": lambda path: b"",  # the table of summary.csv
    "report.html": _words,
    "config.yaml": _record,
}


def unlike(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
