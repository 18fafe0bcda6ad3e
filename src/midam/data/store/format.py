"""The store: bags of any size in a folder, opened at once, read by position, verified bag by bag.

    instances.npy   the instances of all bags, bag after bag
    coords.npy      their coordinates, if there are any
    bags.csv        a row for each bag: id, size, label, group, split, ..., and the digests of its instances
    store.json      names, origin and the digest of bags.csv; written last

Bag i is the rows ``sum(sizes[:i])`` to ``sum(sizes[:i + 1])``. Opening reads no instances.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digests import begun_hashes, hash_rows
from midam.data.instance_labels import labels_of, labels_text, read_labels_text
from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName, RowFile, Rows, read_ahead
from midam.data.sources.formats.open_file import sound
from midam.data.target_labels import TargetLabels
from midam.data.validate import TwoNames, digest_array, name_array
from midam.errors import BagDataError, DataNotFoundError, path_of
from midam.lazy_imports import pandas as pd
from midam.names import name_of, nearby
from midam.reading import parse_json, read_bytes

FORMAT = "midam store"
VERSION = 2
INSTANCES, COORDS, TABLE, DESCRIPTION = "instances.npy", "coords.npy", "bags.csv", "store.json"
# Columns of the bag table, by the field of `Bags`; an outcome and covariates have a column for each number or name.
_TEXTS = {"ids": "id", "groups": "group", "splits": "split", "sources": "source", "attributes": "attributes"}
_LONG_TEXTS = ("source", "attributes")  # kept as objects, where one long text would widen all
_INSTANCE_LABELS = "instance_labels"  # see `labels_text`
_OUTCOME, _COVARIATE = "outcome_", "covariate_"


@dataclass(frozen=True)
class RowFacts:
    """Facts about a file of rows: the little-endian type of its numbers, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, rows: NDArray[Any] | Rows, count: int) -> "RowFacts":
        """Return the facts about a file of this number of rows."""
        return cls(rows.dtype.newbyteorder("<").str, (count, *rows.shape[1:]))

    @property
    def header(self) -> bytes:
        """First bytes of the file, as numpy writes them."""
        buffer = io.BytesIO()
        content = {"descr": self.dtype, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(buffer, content)
        return buffer.getvalue()

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return len(self.header) + np.dtype(self.dtype).itemsize * math.prod(self.shape)

    def open(self, path: Path, reads: ReadsName) -> RowFile:
        """Open the file; refuse one of another size or form."""
        header, size = self.header, path.stat().st_size if path.is_file() else 0
        if size != self.bytes:
            raise BagDataError(f"Expected {self.bytes} bytes, got {size} (in {path}); it was changed: import it again.")
        with path.open("rb") as file:
            if file.read(len(header)) != header:
                raise BagDataError(
                    f"Expected {self.dtype} {list(self.shape)}, got another header (in {path}); import it again."
                )
        return RowFile(path, shape=self.shape, dtype=self.dtype, reads=reads, offset=len(header))


@dataclass(frozen=True)
class TargetFacts:
    """Target and names of the bags' outcome; the bag table holds its values."""

    target: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """Content of ``store.json``; `feature_names`, `source`, `cut`, `classes` and `left_out` are those of `Bags`.

    `table` is the SHA-256 of the bag table. `covariates` are the kinds of the bags' covariates by name; the bag table
    holds their columns.
    """

    instances: RowFacts
    coords: RowFacts | None
    table: str
    feature_names: tuple[str, ...] | None
    source: str
    cut: dict[str, Any] | None
    classes: TwoNames | None = None
    outcome: TargetFacts | None = None
    covariates: dict[str, str] | None = None
    left_out: tuple[LeftOut, ...] = ()

    def to_json(self) -> str:
        """Return the text of ``store.json``, with its own checksum."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n"


def read_description(folder: Path) -> Description:
    """Read ``store.json``; refuse a folder that is not a store, another version, and a changed file."""
    path = folder / DESCRIPTION
    content = read_json(path)
    if content is None:
        raise BagDataError(
            f"Expected a store, got no complete {DESCRIPTION} (in {folder}); repeat the command of a stopped import "
            "to continue it."
        )
    version = content.get("version")
    if version != VERSION:
        raise BagDataError(
            f"Expected a store of version {VERSION}, got {version!r} (in {path}); read it with the midam that wrote it."
        )
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise BagDataError(f"Expected {DESCRIPTION} as it was written, got another (in {path}); import the data again.")
    with sound(f"{DESCRIPTION} of a store", path, advice="import the data again"):
        description = TypeAdapter(Description).validate_json(json.dumps(content), strict=True)
        for facts in filter(None, (description.instances, description.coords)):
            dtype, (_, *row_shape) = np.dtype(facts.dtype), facts.shape
            impossible = min(facts.shape) < 1 or not row_shape or math.prod(facts.shape) >= 2**60
            if dtype.kind not in "biuf" or dtype.newbyteorder("<").str != facts.dtype or impossible:
                raise ValueError(f"rows of {facts.dtype} {list(facts.shape)}")
    return description


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of ``store.json``; None if it is missing or incomplete."""
    try:
        content = parse_json(read_bytes(path, error=BagDataError))
    except ValueError:  # a `BagDataError` is one too
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT else None


def table_bytes(bags: Bags, digests: list[str], coords_digests: list[str]) -> bytes:
    """Return the bag table, CSV in UTF-8 with all texts in quotes."""
    outcome, covariates, labels = bags.outcome, bags.covariates, labels_of(bags)
    columns: dict[str, Any] = {"id": bags.ids, "size": bags.sizes, "label": bags.labels}
    columns |= {name: getattr(bags, field) for field, name in _TEXTS.items()}
    if outcome is not None:
        columns |= {f"{_OUTCOME}{number}": column for number, column in enumerate(outcome.values.T)}
    if covariates is not None:
        columns |= {f"{_COVARIATE}{name}": column for name, column in zip(covariates.names, covariates.columns)}
    if labels is not None:
        columns[_INSTANCE_LABELS] = [labels_text(part) for part in np.split(labels, np.cumsum(bags.sizes)[:-1])]
    columns |= {"digest": digests, "coords_digest": None if bags.coords is None else coords_digests}
    frame = pd.DataFrame({name: column for name, column in columns.items() if column is not None})
    text: str = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    return text.encode()


def read_table(path: Path, facts: Description) -> dict[str, Any]:
    """Read the bag table as parameters of `Bags`, and the digests of coordinates, if any; verify its digest."""
    content = read_bytes(path, error=BagDataError) if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != facts.table:
        raise BagDataError(f"Expected the bag table as written, got another or none (in {path}); import it again.")
    frame = pd.read_csv(io.BytesIO(content), dtype=object, keep_default_na=False)
    kinds = {f"{_COVARIATE}{name}": kind for name, kind in (facts.covariates or {}).items()}
    names = list(map(str, frame.columns))
    outcome = [name for name in names if name.startswith(_OUTCOME)]
    known = {*_TEXTS.values(), *kinds, *outcome, _INSTANCE_LABELS, "size", "label", "digest", "coords_digest"}
    if set(names) - known or not {"id", "size", "digest", *kinds} <= set(names):
        raise ValueError(f"the columns {', '.join(names)}")
    texts = {field: name for field, name in _TEXTS.items() if name in frame}
    fields: dict[str, Any] = {
        field: frame[name].to_numpy(dtype=object if name in _LONG_TEXTS else np.str_) for field, name in texts.items()
    }
    fields["sizes"] = frame["size"].to_numpy(np.str_).astype(np.int64)
    fields["labels"] = frame["label"].to_numpy(np.str_).astype(np.int64) if "label" in frame else None
    if fields["sizes"].min() < 1 or int(fields["sizes"].sum()) != facts.instances.shape[0]:
        raise ValueError(f"bags of other sizes than the {facts.instances.shape[0]} instances")
    fields["digests"] = digest_array(frame["digest"].to_numpy(), str(path))
    fields["coords_digests"] = digest_array(frame["coords_digest"].to_numpy(), str(path)) if facts.coords else None
    if (facts.outcome is None) != (not outcome):
        raise ValueError("an outcome without its names, or names without an outcome")
    if facts.outcome is not None:
        values = np.stack([_numbers(frame[name]) for name in outcome], axis=1)
        fields["outcome"] = TargetLabels.of(facts.outcome.target, values, names=facts.outcome.names)
    if kinds:
        columns = [
            _numbers(frame[name]) if kind == "number" else frame[name].to_numpy(np.str_) for name, kind in kinds.items()
        ]
        fields["covariates"] = _covariates(tuple(facts.covariates or ()), columns)
    if _INSTANCE_LABELS in frame:
        texts_of_bags = zip(frame[_INSTANCE_LABELS].tolist(), fields["sizes"].tolist(), strict=True)
        fields["instance_labels"] = np.concatenate([read_labels_text(text, size) for text, size in texts_of_bags])
    return fields


def _numbers(texts: "pd.Series[Any]") -> NDArray[np.float64]:
    """Return the numbers of a column, to the last bit, as numpy reads them; an empty field is NaN."""
    return texts.replace("", "nan").to_numpy(np.str_).astype(np.float64)


def _covariates(names: tuple[str, ...], columns: list[NDArray[Any]]) -> Covariates:
    """Return covariates of these names and columns; refuse infinite numbers."""
    if any(column.dtype.kind == "f" and np.isinf(column).any() for column in columns):
        raise ValueError("covariates that are not finite")
    texts = [name_array(column) if column.dtype.kind == "U" else column for column in columns]
    return Covariates(tuple(map(name_of, names)), tuple(texts))


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class DamagedBag:
    """A bag whose bytes in a file of the store are not those that were written.

    Examples
    --------
    A byte of the second bag changes after the store was written:

    >>> import tempfile
    >>> from midam.data.store import write_store
    >>> bags = Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1])
    >>> path = write_store(bags, Path(tempfile.mkdtemp()) / "store")
    >>> file = path / "instances.npy"
    >>> _ = file.write_bytes(file.read_bytes()[:-1] + b"?")
    >>> [damaged.bag for damaged in verify_store(path)]
    ['1']
    """

    bag: str
    file: str


def is_store(path: str | Path) -> bool:
    """Return whether a folder is a store of any version: it has a complete ``store.json``."""
    return read_json(path_of(path, "a store") / DESCRIPTION) is not None


def open_store(path: str | Path, *, reads: ReadsName = "auto") -> Bags:
    """Open a store; the instances stay on disk.

    Parameters
    ----------
    path : str or Path
        The folder.
    reads : {"auto", "mmap", "pread"}
        How instances are read; see `midam.data.on_disk.RowFile`.

    Returns
    -------
    Bags
        Their digests are known; several processes and threads can read them at once.

    Raises
    ------
    DataNotFoundError, BagDataError
        If there is no such folder; if it is not a store, is of another version, or a file is missing or changed.

    Examples
    --------
    >>> import tempfile
    >>> from midam.data.store import write_store
    >>> bags = Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1])
    >>> open_store(write_store(bags, Path(tempfile.mkdtemp()) / "store"))[1]
    array([[3., 4.],
           [5., 6.]])
    """
    return _open(path_of(path, "a store"), reads)[0]


def verify_store(path: str | Path, *, jobs: int = 1, on_bag: Callable[[int], None] | None = None) -> list[DamagedBag]:
    """Read a whole store, `jobs` bags at a time, and return those that differ from their digests, in order.

    `on_bag` is called with the position of each bag, once it is read.
    """
    bags, coords_digests = _open(path_of(path, "a store"), "pread")

    def damage(number: int) -> list[DamagedBag]:
        start, size = int(bags.starts[number]), int(bags.sizes[number])
        damaged_bags = []
        for (rows, digest), digests in zip(begun_hashes(bags), (bags.digests, coords_digests)):
            if isinstance(rows, Rows) and digests is not None:
                hash_rows(rows, start, size, digest)
                if digest.digest() != digests[number].tobytes():
                    damaged_bags.append(DamagedBag(str(bags.ids[number]), rows.paths[0].name))
        return damaged_bags

    damaged: list[DamagedBag] = []
    for number, part in read_ahead(range(len(bags)), damage, workers=jobs):
        damaged += part
        if on_bag is not None:
            on_bag(number)
    return damaged


def _open(path: Path, reads: ReadsName) -> tuple[Bags, NDArray[np.uint8] | None]:
    """Return the bags of a store, and the digests of their coordinates."""
    if not path.is_dir():
        raise DataNotFoundError(f"Expected the folder of a store, got none (in {path}); {nearby(path)}")
    facts = read_description(path)
    instances = facts.instances.open(path / INSTANCES, reads)
    coords = None if facts.coords is None else facts.coords.open(path / COORDS, reads)
    with sound("the bag table of a store", path / TABLE, advice="import the data again"):
        table = read_table(path / TABLE, facts)
        digests = table.pop("coords_digests")
        fields: dict[str, Any] = {"feature_names": facts.feature_names, "cut": facts.cut, "classes": facts.classes}
        bags = Bags(instances, coords=coords, source=str(path), left_out=facts.left_out, **fields, **table)
    return bags, digests
