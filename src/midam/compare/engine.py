"""The engine of trials: which are done, and the missing ones computed side by side.

A trial is a row, a dictionary of what JSON takes, known by the fields that name it. A `Group` of trials is computed
whole even if only some are missing: a training in lockstep repeats bit for bit only with the same others.
"""

import importlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

import joblib
from joblib import Parallel, delayed
from joblib.parallel import get_active_backend

from midam.compare.orphans import end_with
from midam.errors import CheckpointError, ConfigError
from midam.files import Journal

Row = dict[str, Any]
Task = TypeVar("Task")
BACKENDS = ("loky", "threading", "ray", "dask")
_MODULES = {"ray": "ray.util.joblib", "dask": "distributed"}


@dataclass(frozen=True, eq=False)
class Group(Generic[Task]):
    """Names of trials that are computed together, by tasks that run side by side."""

    names: Sequence[Row]
    tasks: Sequence[Task]


class TrialStore:
    """Rows of finished trials, in a journal of one process at a time, or in memory alone.

    Leave the context, or call `close`, to release the journal; one without rows is removed. A last line cut off by a
    crash is dropped; other damage is a `CheckpointError`, a journal that another process has a `ConfigError`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.rows: list[Row] = []
        self._journal: Journal | None = None
        self._indexes: dict[tuple[str, ...], dict[str, Row]] = {}
        if path is None:
            return
        busy = f"Expected no other process that adds to {path}, got one that is running; wait for its end."
        self._journal = Journal(path, busy=ConfigError(busy))
        self.rows = list(self._journal.rows)
        strange = (number for number, row in enumerate(self.rows, start=1) if not isinstance(row, dict))
        damaged = next(strange, self._journal.damaged)
        if damaged is not None:
            self.close()
            raise CheckpointError(
                f"Expected a trial in each line, got damage (in {path}, line {damaged}); remove the line to compute "
                "the trial again."
            )

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows; they are on the disk when this returns."""
        new = list(rows)
        if self._journal is not None:
            self._journal.add(new)
        self.rows += new
        for fields, index in self._indexes.items():
            index.update((_key(row, fields), row) for row in new)

    def find(self, names: Sequence[Row]) -> list[Row | None]:
        """The row of each name, or None; all names have the same fields."""
        if not names:
            return []
        fields = tuple(sorted(names[0]))
        if fields not in self._indexes:
            self._indexes[fields] = {_key(row, fields): row for row in self.rows}
        return [self._indexes[fields].get(_key(name, fields)) for name in names]

    def select(self, *names: Row) -> list[Row]:
        """All rows that match one of the names, in the order of the store."""
        return [row for row in self.rows if any(name.items() <= row.items() for name in names)]

    def missing(self, groups: Iterable[Group[Task]]) -> list[Group[Task]]:
        """The groups that are not done."""
        return [group for group in groups if None in self.find(group.names)]

    def keep(self, names: Sequence[Row], results: Sequence[Row]) -> None:
        """Add the rows of those names that have none yet."""
        held = self.find(names)
        self.add({**n, **r} for n, r, row in zip(names, results, held, strict=True) if row is None)

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close() if self.rows or self._journal.damaged else self._journal.remove()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def compute(
    groups: Sequence[Group[Task]],
    function: Callable[[Task], Any],
    *,
    keep: Callable[[Group[Task], list[Any]], None],
    jobs: int = 1,
    backend: str = "loky",
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Compute the tasks of all groups side by side with `function`, and `keep` each group with its results.

    Function, tasks and results can be pickled. `jobs` tasks run at a time on a `midam.compare.engine`. `on_progress`
    is called with the number of trials done, in which the tasks of a group count equally.
    """
    if not groups:
        return
    found: list[dict[int, Any]] = [{} for _ in groups]
    done = 0.0
    with use_backend(backend, jobs=jobs), closing(_results(groups, function)) as results:
        for g, t, result in results:
            found[g][t] = result
            if len(found[g]) == len(groups[g].tasks):
                keep(groups[g], [found[g].pop(i) for i in range(len(groups[g].tasks))])
            done += len(groups[g].names) / len(groups[g].tasks)
            if on_progress is not None:
                on_progress(done)


def _results(groups: Sequence[Group[Task]], function: Callable[[Task], Any]) -> Generator[tuple[int, int, Any]]:
    """Results of all tasks as they come, with group and place; closing stops what still runs."""
    calls = [
        delayed(_run)(function, task, g, t) for g, group in enumerate(groups) for t, task in enumerate(group.tasks)
    ]
    backend, jobs = get_active_backend()
    if backend.supports_return_generator:
        # One task in the queue of a worker: a stop has little to wait for.
        with closing(Parallel(return_as="generator_unordered", batch_size=1)(calls)) as results:
            yield from results
    else:
        # Ray's backend returns whole lists only.
        for low in range(0, len(calls), 2 * jobs):
            yield from Parallel(batch_size=1)(calls[low : low + 2 * jobs])


def _run(function: Callable[[Task], Any], task: Task, g: int, t: int) -> tuple[int, int, Any]:
    return g, t, function(task)


def _key(row: Row, fields: Sequence[str]) -> str:
    return json.dumps([row.get(field) for field in fields])


@contextmanager
def use_backend(name: str, *, jobs: int) -> Iterator[None]:
    """Let joblib run so many tasks at a time on a backend.

    ``RAY_ADDRESS`` or ``DASK_SCHEDULER_ADDRESS`` names a cluster; without one, workers start on this machine.
    """
    check_backend(name, jobs=jobs)
    if name == "ray":
        _load(_MODULES[name], name).register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=jobs):
            yield
    elif name == "dask":
        distributed = _load(_MODULES[name], name)
        named = _load("dask.config", name).get("scheduler-address", default=None)
        options = {} if named else {"n_workers": jobs, "threads_per_worker": 1}
        with distributed.Client(**options), joblib.parallel_config(backend="dask", n_jobs=jobs):
            yield
    else:
        # Loky's workers wait for minutes for a parent that was killed. Those of Ray and Dask end by themselves.
        how: dict[str, Any] = {"initializer": end_with, "initargs": (os.getpid(),)} if name == "loky" else {}
        # Arrays are pickled: a memory-mapped copy would be read from disk at each step.
        with joblib.parallel_config(backend=name, n_jobs=jobs, max_nbytes=None, **how):
            yield


def check_backend(name: str, *, jobs: int) -> None:
    """Refuse a backend that is unknown or not installed, and fewer than one job."""
    if name not in BACKENDS:
        raise ConfigError(f"Expected a backend of {', '.join(BACKENDS)}, got {name!r}; choose one of them.")
    if jobs < 1:
        raise ConfigError(f"Expected jobs >= 1, got {jobs}; choose another number.")
    if name in _MODULES:
        _load(_MODULES[name], name)


def _load(module: str, backend: str) -> ModuleType:
    package = "ray" if backend == "ray" else "dask[distributed]"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ConfigError(
            f"Expected the package {package} for the backend {backend!r}, got none; install it, or use loky."
        ) from None
