"""Train a run on disk: turn data and settings into a folder with weights, scores, metrics and figures."""

import shlex
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from midam._version import __version__
from midam.errors import (
    CheckpointError,
    ConfigError,
    DivergedError,
    MidamError,
    RankLostError,
    RunStoppedError,
    StaleStateError,
)
from midam.files import write_text
from midam.processes import Processes
from midam.registry import plugin_entry
from midam.runs.data import Callbacks, Reading, SplitBags, split_parts, write_left_out
from midam.runs.folder import (
    CHOSEN,
    RunFolder,
    read_chosen,
    read_run_config,
    require_repeated,
    require_same_data,
)
from midam.runs.method import choose_method
from midam.settings import Settings, yaml_text
from midam.settings.group import AUTO
from midam.targets import OutOfFold, target_of

if TYPE_CHECKING:
    from midam.process_group import Ranks
    from midam.train.trainer import Callback, Trainer


_WAITED, _TRAINED_S = 0.2, 5.0
OnEpoch = Callable[[dict[str, Any], "Trainer"], None]
OnBags = Callable[[Sequence[int]], None]
OnStage = Callable[[str, int], None]
OnCandidate = Callable[[str, int, int], None]
_ALONE = Processes()


class Spent(NamedTuple):
    """Seconds of training in all sessions so far, and the seconds of them that were spent waiting for instances."""

    seconds: float
    waited: float


NOTHING = Spent(0.0, 0.0)


def tell_waiting(waited_s: float, trained_s: float) -> bool:
    """Warn if a training has spent more than a fifth of its time waiting for data; returns whether it has warned."""
    if trained_s < _TRAINED_S or waited_s <= _WAITED * trained_s:
        return False
    warnings.warn(
        f"{waited_s / trained_s:.0%} of the training time so far was spent waiting for instances; read ahead with more "
        "`workers`, import the data into a store with `midam data import`, or keep them in memory by `resident=True`",
        stacklevel=2,
    )
    return True


def fit_run(
    data: str,
    settings: Settings,
    folder: RunFolder,
    *,
    method: str | None = None,
    budget: float | None = None,
    processes: Processes = _ALONE,
    on_start: Callable[[Settings, str | None], None] | None = None,
    on_epoch: OnEpoch | None = None,
    on_stage: OnStage | None = None,
    on_bags: OnBags | None = None,
    on_candidate: OnCandidate | None = None,
) -> dict[str, Any]:
    """Train a new run; returns its summary, as in summary.json.

    Parameters
    ----------
    data, settings : str, Settings
        Path or name of a set of digits, and the settings.
    folder : RunFolder
        A folder without files; it is locked meanwhile, so that no other process trains into it.
    method : str, optional
        A method name of `midam compare`, which sets or replaces settings. Default: the method of the settings; if no
        setting of training is changed, "auto" for the data that `midam.runs.method.usual_method` describes.
    budget : float, optional
        Seconds that the method "auto" may take; default: no limit. Other methods ignore it.
    processes : Processes, optional
        Processes that train the run together; default: only this process. Each process makes the same call; all but the
        leading process write nothing and get an empty summary.
    on_start : callable, optional
        Called with the settings and, for a method that is fitted in one step, its name, after all checks.
    on_epoch : callable, optional
        Called with the new row and the trainer after each epoch.
    on_stage : callable, optional
        Called with the name of each stage that begins after the last epoch, and the number of bags that it processes (0
        for none).
    on_bags : callable, optional
        Called with the positions of bags that the trained model has scored; each position once.
    on_candidate : callable, optional
        Called with the method that "auto" tries next, its number from 0, and the number of methods.

    Raises
    ------
    MidamError
        For bad data, invalid settings or a folder in use, before anything is written. For an error in the first epoch,
        after the files of the run are removed.
    RunStoppedError
        If a keyboard interrupt stopped the run; the folder holds the last complete epoch.
    RankLostError
        If another process died or stopped answering; the folder holds the last complete epoch.
    """
    settings, baseline = choose_method(method, settings)
    if baseline is not None and processes.count > 1:
        raise ConfigError(
            f"Expected a method that is trained step by step for {processes.count} processes, got {baseline!r}; leave "
            "out `devices` and `num_nodes`."
        )
    calls = Callbacks(on_start, on_epoch, on_stage, on_bags, on_candidate)
    if processes.rank:
        with _Training.of(data, settings, folder, processes) as training:
            return training.run(time.monotonic(), Callbacks())
    folder.require_free()
    with folder.held():
        folder.require_free()  # another process may have written a run there meanwhile
        started = time.monotonic()
        choice: dict[str, Any] = {"method": baseline, "choose": method is None and processes.count == 1}
        reading = split_parts(data, _held_out(settings, processes), left_out=folder.left_out.name, **choice)
        baseline = reading.method
        if baseline is not None:
            from midam.runs.fit_at_once import fit_at_once

            try:
                work = partial(fit_at_once, reading=reading, opened=started, budget=budget)
                return work(data, baseline, settings, folder, calls)
            except KeyboardInterrupt:
                if not folder.candidates.exists():
                    folder.clear()
                    raise
                command = f"`midam fit {shlex.quote(data)} --resume {shlex.quote(str(folder.root))}`"
                raise RunStoppedError(f"stopped; continue with {command}, after the methods that were tried") from None
            except BaseException:
                folder.clear()
                raise
        with _Training.of(data, settings, folder, processes, reading) as training:
            try:
                training.begin()
                if on_start is not None:
                    on_start(training.trainer.config, None)
                return training.run(started, calls)
            except (MidamError, OSError, KeyboardInterrupt) as error:
                # A new run that failed before the end of its first epoch leaves nothing.
                if not isinstance(error, RunStoppedError) and training.trainer.epoch == 0:
                    folder.clear()
                raise


def resume_run(
    data: str | None,
    folder: RunFolder,
    *,
    logger_args: Mapping[str, Any] | None = None,
    processes: Processes = _ALONE,
    on_epoch: OnEpoch | None = None,
    on_stage: OnStage | None = None,
    on_bags: OnBags | None = None,
    on_candidate: OnCandidate | None = None,
) -> dict[str, Any]:
    """Continue a run in place, bit for bit; returns the summary.

    With another number of processes, the result is equal up to rounding. A run that was stopped before its first
    checkpoint starts again, with a warning.

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
    on_epoch, on_stage, on_bags, on_candidate : callable, optional
        As in `fit_run`.

    Raises
    ------
    CheckpointError
        If the run's checkpoint is missing or damaged, or the data hold other bags.
    """
    from midam.train.checkpoint import TrainerContent, fitting, load_checkpoint

    settings, recorded, method = read_run_config(folder)
    require_repeated(settings.run.logger_args, logger_args, folder.config)
    calls = Callbacks(on_epoch=on_epoch, on_stage=on_stage, on_bags=on_bags, on_candidate=on_candidate)
    if method is not None:
        from midam.runs.fit_at_once import refit_at_once

        return refit_at_once(data, method, settings, folder, calls, recorded=recorded)
    data = data or recorded
    with nullcontext() if processes.rank else folder.held():
        started = time.monotonic()
        if folder.is_begun():
            warnings.warn(f"{folder.root} was stopped before its first checkpoint: it starts again", stacklevel=2)
            with _Training.of(data, settings, folder, processes) as training:
                training.begin()
                return training.run(started, calls)
        checkpoint = load_checkpoint(folder.last, TrainerContent)
        saved = Settings.from_flat(checkpoint["config"], source=str(folder.last)).flat()
        changed = [name for name, value in settings.flat().items() if saved[name] != value]
        if changed:
            raise CheckpointError(
                f"Expected the settings that the run was started with, got a different {changed[0]} (in "
                f"{folder.config}); restore the file, or start a new run."
            )
        with _Training.of(data, settings, folder, processes) as training:
            require_same_data(checkpoint, training.origin["data"]["fingerprint"], data, recorded=recorded)
            with fitting(folder.last):
                training.trainer.load_state_dict(checkpoint["trainer"])
            training.require_space()
            before = Spent(checkpoint["seconds"], checkpoint["waited"])
            return training.run(started, calls, before=before)


def _held_out(settings: Settings, processes: Processes) -> Settings:
    """Return settings that hold bags out if several processes train; refuse folds, whose models one process trains."""
    if processes.count == 1:
        return settings
    if settings.run.folds not in (AUTO, 0):
        raise ConfigError(
            f"Expected one process for cross-validation, got {processes.count}; leave out `devices` and `num_nodes`, "
            "or set `folds` to 0."
        )
    return settings.replace(folds=0)


@dataclass(frozen=True)
class _Training:
    """A trainer with its bags and its folder."""

    data: str
    folder: RunFolder
    parts: SplitBags
    trainer: "Trainer"
    origin: dict[str, Any]
    notes: list[str]
    chosen: str | None  # a line on the batch counts that midam chose, now or when the run began
    ranks: "Ranks | None"  # None with one process

    @classmethod
    def of(
        cls, data: str, settings: Settings, folder: RunFolder, processes: Processes, reading: Reading | None = None
    ) -> Self:
        """Read and split the data unless `reading` is given, join the other processes, and make the trainer."""
        settings = _held_out(settings, processes)
        parts, origin, notes, settings, _ = reading or split_parts(data, settings, left_out=folder.left_out.name)
        # Slow to import, so imported only after errors in the data were raised.
        from midam.process_group import start
        from midam.train.members import with_objective
        from midam.train.trainer import Trainer, make_fabric

        settings = with_objective(settings, target_of(parts.bags)).resolve(parts.bags.instance_shape)
        val = parts.part("val") if "val" in parts.splits else None
        loggers = None
        if settings.run.logger != "none" and not processes.rank:
            from midam.runs.loggers import make_loggers  # imports Lightning Fabric

            loggers = make_loggers(settings, root=folder.root, title=folder.root.name)
        fabric = make_fabric(settings, loggers=loggers, processes=processes)
        ranks = start(processes, fabric)
        try:
            trainer = Trainer(settings, parts.part("train"), val, fabric=fabric, ranks=ranks)
        except BaseException:
            if ranks is not None:
                ranks.abandon()
            raise
        return cls(data, folder, parts, trainer, origin, notes, trainer.chosen or read_chosen(folder), ranks)

    @property
    def leads(self) -> bool:
        """Whether this process leads, and so writes the files."""
        return self.ranks is None or self.ranks.leads

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ranks is not None:
            self.ranks.abandon()

    def begin(self) -> None:
        """Write the settings, and the checkpoint from which a resume before the first epoch starts."""
        if not self.leads:
            return
        self.require_space()
        write_left_out(self.parts.bags, self.folder.left_out)
        values = self.trainer.config.flat()
        text = yaml_text({"data": self.data, **values, **plugin_entry(values)})
        write_text(self.folder.config, text if self.chosen is None else f"{CHOSEN}{self.chosen}\n{text}")
        self.save(NOTHING)

    def require_space(self) -> None:
        """Refuse a disk without space for the files that the run has yet to write."""
        if self.leads:
            from midam.runs.scoring import require_run_space

            require_run_space(self.folder, self.parts.bags, self.origin, trainer=self.trainer)

    def run(self, opened: float, calls: Callbacks, *, before: Spent = NOTHING) -> dict[str, Any]:
        """Train to the end, and save each epoch; returns the summary in the leading process.

        `opened` is the time when reading the data began, `before` the time of earlier sessions.
        """
        if not self.trainer.fabric.loggers:
            return self._run(opened, calls, before)
        from midam.runs.loggers import Tracking

        with Tracking(self.trainer.fabric) as tracking:
            tracking.start(self.trainer.config)
            summary = self._run(opened, calls, before, lambda _, row: tracking.log(row, step=row["epoch"]))
            tracking.summarize(summary, step=self.trainer.epoch)
        return summary

    def _run(self, opened: float, calls: Callbacks, before: Spent, *first: "Callback") -> dict[str, Any]:
        from midam.train.checkpoint import save_checkpoint

        trainer, folder, start = self.trainer, self.folder, time.monotonic()
        spent, slow = before, False

        def keep(trainer: "Trainer", row: dict[str, Any]) -> None:
            nonlocal spent, slow
            slow = slow or (self.leads and tell_waiting(trainer.waited_s, trainer.trained_s))
            # The best weights are written first: after a kill between the two writes, a resume repeats the epoch.
            if trainer.best_epoch == trainer.epoch and self.leads:
                save_checkpoint(folder.best, {"model": trainer.reported.state_dict(), "epoch": trainer.epoch})
            spent = Spent(before.seconds + time.monotonic() - start, before.waited + trainer.waited_s)
            self.save(spent)
            self.write_metrics()
            if calls.on_epoch is not None and self.leads:
                calls.on_epoch(row, trainer)

        command = f"`midam fit {shlex.quote(self.data)} --resume {shlex.quote(str(folder.root))}`"
        try:
            self.write_metrics()
            trainer.fit(callbacks=[*first, keep])
            took = {"reading": start - opened, "training": spent.seconds}
            return self.finish(took, calls, waited=spent.waited)
        except KeyboardInterrupt:
            raise RunStoppedError(
                f"stopped; {folder.root} holds everything up to the last whole epoch. Continue with {command}"
            ) from None
        except RankLostError as error:
            state = "nothing was kept" if trainer.epoch == 0 else f"{folder.root} holds all up to the last whole epoch"
            way_out = "start it again" if trainer.epoch == 0 else f"continue with {command}"
            raise RankLostError(f"{error}; {state}: {way_out}, on any number of processes") from error
        except DivergedError as error:
            if trainer.epoch == 0 or isinstance(error, StaleStateError):
                raise
            raise DivergedError(f"{error} {folder.last} holds epoch {trainer.epoch}, the last good one.") from error
        except OSError as error:
            if isinstance(error, MidamError) or trainer.epoch == 0:
                raise
            raise MidamError(
                f"Expected to write {error.filename or folder.root}, got: {error.strerror or error}; free "
                f"space or grant access, then continue with {command}."
            ) from error

    def save(self, spent: Spent) -> None:
        """Write the checkpoint for a resume."""
        if not self.leads:
            return
        from midam.train.checkpoint import save_checkpoint

        trainer = self.trainer
        content = {"version": __version__, "config": trainer.config.flat(), "trainer": trainer.state_dict()}
        save_checkpoint(self.folder.last, {**content, **self.origin, **spent._asdict()})

    def write_metrics(self) -> None:
        """Write metrics.csv."""
        if self.leads:
            from midam.runs.results import write_metrics

            write_metrics(self.folder, self.trainer.history)

    def finish(self, took: dict[str, float], calls: Callbacks, *, waited: float) -> dict[str, Any]:
        """Score all bags once with the selected weights, and write the results.

        `took` holds the seconds of reading and training; the seconds of the evaluation are added. `waited` are the
        seconds of training that were spent waiting for instances.
        """
        from midam.evaluate.predict import predict
        from midam.runs.cross_validation import train_folds
        from midam.runs.report import write_run_report
        from midam.runs.results import write_results
        from midam.train.checkpoint import BestContent, fitting, load_checkpoint

        config, model, bags = self.trainer.config, self.trainer.reported, self.parts.bags
        selected = "best" if config.training.select == "best" and self.trainer.best_epoch is not None else "last"
        started = time.monotonic()
        # Parts of the training time: exchanges between the processes, and waiting for instances.
        within = {} if self.ranks is None else {"exchanges": round(self.ranks.exchanged_s, 3)}
        within["waiting"] = round(waited, 3)
        if selected == "best":
            read = partial(load_checkpoint, self.folder.best, BestContent)
            best = read() if self.ranks is None else self.ranks.from_lead(read)
            with fitting(self.folder.best):
                model.load_state_dict(best["model"])
        scored: OutOfFold | None = None
        if self.parts.folds is None:
            calls.stage(f"scoring ({selected} weights)", len(bags))
            scores = predict(model, bags, chunk_size=config.run.chunk_size, on_bags=calls.on_bags, ranks=self.ranks)
        else:
            scored = train_folds(self.parts, config, self.folder, calls)
            scores = scored.scores
        if self.ranks is not None:
            self.ranks.leave()
        if not self.leads:
            return {}

        def seconds(baseline: float) -> dict[str, float]:
            durations = {**took, "evaluation": time.monotonic() - started - baseline, "baseline": baseline}
            rounded = {name: round(value, 3) for name, value in {**durations, "total": sum(durations.values())}.items()}
            return {**rounded, **within}

        options: dict[str, Any] = {"data": self.data, "origin": self.origin, "notes": self.notes, "choice": self.chosen}
        options |= {"selected": selected, "seconds": seconds, "out_of_fold": scored}
        summary = write_results(self.folder, self.trainer, self.parts, scores, calls, **options)
        write_run_report(self.folder.root)
        return summary
