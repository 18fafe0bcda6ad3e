"""Where the tasks run: joblib's processes or threads, or the cluster behind its Ray and Dask backends."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import joblib

from midam.errors import ConfigError

BACKENDS = ("loky", "threading", "ray", "dask")
_MODULES = {"ray": "ray.util.joblib", "dask": "distributed"}


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
        # Arrays are pickled: a memory-mapped copy would be read from disk at each step.
        with joblib.parallel_config(backend=name, n_jobs=jobs, max_nbytes=None):
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
