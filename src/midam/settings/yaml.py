"""Settings as YAML: flat names and plain values."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from midam.errors import ConfigError

_DEPTH, _VALUES = 32, 1_000_000  # of a file of settings, repeated parts counted each time


class _Loader(yaml.SafeLoader):
    """Plain values alone: a date is text, and a key that stands twice is refused."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary."""
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key {twice!r} twice")
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> dict[str, Any]:
    """Settings of a YAML file as a plain dictionary."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # of a safe loader
        strange = next(_strange(values), None)
    except FileNotFoundError:
        raise ConfigError(f"Expected a settings file, got nothing at {path}; check the path.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Expected YAML, got something else (in {path}): {reason}; correct the file.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"Expected 'key: value' lines, got something else (in {path}); correct the file.")
    if strange is not None:
        raise ConfigError(
            f"Expected texts, numbers, lists and dictionaries, got {strange} (in {path}); correct the file."
        )
    return values


def yaml_text(values: dict[str, Any]) -> str:
    """Settings as YAML."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _strange(values: Any) -> Iterator[str]:
    """What is no plain value; a file of repeated or endless parts ends it."""
    left, seen = [(values, 0)], 0
    while left:
        value, depth = left.pop()
        seen += 1
        if depth > _DEPTH or seen > _VALUES:
            yield f"parts inside each other, more than {_DEPTH} deep or {_VALUES} in all"
            return
        if isinstance(value, dict):
            left += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, list):
            left += [(part, depth + 1) for part in value]
        elif not isinstance(value, str | int | float | None):
            yield f"{type(value).__name__}"
