"""What a run that is trained in epochs keeps on disk after each of them, and how it goes on from there."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from midam._version import __version__
from midam.files import write_text
from midam.methods.callbacks import Callbacks
from midam.methods.method import BestWeights, Trained
from midam.process_group import Ranks, start
from midam.processes import Processes
from midam.report.words import metric_of_history
from midam.runs.data import Reading, write_left_out
from midam.runs.folder import RunFolder, csv_text
from midam.settings import ResolvedSettings
from midam.train.checkpoint import BestContent, fitting, load_checkpoint, save_checkpoint
from midam.train.trainer import Trainer, make_fabric

# Sizes of the first checkpoint that follow: one with the optimizer's state and its copy, 3 each, and best weights.
_CHECKPOINTS = 7


@dataclass(eq=False)
class KeptTraining(BestWeights):
    """Settings, checkpoints, metrics and best weights of a training, which the leading process writes.

    Parameters
    ----------
    data, folder, reading : str, RunFolder, Reading
        Name of the data, the folder, which is held, and the bags.
    settings : ResolvedSettings
        Settings of the training.
    processes : Processes
        Processes that train together; the others are started, and joined, here.
    saved : Mapping, optional
        Content of the checkpoint from which the training goes on.

    Attributes
    ----------
    ranks : Ranks or None
        The processes that train together, if they are several.
    trainer : Trainer or None
        The trainer, once it is made.
    tracking : Tracking or None
        The logger, in the leading process.
    seconds, waited : float
        Seconds of training in all sessions, and of them, seconds of waiting for instances.
    """

    data: str
    folder: RunFolder
    reading: Reading
    settings: ResolvedSettings
    processes: Processes
    saved: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.trainer: Trainer | None = None
        before: Mapping[str, float] = self.saved or {"seconds": 0.0, "waited": 0.0}
        self.seconds, self.waited = self._before = before["seconds"], before["waited"]
        self.started = time.monotonic()
        logger, self.tracking = None, None
        if self.settings.run.logger != "none" and not self.processes.rank:
            from midam.runs.loggers import Tracking  # imports Lightning Fabric

            self.tracking = Tracking(self.settings, self.folder.root)
            logger = self.tracking.logger
        self.fabric = make_fabric(self.settings, logger=logger, processes=self.processes)
        self.ranks: Ranks | None = start(self.processes, self.fabric)
        self.leads = not self.processes.rank  # and so writes the files

    def __enter__(self) -> "KeptTraining":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.tracking is not None and self.trainer is not None:
            self.tracking.close("success" if kind is None else "failed")
        if self.ranks is not None:
            self.ranks.abandon()

    @property
    def method(self) -> Trained:
        """The method, whose best weights are in the folder."""
        return Trained(fabric=self.fabric, ranks=self.ranks, best=self)

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return 0 if self.trainer is None else self.trainer.epoch

    @property
    def within(self) -> dict[str, float]:
        """Parts of the training time: exchanges between the processes, and waiting for instances."""
        return {**({} if self.ranks is None else {"exchanges": self.ranks.exchanged_s}), "waiting": self.waited}

    def callbacks(self, calls: Callbacks) -> Callbacks:
        """Return the callbacks of the training, which also call `calls`."""

        def begin(trainer: Trainer) -> None:
            self._begin(trainer, calls)
            calls.on_trainer(trainer)

        def after_epoch(row: dict[str, Any], trainer: Trainer) -> None:
            if self.tracking is not None:
                self.tracking.log(row, step=row["epoch"])
            self._keep_epoch(trainer)
            if self.leads:
                calls.on_epoch(row, trainer)

        return replace(calls, on_trainer=begin, on_epoch=after_epoch)

    def _begin(self, trainer: Trainer, calls: Callbacks) -> None:
        """Load the saved state; of a new run, write the settings, and the checkpoint of epoch 0."""
        self.trainer = trainer
        if self.saved is not None:
            with fitting(self.folder.last):
                trainer.load_state_dict(self.saved["trainer"])
        if self.leads:
            bags, folder = self.reading.parts.bags, self.folder
            if self.saved is None:
                write_left_out(bags, folder.left_out)
                folder.write_config(self.data, trainer.config.flat())
                self._save(trainer)
                folder.require_space(_CHECKPOINTS * folder.last.stat().st_size)
                calls.on_start(trainer.config, None)
            if self.tracking is not None:
                self.tracking.start(trainer.config)
            self._write_metrics(trainer)
        self.started = time.monotonic()

    def _keep_epoch(self, trainer: Trainer) -> None:
        self.seconds = self._before[0] + time.monotonic() - self.started
        self.waited = self._before[1] + trainer.waited_s
        if self.leads:
            self._save(trainer)
            self._write_metrics(trainer)

    def _save(self, trainer: Trainer) -> None:
        content = {"version": __version__, "config": trainer.config.flat(), "trainer": trainer.state_dict()}
        times = {"seconds": self.seconds, "waited": self.waited}
        save_checkpoint(self.folder.last, {**content, **self.reading.origin, **times})

    def _write_metrics(self, trainer: Trainer) -> None:
        metric = metric_of_history(trainer.history)
        columns = ["epoch", "lr", "state_rate", "dual_lr", "loss", f"train_{metric}", f"val_{metric}"]
        columns += [name for name in (trainer.history or [{}])[-1] if name not in columns]
        write_text(self.folder.metrics, csv_text(columns, trainer.history))

    def keep(self, trainer: Trainer) -> None:
        """Write the weights of the best epoch so far."""
        if self.leads:
            save_checkpoint(self.folder.best, {"model": trainer.model.state_dict(), "epoch": trainer.epoch})

    def load(self, trainer: Trainer) -> None:
        """Load the weights of the best epoch."""
        read = partial(load_checkpoint, self.folder.best, BestContent)
        best = read() if self.ranks is None else self.ranks.from_lead(read)
        with fitting(self.folder.best):
            trainer.model.load_state_dict(best["model"])
