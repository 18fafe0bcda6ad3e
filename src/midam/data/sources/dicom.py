"""One DICOM series a folder, through pydicom."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.columns import OpenFile
from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.names import first_names
from midam.data.sources.orientation import along
from midam.data.sources.volumes import Volume, open_volume
from midam.errors import BagDataError, MidamError

_GAP = 1.5  # of the usual distance of slices, from which one is missing
_SAME_MM = 1e-3
_MAGIC = 128


def is_dicom_folder(folder: Path) -> bool:
    """Whether a folder holds DICOM files: its first file tells."""
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        first = min((entry.path for entry in entries if entry.is_file() and entry.name[0] != "."), default=None)
    return first is not None and is_dicom(Path(first))


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, by its suffix or its first bytes."""
    if path.suffix.lower() == ".dcm":
        return True
    with path.open("rb") as file:
        return file.read(_MAGIC + 4)[_MAGIC:] == b"DICM"


def open_dicom(folder: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
    """Open the DICOM series in a folder as slices or as a whole; see `midam.data.sources.volumes.open_volume`.

    Slices are ordered by their position along the normal of the image plane, not by name or number. Slope and
    intercept are applied, MONOCHROME1 is inverted, and intensities become float32. With `options.axis` the volume is
    sliced along an axis of the patient (`midam.data.sources.orientation.along`), else as it was acquired.

    Raises
    ------
    MidamError
        If the package pydicom is missing.
    BagDataError
        When it is read: if a file is damaged, the folder holds several series, slices are missing, double or of
        different size or direction, or a file has several frames.
    """
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != "." and is_dicom(path))
    if not paths:
        raise BagDataError(f"Expected DICOM files, got none (in {folder}); name the folder of a series.")
    first = _file(paths[0])
    held = len(paths) * 4 * int(getattr(first, "Rows", 0)) * int(getattr(first, "Columns", 0))
    said = {"axis": "as acquired" if options.axis is None else options.axis, "slices": len(paths)}
    return open_volume(folder, options, lambda: read_series(paths, options.axis), held=held, said=said, places=places)


def read_series(paths: Sequence[Path], axis: int | None) -> Volume:
    """Read the files of one series, in any order; errors as of `open_dicom`."""
    folder = str(paths[0].parent)
    files = [_file(path) for path in paths]
    _check_one_series(files, paths, folder)
    normal, step = _directions(files[0])
    heights = np.array([np.dot(np.array(file.ImagePositionPatient, dtype=np.float64), normal) for file in files])
    order = np.argsort(heights, kind="stable")
    thickness = _slice_distance(heights[order], [paths[i] for i in order], folder)
    files = [files[i] for i in order]
    data = np.stack([_intensities(files[n], paths[i]) for n, i in enumerate(order)])
    spacing = (thickness, float(files[0].PixelSpacing[0]), float(files[0].PixelSpacing[1]))
    if axis is None:
        return Volume(data, spacing)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([normal, *step], axis=1) * spacing
    affine[:3, 3] = np.array(files[0].ImagePositionPatient, dtype=np.float64)
    # DICOM counts to the left and the back, affines to the right and the front.
    return along(data, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine, axis, where=folder)


def _file(path: Path) -> Any:
    try:
        import pydicom  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the package pydicom to read DICOM, got none (in {path}); install midam[medical]."
        ) from error
    try:
        return pydicom.dcmread(path)
    except (OSError, EOFError, ValueError, KeyError, AttributeError, pydicom.errors.InvalidDicomError) as error:
        raise BagDataError(f"Expected a whole DICOM file, got: {error} (in {path}); copy the series anew.") from error


def _check_one_series(files: Sequence[Any], paths: Sequence[Path], folder: str) -> None:
    """Refuse several series, and slices that are no part of one block."""
    series = Counter(str(getattr(file, "SeriesInstanceUID", "none")) for file in files)
    if len(series) > 1:
        names = [f"{count} of {name}" for name, count in series.most_common()]
        raise BagDataError(
            f"Expected the slices of one series, got {len(series)}: {first_names(names)} (in {folder}); move each "
            "series to a folder of its own."
        )
    needed = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "Rows", "Columns")
    for file, path in zip(files, paths):
        missing = [name for name in needed if getattr(file, name, None) is None]
        if missing or int(getattr(file, "NumberOfFrames", None) or 1) > 1 or int(file.SamplesPerPixel) != 1:
            got = f"no {missing[0]}" if missing else "several frames or colours"
            raise BagDataError(
                f"Expected one grey slice with its place, got {got} (in {path}); convert the series to NIfTI, or "
                "remove what is no slice."
            )
        for name in needed[1:]:
            one, other = getattr(files[0], name), getattr(file, name)
            if not np.allclose(np.array(one, dtype=np.float64), np.array(other, dtype=np.float64), atol=1e-4):
                raise BagDataError(
                    f"Expected {name} {one} as in {paths[0].name}, got {other} (in {path}); move what is no part of "
                    "the series, such as a localizer, elsewhere."
                )


def _directions(file: Any) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Unit vectors: the normal of the slices, and where row and column numbers grow."""
    across, down = np.array(file.ImageOrientationPatient, dtype=np.float64).reshape(2, 3)
    return np.cross(across, down), (down, across)


def _slice_distance(heights: NDArray[np.float64], paths: Sequence[Path], folder: str) -> float:
    """Millimetres between slices; refuses doubles and gaps. A single slice counts as 1 mm."""
    if len(heights) == 1:
        return 1.0
    gaps = np.diff(heights)
    double = np.flatnonzero(gaps < _SAME_MM)
    if len(double):
        one, other = paths[double[0]].name, paths[double[0] + 1].name
        raise BagDataError(
            f"Expected one slice at each place, got {len(double)} doubles, the first {one} and {other} (in {folder}); "
            "remove doubles, or part what is several series."
        )
    usual = float(np.median(gaps))
    wide = np.flatnonzero(gaps > _GAP * usual)
    if len(wide):
        raise BagDataError(
            f"Expected slices {usual:.2f} mm apart, got a gap of {gaps[wide[0]]:.2f} mm after {paths[wide[0]].name} "
            f"(in {folder}, {len(wide)} in all): slices are missing; copy the series anew, or leave it out."
        )
    return usual


def _intensities(file: Any, path: Path) -> NDArray[np.float32]:
    from pydicom.pixels.processing import apply_rescale  # noqa: PLC0415

    try:
        stored = file.pixel_array
    except (RuntimeError, AttributeError, NotImplementedError, ValueError, KeyError, OSError) as error:
        raise BagDataError(
            f"Expected pixels that pydicom can decode, got: {error} (in {path}); copy the series anew, or install a "
            "decoder such as pylibjpeg."
        ) from error
    if file.PhotometricInterpretation == "MONOCHROME1":  # bright means little
        top = -1 if int(file.PixelRepresentation) else 2 ** int(file.BitsStored) - 1
        stored = top - stored.astype(np.int64)
    return np.asarray(apply_rescale(stored, file), dtype=np.float32)
