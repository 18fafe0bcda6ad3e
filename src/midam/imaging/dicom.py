"""One DICOM scan per folder or file, through pydicom.

Its slices must be one whole scan: one at each position, evenly spaced, of one time and echo. The checks are made here:
SimpleITK reads a series with a gap, a duplicate or two echoes, and highdicom refuses tilted gantries and rounded
positions, and names no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import DICOM_SUFFIXES, FileReader, file_name
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.request import HEADER, ImageOptions, Places
from midam.errors import BagDataError, listed
from midam.imaging import dicom_frames
from midam.imaging.dicom_frames import PLACED, Frame, count_of, frames_of, is_color, is_flat, read_file, scale_of
from midam.imaging.volumes import PLANES, Volume, along, open_volume, seen
from midam.settings.data import VOLUMES

_SIDES = ("RL", "AP", "IS")  # of the patient, at the low and the high end of each axis
_OBLIQUE = 5.0  # degrees, from which a plane is called oblique
_LISTED = 4  # kinds of slices that a message names
# Attributes that a slice must state, and their number of values.
_NEEDED = {
    **{"ImagePositionPatient": 3, "ImageOrientationPatient": 6, "PixelSpacing": 2},
    **{"Rows": 1, "Columns": 1, "SamplesPerPixel": 1},
}
_POSITIVE = ("PixelSpacing", "Rows", "Columns")
_GAP = 1.5  # times the narrowest or the stated distance of slices: from this gap on, a slice is missing
_SAME_MM = 1e-3
_INTENT = "PresentationIntentType"  # of X-rays: FOR PROCESSING, as the detector counts, or FOR PRESENTATION
# Attributes that separate the times, echoes and weightings of a scan; acquisitions may also be parts of one time.
_PHASES = (
    *("TemporalPositionIdentifier", "TemporalPositionIndex", "EchoNumbers", "EchoTime", "EffectiveEchoTime"),
    *("DiffusionBValue", "NominalCardiacTriggerDelayTime"),
)
_ACQUISITIONS = ("AcquisitionNumber", "FrameAcquisitionNumber")


class DicomReader(FileReader):
    """Reader of a DICOM series in a folder and its subfolders: slices or a volume, rescaled, MONOCHROME1 inverted.

    Among several series, `options.series` selects one. Slices, which are files or the frames of a file, are ordered by
    their position along the normal of the image plane, not by name or number. They run along `options.axis` of the
    patient, or stay as acquired. Images without a position, such as X-rays, are one instance each, in the order of
    their files. Anything but one whole series is refused when it is read.
    """

    what = "DICOM series"
    parameters = (*VOLUMES, "series")
    has_parts = staticmethod(dicom_frames.is_dicom_folder)
    folders = staticmethod(dicom_frames.dicom_folders)
    is_one_bag = staticmethod(dicom_frames.is_one_bag)
    files_alone = staticmethod(dicom_frames.files_alone)

    def takes(self, path: Path) -> bool:
        """Return whether a folder holds DICOM files, at any depth, or a file is DICOM."""
        if path.is_dir():
            return path.suffix != ".zarr" and dicom_frames.holds_dicom(path)
        bare = file_name(path) == path.name and path.is_file()
        return path.suffix.lower() in DICOM_SUFFIXES or (bare and dicom_frames.is_dicom(path))

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a series; needs the package pydicom."""
        paths, aside = dicom_frames.series_files(path, options.series) if path.is_dir() else ([path], 0)
        first = read_file(paths[0])
        frame = frames_of(first, paths[0])[0]
        pixels = int(np.prod([frame.number(name) for name in ("Rows", "Columns", "SamplesPerPixel")]))
        count = len(paths) * count_of(first)
        attributes = _display(frame) | {"images": count} | _origin(frame)
        if not is_flat(first):
            attributes |= {"axis": "as acquired" if options.axis is None else options.axis}
            attributes |= _acquired(frame) if options.axis is None else seen(options.axis)
        return open_volume(
            path,
            options,
            lambda: read_series(paths, options.axis, wanted=options.series, aside=aside),
            held=count * 4 * pixels,
            attributes=attributes,
            places=places,
        )


def read_series(paths: Sequence[Path], axis: int | None, *, wanted: str | None = None, aside: int = 0) -> Volume:
    """Read the files of one series, or images without a position, in any order; `aside` were set aside before."""
    folder = paths[0].parent
    files = {path: read_file(path) for path in paths}
    kept, more = dicom_frames.one_scan([*files.values()], paths, wanted, folder)
    frames = [frame for path in kept for frame in frames_of(files[path], path)]
    where, aside = str(paths[0] if len(paths) == 1 else folder), aside + more
    if all(is_flat(frame.file) and frame.text("Modality") not in PLACED for frame in frames):
        volume = _flat(frames, where, aside)
    else:
        block = _one_block(frames, where)
        volume = _volume(block, axis, where, aside + len(frames) - len(block))
    return replace(volume, doubt=_patients(frames) or (_empty_files(paths) if paths[1:] else "") or volume.doubt)


def _flat(frames: Sequence[Frame], where: str, aside: int) -> Volume:
    """Return images without a position, such as X-rays and ultrasound, as a volume."""
    for frame in frames:
        _require(frame, ("Rows", "Columns", "SamplesPerPixel"), colors=True)
    gray = [frame for frame in frames if not is_color(frame)]
    dicom_frames.check_scales(gray, where)
    spacings = [(frame.numbers("PixelSpacing"), frame.numbers("ImagerPixelSpacing")) for frame in frames]
    stated = [next((pair for pair in pairs if pair.shape == (2,) and (pair > 0).all()), None) for pairs in spacings]
    modality, intents = (sorted({frame.text(name) for frame in frames} - {""}) for name in ("Modality", _INTENT))
    return Volume(
        [image if image.ndim == 3 else image[None] for image in dicom_frames.pixels_of(frames)],
        [None if pair is None else (1.0, float(pair[0]), float(pair[1])) for pair in stated],
        flat=", ".join(modality) or "no modality",
        aside=aside,
        doubt=mixed_depths(gray) or (f"it holds images {' and '.join(intents)}" if intents[1:] else ""),
        slices=dicom_frames.slices_of(frames),
    )


def _volume(frames: Sequence[Frame], axis: int | None, where: str, aside: int) -> Volume:
    """Return the slices of one block as a volume, from left to right, back to front or feet to head."""
    dicom_frames.check_scales(frames, where)
    first = frames[0]
    across, down = first.numbers("ImageOrientationPatient").reshape(2, 3)  # along row and column
    normal = np.cross(across, down)
    steep = int(np.abs(normal).argmax())
    normal *= np.sign(normal[steep]) * (1 if steep == 2 else -1)  # to the patient's right, front or head
    heights = np.array([np.dot(frame.numbers("ImagePositionPatient"), normal) for frame in frames])
    order = np.argsort(heights, kind="stable")
    frames, heights = [frames[i] for i in order], heights[order]
    refuse_phases(frames, heights, where)
    distance = slice_distance(heights, frames, where, aside)
    data = np.empty((len(frames), int(first.number("Rows")), int(first.number("Columns"))), dtype=np.float32)
    by_file = sorted(range(len(frames)), key=lambda number: (str(frames[number].path), frames[number].index))
    for number, pixels in zip(by_file, dicom_frames.pixels_of([frames[number] for number in by_file])):
        data[number] = pixels
    rows, columns = first.numbers("PixelSpacing")
    spacing = (distance, float(rows), float(columns))
    doubt, tilt = doubt_of(frames, heights, distance) if len(frames) > 1 else "", _tilt(frames, normal)
    facts = dicom_frames.slices_of(frames)
    if axis is None:
        # Positions along the normal, in the direction of the patient's nearest axis as DICOM counts it.
        facts["position_mm"] = (heights if steep == 2 else 0.0 - heights).round(3).tolist()
        return Volume(data, [spacing], doubt=doubt, aside=aside, slices=facts, tilt=tilt)
    affine = np.eye(4)
    affine[:3, :3] = np.stack([normal, down, across], axis=1) * spacing
    affine[:3, 3] = frames[0].numbers("ImagePositionPatient")
    # Coordinates grow to the left and the back in DICOM, to the right and the front in affines.
    volume = along(data, np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine, axis, where=where)
    return replace(volume, doubt=doubt, aside=aside, tilt=tilt, slices=_slices_along(volume, facts, normal, axis))


def _slices_along(
    volume: Volume, facts: Mapping[str, Sequence[Any]], normal: NDArray[np.float64], axis: int
) -> dict[str, Sequence[Any]]:
    """Return the origin of each slice along an axis of the patient, with its file if it was acquired along it."""
    sign = 1 if axis == 2 else -1  # positions as DICOM states them
    columns: dict[str, Sequence[Any]] = {"position_mm": [sign * place for place in volume.slices["position_mm"]]}
    if int(np.abs(normal).argmax()) == axis:
        index = volume.slices["slice_index"]
        columns |= {name: [values[i] for i in index] for name, values in facts.items()}
    return columns


def _display(frame: Frame) -> dict[str, Any]:
    """Return the modality, the units, and the display window [low, high] that a CT's first slice states.

    A CT without RescaleSlope holds stored numbers, which may not be HU. The units of gray X-rays that are not rescaled
    are those of their bits.
    """
    modality, ct = frame.text("Modality"), frame.text("Modality") == "CT"
    stored = is_flat(frame.file) and not is_color(frame) and scale_of(frame) in (None, (1.0, 0.0))
    of_ct = frame.text("RescaleType") or ("no RescaleSlope" if scale_of(frame) is None else "HU") if ct else ""
    units = of_ct or frame.text("Units") or (f"{frame.number('BitsStored'):.0f} bits" if stored else "")
    texts = {"modality": modality, "units": units, "intent": frame.text(_INTENT)}
    attributes: dict[str, Any] = {name: text for name, text in texts.items() if text}
    center, width = frame.numbers("WindowCenter"), frame.numbers("WindowWidth")
    if ct and len(center) and len(width) and width[0] > 0:
        attributes["window"] = [float(center[0] - width[0] / 2), float(center[0] + width[0] / 2)]
    return attributes


def _origin(frame: Frame) -> dict[str, str]:
    """Return who and what was imaged where: the attributes of the header that may be groups, study and series."""
    texts = {name: frame.text(name) for name in (*HEADER, "StudyInstanceUID", "SeriesDescription")}
    return {name: text for name, text in texts.items() if text or name == HEADER[0]}


def _patients(frames: Sequence[Frame]) -> str:
    """Return the doubt about images of several patients; "" if they are of one."""
    patients = sorted({frame.text(HEADER[0]) for frame in frames} - {""})
    return f"it holds images of {len(patients)} patients, by {HEADER[0]}: {listed(patients)}" if patients[1:] else ""


def _empty_files(paths: Sequence[Path]) -> str:
    """Return the doubt about empty files in the folders of images; "" if there is none."""
    files = [file for home in sorted({path.parent for path in paths}) for file in sorted(home.iterdir())]
    names = [file.name for file in files if file.name[0] != "." and file.is_file() and not file.stat().st_size]
    return f"empty files lie next to its images, as after a broken copy: {listed(names)}" if names else ""


def _tilt(frames: Sequence[Frame], normal: NDArray[np.float64]) -> float:
    """Return the degrees between the normal of slices and the way from the first to the last."""
    first, last = (frames[at].numbers("ImagePositionPatient") for at in (0, -1))
    way, height = last - first, abs(float(np.dot(last - first, normal)))
    return float(np.degrees(np.arccos(min(1.0, height / max(float(np.linalg.norm(way)), 1e-12))))) if height else 0.0


def _require(frame: Frame, names: Sequence[str], *, colors: bool = False) -> None:
    """Refuse an image with colors, unless it may have them, without one of the attributes, or of no positive size."""
    missing = [name for name in names if len(frame.numbers(name)) != _NEEDED[name]]
    missing += [] if missing else [name for name in names if name in _POSITIVE and (frame.numbers(name) <= 0).any()]
    if missing or (is_color(frame) and not colors):
        got = f"{f'no usable {missing[0]}' if missing else 'colors'} (in {frame.path})"
        advice = "remove files that are not slices, and convert whole slides (SM) to TIFF"
        raise BagDataError(f"Expected a gray slice with a position, got {got}; {advice}.")


def _one_block(frames: Sequence[Frame], where: str) -> list[Frame]:
    """Return the slices of one size, direction and pixel spacing, without localizers and single other slices."""
    views = [frame for frame in frames if not dicom_frames.is_scout(frame.file)] or frames
    blocks: dict[tuple[float, ...], list[Frame]] = {}
    for frame in views:
        _require(frame, tuple(_NEEDED))
        numbers = np.concatenate([frame.numbers(name) for name in tuple(_NEEDED)[1:]])
        key = next((key for key in blocks if np.allclose(key, numbers, atol=1e-4)), tuple(numbers.tolist()))
        blocks.setdefault(key, []).append(frame)
    main = [block for block in blocks.values() if len(block) > 1]
    if len(main or blocks) > 1:
        parts = [f"{len(block)} of {_block(block[0])}, such as {block[0]}" for block in blocks.values()]
        got = f"{len(blocks)} kinds: {'; '.join(parts[:_LISTED])} (in {where}); move a localizer away"
        raise BagDataError(f"Expected slices of one size, direction and pixel spacing in a series, got {got}.")
    return (main or list(blocks.values()))[0]


def _block(frame: Frame) -> str:
    """Describe the size, plane and pixel spacing of slices."""
    size = f"{frame.number('Rows'):.0f} rows and {frame.number('Columns'):.0f} columns"
    return f"{size}, {_acquired(frame)['plane']}, {' x '.join(f'{x:g}' for x in frame.numbers('PixelSpacing'))} mm"


def _acquired(frame: Frame) -> dict[str, str]:
    """Return the plane of slices as acquired, and the sides of the patient at their edges."""
    direction = frame.numbers("ImageOrientationPatient")
    if direction.shape != (6,):
        return {}
    across, down = direction.reshape(2, 3)
    normal = np.cross(across, down)
    steep = int(np.abs(normal).argmax())
    tilt = np.degrees(np.arccos(min(1.0, abs(float(normal[steep])) / max(float(np.linalg.norm(normal)), 1e-12))))
    oblique = f" (oblique by {tilt:.0f}\N{DEGREE SIGN})" if tilt > _OBLIQUE else ""
    return {"plane": f"{PLANES[steep]}{oblique}", "edges": _ends(across) + _ends(down)}


def _ends(way: NDArray[np.float64]) -> str:
    """Return the sides of the patient where a direction begins and ends; DICOM counts to left, back and head."""
    axis = int(np.abs(way).argmax())
    return _SIDES[axis] if way[axis] > 0 else _SIDES[axis][::-1]


def refuse_phases(frames: Sequence[Frame], heights: NDArray[np.float64], where: str) -> None:
    """Refuse slices of several times, echoes or weightings whose positions coincide or interleave."""
    for name in _PHASES:
        values = np.array([frame.text(name) for frame in frames])
        if _overlap(values, heights):
            got = f"{_counts(values)} by {name} (in {where}): several times, echoes or weightings"
            raise BagDataError(f"Expected one image at each position, got {got}; move each to its own folder.")


def _overlap(values: NDArray[np.str_], heights: NDArray[np.float64]) -> bool:
    """Return whether the positions of slices with different values coincide or interleave."""
    ends = sorted((heights[values == value].min(), heights[values == value].max()) for value in set(values.tolist()))
    return any(low <= high_before + _SAME_MM for (_, high_before), (low, _) in pairwise(ends))


def _counts(values: NDArray[np.str_]) -> str:
    kinds, counts = np.unique(values, return_counts=True)
    return f"{len(kinds)} kinds ({', '.join(f'{n} of {kind or chr(34) * 2}' for kind, n in zip(kinds[:3], counts))})"


def slice_distance(heights: NDArray[np.float64], frames: Sequence[Frame], where: str, aside: int) -> float:
    """Return the millimeters between slices, 1 for a single slice; refuse doubles and gaps.

    Gaps are compared with the narrowest one: in a short series, most gaps may miss a slice.
    """
    if len(heights) == 1:
        return 1.0
    gaps = np.diff(heights)
    double = np.flatnonzero(gaps < _SAME_MM)
    if len(double):
        one, other = frames[double[0]], frames[double[0] + 1]
        got = f"{len(double)} duplicates, the first {one} and {other} (in {where})"
        raise BagDataError(f"Expected one slice at each position, got {got}; remove them.")
    least = float(gaps.min())
    wide = np.flatnonzero(gaps > _GAP * least)
    if len(wide):
        scouts = f", without {aside} localizers or single slices of another kind" if aside else ""
        got = f"a gap of {gaps[wide[0]]:.2f} mm after {frames[wide[0]]} (in {where}, {len(wide)} in all{scouts})"
        expected, advice = f"slices {least:.2f} mm apart, their smallest distance", "copy the series again"
        raise BagDataError(f"Expected {expected}, got {got}: slices are missing; {advice}, or leave it out.")
    return float(np.median(gaps))


def doubt_of(frames: Sequence[Frame], heights: NDArray[np.float64], distance: float) -> str:
    """Return a sign of missing or mixed slices: a wider gap than stated, missing numbers; "" if there is none.

    Missing numbers do not count if the stated distance is met: the echoes or times of one scan may be numbered in turn.
    """
    stated, thickness = frames[0].number("SpacingBetweenSlices"), frames[0].number("SliceThickness")
    # Some devices state the space between slices instead of the distance of their centers: then the thickness counts.
    if distance > _GAP * max(stated, thickness) > 0:
        name = "SpacingBetweenSlices" if stated >= thickness else "SliceThickness"
        return f"slices may be missing: they lie {distance:.2f} mm apart, the {name} is {max(stated, thickness):g} mm"
    numbers = {int(frame.number("InstanceNumber")) for frame in frames}
    holes = max(numbers) - min(numbers) + 1 - len(frames)
    if len(numbers) == len(frames) and holes and not np.isclose(distance, stated, rtol=0.1):
        return f"slices may be missing: InstanceNumber skips {holes} of {min(numbers)} to {max(numbers)}"
    for name in _ACQUISITIONS:
        values = np.array([frame.text(name) for frame in frames])
        if _overlap(values, heights):
            return f"slices of {_counts(values)} by {name} are interleaved: they may be several time points"
    return mixed_depths(frames)


def mixed_depths(frames: Sequence[Frame]) -> str:
    """Return the doubt about images of several bit depths without RescaleSlope; "" if there is none."""
    depths = sorted({int(frame.number("BitsStored")) for frame in frames if not frame.text("RescaleSlope")})
    if len(depths) < 2:
        return ""
    return f"images of {' and '.join(map(str, depths))} bits state no RescaleSlope: their intensities may differ"
