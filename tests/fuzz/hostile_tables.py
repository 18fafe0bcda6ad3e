"""Inputs made by hand that lie about what they hold: scans, tables, and one format under the suffix of another."""

import contextlib
import gzip
import shutil
import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pydicom
from tests.fuzz.mutate import ANY, REFUSE

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


def dicom_patient(folder: Path, rng: Random) -> str:
    """Headers about the patient, the site and the series that are strange, differ among slices, or are missing."""
    paths = sorted((folder / "files/a").iterdir())
    name = rng.choice(["PatientID", "InstitutionName", "StationName", "Manufacturer", "SeriesInstanceUID", "StudyDate"])
    value = rng.choice([None, "", " ", "a\\b", "\x1b[31mx", "x\x00y", "\u202ex", "1e5", "007", "p" * 70_000, "0.0"])
    with pydicom.config.disable_value_validation(), contextlib.suppress(Exception):
        for path in paths[: rng.choice([1, len(paths)])]:
            file = pydicom.dcmread(path)
            setattr(file, name, value)
            pydicom.dcmwrite(path, file)
    return ANY


# Tables


def table_control_ids(folder: Path, rng: Random) -> str:
    """Names of bags with characters that a terminal would obey."""
    path = folder / "bags.csv"
    sign = rng.choice(["\x1b[31m", "\x1b]0;x\x07", "\x00", "\x08", "\x9b2J", "\u202e", "\u2028", "\ufeff", "\r"])
    path.write_text(path.read_text().replace("b00", f"b{sign}00"), newline="")
    return ANY


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
    return ANY  # the two names are one


def parquet_columns(folder: Path, rng: Random) -> str:
    """Columns that hold no numbers."""
    path = folder / "bags.parquet"
    frame = pd.read_parquet(path)
    n = len(frame)
    values: list[Any] = [
        *([[1.0, 2.0]] * n, [{"a": 1}] * n, [b"x"] * n, pd.date_range("2020", periods=n), [None] * n, [True] * n),
        *(pd.Categorical(["a"] * n), np.full(n, 1e39), ["é"] * n, pd.to_timedelta(range(n))),
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
