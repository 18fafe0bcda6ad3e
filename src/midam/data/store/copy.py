"""Files of rows, allocated at the start of an import and filled by several threads at once."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.digests import content_hash
from midam.data.on_disk import Rows, bytes_of
from midam.data.store.format import RowFacts
from midam.data.store.plan import WrittenBag
from midam.data.validate import refuse_not_finite, row_chunks
from midam.files import Journal, allocate
from midam.plain_files import open_own

_COMMIT_SECONDS = 0.5  # at most so much of the work is done again after a kill
_BLOCK_BAGS, _BLOCK_BYTES = 256, 1 << 23  # neighboring small bags are one piece of work


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
        try:
            for path, fact in zip(self.paths, facts, strict=True):
                with _named(path):
                    self._files.append(open_own(path))
                    allocate(self._files[-1], fact.bytes)
        except OSError:
            self.close()
            raise

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

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


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
            failed = True  # a second try would note what the disk has refused
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
    digest = content_hash(bags.instances.dtype.newbyteorder("<"), bags.instance_shape)
    span = (int(bags.starts[number]), int(bags.sizes[number]))
    file = bags.source if bags.sources is None else str(bags.sources[number])
    for offset, chunk in _chunks(bags.instances, span, stop):
        refuse_not_finite(chunk, offset, bag=bags.ids[number], source=file)
        digest.update(chunk.data)
        files.write(0, chunk, (start + offset) * chunk[0].nbytes)
    if bags.coords is None:
        return WrittenBag(number, digest.hexdigest(), None)
    checksum = hashlib.sha256()
    for offset, chunk in _chunks(bags.coords, span, stop):
        checksum.update(chunk.data)
        files.write(1, chunk, (start + offset) * chunk[0].nbytes)
    return WrittenBag(number, digest.hexdigest(), checksum.hexdigest())


def _chunks(
    rows: NDArray[Any] | Rows, span: tuple[int, int], stop: threading.Event
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Little-endian chunks of a bag, each with the position of its first row in the bag."""
    first, size = span
    little = rows.dtype.newbyteorder("<")
    for low, high in row_chunks(rows, np.array([first]), np.array([size])):
        if stop.is_set():
            raise _StoppedError
        yield low - first, np.ascontiguousarray(rows[low:high], dtype=little)


class _StoppedError(Exception):
    """A worker was told to stop in the middle of a bag."""


def _blocks(bags: Bags, done: dict[int, WrittenBag]) -> Iterator[list[int]]:
    """Bags that are left, neighboring small ones together."""
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
