"""`embedding-networks`: networks that score the mean vector of a bag, trained side by side in one batched pass."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, gelu
from torch.nn.utils.rnn import pad_sequence

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.methods.inner_folds import MOST_NUMBERS, Positions
from midam.methods.method import ModelBaseline, Scores
from midam.nn.encoders import MLP
from midam.nn.pooling import EmbeddingAttentionPooling
from midam.nn.scorer import BagEnsemble, BagScorer
from midam.nn.standardizer import Standardizer
from midam.settings import member_seed
from midam.settings.method import are_pixels
from midam.train.build import make_optimizer
from midam.train.members import fit_standardizers
from midam.train.side import Trial, linear_side

_WIDTHS = (64, 64)
_RATE = 0.003
_BATCH = 128  # bags in a step
_DRAWN = 16  # instances of a bag in a step
_EPOCHS, _MOST_DRAWS = 80, 24_000  # epochs, and bags drawn in all
_CLIP = 10.0
_TRIED, _MEMBERS = 2, 4  # networks of a trial, and of the model
_AT_A_TIME = 2**22  # numbers of the first layer in a step, of all networks that are trained at a time


class EmbeddingNetworks(ModelBaseline):
    """`embedding-networks`: a mean of networks of two layers that score a mean of the vectors of a bag's instances.

    In every second network the vectors have equal weights, in the others those of an attention layer (Ilse et al.
    2018). Each step draws up to 128 bags and 16 instances of each for the cross-entropy. Networks of trials of about
    one size are trained side by side: a layer is one batched product.
    """

    uses_torch = True

    def scorer(self, bags: Bags, *, seed: int) -> BagScorer:
        """Train one network, that of the first member."""
        return self.scorers(bags, seed=seed)[0]

    def scorers(self, bags: Bags, *, seed: int) -> list[BagScorer]:
        """Train four networks on all these bags."""
        return next(_trained(bags, [Trial(np.arange(len(bags)), np.arange(0), seed)], _MEMBERS))

    def empty(self, instance_shape: tuple[int, ...], weights: Mapping[str, Tensor]) -> BagScorer:  # noqa: ARG002
        """Return a network to be filled."""
        return _network(instance_shape)

    def held_out(self, bags: Bags, trials: Sequence[Trial]) -> Iterator[Scores]:
        """Yield the scores of the bags that each trial holds out, by the networks of its training bags."""
        for trial, members in zip(trials, _trained(bags, trials, _TRIED)):
            yield predict(BagEnsemble(members), bags.subset(trial.score))


def _network(instance_shape: tuple[int, ...]) -> BagScorer:
    """Return an untrained network for vectors, with the small initial weights of torch, whose scores begin alike."""
    encoder = MLP(math.prod(instance_shape), hidden=_WIDTHS, activation="gelu")
    for layer in encoder.layers:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    pooling = EmbeddingAttentionPooling(_WIDTHS[-1], head_hidden=0)
    return BagScorer(encoder, pooling, standardizer=Standardizer(instance_shape, clip=_CLIP, scaling="linear"))


@dataclass(frozen=True, eq=False)
class _Side:
    """Networks side by side: their parameters by name, stacked [Q, ...], and which weight instances by attention."""

    stacked: dict[str, Tensor]
    attends: Tensor

    @classmethod
    def of(cls, networks: Sequence[BagScorer], attends: Sequence[bool]) -> "_Side":
        of_all = [dict(network.named_parameters()) for network in networks]
        stacked = {name: torch.stack([each[name].detach() for each in of_all]).requires_grad_() for name in of_all[0]}
        return cls(stacked, torch.tensor(attends)[:, None])

    def logits(self, x: Tensor, bag: Tensor, count: int) -> Tensor:
        """Return the logits [Q, count] of bags, from instances x [Q, m, D], of which `bag` [Q, m] is the bag's number.

        Instances with the number `count` are left out.
        """
        e, layer = x, partial(linear_side, self.stacked)
        for at in range(len(_WIDTHS)):
            e = gelu(layer(f"encoder.layers.{2 * at}", e))
        z = layer("pooling.attention", torch.tanh(layer("pooling.hidden", e))).squeeze(-1)
        z = torch.where(self.attends, z, 0.0)
        top = z.new_full((len(z), count + 1), -torch.inf).scatter_reduce(1, bag, z.detach(), "amax")
        weight = torch.exp(z - top.gather(1, bag)).unsqueeze(-1)
        weighted, place = torch.cat([weight * e, weight], dim=2), bag + (count + 1) * torch.arange(len(bag))[:, None]
        sums = z.new_zeros(len(z) * (count + 1), weighted.shape[-1])
        sums = sums.index_add(0, place.flatten(), weighted.flatten(0, 1)).view(len(z), count + 1, -1)[:, :count]
        # A bag's largest weight is 1; places without a bag have the sum 0.
        return layer("pooling.head", sums[..., :-1] / sums[..., -1:].clamp(min=1.0)).squeeze(-1)

    @torch.no_grad()
    def fill(self, networks: Sequence[BagScorer]) -> None:
        """Set the parameters of the networks; equal weights of instances are an attention layer of zeros."""
        for number, network in enumerate(networks):
            for name, parameter in network.named_parameters():
                parameter.copy_(self.stacked[name][number])
            if not self.attends[number]:
                layer = cast(EmbeddingAttentionPooling, network.pooling).attention
                layer.weight.zero_()
                layer.bias.zero_()


def _trained(bags: Bags, trials: Sequence[Trial], members: int) -> Iterator[list[BagScorer]]:
    """Yield the trained networks of each trial."""
    if are_pixels(bags.instance_shape):
        raise ConfigError(
            f"Expected feature vectors for embedding-networks, got instances of shape {list(bags.instance_shape)} (in "
            f"{bags.source}); embed them with `midam embed`."
        )
    rows = min(_BATCH, len(bags)) * min(_DRAWN, int(bags.sizes.max()))
    together = max(1, _AT_A_TIME // (rows * _WIDTHS[0] * members))
    for part in [list(some) for _, some in groupby(trials, key=lambda trial: round(math.log2(len(trial.train))))]:
        for low in range(0, len(part), together):
            yield from _train_side(bags, part[low : low + together], members)


def _train_side(bags: Bags, trials: Sequence[Trial], members: int) -> list[list[BagScorer]]:
    """Train the networks of some trials side by side, each on the bags of its trial."""
    networks: list[list[BagScorer]] = []
    for trial in trials:
        members_of = []
        for member in range(members):
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(member_seed(trial.seed, member))
                members_of.append(_network(bags.instance_shape))
        fit_standardizers([network.standardizer for network in members_of], bags.subset(trial.train), seed=trial.seed)
        networks.append(members_of)
    every = [network for group in networks for network in group]
    side = _Side.of(every, [member % 2 == 1 for _ in trials for member in range(members)])
    optimizer = make_optimizer("adam", [{"params": list(side.stacked.values())}], lr=_RATE, momentum=0.0)
    weights = np.ones(len(bags)) if bags.weights is None else bags.weights
    # With a 0 at the end, for what is padded.
    labels, shares = (torch.from_numpy(np.append(x, 0)).float() for x in (bags.require_labels(), weights))
    once = len(trials) * bags.num_instances * math.prod(bags.instance_shape) <= MOST_NUMBERS
    readers = [InstanceReader(bags, resident=once, transform=group[0].standardized) for group in networks]
    randoms, most = [np.random.default_rng(trial.seed) for trial in trials], max(len(trial.train) for trial in trials)
    for batches in zip(*(_batches(trial.train, most, random) for trial, random in zip(trials, randoms))):
        draws = [_draw(bags, some, random) for some, random in zip(batches, randoms)]
        x = pad_sequence([reader.rows(at) for reader, (at, _) in zip(readers, draws)], batch_first=True).flatten(2)
        count = max(map(len, batches))  # the place of what is padded
        bag = pad_sequence([bag for _, bag in draws], batch_first=True, padding_value=count)
        numbers = pad_sequence(list(map(torch.from_numpy, batches)), batch_first=True, padding_value=-1)
        x, bag, numbers = (each.repeat_interleave(members, dim=0) for each in (x, bag, numbers))
        losses = binary_cross_entropy_with_logits(side.logits(x, bag, count), labels[numbers], reduction="none")
        loss = ((losses * shares[numbers]).sum(dim=1) / shares[numbers].sum(dim=1).clamp(min=1e-12)).sum()
        torch.autograd.backward(loss)  # which lays a gradient out as its parameter is, as fused steps take for granted
        optimizer.step()
        for values in side.stacked.values():  # zero_grad would import the compiler
            values.grad = None
    side.fill(every)
    return networks


def _batches(part: Positions, most: int, random: np.random.Generator) -> Iterator[Positions]:
    """Yield the bags of each step, in a new order in each epoch; `most` is the size of the largest such part."""
    for _ in range(min(_EPOCHS, max(1, round(_MOST_DRAWS / most)))):
        yield from np.array_split(random.permutation(part), math.ceil(most / _BATCH))


def _draw(bags: Bags, some: Positions, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Draw instances of some bags: all of a bag up to 16, else one of each of 16 parts; and the bag's place in `some`.

    The places of instances in `bags` are [m].
    """
    sizes = bags.sizes[some]
    drawn = np.minimum(sizes, _DRAWN)
    bag = np.repeat(np.arange(len(some)), drawn)
    ends = np.cumsum(drawn)
    part = np.arange(drawn.sum()) - np.repeat(ends - drawn, drawn)
    offset = np.floor((part + random.random(len(part))) * (sizes / drawn)[bag]).astype(np.int64)
    at = np.where(sizes[bag] > _DRAWN, np.minimum(offset, sizes[bag] - 1), part)
    return torch.from_numpy(bags.starts[some][bag] + at), torch.from_numpy(bag)
