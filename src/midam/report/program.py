"""Set up the console, warnings and SIGTERM (as Ctrl-C) of a command, and return its result as JSON."""

import json
import math
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from midam.errors import Note
from midam.names import visible

_RESULT: dict[str, Any] = {}
_PLAIN_WIDTH = 120


class VisibleConsole(Console):
    """Console that shows control characters in texts of others as their escapes."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text as rich prints it; rich calls this for each text, also for those of tables and bars."""
        return super().render_str(visible(text), **options)


def stdout_console() -> Console:
    """Return a console for results, plain if the output is not a terminal; letters that it lacks are escaped."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    console = VisibleConsole(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _PLAIN_WIDTH)
    return console


def stderr_console() -> Console:
    """Return a console for progress, notes and errors."""
    return VisibleConsole(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(text: str) -> None:
    """Print a line of the results without markup."""
    stdout_console().print(escape(text))


def remark(console: Console, message: object, kind: str = "note") -> None:
    """Print a note or a warning with its parameters as flags; nothing for None."""
    from midam.report.words import as_flags  # imported late: a command without notes needs no settings

    if message is None:
        return
    color = {"note": "cyan", "warning": "yellow"}[kind]
    console.print(f"[{color}]{kind}:[/] {escape(as_flags(message))}", soft_wrap=True)


@contextmanager
def program(shorten: Callable[[object], str] = str) -> Iterator[Console]:
    """Yield a console on stderr that shows each `UserWarning` once, shortened by `shorten`, and no others."""
    console = stderr_console()
    terminate = signal.signal(signal.SIGTERM, _terminate)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        remark(console, shorten(message), "note" if isinstance(message, Note) else "warning")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", UserWarning)
        warnings.filterwarnings("ignore", module=r"(lightning|torch|matplotlib)")
        warnings.showwarning = show
        try:
            yield console
        finally:
            signal.signal(signal.SIGTERM, terminate)


def note_result(**facts: Any) -> None:
    """Add facts by name to the result of a command, which `midam --json` prints."""
    _RESULT.update(facts)


def take_result() -> str:
    """Return and clear the noted facts as JSON; paths become text, and numbers that are not finite null."""
    text = json.dumps(_plain(_RESULT), indent=2, allow_nan=False)
    _RESULT.clear()
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _terminate(*_: object) -> NoReturn:
    # A preempted job stops like Ctrl-C: what is finished is on disk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt
