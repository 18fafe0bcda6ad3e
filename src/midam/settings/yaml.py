"""Settings as YAML: flat names and plain values."""

from pathlib import Path
from typing import Any

import yaml

from midam.errors import ConfigError


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
