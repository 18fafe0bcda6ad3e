"""All settings of a run, by flat names: raw and resolved, as YAML, and described for the command line."""

import copy
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, model_validator

from midam.errors import ConfigError, fault_list, nearest, with_place
from midam.names import nearby
from midam.reading import plain_fault, read_text
from midam.registry import ENCODERS, POOLINGS, Registry, take_known
from midam.settings.data import CutSettings, DataSettings
from midam.settings.group import Named, SettingsGroup, plain_type
from midam.settings.method import MethodSettings, ModelSettings, ResolvedMethod, ResolvedModel
from midam.settings.training import ResolvedRun, ResolvedTraining, RunSettings, TrainingSettings

_SETTINGS = "the settings"
_SHOWN = 100  # unknown settings for which advice is looked up
# Limits of a settings file: bytes, depth of nesting, values (a repeated part counts each time), characters of a number.
# A list of 20 000 feature names passes.
_BYTES, _DEPTH, _VALUES, _DIGITS = 1 << 20, 32, 50_000, 100
_TEXTS = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")
_TAGS = (None, "!", "tag:yaml.org,2002:str", "tag:yaml.org,2002:binary")  # bytes are refused later, by name


class Settings(SettingsGroup):
    """Settings of a run, in six groups.

    Pass groups, single settings by their flat names, which are unique across the groups, or both. A `ConfigError` names
    all invalid values.

    Examples
    --------
    >>> settings = Settings(epochs=3, pooling="mean")
    >>> settings.training.epochs, settings.method.pooling, settings.training.lr
    (3, 'mean', None)
    >>> settings.resolve((166,)).training.lr
    0.05
    """

    method: MethodSettings = Field(default_factory=MethodSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    run: RunSettings = Field(default_factory=RunSettings)
    data: DataSettings = Field(default_factory=DataSettings)
    cut: CutSettings = Field(default_factory=CutSettings)

    def __init__(self, **values: Any) -> None:
        homes = _homes()
        given = {name: value for name, value in values.items() if name in type(self).model_fields}
        for name, value in values.items():
            if name in homes:
                given[homes[name]] = {**dict(given.get(homes[name], {})), name: value}
        refuse_unknown((name for name in values if name not in given), homes)
        super().__init__(**given)

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        _refuse_untaken(POOLINGS, self.method.pooling, self.method, "temperature")
        _refuse_untaken(POOLINGS, self.method.pooling, self.method, "attention")
        return self

    @classmethod
    def names(cls, *groups: str) -> list[str]:
        """Return the flat names of all settings, or of those in some groups."""
        return [name for name, home in _homes().items() if not groups or home in groups]

    @classmethod
    def from_flat(cls, values: Mapping[str, Any], *, source: str = _SETTINGS) -> Self:
        """Return settings from values as of `flat`, or from a part of them; messages name their `source`.

        The values may come from a file, whose entry `plugins` says where to find names that are unknown.
        """
        values = take_known(values, source)
        refuse_unknown(values, _homes(), source=source)
        try:
            return cls(**values)
        except ConfigError as error:
            if source == _SETTINGS:
                raise
            raise ConfigError(with_place(error, f"in {source}")) from None

    def flat(self) -> dict[str, Any]:
        """Return a plain dictionary of all settings by their flat names, safe for YAML and checkpoints."""
        pairs = (pair for group in dict(self).values() for pair in group)
        return {name: list(value) if isinstance(value, tuple) else copy.deepcopy(value) for name, value in pairs}

    def replace(self, **changes: Any) -> Self:
        """Return these settings with changes, by flat name or by group."""
        return type(self)(**{**dict(self), **changes})

    def resolve(self, instance_shape: tuple[int, ...]) -> "ResolvedSettings":
        """Return these settings with the defaults that depend on the instance shape; given values do not change.

        [C, H, W] of at least 8 x 8 is an image, [C, D, H, W] a volume, any other shape features. A given setting that
        the encoder does not take raises a `ConfigError`.

        Examples
        --------
        >>> [Settings().resolve(shape).model.encoder for shape in [(166,), (3, 32, 32), (1, 32, 64, 64)]]
        ['mlp', 'resnet20', 'resnet20-3d']
        """
        model = self.model.resolve(instance_shape)
        deep = model.encoder != "mlp"
        return ResolvedSettings(
            method=self.method.resolve(deep=deep),
            training=self.training.resolve(deep=deep),
            model=model,
            run=self.run.resolve(instance_shape, deep=deep),
            data=self.data,
            cut=self.cut,
        )


class ResolvedSettings(Settings):
    """Settings for instances of one shape: encoder, optimizer, lr, members, center_start, clip, chunk_size, threads.

    The counts that depend on the training bags (num_positive, num_negative, num_instances) may still be "auto".

    Examples
    --------
    >>> resolved = Settings(epochs=3).resolve((3, 32, 32))
    >>> resolved.model.encoder, resolved.training.optimizer, resolved.training.lr
    ('resnet20', 'adam', 0.0003)
    """

    method: ResolvedMethod
    training: ResolvedTraining
    model: ResolvedModel
    run: ResolvedRun

    @model_validator(mode="after")
    def _fit_the_encoder(self) -> Self:
        for setting in ("hidden", "dropout", "norm"):
            _refuse_untaken(ENCODERS, self.model.encoder, self.model, setting)
        return self


def _unknown(name: object, names: list[str], *, source: str, kept: Collection[str]) -> str:
    """Return the message for an unknown setting, with the known one or other advice; `kept` are those of a run."""
    if name in kept:
        return f"Expected no setting of the run itself, got {name!r} (in {source}); leave it out, as the run keeps it."
    return f"Expected a known setting, got {name!r} (in {source}); {nearest(name, names, count=2)}"


def refuse_unknown(
    given: Iterable[object], known: Iterable[str], *, source: str = _SETTINGS, kept: Collection[str] = ()
) -> None:
    """Refuse all settings that are not `known` in one error, a line each; `kept` are the settings of a run."""
    names, given = list(known), list(dict.fromkeys(given))
    lost = [name for name in given if name not in names]
    faults = [_unknown(name, names, source=source, kept=kept) for name in lost[:_SHOWN]]
    faults += [f"Expected a known setting, got {name!r}." for name in lost[_SHOWN:]]
    if faults:
        head = f"Expected known settings, got {len(faults)} that are unknown (in {source}); correct them:"
        raise ConfigError(fault_list(head, faults), faults)


@cache
def _homes() -> dict[str, str]:
    """Return the name of the group of each setting."""
    return {name: home for home, (_, group) in groups().items() for name in group.model_fields}


def _refuse_untaken(registry: Registry, name: str, group: SettingsGroup, setting: str) -> None:
    """Refuse a given setting that the chosen class has no parameter for; import the class only for a given setting."""

    def takes(known: str) -> bool:  # `midam.registry.build` passes it
        return setting in inspect.signature(registry.find(known)).parameters

    value = getattr(group, setting)
    if value != type(group).model_fields[setting].default and not takes(name):
        got = list(value) if isinstance(value, tuple) else value
        raise ConfigError(
            f"Expected no `{setting}` with the {registry.kind} {name!r}, got {got!r}; it belongs to "
            f"{' and '.join(repr(known) for known in registry.names() if takes(known))}."
        )


class _Loader(yaml.SafeLoader):
    """Loader of plain values: dates and merge keys (<<) stay text; tags and duplicate keys are refused."""

    parts = 0

    def get_event(self) -> Any:
        """Return the next event; refuse tags, which may mean anything, and too many events."""
        event, self.parts = super().get_event(), self.parts + 1  # type: ignore[no-untyped-call]
        tag = getattr(event, "tag", None)
        if tag not in _TAGS:
            raise yaml.YAMLError(f"the tag {tag!r}")
        if self.parts > _VALUES:
            raise yaml.YAMLError(f"more than {_VALUES} keys and values")
        return event

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary; refuse duplicate keys."""
        seen = set[str | None]()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen:
                raise yaml.YAMLError(f"the key {name!r} twice")
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        """Return the text of a scalar; refuse a number of too many characters."""
        if node.tag.endswith((":int", ":float")) and len(node.value) > _DIGITS:
            raise yaml.YAMLError(f"a number of {len(node.value)} characters")
        return super().construct_scalar(node)


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] not in _TEXTS]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings from a YAML file as a plain dictionary."""
    if not path.exists():
        raise ConfigError(f"Expected a settings file, got nothing at {path}; {nearby(path)}")
    text = read_text(path, error=ConfigError, most=_BYTES)
    try:
        values = yaml.load(text, _Loader)  # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"Expected YAML, got something else (in {path}): {reason}; correct the file.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"Expected 'key: value' lines, got something else (in {path}); correct the file.")
    fault = plain_fault(values, deepest=_DEPTH, most=_VALUES)
    if fault is not None:
        raise ConfigError(
            f"Expected strings, numbers, lists and dictionaries, got {fault} (in {path}); correct the file."
        )
    return values


def yaml_text(values: dict[str, Any]) -> str:
    """Return settings as YAML."""
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


@dataclass(frozen=True)
class Description:
    """One setting, with its type and default as in YAML."""

    name: str  # flat
    group: str
    kind: Any
    default: Any
    text: str  # from the docstring of its group
    known: tuple[str, ...]  # names of a registry


def describe_settings() -> list[Description]:
    """Return the descriptions of all settings, in the order of the groups."""
    defaults = Settings().flat()
    descriptions = []
    for group, (_, kind) in groups().items():
        texts = _texts(kind)
        for name, field in kind.model_fields.items():
            known = tuple(name for mark in field.metadata if isinstance(mark, Named) for name in mark.names())
            kind_of = plain_type(field.annotation)
            descriptions.append(Description(name, group, kind_of, defaults[name], texts[name], known))
    return descriptions


def groups() -> dict[str, tuple[str, type[SettingsGroup]]]:
    """Return the first docstring line and the class of each group."""
    classes: dict[str, Any] = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {name: ((inspect.getdoc(group) or "").splitlines()[0], group) for name, group in classes.items()}


def _texts(group: type[SettingsGroup]) -> dict[str, str]:
    """Return the text of each setting in the docstring of its group."""
    attributes = (inspect.getdoc(group) or "").split("Attributes\n----------\n", 1)[1].split("\n\n", 1)[0]
    entries = re.findall(r"^(\w+)\n((?: .*\n?)+)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
