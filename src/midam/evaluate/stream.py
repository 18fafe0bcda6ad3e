"""Streaming: the statistic of whole bags without a graph; needs O(chunk) memory."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import torch
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.functional.logmean import LogMean, merge, reduce_segments
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
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            z, v = model.instances(x)
            yield positions, segment.to(z.device), z, v


def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score the K whole bags of a batch in chunks: ``model(x, sizes)`` up to rounding, without a graph."""
    return stream_members([model], batch, chunk_size=chunk_size)[0]


@torch.no_grad()
def stream_members(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """Score whole bags with several scorers, each chunk read once; parameters as of `stream_bags`.

    Returns
    -------
    list of BagOutput
        One a scorer, the very one that `stream_bags` gives.
    """
    totals = [make_total(model, batch.index.shape[0]) for model in models]
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            of = segment.to(x.device)
            for model, total in zip(models, totals):
                total.add(positions, of, *model.instances(x))
    return [total.output(model, batch) for model, total in zip(models, totals)]


def stream_maximum(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> tuple[Tensor, Tensor]:
    """Maximum logit of each bag [K] and the flat position (CPU) of the first instance that attains it [K]."""
    total = MaximumTotal(batch.index.shape[0])
    for positions, segment, z, v in stream_instances(model, batch, chunk_size=chunk_size):
        total.add(positions, segment, z, v)
    return total.value(), total.where


class MeanTotal:
    """The log-weighted mean of K bags, merged from chunks in float64.

    In float32 the sum over a million instances would depend on how they are cut.
    """

    def __init__(self, num_bags: int) -> None:
        self._num_bags = num_bags
        self._dtype = torch.float32
        self._total: LogMean | None = None

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> LogMean:  # noqa: ARG002
        """Merge a chunk of instances, each of the bag `segment`; returns the statistic of the chunk alone."""
        part = reduce_segments(z.double(), v.double(), segment, num_bags=self._num_bags)
        self._dtype = z.dtype
        self._total = part if self._total is None else merge(self._total, part)
        return part

    @property
    def exact(self) -> LogMean:
        """What was merged so far, in float64."""
        if self._total is None:
            raise ValueError(_EMPTY)
        return self._total

    def value(self) -> LogMean:
        """What was merged so far, in the dtype of the logits."""
        total = self.exact
        return LogMean(*(x.to(self._dtype) for x in total))

    def output(self, model: BagScorer, batch: WholeBatch) -> BagOutput:  # noqa: ARG002
        """Bag output at the statistic."""
        total = self.value()
        return BagOutput(total.l, total.r, total.n, model.pooling)


class MaximumTotal:
    """The maximum of K bags, and the flat position (CPU) of the first instance that attains it."""

    def __init__(self, num_bags: int) -> None:
        self.where = torch.zeros(num_bags, dtype=torch.int64)
        self._best: Tensor | None = None

    def add(self, positions: Tensor, segment: Tensor, z: Tensor, v: Tensor) -> None:  # noqa: ARG002
        """Look through a chunk of instances, each of the bag `segment`."""
        row = first_maximum(z, segment, num_bags=len(self.where))
        present = row < z.shape[0]
        row = row.clamp(max=z.shape[0] - 1)
        value = torch.where(present, z[row], torch.full_like(z[row], -torch.inf))
        best = torch.full_like(value, -torch.inf) if self._best is None else self._best
        better = value > best
        self._best = torch.where(better, value, best)
        self.where = torch.where(better.cpu(), positions[row.cpu()], self.where)

    def value(self) -> Tensor:
        """Maximum of each bag [K]."""
        if self._best is None:
            raise ValueError(_EMPTY)
        return self._best

    def output(self, model: BagScorer, batch: WholeBatch) -> BagOutput:
        """Bag output at the maximum."""
        top = self.value()
        return BagOutput(top, top.new_empty(len(top), 0), batch.sizes.to(top), model.pooling)


def make_total(model: BagScorer, num_bags: int) -> MeanTotal | MaximumTotal:
    """What the pooling of a scorer merges."""
    return MeanTotal(num_bags) if model.pooling.smooth else MaximumTotal(num_bags)
