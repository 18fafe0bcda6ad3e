"""Names that a package exports, each imported when it is first asked for (PEP 562), so that a package costs nothing."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(
    package: str, names: Mapping[str, str], *, modules: str = ""
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """What the package `package` takes for its `__all__`, `__getattr__` and `__dir__`.

    `names` is a module and the names that come from it, separated by spaces; `modules` are the modules inside that are
    attributes too.
    """
    table = {name: module for module, listed in names.items() for name in listed.split()}
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
