"""Deletion and insertion curves, which test whether the score of a bag depends on the highest-ranked instances.

Instances leave the bag in the order of their rank, or enter an empty bag, in 20 steps; the bag is scored after each
step. No instance is encoded again: the score of any part of a bag is f2 of the merged log-weighted means of its pieces
(`midam.functional.logmean`), so each step merges statistics of the first pass. Petsiuk, Das, Saenko, "RISE", BMVC 2018,
mask pixels of an image; here, instances are removed from the bag.

The contribution of an instance is the score of its bag minus the score of the bag without the instance.

Contributions need no new pass for each instance, because the statistic (n, l, r) of a bag without instance i of weight
w has a closed form:

    n' = n - 1,    l' = log(n exp(l) (1 - w) / n'),    r' = (r - w v_i) / (1 - w)

The score is f2 of this statistic. In two cases, the statistic of the other instances is merged again instead: without
the instance that attains a maximum, and without an instance of more than half the weight, where 1 - w loses digits. A
summary of a bag (minima, for instance) has no closed form: its statistic without an instance merges the statistics of
the instances before and after it.
"""

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.data.brief import BriefRepr
from midam.evaluate.stream import InstancePass
from midam.functional.logmean import BagStatistic, identity
from midam.nn.ensemble import BagEnsemble
from midam.nn.pooling import LOG_MEAN, MAXIMUM, Pooling
from midam.nn.scorer import BagScorer

STEPS, ORDERS = 20, 20
LEAST = 0.0005  # of an area: a smaller difference is printed as 0.000
_ROWS_AT_A_TIME = 16384
_NUMBERS_AT_A_TIME = 2**20  # limit of wide values
_HEAVY = 0.5


@dataclass(frozen=True, repr=False)
class Curve(BriefRepr):
    """Score of a bag while its instances leave or enter it, in the order of their rank and in random orders.

    The area of a curve is its mean over its range by the trapezoidal rule, in [0, 1].
    """

    share: NDArray[np.float64]  # [S], at most 20 steps: share of instances that have left (from 0) or entered (up to 1)
    score: NDArray[np.float64]  # [S], score when this share, top rank first, has left or entered
    random: NDArray[np.float64]  # [20, S], the same for random orders with a fixed seed

    @property
    def area(self) -> float:
        """Area under `score`."""
        return float(area(self.share, self.score))

    @property
    def random_areas(self) -> NDArray[np.float64]:
        """Areas under `random`, [20]."""
        return area(self.share, self.random)

    def as_dict(self, share: str) -> dict[str, float | list[float]]:
        """Return curve and area for JSON, and mean, smallest and largest area of the random orders."""
        areas = self.random_areas
        return {
            "area": self.area,
            "random_area": float(areas.mean()),
            "random_area_range": [float(areas.min()), float(areas.max())],
            share: self.share.tolist(),
            "score": self.score.tolist(),
            "random_score": self.random.mean(axis=0).tolist(),
        }


@dataclass(frozen=True)
class Faithfulness:
    """Deletion and insertion curves of a bag.

    A faithful ranking by contribution has a smaller deletion area and a larger insertion area than random orders.

    Examples
    --------
    >>> import torch
    >>> from midam.explain import explain_bag
    >>> from midam import Bags, MaxPooling
    >>> model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    >>> _ = torch.nn.init.ones_(model.pooling.scorer.weight)
    >>> faithfulness = explain_bag(model, Bags.from_list([np.arange(8, dtype=np.float32)[:, None]]), 0).faithfulness
    >>> faithfulness.verdict, len(faithfulness.deletion.random)
    ('lowers', 20)
    """

    deletion: Curve
    insertion: Curve

    @property
    def verdict(self) -> str:
        """Effect of removing the top instances first: "lowers", "raises" or "neither".

        It is "lowers" if the deletion area is smaller than that of every random order, as for a random ranking in 1 of
        21 bags, "raises" if it is larger than all, and "neither" else, or if the difference is below 0.0005.
        """
        ranked, chance = self.deletion.area, self.deletion.random_areas
        if ranked <= chance.min() - LEAST:
            return "lowers"
        return "raises" if ranked >= chance.max() + LEAST else "neither"

    def as_dict(self) -> dict[str, Any]:
        """Return verdict and curves for JSON."""
        return {
            "verdict": self.verdict,
            "orders": len(self.deletion.random),
            "deletion": self.deletion.as_dict("removed"),
            "insertion": self.insertion.as_dict("inserted"),
        }


def area(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean height of curves y [..., S] over ascending x [S] by the trapezoidal rule."""
    heights = (y[..., 1:] + y[..., :-1]) / 2
    return np.asarray((heights * np.diff(x)).sum(axis=-1) / (x[-1] - x[0]))


class InstanceSpool(InstancePass):
    """A pass through a bag's instances that keeps their logits and values in a temporary file.

    `seen` holds the scores and logits that the first pass has yielded.
    """

    def __init__(self, model: BagScorer | BagEnsemble, batch: WholeBatch, *, chunk_size: int) -> None:
        super().__init__(model, batch, chunk_size=chunk_size)
        self.seen: list[tuple[Tensor, Tensor]] = []
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
        width, low = ends[-1], 0
        wide = self._dtype == np.float64
        count = max(1, min(_ROWS_AT_A_TIME, _NUMBERS_AT_A_TIME // width)) if wide else _ROWS_AT_A_TIME
        while data := self._file.read(self._dtype.itemsize * width * count):
            rows = torch.from_numpy(np.frombuffer(data, dtype=self._dtype).reshape(-1, width).astype(np.float64))
            yield low, [(rows[:, end - size - 1], rows[:, end - size : end]) for end, size in zip(ends, self._widths)]
            low += len(rows)


def measure(spool: InstanceSpool, order: NDArray[np.int64], *, seed: int = 0) -> Faithfulness | None:
    """Return the curves of a bag, with its positions by rank [n]; None for a single instance, which has no order."""
    n, steps = len(order), min(STEPS, len(order))
    if steps < 2:
        return None
    bins = _bins(order, steps, seed)
    ends = np.cumsum(np.bincount(bins[0], minlength=steps))
    deletions, insertions = [], []
    for pieces, scorer in zip(_pieces(spool, bins, steps), spool.scorers):
        remaining, entered = _merged(pieces, scorer.pooling, orders=len(bins), steps=steps)
        deletions.append(_scores(remaining, scorer))
        insertions.append(_scores(entered, scorer))
    deletion, insertion = (np.average(scores, axis=0, weights=spool.weights) for scores in (deletions, insertions))
    return Faithfulness(
        Curve(np.append(0, ends[:-1]) / n, deletion[0], deletion[1:]), Curve(ends / n, insertion[0], insertion[1:])
    )


def _bins(order: NDArray[np.int64], steps: int, seed: int) -> NDArray[np.int8]:
    """Return the step at which each instance leaves, [1 + ORDERS, n], by rank and in random orders."""
    step = (np.arange(len(order)) * steps // len(order)).astype(np.int8)
    by_rank, random = np.empty_like(step), np.random.Generator(np.random.Philox(seed))
    by_rank[order] = step
    return np.stack([by_rank, *(random.permutation(step) for _ in range(ORDERS))])


def _pieces(spool: InstanceSpool, bins: NDArray[np.int8], steps: int) -> list[BagStatistic]:
    """Return the statistic of each step of each order, [orders * steps], for each scorer."""
    like = torch.zeros((), dtype=torch.float64)
    pieces = [identity(len(bins) * steps, scorer.pooling.value_size, like=like) for scorer in spool.scorers]
    for low, pairs in spool.read():
        segments = torch.from_numpy(bins[:, low : low + len(pairs[0][0])].astype(np.int64))
        for i, (z, v) in enumerate(pairs):
            statistic = spool.scorers[i].pooling.statistic
            # One order at a time: all orders at once would copy the values, which can be wide, for each order.
            parts = [statistic.reduce_segments(z, v, segment, num_bags=steps) for segment in segments]
            pieces[i] = statistic.merge(pieces[i], BagStatistic(*(torch.cat(columns) for columns in zip(*parts))))
    return pieces


def _merged(pieces: BagStatistic, pooling: Pooling, *, orders: int, steps: int) -> tuple[BagStatistic, BagStatistic]:
    """Return the statistics after each step of deletion and insertion, [orders * steps]."""
    by_step = [BagStatistic(*(x.reshape(orders, steps, *x.shape[1:])[:, s] for x in pieces)) for s in range(steps)]

    def stacked(parts: Iterable[BagStatistic]) -> BagStatistic:
        return BagStatistic(*(torch.stack(columns, dim=1).flatten(0, 1) for columns in zip(*parts)))

    merge = pooling.statistic.merge
    return stacked([*accumulate(by_step[::-1], merge)][::-1]), stacked(accumulate(by_step, merge))


def _scores(stat: BagStatistic, scorer: BagScorer) -> NDArray[np.float64]:
    """Return scores [orders, steps] of a scorer, by its pooling."""
    like = next(scorer.parameters())
    l, r, n = (x.to(device=like.device, dtype=like.dtype) for x in (stat.l, stat.r, stat.n))  # noqa: E741
    score: NDArray[np.float64] = scorer.pooling.score(l, r, n).double().cpu().numpy()
    return score.reshape(1 + ORDERS, -1)


def contributions(spool: InstanceSpool) -> NDArray[np.float32]:
    """Return the contribution of each instance to the score of the bag, [n], averaged over scorers.

    Contributions do not sum to the score. The contribution of a single instance is the score.
    """
    by_scorer = [_of_scorer(spool, member, scorer.pooling) for member, scorer in enumerate(spool.scorers)]
    # Rounded, so that equal instances rank in the order of the bag on every processor.
    return np.asarray(np.average(by_scorer, axis=0, weights=spool.weights), dtype=np.float32)


@torch.no_grad()
def _of_scorer(spool: InstanceSpool, member: int, pooling: Pooling) -> NDArray[np.float64]:
    # In float64: one of 100 000 instances changes the score by less than the resolution of float32.
    exact = copy.deepcopy(pooling).cpu().double().eval()
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
    losses = []
    for member, scorer in enumerate(spool.scorers):
        exact = copy.deepcopy(scorer.pooling).cpu().double().eval()
        z, v = (torch.cat(columns)[part] for columns in zip(*(pairs[member] for _, pairs in others.read())))
        replacements = exact.statistic.reduce_segments(z, v, torch.arange(len(z)), num_bags=len(z))
        remainder = _statistic(spool, member, exact, without=instance)
        remainder = BagStatistic(*(x.expand(len(z), *x.shape[1:]) for x in remainder))
        whole = _score(exact, _statistic(spool, member, exact))
        losses.append((whole - _score(exact, exact.statistic.merge(remainder, replacements))).numpy())
    return np.average(losses, axis=0, weights=spool.weights)


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
