"""Write the stub of `MIDAMClassifier`, by which editors and type checkers know its parameters, from `midam.settings`.

`python docs/gen_cli.py` calls it; a test fails when the stub is out of date.
"""

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from midam.settings.describe import rooms
from midam.sklearn.parameters import setting_defaults

STUB = Path(__file__).parents[1] / "src/midam/sklearn/classifier.pyi"
HEAD = """\
# Written by docs/gen_cli.py; do not edit.
from collections.abc import Sequence
from typing import Any, Literal

from midam.sklearn.bag_classifier import BagClassifier

class MIDAMClassifier(BagClassifier):
    def __init__(
        self,
        *,
"""
OWN = ("positive: Any = None", "warm_start: bool = False", "show_progress: bool = False")


def rendered() -> str:
    """The stub."""
    fields = {name: field for _, room in rooms().values() for name, field in room.model_fields.items()}
    lines = [f"{name}: {_word(fields[name].annotation, value)}" for name, value in setting_defaults().items()]
    return HEAD + "".join(f"        {line},\n" for line in (*lines, *OWN)) + "    ) -> None: ...\n"


def _word(kind: Any, default: object) -> str:
    found = _type(kind)
    if default is None and "None" not in found:
        found += " | None"
    return f"{found} = {repr(default).replace(chr(39), chr(34))}"


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


def write() -> None:
    """Write the stub."""
    STUB.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    write()
