"""Writing a store: one pass over each bag, in parallel; a stopped import continues where it stopped."""

import errno
import hashlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.column_codes import refuse_columns
from midam.data.store import format as form
from midam.data.store.copy import ImportProgress, RowFiles, WrittenBag, plan_digest, write_rows, written_bags
from midam.data.validate import digest_array
from midam.data.witnesses import marks_of
from midam.errors import BagDataError, RunStoppedError, StoreError, path_of, require, require_counts
from midam.files import Journal, require_space, write_bytes, write_text

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def write_store(bags: Bags, out: str | Path, *, jobs: int = 1, on_bag: Callable[[int], None] | None = None) -> Path:
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
    require(bags, Bags, "bags", "read them with `midam.read_bags`")
    require_counts(jobs=jobs)
    refuse_columns(bags, "a store")
    place = path_of(out, "a store").resolve()  # a link stays a link: its target is written
    part, journal_path = _hidden_paths(place)
    progress = ImportProgress(on_bag or (lambda _: None))
    with _explained(bags, place, (part, journal_path), progress):
        place.parent.mkdir(parents=True, exist_ok=True)
        busy = f"Expected no other import to {out}, got one that is running; wait for its end, or choose another place."
        with Journal(journal_path, busy=StoreError(busy)) as journal:
            if not part.exists() and _is_taken(place):
                journal.remove()  # of an import that was killed after its last step
            require_free(place)
            _write(bags, part, journal, jobs=jobs, progress=progress)
            if place.exists():
                place.rmdir()  # an empty folder, which not every system lets a rename replace
            part.rename(place)
            form.sync_folder(place.parent)
            journal.remove()
    return Path(out)


def _is_taken(place: str | Path) -> bool:
    """Return whether a place holds something other than an empty folder."""
    place = Path(place).resolve()
    return place.exists() and not (place.is_dir() and not any(place.iterdir()))


def require_free(place: str | Path) -> None:
    """Refuse an occupied place with a `StoreError`; remove the journal of an import that ended there."""
    if not _is_taken(place):
        return
    error = StoreError(
        f"Expected a free place for the store, got {place}, which exists; remove it, or choose another place."
    )
    part, journal = _hidden_paths(Path(place).resolve())
    if journal.exists() and not part.exists():  # the import was killed after its last step
        Journal(journal, busy=error).remove()
    raise error


def _hidden_paths(place: Path) -> tuple[Path, Path]:
    """Return the hidden folder that becomes the store, and the journal of its content."""
    return place.with_name(f".{place.name}.part"), place.with_name(f".{place.name}.journal")


def _write(bags: Bags, part: Path, journal: Journal, *, jobs: int, progress: ImportProgress) -> None:
    """Fill the hidden folder; the description comes last."""
    starts = np.cumsum(bags.sizes) - bags.sizes
    total = bags.num_instances
    rows = {form.INSTANCES: bags.instances, form.COORDS: bags.coords}
    facts = [form.RowFacts.of(file, total, x.dtype, tuple(x.shape[1:])) for file, x in rows.items() if x is not None]
    fresh = _prepare(bags, part, journal, facts, progress)
    try:
        if fresh:
            require_space({part: sum(fact.bytes for fact in facts)}, "instances and coordinates", error=StoreError)
        files = RowFiles(part, facts)
    except OSError:  # a `StoreError` is one
        if fresh:  # nothing was written that a later call could use
            shutil.rmtree(part, ignore_errors=True)
            journal.remove()
        raise
    with closing(files):
        write_rows(bags, starts, files, journal, jobs=jobs, progress=progress)
        files.sync()
    content = form.table_bytes(_columns(bags, [progress.done[number] for number in range(len(bags))]))
    write_bytes(part / form.TABLE, content)
    table = form.TableFacts(form.TABLE, len(bags), len(content), hashlib.sha256(content).hexdigest())
    outcome = None if bags.outcome is None else form.TargetFacts(bags.outcome.target, bags.outcome.names)
    covariates = None if bags.covariates is None else bags.covariates.names
    known = bags.feature_names, bags.source, bags.cut, bags.classes, outcome, covariates, bags.left_out
    coords = None if bags.coords is None else facts[1]
    write_text(part / form.DESCRIPTION, form.Description(facts[0], coords, table, *known).to_json())
    form.sync_folder(part)


def _prepare(bags: Bags, part: Path, journal: Journal, facts: list[form.RowFacts], progress: ImportProgress) -> bool:
    """Take over the bags that an earlier call wrote, or begin; return whether the folder is new."""
    plan = plan_digest(bags)
    written = written_bags(journal, plan, len(bags))
    if written is None and part.exists():
        text = f"the stopped import in {part} was of other data, or files have changed"
        warnings.warn(f"{text}: it starts again", stacklevel=4)
    sizes = [(part / fact.file).stat().st_size for fact in facts if (part / fact.file).is_file()]
    if not written or sizes != [fact.bytes for fact in facts]:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        journal.keep(0)
        journal.add([plan])
        return True
    (part / form.DESCRIPTION).unlink(missing_ok=True)
    for bag in written:
        progress.add(bag)
    return False


def _columns(bags: Bags, written: list[WrittenBag]) -> dict[str, NDArray[Any] | None]:
    covariates, marks = () if bags.covariates is None else bags.covariates.columns, marks_of(bags)
    coords_digests = [str(bag.coords_digest) for bag in written]
    return {
        "ids": bags.ids,
        "sizes": bags.sizes.astype("<i8"),
        "labels": None if bags.labels is None else bags.labels.astype(np.int8),
        form.OUTCOME: None if bags.outcome is None else bags.outcome.values.astype("<f8"),
        **{name: getattr(bags, name) for name in form.TEXTS[1:]},
        "digests": digest_array([bag.digest for bag in written]),
        "coords_digests": None if bags.coords is None else digest_array(coords_digests),
        form.WITNESSES: None if marks is None else np.packbits(marks),
        **{f"{form.COVARIATE}{place}": column for place, column in enumerate(covariates)},
    }


@contextmanager
def _explained(bags: Bags, place: Path, hidden: tuple[Path, Path], progress: ImportProgress) -> Iterator[None]:
    """Say which files are left and how to continue, when an import ends early."""
    try:
        yield
    except KeyboardInterrupt:
        raise RunStoppedError(
            f"stopped: {len(progress.done)} of {len(bags)} bags are written (in {hidden[0]}); repeat the command to "
            "continue"
        ) from None
    except BagDataError as error:
        raise BagDataError(f"{error} The written part is in {hidden[0]}; remove it, or import again.") from error
    except OSError as error:
        if error.errno not in _FULL:
            raise
        paths = [str(path) for path in hidden if path.exists()]
        advice = "free space, or choose another place; nothing was written."
        if paths:
            advice = f"free space and repeat the command: it continues from the part already in {' and '.join(paths)}."
        raise StoreError(
            f"Expected free space for the store {place}, got: {error.strerror} (in {error.filename}); {advice}"
        ) from error
