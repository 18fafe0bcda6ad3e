"""The engine of trials: find missing trials, and compute them in parallel.

A trial is a row, a dictionary that JSON can hold, with fields that name it. A `Group` of trials is computed as a whole
even if only some are missing.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from midam.compare.workers import TRIES, Lost, Workers, run_tasks
from midam.errors import CheckpointError, ConfigError, TrialsLostError
from midam.files import Journal

Row = dict[str, Any]
Task = TypeVar("Task")
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Group(Generic[Task]):
    """Names of trials that are computed together, by tasks that run in parallel."""

    names: Sequence[Row]
    tasks: Sequence[Task]


class TrialStore:
    """Rows of finished trials, in a journal that one process at a time writes, or only in memory.

    Leave the context, or call `close`, to release the journal; a journal without rows is removed. A last line that a
    crash cut off is dropped; other damage raises a `CheckpointError`, and a journal that another process holds a
    `ConfigError`.
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
        """Add rows; they are on the disk when the call returns."""
        new = list(rows)
        if self._journal is not None:
            self._journal.add(new)
        self.rows += new
        for fields, index in self._indexes.items():
            index.update((_key(row, fields), row) for row in new)

    def find(self, names: Sequence[Row]) -> list[Row | None]:
        """Return the row of each name, or None; all names have the same fields."""
        if not names:
            return []
        fields = tuple(sorted(names[0]))
        if fields not in self._indexes:
            self._indexes[fields] = {_key(row, fields): row for row in self.rows}
        return [self._indexes[fields].get(_key(name, fields)) for name in names]

    def select(self, *names: Row) -> list[Row]:
        """Return all rows that match a name, in the order of the store."""
        return [row for row in self.rows if any(name.items() <= row.items() for name in names)]

    def missing(self, groups: Iterable[Group[Task]]) -> list[Group[Task]]:
        """Return the groups with missing trials."""
        return [group for group in groups if None in self.find(group.names)]

    def keep(self, names: Sequence[Row], results: Sequence[Row]) -> None:
        """Add the results of names that have no row yet."""
        rows = self.find(names)
        self.add({**n, **r} for n, r, row in zip(names, results, rows, strict=True) if row is None)

    def close(self) -> None:
        """Release the journal."""
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
    workers: Workers | None = None,
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Compute the tasks of all groups in parallel with `function`, and `keep` each group with its results.

    Function, tasks and results must be picklable. The default of `workers` is one task at a time in this process.
    `on_progress` is called with the number of finished trials; unfinished groups count by their share of finished
    tasks. A task whose worker dies is tried three times in all. A group with a lost task is not kept, and a
    `TrialsLostError` names it after all other groups are kept.
    """
    if not groups:
        return
    places = [(g, t) for g, group in enumerate(groups) for t in range(len(group.tasks))]
    group_results: list[dict[int, Any]] = [{} for _ in groups]
    lost: dict[int, Lost] = {}
    progress = 0.0
    tasks = [groups[g].tasks[t] for g, t in places]
    with closing(run_tasks(workers or Workers(), function, tasks)) as results:
        for number, result in results:
            g, t = places[number]
            if isinstance(result, Lost):
                lost[g] = result
                continue
            group_results[g][t] = result
            if len(group_results[g]) == len(groups[g].tasks):
                keep(groups[g], [group_results[g].pop(i) for i in range(len(groups[g].tasks))])
            progress += len(groups[g].names) / len(groups[g].tasks)
            if on_progress is not None:
                on_progress(progress)
    if lost:
        raise _lost([groups[g] for g in lost], sum(len(group.names) for group in groups), next(iter(lost.values())))


def _lost(groups: Sequence[Group[Any]], total: int, why: str) -> TrialsLostError:
    names = [name for group in groups for name in group.names]
    texts = "; ".join(", ".join(f"{field} {value}" for field, value in name.items()) for name in names[:_SHOWN])
    more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return TrialsLostError(
        f"Expected a result of each of {total} trials, got none of {len(names)}, whose worker died {TRIES} times "
        f"({texts}{more}): {why.rstrip('.')}. The others are done; the same command tries these again.",
        names,
    )


def _key(row: Row, fields: Sequence[str]) -> str:
    return json.dumps([row.get(field) for field in fields])
