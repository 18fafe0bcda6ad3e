"""Readers of files: a `FileReader` for a format of one bag's file."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.request import ImageOptions, Places, Request, file_suffix, refuse_unused
from midam.errors import BagDataError
from midam.registry import READERS


class Reader(ABC):
    """A kind of input, or a format of files.

    `what` is what messages call it, such as "a table of instances"; `suffixes` are those of its files, in lower case;
    `parameters` are the names of those that apply to it.
    """

    what: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[tuple[str, ...]] = ()


class FileReader(Reader):
    """A format of one bag's file: it declares which files and which `ImageOptions` apply, and opens them.

    Readers of one `family` may share a folder; by default each is its own. `one_a_folder` says that files next to each
    other are parts of one bag, as slices are. `maybe_table` says that such a file beside
    others is a table of labels or splits rather than a bag; `tells_labels` that the attributes of a file may say its
    label, group and split.
    """

    family: ClassVar[str] = ""
    one_a_folder: ClassVar[bool] = False
    maybe_table: ClassVar[bool] = False
    tells_labels: ClassVar[bool] = False

    def takes(self, path: Path) -> bool:
        """Whether a file, or a folder, is of this format; by its suffix, unless a reader knows better."""
        return file_suffix(path) in self.suffixes and not path.is_dir()

    @abstractmethod
    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a file, or a folder that is one; what cannot be used is refused with a `BagDataError`.

        `places` [n, C] are those that an earlier opening found, so that tissue is not looked for again.
        """

    def verify(self, path: Path) -> None:
        """Read a file once to compare checksums that `open` passes over; asked before a file is used."""

    @property
    def title(self) -> str:
        """Name of its files in messages: the first suffix."""
        return self.suffixes[0] if self.suffixes else self.what


def file_readers(only: str | None = None) -> list[FileReader]:
    """Readers of files, ours first; the one that was named alone, if it is one."""
    named = None if only is None else READERS.find(only)
    if named is not None and issubclass(named, FileReader):
        return [named()]
    return [reader() for reader in registered() if issubclass(reader, FileReader)]


def registered() -> list[type[Reader]]:
    """Return the readers of inputs and of files, in the order in which they were registered."""
    return [READERS.find(name) for name in READERS.names()]


def file_reader(path: Path, only: str | None = None) -> FileReader:
    """The reader of a file; a file that none takes is refused."""
    known = file_readers(only)
    for reader in reversed(known):
        if reader.takes(path):
            return reader
    raise BagDataError(
        f"Expected a file of instances ({', '.join(known_suffixes(known))}) or the folder of a DICOM series, got "
        f"{repr(path.suffix) if path.suffix else 'no suffix'} (in {path}); convert the file."
    )


def check_options(request: Request, paths: Sequence[Path]) -> None:
    """Refuse settings of `ImageOptions` that apply to none of these files, where labels are asked for."""
    if request.require_labels:
        readers = [file_reader(path, request.reader) for path in {file_suffix(path): path for path in paths}.values()]
        what = " and ".join(sorted({reader.what for reader in readers}))
        allowed = {name for reader in readers for name in reader.parameters}
        refuse_unused(request.images, allowed, what=what, where=str(request.path))


def known_suffixes(readers: list[FileReader] | None = None) -> list[str]:
    """Suffixes of the files that can be read."""
    return list(dict.fromkeys(suffix for reader in readers or file_readers() for suffix in reader.suffixes))
