"""`midam completion`: print a script by which the shell completes commands, options, names and files."""

import argparse
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import shtab
from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from midam._version import __version__
from midam.cli.app import COMMANDS
from midam.cli.parser import Parser
from midam.data.sets import catalog
from midam.report.program import note_result, stdout_console
from midam.settings.settings import describe_settings

_TEXT = """Print a script that completes midam's commands, options, names and files. Write it where the shell looks for
such scripts. bash: ~/.local/share/bash-completion/completions/midam. zsh: a file _midam in a folder of $fpath. tcsh:
any file that ~/.tcshrc sources."""
_DATA = ("data", "name", "source")  # arguments that take a data set of the catalog or a file
_DATA_FILES = {"bash": "_midam_data", "zsh": "_files", "tcsh": "f"}
_SHELLS = ["bash", "zsh", "tcsh"]


def parser() -> ArgumentParser:
    """Return the parser of the command."""
    completion = Parser("completion", _TEXT)
    completion.add_argument("shell", type=Literal["bash", "zsh", "tcsh"], help="bash, zsh or tcsh")
    return completion


def run(options: Namespace, console: Console) -> int:  # noqa: ARG001
    """Print the script; returns the exit code."""
    names = " ".join(catalog.names())
    # bash completes a data set of the catalog, or a file.
    completes: Any = {"bash": f'_midam_data() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}'}
    script = shtab.complete(_tree(), options.shell, preamble=completes)
    note_result(script=script)
    stdout_console().file.write(script + "\n")  # print would wrap lines and interpret brackets
    return 0


def _tree() -> argparse.ArgumentParser:
    """Return all commands as a plain argparse parser, which shtab can read, with hyphens in option names."""
    top = argparse.ArgumentParser(prog="midam", add_help=False)
    top.add_argument("-h", "--help", action="store_true", help="show help")
    top.add_argument("--version", action="version", version=__version__, help="print version")
    commands = top.add_subparsers()
    for name, text in COMMANDS.items():
        _copy(import_module(f"midam.cli.{name}").parser(), commands.add_parser(name, help=text))
    return top


def _copy(source: argparse.ArgumentParser, to: argparse.ArgumentParser) -> None:
    choices = {setting.name: _choices(setting.kind, setting.known) for setting in describe_settings()}
    for action in source._actions:
        if action.dest in ("help", argparse.SUPPRESS):
            continue
        if action.choices and not action.option_strings:  # the actions of `midam data`
            inside = to.add_subparsers()
            for name, parser in dict(action.choices).items():
                _copy(parser, inside.add_parser(name, help=parser.description))
            continue
        flags = [flag.replace("_", "-") for flag in action.option_strings]
        values = choices.get(action.dest, []) if flags else _SHELLS if action.dest == "shell" else []
        if flags and action.nargs == 0:
            to.add_argument(*flags, action="store_true", help=_first(action.help))
            continue
        copy = to.add_argument(*(flags or [action.dest]), help=_first(action.help))
        if values:
            copy.choices = values
        else:
            copy.complete = _DATA_FILES if action.dest in _DATA else shtab.FILE  # type: ignore[attr-defined]


def _choices(kind: Any, known: tuple[str, ...]) -> list[str]:
    """Return the values that the shell offers for a setting."""
    if known:
        return list(known)
    if kind is bool:
        return ["true", "false"]
    return [str(value) for part in (kind, *get_args(kind)) if get_origin(part) is Literal for value in get_args(part)]


def _first(text: str | None) -> str:
    """Return the first sentence of a help text, without characters that a shell would interpret."""
    hidden = text is None or text == argparse.SUPPRESS  # settings that the short help leaves out
    short = ("" if hidden else text or "").split(". ")[0].split("; ")[0]
    return "".join(" " if letter in "`\"'%$[]\\" else letter for letter in short)
