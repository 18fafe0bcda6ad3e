"""Trials on the same bags, trained side by side: networks of one shape take each step together.

A layer of all of them is one batched product.
"""

import copy
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import stack_module_state

from midam.data.bags import Bags
from midam.errors import DivergedError
from midam.evaluate.predict import cpu_threads
from midam.nn.encoders import MLP
from midam.nn.objectives import MinMaxAUCLoss
from midam.nn.pooling import AttentionPooling
from midam.nn.scorer import BagEnsemble, BagOutput, SeenBags, fold_slots
from midam.nn.tracked import usual_rate
from midam.process_group import Ranks
from midam.registry import ENCODERS, ESTIMATORS, OBJECTIVES, POOLINGS
from midam.settings import ResolvedSettings, Settings
from midam.train.build import build_optimizer, build_part
from midam.train.estimators import VarianceReduced
from midam.train.loop import Training, annealed, denormals_flushed, set_rates
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
                kept = copy.deepcopy(trainer.model)

    with suppress(DivergedError):
        while not trainer.finished:  # not `fit`, whose check of the state reads whole bags, and tells a trial nothing
            score(trainer, trainer.train_epoch())
    lost = [float("nan")] * (config.training.epochs - len(trainer.history))
    return TrialResult(
        np.stack([*scores, *[failed] * (len(after) - len(scores))]),
        np.array([row["loss"] for row in trainer.history] + lost),
        np.array([row[metric] for row in trainer.history] + lost),
        seconds=time.perf_counter() - started,
        model=kept,
    )


def trains_side(config: ResolvedSettings, bags: Bags) -> bool:
    """Return whether `SideBySide` can train networks with these settings: parts of `midam`, on the CPU."""
    method, model, run = config.method, config.model, config.run
    parts = ENCODERS.find(model.encoder), POOLINGS.find(method.pooling), ESTIMATORS.find(method.estimator)
    other = model.encoder_args, method.pooling_args, model.dropout, model.freeze, run.compile, run.checkpointing
    absent = bags.weights is None and bags.covariates is None
    usual = (*parts, OBJECTIVES.find(method.objective)) == (MLP, AttentionPooling, VarianceReduced, MinMaxAUCLoss)
    return usual and absent and not any(other) and run.precision == "32-true" and not torch.accelerator.is_available()


def shape_of(training: Training) -> tuple[int, ...]:
    """Return the numbers in which trainings side by side must agree."""
    sampler, width = training.sampler, min(training.config.training.batch[2], int(training.reader.sizes.max()))
    counts = sampler.steps_per_epoch, sampler.num_positive, sampler.num_negative
    return *counts, width, training.trained.pooling.in_features


def linear_side(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Return the outputs [T, m, E] of T linear layers for x [T, m, D], of weights by name, stacked [T, ...]."""
    return torch.baddbmm(weights[f"{name}.bias"].unsqueeze(1), x, weights[f"{name}.weight"].transpose(1, 2))


class _Tracked(VarianceReduced):
    """The states of T trainings: their rows of a bag follow each other, as those of branches do."""

    alone: Sequence[VarianceReduced] = ()  # the estimator of each

    def _step_rate(self, visits: Tensor, *, drawn: int, ranks: Ranks | None) -> Tensor:  # noqa: ARG002
        settled = visits.new_tensor([one.settled_rate(drawn) for one in self.alone])
        each = usual_rate(visits.view(-1, self.branches), settled) if self.usual else torch.ones(self.branches)
        return (self.state_rate * each).repeat(len(visits) // self.branches).unsqueeze(1)


class SideBySide:
    """T trainings of one shape (`shape_of`) that have not begun, each on its bags, with the steps that it takes alone.

    Each has separate weights, draws, states of its bags and dual variable: the numbers are those of trainings one after
    the other, up to rounding. Only drawn instances are encoded, not the empty slots of small bags.

    Examples
    --------
    >>> from midam import Bags, Settings
    >>> bags = Bags.from_list([[[0.0], [1.0]], [[3.0], [0.5]]] * 8, labels=[0, 1] * 8)
    >>> trainer = Trainer(Settings(members=2, num_positive=4, num_negative=4), bags)
    >>> side = SideBySide(trainer.members)
    >>> side.train_epoch(0)
    >>> side.write()
    [True, True]
    """

    def __init__(self, trainings: Sequence[Training]) -> None:
        self._trainings, first = trainings, trainings[0]
        self._networks: list[Any] = [nn.Sequential(x.trained.encoder, x.trained.pooling) for x in trainings]
        stacked = stack_module_state(self._networks)[0]
        leaves = nn.ParameterList(stacked.values())
        self._weights = dict(zip(stacked, leaves))
        method, self._count = first.config.method, len(trainings)
        counts, size = [len(x.reader.sizes) for x in trainings], first.trained.pooling.value_size
        self._estimator = _Tracked(max(counts), size, branches=self._count, state_rate=method.state_rate)
        self._estimator.alone = [cast(VarianceReduced, x.estimator) for x in trainings]
        self._states = self._estimator.bag_state.view(max(counts), self._count, -1).unbind(1)  # of each training
        for state, count in zip(self._states, counts):
            state[count:, 0] = torch.inf  # visits of bags that this training does not have
        offered = {"center_start": method.center_start, "columns": self._count, "pairs": "labels"}
        self._objective = build_part(OBJECTIVES, first.config, num_bags=max(counts), **offered)
        self._optimizer = build_optimizer(first.config, leaves, self._objective)

    def train_epoch(self, epoch: int) -> None:
        """Train one epoch, `epoch` from 0."""
        first = self._trainings[0]
        set_rates(first.rates(first.config.training.decays(epoch)), self._optimizer, self._estimator, self._objective)
        self._estimator.start_epoch()
        with cpu_threads(first.config.run.threads), denormals_flushed(), annealed(first.trained, first.config, epoch):
            for step in self._steps():
                self._train_step(*step)

    def _steps(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield drawn instances [T, m, D], the place in m of each slot [K * B, T], and what the bags of a step have."""
        plans = [x.sampler.epoch() for x in self._trainings]
        tables = [(x.labels, x.reader.sizes, x.reader.starts) for x in self._trainings]
        numbers = [(x.bags, *(y[x.bags] for y in table), x.slots, x.mask) for x, table in zip(plans, tables)]
        # [S, K, T, ...] for S steps
        bags, labels, sizes, starts, slots, mask = (torch.stack(x, dim=2) for x in zip(*numbers))
        rows = (bags * self._count + torch.arange(self._count)).flatten(1)
        drawn, positions = (x.transpose(2, 3).flatten(1, 2) for x in (mask, starts.unsqueeze(-1) + slots))
        most = drawn.sum(dim=1).amax(dim=1).tolist()  # instances of a step
        place = torch.where(drawn, drawn.cumsum(dim=1) - 1, max(most))
        # The last place takes the positions of empty slots.
        packed = positions.new_zeros(len(place), max(most) + 1, self._count).scatter_(1, place, positions)
        place = place.where(drawn, 0)
        for at, count in enumerate(most):
            parts = zip(self._trainings, packed[at, :count].T)
            x = torch.stack([one.trained.standardized(one.reader.rows(where)) for one, where in parts])
            yield x, place[at], rows[at], labels[at], sizes[at].flatten(), mask[at].flatten(0, 1)

    def _encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [m, T] and values [m, T, V] of instances x [T, m, D]."""
        weights, (encoder, pooling) = self._weights, self._networks[0]
        for at, layer in enumerate(encoder.layers):
            x = linear_side(weights, f"0.layers.{at}", x) if isinstance(layer, nn.Linear) else layer(x)
        z = linear_side(weights, "1.attention", torch.tanh(linear_side(weights, "1.hidden", x))) * pooling.weight_power
        return z.squeeze(-1).T, linear_side(weights, "1.scorer", x).transpose(0, 1)

    def _train_step(self, x: Tensor, place: Tensor, rows: Tensor, labels: Tensor, sizes: Tensor, mask: Tensor) -> None:  # noqa: PLR0917
        z, v = self._encode(x)
        z, v = z.gather(0, place), v.gather(0, place.unsqueeze(-1).expand(-1, -1, v.shape[-1]))
        z, v = fold_slots(z.view(len(labels), -1, self._count), v.view(len(labels), -1, *v.shape[1:]))
        l, r = self._estimator.at_state(z, v, rows, sizes=sizes, mask=mask)  # noqa: E741
        output = BagOutput(l, r, sizes.to(z.dtype), self._trainings[0].trained.pooling)
        loss = self._objective(SeenBags.of(self._objective.seen(output).view_as(labels)), labels)
        for p in (*self._weights.values(), *self._objective.parameters()):
            p.grad = None
        torch.autograd.backward(loss)
        self._optimizer.step()
        # A training that diverges is noticed in `write`; the others go on.
        for part in (self._objective, self._estimator):
            part.commit(torch.zeros(()))

    @torch.no_grad()
    def write(self) -> list[bool]:
        """Write weights and states into the trainings; return whether the numbers of each are finite."""
        learned = (*self._weights.values(), *self._objective.parameters())
        finite = torch.stack([x.view(self._count, -1).isfinite().all(dim=1) for x in learned])
        for at, (training, network, state) in enumerate(zip(self._trainings, self._networks, self._states)):
            for name, parameter in network.named_parameters():
                parameter.copy_(self._weights[name][at])
            training.estimator.get_buffer("bag_state").copy_(state[: len(training.reader.sizes)])
        return finite.all(dim=0).tolist()


def train_side(
    config: ResolvedSettings, parts: Iterable[tuple[Bags, Trial]], *, after: Collection[int]
) -> list[NDArray[np.float64]]:
    """Train a scorer in each trial on its bags, side by side, and return the scores [A, n] of `train_trial`."""
    config = config.replace(select="last", patience=None)
    trainers = [(Trainer(config.replace(seed=t.seed), bags.subset(t.train)), bags.subset(t.score)) for bags, t in parts]
    readers = [trainer.reader(scored) for trainer, scored in trainers]
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for number, (trainer, _) in enumerate(trainers):
        by_shape.setdefault(shape_of(trainer.members[0]), []).append(number)
    scores: list[list[NDArray[np.float64]]] = [[] for _ in trainers]
    for numbers in by_shape.values():
        side = SideBySide([trainers[number][0].members[0] for number in numbers])
        for epoch in range(1, max(after) + 1):
            side.train_epoch(epoch - 1)
            for number, finite in zip(numbers, side.write() if epoch in after else []):
                new = trainers[number][0].scores(trainers[number][1], readers[number])
                scores[number].append(new if finite else np.full_like(new, np.nan))
    return [np.stack(each) for each in scores]


def fit_side(trainer: Trainer, *, epochs: int | None = None) -> Trainer:
    """Train the members of a new trainer side by side, with the result of `Trainer.fit`; do not check their states."""
    side, trainer.epoch = SideBySide(trainer.members), epochs or trainer.config.training.epochs
    for epoch in range(trainer.epoch):
        side.train_epoch(epoch)
    if not all(side.write()):
        raise DivergedError("Expected finite weights, got others; lower lr or standardize the features.")
    return trainer
