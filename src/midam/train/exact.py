"""Estimators that stream whole bags: the exact gradient, and the exact point with a sampled gradient."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.dropout import _DropoutNd

from midam.data.batch import WholeBatch
from midam.data.sampling import uniform_slots
from midam.errors import ConfigError
from midam.evaluate.predict import stream_bags, stream_instances, stream_totals, total_of
from midam.functional.logmean import cotangents, linearize, point_weights
from midam.nn.encoders.custom import batch_norms
from midam.nn.scorer import BagOutput, BagScorer, each, fold, fold_chunk, fold_slots, own_branch, rows_of
from midam.train.estimators import Estimator


class Exact(Estimator):
    """The exact full-bag gradient in O(chunk) memory (two passes).

    The first pass streams (l, r) of each bag without a graph; the loss gives lambda = dL/dl and rho = dL/dr there. The
    second pass back-propagates ``lambda l_hat + rho . r_hat`` chunk by chunk. This equals plain autograd on the whole
    bags up to rounding. Dropout is replayed; batch normalization by batch statistics is refused. A batch that fits one
    chunk takes one ordinary pass with any encoder.

    With max pooling, one streamed pass finds the maximal instance of each bag, and only this instance is
    back-propagated; in a batch that fits one chunk, only if the encoder is repeatable (`MLP.repeatable`).

    Parameters
    ----------
    chunk_size : int
        Instances encoded at a time, >= 1.

    Examples
    --------
    Encoding two instances at a time gives the scores of one pass over the whole bags:

    >>> from midam.data import Bags, InstanceReader
    >>> from midam.nn import AttentionPooling
    >>> x = torch.randn(7, 4)
    >>> bags = Bags.from_list([x[:5].numpy(), x[5:].numpy()])
    >>> batch = WholeBatch.unlabeled(InstanceReader(bags), torch.tensor([0, 1]))
    >>> model = BagScorer(nn.Identity(), AttentionPooling(4))
    >>> output = Exact(chunk_size=2)(model, batch)
    >>> torch.allclose(output.score, model(x, batch.sizes).score)
    True
    """

    name = "exact"
    whole = True
    branched = True

    def __init__(self, *, chunk_size: int) -> None:
        super().__init__()
        self.chunk_size = chunk_size

    def forward(self, model: BagScorer, batch: WholeBatch) -> BagOutput:
        """Return the bag output at the exact point."""
        carried = model.pooling.statistic.carrier is not None
        if int(batch.sizes.sum()) <= self.chunk_size:
            positions, _ = next(batch.chunks(self.chunk_size))
            x = batch.reader.rows(positions)
            carriers = carried and model.repeatable
            return model(x, batch.sizes.to(x.device), covariates=batch.covariates, carriers=carriers)
        refuse_batch_statistics(model, f"the estimator {self.name!r}")
        if not carried:
            passes = _Passes(model, batch, self.chunk_size)
            apply: Any = _TwoPass.apply
            l, r = apply(passes, *passes.parameters)  # noqa: E741
            return BagOutput(l, r, _counts(batch, l, model.pooling.branches), model.pooling)
        _refuse_noise(model, "exact (max pooling)")
        (total,) = stream_totals([model], batch, chunk_size=self.chunk_size)
        z, v = own_branch(*model.instances(batch.reader.rows(total.where)))
        return BagOutput(z, v, _counts(batch, z, model.pooling.branches), model.pooling)


class ExactPoint(Estimator):
    """The exact point with a sampled gradient: (l, r) streamed over the whole bag, B instances back-propagated.

    If the pooling's logits vary, the B instances are drawn with replacement in proportion to exp(z), known from the
    first pass; else uniformly without replacement. With several branches they are drawn from the mixture of these
    weights and get the weight p / (B q): p is the instance's weight in the branch, q the mean of its weights in all
    branches, so that no weight exceeds G / B. The gradient is unbiased at fixed (a, b, alpha); the encoder must be
    deterministic and treat each instance separately.

    Parameters
    ----------
    num_instances : int
        B >= 1, instances per bag that are back-propagated.
    chunk_size : int
        Instances encoded at a time in the first pass, >= 1.
    seed : int
        Seed of the draws; step t of seed s always draws the same instances.

    Examples
    --------
    The scores are those of the whole bags; the gradient comes from one instance of each:

    >>> from midam.data import Bags, InstanceReader
    >>> from midam.nn import AttentionPooling
    >>> x = torch.randn(7, 4)
    >>> bags = Bags.from_list([x[:5].numpy(), x[5:].numpy()])
    >>> batch = WholeBatch.unlabeled(InstanceReader(bags), torch.tensor([0, 1]))
    >>> model = BagScorer(nn.Identity(), AttentionPooling(4))
    >>> output = ExactPoint(num_instances=1, chunk_size=2)(model, batch)
    >>> torch.allclose(output.score, model(x, batch.sizes).score)
    True
    """

    name = "exact-point"
    whole = True
    needs_trackable = True
    branched = True

    def __init__(self, *, num_instances: int, chunk_size: int, seed: int = 0) -> None:
        super().__init__()
        self.num_instances, self.chunk_size = num_instances, chunk_size
        self.seed, self.step = seed, 0

    def forward(self, model: BagScorer, batch: WholeBatch) -> BagOutput:
        """Return the bag output at the exact point."""
        refuse_batch_statistics(model, f"the estimator {self.name!r}")
        _refuse_noise(model, self.name)
        draw = draw_proportional if model.pooling.weighted else draw_uniform
        # Each process draws from different bags, and therefore with different random numbers.
        apart = [] if batch.step is None else [int(batch.index[0])]
        rng = np.random.default_rng([self.seed, self.step, *apart])
        self.step += 1
        drawn = draw(model, batch, self.num_instances, chunk_size=self.chunk_size, rng=rng)
        z, v = model.instances(batch.reader.rows(drawn.positions.flatten()))
        shape, branches = drawn.positions.shape, model.pooling.branches
        z, v = fold_slots(z.view(*shape, *z.shape[1:]), v.view(*shape, *v.shape[1:]))
        mask, proportional = (each(x.to(z.device), branches) for x in (drawn.mask, drawn.proportional))
        z = z.masked_fill(~mask, torch.finfo(z.dtype).min / 4)
        w = point_weights(z, drawn.l, mask.sum(dim=1), mask=mask)
        w = torch.where(proportional.unsqueeze(1), _drawn_weights(w, branches), w)
        l_hat, r_hat = linearize(z, v, drawn.l, drawn.r, w)
        return BagOutput(l_hat, r_hat, _counts(batch, z, branches), model.pooling)

    def get_extra_state(self) -> Tensor:
        """Return the number of steps drawn so far."""
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        """Continue the draws after the number of steps in `state`."""
        self.step = int(state)


class _Passes:
    """Both passes over one batch, under the same autocast and, chunk by chunk, the same random numbers."""

    def __init__(self, model: BagScorer, batch: WholeBatch, chunk_size: int) -> None:
        self.model, self.batch, self.chunk_size = model, batch, chunk_size
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.device = batch.reader.device
        self.autocast = torch.is_autocast_enabled(self.device.type)
        self.autocast_dtype = torch.get_autocast_dtype(self.device.type)
        self.noisy = model.training
        self.random_states: list[tuple[Tensor, ...]] = []

    def first(self) -> tuple[Tensor, Tensor]:
        total = total_of(self.model, self.batch.index.shape[0])
        with closing(self.batch.read(self.chunk_size)) as chunks:
            for positions, segment, x in chunks:
                if self.noisy:
                    self._note_random_state()
                total.add(*fold_chunk(positions, segment.to(x.device), *self.model.instances(x)))
        # As in `midam.evaluate.predict.stream_instances`: the second pass casts the weights again, with a graph.
        torch.clear_autocast_cache()
        value = total.value()
        return value.l, value.r

    def _note_random_state(self) -> None:
        state: tuple[Tensor, ...] = (torch.get_rng_state(),)
        if self.device.type == "cuda":
            state = (*state, torch.cuda.get_rng_state(self.device))
        # An encoder without random numbers does not change the state: all chunks then share one copy.
        if self.random_states and all(map(torch.equal, state, self.random_states[-1])):
            state = self.random_states[-1]
        self.random_states.append(state)

    def second(self, l: Tensor, r: Tensor, grad_l: Tensor, grad_r: Tensor) -> list[Tensor | None]:  # noqa: E741
        total: list[Tensor | None] = [None] * len(self.parameters)
        devices = [self.device] if self.device.type == "cuda" else []
        noise = torch.random.fork_rng(devices=devices, enabled=self.noisy)
        precision = torch.autocast(self.device.type, dtype=self.autocast_dtype, enabled=self.autocast)
        with noise, torch.enable_grad(), precision, closing(self.batch.read(self.chunk_size)) as chunks:
            for i, (_, segment, x) in enumerate(chunks):
                if self.noisy:
                    torch.set_rng_state(self.random_states[i][0])
                    if devices:
                        torch.cuda.set_rng_state(self.random_states[i][1], self.device)
                z, v = fold(*self.model.instances(x))
                branches = self.model.pooling.branches
                rows = rows_of(segment.to(z.device), branches)
                w = torch.exp(z.detach() - l[rows]) / _counts(self.batch, z, branches)[rows]
                pulls = cotangents(v.detach(), r[rows], w, grad_l[rows], grad_r[rows])
                roots = [(out, pull) for out, pull in zip((z, v), pulls) if out.requires_grad]
                grads = torch.autograd.grad(
                    [out for out, _ in roots], self.parameters, [pull for _, pull in roots], allow_unused=True
                )
                total = [_add(a, b) for a, b in zip(total, grads)]
        return total


class _TwoPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, passes: _Passes, *parameters: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        l, r = passes.first()  # noqa: E741
        ctx.passes = passes
        ctx.save_for_backward(l, r)
        return l, r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_l: Tensor, grad_r: Tensor) -> tuple[Tensor | None, ...]:
        l, r = ctx.saved_tensors  # noqa: E741
        return None, *ctx.passes.second(l, r, grad_l, grad_r)


def _add(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    if total is None or part is None:
        return part if total is None else total
    return total.add_(part)


def _counts(batch: WholeBatch, like: Tensor, branches: int) -> Tensor:
    """Return the number of instances of each row's bag."""
    return each(batch.sizes.to(device=like.device, dtype=like.dtype), branches)


def _drawn_weights(w: Tensor, branches: int) -> Tensor:
    """Return the weights [K * G, B] of instances drawn from the mixture, from `point_weights`; 1/B for one branch."""
    if branches == 1:
        return torch.full_like(w, 1 / w.shape[1])
    of_bag = w.view(-1, branches, w.shape[1])
    return (of_bag / (of_bag.mean(dim=1, keepdim=True) * w.shape[1])).view_as(w)


def refuse_batch_statistics(model: nn.Module, user: str) -> None:
    """Refuse a scorer if the score of an instance depends on its chunk."""
    for name in batch_norms(model):
        raise ConfigError(
            f"Expected scores that do not depend on the batch for {user}, got batch normalization with the statistics "
            f"of each chunk at {name!r}; use group normalization, or put the layer into evaluation mode "
            "(model.get_submodule(name).eval())."
        )


def _refuse_noise(model: nn.Module, estimator: str) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _DropoutNd) and module.training and module.p > 0:
            raise ConfigError(
                f"Expected a deterministic encoder for {estimator!r}, got active dropout at {name!r}; set its rate to "
                "0, or use the estimator 'exact' with a smooth pooling, which replays it."
            )


@dataclass(frozen=True)
class Draw:
    """Drawn instances of K bags, and the exact point of these bags.

    The slots of a `proportional` bag were drawn with replacement in proportion to exp(z), in the mean over its
    branches; the slots of other bags hold distinct instances, drawn uniformly, or all instances.
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
    """Stream the point, and draw B instances of each bag with replacement in proportion to exp(z).

    A bag of at most B instances is taken whole. Each of the B slots of a bag is a reservoir of one instance: a new
    chunk replaces it with a probability equal to the chunk's share of the weight seen so far. Several branches take
    turns at the slots of a bag, starting with a random branch, so that each slot is drawn from their mixture.
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
        for branch, logits in enumerate(z.cpu().double().reshape(-1, branches).numpy().T):
            inside = _draw_within(logits, bags, arrived, num_instances, rng)
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
    # The rows of a chunk are sorted by bag, so one cumulative sum serves all bags; each bag is scaled by its maximum.
    first = np.searchsorted(segment, arrived, side="left")
    last = np.searchsorted(segment, arrived, side="right") - 1
    top = np.maximum.reduceat(z, first)
    weight = np.exp(z - top[np.searchsorted(arrived, segment)])
    cumulative = np.cumsum(weight)
    low = cumulative[first] - weight[first]
    target = low[:, None] + rng.random((len(arrived), count)) * (cumulative[last] - low)[:, None]
    drawn = np.searchsorted(cumulative, target, side="right")
    return np.clip(drawn, first[:, None], last[:, None])
