"""Contributions of instances: the score of a bag minus its score without the instance.

They need no new pass for each instance, because the statistic (n, l, r) of a bag without instance i of weight
w has a closed form:

    n' = n - 1,    l' = log(n exp(l) (1 - w) / n'),    r' = (r - w v_i) / (1 - w)

The score is f2 of this statistic. In two cases, the statistic of the other instances is merged again instead: without
the instance that attains a maximum, and without an instance of more than half the weight, where 1 - w loses digits. A
summary of a bag (minima, for instance) has no closed form: its statistic without an instance merges the statistics of
the instances before and after it.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.evaluate.stream import InstancePass
from midam.functional.logmean import BagStatistic, identity
from midam.nn.ensemble import BagEnsemble
from midam.nn.pooling import LOG_MEAN, MAXIMUM, Pooling
from midam.nn.scorer import BagScorer

_ROWS_AT_A_TIME = 16384
_NUMBERS_AT_A_TIME = 2**20  # limit of wide values
_HEAVY = 0.5


class InstanceSpool(InstancePass):
    """A pass through a bag's instances that keeps their logits and values in a temporary file.

    `seen` holds the scores and logits that the first pass has yielded, and `poolings` the scorers' poolings in float64,
    because one of 100 000 instances changes the score by less than the resolution of float32. `read` leaves out the
    instances at the positions `hidden`, as if the bag did not hold them.
    """

    def __init__(self, model: BagScorer | BagEnsemble, batch: WholeBatch, *, chunk_size: int) -> None:
        super().__init__(model, batch, chunk_size=chunk_size)
        self.poolings = [copy.deepcopy(scorer.pooling).cpu().double().eval() for scorer in self.scorers]
        self.seen: list[tuple[Tensor, Tensor]] = []
        self.hidden: NDArray[np.int64] = np.empty(0, np.int64)
        self._widths = [scorer.pooling.value_size for scorer in self.scorers]
        self._dtype: np.dtype[np.floating[Any]] = np.dtype(np.float32)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, positions: Tensor, segment: Tensor, pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return scores and logits of a chunk, and keep them and its pairs."""
        columns = [x for z, v in pairs for x in (z.unsqueeze(-1), v)]
        # Trees may score float64 and its rounding differently; for other scorers, float32 holds all digits.
        self._dtype = np.dtype(np.float64 if any(x.dtype == torch.float64 for x in columns) else np.float32)
        self._file.write(torch.cat([x.cpu() for x in columns], dim=1).numpy().astype(self._dtype).tobytes())
        self.seen.append(super().take(positions, segment, pairs))
        return self.seen[-1]

    def read(self) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
        """Yield chunks: the position of the first instance, and the pairs of `take` in float64."""
        self._file.seek(0)
        ends = np.cumsum([1 + size for size in self._widths]).tolist()
        width, low, first = ends[-1], 0, 0
        wide = self._dtype == np.float64
        count = max(1, min(_ROWS_AT_A_TIME, _NUMBERS_AT_A_TIME // width)) if wide else _ROWS_AT_A_TIME
        while data := self._file.read(self._dtype.itemsize * width * count):
            rows = torch.from_numpy(np.frombuffer(data, dtype=self._dtype).reshape(-1, width).astype(np.float64))
            if len(self.hidden):
                kept = ~np.isin(np.arange(first, first + len(rows)), self.hidden)
                first, rows = first + len(rows), rows[torch.from_numpy(kept)]
            yield low, [(rows[:, end - size - 1], rows[:, end - size : end]) for end, size in zip(ends, self._widths)]
            low += len(rows)


def contributions(spool: InstanceSpool) -> NDArray[np.float32]:
    """Return the contribution of each instance to the score of the bag, [n], averaged over scorers.

    Contributions do not sum to the score. The contribution of a single instance is the score.
    """
    # Rounded, so that equal instances rank in the order of the bag on every processor.
    return np.asarray(np.average(member_contributions(spool), axis=0, weights=spool.weights), dtype=np.float32)


def member_contributions(spool: InstanceSpool) -> NDArray[np.float64]:
    """Return the contribution of each instance to the score of the bag by each scorer, [M, n]."""
    return np.array([_of_scorer(spool, member, pooling) for member, pooling in enumerate(spool.poolings)])


@torch.no_grad()
def _of_scorer(spool: InstanceSpool, member: int, exact: Pooling) -> NDArray[np.float64]:
    whole = _statistic(spool, member, exact)
    score = _score(exact, whole)
    if float(whole.n) == 1:
        return score.numpy()
    if exact.statistic not in (LOG_MEAN, MAXIMUM):
        statistics = _left_out(spool, member, exact)
        return torch.cat([score - _score(exact, stat) for stat in statistics]).numpy()
    parts, weights = [], []
    for _, pairs in spool.read():
        z, v = pairs[member]
        if exact.statistic.trackable:
            weight = torch.exp(z - whole.l - torch.log(whole.n))
            weights.append(weight)
            parts.append(score - _score(exact, _without(whole, weight, v)))
        else:
            weights.append((z == whole.l).double())
            parts.append(torch.zeros_like(z))
    added, weight = torch.cat(parts), torch.cat(weights)
    heavy = int(weight.argmax())
    if weight[heavy] > _HEAVY:
        added[heavy] = score - _score(exact, _statistic(spool, member, exact, without=heavy))
    return added.numpy()


@torch.no_grad()
def exchanged(spool: InstanceSpool, instance: int, others: InstanceSpool, part: slice) -> NDArray[np.float64]:
    """Return the loss of the bag score when an instance is replaced by each instance in `part` of another spool."""
    whole = added_scores(spool, None)
    hidden, spool.hidden = spool.hidden, np.append(spool.hidden, instance)
    losses: NDArray[np.float64] = whole - added_scores(spool, others)[part]
    spool.hidden = hidden
    return losses


@torch.no_grad()
def added_scores(spool: InstanceSpool, others: InstanceSpool | None) -> NDArray[np.float64]:
    """Return the score of the bag with each instance of another spool in addition, [T]; without others its score [1].

    It is NaN for an empty bag.
    """
    scores = []
    for member, exact in enumerate(spool.poolings):
        stat = _statistic(spool, member, exact)
        if others is not None:
            z, v = (torch.cat(columns) for columns in zip(*(pairs[member] for _, pairs in others.read())))
            singles = exact.statistic.reduce_segments(z, v, torch.arange(len(z)), num_bags=len(z))
            stat = exact.statistic.merge(BagStatistic(*(x.expand(len(z), *x.shape[1:]) for x in stat)), singles)
        scores.append(torch.where(stat.n > 0, _score(exact, stat), torch.nan).numpy())
    return np.average(scores, axis=0, weights=spool.weights)


def _statistic(spool: InstanceSpool, member: int, pooling: Pooling, *, without: int | None = None) -> BagStatistic:
    """Return the statistic of the bag, or of the bag without the instance at position `without`."""
    merged = identity(1, pooling.value_size, like=torch.zeros((), dtype=torch.float64))
    for low, pairs in spool.read():
        z, v = pairs[member]
        if without is not None and low <= without < low + len(z):
            mask = torch.arange(low, low + len(z)) != without
            z, v = z[mask], v[mask]
        if len(z):
            segment = torch.zeros(len(z), dtype=torch.int64)
            merged = pooling.statistic.merge(merged, pooling.statistic.reduce_segments(z, v, segment, num_bags=1))
    return merged


def _left_out(spool: InstanceSpool, member: int, pooling: Pooling) -> Iterator[BagStatistic]:
    """Yield statistics of the bag without each instance, in chunks, by merging the instances before and after it."""
    merge, reduce = pooling.statistic.merge, pooling.statistic.reduce_segments
    none = identity(1, pooling.value_size, like=torch.zeros((), dtype=torch.float64))
    read = partial(map, lambda part: part[1][member])
    parts = [reduce(z, v, torch.zeros(len(z), dtype=torch.int64), num_bags=1) for z, v in read(spool.read())]
    before = accumulate([none, *parts], merge)
    behind = [*accumulate([none, *parts[:0:-1]], merge)][::-1]
    for (z, v), first, last in zip(read(spool.read()), before, behind):
        singles = reduce(z, v, torch.arange(len(z)), num_bags=len(z))
        ahead = BagStatistic(*(torch.cat([a, x[:-1]]) for a, x in zip(first, singles)))
        after = BagStatistic(*(torch.cat([x[1:], b]).flip(0) for x, b in zip(singles, last)))
        yield merge(_running(ahead, merge), BagStatistic(*(x.flip(0) for x in _running(after, merge))))


def _running(stat: BagStatistic, merge: Callable[[BagStatistic, BagStatistic], BagStatistic]) -> BagStatistic:
    """Return each row merged with all rows before it, in about log2(rows) merges."""
    step = 1
    while step < len(stat.n):
        merged = merge(BagStatistic(*(x[:-step] for x in stat)), BagStatistic(*(x[step:] for x in stat)))
        stat = BagStatistic(*(torch.cat([x[:step], y]) for x, y in zip(stat, merged)))
        step *= 2
    return stat


def _without(whole: BagStatistic, weight: torch.Tensor, v: torch.Tensor) -> BagStatistic:
    """Return the statistic of a bag without each of m instances with these weights [m] and values [m, V]."""
    rest = (1 - weight).clamp(min=1 - _HEAVY)
    level = whole.l + torch.log(rest) + torch.log(whole.n / (whole.n - 1))
    return BagStatistic((whole.n - 1).expand(len(v)), level, (whole.r - weight[:, None] * v) / rest[:, None])


def _score(pooling: Pooling, stat: BagStatistic) -> torch.Tensor:
    return pooling.score(stat.l, stat.r, stat.n).double()
