"""Read the files of a run for `digests.py`: for each column a digest, and the numbers to compare."""

import base64
import csv
import fnmatch
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import yaml

Column = dict[str, Any]

# Columns that differ between any two runs, as ARTEFACT:COLUMN, and the reason.
NOT_COMPARED = {
    "*:*seconds*": "a time",
    "*summary.json:digest": "over the times of the methods that auto tried, too",
    "*:version": "the version of midam",
    "*:*sources*": "places in the temporary folder",
    "*explain.json:run": "a digest of model.pt as a file, with its version and format",
}
_KEPT = 4096  # most numbers that are kept of a column; of a longer column an evenly spaced sample is kept


def read_artefacts(folder: Path, work: Path) -> Iterator[tuple[str, dict[str, Column]]]:
    """Yield the name of each file of a case to compare, with its columns: a digest and the numbers of each."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        reader = _READERS.get(path.suffix)
        if reader is None or name.endswith("last.pt"):
            continue
        columns = {key: value for key, value in reader(path) if not _left_out(f"{name}:{key}")}
        for column in columns.values():
            if "text" in column:
                column["text"] = [text.replace(str(work), "WORK") for text in column["text"]]
        yield name, columns


def _left_out(column: str) -> bool:
    return any(fnmatch.fnmatch(column, pattern) for pattern in NOT_COMPARED)


def _numbers(values: Any, content: bytes) -> Column:
    flat = np.asarray(values).ravel()
    sample = flat if flat.size <= _KEPT else flat[np.linspace(0, flat.size - 1, _KEPT).astype(np.int64)]
    numbers = base64.b64encode(sample.astype("<f8").tobytes()).decode()
    return {"sha256": hashlib.sha256(content).hexdigest(), "numbers": numbers, "shape": list(np.shape(values))}


def _array(values: Any) -> Column:
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "fiub":
        return {"text": [str(value) for value in array.ravel()]}
    return _numbers(array, str(array.dtype).encode() + array.tobytes())


def _texts(values: list[str]) -> Column:
    """Return a column of numbers if all values that are not empty are numbers, else a column of texts."""
    try:
        numbers = [float(value) if value else np.nan for value in values]
    except ValueError:
        return {"text": values}
    return _numbers(numbers, "\n".join(values).encode())


def _read_csv(path: Path) -> Iterator[tuple[str, Column]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if path.name == "trials.csv":  # its rows are in the order in which the trials end
        rows.sort(key=lambda row: (row["method"], int(row["repeat"]), int(row["fold"])))
    for name in rows[0] if rows else ():
        yield name, _texts([row[name] for row in rows])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{path}.{i}")
    else:
        yield path, value


def _plain(value: Any) -> Column:
    items = value if isinstance(value, list) else [value]
    if items and all(isinstance(item, int | float) and not isinstance(item, bool) for item in items):
        return _numbers(value, json.dumps(value).encode())
    return {"text": [json.dumps(item) for item in items]}


def _read_json(path: Path) -> Iterator[tuple[str, Column]]:
    return ((name, _plain(value)) for name, value in _leaves(json.loads(path.read_text())))


def _read_yaml(path: Path) -> Iterator[tuple[str, Column]]:
    return ((name, _plain(value)) for name, value in _leaves(yaml.safe_load(path.read_text())))


def _read_weights(path: Path) -> Iterator[tuple[str, Column]]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    for name, value in _leaves(content):
        if isinstance(value, torch.Tensor):
            yield name, _array(value.numpy())
        elif name.split(".")[0] in ("calibrator", "threshold"):
            yield name, _plain(value)


def _read_npz(path: Path) -> Iterator[tuple[str, Column]]:
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays:
            yield name, _array(arrays[name])


def _read_hdf5(path: Path) -> Iterator[tuple[str, Column]]:
    found: list[tuple[str, Column]] = []
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.append((name, _array(item[()]))) if hasattr(item, "dtype") else None)
        found += [(f"@{name}", _array(value)) for name, value in file.attrs.items()]
    yield from found


def _read_npy(path: Path) -> Iterator[tuple[str, Column]]:
    yield "array", _array(np.load(path, allow_pickle=False))


_READERS = {
    **dict.fromkeys([".json", ".geojson"], _read_json),
    **{".csv": _read_csv, ".yaml": _read_yaml, ".pt": _read_weights, ".npz": _read_npz, ".h5": _read_hdf5},
    ".npy": _read_npy,
}


def difference(old: Column | None, new: Column | None) -> str:
    """Return how two columns differ; an empty text if they are the same."""
    if old is None or new is None:
        return f"only in the {'new' if old is None else 'old'} run"
    if "text" in old or "text" in new:
        a, b = old.get("text", ["numbers"]), new.get("text", ["numbers"])
        if len(a) != len(b):
            return f"{len(a)} -> {len(b)} texts"
        return next((f"{x[:60]} -> {y[:60]}" for x, y in zip(a, b, strict=True) if x != y), "")
    if old["sha256"] == new["sha256"]:
        return ""
    return _apart(old, new)


def _apart(old: Column, new: Column) -> str:
    if old["shape"] != new["shape"]:
        return f"shape {old['shape']} -> {new['shape']}"
    a, b = (np.frombuffer(base64.b64decode(column["numbers"]), "<f8") for column in (old, new))
    if np.any(np.isnan(a) != np.isnan(b)):
        return "a number on one side alone"
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(a - b)).max(initial=0.0)
    sample = " of a sample" if np.prod(old["shape"]) > _KEPT else ""
    return f"{apart:.3g}{sample}" if apart else f"no number{sample}: written otherwise, or beyond float64"
