"""The folder of a run: names of its files, and numbers in CSV."""

import csv
import io
import json
import platform
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from midam.errors import CheckpointError, ConfigError, RunExistsError
from midam.files import held, is_left, remove_own, require_plain_folder, require_space, sweep, write_text
from midam.names import advice_on, nearby, safe_cell, visible
from midam.reading import Form, check_form
from midam.registry import plugin_entry, take_known
from midam.settings import Settings, read_yaml, yaml_text

OUT_OF_FOLD = "out_of_fold"  # the part of bags that models of folds scored
SPLITS = ("test", OUT_OF_FOLD, "val", "train")  # in the order in which they are reported
_RESULTS = 2 << 20  # bytes of page, predictions and summary of most runs


class RunFolder:
    """Paths of a run below its folder `root`.

    Attributes
    ----------
    config, metrics, predictions, summary : Path
        Settings and the name of the data; a row for each epoch; a row for each bag; the figures of the run.
    last, best, model : Path
        Checkpoint of the last complete epoch, for a resume; weights of the epoch with the best validation metric; the
        trained model with everything that is needed to apply it.
    candidates, folds : Path
        Methods that `auto` has tried, and the scores of folds, one per line.
    left_out : Path
        Files and bags of the data that were left out, one per row; missing if none were.
    curves : Path
        Figure of loss and main metric by epoch.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = root / "config.yaml"
        self.metrics = root / "metrics.csv"
        self.predictions = root / "predictions.csv"
        self.candidates, self.folds = root / "candidates.jsonl", root / "folds.jsonl"
        self.summary = root / "summary.json"
        self.last = root / "checkpoints/last.pt"
        self.best = root / "checkpoints/best.pt"
        self.model = root / "model.pt"
        self.left_out = root / "left-out.csv"

    def require_free(self) -> None:
        """Raise a `RunExistsError` if the folder is not empty."""
        if self.root.exists() and (not self.root.is_dir() or self.contents()):
            why, advice = "which holds files", "choose another folder, or remove it"
            if self.config.exists() and not self.is_saved_model():
                resume = f"`midam fit --resume {shlex.quote(str(self.root))}`"
                why, advice = "which holds a run", f"choose another folder, remove it, or continue with {resume}"
            raise RunExistsError(f"Expected a free run folder, got {self.root}, {why}; {advice}.")

    def require_space(self, needed: int = 0) -> None:
        """Refuse a disk without space for the results and for the `needed` bytes of other files."""
        require_space(self.root, needed + _RESULTS, "checkpoints, predictions and report of the run")

    def write_config(self, data: str, values: Mapping[str, Any]) -> None:
        """Write the name of the data, the settings of the run and the plug-ins that they need."""
        write_text(self.config, yaml_text({"data": data, **values, **plugin_entry(values)}))

    def contents(self) -> list[Path]:
        """Return the files in the folder, without remains of a killed process."""
        return [path for path in self.root.iterdir() if not is_left(path)] if self.root.is_dir() else []

    def is_worth(self) -> bool:
        """Return whether the folder holds a whole result, or methods that `auto` has tried."""
        return self.summary.exists() or self.candidates.exists()

    def clear(self) -> None:
        """Remove the content of the folder, unless `is_worth` says that a resume can use it."""
        for path in () if self.is_worth() else self.contents():
            remove_own(path)

    def is_model_alone(self) -> bool:
        """Return whether the folder holds only a model and settings, as `midam.MIDAMClassifier.save` writes it."""
        return {path.name for path in self.contents()} == {self.config.name, self.model.name}

    def is_saved_model(self) -> bool:
        """Return whether the folder holds a saved model, maybe with what was made from it, and no training."""
        fitted = (self.summary, self.last, self.candidates, self.predictions)
        return self.model.exists() and not any(path.exists() for path in fitted)

    def is_begun(self) -> bool:
        """Return whether the run was stopped after its settings were written and before its first checkpoint."""
        written = (self.last, self.best, self.model, self.metrics, self.predictions, self.summary)
        return self.config.exists() and not any(path.exists() for path in written)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make and lock the folder; a folder made here that stays empty is removed at the end.

        Raises a `ConfigError` if another process holds the lock. Half-written files of a killed process are removed.
        """
        root = self.root.absolute()
        new_folders = [path for path in (root, *root.parents) if not path.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        busy = f"Expected no other `midam fit` that writes to {self.root}, got one that is running"
        try:
            with held(self.root, busy=ConfigError(f"{busy}; wait for its end, or choose another folder.")):
                require_plain_folder(self.root, writes=True)
                sweep(self.root)
                yield
        finally:
            with suppress(OSError):
                for path in new_folders:
                    path.rmdir()


def free_folder(parent: Path, name: str) -> RunFolder:
    """Return the first of ``parent/name``, ``parent/name-2``, ... that does not exist."""
    others = (f"{name}-{number}" for number in count(2))
    return RunFolder(next(root for root in map(parent.joinpath, chain([name], others)) if not root.exists()))


class RunConfig(NamedTuple):
    """Content of config.yaml: the settings of a run, the name of its data, and of a method without epochs its name."""

    settings: Settings
    data: str
    method: str | None = None


class _Others(Form):
    """Entries of config.yaml that are not settings."""

    data: str | int | float | bool | None = None
    method: str | None = None


def read_run_config(folder: RunFolder) -> RunConfig:
    """Read config.yaml of a run."""
    if not folder.contents():
        start = f"start it with `midam fit DATA --out {shlex.quote(str(folder.root))}`."
        raise CheckpointError(f"Expected a run, got nothing in {folder.root}; {nearby(folder.root, otherwise=start)}")
    if not folder.config.exists():
        raise CheckpointError(f"Expected a run, got {folder.root} without config.yaml; {advice_on(folder.config)}")
    values = read_yaml(folder.config)
    check_form(values, _Others, folder.config, error=ConfigError, advice="correct the file")
    values = take_known(values, folder.config)
    data, method = (values.pop(name, None) for name in _Others.model_fields)
    settings = Settings.from_flat(values, source=str(folder.config))
    return RunConfig(settings, "" if data is None else str(data), method)


def require_repeated(logger_args: Mapping[str, Any], given: Mapping[str, Any] | None, source: Path) -> None:
    """Refuse arguments of a logger in a file that are not those `given` again: a logger may write to any place."""
    if (given or {}) != logger_args:
        raise ConfigError(
            "Expected `logger_args` of a file to be given again, as a logger may write to any place, got "
            f"{json.dumps(given or {}, default=str)} (file {source}); look at them, and give `logger_args` "
            f"{shlex.quote(json.dumps(logger_args))}."
        )


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, header: bool = True) -> str:
    """Format rows as CSV, with or without a `header` line; floats get 9 significant digits, None an empty field.

    `midam.names.safe_cell` writes texts so that no spreadsheet runs them as formulas.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if header:
        writer.writerow(map(safe_cell, map(visible, columns)))
    writer.writerows([_field(row.get(key)) for key in columns] for row in rows)
    return lines.getvalue()


def _field(value: Any) -> Any:
    """Format a value; a float gets nine significant digits, so that different float32 have different texts."""
    if isinstance(value, str):
        return safe_cell(value)
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value


def environment() -> dict[str, str]:
    """Return the versions on which results can depend."""
    packages = {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}
    return {"python": platform.python_version(), **packages, "system": f"{platform.system()} {platform.machine()}"}
