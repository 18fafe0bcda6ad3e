"""Files that survive a crash: written whole or not at all, locked by one process, and journals of finished work.

In folders of others no link is written through, and no pipe is read.
"""

import errno
import json
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from midam.errors import MidamError
from midam.reading import parse_json

_PARTIAL = ".midam-partial"
_IS_PARTIAL = re.compile(rf"\..*\.[0-9a-f]{{16}}{re.escape(_PARTIAL)}", re.DOTALL)
_SHOWN = 40  # letters of a name that its partial file keeps: file systems allow 255 bytes
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")  # folders where no file can be made: a path in them is intended
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_swept = set[str]()


def require_plain(path: Path) -> None:
    """Refuse a pipe, a socket or a device as an input with a `MidamError`; the caller handles a missing file.

    Reading one could block forever. A path like ``/dev/stdin`` is accepted.
    """
    if path.parent.as_posix() in _DEVICES:
        return
    with suppress(OSError, ValueError):
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
        if kind is not None:
            raise MidamError(f"Expected a file, got {kind} (in {path}); put the file itself there, or remove it.")


def open_plain(path: Path) -> BufferedReader:
    """Open a file for reading, unless `require_plain` refuses it."""
    require_plain(path)
    return path.open("rb")


def require_plain_folder(root: Path, *, writes: bool = False) -> None:
    """Refuse a folder that contains, at any depth, a pipe, a socket or a device, with a `MidamError`.

    A folder for writing (`writes`) must not contain a link to a folder either: files would go elsewhere.
    """
    for place, folders, files in os.walk(root):
        for name in files:
            require_plain(Path(place, name))
        linked = next((name for name in folders if writes and Path(place, name).is_symlink()), None)
        if linked is not None:
            path = Path(place, linked)
            raise MidamError(
                f"Expected only folders in {root}, to which midam writes, got a link (in {path}); remove it, or "
                "replace it with its target folder."
            )


@contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[FileIO]:
    """Yield a new file that replaces `path` once it is complete; create its folder. On an error nothing changes.

    A link, a pipe or a device at `path` is replaced, not written to. A replaced file keeps its mode, a new file follows
    the umask, unless `mode` is given. Until it is complete, the file is locked and has a name that `sweep` recognizes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if str(path.parent.absolute()) not in _swept:
        _swept.add(str(path.parent.absolute()))
        with suppress(OSError):  # the folder may not be listable
            _sweep_names(path.parent, os.listdir(path.parent))
    mode = _mode_of(path) if mode is None else mode
    temporary, file = _new_partial(path, private=mode is not None)
    try:
        with file:
            yield file
            if mode is not None:
                os.chmod(temporary, mode)
            file.flush()
            os.fsync(file.fileno())
            if os.name != "nt":  # while locked, no process can sweep it
                os.replace(temporary, path)
        if os.name == "nt":
            os.replace(temporary, path)
    finally:
        # The file may not exist, and the first error is the one to report.
        with suppress(OSError):
            temporary.unlink()


def sweep(folder: Path) -> None:
    """Remove partial files of killed processes in a folder, at any depth; files that are being written stay.

    Files with similar names, and the targets of links, are not touched.
    """
    for place, _, names in os.walk(folder):
        _sweep_names(Path(place), names)


def open_own(path: Path) -> FileIO:
    """Open a file for reading and writing, after `make_own`; create it if it is missing."""
    make_own(path)
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666), "r+")


def make_own(path: Path) -> None:
    """Make sure that writing to a file changes no other file: it is not a link, and has no second name.

    A file with a second name is replaced by a copy; a link, a pipe or a device is removed, with a warning.
    """
    with suppress(FileNotFoundError):
        facts = path.lstat()
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1:
            with open_plain(path) as source, replacing(path) as copy:
                shutil.copyfileobj(source, copy)
        elif not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
            path.unlink()
            warnings.warn(f"{path} was not a file but a link, a pipe or a device: it was removed", stacklevel=3)


def remove_own(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it exists; the target of a link stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _new_partial(path: Path, *, private: bool) -> tuple[Path, FileIO]:
    """Make a new locked file next to `path`, and return both; a replacement is `private` until it has its mode."""
    while True:
        temporary = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}{_PARTIAL}")
        file = FileIO(temporary, "x+", opener=partial(os.open, mode=0o600 if private else 0o666))
        try:
            _lock(file, wait=True)
            # Another process may have swept it before it was locked.
            if temporary.exists():
                return temporary, file
        except BaseException:
            file.close()
            with suppress(OSError):
                temporary.unlink()
            raise
        file.close()


def _sweep_names(folder: Path, names: list[str]) -> None:
    for name in names:
        path = folder / name
        if _IS_PARTIAL.fullmatch(name):
            with suppress(OSError):
                # A process that writes it holds its lock; a system without locks does not remove an open file.
                with FileIO(os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | _FLAGS), "r+") as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        continue
                    _lock(file, wait=False)
                    if os.name != "nt":
                        path.unlink()
                if os.name == "nt":
                    path.unlink()


def _lock(file: FileIO, *, wait: bool) -> None:
    """Lock a file until it is closed; without `wait`, raise an `OSError` if it is locked or cannot be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if not wait or error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _mode_of(path: Path) -> int | None:
    """Return the permissions of the file to replace; None if there is no file."""
    with suppress(OSError):
        facts = path.lstat()
        return stat.S_IMODE(facts.st_mode) & 0o777 if stat.S_ISREG(facts.st_mode) else None
    return None


LOCK = ".lock"
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)  # errors of a file system that cannot reserve space


def write_bytes(path: Path, content: bytes | memoryview, *, typed: bool = False) -> None:
    """Write a file so that a reader sees the old or the new file, never half of it; create its folder.

    A link at `path` is replaced, and its target kept, see `midam.files.replacing`. In a path that the user
    `typed`, a link stays a link, and its target is written; a device, a pipe or an open file such as /dev/stdout is
    written to directly. An `OSError` names `path`, and the old file does not change.
    """
    write_parts(path, [content], typed=typed)


def write_parts(path: Path, parts: Iterable[bytes | memoryview], *, typed: bool = False) -> None:
    """Write a file as `write_bytes` does, part by part, so that it need not fit into memory."""
    try:
        if typed and is_stream(path):
            _write_to_stream(path, parts)
        else:
            with replacing(resolved(path) if typed else path) as file:
                for part in parts:
                    view = memoryview(part)
                    while view:
                        view = view[file.write(view) or 0 :]
    except OSError as error:
        if isinstance(error, MidamError):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_stream(path: Path) -> bool:
    """Return whether a path names a device, a pipe, a socket, or the standard output."""
    with suppress(OSError):
        mode = path.stat().st_mode
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) or is_stdout(path)
    return False


def resolved(path: Path) -> Path:
    """Return the file that a path leads to, through all links; raise an `OSError` for circular links."""
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return place


def is_left(path: Path) -> bool:
    """Return whether a path is left over from a killed process: a lock, or a partial file."""
    return path.name == LOCK or _IS_PARTIAL.fullmatch(path.name) is not None


def _write_to_stream(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    sys.stdout.flush()
    # A copy of the descriptor shares the position: opening the file by name would truncate and overwrite its output.
    with os.fdopen(os.dup(1), "wb") if is_stdout(path) else path.open("wb") as stream:
        stream.writelines(parts)


def is_stdout(path: Path) -> bool:
    """Return whether a path names the standard output of this process, such as /dev/stdout."""
    with suppress(OSError):
        return path.parent.as_posix() in _DEVICES and os.path.samestat(path.stat(), os.fstat(1))
    return False


def require_space(path: Path, needed: int, content: str, *, error: type[MidamError] = MidamError) -> None:
    """Raise an `error` if the disk of a path has no space for the `needed` bytes; `content` names them in the message.

    The path need not exist. If the system does not report the free space, nothing is refused.
    """
    free = None
    with suppress(OSError, AttributeError):  # some systems lack `disk_usage`
        place = path.absolute()
        free = shutil.disk_usage(next(one for one in (place, *place.parents) if one.exists())).free
    if free is not None and needed > free:
        raise error(
            f"Expected free space for {size_text(needed)} of {content}, got {size_text(free)} free (in {path}); free "
            "space, or choose another place; nothing was written."
        )


def size_text(size: int) -> str:
    """Format a number of bytes for messages.

    Examples
    --------
    >>> size_text(1000), size_text(3 << 20), size_text(300 << 30)
    ('1000 bytes', '3.0 MiB', '300.0 GiB')
    """
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def allocate(file: FileIO, size: int) -> None:
    """Set the size of a new file, and reserve its space if the system can: a full disk shows before the work."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    file.truncate(size)


def write_text(path: Path, text: str, *, typed: bool = False) -> None:
    """Write text in UTF-8 as `write_bytes` does."""
    write_bytes(path, text.encode(), typed=typed)


def write_json(path: Path, content: Mapping[str, Any], *, typed: bool = False) -> None:
    """Write JSON as `write_bytes` does; raise an error for a value that is not finite."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n", typed=typed)


@contextmanager
def held(path: Path, *, busy: MidamError, is_file: bool = False) -> Iterator[None]:
    """Lock a file, whose folder is created, or an existing folder; raise `busy` if another process holds it.

    The lock is a file ``PATH.lock``, in a folder ``.lock``; one that a killed process has left locks nothing. With
    `is_file`, a link to a folder at `path` is not followed.
    """
    lock_path = path / LOCK if path.is_dir() and not is_file else path.with_name(path.name + LOCK)
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    # A lock of midam is a plain file without other names; links, pipes and devices are not opened.
    make_own(lock_path)
    lock = FileLock(lock_path, blocking=False, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        # Removed while locked: a waiting process then finds that the file has no name and starts again. Windows does
        # not remove an open file; there the lock removes it when it is released.
        with suppress(OSError):
            lock_path.unlink()
        lock.release()


class Journal:
    """File of finished work, one line of JSON each, to which one process at a time appends; created if missing.

    A line that a crash truncated is dropped when the file is opened. Leave the context, or call `close`, to release the
    file; `busy` is raised if another process holds it. `rows` are the contents of the lines, up to the first that is
    not JSON; `damaged` is the number of this line, from 1, else None.

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
            stack.enter_context(held(path, busy=busy, is_file=True))
            self._file = stack.enter_context(open_own(path))
            self.rows, self.damaged, size = _read(self._file.readall())
            if self.damaged is None:
                self._file.truncate(size)
            self._stack = stack.pop_all()

    def add(self, rows: Iterable[Any]) -> None:
        """Append rows; on return all are on the disk, and on failure none is."""
        new = list(rows)
        content = memoryview("".join(json.dumps(row) + "\n" for row in new).encode())
        size = self._file.seek(0, os.SEEK_END)
        try:
            while content:
                content = content[self._file.write(content) or 0 :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)  # a full disk may have taken part of a line
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.rows += new

    def keep(self, count: int) -> None:
        """Drop all but the first `count` rows, on the disk too."""
        self.rows = self.rows[:count]
        self._file.seek(0)
        lines = self._file.readall().split(b"\n")[:count]
        self._file.truncate(sum(len(line) + 1 for line in lines))

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read(content: bytes) -> tuple[list[Any], int | None, int]:
    """Return the rows of the complete lines, the number of the first damaged line, and the bytes of complete lines."""
    whole = content[: content.rfind(b"\n") + 1]
    rows = []
    if not whole and content[:1] not in (b"", b"\0", b"[", b"{", b'"'):  # no row that was cut off, but a file of others
        return [], 1, len(content)
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            rows.append(parse_json(line))
        except ValueError:
            return rows, number, len(whole)
    return rows, None, len(whole)
