"""Scores of whole bags with some of their instances removed, replaced or added, for many bags at once.

A score depends on a bag only by its statistic (n, l, r), so that no bag is encoded twice: the pairs (z, v) of its
instances are kept, in float64, and parts of a bag are merged again. The contribution of an instance is the score of the
bag minus its score without this instance; its closed form is that of `midam.explain.contributions`.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.evaluate.predict import covariates_of, evaluation, prepared, reader_of
from midam.evaluate.stream import instances_of_each
from midam.functional.logmean import BagStatistic, identity
from midam.nn.ensemble import BagEnsemble, column_of, scorers_of, weights_of
from midam.nn.pooling import MAXIMUM, Pooling
from midam.nn.scorer import BagScorer
from midam.settings import usual_chunk

Scores = NDArray[np.float64]
MOST_NUMBERS = 2**22  # of the pairs of all scorers that are kept at a time
_HEAVY = 0.5  # an instance with more of the weight is left out by merging the others: 1 - weight loses digits


@dataclass(frozen=True)
class _Member:
    """One scorer: its pooling in float64, the pairs of the instances, and the term of the covariates of each bag."""

    pooling: Pooling
    z: Tensor  # [m]
    v: Tensor  # [m, V]
    shift: Tensor | None  # [K]

    def score(self, stat: BagStatistic, bag: Tensor) -> Tensor:
        """Return the scores of bags with these statistics and the covariates of `bag`; NaN for an empty bag."""
        pooling = self.pooling
        if self.shift is None:
            scores = pooling.score(stat.l, stat.r, stat.n)
        else:
            scores = torch.sigmoid(pooling.logit(stat.l, stat.r, stat.n) + self.shift[bag])
        return torch.where(stat.n > 0, scores.double(), torch.nan)


class PooledBags:
    """K whole bags, as the scorers of a model pool them.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call.
    bags : Bags
        All their instances are encoded, a chunk at a time; `numbers_of` says how many numbers are then kept.
    column : int, optional
        Score column, from 0; required if the model has several.
    chunk_size : int, optional
        Instances encoded at a time; default: `midam.settings.usual_chunk`.

    Attributes
    ----------
    segment : Tensor [m], int64
        Bag of each instance, from 0.
    sizes : Tensor [K], int64
        Number of instances of each bag.

    Examples
    --------
    The third instance raises the score of the first bag from 0.5 to 0.95:

    >>> from midam.nn.pooling import MaxPooling
    >>> model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    >>> _ = torch.nn.init.ones_(model.pooling.scorer.weight), torch.nn.init.zeros_(model.pooling.scorer.bias)
    >>> parts = [np.array([[-2.0], [0.0], [3.0]], np.float32), np.array([[1.0]], np.float32)]
    >>> pooled = PooledBags(model, Bags.from_list(parts))
    >>> pooled.scores().round(2), pooled.contributions().round(2)
    (array([0.95, 0.73]), array([0.  , 0.  , 0.45, 0.73], dtype=float32))
    """

    def __init__(
        self,
        model: BagScorer | BagEnsemble,
        bags: Bags,
        *,
        column: int | None = None,
        chunk_size: int | None = None,
    ) -> None:
        bags = prepared(model, bags)
        reader, self._chunk = reader_of(model, bags), chunk_size or usual_chunk(bags.instance_shape)
        self._device = reader.device
        self.sizes = torch.from_numpy(bags.sizes)
        self.segment = torch.repeat_interleave(torch.arange(len(bags)), self.sizes)
        known, terms = covariates_of(model, bags), [scorer.covariates for scorer in scorers_of(model)]
        self._model, self.weights = column_of(model, column), weights_of(model)
        self._scorers = scorers_of(self._model)
        poolings = [copy.deepcopy(scorer.pooling).cpu().double().eval() for scorer in self._scorers]
        with evaluation(model):
            shifts = [None if term is None else term(known).double().cpu() for term in terms]
            pairs = self._pairs(WholeBatch.unlabeled(reader, torch.arange(len(bags))))
        shifts = [x if x is None or column is None or x.ndim == 1 else x[:, column] for x in shifts]
        self.members = [_Member(pooling, *pair, shift) for pooling, pair, shift in zip(poolings, pairs, shifts)]

    def _pairs(self, batch: WholeBatch) -> list[tuple[Tensor, Tensor]]:
        parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self._scorers]
        with closing(batch.read(self._chunk)) as chunks:
            for _, _, x in chunks:
                self._encode(x, parts)
        return [(torch.cat([z for z, _ in part]), torch.cat([v for _, v in part])) for part in parts]

    def _encode(self, x: Tensor, parts: Sequence[list[tuple[Tensor, Tensor]]]) -> None:
        for part, (z, v) in zip(parts, instances_of_each(self._scorers, x)):
            part.append((z.double().cpu(), v.double().cpu()))

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return the same bags with the instances that the mask `kept` [m] selects; a bag may become empty."""
        other, mask = copy.copy(self), torch.from_numpy(kept)
        other.segment = self.segment[mask]
        other.sizes = torch.bincount(other.segment, minlength=len(self.sizes))
        other.members = [replace(one, z=one.z[mask], v=one.v[mask]) for one in self.members]
        return other

    @torch.no_grad()
    def scores(self) -> Scores:
        """Return the score of each bag, [K]; NaN for an empty bag."""
        bags = torch.arange(len(self.sizes))
        return self._mean([one.score(self._statistic(one), bags) for one in self.members])

    @property
    def slow(self) -> bool:
        """Whether contributions have no closed form for some scorer, such as trees."""
        return any(not one.pooling.statistic.is_mean and one.pooling.statistic is not MAXIMUM for one in self.members)

    @torch.no_grad()
    def contributions(self, among: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """Return the contribution of each instance [m]; that of the only instance of a bag is the score.

        With a mask `among` [m], those of other instances may be NaN.
        """
        mask = None if among is None else torch.from_numpy(among)
        # Rounded, so that equal instances rank in the order of the bag on every processor.
        return self._mean([self._contributions(one, mask) for one in self.members]).astype(np.float32)

    @torch.no_grad()
    def weights_of_instances(self) -> Scores:
        """Return the weight of each instance in the pooling of its bag [m], the mean over scorers; 1/n without one."""
        parts = []
        for one in self.members:
            whole = self._statistic(one)
            if one.pooling.statistic is MAXIMUM:
                parts.append(self._heaviest(one.z, whole.l[self.segment]).double())
            else:
                parts.append(_weights(one, whole, self.segment))
        return self._mean(parts)

    def compose(self, parts: Sequence[Sequence[int]]) -> Self:
        """Return bags of which each holds the instances of several bags, with the covariates of the first of them.

        `parts` are the positions of these bags, for each new bag; a bag that is named twice counts twice.
        """
        ends = torch.cumsum(self.sizes, 0).tolist()
        ranges = [torch.arange(end - size, end) for end, size in zip(ends, self.sizes.tolist())]
        rows = torch.cat([ranges[bag] for bags in parts for bag in bags])
        first, other = torch.tensor([bags[0] for bags in parts]), copy.copy(self)
        other.sizes = torch.tensor([sum(len(ranges[bag]) for bag in bags) for bags in parts])
        other.segment = torch.repeat_interleave(torch.arange(len(parts)), other.sizes)
        other.members = [
            replace(one, z=one.z[rows], v=one.v[rows], shift=None if one.shift is None else one.shift[first])
            for one in self.members
        ]
        return other

    @torch.no_grad()
    def alone(self) -> Scores:
        """Return the score of a bag with each instance alone, [m]."""
        scores = []
        for one in self.members:
            singles = one.pooling.statistic.reduce_segments(one.z, one.v, torch.arange(len(one.z)), num_bags=len(one.z))
            scores.append(one.score(singles, self.segment))
        return self._mean(scores)

    @torch.no_grad()
    def with_instance(self, bag: NDArray[np.int64], x: Tensor) -> Scores:
        """Return the scores of bags to which one instance is added, [T].

        Each of the bags at the positions `bag` (int64 [T]) gets one of the instances x [T, ...], which are encoded
        here.
        """
        parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in self._scorers]
        with evaluation(self._model):
            for chunk in torch.split(x.to(self._device), self._chunk):
                self._encode(chunk, parts)
        place, scores = torch.from_numpy(bag), []
        for one, pairs in zip(self.members, parts):
            z, v = torch.cat([z for z, _ in pairs]), torch.cat([v for _, v in pairs])
            singles = one.pooling.statistic.reduce_segments(z, v, torch.arange(len(z)), num_bags=len(z))
            merged = one.pooling.statistic.merge(_take(self._statistic(one), place), singles)
            scores.append(one.score(merged, place))
        return self._mean(scores)

    def _mean(self, by_member: Sequence[Tensor]) -> Scores:
        return np.average(np.stack([scores.numpy() for scores in by_member]), axis=0, weights=self.weights)

    def _statistic(self, one: _Member, kept: Tensor | None = None) -> BagStatistic:
        """Return the statistic of each bag, or of its instances `kept` (bool [m])."""
        z, v, segment, count = one.z, one.v, self.segment, len(self.sizes)
        if kept is not None:
            z, v, segment = z[kept], v[kept], segment[kept]
        if not len(z):
            return identity(count, v.shape[1], like=z)
        return one.pooling.statistic.reduce_segments(z, v, segment, num_bags=count)

    def _contributions(self, one: _Member, among: Tensor | None) -> Tensor:
        """Return the contributions [m] by one scorer."""
        segment, whole = self.segment, self._statistic(one)
        score = one.score(whole, torch.arange(len(self.sizes)))[segment]
        if one.pooling.statistic.is_mean:
            weight = _weights(one, whole, segment)
            added = score - one.score(_without(_take(whole, segment), weight, one.v), segment)
            heavy = weight > _HEAVY
        elif one.pooling.statistic is MAXIMUM:
            added, heavy = torch.zeros_like(score), self._heaviest(one.z, whole.l[segment])
        else:
            others, heavy = torch.full_like(score, torch.nan), torch.zeros_like(score, dtype=torch.bool)
            among = ~heavy if among is None else among
            others[among] = one.score(_take(self._others(one), among), segment[among])
            added = score - others
        if heavy.any():
            rest = self._statistic(one, ~heavy)
            others = one.score(rest, torch.arange(len(self.sizes)))[segment]
            added = torch.where(heavy, score - others, added)
        return torch.where(self.sizes[segment] == 1, score, added)

    def _heaviest(self, z: Tensor, top: Tensor) -> Tensor:
        """Return whether an instance is the first of its bag that attains the maximum, bool [m]."""
        places = torch.arange(len(z))
        first = places.new_full((len(self.sizes),), len(z))
        first = first.scatter_reduce(0, self.segment, torch.where(z == top, places, len(z)), "amin")
        return first[self.segment] == places

    def _others(self, one: _Member) -> BagStatistic:
        """Return the statistic of the other instances of the bag of each instance [m], without a closed form."""
        merge, reduce = one.pooling.statistic.merge, one.pooling.statistic.reduce_segments
        count, places = len(one.z), torch.arange(len(one.z))
        singles = reduce(one.z, one.v, places, num_bags=count)
        none = identity(1, one.v.shape[1], like=one.z)
        sides = []
        for order in (places, places.flip(0)):
            segment = self.segment[order]
            first = torch.cat([torch.ones(1, dtype=torch.bool), segment[1:] != segment[:-1]])
            # The instance before each one; there is none before the first of a bag.
            ahead = _take(singles, order.roll(1))
            ahead = BagStatistic(*(torch.where(_like(first, x), e, x) for x, e in zip(ahead, none)))
            sides.append(_take(_running(ahead, segment, one.pooling), order))
        return merge(*sides)


def instance_contributions(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    *,
    columns: NDArray[np.int64] | None = None,
    chunk_size: int | None = None,
) -> NDArray[np.float32]:
    """Return the contribution of each instance to the score of its bag, bag after bag, [num_instances].

    Parameters
    ----------
    model, bags : BagScorer or BagEnsemble, Bags
        As in `midam.evaluate.predict.predict`.
    columns : array of int, shape [N], optional
        Score column of each bag, from 0; required if the model has several.
    chunk_size : int, optional
        Instances encoded at a time, >= 1; default: `midam.settings.usual_chunk`.

    Examples
    --------
    >>> from midam.nn.pooling import MaxPooling
    >>> model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    >>> _ = torch.nn.init.ones_(model.pooling.scorer.weight), torch.nn.init.zeros_(model.pooling.scorer.bias)
    >>> bags = Bags.from_list([np.array([[-2.0], [0.0], [3.0]], np.float32), np.zeros((1, 1), np.float32)])
    >>> instance_contributions(model, bags).round(2).tolist()
    [0.0, 0.0, 0.44999998807907104, 0.5]
    """
    added, ends = np.empty(bags.num_instances, np.float32), np.cumsum(bags.sizes)
    for column in [None] if columns is None else np.unique(columns).tolist():
        index = np.arange(len(bags)) if columns is None else np.flatnonzero(columns == column)
        for part in pooled_groups(model, bags.sizes[index]):
            some = index[part]
            rows = np.concatenate([np.arange(ends[i] - bags.sizes[i], ends[i]) for i in some])
            added[rows] = PooledBags(model, bags.subset(some), column=column, chunk_size=chunk_size).contributions()
    return added


def numbers_of(model: BagScorer | BagEnsemble) -> int:
    """Return how many numbers `PooledBags` keeps for each instance."""
    return sum(scorer.pooling.value_size + 1 for scorer in scorers_of(model))


def pooled_groups(model: BagScorer | BagEnsemble, sizes: NDArray[np.int64]) -> Iterator[range]:
    """Yield the positions of bags that `PooledBags` may keep together: at most 2^22 numbers, or one larger bag.

    Examples
    --------
    >>> from midam.nn.pooling import MeanPooling
    >>> model = BagScorer(torch.nn.Identity(), MeanPooling(4))
    >>> list(pooled_groups(model, np.array([10, 2**21, 20, 30])))
    [range(0, 1), range(1, 2), range(2, 4)]
    """
    most, low, held = MOST_NUMBERS // numbers_of(model), 0, 0
    for i, size in enumerate(sizes.tolist()):
        if i > low and held + size > most:
            yield range(low, i)
            low, held = i, 0
        held += size
    yield range(low, len(sizes))


def _take(stat: BagStatistic, index: Tensor) -> BagStatistic:
    return BagStatistic(*(x[index] for x in stat))


def _like(mask: Tensor, x: Tensor) -> Tensor:
    return mask if x.ndim == 1 else mask.unsqueeze(1)


def _weights(one: _Member, whole: BagStatistic, segment: Tensor) -> Tensor:
    """Return the share of each instance [m] in the weight of its bag."""
    return torch.exp(one.z - whole.l[segment] - torch.log(whole.n[segment]))


def _without(whole: BagStatistic, weight: Tensor, v: Tensor) -> BagStatistic:
    """Return the statistic of bags [m] without an instance of these weights [m] and values [m, V] each."""
    rest, n = (1 - weight).clamp(min=1 - _HEAVY), whole.n
    others = (n - 1).clamp(min=1.0)
    return BagStatistic(
        n - 1, whole.l + torch.log(rest) + torch.log(n / others), (whole.r - weight[:, None] * v) / rest[:, None]
    )


def _running(stat: BagStatistic, segment: Tensor, pooling: Pooling) -> BagStatistic:
    """Return each row merged with all rows of its segment before it, in about log2(rows) merges."""
    step, merge = 1, pooling.statistic.merge
    while step < len(segment) and bool((segment[step:] == segment[:-step]).any()):
        same = segment[step:] == segment[:-step]
        merged = merge(BagStatistic(*(x[:-step] for x in stat)), BagStatistic(*(x[step:] for x in stat)))
        parts: list[Any] = [torch.where(_like(same, x), y, x[step:]) for x, y in zip(stat, merged)]
        stat = BagStatistic(*(torch.cat([x[:step], y]) for x, y in zip(stat, parts)))
        step *= 2
    return stat
