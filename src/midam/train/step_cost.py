"""Memory that a training step takes, measured on this machine."""

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from midam.data.bags import Bags
from midam.data.on_disk import on_disk
from midam.errors import ConfigError
from midam.nn.scorer import BagScorer
from midam.settings import ResolvedSettings
from midam.train.build import build_model
from midam.train.training import standardized_once
from midam.train.training_scorer import CHECKPOINTED_PARTS, training_scorer


class StepCost(NamedTuple):
    """Bytes that weights and their optimizer take, and each instance of a step."""

    weights: int
    instance: int


def measure_step(
    config: ResolvedSettings, instance_shape: tuple[int, ...], *, device: torch.device, fabric: Any = None
) -> StepCost:
    """Measure what a step takes, whatever the bags."""
    model, saved, largest = _saved(config, instance_shape, device=device, fabric=fabric)
    if config.model.freeze:  # what is frozen saves nothing, and is no smaller on its way
        largest = _saved(config.replace(freeze=()), instance_shape, device=device, fabric=fabric)[2]
    if config.run.checkpointing:
        saved, largest = saved // CHECKPOINTED_PARTS, largest // CHECKPOINTED_PARTS
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    means = int(config.training.average_from is not None)
    moments = 2 if config.training.optimizer == "adam" else int(config.training.momentum > 0)
    all_weights = config.training.members * (weights * (1 + means) + trained * (1 + moments))
    # What is read; what is saved; and, on the way back, gradients of what goes into a layer and comes out of it.
    return StepCost(all_weights, 4 * math.prod(instance_shape) + saved + 2 * largest)


def _saved(
    config: ResolvedSettings, instance_shape: tuple[int, ...], *, device: torch.device, fabric: Any
) -> tuple[BagScorer, int, int]:
    """A new scorer, the bytes of an instance that it saves for the backward pass, and the largest tensor among them.

    That is what a third instance adds to two: copies of weights in another precision are no part of it.
    """
    found = []
    with _unnoticed(device):
        model = build_model(config, instance_shape=instance_shape, pretrained=False).to(device).train()
        plain = config.replace(compile=False, checkpointing=False)
        scorer = training_scorer(model, plain, instance_shape=instance_shape)
        weights = {part.untyped_storage().data_ptr() for part in (*model.parameters(), *model.buffers())}
        for count in (2, 3):
            kept: dict[int, int] = {}

            def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in weights:
                    kept[storage.data_ptr()] = storage.nbytes()
                return tensor.detach()  # which holds the storage: no other one takes its place

            try:
                with saved_tensors_hooks(keep, lambda tensor: tensor), _precision(fabric):
                    outputs = scorer.instances(torch.zeros(count, *instance_shape, device=device))
            except torch.cuda.OutOfMemoryError:
                raise ConfigError(
                    f"Expected instances of which {count} fit into the memory of the GPU, got some of shape "
                    f"{list(instance_shape)}; make them smaller."
                ) from None
            found.append((sum(kept.values()), max(kept.values(), default=0)))
            del outputs
    (sum_2, largest_2), (sum_3, largest_3) = found
    return model, max(0, sum_3 - sum_2), max(0, largest_3 - largest_2)


@contextmanager
def _unnoticed(device: torch.device) -> Iterator[None]:
    """Leave random states alone, and say nothing: of whatever there is to warn, the training itself will."""
    noise = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
    with noise, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _precision(fabric: Any) -> AbstractContextManager[Any]:
    return nullcontext() if fabric is None else fabric.autocast()


def held_memory(config: ResolvedSettings, train: Bags, device: torch.device) -> int:
    """Bytes of instances that the training will hold beside those in memory; on a GPU at most half of what is free."""
    if config.run.resident and on_disk(train.instances):
        return train.num_instances * math.prod(train.instance_shape) * train.instances.itemsize
    copied = standardized_once(config, train) and config.run.resident is not False and device.type != "cuda"
    return 4 * int(np.prod(train.instances.shape)) if copied else 0


def memory_share(free: int) -> int:
    """Bytes that a step may take of the free ones: half of the largest power of two among them.

    A power of two, so that what else runs on the machine rarely changes the choice.

    Examples
    --------
    >>> [memory_share(gib * 2**30) // 2**30 for gib in (9, 15, 17)]
    [4, 4, 8]
    """
    return 1 << (max(free, 2).bit_length() - 2)
