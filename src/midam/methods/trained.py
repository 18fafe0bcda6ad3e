"""The trainer as a method: it trains in epochs, and reports the last weights or those of the best epoch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from midam.data.bags import Bags
from midam.methods.callbacks import QUIET, Callbacks
from midam.methods.method import Fitted, Folds, Method
from midam.processes import Ranks
from midam.settings import ResolvedSettings
from midam.train.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class BestWeights:
    """The weights of the best epoch, in memory; a subclass may keep them elsewhere."""

    def keep(self, trainer: Trainer) -> None:
        """Keep a copy of the reported weights, if they may be selected."""
        if trainer.config.training.select == "best":
            self._kept = {name: tensor.clone() for name, tensor in trainer.reported.state_dict().items()}

    def load(self, trainer: Trainer) -> None:
        """Give the reported model the weights that were kept."""
        trainer.reported.load_state_dict(self._kept)


@dataclass
class Trained(Method):
    """The method of the settings, trained in epochs.

    Parameters
    ----------
    fabric, start, ranks
        As in `midam.train.trainer.Trainer`.
    epochs : int, optional
        Number of epochs; default: until the training is finished.
    best : BestWeights
        Place for the weights of the best epoch.
    """

    fabric: "Fabric | None" = None
    start: Mapping[str, Any] | None = None
    ranks: Ranks | None = None
    epochs: int | None = None
    best: BestWeights = field(default_factory=BestWeights)

    def fit(
        self,
        train: Bags,
        val: Bags | None,
        settings: ResolvedSettings,
        callbacks: Callbacks = QUIET,
        folds: Folds | None = None,  # noqa: ARG002
    ) -> Fitted:
        """Train a model on the training bags; `folds` are ignored."""
        trainer = Trainer(settings, train, val, fabric=self.fabric, start=self.start, ranks=self.ranks)

        def after_epoch(trainer: Trainer, row: dict[str, Any]) -> None:
            # The best weights are written first: after a kill between two writes, a resume repeats the epoch.
            if trainer.best_epoch == trainer.epoch:
                self.best.keep(trainer)
            callbacks.on_epoch(row, trainer)

        callbacks.on_trainer(trainer)
        trainer.fit(epochs=self.epochs, callbacks=[after_epoch])
        best = trainer.config.training.select == "best" and trainer.best_epoch is not None
        if best:
            self.best.load(trainer)
        entries = _entries(trainer, "best" if best else "last")
        return Fitted(trainer.reported, trainer.config, entries=entries, history=trainer.history)


def _entries(trainer: Trainer, selected: str) -> dict[str, Any]:
    """Return the summary's entries about a training."""
    settings, epochs = trainer.config.flat(), {"last": trainer.epoch, "best": trainer.best_epoch}
    by_weights = {
        name: {"epoch": epoch, trainer.validated: trainer.history[epoch - 1][trainer.validated]}
        for name, epoch in epochs.items()
        if epoch
    }
    entries: dict[str, Any] = {
        "selected": {"weights": selected, "epoch": epochs[selected]},
        "by_weights": by_weights,
        "method": {key: settings[key] for key in ("pooling", "estimator", "objective")},
        "members": trainer.config.training.members,
        "epochs": trainer.epoch,
    }
    if trainer.states:
        # The tracked states of training bags next to the whole bags, means over the members.
        rows = [{key: value for key, value in asdict(state).items() if key != "enough"} for state in trainer.states]
        means = {key: None if rows[0][key] is None else float(np.mean([row[key] for row in rows])) for key in rows[0]}
        entries["state"] = {**means, "bags": rows[0]["bags"]}
    return entries
