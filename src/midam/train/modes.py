"""Modes of an epoch: annealing of the weights, CPU threads, and numbers close to 0."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from midam.errors import ConfigError
from midam.nn.pooling import Pooling
from midam.nn.scorer import BagScorer
from midam.settings import ResolvedSettings

_LEAST_POWER = 0.2


def check_anneal(config: ResolvedSettings, pooling: Pooling) -> None:
    """Refuse annealing if the pooling has no weights for it."""
    if config.method.anneal and not pooling.anneals:
        raise ConfigError(
            f"Expected no `anneal` with the pooling {pooling.name!r}, which has no weights to sharpen, got "
            f"{config.method.anneal:g}; leave it out, or use the pooling 'attention' or 'smoothed-max'."
        )


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
def cpu_threads(count: int | None) -> Iterator[None]:
    """Run with `count` CPU threads; None does not change their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
