"""Streaming: the statistic of whole bags without a graph, in memory that knows the chunk and not the bag."""

from collections.abc import Iterator

import torch
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.functional.logmean import LogMean, identity, merge, reduce_segments
from midam.nn.scorer import BagOutput, BagScorer, first_maximum


@torch.no_grad()
def stream_instances(
    model: BagScorer, batch: WholeBatch, *, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Logits and values of all instances of a batch, chunk by chunk.

    Yields
    ------
    positions, segment : Tensor [m], int64
        Flat position (CPU) and bag (0 to K-1, on the model's device) of each instance.
    z, v : Tensor [m], Tensor [m, V]
    """
    for positions, segment in batch.chunks(chunk_size):
        z, v = model.instances(batch.reader.rows(positions))
        yield positions, segment.to(z.device), z, v


def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score whole bags in chunks: exact, without a graph.

    Parameters
    ----------
    model : BagScorer
        In evaluation mode unless its noise is wanted.
    batch : WholeBatch
        K bags.
    chunk_size : int
        Instances encoded at a time, >= 1.

    Returns
    -------
    BagOutput
        Equal to ``model(x, sizes)`` on the whole bags up to rounding.
    """
    num_bags = batch.index.shape[0]
    if not model.pooling.smooth:
        top, _ = stream_maximum(model, batch, chunk_size=chunk_size)
        sizes = batch.sizes.to(device=top.device, dtype=top.dtype)
        return BagOutput(top, top.new_empty(num_bags, 0), sizes, model.pooling)
    total: LogMean | None = None
    for _, segment, z, v in stream_instances(model, batch, chunk_size=chunk_size):
        part = reduce_segments(z, v, segment, num_bags=num_bags)
        total = merge(identity(num_bags, v.shape[1], like=z) if total is None else total, part)
    if total is None:
        raise ValueError("Expected at least one instance, got an empty batch; pass bags that hold instances.")
    return BagOutput(total.l, total.r, total.n, model.pooling)


def stream_maximum(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> tuple[Tensor, Tensor]:
    """Maximum logit of each bag [K] and the flat position (CPU) of the first instance that attains it [K]."""
    num_bags = batch.index.shape[0]
    best: Tensor | None = None
    where = torch.zeros(num_bags, dtype=torch.int64)
    for positions, segment, z, _ in stream_instances(model, batch, chunk_size=chunk_size):
        row = first_maximum(z, segment, num_bags=num_bags)
        present = row < z.shape[0]
        row = row.clamp(max=z.shape[0] - 1)
        value = torch.where(present, z[row], torch.full_like(z[row], -torch.inf))
        if best is None:
            best = torch.full_like(value, -torch.inf)
        better = value > best
        best = torch.where(better, value, best)
        where = torch.where(better.cpu(), positions[row.cpu()], where)
    if best is None:
        raise ValueError("Expected at least one instance, got an empty batch; pass bags that hold instances.")
    return best, where
