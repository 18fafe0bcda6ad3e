"""The store: bags of any size in a folder, opened at once, read by position, verified bag by bag.

    instances.bin   the instances of all bags, bag after bag: little-endian, no header
    coords.bin      their coordinates, if there are any
    bags.npz        the bag table: ids, sizes, labels, groups, splits, covariates, sources, attributes, digests; and
                    witnesses
    store.json      what the files hold, and their digests; written last

Bag i is the rows ``sum(sizes[:i])`` to ``sum(sizes[:i + 1])``. Opening reads no instances.
"""

import hashlib
import io
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digests import begun_hashes, hash_rows
from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName, RowFile, Rows, read_ahead
from midam.data.sources.formats.open_file import sound
from midam.data.target_labels import TargetLabels
from midam.data.validate import TwoNames, name_array
from midam.errors import BagDataError, DataNotFoundError, path_of, require_counts
from midam.names import name_of, nearby
from midam.reading import parse_json, read_bytes

FORMAT = "midam store"
VERSION = 1
INSTANCES, COORDS, TABLE, DESCRIPTION = "instances.bin", "coords.bin", "bags.npz", "store.json"

# The bag table stores texts as the UTF-8 bytes of the distinct texts, their offsets, and the index of each bag's text
# (no index for ids, which all differ); digests take 32 bytes each.
TEXTS = ("ids", "groups", "splits", "sources", "attributes")
LONG_TEXTS = ("sources", "attributes")
WITNESSES = "witnesses"  # of all instances, 8 per byte
DIGESTS = ("digests", "coords_digests")
OUTCOME = "outcome"  # float64, several numbers per bag
COVARIATE = "covariate_"  # then its position among the names: float64 or str
_COLUMNS = (*TEXTS, *DIGESTS, "sizes", "labels")
_OFFSETS, _INDEX = "_offsets", "_index"
_TEXTS_AT_A_TIME = 65536


@dataclass(frozen=True)
class RowFacts:
    """Facts about a file of rows."""

    file: str  # name in the store
    dtype: str  # as numpy writes it, little-endian
    shape: tuple[int, ...]
    bytes: int

    @classmethod
    def of(cls, file: str, rows: int, dtype: "np.dtype[Any]", row_shape: tuple[int, ...]) -> "RowFacts":
        """Return the facts about a file with this number of rows."""
        little, shape = dtype.newbyteorder("<"), (rows, *row_shape)
        return cls(file, little.str, shape, int(little.itemsize * np.prod(shape, dtype=np.int64)))


@dataclass(frozen=True)
class TableFacts:
    """Facts about the file of the bag table."""

    file: str
    count: int  # bags
    bytes: int
    sha256: str


@dataclass(frozen=True)
class TargetFacts:
    """Target and names of the bags' outcome; the bag table holds its values."""

    target: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """Content of ``store.json``; `feature_names`, `source`, `cut`, `classes` and `left_out` are those of `Bags`.

    `covariates` are the names of the bags' covariates; the bag table holds their columns.
    """

    instances: RowFacts
    coords: RowFacts | None
    table: TableFacts
    feature_names: tuple[str, ...] | None
    source: str
    cut: dict[str, Any] | None
    classes: TwoNames | None = None
    outcome: TargetFacts | None = None
    covariates: tuple[str, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()

    def to_json(self) -> str:
        """Return the text of ``store.json``, with its own checksum."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        for name in ("outcome", "covariates", "left_out"):
            if not content[name]:
                del content[name]
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
        for facts, file in ((description.instances, INSTANCES), (description.coords, COORDS)):
            if facts is not None and facts != _as_written(facts, file):
                raise ValueError(f"contradictory facts about {file}")
        if description.table.file != TABLE:
            raise ValueError(f"the bag table {description.table.file!r} instead of {TABLE}")
    return description


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of ``store.json``; None if it is missing or incomplete."""
    try:
        content = parse_json(read_bytes(path, error=BagDataError))
    except ValueError:  # a `BagDataError` is one too
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT else None


def table_bytes(columns: dict[str, NDArray[Any] | None]) -> bytes:
    """Return the bag table as an uncompressed npz, without columns that are None."""
    arrays: dict[str, Any] = {}
    for name, column in columns.items():
        if column is not None:
            arrays |= _packed(name, column) if name in TEXTS else {name: column}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_table(folder: Path, facts: TableFacts) -> dict[str, NDArray[Any]]:
    """Read the columns of the bag table, one entry per bag, and the packed witnesses, if any; verify the digest."""
    path = folder / facts.file
    with sound("the bag table of a store", path, advice="import the data again"):
        columns = _decoded(_table_columns(path, facts))
        of_bags = {name: column for name, column in columns.items() if name not in (WITNESSES, OUTCOME)}
        known = [name for name in of_bags if name in _COLUMNS or name.startswith(COVARIATE)]
        shapes = {name: column.shape[:1] if name in DIGESTS else column.shape for name, column in of_bags.items()}
        wrong = [name for name in of_bags if name not in known or shapes[name] != (facts.count,)]
        wrong += [OUTCOME] if OUTCOME in columns and columns[OUTCOME].shape[:1] != (facts.count,) else []
        missing = [name for name in ("ids", "sizes", "digests") if name not in columns]
        if wrong or missing:
            raise ValueError(f"no {missing[0]}" if missing else f"{wrong[0]} that are not one for each of the bags")
    return columns


def _table_columns(path: Path, facts: TableFacts) -> dict[str, NDArray[Any]]:
    """Return the columns of the bag table as they are stored; its bytes, as many again, are freed on return."""
    content = read_bytes(path, error=BagDataError) if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != facts.sha256:
        raise BagDataError(f"Expected the bag table as written, got another or none (in {path}); import it again.")
    with np.load(io.BytesIO(content), allow_pickle=False) as table:
        return {name: table[name] for name in table.files}


def _decoded(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns of the bag table as `Bags` takes them."""
    decoded = {name: column for name, column in columns.items() if not name.endswith((_OFFSETS, _INDEX))}
    for name, column in decoded.items():
        if name in TEXTS:
            decoded[name] = _texts(name, columns)
        elif name in DIGESTS and (column.dtype != np.uint8 or column.shape[1:] != (32,)):
            raise ValueError(f"digests that are not 32 bytes each, but {column.dtype} {list(column.shape)}")
    return decoded


def unpack_witnesses(packed: NDArray[Any], rows: int) -> NDArray[np.bool_]:
    """Return which of the `rows` instances are witnesses, from the bits in the bag table; refuse another number."""
    if packed.dtype != np.uint8 or packed.shape != (-(-rows // 8),):
        raise ValueError(f"{WITNESSES} that are not one bit for each of the {rows} instances")
    return np.unpackbits(packed, count=rows).view(np.bool_)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _as_written(facts: RowFacts, file: str) -> RowFacts:
    """Return the facts about a file of rows as `midam data import` writes them; refuse impossible ones."""
    dtype, (rows, *row_shape) = np.dtype(facts.dtype), facts.shape
    if dtype.kind not in "biuf" or min(facts.shape) < 1 or not row_shape or math.prod(facts.shape) >= 2**60:
        raise ValueError(f"{facts.dtype} {list(facts.shape)} in {file}")
    return RowFacts.of(file, rows, dtype, tuple(row_shape))


def _packed(name: str, texts: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a column of texts; equal texts are stored once."""
    places: dict[str, int] = {}
    index = [places.setdefault(text, len(places)) for text in texts.tolist()]
    parts = [text.encode() for text in places]
    packed: dict[str, NDArray[Any]] = {
        name: np.frombuffer(b"".join(parts), np.uint8),
        name + _OFFSETS: np.cumsum([0, *(len(part) for part in parts)], dtype="<i8"),
    }
    return packed if name == "ids" else {**packed, name + _INDEX: np.array(index, dtype="<i8")}


def _texts(name: str, columns: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Return a column of texts: str of one width, or objects where a long text would widen all."""
    content, offsets = columns[name].tobytes(), columns[name + _OFFSETS]
    if name not in LONG_TEXTS and content.isascii():
        unique = _ascii_texts(columns[name], offsets)
    else:
        texts = [content[begin:end].decode() for begin, end in pairwise(offsets.tolist())]
        unique = np.array(texts, dtype=object if name in LONG_TEXTS else np.str_)
    return unique if name == "ids" else unique[columns[name + _INDEX]]


def _ascii_texts(content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return ASCII texts [N], decoded in chunks: a Python object for each of a million texts would be slow."""
    lengths = np.diff(offsets)
    if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(content) or (lengths < 0).any():
        raise ValueError("offsets of texts that are not those of their bytes")
    width = max(1, int(lengths.max(initial=0)))
    texts = np.zeros(len(lengths), dtype=f"U{width}")
    letters = texts.view(np.uint32).reshape(-1, width)
    for low in range(0, len(lengths), _TEXTS_AT_A_TIME):
        chunk = lengths[low : low + _TEXTS_AT_A_TIME]
        inside = np.arange(width) < chunk[:, None]
        letters[low : low + len(chunk)][inside] = content[offsets[low] : offsets[low + len(chunk)]]
    return texts


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
    >>> file = path / "instances.bin"
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
    require_counts(jobs=jobs)
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
    instances = _rows(path, facts.instances, reads)
    coords = None if facts.coords is None else _rows(path, facts.coords, reads)
    table: dict[str, Any] = read_table(path, facts.table)
    digests = table.pop("coords_digests", None)
    with sound("the bag table of a store", path / facts.table.file, advice="import the data again"):
        if int(table["sizes"].sum()) != len(instances):
            raise ValueError(f"bags of other sizes than the {len(instances)} instances")
        fields: dict[str, Any] = {"feature_names": facts.feature_names, "cut": facts.cut, "classes": facts.classes}
        fields["left_out"] = facts.left_out
        packed = table.pop(WITNESSES, None)
        fields["witnesses"] = None if packed is None else unpack_witnesses(packed, len(instances))
        values = table.pop(OUTCOME, None)
        if (values is None) != (facts.outcome is None):
            raise ValueError("an outcome without its names, or names without an outcome")
        if facts.outcome is not None and values is not None:
            fields["outcome"] = TargetLabels.of(facts.outcome.target, values, names=facts.outcome.names)
        columns = {int(name.removeprefix(COVARIATE)): table.pop(name) for name in list(table) if COVARIATE in name}
        fields["covariates"] = _covariates(columns, facts.covariates)
        bags = Bags(instances, coords=coords, source=str(path), **fields, **table)
    return bags, digests


def _covariates(columns: dict[int, NDArray[Any]], names: tuple[str, ...] | None) -> Covariates | None:
    """Return covariates of these names, from columns by position; refuse others with a `ValueError`."""
    arrays = [columns[place] for place in sorted(columns)]
    usable = all(x.dtype.kind == "U" or (x.dtype == np.float64 and not np.isinf(x).any()) for x in arrays)
    if sorted(columns) != list(range(len(names or ()))) or not usable:
        raise ValueError("covariates that are not finite numbers or texts, one column for each name")
    texts = [name_array(column) if column.dtype.kind == "U" else column for column in arrays]
    return None if names is None else Covariates(tuple(map(name_of, names)), tuple(texts))


def _rows(folder: Path, facts: RowFacts, reads: ReadsName) -> RowFile:
    path = folder / facts.file
    size = path.stat().st_size if path.is_file() else 0
    if size != facts.bytes:
        raise BagDataError(f"Expected {facts.bytes} bytes, got {size} (in {path}); it was changed: import it again.")
    return RowFile(path, shape=facts.shape, dtype=facts.dtype, reads=reads)
