"""Groups of trials in parallel processes: what is finished is kept, what is missing is computed, time is noted."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from studies.options import StudyOptions
from studies.store import Row, Store

Group = TypeVar("Group")


def compute(
    groups: Sequence[Group],
    function: Callable[[Group], list[Row]],
    *,
    store: Store,
    options: StudyOptions,
    section: str,
    sizes: Sequence[int] | None = None,
) -> None:
    """Compute groups of trials in `options.jobs` processes and keep their rows as they finish.

    Parameters
    ----------
    groups : sequence
        What is missing; each element is passed to `function`.
    function : callable
        Returns the rows of a group; it and the groups can be pickled.
    store : Store
        Gets the rows, and a row ``{"wall": seconds, "section": section}`` in the end, also when the study is stopped.
    options : StudyOptions
        Number of processes, and the console.
    section : str
        Name of the section whose time is noted.
    sizes : sequence of int, optional
        Trials of each group, for the progress bar. Default: one each.
    """
    if not groups:
        return
    started = time.perf_counter()
    # Arrays are pickled: memory-mapped, as joblib passes those of a megabyte, they would be read from disk at each
    # step, and nothing on disk is trained in lockstep.
    parallel = Parallel(n_jobs=options.jobs, return_as="generator_unordered", max_nbytes=None)
    results: Iterable[tuple[int, list[Row]]] = parallel(
        delayed(_numbered)(number, function, group) for number, group in enumerate(groups)
    )
    counts = list(sizes) if sizes is not None else [1] * len(groups)
    shown = options.console is not None and options.console.is_terminal
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with Progress(
            TextColumn("{task.description}"), *columns, console=options.console, disable=not shown
        ) as progress:
            task = progress.add_task(section, total=sum(counts))
            for number, rows in results:
                store.add(rows)
                progress.advance(task, counts[number])
    finally:
        store.add([{"wall": time.perf_counter() - started, "section": section}])


def wall_time(store: Store, section: str | None = None) -> float:
    """Return the seconds that were spent on a section (or on all), over all calls that were stopped and continued."""
    return float(sum(row["wall"] for row in store.rows if "wall" in row and section in (None, row["section"])))


def _numbered(number: int, function: Callable[[Any], list[Row]], group: Any) -> tuple[int, list[Row]]:
    return number, function(group)
