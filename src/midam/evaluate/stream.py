"""Streaming: the statistic of whole bags without a graph, in memory that knows the chunk and not the bag."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.functional.logmean import LogMean, identity, merge, reduce_segments
from midam.nn.scorer import BagOutput, BagScorer, first_maximum

_EMPTY = "Expected at least one instance, got an empty batch; pass bags that hold instances."


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
    return stream_members([model], batch, chunk_size=chunk_size)[0]


@torch.no_grad()
def stream_members(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """Score whole bags with several scorers, each chunk read once; parameters as of `stream_bags`.

    Returns
    -------
    list of BagOutput
        One a scorer, the very one that `stream_bags` gives.
    """
    totals = [(_Mean if model.pooling.smooth else _Maximum)(batch.index.shape[0]) for model in models]
    for positions, segment in batch.chunks(chunk_size):
        x = batch.reader.rows(positions)
        of = segment.to(x.device)
        for model, total in zip(models, totals):
            total.add(positions, of, *model.instances(x))
    return [total.output(model, batch) for model, total in zip(models, totals)]


def stream_maximum(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> tuple[Tensor, Tensor]:
    """Maximum logit of each bag [K] and the flat position (CPU) of the first instance that attains it [K]."""
    total = _Maximum(batch.index.shape[0])
    for positions, segment, z, v in stream_instances(model, batch, chunk_size=chunk_size):
        total.add(positions, segment, z, v)
    return total.value(), total.where


class _Mean:
    """The log-weighted mean of K bags, merged from chunks."""

    def __init__(self, num_bags: int) -> None:
        self._num_bags = num_bags
        self._total: LogMean | None = None

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> None:  # noqa: ARG002
        before = identity(self._num_bags, v.shape[1], like=z) if self._total is None else self._total
        self._total = merge(before, reduce_segments(z, v, segment, num_bags=self._num_bags))

    def output(self, model: BagScorer, batch: WholeBatch) -> BagOutput:  # noqa: ARG002
        if self._total is None:
            raise ValueError(_EMPTY)
        return BagOutput(self._total.l, self._total.r, self._total.n, model.pooling)


class _Maximum:
    """The maximum of K bags, and the flat position (CPU) of the first instance that attains it."""

    def __init__(self, num_bags: int) -> None:
        self.where = torch.zeros(num_bags, dtype=torch.int64)
        self._best: Tensor | None = None

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> None:  # noqa: ARG002
        row = first_maximum(z, segment, num_bags=len(self.where))
        present = row < z.shape[0]
        row = row.clamp(max=z.shape[0] - 1)
        value = torch.where(present, z[row], torch.full_like(z[row], -torch.inf))
        best = torch.full_like(value, -torch.inf) if self._best is None else self._best
        better = value > best
        self._best = torch.where(better, value, best)
        self.where = torch.where(better.cpu(), positions[row.cpu()], self.where)

    def value(self) -> Tensor:
        if self._best is None:
            raise ValueError(_EMPTY)
        return self._best

    def output(self, model: BagScorer, batch: WholeBatch) -> BagOutput:
        top = self.value()
        return BagOutput(top, top.new_empty(len(top), 0), batch.sizes.to(top), model.pooling)
