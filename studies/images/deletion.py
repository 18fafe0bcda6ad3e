"""The deletion test of a ranking: whether the score of a bag falls faster than in random orders.

Instances leave the bag in the order of their rank, in 20 steps; the bag is scored after each step. No instance is
encoded again: the score of any part of a bag is f2 of the merged log-weighted means of its pieces
(`midam.functional.logmean`). Petsiuk, Das, Saenko, "RISE", BMVC 2018, mask pixels of an image; here, instances are
removed from the bag.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from midam.evaluate.pooled import Member, PooledBags
from midam.functional.logmean import BagStatistic, identity

STEPS, ORDERS = 20, 20
_LEAST = 0.0005  # of an area: a smaller difference is printed as 0.000


@dataclass(frozen=True)
class Deletion:
    """Score of a bag while its instances leave it, in the order of their rank and in random orders."""

    share: NDArray[np.float64]  # [S], at most 20 steps: share of instances that have left, from 0
    score: NDArray[np.float64]  # [S], score when this share, top rank first, has left
    random: NDArray[np.float64]  # [20, S], the same for random orders with a fixed seed

    @property
    def verdict(self) -> str:
        """Effect of removing the top instances first: "lowers", "raises" or "neither".

        It is "lowers" if the area under the curve is smaller than that of every random order, as for a random ranking
        in 1 of 21 bags, "raises" if it is larger than all, and "neither" else, or if the difference is below 0.0005.
        """
        ranked, chance = _area(self.share, self.score), _area(self.share, self.random)
        if ranked <= chance.min() - _LEAST:
            return "lowers"
        return "raises" if ranked >= chance.max() + _LEAST else "neither"


def _area(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean height of curves y [..., S] over ascending x [S] by the trapezoidal rule."""
    return np.asarray(np.trapezoid(y, x, axis=-1) / (x[-1] - x[0]))


def measure_deletion(bag: PooledBags, order: NDArray[np.int64], *, seed: int = 0) -> Deletion | None:
    """Return the curves of a bag, with its positions by rank [n]; None for a single instance, which has no order."""
    n, steps = len(order), min(STEPS, len(order))
    if steps < 2:
        return None
    bins = step_of_each(order, steps, seed)
    ends = np.cumsum(np.bincount(bins[0], minlength=steps))
    by_scorer = [_scores(piece, one, len(bins)) for piece, one in zip(_pieces(bag, bins, steps), bag.members)]
    scores = np.average(by_scorer, axis=0, weights=bag.weights)
    return Deletion(np.append(0, ends[:-1]) / n, scores[0], scores[1:])


def step_of_each(order: NDArray[np.int64], steps: int, seed: int) -> NDArray[np.int8]:
    """Return the step at which each instance leaves, [1 + ORDERS, n], by rank and in random orders."""
    step = (np.arange(len(order)) * steps // len(order)).astype(np.int8)
    by_rank, random = np.empty_like(step), np.random.Generator(np.random.Philox(seed))
    by_rank[order] = step
    return np.stack([by_rank, *(random.permutation(step) for _ in range(ORDERS))])


def _pieces(bag: PooledBags, bins: NDArray[np.int8], steps: int) -> list[BagStatistic]:
    """Return the statistic of each step of each order, [orders * steps], for each scorer."""
    pieces, like = [], torch.zeros((), dtype=torch.float64)
    for number, member in enumerate(bag.members):
        statistic = member.pooling.statistic
        merged = identity(len(bins) * steps, member.pooling.value_size, like=like)
        for part, z, v in bag.blocks(number):
            segments = torch.from_numpy(bins[:, part].astype(np.int64))
            # One order at a time: all orders at once would copy the values, which can be wide, for each order.
            parts = [statistic.reduce_segments(z, v, segment, num_bags=steps) for segment in segments]
            merged = statistic.merge(merged, BagStatistic(*(torch.cat(columns) for columns in zip(*parts))))
        pieces.append(merged)
    return pieces


def _scores(pieces: BagStatistic, member: Member, orders: int) -> NDArray[np.float64]:
    """Return scores [orders, steps] of the instances that have not left before each step."""
    by_step = zip(*(x.view(orders, len(x) // orders, *x.shape[1:]).unbind(1) for x in pieces))
    remaining = [*accumulate([*map(BagStatistic._make, by_step)][::-1], member.pooling.statistic.merge)][::-1]
    n, l, r = (torch.stack(x, dim=1).flatten(0, 1) for x in zip(*remaining))  # noqa: E741
    score: NDArray[np.float64] = member.pooling.score(l, r, n).detach().numpy()
    return score.reshape(orders, -1)
