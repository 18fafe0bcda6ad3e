"""Common parts of the benchmarks of large bags: empty stores, memory of a process, page cache, text for a page."""

import ctypes
import datetime
import hashlib
import mmap
import os
import platform
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

import midam
from midam.data.bags import Bags
from midam.data.on_disk import physical_memory
from midam.data.store.format import DESCRIPTION, INSTANCES, TABLE, Description, RowFacts, table_bytes
from midam.files import write_bytes, write_text

RESULTS = Path(__file__).parents[1] / "records"
MIB = 1 << 20
_PAGE = mmap.PAGESIZE


def measured_on() -> str:
    """Return date, versions and machine, for a page."""
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {midam.__version__}, torch {torch.__version__}, numpy "
        f"{np.__version__}, Python {platform.python_version()}, Linux {platform.release().split('-')[0]}, "
        f"{platform.machine()} CPU with {len(os.sched_getaffinity(0))} cores, {physical_memory() / 2**30:.0f} GiB of "
        "memory"
    )


def sparse_store(folder: Path, *, bags: int, size: int, width: int) -> Path:
    """Make a store of float16 zeros that need no disk space: the format of a store, without the import of its module.

    Every second bag is positive. The digests of the bags do not match their content, because nobody reads them here.
    """
    folder.mkdir(parents=True)
    facts = RowFacts("<f2", (bags * size, width))
    with (folder / INSTANCES).open("wb") as file:
        file.write(facts.header)
        file.truncate(facts.bytes)
    ids = np.array([f"bag-{number:05d}" for number in range(bags)])
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(bags)]
    return finish_store(folder, facts, ids=ids, size=size, digests=digests, source="zeros")


def finish_store(
    folder: Path, facts: RowFacts, *, ids: NDArray[np.str_], size: int, digests: list[str], source: str
) -> Path:
    """Write the bag table and the description of a store whose instances are written: bags of one size."""
    sizes, labels = np.full(len(ids), size, dtype=np.int64), np.arange(len(ids)) % 2
    bags = Bags(facts.open(folder / INSTANCES, "pread"), sizes=sizes, ids=ids, labels=labels, source=source)
    table = table_bytes(bags, {"instances": digests})
    write_bytes(folder / TABLE, table)
    write_text(folder / DESCRIPTION, Description.of(bags, table).to_json())
    return folder


def memory_mib(pid: int | str = "self") -> dict[str, float]:
    """Return the memory of a process in MiB: RssAnon (anonymous), RssFile (mapped files), VmHWM (highest resident)."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem", "VmHWM"):
            found[name] = int(value.split()[0]) / 1024
    return found


class AnonymousPeak:
    """Highest anonymous memory of this process while the block runs; a thread reads it every few milliseconds."""

    def __init__(self, *, every_s: float = 0.005) -> None:
        self.mib = 0.0
        self._every_s = every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, memory_mib()["RssAnon"])
            if self._end.wait(self._every_s):
                return


def forget(paths: Iterable[Path]) -> None:
    """Drop files from the page cache. Pages that a process maps stay, so unmap them first."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def resident_share(paths: Iterable[Path]) -> float:
    """Return the share of the pages of files in the page cache, by the system call mincore."""
    libc = ctypes.CDLL(None, use_errno=True)
    held = total = 0
    for path in paths:
        size = path.stat().st_size
        if not size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as mapped:
            pages = np.frombuffer(mapped, dtype=np.uint8)
            vector = np.zeros(-(-size // _PAGE), dtype=np.uint8)
            address = ctypes.c_void_p(pages.ctypes.data)
            failed = libc.mincore(address, ctypes.c_size_t(size), ctypes.c_void_p(vector.ctypes.data))
            number = ctypes.get_errno()
            del pages
        if failed:
            raise OSError(number, os.strerror(number), str(path))
        held, total = held + int((vector & 1).sum()), total + len(vector)
    return held / max(total, 1)
