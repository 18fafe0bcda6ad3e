"""Settings as text: YAML files with flat names and plain values, and descriptions for the command line."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from midam.errors import ConfigError
from midam.reading import plain_fault, read_text
from midam.registry import ClassPath
from midam.settings.group import Named, SettingsGroup, marks_of, plain_type
from midam.settings.settings import Settings

# Of a file of settings: its bytes, how deep its parts lie, its values (repeated parts count each time), the keys that
# merges add, the characters of a number. A list of 20 000 feature names passes.
_BYTES, _DEPTH, _VALUES, _MERGED, _DIGITS = 1 << 20, 32, 50_000, 10_000, 100
_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:binary")  # bytes are refused by their name


class _Loader(yaml.SafeLoader):
    """Plain values alone: a date is text; tags, keys that stand twice and merges without end are refused."""

    merged = parts = 0

    def get_event(self) -> Any:
        """Give the next event; one with a tag is refused, which may stand for anything, and one too many."""
        event, self.parts = super().get_event(), self.parts + 1  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in _TAGS:
            raise yaml.YAMLError(f"the tag {tag!r}")
        if self.parts > _VALUES:
            raise yaml.YAMLError(f"more than {_VALUES} keys and values")
        return event

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary."""
        seen = set[str]()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen:
                raise yaml.YAMLError(f"the key {name!r} twice")
            seen |= {name} if name is not None else set()
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: Any) -> None:
        """Take over what merge keys (<<) name; counted first, as merges of merges grow tenfold a line."""
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(part, yaml.MappingNode):
                        self.flatten_mapping(part)
                        self.merged += len(part.value)
                        if self.merged > _MERGED:
                            raise yaml.YAMLError(f"merges (<<) of more than {_MERGED} keys")
        super().flatten_mapping(node)

    def construct_number(self, node: Any) -> Any:
        """Make a whole number or a float."""
        if len(node.value) > _DIGITS:
            raise yaml.YAMLError(f"a number of {len(node.value)} characters")
        kind = "int" if node.tag.endswith(":int") else "float"
        return getattr(self, f"construct_yaml_{kind}")(node)


class _Dumper(yaml.SafeDumper):
    """Plain values alone; a class path that may be imported is a text like others once it is in a file."""


_Dumper.add_representer(ClassPath, yaml.SafeDumper.represent_str)
_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def read_yaml(path: Path) -> dict[str, Any]:
    """Settings of a YAML file as a plain dictionary."""
    if not path.exists():
        raise ConfigError(f"Expected a settings file, got nothing at {path}; check the path.")
    text = read_text(path, error=ConfigError, most=_BYTES)
    try:
        values = yaml.load(text, _Loader)  # of a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Expected YAML, got something else (in {path}): {reason}; correct the file.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"Expected 'key: value' lines, got something else (in {path}); correct the file.")
    fault = plain_fault(values, deepest=_DEPTH, most=_VALUES)
    if fault is not None:
        raise ConfigError(
            f"Expected texts, numbers, lists and dictionaries, got {fault} (in {path}); correct the file."
        )
    return values


def yaml_text(values: dict[str, Any]) -> str:
    """Settings as YAML."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


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
