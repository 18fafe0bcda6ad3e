"""Scans in which one slice shows a lesion, as DICOM series: to see whether an explanation finds what was planted.

    python examples/planted_scans.py scans --like path/to/a/dicom/series
    midam fit scans --labels scans/labels.csv --out runs/scans
    midam explain runs/scans scans --labels scans/labels.csv

The first command writes a folder for each patient, with a file for each slice, and two tables: `labels.csv`, and
`lesions.csv` with the InstanceNumber of the slice that shows the lesion of a positive patient, the column and row of
its center, and its radius, in pixels. The patients are one series that is turned, shifted, scaled, brightened and made
noisy, or, without `--like`, simple heads of ellipses. The lesion is a bright disk in the tissue of one slice, 10 to 16
mm in radius. `python benchmarks/planted.py` counts how often an explanation finds it.
"""

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid
from scipy.ndimage import affine_transform, binary_erosion, gaussian_filter

Slices = NDArray[np.float64]  # [D, H, W], from 0 to about 1
_STORED = 2000.0  # intensity of the 99th percentile
_PATIENTS = 120
_RADII, _TISSUE = (10.0, 16.0), (0.1, 0.6)  # mm; intensities between those of air and of fat


class Lesion(NamedTuple):
    """Position of a lesion: slice from 0, row, column, and radius in pixels."""

    slice: int
    row: int
    column: int
    radius: float


class Template(NamedTuple):
    """Slices of a head, the mm between slices, and the mm of a pixel."""

    slices: Slices
    distance: float
    pixel: float


def read_template(folder: Path) -> Template:
    """Read a series whose slices are ordered by their position."""
    files = [pydicom.dcmread(path) for path in sorted(folder.glob("*.dcm"))]
    files.sort(key=lambda file: float(file.ImagePositionPatient[2]))
    slices = np.stack([file.pixel_array for file in files]).astype(np.float64)
    distance = abs(float(files[1].ImagePositionPatient[2]) - float(files[0].ImagePositionPatient[2]))
    return Template(slices / np.percentile(slices, 99), distance, float(files[0].PixelSpacing[0]))


def make_template(count: int = 22, side: int = 192) -> Template:
    """Return a head of ellipses: bone, tissue and two dark ventricles, each smaller at both ends."""
    rng, (y, x) = np.random.default_rng(0), np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    slices = np.zeros((count, side, side))
    for number, height in enumerate(np.linspace(-0.85, 0.85, count)):
        size = np.sqrt(1 - height**2)
        far = np.sqrt((x / 0.62) ** 2 + (y / 0.8) ** 2) / size
        slices[number] = np.where(far < 1, np.where(far < 0.92, 0.5, 0.9), 0.0)
        for middle in (-0.13, 0.13):
            dark = ((x - middle * size) / 0.09) ** 2 + (y / 0.25) ** 2 < size**2
            slices[number][dark] = 0.25
        texture = gaussian_filter(rng.normal(size=(side, side)), 3)
        slices[number] += (far < 0.92) * 0.06 * texture / texture.std()
    return Template(gaussian_filter(slices, (0, 0.8, 0.8)), 6.0, 1.1)


def make_scan(template: Template, rng: np.random.Generator, *, positive: bool) -> tuple[Slices, Lesion | None]:
    """Return the slices of a patient like the template, with a lesion if it is positive."""
    angle, scale, shift = rng.normal(0, 0.07), rng.normal(1, 0.05), rng.normal(0, 4, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) / scale
    middle = (np.array(template.slices.shape[1:]) - 1) / 2
    offset = middle - turn @ (middle + shift)
    slices = np.stack([affine_transform(part, turn, offset, order=1) for part in template.slices])
    slices = np.clip(slices, 0, None) ** rng.normal(1, 0.06) * rng.normal(1, 0.08)
    lesion = _planted(slices, template, rng) if positive else None
    return np.clip(slices + rng.normal(0, 0.02, slices.shape), 0, None), lesion


def _planted(slices: Slices, template: Template, rng: np.random.Generator) -> Lesion:
    """Add a disk to one slice, deep in its tissue, and return its position."""
    radius = rng.uniform(*_RADII) / template.pixel
    smooth = gaussian_filter(slices, (0, 2, 2))
    tissue = (smooth > _TISSUE[0]) & (smooth < _TISSUE[1])  # neither air nor fat and bone
    deep = [binary_erosion(part, iterations=int(radius)) for part in tissue]
    number = int(rng.choice([at for at, part in enumerate(deep) if part.sum() > 400]))
    row, column = (int(x) for x in rng.choice(np.argwhere(deep[number])))
    y, x = np.mgrid[: slices.shape[1], : slices.shape[2]]
    ball = 1 / (1 + np.exp((np.hypot(y - row, x - column) - radius) / 1.2))
    slices[number] += ball * (1.15 + 0.1 * gaussian_filter(rng.normal(size=ball.shape), 2) - slices[number])
    return Lesion(number, row, column, radius)


def write_scan(folder: Path, slices: Slices, template: Template, patient: str) -> None:
    """Write a series, a file for each slice."""
    study, series = generate_uid(), generate_uid()
    for number, part in enumerate(slices):
        facts: dict[str, Any] = {
            **{"SOPClassUID": MRImageStorage, "Modality": "MR", "PatientID": patient, "InstanceNumber": number + 1},
            **{"StudyInstanceUID": study, "SeriesInstanceUID": series, "PixelSpacing": [template.pixel] * 2},
            **{"ImagePositionPatient": [-90.0, -90.0, round(number * template.distance, 3)]},
            **{"ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "SliceThickness": round(template.distance, 3)},
        }
        write_image(folder / f"{number:03d}.dcm", np.clip(part * _STORED, 0, 4095), facts)


def write_image(path: Path, pixels: Slices, facts: dict[str, Any]) -> None:
    """Write an image [H, W] with intensities from 0 to 4095 as DICOM, with the attributes `facts`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored, meta = np.rint(pixels).astype(np.uint16), FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = facts["SOPClassUID"], generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    layout = {
        **{"SOPInstanceUID": meta.MediaStorageSOPInstanceUID, "Rows": stored.shape[0], "Columns": stored.shape[1]},
        **{"SamplesPerPixel": 1, "PixelRepresentation": 0, "PhotometricInterpretation": "MONOCHROME2"},
        **{"BitsAllocated": 16, "BitsStored": 12, "HighBit": 11, "PixelData": stored.tobytes()},
    }
    for name, value in (facts | layout).items():
        setattr(file, name, value)
    file.save_as(path, enforce_file_format=True)


def write_scans(
    folder: Path, template: Template, *, count: int = _PATIENTS, positive: int | None = None, seed: int = 0
) -> None:
    """Write `count` patients, of which `positive` have a lesion (default: half), and the two tables."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) < (count // 2 if positive is None else positive))
    lesions = list[tuple[Any, ...]]()
    for number, label in enumerate(labels.tolist()):
        patient = f"P{seed}{number:03d}"
        slices, lesion = make_scan(template, rng, positive=label)
        write_scan(folder / patient, slices, template, patient)
        if lesion is not None:
            lesions.append((patient, lesion.slice + 1, lesion.column, lesion.row, round(lesion.radius, 1)))
    patients = [(f"P{seed}{number:03d}", int(label)) for number, label in enumerate(labels.tolist())]
    _write_table(folder / "labels.csv", ("patient", "label"), patients)
    _write_table(folder / "lesions.csv", ("patient", "instance_number", "x", "y", "radius"), lesions)


def _write_table(path: Path, heads: tuple[str, ...], rows: list[Any]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heads, *rows])


def main() -> None:
    """Write the scans that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--like", type=Path, help="folder of a DICOM series, which the patients resemble")
    parser.add_argument("--count", type=int, default=_PATIENTS)
    parser.add_argument("--positive", type=int, help="patients with a lesion; default: half")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    template = make_template() if options.like is None else read_template(options.like)
    write_scans(options.folder, template, count=options.count, positive=options.positive, seed=options.seed)


if __name__ == "__main__":
    main()
