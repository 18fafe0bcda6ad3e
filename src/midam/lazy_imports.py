"""Names that are imported on first access (PEP 562), so that importing midam is cheap: exports, pandas and torch."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["exports", "pandas", "torch"]


class _Lazy(ModuleType):
    """A module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import pandas
    import torch
else:
    pandas, torch = _Lazy("pandas"), _Lazy("torch")


def exports(package: str, *, modules: str = "") -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__all__`, `__getattr__` and `__dir__` of the package `package`.

    The names are those that its file imports under ``if TYPE_CHECKING:``, so that one list serves type checkers and
    this function. `modules` are submodules that are attributes too.
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
        if name in inside:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *table, *inside})

    return sorted(table), find, listed
