"""Writing a store: one pass over each bag, in parallel; a stopped import continues where it stopped."""

import errno
import hashlib
import json
import math
import os
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from midam.data.bags import Bags
from midam.data.column_codes import refuse_columns
from midam.data.digests import bag_digests, hash_rows
from midam.data.on_disk import Rows, bytes_of, on_disk, read_ahead
from midam.data.store import format as form
from midam.data.validate import refuse_not_finite, row_chunks
from midam.errors import BagDataError, RunStoppedError, StoreError, path_of
from midam.files import Journal, allocate, open_own, remove_own, require_space, write_bytes, write_text

_COMMIT_SECONDS = 0.5  # work that is repeated after a kill, at most
_LARGE = 1 << 16  # bytes of a bag in memory from which several threads gain
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def write_store(
    bags: Bags,
    out: str | Path,
    *,
    jobs: int = 1,
    on_bag: Callable[[int], None] | None = None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write bags into a store, a folder that `midam.data.open_store` opens at once; return `out`.

    Each bag is read once, in chunks. The files grow in a hidden folder next to `out`, which is renamed when it is
    complete. After a stop, the same call continues and writes the same bytes, or starts again if the bags have changed.

    Parameters
    ----------
    bags : Bags
        In memory or on disk.
    out : str or Path
        Folder to write; must not exist, or be empty.
    jobs : int, default 1
        Threads, each of which reads, hashes and writes bags.
    on_bag : callable, optional
        Called with the position of each bag that is written, those of an earlier call first.
    texts : mapping of str to str
        Texts of further files in the folder, by their names.

    Raises
    ------
    BagDataError, StoreError, RunStoppedError
        If an instance is not finite; if `out` is taken or being written, or the disk is full; if Ctrl-C stopped it.

    Examples
    --------
    >>> import tempfile
    >>> from midam.data import open_store
    >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]]], labels=[0, 1])
    >>> open_store(write_store(bags, Path(tempfile.mkdtemp()) / "store"))
    Bags(2 bags, 1 positive, 3 instances (1,))
    """
    refuse_columns(bags, "a store")
    place = path_of(out, "a store").resolve()  # a link stays a link: its target is written
    part, journal_path = _hidden_paths(place)
    done: Done = {}
    with _explained(bags, place, (part, journal_path), done):
        place.parent.mkdir(parents=True, exist_ok=True)
        busy = f"Expected no other import to {out}, got one that is running; wait for its end, or choose another place."
        require_free(place)
        with Journal(journal_path, busy=StoreError(busy)) as journal:
            _write(bags, part, journal, done, jobs=jobs, on_bag=on_bag or (lambda _: None))
            for name, text in texts.items():
                write_text(part / name, text)
            if place.exists():
                place.rmdir()  # an empty folder, which not every system lets a rename replace
            part.rename(place)
            journal.remove()
    return Path(out)


def require_free(place: str | Path) -> None:
    """Refuse an occupied place with a `StoreError`; remove the journal of an import that ended there.

    A place is free if nothing or an empty folder is there.
    """
    target = Path(place).resolve()
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    error = StoreError(f"Expected a free place for the store, got {place}, which exists; remove it, or choose another.")
    part, journal = _hidden_paths(target)
    if journal.exists() and not part.exists():  # the import was killed after its last step
        Journal(journal, busy=error).remove()
    raise error


def _hidden_paths(place: Path) -> tuple[Path, Path]:
    """Return the hidden folder that becomes the store, and the journal of its content."""
    return place.with_name(f".{place.name}.part"), place.with_name(f".{place.name}.journal")


class WrittenBag(NamedTuple):
    """A bag whose rows are in the files of the store, with their digest in each."""

    number: int
    digests: list[str]


Done = dict[int, WrittenBag]  # bags that are written, by position
OnBag = Callable[[int], None]


def _write(bags: Bags, part: Path, journal: Journal, done: Done, *, jobs: int, on_bag: OnBag) -> None:
    """Fill the hidden folder; the description comes last."""
    arrays = form.row_arrays(bags)
    files = [_RowFile(part, name, rows, bags.num_instances) for name, rows in arrays.items()]
    with ExitStack() as opened:
        for file in files:
            opened.callback(file.close)
        _prepare(bags, part, journal, files, done)
        for number in done:
            on_bag(number)
        _write_rows(bags, files, journal, done, jobs=jobs, on_bag=on_bag)
        for file in files:
            file.sync()
    written = [done[number] for number in range(len(bags))]
    table = form.table_bytes(bags, {name: [bag.digests[at] for bag in written] for at, name in enumerate(arrays)})
    write_bytes(part / form.TABLE, table)
    write_text(part / form.DESCRIPTION, form.Description.of(bags, table).to_json())


def _prepare(bags: Bags, part: Path, journal: Journal, files: Sequence["_RowFile"], done: Done) -> None:
    """Take over the bags that an earlier call wrote, or make the files, with the plan in the journal."""
    plan, same = plan_digest(bags), False
    with suppress(ValidationError):
        written = TypeAdapter(list[WrittenBag]).validate_python(journal.rows[1:], strict=True)
        same = journal.rows[:1] == [plan]
    if same and written and all(file.is_whole() for file in files):
        journal.keep(len(journal.rows))  # without a line that a crash damaged
        (part / form.DESCRIPTION).unlink(missing_ok=True)
        done.update({bag.number: bag for bag in written})
        return
    if part.exists() and not same and (journal.rows or journal.damaged is not None):
        text = f"the stopped import in {part} was of other data, or files have changed"
        warnings.warn(f"{text}: it starts again", stacklevel=4)
    remove_own(part)
    journal.keep(0)
    try:
        require_space(part, sum(file.facts.bytes for file in files), "instances and coordinates", error=StoreError)
        part.mkdir()
        for file in files:
            file.make()
        journal.add([plan])
    except OSError:  # nothing was written that a later call could use
        shutil.rmtree(part, ignore_errors=True)
        journal.remove()
        raise


class _RowFile:
    """A file of rows, which several threads may fill; it stays open until `close`."""

    def __init__(self, folder: Path, name: str, rows: NDArray[Any] | Rows, count: int) -> None:
        self.name, self.rows, self.path = name, rows, folder / form.ROWS[name]
        self.facts, self._lock = form.RowFacts.of(rows, count), threading.Lock()

    def is_whole(self) -> bool:
        """Return whether the file is there, with all its bytes reserved."""
        return self.path.is_file() and self.path.stat().st_size == self.facts.bytes

    @cached_property
    def file(self) -> FileIO:
        """The open file."""
        return open_own(self.path)

    def close(self) -> None:
        if "file" in vars(self):
            self.file.close()

    def make(self) -> None:
        """Reserve the space, so that a full disk shows at once, and write the header."""
        try:
            allocate(self.file, self.facts.bytes)
            self.file.write(self.facts.header)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def write(self, rows: NDArray[Any], first: int) -> None:
        """Write rows from row `first` on."""
        view = bytes_of(rows)
        with self._lock:
            self.file.seek(len(self.facts.header) + first * rows[0].nbytes)
            while view:
                view = view[self.file.write(view) or 0 :]

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        os.fsync(self.file.fileno())


def _write_rows(
    bags: Bags, files: Sequence[_RowFile], journal: Journal, done: Done, *, jobs: int, on_bag: OnBag
) -> None:
    """Write the bags that are not in the journal, and add them to it once their bytes are on the disk."""
    stop, firsts = threading.Event(), np.cumsum(bags.sizes) - bags.sizes
    fresh: list[WrittenBag] = []

    def write(number: int) -> WrittenBag:
        return _write_bag(bags, number, int(firsts[number]), files, stop)

    def commit() -> None:
        rows = list(fresh)
        fresh.clear()  # a commit that fails is not tried again: it would record bags that the disk has refused
        if rows:
            for file in files:
                file.sync()
            journal.add(rows)

    committed = time.monotonic()
    left = [number for number in range(len(bags)) if number not in done]
    large = bags.num_instances * math.prod(bags.instance_shape) * bags.instances.itemsize > _LARGE * len(bags)
    with closing(read_ahead(left, write, workers=jobs - 1 if large or on_disk(bags.instances) else 0)) as written:
        try:
            for number, bag in written:
                fresh.append(bag)
                done[number] = bag
                on_bag(number)
                if time.monotonic() - committed > _COMMIT_SECONDS:
                    commit()
                    committed = time.monotonic()
        finally:
            stop.set()
            commit()


def _write_bag(bags: Bags, number: int, first: int, files: Sequence[_RowFile], stop: threading.Event) -> WrittenBag:
    """Copy one bag to its place."""
    source = bags.source if bags.sources is None else str(bags.sources[number])
    start, digests = int(bags.starts[number]), list[str]()
    for file in files:
        rows, digest = file.rows, form.begun_hash(bags, file.name)
        for low, high in row_chunks(rows, bags.starts[[number]], bags.sizes[[number]]):
            if stop.is_set():
                raise RunStoppedError("stopped")
            chunk = np.ascontiguousarray(rows[low:high], dtype=rows.dtype.newbyteorder("<"))
            if file.name == "instances":
                refuse_not_finite(chunk, slice(low - start, None), f"{source}, bag {bags.ids[number]}")
            digest.update(chunk.data)
            file.write(chunk, first + low - start)
        digests.append(digest.hexdigest())
    return WrittenBag(number, digests)


@contextmanager
def _explained(bags: Bags, place: Path, hidden: tuple[Path, Path], done: Done) -> Iterator[None]:
    """Say which files are left and how to continue, when an import ends early."""
    try:
        yield
    except KeyboardInterrupt:
        text = f"stopped: {len(done)} of {len(bags)} bags are written (in {hidden[0]})"
        raise RunStoppedError(f"{text}; repeat the command to continue") from None
    except BagDataError as error:
        raise BagDataError(f"{error} The written part is in {hidden[0]}; remove it, or import again.") from error
    except OSError as error:
        if error.errno not in _FULL:
            raise
        paths = [str(path) for path in hidden if path.exists()]
        rest = f"it continues from the part already in {' and '.join(paths)}" if paths else "nothing was written"
        got = f"{error.strerror} (in {error.filename or hidden[0]}); free space and repeat the command: {rest}"
        raise StoreError(f"Expected free space for the store {place}, got: {got}.") from error


def plan_digest(bags: Bags) -> str:
    """Return the SHA-256 of a store's future content: files by path, size, time and options, memory by content."""
    files, rows = _files(bags), bags.instances
    origin = getattr(rows, "origin", ())  # digests of the source, which is faster
    stamps = {path: stamp(path) for path in dict.fromkeys(files)}  # coordinates mostly share the instances' files
    content: list[Any] = (
        [stamps[path] for path in files] if files else [origin or bag_digests(bags), _digest(bags.coords)]
    )
    content.append(_digest(bags.instance_labels))
    known = form.Description.of(bags, form.table_bytes(bags)).to_json()
    plan = [known, rows.dtype.str, bags.starts.tolist(), rows.plan if isinstance(rows, Rows) else "", content]
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _files(bags: Bags) -> list[Path]:
    """Return the files of instances and coordinates; an empty list if a part of them is only in memory."""
    parts = [rows for rows in (bags.instances, bags.coords) if rows is not None]
    files = [rows.paths if isinstance(rows, Rows) else (getattr(rows, "filename", None),) for rows in parts]
    known = all(paths and None not in paths for paths in files)
    return [Path(str(path)) for paths in files for path in paths] if known else []


def stamp(path: Path) -> list[Any]:
    """Return path, size and time of a file, or of all files in a folder, whose own time ignores their content."""
    if path.is_dir():
        files = sorted(Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return [str(path), [stamp(file) for file in files]]
    facts = path.stat()
    return [str(path), facts.st_size, facts.st_mtime_ns]


def _digest(rows: NDArray[Any] | Rows | None) -> str | None:
    """Return the SHA-256 of rows, read by chunks; None without any."""
    digest = hashlib.sha256()
    if rows is not None:
        hash_rows(rows, 0, len(rows), digest)
    return None if rows is None else digest.hexdigest()
