"""Scores of whole bags and of their instances, streamed."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.stream import stream_members
from midam.nn.ensemble import BagEnsemble, scorers_of
from midam.nn.scorer import BagScorer

_BAGS_AT_A_TIME = 4096


@dataclass(frozen=True)
class InstanceScores:
    """What the instances of one bag contribute.

    Of an ensemble, `score` is the mean of the members' scores, `weight` the mean of their weights, and `attention` the
    logit whose softmax is that weight (with max pooling: the mean of their logits). A curved pooling of averages is not
    the average of the poolings: it is each member's own arrays, in `members`, that add up to that member's score of the
    bag, and the mean of these scores is the bag's.

    Attributes
    ----------
    score : float32 array [n]
        Score in [0, 1] of a bag that held this instance alone.
    attention : float32 array [n]
        Logit of the instance's weight, before the softmax (z).
    weight : float32 array [n]
        Its weight in the bag, softmax(z); sums to 1.
    members : tuple of InstanceScores
        The same of each member of an ensemble; empty where there is one scorer.
    """

    score: NDArray[np.float32]
    attention: NDArray[np.float32]
    weight: NDArray[np.float32]
    members: tuple["InstanceScores", ...] = ()


def predict(
    model: BagScorer | BagEnsemble, bags: Bags, *, chunk_size: int = 4096, reader: InstanceReader | None = None
) -> NDArray[np.float64]:
    """Scores of whole bags, [N] in [0, 1], in memory that knows the chunk and not the bag.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call; its device is used. Of an ensemble, the mean of the members' scores; each
        chunk is read once.
    bags : Bags
        With or without labels.
    chunk_size : int
        Instances encoded at a time, >= 1.
    reader : InstanceReader, optional
        An open reader of `bags`.
    """
    reader = reader or InstanceReader(bags, device=_device(model))
    scores = []
    with _evaluation(model):
        for low in range(0, len(bags), _BAGS_AT_A_TIME):
            index = torch.arange(low, min(low + _BAGS_AT_A_TIME, len(bags)))
            batch = WholeBatch(reader, index, torch.zeros(len(index)))
            outputs = stream_members(scorers_of(model), batch, chunk_size=chunk_size)
            scores.append(torch.stack([output.score.double() for output in outputs]).mean(dim=0).cpu())
    return torch.cat(scores).numpy()


def instance_scores(
    model: BagScorer | BagEnsemble, bags: Bags, index: int, *, chunk_size: int = 4096
) -> InstanceScores:
    """Scores and weights of the instances of bag `index`, the very ones that `predict` pools.

    Parameters
    ----------
    model : BagScorer or BagEnsemble
        Put into evaluation mode for the call.
    bags : Bags
        Holds the bag.
    index : int
        Position of the bag.
    chunk_size : int
        Instances encoded at a time, >= 1.
    """
    scorers = scorers_of(model)
    reader = InstanceReader(bags, device=_device(model))
    batch = WholeBatch(reader, torch.tensor([index]), torch.zeros(1))
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in scorers]
    with _evaluation(model):
        for positions, _ in batch.chunks(chunk_size):
            x = reader.rows(positions)
            for scorer, parts in zip(scorers, found):
                z, v = scorer.instances(x)
                parts.append((scorer.pooling.score(z, v, torch.ones_like(z)).cpu(), z.cpu()))
    members = []
    for scorer, parts in zip(scorers, found):
        score, z = (torch.cat(column) for column in zip(*parts))
        weight = torch.softmax(z.double(), dim=0) if scorer.pooling.smooth else _one_hot_maximum(z)
        members.append(_Parts(score, z, weight))
    smooth = all(scorer.pooling.smooth for scorer in scorers)
    return members[0].rounded() if len(members) == 1 else _averaged(members, smooth=smooth)


class _Parts(NamedTuple):
    score: Tensor
    z: Tensor
    weight: Tensor

    def rounded(self, members: tuple[InstanceScores, ...] = ()) -> InstanceScores:
        score, attention, weight = (x.float().numpy() for x in self)
        return InstanceScores(score, attention, weight, members)


def _averaged(members: list[_Parts], *, smooth: bool) -> InstanceScores:
    score, z, weight = (torch.stack(column).double() for column in zip(*members))
    attention = z.mean(dim=0)
    if smooth:
        # In log space: a weight too small for a float still has a logit. The shift makes equal members keep theirs.
        attention = torch.logsumexp(torch.log_softmax(z, dim=1), dim=0) - math.log(len(z))
        attention += torch.logsumexp(z, dim=1).mean()
    return _Parts(score.mean(dim=0), attention, weight.mean(dim=0)).rounded(tuple(one.rounded() for one in members))


def _one_hot_maximum(z: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(z.argmax(), num_classes=len(z))


def _device(model: torch.nn.Module) -> torch.device:
    return next(model.parameters()).device


@contextmanager
def _evaluation(model: torch.nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
