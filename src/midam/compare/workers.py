"""Compute trials in this process, in processes or threads of this machine, or on the workers of a cluster, by joblib.

A `Group` of trials is computed as a whole even if only some are missing.
"""

import os
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import current_process
from pathlib import Path
from typing import Any, Generic, TypeVar

from joblib import Parallel, cpu_count, delayed, parallel_config

from midam.errors import (
    ConfigError,
    TrialsLostError,
    first_line,
    need_package,
    require_choice,
    require_counts_if_given,
)
from midam.methods.store import Row
from midam.processes import end_with
from midam.registry import load_plugins, loaded_plugins

# Backends with their package; the extra has the name of the backend.
BACKENDS = {"loky": None, "threading": None, "ray": "ray", "dask": "distributed"}
TRIES = 3
_SHOWN = 5
Task = TypeVar("Task")
_ENVIRONMENT = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}
_ANSWER_SECONDS = 5.0
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Workers:
    """Place and number of parallel tasks.

    Parameters
    ----------
    backend : {"loky", "threading", "ray", "dask"}
        Processes or threads of this machine, or a cluster.
    jobs : int or None
        Number of parallel tasks; None, and on a running cluster of Dask: one for each worker of a cluster, each GPU of
        this machine with `gpu`, else each core.
    cluster : str, optional
        Address of a running cluster: ``tcp://HOST:8786`` or a scheduler file of Dask, ``HOST:6379``,
        ``ray://HOST:10001`` or ``auto`` of Ray. Default: ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS`` if set, else
        workers on this machine.
    gpu : bool
        Give each task a GPU: each process of this machine another one, on a cluster workers with the resource GPU.
    patience : float
        Seconds to wait for the first worker of a cluster.

    Examples
    --------
    >>> Workers("threading", jobs=2).here()
    2
    """

    backend: str = "loky"
    jobs: int | None = 1
    cluster: str | None = None
    gpu: bool = False
    patience: float = 60.0

    def check(self) -> None:
        """Raise a `MidamError` for a backend that is unknown or not installed, or a cluster that it cannot have."""
        require_choice(list(BACKENDS), backend=self.backend)
        require_counts_if_given(jobs=self.jobs)
        package = BACKENDS[self.backend]
        if package is None and self.cluster is not None:
            raise ConfigError(
                f"Expected the backend dask or ray for the cluster {self.cluster}, got {self.backend!r}; name one."
            )
        if package is not None:
            need_package(package, f"for the backend {self.backend!r}", extra=self.backend)

    def here(self) -> int:
        """Return the number of parallel tasks on this machine."""
        if self.jobs is not None:
            return self.jobs
        return len(visible_devices()) or 1 if self.gpu else int(cpu_count())

    @property
    def address(self) -> str | None:
        """The address of the cluster; None to start one."""
        return self.cluster or os.environ.get(_ENVIRONMENT[self.backend]) or None


class Lost(str):
    """Reason that is returned instead of a result if the worker of the task has died."""

    __slots__ = ()


def run_tasks(workers: Workers, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Generator[tuple[int, Any]]:
    """Yield index and result of each task as it ends; `Lost` if its worker has died `TRIES` times.

    A worker that dies ends the tasks that are running. These begin again after all others, one at a time, so that a
    task which kills its worker costs no other. An exception of a task is raised, and stops all tasks. Workers import
    the plug-ins of this process first.
    """
    workers.check()
    plugins = loaded_plugins()
    waiting, suspects, deaths = deque(range(len(tasks))), deque[int](), Counter[int]()
    with _opened(workers, function) as (jobs, broken):
        while waiting or suspects:
            queue, ahead = (waiting, 2 * jobs) if waiting else (suspects, 1)
            calls = (delayed(_numbered)(plugins, function, number, tasks[number]) for number in list(queue))
            # Arrays travel as they are: joblib's memory maps could not be written.
            run = Parallel(jobs, return_as="generator_unordered", batch_size=1, pre_dispatch=ahead, max_nbytes=None)
            try:
                with closing(run(calls)) as results:
                    for number, result in results:
                        queue.remove(number)
                        yield number, result
            except broken as error:
                for number in [queue.popleft() for _ in range(min(len(queue), jobs, ahead))]:
                    deaths[number] += 1
                    if deaths[number] < TRIES:
                        suspects.append(number)
                    else:
                        yield number, Lost(first_line(error))


def _numbered(plugins: Sequence[str], function: Callable[[Any], Any], number: int, task: Any) -> tuple[int, Any]:
    load_plugins(plugins)
    return number, function(task)


@contextmanager
def _opened(workers: Workers, function: Callable[[Any], Any]) -> Iterator[tuple[int, tuple[type[Exception], ...]]]:
    """Set joblib's backend; yield the number of parallel tasks, and what is raised if a worker dies."""
    if BACKENDS[workers.backend] is not None:
        with (_dask if workers.backend == "dask" else _ray)(workers, function) as opened:
            yield opened
        return
    jobs, options = workers.here(), dict[str, Any]()
    if workers.backend == "loky" and jobs > 1:
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
        devices = visible_devices() if workers.gpu else []
        options = {"initializer": _begin, "initargs": (os.getpid(), devices)}
        options["inner_max_num_threads"] = max(1, cpu_count() // jobs)
    with parallel_config(workers.backend, n_jobs=jobs, **options):
        yield jobs, (BrokenExecutor,)


@contextmanager
def _dask(workers: Workers, function: Callable[[Any], Any]) -> Iterator[tuple[int, tuple[type[Exception], ...]]]:
    distributed, address, local = import_module("distributed"), workers.address, None
    resources = {"GPU": 1} if workers.gpu else None
    from_file = str(address).endswith(".json")
    if from_file and not Path(str(address)).is_file():  # Dask would wait for it
        raise ConfigError(f"Expected a scheduler file of Dask, got none (in {address}); start the scheduler first.")
    try:
        if address is None:
            local = distributed.LocalCluster(
                n_workers=workers.here(), threads_per_worker=1, dashboard_address="127.0.0.1:0", resources=resources
            )
        connection = {"scheduler_file" if from_file else "address": local or address}
        client = distributed.Client(**connection, set_as_default=False, timeout=2 * _ANSWER_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(
            f"Expected a Dask scheduler at {address or 'this machine'}, got {first_line(error)}; check the address."
        ) from None
    try:
        _await_dask(client, workers)
        jobs = workers.jobs or len(client.scheduler_info(n_workers=-1)["workers"])
        options = {"client": client, "scatter": [function]} | ({"resources": resources} if resources else {})
        with parallel_config("dask", n_jobs=jobs, **options):
            yield jobs, (distributed.scheduler.KilledWorker, distributed.client.FutureCancelledError)
    finally:
        client.close()
        if local is not None:
            local.close()


def _await_dask(client: Any, workers: Workers) -> None:
    try:
        client.wait_for_workers(1, timeout=workers.patience)
    except TimeoutError:
        raise ConfigError(
            f"Expected a worker in the dask cluster, got none in {workers.patience:g} seconds; start workers, and "
            "repeat the command to continue."
        ) from None


@contextmanager
def _ray(workers: Workers, _: Callable[[Any], Any]) -> Iterator[tuple[int, tuple[type[Exception], ...]]]:
    ray, address = import_module("ray"), workers.address
    opened = not ray.is_initialized()
    if opened:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "address": address or "local"}
        if address is None:
            options |= {"num_cpus": workers.here(), "include_dashboard": False}
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"Expected a Ray cluster at {address or 'this machine'}, got {first_line(error)}; check the address, "
                "and RAY_AUTH_MODE and RAY_AUTH_TOKEN if the cluster needs a token."
            ) from None
    try:
        import_module("ray.util.joblib").register_ray()
        needs = "GPU" if workers.gpu else "CPU"
        jobs = workers.jobs or max(1, int(ray.cluster_resources().get(needs, 1)))
        options = {"ray_remote_args": {"num_gpus": 1}} if workers.gpu else {}
        with parallel_config("ray", n_jobs=jobs, **options):
            yield jobs, (ray.exceptions.RayError,)
    finally:
        if opened:
            ray.shutdown()


def visible_devices() -> list[str]:
    """Return the names of the GPUs that this process may use, as in ``CUDA_VISIBLE_DEVICES``."""
    devices = os.environ.get(_VISIBLE)
    if devices is not None:
        return [name.strip() for name in devices.split(",") if name.strip()]
    return [str(i) for i in range(import_module("torch").cuda.device_count())]


def _begin(parent: int, devices: Sequence[str]) -> None:
    """Prepare a new process of joblib, which would outlive a killed parent by minutes; give it a GPU by its number."""
    end_with(parent)
    if devices:
        number = int(current_process().name.rpartition("-")[2]) - 1
        os.environ[_VISIBLE] = devices[number % len(devices)]


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
