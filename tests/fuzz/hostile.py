"""Inputs made by hand to run code, to read another file, or to lie about what they hold: features, tables, images."""

import contextlib
import gzip
import io
import json
import pickle
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pydicom
import torch
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
    return SUMMED


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
            "nothing": lambda: file.create_dataset("features", shape=(0, 5)),
            "datatype": lambda: file.__setitem__("features", np.dtype("f4")),
            "NaN": lambda: file.create_dataset("features", data=np.full((6, 5), np.nan)),
        }
        made[rng.choice(sorted(made))]()
        if rng.random() < 0.5:
            file["coords"] = np.zeros((6, 2))
    return REFUSE


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


# Scans and pictures


_NIFTI_FIELDS = {  # offset and format of the fields of the header
    **{f"dim{i}": (40 + 2 * i, "<h") for i in range(8)},
    **{f"pixdim{i}": (76 + 4 * i, "<f") for i in range(4)},
    **{"datatype": (70, "<h"), "bitpix": (72, "<h"), "vox_offset": (108, "<f"), "slope": (112, "<f")},
    **{"inter": (116, "<f"), "qform": (252, "<h"), "sform": (254, "<h"), "srow": (280, "<f"), "sizeof": (0, "<i")},
    **{"magic": (344, "<i"), "xyzt": (123, "<b")},
}


def nifti_header(folder: Path, rng: Random) -> str:
    """Fields of the header at the ends of their ranges."""
    path = next((folder / "files").glob("a.*"))
    packed = path.suffix == ".gz"
    content = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    for _ in range(rng.choice((1, 1, 2))):
        at, kind = _NIFTI_FIELDS[rng.choice(sorted(_NIFTI_FIELDS))]
        whole = {"<h": [0, -1, 1, 7, 16, 64, 512, 1024, 32767, -32768], "<i": [0, -1, 348, 2**31 - 1], "<b": [0, 127]}
        real = [0.0, -1.0, float("nan"), float("inf"), 1e38, 353.5, 1e9, -352.0]
        struct.pack_into(kind, content, at, rng.choice(whole.get(kind, real)))
    path.write_bytes(gzip.compress(content) if packed else content)
    return ANY


def dicom_tags(folder: Path, rng: Random) -> str:
    """Tags of a slice that are missing, or hold what they cannot."""
    path = sorted((folder / "files/a").iterdir())[0]
    file = pydicom.dcmread(path)
    names = [
        *("Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel"),
        *("PhotometricInterpretation", "PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient", "PixelData"),
        *("RescaleSlope", "RescaleIntercept", "NumberOfFrames", "SliceThickness", "InstanceNumber", "Modality"),
    ]
    name = rng.choice(names)
    values: list[Any] = [0, 1, 7, 65535, "x", "nan", ["nan"] * 3, "PALETTE COLOR", b"", "inf", ["1e400"] * 6, None]
    with pydicom.config.disable_value_validation():
        if rng.random() < 0.3 and name in file:
            del file[name]
        else:
            with contextlib.suppress(Exception):  # what pydicom does not write leaves a part of a file
                setattr(file, name, rng.choice(values))
                pydicom.dcmwrite(path, file)
            return ANY
        pydicom.dcmwrite(path, file)
    return ANY


# Tables


def table_large_field(folder: Path, rng: Random) -> str:
    path = next(path for path in (folder / "bags.csv", folder / "labels.csv", folder / "manifest.csv") if path.exists())
    lines = path.read_text().splitlines()
    lines[rng.choice([0, 1])] += "," + "x" * rng.choice([131_073, 400_000])
    path.write_text("\n".join(lines) + "\n")
    return ANY


def table_wide(folder: Path, rng: Random) -> str:
    """20 000 columns, of which two are equal or none."""
    names = [f"f{i}" for i in range(20_000)]
    twice = rng.random() < 0.5
    if twice:
        names[-1] = names[0]
    rows = [",".join([f"b{i}", str(i % 2), *["1.5"] * len(names)]) for i in range(4)]
    (folder / "bags.csv").write_text("\n".join([",".join(["bag", "label", *names]), *rows]) + "\n")
    return REFUSE if twice else ANY


def table_beyond_float32(folder: Path, rng: Random) -> str:
    path = folder / "bags.csv"
    lines = path.read_text().splitlines()
    fields = lines[5].split(",")
    fields[rng.choice([2, 3])] = rng.choice(["1e39", "-4e38", "1e300"])
    lines[5] = ",".join(fields)
    path.write_text("\n".join(lines) + "\n")
    return REFUSE


def table_blank_ids(folder: Path, rng: Random) -> str:
    path = folder / "bags.csv"
    old = rng.choice(["b00 ", " b00", "b00\t", "\u00a0b00"])
    lines = [line.replace("b02", old) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return REFUSE


def parquet_columns(folder: Path, rng: Random) -> str:
    """Columns that hold no numbers."""
    path = folder / "bags.parquet"
    frame = pd.read_parquet(path)
    n = len(frame)
    values: list[Any] = [
        *([[1.0, 2.0]] * n, [{"a": 1}] * n, [b"x"] * n, pd.date_range("2020", periods=n), [None] * n, [True] * n),
        *(pd.Categorical(["a"] * n), np.full(n, 1e39), [1 + 2j] * n if False else ["é"] * n, pd.to_timedelta(range(n))),
    ]
    frame[rng.choice(["w", "label", "bag", "patient"])] = values[rng.randrange(len(values))]
    frame.to_parquet(path)
    return ANY


def copied_over(folder: Path, rng: Random) -> str:
    """Another format under this suffix."""
    files = sorted(path for path in (folder / "files").iterdir() if path.name.startswith("a"))
    other = rng.choice([b"<html></html>", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", b"\x89PNG\r\n\x1a\n", b"II*\0", b"{}"])
    if files[0].is_dir():
        shutil.rmtree(files[0])
    files[0].write_bytes(other + bytes(200))
    return REFUSE


_NPZ: tuple[Craft, ...] = (npz_foreign_member, npz_renamed, npz_objects, npz_pickle, npz_encrypted, npz_huge)
HOSTILE: dict[str, tuple[Craft, ...]] = {
    "csv": (table_large_field, table_wide, table_beyond_float32, table_blank_ids),
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
    "dicom": (dicom_tags, dicom_tags),
    "png": (copied_over,),
    "tiff": (copied_over,),
    "slide tiled": (copied_over,),
    "slide strips": (copied_over,),
    "manifest": (table_large_field,),
    "label table": (table_large_field,),
}
