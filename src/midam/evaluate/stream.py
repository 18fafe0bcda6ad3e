"""Streaming: the statistic of whole bags without a graph; needs O(chunk) memory."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import torch
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.nn.pooling.statistic import Total
from midam.nn.scorer import BagOutput, BagScorer, fold_chunk
from midam.nn.standardizer import standardized_alike


@torch.no_grad()
def stream_instances(
    model: BagScorer, batch: WholeBatch, *, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Of a batch, chunk by chunk: positions (flat, on the CPU) and bags 0 to K-1, int64 [m], z [m] and v [m, V].

    Of several branches z [m, G] and v [m, G, V].
    """
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            z, v = instances_of(model, x)
            yield positions, segment.to(z.device), z, v
    # Autocast keeps the weights that it has cast here, without a graph; torch below 2.11 would train with those.
    torch.clear_autocast_cache()


def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score the K whole bags of a batch in chunks: ``model(x, sizes)`` up to rounding, without a graph."""
    return stream_members([model], batch, chunk_size=chunk_size)[0]


@torch.no_grad()
def stream_members(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """Score whole bags with several scorers, each chunk read once: of each what `stream_bags` gives, [M]."""
    outputs = stream_outputs(models, batch, chunk_size=chunk_size)
    return [model.with_covariates(output, batch.covariates) for model, output in zip(models, outputs)]


@torch.no_grad()
def stream_outputs(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """As `stream_members`, without what covariates add."""
    totals = [total_of(model, batch.index.shape[0]) for model in models]
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            of = segment.to(x.device)
            for total, pair in zip(totals, instances_of_each(models, x)):
                total.add(*fold_chunk(positions, of, *pair))
    return [output_of(model, total) for model, total in zip(models, totals)]


def instances_of(model: BagScorer, x: Tensor) -> tuple[Tensor, Tensor]:
    """`BagScorer.instances` of a chunk x [m, ...]; instances that are all alike once standardized are encoded as one.

    So bags whose features are all constant tie to the last bit, whatever their sizes.
    """
    return next(instances_of_each([model], x))


def instances_of_each(models: Sequence[BagScorer], x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """`instances_of` with each scorer; the chunk is standardized once for scorers with equal standardizers."""
    before: BagScorer | None = None
    u, alike = x, False
    for model in models:
        if before is None or not standardized_alike(model.standardizer, before.standardizer):
            u = model.standardized(x)
            alike = len(u) > 1 and torch.equal(u[0], u[1]) and bool((u == u[:1]).all())
        before = model
        z, v = model.encoded(u[:1] if alike else u)
        yield (z.expand(len(x), *z.shape[1:]), v.expand(len(x), *v.shape[1:])) if alike else (z, v)


def stream_total(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> Total:
    """Merge the statistic of whole bags in chunks."""
    total = total_of(model, batch.index.shape[0])
    for chunk in stream_instances(model, batch, chunk_size=chunk_size):
        total.add(*fold_chunk(*chunk))
    return total


def total_of(model: BagScorer, num_bags: int) -> Total:
    """Make the total of so many bags: of several branches, of all their rows, which `fold_chunk` gives."""
    return model.pooling.statistic.total(num_bags * model.pooling.branches)


def output_of(model: BagScorer, total: Total) -> BagOutput:
    """Bag output of a scorer at the statistic that was merged."""
    stat = total.value()
    return BagOutput(stat.l, stat.r, stat.n, model.pooling)
