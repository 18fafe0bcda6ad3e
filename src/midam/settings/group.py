"""Base of all groups of settings: strict types, immutable values, and errors of one form."""

import sys
from functools import reduce
from numbers import Integral, Real
from operator import or_
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
    field_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from midam.errors import ConfigError, fault_list, nearest
from midam.registry import Registry

AUTO: Final = "auto"
LARGEST_COUNT = 2**31 - 1  # that torch takes everywhere
Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1)]


def _word_or_number(value: Any) -> str:
    return "word" if isinstance(value, str) else "number"


# Discriminated by a tag, so that an error names only the type that was meant.
_Auto = Annotated[Literal["auto"], Tag("word")]
OpenCount = Annotated[Annotated[Count, Tag("number")] | _Auto, Discriminator(_word_or_number)]
OpenRate = Annotated[Annotated[Rate, Tag("number")] | _Auto, Discriminator(_word_or_number)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    # Equal strings become one object. Strings from a file would be pickled one by one, and the model of a resumed run
    # would differ in its bytes from that of an uninterrupted run.
    return sys.intern(value) if type(value) is str else value


class SettingsGroup(BaseModel):
    """Group of related settings.

    Whole numbers are accepted as floats, numpy's numbers as Python's and lists as tuples; texts are not accepted as
    numbers, nor truth values as whole numbers. One `ConfigError` lists all faults.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            faults = [fault for details in error.errors() for fault in _faults(type(self), details)]
            head = f"Expected valid settings, got {len(faults)} that are not; correct them:"
            raise ConfigError(fault_list(head, faults), faults) from None

    _in_python = field_validator("*", mode="before")(_plain)

    def _filled(self, **usual: Any) -> dict[str, Any]:
        """Return the values of the group, with None replaced by the value in `usual`."""
        return dict(self) | {name: value for name, value in usual.items() if getattr(self, name) is None}


class Named:
    """Marks a setting whose value is a name in a registry or in `also`; unknown names are refused, without import."""

    def __init__(self, registry: Registry, *, also: tuple[str, ...] = ()) -> None:
        self._registry, self._also = registry, also

    def names(self) -> list[str]:
        """Return the names that the setting accepts."""
        return [*self._also, *self._registry.names()]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the name after its type."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, name: str | None) -> str | None:
        if name is not None and name not in self.names():
            raise self._registry.unknown(name, also=self._also)
        return name


def plain_type(kind: Any) -> Any:
    """Return an annotation without marks, with lists instead of tuples: the form of a setting in YAML."""
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if get_origin(kind) in (UnionType, Union):
        return reduce(or_, (plain_type(part) for part in get_args(kind)))
    if get_origin(kind) is tuple:
        return list[plain_type(get_args(kind)[0])]  # type: ignore[misc]  # a type that is computed
    return kind


def _faults(group: type[BaseModel], details: ErrorDetails) -> list[str]:
    cause = details.get("ctx", {}).get("error")
    return cause.faults if isinstance(cause, ConfigError) else [_fault(group, details)]


def _fault(group: type[BaseModel], details: ErrorDetails) -> str:
    name, *place = details["loc"]
    if details["type"] == "extra_forbidden":
        return f"Expected a known setting, got {name!r}; {nearest(name, group.model_fields, count=2)}"
    value = details["input"]
    got = str(list(value)) if isinstance(value, tuple) else repr(value)
    entry = f" as entry {place[0] + 1}" if place and isinstance(place[0], int) else ""
    reason = details["msg"][:1].lower() + details["msg"][1:].replace("tuple", "list")
    return f"Expected a valid `{name}`, got {got}{entry}: {reason}; choose another value."
