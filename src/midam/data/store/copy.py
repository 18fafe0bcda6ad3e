"""Files of rows, allocated at the start of an import and filled by several threads; and the plan of the import."""

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.digests import bag_digests, begun_hashes, described, hash_rows
from midam.data.on_disk import Rows, bytes_of
from midam.data.store.format import TEXTS, RowFacts
from midam.data.validate import refuse_not_finite, row_chunks
from midam.data.witnesses import marks_of
from midam.files import Journal, allocate
from midam.plain_files import open_own

_DIGEST = re.compile(r"[0-9a-f]{64}")
_COMMIT_SECONDS = 0.5  # work that is repeated after a kill, at most
_BLOCK_BAGS, _BLOCK_BYTES = 256, 1 << 23  # neighboring small bags are one piece of work


class WrittenBag(NamedTuple):
    """A bag whose rows are in the files of the store, with the digests of its content and coordinates."""

    number: int
    digest: str
    coords_digest: str | None


def written_bags(journal: Journal, plan: str, count: int) -> list[WrittenBag] | None:
    """Return the bags of a journal of this plan; None for another plan.

    The journal is cut at the first row that is not one of the `count` bags.
    """
    if not journal.rows and journal.damaged is None:
        return []
    if journal.rows[:1] != [plan]:
        return None
    rows = list(takewhile(lambda row: _is_bag(row, count), journal.rows[1:]))
    bags = {row[0]: WrittenBag(*row) for row in rows}
    journal.keep(len(rows) + 1)
    return list(bags.values())


def _is_bag(row: Any, count: int) -> bool:
    if not isinstance(row, list) or len(row) != len(WrittenBag._fields):
        return False
    number, *digests = row if row[2] is not None else row[:2]
    is_number = type(number) is int and 0 <= number < count
    return is_number and all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests)


def plan_digest(bags: Bags) -> str:
    """Return the SHA-256 of a store's future content: files by path, size, time and options, memory by content."""
    files, marks = _files(bags), marks_of(bags)
    origin = list(getattr(bags.instances, "origin", ()))  # digests of the source, which is faster
    stamps = {path: stamp(path) for path in dict.fromkeys(files)}  # coordinates mostly share the instances' files
    plan: dict[str, Any] = {
        "ids": bags.ids.tolist(),
        "sizes": bags.sizes.tolist(),
        "labels": None if bags.labels is None else bags.labels.tolist(),
        "texts": {name: None if getattr(bags, name) is None else getattr(bags, name).tolist() for name in TEXTS[1:]},
        "dtype": bags.instances.dtype.str,
        "shape": bags.instance_shape,
        "coords": None if bags.coords is None else [bags.coords.dtype.str, *bags.coords.shape[1:]],
        "witnesses": None if marks is None else hashlib.sha256(np.packbits(marks).tobytes()).hexdigest(),
        "feature_names": bags.feature_names,
        "cut": bags.cut,
        "classes": bags.classes,
        "source": bags.source,
        "starts": bags.starts.tolist(),
        "rows": bags.instances.plan if isinstance(bags.instances, Rows) else "",
        "files": [stamps[path] for path in files] if files else [origin or bag_digests(bags), _coords_digest(bags)],
    }
    if bags.outcome is not None:
        plan["outcome"] = described(bags.outcome)
    if bags.covariates is not None:
        plan["covariates"] = bags.covariates.values()
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _files(bags: Bags) -> list[Path]:
    """Return the files of instances and coordinates; an empty list if a part of them is only in memory."""
    paths: list[Path] = []
    for rows in (bags.instances, bags.coords):
        if rows is None:
            continue
        files: Any = rows.paths if isinstance(rows, Rows) else (getattr(rows, "filename", None),)
        if not files or None in files:
            return []
        paths += [Path(file) for file in files]
    return paths


def stamp(path: Path) -> list[Any]:
    """Return path, size and time of a file, or of all files in a folder, whose own time ignores their content."""
    if path.is_dir():
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [str(path), [stamp(file) for file in files]]
    facts = path.stat()
    return [str(path), facts.st_size, facts.st_mtime_ns]


def _coords_digest(bags: Bags) -> str | None:
    if bags.coords is None:
        return None
    digest = hashlib.sha256()
    for start, size in zip(bags.starts.tolist(), bags.sizes.tolist()):
        hash_rows(bags.coords, start, size, digest)
    return digest.hexdigest()


@dataclass
class ImportProgress:
    """Bags that an import has written, by position; `on_bag` is called with each position."""

    on_bag: Callable[[int], None]
    done: dict[int, WrittenBag] = field(default_factory=dict)

    def add(self, bag: WrittenBag) -> None:
        """Count a bag."""
        self.done[bag.number] = bag
        self.on_bag(bag.number)


class RowFiles:
    """The files of rows in a folder; errors name the file."""

    def __init__(self, folder: Path, facts: Sequence[RowFacts]) -> None:
        self.paths = [folder / fact.file for fact in facts]
        self._locks = [threading.Lock() for _ in facts]
        self._files: list[FileIO] = []
        with ExitStack() as opened:  # if one cannot be opened, all are closed
            for path, fact in zip(self.paths, facts, strict=True):
                with _named(path):
                    self._files.append(opened.enter_context(open_own(path)))
                    allocate(self._files[-1], fact.bytes)
            self.close = opened.pop_all().close

    def write(self, number: int, content: NDArray[Any], offset: int) -> None:
        """Write rows to file `number` from byte `offset` on."""
        view = bytes_of(content)
        with _named(self.paths[number]), self._locks[number]:
            self._files[number].seek(offset)
            while view:
                view = view[self._files[number].write(view) or 0 :]

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        for file in self._files:
            os.fsync(file.fileno())


def write_rows(
    bags: Bags, starts: NDArray[np.int64], files: RowFiles, journal: Journal, *, jobs: int, progress: ImportProgress
) -> None:
    """Write the bags that are not in the journal, and add them to it once their bytes are on the disk."""
    stop = threading.Event()
    fresh: list[WrittenBag] = []
    committed = time.monotonic()
    failed = False

    def write_block(numbers: list[int]) -> list[WrittenBag]:
        written: list[WrittenBag] = []
        with suppress(_StoppedError):
            for number in numbers:
                written.append(_write_bag(bags, number, int(starts[number]), files, stop))
        return written

    def commit() -> None:
        nonlocal failed
        try:
            files.sync()
            journal.add(fresh)
        except OSError:
            failed = True  # a second try would record bags that the disk has refused
            raise
        fresh.clear()

    with ThreadPoolExecutor(jobs, thread_name_prefix="midam-import") as pool:
        futures = [pool.submit(write_block, block) for block in _blocks(bags, progress.done)]
        try:
            for future in as_completed(futures):
                for bag in future.result():
                    fresh.append(bag)
                    progress.add(bag)
                if time.monotonic() - committed > _COMMIT_SECONDS:
                    commit()
                    committed = time.monotonic()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            ended = [future for future in futures if not future.cancelled() and future.exception() is None]
            written = {bag.number: bag for future in ended for bag in future.result()}
            fresh.extend(bag for number, bag in written.items() if number not in progress.done)
            progress.done.update(written)
            raise
        finally:
            if fresh and not failed:
                commit()


def _write_bag(bags: Bags, number: int, start: int, files: RowFiles, stop: threading.Event) -> WrittenBag:
    """Copy one bag to its place."""
    source = bags.source if bags.sources is None else str(bags.sources[number])
    parts = begun_hashes(bags)
    for file, (rows, digest) in enumerate(parts):
        for low, high in row_chunks(rows, bags.starts[[number]], bags.sizes[[number]]):
            if stop.is_set():
                raise _StoppedError
            chunk = np.ascontiguousarray(rows[low:high], dtype=rows.dtype.newbyteorder("<"))
            offset = low - int(bags.starts[number])
            if rows is bags.instances:
                refuse_not_finite(chunk, slice(offset, None), f"{source}, bag {bags.ids[number]}")
            digest.update(chunk.data)
            files.write(file, chunk, (start + offset) * chunk[0].nbytes)
    digests = [digest.hexdigest() for _, digest in parts]
    return WrittenBag(number, digests[0], None if bags.coords is None else digests[1])


class _StoppedError(Exception):
    """A worker was told to stop in the middle of a bag."""


def _blocks(bags: Bags, done: dict[int, WrittenBag]) -> Iterator[list[int]]:
    """Yield blocks of the bags that are not done; neighboring small bags share a block."""
    row_bytes = max(int(bags.instances.itemsize * np.prod(bags.instance_shape, dtype=np.int64)), 1)
    most = getattr(bags.instances, "block_bags", 0) or _BLOCK_BAGS
    block: list[int] = []
    size = 0
    for number in [number for number in range(len(bags)) if number not in done]:
        block.append(number)
        size += int(bags.sizes[number]) * row_bytes
        if size >= _BLOCK_BYTES or len(block) == most:
            yield block
            block, size = [], 0
    if block:
        yield block


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let a system error name the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
