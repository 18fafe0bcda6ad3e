"""Inputs of few bytes whose headers ask for all memory, or that grow without end when they are unpacked."""

import gzip
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pydicom
import tifffile
import torch
import zarr
from tests.fuzz.mutate import ANY, REFUSE, WARN

Craft = Callable[[Path, Random], str]
_HUGE = 1_000_000


def h5_bomb(folder: Path, rng: Random) -> str:
    """A dataset of 4 TB of which no chunk, or one, was written."""
    with h5py.File(folder / "files/a.h5", "w") as file:
        data = file.create_dataset("features", (_HUGE, _HUGE), "f4", chunks=(1, _HUGE), compression="gzip")
        if rng.random() < 0.5:
            data[0] = 1.0
    return REFUSE


def zarr_bomb(folder: Path, rng: Random) -> str:
    """An array of 4 TB without chunks."""
    place = folder / "files/a.zarr"
    version = 3 if (place / "zarr.json").exists() else 2
    group = zarr.open_group(place, mode="w", zarr_format=version)
    group.create_array("features", shape=(_HUGE, _HUGE), dtype="f4", chunks=(rng.choice([1, 1000]), _HUGE))
    return REFUSE


def pt_bomb(folder: Path, rng: Random) -> str:
    """A tensor of 4 TB that repeats one number, or an archive that grows a thousandfold."""
    path = folder / "files/a.pt"
    if rng.random() < 0.5:
        torch.save(torch.ones(1).expand(_HUGE, _HUGE), path)
    else:
        torch.save(torch.zeros(2**22, 4), path)
        _deflate(path)
    return REFUSE


def run_bomb(folder: Path, rng: Random) -> str:
    """A model whose weights repeat one number, or whose archive grows."""
    path = folder / "run/model.pt"
    content: dict[str, Any] = torch.load(path, weights_only=True)
    if rng.random() < 0.5:
        content["model"]["more"] = torch.ones(1).expand(_HUGE, _HUGE)
        torch.save(content, path)
    else:
        torch.save(content | {"more": torch.zeros(2**24)}, path)
        _deflate(path)
    return REFUSE


def _deflate(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        parts = [(part.filename, old.read(part)) for part in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in parts:
            new.writestr(name, content)


def npz_bomb(folder: Path, rng: Random) -> str:
    """An array of zeros that grows a thousandfold beside the features, or of 4 GB in its place."""
    path = folder / "files/a.npz"
    path = path if path.exists() else folder / "bags.npz"
    name = rng.choice(["features.npy", "X.npy", "other.npy"])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w", force_zip64=True) as file:
        for _ in range(256):
            file.write(bytes(1 << 20))
    return ANY


def png_bomb(folder: Path, rng: Random) -> str:
    """A picture of many pixels without their bytes."""
    width = rng.choice([16_000, 60_000, 2**31 - 1])
    head = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in parts)
    (folder / "files/a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return REFUSE


def jpg_bomb(folder: Path, rng: Random) -> str:
    """A picture of 65 000 x 65 000 pixels, by its header."""
    path = folder / "files/a.jpg"
    content = bytearray(path.read_bytes())
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 65_000, 65_000)
    path.write_bytes(bytes(content))
    return REFUSE


def tiff_bomb(folder: Path, rng: Random) -> str:
    """A picture or slide of many pixels, by its header."""
    (path,) = folder.glob("files/a*.tif")
    with tifffile.TiffFile(path, mode="r+b") as file:
        for name in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[name].overwrite(rng.choice([30_000, 65_535]))
    return ANY


def nifti_bomb(folder: Path, rng: Random) -> str:
    """A volume of 3e13 voxels, by its header."""
    (path,) = folder.glob("files/a.nii*")
    packed = path.name.endswith(".gz")
    content = bytearray(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    sizes = (32_767, 32_767, rng.choice([40, 32_767]))
    content[40:48] = struct.pack("<4h", 3, *sizes)
    path.write_bytes(gzip.compress(bytes(content)) if packed else bytes(content))
    return REFUSE


def dicom_bomb(folder: Path, rng: Random) -> str:
    """An image of many pixels or frames, by its header."""
    path = rng.choice(sorted((folder / "files/a").iterdir()))
    file = pydicom.dcmread(path)
    file.Rows = file.Columns = 65_535
    file.NumberOfFrames = rng.choice([1, 1_000_000])
    file.save_as(path)
    return WARN


def npy_bomb(folder: Path, rng: Random) -> str:
    """A header that says 4 TB."""
    path = folder / "files/a.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (2, 3)).flush()
    path.write_bytes(path.read_bytes().replace(b"(2, 3), }        ", b"(2000000,1000000),}"[:17]))
    return ANY


BOMBS: dict[str, tuple[Craft, ...]] = {
    **{"h5": (h5_bomb,), "zarr 2": (zarr_bomb,), "zarr 3": (zarr_bomb,), "pt": (pt_bomb,), "run": (run_bomb,)},
    **{"npz": (npz_bomb,), "npz of bags": (npz_bomb,), "png": (png_bomb,), "jpg": (jpg_bomb,), "tiff": (tiff_bomb,)},
    **{"ome-tiff": (tiff_bomb,), "slide tiled": (tiff_bomb,), "slide strips": (tiff_bomb,), "nii": (nifti_bomb,)},
    **{"nii.gz": (nifti_bomb,), "dicom": (dicom_bomb,), "npy": (npy_bomb,)},
}
