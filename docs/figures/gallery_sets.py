"""Data of the gallery in which it is known which instances decide: each set is written with its witnesses.

`python docs/figures/gallery_sets.py machines FOLDER` writes a set; `digits`, `scan` and `tissue` need MIDAM_DATA.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image
from pydicom.uid import DigitalMammographyXRayImageStorageForPresentation
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from customers import make_payments
from planted_scans import read_template, write_image, write_scans

Witnesses = dict[str, list[int]]  # positions of the witnesses of each positive bag, in the order of the bag
_SCANS, _NEW, _STUDIES, _TILES, _MACHINES, _HOURS = 160, 20, 80, 240, 160, 72
_BAGS = 600
_PASTED, _CELL = 80, 32  # pixels


def write_slices(folder: Path, data: Path) -> Witnesses:
    """Write scans with a lesion in one slice like a real series, and 20 new ones, whose witnesses are returned."""
    template = read_template(data / "volumes" / "dicom_t1post")
    write_scans(folder / "scans", template, count=_SCANS)
    write_scans(folder / "new_scans", template, count=2 * _NEW, seed=1)
    lesions = pd.read_csv(folder / "new_scans" / "lesions.csv")
    return {row.patient: [row.instance_number - 1] for row in lesions.itertuples()}


def write_studies(folder: Path, _: Path) -> Witnesses:
    """Write studies of two mammograms of noise and tissue; a positive study has a small bright spot in one of them."""
    rng, rows, witnesses = np.random.default_rng(0), [("study", "label")], Witnesses()
    y, x = np.mgrid[:256, :192]
    for number in range(_STUDIES):
        study, positive = f"S{number:03d}", number % 2
        spot = int(rng.integers(2))
        for at, view in enumerate(("CC", "MLO")):
            texture = sum(gaussian_filter(rng.normal(size=y.shape), size) * size for size in (2, 6, 15))
            breast = (x / 165) ** 2 + ((y - 128) / 120) ** 2 < 1
            pixels = gaussian_filter(np.where(breast, 0.45 + 0.05 * texture, 0.02), 1.5)
            if positive and at == spot:
                row, column = rng.integers(70, 186), rng.integers(30, 100)
                pixels += 0.4 * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 200)
            facts = {"ViewPosition": view, "ImageLaterality": "L", "Modality": "MG"}
            facts["SOPClassUID"] = DigitalMammographyXRayImageStorageForPresentation
            facts |= {"StudyInstanceUID": f"1.2.826.0.{number}", "SeriesInstanceUID": f"1.2.826.0.{number}.1"}
            path = folder / "studies" / study / f"{study}_{view}.dcm"
            write_image(path, np.clip(4095 * pixels, 0, 4095), {**facts, "PatientID": study, "InstanceNumber": at + 1})
        if positive:
            witnesses[study] = [spot]
        rows.append((study, positive))
    _write(folder / "studies.csv", rows)
    return witnesses


def write_tiles(folder: Path, data: Path) -> Witnesses:
    """Write benign tiles of colon; into each positive one, a square of a tile of adenocarcinoma is pasted."""
    table = pd.read_csv(data / "lc25000_colon" / "labels.csv")
    benign, cancer = (table.loc[table["label"] == label, "path"].tolist() for label in (0, 1))
    rng, rows, witnesses = np.random.default_rng(0), [("file", "label")], Witnesses()
    (folder / "tiles").mkdir(parents=True)
    for number, path in enumerate(rng.permutation(benign)[:_TILES].tolist()):
        with Image.open(data / "lc25000_colon" / path) as tile:
            pixels = np.array(tile.convert("RGB"))
        name = f"tile{number:03d}"
        if number % 2:
            with Image.open(data / "lc25000_colon" / cancer[number // 2 % len(cancer)]) as other:
                pasted = np.array(other.convert("RGB"))[72 : 72 + _PASTED, 72 : 72 + _PASTED]
            row, column = rng.integers(0, 224 - _PASTED, 2)
            pixels[row : row + _PASTED, column : column + _PASTED] = pasted
            inside = np.zeros((224, 224), bool)
            inside[row : row + _PASTED, column : column + _PASTED] = True
            share = inside.reshape(7, _CELL, 7, _CELL).mean((1, 3)).ravel()
            witnesses[name] = np.flatnonzero(share >= 0.5).tolist()
        Image.fromarray(pixels).save(folder / "tiles" / f"{name}.png")
        rows.append((f"{name}.png", number % 2))
    _write(folder / "tiles.csv", rows)
    return witnesses


def write_payments(folder: Path, _: Path) -> Witnesses:
    """Write the table of `examples/customers.py`."""
    payments = make_payments()
    payments.drop(columns="stolen").to_csv(folder / "customers.csv", index=False)
    by_customer = payments.groupby("customer", sort=False)["stolen"]
    return {name: np.flatnonzero(rows).tolist() for name, rows in by_customer if rows.any()}


def write_machines(folder: Path, _: Path) -> Witnesses:
    """Write hours of sensors of machines; before a failure, two or three hours are hot, loud and slow at once."""
    rng, rows, witnesses = np.random.default_rng(0), list[pd.DataFrame](), Witnesses()
    for number in range(_MACHINES):
        name, fails = f"M{number:03d}", number % 2 == 1
        signals = rng.normal(size=(_HOURS, 3)) + rng.normal(size=3) / 2
        hours = rng.choice(_HOURS, rng.integers(2, 4), replace=False) if fails else []
        signals[hours] += [3.0, 3.0, -3.0]
        times = pd.Timestamp("2025-03-01") + pd.to_timedelta(np.arange(_HOURS), unit="h") + pd.Timedelta(days=number)
        frame = pd.DataFrame({"machine": name, "time": times.strftime("%Y-%m-%d %H:%M"), "failed": int(fails)})
        frame["temperature"], frame["vibration"] = 60 + 4 * signals[:, 0], 2.5 + 0.3 * signals[:, 1]
        frame["speed"] = 1450 + 12 * signals[:, 2]
        rows.append(frame.round(2))
        if fails:
            witnesses[name] = sorted(np.asarray(hours).tolist())
    pd.concat(rows).to_csv(folder / "machines.csv", index=False)
    return witnesses


def write_digits(folder: Path, data: Path) -> Witnesses:
    """Write bags of ten digits of MNIST; a positive bag has one nine among them."""
    with np.load(data / "digits" / "mnist_20k.npz") as file:
        images, digits = file[file.files[0]], file[file.files[1]]
    rng, members, witnesses = np.random.default_rng(0), list[int](), Witnesses()
    nines, others = (rng.permutation(np.flatnonzero((digits == 9) == is_nine)).tolist() for is_nine in (True, False))
    for number in range(_BAGS):
        bag = [others.pop() for _ in range(10)]
        if number % 2:
            at = int(rng.integers(10))
            bag[at], witnesses[str(number)] = nines.pop(), [at]
        members += bag
    arrays = {"X": images.reshape(-1, 28, 28)[members], "bag": np.repeat(np.arange(_BAGS), 10)}
    np.savez(folder / "digits.npz", **arrays, y=np.arange(_BAGS) % 2)
    return witnesses


def _write(path: Path, rows: list[tuple[object, ...]]) -> None:
    path.write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n", encoding="utf-8")


def witnesses_of(name: str, folder: Path, data: Path) -> Witnesses:
    """Write a set unless it is there, and return its witnesses."""
    known = folder / f"witnesses_{name}.json"
    if not known.exists():
        known.write_text(json.dumps(MAKERS[name](folder, data)), encoding="utf-8")
    return dict(json.loads(known.read_text(encoding="utf-8")))


MAKERS: dict[str, Callable[[Path, Path], Witnesses]] = {
    **{"digits": write_digits, "scan": write_slices, "mammography": write_studies, "tissue": write_tiles},
    **{"customers": write_payments, "machines": write_machines},
}

if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    witnesses_of(sys.argv[1], target, Path(os.environ.get("MIDAM_DATA", "")))
