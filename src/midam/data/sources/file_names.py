"""Formats of files, with a `FileReader` each; and the search for files by the names that tables use."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.request import ImageOptions, Places, Request, file_suffix, refuse_unused
from midam.errors import BagDataError
from midam.names import name_of
from midam.registry import READERS

DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")
# In addition to those of the readers.
_OTHER_SUFFIXES = (".ome.tiff", ".ome.tif", ".ome", ".czi", *DICOM_SUFFIXES)
_SHORT = re.compile(r"^(\d+)\.0+$|^(tcga-\w\w-\w{4}-[\w-]+)\.[0-9a-f-]+$")
_FEATURE_FOLDERS = ("h5_files", "pt_files", "features_*")  # of CLAM and TRIDENT, next to each other
_SCALE_FOLDER = "*x_*px_*overlap"  # of TRIDENT, above these


class Reader(ABC):
    """Base of the readers of a kind of input, or of a format of files.

    Messages call the input `what`, such as "a table of instances"; `suffixes` are those of its files, in lower case;
    `parameters` are the names of the parameters that apply to it.
    """

    what: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[tuple[str, ...]] = ()


class FileReader(Reader):
    """Base of the readers of one bag's file: it declares its files and `ImageOptions`, and opens the files.

    Files of one `family` of readers may share a folder; by default each reader is a family. With `maybe_table`, such a
    file next to files of another format is a table of labels or splits, not a bag. With `tells_labels`, the attributes
    of a file may state its label, group and split.

    Examples
    --------
    A custom reader of a text file with the instances of a bag:

    >>> import numpy as np
    >>> class Rows(FileReader):
    ...     what, suffixes = "text", (".rows",)
    ...
    ...     def open(self, path, options, places=None):
    ...         return OpenFile(np.loadtxt(path, ndmin=2))
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "bag.rows"
    >>> _ = path.write_text("0.5 1.0")
    >>> Rows().takes(path), Rows().open(path, ImageOptions()).features.tolist()
    (True, [[0.5, 1.0]])
    """

    family: ClassVar[str] = ""
    maybe_table: ClassVar[bool] = False
    tells_labels: ClassVar[bool] = False

    def takes(self, path: Path) -> bool:
        """Return whether a file, or a folder, has this format; by default, whether its suffix fits."""
        return file_suffix(path) in self.suffixes and not path.is_dir()

    @abstractmethod
    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file, or a folder of this format; refuse an unusable one with a `BagDataError`.

        `places` [n, C] are those that an earlier call found, so that tissue is not searched again.
        """

    def verify(self, path: Path) -> None:
        """Read a file once to compare checksums that `open` ignores; called before a file is used."""

    @property
    def title(self) -> str:
        """Name of its files in messages: the first suffix."""
        return self.suffixes[0] if self.suffixes else self.what


def parts_reader() -> Any:
    """Return the reader of DICOM series, whose files are parts of a bag: `midam.imaging.dicom.DicomReader`."""
    return READERS.find("dicom")()


def file_readers(only: str | None = None) -> list[FileReader]:
    """Return the readers of files, built-in ones first; if one is named, and reads files, only this one."""
    named = None if only is None else READERS.find(only)
    if named is not None and issubclass(named, FileReader):
        return [named()]
    return [reader() for reader in map(READERS.find, READERS.names()) if issubclass(reader, FileReader)]


def file_reader(path: Path, only: str | None = None) -> FileReader:
    """Return the reader of a file; refuse a file that no reader takes."""
    readers = file_readers(only)
    for reader in reversed(readers):
        if reader.takes(path):
            return reader
    known, got = ", ".join(known_suffixes(readers)), f"{path.suffix or 'no suffix'!r} (in {path}); convert the file"
    raise BagDataError(f"Expected a file of instances ({known}) or the folder of a DICOM series, got {got}.")


def check_options(request: Request, paths: Sequence[Path]) -> None:
    """Refuse settings of `ImageOptions` that apply to none of these files, if labels are required."""
    if request.require_labels:
        readers = [file_reader(path, request.reader) for path in {file_suffix(path): path for path in paths}.values()]
        kinds = " and ".join(sorted({reader.what for reader in readers}))
        allowed = {name for reader in readers for name in reader.parameters}
        refuse_unused(request.images, allowed, kind=kinds, where=str(request.path))


def known_suffixes(readers: list[FileReader] | None = None) -> list[str]:
    """Return the suffixes of the files that can be read."""
    return list(dict.fromkeys(suffix for reader in readers or file_readers() for suffix in reader.suffixes))


def file_name(path: Path) -> str:
    """Return the name of a folder, or of a file without suffix: scan.1 for scan.1.nii.gz, slide for slide.ome.tif.

    Digits are no suffix, but the end of a UID that names a DICOM file.
    """
    whole = path.suffix[1:].isdigit() or path.suffix == "" or (path.is_dir() and path.suffix != ".zarr")
    suffix = next((both for both in _OTHER_SUFFIXES if path.name.lower().endswith(both)), file_suffix(path))
    return path.name if whole else path.name[: -len(suffix)]


def is_feature_folder(path: Path) -> bool:
    """Return whether a folder has a name that CLAM or TRIDENT gives to folders of features."""
    return any(path.match(form) for form in _FEATURE_FOLDERS)


def scale_folder(path: Path) -> str:
    """Return the name of the folder above a feature folder if it states the scale of the patches; otherwise ""."""
    return path.parent.name if path.parent.match(_SCALE_FOLDER) else ""


def bag_names(paths: Sequence[Path], folder: Path) -> list[str]:
    """Return the names of bags in a folder: 0, or x/0 for all if names repeat; refuse two files of one bag.

    Folders that programs make for features are not part of a name.
    """
    names = [name_of(file_name(path)) for path in paths]
    if len(set(names)) == len(names):
        return names
    homes = [_home(path.parent, folder) for path in paths]
    full = [name_of((home.relative_to(folder) / name).as_posix()) for home, name in zip(homes, names)]
    seen: dict[str, Path] = {}
    for path, name in zip(paths, full):
        if name in seen:
            got = f"{seen[name].relative_to(folder)} and {path.relative_to(folder)} (in {folder})"
            raise BagDataError(f"Expected one file per name, got {got}; rename one, or write a manifest.")
        seen[name] = path
    return full


def _home(path: Path, folder: Path) -> Path:
    while path != folder and (is_feature_folder(path) or path.match(_SCALE_FOLDER)):
        path = path.parent
    return path


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of files, all with as many folders before them as make them unique.

    Examples
    --------
    >>> distinct_names([Path("a/x.h5"), Path("a/y.h5")]), distinct_names([Path("a/x.h5"), Path("b/x.h5")])
    (['x.h5', 'y.h5'], ['a/x.h5', 'b/x.h5'])
    """
    deepest = max((len(path.parts) for path in paths), default=0)
    for depth in range(1, deepest + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({number})" for number, path in enumerate(paths, start=1)]  # one file several times


def strip_suffix(name: str, suffixes: Sequence[str] = ()) -> str:
    """Remove all suffixes of features and slides, as in a.svs.h5; dots that belong to a name stay."""
    suffixes = suffixes or _suffixes()
    for suffix in suffixes:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return strip_suffix(name[: -len(suffix)], suffixes)
    return name


class NameIndex:
    """Index of files by the names that a table uses for them: with or without folder and suffix, in any case.

    A name with the folder takes precedence. `names` are those of `bag_names`; `suffixes` are known in addition to those
    of the formats; messages call the data `source`.
    """

    def __init__(self, names: Sequence[str], suffixes: Iterable[str] = (), *, source: str = "") -> None:
        self.names, self.source = list(names), source
        self._suffixes = _suffixes(suffixes)
        self._levels: list[dict[str, list[int]]] = [{}, {}, {}, {}, {}, {}]  # by each form of `_keys`
        for position, name in enumerate(self.names):
            for level, key in zip(self._levels, self._keys(name)):
                level.setdefault(key, []).append(position)

    def find(self, name: str) -> int | None:
        """Return the position of the file of that name; None if there is none; refuse several inexact matches."""
        candidates = self._candidates(name)
        if len(candidates) > 1:
            first, second = (self.names[at] for at in candidates[:2])
            raise BagDataError(f"Expected one file {name!r}, got {first!r} and {second!r}; write the whole name.")
        return candidates[0] if candidates else None

    def certain(self, name: str) -> int | None:
        """Return the position of the only file of that name; None if there is none, or several."""
        candidates = self._candidates(name)
        return candidates[0] if len(candidates) == 1 else None

    def count(self, values: Iterable[str]) -> int:
        """Count the values that name a file."""
        return sum(bool(self._candidates(value)) for value in values)

    def _candidates(self, name: str) -> list[int]:
        """Return the files of that name, by the most exact form that any file matches."""
        return next((level[key] for level, key in zip(self._levels, self._keys(name)) if key in level), [])

    def _keys(self, name: str) -> tuple[str, ...]:
        """Return the forms of a name, the exact one first."""
        name = name_of(name)
        path = PurePosixPath(name.replace("\\", "/"))
        plain = strip_suffix(path.name, self._suffixes)
        near = f"{path.parent.name}/{plain}"
        # Tables with missing values write the number 7 as 7.0; some tables give only the barcode of a slide.
        return name, near, near.casefold(), plain, plain.casefold(), _SHORT.sub(r"\1\2", plain.casefold())


def _suffixes(suffixes: Iterable[str] = ()) -> list[str]:
    """Return the suffixes of features, images and slides, long ones first."""
    return sorted({*suffixes, *_OTHER_SUFFIXES, *known_suffixes()} - {""}, key=len, reverse=True)
