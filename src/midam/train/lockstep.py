"""Many trials of one configuration, trained in lockstep: cross-validation at a fraction of its price.

The trials of a study differ in bags and seed only. Of a small network, whose step is mostly overhead, the scorers are
stacked (`midam.nn.stack`), and one step advances all. Draws, first weights and arithmetic of a trial are those of a
`Trainer` of its own; the results agree to rounding. Draws by remembered scores (`--draw scored`, `top`) follow that
rounding: in float32 they part from those of the trainer sooner or later, as after a change of machine.
"""

import dataclasses
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.on_disk import on_disk
from midam.errors import ConfigError, DivergedError, require
from midam.nn.encoders import MLP
from midam.nn.scorer import BagScorer
from midam.registry import ENCODERS, ESTIMATORS
from midam.settings import ResolvedSettings, Settings, member_seed
from midam.targets import target_of
from midam.train.batch_size import choose_for_each
from midam.train.members import Member, build_members, with_objective
from midam.train.memory import cpu_threads
from midam.train.step import WeightAverage
from midam.train.trainer import Trainer, make_fabric
from midam.train.training import Training
from midam.train.warm_start import fit_standardizers

_ROWS_AT_A_TIME = 4096
_AT_ONCE = 16
_MAX_VALUES = 2**28
_MAX_MEAN_SIZE = 128


@dataclass(frozen=True, eq=False)
class Trial:
    """One training: positions of the bags to train on and to score, and the seed of weights and sampling."""

    train: NDArray[np.int64]
    score: NDArray[np.int64]
    seed: int


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Result of a trial; with several members, their mean.

    `scores` are those of its bags after each epoch that was asked for, or after the last of E; NaN once a training has
    diverged.
    """

    scores: NDArray[np.float64]  # [A, len(score)], or [A, len(score), C] of several columns
    loss: NDArray[np.float64]  # [E], as in `Trainer.history`
    train_auroc: NDArray[np.float64]  # [E]; of another target, its main metric
    seconds: float  # wall time of the lockstep run, divided by its trials


def every_epoch(config: Settings) -> range:
    """All epochs of a training, from 1."""
    return range(1, config.training.epochs + 1)


def train_trials(
    config: Settings, bags: Bags, trials: Sequence[Trial], *, after: Collection[int] | None = None
) -> list[TrialResult]:
    """Train one scorer a trial (or as many as the settings say), all with the settings of `config`.

    The seed of a trial takes the place of ``config.seed``. Counts that are "auto" are chosen for the training bags of
    each trial. Nothing is selected: all epochs are trained, and the bags of a trial scored after the last, or after
    each of the epochs `after`, from 1. The results come in the order of `trials`.

    Raises as `Trainer`. Trials are trained one after the other where lockstep gains nothing: where whole bags are
    large, the estimator streams, the encoder is more than a small network, or bags are ranked by more than 0 and 1.
    """
    require(config, Settings, "config", "make them with `midam.Settings(...)`")
    require(bags, Bags, "bags", "read them with `midam.read_bags`")
    config = with_objective(config, target_of(bags)).resolve(bags.instance_shape)
    config = config.replace(select="last", patience=None)
    after = (config.training.epochs,) if after is None else after
    if config.training.open:
        return _each_as_chosen(config, bags, trials, after=after)
    if not _stackable(config, bags):
        return [_alone(config, bags, trial, after=after) for trial in trials]
    count = config.training.members
    own = [(trial, member_seed(trial.seed, member)) for trial in trials for member in range(count)]
    single = config.replace(members=1)
    done: dict[int, TrialResult] = {}
    with cpu_threads(config.run.threads):
        # Where they are standardized, each training holds the instances in its own way.
        fits = _MAX_VALUES // int(np.prod(bags.instances.shape)) if config.model.standardize else _AT_ONCE
        at_once = max(1, min(_AT_ONCE, fits))
        for group in _groups(single, bags, [trial for trial, _ in own], at_once=at_once):
            started = time.perf_counter()
            trainings = [own[i] for i in group]
            lockstep = _together(single, bags, trainings)
            if lockstep is not None:
                found = lockstep.train(after=after)
            else:
                seeded = (dataclasses.replace(trial, seed=seed) for trial, seed in trainings)
                found = [_alone(single, bags, trial, after=after) for trial in seeded]
            seconds = (time.perf_counter() - started) / len(group)
            done.update((i, dataclasses.replace(result, seconds=seconds)) for i, result in zip(group, found))
    return [_mean([done[at + m] for m in range(count)]) for at in range(0, len(own), count)]


def _each_as_chosen(
    config: ResolvedSettings, bags: Bags, trials: Sequence[Trial], *, after: Collection[int]
) -> list[TrialResult]:
    """Train each trial with the counts that are chosen for its own training bags, those of equal counts together."""
    choices = choose_for_each(config, bags, [trial.train for trial in trials], fabric=make_fabric(config))
    alike = defaultdict(list)
    for i, choice in enumerate(choices):
        alike[choice.config.training.batch].append(i)
    done: dict[int, TrialResult] = {}
    for inside in alike.values():
        chosen = choices[inside[0]]
        if not chosen.fits:
            chosen.tell()
        results = train_trials(chosen.config, bags, [trials[i] for i in inside], after=after)
        done.update(zip(inside, results))
    return [done[i] for i in range(len(trials))]


def _stackable(config: Settings, bags: Bags) -> bool:
    run, method = config.run, config.method
    if run.checkpointing or run.compile or run.precision != "32-true" or config.model.freeze or config.training.augment:
        return False
    # Only scorers of two classes without covariates are stacked; what stays on disk is not made for copies in memory.
    if bags.outcome is not None or bags.covariates is not None or on_disk(bags.instances):
        return False
    if method.state_start != "first-visit" or method.state_refresh is not None:
        return False
    estimator = ESTIMATORS.find(config.method.estimator)
    if estimator.whole and float(bags.sizes.mean()) > _MAX_MEAN_SIZE:
        return False
    return bool(estimator.stackable and getattr(ENCODERS.find(config.model.encoder), "stackable", False))


def _groups(config: Settings, bags: Bags, trials: Sequence[Trial], *, at_once: int) -> list[list[int]]:
    """Trials of one number of steps and one layout of a batch."""
    labels = bags.require_labels()
    alike: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for i, trial in enumerate(trials):
        (positive, negative, instances), positives = config.training.batch, int(labels[trial.train].sum())
        counts = min(positive, positives), min(negative, len(trial.train) - positives)
        steps = -(-len(trial.train) // max(1, sum(counts)))
        alike[*counts, steps, min(instances, int(bags.sizes[trial.train].max()))].append(i)
    return [part.tolist() for group in alike.values() for part in np.array_split(group, -(-len(group) // at_once))]


def _together(config: Settings, bags: Bags, seeded: Sequence[tuple[Trial, int]]) -> "_Lockstep | None":
    """The trainings in lockstep; None where a part cannot run under `vmap`, which is not known before it is tried."""
    try:
        return _Lockstep(config, bags, seeded)
    except Exception:  # trained alone, the parts tell of their errors themselves
        return None


class _Lockstep:
    """M trainings whose steps are taken together: trials, each with the seed of its weights and draws."""

    def __init__(self, config: Settings, bags: Bags, seeded: Sequence[tuple[Trial, int]]) -> None:
        self._config = config
        self._trials = [trial for trial, _ in seeded]
        self._device = make_fabric(config).device
        members = [self._member(bags, trial, seed) for trial, seed in seeded]
        table, copies = self._table(bags, members)
        starts = torch.from_numpy(bags.starts) + len(bags.instances) * torch.arange(copies).unsqueeze(1)
        self._starts, self._sizes = starts.expand(len(members), -1), torch.from_numpy(bags.sizes)
        # Of trials with fewer bags the table of bags ends in some that are never drawn.
        width = max(len(trial.train) for trial in self._trials)
        index = torch.stack([torch.from_numpy(np.resize(trial.train, width)) for trial in self._trials])
        self._reader = InstanceReader.of_table(
            table, starts=self._starts.gather(1, index).flatten(), sizes=self._sizes[index].flatten()
        )
        labels = torch.from_numpy(bags.require_labels())[index.flatten()].to(self._device, torch.float32)
        self._training = Training(members, self._reader, labels)
        self._training.probe()
        self._average = WeightAverage(config, self._training.trained)
        self._scored = self._lay_out([trial.score for trial in self._trials])

    def train(self, *, after: Collection[int]) -> list[TrialResult]:
        results, scores = [], []
        lost = np.zeros(len(self._trials), dtype=bool)
        for epoch in range(self._config.training.epochs):
            result = self._training.train_epoch(epoch)
            results.append(result)
            self._average.update(epoch)
            lost |= ~result.finite
            if epoch + 1 in after:
                found = self._scores(self._average.reported)
                scores.append([np.where(gone, np.nan, own) for gone, own in zip(lost, found)])
        loss = np.array([result.loss for result in results]).T
        train_auroc = np.array([result.metric for result in results]).T
        return [TrialResult(np.stack(own), loss[m], train_auroc[m], seconds=0.0) for m, own in enumerate(zip(*scores))]

    def _member(self, bags: Bags, trial: Trial, seed: int) -> Member:
        train, own = bags.subset(trial.train), self._config.replace(seed=seed)
        (member,) = build_members(own, train, device=self._device, standardized=True)
        if self._config.model.standardize:
            fit_standardizers([member.model.standardizer], train, seed=trial.seed)
        return member

    def _table(self, bags: Bags, members: Sequence[Member]) -> tuple[Tensor, int]:
        """All instances as each member standardizes them, one after the other, or as they are, and how often."""
        wanted = members if self._config.model.standardize else members[:1]
        readers = [
            InstanceReader(bags, device=self._device, resident=True, transform=member.model.standardizer)
            for member in wanted
        ]
        table = torch.cat([reader.all for reader in readers if reader.all is not None])
        used = (table != 0).any(dim=0)
        if not used.any():
            raise ConfigError("Expected features that vary; trained alone, bags of constant ones tie in their scores.")
        # A feature that does not vary is 0 once it is standardized; of fingerprints of molecules, many do not.
        if self._config.model.standardize and table.ndim == 2 and used.any() and not used.all():
            columns = used.nonzero().squeeze(1)
            table = table.index_select(1, columns)
            for member in members:
                cast(MLP, member.trained.encoder).keep_inputs(columns.cpu())
        return table, len(readers)

    def _lay_out(self, scored: Sequence[NDArray[np.int64]]) -> list[tuple[Tensor, Tensor]]:
        """Positions of the instances and sizes of the bags that each trial scores, in parts of equally many bags."""
        # A trial with fewer bags scores its first ones again; these scores are not used.
        width = max(map(len, scored))
        index = torch.stack([torch.from_numpy(np.resize(own, width)) for own in scored])
        parts, low = [], 0
        for high in _cuts(self._sizes[index], _ROWS_AT_A_TIME):
            of = index[:, low:high]
            sizes, first = self._sizes[of].flatten(), self._starts.gather(1, of).flatten()
            bag = torch.arange(len(sizes)).repeat_interleave(sizes)
            positions = first[bag] + torch.arange(len(bag)) - (sizes.cumsum(0) - sizes)[bag]
            parts.append((positions, sizes))
            low = high
        return parts

    @torch.no_grad()
    def _scores(self, model: BagScorer) -> list[NDArray[np.float64]]:
        model.eval()
        parts = []
        for positions, sizes in self._scored:
            x = self._reader.rows(positions)
            parts.append(model(x, sizes.to(x.device)).score.view(len(self._trials), -1))
        found = torch.cat(parts, dim=1).double().cpu().numpy()
        return [row[: len(trial.score)] for row, trial in zip(found, self._trials)]


def _cuts(sizes: Tensor, rows: int) -> list[int]:
    """Ends of runs of bags of at most `rows` instances in each trial; a larger bag stands alone."""
    ends, used = [], torch.zeros(len(sizes), dtype=sizes.dtype)
    for k in range(sizes.shape[1]):
        used = used + sizes[:, k]
        if k and int(used.max()) > rows:
            ends.append(k)
            used = sizes[:, k].clone()
    return [*ends, sizes.shape[1]]


def _alone(config: Settings, bags: Bags, trial: Trial, *, after: Collection[int]) -> TrialResult:
    started = time.perf_counter()
    trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train))
    scored = bags.subset(trial.score)
    reader = trainer.reader(scored)
    scores: list[NDArray[np.float64]] = []
    columns, metric = trainer.target.count, f"train_{trainer.target.metric}"
    failed = np.full(len(trial.score) if columns == 1 else (len(trial.score), columns), np.nan)

    def score(trainer: Trainer, _: object) -> None:
        if trainer.epoch in after:
            scores.append(trainer.scores(scored, reader))

    with suppress(DivergedError):
        trainer.fit(callbacks=[score])
    wanted = len(after)
    rows = trainer.history
    lost = [float("nan")] * (config.training.epochs - len(rows))
    return TrialResult(
        np.stack([*scores, *[failed] * (wanted - len(scores))]),
        np.array([row["loss"] for row in rows] + lost),
        np.array([row[metric] for row in rows] + lost),
        seconds=time.perf_counter() - started,
    )


def _mean(members: Sequence[TrialResult]) -> TrialResult:
    kinds = ("scores", "loss", "train_auroc")
    scores, loss, train_auroc = (np.mean([getattr(m, kind) for m in members], axis=0) for kind in kinds)
    return TrialResult(scores, loss, train_auroc, seconds=sum(m.seconds for m in members))
