"""Inputs made by hand to run code, to read another file, or to lie about what they hold: features, tables, images."""

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import torch
from tests.fuzz.hostile_tables import (
    copied_over,
    dicom_patient,
    dicom_tags,
    nifti_header,
    parquet_columns,
    table_beyond_float32,
    table_blank_ids,
    table_control_ids,
    table_large_field,
    table_wide,
)
from tests.fuzz.mutate import ANY, REFUSE, SUMMED, WARN
from tests.fuzz.reading import CANARY, SECRET

Craft = Callable[[Path, Random], str]


class Bomb:
    """Unpickling it makes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return open, (str(self.canary), "w")


def _secret_rows(shape: tuple[int, ...] = (6, 5), dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, SECRET, dtype=dtype)


# NumPy


def npy_objects(folder: Path, rng: Random) -> str:
    np.save(folder / "files/a.npy", np.array([[Bomb(folder / CANARY)]], dtype=object), allow_pickle=True)
    return REFUSE


def npy_header(folder: Path, rng: Random) -> str:
    """A header that says something else than the file holds."""
    path = folder / "files/a.npy"
    shape = rng.choice([(5, 5), (7, 5), (3, 5), (10**12, 5), (-6, 5), (6,), (6, 5, 1), (2**62, 2**62), (0, 5), (30,)])
    header = {"descr": rng.choice(["<f4", "<f4", "|O", "<U1", ">f4", "<c8", "|V4"]), "fortran_order": False}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header | {"shape": shape})
    path.write_bytes(buffer.getvalue() + path.read_bytes()[128:])
    return SUMMED if header["descr"] == "<f4" else ANY


def npy_beyond_float32(folder: Path, rng: Random) -> str:
    for name in "ab":
        values = np.ones((6, 5))
        values[3, 2] = rng.choice([1e39, -1e300]) if name == "a" else 1.0
        np.save(folder / f"files/{name}.npy", values)
    return REFUSE


def _members(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    change(held)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in held.items():
            archive.writestr(name, content)


def _npz_of(folder: Path) -> Path:
    bags = folder / "bags.npz"
    return bags if bags.exists() else folder / "files/a.npz"


def npz_foreign_member(folder: Path, rng: Random) -> str:
    """A file in the archive that is no array."""
    name = rng.choice(["notes.txt", "features", "X", "coords.npy.bak", "features.npy.npy", "a/b.npy", "group"])
    _members(_npz_of(folder), lambda held: held.update({name: b"no array"}))
    return SUMMED


def npz_renamed(folder: Path, rng: Random) -> str:
    """Groups, splits or coordinates under another key than ours must not be passed over."""
    pairs = [("group", "groups"), ("split", "splits"), ("group", "Group"), ("ids", "id"), ("split", "Split")]
    old, new = rng.choice(pairs if (folder / "bags.npz").exists() else [("coords", "coord"), ("coords", "Coords")])
    _members(_npz_of(folder), lambda held: held.update({f"{new}.npy": held.pop(f"{old}.npy")}))
    return SUMMED if (folder / "bags.npz").exists() else WARN


def npz_objects(folder: Path, rng: Random) -> str:
    path = _npz_of(folder)
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb(folder / CANARY)], dtype=object), allow_pickle=True)
    key = rng.choice(["X", "ids", "group"] if path.name == "bags.npz" else ["features", "coords"])
    _members(path, lambda held: held.update({f"{key}.npy": buffer.getvalue()}))
    return REFUSE


def npz_pickle(folder: Path, rng: Random) -> str:
    """NumPy takes a file that is no archive for a pickle."""
    _npz_of(folder).write_bytes(pickle.dumps(Bomb(folder / CANARY)))
    return REFUSE


def npz_encrypted(folder: Path, rng: Random) -> str:
    path = _npz_of(folder)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        places = [info.header_offset + 6 for info in archive.infolist()]
    at = content.find(b"PK\x01\x02")
    while at >= 0:
        places.append(at + 8)
        at = content.find(b"PK\x01\x02", at + 1)
    for place in places:
        content[place] |= 1
    path.write_bytes(content)
    return REFUSE


def npz_no_text(folder: Path, rng: Random) -> str:
    """Bag ids that are no UTF-8."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([b"\xff\xfe" + bytes([65 + i]) for i in range(6)]))
    key = rng.choice(["ids", "group", "split"])
    _members(folder / "bags.npz", lambda held: held.update({f"{key}.npy": buffer.getvalue()}))
    return REFUSE


def npz_blank_ids(folder: Path, rng: Random) -> str:
    """Ids of which two are one to a reader, or are no file names."""
    ids = rng.choice(["b1|b1 |c|d|e|f", " b1|b1|c|d|e|f", "|b|c|d|e|f", "\tb|b|c|d|e|f"]).split("|")
    buffer = io.BytesIO()
    np.save(buffer, np.array(ids))
    _members(folder / "bags.npz", lambda held: held.update({"ids.npy": buffer.getvalue()}))
    return REFUSE


def npz_huge(folder: Path, rng: Random) -> str:
    path = _npz_of(folder)
    key = "X" if path.name == "bags.npz" else "features"
    buffer = io.BytesIO()
    shape = rng.choice([(10**13, 4), (2**62, 8), (10**10, 10), (18, 10**14), (2**31, 2**31)])
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    _members(path, lambda held: held.update({f"{key}.npy": buffer.getvalue() + bytes(100)}))
    return REFUSE


# HDF5


def h5_elsewhere(folder: Path, rng: Random) -> str:
    """Features that stand in another file."""
    path, other = folder / "files/a.h5", folder / "secret.h5"
    with h5py.File(other, "w") as file:
        file["features"] = _secret_rows()
    _secret_rows().tofile(folder / "secret.bin")
    way = rng.choice(
        ["external link", "external storage", "virtual", "virtual self", "link self", "soft loop", "group"]
    )
    with h5py.File(path, "w") as file:
        if way == "external link":
            file["features"] = h5py.ExternalLink(str(other), "/features")
        elif way == "group":
            file["inner/features"] = _features_of(folder)
            file["coords"] = h5py.ExternalLink(str(other), "/features")
            file["features"] = h5py.SoftLink("/inner/features")
        elif way == "external storage":
            file.create_dataset("features", shape=(6, 5), dtype="f4", external=[(str(folder / "secret.bin"), 0, 120)])
        elif way in ("virtual", "virtual self"):
            source = h5py.VirtualSource(str(other) if way == "virtual" else ".", "features", shape=(6, 5), dtype="f4")
            layout = h5py.VirtualLayout(shape=(6, 5), dtype="f4")
            layout[:] = source
            file.create_virtual_dataset("features", layout)
        elif way == "link self":
            file["features"] = h5py.ExternalLink("a.h5", "/features")
        else:
            file["features"] = h5py.SoftLink("/x")
            file["x"] = h5py.SoftLink("/features")
    return REFUSE


def _features_of(folder: Path) -> np.ndarray:
    with h5py.File(folder / "files/b.h5") as file:
        found: np.ndarray = file["features"][:]
    return found


def h5_strange(folder: Path, rng: Random) -> str:
    """Datasets that hold no rows of numbers."""
    with h5py.File(folder / "files/a.h5", "w") as file:
        rows = _features_of(folder)
        made: dict[str, Callable[[], Any]] = {
            "null": lambda: file.create_dataset("features", dtype="f4", data=h5py.Empty("f4")),
            "scalar": lambda: file.create_dataset("features", data=3.0),
            "text": lambda: file.create_dataset("features", data=[["a", "b"]] * 6),
            "compound": lambda: file.create_dataset("features", data=np.zeros((6, 5), [("a", "f4"), ("b", "f4")])),
            "reference": lambda: file.create_dataset("features", data=np.full((6, 5), file.ref, dtype=h5py.ref_dtype)),
            "ragged": lambda: file.create_dataset("features", (6, 5), dtype=h5py.vlen_dtype("f4")),
            "group": lambda: file.create_group("features"),
            "complex": lambda: file.create_dataset("features", data=rows.astype(complex)),
            "nothing": lambda: file.create_dataset("features", shape=(0, 5), dtype="f4"),
            "datatype": lambda: file.__setitem__("features", np.dtype("f4")),
            "NaN": lambda: file.create_dataset("features", data=np.full((6, 5), np.nan)),
        }
        chosen = rng.choice(sorted(made))
        made[chosen]()
        if rng.random() < 0.5:
            file["coords"] = np.zeros((6, 2))
    return WARN if chosen == "nothing" else REFUSE  # a file without instances is left out


def h5_missing_chunks(folder: Path, rng: Random) -> str:
    """A dataset of which not all was written reads as zeros."""
    with h5py.File(folder / "files/a.h5", "w") as file:
        big = rng.random() < 0.3
        shape = (10**9, 1024) if big else (6, 5)
        chunked = big or rng.random() < 0.7
        data = file.create_dataset("features", shape, "f4", chunks=(2, shape[1]) if chunked else None)
        if chunked:
            data[:2] = 1.0
    return REFUSE


# Zarr


def _meta(folder: Path) -> tuple[Path, dict[str, Any]]:
    two, three = folder / "files/a.zarr/features/.zarray", folder / "files/a.zarr/features/zarr.json"
    path = two if two.exists() else three
    return path, json.loads(path.read_text())


def zarr_codec(folder: Path, rng: Random) -> str:
    """A codec that runs code, or that nobody knows; the chunks are its payload."""
    path, meta = _meta(folder)
    name = rng.choice(["pickle", "pickle", "json2", "msgpack2", "vlen-bytes", "categorize", "no-such"])
    if meta["zarr_format"] == 2:
        where = rng.choice(["filters", "compressor"])
        meta["compressor"] = {"id": name} if where == "compressor" else None
        meta["filters"] = [{"id": name}] if where == "filters" else None
        meta["dtype"] = rng.choice([meta["dtype"], "|O"])
        chunks = [file for file in path.parent.iterdir() if file.name[0] != "."]
    else:
        meta["codecs"] = [*meta["codecs"][:1], {"name": f"numcodecs.{name}", "configuration": {}}]
        chunks = [file for file in path.parent.rglob("*") if file.is_file() and file != path]
    for file in chunks:
        file.write_bytes(pickle.dumps(Bomb(folder / CANARY)))
    path.write_text(json.dumps(meta))
    return REFUSE


def zarr_missing_chunk(folder: Path, rng: Random) -> str:
    path, _ = _meta(folder)
    chunks = [file for file in path.parent.rglob("*") if file.is_file() and file.name[0] != "." and file != path]
    rng.choice(sorted(chunks)).unlink()
    return WARN


def zarr_lies(folder: Path, rng: Random) -> str:
    """Other values in the description of the array."""
    path, meta = _meta(folder)
    strange = [None, 0, -1, 10**12, 1e400, "x", [], {}, [[1]], True, {"a": 1}, [10**12, 5], [0, 5], "|O", "NaN"]
    key = rng.choice(sorted(meta))
    if isinstance(meta[key], dict | list) and meta[key] and rng.random() < 0.6:
        inner = rng.choice(list(meta[key])) if isinstance(meta[key], dict) else rng.randrange(len(meta[key]))
        meta[key][inner] = rng.choice(strange)
    else:
        meta[key] = rng.choice(strange)
    path.write_text(json.dumps(meta))
    return ANY


# torch


def pt_code(folder: Path, rng: Random) -> str:
    path, bomb = folder / "files/a.pt", Bomb(folder / CANARY)
    content = rng.choice([bomb, {"features": torch.ones(6, 5), "x": bomb}, [bomb]])
    torch.save(content, path, _use_new_zipfile_serialization=rng.random() < 0.5)
    return REFUSE


def pt_bare_pickle(folder: Path, rng: Random) -> str:
    (folder / "files/a.pt").write_bytes(pickle.dumps(Bomb(folder / CANARY), protocol=rng.choice([0, 2, 4])))
    return REFUSE


def pt_strange(folder: Path, rng: Random) -> str:
    """Tensors that are no dense rows of numbers."""
    with warnings.catch_warnings(action="ignore"):
        one = rng.choice(_strange_tensors())
        kinds = [one, {"features": one}, {"feats": one, "coords": torch.zeros(6, 2)}, {3: torch.ones(6, 5)}]
        torch.save(rng.choice(kinds), folder / "files/a.pt")
    return REFUSE


def _strange_tensors() -> list[Any]:
    rows = torch.ones(6, 5)
    nested = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)])
    return [
        *(rows.to(torch.float8_e4m3fn), rows.to(torch.float8_e5m2), torch.ones(6, 5, device="meta"), nested),
        *(torch.quantize_per_tensor(rows, 0.1, 0, torch.qint8), rows.to_sparse(), rows.to(torch.complex64)),
        *(torch.tensor(3.0), torch.empty(0, 5), torch.ones(6), rows.tolist(), [rows], (rows, rows), None, "text", 3),
        *(torch.full((6, 5), float("nan")), rows.to_sparse_csr(), torch.nn.Parameter(rows) * float("inf")),
    ]


_NPZ: tuple[Craft, ...] = (npz_foreign_member, npz_renamed, npz_objects, npz_pickle, npz_encrypted, npz_huge)
HOSTILE: dict[str, tuple[Craft, ...]] = {
    "csv": (table_large_field, table_wide, table_beyond_float32, table_blank_ids, table_control_ids),
    **dict.fromkeys(("run", "evaluate", "explain", "report data", "import", "trials"), (table_control_ids,)),
    "parquet": (parquet_columns,),
    "npz of bags": (*_NPZ, npz_no_text, npz_blank_ids),
    "npy": (npy_objects, npy_header, npy_header, npy_beyond_float32, copied_over),
    "npz": (*_NPZ, copied_over),
    "h5": (h5_elsewhere, h5_elsewhere, h5_strange, h5_strange, h5_missing_chunks, copied_over),
    "zarr 2": (zarr_codec, zarr_codec, zarr_missing_chunk, zarr_lies, zarr_lies),
    "zarr 3": (zarr_codec, zarr_missing_chunk, zarr_lies, zarr_lies),
    "pt": (pt_code, pt_bare_pickle, pt_strange, pt_strange, copied_over),
    "nii": (nifti_header, nifti_header, copied_over),
    "nii.gz": (nifti_header, nifti_header, copied_over),
    "dicom": (dicom_tags, dicom_tags, dicom_patient),
    "png": (copied_over,),
    "tiff": (copied_over,),
    "slide tiled": (copied_over,),
    "slide strips": (copied_over,),
    "manifest": (table_large_field,),
    "label table": (table_large_field,),
}
