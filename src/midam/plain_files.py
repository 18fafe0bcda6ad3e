"""Files in folders that may come from somebody else: no link is written through, nothing is waited for.

A run, a store or a comparison is a folder of files. Somebody could put a link there under the name of a file that is
about to be written, or a pipe under the name of one that is about to be read. So new files get a name that nobody can
guess, and then take the place of whatever is there; and only files are opened to be read.
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
_SHOWN = 40  # letters of a name in that of its partial file: file systems allow 255 bytes
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_DEVICES = ("/dev", "/dev/fd", "/proc/self/fd")  # folders that no one can put a file into: who names one means it
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_swept = set[str]()


class Partial(FileIO):
    """A file while it is written, and its `path` until then."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(descriptor, "r+")
        self.path = path


def require_plain(path: Path, *, typed: bool = True) -> None:
    """Refuse a pipe, a socket or a device as an input, by a `MidamError`; what is missing is for the caller.

    Reading one could last for ever. A path like ``/dev/stdin``, if the user `typed` it and no file says it, is meant.
    """
    if typed and path.parent.as_posix() in _DEVICES:
        return
    with suppress(OSError, ValueError):
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
        if kind is not None:
            raise MidamError(f"Expected a file, got {kind} (in {path}); put the file itself there, or remove it.")


def open_plain(path: Path) -> BufferedReader:
    """Open a file to read it, as `require_plain` allows."""
    require_plain(path)
    return path.open("rb")


def require_plain_folder(root: Path, *, writes: bool = False) -> None:
    """Refuse a folder in which, at any depth, something is a pipe, a socket or a device, by a `MidamError`.

    One that is about to be written to (`writes`) must hold no link to a folder either: files would go elsewhere.
    """
    for place, folders, files in os.walk(root):
        for name in files:
            require_plain(Path(place, name))
        linked = next((name for name in folders if writes and Path(place, name).is_symlink()), None)
        if linked is not None:
            path = Path(place, linked)
            raise MidamError(
                f"Expected folders alone in {root}, to which midam writes, got a link (in {path}); remove it, or put "
                "the folder that it leads to in its place."
            )


@contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[Partial]:
    """A new file that takes the place of `path` once it is whole; its folder is made. On an error nothing changes.

    A link, a pipe or a device at `path` is replaced, not written to. A file keeps its mode, a new one follows the
    umask, unless a `mode` is asked for. Until then the file is locked and bears a name that `sweep` knows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if str(path.parent.absolute()) not in _swept:
        _swept.add(str(path.parent.absolute()))
        with suppress(OSError):  # of a folder that may not be listed
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
            if os.name != "nt":  # while it is locked, no process takes it for one that was left
                os.replace(temporary, path)
        if os.name == "nt":
            os.replace(temporary, path)
    finally:
        # Where nothing could be made there is nothing to remove, and the first error is the one to tell.
        with suppress(OSError):
            os.unlink(temporary)


def is_partial(path: Path) -> bool:
    """Whether a path has the name of a file that is being written, or that a killed process has left."""
    return _IS_PARTIAL.fullmatch(path.name) is not None


def sweep(folder: Path) -> None:
    """Remove files that killed processes have left half written in a folder, at any depth; none that is being written.

    Nothing else is touched: not files of similar names, nor what links lead to.
    """
    for place, _, names in os.walk(folder):
        _sweep_names(Path(place), names)


def open_own(path: Path) -> FileIO:
    """Open a file to read it and to write into it, made if it is missing, as `make_own` says."""
    make_own(path)
    return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666), "r+")


def make_own(path: Path) -> None:
    """See to it that what is written into a file changes no other: it is no link, and has no second name.

    A file that has one is replaced by a copy of itself; a link, a pipe or a device is removed, with a warning.
    """
    with suppress(FileNotFoundError):
        facts = path.lstat()
        if stat.S_ISREG(facts.st_mode) and facts.st_nlink > 1:
            with open_plain(path) as source, replacing(path) as copy:
                shutil.copyfileobj(source, copy)
        elif not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
            path.unlink()
            warnings.warn(f"{path} was no file but a link, a pipe or a device: it was removed", stacklevel=3)


def remove_own(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it is there; what a link leads to is left alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _new_partial(path: Path, *, private: bool) -> Partial:
    """A new file next to `path`, locked; one that replaces another is `private` until it has its mode."""
    while True:
        temporary = path.with_name(f".{path.name[:_SHOWN]}.{secrets.token_hex(8)}{_PARTIAL}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        file = Partial(temporary, os.open(temporary, flags, 0o600 if private else 0o666))
        try:
            _lock(file, wait=True)
            # Somebody who swept may have taken it for one that was left, before it was locked.
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
                # Who writes it holds its lock; a system without locks removes no open file.
                with FileIO(os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | _FLAGS), "r+") as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        continue
                    _lock(file, wait=False)
                    if os.name != "nt":
                        path.unlink()
                if os.name == "nt":
                    path.unlink()


def _lock(file: FileIO, *, wait: bool) -> None:
    """Lock a file until it is closed; an `OSError` where somebody has it, or a system cannot and none is to `wait`."""
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
    """Permissions of the file that will be replaced; None where there is none."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(facts.st_mode) & 0o777 if stat.S_ISREG(facts.st_mode) else None
