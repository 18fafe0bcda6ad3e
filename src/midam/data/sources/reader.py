"""What a reader is: a `BagReader` for a kind of input, a `FileReader` for a format of one bag's file.

Both are rows of `midam.registry.READERS`, which are asked from the last to the first: one that was added before ours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from midam.data.bags import Bags
from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName
from midam.data.sources.formats.open_file import OpenFile
from midam.data.sources.imageoptions import DEFAULTS, ImageOptions, Places, refuse_unused
from midam.data.validate import ClassName
from midam.errors import BagDataError, ConfigError, path_of
from midam.names import name_of, on_disk
from midam.registry import READERS

BagBy = Literal["slide", "patient"]
MissingName = Literal["error", "skip"]
BadLabels = Literal["error", "ignore"]
_PACKED = (".nii.gz", ".csv.gz", ".tsv.gz")
OnFile = Callable[[int, int], None]


def _word(name: Any) -> Any:
    return name_of(name) if isinstance(name, str) else name


# Parameters of `Request` that are names, or lists of names.
_NAMES = (
    *("bag_column", "label_column", "group_column", "split_column", "coord_columns", "ignore_columns", "covariates"),
    *("site_column", "positive", "grades", "sheet", "classes", "features"),
)


@dataclass(frozen=True)
class Request:
    """What `midam.data.read_bags` was asked for: its parameters, under their names."""

    source: str | Path
    bag_column: str = "bag"
    label_column: str = "label"
    group_column: str | None = None
    split_column: str | None = None
    coord_columns: tuple[str, ...] = ()
    ignore_columns: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    site_column: str | None = None
    labels: str | Path | None = None
    slides: str | Path | None = None
    positive: str | None = None
    target: str = "auto"
    grades: tuple[str, ...] = ()
    bag_by: BagBy = "slide"
    split_file: str | Path | None = None
    fold: int | None = None
    missing: MissingName = "error"
    sheet: str | None = None
    impute: bool = False
    classes: tuple[ClassName, ...] | None = None
    features: tuple[str, ...] | None = None
    bad_labels: BadLabels = "error"
    images: ImageOptions = DEFAULTS
    reads: ReadsName = "auto"
    require_labels: bool = True
    reader: str | None = None
    on_file: OnFile | None = None
    left_out: list[LeftOut] = field(default_factory=list)  # grows while it is read
    read_as_missing: dict[str, str] = field(default_factory=dict)  # words of label columns, grows while it is read

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            found = tuple(map(_word, value)) if isinstance(value, tuple | list) else _word(value)
            object.__setattr__(self, name, found)
        for name in ("source", "labels", "slides", "split_file"):
            value = getattr(self, name)
            if value is not None and (path := on_disk(path_of(value, "the data"))) != Path(value):
                object.__setattr__(self, name, type(value)(path))

    @property
    def path(self) -> Path:
        """The source, where it is a path."""
        return Path(self.source)

    def completed(self) -> Self:
        """The request with what it implies: grades are those of an ordinal target, and of no other."""
        if not self.grades or self.target == "ordinal":
            return self
        if self.target != "auto":
            raise ConfigError(f"Expected `grades` with `target='ordinal'`, got {self.target!r}; leave one of them out.")
        return replace(self, target="ordinal")

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns of what is known of the bags beside their instances: the covariates, and that of the site."""
        return tuple(dict.fromkeys(name for _, name in self.beside_named))

    @property
    def beside_named(self) -> list[tuple[str, str]]:
        """These columns, each with the parameter that names it."""
        site = [] if self.site_column is None else [("site_column", self.site_column)]
        return [*(("covariates", name) for name in self.covariates), *site]


# Parameters of `Request` that say how tables are read, and those that apply to any data.
COLUMNS = ("bag_column", "label_column", "group_column", "split_column")
COVARIATES = ("covariates", "site_column")
LABELS = ("labels", "slides", "positive", "target", "grades", "sheet")
SPLITS = ("split_file", "fold", "missing")


class Reader(ABC):
    """A kind of input, or a format of files.

    `what` is what messages call it, such as "a table of instances"; `suffixes` are those of its files, in lower case;
    `parameters` are the names of those that apply to it.
    """

    what: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[tuple[str, ...]] = ()


class BagReader(Reader):
    """A kind of input: it says what it takes, which parameters of `Request` apply to it, and reads bags.

    `with_labels` are parameters that apply where the labels are those of a table.
    """

    with_labels: ClassVar[tuple[str, ...]] = ()

    def takes(self, request: Request) -> bool:
        """Whether the source is of this kind; by its suffix, unless a reader knows better."""
        return file_suffix(request.path) in self.suffixes and not request.path.is_dir()

    @abstractmethod
    def read(self, request: Request) -> Bags:
        """Read the bags; a `BagDataError` names file, column and bag at fault."""


class FileReader(Reader):
    """A format of one bag's file: it says what it takes, which parameters of `ImageOptions` apply, and opens files.

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
        """What a message calls its files: the first suffix."""
        return self.suffixes[0] if self.suffixes else self.what


def bag_reader(request: Request) -> BagReader | None:
    """The reader that was named, else the first that takes the source."""
    named = None if request.reader is None else READERS.find(request.reader)
    if named is not None and issubclass(named, BagReader):
        return named()
    return next((reader for reader in bag_readers() if reader.takes(request)), None)


def bag_readers() -> list[BagReader]:
    """Readers of inputs, in the order in which they are asked."""
    return [reader() for reader in reversed(_readers()) if issubclass(reader, BagReader)]


def file_readers(only: str | None = None) -> list[FileReader]:
    """Readers of files, ours first; the one that was named alone, if it is one."""
    named = None if only is None else READERS.find(only)
    if named is not None and issubclass(named, FileReader):
        return [named()]
    return [reader() for reader in _readers() if issubclass(reader, FileReader)]


def _readers() -> list[type[Reader]]:
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
        found = [file_reader(path, request.reader) for path in {file_suffix(path): path for path in paths}.values()]
        what = " and ".join(sorted({reader.what for reader in found}))
        allowed = {name for reader in found for name in reader.parameters}
        refuse_unused(request.images, allowed, what=what, where=str(request.path))


def known_suffixes(readers: list[FileReader] | None = None) -> list[str]:
    """Suffixes of the files that can be read."""
    return list(dict.fromkeys(suffix for reader in readers or file_readers() for suffix in reader.suffixes))


def file_suffix(path: Path) -> str:
    """Suffix of a file in lower case; of what is packed both: ``.nii.gz``, ``.csv.gz``, ``.tsv.gz``."""
    name = path.name.lower()
    return next((packed for packed in _PACKED if name.endswith(packed)), path.suffix.lower())
