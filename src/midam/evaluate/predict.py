"""Scores of whole bags and of their instances, streamed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.stream import stream_bags, stream_instances
from midam.nn.scorer import BagScorer

_BAGS_AT_A_TIME = 4096


@dataclass(frozen=True)
class InstanceScores:
    """What the instances of one bag contribute.

    Attributes
    ----------
    score : float32 array [n]
        Score in [0, 1] of a bag that held this instance alone.
    attention : float32 array [n]
        Logit of the instance's weight, before the softmax (z).
    weight : float32 array [n]
        Its weight in the bag, softmax(z); sums to 1.
    """

    score: NDArray[np.float32]
    attention: NDArray[np.float32]
    weight: NDArray[np.float32]


def predict(
    model: BagScorer, bags: Bags, *, chunk_size: int = 4096, reader: InstanceReader | None = None
) -> NDArray[np.float64]:
    """Scores of whole bags, [N] in [0, 1], in memory that knows the chunk and not the bag.

    Parameters
    ----------
    model : BagScorer
        Put into evaluation mode for the call; its device is used.
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
            scores.append(stream_bags(model, batch, chunk_size=chunk_size).score.double().cpu())
    return torch.cat(scores).numpy()


def instance_scores(model: BagScorer, bags: Bags, index: int, *, chunk_size: int = 4096) -> InstanceScores:
    """Scores and weights of the instances of bag `index`, the very ones that `predict` pools.

    Parameters
    ----------
    model : BagScorer
        Put into evaluation mode for the call.
    bags : Bags
        Holds the bag.
    index : int
        Position of the bag.
    chunk_size : int
        Instances encoded at a time, >= 1.
    """
    reader = InstanceReader(bags, device=_device(model))
    batch = WholeBatch(reader, torch.tensor([index]), torch.zeros(1))
    scores, logits = [], []
    with _evaluation(model):
        for _, _, z, v in stream_instances(model, batch, chunk_size=chunk_size):
            scores.append(model.pooling.score(z, v, torch.ones_like(z)).cpu())
            logits.append(z.cpu())
    z = torch.cat(logits)
    weight = torch.softmax(z.double(), dim=0) if model.pooling.smooth else _one_hot_maximum(z)
    return InstanceScores(torch.cat(scores).float().numpy(), z.float().numpy(), weight.float().numpy())


def _one_hot_maximum(z: torch.Tensor) -> torch.Tensor:
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
