"""The training loop of one scorer, from the batch to the commit of a step; `Training` holds its parts."""

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.errors import ConfigError, DivergedError
from midam.evaluate.predict import cpu_threads
from midam.nn.encoders import batch_norms
from midam.nn.objectives import Objective
from midam.nn.scorer import BagOutput, BagScorer, SeenBags
from midam.nn.tracked import TrackedStatistic
from midam.process_group import Ranks
from midam.settings import ResolvedSettings
from midam.settings.group import AUTO
from midam.train.build import build_optimizer
from midam.train.estimators import Estimator
from midam.train.members import Member

_LEAST_POWER = 0.2
_STATEFUL = ("estimator", "objective", "optimizer", "sampler")


def train_step(
    model: BagScorer,
    estimator: Estimator,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    batch: SampledBatch | WholeBatch,
    *,
    fabric: Any = None,
    ranks: Ranks | None = None,
) -> tuple[Tensor, BagOutput | SeenBags]:
    """Take one primal step, then commit the objective and the estimator.

    Sampled batches need no device synchronization.

    A `fabric` runs the backward pass (precision, scaling); default: ``loss.backward()``. With several processes,
    `ranks`, each encodes its bags of the step. All get the scores of all bags, so that each computes the whole loss.

    Returns
    -------
    loss : Tensor []
        Detached.
    output : BagOutput or SeenBags
        At the point of the estimator; ``objective.seen(output)`` returns the input of the loss.
    """
    output: BagOutput | SeenBags = estimator(model, batch)
    index, labels, step = batch.index.to(batch.labels.device), batch.labels, batch.step
    if ranks is not None and step is not None:
        output = SeenBags.of(ranks.gather(objective.seen(output), len(step.index)))
        index, labels = step.index, step.labels
    loss: Tensor = objective(output, labels, weights=batch.class_weights, index=index)
    # Not optimizer.zero_grad, whose profiler hook costs more than a small network's forward pass.
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
    (torch.autograd if fabric is None else fabric).backward(loss)
    if ranks is not None:
        # The parameters of the objective depend on the scores of all bags; every process has their whole gradient.
        ranks.sum_gradients(model.parameters())
    optimizer.step()
    loss = loss.detach()
    objective.commit(loss)
    estimator.commit(loss)
    if ranks is not None and step is not None:
        estimator.share(ranks, batch.index.to(index.device), step.index)
    return loss, output


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
    >>> from midam import Bags, Settings, build_training
    >>> bags = Bags.from_list([[[0.0], [1.0]], [[3.0], [0.5]]] * 8, labels=[0, 1] * 8)
    >>> training = build_training(Settings(num_positive=4, num_negative=4), bags)
    >>> loss, auroc = training.train_epoch(0)
    >>> type(training.estimator).__name__, 0 <= auroc <= 1
    ('VarianceReduced', True)
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
        self.reader, self.labels, self.target = reader, labels, member.target
        self.model, self.trained = member.model, member.trained
        self.estimator, self.objective, self.sampler = member.estimator, member.objective, member.sampler
        if ranks is not None:
            _check_ranks(ranks, member)
        self.optimizer = build_optimizer(self.config, self.model, self.objective)

    def batches(self) -> Generator[SampledBatch | WholeBatch, None, None]:
        """Return the batches of the next epoch; close the generator to end the threads that read ahead."""
        self.estimator.start_epoch()
        make = whole_batches if self.estimator.whole else sampled_batches
        return make(self.reader, self.sampler, self.labels, self.covariates, weights=self.weights, ranks=self.ranks)

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

    @contextmanager
    def epoch(self, epoch: int) -> Iterator[Generator[SampledBatch | WholeBatch, None, None]]:
        """Set up epoch `epoch` (from 0): rates, training mode, noise, threads; yield its batches.

        Noise in the encoder (dropout) depends only on seed and epoch, so a resume needs no random state.
        """
        rates = self.rates(self.config.training.decays(epoch))
        set_rates(rates, self.optimizer, self.estimator, self.objective)
        self.trained.train()
        device = self.reader.device
        noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with noise, cpu_threads(self.config.run.threads), denormals_flushed():
            _seed_noise(device, self.config.run.seed, epoch, rank=0 if self.ranks is None else self.ranks.rank)
            with annealed(self.trained, self.config, epoch), closing(self.batches()) as batches:
                yield batches

    def train_epoch(self, epoch: int) -> tuple[float, float]:
        """Train one epoch, `epoch` from 0; return the mean loss, and the main metric of the scores in its steps.

        Raise a `DivergedError` if the loss or a weight is no longer finite.
        """
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
        # The last step of an epoch can ruin the weights after the last loss was computed.
        if not (math.isfinite(mean) and all(bool(torch.isfinite(p).all()) for p in self.model.parameters())):
            problem = "weights that are not" if math.isfinite(mean) else f"the loss {mean:g}"
            lr = self.optimizer.param_groups[0]["lr"]
            raise DivergedError(
                f"Expected a finite loss and finite weights, got {problem} in epoch {epoch + 1}; lower lr (now {lr:g}) "
                "or standardize the features."
            )
        y, h = (torch.cat(parts).double().cpu().numpy() for parts in (labels, seen))
        metric = self.target.metric_value(y, h) if np.isfinite(h).all() else None
        return mean, float("nan") if metric is None else metric

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resume needs except the weights."""
        return {name: getattr(self, name).state_dict() for name in _STATEFUL}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        for name in _STATEFUL:
            getattr(self, name).load_state_dict(state[name])


def set_rates(rates: Mapping[str, float], optimizer: torch.optim.Optimizer, *parts: Estimator | Objective) -> None:
    """Set the rates of `Training.rates` in the optimizer and the parts."""
    for group in optimizer.param_groups:
        group["lr"] = rates["lr"]
    for part in parts:
        for name in part.rates:
            setattr(part, name, rates[name])


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


def weight_power_of(config: ResolvedSettings, epoch: int) -> float:
    """Return the power of the instances' weights in epoch `epoch` (from 0): it grows geometrically from 0.2 to 1.

    Examples
    --------
    >>> from midam.settings import Settings
    >>> config = Settings(epochs=100, anneal=0.5).resolve((1,))
    >>> [round(weight_power_of(config, epoch), 3) for epoch in (0, 25, 50, 99)]
    [0.2, 0.447, 1.0, 1.0]
    """
    whole = config.method.anneal * config.training.epochs
    return 1.0 if epoch >= whole else _LEAST_POWER ** (1 - epoch / whole)


@contextmanager
def annealed(model: BagScorer, config: ResolvedSettings, epoch: int) -> Iterator[None]:
    """Set the power of the instances' weights to that of epoch `epoch` (from 0) inside, and to 1 afterwards."""
    model.pooling.weight_power = weight_power_of(config, epoch)
    try:
        yield
    finally:
        model.pooling.weight_power = 1.0


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Treat numbers closer to 0 than 1.2e-38 as 0 on this thread.

    Late in a training, softmax weights and their gradients fall below this limit and slow down products on some
    processors. Use it for training steps only: evaluation must keep the order of bags with scores that small.
    """
    before = bool(torch.full((1,), 2.0**-126).mul_(0.5) == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
