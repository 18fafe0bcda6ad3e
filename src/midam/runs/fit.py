"""Fit a run on disk: turn data and settings into a folder with weights, scores, metrics and figures."""

import shlex
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midam.data.bags import Bags
from midam.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    MidamError,
    RankLostError,
    RunStoppedError,
    StaleStateError,
)
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.names import choose_method, make_method, taken_settings
from midam.processes import Processes
from midam.runs.data import Reading, split_parts, write_left_out
from midam.runs.folder import RunFolder, read_run_config, require_repeated
from midam.runs.result import Result
from midam.settings import ResolvedSettings, Settings
from midam.settings.group import AUTO
from midam.targets import target_of

if TYPE_CHECKING:
    from midam.runs.kept import KeptTraining

_ALONE = Processes()
Summary = dict[str, Any]


def fit_run(
    data: str,
    settings: Settings,
    folder: RunFolder,
    *,
    method: str | None = None,
    processes: Processes = _ALONE,
    callbacks: Callbacks = QUIET,
) -> Summary:
    """Fit a new run; returns its summary, as in summary.json.

    Parameters
    ----------
    data, settings : str, Settings
        Path or name of a set of digits, and the settings.
    folder : RunFolder
        A folder without files; it is locked meanwhile, so that no other process writes into it.
    method : str, optional
        A method name of `midam compare`, which sets or replaces settings. Default: the method of the settings; if no
        setting of training is changed, "auto" for the data that `midam.methods.names.usual_method` describes.
    processes : Processes, optional
        Processes that train the run together; default: only this process. Each process makes the same call; all but the
        leading process write nothing and get an empty summary.
    callbacks : Callbacks, optional
        Functions that are called meanwhile, in the leading process.

    Raises
    ------
    MidamError
        For bad data, invalid settings or a folder in use, before anything is written. For an error in the first epoch,
        after the files of the run are removed; methods that "auto" has tried are kept, for a resume.
    RunStoppedError
        If a keyboard interrupt stopped the run; the folder holds what a resume continues.
    RankLostError
        If another process died or stopped answering; the folder holds the last complete epoch.
    """
    settings, name = choose_method(method, settings)
    if name is not None and processes.count > 1:
        wanted = f"a method that is trained step by step for {processes.count} processes"
        raise ConfigError(f"Expected {wanted}, got {name!r}; leave out `devices`.")
    settings = _held_out(settings, processes)
    choice: dict[str, Any] = {"method": name, "choose": method is None and processes.count == 1}
    if not processes.rank:
        folder.require_free()
    with nullcontext() if processes.rank else folder.held():
        if not processes.rank:
            folder.require_free()  # another process may have written a run there meanwhile
        opened = time.monotonic()
        reading = split_parts(data, settings, left_out=folder.left_out.name, **choice)
        run = _Run(data, folder, reading, processes, opened, callbacks)
        try:
            return run.fit()
        except BaseException as error:
            # A new run that failed before the end of its first epoch leaves nothing.
            if not (run.epoch or processes.rank or isinstance(error, RunStoppedError)):
                folder.clear()
            raise


def resume_run(
    data: str | None,
    folder: RunFolder,
    *,
    logger_args: Mapping[str, Any] | None = None,
    processes: Processes = _ALONE,
    callbacks: Callbacks = QUIET,
) -> Summary:
    """Continue a run in place, bit for bit; returns the summary.

    With another number of processes, the result is equal up to rounding. A run that was stopped before its first
    checkpoint starts again, with a warning. "auto" skips the candidates that it has tried.

    Parameters
    ----------
    data : str, optional
        Path or name of a set of digits; default: the data of the run. They must hold the same bags.
    folder : RunFolder
        Folder of the run.
    logger_args : mapping, optional
        Arguments of the logger, again: those of a file are not used, as a logger may write to any place.
    processes : Processes, optional
        As in `fit_run`; the number may differ from the earlier sessions.
    callbacks : Callbacks, optional
        As in `fit_run`.

    Raises
    ------
    CheckpointError
        If the run's checkpoint is missing or damaged, or the data hold other bags.
    """
    from midam.train.checkpoint import ModelContent, load_checkpoint

    settings, recorded, method = read_run_config(folder)
    require_repeated(settings.run.logger_args, logger_args, folder.config)
    settings = _held_out(settings, processes)
    with nullcontext() if processes.rank else folder.held():
        opened, saved = time.monotonic(), None
        at_once = method is not None and not folder.last.exists()
        finished = at_once and all(path.exists() for path in (folder.summary, folder.model, folder.predictions))
        if finished:
            saved = load_checkpoint(folder.model, ModelContent)
        elif at_once or folder.is_begun():
            text = "it continues after the methods that it tried" if folder.candidates.exists() else "it starts again"
            warnings.warn(f"{folder.root} was stopped before its end: {text}", stacklevel=2)
        else:
            saved = _checkpoint(folder, settings, method)
        if finished and data is None:
            return _finished(folder)
        try:
            reading = split_parts(data or recorded, settings, left_out=folder.left_out.name, method=method)
        except MidamError as error:
            if data is not None or Path(recorded).exists():
                raise
            moved = f"`midam fit DATA --resume {shlex.quote(str(folder.root))}`"
            raise type(error)(f"{error} Resume where the run was started, or name moved data: {moved}.") from error
        data, origin = data or recorded, reading.origin
        known = None if saved is None else (saved["data"]["fingerprint"], saved["splits"])
        if known not in (None, (origin["data"]["fingerprint"], origin["splits"])):
            raise CheckpointError(
                f"Expected the bags and splits that the run was started with ({recorded}), got others (in {data}); "
                "resume with the same data, or start a new run."
            )
        if finished:
            return _finished(folder)
        return _Run(data, folder, reading, processes, opened, callbacks, saved).fit()


def _finished(folder: RunFolder) -> Summary:
    """Return the summary of a finished run; a page that a stopped call did not write is written."""
    from midam.runs.report import write_run_report

    if not (folder.root / "report.html").exists():
        write_run_report(folder.root)
    warnings.warn(f"{folder.root} is finished: nothing was left to do", stacklevel=3)
    return Result.read(folder).entries()


def _checkpoint(folder: RunFolder, settings: Settings, method: str | None) -> dict[str, Any]:
    """Return the content of the last checkpoint; refuse settings that are not those of the run, and any method."""
    from midam.train.checkpoint import TrainerContent, load_checkpoint

    checkpoint = load_checkpoint(folder.last, TrainerContent)
    saved = Settings.from_flat(checkpoint["config"], source=str(folder.last)).flat()
    changed = [] if method is None else ["method"]
    changed += [name for name, value in settings.flat().items() if saved[name] != value]
    if changed:
        raise CheckpointError(
            f"Expected the settings that the run was started with, got a different {changed[0]} (in {folder.config}); "
            "restore the file, or start a new run."
        )
    return checkpoint


def _held_out(settings: Settings, processes: Processes) -> Settings:
    """Return settings that hold bags out if several processes train; refuse folds, whose models one process trains."""
    if processes.count == 1:
        return settings
    if settings.run.folds not in (AUTO, 0):
        advice = "leave out `devices`, or set `folds` to 0"
        raise ConfigError(f"Expected one process for cross-validation, got {processes.count}; {advice}.")
    return settings.replace(folds=0)


@dataclass
class _Run:
    """A run that is fitted: its data, its folder, and the checkpoint from which it goes on, if any."""

    data: str
    folder: RunFolder
    reading: Reading
    processes: Processes
    opened: float  # the time when reading the data began
    callbacks: Callbacks
    saved: Mapping[str, Any] | None = None
    kept: "KeptTraining | None" = None

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        before = 0 if self.saved is None else self.saved["trainer"]["epoch"]
        return before if self.kept is None else max(before, self.kept.epoch)

    def fit(self) -> Summary:
        """Fit the method, score all bags, and write the results; returns the summary in the leading process."""
        # Slow to import, so imported only after errors in the data were raised.
        from midam.runs.report import write_run_report
        from midam.train.members import with_objective

        parts, settings = self.reading.parts, self.reading.settings
        calls = QUIET if self.processes.rank else self.callbacks
        config = with_objective(settings, target_of(parts.bags)).resolve(parts.bags.instance_shape)
        val = parts.part("val") if "val" in parts.splits else None
        fit = self._train if self.reading.method is None else self._fit_at_once
        with self._explained():
            summary = fit(parts.part("train"), val, config, calls)
            if summary:
                write_run_report(self.folder.root)
        return summary

    def _fit_at_once(self, train: Bags, val: Bags | None, config: ResolvedSettings, calls: Callbacks) -> Summary:
        """Fit a method that has no epochs."""
        from midam.runs.cross_validation import trials_of
        from midam.runs.results import write_results

        parts, folder, name, ready = self.reading.parts, self.folder, self.reading.method, time.monotonic()
        method = make_method(str(name), journal=folder.candidates)
        folder.require_space()
        write_left_out(parts.bags, folder.left_out)
        folder.write_config(self.data, {"method": name, **taken_settings(config)})
        calls.on_start(self.reading.settings, name)
        fitted = method.fit(train, val, config, calls, trials_of(parts, config))
        took = {"reading": ready - self.opened, "training": time.monotonic() - ready}
        return write_results(folder, fitted, self.reading, calls, data=self.data, took=took)

    def _train(self, train: Bags, val: Bags | None, config: ResolvedSettings, calls: Callbacks) -> Summary:
        """Train in epochs, each of which is kept on disk."""
        from midam.runs.cross_validation import train_folds
        from midam.runs.kept import KeptTraining
        from midam.runs.results import write_results

        reading, folder = self.reading, self.folder
        training: dict[str, Any] = {"settings": config, "processes": self.processes, "saved": self.saved}
        with KeptTraining(self.data, folder, reading, **training) as kept:
            self.kept = kept
            fitted = kept.method.fit(train, val, config, kept.callbacks(calls))
            took = {"reading": kept.started - self.opened, "training": kept.seconds}
            if reading.parts.folds is not None:
                fitted.out_of_fold = train_folds(reading.parts, fitted.config, folder.folds, calls)
            times: dict[str, Any] = {"took": took, "within": kept.within, "ranks": kept.ranks}
            summary = write_results(folder, fitted, reading, calls, data=self.data, **times)
        return summary

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in errors of a fit what the folder holds, and how to go on."""
        folder = self.folder
        command = f"`midam fit {shlex.quote(self.data)} --resume {shlex.quote(str(folder.root))}`"
        finished = f"{folder.root} holds what was finished. Continue with {command}"
        try:
            yield
        except KeyboardInterrupt:
            if not (folder.last.exists() or folder.is_worth()):
                raise
            raise RunStoppedError(f"stopped; {finished}") from None
        except RankLostError as error:
            raise RankLostError(f"{error}; {finished if self.epoch else 'start it again'}") from error
        except DivergedError as error:
            if self.epoch == 0 or isinstance(error, StaleStateError):
                raise
            raise DivergedError(f"{error} {folder.last} holds epoch {self.epoch}, the last good one.") from error
        except OSError as error:
            if isinstance(error, MidamError) or not (self.epoch or folder.is_worth()):
                raise
            raise MidamError(
                f"Expected to write {error.filename or folder.root}, got: {error.strerror or error}; free space or "
                f"grant access: {finished}."
            ) from error
