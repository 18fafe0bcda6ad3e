"""The instances that decided bags: removed one after the other, each time the one that adds most to what is left.

Of two instances that are alike, neither adds much while the other is there; removed one after the other, both are
found. The share of an instance is the mean of what its bag loses without it and of what the rest gains by it, scaled to
sum to what all listed instances take away: for two instances the Shapley value.
"""

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import WholeBatch
from midam.evaluate.predict import evaluation, of_bag, reader_of
from midam.explain.contributions import InstanceSpool, added_scores, contributions
from midam.explain.telling import Features, TellingFeature
from midam.nn.ensemble import BagEnsemble, column_of
from midam.nn.scorer import BagScorer
from midam.settings import usual_chunk

_LITTLE = 0.1  # of what the removal of another listed instance takes away
_TRIED = 5  # instances besides those that are listed
Scores = NDArray[np.float64]


class RemovableBags(Protocol):
    """K whole bags whose instances can be removed: `midam.evaluate.pooled.PooledBags`, or one bag that is streamed."""

    @property
    def segment(self) -> torch.Tensor:
        """The bag of each instance [m]."""

    @property
    def slow(self) -> bool:
        """Whether contributions have no closed form."""

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return the bags with the instances that a mask selects."""

    def scores(self) -> Scores:
        """Return the scores of the bags, NaN for an empty one."""

    def contributions(self, among: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """Return what each instance adds to the score of its bag; without a closed form, only those `among`."""

    def weights_of_instances(self) -> Scores:
        """Return the weight of each instance."""

    def with_instance(self, bag: NDArray[np.int64], x: torch.Tensor) -> Scores:
        """Return the scores of bags to which one instance is added."""


class SpooledBag:
    """One bag too large for `midam.evaluate.pooled.PooledBags`: its pairs are in a temporary file."""

    def __init__(self, model: BagScorer | BagEnsemble, bag: Bags, spool: InstanceSpool) -> None:
        self._model, self._bag, self._spool = model, bag, spool
        self._left = np.arange(int(bag.sizes[0]))

    @classmethod
    @contextmanager
    def read(
        cls, model: BagScorer | BagEnsemble, bag: Bags, *, column: int | None = None, chunk_size: int | None = None
    ) -> Iterator[Self]:
        """Yield the only bag of `bag`, streamed through the scorers once."""
        model = column_of(of_bag(model, bag, 0), column)
        batch = WholeBatch.unlabeled(reader_of(model, bag), torch.tensor([0]))
        chunk_size = chunk_size or usual_chunk(bag.instance_shape)
        with InstanceSpool(model, batch, chunk_size=chunk_size) as spool, evaluation(model):
            deque(spool.chunks(), maxlen=0)
            yield cls(model, bag, spool)

    @property
    def segment(self) -> torch.Tensor:
        """The bag of each instance, 0."""
        return torch.zeros(len(self._left), dtype=torch.int64)

    @property
    def slow(self) -> bool:
        """Whether contributions are limited to some instances: never."""
        return False

    def keep(self, kept: NDArray[np.bool_]) -> Self:
        """Return the bag without the instances that the mask does not select."""
        other = type(self)(self._model, self._bag, self._spool)
        other._left = self._left[kept]
        return other

    def scores(self) -> Scores:
        """Return the score of the bag, [1]; NaN if it is empty."""
        return added_scores(self._shown(), None)

    def contributions(self, among: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:  # noqa: ARG002
        """Return what each instance adds."""
        return contributions(self._shown())

    def weights_of_instances(self) -> Scores:
        """Return the weights in the whole bag."""
        score, z = (torch.cat(column) for column in zip(*self._spool.seen))
        return self._spool.average(score, z, first=0).weight.numpy()[self._left]

    def with_instance(self, bag: NDArray[np.int64], x: torch.Tensor) -> Scores:
        """Return the scores of the bag with one of the instances x [T, ...] each."""
        alone: dict[str, Any] = {"coords": None, "digests": None, "attributes": None, "instance_labels": None}
        one = self._bag.replace(instances=x.numpy(), starts=np.zeros(1, np.int64), sizes=np.array([len(bag)]), **alone)
        batch = WholeBatch.unlabeled(reader_of(self._model, one), torch.tensor([0]))
        with InstanceSpool(self._model, batch, chunk_size=len(bag)) as others:
            deque(others.chunks(), maxlen=0)
            return added_scores(self._shown(), others)

    def _shown(self) -> InstanceSpool:
        self._spool.hidden = np.setdiff1d(np.arange(int(self._bag.sizes[0])), self._left)
        return self._spool


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
