"""What the files of a store hold, and how they are written: the bag table, and the description that is written last."""

import hashlib
import io
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import BagDataError

FORMAT = "midam store"
VERSION = 1
INSTANCES, COORDS, TABLE, DESCRIPTION = "instances.bin", "coords.bin", "bags.npz", "store.json"

# Of the bag table: text as UTF-8 bytes, digests as 32 bytes each.
TEXTS = ("ids", "groups", "splits", "sources", "attributes")
DIGESTS = ("digests", "coords_digests")


@dataclass(frozen=True)
class RowFacts:
    """A file of rows.

    Attributes
    ----------
    file : str
        Its name in the store.
    dtype : str
        Of the numbers, little-endian, as numpy writes it.
    shape : tuple of int
        [M, ...].
    bytes : int
        Size of the file.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @classmethod
    def of(cls, file: str, rows: int, dtype: "np.dtype[Any]", row_shape: tuple[int, ...]) -> "RowFacts":
        """Facts about a file of so many rows."""
        little = dtype.newbyteorder("<")
        shape = (rows, *row_shape)
        return cls(file, little.str, shape, int(little.itemsize * np.prod(shape, dtype=np.int64)))


@dataclass(frozen=True)
class Description:
    """What ``store.json`` says.

    Attributes
    ----------
    instances : RowFacts
        The instances of all bags, bag after bag.
    coords : RowFacts or None
        Their coordinates.
    table : dict
        Of the bag table: file, count (bags), bytes, sha256.
    feature_names : tuple of str or None
        Names of the features.
    source : str
        Where the bags came from.
    """

    instances: RowFacts
    coords: RowFacts | None
    table: dict[str, Any]
    feature_names: tuple[str, ...] | None
    source: str

    def to_json(self) -> str:
        """Text of ``store.json``, with a checksum of itself."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps({**content, "checksum": _checksum(content)}, indent=2) + "\n"


def read_description(folder: Path) -> Description:
    """Read ``store.json``, and check that it is whole.

    Raises
    ------
    BagDataError
        If the folder is no store, the store is of a newer version, or the file was changed.
    """
    path = folder / DESCRIPTION
    content = read_json(path)
    if content is None:
        raise BagDataError(
            f"Expected a store, got no whole {DESCRIPTION} (in {folder}); an import that was stopped is continued by "
            "the same command."
        )
    version = content.get("version")
    if version != VERSION:
        raise BagDataError(
            f"Expected a store of version {VERSION}, got {version!r} (in {path}); read it with the midam that wrote "
            "it, or a newer one."
        )
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise BagDataError(f"Expected {DESCRIPTION} as it was written, got another (in {path}); import the data again.")
    return Description(
        instances=_facts(content["instances"]),
        coords=None if content["coords"] is None else _facts(content["coords"]),
        table=content["table"],
        feature_names=None if content["feature_names"] is None else tuple(content["feature_names"]),
        source=content["source"],
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """Content of a store's description; None where there is none, half of one, or another thing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("format") == FORMAT else None


def table_bytes(columns: dict[str, NDArray[Any] | None]) -> bytes:
    """Bag table as an uncompressed npz; columns that are None are left out."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        if column is None:
            continue
        if name in TEXTS:
            found[name] = np.char.encode(column, "utf-8")
        elif name in DIGESTS:
            found[name] = np.frombuffer(bytes.fromhex("".join(column.tolist())), np.uint8).reshape(len(column), 32)
        else:
            found[name] = column
    buffer = io.BytesIO()
    np.savez(buffer, **found)
    return buffer.getvalue()


def read_table(folder: Path, facts: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Columns of the bag table, checked against its digest.

    Raises
    ------
    BagDataError
        If the file is missing or another than was written.
    """
    path = folder / str(facts["file"])
    content = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise BagDataError(
            f"Expected the bag table as it was written, got another or none (in {path}); import the data again."
        )
    found: dict[str, NDArray[Any]] = {}
    with np.load(io.BytesIO(content), allow_pickle=False) as table:
        for name in table.files:
            column = table[name]
            found[name] = _text(column) if name in TEXTS else _digits(column) if name in DIGESTS else column
    return found


def write_file(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk.

    Raises
    ------
    OSError
        Naming the file.
    """
    try:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _facts(content: dict[str, Any]) -> RowFacts:
    return RowFacts(content["file"], content["dtype"], tuple(content["shape"]), content["bytes"])


def _text(column: NDArray[Any]) -> NDArray[np.str_]:
    width = column.dtype.itemsize
    letters = np.frombuffer(column.tobytes(), np.uint8)
    # Plain ASCII is widened as numbers, many times faster than by a decoder: opening takes no longer than that.
    return _widened(letters, width) if (letters < 128).all() else np.char.decode(column, "utf-8")


def _digits(column: NDArray[Any]) -> NDArray[np.str_]:
    return _widened(np.frombuffer(column.tobytes().hex().encode(), np.uint8), 64)


def _widened(letters: NDArray[np.uint8], width: int) -> NDArray[np.str_]:
    return letters.astype(np.uint32).view(f"U{width}")
