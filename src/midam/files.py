"""Files that survive a crash: written whole or not at all, held by one process, and journals of what is done."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from midam.errors import MidamError

LOCK = ".lock"


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it; its folder is made.

    An `OSError` leaves the old file as it was; its `filename` is `path`.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        # Where nothing could be made there is nothing to remove, and the first error is the one to tell.
        with suppress(OSError):
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write text in UTF-8 as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON as `write_bytes` does; a value that is not finite is an error."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


@contextmanager
def held(path: Path, *, busy: MidamError) -> Iterator[None]:
    """Hold a file, whose folder is made, or a folder that exists; `busy` is raised where another process holds it.

    A file ``PATH.lock`` (in a folder ``.lock``) stands for it meanwhile. One that a killed process has left holds
    nothing.
    """
    beside = path / LOCK if path.is_dir() else path.with_name(path.name + LOCK)
    beside.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(beside, blocking=False, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        # Removed while it is held: who waits for it finds that it has no name left, and begins anew. Windows removes no
        # open file.
        with suppress(OSError):
            beside.unlink()
        lock.release()
        if os.name == "nt":
            with suppress(OSError):
                beside.unlink()


class Journal:
    """What is done, a line of JSON each, in a file that one process at a time appends to; made if missing.

    A line that a crash cut off is dropped when the file is opened. Leave the context, or call `close`, to let go;
    `busy` is raised where another process holds the file. `rows` are what the lines say, up to the first that is no
    JSON, whose number (from 1) is `damaged`, else None.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "done.jsonl"
    >>> with Journal(path, busy=MidamError("busy")) as journal:
    ...     journal.add([{"bag": "a"}, {"bag": "b"}])
    >>> with Journal(path, busy=MidamError("busy")) as journal:
    ...     journal.rows
    [{'bag': 'a'}, {'bag': 'b'}]
    """

    def __init__(self, path: Path, *, busy: MidamError) -> None:
        self.path = path
        with ExitStack() as stack:
            stack.enter_context(held(path, busy=busy))
            self._file = stack.enter_context(path.open("ab", buffering=0))
            self.rows, self.damaged, size = _read(path.read_bytes())
            if self.damaged is None:
                self._file.truncate(size)
            self._stack = stack.pop_all()

    def add(self, rows: Iterable[Any]) -> None:
        """Append rows; they are on the disk when this returns, and none of them is if it fails."""
        new = list(rows)
        content = memoryview("".join(json.dumps(row) + "\n" for row in new).encode())
        size = os.fstat(self._file.fileno()).st_size
        try:
            while content:
                content = content[self._file.write(content) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)  # a full disk takes a part of a line
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.rows += new

    def keep(self, count: int) -> None:
        """Forget all but the first `count` rows, on the disk too."""
        self.rows = self.rows[:count]
        lines = self.path.read_bytes().split(b"\n")[:count]
        self._file.truncate(sum(len(line) + 1 for line in lines))

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(content: bytes) -> tuple[list[Any], int | None, int]:
    """Rows of the whole lines, number of the first damaged one, and bytes up to the end of the whole lines."""
    whole = content[: content.rfind(b"\n") + 1]
    rows = []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            return rows, number, len(whole)
    return rows, None, len(whole)
