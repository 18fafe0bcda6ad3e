"""Files in untrusted folders: nothing is written through links, and reading never blocks.

A run, a store or a comparison is a folder of files. An attacker could put a link there under the name of a file to
write, or a pipe under the name of a file to read. Therefore new files get a random name and then replace the old
entry, and only regular files are opened for reading.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path

from midam.errors import MidamError

_PARTIAL = ".midam-partial"
_IS_PARTIAL = re.compile(rf"\..*\.[0-9a-f]{{16}}{re.escape(_PARTIAL)}", re.DOTALL)
_SHOWN = 40  # letters of a name that its partial file keeps: file systems allow 255 bytes
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")  # folders where no file can be made: a path in them is intended
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_swept = set[str]()


class Partial(FileIO):
    """A file that is being written, with its temporary `path`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(descriptor, "r+")
        self.path = path


def require_plain(path: Path, *, typed: bool = True) -> None:
    """Refuse a pipe, a socket or a device as an input with a `MidamError`; the caller handles a missing file.

    Reading one could block forever. A path like ``/dev/stdin`` is accepted if the user `typed` it.
    """
    if typed and path.parent.as_posix() in _DEVICES:
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
def replacing(path: Path, *, mode: int | None = None) -> Iterator[Partial]:
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
    file = _new_partial(path, private=mode is not None)
    temporary = file.path
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
            os.unlink(temporary)


def is_partial(path: Path) -> bool:
    """Return whether a path has the name of a file that is being written, or that a killed process has left."""
    return _IS_PARTIAL.fullmatch(path.name) is not None


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


def _new_partial(path: Path, *, private: bool) -> Partial:
    """Make a new locked file next to `path`; a replacement is `private` until it has its mode."""
    while True:
        temporary = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}{_PARTIAL}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        file = Partial(temporary, os.open(temporary, flags, 0o600 if private else 0o666))
        try:
            _lock(file, wait=True)
            # Another process may have swept it before it was locked.
            if temporary.exists():
                return file
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
    try:
        facts = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(facts.st_mode) & 0o777 if stat.S_ISREG(facts.st_mode) else None
