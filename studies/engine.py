"""The engine of the studies, on the engine of `midam compare`: compute missing trials, keep trials and their time.

A study defines its trials (`Group`, with a name by `trial_name` for each trial) and the computation of a group. Its
store, one line of JSON for each trial, grows as groups finish, so that a stopped study continues without a loss. The
store is published with the page as `trials/NAME.jsonl.gz`: anyone can check the figures, and continue the study on
another machine.
"""

import gzip
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import MofNCompleteColumn

from midam.compare.workers import Group, compute
from midam.data.bags import Bags
from midam.errors import BagDataError, DataNotFoundError
from midam.files import write_bytes
from midam.methods.store import Row, TrialStore
from midam.report.terminal import LiveProgress
from midam.settings import Settings
from studies.options import StudyOptions

Task = TypeVar("Task")

# Suffix of a file of published trials.
PACKED = ".jsonl.gz"
# Version of the trials of each kind; it increases when their meaning changes, so that old rows do not count as new.
VERSIONS = {
    "table2": 1,
    "curves": 1,
    "unit-tests": 1,
    "images": 1,
    "image-curves": 1,
    "needle": 1,
    "instances": 1,
    "witness-search": 1,
    "defaults": 2,
    "complexity": 1,
    "tracking": 3,
    "survival": 1,
    "labels": 1,
    "screening": 1,
    "icmil": 1,
    "league": 1,
    "tracked": 1,
    "tracked-reference": 1,
    "candidates": 1,
    "large-sets": 1,
    "calibration": 1,
    "cross-validation": 1,
    "small-sets": 1,
    "small-bags": 1,
}
# Settings that are already in the rows of a study, or that change no number.
_NAMED = ("seed", "lr", "margin", "threads", "logger", "accelerator")
STATE_RATE = 0.9  # of all estimators before it could be "auto", and of the authors' code
# Settings that are older than the first trials. A later setting counts only if it has not its default, so that older
# trials stay valid.
_FIRST = (
    "pooling estimator objective members epochs decay_at optimizer momentum weight_decay num_positive num_negative "
    "num_instances state_rate dual_lr objective_weight dual_domain temperature pooling_args encoder "
    "hidden dropout norm standardize scaling clip chunk_size val_fraction test_fraction select patience bag_column "
    "label_column groups split coords ignore allow_leakage precision"
)
_LEFT = {"state_schedule": "constant", "lag": False}  # settings of the first trials that do not exist now
# Their defaults were these numbers before, and still are for the mlp.
_ONCE: dict[str, Any] = {"clip": 3.0, "chunk_size": 4096}


class Store(TrialStore):
    """Finished trials of studies in ``CACHE/NAME.jsonl``, and their time.

    Examples
    --------
    >>> import tempfile
    >>> cache = Path(tempfile.mkdtemp())
    >>> with Store(cache, "trials") as store:
    ...     store.add([{"split": 0, "auroc": 0.9}])
    >>> with Store(cache, "trials") as store:
    ...     store.rows
    [{'split': 0, 'auroc': 0.9}]
    """

    def __init__(self, cache: Path, name: str) -> None:
        self.file = cache / f"{name}.jsonl"
        super().__init__(self.file)

    def select(self, *names: Row) -> list[Row]:
        """Return all rows that match a name, in the order of the store."""
        return [row for row in self.rows if any(name.items() <= row.items() for name in names)]

    def wall_time(self, section: str | None = None) -> float:
        """Return the seconds of a section (or of all sections), over all calls of a stopped and continued study."""
        return float(sum(row["wall"] for row in self.rows if "wall" in row and section in (None, row["section"])))

    def publish(self, folder: Path) -> Path:
        """Write ``FOLDER/NAME.jsonl.gz``, with the same bytes for the same rows; returns its path."""
        path = folder / f"{self.file.stem}{PACKED}"
        write_packed(path, self.file.read_bytes() if self.rows else b"")
        return path


def trial_name(study: str, **fields: Any) -> Row:
    """Return the name of a trial: its kind, the version of the kind, and its fields.

    Examples
    --------
    >>> trial_name("curves", set="musk1", split=0)
    {'study': 'curves', 'version': 1, 'set': 'musk1', 'split': 0}
    """
    return {"study": study, "version": VERSIONS[study], **fields}


def complete(
    groups: Sequence[Group[Task]],
    function: Callable[[Task], Sequence[Row]],
    *,
    store: Store,
    options: StudyOptions,
    section: str,
) -> None:
    """Compute the groups that the store does not hold, in `options.jobs` processes, and keep their rows.

    A group has one task; `function` returns one result for each trial. At the end, also when the study is stopped, the
    time is stored as a row ``{"wall": seconds, "section": section}``.
    """
    missing = store.missing(groups)
    if not missing:
        return
    started = time.perf_counter()
    total = sum(len(group.names) for group in missing)
    console = options.console or Console(quiet=True)
    try:
        with TrialProgress(section, MofNCompleteColumn(), total=total, console=console) as bar:
            compute(
                missing,
                function,
                keep=lambda group, results: store.keep(group.names, results[0]),
                workers=options.workers(),
                on_progress=bar.update,
            )
    finally:
        store.add([{"wall": time.perf_counter() - started, "section": section}])


class TrialProgress(LiveProgress):
    """Progress bar of trials."""

    def update(self, done: float, total: int | None = None) -> None:
        """Show the number of finished trials, and of all trials."""
        self._bar.update(self._task, completed=done, total=total)


def write_packed(path: Path, content: bytes) -> None:
    """Write a gzip file, with the same bytes for the same content; makes the folder."""
    write_bytes(path, gzip.compress(content, compresslevel=9, mtime=0))


def read_packed(path: Path) -> list[Row]:
    """Rows of published trials."""
    if not path.is_file():
        raise DataNotFoundError(f"Expected published trials, got no file {path}; name one, e.g. trials/table2{PACKED}.")
    if not path.name.endswith(PACKED):
        raise BagDataError(f"Expected published trials, NAME{PACKED}, got {path}; name such a file.")
    try:
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()]
    except (OSError, EOFError, ValueError, zlib.error):
        raise BagDataError(f"Expected lines of JSON packed by gzip, got damage (in {path}); fetch it again.") from None


def take_published(path: Path, cache: Path) -> int:
    """Add published trials to the cache if they are not there; returns their number.

    Examples
    --------
    >>> import tempfile
    >>> first, second = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> with Store(first, "study") as store:
    ...     store.add([{"split": 0}, {"split": 1}])
    ...     packed = store.publish(first / "trials")
    >>> take_published(packed, second), take_published(packed, second)
    (2, 0)
    """
    rows = read_packed(path)
    with Store(cache, path.name.removesuffix(PACKED)) as store:
        held = {json.dumps(row) for row in store.rows}
        new = [row for row in rows if json.dumps(row) not in held]
        store.add(new)
    return len(new)


def settings_hash(config: Settings, *, bags: Bags | None = None) -> str:
    """Return a short digest of the bags, and of the settings that are not in the rows.

    Examples
    --------
    >>> settings_hash(Settings(lr=0.1)) == settings_hash(Settings(lr=0.2)) != settings_hash(Settings(momentum=0.9))
    True
    """
    usual, first = Settings().flat(), set(_FIRST.split())
    # Studies on images name the encoder in their rows.
    named = config.resolve((1,)).flat()
    settings = config.flat() | {name: named[name] for name in ("encoder", "optimizer", "lr", "objective")}
    # What they are in a trial, which has no validation bags.
    settings |= {"select": "last"} if settings["select"] == "auto" else {}
    settings |= {"weight_decay": 1e-4} if settings["weight_decay"] is None else {}
    settings["hidden"] = settings["hidden"] or []  # for sets of at least the minimum width, the default is as before
    settings["test_fraction"] = settings["test_fraction"] if settings["test_fraction"] is not None else 0.2  # as before
    if settings["encoder"] == "mlp":
        settings |= {name: value for name, value in _ONCE.items() if settings[name] is None}
    if config.method.estimator == "vrsp-printed":
        settings["estimator"] = "vrsp"  # as it was called
    elif config.method.estimator != "vrsp":
        settings["state_rate"] = STATE_RATE  # without effect
    values = {
        name: value
        for name, value in settings.items()
        if name not in _NAMED and (name in first or value != usual[name])
    }
    left = _LEFT | ({"state": "relative"} if config.method.estimator == "vrsp" else {})
    digest = hashlib.sha256(json.dumps(values | left, sort_keys=True).encode())
    if bags is not None:
        digest.update(_content(bags))
    return digest.hexdigest()[:12]


def short_digest(content: Sequence[Any] | Mapping[str, Any]) -> str:
    """Return a short digest of a value that JSON can represent."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


@lru_cache(maxsize=32)
def _content(bags: Bags) -> bytes:
    parts = (bags.instances, bags.starts, bags.sizes, bags.require_labels())
    digests = [hashlib.sha256(np.ascontiguousarray(part).tobytes()).digest() for part in parts]
    return b"".join(digests)
