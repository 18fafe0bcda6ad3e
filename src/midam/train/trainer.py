"""The trainer: epochs of the members, validation, and a state for bit-exact resumption."""

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.missing import align_features
from midam.errors import BagDataError, CheckpointError, ConfigError, StaleStateError, require_counts_if_given
from midam.evaluate.predict import covariates_of, predict
from midam.nn.scorer import BagEnsemble, Inputs, without_standardizer
from midam.process_group import Ranks
from midam.processes import Processes
from midam.settings import ResolvedSettings, Settings
from midam.settings.group import AUTO
from midam.settings.training import TrainingSettings
from midam.targets import target_of
from midam.train.loop import Training
from midam.train.members import (
    build_members,
    choose_batch_size,
    fit_standardizers,
    labels_of,
    open_reader,
    refuse_half_volumes,
    standardized_once,
    weights_of,
    with_objective,
)
from midam.train.state_check import StateError, state_error

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_STEP_WORK = 3  # passes of an instance in a training step, forward and backward
_LEAST_VALIDATIONS = 20
_MANY, _DECAY = 500, 0.01  # of more training bags: the weight decay, with the best epoch

Callback = Callable[["Trainer", dict[str, Any]], None]


class Trainer:
    """Trains the members of one method on one set of bags.

    Within an epoch the members are trained one after the other, each with separate weights, draws, tracked state and
    dual variable. They share the bags and the statistics of the standardizer.

    Parameters
    ----------
    config : Settings
        Settings; the groups `data` and `cut` are not used.
    train : Bags
        Labeled bags with pairs that the labels order: with two classes, bags of both.
    val : Bags, optional
        Labeled bags, scored after each epoch and used for nothing else here.
    fabric : lightning_fabric.Fabric, optional
        Device and precision; default: one device, by `config`.
    ranks : Ranks, optional
        Processes that train the model together, each with a trainer of the same settings and bags.

    Attributes
    ----------
    members : list of Training
        The training of each scorer.
    model : BagEnsemble
        The scorers of the members; the score of a bag is the mean of their scores.
    target : Target
        Kind of the labels; its `metric` is the main metric, "auroc" for two classes.
    epoch : int
        Number of finished epochs.
    stopped : bool
        Whether `stop` was called.
    history : list of dict
        A row per epoch: epoch, lr, state_rate, dual_lr; loss and train_auroc (of the scores at the estimator's points,
        while training), means over the members; val_auroc of the mean score.
        With another target, its metric replaces auroc.
    config : ResolvedSettings
        The settings, with numbers instead of "auto".
    states : list of StateError
        After the last epoch of `fit`, the tracked state of each member beside whole training bags; empty without one.
    trained_s : float
        Seconds spent on training since the trainer was made, without validation.

    Examples
    --------
    >>> bags = Bags.from_list([[[0.0], [1.0]], [[3.0], [0.5]]] * 8, labels=[0, 1] * 8)
    >>> trainer = Trainer(Settings(epochs=2, members=1), bags).fit()
    >>> [row["epoch"] for row in trainer.history]
    [1, 2]
    >>> predict(trainer.model, bags).shape
    (16,)
    """

    def __init__(
        self,
        config: Settings,
        train: Bags,
        val: Bags | None = None,
        *,
        fabric: "Fabric | None" = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.target = target_of(train)
        self.target.check(train)
        config = with_objective(config, self.target)
        if val is not None and val.instance_shape != train.instance_shape:
            raise BagDataError(
                f"Expected validation instances of shape {train.instance_shape}, got {val.instance_shape} "
                f"(in {val.source}); use the same features."
            )
        val = None if val is None else align_features(val, train.feature_names, reference=train.source)
        _warn_without_validation(config, val)
        given, config = config.training, _resolved(config, train, val)
        self.fabric = fabric or make_fabric(config)
        device = self.fabric.device
        self._ranks = ranks
        if config.training.open:
            config = choose_batch_size(config, train)
        self.config = config
        once = standardized_once(config, train)
        members = build_members(config, train, device=device, standardized=once)
        self.model = BagEnsemble([member.model for member in members])
        self.model.inputs = Inputs(train.instance_shape, train.feature_names)
        refuse_half_volumes(members[0].model.encoder, config.run.precision, device)
        self._train, self._val = train, val
        self._val_every = 1 if val is None else _validation_interval(config, given, train, val)
        if config.model.standardize:
            fit_standardizers([member.model.standardizer for member in members], train, seed=config.run.seed)
        self._standardizer = members[0].model.standardizer
        self._reader = self._open(train, once=once)
        self._val_reader = self.reader(val) if val is not None else None
        labels, known = labels_of(train, self._reader), covariates_of(self.model, train)
        self._val_covariates = None if val is None else covariates_of(self.model, val)
        options: dict[str, Any] = {"fabric": self.fabric, "covariates": known, "ranks": ranks}
        options["weights"] = weights_of(train, self._reader)
        self.members = [Training(member, self._reader, labels, **options) for member in members]
        self.epoch, self.stopped = 0, False
        self.states: list[StateError] = []
        self.history: list[dict[str, Any]] = []
        self.trained_s = 0.0
        self._copy_leading_weights()

    def reader(self, bags: Bags) -> InstanceReader:
        """Open bags for `scores`; bags of the same set as the training bags share its instances in memory."""
        bags = align_features(bags, self._train.feature_names, reference=self._train.source)
        if self._reader.holds(bags):
            return self._reader.over(bags)
        return self._open(bags, once=standardized_once(self.config, bags))

    def scores(self, bags: Bags, reader: InstanceReader) -> NDArray[np.float64]:
        """Return the scores [N] of `bags` by the reported scorers; `reader` comes from `Trainer.reader`."""
        model = without_standardizer(self.model) if reader.transforms else self.model
        # Missing covariates of the validation bags cause one warning, not one after each epoch.
        known = self._val_covariates if bags is self._val else None
        chunk_size = self.config.run.chunk_size
        return predict(model, bags, chunk_size=chunk_size, reader=reader, covariates=known, ranks=self._ranks)

    @property
    def best_epoch(self) -> int | None:
        """Epoch with the highest validation metric so far; of equal epochs the latest."""
        scored = [(row[self.validated], row["epoch"]) for row in self.history if row[self.validated] is not None]
        return max(scored)[1] if scored else None

    @property
    def validated(self) -> str:
        """Column of `history` that selects the best epoch."""
        return f"val_{self.target.metric}"

    @property
    def waited_s(self) -> float:
        """Seconds of `trained_s` in which the training waited for instances."""
        return self._reader.waited_s

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, the patience is exhausted, or `stop` was called."""
        patience, epochs = self.config.training.patience, self.config.training.epochs
        return (
            self.stopped or self.epoch >= epochs or (patience is not None and self._epochs_without_gain() >= patience)
        )

    def fit(self, *, epochs: int | None = None, callbacks: Sequence[Callback] = ()) -> Self:
        """Train until `finished`, or for `epochs` more epochs; all but `midam.train.side` train by this loop.

        After each epoch all `callbacks` are called in turn, with the trainer and the new row of `history`, to log,
        write checkpoints, show progress, or `stop` the training. At the end `states` holds what the tracked state of
        training bags is worth; a `StaleStateError` is raised if the training has climbed at a state that the bags no
        longer have, and no validation bags chose the weights.

        Examples
        --------
        >>> from midam.data import read_bags
        >>> def stop_early(trainer, row):
        ...     if row["loss"] < 0.5:
        ...         trainer.stop()
        >>> trainer = Trainer(Settings(epochs=3, members=1), read_bags("digits"))
        >>> trainer.fit(callbacks=[stop_early]).epoch <= 3
        True
        """
        require_counts_if_given(0, epochs=epochs)
        last = None if epochs is None else self.epoch + epochs
        while not (self.finished if last is None else self.stopped or self.epoch >= last):
            row = self.train_epoch()
            for callback in callbacks:
                callback(self, row)
        if self.finished and self.epoch:
            self.check_states()
        return self

    def stop(self) -> None:
        """End `fit` after this epoch; for callbacks."""
        self.stopped = True

    def train_epoch(self) -> dict[str, Any]:
        """Train one epoch and score the validation bags; return the new row of `history`.

        Raise a `DivergedError` if the loss or a weight of a member is no longer finite.
        """
        rates = self.members[0].rates(self.config.training.decays(self.epoch))
        self.model.train()
        started = time.perf_counter()
        results = [member.train_epoch(self.epoch) for member in self.members]
        self._copy_leading_weights()
        self.trained_s += time.perf_counter() - started
        self.epoch += 1
        row: dict[str, Any] = {
            "epoch": self.epoch,
            **rates,
            **self.members[0].state_rate(),
            "loss": float(np.mean([loss for loss, _ in results])),
            f"train_{self.target.metric}": float(np.mean([metric for _, metric in results])),
            self.validated: self._validate(),
        }
        self.history.append(row)
        return row

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resume needs: only tensors, numbers, strings, lists and dictionaries."""
        return {
            "model": self.model.state_dict(),
            "members": [member.state_dict() for member in self.members],
            "bag_ids": [str(i) for i in self._train.ids],
            "epoch": self.epoch,
            "history": [dict(row) for row in self.history],
            "best_epoch": self.best_epoch,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`; raise a `CheckpointError` if the state belongs to other training bags."""
        if state["bag_ids"] != [str(i) for i in self._train.ids]:
            raise CheckpointError(
                "Expected the state of these training bags, got one of other bags; resume with the data of the run."
            )
        self.model.load_state_dict(state["model"])
        for member, part in zip(self.members, state["members"], strict=True):
            member.load_state_dict(part)
        self.epoch = state["epoch"]
        self.history = [dict(row) for row in state["history"]]

    def check_states(self) -> None:
        """Set `states`; raise the `StaleStateError` of `fit`."""
        errors = [state_error(member) for member in self.members]
        self.states = [state for state in errors if state is not None]
        for member, state in zip(self.members, errors, strict=True):
            if state is not None and state.wrong and self.config.training.select == "last":
                raise StaleStateError(
                    f"Expected training bags to rank as their tracked state does, got {self.target.metric} "
                    f"{state.whole:.3f} of {state.bags} whole training bags, {state.tracked:.3f} at the state: what is "
                    "remembered is out of date, and the model has fitted that. Take `estimator='minibatch'` or exact, "
                    f"or lower lr (now {member.config.training.lr:g})."
                )

    def _copy_leading_weights(self) -> None:
        """Copy the weights of the leading process to all: on different machines, rounding may differ."""
        if self._ranks is not None:
            self._ranks.same([*self.model.parameters(), *(p for m in self.members for p in m.objective.parameters())])

    def _open(self, bags: Bags, *, once: bool) -> InstanceReader:
        transform = self._standardizer if once else None
        return open_reader(self.config, bags, transform=transform, device=self.fabric.device)

    def _validate(self) -> float | None:
        due = self.epoch % self._val_every == 0 or self.epoch >= self.config.training.epochs
        if self._val is None or self._val_reader is None or not due:
            return None
        values = self.target.values(self._val)
        known = self.target.has_metric(values)
        return self.target.metric_value(values, self.scores(self._val, self._val_reader)) if known else None

    def _epochs_without_gain(self) -> int:
        # A tie moves best_epoch on, but does not reset patience.
        scored = [(row[self.validated], -row["epoch"]) for row in self.history if row[self.validated] is not None]
        return max(scored)[1] - scored[-1][1] if scored else 0


def make_fabric(config: Settings, *, logger: Any = None, processes: Processes | None = None) -> "Fabric":
    """Make a Fabric with one device per process, by the settings; raise a `ConfigError` if the device is missing."""
    processes = processes or Processes()
    if config.run.accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("Expected a CUDA device for the accelerator 'cuda', got none; use 'auto' or 'cpu'.")
    on_cpu = config.run.accelerator == "cpu" or not torch.accelerator.is_available()
    if on_cpu and config.run.precision == "32-true" and processes.count == 1 and logger is None:
        return _plain_fabric(torch.device("cpu"))
    # Fabric logs the precision at each training, and a study has hundreds of trainings.
    for name in ("rank_zero", "distributed"):
        logging.getLogger(f"lightning_fabric.utilities.{name}").setLevel(logging.WARNING)
    options: dict[str, Any] = {"devices": processes.devices, "num_nodes": processes.num_nodes, "loggers": logger}
    from lightning_fabric import Fabric

    strategy = processes.strategy()
    return Fabric(accelerator=config.run.accelerator, precision=config.run.precision, strategy=strategy, **options)


def _plain_fabric(device: torch.device) -> "Fabric":
    """Return the parts of a Fabric that float32 on one device needs; a Fabric takes seconds to import."""
    plain = {"autocast": nullcontext, "backward": torch.autograd.backward}
    return cast("Fabric", SimpleNamespace(device=device, loggers=[], **plain))


def _resolved(config: Settings, train: Bags, val: Bags | None) -> ResolvedSettings:
    """Return the settings for these bags. Of many bags of vectors, `select` "auto" is "best", with more weight decay.

    `python -m studies large-sets` chose this.
    """
    given, config, target = config.training, config.resolve(train.instance_shape), target_of(train)
    overfits = len(train) > _MANY and config.model.encoder == "mlp" and target.pairs == "binary"
    best = given.select == AUTO and overfits and val is not None and target.has_metric(target.values(val))
    select = given.select if given.select != AUTO else "best" if best else "last"
    return config.replace(select=select, weight_decay=_DECAY if best and given.weight_decay is None else given.decay)


def _validation_interval(config: ResolvedSettings, training: TrainingSettings, train: Bags, val: Bags) -> int:
    """Return the number of epochs from one scoring of the validation bags to the next; `training` is as given."""
    if training.val_every is not None:
        return training.val_every
    if training.select == "best" or training.patience is not None:
        return 1
    seen = train.sizes if config.method.estimator == "exact" else np.minimum(train.sizes, config.training.batch[2])
    as_dear = math.ceil(val.num_instances / (_STEP_WORK * int(seen.sum())))
    return min(as_dear, max(1, training.epochs // _LEAST_VALIDATIONS))


def _warn_without_validation(config: Settings, val: Bags | None) -> None:
    training = config.training
    known = val is not None and target_of(val).has_metric(target_of(val).values(val))
    if not known and (training.select == "best" or training.patience is not None):
        warnings.warn(
            f"select={training.select!r} with patience={training.patience} needs validation bags with a metric, which "
            "are missing: the run trains all epochs and reports the last weights",
            stacklevel=3,
        )


def build_training(config: Settings, train: Bags, *, device: torch.device | str = "cpu") -> Training:
    """Set up the training of one scorer, as in `midam fit`, for a custom loop over its batches.

    `config.members` is ignored; `train` needs labels, and with two classes bags of both.

    Examples
    --------
    >>> from midam.data import read_bags
    >>> from midam.settings import Settings
    >>> training = build_training(Settings(), read_bags("digits"))
    >>> with training.epoch(0) as batches:
    ...     output = training.estimator(training.trained, next(batches))
    >>> output.score.shape
    torch.Size([16])
    """
    fabric = _plain_fabric(torch.device(device))
    return Trainer(config.replace(members=1, select="last", patience=None), train, fabric=fabric).members[0]
