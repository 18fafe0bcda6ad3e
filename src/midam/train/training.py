"""The training of one scorer: the training loop, with estimator, objective, optimizer and sampler."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.free_memory import fits
from midam.data.on_disk import on_disk
from midam.errors import ConfigError
from midam.evaluate.stream import stream_bags
from midam.nn.encoders import batch_norms
from midam.nn.scorer import BagOutput, rows_of
from midam.nn.tracked import TrackedStatistic
from midam.process_group import Ranks
from midam.settings import ResolvedSettings, Settings
from midam.settings.group import AUTO
from midam.targets import target_of
from midam.train.build import build_optimizer
from midam.train.members import Member
from midam.train.modes import annealed, cpu_threads, denormals_flushed
from midam.train.step import train_step

_MOST_READ_ONCE = 2**29  # bytes
_LEAST_SCORED, _MOST_SCORED = 20, 100  # training bags of a stratum, scored after a training
_MOST_APART = 0.25  # of the metric at the tracked state above that of whole bags
_STATEFUL = ("estimator", "objective", "optimizer", "sampler")


@dataclass(frozen=True, eq=False)
class EpochResult:
    """Mean loss of an epoch, main metric of the scores in its steps, and whether loss and weights are finite."""

    loss: float
    metric: float
    finite: bool


@dataclass(frozen=True)
class StateError:
    """The tracked state of some training bags, compared with the whole bags at the weights after the last step.

    Attributes
    ----------
    bags : int
        Number of bags compared.
    tracked, whole : float
        Main metric of the scores at the tracked state, as an epoch reports it, and of the scores of the whole bags.
    l, r : float
        Mean squared errors of l and r (None without values); of a relative state up to a shift common to all bags,
        which its level adds in a step.
    enough : bool
        Whether there are enough bags to tell.
    """

    bags: int
    tracked: float
    whole: float
    l: float  # noqa: E741
    r: float | None
    enough: bool

    @property
    def wrong(self) -> bool:
        """Whether the training has climbed at its state, and not on the bags."""
        return self.enough and self.tracked - self.whole > _MOST_APART


class Training:
    """One scorer in training: its weights, draws and state.

    Parameters
    ----------
    member : Member
        The parts of the scorer.
    reader : InstanceReader
        Reader of the training bags.
    labels : Tensor [N] or [N, L]
        Labels of the reader's bags, on its device.
    fabric : lightning_fabric.Fabric, optional
        Sets the precision and runs the backward pass; default: float32.
    covariates : Tensor [N, P], optional
        Encoded covariates of the reader's bags, on its device, if the scorer takes covariates.
    weights : Tensor [N], optional
        Weights of the reader's bags, see `weights_of`, on its device.
    ranks : Ranks, optional
        The processes that train one scorer together.

    Attributes
    ----------
    model : BagScorer
        The scorer.
    trained : BagScorer
        The scorer that a step runs, see `Member`.
    estimator, objective, optimizer, sampler
        The parts that train it.

    Examples
    --------
    >>> from midam import build_training
    >>> bags = Bags.from_list([[[0.0], [1.0]], [[3.0], [0.5]]] * 8, labels=[0, 1] * 8)
    >>> training = build_training(Settings(num_positive=4, num_negative=4), bags)
    >>> result = training.train_epoch(0)
    >>> result.finite, type(training.estimator).__name__
    (True, 'VarianceReduced')
    """

    def __init__(
        self,
        member: Member,
        reader: InstanceReader,
        labels: Tensor,
        *,
        fabric: Any = None,
        covariates: Tensor | None = None,
        weights: Tensor | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.covariates, self.weights, self.ranks = covariates, weights, ranks
        self.config, self.fabric = member.config, fabric
        self._reader, self._labels, self._target = reader, labels, member.target
        self.model, self.trained = member.model, member.trained
        self.estimator, self.objective, self.sampler = member.estimator, member.objective, member.sampler
        if ranks is not None:
            _check_ranks(ranks, member)
        self.optimizer = build_optimizer(self.config, self.model, self.objective)

    def batches(self) -> Generator[SampledBatch | WholeBatch, None, None]:
        """Return the batches of the next epoch; close the generator to end the threads that read ahead."""
        self.estimator.start_epoch()
        make = whole_batches if self.estimator.whole else sampled_batches
        return make(self._reader, self.sampler, self._labels, self.covariates, weights=self.weights, ranks=self.ranks)

    def rates(self, falls: int) -> dict[str, float]:
        """Return the learning rate and the rates of the method (state_rate, dual_lr) by name, after `falls` drops.

        A state_rate of "auto" is a factor, 1 at first.
        """
        given = {name: getattr(self.config.method, name) for name in (*self.estimator.rates, *self.objective.rates)}
        method_rates = {name: (1.0 if value == AUTO else value) * 0.5**falls for name, value in given.items()}
        return {"lr": self.config.training.lr * 0.1**falls, **method_rates}

    def state_rate(self) -> dict[str, float]:
        """Return gamma0 in the last epoch by its name, if the estimator is one of midam that tracks a state."""
        drawn = self.config.training.batch[2]
        return {"state_rate": self.estimator.rate(drawn)} if isinstance(self.estimator, TrackedStatistic) else {}

    @torch.no_grad()
    def state_error(self) -> StateError | None:
        """Compare the tracked state with whole bags, at the current weights; None without a state or a metric.

        It scores at most 100 training bags of each stratum, and as many instances as a quarter of those that the
        training has drawn, but at least 20 bags of each stratum.
        """
        estimator, model = self.estimator, self.trained  # the reader may have standardized the instances already
        if not isinstance(estimator, TrackedStatistic):
            return None
        index, enough = self._compared(estimator)
        batch = WholeBatch.unlabeled(self._reader, index, self.covariates)
        values = self._labels[index.to(self._labels.device)].cpu().numpy()
        if not len(index) or not self._target.has_metric(values):
            return None
        model.eval()
        whole = stream_bags(model, batch, chunk_size=self.config.run.chunk_size)
        rows = rows_of(index, estimator.branches)
        state, want = estimator.bag_state[rows.to(whole.l.device), 1:], torch.cat([whole.l.unsqueeze(1), whole.r], 1)
        if estimator.relative:
            apart = (want - state).view(len(index), estimator.branches, -1).mean(dim=0)
            state = state + apart.repeat(len(index), 1)
        tracked = model.with_covariates(BagOutput(state[:, 0], state[:, 1:], whole.n, whole.pooling), batch.covariates)
        seen = [self.objective.seen(output).double().cpu().numpy() for output in (tracked, whole)]
        if not all(np.isfinite(scores).all() for scores in seen):
            return None
        metrics = [self._target.metric_value(values, scores) for scores in seen]
        squares = (state - want).double().square()
        r = float(squares[:, 1:].mean()) if squares.shape[1] > 1 else None
        return StateError(len(index), metrics[0] or 0.0, metrics[1] or 0.0, float(squares[:, 0].mean()), r, enough)

    def _compared(self, estimator: TrackedStatistic) -> tuple[Tensor, bool]:
        """Return the visited bags [K] that are scored, and whether they are enough to tell."""
        visited = estimator.bag_state[:: estimator.branches, 0].cpu().numpy() > 0
        strata = self._target.strata(self._labels.cpu().numpy())
        order = np.random.default_rng(self.config.run.seed).permutation(np.flatnonzero(visited))
        rank = np.empty(len(order), dtype=np.int64)  # within the stratum
        for stratum in np.unique(strata):
            inside = strata[order] == stratum
            rank[inside] = np.arange(inside.sum())
        order = order[np.argsort(rank, kind="stable")]
        rank = np.sort(rank, kind="stable")
        sizes = self._reader.sizes.numpy()[order]
        drawn = float(estimator.bag_state[:, 0].sum()) / estimator.branches * self.config.training.batch[2]
        few = (rank < _LEAST_SCORED) | (np.cumsum(sizes) <= drawn / 4)
        chosen = order[few & (rank < _MOST_SCORED)]
        counts = np.unique(strata[chosen], return_counts=True)[1]
        return torch.from_numpy(np.sort(chosen)), bool(len(counts) and counts.min() >= _LEAST_SCORED)

    def set_rates(self, falls: int) -> None:
        """Set the rates after `falls` drops."""
        rates = self.rates(falls)
        for group in self.optimizer.param_groups:
            group["lr"] = rates["lr"]
        for part in (self.estimator, self.objective):
            for name in part.rates:
                setattr(part, name, rates[name])

    @contextmanager
    def epoch(self, epoch: int) -> Iterator[Generator[SampledBatch | WholeBatch, None, None]]:
        """Set up epoch `epoch` (from 0): rates, training mode, noise, threads; yield its batches.

        Noise in the encoder (dropout) depends only on seed and epoch, so a resume needs no random state.
        """
        self.set_rates(self.config.training.decays(epoch))
        self.trained.train()
        device = self._reader.device
        noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with noise, cpu_threads(self.config.run.threads), denormals_flushed():
            _seed_noise(device, self.config.run.seed, epoch, rank=0 if self.ranks is None else self.ranks.rank)
            with annealed(self.trained, self.config, epoch), closing(self.batches()) as batches:
                yield batches

    def train_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch, `epoch` from 0."""
        losses, seen, labels = [], [], []
        parts = self.trained, self.estimator, self.objective, self.optimizer
        with self.epoch(epoch) as batches:
            for batch in batches:
                # One region per step: autocast keeps its copies of the weights until the region ends.
                with nullcontext() if self.fabric is None else self.fabric.autocast():
                    loss, output = train_step(*parts, batch, fabric=self.fabric, ranks=self.ranks)
                losses.append(loss)
                seen.append(self.objective.seen(output).detach())
                labels.append((batch.step or batch).labels)
        mean = float(torch.stack(losses).double().mean(dim=0))
        y, h = (torch.cat(parts).double().cpu().numpy() for parts in (labels, seen))
        metric = self._target.metric_value(y, h) if np.isfinite(h).all() else None
        # The last step of an epoch can ruin the weights after the last loss was computed.
        finite = all(bool(torch.isfinite(p).all()) for p in self.model.parameters())
        return EpochResult(mean, float("nan") if metric is None else metric, finite and bool(np.isfinite(mean)))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resume needs except the weights."""
        return {name: getattr(self, name).state_dict() for name in _STATEFUL}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name in _STATEFUL:
            getattr(self, name).load_state_dict(state[name])


def open_reader(
    config: ResolvedSettings, bags: Bags, *, transform: nn.Module | None, device: torch.device
) -> InstanceReader:
    """Open bags by the settings; with a `transform`, bags on disk are read into memory once, except for a GPU."""
    read_once = transform is not None and on_disk(bags.instances) and device.type != "cuda"
    resident = True if read_once else config.run.resident
    return InstanceReader(bags, device=device, resident=resident, workers=config.run.workers, transform=transform)


def labels_of(bags: Bags, reader: InstanceReader) -> Tensor:
    """Return the labels [N], or [N, L] for a target other than two classes, on the reader's device.

    They are float32, or float64 if different numbers or times would tie in float32 (except on Apple's GPUs).
    """
    values = target_of(bags).values(bags)
    wide = values.ndim == 2 and _tie_in_float32(values[:, 0]) and reader.device.type != "mps"
    return torch.from_numpy(values).to(device=reader.device, dtype=torch.float64 if wide else torch.float32)


def weights_of(bags: Bags, reader: InstanceReader) -> Tensor | None:
    """Return the weight of each bag over the mean weight of its class [N], on the reader's device.

    It is None if the bags of a class have equal weights: the AUC does not depend on the weights of the classes.
    """
    if bags.weights is None:
        return None
    labels, relative = bags.require_labels(), bags.weights.copy()
    for inside in (labels == 0, labels == 1):
        relative[inside] /= relative[inside].mean()
    alike = np.allclose(relative, 1, rtol=0, atol=1e-6)
    return None if alike else torch.from_numpy(relative).to(device=reader.device, dtype=torch.float32)


def _tie_in_float32(numbers: NDArray[Any]) -> bool:
    """Return whether two different numbers of [N] become equal in float32; NaN, an unknown label, is ignored."""
    known = np.unique(numbers[~np.isnan(numbers)])
    return len(np.unique(known.astype(np.float32))) < len(known)


def standardized_once(config: Settings, bags: Bags) -> bool:
    """Return whether instances are standardized once in memory, not at each visit.

    Feature vectors are, images stay bytes. Vectors on disk are only if they take at most 512 MiB as float32 and a
    quarter of the memory that is free now.
    """
    if not config.model.standardize or len(bags.instance_shape) != 1:
        return False
    if not on_disk(bags.instances):
        return True
    needed = 4 * bags.num_instances * bags.instance_shape[0]
    return config.run.resident is None and needed <= _MOST_READ_ONCE and fits(4 * needed)


def _check_ranks(ranks: Ranks, member: Member) -> None:
    """Refuse batches and encoders that several processes cannot train together."""
    ranks.check_batch(member.sampler.num_positive + member.sampler.num_negative)
    if batch_norms(member.model):
        raise ConfigError(
            "Expected an encoder without batch normalization for several processes, got one, whose statistics would "
            "cover only the bags of its process; use group normalization, or one process."
        )


def _seed_noise(device: torch.device, run_seed: int, epoch: int, *, rank: int = 0) -> None:
    """Seed the random numbers of layers on the CPU and on this device only; each process has another seed."""
    parts = [run_seed, epoch, rank] if rank else [run_seed, epoch]
    seed = int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
    # torch.manual_seed would reseed every device of the machine.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
