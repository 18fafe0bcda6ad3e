"""Descriptions of settings for the command line and its page: type, default, text and known names."""

import inspect
from dataclasses import dataclass
from typing import Any

from midam.settings.group import Named, SettingsGroup, marks_of, plain_type
from midam.settings.settings import Settings


@dataclass(frozen=True)
class Description:
    """One setting; type and default as they are written in YAML."""

    name: str  # flat
    group: str
    kind: Any
    default: Any
    text: str  # from the docstring of its group
    known: tuple[str, ...]  # names of a registry
    paths: bool = False  # whether class paths are taken as well


def describe_settings() -> list[Description]:
    """All settings, in the order of the groups."""
    defaults, found = Settings().flat(), []
    for group, (_, kind) in groups().items():
        texts = _texts(kind)
        for name, field in kind.model_fields.items():
            marks = [mark for mark in marks_of(field) if isinstance(mark, Named)]
            known, paths = tuple(name for mark in marks for name in mark.names()), any(mark.paths for mark in marks)
            kind_of = plain_type(field.annotation)
            found.append(Description(name, group, kind_of, defaults[name], texts[name], known, paths))
    return found


def groups() -> dict[str, tuple[str, type[SettingsGroup]]]:
    """First line of the docstring and class of each group."""
    classes = {name: type(group) for name, group in Settings()}
    return {name: ((inspect.getdoc(group) or "").splitlines()[0], group) for name, group in classes.items()}


def _texts(group: type[SettingsGroup]) -> dict[str, str]:
    """Text of each setting in the docstring of its group."""
    lines = (inspect.getdoc(group) or "").split("Attributes\n----------\n", 1)[1].split("\n\n", 1)[0].splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(" "):
            found[list(found)[-1]].append(line.strip())
        else:
            found[line.strip()] = []
    return {name: " ".join(text) for name, text in found.items()}
