"""Scores of instances, and of bags with some of their instances removed, replaced or added, for many bags at once.

A score depends on a bag only by its statistic (n, l, r), so that no bag is encoded twice: the pairs (z, v) of its
instances are kept, and parts of a bag are merged again, in float64, because one of 100 000 instances changes the score
by less than the resolution of float32.

The contribution of an instance is the score of the bag minus its score without this instance. For means it has the
closed form of `midam.functional.logmean.without`. In two cases, the statistic of the other instances is merged again
instead: without the instance that attains a maximum, and without one of more than half the weight. A summary of a bag
(minima, for instance) has no closed form: the statistics of the instances before and after each one are merged.
"""

import copy
import functools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.evaluate.predict import covariates_of, cpu_threads, evaluation, instances_of_each, prepared, reader_of
from midam.files import allocate
from midam.functional.logmean import HEAVY, BagStatistic, identity, without
from midam.nn.pooling import MAXIMUM, ColumnPooling, Pooling
from midam.nn.scorer import BagEnsemble, BagOutput, BagScorer, column_of, scorers_of, weights_of
from midam.settings import usual_chunk

Scores = NDArray[np.float64]
Pairs = tuple[Tensor, Tensor]  # logits z [m] and values v [m, V] of instances
Weigh = Callable[[slice], Tensor]  # of positions: their shares in the weights of their bags
MOST_NUMBERS = 2**22  # of the pairs of all scorers that are kept at a time
_LARGE = 8 * MOST_NUMBERS  # of the pairs of all scorers that are kept in files


@dataclass(frozen=True)
class InstanceScores:
    """Scores and weights of the instances of one bag.

    For an ensemble, `score` is the mean of the members' scores, `weight` the mean of their weights, and `attention` the
    logit whose softmax is this weight (with max pooling: the mean of their logits), all weighted by the weights of the
    members in the ensemble. These averages do not pool to the score of the bag; the arrays of each member pool to the
    score of the member, and the score of the bag is the mean over members.

    Attributes
    ----------
    score, attention, weight : float32 array [n]
        Score in [0, 1] of a bag with this instance alone; logit z of its weight, before the softmax; its weight in the
        bag, softmax(z), which sums to 1.
    members : tuple of InstanceScores
        The same for each member of an ensemble; empty for a single scorer.

    Examples
    --------
    >>> from midam.nn import MLP, AttentionPooling
    >>> model = BagScorer(MLP(4), AttentionPooling(4))
    >>> bags = Bags.from_list([np.ones((3, 4), np.float32)])
    >>> instances = instance_scores(model, bags, 0)
    >>> instances.score.shape, [round(float(weight), 2) for weight in instances.weight]
    ((3,), [0.33, 0.33, 0.33])
    """

    score: NDArray[np.float32]
    attention: NDArray[np.float32]
    weight: NDArray[np.float32]
    members: tuple["InstanceScores", ...] = ()

    @classmethod
    def joined(cls, parts: Sequence["InstanceScores"]) -> "InstanceScores":
        """Return the scores and weights of the instances of all parts, in order."""
        score, attention, weight = (np.concatenate(x) for x in zip(*((x.score, x.attention, x.weight) for x in parts)))
        members = tuple(cls.joined(of_member) for of_member in zip(*(x.members for x in parts)))
        return cls(score, attention, weight, members)


@dataclass(frozen=True)
class Member:
    """One scorer of bags: its pooling in float64, and the term of the covariates of each bag, [K], if it has one."""

    pooling: Pooling
    shift: Tensor | None = None

    def score(self, stat: BagStatistic, bag: Tensor) -> Tensor:
        """Return the scores of bags with these statistics and the covariates of `bag`; NaN for an empty bag."""
        pooling = self.pooling
        if self.shift is None:
            scores = pooling.score(stat.l, stat.r, stat.n)
        else:
            scores = torch.sigmoid(pooling.logit(stat.l, stat.r, stat.n) + self.shift[bag])
        return torch.where(stat.n > 0, scores.double(), torch.nan)

    def singles(self, z: Tensor, v: Tensor) -> BagStatistic:
        """Return the statistics of bags of one instance each."""
        alone: BagStatistic = self.pooling.statistic.reduce_segments(z, v, torch.arange(len(z)), num_bags=len(z))
        return alone


@contextmanager
def _without_graph() -> Iterator[None]:
    """Build no graph, and take one thread for the small operations on pairs."""
    with torch.no_grad(), cpu_threads(1):
        yield


class PooledBags:
    """K whole bags, as the M scorers of a model pool them; their instances can be removed.

    Their pairs are kept: in memory, or those of a large bag in a temporary file.

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
    covariates : Tensor [K, P], optional
        The result of `midam.evaluate.predict.covariates_of` for `bags`; computed by default.

    Attributes
    ----------
    members : list of Member
        The scorers.
    weights : Tensor [M] or None
        Weights of the scorers in their mean.
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
        covariates: Tensor | None = None,
    ) -> None:
        bags = prepared(model, bags)
        reader = reader_of(model, bags)
        self.chunk_size = chunk_size or usual_chunk(bags.instance_shape)
        self.sizes = torch.from_numpy(bags.sizes)
        self.segment = torch.repeat_interleave(torch.arange(len(bags)), self.sizes)
        covariates = covariates_of(model, bags) if covariates is None else covariates
        scorers, self.weights = scorers_of(model), weights_of(model)
        column_of(model, column)  # refuses an unknown one
        batch = WholeBatch.unlabeled(reader, torch.arange(len(bags)))
        self._pairs: list[Pairs] = []
        self._on_disk = False
        with evaluation(model), closing(batch.read(self.chunk_size)) as chunks:
            terms = [scorer.covariates for scorer in scorers]
            shifts = [None if term is None else term(covariates).double().cpu() for term in terms]
            low, count = 0, len(self.segment)
            for _, _, x in chunks:
                pairs = [*instances_of_each(scorers, x)]
                if not self._pairs:
                    numbers = sum(math.prod(x.shape[1:]) for pair in pairs for x in pair)
                    self._on_disk = count * numbers > _LARGE
                    self._pairs = [(self._empty(z, count), self._empty(v, count)) for z, v in pairs]
                for kept, pair in zip(self._pairs, pairs):
                    for rows, values in zip(kept, pair):
                        rows[low : low + len(x)] = values
                low += len(x)
        self._model, self._shifts = model, shifts
        self._set_column(column)

    def _set_column(self, column: int | None) -> None:
        chosen = column_of(self._model, column)
        self._apart, self._scorers = chosen is not self._model, scorers_of(chosen)
        shifts = (x if x is None or column is None or x.ndim == 1 else x[:, column] for x in self._shifts)
        poolings = (copy.deepcopy(scorer.pooling).cpu().double().eval() for scorer in self._scorers)
        self.members = [*map(Member, poolings, shifts)]

    def of_column(self, column: int) -> Self:
        """Return the same bags as another score column of the model pools them; nothing is encoded again."""
        other = copy.copy(self)
        other._set_column(column)
        return other

    def blocks(self, member: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield, in order, the positions of some instances and their pairs by a scorer, in float64."""
        count = max(1, MOST_NUMBERS // (1 + self.members[member].pooling.value_size))
        for low in range(0, max(len(self.segment), 1), count):
            part = slice(low, low + count)
            yield part, *self._of(member, part)

    def _of(self, member: int, part: slice) -> Pairs:
        (z, v), pooling = (x[part] for x in self._pairs[member]), self.members[member].pooling
        if self._apart and isinstance(pooling, ColumnPooling):  # else they are those of the column alone
            z, v = pooling.own(z, v)
        return z.double(), v.double()

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return the same bags with the instances that the mask `kept` [m] selects; a bag may become empty."""
        rows = torch.from_numpy(np.flatnonzero(kept))
        segment = self.segment[rows]
        return self._of_rows(rows, segment, torch.bincount(segment, minlength=len(self.sizes)))

    @property
    def pooling(self) -> str:
        """Names of the poolings of the scorers."""
        return " + ".join(dict.fromkeys(one.pooling.name for one in self.members))

    def scores(self) -> Scores:
        """Return the score of each bag, [K]; NaN for an empty bag."""
        return self._mean(self.member_scores())

    @_without_graph()
    def member_scores(self) -> list[Tensor]:
        """Return the scores of the bags by each scorer, [M] tensors [K]."""
        bags = torch.arange(len(self.sizes))
        return [one.score(self._statistic(at), bags) for at, one in enumerate(self.members)]

    def predicted(self) -> Scores:
        """Return the score of each bag, [K], as `midam.evaluate.predict.predict` rounds it."""
        return self._mean(self.member_predictions())

    @_without_graph()
    def member_predictions(self) -> list[Tensor]:
        """Return `predicted` by each scorer, [M] tensors [K]."""
        outputs = []
        for at, (one, scorer) in enumerate(zip(self.members, self._scorers)):
            like = next(self._model.parameters()).new_zeros((), dtype=self._pairs[at][0].dtype)
            n, level, r = (x.to(like) for x in self._statistic(at))
            shift = None if one.shift is None else one.shift.to(like)
            outputs.append(BagOutput(level, r, n, scorer.pooling, shift).score.double().cpu())
        return outputs

    def instances(self) -> InstanceScores:
        """Return scores and weights of all instances, bag after bag."""
        return InstanceScores.joined([scores for _, scores in self.instance_chunks()])

    def instance_chunks(self) -> Iterator[tuple[slice, InstanceScores]]:
        """Yield `instances` a chunk at a time, in order, with their positions; at least one chunk."""
        with _without_graph():
            wholes = [self._statistic(at) for at in range(len(self.members))]
            weighing = [self._weighing(at, whole) for at, whole in enumerate(wholes)]
        for low in range(0, max(len(self.segment), 1), self.chunk_size):
            part = slice(low, min(low + self.chunk_size, len(self.segment)))
            with _without_graph():
                scores = self._instances(part, wholes, weighing)
            yield part, scores

    def _instances(self, part: slice, wholes: Sequence[BagStatistic], weighing: Sequence[Weigh]) -> InstanceScores:
        pairs, segment = [self._of(at, part) for at in range(len(self.members))], self.segment[part]
        scores = [one.score(one.singles(*pair), segment) for one, pair in zip(self.members, pairs)]
        logits = [z for z, _ in pairs]
        weights = [weigh(part) for weigh in weighing]
        members = tuple(_rounded(*arrays) for arrays in zip(scores, logits, weights))
        if len(members) == 1:
            return members[0]
        attention = self._mean(logits)
        if all(one.pooling.statistic is not MAXIMUM for one in self.members):
            # The logit of the mean weight: in log space, because a weight too small for a float still has a logit.
            # With the shift, equal members keep their logits.
            sums = [(whole.l + torch.log(whole.n))[segment] for whole in wholes]
            shares = np.full(len(members), 1 / len(members)) if self.weights is None else self.weights.numpy()
            apart = np.stack([(z - total).numpy() for z, total in zip(logits, sums)])
            attention = self._mean(sums) + scipy.special.logsumexp(apart, axis=0, b=shares[:, None])
        return _rounded(self._mean(scores), attention, self._mean(weights), members=members)

    @_without_graph()
    def weights_of_instances(self) -> Scores:
        """Return the weight of each instance in the pooling of its bag [m], the mean over scorers; 1/n without one."""
        return self._mean([self._weights(at, self._statistic(at)) for at in range(len(self.members))])

    def contributions(self, among: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """Return the contribution of each instance [m]; that of the only instance of a bag is the score.

        With a mask `among` [m], those of other instances may be NaN: where there is no closed form, as for trees.
        """
        # Rounded, so that equal instances rank in the order of the bag on every processor.
        return self._mean(self.member_contributions(among)).astype(np.float32)

    @_without_graph()
    def member_contributions(self, among: NDArray[np.bool_] | None = None) -> list[Tensor]:
        """Return the contributions of each instance to the scores of its bag by each scorer, [M] tensors [m]."""
        mask = torch.ones_like(self.segment, dtype=torch.bool) if among is None else torch.from_numpy(among)
        return [self._contributions(at, mask) for at in range(len(self.members))]

    @torch.no_grad()
    def with_instance(self, bag: NDArray[np.int64], x: Tensor) -> Scores:
        """Return the scores of bags to which one instance is added, [T].

        Each of the bags at the positions `bag` (int64 [T]) gets one of the instances x [T, ...], which are encoded
        here.
        """
        scorers, place, scores = self._scorers, torch.from_numpy(bag), []
        with evaluation(self._model):
            chunks = torch.split(x.to(next(self._model.parameters()).device), self.chunk_size)
            encoded = zip(*[[*instances_of_each(scorers, chunk)] for chunk in chunks])
            pairs = [[torch.cat(part).double().cpu() for part in zip(*by_chunk)] for by_chunk in encoded]
        with cpu_threads(1):
            for at, (one, pair) in enumerate(zip(self.members, pairs)):
                merged = one.pooling.statistic.merge(_take(self._statistic(at), place), one.singles(*pair))
                scores.append(one.score(merged, place))
        return self._mean(scores)

    def _mean(self, by_member: Sequence[Tensor]) -> Scores:
        return np.average(np.stack([scores.numpy() for scores in by_member]), axis=0, weights=self.weights)

    def _parts(self, at: int, kept: Tensor | None = None) -> Iterator[BagStatistic]:
        """Yield the statistic of each bag in each block, or of its instances `kept` (bool [m])."""
        pooling, count = self.members[at].pooling, len(self.sizes)
        for part, z, v in self.blocks(at):
            rows: Any = slice(None) if kept is None else kept[part]
            segment = self.segment[part][rows]
            if len(segment):
                yield pooling.statistic.reduce_segments(z[rows], v[rows], segment, num_bags=count)
            else:
                yield self._none(at)

    def _none(self, at: int) -> BagStatistic:
        """Return the statistic of K empty bags."""
        like = torch.zeros((), dtype=torch.float64)
        return identity(len(self.sizes), self.members[at].pooling.value_size, like=like)

    def _statistic(self, at: int, kept: Tensor | None = None) -> BagStatistic:
        """Return the statistic of each bag, or of its instances `kept` (bool [m])."""
        return functools.reduce(self.members[at].pooling.statistic.merge, self._parts(at, kept))

    def _weights(self, at: int, whole: BagStatistic) -> Tensor:
        """Return the share of each instance [m] in the weight of its bag."""
        weigh = self._weighing(at, whole)
        return torch.cat([weigh(part) for part, _, _ in self.blocks(at)])

    def _weighing(self, at: int, whole: BagStatistic) -> Weigh:
        """Return what gives the share of some instances in the weight of their bag; of a maximum, the first has all."""
        if self.members[at].pooling.statistic is not MAXIMUM:
            level = whole.l + torch.log(whole.n)
            return lambda part: torch.exp(self._of(at, part)[0] - level[self.segment[part]])
        places = torch.arange(len(self.segment))
        first = torch.full((len(self.sizes),), len(places))
        for part, z, _ in self.blocks(at):
            attains = z == whole.l[self.segment[part]]
            first.scatter_reduce_(0, self.segment[part], torch.where(attains, places[part], len(places)), "amin")
        return lambda part: (first[self.segment[part]] == places[part]).double()

    def _contributions(self, at: int, among: Tensor) -> Tensor:
        """Return the contributions [m] by one scorer; without a closed form, NaN for instances not `among`."""
        one, segment, bags = self.members[at], self.segment, torch.arange(len(self.sizes))
        whole = self._statistic(at)
        score = one.score(whole, bags)[segment]
        if _is_closed(one.pooling):
            weight, others = self._weights(at, whole), score.clone()
            if one.pooling.statistic.is_mean:
                for part, _, v in self.blocks(at):
                    rest = without(_take(whole, segment[part]), weight[part], v)
                    others[part] = one.score(rest, segment[part])
            if (heavy := weight > HEAVY).any():
                others = torch.where(heavy, one.score(self._statistic(at, ~heavy), bags)[segment], others)
        else:
            others = torch.full_like(score, torch.nan)
            for part, rest in self._left_out(at):
                mask = among[part]
                others[part][mask] = one.score(_take(rest, mask), segment[part][mask])
        return torch.where(self.sizes[segment] == 1, score, score - others)

    def _left_out(self, at: int) -> Iterator[tuple[slice, BagStatistic]]:
        """Yield, in blocks, the statistic of the bag without each instance, by merging those before and after it."""
        one, none, parts = self.members[at], self._none(at), [*self._parts(at)]
        merge = one.pooling.statistic.merge
        before = accumulate([none, *parts], merge)
        behind = [*accumulate([none, *parts[:0:-1]], merge)][::-1]
        for (part, z, v), first, last in zip(self.blocks(at), before, behind):
            segment, singles = self.segment[part], one.singles(z, v)
            after = _merged_before(_flipped(singles), segment.flip(0), last, merge)
            yield part, merge(_merged_before(singles, segment, first, merge), _flipped(after))

    def compose(self, parts: Sequence[Sequence[int]]) -> Self:
        """Return bags of which each holds the instances of several bags, with the covariates of the first of them.

        `parts` are the positions of these bags, for each new bag; a bag that is named twice counts twice.
        """
        ends = torch.cumsum(self.sizes, 0).tolist()
        ranges = [torch.arange(end - size, end) for end, size in zip(ends, self.sizes.tolist())]
        rows = torch.cat([ranges[bag] for bags in parts for bag in bags])
        sizes = torch.tensor([sum(len(ranges[bag]) for bag in bags) for bags in parts])
        other = self._of_rows(rows, torch.repeat_interleave(torch.arange(len(parts)), sizes), sizes)
        first = torch.tensor([bags[0] for bags in parts])
        other._shifts = [x if x is None else x[first] for x in self._shifts]
        other.members = [Member(one.pooling, None if one.shift is None else one.shift[first]) for one in self.members]
        return other

    @_without_graph()
    def alone(self) -> Scores:
        """Return the score of a bag with each instance alone, [m]."""
        every = ((one, self.blocks(at)) for at, one in enumerate(self.members))
        singles = ([one.score(one.singles(z, v), self.segment[at]) for at, z, v in blocks] for one, blocks in every)
        return self._mean([torch.cat(blocks) for blocks in singles])

    def _empty(self, like: Tensor, count: int) -> Tensor:
        """Return `count` rows to fill, in memory or, if those of all scorers are large, in a temporary file."""
        # Trees may score float64 and its rounding differently; for other scorers, float32 holds all digits.
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        shape = (count, *like.shape[1:])
        if not self._on_disk or not math.prod(shape):
            return torch.empty(shape, dtype=dtype)
        with tempfile.TemporaryFile(buffering=0) as file:
            allocate(file, math.prod(shape) * dtype.itemsize)  # a full disk shows here, not as a killed process
            return torch.from_numpy(np.memmap(file, str(dtype).removeprefix("torch."), "r+", shape=shape))

    def _rows_of(self, values: Tensor, rows: Tensor) -> Tensor:
        return torch.index_select(values, 0, rows, out=self._empty(values, len(rows)))

    def _of_rows(self, rows: Tensor, segment: Tensor, sizes: Tensor) -> Self:
        other = copy.copy(self)
        other.segment, other.sizes = segment, sizes
        other._pairs = [(self._rows_of(z, rows), self._rows_of(v, rows)) for z, v in self._pairs]
        return other


def instance_scores(
    model: BagScorer | BagEnsemble, bags: Bags, index: int, *, column: int | None = None, chunk_size: int | None = None
) -> InstanceScores:
    """Return the scores and weights of the instances of bag `index`; parameters as in `PooledBags`.

    With several score columns, `column`, from 0, is required (`ConfigError`). With covariates, the score of an instance
    is that of a bag with these covariates and this instance alone.
    """
    return PooledBags(model, bags.subset([index]), column=column, chunk_size=chunk_size).instances()


def instance_ranks(
    model: BagScorer | BagEnsemble,
    bags: Bags,
    *,
    columns: NDArray[np.int64] | None = None,
    chunk_size: int | None = None,
) -> NDArray[np.int64]:
    """Return the rank of each instance by its contribution, bag after bag, [num_instances]; 0 is the lowest.

    Equal contributions rank by the score of a bag with the instance alone: with max pooling, all but one instance of a
    bag add nothing. So `midam explain` orders them too.

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
    >>> instance_ranks(model, Bags.from_list([np.array([[-2.0], [0.0], [3.0]], np.float32)])).tolist()
    [0, 1, 2]
    """
    keys, ends = np.empty((2, bags.num_instances), np.float32), np.cumsum(bags.sizes)
    for column in [None] if columns is None else np.unique(columns).tolist():
        index = np.arange(len(bags)) if columns is None else np.flatnonzero(columns == column)
        for part in pooled_groups(model, bags.sizes[index]):
            rows = np.concatenate([np.arange(ends[i] - bags.sizes[i], ends[i]) for i in index[part]])
            pooled = PooledBags(model, bags.subset(index[part]), column=column, chunk_size=chunk_size)
            keys[:, rows] = pooled.alone(), pooled.contributions()
    order = np.lexsort(keys)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum((np.diff(keys[:, order], prepend=keys[:, order[:1]]) != 0).any(axis=0))
    return ranks


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


def _rounded(*arrays: Tensor | Scores, members: tuple[InstanceScores, ...] = ()) -> InstanceScores:
    score, attention, weight = (np.asarray(x).astype(np.float32) for x in arrays)
    return InstanceScores(score, attention, weight, members)


def _take(stat: BagStatistic, index: Tensor) -> BagStatistic:
    return BagStatistic(*(x[index] for x in stat))


def _flipped(stat: BagStatistic) -> BagStatistic:
    return BagStatistic(*(x.flip(0) for x in stat))


def _is_closed(pooling: Pooling) -> bool:
    """Return whether the statistic without an instance has a closed form."""
    return pooling.statistic.is_mean or pooling.statistic is MAXIMUM


def _merged_before(
    stat: BagStatistic,
    segment: Tensor,
    first: BagStatistic,
    merge: Callable[[BagStatistic, BagStatistic], BagStatistic],
) -> BagStatistic:
    """Return `first` [K] of the segment of each row, merged with the rows of the segment before it.

    It takes about log2(rows) merges.
    """
    begins = torch.cat([torch.ones(1, dtype=torch.bool), segment[1:] != segment[:-1]])
    ahead = zip(first, stat)
    stat = BagStatistic(*(torch.where(_like(begins, x), start[segment], x.roll(1, 0)) for start, x in ahead))
    step = 1
    while step < len(segment) and bool((segment[step:] == segment[:-step]).any()):
        same = segment[step:] == segment[:-step]
        merged = merge(BagStatistic(*(x[:-step] for x in stat)), BagStatistic(*(x[step:] for x in stat)))
        parts: list[Any] = [torch.where(_like(same, x), y, x[step:]) for x, y in zip(stat, merged)]
        stat = BagStatistic(*(torch.cat([x[:step], y]) for x, y in zip(stat, parts)))
        step *= 2
    return stat


def _like(mask: Tensor, x: Tensor) -> Tensor:
    return mask if x.ndim == 1 else mask.unsqueeze(1)
