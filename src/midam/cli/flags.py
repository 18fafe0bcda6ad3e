"""Messages of the library in the words of the command line: parameters become flags."""

import ast
import re
import shlex
from collections.abc import Collection

# Flags that have another name than the parameter of `midam.data.read_bags`.
RENAMED = {"group_column": "groups", "split_column": "split", "coord_columns": "coords", "ignore_columns": "ignore"}


def as_flags(message: str, names: Collection[str]) -> str:
    """A message with its parameters as flags, where they are among these settings: `volume=True` to --volume."""

    def flag(match: re.Match[str]) -> str:
        name = RENAMED.get(match[1], match[1])
        if name not in names:
            return match[0]
        return f"--{name.replace('_', '-')}{_value(match[2])}"

    return re.sub(r"`(\w+)(?:=([^`]*))?`", flag, message)


def _value(text: str | None) -> str:
    """A value as it stands behind a flag, with the blank before it; a switch has none."""
    if text is None or text == "True":
        return ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return f" {text}"
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return f" {shlex.quote(str(value))}"
