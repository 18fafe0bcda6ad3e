"""Run tasks in this process, in processes or threads of this machine, or on the workers of a cluster.

Each backend has seats with one task at a time, so that the task of a dead worker is known and tried again while the
others continue.
"""

import ctypes
import os
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from joblib import cpu_count
from joblib.externals.loky.process_executor import ProcessPoolExecutor

from midam.errors import ConfigError, need_package, require_choice, require_counts_if_given
from midam.registry import load_plugins, loaded_plugins

# Backends with their package; the extra has the name of the backend.
BACKENDS = {"loky": None, "threading": None, "ray": "ray", "dask": "distributed"}
TRIES = 3
_IDLE_SECONDS = 300.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Workers:
    """Place and number of parallel tasks.

    Parameters
    ----------
    backend : {"loky", "threading", "ray", "dask"}
        Processes or threads of this machine, or a cluster.
    jobs : int or None
        Number of parallel tasks. None: one for each worker of a cluster; on this machine, one for each GPU with `gpu`,
        else for each core.
    cluster : str, optional
        Address of a running cluster: ``tcp://HOST:8786`` or a scheduler file of Dask, ``HOST:6379``,
        ``ray://HOST:10001`` or ``auto`` of Ray. Default: ``DASK_SCHEDULER_ADDRESS`` or ``RAY_ADDRESS`` if set, else
        workers on this machine.
    gpu : bool
        Give each task a GPU.
    patience : float
        Seconds to wait for the first worker of a cluster.
    """

    backend: str = "loky"
    jobs: int | None = 1
    cluster: str | None = None
    gpu: bool = False
    patience: float = 60.0

    def check(self) -> None:
        """Raise a `MidamError` for a backend that is unknown or not installed, or a cluster that does not answer."""
        require_choice(list(BACKENDS), backend=self.backend)
        require_counts_if_given(jobs=self.jobs)
        package = BACKENDS[self.backend]
        if package is None and self.cluster is not None:
            raise ConfigError(
                f"Expected the backend dask or ray for the cluster {self.cluster}, got {self.backend!r}; name one."
            )
        if package is not None:
            need_package(package, f"for the backend {self.backend!r}", extra=self.backend)
            import_module("midam.compare.clusters").check_address(self)

    def here(self) -> int:
        """Return the number of parallel tasks on this machine."""
        if self.jobs is not None:
            return self.jobs
        return len(visible_devices()) or 1 if self.gpu else int(cpu_count())


class Lost(str):
    """Reason that is returned instead of a result if the worker of the task has died."""

    __slots__ = ()


class Farm(ABC):
    """Seats for tasks."""

    @abstractmethod
    def free_slots(self) -> int:
        """Return the number of tasks that can begin now; wait for a first worker, or raise a `ConfigError`."""

    @abstractmethod
    def begin(self, number: int, function: Callable[[Any], Any], task: Any) -> bool:
        """Start a task under a number; return False if the free worker is gone."""

    @abstractmethod
    def ended(self) -> list[tuple[int, Any]]:
        """Return number and result (or `Lost`) of ended tasks; wait a while for a first. Raise exceptions of tasks."""

    @abstractmethod
    def stop(self) -> None:
        """End running tasks, and release the workers."""


@contextmanager
def open_farm(workers: Workers) -> Iterator[Farm]:
    """Open seats for tasks; all tasks have ended when the context is left."""
    workers.check()
    count, farm = workers.here(), None
    if BACKENDS[workers.backend] is not None:
        farm = import_module("midam.compare.clusters").open_cluster(workers)
    elif count == 1:
        farm = Here()
    elif workers.backend == "threading":
        farm = Local([Seat() for _ in range(count)])
    else:
        devices: Sequence[str | None] = visible_devices() if workers.gpu else []
        share = max(1, cpu_count() // count)
        farm = Local([_process(i, share, devices[i % len(devices)] if devices else None) for i in range(count)])
    try:
        yield farm
    finally:
        farm.stop()


def run_tasks(farm: Farm, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Generator[tuple[int, Any]]:
    """Yield index and result of each task as it ends; `Lost` if its worker has died `TRIES` times.

    An exception of a task is raised, and stops all tasks. Workers import the plug-ins of this process first.
    """
    function = partial(_with_plugins, loaded_plugins(), function)
    waiting, deaths, running = deque(range(len(tasks))), Counter[int](), 0
    while waiting or running:
        for _ in range(min(len(waiting), farm.free_slots())):
            if not farm.begin(waiting[0], function, tasks[waiting[0]]):
                break
            waiting.popleft()
            running += 1
        for number, result in farm.ended():
            running -= 1
            deaths[number] += isinstance(result, Lost)
            if isinstance(result, Lost) and deaths[number] < TRIES:
                waiting.append(number)
            else:
                yield number, result


def _with_plugins(modules: Sequence[str], function: Callable[[Any], Any], task: Any) -> Any:
    load_plugins(modules)
    return function(task)


class Here(Farm):
    """Farm in this process: a task is computed when its result is requested."""

    def __init__(self) -> None:
        self._task: tuple[int, Callable[[Any], Any], Any] | None = None

    def free_slots(self) -> int:
        """Return 1 without a task, else 0."""
        return int(self._task is None)

    def begin(self, number: int, function: Callable[[Any], Any], task: Any) -> bool:
        """Take the task."""
        self._task = (number, function, task)
        return True

    def ended(self) -> list[tuple[int, Any]]:
        """Compute the task."""
        if self._task is None:
            return []
        (number, function, task), self._task = self._task, None
        return [(number, function(task))]

    def stop(self) -> None:
        """Do nothing: no task is running."""


class Seat:
    """A thread of this process or, with an `environment`, a process of this machine that is kept for later tasks.

    Each has its own executor, because an executor with many workers would not show the task of a dead worker.
    """

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self.environment = environment
        self._executor: Executor | None = None

    def submit(self, function: Callable[[Any], Any], task: Any) -> "Future[Any]":
        """Start the task."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1) if self.environment is None else _new_process(self.environment)
        return self._executor.submit(function, task)

    def end(self) -> None:
        """Wait for the running task of the thread, or kill the process."""
        if self._executor is not None:
            self._executor.shutdown(**{"cancel_futures" if self.environment is None else "kill_workers": True})
            self._executor = None


def _new_process(environment: dict[str, str]) -> Executor:
    # A process that has grown in memory is replaced between two tasks, without loss.
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
    # Without the thread of `end_with`, the process would outlive a killed parent by minutes.
    return ProcessPoolExecutor(1, timeout=_IDLE_SECONDS, env=environment, initializer=end_with, initargs=(os.getpid(),))


class Local(Farm):
    """Seats of this machine."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._free = list(seats)
        self._running: dict[Future[Any], tuple[int, Seat]] = {}

    def free_slots(self) -> int:
        """Return the number of seats without a task."""
        return len(self._free)

    def begin(self, number: int, function: Callable[[Any], Any], task: Any) -> bool:
        """Give the task a seat."""
        seat = self._free.pop()
        self._running[seat.submit(function, task)] = (number, seat)
        return True

    def ended(self) -> list[tuple[int, Any]]:
        """Wait for a first task to end; a new process replaces a dead one."""
        results = []
        for future in wait(self._running, return_when=FIRST_COMPLETED).done:
            number, seat = self._running.pop(future)
            self._free.append(seat)
            try:
                results.append((number, future.result()))
            except BrokenProcessPool as error:
                seat.end()
                results.append((number, Lost(str(error).strip().partition("\n")[0])))
        return results

    def stop(self) -> None:
        """End the processes with a task, and all threads."""
        threads = [seat for seat in self._free if seat.environment is None]
        for seat in [*(seat for _, seat in self._running.values()), *threads]:
            seat.end()
        self._running.clear()


# Idle processes are kept for the next call, because a new process has to import torch.
_PROCESSES: dict[tuple[int, int, int, str | None], Seat] = {}


def _process(number: int, threads: int, device: str | None) -> Seat:
    key = (os.getpid(), number, threads, device)
    if key not in _PROCESSES:
        variables = {name: os.environ.get(name, str(threads)) for name in _THREADS}
        _PROCESSES[key] = Seat(variables if device is None else {**variables, VISIBLE: device})
    return _PROCESSES[key]


def visible_devices() -> list[str]:
    """Return the names of the GPUs that this process may use, as in ``CUDA_VISIBLE_DEVICES``."""
    devices = os.environ.get(VISIBLE)
    if devices is not None:
        return [name.strip() for name in devices.split(",") if name.strip()]
    return [str(i) for i in range(import_module("torch").cuda.device_count())]


def deal_device(visible: Sequence[str], used: Collection[str]) -> str | None:
    """Choose the GPU that a worker sees and that the fewest workers of its machine use.

    Examples
    --------
    >>> deal_device(["0", "1"], ["0"]), deal_device(["0", "1"], ["0", "1"]), deal_device(["1"], ["1"])
    ('1', '0', '1')
    >>> deal_device([], []) is None
    True
    """
    count = Counter(used)
    return min(visible, key=lambda name: count[name]) if visible else None


_EVERY_SECONDS = 0.5
_SYNCHRONIZE, _FOREVER = 0x00100000, 0xFFFFFFFF  # constants of the Windows API


def end_with(parent: int) -> None:
    """End this process soon after the process `parent`, even in the middle of a task."""
    threading.Thread(target=_watch, args=(parent,), name="midam-parent", daemon=True).start()


def _watch(parent: int) -> None:
    if sys.platform == "win32":
        kernel = ctypes.windll.kernel32
        handle = kernel.OpenProcess(_SYNCHRONIZE, False, parent)
        if handle:
            kernel.WaitForSingleObject(handle, _FOREVER)
    else:
        # An orphan gets another parent.
        while os.getppid() == parent:
            time.sleep(_EVERY_SECONDS)
    os._exit(1)
