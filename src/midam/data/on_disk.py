"""Instances that stay on disk, and what fits into memory.

`Rows` are read by position, never as a whole; `RowFile` is the flat file of a store.
"""

import mmap
import os
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from midam.errors import BagDataError, ConfigError
from midam.files import size_text
from midam.lazy_imports import torch

ReadsName = Literal["auto", "mmap", "pread"]
Job = TypeVar("Job")
Found = TypeVar("Found")

_LONG_RUN = 32  # consecutive rows from which one read is faster than a gather
_USUAL_MEMORY = 8 * 2**30
_MAPPED_SHARE = 0.25  # files up to this share of the machine's memory are mapped


class Rows(ABC):
    """M instances [M, ...] that are read by position; a subclass sets `shape` and `dtype`, and reads with `gather`.

    Several threads may read at once. Pickling carries paths, not handles: another process opens the files again.

    Examples
    --------
    Instances that are computed when they are read:

    >>> class Squares(Rows):
    ...     shape, dtype = (5, 1), np.dtype(np.float32)
    ...
    ...     def gather(self, positions):
    ...         return (positions[:, None] ** 2).astype(self.dtype)
    >>> rows = Squares()
    >>> rows[1:4].tolist(), rows.nbytes
    ([[1.0], [4.0], [9.0]], 20)
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    paths: tuple[Path, ...] = ()  # files that the instances are read from, if known
    plan: str = ""  # the options with which the rows are made from the files
    chunk_bytes: int = 0  # bytes that are read at a time; 0: the default
    origin: tuple[str, ...] = ()  # digests of the data that the rows are computed from, if no file holds it

    @abstractmethod
    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the instances at `positions` [m], in any order: [m, ...]."""

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the instances low, ..., high - 1."""
        return self.gather(np.arange(low, high))

    def close(self) -> None:
        """Close open files; a later read opens them again."""
        return

    def take(self, positions: ArrayLike) -> NDArray[Any]:
        """Copy the instances at `positions` of any shape, or of a mask [M]: ``[*positions.shape, *shape[1:]]``.

        A long run of consecutive rows is one read.
        """
        positions = row_positions(positions, len(self))
        flat = positions.reshape(-1)
        if not len(flat):
            return np.empty((*positions.shape, *self.shape[1:]), self.dtype)
        if flat.min() < 0 or flat.max() >= len(self):
            raise IndexError(f"Expected positions from 0 to {len(self) - 1}, got {flat.min()} to {flat.max()}.")
        opens = np.flatnonzero(np.append(True, np.diff(flat) != 1))
        if len(flat) < _LONG_RUN * len(opens):
            rows = self.gather(flat)
        elif len(opens) == 1:
            rows = self.read(int(flat[0]), int(flat[-1]) + 1)
        else:
            rows = np.empty((len(flat), *self.shape[1:]), self.dtype)
            for begin, end in zip(opens.tolist(), [*opens[1:].tolist(), len(flat)]):
                rows[begin:end] = self.read(int(flat[begin]), int(flat[end - 1]) + 1)
        return rows.reshape(*positions.shape, *self.shape[1:])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if isinstance(index, slice):
            low, high, step = index.indices(len(self))
            return self.read(low, max(low, high)) if step == 1 else self.take(np.arange(low, high, step))
        return self.take(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        raise BagDataError(f"Expected a read of some instances, got one of all {len(self)}; read chunks, by position.")

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of one instance."""
        return int(self.itemsize * np.prod(self.shape[1:], dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of all instances."""
        return self.row_bytes * len(self)


class RowFile(Rows):
    """Instances in one flat file, row after row; a file that changes once it is opened is refused.

    Parameters
    ----------
    path : str or Path
        The file.
    shape, dtype
        Shape [M, ...] of the instances, and the little-endian type of their numbers.
    reads : {"auto", "mmap", "pread"}
        "mmap" gathers fastest, but touched pages count as resident memory until the system takes them back. "pread"
        copies each row by a system call; a scan then drops the rows from the page cache. "auto": mmap for a file of at
        most a quarter of the machine's memory.
    offset : int, default 0
        Bytes of the file before its first row.
    stamp : tuple of int, optional
        Size and modification time that the file must have; default: its present ones.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.bin"
    >>> np.arange(6, dtype="<f4").tofile(path)
    >>> rows = RowFile(path, shape=(3, 2), dtype="<f4")
    >>> rows[[2, 0]].tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    >>> rows.close()
    """

    def __init__(
        self,
        path: str | Path,
        *,
        shape: tuple[int, ...],
        dtype: Any,
        reads: ReadsName = "auto",
        offset: int = 0,
        stamp: tuple[int, int] | None = None,
    ) -> None:
        self.path = Path(path)
        self.paths = (self.path,)
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.reads, self.offset = reads, offset
        self._stamp = stamp_of(self.path.stat()) if stamp is None else stamp
        self.mapped = self.nbytes > 0 and (
            reads == "mmap" or (reads == "auto" and self.nbytes <= _MAPPED_SHARE * physical_memory())
        )
        self._lock = threading.Lock()
        self._file: FileIO | None = None
        self._map: NDArray[Any] | None = None

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the instances at `positions` [m]."""
        file, width = self._open(), self.row_bytes
        if self.mapped:
            return np.take(self._mapped(file), positions, axis=0)
        rows, starts = np.empty((len(positions), *self.shape[1:]), self.dtype), self.offset + positions * width
        view = bytes_of(rows)
        for start in starts.tolist():  # a disk serves rows that are announced at once faster than one after the other
            _advise(file, start, width, "POSIX_FADV_WILLNEED")
        for number, start in enumerate(starts.tolist()):
            self._fill(file, view[number * width : (number + 1) * width], start)
        return rows

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the instances low, ..., high - 1; drop them from the page cache unless the file is mapped."""
        rows = np.empty((high - low, *self.shape[1:]), self.dtype)
        if rows.size:
            file, start = self._open(), self.offset + low * self.row_bytes
            self._fill(file, bytes_of(rows), start)
            if not self.mapped:
                _advise(file, start, rows.nbytes, "POSIX_FADV_DONTNEED")
        return rows

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = self._map = None

    def __reduce__(self) -> tuple[Any, ...]:
        known: dict[str, Any] = {"reads": self.reads, "offset": self.offset, "stamp": self._stamp}
        return partial(RowFile, shape=self.shape, dtype=self.dtype.str, **known), (str(self.path),)

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # else the constructor failed
            self.close()

    def _fill(self, file: FileIO, view: memoryview, start: int) -> None:
        while view:
            if hasattr(os, "preadv"):
                count = os.preadv(file.fileno(), [view], start)
            else:
                with self._lock:
                    file.seek(start)
                    count = file.readinto(view)
            if not count:
                raise BagDataError(f"Expected more bytes at {start}, got the end (in {self.path}); write it again.")
            view, start = view[count:], start + count

    def _open(self) -> FileIO:
        """Open the file, once; refuse a changed one: to read a mapped page beyond its end kills the process."""
        with self._lock:
            self._file = file = self._file or FileIO(self.path)
        if stamp_of(os.fstat(file.fileno())) != self._stamp:
            raise BagDataError(f"Expected the file as it was opened, got a changed one (in {self.path}); restore it.")
        return file

    def _mapped(self, file: FileIO) -> NDArray[Any]:
        with self._lock:
            if self._map is None:
                mapped = np.memmap(file, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)
                if hasattr(mmap, "MADV_RANDOM"):
                    mapped._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
                self._map = np.asarray(mapped)
            return self._map


def stamp_of(status: os.stat_result) -> tuple[int, int]:
    """Return size and modification time of a file, which tell whether it has changed."""
    return status.st_size, status.st_mtime_ns


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the memory of a contiguous array."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def _advise(file: FileIO, start: int, size: int, advice: str) -> None:
    """Tell the system how a part of a file will be used, where it supports such advice."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), start, size, getattr(os, advice))


def row_positions(index: ArrayLike, rows: int) -> NDArray[np.int64]:
    """Return the positions of an index array of any shape, or of a mask over this number of rows."""
    array = np.asarray(index)
    if array.dtype == np.bool_ and array.shape != (rows,):
        raise IndexError(f"Expected a mask of {rows} values, got shape {array.shape}; give one for each instance.")
    return np.flatnonzero(array) if array.dtype == np.bool_ else array.astype(np.int64, copy=False)


def physical_memory() -> int:
    """Return the bytes of memory of this machine; 8 GiB if unknown."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else _USUAL_MEMORY


def on_disk(array: object) -> bool:
    """Return whether the instances are read from disk instead of held in memory."""
    return isinstance(array, Rows | np.memmap)


def read_ahead(
    jobs: Iterable[Job], read: Callable[[Job], Found], *, workers: int
) -> Generator[tuple[Job, Found], None, None]:
    """Yield each job with its result of `read`, in order; W `workers` (threads) read up to 2 W jobs ahead.

    Without workers, the caller reads. The threads end with the iterator: when it is exhausted, closed, or fails. An
    error of `read` is raised where the caller asks for its job.
    """
    if workers == 0:
        for job in jobs:
            yield job, read(job)
        return
    source = iter(jobs)
    pending: deque[tuple[Job, Future[Found]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="midam-read")
    try:
        while True:
            pending.extend((job, pool.submit(read, job)) for job in islice(source, 2 * workers - len(pending)))
            if not pending:
                return
            job, future = pending.popleft()
            # If no thread has begun the job, reading it here is faster than waiting.
            value = read(job) if future.cancel() else future.result()
            # Only the caller may hold the value: a reference here would keep one more chunk in memory.
            del future
            yield job, value
            del value
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


ON_DISK = "write a file for each bag, such as .npy, and let `midam data import` make a store that stays on the disk"


def free_memory(device: "torch.device | None" = None) -> int:
    """Return the free bytes of a device; on the CPU (default), those that the system, container or job leaves."""
    if device is not None and device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return min((left for left in (_available(), _granted()) if left is not None), default=physical_memory())


def require_memory(needed: int, *, device: "torch.device", source: str) -> None:
    """Refuse to keep all instances on a device, as the setting `resident` asks, where they do not fit."""
    free = free_memory(device)
    if needed > free:
        wanted = f"{size_text(needed)} of free memory on the device {device}, where `resident=True` keeps all instances"
        raise ConfigError(f"Expected {wanted}, got {size_text(free)} (in {source}); leave out `resident`.")


def fits(needed: int) -> bool:
    """Return whether this number of bytes of memory is free."""
    return needed <= free_memory()


def require_free(needed: int, content: str, *, source: str) -> None:
    """Refuse to read data that does not fit into memory."""
    free = free_memory()
    if needed > free:
        raise BagDataError(
            f"Expected data that fits into the {size_text(free)} of free memory, got {content} that takes about "
            f"{size_text(needed)} (in {source}); use a machine with more memory, or {ON_DISK}."
        )


def _available(path: Path = Path("/proc/meminfo")) -> int | None:
    """Return the bytes that Linux reports as available."""
    with suppress(OSError):
        match = re.search(r"^MemAvailable: *(\d+) kB", path.read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match else None
    return None


def _granted(process: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that the container or the job of this process leaves to it; None without a limit."""
    left: list[int] = []
    lines = process.read_text().splitlines() if process.exists() else []
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, limit, used = (mount, "memory.max", "anon")
        if controllers:
            root, limit, used = (mount / "memory", "memory.limit_in_bytes", "total_rss")
        folder = root / path.lstrip("/")
        # The limit of a group applies to the groups inside it.
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            with suppress(OSError, ValueError):
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                left.append(int((group / limit).read_text()) - int(stat.get(used, 0)))
    return max(0, min(left)) if left else None
