"""Where the tasks run: joblib's processes or threads, or the cluster behind its Ray and Dask backends."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import joblib

from midam.errors import ConfigError

BACKENDS = ("loky", "threading", "ray", "dask")


@contextmanager
def use_backend(name: str, *, jobs: int) -> Iterator[None]:
    """Let joblib run on a backend.

    Parameters
    ----------
    name : str
        "loky" (processes), "threading", "ray" (``RAY_ADDRESS`` names the cluster, default: this machine) or "dask"
        (``DASK_SCHEDULER_ADDRESS`` names the scheduler, default: workers on this machine).
    jobs : int >= 1
        Tasks at a time.

    Raises
    ------
    ConfigError
        For another name, or a backend whose package is not installed.
    """
    check_backend(name, jobs=jobs)
    if name == "ray":
        _load("ray.util.joblib", "ray").register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=jobs):
            yield
    elif name == "dask":
        distributed = _load("distributed", "dask")
        options = {} if _dask_address() else {"n_workers": jobs, "threads_per_worker": 1}
        with distributed.Client(**options), joblib.parallel_config(backend="dask", n_jobs=jobs):
            yield
    else:
        # Arrays are pickled: a memory-mapped copy would be read from disk at each step.
        with joblib.parallel_config(backend=name, n_jobs=jobs, max_nbytes=None):
            yield


def check_backend(name: str, *, jobs: int) -> None:
    """Refuse a backend that is unknown or not installed, and fewer than one job."""
    if name not in BACKENDS:
        raise ConfigError(f"Expected a backend of {', '.join(BACKENDS)}, got {name!r}; choose one of them.")
    if jobs < 1:
        raise ConfigError(f"Expected jobs >= 1, got {jobs}; choose another number.")
    if name == "ray":
        _load("ray.util.joblib", "ray")
    if name == "dask":
        _load("distributed", "dask")


def _dask_address() -> str | None:
    address: str | None = _load("dask.config", "dask").get("scheduler-address", default=None)
    return address


def _load(module: str, backend: str) -> ModuleType:
    package = {"ray": "ray", "dask": "dask[distributed]"}[backend]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise ConfigError(
            f"Expected the package {package} for the backend {backend!r}, got none; install it, or use loky."
        ) from None
