"""Many trials of one configuration, trained in lockstep: cross-validation at a fraction of its price.

A step of a small network is mostly overhead. The trials of a study differ in bags and seed only, so their scorers are
stacked (`midam.nn.stacked`) and one step advances all of them. The draws, the weights at the start and the arithmetic
of each trial are those of a `Trainer` of its own; the results agree to rounding.
"""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import SampledBatch
from midam.data.on_disk import on_disk
from midam.data.sampling import BagSampler, EpochPlan
from midam.errors import DivergedError
from midam.evaluate.ranking import auroc
from midam.functional.objectives import class_weights
from midam.nn.encoders import MLP
from midam.nn.scorer import BagScorer
from midam.nn.stacked import StackedScorer
from midam.train.average import make_average, reported_model
from midam.train.config import FitConfig, member_seed
from midam.train.cpu import cpu_threads, denormals_flushed
from midam.train.lockstep_bags import Layout, ScoredBags, TrialReader, whole_bags
from midam.train.method import build_method, build_optimizer, warn_of_sizes
from midam.train.stacked_objective import StackedObjective, make_stacked_objective
from midam.train.standardise import fit_scalers
from midam.train.trainer import Trainer, make_fabric, seed_noise

_AT_ONCE = 16
_MAX_VALUES = 2**28
_MAX_MEAN_SIZE = 128


@dataclass(frozen=True, eq=False)
class Trial:
    """One training and what it is asked to score.

    Attributes
    ----------
    train : int64 array
        Positions of the training bags.
    score : int64 array
        Positions of the bags to score.
    seed : int
        Of weights and sampling.
    """

    train: NDArray[np.int64]
    score: NDArray[np.int64]
    seed: int


@dataclass(frozen=True, eq=False)
class TrialResult:
    """What came of a trial.

    Attributes
    ----------
    scores : float64 array [E, len(score)]
        Bag scores after each of E epochs, or [1, len(score)] after the last; NaN once a training has diverged. With
        several members their mean.
    loss, train_auroc : float64 array [E]
        Of each epoch, as in `Trainer.history`; mean over members.
    seconds : float
        Wall time of the lockstep run, divided by its trials.
    """

    scores: NDArray[np.float64]
    loss: NDArray[np.float64]
    train_auroc: NDArray[np.float64]
    seconds: float


def train_trials(
    config: FitConfig, bags: Bags, trials: Sequence[Trial], *, every_epoch: bool = False
) -> list[TrialResult]:
    """Train one scorer a trial (or `config.num_members()`), all with the settings of `config`.

    Parameters
    ----------
    config : FitConfig
        Settings; the seed of a trial takes the place of ``config.seed``. Nothing is selected: all epochs are trained.
    bags : Bags
        Labelled; each trial names its own.
    trials : sequence of Trial
        In any number.
    every_epoch : bool
        Score after each epoch, not after the last alone.

    Returns
    -------
    list of TrialResult
        In the order of `trials`.

    Raises
    ------
    MidamError
        As of `Trainer`.

    Notes
    -----
    Where whole bags are large, where the estimator streams or the encoder is more than a small network, there is
    nothing to gain, and the trials are trained one after the other.
    """
    config = dataclasses.replace(config.for_instances(bags.instance_shape), select="last", patience=None)
    if not _stackable(config, bags):
        return [_alone(config, bags, trial, every_epoch=every_epoch) for trial in trials]
    count = config.num_members()
    own = [(trial, member_seed(trial.seed, member)) for trial in trials for member in range(count)]
    single = dataclasses.replace(config, members=1)
    done: dict[int, TrialResult] = {}
    with cpu_threads(config.cpu_threads()):
        # Where they are standardised, each training holds the instances in its own way.
        fits = _MAX_VALUES // int(np.prod(bags.instances.shape)) if config.standardize else _AT_ONCE
        at_once = max(1, min(_AT_ONCE, fits))
        for group in _groups(single, bags, [trial for trial, _ in own], at_once=at_once):
            started = time.perf_counter()
            found = _Lockstep(single, bags, [own[i] for i in group]).train(every_epoch=every_epoch)
            seconds = (time.perf_counter() - started) / len(group)
            done.update((i, dataclasses.replace(result, seconds=seconds)) for i, result in zip(group, found))
    return [_mean([done[at + m] for m in range(count)]) for at in range(0, len(own), count)]


def _stackable(config: FitConfig, bags: Bags) -> bool:
    # A memory-mapped set is not made for copies in memory.
    if config.freeze or config.checkpointing or config.augment or config.compile:
        return False
    if config.encoder != "mlp" or config.precision != "32-true" or on_disk(bags.instances):
        return False
    if config.state_start != "first-visit" or config.state_refresh is not None:
        return False
    return config.estimator in ("vrsp", "minibatch") or (
        config.estimator == "exact" and float(bags.sizes.mean()) <= _MAX_MEAN_SIZE
    )


def _groups(config: FitConfig, bags: Bags, trials: Sequence[Trial], *, at_once: int) -> list[list[int]]:
    """Trials of one number of steps and one layout of a batch."""
    labels = bags.require_labels()
    alike: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for i, trial in enumerate(trials):
        positives = int(labels[trial.train].sum())
        counts = min(config.num_positive, positives), min(config.num_negative, len(trial.train) - positives)
        steps = -(-len(trial.train) // max(1, sum(counts)))
        alike[*counts, steps, min(config.num_instances, int(bags.sizes[trial.train].max()))].append(i)
    return [part.tolist() for group in alike.values() for part in np.array_split(group, -(-len(group) // at_once))]


class _Lockstep:
    """M trainings whose steps are taken together: trials, each with the seed of its weights and draws."""

    def __init__(self, config: FitConfig, bags: Bags, seeded: Sequence[tuple[Trial, int]]) -> None:
        self.config = config
        self.trials = [trial for trial, _ in seeded]
        self.device = make_fabric(config).device
        self.labels = torch.from_numpy(bags.require_labels()).to(self.device, torch.float32)
        models, samplers, scalers = [], [], []
        for trial, seed in seeded:
            train = bags.subset(trial.train)
            own = dataclasses.replace(config, seed=seed)
            method = build_method(own, instance_shape=bags.instance_shape, num_bags=len(train))
            warn_of_sizes(method.model, train)
            if config.standardize:
                fit_scalers([method.model.scaler], train, seed=trial.seed)
            scalers.append(method.model.scaler)
            models.append(BagScorer(method.model.encoder, method.model.pooling))
            samplers.append(_sampler(own, train))
        self.reader = TrialReader(bags, scalers if config.standardize else scalers[:1], device=self.device)
        self.samplers = samplers
        columns = self.reader.drop_zero_features()
        if columns is not None:
            for model in models:
                cast(MLP, model.encoder).keep_inputs(columns)
        self.model = StackedScorer(models).to(self.device)
        # The state of all trials stands in one table, M rows for each of N bags.
        rows = len(seeded) * len(bags)
        method = build_method(config, instance_shape=bags.instance_shape, num_bags=rows)
        self.estimator = method.estimator.to(self.device)
        self.objective: StackedObjective = make_stacked_objective(config, len(seeded)).to(self.device)
        self.optimizer = build_optimizer(config, self.model, self.objective)
        self.average = make_average(config, self.model)

    def train(self, *, every_epoch: bool) -> list[TrialResult]:
        scored = ScoredBags(self.reader, [trial.score for trial in self.trials])
        losses, aurocs, scores = [], [], []
        lost = np.zeros(len(self.trials), dtype=bool)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            seed_noise(self.device, self.trials[0].seed)
            for epoch in range(self.config.epochs):
                self._set_rates(epoch)
                with denormals_flushed():
                    loss, auc = self._epoch()
                losses.append(loss)
                aurocs.append(auc)
                if self.average is not None and self.config.averages(epoch):
                    self.average.update_parameters(self.model)
                lost |= ~np.isfinite(loss) | ~self.model.finite().cpu().numpy()
                if every_epoch or epoch == self.config.epochs - 1:
                    found = scored.scores(reported_model(self.model, self.average))
                    scores.append([np.where(gone, np.nan, own) for gone, own in zip(lost, found)])
        return [
            TrialResult(
                np.stack([of_epoch[m] for of_epoch in scores]),
                np.array([of_epoch[m] for of_epoch in losses]),
                np.array([of_epoch[m] for of_epoch in aurocs]),
                seconds=0.0,
            )
            for m in range(len(self.trials))
        ]

    def _epoch(self) -> tuple[NDArray[np.float64], list[float]]:
        self.model.train()
        losses, scores, labels = [], [], []
        for batch, layout in self._batches():
            if layout is None:
                output = self.estimator(self.model, batch)
            else:
                output = whole_bags(self.model, batch.x, batch.sizes, layout)
            score = output.score
            h = score if self.objective.squash else output.logit
            loss = self.objective(h, batch.labels, weights=batch.class_weights)
            for group in self.optimizer.param_groups:
                for p in group["params"]:
                    p.grad = None
            loss.sum().backward()
            self.optimizer.step()
            loss = loss.detach()
            self.objective.dual_step(loss)
            self.estimator.commit(loss.repeat_interleave(len(batch.index) // len(self.trials)).unsqueeze(1))
            losses.append(loss)
            scores.append(score.detach().view(len(self.trials), -1))
            labels.append(batch.labels.view(len(self.trials), -1))
        all_scores, all_labels = torch.cat(scores, 1).double().cpu().numpy(), torch.cat(labels, 1).cpu().numpy()
        values = [auroc(y, s) if np.isfinite(s).all() else float("nan") for y, s in zip(all_labels, all_scores)]
        return torch.stack(losses).double().mean(dim=0).cpu().numpy(), values

    def _batches(self) -> Iterator[tuple[SampledBatch, Layout | None]]:
        plans = [sampler.epoch() for sampler in self.samplers]
        # A plan speaks of the trial's own training bags; everything here is of the whole set.
        bags = torch.stack([torch.from_numpy(t.train)[p.bags] for t, p in zip(self.trials, plans)], dim=1)
        offset = torch.arange(len(plans)).unsqueeze(1) * len(self.reader.sizes)
        for step, of_step in enumerate(bags):
            index = (of_step + offset).flatten().to(self.device)
            labels, sizes = self.labels[of_step.flatten().to(self.device)], self.reader.sizes[of_step]
            weights = class_weights(labels[: of_step.shape[1]])
            if plans[0].slots is None:
                layout = self.reader.lay_out(of_step)
                x = self.reader.whole(layout)
                yield SampledBatch(x, index, labels, sizes.flatten().to(self.device), class_weights=weights), layout
                continue
            slots, mask = _drawn(plans, step)
            positions = self.reader.starts[of_step].unsqueeze(-1) + slots
            batch = SampledBatch(
                self.reader.rows(positions.flatten(1)),
                index,
                labels,
                sizes.flatten().to(self.device),
                None if mask.all() else mask.flatten(0, 1).to(self.device),
                class_weights=weights,
            )
            yield batch, None

    def _set_rates(self, epoch: int) -> None:
        falls, (_, lr) = self.config.decays(epoch), self.config.primal()
        for group in self.optimizer.param_groups:
            group["lr"] = lr * 0.1**falls
        for part, name in ((self.estimator, "state_rate"), (self.objective, "dual_lr")):
            if hasattr(part, name):
                setattr(part, name, getattr(self.config, name) * 0.5**falls)


def _drawn(plans: Sequence[EpochPlan], step: int) -> tuple[Tensor, Tensor]:
    slots = [plan.slots[step] for plan in plans if plan.slots is not None]
    masks = [plan.mask[step] for plan in plans if plan.mask is not None]
    return torch.stack(slots), torch.stack(masks)


def _sampler(config: FitConfig, train: Bags) -> BagSampler:
    return BagSampler(
        train.require_labels(),
        train.sizes,
        num_positive=config.num_positive,
        num_negative=config.num_negative,
        num_instances=None if config.estimator == "exact" else config.num_instances,
        seed=config.seed,
    )


def _alone(config: FitConfig, bags: Bags, trial: Trial, *, every_epoch: bool) -> TrialResult:
    started = time.perf_counter()
    trainer = Trainer(dataclasses.replace(config, seed=trial.seed), bags.subset(trial.train))
    scored = bags.subset(trial.score)
    reader = trainer.reader(scored)
    scores: list[NDArray[np.float64]] = []
    failed = np.full(len(trial.score), np.nan)
    while not trainer.finished:
        try:
            trainer.train_epoch()
        except DivergedError:
            break
        if every_epoch or trainer.finished:
            scores.append(trainer.scores(scored, reader))
    wanted = config.epochs if every_epoch else 1
    rows = trainer.history
    lost = [float("nan")] * (config.epochs - len(rows))
    return TrialResult(
        np.stack([*scores, *[failed] * (wanted - len(scores))]),
        np.array([row["loss"] for row in rows] + lost),
        np.array([row["train_auroc"] for row in rows] + lost),
        seconds=time.perf_counter() - started,
    )


def _mean(members: Sequence[TrialResult]) -> TrialResult:
    return TrialResult(
        np.mean([m.scores for m in members], axis=0),
        np.mean([m.loss for m in members], axis=0),
        np.mean([m.train_auroc for m in members], axis=0),
        seconds=sum(m.seconds for m in members),
    )
