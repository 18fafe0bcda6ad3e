"""The store: bags of any size in a folder, opened at once, read by position, verified bag by bag.

    instances.npy   the instances of all bags, bag after bag
    coords.npy      their coordinates, if there are any
    instance_labels.npy  known labels of the instances, if there are any: 1, 0, or NaN if unknown
    bags.csv        a row for each bag: id, size, label, group, split, ..., and the digests of its rows in these files
    store.json      names, origin and the digest of bags.csv; written last

Bag i is the rows ``sum(sizes[:i])`` to ``sum(sizes[:i + 1])``. Opening reads no instances.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digests import content_hash, hash_rows
from midam.data.instance_labels import labels_of
from midam.data.left_out import LeftOut
from midam.data.on_disk import ReadsName, RowFile, Rows, read_ahead
from midam.data.sources.formats.open_file import sound
from midam.data.target_labels import TargetLabels
from midam.data.validate import name_array
from midam.errors import BagDataError, DataNotFoundError, path_of
from midam.lazy_imports import pandas as pd
from midam.names import nearby
from midam.reading import parse_json, read_bytes

FORMAT = "midam store"
VERSION = 5
INSTANCES = "instances.npy"
# Files with a row for each instance, by the field of `Bags`.
ROWS = {"instances": INSTANCES, "coords": "coords.npy", "instance_labels": "instance_labels.npy"}
TABLE, DESCRIPTION = "bags.csv", "store.json"
# Columns of the bag table, by the field of `Bags`; covariates have a column each, and an outcome those of its target.
_TEXTS = {"ids": "id", "groups": "group", "splits": "split", "sources": "source", "attributes": "attributes"}
_LONG_TEXTS = ("source", "attributes")  # kept as objects, where one long text would widen all
_COVARIATE = "covariate_"
_ADVICE = "it was changed: import the data again"


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
        """Open the file; refuse one of another size or header."""
        header, size = self.header, path.stat().st_size if path.is_file() else 0
        if size == self.bytes:
            with path.open("rb") as file:
                if file.read(len(header)) == header:
                    return RowFile(path, shape=self.shape, dtype=self.dtype, reads=reads, offset=len(header))
        text = f"Expected {self.bytes} bytes, got {size} (in {path}), or not {self.dtype} {list(self.shape)}"
        raise BagDataError(f"{text}; {_ADVICE}.")


@dataclass(frozen=True)
class Description:
    """Content of ``store.json``; `feature_names`, `source`, `cut` and `left_out` are those of `Bags`.

    `rows` are the files of `ROWS` that the store has, and `table` is the SHA-256 of the bag table. `covariates` are the
    kinds of the bags' covariates by name, and `outcome` is the target and the names of their outcome; the bag table
    holds their columns.
    """

    rows: dict[str, RowFacts]
    table: str
    feature_names: tuple[str, ...] | None
    source: str
    cut: dict[str, Any] | None
    outcome: tuple[str, tuple[str, ...]] | None = None
    covariates: dict[str, str] | None = None
    left_out: tuple[LeftOut, ...] = ()

    @classmethod
    def of(cls, bags: Bags, table: bytes) -> "Description":
        """Describe the store of bags with this bag table."""
        outcome, covariates = bags.known_labels, bags.covariates
        return cls(
            rows={name: RowFacts.of(rows, bags.num_instances) for name, rows in row_arrays(bags).items()},
            table=hashlib.sha256(table).hexdigest(),
            **{name: getattr(bags, name) for name in ("feature_names", "source", "cut", "left_out")},
            outcome=None if outcome is None else (outcome.target, outcome.names),
            covariates=None if covariates is None else dict(zip(covariates.names, covariates.kinds)),
        )

    def to_json(self) -> str:
        """Return the text of ``store.json``, with its own checksum."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n"


def read_description(folder: Path) -> Description:
    """Read ``store.json``; refuse a folder that is not a store, another version, and a changed file."""
    path = folder / DESCRIPTION
    content = read_json(path)
    if content is None:
        got = f"no complete {DESCRIPTION} (in {folder})"
        raise BagDataError(f"Expected a store, got {got}; repeat the command of a stopped import to continue it.")
    version = content.get("version")
    if version != VERSION:
        raise BagDataError(f"Expected a store of version {VERSION}, got {version!r} (in {path}); import it again.")
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise BagDataError(f"Expected {DESCRIPTION} as it was written, got another (in {path}); {_ADVICE}.")
    with sound(f"{DESCRIPTION} of a store", path, advice=_ADVICE):
        return TypeAdapter(Description).validate_json(json.dumps(content), strict=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of ``store.json``; None if it is missing or incomplete."""
    try:
        content = parse_json(read_bytes(path, error=BagDataError))
    except ValueError:  # a `BagDataError` is one too
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT else None


def row_arrays(bags: Bags) -> dict[str, NDArray[Any] | Rows]:
    """Return the arrays of bags with a row for each instance, by the field of `Bags`, as far as they are known."""
    arrays = {"instances": bags.instances, "coords": bags.coords}
    arrays |= {} if labels_of(bags) is None else {"instance_labels": bags.instance_labels}
    return {name: rows for name, rows in arrays.items() if rows is not None}


def begun_hash(bags: Bags, name: str) -> "hashlib._Hash":
    """Begin the hash of a bag's rows in a file; that of its instances is the digest of its content."""
    little = bags.instances.dtype.newbyteorder("<")
    return content_hash(little, bags.instance_shape) if name == "instances" else hashlib.sha256()


def _digest_column(name: str) -> str:
    return "digest" if name == "instances" else f"{name}_digest"


def table_bytes(bags: Bags, digests: Mapping[str, Sequence[str]] | None = None) -> bytes:
    """Return the bag table, CSV in UTF-8 with all texts in quotes; `digests` are those of each bag, by file."""
    columns: dict[str, Any] = {"id": bags.ids, "size": bags.sizes}
    columns |= {} if bags.known_labels is None else bags.known_labels.columns()
    columns |= {name: getattr(bags, field) for field, name in _TEXTS.items()}
    if bags.covariates is not None:
        pairs = zip(bags.covariates.names, bags.covariates.columns)
        columns |= {f"{_COVARIATE}{name}": column for name, column in pairs}
    columns |= {_digest_column(name): values for name, values in (digests or {}).items()}
    frame = pd.DataFrame({name: column for name, column in columns.items() if column is not None})
    text: str = frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    return text.encode()


def _read_table(path: Path, facts: Description) -> tuple[dict[str, Any], dict[str, NDArray[np.uint8]]]:
    """Read the bag table as parameters of `Bags`, and the digests of each bag, by file."""
    frame = pd.read_csv(io.BytesIO(_verified(path, facts.table)), dtype=object, keep_default_na=False)
    fields: dict[str, Any] = {
        field: frame[name].to_numpy(dtype=object if name in _LONG_TEXTS else np.str_)
        for field, name in _TEXTS.items()
        if name in frame
    }
    fields["sizes"] = frame["size"].to_numpy(np.str_).astype(np.int64)
    if facts.outcome is not None:
        table = {str(name): frame[name].tolist() for name in frame}
        fields["outcome"] = TargetLabels.of_columns(*facts.outcome, table)
    digests = dict[str, NDArray[np.uint8]]()
    for name in facts.rows:
        digests[name] = np.frombuffer(bytes.fromhex("".join(frame[_digest_column(name)])), np.uint8).reshape(-1, 32)
    if facts.covariates:
        texts = {name: frame[f"{_COVARIATE}{name}"].to_numpy(np.str_) for name in facts.covariates}
        numbers = {name: np.where(x == "", "nan", x) for name, x in texts.items() if facts.covariates[name] == "number"}
        columns = (numbers[n].astype(np.float64) if n in numbers else name_array(texts[n]) for n in texts)
        fields["covariates"] = Covariates(tuple(texts), tuple(columns))
    return fields, digests


def _verified(path: Path, digest: str) -> bytes:
    """Return the bytes of a file; refuse those of another SHA-256."""
    content = read_bytes(path, error=BagDataError) if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise BagDataError(f"Expected {path.name} as it was written, got another or none (in {path}); {_ADVICE}.")
    return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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


def verify_store(
    path: str | Path, *, jobs: int = 1, on_bag: Callable[[int], None] | None = None
) -> list[tuple[str, str]]:
    """Read a whole store, `jobs` bags at a time; return bags and files whose bytes are not those that were written.

    `on_bag` is called with the position of each bag, once it is read.

    Examples
    --------
    A byte of the second bag changes after the store was written:

    >>> import tempfile
    >>> from midam.data.store import write_store
    >>> bags = Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1])
    >>> path = write_store(bags, Path(tempfile.mkdtemp()) / "store")
    >>> file = path / "instances.npy"
    >>> _ = file.write_bytes(file.read_bytes()[:-1] + b"?")
    >>> verify_store(path)
    [('1', 'instances.npy')]
    """
    bags, digests = _open(path_of(path, "a store"), "pread")
    arrays = row_arrays(bags)

    def damage(number: int) -> list[tuple[str, str]]:
        damaged = []
        for name, known in digests.items():
            digest = begun_hash(bags, name)
            hash_rows(arrays[name], int(bags.starts[number]), int(bags.sizes[number]), digest)
            if digest.digest() != known[number].tobytes():
                damaged.append((str(bags.ids[number]), ROWS[name]))
        return damaged

    damaged: list[tuple[str, str]] = []
    for number, part in read_ahead(range(len(bags)), damage, workers=jobs):
        damaged += part
        if on_bag is not None:
            on_bag(number)
    return damaged


def _open(path: Path, reads: ReadsName) -> tuple[Bags, dict[str, NDArray[np.uint8]]]:
    """Return the bags of a store, and the digests of their rows, by file."""
    if not path.is_dir():
        raise DataNotFoundError(f"Expected the folder of a store, got none (in {path}); {nearby(path)}")
    facts = read_description(path)
    with sound("a store", path, advice=_ADVICE):
        arrays: dict[str, Any] = {name: rows.open(path / ROWS[name], reads) for name, rows in facts.rows.items()}
        fields, digests = _read_table(path / TABLE, facts)
        if "instance_labels" in arrays:
            arrays["instance_labels"] = arrays["instance_labels"][:]
        fields |= {name: getattr(facts, name) for name in ("feature_names", "cut", "left_out")}
        return Bags(**arrays, digests=digests["instances"], source=str(path), **fields), digests
