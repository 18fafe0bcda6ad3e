"""Make the inputs of the runs that `digests.py` compares, from fixed seeds."""

from pathlib import Path

import h5py
import nibabel
import numpy as np
import pandas as pd
import tifffile
import torch
import zarr
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage

_NETWORK = """from torch import nn

from midam.registry import ENCODERS

class Small(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.body = nn.Sequential(nn.Dropout(0.1), nn.ReLU(), nn.Linear(width, 5), nn.LayerNorm(5))

    def forward(self, x):
        return self.body(self.stem(x))

ENCODERS.add("digest-small", Small)
"""


def make_inputs(folder: Path) -> None:
    """Write every input of `CASES` into a new folder, with the same bytes each time."""
    folder.mkdir()
    (folder / "digest_network.py").write_text(_NETWORK)
    torch.save(_weights(), folder / "weights.pt")
    frame = _table(np.random.default_rng(0), bags=40)
    frame.drop(columns=["patient", "part", "x", "y", "site"]).to_csv(folder / "bags.csv", index=False)
    frame.to_csv(folder / "study.csv", index=False)
    frame.to_csv(folder / "study.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "study.parquet", index=False)
    other = _table(np.random.default_rng(1), bags=12)
    other.drop(columns=["patient", "part", "x", "y", "site"]).to_csv(folder / "other.csv", index=False)
    codes, ids = pd.factorize(frame["bag"])
    x = frame.filter(regex="^f").to_numpy(np.float32)
    np.savez(folder / "bags.npz", X=x, bag=codes, y=_labels(len(ids)), ids=np.asarray(ids, dtype=str))
    _write_patches(folder / "patches.npz")
    _write_slides(folder)
    _write_images(folder)
    _write_scans(folder)
    _write_series(folder)
    _write_pyramids(folder)


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"stem.weight": (8, 6), "stem.bias": (8,), "body.2.weight": (5, 8), "body.2.bias": (5,)}
    shapes |= {"body.3.weight": (5,), "body.3.bias": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _labels(bags: int) -> NDArray[np.int64]:
    return np.arange(bags) % 2


def _table(rng: np.random.Generator, *, bags: int) -> pd.DataFrame:
    parts = []
    for bag in range(bags):
        n = int(rng.integers(3, 9))
        x = rng.normal(size=(n, 6))
        x[0] += 1.5 * (bag % 2)
        x[:, 4:] *= rng.random((n, 2)) < 0.4  # two features with many zeros
        part = pd.DataFrame(x.round(5), columns=[f"f{i}" for i in range(6)])
        split = ("train", "train", "train", "val", "test")[bag // 2 % 5]
        part.insert(0, "site", "here")
        for column, value in {"part": split, "patient": f"p{bag // 2}", "label": bag % 2, "bag": f"b{bag:02d}"}.items():
            part.insert(0, column, value)
        part[["x", "y"]] = rng.integers(0, 99, (n, 2))
        parts.append(part)
    return pd.concat(parts)


def _write_patches(path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(2, 5, 24)
    x = rng.integers(0, 256, (sizes.sum(), 3, 8, 8)).astype(np.uint8)
    x[np.cumsum(sizes)[1::2] - 1, :, 2:6, 2:6] = 255
    np.savez(path, X=x, bag=np.repeat(np.arange(24), sizes), y=_labels(24))


def _write_slides(folder: Path) -> None:
    rng = np.random.default_rng(3)
    for name in ("h5_files", "pt_files", "csv_files", "npy_files", "zarr_files"):
        (folder / name).mkdir()
    lines = ["case_id,slide_id,label"]
    for slide in range(30):
        x = rng.normal(size=(int(rng.integers(4, 12)), 6)).astype(np.float32)
        x[0] += 2.0 * (slide % 2)
        name = f"s{slide:02d}"
        with h5py.File(folder / "h5_files" / f"{name}.h5", "w", track_order=False) as file:
            file.create_dataset("features", data=x, track_times=False)
            file.create_dataset("coords", data=rng.integers(0, 9999, (len(x), 2)), track_times=False)
        torch.save(torch.from_numpy(x), folder / "pt_files" / f"{name}.pt")
        np.savetxt(folder / "csv_files" / f"{name}.csv", x, delimiter=",", fmt="%.6f")
        np.save(folder / "npy_files" / f"{name}.npy", x)
        zarr.save_array(folder / "zarr_files" / f"{name}.zarr", x)
        lines.append(f"c{slide % 24},{name},{'yes' if slide % 2 else 'no'}")
    (folder / "slides.csv").write_text("\n".join(lines) + "\n")


def _write_images(folder: Path) -> None:
    rng = np.random.default_rng(4)
    (folder / "images").mkdir()
    lines = ["file,label"]
    for image in range(20):
        pixels = rng.integers(0, 200, (18, 26, 3)).astype(np.uint8)
        pixels[:8, 8:16, 0] += np.uint8(50 * (image % 2))
        Image.fromarray(pixels).save(folder / "images" / f"i{image:02d}.png")
        lines.append(f"i{image:02d}.png,{image % 2}")
    (folder / "images.csv").write_text("\n".join(lines) + "\n")


def _write_scans(folder: Path) -> None:
    rng = np.random.default_rng(5)
    (folder / "scans").mkdir()
    lines = ["file,label"]
    for scan in range(16):
        voxels = rng.normal(size=(9, 10, 4)).astype(np.float32)
        voxels[2:5, 2:5, 1] += 2.0 * (scan % 2)
        image = nibabel.Nifti1Image(voxels, np.diag([-1.5, 1.0, 3.0, 1.0]))
        nibabel.save(image, folder / "scans" / f"v{scan:02d}.nii")
        lines.append(f"v{scan:02d}.nii,{scan % 2}")
    (folder / "scans.csv").write_text("\n".join(lines) + "\n")


def _write_series(folder: Path) -> None:
    rng = np.random.default_rng(6)
    lines = ["file,label"]
    for scan in range(4):
        (folder / "series" / f"d{scan}").mkdir(parents=True)
        lines.append(f"d{scan},{scan % 2}")
        for number in range(5):
            file = _slice_of(f"1.2.3.{scan + 1}", number)
            file.PixelData = rng.integers(0, 900, (file.Rows, file.Columns)).astype(np.uint16).tobytes()
            file.save_as(folder / "series" / f"d{scan}" / f"{9 - number}.dcm", enforce_file_format=True)
    (folder / "series.csv").write_text("\n".join(lines) + "\n")


def _slice_of(series: str, number: int) -> FileDataset:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, MRImageStorage
    meta.MediaStorageSOPInstanceUID = f"{series}.{number + 1}"
    file = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = MRImageStorage, meta.MediaStorageSOPInstanceUID
    file.SeriesInstanceUID, file.Modality, file.Rows, file.Columns = series, "MR", 10, 12
    file.PixelSpacing, file.SliceThickness = [1.0, 1.5], 2.0
    file.ImageOrientationPatient, file.ImagePositionPatient = [1, 0, 0, 0, 1, 0], [-20.0, 7.0, 11.0 + 2.0 * number]
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation = 15, 0
    return file


def _write_pyramids(folder: Path) -> None:
    rng = np.random.default_rng(7)
    (folder / "pyramids").mkdir()
    lines = ["file,label"]
    for slide in range(4):
        pixels = np.full((256, 256, 3), 244, dtype=np.uint8)
        pixels[:, :160] = rng.integers(60, 200, (256, 160, 3)) // (1, 3, 1)
        with tifffile.TiffWriter(folder / "pyramids" / f"w{slide}.tif") as file:
            for level in range(3):
                part = np.asarray(Image.fromarray(pixels).resize((256 >> level, 256 >> level), Image.Resampling.BOX))
                kind = {"subfiletype": 1} if level else {}
                place = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}  # 0.5 µm, 20 times
                file.write(part, photometric="rgb", tile=(64, 64), metadata=None, **kind, **place)
        lines.append(f"w{slide}.tif,{slide % 2}")
    (folder / "pyramids.csv").write_text("\n".join(lines) + "\n")
