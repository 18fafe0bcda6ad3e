"""Trials of one configuration: trainings that differ only in bags and seed, as in a cross-validation."""

import copy
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.errors import DivergedError, Note
from midam.nn.ensemble import BagEnsemble
from midam.settings import Settings
from midam.train.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Trial:
    """One training: positions of the bags to train on and to score, and the seed of weights and sampling.

    Examples
    --------
    Train on six bags and score two others:

    >>> bags = Bags.from_list([[[float(i % 2)], [0.1 * i]] for i in range(8)], [0, 1] * 4)
    >>> trial = Trial(train=np.arange(6), score=np.array([6, 7]), seed=0)
    >>> settings = Settings(epochs=1, members=1, num_positive=3, num_negative=3)
    >>> (result,) = train_trials(settings, bags, [trial])
    >>> result.scores.shape
    (1, 2)
    """

    train: NDArray[np.int64]
    score: NDArray[np.int64]
    seed: int


Keep = Callable[[NDArray[np.float64]], bool]
"""Function of the scores of a trial's bags after an epoch, which returns whether to keep the model of this epoch."""

Prepare = Callable[[Trial], Bags]
"""Function that returns the bags with columns coded, and gaps filled, by the training bags of a trial alone."""


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Result of a trial.

    `scores` are those of its bags after each requested epoch, or after the last of E epochs; NaN once the training has
    diverged.

    Examples
    --------
    The scores of two bags after each of two epochs:

    >>> bags = Bags.from_list([[[float(i % 2)], [0.1 * i]] for i in range(8)], [0, 1] * 4)
    >>> trial = Trial(train=np.arange(6), score=np.array([6, 7]), seed=0)
    >>> settings = Settings(epochs=2, members=1, num_positive=3, num_negative=3)
    >>> (result,) = train_trials(settings, bags, [trial], after=(1, 2))
    >>> result.scores.shape, result.loss.shape
    ((2, 2), (2,))
    """

    scores: NDArray[np.float64]  # [A, len(score)], or [A, len(score), C] with several columns
    loss: NDArray[np.float64]  # [E], as in `Trainer.history`
    train_auroc: NDArray[np.float64]  # [E]; with another target, its main metric
    seconds: float
    model: BagEnsemble | None = None  # the last that was kept


def train_trials(
    config: Settings, bags: Bags, trials: Sequence[Trial], *, after: Collection[int] | None = None
) -> list[TrialResult]:
    """Train a `Trainer` for each trial, all with the settings of `config`; it raises the same errors.

    The results are in the order of `trials`; see `train_trial`.
    """
    return [train_trial(config, bags, trial, after=after) for trial in trials]


def train_trial(
    config: Settings, bags: Bags, trial: Trial, *, after: Collection[int] | None = None, keep: Keep | None = None
) -> TrialResult:
    """Train on the bags of a trial, and score its others; its seed replaces ``config.seed``.

    No epoch is selected: all epochs are trained, and the bags are scored after the last epoch, or after each of the
    epochs `after`, from 1. By default, no model is kept.
    """
    started, config = time.perf_counter(), config.replace(select="last", patience=None)
    after = (config.training.epochs,) if after is None else after
    with warnings.catch_warnings():
        if config.training.open:  # no note about the choice in each trial
            warnings.simplefilter("ignore", Note)
        trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train))
    scored = bags.subset(trial.score)
    reader = trainer.reader(scored)
    scores: list[NDArray[np.float64]] = []
    kept: BagEnsemble | None = None
    columns, metric = trainer.target.count, f"train_{trainer.target.metric}"
    failed = np.full(len(trial.score) if columns == 1 else (len(trial.score), columns), np.nan)

    def score(trainer: Trainer, _: object) -> None:
        nonlocal kept
        if trainer.epoch in after:
            scores.append(trainer.scores(scored, reader))
            if keep is not None and keep(scores[-1]):
                kept = copy.deepcopy(trainer.reported)

    with suppress(DivergedError):
        trainer.fit(callbacks=[score])
    lost = [float("nan")] * (config.training.epochs - len(trainer.history))
    return TrialResult(
        np.stack([*scores, *[failed] * (len(after) - len(scores))]),
        np.array([row["loss"] for row in trainer.history] + lost),
        np.array([row[metric] for row in trainer.history] + lost),
        seconds=time.perf_counter() - started,
        model=kept,
    )
