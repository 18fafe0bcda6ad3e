"""A default stands once, in the settings: a class that takes a setting has that default, or none of its own."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

from midam.settings import Settings

# How data is read and cut is named by readers of their own; the rooms below name what classes are built with.
ROOMS = ("method", "training", "model", "run")
# What goes by the shape of the instances; a class can't know it.
BY_SHAPE = ("encoder", "optimizer", "lr", "members", "center_start", "clip", "chunk_size", "threads")
# Other things of the same name: a number of folds, and the share at which noisy-and rises; a start of its own where
# there are no settings.
OTHERS = {
    ("stratified_folds", "folds"),
    ("NoisyAndPooling", "threshold"),
    ("MinMaxAUCLoss", "center_start"),
    *((name, "folds") for name in ("MIDAMClassifier", "MIDAMRanker", "MIDAMSurvival")),  # one training a fit
}
PACKAGES = ("midam.nn", "midam.train", "midam.data", "midam.sklearn")


def modules(package: str) -> list[ModuleType]:
    """Return a package and all below it."""
    found = importlib.import_module(package)
    below = pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}.")
    return [found, *(importlib.import_module(module.name) for module in below)]


def differing(module: ModuleType) -> list[str]:
    """Return the parameters of public classes and functions whose default is not that of the setting."""
    names = Settings.names(*ROOMS)
    usual = {name: value for name, value in Settings().flat().items() if name in names}
    wrong = []
    for name, thing in vars(module).items():
        if name.startswith("_") or not callable(thing) or getattr(thing, "__module__", None) != module.__name__:
            continue
        if isinstance(thing, type) and issubclass(thing, (Exception, dict)):
            continue
        for parameter in inspect.signature(thing).parameters.values():
            setting, default = parameter.name, parameter.default
            if setting not in usual or default is parameter.empty or default is None or (name, setting) in OTHERS:
                continue
            own = usual[setting] is None and setting not in BY_SHAPE  # stands nowhere else
            if not own and (list(default) if isinstance(default, tuple) else default) != usual[setting]:
                wrong.append(f"{module.__name__}.{name}({setting}={default!r}), not {usual[setting]!r}")
    return wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_has_a_default_of_its_own(package):
    assert [found for module in modules(package) for found in differing(module)] == []


def test_another_default_is_found():
    module = ModuleType("planted")

    def build(*, num_instances=4, clip=10.0, momentum=0.1, hidden=(), chunk_size=None, temperature=0.1):
        pass

    build.__module__ = "planted"
    module.build = build
    assert differing(module) == [
        "planted.build(num_instances=4), not 8",
        "planted.build(clip=10.0), not None",
    ]
