"""The parser of all commands: spelling of options, messages about mistakes, and settings as options."""

import copy
import csv
import json
import re
import textwrap
from argparse import SUPPRESS, Action, HelpFormatter
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import yaml
from jsonargparse import ArgumentParser

from midam.errors import ConfigError, nearest
from midam.settings import Settings, refuse_unknown
from midam.settings.settings import describe_settings, groups

DATA = (
    "catalog name (see `midam data list`), store, folder of feature files, images, slides or scans, manifest, or "
    ".npz, .csv, .tsv, .xlsx or .parquet file"
)
_PLUGIN = "import MODULE, which adds names; also MIDAM_PLUGINS=A,B"
SETTINGS = Settings.names()
_KINDS = {setting.name: setting.kind for setting in describe_settings()}
_FLAGS = [name for name, kind in _KINDS.items() if kind is bool]
_LISTS = {name: part for name, kind in _KINDS.items() for part in (kind, *get_args(kind)) if get_origin(part) is list}
# Settings in the short help; --help-all shows all.
USUAL = (
    *("pooling", "estimator", "objective", "epochs", "members", "lr", "num_instances", "select", "encoder", "seed"),
    *("test_fraction", "bag_column", "label_column", "target", "groups", "split", "ignore", "labels"),
    "patch_size",
)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a dictionary"}
_FAULT = re.compile(r'Parser key "(?:\w+\.)*(?P<name>\w+)".*?(?:Got|Given) value: (?P<value>.*)')
_CHOICE = re.compile(r"argument (?P<name>[\w-]+): invalid choice: '?(?P<value>.*?)'? \(choose from (?P<known>.*)\)")
# Rewrites messages of the parser into the form of midam's messages.
_PLAIN = [
    (r'^expected "action" to be (.*), but it was not provided', r"Expected a command, \1, got none"),
    (r"(the following arguments are required: .*?)(?:\w+\.)*\b(out|methods|cv)\b", r"\1--\2"),
    (r"the following arguments are required: (?:\w+\.)*(.*)", r"Expected \1, got nothing"),
    (r"argument (--\S+): expected .*", r"Expected a value after \1, got nothing"),
    (r"unrecognized arguments: (.*)", r"Expected no further arguments, got \1"),
]


class _HelpAll(Action):
    """Action of ``--help-all``: print the help with all options."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.show_all()
        parser.print_help()
        parser.exit()


class _Formatter(HelpFormatter):
    """Help formatter that shows the kind of value and the default of each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _get_help_string(self, action: Action) -> str:
        text, default = (action.help or "").replace("%", "%%"), action.default
        plain = default is None or default is False or default in (SUPPRESS, "", [], {})
        if plain or not action.option_strings or "default:" in text.lower():
            return text
        value = default if isinstance(default, str) else json.dumps(default)
        return f"{text.rstrip('.')} (default: {value.replace('%', '%%')})"

    def _split_lines(self, text: str, width: int) -> list[str]:
        # A name such as gated-attention is one word.
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_action_invocation(self, action: Action) -> str:
        visible = copy.copy(action)
        visible.option_strings = [flag for flag in action.option_strings if not flag.endswith("+")]
        return super()._format_action_invocation(visible)


class Parser(ArgumentParser):
    """Parser with hyphens in the help, errors in one line, and the nearest option for an unknown one."""

    def __init__(self, command: str, text: str) -> None:
        self._command = f"midam {command}"
        self._hidden: dict[Any, str] = {}
        self._needed: list[str] = []
        super().__init__(prog=f"midam {command}", allow_abbrev=False, description=text, formatter_class=_Formatter)
        # Only -h has one hyphen, so any other word that begins with one is a value, such as a negative number.
        self._negative_number_matcher = re.compile(r"-[^-]")
        self.known: Sequence[str] = ()  # options of the subcommand, if this parser only passes words on to a subcommand
        self.add_text("--plugin", metavar="MODULE", help=_PLUGIN)  # `midam.cli.app` imports it before it parses

    def add_argument(self, *flags: Any, **options: Any) -> Any:
        """Add an argument, and remember whether it must be given."""
        action = super().add_argument(*flags, **options)
        if options.get("required") or (not action.option_strings and options.get("nargs") != "?"):
            self._needed.append(action.dest)
        return action

    def add_text(self, flag: str, **options: Any) -> None:
        """Add an option that takes a text; its default is None."""
        self.add_argument(flag, type=str | None, default=None, **({"metavar": "TEXT"} | options))

    def add_hidden(self, option: Action) -> None:
        """Leave an option out of ``--help``; the first call adds ``--help-all``, which shows all options."""
        if not self._hidden:
            text = "show all options and exit"
            self.add_argument("--help_all", action=_HelpAll, nargs=0, default=SUPPRESS, help=text)
        self._hidden[option] = str(option.help)
        option.help = SUPPRESS
        for group in self._action_groups:
            # A group without a shown option gets no title.
            if group.description and all(action in self._hidden for action in group._group_actions):
                self._hidden[group] = group.description
                group.description = None

    def show_all(self) -> None:
        """Show hidden options in the help."""
        for hidden, text in self._hidden.items():
            setattr(hidden, "help" if isinstance(hidden, Action) else "description", text)
        self._hidden = {}

    def option_names(self) -> list[str]:
        """Return the names of the options, without hyphens."""
        names = [action.dest for action in self._actions if action.option_strings]
        # jsonargparse adds --print_config and --print_shtab while it parses.
        return [name for name in names if name not in ("help", "help_all") and not name.startswith("print_")]

    def format_help(self, formatter: HelpFormatter | None = None) -> str:
        """Return the help with hyphens in option names; its usage line lists only required options."""
        positionals = [action for action in self._get_positional_actions() if action.dest != "action"]
        words = [one.dest.upper() if one.dest in self._needed else f"[{one.dest.upper()}]" for one in positionals]
        words = [f"{word} ..." if one.nargs == "+" else word for word, one in zip(words, positionals)]
        words += [f"--{name} ..." for name in self.option_names() if name in self._needed]
        self.usage = " ".join([self._command, *words, "[options]"]) if words else None
        text: str = super().format_help() if formatter is None else super().format_help(formatter)
        if self._hidden:
            count = sum(isinstance(hidden, Action) for hidden in self._hidden)
            text += f"\n{count} more options: {self._command} --help-all\n"
        return re.sub(r"--[a-z]+(?:_[a-z]+)+", lambda match: match[0].replace("_", "-"), text)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
        """Raise a `ConfigError` of one line."""
        _, _, flags = message.partition("unrecognized arguments: ")
        unknown = re.findall(r"(?:^|\s)--([\w.-]+)", flags) or re.findall(r"does not accept option '([\w.-]+)", message)
        if unknown:
            known = [_hyphens(name) for name in self.known or self.option_names()]
            settings = [_hyphens(name) for name in SETTINGS if any(action.dest == "run" for action in self._actions)]
            refuse_unknown(map(_hyphens, unknown), known, source="the command line", kept=settings)
        text = " ".join(message.split()).rstrip(".")
        if fault := _FAULT.search(text):
            self._refuse(fault["name"], fault["value"])
        if fault := _CHOICE.search(text):
            _refuse_choice(fault["name"], fault["value"], re.findall(r"[\w.-]+", fault["known"]))
        for pattern, plain in _PLAIN:
            text = re.sub(pattern, plain, text)
        raise ConfigError(f"{text}; see --help.")

    def _refuse(self, name: str, value: str) -> NoReturn:
        """Raise a `ConfigError` with the expected kind of value; for a setting, the message of the settings."""
        if name in SETTINGS:
            with suppress(yaml.YAMLError):
                Settings(**{name: yaml.safe_load(value)})
        option = next((action for action in self._actions if action.dest == name), None)
        kind = str if option is None else _alternatives(getattr(option, "_typehint", option.type))[0]
        if get_origin(kind) is Literal:
            _refuse_choice(f"--{name}", value, list(get_args(kind)))
        expected = _WORDS.get(get_origin(kind) or kind, str(kind))
        raise ConfigError(f"Expected --{_hyphens(name)} as {expected}, got {value!r}; choose another value.")


def add_settings(parser: Parser, names: Collection[str] = SETTINGS) -> None:
    """Add settings as options in their groups; the short help shows only the usual ones."""
    described = [setting for setting in describe_settings() if setting.name in names]
    for group, (title, _) in groups().items():
        settings = [setting for setting in described if setting.group == group]
        if not settings:
            continue
        options = parser.add_argument_group(f"{group} settings", title)
        for setting in settings:
            choices = f" Known: {', '.join(setting.known)}." if setting.known else ""
            arguments: dict[str, Any] = {"default": setting.default, "help": setting.text + choices}
            option = options.add_argument(
                f"--{setting.name}", type=setting.kind, metavar=_metavar(setting.kind), **arguments
            )
            if setting.name not in USUAL:
                parser.add_hidden(option)


def normalize(argv: Sequence[str]) -> list[str]:
    """Rewrite `--a-b=x` as `--a_b x`, `--flag` as `--flag true`, `--no-flag` as `--flag false`, `a,b` as `[a,b]`."""
    tokens: list[str] = []
    for token in argv:
        name, equals, value = token.partition("=")
        if name.startswith("--"):
            name = "--" + name[2:].replace("-", "_")
        # A value that begins with two hyphens would be read as an option.
        apart = name.startswith("--") and equals and not value.startswith("--")
        tokens += [name, value] if apart else [name + equals + value]
    for at in range(len(tokens) - 1, -1, -1):
        bare = at + 1 == len(tokens) or tokens[at + 1].lower() not in ("true", "false")
        if tokens[at][2:] in _FLAGS and tokens[at].startswith("--") and bare:
            tokens.insert(at + 1, "true")
        if tokens[at].startswith("--no_") and tokens[at][5:] in _FLAGS and bare:
            tokens[at : at + 1] = [f"--{tokens[at][5:]}", "false"]
        plain = at + 1 < len(tokens) and not tokens[at + 1].startswith(("[", "--"))
        if tokens[at][2:] in _LISTS and tokens[at].startswith("--") and plain:
            parts = next(csv.reader([tokens[at + 1]]))
            # Quoted, or YAML would read the columns 2020 and no as a number and a truth value.
            texts = [json.dumps(part) for part in parts] if _LISTS[tokens[at][2:]] == list[str] else parts
            tokens[at + 1] = f"[{', '.join(texts)}]"
    return tokens


def words(text: str) -> list[str]:
    """Return the parts of `A,B,...`; a part in double quotes may hold a comma."""
    return [word.strip() for word in next(csv.reader([text]), []) if word.strip()]


def _metavar(kind: Any) -> str:
    """Return the placeholder for the value of an option in the help."""
    part, *words = _alternatives(kind)
    if words:
        return "|".join([_metavar(part), *(str(word) for choice in words for word in get_args(choice))])
    if get_origin(part) is Literal:
        return "{" + ",".join(map(str, get_args(part))) + "}"
    if get_origin(part) is list:
        return "A,B,..."
    return {int: "N", float: "X", bool: "{true,false}", str: "TEXT"}.get(part, "{KEY: VALUE}")


def _alternatives(kind: Any) -> list[Any]:
    """Return the types that a value may have, without None."""
    if get_origin(kind) not in (UnionType, Union):
        return [kind]
    return [part for part in get_args(kind) if part is not type(None)]


def _refuse_choice(name: str, value: str, known: Sequence[str]) -> NoReturn:
    choice = f"Expected {_hyphens(name)} as one of {', '.join(known)}"
    raise ConfigError(f"{choice}, got {value!r}; {nearest(value, known)}")


def _hyphens(name: str) -> str:
    return name.replace("_", "-")
