"""The store: bags of any size in a folder, opened at once, read by position, verified bag by bag.

    instances.bin   the instances of all bags, bag after bag: little-endian, no header
    coords.bin      their coordinates, if there are any
    bags.npz        the bag table: ids, sizes, labels, groups, splits, covariates, sources, attributes, digests; and
                    witnesses
    store.json      what the files hold, and their digests; written last

Bag i is the rows ``sum(sizes[:i])`` to ``sum(sizes[:i + 1])``. Opening reads no instances.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.covariates import Covariates
from midam.data.digests import content_hash, hash_rows
from midam.data.on_disk import ReadsName, RowFile, Rows
from midam.data.sources.formats.open_file import sound
from midam.data.store.format import (
    COVARIATE,
    DESCRIPTION,
    OUTCOME,
    WITNESSES,
    RowFacts,
    read_description,
    read_json,
    read_table,
    unpack_witnesses,
)
from midam.data.target_labels import TargetLabels
from midam.data.validate import name_array
from midam.errors import BagDataError, DataNotFoundError, path_of
from midam.names import name_of


@dataclass(frozen=True)
class DamagedBag:
    """Id of a bag whose bytes in a file of the store are not those that were written."""

    bag: str
    file: str


def is_store(path: str | Path) -> bool:
    """Whether a folder is a store, of any version: one with a whole ``store.json``."""
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
        They know their digests; several processes and threads can read them at once.

    Raises
    ------
    DataNotFoundError, BagDataError
        If there is no such folder; if it is no store, of another version, or a file is missing or changed.

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
        expected = [(bags.instances, content_hash(bags.instances.dtype, bags.instance_shape), bags.digests)]
        if bags.coords is not None:
            expected.append((bags.coords, sha256(), coords_digests))
        start, size = int(bags.starts[number]), int(bags.sizes[number])
        damaged_bags = []
        for rows, digest, digests in expected:
            if isinstance(rows, Rows) and digests is not None:
                hash_rows(rows, start, size, digest)
                if digest.digest() != digests[number].tobytes():
                    damaged_bags.append(DamagedBag(str(bags.ids[number]), rows.paths[0].name))
        return damaged_bags

    damaged: list[DamagedBag] = []
    with ThreadPoolExecutor(jobs, thread_name_prefix="midam-verify") as pool:
        for number, part in enumerate(pool.map(damage, range(len(bags)))):  # an error cancels what has not begun
            damaged += part
            if on_bag is not None:
                on_bag(number)
    return damaged


def _open(path: Path, reads: ReadsName) -> tuple[Bags, NDArray[np.uint8] | None]:
    """Bags of a store, and the digests of their coordinates."""
    if not path.is_dir():
        raise DataNotFoundError(f"Expected the folder of a store, got none (in {path}); check the path.")
    facts = read_description(path)
    instances = _rows(path, facts.instances, reads)
    coords = None if facts.coords is None else _rows(path, facts.coords, reads)
    table: dict[str, Any] = read_table(path, facts.table)
    digests = table.pop("coords_digests", None)
    with sound("the bag table of a store", path / facts.table.file, advice="import the data again"):
        if int(table["sizes"].sum()) != len(instances):
            raise ValueError(f"bags of other sizes than the {len(instances)} instances")
        known: dict[str, Any] = {"feature_names": facts.feature_names, "cut": facts.cut, "classes": facts.classes}
        known["left_out"] = facts.left_out
        packed = table.pop(WITNESSES, None)
        known["witnesses"] = None if packed is None else unpack_witnesses(packed, len(instances))
        values = table.pop(OUTCOME, None)
        if (values is None) != (facts.outcome is None):
            raise ValueError("an outcome without its names, or names without an outcome")
        if facts.outcome is not None and values is not None:
            known["outcome"] = TargetLabels.of(facts.outcome.target, values, names=facts.outcome.names)
        columns = {int(name.removeprefix(COVARIATE)): table.pop(name) for name in list(table) if COVARIATE in name}
        known["covariates"] = _covariates(columns, facts.covariates)
        bags = Bags(instances, coords=coords, source=str(path), **known, **table)
    return bags, digests


def _covariates(columns: dict[int, NDArray[Any]], names: tuple[str, ...] | None) -> Covariates | None:
    """Covariates of these names, of columns by their place; a `ValueError` for others."""
    arrays = [columns[place] for place in sorted(columns)]
    if sorted(columns) != list(range(len(names or ()))):
        raise ValueError("covariates without their names, or names without covariates")
    if not all(column.dtype.kind == "U" or column.dtype == np.float64 for column in arrays):
        raise ValueError("covariates that are neither numbers nor texts")
    if any(np.isinf(column).any() for column in arrays if column.dtype.kind == "f"):
        raise ValueError("covariates that are infinite")
    texts = [name_array(column) if column.dtype.kind == "U" else column for column in arrays]
    return None if names is None else Covariates(tuple(map(name_of, names)), tuple(texts))


def _rows(folder: Path, facts: RowFacts, reads: ReadsName) -> RowFile:
    path = folder / facts.file
    size = path.stat().st_size if path.is_file() else 0
    if size != facts.bytes:
        raise BagDataError(
            f"Expected {facts.bytes} bytes, got {size} (in {path}); the file was cut or changed: import the data again."
        )
    return RowFile(path, shape=facts.shape, dtype=facts.dtype, reads=reads)
