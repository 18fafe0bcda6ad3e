"""Write the stub of the keyword parameters of the estimators, by which editors and type checkers know the settings.

Run `python docs/gen_stub.py` from the repository's root after a change of a setting. A test fails when the stub is out
of date.
"""

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from midam.settings.settings import groups
from midam.sklearn.base import setting_defaults

STUB = Path(__file__).parents[1] / "src/midam/sklearn/parameters.pyi"
HEAD = """\
# Written by docs/gen_stub.py; do not edit.
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

class SettingParameters(TypedDict, total=False):
"""
COMMON = ("show_progress: bool", "random_state: int | None", "verbose: int")


def rendered() -> str:
    """Return the stub."""
    fields = {name: field for _, group in groups().values() for name, field in group.model_fields.items()}
    lines = [f"{name}: {_word(fields[name].annotation, value)}" for name, value in setting_defaults().items()]
    return HEAD + "".join(f"    {line}\n" for line in (*lines, *COMMON))


def _word(kind: Any, default: object) -> str:
    found = _type(kind)
    return f"{found} | None" if default is None and "None" not in found else found


def _type(kind: Any) -> str:
    """An annotation of a setting, as what may be given for it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(parts[0])
    if origin in (UnionType, Union):
        return " | ".join(_type(part) for part in parts)
    if origin is Literal:
        return "Literal[{}]".format(", ".join(f'"{part}"' if isinstance(part, str) else repr(part) for part in parts))
    if origin is tuple:
        return f"Sequence[{_type(parts[0])}]"
    if origin is dict:
        return "dict[str, Any]"
    return "None" if kind is type(None) else str(kind.__name__)


if __name__ == "__main__":
    STUB.write_text(rendered(), encoding="utf-8")
