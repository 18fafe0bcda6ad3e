"""The settings as constructor parameters: names, defaults and types come from `midam.settings`."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from midam.errors import option_advice
from midam.settings import Settings
from midam.synonyms import same_meaning

_OF_FILES = (*Settings.names("data", "cut"), "test_fraction", "allow_leakage", "logger", "logger_args", "reads")
_OF_RUNS = ("baseline",)


def setting_defaults() -> dict[str, Any]:
    """Settings that are parameters of a classifier, and their defaults; None for an empty dictionary."""
    groups = dict(Settings()).values()
    values = {name: value for group in groups for name, value in group if name not in (*_OF_FILES, *_OF_RUNS)}
    # A default that can be changed in place would be shared by all classifiers.
    return {name: None if isinstance(value, dict) else value for name, value in values.items()}


def chosen_settings(parameters: Mapping[str, Any]) -> Settings:
    """Settings that the parameters of a classifier stand for; a `ConfigError` for values that cannot be."""
    defaults = Settings().flat()
    found = {name: parameters[name] for name in setting_defaults()}
    return Settings(**{name: {} if value is None and defaults[name] == {} else value for name, value in found.items()})


def constructor(name: str, own: Mapping[str, Any]) -> Callable[..., None]:
    """The ``__init__`` of a class of that name: a keyword parameter for each setting, and those of `own`."""
    defaults = {**setting_defaults(), **own}
    named = [Parameter(key, Parameter.KEYWORD_ONLY, default=value) for key, value in defaults.items()]

    def __init__(self: Any, **parameters: Any) -> None:  # noqa: N807
        for given in parameters:
            ours = given in defaults or same_meaning(given, defaults)
            if not ours and same_meaning(given, [own for own in _OF_FILES if own not in defaults]):
                raise TypeError(f"Expected no parameter {given!r}: it is about files; pass bags, y and groups to fit.")
            if given in _OF_RUNS:
                raise TypeError(
                    f"Expected no parameter {given!r}: fit has no test bags on which a baseline could stand beside the "
                    "model; use `midam fit`, or `midam compare`."
                )
            if given not in defaults:
                raise TypeError(f"Expected a known parameter, got {given!r}; {option_advice(given, defaults)}")
        vars(self).update({**defaults, **parameters})

    __init__.__qualname__ = f"{name}.__init__"
    __init__.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *named])  # type: ignore[attr-defined]
    return __init__
