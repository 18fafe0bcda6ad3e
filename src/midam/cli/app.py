"""The command line: one program, a module a command.

Exit codes: 0 done, 1 a damaged store, 2 bad input or settings, 130 stopped by Ctrl-C or SIGTERM.
"""

import signal
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from jsonargparse import Namespace
from rich.console import Console
from rich.markup import escape

from midam import __version__
from midam.cli import compare, data, evaluate, explain, fit, paper, predict
from midam.cli.parser import SETTINGS, Parser, normalize
from midam.errors import MidamError, RunStoppedError

COMMANDS: dict[str, tuple[ModuleType, str]] = {
    "fit": (fit, "train a bag classifier and test it"),
    "predict": (predict, "score bags"),
    "evaluate": (evaluate, "test a run on labelled bags"),
    "explain": (explain, "show which instances decided"),
    "compare": (compare, "compare methods on the same folds"),
    "data": (data, "describe data, import it into a store, verify a store"),
    "paper": (paper, "run one of the paper's studies"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    terminate = signal.signal(signal.SIGTERM, _terminate)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        console.print(f"[yellow]warning:[/] {escape(str(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", UserWarning)
        warnings.filterwarnings("ignore", module=r"(lightning|torch|matplotlib)")
        warnings.showwarning = show
        try:
            options = parse(list(sys.argv[1:] if argv is None else argv))
            code: int = COMMANDS[options.command][0].run(options[options.command], console)
            return code
        except RunStoppedError as stop:
            console.print(f"[yellow]midam:[/] {escape(str(stop))}")
            return 130
        except KeyboardInterrupt:
            console.print("[yellow]midam:[/] stopped")
            return 130
        except MidamError as error:
            console.print(f"[red]midam: error:[/] {escape(_one_line(error))}")
            return 2
        except OSError as error:
            where = f" (in {error.filename})" if error.filename else ""
            text = f"Expected a file that can be read or written, got: {error.strerror or error}{where}"
            console.print(f"[red]midam: error:[/] {escape(text)}; check path, access and free space, and repeat.")
            return 2
        finally:
            signal.signal(signal.SIGTERM, terminate)


def parse(argv: Sequence[str]) -> Namespace:
    """Options of a command line, under the name of the command.

    Raises
    ------
    ConfigError
        For an unknown command or option, or a value of the wrong kind.
    """
    words = normalize(argv)
    defaults: dict[str, Any] = {}
    if words[:1] == ["fit"]:
        words, defaults = fit.take_defaults(words)
    top = Parser(
        prog="midam", allow_abbrev=False, description="Multi-instance deep AUC maximization.", version=__version__
    )
    top.known = SETTINGS
    commands = top.add_subcommands(dest="command")
    for name, (module, text) in COMMANDS.items():
        options: Any = fit.parser(defaults) if module is fit else module.parser()
        if words[:1] == [name]:
            top.known = options.option_names()
        commands.add_subcommand(name, options, help=text)
        if module is data:
            actions = data.add_actions(options)  # a parser takes its own commands only after it has become one
            if words[:1] == [name] and words[1:2] and words[1] in actions:
                top.known = actions[words[1]].option_names()
    parsed: Namespace = top.parse_args(words)
    return parsed


def _one_line(error: BaseException) -> str:
    return " ".join(line.strip() for line in str(error).splitlines())


def _terminate(*_: object) -> NoReturn:
    # A preempted job stops like Ctrl-C: what is finished is on disk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt
