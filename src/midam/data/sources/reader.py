"""Readers of inputs: a `BagReader` reads a kind of input, a `FileReader` a format of one bag's file.

Both are rows of `midam.registry.READERS`, which is searched from last to first: an added reader comes before the
built-in ones.
"""

from abc import abstractmethod
from typing import ClassVar

from midam.data.bags import Bags
from midam.data.sources.file_names import FileReader, Reader, registered
from midam.data.sources.request import Request, file_suffix
from midam.registry import READERS

__all__ = ["BagReader", "FileReader", "Reader", "Request", "bag_reader", "bag_readers"]


class BagReader(Reader):
    """Base of the readers of a kind of input: it declares its input and parameters of `Request`, and reads bags.

    `with_labels` are parameters that apply if a table gives the labels.

    Examples
    --------
    A custom reader of a text file: semicolons separate the bags, and each is a label and its numbers.

    >>> class Numbers(BagReader):
    ...     what, suffixes = "text of numbers", (".numbers",)
    ...
    ...     def read(self, request):
    ...         rows = [list(map(float, line.split())) for line in request.path.read_text().split(";")]
    ...         return Bags.from_list([[[x] for x in row[1:]] for row in rows], [int(row[0]) for row in rows])
    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "bags.numbers"
    >>> _ = path.write_text("1 0.5 0.7; 0 0.1")
    >>> bags = Numbers().read(Request(path))
    >>> bags.sizes.tolist(), bags.labels.tolist()
    ([2, 1], [1, 0])
    """

    with_labels: ClassVar[tuple[str, ...]] = ()

    def takes(self, request: Request) -> bool:
        """Return whether the source is of this kind; by default, whether its suffix fits."""
        return file_suffix(request.path) in self.suffixes and not request.path.is_dir()

    @abstractmethod
    def read(self, request: Request) -> Bags:
        """Read the bags; a `BagDataError` names file, column and bag at fault."""


def bag_reader(request: Request) -> BagReader | None:
    """Return the named reader, else the first that takes the source; None if there is none."""
    named = None if request.reader is None else READERS.find(request.reader)
    if named is not None and issubclass(named, BagReader):
        return named()
    return next((reader for reader in bag_readers() if reader.takes(request)), None)


def bag_readers() -> list[BagReader]:
    """Return the readers of inputs, in the order in which they are asked."""
    return [reader() for reader in reversed(registered()) if issubclass(reader, BagReader)]
