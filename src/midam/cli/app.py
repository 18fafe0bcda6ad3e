"""The command line: one program with a module for each command, imported when the command is called.

Exit codes: 0 done, 1 a damaged store, 2 bad input or settings, 3 one of several processes died, 130 stopped by
Ctrl-C or SIGTERM.
"""

import argparse
import atexit
import gc
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich.markup import escape

from midam._version import __version__
from midam.errors import (
    ConfigError,
    MidamError,
    RankLostError,
    RunStoppedError,
    TrialsLostError,
    first_line,
    nearest,
)
from midam.report.program import note_result, program, stderr_console, take_result

if TYPE_CHECKING:
    from midam.cli.parser import Options

_JSON = "--json"
COMMANDS = {
    "fit": "train a bag classifier and test it",
    "predict": "score bags",
    "evaluate": "test a run on labeled bags",
    "explain": "show which instances decided",
    "check": "test whether a run keeps the assumption of multi-instance learning",
    "report": "write a page to forward about a run, an evaluation or a comparison",
    "compare": "compare methods on the same folds",
    "embed": "turn images, patches or slices into vectors by a pretrained network",
    "export": "write a run as programs of torch and ONNX, with its weights and a model card",
    "data": "describe data, import it into a store, verify a store",
    "new": "write a commented settings file for data",
    "doctor": "say what is installed, what the machine has and what is slow",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if argv is None:  # this process ends with the command, and the system frees its memory faster than Python
        gc.set_threshold(10_000)
        atexit.register(gc.freeze)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _main_as_json(words[1:]) if words[:1] == [_JSON] else _main(words)
    except KeyboardInterrupt:  # while the last lines are written
        code = 130
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop
    return code


def _main_as_json(words: list[str]) -> int:
    """Run a command, and print its result as JSON instead of its usual output on stdout."""
    take_result()  # of an earlier command of this process
    code, text = 1, io.StringIO()
    try:
        with redirect_stdout(text):
            code = _main(words, as_json=True)
    except SystemExit as end:  # of --help
        code = end.code if isinstance(end.code, int) else code
        note_result(text=text.getvalue())
    note_result(exit_code=code)
    sys.stdout.write(take_result() + "\n")
    return code


def _main(words: list[str], *, as_json: bool = False) -> int:
    shown = partial(message_text, command="".join(words[:1]))
    with program(shown) as console:
        try:
            if as_json:
                _keep_stdout(words)
            return _module(_command(words)).run(parse(words), console)
        except (RunStoppedError, KeyboardInterrupt) as stop:
            # A console that was stopped while it printed would keep what comes next.
            stderr_console().print(f"[yellow]midam:[/] {escape(str(stop)) or 'stopped'}")
            note_result(error=str(stop) or "stopped")
            return 130
        except (RankLostError, TrialsLostError) as error:
            return _failed(shown(error), 3)
        except (MidamError, MemoryError) as error:
            full = f"Expected enough memory, got less: {first_line(error)}; end other programs, or add memory."
            return _failed(shown(error if isinstance(error, MidamError) else full), 2)
        except OSError as error:
            where = f" (in {error.filename})" if error.filename else ""
            text = f"Expected a file that can be read or written, got: {error.strerror or error}{where}"
            return _failed(f"{text}; check path, access and free space, and repeat.", 2)


def _failed(message: str, code: int) -> int:
    stderr_console().print(f"[red]midam: error:[/] {escape(message)}")
    note_result(error=message)
    return code


def _keep_stdout(words: Sequence[str]) -> None:
    """Refuse the standard output as an output file, because it will hold one JSON object."""
    from midam.files import is_stdout

    taken = next((word for word in words if is_stdout(Path(word.rpartition("=")[2]))), None)
    if taken is not None:
        raise ConfigError(f"Expected a file with {_JSON}, which prints on stdout, got {taken}; name a file.")


def parse(argv: Sequence[str]) -> "Options":
    """Parse a command line into the options of its command; raise a `ConfigError` for unknown options and settings."""
    name = _command(argv)
    command = _module(name)
    from midam.cli.parser import normalize
    from midam.registry import load_plugins

    words = normalize(argv[1:])
    named = [value for option, value in pairwise(words) if option == "--plugin"]
    load_plugins([*filter(None, map(str.strip, os.environ.get("MIDAM_PLUGINS", "").split(","))), *named])
    options = command.parser().parse(words)
    options.words = shlex.join(argv)
    if name == "fit":
        command.complete(options)
    options.settings()
    return options


def _command(argv: Sequence[str]) -> str:
    """Return the command of a command line; for --help and --version, print the text and end the program."""
    if argv and argv[0] in COMMANDS:
        return argv[0]
    if not argv:
        raise ConfigError(f"Expected a command, one of {{{','.join(COMMANDS)}}}, got none; see --help.")
    top = argparse.ArgumentParser(
        prog="midam", allow_abbrev=False, description="Multi-instance deep AUC maximization.", add_help=False
    )
    top.add_argument("-h", "--help", action="help", help="Show this help message and exit; COMMAND --help says more.")
    top.add_argument(_JSON, action="store_true", help="Print the result of the command that follows as JSON.")
    top.add_argument("--version", action="version", version=f"midam {__version__}", help="Print version and exit.")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
    if argv[0] in ("-h", "--help", "--version"):
        top.parse_args(argv[:1])
    raise ConfigError(f"Expected a command, got {argv[0]!r}; {nearest(argv[0], COMMANDS)}")


def _module(command: str) -> ModuleType:
    return import_module(f"midam.cli.{command}")


def message_text(message: object, *, command: str = "") -> str:
    """Return a message as one line, or a line for each fault of a list, with parameters as flags.

    Advice to change a setting that a run fixes is advice to train again, for a command on a run.
    """
    text = re.sub(r"\s*\n(?!- )\s*", " ", str(message).strip())
    if "`" not in text:
        return text
    from midam.cli.predict import TABLES
    from midam.report.words import as_flags
    from midam.settings import Settings

    if command in ("predict", "evaluate", "explain", "check", "report"):
        fixed = rf"`(?:{'|'.join({*Settings.names()} - {*TABLES})})\b[^`]*`"
        text = re.sub(r"(?m)[;:] [^;:\n]*$", lambda advice: re.sub(fixed, r"\g<0> in a new training", advice[0]), text)
    return as_flags(text)
