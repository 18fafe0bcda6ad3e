"""Streaming: the statistic of whole bags without a graph, and scores of their instances, in O(chunk) memory.

Instance scores take two passes. The first computes the score and logit of each instance, and keeps only the log-sum of
the logits. The second turns logits into weights, chunk by chunk.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.nn.ensemble import BagEnsemble, column_of, columns_of, member_mean, scorers_of, weights_of
from midam.nn.pooling.base import Total
from midam.nn.pooling.rescaled import ColumnPooling
from midam.nn.scorer import BagOutput, BagScorer, fold_chunk
from midam.nn.standardizer import standardized_alike


@torch.no_grad()
def stream_instances(
    model: BagScorer, batch: WholeBatch, *, chunk_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield, per chunk of a batch, positions (flat, on the CPU) and bags 0 to K-1, int64 [m], z [m] and v [m, V].

    With several branches z [m, G] and v [m, G, V].
    """
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            ((z, v),) = instances_of_each([model], x)
            yield positions, segment.to(z.device), z, v
    # Autocast caches the weights that it casts here, without a graph; torch below 2.11 would train with them.
    torch.clear_autocast_cache()


@torch.no_grad()
def stream_bags(model: BagScorer, batch: WholeBatch, *, chunk_size: int) -> BagOutput:
    """Score the K whole bags of a batch in chunks: ``model(x, sizes)`` up to rounding, without a graph."""
    (output,) = stream_outputs([model], batch, chunk_size=chunk_size)
    return model.with_covariates(output, batch.covariates)


@torch.no_grad()
def stream_outputs(models: Sequence[BagScorer], batch: WholeBatch, *, chunk_size: int) -> list[BagOutput]:
    """Score whole bags with several scorers [M], each chunk read once, without the term of covariates."""
    totals = [total_of(model, batch.index.shape[0]) for model in models]
    with closing(batch.read(chunk_size)) as chunks:
        for positions, segment, x in chunks:
            bag_index = segment.to(x.device)
            for total, pair in zip(totals, instances_of_each(models, x)):
                total.add(*fold_chunk(positions, bag_index, *pair))
    return [output_of(model, total) for model, total in zip(models, totals)]


def instances_of_each(models: Sequence[BagScorer], x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `BagScorer.instances` of a chunk x [m, ...] for each scorer; equal standardizers are applied once.

    If all standardized instances are equal, only one is encoded. Bags whose features are all constant then tie to the
    last bit, whatever their sizes.
    """
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
    """Make the total of `num_bags` bags: with several branches a row per branch, numbered as in `fold_chunk`."""
    return model.pooling.statistic.total(num_bags * model.pooling.branches)


def output_of(model: BagScorer, total: Total) -> BagOutput:
    """Return the bag output of a scorer at the merged statistic."""
    stat = total.value()
    return BagOutput(stat.l, stat.r, stat.n, model.pooling)


class Averages(NamedTuple):
    """Contributions of m instances, averaged over M members with their weights in the ensemble."""

    score: Tensor  # [m]
    attention: Tensor  # [m]
    weight: Tensor  # [m]
    weights: Tensor  # [m, M], of each member


class InstancePass:
    """Streams the instances of one bag once through a model's M scorers in evaluation mode: scores and weights.

    `batch` holds the bag; `chunk_size` >= 1 instances are encoded at a time. For a model with several score columns,
    `column` selects one, as in `midam.nn.ensemble.column_of`; `scorers` are the scorers of this column.
    """

    def __init__(
        self, model: BagScorer | BagEnsemble, batch: WholeBatch, *, chunk_size: int, column: int | None = None
    ) -> None:
        model = column_of(model, column)
        self.scorers, self.weights, self._model = scorers_of(model), weights_of(model), model
        self._batch, self.chunk_size = batch, chunk_size
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
        """Yield scores and logits [m, M] of the instances in order, on the CPU: the first pass, to be completed."""
        with closing(self._batch.read(self.chunk_size)) as chunks:
            for positions, segment, x in chunks:
                yield self.take(positions, segment.to(x.device), list(instances_of_each(self.scorers, x)))

    def take(self, positions: Tensor, segment: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return scores and logits of a chunk, from its logits [m] and values [m, V], a pair for each scorer."""
        scores = []
        for scorer, total, (z, v) in zip(self.scorers, self._totals, pairs):
            total.add(positions, segment, z, v)
            scores.append(scorer.pooling.score(z, v, torch.ones_like(z)).cpu())
        return torch.stack(scores, dim=1), torch.stack([z.cpu() for z, _ in pairs], dim=1)

    @torch.no_grad()
    def bag_scores(self) -> NDArray[np.float64]:
        """Return the score of the bag by each member, [M], after the first pass."""
        return np.array([float(output_of(scorer, total).score) for scorer, total in zip(self.scorers, self._totals)])

    def bag_score(self) -> Any:
        """Return the score of the bag, after the first pass."""
        return float(np.average(self.bag_scores(), weights=self.weights))

    def average(self, score: Tensor, z: Tensor, *, first: int) -> Averages:
        """Return the contributions of the instances `first`, `first` + 1, ... of the bag, in float64: the second pass.

        `score` and `z` [m, M] are their scores and logits from the first pass.
        """
        z = z.double()
        positions = torch.arange(first, first + len(z)) + self._batch.starts
        weights = torch.stack([total.weights(z_m, positions) for total, z_m in zip(self._totals, z.unbind(1))], dim=1)
        mean = partial(member_mean, self._model, dim=1)
        return Averages(mean(score.double()), self._attention(z), mean(weights), weights)

    def _attention(self, z: Tensor) -> Tensor:
        """Return the logit of the mean weight [m]; if a member's weights are not a softmax, the mean of the logits."""
        sums = [log_sum for total in self._totals if (log_sum := total.log_sum) is not None]
        if len(sums) < z.shape[1] or z.shape[1] == 1:
            return member_mean(self._model, z, dim=1)
        # In log space, because a weight too small for a float still has a logit. With the shift, equal members keep
        # their logits.
        log_sums = torch.tensor(sums, dtype=torch.float64)
        level = member_mean(self._model, log_sums, dim=0)
        if self.weights is None:
            return torch.logsumexp(z - log_sums, dim=1) - math.log(len(sums)) + level
        return torch.logsumexp(z - log_sums + self.weights.log(), dim=1) + level


class ColumnsPass(InstancePass):
    """`InstancePass` for a model with C > 1 score columns; one pass of the encoder gives all columns.

    The columns are the last axis of the results: [m, M, C] and [m, C], and [C] for the bag.
    """

    def __init__(self, model: BagScorer | BagEnsemble, batch: WholeBatch, *, chunk_size: int) -> None:
        self.scorers, self.weights = scorers_of(model), weights_of(model)
        self._batch, self.chunk_size = batch, chunk_size
        columns = range(columns_of(model))
        self._each = [InstancePass(model, batch, column=column, chunk_size=chunk_size) for column in columns]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores of one instance: (M, C)."""
        return len(self.scorers), len(self._each)

    def take(self, positions: Tensor, segment: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return scores and logits [m, M, C] of a chunk, from its logits and values of all columns."""
        parts = []
        for one in self._each:
            poolings = [cast(ColumnPooling, scorer.pooling) for scorer in one.scorers]
            columns = [pooling.own(*pair) for pooling, pair in zip(poolings, pairs)]
            parts.append(one.take(positions, segment, columns))
        score, z = (torch.stack(part, dim=2) for part in zip(*parts))
        return score, z

    def bag_scores(self) -> NDArray[np.float64]:
        """Return the scores of the bag by each member, [M, C], after the first pass."""
        return np.array([one.bag_scores() for one in self._each]).T

    def bag_score(self) -> NDArray[np.float64]:
        """Return the scores of the bag, [C], after the first pass."""
        return np.array([one.bag_score() for one in self._each])

    def average(self, score: Tensor, z: Tensor, *, first: int) -> Averages:
        """Return the same as `InstancePass.average` for scores and logits [m, M, C]."""
        parts = [one.average(score[..., c], z[..., c], first=first) for c, one in enumerate(self._each)]
        return Averages(*(torch.stack(part, dim=-1) for part in zip(*parts)))
