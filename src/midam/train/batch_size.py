"""The choice of bags and instances per step (S+, S-, B) for settings that are "auto".

It is the first of `batch_sizes` that fits the memory. The memory of an instance is measured by the tensors that torch
saves in a forward pass.
"""

import inspect
import math
import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from midam.data.bags import Bags
from midam.data.free_memory import free_memory
from midam.data.on_disk import on_disk
from midam.errors import ConfigError, Note, plural
from midam.files import size_text
from midam.nn.scorer import BagScorer
from midam.registry import ESTIMATORS
from midam.settings import ResolvedSettings
from midam.targets import target_of
from midam.train.build import build_model
from midam.train.inputs import standardized_once
from midam.train.members import CHECKPOINTED_PARTS

_ENOUGH_STEPS = 2400


class Choice(NamedTuple):
    """Settings with numbers chosen for "auto", the numbers and the reason in words, and whether a step fits."""

    config: ResolvedSettings
    what: str
    why: str
    fits: bool

    def tell(self) -> str:
        """Warn in one line about the choice and its reason; return the line."""
        line = f"{self.what}: {self.why}"
        warnings.warn(line, Note if self.fits else UserWarning, stacklevel=3)
        return line


def measure_step(
    config: ResolvedSettings, instance_shape: tuple[int, ...], *, device: torch.device, fabric: Any = None
) -> tuple[int, int]:
    """Measure the bytes of the weights with their optimizer, and of each instance of a step.

    An instance takes its numbers, the tensors that are saved for the backward pass, and the gradients of the input and
    the output of a layer, each as large as the largest saved tensor; with checkpointing, an eighth of all but the
    first. A `ConfigError` refuses instances of which a GPU cannot hold three.
    """
    training, precision = config.training, nullcontext if fabric is None else fabric.autocast
    noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with noise, warnings.catch_warnings(action="ignore"):  # the training repeats the warnings
        # Frozen layers save nothing, but their outputs are as large as without `freeze`.
        model, thawed = (
            build_model(chosen, instance_shape=instance_shape, pretrained=False).to(device).train()
            for chosen in (config, config.replace(freeze=()))
        )
        whole = 1 + (training.average_from is not None)
        trained = 1 + (2 if training.optimizer == "adam" else training.momentum > 0)  # gradients and moments
        weights = sum((whole + trained * p.requires_grad) * p.nbytes for p in model.parameters())
        # What does not depend on the instances, such as copies of weights in another precision, is in both.
        inputs = [torch.zeros(count, *instance_shape, device=device) for count in (2, 3)]
        try:
            two, three = (_saved(model, x, precision) for x in inputs)
            largest = max((b - a for a, b in zip(*(_saved(thawed, x, precision) for x in inputs))), default=0)
        except torch.cuda.OutOfMemoryError:
            raise ConfigError(
                "Expected three instances to fit into the memory of the GPU, got instances of shape "
                f"{list(instance_shape)}; make them smaller."
            ) from None
    parts = CHECKPOINTED_PARTS if config.run.checkpointing else 1
    instance = 4 * math.prod(instance_shape) + (sum(three) - sum(two) + 2 * largest) // parts
    return training.members * weights, instance


def _saved(model: BagScorer, instances: Tensor, precision: Any) -> list[int]:
    """Return the bytes of each tensor that is saved for the backward pass of these instances."""
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # keeps the storage alive, so that its address is not reused

    with saved_tensors_hooks(keep, lambda tensor: tensor), precision():
        model.instances(instances)
    return list(sizes.values())


def memory_share(free: int) -> int:
    """Return the bytes of free memory that a step may take: half of the largest power of two that is free.

    With a power of two, other programs on the machine rarely change the choice.

    Examples
    --------
    >>> [memory_share(gib * 2**30) // 2**30 for gib in (9, 15, 17)]
    [4, 4, 8]
    """
    return 1 << (max(free, 2).bit_length() - 2)


def choose_batch_size(config: ResolvedSettings, train: Bags, *, device: torch.device, fabric: Any = None) -> Choice:
    """Choose the "auto" counts of `config` for these training bags.

    The choice is the same for the same bags, settings and memory (rounded down to a power of two).

    Raises
    ------
    OneClassError
        If the bags are not of both classes.
    """
    target, largest, draws = target_of(train), int(train.sizes.max()), _draws(config)
    target.check(train)
    positives = int(train.require_labels().sum()) if target.name == "binary" else len(train) // 2
    weights, instance = measure_step(config, train.instance_shape, device=device, fabric=fabric)
    budget, resident = config.run.memory_budget, config.run.resident
    free, numbers = free_memory(device), math.prod(train.instance_shape)
    if resident and on_disk(train.instances):  # what the training will hold
        free -= train.num_instances * numbers * train.instances.itemsize
    elif standardized_once(config, train) and resident is not False and device.type != "cuda":
        free -= 4 * len(train.instances) * numbers
    limit = memory_share(free) if budget is None else round(budget * 2**30)

    def needed(size: tuple[int, int, int]) -> int:
        bags = size[0] + size[1]
        held = bags * min(size[2], largest) if draws else min(bags * largest, config.run.chunk_size)
        return weights + instance * held

    sizes = batch_sizes(config, largest=largest, counts=(positives, len(train) - positives))
    size = next((size for size in sizes if needed(size) <= limit), sizes[-1])
    positive, negative, drawn = size
    counts = f"{positive} + {negative} whole bags per step"
    if draws:
        counts = f"{plural(drawn, 'instance')} of a bag and {positive} + {negative} bags per step"
    epochs, steps = config.training.epochs, config.training.epochs * math.ceil(len(train) / (positive + negative))
    why = (
        f"bags hold up to {plural(largest, 'instance')}, {plural(epochs, 'epoch')} of {plural(len(train), 'bag')} take "
        f"{plural(steps, 'step')}, a step needs {size_text(needed(size))} of {size_text(limit)}"
    )
    if needed(size) > limit:
        why += ", which may be too much; add `checkpointing=True`, make instances smaller, or leave all counts 'auto'"
    chosen = config.replace(num_positive=positive, num_negative=negative, num_instances=drawn, memory_budget=None)
    return Choice(chosen, counts, why, needed(size) <= limit)


def batch_sizes(config: ResolvedSettings, *, largest: int, counts: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Return (S+, S-, B) in the order of preference; the last is the smallest possible.

    The first has 16 instances of a bag, or the power of two that holds the `largest` bag, and 8 bags of each class, or
    all of the `counts` (positive, negative); 4 or 2 bags if bags are larger than that and the epochs would take fewer
    than 2400 steps. Then come fewer bags, down to 2 + 2 (more steps per epoch, each with as much of a bag), then fewer
    instances, down to 4, then both.
    """
    training = config.training
    # A single instance has the weight 1, from which nothing is learned, unless the bag's state is tracked.
    least = 1 if ESTIMATORS.find(config.method.estimator).tracks else 2
    drawn = [count for count in (16, 8, 4, 2, 1) if least <= count < 2 * max(largest, least)]
    if training.num_instances != "auto":
        drawn = [training.num_instances]
    elif not _draws(config):
        drawn = drawn[:1]

    def classes(bags: int) -> tuple[int, int]:
        positive = min(bags, counts[0]) if training.num_positive == "auto" else training.num_positive
        return positive, min(bags, counts[1]) if training.num_negative == "auto" else training.num_negative

    def enough(bags: int) -> bool:
        return training.epochs * math.ceil(sum(counts) / sum(classes(bags))) >= _ENOUGH_STEPS

    most = next(bags for bags in (8, 4, 2) if bags == 2 or largest <= drawn[0] or enough(bags))
    pairs = [(bags, count) for count in drawn for bags in (8, 4, 2, 1) if bags <= most]
    # One bag of a class comes with at most 4 of its instances, where they can be fewer.
    return [(*classes(bags), count) for bags, count in pairs if bags > 1 or count <= max(4, drawn[-1])]


def _draws(config: ResolvedSettings) -> bool:
    """Return whether the estimator draws instances."""
    estimator = ESTIMATORS.find(config.method.estimator)
    return not estimator.whole or "num_instances" in inspect.signature(estimator).parameters
