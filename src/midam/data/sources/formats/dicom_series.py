"""Which DICOM files are one series: those of a folder and of all folders in it, grouped by SeriesInstanceUID."""

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midam.data.sources.formats.open_file import need, sound
from midam.errors import BagDataError, given

_MAGIC = 128
_LOOKED_AT = 20  # files by which a series is known: notes and previews may come first by name
_SEARCHED = 500  # folders that are looked into before one is taken to hold no DICOM
_LISTED = 12  # series that a message lists
_DIRECTORY = "DICOMDIR"  # the table of contents of a disc, which is DICOM and no slice
_SAID = ("SeriesInstanceUID", "SeriesDescription", "ProtocolName", "Modality", "SeriesNumber")


@dataclass(frozen=True)
class Series:
    """A series of images, and what its first file says of it."""

    uid: str
    description: str
    protocol: str
    modality: str
    number: str
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        parts = [self.modality, f"number {self.number}" if self.number else "", f"{len(self.paths)} files"]
        name = repr(self.description or self.protocol or self.uid)
        return f"{name} ({', '.join(part for part in parts if part)})"

    def is_called(self, name: str, *, exactly: bool) -> bool:
        """Whether a text names it: its description, protocol, modality, number or UID, or a part of the first two."""
        wanted, texts = name.strip().casefold(), [self.description.casefold(), self.protocol.casefold()]
        if wanted in (*texts, self.modality.casefold(), self.number, self.uid):
            return True
        return not exactly and any(wanted in text for text in texts)


def is_dicom_folder(folder: Path) -> bool:
    """Whether a folder itself holds DICOM files: one of its first 20 files by name."""
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        files = (entry.path for entry in entries if entry.is_file() and entry.name[0] != ".")
        first = heapq.nsmallest(_LOOKED_AT, files)
    return any(is_dicom(Path(path)) for path in first)


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, by its suffix or its first bytes; the table of contents of a disc is none."""
    if path.suffix.lower() == ".dcm":
        return True
    if path.name.upper() == _DIRECTORY:
        return False
    with path.open("rb") as file:
        return file.read(_MAGIC + 4)[_MAGIC:] == b"DICM"


def dicom_folders(folder: Path, *, searched: int | None = None) -> Iterator[Path]:
    """A folder, and those in it at any depth, that hold DICOM files themselves, by name; of the first `searched`."""
    for number, (here, below, _) in enumerate(os.walk(folder)):
        below[:] = sorted(name for name in below if name[0] != "." and not name.endswith(".zarr"))
        if is_dicom_folder(Path(here)):
            yield Path(here)
        if number == searched:
            return


def holds_dicom(folder: Path) -> bool:
    """Whether a folder, or one of the first 500 in it, holds DICOM files."""
    return folder.is_dir() and next(dicom_folders(folder, searched=_SEARCHED), None) is not None


def is_one_series(homes: Sequence[Path]) -> bool:
    """Whether the first files of folders are of one series, which some programs write to several."""
    return len(homes) == 1 or len(_series(_files(home)[0] for home in homes)) == 1


def series_files(folder: Path, wanted: str | None) -> list[Path]:
    """Files of the one series of images in a folder and below it, or of the one that is `wanted` among several."""
    homes = list(dicom_folders(folder))
    files = [path for home in homes for path in _files(home)]
    if homes == [folder] and wanted is None:
        return files  # the usual case: all of them are read anyway, and then compared
    return list(_only(_series(files), wanted, folder).paths)


def one_series(headers: Sequence[Any], paths: Sequence[Path], folder: Path) -> None:
    """Refuse files, of which the headers are given, that are several series."""
    _only(_grouped(headers, paths), None, folder)


def _only(found: Sequence[Series], wanted: str | None, folder: Path) -> Series:
    """The series that is wanted, or the only one; none and several are refused with a list of all."""
    chosen = list(found)
    if wanted is not None:
        exact = [one for one in found if one.is_called(wanted, exactly=True)]
        chosen = exact or [one for one in found if one.is_called(wanted, exactly=False)]
    if len(chosen) == 1:
        return chosen[0]
    what = "one series" if wanted is None else f"one series {wanted!r}"
    got = f"{len(chosen) or 'none'}" + (f" of {len(found)}" if wanted is not None else "")
    listed = "; ".join(map(str, chosen[:_LISTED] or found[:_LISTED])) or "no images"
    more = max(0, len(chosen or found) - _LISTED)
    example = next((one.description or one.protocol for one in chosen or found), "T1") or "T1"
    raise BagDataError(
        f"Expected {what}, got {got}: {listed}{f' and {more} more' if more else ''} (in {folder}); choose one by its "
        f"description, modality or number, such as {given(series=example)}, or, where each has a folder of its own, "
        "name the bags patient/series."
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != "." and is_dicom(path))


def _series(paths: Iterable[Path]) -> list[Series]:
    """Series of images among files, of which the headers are read; reports, plans and other notes are left alone."""
    paths = list(paths)
    pydicom = need("pydicom", "DICOM", paths[0], extra="medical")
    headers = []
    for path in paths:
        with sound("a whole DICOM file", path, advice="copy the series anew"):
            headers.append(pydicom.dcmread(path, stop_before_pixels=True, specific_tags=[*_SAID, "Rows"]))
    images = [(header, path) for header, path in zip(headers, paths) if "Rows" in header]
    return _grouped([header for header, _ in images], [path for _, path in images])


def _grouped(headers: Sequence[Any], paths: Sequence[Path]) -> list[Series]:
    """Series by their UID, in the order of their first files."""
    groups: dict[str, list[int]] = {}
    for number, header in enumerate(headers):
        groups.setdefault(_text(header, "SeriesInstanceUID"), []).append(number)
    found = []
    for numbers in groups.values():
        uid, description, protocol, modality, own = (_text(headers[numbers[0]], name) for name in _SAID)
        found.append(Series(uid, description, protocol, modality, own, tuple(paths[number] for number in numbers)))
    return found


def _text(header: Any, name: str) -> str:
    value = getattr(header, name, None)
    return "" if value is None else str(value).strip()
