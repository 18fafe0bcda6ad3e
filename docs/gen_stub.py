"""Write the stubs of `midam.sklearn`, by which editors and type checkers know the parameters, from `midam.settings`.

Run `python docs/gen_stub.py` from the repository's root after a change of a setting. A test fails when a stub is out
of date.
"""

from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from midam.settings.settings import groups
from midam.sklearn.base import setting_defaults

FOLDER = Path(__file__).parents[1] / "src/midam/sklearn"
HEAD = """\
# Written by docs/gen_stub.py; do not edit.
from collections.abc import Sequence
from typing import Any, Literal

from midam.sklearn.{module} import {base}

class {name}({base}):
    def __init__(
        self,
        *,
"""
COMMON = (
    "warm_start: bool = False",
    "show_progress: bool = False",
    "random_state: int | None = None",
    "verbose: int = 0",
)


class Stub(NamedTuple):
    """A class whose constructor is made of the settings, and the parameters that are its own."""

    name: str
    base: str
    module: str
    own: tuple[str, ...]
    more: str = ""  # of the file

    def rendered(self) -> str:
        """The stub."""
        fields = {name: field for _, group in groups().values() for name, field in group.model_fields.items()}
        lines = [f"{name}: {_word(fields[name].annotation, value)}" for name, value in setting_defaults().items()]
        head = HEAD.format(name=self.name, base=self.base, module=self.module)
        return head + "".join(f"        {line},\n" for line in (*lines, *self.own)) + "    ) -> None: ...\n" + self.more


_WIDTH = 100  # of an annotation and its default

STUBS = {
    FOLDER / "classifier.pyi": Stub(
        "MIDAMClassifier",
        "BaseClassifier",
        "bag_classifier",
        ('method: str | None = "midam"', "positive: Any = None", *COMMON),
        "\nclass BagClassifier(MIDAMClassifier): ...\n",
    ),
    FOLDER / "ranker.pyi": Stub(
        "MIDAMRanker", "BagRanker", "bag_rankers", ("grades: Sequence[Any] | None = None", *COMMON)
    ),
    FOLDER / "survival.pyi": Stub("MIDAMSurvival", "BagSurvival", "bag_rankers", COMMON),
}


def _word(kind: Any, default: object) -> str:
    found = _type(kind)
    if default is None and "None" not in found:
        found += " | None"
    value = repr(default).replace(chr(39), chr(34))
    if isinstance(default, tuple) and len(found) + len(value) > _WIDTH:  # as ruff would wrap it
        own = "".join(f'            "{part}",\n' for part in default)
        value = f"(\n{own}        )"
    return f"{found} = {value}"


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
    """Write the stubs."""
    for path, stub in STUBS.items():
        path.write_text(stub.rendered(), encoding="utf-8")


if __name__ == "__main__":
    write()
