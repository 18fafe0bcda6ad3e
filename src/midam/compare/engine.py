"""Compute missing trials in parallel; a `Group` of trials is computed as a whole even if only some are missing."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from midam.compare.workers import TRIES, Lost, Workers, run_tasks
from midam.errors import TrialsLostError
from midam.methods.store import Row

Task = TypeVar("Task")
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Group(Generic[Task]):
    """Names of trials that are computed together, by tasks that run in parallel."""

    names: Sequence[Row]
    tasks: Sequence[Task]


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
