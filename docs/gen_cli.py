"""Write the options of `midam fit` into `docs/cli.md`, from the docstring and the defaults of `FitConfig`.

Run `python docs/gen_cli.py` from the repository's root. A test fails when the page is out of date.
"""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from midam.train.config import FitConfig

PAGE = Path(__file__).with_name("cli.md")
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"


def descriptions() -> dict[str, str]:
    """Text of each field in the docstring."""
    lines = (inspect.getdoc(FitConfig) or "").split("Parameters\n----------\n", 1)[1].splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith(" "):
            found[line.strip()] = []
        elif line.strip():
            found[list(found)[-1]].append(line.strip())
    return {name: " ".join(text) for name, text in found.items()}


def default_of(field: "dataclasses.Field[Any]") -> str:
    """Default as it would be typed."""
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    return value if isinstance(value, str) else json.dumps(value)


def values_of(kind: Any) -> str:
    """Values that an option takes."""
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    names = [getattr(part, "__name__", str(part)) for part in get_args(kind)] if get_origin(kind) is not list else []
    if names and get_origin(kind) is not dict:
        return " or ".join("`null`" if name == "NoneType" else name for name in names)
    return str(kind) if get_origin(kind) else kind.__name__


def table() -> str:
    """Options as a Markdown table."""
    texts = descriptions()
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(FitConfig):
        option = "--" + field.name.replace("_", "-")
        values = values_of(field.type).replace("dict[str, typing.Any]", "dict")
        text = texts[field.name].replace("|", "\\|")
        rows.append(f"| `{option}` | {values} | `{default_of(field)}` | {text} |")
    return "\n".join(rows)


def rendered(page: str) -> str:
    """Page with a fresh table between the markers."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
