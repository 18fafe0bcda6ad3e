"""Images of a DICOM file, their positions and intensities; the series in a folder."""

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import need, refuse_empty, sound
from midam.errors import BagDataError, given, install, listed, plural

_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_PLACE = ("ImagePositionPatient", "ImageOrientationPatient")
_GRAY = ("MONOCHROME1", "MONOCHROME2")
# Attributes of X-rays and mammography.
_VIEWS = {"view": ("ViewPosition",), "laterality": ("ImageLaterality", "FrameLaterality", "Laterality")}
_SHOWN = 3  # names of files in a message
_AGAIN = "export the series again"


@dataclass(frozen=True, eq=False)
class Frame:
    """One image of a file: its number in the file, from 0, and the items of its functional groups, shared ones last.

    Files of many frames state attributes there, for each frame or for all frames.
    """

    file: Any
    path: Path
    index: int
    items: tuple[Any, ...] = ()

    def value(self, name: str) -> Any:
        """Return the value of an attribute for the frame, else for all frames, else for the file; None if missing."""
        # The position that a file of many frames states for itself does not apply to a frame.
        sources = self.items if name in _PLACE and count_of(self.file) > 1 else (*self.items, self.file)
        return next((value for source in sources if (value := source.get(name)) is not None), None)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return the finite numbers of an attribute; an empty array if they cannot be read."""
        return _numbers(lambda: self.value(name))

    def number(self, name: str) -> float:
        """Return the absolute value of a number; 0 if it is missing."""
        return float(np.abs(self.numbers(name)[:1]).sum())

    def text(self, name: str) -> str:
        """Return the value of an attribute as text; "" if it is missing."""
        value = self.value(name)
        return "" if value is None else str(value).strip()

    def __str__(self) -> str:
        return f"{self.path.name}, frame {self.index + 1}" if count_of(self.file) > 1 else self.path.name


def read_file(path: Path, *, tags: Sequence[str] | None = None) -> Any:
    """Read a DICOM file with its pixels, not yet decoded; or only the attributes `tags`."""
    pydicom = need("pydicom", "DICOM", path, extra="medical")
    refuse_empty(path)
    with sound("a whole DICOM file", path, advice="copy the series again"):
        file = pydicom.dcmread(path, stop_before_pixels=tags is not None, specific_tags=tags)
    # A report or a plan, which is no slice, is in a series too.
    stated = getattr(getattr(file, "file_meta", None), "MediaStorageSOPClassUID", None)
    is_image = stated is not None and "Image Storage" in stated.name and (tags is None or "Rows" in tags)
    if not len(file) or (is_image and "Rows" not in file):
        raise BagDataError(f"Expected a whole DICOM file, got a header alone (in {path}); copy the series again.")
    return file


def count_of(file: Any) -> int:
    """Return the number of frames of a file; 1 if it states none."""
    stated = _numbers(lambda: file.get("NumberOfFrames"))
    return max(1, int(stated[0])) if len(stated) else 1


def frames_of(file: Any, path: Path) -> list[Frame]:
    """Return the images of a file, in its order."""
    count, stated = count_of(file), file.get("PerFrameFunctionalGroupsSequence")
    pixels = next((file[name].value for name in _PIXELS if name in file), None) or b""
    if count > max(1, len(pixels)) or (stated is not None and len(stated) != count):
        got = "fewer pixels" if stated is None else f"functional groups of {len(stated)}"
        raise BagDataError(f"Expected {count} frames, as NumberOfFrames says, got {got} (in {path}); export it again.")
    shared = [item for group in file.get("SharedFunctionalGroupsSequence") or () for item in _items(group)]
    items = [()] * count if stated is None else [_items(group) for group in stated]
    return [Frame(file, path, number, (*items[number], *shared)) for number in range(count)]


def _items(group: Any) -> tuple[Any, ...]:
    return tuple(element.value[0] for element in group if element.VR == "SQ" and element.value)


def slices_of(frames: Sequence[Frame]) -> dict[str, list[Any]]:
    """Return number, UID and file of each image, its view and side of the body if stated, and its frame.

    The frame is its position in the file, from 1, if a file holds several.
    """
    numbers = [frame.numbers("InstanceNumber") for frame in frames]
    columns: dict[str, list[Any]] = {
        "instance_number": [int(number[0]) if len(number) else None for number in numbers],
        "sop_instance_uid": [frame.text("SOPInstanceUID") for frame in frames],
        "slice_file": [frame.path.name for frame in frames],
    }
    for column, names in _VIEWS.items():
        texts = [next(filter(None, map(frame.text, names)), None) for frame in frames]
        columns |= {column: texts} if any(texts) else {}
    several = any(count_of(frame.file) > 1 for frame in frames)
    return columns | ({"frame_number": [frame.index + 1 for frame in frames]} if several else {})


def is_flat(file: Any) -> bool:
    """Return whether the image of a header has no position in the patient, such as that of an X-ray."""
    groups = (file.get("PerFrameFunctionalGroupsSequence") or ())[:1]
    return not (file.get("ImagePositionPatient") or any(group.get("PlanePositionSequence") for group in groups))


def is_color(frame: Frame) -> bool:
    """Return whether an image has colors."""
    return frame.number("SamplesPerPixel") == 3 or frame.text("PhotometricInterpretation") == "PALETTE COLOR"


def check_scales(frames: Sequence[Frame], where: str) -> None:
    """Refuse slices if only some of them state a rescaling, or if their units differ.

    Slopes and intercepts may differ from slice to slice, as in PET. A slope of 1 and an intercept of 0 change nothing,
    so that other slices may lack them.
    """
    scales = [scale_of(frame) for frame in frames]
    silent = [frame for frame, scale in zip(frames, scales) if scale is None]
    if silent and any(scale not in (None, (1.0, 0.0)) for scale in scales):
        got = f"none in {len(silent)} of {len(frames)}: {listed(silent, most=_SHOWN, sep='; ')} (in {where})"
        raise BagDataError(f"Expected RescaleSlope and RescaleIntercept in all slices or in none, got {got}; {_AGAIN}.")
    for name in ("RescaleType", "Units"):
        units = sorted({frame.text(name) for frame in frames} - {""})
        if len(units) > 1:
            got = f"the {name} {' and '.join(units)} (in {where})"
            raise BagDataError(f"Expected intensities of one unit, got {got}; move each to its own folder.")
    depths = sorted({int(frame.number("BitsStored")) for frame in frames if _is_inverted(frame)})
    if len(depths) > 1:
        got = f"{' and '.join(map(str, depths))} (in {where})"
        raise BagDataError(f"Expected one BitsStored of all MONOCHROME1 images, to invert them, got {got}; {_AGAIN}.")


def scale_of(frame: Frame) -> tuple[float, float] | None:
    """Return the slope and intercept that an image states; None if it states neither."""
    slope, intercept = frame.numbers("RescaleSlope"), frame.numbers("RescaleIntercept")
    stated = [name for name in ("RescaleSlope", "RescaleIntercept") if frame.text(name)]
    if not stated:
        return None
    if len(slope) != 1 or len(intercept) != 1 or slope[0] == 0:
        got = " and ".join(f"a {name} of {frame.text(name) or 'nothing'}" for name in ("RescaleSlope", stated[-1]))
        text = f"Expected a RescaleSlope that is not 0 and a RescaleIntercept, got {got}"
        raise BagDataError(f"{text} (in {frame.path}); {_AGAIN}.")
    return float(slope[0]), float(intercept[0])


def pixels_of(frames: Sequence[Frame]) -> Iterator[NDArray[Any]]:
    """Yield the images of frames in order: gray ones as float32 intensities [H, W], colored ones as RGB [3, H, W].

    Consecutive frames of one file are decoded at once.
    """
    for _, same in groupby(frames, key=lambda frame: frame.path):
        file_frames = list(same)
        stored = _decoded(file_frames[0])
        for frame in file_frames:
            yield _intensities(frame, stored[frame.index])


def _decoded(frame: Frame) -> NDArray[Any]:
    """Return the pixels of all frames of a file, [F, H, W], or [F, H, W, 3] in RGB."""
    from pydicom.pixels.decoders.base import get_decoder
    from pydicom.pixels.processing import apply_color_lut
    from pydicom.pixels.utils import pixel_array  # `iter_pixels` refuses some files of JPEG 2000

    file, path = frame.file, frame.path
    with sound("pixels that pydicom can decode", path, advice="copy the series again, or decompress it"):
        syntax = file.file_meta.TransferSyntaxUID
        if not get_decoder(syntax).is_available:
            advice = f"for medical images, {install('medical')}"
            raise BagDataError(f"Expected a decoder of {syntax.name}, got none (in {path}); {advice}.")
        shift = int(frame.number("HighBit") + 1 - frame.number("BitsStored")) if frame.text("HighBit") else 0
        stored = pixel_array(file)
        if shift > 0:  # allowed by older editions of the standard: numbers are in the upper bits
            raw = pixel_array(file, correct_unused_bits=False)
            if low := bool((raw & ((1 << shift) - 1)).any()):  # numbers are in the lower bits: HighBit is wrong
                known = np.array_equal(raw, stored)
            else:
                known = frame.number("HighBit") + 1 == frame.number("BitsAllocated")
            if not known:
                got = f"{frame.number('HighBit'):.0f} with {frame.number('BitsStored'):.0f} BitsStored (in {path})"
                raise BagDataError(f"Expected a HighBit of BitsStored - 1, got {got}; export the series again.")
            stored = stored if low else raw >> shift
        if frame.text("PhotometricInterpretation") == "PALETTE COLOR":
            stored = apply_color_lut(stored, file)
            stored = (stored >> 8).astype(np.uint8) if stored.dtype == np.uint16 else stored
    return stored if count_of(file) > 1 else stored[None]


def _intensities(frame: Frame, stored: NDArray[Any]) -> NDArray[Any]:
    """Return the intensities of an image; pixels of padding get the lowest intensity of the others."""
    from pydicom.pixels.processing import apply_modality_lut

    if is_color(frame):
        return stored.transpose(2, 0, 1)
    raw, ends = stored, np.concatenate([frame.numbers(f"PixelPadding{name}") for name in ("Value", "RangeLimit")])
    if stored.dtype.itemsize == 2:  # some files state the number of the same bits with or without a sign
        ends = ends.astype(np.int64).astype(stored.dtype)
    if _is_inverted(frame):
        top = -1 if int(frame.number("PixelRepresentation")) else 2 ** int(frame.number("BitsStored")) - 1
        stored = top - stored.astype(np.int64)
    if (scale := scale_of(frame)) is not None:
        values = (stored.astype(np.float64) * scale[0] + scale[1]).astype(np.float32)
    else:
        with sound("a table of intensities that can be applied", frame.path, advice="export the series again"):
            values = np.asarray(apply_modality_lut(stored, frame.file), dtype=np.float32)
    if len(ends) and (others := (raw < ends.min()) | (raw > ends.max())).any():
        values = np.where(others, values, values[others].min())
    return values


def _is_inverted(frame: Frame) -> bool:
    """Return whether bright pixels are low numbers, as in MONOCHROME1; refuse others than it and MONOCHROME2."""
    color = frame.text("PhotometricInterpretation")
    if color not in _GRAY:
        got = f"the PhotometricInterpretation {color!r} (in {frame.path})"
        raise BagDataError(f"Expected {' or '.join(_GRAY)}, or a color, got {got}; convert the image.")
    return color == _GRAY[0]


def _numbers(read: Any) -> NDArray[np.float64]:
    try:
        value = read()
        numbers = np.array(() if value is None else value, dtype=np.float64).ravel()
    except Exception:  # pydicom raises various errors about values that it cannot convert
        return np.empty(0)
    return numbers[np.isfinite(numbers)]


_MAGIC = 128
_LOOKED_AT = 20  # files of a folder that are tried: notes and previews may come first by name
_SEARCHED = 500  # folders that are searched before a folder counts as one without DICOM
_LISTED = 12  # series that a message lists
_DIRECTORY = "DICOMDIR"  # the table of contents of a disc: DICOM, but not a slice
_TAGS = ("SeriesInstanceUID", "SeriesDescription", "ProtocolName", "Modality", "SeriesNumber")
_KIND = ("Rows", "StudyInstanceUID", "ImageType", "ImagePositionPatient", "NumberOfFrames")
_GROUPS = "PerFrameFunctionalGroupsSequence"
_NO_SCANS = ("SEG", "RTDOSE", "PR", "KO")  # modalities of annotations and results that were made from a scan
# Modalities whose images have a position in the patient or on the slide (SM), even if the file has lost it.
PLACED = ("CT", "MR", "PT", "SM")


@dataclass(frozen=True)
class Series:
    """A series of images, with the attributes of its first file."""

    uid: str
    description: str
    protocol: str
    modality: str
    number: str
    paths: tuple[Path, ...]
    flat: bool = False  # its images have no position in the patient
    scout: bool = False  # all of them are localizers
    images: int = 1
    study: str = ""

    def __str__(self) -> str:
        parts = [self.modality, f"number {self.number}" if self.number else "", f"{len(self.paths)} files"]
        name = repr(self.description or self.protocol or self.uid)
        return f"{name} ({', '.join(part for part in parts if part)})"

    def is_called(self, name: str, *, exactly: bool) -> bool:
        """Return whether a text is the description, protocol, modality, number or UID, or a part of the first two."""
        lowered, texts = name.strip().casefold(), [self.description.casefold(), self.protocol.casefold()]
        if lowered in (*texts, self.modality.casefold(), self.number, self.uid):
            return True
        return not exactly and any(lowered in text for text in texts)


def is_dicom_folder(folder: Path) -> bool:
    """Return whether one of the first 20 files of a folder, by name, is DICOM."""
    return folder.is_dir() and any(is_dicom(path) for path in _first_files(folder))


def _first_files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        files = (entry.path for entry in entries if entry.is_file() and entry.name[0] != ".")
        return [Path(path) for path in heapq.nsmallest(_LOOKED_AT, files)]


def is_dicom(path: Path) -> bool:
    """Return whether a file is DICOM, by its suffix or first bytes; a DICOMDIR file is not a slice."""
    contents = path.name.upper() == _DIRECTORY
    if contents or path.suffix.lower() == ".dcm":
        return not contents
    with path.open("rb") as file:
        return file.read(_MAGIC + 4)[_MAGIC:] == b"DICM"


def dicom_folders(folder: Path, *, searched: int | None = None) -> Iterator[Path]:
    """Yield, among the first `searched`, a folder and its subfolders at any depth that hold DICOM files, by name."""
    for number, (path, below, _) in enumerate(os.walk(folder)):
        below[:] = sorted(name for name in below if name[0] != "." and not name.endswith(".zarr"))
        if is_dicom_folder(Path(path)):
            yield Path(path)
        if number == searched:
            return


def holds_dicom(folder: Path) -> bool:
    """Return whether a folder, or one of the first 500 folders in it, holds DICOM files."""
    return folder.is_dir() and next(dicom_folders(folder, searched=_SEARCHED), None) is not None


def is_one_bag(folders: Sequence[Path]) -> bool:
    """Return whether the first files of folders are one scan: one series, except scouts, or images of one study.

    Several series of one study count as one too, which is refused when it is read: one of them is to be chosen.
    """
    if len(folders) == 1:
        return True
    sound = [(header, files) for files in map(_files, folders) for header in islice(_sound_headers(files), 1)]
    scans = _scans(_grouped(*zip(*sound))) if sound else []
    studies = [scan.study for scan in scans]
    return len(scans) == 1 or len(set(studies)) == 1 or (len(set(studies)) < len(studies) and not scans[0].flat)


def files_alone(folder: Path, *, apart: bool = False) -> list[Path]:
    """Return the DICOM files of a folder if each is a scan or image of its own; an empty list if they are slices.

    Images of one study are one bag, unless they are to be `apart`.
    """
    headers = [*_sound_headers(path for path in _first_files(folder) if is_dicom(path))]
    if not all("Rows" in header and (is_flat(header) or count_of(header) > 1) for header in headers):
        return []
    return _files(folder) if apart or len({_text(header, "StudyInstanceUID") for header in headers}) > 1 else []


def series_files(folder: Path, wanted: str | None) -> tuple[list[Path], int]:
    """Return the files of the one scan in a folder and below it as `one_scan`, or of the `wanted` series of several."""
    homes = list(dicom_folders(folder))
    files = [path for home in homes for path in _files(home)]
    if homes == [folder] and wanted is None:
        return files, 0  # the usual case: all of them are read anyway, and then compared
    return one_scan(_headers(files), files, wanted, folder)


def one_scan(headers: Sequence[Any], paths: Sequence[Path], wanted: str | None, folder: Path) -> tuple[list[Path], int]:
    """Return the files of the one scan among files with these headers, and the number of images that are set aside.

    A scan is a series, or all images without a position.
    A `wanted` series has that description, modality or number. Reports and similar files are ignored; localizers,
    single slices next to a series of several, screenshots and segmentations are set aside. Several series are refused.
    """
    series = _grouped(headers, [[path] for path in paths])
    if wanted is not None:
        exact = [scan for scan in series if scan.is_called(wanted, exactly=True)]
        chosen = exact or [scan for scan in series if scan.is_called(wanted, exactly=False)]
    else:
        chosen = _scans(series)
        if chosen and all(scan.scout for scan in chosen):
            got = f"only {plural(len(chosen), 'localizer')} (in {folder})"
            raise BagDataError(f"Expected a scan, got {got}; copy the scan too, or leave the folder out.")
    if not chosen or (chosen[1:] and any(not scan.flat or scan.modality in PLACED for scan in chosen)):
        raise _several(series, chosen, wanted, folder)
    kept = {path for scan in chosen for path in scan.paths}
    aside = 0 if wanted is not None else sum(scan.images for scan in series) - sum(scan.images for scan in chosen)
    return [path for path in paths if path in kept], aside


def _scans(series: Sequence[Series]) -> list[Series]:
    """Return the series that may be the scan: with positions and several images, else with positions, else any view."""
    images = [scan for scan in series if scan.modality not in _NO_SCANS]
    views = [scan for scan in images if not scan.scout] or images
    placed = [scan for scan in views if not scan.flat]
    return [scan for scan in placed if scan.images > 1] or placed or views


def _several(series: Sequence[Series], chosen: Sequence[Series], wanted: str | None, folder: Path) -> BagDataError:
    scans, (name, total) = chosen or series, ("", "") if wanted is None else (f" {wanted!r}", f" of {len(series)}")
    text = f"{len(chosen) or 'none'}{total}: {listed(scans, most=_LISTED, sep='; ') or 'no images'} (in {folder})"
    calls = (call for scan in scans for call in (scan.description, scan.protocol, scan.number, scan.uid) if call)
    alone = (call for call in calls if sum(scan.is_called(call, exactly=True) for scan in series) == 1)
    advice = f"choose one, such as by {given(series=next(alone, 'T1'))}, or name patient/series"
    return BagDataError(f"Expected one series{name}, got {text}; {advice}.")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != "." and is_dicom(path))


def _headers(paths: Iterable[Path]) -> list[Any]:
    """Read the headers of files, with the attributes that separate series."""
    return [read_file(path, tags=[*_TAGS, *_KIND, _GROUPS]) for path in paths]


def _sound_headers(paths: Iterable[Path]) -> Iterator[Any]:
    """Yield the headers of files without the damaged ones, which are refused where their scan is read."""
    for path in paths:
        with suppress(BagDataError):
            yield from _headers([path])


def _grouped(headers: Sequence[Any], paths: Sequence[Sequence[Path]]) -> list[Series]:
    """Group images into series by UID, in the order of their first files; skip reports, plans and notes.

    Each header is that of the first file of its paths.
    """
    groups: dict[str, list[int]] = {}
    for number, header in enumerate(headers):
        groups.setdefault(_text(header, "SeriesInstanceUID"), []).append(number)
    series = []
    for numbers in groups.values():
        series_headers = [headers[number] for number in numbers]
        if not any("Rows" in header for header in series_headers):
            continue
        uid, description, protocol, modality, known_as = (_text(series_headers[0], name) for name in _TAGS)
        series.append(
            Series(
                *(uid, description, protocol, modality, known_as),
                paths=tuple(path for number in numbers for path in paths[number]),
                flat=all(is_flat(header) for header in series_headers),
                scout=all(is_scout(header) for header in series_headers),
                images=sum(count_of(headers[number]) * len(paths[number]) for number in numbers),
                study=_text(series_headers[0], "StudyInstanceUID"),
            )
        )
    return series


def is_scout(header: Any) -> bool:
    """Return whether an image states that it is a localizer."""
    return "LOCALIZER" in _text(header, "ImageType").upper()


def _text(header: Any, name: str) -> str:
    value = header.get(name)
    return "" if value is None else str(value).strip()
