"""Contribution of each instance: the score of its bag, less that of the bag without the instance.

No bag is scored again instance by instance: the statistic (n, l, r) of a bag without instance i has a closed form. With
w its weight, it is

    n' = n - 1,    l' = log(n exp(l) (1 - w) / n'),    r' = (r - w v_i) / (1 - w)

and f2 of that is its score. Without the carrier of a maximum the statistic of the others is merged anew, and so it is
without an instance of more than half the weight, where 1 - w would lose digits. A summary of a bag (its least values,
for instance) has no closed form: the statistic without an instance is that of the instances before it, merged with that
of those behind it.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from midam.explain.faithful import InstanceSpool
from midam.functional.logmean import BagStatistic, identity
from midam.nn.pooling import LOG_MEAN, MAXIMUM, Pooling

_HEAVY = 0.5


def contributions(spool: InstanceSpool) -> NDArray[np.float32]:
    """Contribution of each of n instances to the score of the bag, [n], in units of the score, averaged over scorers.

    The sum over a bag is not its score. An only instance adds all of the score.
    """
    found = [_of_scorer(spool, member, scorer.pooling) for member, scorer in enumerate(spool.scorers)]
    # Rounded, so that instances that are alike rank in the order of the bag on every processor.
    return np.asarray(np.average(found, axis=0, weights=spool.weights), dtype=np.float32)


@torch.no_grad()
def _of_scorer(spool: InstanceSpool, member: int, pooling: Pooling) -> NDArray[np.float64]:
    # In float64, since one of 100 000 instances changes the score by less than float32 can tell.
    exact = copy.deepcopy(pooling).cpu().double().eval()
    whole = _statistic(spool, member, exact)
    score = _score(exact, whole)
    if float(whole.n) == 1:
        return score.numpy()
    if exact.statistic not in (LOG_MEAN, MAXIMUM):
        rest = _left_out(spool, member, exact)
        return torch.cat([score - _score(exact, stat) for stat in rest]).numpy()
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
    found, weight = torch.cat(parts), torch.cat(weights)
    heavy = int(weight.argmax())
    if weight[heavy] > _HEAVY:
        found[heavy] = score - _score(exact, _statistic(spool, member, exact, without=heavy))
    return found.numpy()


def _statistic(spool: InstanceSpool, member: int, pooling: Pooling, *, without: int | None = None) -> BagStatistic:
    """Statistic of the bag, of one instance less where `without` names it."""
    merged = identity(1, pooling.value_size, like=torch.zeros((), dtype=torch.float64))
    for low, pairs in spool.read():
        z, v = pairs[member]
        if without is not None and low <= without < low + len(z):
            kept = torch.arange(low, low + len(z)) != without
            z, v = z[kept], v[kept]
        if len(z):
            segment = torch.zeros(len(z), dtype=torch.int64)
            merged = pooling.statistic.merge(merged, pooling.statistic.reduce_segments(z, v, segment, num_bags=1))
    return merged


def _left_out(spool: InstanceSpool, member: int, pooling: Pooling) -> Iterator[BagStatistic]:
    """Statistics of the bag without each of its instances, some at a time: those before and behind it merged."""
    merge, reduce = pooling.statistic.merge, pooling.statistic.reduce_segments
    none = identity(1, pooling.value_size, like=torch.zeros((), dtype=torch.float64))
    read = partial(map, lambda part: part[1][member])
    parts = [reduce(z, v, torch.zeros(len(z), dtype=torch.int64), num_bags=1) for z, v in read(spool.read())]
    before = accumulate([none, *parts], merge)
    behind = [*accumulate([none, *parts[:0:-1]], merge)][::-1]
    for (z, v), first, last in zip(read(spool.read()), before, behind):
        own = reduce(z, v, torch.arange(len(z)), num_bags=len(z))
        ahead = BagStatistic(*(torch.cat([a, x[:-1]]) for a, x in zip(first, own)))
        after = BagStatistic(*(torch.cat([x[1:], b]).flip(0) for x, b in zip(own, last)))
        yield merge(_running(ahead, merge), BagStatistic(*(x.flip(0) for x in _running(after, merge))))


def _running(stat: BagStatistic, merge: Callable[[BagStatistic, BagStatistic], BagStatistic]) -> BagStatistic:
    """Each row merged with all rows before it, in as many merges as the number of rows has digits in base 2."""
    step = 1
    while step < len(stat.n):
        merged = merge(BagStatistic(*(x[:-step] for x in stat)), BagStatistic(*(x[step:] for x in stat)))
        stat = BagStatistic(*(torch.cat([x[:step], y]) for x, y in zip(stat, merged)))
        step *= 2
    return stat


def _without(whole: BagStatistic, weight: torch.Tensor, v: torch.Tensor) -> BagStatistic:
    """Statistic of a bag without each of m instances, of these weights [m] and values [m, V]."""
    rest = (1 - weight).clamp(min=1 - _HEAVY)
    level = whole.l + torch.log(rest) + torch.log(whole.n / (whole.n - 1))
    return BagStatistic((whole.n - 1).expand(len(v)), level, (whole.r - weight[:, None] * v) / rest[:, None])


def _score(pooling: Pooling, stat: BagStatistic) -> torch.Tensor:
    return pooling.score(stat.l, stat.r, stat.n).double()
