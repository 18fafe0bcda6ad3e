"""log.txt of a run: what the console said, each line with its time."""

import os
import platform
import traceback
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Self

from midam._version import __version__
from midam.errors import MidamError, Note, RunStoppedError
from midam.plain_files import open_own
from midam.runs.folder import RunFolder


class RunLog:
    """Time-stamped lines behind those that log.txt holds, the warnings and the error of its block among them.

    Lines are kept back until the folder is held by this process and has its settings: a start that is refused leaves no
    log, and never writes into that of another. Where the file cannot be written, the run goes on without it.

    Parameters
    ----------
    folder : RunFolder
        The very one that is given to `fit_run` or `resume_run`.
    command : str, optional
        What was typed; it stands at the head, with the folder and the versions.
    said : callable, default str
        Words a warning or an error as the console does.
    """

    def __init__(self, folder: RunFolder, *, command: str = "", said: Callable[[object], str] = str) -> None:
        self._folder, self._command, self._said = folder, command, said
        self._waiting: list[str] = []
        self._catch: Any = None

    def add(self, text: str) -> None:
        """Note a text, each of its lines under the time of now, in UTC."""
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._waiting += [f"{now} {line}".rstrip() + "\n" for line in text.rstrip().splitlines()]
        if not (self._folder.was_held and self._folder.config.exists()):
            return
        try:
            with open_own(self._folder.log) as file:
                file.seek(0, os.SEEK_END)
                file.write("".join(self._waiting).encode())
        except OSError:
            return
        self._waiting = []

    def __enter__(self) -> Self:
        versions = ", ".join(f"{name} {number}" for name, number in environment().items())
        typed = f"{self._command}\n" if self._command else ""
        self.add(f"midam {__version__}: {self._folder.root}\n{typed}{versions}, {os.cpu_count()} cores")
        self._catch = warnings.catch_warnings()
        self._catch.__enter__()
        show = warnings.showwarning

        def noted(message: Warning | str, *how: Any, **more: Any) -> None:
            self.add(f"{'note' if isinstance(message, Note) else 'warning'}: {self._said(message)}")
            show(message, *how, **more)

        warnings.showwarning = noted
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._catch.__exit__(kind, error, trace)
        if isinstance(error, RunStoppedError | KeyboardInterrupt):
            self.add(self._said(error) or "stopped")
        elif isinstance(error, MidamError):
            self.add(f"error: {self._said(error)}")
        elif error is not None:
            self.add("".join(traceback.format_exception(error)))


def environment() -> dict[str, str]:
    """Versions that a result can depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "system": f"{platform.system()} {platform.machine()}"}
