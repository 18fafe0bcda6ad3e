"""Names that are imported on first access (PEP 562), so that importing midam is cheap: exports, pandas and torch."""

import ast
import sys
import warnings
from collections.abc import Callable, Collection
from importlib import import_module
from pkgutil import get_data
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["OLD_OBJECTIVES", "exports", "pandas", "torch"]


class _Lazy(ModuleType):
    """A module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import pandas
    import torch
else:
    pandas, torch = _Lazy("pandas"), _Lazy("torch")

# New names of the objectives by their old names.
OLD_OBJECTIVES = {
    name: f"{name}Loss"
    for name in ("MinMaxAUC", "PairwiseAUC", "BCE", "Cox", "CrossEntropy", "PartialAUC", "AveragePrecision")
}


def exports(
    package: str, *, modules: str = "", old: Collection[str] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__all__`, `__getattr__` and `__dir__` of the package `package`.

    The names are those that its file imports under ``if TYPE_CHECKING:``, so that one list serves type checkers and
    this function. `modules` are submodules that are attributes too, and `old` are the objectives that still have their
    old names, with a warning.
    """
    blocks = [node for node in ast.parse(get_data(package, "__init__.py") or b"").body if isinstance(node, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    table = {alias.name: str(line.module) for line in imports for alias in line.names}
    inside = modules.split()

    def find(name: str) -> Any:
        if name in table:
            value = getattr(import_module(table[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in old:
            new = OLD_OBJECTIVES[name]
            warnings.warn(
                f"Expected midam.nn.{new}, got its old name {package}.{name}; write the new one.", FutureWarning, 2
            )
            return getattr(import_module("midam.nn"), new)
        if name in inside:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *table, *inside})

    return sorted(table), find, listed
