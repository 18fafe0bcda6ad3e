"""Set up a program around its command: a console, warnings shown there, and SIGTERM as Ctrl-C."""

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.markup import escape

from midam.errors import Note


@contextmanager
def program(shorten: Callable[[object], str] = str) -> Iterator[Console]:
    """Console on stderr that shows each `UserWarning` once, shortened by `shorten`; others are hidden."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    terminate = signal.signal(signal.SIGTERM, _terminate)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        kind = "[cyan]note:[/]" if isinstance(message, Note) else "[yellow]warning:[/]"
        console.print(f"{kind} {escape(shorten(message))}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("once", UserWarning)
        warnings.filterwarnings("ignore", module=r"(lightning|torch|matplotlib)")
        warnings.showwarning = show
        try:
            yield console
        finally:
            signal.signal(signal.SIGTERM, terminate)


def _terminate(*_: object) -> NoReturn:
    # A preempted job stops like Ctrl-C: what is finished is on disk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt
