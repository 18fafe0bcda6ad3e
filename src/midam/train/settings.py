"""Values of settings whatever they are: their types, the names that were meant, and YAML."""

import difflib
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import yaml

from midam.errors import ConfigError


def unknown_key(key: object, known: list[str], *, source: str) -> str:
    """Message for an unknown key that names the nearest known one."""
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
    return f"Expected a known setting, got {key!r} (in {source}); {hint}"


def read_yaml(path: Path) -> dict[str, Any]:
    """Settings of a YAML file as a plain dictionary."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"Expected a settings file, got nothing at {path}; check the path.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Expected YAML, got something else (in {path}): {reason}; correct the file.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"Expected 'key: value' lines, got something else (in {path}); correct the file.")
    return values


def yaml_text(values: dict[str, Any]) -> str:
    """Settings as YAML."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def typed(name: str, value: Any, kind: Any) -> Any:
    """The value of a setting as its type says; whole numbers pass for floats, numpy's numbers for Python's."""
    if get_origin(kind) is Literal and value in get_args(kind):
        # The very string of the type: equal ones that are read from a file would be pickled one by one, and the model
        # of a run that was continued would differ from that of an uninterrupted one in its bytes.
        return get_args(kind)[get_args(kind).index(value)]
    if get_origin(kind) is UnionType:
        return None if value is None else typed(name, value, get_args(kind)[0])
    if get_origin(kind) is list and isinstance(value, list | tuple):
        return [typed(name, item, get_args(kind)[0]) for item in value]
    if get_origin(kind) is dict and isinstance(value, dict):
        return value
    number = {int: Integral, float: Real}.get(kind)
    if number is not None and isinstance(value, number) and not isinstance(value, bool):
        return kind(value)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    wanted = f"one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else getattr(kind, "__name__", kind)
    raise ConfigError(f"Expected {name} as {wanted}, got {value!r}; correct the setting.")
