"""Code that a run or a settings file names: midam's and torch's runs, any other once somebody has trusted it."""

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from midam.errors import ConfigError, UntrustedError
from midam.files import write_text
from midam.reading import parse_json, read_bytes
from midam.registry import import_path
from midam.settings.describe import describe_settings

_OURS = ("midam.", "torch.")
# A function may be named for these too, and the file gives its arguments: none of midam, torch and Python is taken.
_MADE = {"encoder": "torch.nn.Module", "logger": "lightning_fabric.loggers.logger.Logger"}


def check_code(values: Mapping[str, Any], source: Path, *, trust: bool = False) -> None:
    """Refuse settings, which came from a file `source`, that name code which may not run; none of it is called.

    Of midam and torch an encoder must be a `torch.nn.Module`, and a logger one of Lightning Fabric. Code of other
    packages is imported only with `trust`, which is remembered by what is named and with which arguments, or where it
    was trusted before.

    Raises
    ------
    UntrustedError
        For code that nobody has trusted yet.
    ConfigError
        If the encoder is no network, or the logger no logger.
    """
    named = _class_paths(values)
    foreign = {setting: path for setting, path in named.items() if not str(path).startswith(_OURS)}
    if foreign and not trust and _digest(values, foreign) not in _trusted():
        setting, path = next(iter(foreign.items()))
        raise UntrustedError(
            f"Expected code of midam and torch alone, got the {setting} {path!r} (in {source}), which is code of "
            "somebody else; look at it, and give `trust` if you trust it and where the file comes from.",
            values,
        )
    for setting, base in _MADE.items():
        path = named.get(setting)
        if path is not None and not _makes(str(path), base, setting=setting):
            raise ConfigError(f"Expected a {base} as {setting}, got {path!r} (in {source}); name another one.")
    if trust:
        remember(values)


def remember(values: Mapping[str, Any]) -> None:
    """Trust the code that settings name from now on."""
    foreign = {setting: path for setting, path in _class_paths(values).items() if not str(path).startswith(_OURS)}
    known = _trusted()
    if foreign and _digest(values, foreign) not in known:
        known[_digest(values, foreign)] = ", ".join(map(str, foreign.values()))
        write_text(_place(), json.dumps(known, indent=2) + "\n")


def _class_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Class paths among settings and the method, by setting; those of a list under its name and number."""
    named = {setting.name for setting in describe_settings() if setting.known} | {"method"}
    found: dict[str, Any] = {}
    for setting in sorted(named & set(values)):
        value = values[setting]
        several = (
            {f"{setting} {number}": part for number, part in enumerate(value)}
            if isinstance(value, list | tuple)
            else {}
        )
        found |= {name: part for name, part in (several or {setting: value}).items() if "." in str(part)}
    return found


def _digest(values: Mapping[str, Any], foreign: Mapping[str, Any]) -> str:
    """SHA-256 of the code that is named and of its arguments."""
    arguments = {setting: values.get(f"{setting}_args") for setting in foreign}
    return hashlib.sha256(json.dumps([dict(foreign), arguments], sort_keys=True, default=str).encode()).hexdigest()


def _makes(path: str, base: str, *, setting: str) -> bool:
    """Whether a class path leads to a subclass of a base; of code that was trusted, also to a function that may."""
    thing = import_path(path, kind=setting)
    if isinstance(thing, type):
        return issubclass(thing, import_path(base, kind=setting))
    known = path.startswith(_OURS) or path.partition(".")[0] in sys.stdlib_module_names
    return not known and inspect.isfunction(thing)


def _trusted() -> dict[str, str]:
    """What was trusted before, by digest."""
    try:
        found = parse_json(read_bytes(_place(), error=ConfigError))
    except ValueError:  # a `ConfigError` is one too
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _place() -> Path:
    """File of what is trusted, where this system keeps settings."""
    usual = Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".config")
    folder = os.environ.get("APPDATA") if os.name == "nt" else os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else usual) / "midam" / "trusted.json"
