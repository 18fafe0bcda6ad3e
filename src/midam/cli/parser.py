"""The parser of all commands: spelling of options, settings as options, and messages about mistakes."""

import csv
import json
import re
import textwrap
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import yaml

from midam.errors import ConfigError
from midam.settings import Settings, refuse_unknown
from midam.settings.settings import describe_settings, groups

DATA = "store, folder of feature files, images, slides or scans, manifest, or .npz, .csv, .tsv, .xlsx or .parquet file"
_PLUGIN = "import MODULE, which adds names; also MIDAM_PLUGINS=A,B"
SETTINGS = Settings.names()
_FLAGS = {f"--{setting.name.replace('_', '-')}" for setting in describe_settings() if setting.kind is bool}
# Settings in the short help; --help-all shows all.
USUAL = (
    *("pooling", "estimator", "objective", "epochs", "members", "lr", "num_instances", "select", "encoder", "seed"),
    *("folds", "test_fraction", "bag_column", "label_column", "target", "groups", "split", "ignore", "labels"),
    "patch_size",
)


class Options(Namespace):
    """Options of a command by name; `values` are the settings among them that were given."""

    values: dict[str, Any]

    def settings(self) -> Settings:
        """Return the given settings, with the defaults of all others; raise a `ConfigError` that lists all faults."""
        return Settings(**self.values)


class _HelpAll(Action):
    """Action of ``--help-all``: print the help with all options."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.show_all()
        parser.print_help()
        parser.exit()


class _Formatter(HelpFormatter):
    """Help formatter that shows the default of each option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _get_help_string(self, action: Action) -> str:
        text, default = (action.help or "").replace("%", "%%"), getattr(action, "shown", action.default)
        plain = default is None or default is False or default in (SUPPRESS, "", [], {})
        if plain or not action.option_strings or "default:" in text.lower():
            return text
        value = default if isinstance(default, str) else json.dumps(default)
        return f"{text.rstrip('.')} (default: {value.replace('%', '%%')})"

    def _split_lines(self, text: str, width: int) -> list[str]:
        # A name such as gated-attention is one word.
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(ArgumentParser):
    """Parser with a short and a long help, and with errors of one line that name the nearest option."""

    def __init__(self, command: str = "", text: str = "", *, prog: str = "") -> None:
        self._hidden: dict[Any, str] = {}
        self._settings: dict[str, Any] = {}
        prog = prog or f"midam {command}"
        super().__init__(prog=prog, allow_abbrev=False, description=text, formatter_class=_Formatter)
        # Only -h has one hyphen, so any other word that begins with one is a value, such as a negative number.
        self._negative_number_matcher = re.compile(r"-[^-]")
        self.add_argument("--plugin", metavar="MODULE", help=_PLUGIN)  # `midam.cli.app` imports it before it parses

    def parse(self, words: Sequence[str]) -> Options:
        """Return the options of `normalize`d words, in which settings are read by their types but not yet checked."""
        if words and words[0] in self.actions:
            options = self.actions[words[0]].parse(words[1:])
            options.action = words[0]
            return options
        flags = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
        if unknown := [flag[2:] for flag in flags if flag not in self._option_string_actions]:
            kept = [_hyphens(name) for name in SETTINGS if any(action.dest == "run" for action in self._actions)]
            refuse_unknown(unknown, self.option_names(), source="the command line", kept=kept)
        options = self.parse_args(words, Options())
        read = {name: _value(kind, getattr(options, name)) for name, kind in self._settings.items() if name in options}
        options.values = read
        return options

    @property
    def actions(self) -> dict[str, "Parser"]:
        """The parsers of the actions of a command, by name."""
        return next((dict(one.choices or {}) for one in self._actions if one.dest == "action"), {})

    def option_names(self) -> list[str]:
        """Return the names of the options, with hyphens."""
        names = [action.option_strings[-1].lstrip("-") for action in self._actions if action.option_strings]
        return [name for name in names if not name.startswith("help")]

    def add_text(self, flag: str, **options: Any) -> None:
        """Add an option that takes a text; its default is None."""
        self.add_argument(flag, **({"metavar": "TEXT"} | options))

    def add_settings(self, names: Collection[str] = SETTINGS, *, of_run: bool = False) -> None:
        """Add settings as options in their groups; the short help shows only the usual ones.

        With `of_run`, they replace those of a run: they are in no group, and no default is shown.
        """
        described = [setting for setting in describe_settings() if setting.name in names]
        for group, (title, _) in groups().items():
            settings = [setting for setting in described if setting.group == group]
            place = self.add_argument_group(f"{group} settings", title) if settings and not of_run else self
            for setting in settings:
                choices = f" Known: {', '.join(setting.known)}." if setting.known else ""
                flag, text = f"--{_hyphens(setting.name)}", setting.text + choices
                option = place.add_argument(flag, default=SUPPRESS, metavar=_metavar(setting.kind), help=text)
                option.shown = None if of_run else setting.default  # type: ignore[attr-defined]
                self._settings[setting.name] = setting.kind
                if setting.name not in USUAL and not of_run:
                    self.add_hidden(option)

    def add_hidden(self, option: Action) -> None:
        """Leave an option out of ``--help``; the first call adds ``--help-all``, which shows all options."""
        if not self._hidden:
            text = "show all options and exit"
            self.add_argument("--help-all", action=_HelpAll, nargs=0, default=SUPPRESS, help=text)
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

    def format_help(self) -> str:
        """Return the help; its usage line lists only required options."""
        words = [self.prog]
        for action in self._actions:
            name = action.dest.upper() + (" ..." if action.nargs == "+" or self.actions else "")
            if action.option_strings:
                words += [f"{action.option_strings[0]} ..."] if action.required else []
            else:
                words += [f"[{name}]" if action.nargs == "?" else name]
        self.usage = " ".join([*words, "[options]"])
        text = super().format_help()
        hidden = sum(isinstance(hidden, Action) for hidden in self._hidden)
        return f"{text}\n{hidden} more options: {self.prog} --help-all\n" if hidden else text

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigError` with the words of argparse."""
        raise ConfigError(f"Expected a complete command, got: {message}; see --help.")


def normalize(argv: Sequence[str]) -> list[str]:
    """Rewrite `--a_b=x` as `--a-b x`, a setting `--flag` as `--flag true`, and `--no-flag` as `--flag false`."""
    tokens: list[str] = []
    for token in argv:
        name, equals, value = token.partition("=")
        name = _hyphens(name) if name.startswith("--") else name
        # A value that begins with two hyphens would be read as an option.
        apart = name.startswith("--") and equals and not value.startswith("--")
        tokens += [name, value] if apart else [name + equals + value]
    for at in range(len(tokens) - 1, -1, -1):
        flag, bare = tokens[at], at + 1 == len(tokens) or tokens[at + 1].lower() not in ("true", "false")
        if bare and flag in _FLAGS:
            tokens.insert(at + 1, "true")
        elif bare and flag.startswith("--no-") and f"--{flag[5:]}" in _FLAGS:
            tokens[at : at + 1] = [f"--{flag[5:]}", "false"]
    return tokens


def words(text: str) -> list[str]:
    """Return the parts of `A,B,...`; a part in double quotes may hold a comma."""
    return [word.strip() for word in next(csv.reader([text]), []) if word.strip()]


def _value(kind: Any, text: str) -> Any:
    """Return the value of a type that a text stands for, else the text itself, which `Settings` refuses."""
    if text == "null" and type(None) in get_args(kind):
        return None
    for part in _alternatives(kind):
        with suppress(ValueError, yaml.YAMLError):
            if part in (int, float):
                return part(text)
            if part is bool:
                return {"true": True, "false": False}.get(text.lower(), text)
            if get_origin(part) is list:
                listed = yaml.load(text, yaml.BaseLoader) if text.startswith("[") else next(csv.reader([text]), [])
                return [_value(get_args(part)[0], entry) for entry in listed]
            if get_origin(part) is dict:
                return yaml.safe_load(text)
    return _number(text) if int in _alternatives(kind) and str not in _alternatives(kind) else text


def _number(text: str) -> float | str:
    """Return a number such as 2.5, which is no word of a setting that takes whole numbers or words, else the text."""
    try:
        return float(text)
    except ValueError:
        return text


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


def _hyphens(name: str) -> str:
    return name.replace("_", "-")
