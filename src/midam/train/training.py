"""M >= 1 scorers whose steps are taken together, and everything that trains them: the one training loop."""

from collections.abc import Generator, Iterator, Mapping, Sequence
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
from midam.data.sampling import Sampler, StackedSampler
from midam.errors import ConfigError
from midam.nn.encoders import batch_norms
from midam.nn.objectives import StackedObjective
from midam.nn.scorer import BagOutput, fold
from midam.nn.stack import StackedScorer
from midam.process_group import Ranks
from midam.settings import ResolvedSettings, Settings
from midam.targets import target_of
from midam.train.build import build_estimator, build_optimizer
from midam.train.members import Member
from midam.train.memory import annealed, cpu_threads, denormals_flushed, fill_memory
from midam.train.step import train_step

_MOST_READ_ONCE = 2**29  # bytes
# A lockstep batch is never cut into chunks.
_NO_CHUNKS = 2**62
_STATEFUL = ("estimator", "objective", "optimizer", "sampler")


@dataclass(frozen=True, eq=False)
class EpochResult:
    """Of each of M scorers in an epoch: mean loss, main metric of the scores that it saw, whether all is finite."""

    loss: NDArray[np.float64]
    metric: list[float]
    finite: NDArray[np.bool_]


class Training:
    """M >= 1 scorers whose steps are taken together, each with its own weights, draws and state.

    One scorer is trained by the very modules it is made of, several by a `midam.nn.stack.Stack`: the same to rounding.

    Parameters
    ----------
    members : sequence of Member
        M of them, of one architecture and with the same settings but the seed.
    reader : InstanceReader
        Of the training bags. With M > 1 bag i of scorer m is bag ``m * num_bags + i``.
    labels : Tensor [N] or [N, L]
        Of the reader's bags, on its device.
    fabric : lightning_fabric.Fabric, optional
        Runs the precision and the backward pass; default: float32.
    covariates : Tensor [N, P], optional
        Those of the reader's bags, encoded, on its device, where the scorer takes some.
    ranks : Ranks, optional
        This process among several that train one scorer.

    Attributes
    ----------
    model : BagScorer
        The scorer as it is kept, or the stack.
    trained : BagScorer
        What a step runs, see `Member`.
    estimator, objective, optimizer, sampler
        What trains it.
    """

    def __init__(
        self,
        members: Sequence[Member],
        reader: InstanceReader,
        labels: Tensor,
        *,
        fabric: Any = None,
        covariates: Tensor | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        first, self.covariates, self.ranks = members[0], covariates, ranks
        self.config, self.count, self.fabric = first.config, len(members), fabric
        self._reader, self._labels, self._members = reader, labels, members
        self.model, self.trained = first.model, first.trained
        self.estimator, self.objective = first.estimator, first.objective
        self.sampler: Sampler | StackedSampler = first.sampler
        if self.count > 1:
            if first.target.name != "binary":
                raise ConfigError(
                    f"Expected scorers of two classes to train in lockstep, got the target {first.target.name!r}; "
                    "train them one after the other."
                )
            num_bags = len(labels) // self.count
            self.model = self.trained = StackedScorer([member.trained for member in members]).to(reader.device)
            objectives = [member.objective for member in members]
            self.objective = StackedObjective(objectives, num_bags=num_bags).to(reader.device)
            size = first.model.pooling.value_size
            # The state of all scorers stands in one table.
            self.estimator = build_estimator(
                self.config, num_bags=len(labels), value_size=size, chunk_size=_NO_CHUNKS
            ).to(reader.device)
            self.sampler = StackedSampler([member.sampler for member in members], num_bags=num_bags)
        if ranks is not None:
            _check_ranks(ranks, first)
        self.optimizer = build_optimizer(self.config, self.model, self.objective)

    def batches(self) -> Generator[SampledBatch | WholeBatch, None, None]:
        """Batches of the next epoch; close it to end the threads that read ahead."""
        self.estimator.start_epoch()
        make = whole_batches if self.estimator.whole else sampled_batches
        return make(self._reader, self.sampler, self._labels, self.covariates, ranks=self.ranks)

    def rates(self, falls: int) -> dict[str, float]:
        """Learning rate and, where the method has them, state_rate and dual_lr after so many falls, by name."""
        own = {
            name: getattr(self.config.method, name) * 0.5**falls
            for name in (*self.estimator.rates, *self.objective.rates)
        }
        return {"lr": self.config.training.lr * 0.1**falls, **own}

    def set_rates(self, falls: int) -> None:
        """Set the rates after so many falls."""
        rates = self.rates(falls)
        for group in self.optimizer.param_groups:
            group["lr"] = rates["lr"]
        for name in self.estimator.rates:
            setattr(self.estimator, name, rates[name])
        for name in self.objective.rates:
            self.objective.set_rate(name, rates[name])

    @contextmanager
    def epoch(self, epoch: int) -> Iterator[Generator[SampledBatch | WholeBatch, None, None]]:
        """Set up epoch `epoch` (from 0): rates, training mode, noise, threads; gives its batches.

        Noise inside the encoder (dropout) follows from seed and epoch alone: a resume needs no random state.
        """
        self.set_rates(self.config.training.decays(epoch))
        self.remember(epoch)
        self.trained.train()
        device = self._reader.device
        noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with noise, cpu_threads(self.config.run.threads), denormals_flushed():
            _seed_noise(device, self.config.run.seed, epoch, rank=0 if self.ranks is None else self.ranks.rank)
            with annealed(self.trained, self.config, epoch), closing(self.batches()) as batches:
                yield batches

    def remember(self, epoch: int) -> None:
        """Stream all bags of a scorer once where its draws of epoch `epoch` (from 0) need scores that are due."""
        num_bags = len(self._labels) // self.count
        for number, member in enumerate(self._members):
            draw = member.sampler.draw
            if draw.memory is None or not draw.pass_due(epoch):
                continue
            if isinstance(self.model, StackedScorer):
                self.model.stack.write(number, member.trained)
            run, first = self.config.run, number * num_bags
            with nullcontext() if self.fabric is None else self.fabric.autocast(), cpu_threads(run.threads):
                how: dict[str, Any] = {"chunk_size": run.chunk_size, "first_bag": first, "ranks": self.ranks}
                fill_memory(member.trained, draw.memory, self._reader, **how)

    def train_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch, `epoch` from 0."""
        losses, seen, labels = [], [], []
        with self.epoch(epoch) as batches:
            for batch in batches:
                loss, scores = self._step(batch)
                losses.append(loss.view(self.count))
                seen.append(_by_scorer(scores.detach(), self.count))
                labels.append(_by_scorer((batch.step or batch).labels, self.count))
        mean = torch.stack(losses).double().mean(dim=0).cpu().numpy()
        pairs = zip(*(torch.cat(parts, dim=1).double().cpu().numpy() for parts in (labels, seen)))
        metrics = [self._metric(y, h) if np.isfinite(h).all() else float("nan") for y, h in pairs]
        return EpochResult(mean, metrics, np.isfinite(mean) & self._finite_weights())

    def probe(self) -> None:
        """Try losses and gradients on a positive and a negative bag of one instance; raises whatever a part raises."""
        labels = self._labels.view(self.count, -1)
        index = torch.stack([labels.argmax(dim=1), labels.argmin(dim=1)], dim=1)
        index = (index + labels.shape[1] * torch.arange(self.count, device=index.device).unsqueeze(1)).flatten()
        x = self._reader.rows(self._reader.starts[index.cpu()])
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), denormals_flushed():
            z, v = fold(*self.trained.instances(x))
            loss = self.objective(
                BagOutput(z, v, torch.ones_like(z), self.trained.pooling), self._labels[index], index=index
            )
            weights = [p for p in (*self.trained.parameters(), *self.objective.parameters()) if p.requires_grad]
            torch.autograd.grad(loss.sum(), weights, allow_unused=True)

    def state_dict(self) -> dict[str, Any]:
        """All that a resume of one scorer needs but its weights."""
        return {name: getattr(self, name).state_dict() for name in _STATEFUL}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name in _STATEFUL:
            getattr(self, name).load_state_dict(state[name])

    def _step(self, batch: SampledBatch | WholeBatch) -> tuple[Tensor, Tensor]:
        parts = self.trained, self.estimator, self.objective, self.optimizer
        # One region a step: autocast keeps its copies of the weights until the region ends.
        with nullcontext() if self.fabric is None else self.fabric.autocast():
            loss, output = train_step(*parts, batch, fabric=self.fabric, ranks=self.ranks)
        return loss, self.objective.seen(output)

    def _metric(self, labels: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
        found = self._members[0].target.metric_value(labels, scores)
        return float("nan") if found is None else found

    def _finite_weights(self) -> NDArray[np.bool_]:
        # The last step of an epoch can ruin the weights after the last loss was computed.
        if isinstance(self.model, StackedScorer):
            return self.model.stack.finite().cpu().numpy()
        return np.array([all(bool(torch.isfinite(p).all()) for p in self.model.parameters())])


def open_reader(
    config: ResolvedSettings, bags: Bags, *, transform: nn.Module | None, device: torch.device
) -> InstanceReader:
    """Open bags as the settings say; with a `transform`, those on disk are read into memory once, but on a GPU."""
    read_once = transform is not None and on_disk(bags.instances) and device.type != "cuda"
    resident = True if read_once else config.run.resident
    return InstanceReader(bags, device=device, resident=resident, workers=config.run.workers, transform=transform)


def labels_of(bags: Bags, reader: InstanceReader) -> Tensor:
    """Labels [N], or [N, L] of another target than two classes, on the reader's device.

    They are float32, or float64 where different numbers or times would tie in float32 (on Apple's GPUs they do tie).
    """
    values = target_of(bags).values(bags)
    wide = values.ndim == 2 and _tie_in_float32(values[:, 0]) and reader.device.type != "mps"
    return torch.from_numpy(values).to(device=reader.device, dtype=torch.float64 if wide else torch.float32)


def _tie_in_float32(numbers: NDArray[Any]) -> bool:
    """Whether two different ones of these numbers [N] are one in float32; NaN, of unknown labels, is passed over."""
    known = np.unique(numbers[~np.isnan(numbers)])
    return len(np.unique(known.astype(np.float32))) < len(known)


def standardized_once(config: Settings, bags: Bags) -> bool:
    """Whether the instances are standardized in memory and not at each visit: feature vectors; images stay bytes.

    Of vectors on disk those that take at most 512 MiB as float32, and a quarter of the memory that is free just now.
    """
    if not config.model.standardize or len(bags.instance_shape) != 1:
        return False
    if not on_disk(bags.instances):
        return True
    needed = 4 * bags.num_instances * bags.instance_shape[0]
    return config.run.resident is None and needed <= _MOST_READ_ONCE and fits(4 * needed)


def _by_scorer(x: Tensor, count: int) -> Tensor:
    """Rows [M * K, ...] by scorer, [M, K, ...]."""
    return x.view(count, -1) if x.ndim == 1 else x.view(count, -1, x.shape[-1])


def _check_ranks(ranks: Ranks, member: Member) -> None:
    """Refuse what several processes cannot train together."""
    ranks.check_batch(member.sampler.num_positive + member.sampler.num_negative)
    if batch_norms(member.model):
        raise ConfigError(
            "Expected an encoder that treats each instance on its own for several processes, got batch normalization, "
            "whose statistics would be those of the bags of one process; use group normalization, or one process."
        )


def _seed_noise(device: torch.device, run_seed: int, epoch: int, *, rank: int = 0) -> None:
    """Seed what the layers draw on the CPU and on this device, and no other device; each process draws its own."""
    parts = [run_seed, epoch, rank] if rank else [run_seed, epoch]
    seed = int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
    # torch.manual_seed would reseed every device of the machine.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
