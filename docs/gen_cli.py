"""Write the options of `midam fit` into `docs/cli.md`, from the docstrings and the defaults of `midam.settings`.

Run `python docs/gen_cli.py` from the repository's root; it writes the stub of `MIDAMClassifier` too (`gen_stub.py`). A
test fails when the page or the stub is out of date.
"""

import json
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from midam.settings.settings import Description, describe_settings, groups

PAGE = Path(__file__).with_name("cli.md")
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"


def values_of(setting: Description) -> str:
    """Values that an option takes."""
    if setting.known:
        names, path = ", ".join(f"`{name}`" for name in setting.known), " or a class path" if setting.paths else ""
        return f"{'list of ' if get_origin(setting.kind) is list else ''}{names}{path}"
    if get_origin(setting.kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(setting.kind))
    return " or ".join(_word(part) for part in _parts(setting.kind))


def tables() -> str:
    """Options as Markdown, a table a group."""
    lines: list[str] = []
    for group, (title, _) in groups().items():
        lines += [f"#### {group.capitalize()}", "", title, "", "| option | values | default | meaning |"]
        lines.append("|---|---|---|---|")
        for setting in describe_settings():
            if setting.group == group:
                option = "--" + setting.name.replace("_", "-")
                default = setting.default if isinstance(setting.default, str) else json.dumps(setting.default)
                text = setting.text.replace("|", "\\|")
                lines.append(f"| `{option}` | {values_of(setting)} | `{default}` | {text} |")
        lines.append("")
    return "\n".join(lines).strip()


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)


def _word(kind: Any) -> str:
    if kind is type(None):
        return "`null`"
    if get_origin(kind) is dict:
        return "dict"
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is list and get_origin(get_args(kind)[0]) is Literal:
        return f"list of {', '.join(f'`{value}`' for value in get_args(get_args(kind)[0]))}"
    return str(kind) if get_origin(kind) else str(kind.__name__)


def rendered(page: str) -> str:
    """Page with a fresh table between the markers."""
    head, rest = page.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{tail}"


if __name__ == "__main__":
    import gen_stub

    gen_stub.write()
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
