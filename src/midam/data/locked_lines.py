"""A file of lines that one process at a time appends to: what a journal stands on."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from midam.errors import MidamError


class LockedLines:
    """Lines on the disk, held against other processes until the context is left.

    Parameters
    ----------
    path : Path
        The file; made where there is none.
    busy : MidamError
        Raised if another process holds it.
    """

    def __init__(self, path: Path, *, busy: MidamError) -> None:
        self.path = path
        self._handle = _locked(path, busy)

    def read(self) -> list[bytes]:
        """Return the lines; one that was cut off is none."""
        return self.path.read_bytes().split(b"\n")[:-1]

    def cut(self, size: int) -> None:
        """Forget what stands beyond so many bytes."""
        os.ftruncate(self._handle, size)

    def append(self, text: str) -> None:
        """Add lines; they are there for good when this returns, and none of them is if it fails."""
        content = memoryview(text.encode())
        size = os.fstat(self._handle).st_size
        try:
            while content:
                content = content[os.write(self._handle, content) :]
            os.fsync(self._handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._handle, size)  # a full disk takes a part of a line
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)


def _locked(path: Path, busy: MidamError) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise busy from None
        # The one that held the lock may have removed the file when it ended.
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)
