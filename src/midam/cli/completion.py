"""`midam completion`: print a script by which the shell completes commands, options, names and files."""

import argparse
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import shtab
from rich.console import Console

from midam._version import __version__
from midam.cli.app import COMMANDS
from midam.cli.parser import Options, Parser
from midam.data.digits import DIGITS
from midam.report.program import note_result, stdout_console
from midam.settings.settings import describe_settings

_TEXT = """Print a script that completes midam's commands, options, names and files. Write it where the shell looks for
such scripts. bash: ~/.local/share/bash-completion/completions/midam. zsh: a file _midam in a folder of $fpath. tcsh:
any file that ~/.tcshrc sources."""
_DATA = ("data", "name", "source")  # arguments that take a set of digits or a file
_DATA_FILES = {"bash": "_midam_data", "zsh": "_files", "tcsh": "f"}


def parser() -> Parser:
    """Return the parser of the command."""
    completion = Parser("completion", _TEXT)
    completion.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="bash, zsh or tcsh")
    return completion


def run(options: Options, console: Console) -> int:  # noqa: ARG001
    """Print the script; returns the exit code."""
    names = " ".join(DIGITS)
    # bash completes a set of digits, or a file.
    completes: Any = {"bash": f'_midam_data() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}'}
    script = shtab.complete(_tree(), options.shell, preamble=completes)
    note_result(script=script)
    stdout_console().file.write(script + "\n")  # print would wrap lines and interpret brackets
    return 0


def _tree() -> argparse.ArgumentParser:
    """Return all commands as one parser, with the values that the shell offers."""
    top = argparse.ArgumentParser(prog="midam")
    top.add_argument("--version", action="version", version=__version__, help="print version")
    commands = top.add_subparsers(parser_class=Parser)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
        commands.choices[name] = import_module(f"midam.cli.{name}").parser()
        _offer(commands.choices[name])
    return top


def _offer(parser: Parser) -> None:
    """Give each option of a command the values that the shell offers, or files."""
    parser.show_all()
    parser.description = _plain(parser.description)
    values = {setting.name: _choices(setting.kind, setting.known) for setting in describe_settings()}
    for action in parser._actions:
        if isinstance(action.choices, dict):  # the actions of `midam data`
            for inner in action.choices.values():
                _offer(inner)
        elif action.help != argparse.SUPPRESS:
            action.help = _plain(action.help)
            action.choices = action.choices or (values.get(action.dest) if action.option_strings else None) or None
            if action.choices is None and action.nargs != 0:
                action.complete = _DATA_FILES if action.dest in _DATA else shtab.FILE  # type: ignore[attr-defined]


def _choices(kind: Any, known: tuple[str, ...]) -> list[str]:
    """Return the values that the shell offers for a setting."""
    if known:
        return list(known)
    if kind is bool:
        return ["true", "false"]
    return [str(value) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for value in get_args(part)]


def _plain(text: str | None) -> str:
    """Return the first sentence of a help text, without characters that a shell would interpret."""
    short = (text or "").split(". ")[0].split("; ")[0]
    return "".join(" " if letter in "`\"'%$[]\\" else letter for letter in short)
