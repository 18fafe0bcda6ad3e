"""The choice of bags and instances per step (S+, S-, B) for settings that are "auto".

It is the first of `batch_sizes` that fits the memory. The memory of an instance is measured by the tensors that torch
saves in a forward pass.
"""

import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from midam.data.bags import Bags
from midam.data.free_memory import free_memory
from midam.data.on_disk import on_disk
from midam.errors import ConfigError, Note
from midam.nn.scorer import BagScorer
from midam.registry import ESTIMATORS
from midam.settings import ResolvedSettings
from midam.targets import target_of
from midam.train.build import build_model
from midam.train.members import CHECKPOINTED_PARTS, training_scorer
from midam.train.training import standardized_once

# Batches with a single bag of a class draw at most _FEW instances of a bag.
_INSTANCES, _FEW = (16, 8, 4, 2, 1), 4
_BAGS, _FEW_BAGS, _ENOUGH_STEPS = (8, 4, 2, 1), 2, 2400
_GIB, _MIB = 2**30, 2**20


class StepCost(NamedTuple):
    """Bytes of the weights with their optimizer, and of each instance of a step."""

    weights: int
    instance: int


def measure_step(
    config: ResolvedSettings, instance_shape: tuple[int, ...], *, device: torch.device, fabric: Any = None
) -> StepCost:
    """Measure the memory of a step, independent of the bags."""
    model, saved, largest = _saved(config, instance_shape, device=device, fabric=fabric)
    if config.model.freeze:  # frozen layers save nothing, but their activations are as large
        largest = _saved(config.replace(freeze=()), instance_shape, device=device, fabric=fabric)[2]
    if config.run.checkpointing:
        saved, largest = saved // CHECKPOINTED_PARTS, largest // CHECKPOINTED_PARTS
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    means = int(config.training.average_from is not None)
    moments = 2 if config.training.optimizer == "adam" else int(config.training.momentum > 0)
    all_weights = config.training.members * (weights * (1 + means) + trained * (1 + moments))
    # Instance, saved tensors, and the gradients of the input and the output of a layer in the backward pass.
    return StepCost(all_weights, 4 * math.prod(instance_shape) + saved + 2 * largest)


def _saved(
    config: ResolvedSettings, instance_shape: tuple[int, ...], *, device: torch.device, fabric: Any
) -> tuple[BagScorer, int, int]:
    """Return a new scorer, the bytes that it saves per instance for the backward pass, and those of the largest tensor.

    The bytes are the difference between three instances and two, without copies of weights in another precision.
    """
    sizes = []
    with _unnoticed(device):
        model = build_model(config, instance_shape=instance_shape, pretrained=False).to(device).train()
        plain = config.replace(compile=False, checkpointing=False)
        scorer = training_scorer(model, plain)
        weights = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
        for count in (2, 3):
            kept: dict[int, int] = {}

            def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in weights:
                    kept[storage.data_ptr()] = storage.nbytes()
                return tensor.detach()  # keeps the storage alive, so that its address is not reused

            try:
                precision = nullcontext() if fabric is None else fabric.autocast()
                with saved_tensors_hooks(keep, lambda tensor: tensor), precision:
                    outputs = scorer.instances(torch.zeros(count, *instance_shape, device=device))
            except torch.cuda.OutOfMemoryError:
                raise ConfigError(
                    f"Expected {count} instances to fit into the memory of the GPU, got instances of shape "
                    f"{list(instance_shape)}; make them smaller."
                ) from None
            sizes.append((sum(kept.values()), max(kept.values(), default=0)))
            del outputs
    (sum_2, largest_2), (sum_3, largest_3) = sizes
    return model, max(0, sum_3 - sum_2), max(0, largest_3 - largest_2)


@contextmanager
def _unnoticed(device: torch.device) -> Iterator[None]:
    """Restore random states afterwards, and suppress warnings, which the training itself repeats."""
    noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with noise, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def held_memory(config: ResolvedSettings, train: Bags, device: torch.device) -> int:
    """Return the bytes of instances that the training will hold besides those already in memory.

    Instances that a GPU holds by default are not counted: they take at most half of its free memory.
    """
    if config.run.resident and on_disk(train.instances):
        return train.num_instances * math.prod(train.instance_shape) * train.instances.itemsize
    copied = standardized_once(config, train) and config.run.resident is not False and device.type != "cuda"
    return 4 * int(np.prod(train.instances.shape)) if copied else 0


def memory_share(free: int) -> int:
    """Return the bytes of free memory that a step may take: half of the largest power of two that is free.

    With a power of two, other programs on the machine rarely change the choice.

    Examples
    --------
    >>> [memory_share(gib * 2**30) // 2**30 for gib in (9, 15, 17)]
    [4, 4, 8]
    """
    return 1 << (max(free, 2).bit_length() - 2)


@dataclass(frozen=True)
class BatchSize:
    """Bags of a step, by class, and instances that are drawn per bag."""

    num_positive: int  # S+
    num_negative: int  # S-
    num_instances: int  # B

    @property
    def bags(self) -> int:
        """Bags of a step."""
        return self.num_positive + self.num_negative


@dataclass(frozen=True)
class Choice:
    """Numbers chosen for "auto"."""

    config: ResolvedSettings
    what: str
    why: str
    fits: bool  # whether a step fits into the memory

    def tell(self) -> str:
        """Warn in one line about the choice and its reason; return the line."""
        line = f"{self.what}: {self.why}"
        warnings.warn(line, Note if self.fits else UserWarning, stacklevel=3)
        return line


def choose_batch_size(
    config: ResolvedSettings, train: Bags, *, device: torch.device, fabric: Any = None, cost: StepCost | None = None
) -> Choice:
    """Choose the "auto" counts of `config` for these training bags.

    The choice is the same for the same bags, settings and memory (rounded down to a power of two). `cost` is the result
    of `measure_step` for these settings, if known.

    Raises
    ------
    OneClassError
        If the bags are not of both classes.
    """
    target = target_of(train)
    target.check(train)
    positives = int(train.require_labels().sum()) if target.name == "binary" else len(train) // 2
    sizes = batch_sizes(config, largest=int(train.sizes.max()), counts=(positives, len(train) - positives))
    cost = cost or measure_step(config, train.instance_shape, device=device, fabric=fabric)
    memory = _Memory(config, train, cost, device=device)
    size = next((size for size in sizes if memory.of(size) <= memory.limit), sizes[-1])
    chosen = config.replace(**asdict(size), memory_budget=None)
    return Choice(chosen, _counts(config, size), _reason(config, size, train, memory), memory.of(size) <= memory.limit)


def choose_for_each(
    config: ResolvedSettings, bags: Bags, trains: Sequence[NDArray[np.int64]], *, fabric: Any
) -> list[Choice]:
    """Choose for each set of training bags, given by positions; the memory of a step is measured once."""
    options: dict[str, Any] = {"device": fabric.device, "fabric": fabric}
    cost = measure_step(config, bags.instance_shape, **options)
    return [choose_batch_size(config, bags.subset(train), **options, cost=cost) for train in trains]


def batch_sizes(config: ResolvedSettings, *, largest: int, counts: tuple[int, int]) -> list[BatchSize]:
    """Return batch sizes in the order of preference; the last is the smallest possible.

    The first has 16 instances of a bag, or the power of two that holds the `largest` bag, and 8 bags of each class, or
    all of the `counts` (positive, negative); 4 or 2 bags if bags are larger than that and the epochs would take fewer
    than 2400 steps. Then come fewer bags, down to 2 + 2 (more steps per epoch, each with as much of a bag), then fewer
    instances, down to 4, then both.
    """
    training, estimator = config.training, ESTIMATORS.find(config.method.estimator)
    # A single instance has the weight 1, from which nothing is learned, unless the bag's state is tracked.
    least = 1 if estimator.tracks else 2
    whole = min((count for count in _INSTANCES if count >= max(largest, least)), default=_INSTANCES[0])
    drawn = [count for count in _INSTANCES if least <= count <= whole]
    if training.num_instances != "auto":
        drawn = [training.num_instances]
    elif not _draws(config):
        drawn = drawn[:1]

    def classes(bags: int) -> tuple[int, int]:
        positive = min(bags, counts[0]) if training.num_positive == "auto" else training.num_positive
        return positive, min(bags, counts[1]) if training.num_negative == "auto" else training.num_negative

    def enough(bags: int) -> bool:
        return training.epochs * math.ceil(sum(counts) / sum(classes(bags))) >= _ENOUGH_STEPS

    most_bags = next(bags for bags in _BAGS if largest <= drawn[0] or bags == _FEW_BAGS or enough(bags))
    sizes = [
        BatchSize(*classes(bags), instances)
        for instances in drawn
        for bags in _BAGS
        if bags <= most_bags and (bags >= _FEW_BAGS or instances <= _FEW or len(drawn) == 1)
    ]
    return list(dict.fromkeys(sizes))


def _counts(config: ResolvedSettings, size: BatchSize) -> str:
    """Return the numbers in words."""
    counts = f"{size.num_positive} + {size.num_negative}"
    if not _draws(config):
        return f"{counts} whole bags per step"
    plural = "" if size.num_instances == 1 else "s"
    return f"{size.num_instances} instance{plural} of a bag and {counts} bags per step"


def _reason(config: ResolvedSettings, size: BatchSize, train: Bags, memory: "_Memory") -> str:
    """Return the reason for the choice, with advice."""
    training, low, high = config.training, int(train.sizes.min()), int(train.sizes.max())
    reasons = [f"bags hold {_count(low)}{'' if low == high else f' to {_count(high)}'}"]
    if _draws(config) and high <= size.num_instances:
        reasons[0] += " and are drawn whole"
    if training.open != ["num_instances"]:
        steps = _count(training.epochs * math.ceil(len(train) / size.bags))
        reasons.append(f"{_count(training.epochs)} epochs of {_count(len(train))} bags take {steps} steps")
    advice = f"set `{config.training.open[-1]}` to choose"
    if not _draws(config) and config.training.open == ["num_instances"]:
        advice = f"the estimator {config.method.estimator!r} does not use `num_instances`"
    if memory.of(size) > memory.limit:
        advice = memory.advice
    return f"{', '.join([*reasons, memory.words(size)])}; {advice}"


def _draws(config: ResolvedSettings) -> bool:
    """Return whether the estimator draws instances."""
    estimator = ESTIMATORS.find(config.method.estimator)
    return not estimator.whole or "num_instances" in inspect.signature(estimator).parameters


class _Memory:
    """Bytes that a step needs, and bytes that it may take."""

    def __init__(self, config: ResolvedSettings, train: Bags, cost: StepCost, *, device: torch.device) -> None:
        smaller = "add `checkpointing=True`, or make the instances smaller"
        if "num_positive" not in config.training.open:
            smaller = "use fewer bags, with `num_positive='auto'` and `num_negative='auto'`"
        self.advice = f"this may be too much: {smaller}"
        self._largest, self._cost = int(train.sizes.max()), cost
        self._most = None if _draws(config) else config.run.chunk_size
        given = config.run.memory_budget
        held = held_memory(config, train, device)
        self.limit = memory_share(free_memory(device) - held) if given is None else round(given * _GIB)

    def of(self, size: BatchSize) -> int:
        """Return the bytes that a step needs."""
        instances = size.bags * min(size.num_instances, self._largest)
        if self._most is not None:
            instances = min(size.bags * self._largest, self._most)
        return self._cost.weights + self._cost.instance * instances

    def words(self, size: BatchSize) -> str:
        """Describe the memory of a step and the limit."""
        unit, name = (_GIB, "GiB") if self.limit >= _GIB else (_MIB, "MiB")
        return f"a step needs {_rounded(self.of(size) / unit)} of {_rounded(self.limit / unit)} {name}"


def _rounded(amount: float) -> str:
    return "less than 0.1" if amount < 0.1 else f"{amount:.{int(amount < 9.95)}f}".removesuffix(".0")


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
