"""DICOM files that form one scan: those of a folder and all its subfolders, grouped by SeriesInstanceUID."""

import heapq
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midam.errors import BagDataError, given, listed, plural
from midam.imaging.dicom_frames import count_of, is_flat, read_file

_MAGIC = 128
_LOOKED_AT = 20  # files of a folder that are tried: notes and previews may come first by name
_SEARCHED = 500  # folders that are searched before a folder counts as one without DICOM
_LISTED = 12  # series that a message lists
_DIRECTORY = "DICOMDIR"  # the table of contents of a disc: DICOM, but not a slice
_TAGS = ("SeriesInstanceUID", "SeriesDescription", "ProtocolName", "Modality", "SeriesNumber")
_KIND = ("Rows", "StudyInstanceUID", "ImageType", "ImagePositionPatient", "NumberOfFrames")
_GROUPS = "PerFrameFunctionalGroupsSequence"
_NO_SCANS = ("SEG", "RTDOSE", "PR", "KO")  # modalities of annotations and results that were made from a scan
PLACED = ("CT", "MR", "PT")  # modalities whose images have a position in the patient, even if the file has lost it


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
    if path.suffix.lower() == ".dcm":
        return True
    if path.name.upper() == _DIRECTORY:
        return False
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
    inside = [_files(folder) for folder in folders]
    scans = _scans(_grouped(_headers(files[0] for files in inside), inside))
    studies = [scan.study for scan in scans]
    return len(scans) == 1 or len(set(studies)) == 1 or (len(set(studies)) < len(studies) and not scans[0].flat)


def files_alone(folder: Path, *, named: Collection[str] = ()) -> list[Path]:
    """Return the DICOM files of a folder if each is a scan or image of its own; an empty list if they are slices.

    Images of one study are separate only if a table has `named` one of them.
    """
    paths = [path for path in _first_files(folder) if is_dicom(path)]
    headers = _headers(paths)
    if not all("Rows" in header and (is_flat(header) or count_of(header) > 1) for header in headers):
        return []
    apart = len({_text(header, "StudyInstanceUID") for header in headers}) > 1
    return _files(folder) if apart or any({path.name, path.stem} & set(named) for path in paths) else []


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
    if chosen and all(scan.flat and scan.modality not in PLACED for scan in chosen):
        kept = {path for scan in chosen for path in scan.paths}
        chosen_paths = [path for path in paths if path in kept]
    elif len(chosen) == 1:
        chosen_paths = list(chosen[0].paths)
    else:
        raise _several(series, chosen, wanted, folder)
    aside = 0 if wanted is not None else sum(scan.images for scan in series) - sum(scan.images for scan in chosen)
    return chosen_paths, aside


def _scans(series: Sequence[Series]) -> list[Series]:
    """Return the series that may be the scan: with positions and several images, else with positions, else any view."""
    images = [scan for scan in series if scan.modality not in _NO_SCANS]
    views = [scan for scan in images if not scan.scout] or images
    placed = [scan for scan in views if not scan.flat]
    return [scan for scan in placed if scan.images > 1] or placed or views


def _several(series: Sequence[Series], chosen: Sequence[Series], wanted: str | None, folder: Path) -> BagDataError:
    expected = "one series" if wanted is None else f"one series {wanted!r}"
    got = f"{len(chosen) or 'none'}" + (f" of {len(series)}" if wanted is not None else "")
    text = listed(chosen or series, most=_LISTED, sep="; ") or "no images"
    example = next((scan.description or scan.protocol for scan in chosen or series), "T1") or "T1"
    return BagDataError(
        f"Expected {expected}, got {got}: {text} (in {folder}); choose one by its "
        f"description, modality or number, such as {given(series=example)}, or, if each has its own folder, name the "
        "bags patient/series."
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != "." and is_dicom(path))


def _headers(paths: Iterable[Path]) -> list[Any]:
    """Read the headers of files, with the attributes that separate series."""
    return [read_file(path, tags=[*_TAGS, *_KIND, _GROUPS]) for path in paths]


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
