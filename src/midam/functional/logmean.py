r"""The log-weighted mean of a bag: the statistic of almost every pooling.

Instance j of a bag carries a logit ``z_j`` and a value ``v_j`` (a vector of width V; V = 0 if a pooling needs none).
The bag's statistic is

    l = log( 1/n sum_j exp(z_j) )                    log-mean weight
    r = sum_j exp(z_j) v_j / sum_j exp(z_j)          weighted mean value

which is the paper's inner function f1 in log space: for smoothed-max s = exp(l) (eq. sm), for attention
s = (exp(l) r, exp(l)) (eq. ab). ``(n, l, r)`` is a commutative monoid with identity ``(0, -inf, 0)``: chunks of a bag,
the moving average of eq. ui and samples drawn with unequal probabilities are all merges. Nothing overflows, because the
logits are exponentiated relative to their maximum.

The paper's gradient estimators (G1, G2, G3) differ only in the point at which `linearize` takes the statistic.

Throughout, K bags have samples `z` [K, B] and `v` [K, B, V], and statistics `n` [K], `l` [K], `r` [K, V]. `mask` [K, B]
(bool, at least one true per row; default: all) marks the slots that hold an instance. Range: finite logits up to 1e30
in magnitude in float32, bags of at least one instance.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

# ruff: noqa: E741


MAX_LAG_EXPONENT = 20.0


class BagStatistic(NamedTuple):
    """Statistic of K bags: count `n` [K], log-mean weight `l` [K], weighted mean value `r` [K, V].

    Examples
    --------
    >>> stat = reduce(torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[[1.0], [2.0], [3.0]]]))
    >>> stat.n.item(), round(stat.l.item(), 2), round(stat.r.item(), 2)
    (3.0, 1.14, 2.68)
    """

    n: Tensor
    l: Tensor
    r: Tensor


def reduce(z: Tensor, v: Tensor, *, mask: Tensor | None = None) -> BagStatistic:
    """Return the statistic of K bags given as padded rows, differentiable in z and v; `n` counts the instances.

    Examples
    --------
    >>> stat = reduce(torch.zeros(1, 2), torch.tensor([[[1.0], [3.0]]]))
    >>> stat.l.item(), stat.r.item()
    (0.0, 2.0)
    """
    if mask is None:
        n = z.new_full((z.shape[0],), float(z.shape[1]))
    else:
        n = mask.sum(dim=-1).to(z.dtype)
        z = z.masked_fill(~mask, _lowest(z.dtype))
        v = v.masked_fill(~mask.unsqueeze(-1), 0.0)
    total = torch.logsumexp(z, dim=-1)
    weight = torch.exp(z - total.unsqueeze(-1))
    # Not einsum: autocast would compute the sum in half precision.
    r = (weight.unsqueeze(-1) * v).sum(dim=1)
    return BagStatistic(n, total - torch.log(n), r)


def reduce_segments(z: Tensor, v: Tensor, segment: Tensor, *, num_bags: int) -> BagStatistic:
    """Return the statistic of bags given as one flat array of instances z [M], v [M, V], differentiable in both.

    `segment` [M], int64, is the bag of each instance, in [0, num_bags). An empty bag gets (0, -inf, 0).

    Examples
    --------
    >>> stat = reduce_segments(torch.zeros(3), torch.ones(3, 1), torch.tensor([0, 0, 2]), num_bags=3)
    >>> stat.n.tolist(), stat.l.tolist()
    ([2.0, 0.0, 1.0], [0.0, -inf, 0.0])
    """
    n = z.new_zeros(num_bags).index_add(0, segment, torch.ones_like(z))
    top = z.new_full((num_bags,), _lowest(z.dtype)).scatter_reduce(0, segment, z.detach(), "amax")
    weight = torch.exp(z - top[segment])
    total = z.new_zeros(num_bags).index_add(0, segment, weight)
    present = n > 0
    safe = torch.where(present, total, torch.ones_like(total))
    r = v.new_zeros(num_bags, v.shape[-1]).index_add(0, segment, weight.unsqueeze(-1) * v) / safe.unsqueeze(-1)
    level = top + torch.log(safe) - torch.log(n.clamp(min=1.0))
    return BagStatistic(n, torch.where(present, level, torch.full_like(level, -math.inf)), r)


def merge(first: BagStatistic, second: BagStatistic) -> BagStatistic:
    """Return the statistic of the union of two disjoint parts of each bag; either part may be empty.

    Examples
    --------
    >>> a = reduce(torch.tensor([[0.0]]), torch.tensor([[[1.0]]]))
    >>> b = reduce(torch.tensor([[0.0, 0.0]]), torch.tensor([[[4.0], [4.0]]]))
    >>> merge(a, b).r.item()
    3.0
    """
    n = first.n + second.n
    share = first.n / n.clamp(min=1.0)
    level, r = _mix(first.l + torch.log(share), first.r, second.l + torch.log1p(-share), second.r)
    return BagStatistic(n, level, r)


def identity(num_bags: int, value_size: int, *, like: Tensor) -> BagStatistic:
    """Return the statistic of K empty bags, in the dtype and on the device of `like`."""
    zeros = like.new_zeros(num_bags)
    return BagStatistic(zeros, like.new_full((num_bags,), -math.inf), like.new_zeros(num_bags, value_size))


def moving_average(
    l_old: Tensor, r_old: Tensor, l_new: Tensor, r_new: Tensor, *, gamma0: Tensor
) -> tuple[Tensor, Tensor]:
    """Update the paper's moving average (eq. ui, sm, ab) in log space: s = (1 - gamma0) s_old + gamma0 s_new.

    `gamma0` [K] is in (0, 1]; at 1 the old state, whose l may be -inf, has no effect. `track` takes a whole sample.

    Examples
    --------
    >>> none, one = torch.zeros(1, 0), torch.ones(1)
    >>> l, r = moving_average(torch.zeros(1), none, one, none, gamma0=one)
    >>> l.item()
    1.0
    """
    return _mix(l_old + torch.log1p(-gamma0), r_old, l_new + torch.log(gamma0), r_new)


def importance_logits(z: Tensor, log_ratio: Tensor) -> Tensor:
    """Return ``z - log_ratio``: logits of a weighted sample whose statistic estimates that of the whole bag.

    `log_ratio` [K, B] is ``log(n q_j)`` for sampling with replacement from probabilities q, and ``log(n pi_j / B)`` for
    sampling without replacement with inclusion probabilities pi. exp(l) and exp(l) r are then unbiased; l, r and the
    score have a bias of O(1/B).
    """
    return z - log_ratio


def point_weights(
    z: Tensor, l: Tensor, n: Tensor, *, mask: Tensor | None = None, max_exponent: float | None = None
) -> Tensor:
    """Return the weights ``w_j = exp(z_j - l) / n`` [K, B] of a sample of n instances at the point l, without graph.

    `max_exponent` bounds z - l, for a point that does not contain the sample (`MAX_LAG_EXPONENT`). No bound is needed
    if the sample was merged into the point with weight gamma0: the weights then sum to at most 1 / gamma0.
    """
    exponent = z.detach() - l.unsqueeze(-1)
    if max_exponent is not None:
        exponent = exponent.clamp(max=max_exponent)
    weight = torch.exp(exponent) / n.unsqueeze(-1)
    return weight if mask is None else weight.masked_fill(~mask, 0.0)


def cotangents(v: Tensor, r: Tensor, w: Tensor, grad_l: Tensor, grad_r: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the surrogate ``grad_l l_hat + grad_r . r_hat`` with respect to z and v.

    ``l_hat = l + sum_j w_j (z_j - sg z_j)`` and
    ``r_hat = r + sum_j w_j [(v_j - sg v_j) + (sg v_j - r)(z_j - sg z_j)]``, sg = stop-gradient, have the value of the
    point and the sample's compositional gradient ``grad f1(B) grad f2(s)`` (the paper's G1, G2, G3). `r`, `grad_l` and
    `grad_r` belong to the bag of each instance (broadcastable); `w` are its `point_weights`.

    Examples
    --------
    >>> v, w = torch.ones(2, 1), torch.full((2,), 0.5)
    >>> gz, gv = cotangents(v, torch.zeros(2, 1), w, torch.zeros(2), torch.ones(2, 1))
    >>> gz.tolist(), gv.flatten().tolist()
    ([0.5, 0.5], [0.5, 0.5])
    """
    if v.shape[-1] == 0:
        return w * grad_l, torch.zeros_like(v)
    return w * (grad_l + ((v - r) * grad_r).sum(dim=-1)), w.unsqueeze(-1) * grad_r


def linearize(z: Tensor, v: Tensor, l: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return the point (l, r) with the gradient of the sample: ``l_hat, r_hat`` of `cotangents`, for weights w [K, B].

    A differentiable loss of ``f2(l_hat, r_hat)`` then has its value at the point, and autograd gives the sample's
    estimate of the compositional gradient. The point and the weights are constants.

    Examples
    --------
    >>> z = torch.zeros(1, 2, requires_grad=True)
    >>> l_hat, _ = linearize(z, z.new_zeros(1, 2, 0), torch.tensor([3.0]), torch.zeros(1, 0), torch.full((1, 2), 0.5))
    >>> l_hat.backward()
    >>> l_hat.item(), z.grad.tolist()
    (3.0, [[0.5, 0.5]])
    """
    w, r_hat = w.detach(), r.detach()
    weighted = w * z
    l_hat = weighted.sum(dim=1)
    # The sum carries the gradient to the sample; its value is replaced by that of the point.
    l_hat.detach().copy_(l)
    if v.shape[-1]:
        pull = (v.detach() - r_hat.unsqueeze(1)) * weighted.unsqueeze(-1)
        r_hat = torch.addcmul(pull, w.unsqueeze(-1), v).sum(dim=1)
        r_hat.detach().copy_(r)
    return l_hat, r_hat


def _mix(a: Tensor, r_a: Tensor, b: Tensor, r_b: Tensor) -> tuple[Tensor, Tensor]:
    level = torch.logaddexp(a, b)
    if r_a.shape[-1] == 0:
        return level, r_b
    empty = level == -math.inf
    safe = torch.where(empty, torch.zeros_like(level), level)
    return level, torch.exp(a - safe).unsqueeze(-1) * r_a + torch.exp(b - safe).unsqueeze(-1) * r_b


def _lowest(dtype: torch.dtype) -> float:
    # A masked logit stays finite: -inf would turn z - max(z) into NaN in a row that autograd still visits.
    return torch.finfo(dtype).min / 4


class Rate(NamedTuple):
    """Weight of a new sample, and its logarithms."""

    gamma0: Tensor
    log_old: Tensor  # log(1 - gamma0)
    log_new: Tensor  # log(gamma0)
    log_each: Tensor | None = None  # log(gamma0 / B), computed once
    # log((1 - f) / f): largest log ratio of the old state to a sample whose share is at least f; None: no bound
    log_most: Tensor | None = None


def rate_of(gamma0: Tensor, *, drawn: int | None = None, floor: float = 0.0) -> Rate:
    """Return the `Rate` of weights in (0, 1], for samples of `drawn` instances if their number is known.

    `floor` in [0, 1) is the minimum share of the sample in a state with values, at most gamma0; 0 in the paper.
    """
    log_new = torch.log(gamma0)
    log_each = None if drawn is None else log_new - math.log(drawn)
    least = gamma0.clamp(max=floor)
    return Rate(gamma0, torch.log1p(-gamma0), log_new, log_each, torch.log1p(-least) - least.log() if floor else None)


def track(
    z: Tensor, v: Tensor, l_old: Tensor, r_old: Tensor, *, rate: Rate, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tracked statistic after a sample, l [K, 1] and r [K, V], and the weights w [K, B] for `linearize`.

    One softmax does the work of `reduce`, `moving_average` and `point_weights` (eq. ui, sm and ab of the paper),
    because each step of the variance-reduced estimator needs all three. The old values of a state have the weight
    exp(l). If the weights of a bag have fallen since its last visit, the old values outweigh the sample, which then
    gets no gradient. Therefore the sample has a minimum share of a state with values, the floor of `rate`. The state of
    smoothed-max is l alone, without values, and has no floor.

    The new state is the log-mean of the old state, with weight 1 - gamma0, and of B instances, with weight gamma0 / B
    each. The share of an instance is gamma0 w. If the sample's share of a state with values would fall below the floor,
    the old state gets less weight. `z` [K, B] is very low where `mask` [K, B] is false, `l_old` [K, 1] is -inf for
    s = 0, and the rate is [K, 1], or [1, 1] for all bags.

    Examples
    --------
    >>> none = torch.zeros(1, 0)
    >>> l, _, w = track(torch.zeros(1, 2), torch.zeros(1, 2, 0), torch.zeros(1, 1), none,
    ...                 rate=rate_of(torch.full((1, 1), 0.5)), mask=None)
    >>> l.item(), w.tolist()
    (0.0, [[0.5, 0.5]])
    >>> stale = torch.tensor([[50.0]]), torch.zeros(1, 1)
    >>> track(torch.zeros(1, 1), torch.ones(1, 1, 1), *stale, mask=None,
    ...       rate=rate_of(torch.full((1, 1), 0.9), floor=0.5))[1].item()
    0.5
    """
    log_each = rate.log_each
    if log_each is None or mask is not None:
        log_n = math.log(z.shape[1]) if mask is None else mask.sum(dim=1, keepdim=True).to(z.dtype).log()
        log_each = rate.log_new - log_n
    new, old = z + log_each, l_old + rate.log_old
    if rate.log_most is not None and v.shape[-1]:
        old = torch.minimum(old, new.logsumexp(dim=1, keepdim=True) + rate.log_most)
    parts = torch.cat([old, new], dim=1)
    top = parts.amax(dim=1, keepdim=True)
    share = torch.exp_(parts - top)
    total = share.sum(dim=1, keepdim=True)
    share /= total
    w = share.narrow(1, 1, z.shape[1]) / rate.gamma0
    if v.shape[-1] == 0:
        return top + total.log_(), r_old, w
    # Not einsum: autocast would compute the sum in half precision.
    r = (share.unsqueeze(-1) * torch.cat([r_old.unsqueeze(1), v], dim=1)).sum(dim=1)
    return top + total.log_(), r, w
