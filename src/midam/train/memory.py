"""Score memory of a training for draws by score, annealing of the weights, and CPU modes of a step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from midam.data.batch import InstanceReader, WholeBatch
from midam.data.draws import Draw
from midam.data.score_memory import ScoreMemory
from midam.errors import ConfigError
from midam.evaluate.predict import bag_groups, evaluation
from midam.evaluate.stream import stream_instances
from midam.nn.scorer import BagScorer
from midam.process_group import Ranks
from midam.settings import ResolvedSettings
from midam.train.build import MethodParts

_LEAST_POWER = 0.2


def check_draw(config: ResolvedSettings, parts: MethodParts, draw: Draw) -> None:
    """Refuse draws by scores, and annealing, if the pooling has no weights for them."""
    pooling = parts.model.pooling
    if draw.remembers and not pooling.weighted:
        raise ConfigError(
            f"Expected the draw 'uniform' with the pooling {pooling.name!r}, whose instances weigh the same, got "
            f"{config.method.draw!r}; use 'uniform', or the pooling 'attention' or 'smoothed-max'."
        )
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


def fill_memory(
    model: BagScorer, memory: ScoreMemory, reader: InstanceReader, *, chunk_size: int, ranks: Ranks | None = None
) -> None:
    """Fill the memory with the logits of all instances, streamed in evaluation mode; with branches, the largest.

    `reader` is that of the training bags. With several processes, each streams a share.
    """

    def logits(group: range) -> Iterator[Tensor]:
        batch = WholeBatch.unlabeled(reader, torch.arange(group.start, group.stop))
        for _, _, z, _ in stream_instances(model, batch, chunk_size=chunk_size):
            yield (z if z.ndim == 1 else z.amax(dim=1)).float()

    groups, filled = list(bag_groups(memory.sizes, chunk_size=chunk_size)), 0
    with evaluation(model):
        if ranks is None:
            parts = (part for group in groups for part in logits(group))
        else:
            counts = {group: int(memory.sizes[group.start : group.stop].sum()) for group in groups}
            joined = ranks.spread(groups, lambda group: torch.cat(list(logits(group))), rows=counts.__getitem__)
            parts = (part for _, part in joined)
        for part in parts:
            memory.fill(part.cpu().numpy(), first=filled)
            filled += len(part)


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
