"""Seats on the workers of a Dask or Ray cluster: one task for each worker, with a GPU if requested."""

import os
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from midam.compare.workers import BACKENDS, VISIBLE, Farm, Lost, Workers, deal_device, visible_devices
from midam.errors import ConfigError, first_line, need_package

_ENVIRONMENT = {"dask": "DASK_SCHEDULER_ADDRESS", "ray": "RAY_ADDRESS"}
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.5


def open_cluster(workers: Workers) -> Farm:
    """Connect to the cluster, or start one on this machine."""
    return DaskFarm(workers) if workers.backend == "dask" else RayFarm(workers)


def address_of(workers: Workers) -> str | None:
    """Return the address of the cluster; None to start one."""
    return workers.cluster or os.environ.get(_ENVIRONMENT[workers.backend]) or None


def check_address(workers: Workers) -> None:
    """Refuse an address that does not answer."""
    address = address_of(workers)
    if address is None or (workers.backend == "ray" and address in ("auto", "local")):
        return
    if workers.backend == "dask" and address.endswith(".json"):
        if not Path(address).is_file():
            raise ConfigError(f"Expected a scheduler file of Dask, got none (in {address}); start the scheduler first.")
        return
    try:
        place = urlsplit(address if "://" in address else f"tcp://{address}")
        where = (place.hostname or "", place.port or 0)
        socket.create_connection(where, timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        form = "tcp://HOST:8786" if workers.backend == "dask" else "HOST:6379, ray://HOST:10001 or auto"
        raise ConfigError(
            f"Expected a {workers.backend} cluster at {address}, got no answer ({first_line(error)}); give its address "
            f"as {form}, and check that it runs and is reachable from here."
        ) from None


class Cluster(Farm):
    """Base of the farms of Dask and Ray, which wait for workers."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._package: Any = need_package(
            BACKENDS[workers.backend] or "", f"for the backend {workers.backend!r}", extra=workers.backend
        )
        self._running: dict[Any, Any] = {}

    def free_slots(self) -> int:
        """Return the number of workers that can take a task now; wait for a first worker."""
        most, busy, until = self._workers.jobs, len(self._running), time.monotonic() + self._workers.patience
        while not (free := self._free()) and not busy:
            if time.monotonic() > until:
                gpu = " that has a GPU" if self._workers.gpu else ""
                raise ConfigError(
                    f"Expected a worker{gpu} in the {self._workers.backend} cluster, got none in "
                    f"{self._workers.patience:g} seconds; start workers, and repeat the command to continue."
                )
            time.sleep(_POLL_SECONDS)
        return free if most is None else min(free, most - busy)

    @abstractmethod
    def _free(self) -> int: ...


class DaskFarm(Cluster):
    """Farm that sends tasks to Dask workers by address; Dask's retries would not show which task killed a worker."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        distributed, address = self._package, address_of(workers)
        self._local_cluster: Any = None
        try:
            if address is None:
                self._local_cluster = distributed.LocalCluster(
                    n_workers=workers.here(),
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    resources={"GPU": 1} if workers.gpu else None,
                )
                connection = {"address": self._local_cluster}
            else:
                connection = {"scheduler_file" if address.endswith(".json") else "address": address}
            self._client = distributed.Client(**connection, set_as_default=False, timeout=2 * _ANSWER_SECONDS)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConfigError(
                f"Expected a Dask scheduler at {address or 'this machine'}, got {first_line(error)}; check the address."
            ) from None
        self._held: dict[str, tuple[Callable[[Any], Any], Any]] = {}
        self._devices: dict[str, str | None] = {}
        self._news = threading.Event()

    def begin(self, number: int, function: Callable[[Any], Any], task: Any) -> bool:
        """Give the task to a free worker, which gets the function once; return False if no worker is free."""
        free = self._free_addresses()
        if not free:
            return False
        address = free[0]
        try:
            if self._held.get(address, (None,))[0] is not function:
                self._held[address] = (function, self._client.scatter(function, workers=[address], hash=False))
            device = self._device(address) if self._workers.gpu else None
        except (OSError, TimeoutError, KeyError, ValueError):
            # The worker has died meanwhile; if it is alive, the error has another cause.
            if address in self._addresses():
                raise
            return False
        options: dict[str, Any] = {"workers": [address], "allow_other_workers": False, "pure": False, "retries": 0}
        if self._workers.gpu:
            options["resources"] = {"GPU": 1}
        future = self._client.submit(call, self._held[address][1], task, device, **options)
        self._running[future] = (number, address)
        future.add_done_callback(lambda _: self._news.set())
        return True

    def ended(self) -> list[tuple[int, Any]]:
        """Return the results of finished tasks, and `Lost` for tasks whose worker is gone."""
        if not any(future.done() for future in self._running):
            self._news.wait(_POLL_SECONDS)
            self._news.clear()
        alive = set(self._addresses())
        results = []
        for future, (number, address) in list(self._running.items()):
            if future.done() or address not in alive:
                del self._running[future]
                result = self._result(future, address)
                if isinstance(result, Lost):
                    self._held.pop(address, None)
                    self._devices.pop(address, None)
                    future.cancel()
                results.append((number, result))
        return results

    def stop(self) -> None:
        """Cancel tasks that have not begun; a running task ends on its worker."""
        self._client.cancel(list(self._running))
        self._running.clear()
        self._client.close()
        if self._local_cluster is not None:
            self._local_cluster.close()

    def _result(self, future: Any, address: str) -> Any:
        lost = Lost(f"the Dask worker {address} is gone")
        if future.status == "error":
            error = future.exception()
            if isinstance(error, self._package.scheduler.KilledWorker):
                return Lost(first_line(error))
            raise error
        while future.status == "finished":
            # The worker still has the result, and may die before it sends it.
            try:
                return future.result(timeout=_ANSWER_SECONDS)
            except (TimeoutError, self._package.client.FutureCancelledError):
                if address not in self._addresses():
                    return lost
        return lost

    def _addresses(self) -> list[str]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        wants = self._workers.gpu
        return [address for address, worker in workers.items() if not wants or worker["resources"].get("GPU", 0) >= 1]

    def _free_addresses(self) -> list[str]:
        busy = {address for _, address in self._running.values()}
        return [address for address in self._addresses() if address not in busy]

    def _free(self) -> int:
        return len(self._free_addresses())

    def _device(self, address: str) -> str | None:
        """Return the GPU of a worker; workers of one machine with the same GPUs get different ones."""
        if address not in self._devices:
            visible = self._client.run(visible_devices, workers=[address])[address]
            host, alive = urlsplit(address).hostname, self._addresses()
            others = [other for other in self._devices if other in alive and urlsplit(other).hostname == host]
            used = [device for device in map(self._devices.get, others) if device is not None]
            self._devices[address] = deal_device(visible, used)
        return self._devices[address]


class RayFarm(Cluster):
    """Farm of Ray tasks without Ray's retries, each with a CPU and, if requested, a GPU that Ray chooses."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        ray, address = self._package, address_of(workers)
        self._opened = not ray.is_initialized()
        if self._opened:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
            options["address"] = address or "local"
            if address is None:
                options |= {"num_cpus": workers.here(), "include_dashboard": False}
            try:
                ray.init(**options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConfigError(
                    f"Expected a Ray cluster at {address or 'this machine'}, got {first_line(error)}; check the "
                    "address, and RAY_AUTH_MODE and RAY_AUTH_TOKEN if the cluster needs a token."
                ) from None
        gpus = {"num_gpus": 1} if workers.gpu else {}
        self._remote = ray.remote(num_cpus=1, max_retries=0, **gpus)(call)
        self._held: tuple[Callable[[Any], Any] | None, Any] = (None, None)

    def begin(self, number: int, function: Callable[[Any], Any], task: Any) -> bool:
        """Submit the task; the function is sent to each machine once."""
        if self._held[0] is not function:
            self._held = (function, self._package.put(function))
        self._running[self._remote.remote(self._held[1], task)] = number
        return True

    def ended(self) -> list[tuple[int, Any]]:
        """Return the results of finished tasks, and `Lost` for tasks whose worker has died."""
        ray, results = self._package, []
        for reference in ray.wait(list(self._running), num_returns=1, timeout=_POLL_SECONDS)[0]:
            number = self._running.pop(reference)
            died = ray.exceptions
            try:
                results.append((number, ray.get(reference)))
            except died.RayTaskError as error:
                raise error.cause from None
            except (died.WorkerCrashedError, died.NodeDiedError, died.OutOfMemoryError, died.ObjectLostError) as error:
                results.append((number, Lost(first_line(error))))
        return results

    def stop(self) -> None:
        """Kill the workers of running tasks."""
        for reference in self._running:
            self._package.cancel(reference, force=True)
        self._running.clear()
        self._held = (None, None)
        if self._opened:
            self._package.shutdown()

    def _free(self) -> int:
        total = self._package.cluster_resources()
        names = ["CPU", "GPU"] if self._workers.gpu else ["CPU"]
        return max(0, int(min(total.get(name, 0) for name in names)) - len(self._running))


def call(function: Callable[[Any], Any], task: Any, device: str | None = None) -> Any:
    """Run a task on a worker, with only its GPU, if any, which must not have been used before."""
    if device is not None:
        os.environ[VISIBLE] = device
    return function(task)
