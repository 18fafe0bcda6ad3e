"""The folder of a run: which file is what, how numbers are written in CSV, and log.txt."""

import csv
import io
import os
import platform
import re
import shlex
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from midam._version import __version__
from midam.errors import CheckpointError, ConfigError, MidamError, Note, RunExistsError, RunStoppedError, listed
from midam.files import held, is_left
from midam.names import advice_on, safe_cell
from midam.plain_files import open_own, open_plain, remove_own, require_plain_folder, sweep
from midam.reading import Form, Number, check_form, read_text
from midam.runs.trust import check_code
from midam.settings import Settings, read_yaml

SPLITS = ("test", "val", "train")  # in the order in which they are reported
CHOSEN = "# chosen: "  # begins the settings of a run of which midam chose some
_LOGGED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ midam ")


class RunFolder:
    """Paths of a run below its folder `root`.

    Attributes
    ----------
    config, metrics, predictions, baseline, summary : Path
        Settings and the name of the data; a row an epoch; a row a bag; the baseline's scores of the bags that it was
        compared on; the metrics.
    last, best, model : Path
        Checkpoint of the last whole epoch, for a resume; weights of the epoch with the best validation AUROC; the
        trained model with all that applying it needs.
    candidates : Path
        Methods that `auto` has tried, a line each.
    log : Path
        Output of the console, with the time of each line.
    left_out : Path
        Files and bags of the data that were not read, a row each; not there if all were read.
    curves : Path
        Loss and main metric along the epochs, a figure.
    was_held : bool
        Whether this process holds the folder, or has held it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"
        self.metrics = root / "metrics.csv"
        self.predictions = root / "predictions.csv"
        self.baseline = root / "baseline.csv"
        self.candidates = root / "candidates.jsonl"
        self.summary = root / "summary.json"
        self.last = root / "checkpoints/last.pt"
        self.best = root / "checkpoints/best.pt"
        self.model = root / "model.pt"
        self.curves = root / "curves.png"
        self.log = root / "log.txt"
        self.left_out = root / "left-out.csv"
        self.was_held = False

    def require_free(self) -> None:
        """Refuse a folder that is not empty, or that cannot be made, by a `RunExistsError`."""
        for parent in self.root.absolute().parents:
            if parent.exists() and not parent.is_dir():
                raise RunExistsError(
                    f"Expected a free run folder, got {self.root} below the file {parent}; choose another folder."
                )
        if self.root.exists() and (not self.root.is_dir() or self.contents()):
            why, advice = "which holds files", "choose another folder, or remove it"
            resume = f"`midam fit --resume {shlex.quote(str(self.root))}`"
            if self.is_begun():
                why = "whose run was stopped before its first checkpoint"
                advice = f"start that run again with {resume}, or choose another folder"
            elif self.model.exists() and not self.summary.exists():
                others = [path.name for path in self.contents() if path not in (self.config, self.model)]
                why = f"which holds a saved model{' and more: ' * bool(others)}{listed(others, most=3)}"
                advice = "remove it, or choose another folder"
            elif self.config.exists():
                why = "which holds a run"
                advice = f"choose another folder, remove it, or continue the run with {resume}"
            raise RunExistsError(f"Expected a free run folder, got {self.root}, {why}; {advice}.")

    def contents(self) -> list[Path]:
        """Content of the folder, without remains of a killed process, or the log of a failed start."""
        if not self.root.is_dir():
            return []
        paths = [path for path in self.root.iterdir() if not is_left(path)]
        return [] if paths == [self.log] and self._is_logged() else paths

    def clear(self) -> None:
        """Remove the content of the folder."""
        for path in self.contents():
            remove_own(path)

    def _is_logged(self) -> bool:
        """Whether log.txt was written by midam, and not by the user."""
        if not self.log.is_file():
            return False
        with open_plain(self.log) as file:
            return _LOGGED.match(file.read(64)) is not None

    def is_model_alone(self) -> bool:
        """Whether the folder holds a model with its settings and nothing else, as `midam.MIDAMClassifier.save` does."""
        return {path.name for path in self.contents()} == {self.config.name, self.model.name}

    def is_begun(self) -> bool:
        """Whether the run was stopped after its settings were written, and before its first checkpoint."""
        written = (self.last, self.best, self.model, self.metrics, self.predictions, self.summary)
        return self.config.exists() and not any(path.exists() for path in written)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and hold it; if it was made here and is still empty at the end, it is removed.

        A `ConfigError` if another process holds it. Half-written files of a killed process are removed.
        """
        root = self.root.absolute()
        made = [path for path in (root, *root.parents) if not path.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        busy = f"Expected no other `midam fit` that writes to {self.root}, got one that is running"
        try:
            with held(self.root, busy=ConfigError(f"{busy}; wait for its end, or choose another folder.")):
                require_plain_folder(self.root, writes=True)
                sweep(self.root)
                self.was_held = True
                yield
        finally:
            with suppress(OSError):
                for path in made:
                    path.rmdir()


def free_folder(parent: Path, name: str) -> RunFolder:
    """First of ``parent/name``, ``parent/name-2``, ... that does not exist."""
    root, number = parent / name, 1
    while root.exists():
        number += 1
        root = parent / f"{name}-{number}"
    return RunFolder(root)


class _Budget(Form):
    """Entries of the settings file of a run other than settings."""

    data: str | int | float | bool | None = None
    method: str | None = None
    budget: Annotated[Number, Field(ge=0)] | None = None


def read_run_config(folder: RunFolder, *, trust: bool = False) -> tuple[Settings, str, str | None]:
    """Settings of a run, the data it was trained on, and its method if that is fitted in one step.

    `trust` is as in `midam.runs.load_run`.
    """
    if folder.root.is_dir() and not folder.contents():
        raise CheckpointError(
            f"Expected a run folder, got {folder.root}, which holds nothing yet; start the run with `midam fit DATA "
            f"--out {shlex.quote(str(folder.root))}`."
        )
    if not folder.config.exists():
        raise CheckpointError(
            f"Expected a run folder, got {folder.root} without config.yaml; {advice_on(folder.config)}"
        )
    values = _read_config(folder)
    data = str(values.pop("data", ""))
    values = check_code(values, folder.config, trust=trust)
    method = values.pop("method", None)
    values.pop("budget", None)
    settings = Settings.from_flat(values, source=str(folder.config), trained=folder.summary.exists())
    return settings, data, method


def _read_config(folder: RunFolder) -> dict[str, Any]:
    values = read_yaml(folder.config)
    check_form(values, _Budget, folder.config, error=ConfigError, advice="correct the file")
    return values


def read_budget(folder: RunFolder) -> float | None:
    """Time limit of a run of `auto` in seconds; None without a limit."""
    budget = _read_config(folder).get("budget")
    return None if budget is None else float(budget)


def read_chosen(folder: RunFolder) -> str | None:
    """Note in the settings of a run on counts that were chosen; None if none were."""
    first = read_text(folder.config).partition("\n")[0] if folder.config.exists() else ""
    return first.removeprefix(CHOSEN) if first.startswith(CHOSEN) else None


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header: bool = True) -> str:
    """Rows as CSV, under a `header` line or without; floats in 9 significant digits, None as an empty field.

    Texts are written by `midam.names.safe_cell`, so that no spreadsheet runs one.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if header:
        writer.writerow(map(safe_cell, columns))
    writer.writerows([_field(row.get(key)) for key in columns] for row in rows)
    return lines.getvalue()


def _field(value: Any) -> Any:
    """Write a float with nine significant digits: different float32 get different texts."""
    if isinstance(value, str):
        return safe_cell(value)
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value


class RunLog:
    """Append time-stamped lines to log.txt, among them the warnings and the error of its block.

    Lines are kept back until the folder is held by this process and has its settings: a start that is refused leaves no
    log, and never writes into that of another run. If the file cannot be written, the run goes on without it.

    Parameters
    ----------
    folder : RunFolder
        The object that is passed to `fit_run` or `resume_run`.
    command : str, optional
        Command line, for the first lines of the log, with the folder and the versions.
    message_of : callable, default str
        Text of a warning or an error, as on the console.
    """

    def __init__(self, folder: RunFolder, *, command: str = "", message_of: Callable[[object], str] = str) -> None:
        self._folder, self._command, self._message_of = folder, command, message_of
        self._waiting: list[str] = []
        self._catch: Any = None

    def add(self, text: str) -> None:
        """Add a text, each of its lines with the current time in UTC."""
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

        def noted(message: Warning | str, *where: Any, **options: Any) -> None:
            self.add(f"{'note' if isinstance(message, Note) else 'warning'}: {self._message_of(message)}")
            show(message, *where, **options)

        warnings.showwarning = noted
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._catch.__exit__(kind, error, trace)
        if isinstance(error, RunStoppedError | KeyboardInterrupt):
            self.add(self._message_of(error) or "stopped")
        elif isinstance(error, MidamError):
            self.add(f"error: {self._message_of(error)}")
        elif error is not None:
            self.add("".join(traceback.format_exception(error)))


def environment() -> dict[str, str]:
    """Versions that a result can depend on."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "system": f"{platform.system()} {platform.machine()}"}
