"""One DICOM series a folder, through pydicom."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.dicom_series import holds_dicom, one_series, series_files
from midam.data.sources.formats.open_file import OpenFile, need, sound
from midam.data.sources.formats.volumes import PLANES, Volume, along, open_volume, seen
from midam.data.sources.imageoptions import VOLUMES, ImageOptions, Places
from midam.data.sources.reader import FileReader
from midam.errors import BagDataError

_GAP = 1.5  # of the narrowest distance of slices, or of the one that the file states, from which one is missing
_SAME_MM = 1e-3
_SIDES = ("RL", "AP", "IS")  # of the patient, at the low and the high end of each axis
_OBLIQUE = 5.0  # degrees, from which a plane is called oblique
_LISTED = 4  # kinds of slices that a message names
# What a slice must say of itself, and how many numbers.
_NEEDED = {
    **{"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2},
    **{"Rows": 1, "Columns": 1, "SamplesPerPixel": 1},
}
_POSITIVE = ("PixelSpacing", "Rows", "Columns")


class DicomReader(FileReader):
    """The DICOM series in a folder, or in folders of it, as slices or as a whole: rescaled, and MONOCHROME1 inverted.

    Of several series `options.series` chooses one. Slices are ordered by their position along the normal of the image
    plane, not by name or number. They are those of `options.axis` of the patient, or as acquired. What is no single
    whole series is refused when it is read.
    """

    what = "DICOM series"
    parameters = (*VOLUMES, "series")

    def takes(self, path: Path) -> bool:
        """Whether a folder holds DICOM files, at any depth."""
        return path.suffix != ".zarr" and holds_dicom(path)

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a series; needs the package pydicom."""
        paths = series_files(path, options.series)
        first = _file(paths[0])
        held = len(paths) * 4 * int(np.prod([size for name in ("Rows", "Columns") for size in _stated(first, name)]))
        said = {"axis": "as acquired" if options.axis is None else options.axis, "slices": len(paths)}
        said |= _display(first) | (_acquired(first) if options.axis is None else seen(options.axis))
        return open_volume(path, options, lambda: read_series(paths, options.axis), held=held, said=said, places=places)


def read_series(paths: Sequence[Path], axis: int | None) -> Volume:
    """Read the files of one series, in any order."""
    folder = str(paths[0].parent)
    files = [_file(path) for path in paths]
    _check_one_series(files, paths, folder)
    across, down = np.array(files[0].ImageOrientationPatient, dtype=np.float64).reshape(2, 3)  # along row and column
    normal = np.cross(across, down)
    heights = np.array([np.dot(np.array(file.ImagePositionPatient, dtype=np.float64), normal) for file in files])
    order = np.argsort(heights, kind="stable")
    distance = _slice_distance(heights[order], [paths[i] for i in order], folder)
    files = [files[i] for i in order]
    data = np.stack([_intensities(files[n], paths[i]) for n, i in enumerate(order)])
    spacing = (distance, float(files[0].PixelSpacing[0]), float(files[0].PixelSpacing[1]))
    doubt = _doubt(files, distance) if len(files) > 1 else ""
    known: dict[str, list[Any]] = {
        "instance_number": [_instance_number(file) for file in files],
        "sop_instance_uid": [str(getattr(file, "SOPInstanceUID", "")) for file in files],
    }
    if axis is None:
        # Along the normal, in the sense of the axis of the patient that it is nearest to.
        places = heights[order] * np.sign(normal[np.abs(normal).argmax()])
        return Volume(data, spacing, doubt=doubt, slices=known | {"position_mm": places.round(3).tolist()})
    affine = np.eye(4)
    affine[:3, :3] = np.stack([normal, down, across], axis=1) * spacing
    affine[:3, 3] = np.array(files[0].ImagePositionPatient, dtype=np.float64)
    # DICOM counts to the left and the back, affines to the right and the front.
    volume = along(data, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine, axis, where=folder)
    return replace(volume, doubt=doubt, slices=_slices_along(volume, known, normal, axis))


def _slices_along(
    volume: Volume, known: Mapping[str, Sequence[Any]], normal: NDArray[np.float64], axis: int
) -> dict[str, Sequence[Any]]:
    """What is known of each slice along an axis of the patient: its files, where slices were acquired along it."""
    sign = 1 if axis == 2 else -1  # positions as DICOM states them
    found: dict[str, Sequence[Any]] = {"position_mm": [sign * place for place in volume.slices["position_mm"]]}
    if int(np.abs(normal).argmax()) == axis:
        index = volume.slices["slice_index"]
        found |= {name: [values[i] for i in index] for name, values in known.items()}
    return found


def _instance_number(file: Any) -> int | None:
    number = _stated(file, "InstanceNumber")
    return int(number[0]) if len(number) else None


def _display(file: Any) -> dict[str, Any]:
    """Modality, and of a CT the window [low, high] of HU that its first slice asks to be shown with."""
    modality = str(getattr(file, "Modality", "") or "")
    found: dict[str, Any] = {"modality": modality} if modality else {}
    center, width = _stated(file, "WindowCenter"), _stated(file, "WindowWidth")
    if modality == "CT" and len(center) and len(width) and width[0] > 0:
        found["window"] = [float(center[0] - width[0] / 2), float(center[0] + width[0] / 2)]
    return found


def _file(path: Path) -> Any:
    pydicom = need("pydicom", "DICOM", path, extra="medical")
    with sound("a whole DICOM file", path, advice="copy the series anew"):
        return pydicom.dcmread(path)


def _check_one_series(files: Sequence[Any], paths: Sequence[Path], folder: str) -> None:
    """Refuse several series, and slices that are no part of one block."""
    one_series(files, paths, Path(folder))
    for file, path in zip(files, paths):
        missing = [name for name, count in _NEEDED.items() if len(_stated(file, name)) != count]
        missing += [] if missing else [name for name in _POSITIVE if (_stated(file, name) <= 0).any()]
        if missing or _number(file, "NumberOfFrames") > 1 or _number(file, "SamplesPerPixel") != 1:
            got = f"no usable {missing[0]}" if missing else "several frames or colors"
            raise BagDataError(
                f"Expected one gray slice with its place, got {got} (in {path}); convert the series to NIfTI, or "
                "remove what is no slice."
            )
    blocks: dict[tuple[float, ...], list[int]] = {}
    for number, file in enumerate(files):
        here = np.concatenate([_stated(file, name) for name in tuple(_NEEDED)[1:]])
        key = next((key for key in blocks if np.allclose(key, here, atol=1e-4)), tuple(here.tolist()))
        blocks.setdefault(key, []).append(number)
    if len(blocks) > 1:
        parts = [f"{len(own)} of {_block(files[own[0]])}, such as {paths[own[0]].name}" for own in blocks.values()]
        raise BagDataError(
            f"Expected slices of one size, direction and pixel spacing in a series, got {len(blocks)} kinds: "
            f"{'; '.join(parts[:_LISTED])} (in {folder}); move what is no part of the scan, such as a localizer, to a "
            "folder of its own."
        )


def _block(file: Any) -> str:
    """What slices have in common, in words."""
    size = f"{file.Rows} rows and {file.Columns} columns"
    return f"{size}, {_acquired(file)['plane']}, {' x '.join(f'{x:g}' for x in file.PixelSpacing)} mm"


def _acquired(file: Any) -> dict[str, str]:
    """How slices are seen as they were acquired: their plane, and the sides of the patient at their edges."""
    direction = _stated(file, "ImageOrientationPatient")
    if direction.shape != (6,):
        return {}
    across, down = direction.reshape(2, 3)
    normal = np.cross(across, down)
    steep = int(np.abs(normal).argmax())
    tilt = np.degrees(np.arccos(min(1.0, abs(float(normal[steep])) / max(float(np.linalg.norm(normal)), 1e-12))))
    oblique = f" (oblique by {tilt:.0f}\N{DEGREE SIGN})" if tilt > _OBLIQUE else ""
    return {"plane": f"{PLANES[steep]}{oblique}", "edges": _ends(across) + _ends(down)}


def _ends(way: NDArray[np.float64]) -> str:
    """Sides of the patient at which a direction begins and ends; DICOM counts to the left, the back and the head."""
    axis = int(np.abs(way).argmax())
    return _SIDES[axis] if way[axis] > 0 else _SIDES[axis][::-1]


def _stated(file: Any, name: str) -> NDArray[np.float64]:
    """Finite numbers that a file states under a name; none where they cannot be read."""
    try:
        found = np.array(getattr(file, name, None) or (), dtype=np.float64).ravel()
    except Exception:  # pydicom raises what it likes of a value that it cannot convert
        return np.empty(0)
    return found[np.isfinite(found)]


def _slice_distance(heights: NDArray[np.float64], paths: Sequence[Path], folder: str) -> float:
    """Millimeters between slices, 1 of a single one; doubles and gaps are refused.

    Gaps are compared with the narrowest one: in a short series those that miss a slice may be the most.
    """
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
    least = float(gaps.min())
    wide = np.flatnonzero(gaps > _GAP * least)
    if len(wide):
        raise BagDataError(
            f"Expected slices {least:.2f} mm apart, as they are at the narrowest place, got a gap of "
            f"{gaps[wide[0]]:.2f} mm after {paths[wide[0]].name} (in {folder}, {len(wide)} in all): slices are "
            "missing; copy the series anew, or leave it out. If two distances are meant, convert it to NIfTI."
        )
    return float(np.median(gaps))


def _doubt(files: Sequence[Any], distance: float) -> str:
    """What speaks for missing slices though the positions are even: a wider gap than is stated, holes in the numbers.

    Holes count for nothing where the stated distance is met: the echoes or times of one scan may be numbered in turn.
    """
    stated, thickness = _number(files[0], "SpacingBetweenSlices"), _number(files[0], "SliceThickness")
    # Some devices state the room between slices rather than the distance of their centers; a gap is then below this.
    if distance > _GAP * max(stated, thickness) > 0:
        name = "SpacingBetweenSlices" if stated >= thickness else "SliceThickness"
        return f"slices may be missing, they lie {distance:.2f} mm apart with a {name} of {max(stated, thickness):g} mm"
    numbers = {int(_number(file, "InstanceNumber")) for file in files}
    holes = max(numbers) - min(numbers) + 1 - len(files)
    if len(numbers) == len(files) and holes and not np.isclose(distance, stated, rtol=0.1):
        return f"slices may be missing, InstanceNumber leaves out {holes} of {min(numbers)} to {max(numbers)}"
    return ""


def _number(file: Any, name: str) -> float:
    """Size of a number that may be absent; 0 where it is."""
    return float(np.abs(_stated(file, name)[:1]).sum())


def _intensities(file: Any, path: Path) -> NDArray[np.float32]:
    from pydicom.pixels.processing import apply_rescale  # noqa: PLC0415

    advice = "copy the series anew, or install a decoder such as pylibjpeg"
    with sound("pixels that pydicom can decode", path, advice=advice):
        stored = file.pixel_array
        if file.PhotometricInterpretation == "MONOCHROME1":  # bright means little
            top = -1 if int(file.PixelRepresentation) else 2 ** int(file.BitsStored) - 1
            stored = top - stored.astype(np.int64)
        return np.asarray(apply_rescale(stored, file), dtype=np.float32)
