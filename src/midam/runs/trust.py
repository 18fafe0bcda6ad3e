"""Trust in code that a run or a settings file names: only midam, torch.nn and code that the user trusts may run.

Trust covers the class path, its arguments, and the content of the files that an import may run: the module, or all
modules of its package. If one of them changes, the user is asked again.
"""

import hashlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, all_suffixes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from midam.errors import ConfigError, UntrustedError, with_article
from midam.files import write_text
from midam.reading import parse_json, read_bytes
from midam.registry import (
    BASELINES,
    DRAWS,
    ENCODERS,
    ESTIMATORS,
    LOGGERS,
    OBJECTIVES,
    POOLINGS,
    READERS,
    ClassPath,
    Registry,
    import_path,
    no_import,
)

# Settings that may hold a class path; a test checks that this table is complete.
NAMED: dict[str, Registry] = {
    registry.kind: registry for registry in (POOLINGS, ESTIMATORS, OBJECTIVES, DRAWS, ENCODERS, LOGGERS, READERS)
} | {"method": BASELINES}
_TORCH = "torch.nn."
# These settings may also name a function, with arguments from the file; functions of midam, torch and Python are
# refused.
_MADE = {"encoder": "torch.nn.Module", "logger": "lightning_fabric.loggers.logger.Logger"}
_NO_FUNCTIONS = frozenset({*sys.stdlib_module_names, "midam", "torch"})


def check_code(values: Mapping[str, Any], source: Path, *, trust: bool = False) -> dict[str, Any]:
    """Return the settings of a file `source`, with permission to import their class paths; no code of them is called.

    Classes in midam's own tables and networks of `torch.nn` may always be imported. Code of other packages is imported
    only with `trust`, which is remembered, or if the same code was trusted before. The same applies to arguments of a
    logger, because a logger may write anywhere and send anything.

    Raises
    ------
    UntrustedError
        For code, or arguments of a logger, that are not trusted yet.
    ConfigError
        If the encoder is no network, or the logger no logger.
    """
    foreign = _foreign(values)
    _require_there(foreign, source)
    if foreign and not trust and _digest(values, foreign) not in _trusted():
        setting, name = next(iter(foreign.items()))
        expected, got = "names that midam knows", f"the {setting} {name!r} (in {source}), which is code of"
        got += " somebody else"
        if setting == "logger" and "." not in name:
            expected, got = f"no arguments of the logger {name!r} from a file", f"`logger_args` (in {source}), which"
            got += " could write to any place"
        advice = "look at it, and give `trust` if you trust it and where the file comes from"
        raise UntrustedError(f"Expected {expected}, got {got}; {advice}.", values)
    for setting, base in _MADE.items():
        path = foreign.get(setting, values.get(setting))
        if isinstance(path, str) and _is_path(setting, path) and not _makes(path, base, setting=setting):
            raise ConfigError(
                f"Expected {with_article(base)} as {setting}, got {path!r} (in {source}); name another one."
            )
    if trust:
        remember(values)
    return {name: _granted(name, value) for name, value in values.items()}


def remember(values: Mapping[str, Any]) -> None:
    """Trust the code that settings name from now on, in its present state."""
    foreign, trusted = _foreign(values), _trusted()
    if foreign and _digest(values, foreign) not in trusted:
        trusted[_digest(values, foreign)] = ", ".join(foreign.values())
        write_text(_place(), json.dumps(trusted, indent=2) + "\n", typed=True)


def _granted(setting: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_granted(setting, part) for part in value]
    return ClassPath(value) if isinstance(value, str) and _is_path(setting, value) else value


def _is_path(setting: str, name: str) -> bool:
    """Return whether a name in a setting is a class path, or a method name that contains class paths."""
    return setting in NAMED and "." in name and name not in NAMED[setting].names()


def _foreign(values: Mapping[str, Any]) -> dict[str, str]:
    """Return class paths that are neither midam's own nor in torch.nn, by setting; entries of a list get a number.

    Any logger with arguments is included.
    """
    foreign: dict[str, str] = {}
    for setting in sorted(set(NAMED) & set(values)):
        value = values[setting]
        several = isinstance(value, list | tuple)
        for number, part in enumerate(value if several else [value]):
            name = f"{setting} {number}" if several else setting
            path = str(part)
            ours = path in NAMED[setting].own() or (setting == "encoder" and path.startswith(_TORCH))
            if _is_path(setting, path) and not ours:
                foreign[name] = path
    if values.get("logger_args"):
        foreign["logger"] = str(values.get("logger"))
    return foreign


def _digest(values: Mapping[str, Any], foreign: Mapping[str, str]) -> str:
    """Return the SHA-256 of class paths, their arguments and the files of their code."""
    arguments = {setting: values.get(f"{setting}_args") for setting in foreign}
    paths = [part for name in foreign.values() for part in name.split("+") if "." in part]
    files = {path: code_digest(path.rpartition(".")[0]) for path in paths}
    content = [dict(foreign), arguments, files]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def code_digest(module: str) -> str:
    """Return the SHA-256 of the files of a module, or of all modules in its package; nothing is imported."""
    digest = hashlib.sha256()
    for file in _code_files(module):
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _code_files(module: str) -> Iterator[Path]:
    """Yield the code files in order; only the first name is looked up, because a submodule would import its parent."""
    spec, (_, *submodules) = _spec(module), module.split(".")
    if spec is None:
        return
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    if not places:
        files = [Path(str(place)) for place in (spec.origin, getattr(spec.loader, "archive", None))]
        yield from (file for file in files if file.is_file())
        return
    # A folder without __init__.py may hold unrelated code: only the named part counts.
    while submodules and not any((place / "__init__.py").is_file() for place in places):
        name = submodules.pop(0)
        places = [place / name for place in places]
    for place in places:
        yield from (file for suffix in all_suffixes() if (file := Path(f"{place}{suffix}")).is_file())
        for folder, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            files = [Path(folder, name) for name in sorted(names) if name.endswith(tuple(all_suffixes()))]
            yield from (file for file in files if file.is_file())


def _spec(module: str) -> ModuleSpec | None:
    """Return the import spec of the first name of a module; None if there is none."""
    try:
        return find_spec(module.partition(".")[0])
    except (ImportError, ValueError):  # a module without a file, or an invalid name
        return None


def _require_there(foreign: Mapping[str, str], source: Path) -> None:
    """Raise a `ConfigError` for code that does not exist, because there is nothing to trust."""
    for setting, name in foreign.items():
        for path in [part for part in name.split("+") if "." in part]:
            module = path.rpartition(".")[0]
            if _spec(module) is None:
                raise no_import(path, setting, f"in {source}; no module {module.partition('.')[0]!r}")


def _makes(path: str, base: str, *, setting: str) -> bool:
    """Return whether an importable class path leads to a subclass of `base`, or to a function that may be called."""
    thing = import_path(ClassPath(path), kind=setting)
    if isinstance(thing, type):
        return issubclass(thing, import_path(ClassPath(base), kind=setting))
    ours = path in NAMED[setting].own()
    return inspect.isfunction(thing) and (ours or path.partition(".")[0] not in _NO_FUNCTIONS)


def _trusted() -> dict[str, str]:
    """Return earlier decisions to trust code, by digest."""
    place = _place()
    try:
        decisions = parse_json(read_bytes(place, error=ConfigError)) if place.exists() else {}
    except ValueError:  # `ConfigError` is a subclass
        decisions = None
    if not isinstance(decisions, dict):
        warnings.warn(
            f"{place} is damaged: nothing counts as trusted until the next --trust, which replaces it", stacklevel=4
        )
        return {}
    return {str(key): str(value) for key, value in decisions.items()}


def _place() -> Path:
    """Return the file of trusted digests, in the settings folder of this system."""
    default = Path.home() / ("Library/Application Support" if sys.platform == "darwin" else ".config")
    folder = os.environ.get("APPDATA") if os.name == "nt" else os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else default) / "midam" / "trusted.json"
