"""The instances that decided bags: removed one after the other, each time the one that adds most to what is left.

Of two instances that are alike, neither adds much while the other is there; removed one after the other, both are
found. The share of an instance is the mean of what its bag loses without it and of what the rest gains by it, scaled to
sum to what all listed instances take away: for two instances the Shapley value.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.pooled import RemovableBags, Scores
from midam.explain.telling import Features, TellingFeature

_LITTLE = 0.1  # of what the removal of another listed instance takes away
_TRIED = 5  # instances besides those that are listed


def decide(
    whole: RemovableBags, bags: Bags, features: Features | None, *, threshold: float | None, top: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield, for each bag, the arguments of `DecidingInstance` but for its place; at most `top` of them.

    An instance is listed if the bag is still at the `threshold` without those before it, or if it takes at least a
    tenth of what another one takes.
    """
    added, score = whole.contributions(), whole.scores()
    picks = _candidates(whole, added, len(bags), top=min(top, int(bags.sizes.max())))
    order = np.argsort(np.where(picks >= 0, -_shares(whole, added, picks, score), np.inf), axis=0, kind="stable")
    picks, kept = np.take_along_axis(picks, order, axis=0), np.ones(len(added), dtype=bool)
    before, without, lost = score, list[Scores](), list[Scores]()
    telling: list[dict[int, tuple[TellingFeature, ...]]] = []
    for k, pick in enumerate(picks):
        kept[pick[pick >= 0]] = False
        rest = whole.keep(kept)
        without.append(rest.scores())
        lost.append(before - np.nan_to_num(without[-1]))
        matters = (lost[-1] > 0) & (lost[-1] >= _LITTLE * np.max(np.nan_to_num(lost), axis=0))
        if threshold is not None:
            matters |= before >= threshold
        picks[k:, (picks[k] < 0) | (~matters & (k > 0))] = -1  # none after the first that is not listed
        telling.append(_telling(rest, bags, features, before, pick))
        before = without[-1]
    shares, starts = _shares(whole, added, picks, score), np.cumsum(bags.sizes) - bags.sizes
    for bag in range(len(bags)):
        reasons = []
        for k, pick in enumerate(picks[:, bag].tolist()):
            if pick >= 0:
                rest_score = float(without[k][bag])
                numbers: dict[str, Any] = {"adds": float(added[pick]), "share": float(shares[k, bag])}
                numbers |= {"without": None if math.isnan(rest_score) else rest_score}
                reasons.append({"instance": pick - int(starts[bag]), **numbers, "features": telling[k].get(bag, ())})
        yield reasons


def _candidates(whole: RemovableBags, added: NDArray[np.float32], count: int, *, top: int) -> NDArray[np.int64]:
    """Return positions of instances of each bag [top, K], each the one that adds most without those before it.

    A bag with fewer instances has -1.
    """
    segment, picks = whole.segment.numpy(), np.full((top, count), -1)
    order = np.lexsort((-added, segment))
    # Without a closed form, only the instances that added most at first are tried again.
    ranks, kept = np.arange(len(order)) - np.searchsorted(segment, segment), np.ones(len(order), dtype=bool)
    likely = np.empty(len(order), dtype=bool)
    likely[order] = ranks < top + _TRIED if whole.slow else True
    rest = whole
    for k in range(top):
        places = np.flatnonzero(kept)
        if not len(places):
            break
        adds = rest.contributions(likely[places]) if k else added
        # Of equal instances under a maximum, none adds anything, and one has the weight. NaN comes last.
        order = np.lexsort((-rest.weights_of_instances(), -adds, segment[places]))
        held, first = np.unique(segment[places][order], return_index=True)
        picks[k, held] = places[order[first]]
        kept[picks[k, held]] = False
        rest = whole.keep(kept)
    return picks


def _telling(
    rest: RemovableBags, bags: Bags, features: Features | None, score: Scores, pick: NDArray[np.int64]
) -> dict[int, tuple[TellingFeature, ...]]:
    """Return the telling features of the instances `pick` [K], which `rest` lacks, of bags with this score before."""
    bag = np.flatnonzero(pick >= 0)
    if features is None or not len(bag):
        return {}

    def losses(x: torch.Tensor, at: NDArray[np.int64]) -> Scores:
        return score[bag[at]] - rest.with_instance(bag[at], x)

    before = np.cumsum(bags.sizes) - bags.sizes
    return dict(zip(bag.tolist(), features.telling(bags.gather(bags.starts[bag] + pick[bag] - before[bag]), losses)))


def _shares(whole: RemovableBags, added: NDArray[np.float32], picks: NDArray[np.int64], score: Scores) -> Scores:
    """Return the share of each listed instance [k, K] in the score of its bag, 0 to 1."""
    listed = np.zeros(len(added), dtype=bool)
    listed[picks[picks >= 0]] = True
    rest = np.nan_to_num(whole.keep(~listed).scores())
    gains = np.zeros(picks.shape)
    for k, pick in enumerate(picks):
        kept, held = ~listed, pick >= 0
        kept[pick[held]] = True
        alone = np.nan_to_num(whole.keep(kept).scores()) - rest
        gains[k, held] = np.clip(alone[held] + added[pick[held]], 0, None)
    total, taken = gains.sum(axis=0), np.clip((score - rest) / np.where(score > 0, score, 1.0), 0, 1)
    return np.asarray(gains / np.where(total > 0, total, 1.0) * taken)
