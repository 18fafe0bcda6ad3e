"""Streaming: the statistic of whole bags without a graph, and scores of their instances; needs O(chunk) memory.

Instances take two passes. The first gives each instance's own score and logit, and keeps the log-sum of
the logits alone. The second turns logits into weights, chunk by chunk.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.nn.ensemble import BagEnsemble, column_of, columns_of, member_mean, scorers_of, weights_of
from midam.nn.pooling.base import ColumnPooling, Total
from midam.nn.scorer import BagOutput, BagScorer, fold_chunk
from midam.nn.standardizer import standardized_alike


@torch.no_grad()
def stream_instances(
    model: BagScorer, batch: WholeBatch, *, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield by chunk of a batch: positions (flat, on the CPU) and bags 0 to K-1, int64 [m], z [m] and v [m, V].

    With several branches z [m, G] and v [m, G, V].
    """
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            z, v = instances_of(model, x)
            yield positions, segment.to(z.device), z, v
    # Autocast keeps the weights that it has cast here, without a graph; torch below 2.11 would train with those.
    torch.clear_autocast_cache()


@torch.no_grad()
def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score the K whole bags of a batch in chunks: ``model(x, sizes)`` up to rounding, without a graph."""
    (output,) = stream_outputs([model], batch, chunk_size=chunk_size)
    return model.with_covariates(output, batch.covariates)


@torch.no_grad()
def stream_outputs(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """Score whole bags with several scorers [M], each chunk read once, without what covariates add."""
    totals = [total_of(model, batch.index.shape[0]) for model in models]
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            bag_index = segment.to(x.device)
            for total, pair in zip(totals, instances_of_each(models, x)):
                total.add(*fold_chunk(positions, bag_index, *pair))
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
    """Total of `num_bags` bags: with several branches, a row for each, as `fold_chunk` numbers them."""
    return model.pooling.statistic.total(num_bags * model.pooling.branches)


def output_of(model: BagScorer, total: Total) -> BagOutput:
    """Bag output of a scorer at the statistic that was merged."""
    stat = total.value()
    return BagOutput(stat.l, stat.r, stat.n, model.pooling)


class Averages(NamedTuple):
    """Contributions of m instances, averaged over M members by their weights in the ensemble."""

    score: Tensor  # [m]
    attention: Tensor  # [m]
    weight: Tensor  # [m]
    weights: Tensor  # [m, M], of each member


class InstancePass:
    """The instances of one bag, streamed once through a model's M scorers in evaluation mode; scores and weights.

    `batch` holds the bag, of which `chunk_size` >= 1 instances are encoded at a time. `keep` is called in the first
    pass with the logits [m] and values [m, V] of a chunk's instances, a pair for each scorer. For a model with
    several score columns, `column` selects one, as in `midam.nn.ensemble.column_of`; `scorers` are those of it alone.
    """

    def __init__(
        self,
        model: BagScorer | BagEnsemble,
        batch: WholeBatch,
        *,
        chunk_size: int,
        keep: Callable[[Sequence[tuple[Tensor, Tensor]]], None] | None = None,
        column: int | None = None,
    ) -> None:
        model = column_of(model, column)
        self.scorers, self.weights, self._model = scorers_of(model), weights_of(model), model
        self._batch, self._chunk_size, self._keep = batch, chunk_size, keep
        self._totals = [scorer.pooling.statistic.total(1) for scorer in self.scorers]

    @property
    def pooling(self) -> str:
        """Names of the poolings."""
        return " + ".join(dict.fromkeys(scorer.pooling.name for scorer in self.scorers))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores of one instance: (M,)."""
        return (len(self.scorers),)

    @torch.no_grad()
    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """First pass, to be taken to its end: scores [m, M] and logits [m, M] of the instances in order, on the CPU."""
        with closing(self._batch.read(self._chunk_size)) as chunks:
            for positions, segment, x in chunks:
                yield self.take(positions, segment.to(x.device), list(instances_of_each(self.scorers, x)))

    def take(self, positions: Tensor, segment: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Contributions of a chunk, from its logits [m] and values [m, V], a pair for each scorer."""
        scores = []
        for scorer, total, (z, v) in zip(self.scorers, self._totals, pairs):
            total.add(positions, segment, z, v)
            scores.append(scorer.pooling.score(z, v, torch.ones_like(z)).cpu())
        if self._keep is not None:
            self._keep(pairs)
        return torch.stack(scores, dim=1), torch.stack([z.cpu() for z, _ in pairs], dim=1)

    @torch.no_grad()
    def bag_scores(self) -> list[float]:
        """Score of the bag by each member, after the first pass."""
        return [float(output_of(scorer, total).score) for scorer, total in zip(self.scorers, self._totals)]

    def bag_score(self) -> float:
        """Score of the bag, after the first pass."""
        return float(np.average(self.bag_scores(), weights=self.weights))

    def average(self, score: Tensor, z: Tensor, *, first: int) -> Averages:
        """Second pass: contributions of the instances `first`, `first` + 1, ... of the bag, in float64.

        `score` and `z` [m, M] are their scores and logits from the first pass.
        """
        z = z.double()
        positions = torch.arange(first, first + len(z)) + self._batch.starts
        weights = torch.stack([total.weights(z_m, positions) for total, z_m in zip(self._totals, z.unbind(1))], dim=1)
        mean = partial(member_mean, self._model, dim=1)
        return Averages(mean(score.double()), self._attention(z), mean(weights), weights)

    def _attention(self, z: Tensor) -> Tensor:
        """Logit of the mean weight [m]; where a member's weights are no softmax, the mean of the logits."""
        sums = [log_sum for total in self._totals if (log_sum := total.log_sum) is not None]
        if len(sums) < z.shape[1] or z.shape[1] == 1:
            return member_mean(self._model, z, dim=1)
        # In log space: a weight too small for a float still has a logit. The shift makes equal members keep theirs.
        log_sums = torch.tensor(sums, dtype=torch.float64)
        level = member_mean(self._model, log_sums, dim=0)
        if self.weights is None:
            return torch.logsumexp(z - log_sums, dim=1) - math.log(len(sums)) + level
        return torch.logsumexp(z - log_sums + self.weights.log(), dim=1) + level


class ColumnsPass:
    """As `InstancePass` for a model of C > 1 score columns, all of which come from one pass of the encoder.

    The columns are the last axis of the results: [m, M, C] and [m, C], and [C] for the bag.
    """

    def __init__(self, model: BagScorer | BagEnsemble, batch: WholeBatch, *, chunk_size: int) -> None:
        self.scorers, self.weights = scorers_of(model), weights_of(model)
        self._batch, self._chunk_size = batch, chunk_size
        columns = range(columns_of(model))
        self._each = [InstancePass(model, batch, column=column, chunk_size=chunk_size) for column in columns]

    @property
    def pooling(self) -> str:
        """Names of the poolings."""
        return self._each[0].pooling

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores of one instance: (M, C)."""
        return len(self.scorers), len(self._each)

    @torch.no_grad()
    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """First pass, to be taken to its end: scores and logits [m, M, C] of the instances in order, on the CPU."""
        with closing(self._batch.read(self._chunk_size)) as chunks:
            for positions, segment, x in chunks:
                bag_index, pairs = segment.to(x.device), list(instances_of_each(self.scorers, x))
                parts = []
                for one in self._each:
                    poolings = [cast(ColumnPooling, scorer.pooling) for scorer in one.scorers]
                    columns = [pooling.own(*pair) for pooling, pair in zip(poolings, pairs)]
                    parts.append(one.take(positions, bag_index, columns))
                score, z = (torch.stack(part, dim=2) for part in zip(*parts))
                yield score, z

    def bag_scores(self) -> NDArray[np.float64]:
        """Scores of the bag by each member, [M, C], after the first pass."""
        return np.array([one.bag_scores() for one in self._each]).T

    def bag_score(self) -> NDArray[np.float64]:
        """Scores of the bag, [C], after the first pass."""
        return np.array([one.bag_score() for one in self._each])

    def average(self, score: Tensor, z: Tensor, *, first: int) -> Averages:
        """Second pass, as `InstancePass.average` for scores and logits [m, M, C]."""
        parts = [one.average(score[..., c], z[..., c], first=first) for c, one in enumerate(self._each)]
        return Averages(*(torch.stack(part, dim=-1) for part in zip(*parts)))
