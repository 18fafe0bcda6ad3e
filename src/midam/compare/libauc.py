"""LibAUC, loaded for comparison alone.

Its packages import torchvision, torch_geometric and more as soon as they are touched. A handful of its files is
enough, so they are imported one by one under empty parent packages. Nothing of LibAUC is changed or copied.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

from midam.errors import ConfigError

# Not `libauc`: an installed LibAUC stays reachable. Its files import each other relatively, so any name will do.
ROOT = "_peer_libauc"
PACKAGES = ("losses", "optimizers", "utils", "models", "metrics")


def libauc_folder() -> Path | None:
    """Return the folder that holds the package `libauc`, or None.

    The environment variable `MIDAM_LIBAUC` names it; else it is looked for among the installed packages, then in
    `libauc` of the environment, where ``pip install --no-deps --target`` may have put it.
    """
    named = os.environ.get("MIDAM_LIBAUC")
    if named:
        places = [Path(named)]
    else:
        spec = importlib.util.find_spec("libauc")
        installed = [] if spec is None or spec.origin is None else [Path(spec.origin).parents[1]]
        places = [*installed, Path(sys.prefix) / "libauc"]
    return next((place for place in places if (place / "libauc" / "losses" / "mil.py").is_file()), None)


def load_libauc() -> SimpleNamespace:
    """Return the modules `mil`, `midam`, `utils`, `paper_utils` and `mil_models` of LibAUC 2.0.1.

    The loss is `mil.MIDAMLoss`, the optimizer `midam.MIDAM`, the networks `mil_models.FFNN` and `FFNN_stoc_att`.
    They run unpatched on torch 2.13, which still has the `torch.optim.optimizer.required` that the optimizer imports.
    `tqdm`, which only its recommenders use, is replaced during the import by an empty module where it is missing.

    Raises
    ------
    ConfigError
        LibAUC is not in its folder.
    """
    folder = libauc_folder()
    if folder is None:
        raise ConfigError(
            "Expected LibAUC 2.0.1, got none; run `pip install --no-deps --target DIR libauc==2.0.1` and set "
            "MIDAM_LIBAUC=DIR."
        )
    for name in ("", *PACKAGES):
        _stub_package(folder / "libauc" / name, f"{ROOT}.{name}".rstrip("."))
    with _tqdm_or_stub():
        metrics = importlib.import_module(f"{ROOT}.metrics.metrics_k")
        sys.modules[f"{ROOT}.metrics"].__dict__.update(ndcg_at_k=metrics.ndcg_at_k, map_at_k=metrics.map_at_k)
        return SimpleNamespace(
            utils=importlib.import_module(f"{ROOT}.utils.utils"),
            paper_utils=importlib.import_module(f"{ROOT}.utils.paper_utils"),
            mil=importlib.import_module(f"{ROOT}.losses.mil"),
            midam=importlib.import_module(f"{ROOT}.optimizers.midam"),
            mil_models=importlib.import_module(f"{ROOT}.models.mil_models"),
        )


def _stub_package(folder: Path, name: str) -> None:
    """Register an empty package `name` whose modules lie in `folder`; its `__init__.py` never runs."""
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


@contextmanager
def _tqdm_or_stub() -> Iterator[None]:
    """Let `from tqdm import tqdm, trange` succeed where tqdm is not installed, and leave no trace of it."""
    try:
        importlib.import_module("tqdm")
    except ModuleNotFoundError:
        stub = ModuleType("tqdm")
        stub.__dict__.update(tqdm=iter, trange=range)
        sys.modules["tqdm"] = stub
        try:
            yield
        finally:
            del sys.modules["tqdm"]
    else:
        yield
