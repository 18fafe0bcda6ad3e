"""What the commands share: how options are written, how a mistake is reported, and parameters as flags."""

import ast
import csv
import json
import re
import shlex
from argparse import HelpFormatter
from collections.abc import Collection, Sequence
from typing import Any, NoReturn, get_args, get_origin

from jsonargparse import ArgumentParser

from midam.errors import ConfigError
from midam.settings import Settings, unknown_setting
from midam.settings.describe import describe_settings, rooms

DATA = (
    "catalogue name (see `midam data list`), store, folder of feature files, images, slides or scans, manifest, or "
    ".npz, .csv, .tsv or .parquet file"
)
TRUST = "run code of other packages that the run or the settings file names, now and later"
SETTINGS = Settings.names()
_KINDS = {setting.name: setting.kind for setting in describe_settings()}
_FLAGS = [name for name, kind in _KINDS.items() if kind is bool]
_LISTS = {name: part for name, kind in _KINDS.items() for part in (kind, *get_args(kind)) if get_origin(part) is list}
# From the parser's wording to the form of our own messages.
_PLAIN = [
    (r"<class '(\w+)'>", r"\1"),
    (r"typing\.Literal", "one of "),
    (r'Parser key "(?:\w+\.)*(\w+)": Expected an? (.*)\. Got value: (.*)', r"Expected --\1 as \2, got \3"),
    (r'^expected "action" to be (.*), but it was not provided', r"Expected a command, \1, got none"),
    (r"the following arguments are required: (?:\w+\.)*(out|methods|cv)\b", r"Expected --\1, got nothing"),
    (r"the following arguments are required: (?:\w+\.)*(\w+)", r"Expected \1, got nothing"),
    (r"unrecognized arguments: (.*)", r"Expected no further arguments, got \1"),
]
# Flags that have another name than the parameter of `midam.data.read_bags`.
RENAMED = {"group_column": "groups", "split_column": "split", "coord_columns": "coords", "ignore_columns": "ignore"}


class Parser(ArgumentParser):
    """Hyphens in the help, one line for an error, the nearest option for an unknown one."""

    def __init__(self, command: str, text: str) -> None:
        super().__init__(prog=f"midam {command}", allow_abbrev=False, description=text)
        self.known: Sequence[str] = ()  # options of the command that was given, where this parser only hands on to it

    def add_text(self, flag: str, **how: Any) -> None:
        """Add an option that takes a text; None without it."""
        self.add_argument(flag, type=str | None, default=None, **how)

    def option_names(self) -> list[str]:
        """Names of the options, without hyphens."""
        return [action.dest for action in self._actions if action.option_strings and action.dest != "help"]

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """Help with hyphens in the names of the options."""
        text: str = super().format_help() if formatter is None else super().format_help(formatter)
        return re.sub(r"--[a-z]+(?:_[a-z]+)+", lambda match: match[0].replace("_", "-"), text)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        """Raise a `ConfigError` of one line."""
        unknown = re.search(r"(?:unrecognized arguments: --|does not accept option ')([\w.-]+)", message)
        if unknown:
            known = list(self.known) or self.option_names()
            raise ConfigError(unknown_setting(unknown[1], known, source="the command line"))
        text = " ".join(message.split()).rstrip(".")
        for pattern, plain in _PLAIN:
            text = re.sub(pattern, plain, text)
        raise ConfigError(f"{text}; see --help.")


def add_settings(parser: ArgumentParser, names: Collection[str] = SETTINGS) -> None:
    """Add settings to the options, those of a room as a group."""
    described = [setting for setting in describe_settings() if setting.name in names]
    for room, (title, _) in rooms().items():
        found = [setting for setting in described if setting.room == room]
        if not found:
            continue
        group = parser.add_argument_group(f"{room} settings", title)
        for setting in found:
            known = f" Known: {', '.join(setting.known)}; or a class path." if setting.known else ""
            text = setting.text + known
            group.add_argument(f"--{setting.name}", type=setting.kind, default=setting.default, help=text)


def normalize(argv: Sequence[str]) -> list[str]:
    """`--some-flag=x` to `--some_flag x`, a bare flag to `--flag true`, `--list a,b` to `--list [a,b]`."""
    tokens: list[str] = []
    for token in argv:
        name, equals, value = token.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        tokens += [name, value] if name.startswith("--") and equals else [name + equals + value]
    for at in range(len(tokens) - 1, -1, -1):
        bare = at + 1 == len(tokens) or tokens[at + 1].lower() not in ("true", "false")
        if tokens[at][2:] in _FLAGS and tokens[at].startswith("--") and bare:
            tokens.insert(at + 1, "true")
        plain = at + 1 < len(tokens) and not tokens[at + 1].startswith(("[", "--"))
        if tokens[at][2:] in _LISTS and tokens[at].startswith("--") and plain:
            parts = next(csv.reader([tokens[at + 1]]))
            # Quoted, or YAML would read the columns 2020 and no as a number and a truth value.
            texts = [json.dumps(part) for part in parts] if _LISTS[tokens[at][2:]] == list[str] else parts
            tokens[at + 1] = f"[{', '.join(texts)}]"
    return tokens


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
