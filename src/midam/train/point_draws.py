"""Which instances `ExactPoint` back-propagates, drawn while the bags are streamed once."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from midam.data.batch import WholeBatch
from midam.data.draws import uniform_slots
from midam.evaluate.stream import stream_bags, stream_instances, total_of
from midam.nn.branches import fold_chunk
from midam.nn.scorer import BagScorer


@dataclass(frozen=True)
class Draw:
    """Drawn instances of K bags and the exact point that they belong to.

    Slots of a `proportional` bag were drawn with replacement in proportion to exp(z), in the mean over its branches;
    those of the others hold distinct instances, uniformly drawn or all of them.
    """

    l: Tensor  # [K * G]  # noqa: E741
    r: Tensor  # [K * G, V]
    positions: Tensor  # int64 [K, B], CPU: flat positions
    mask: Tensor  # bool [K, B], CPU: slots that hold an instance
    proportional: Tensor  # bool [K], CPU


def draw_uniform(
    model: BagScorer, batch: WholeBatch, num_instances: int, *, chunk_size: int, rng: np.random.Generator
) -> Draw:
    """Stream the point, and draw min(n_i, B) distinct instances of each bag uniformly."""
    point = stream_bags(model, batch, chunk_size=chunk_size)
    slots, mask = uniform_slots(batch.sizes.numpy(), num_instances, rng)
    positions = batch.starts.unsqueeze(1) + torch.from_numpy(slots)
    return Draw(point.l, point.r, positions, torch.from_numpy(mask), torch.zeros(len(slots), dtype=torch.bool))


def draw_proportional(
    model: BagScorer, batch: WholeBatch, num_instances: int, *, chunk_size: int, rng: np.random.Generator
) -> Draw:
    """Stream the point, and draw B instances a bag with replacement in proportion to exp(z), or take all of at most B.

    Each of the B slots of a bag is a reservoir of one: a chunk that arrives replaces it with the probability of the
    chunk's weight in all that was seen. Several branches take turns at the slots of a bag, from one drawn at random on:
    each slot is then drawn from their mixture.
    """
    num_bags, branches = batch.index.shape[0], model.pooling.branches
    total = total_of(model, num_bags)
    slots = np.zeros((num_bags, num_instances), dtype=np.int64)
    first = rng.integers(branches, size=(num_bags, 1)) if branches > 1 else np.zeros((num_bags, 1), dtype=np.int64)
    turn = (first + np.arange(num_instances)) % branches
    for positions, segment, z, v in stream_instances(model, batch, chunk_size=chunk_size):
        part = total.add(*fold_chunk(positions, segment, z, v))
        seen = total.merged
        share = torch.exp(part.l + torch.log(part.n) - seen.l - torch.log(seen.n)).nan_to_num(0.0)
        shares, counts = (x.cpu().view(num_bags, branches).numpy() for x in (share, part.n))
        arrived, bags = np.flatnonzero(counts[:, 0] > 0), segment.cpu().numpy()
        for branch, own in enumerate(z.cpu().double().reshape(-1, branches).numpy().T):
            inside = _draw_within(own, bags, arrived, num_instances, rng)
            replace = (rng.random(inside.shape) < shares[arrived, branch, None]) & (turn[arrived] == branch)
            slots[arrived] = np.where(replace, positions.numpy()[inside], slots[arrived])
    sizes, ordinal = batch.sizes.unsqueeze(1), torch.arange(num_instances).expand(num_bags, -1)
    whole = sizes <= num_instances
    every = batch.starts.unsqueeze(1) + torch.minimum(ordinal, sizes - 1)
    positions = torch.where(whole, every, torch.from_numpy(slots))
    mask = torch.where(whole, ordinal < sizes, torch.ones_like(ordinal, dtype=torch.bool))
    point = total.value()
    return Draw(point.l, point.r, positions, mask, ~whole.squeeze(1))


def _draw_within(
    z: NDArray[np.float64], segment: NDArray[np.int64], arrived: NDArray[np.int64], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    # Rows of a chunk stand bag after bag, so one cumulative sum serves all bags; each is scaled by its own maximum.
    first = np.searchsorted(segment, arrived, side="left")
    last = np.searchsorted(segment, arrived, side="right") - 1
    top = np.maximum.reduceat(z, first)
    weight = np.exp(z - top[np.searchsorted(arrived, segment)])
    cumulative = np.cumsum(weight)
    low = cumulative[first] - weight[first]
    target = low[:, None] + rng.random((len(arrived), count)) * (cumulative[last] - low)[:, None]
    drawn = np.searchsorted(cumulative, target, side="right")
    return np.clip(drawn, first[:, None], last[:, None])
