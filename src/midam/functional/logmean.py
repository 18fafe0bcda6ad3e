r"""The log-weighted mean of a bag: the statistic of almost every pooling.

Instance j of a bag carries a logit ``z_j`` and a value ``v_j`` (a vector of width V; V = 0 if a pooling needs none).
The bag's statistic is

    l = log( 1/n sum_j exp(z_j) )                    log-mean weight
    r = sum_j exp(z_j) v_j / sum_j exp(z_j)          weighted mean value

which is the paper's inner function f1 in log space: for smoothed-max s = exp(l) (eq. sm), for attention
s = (exp(l) r, exp(l)) (eq. ab). ``(n, l, r)`` is a commutative monoid with identity ``(0, -inf, 0)``: chunks of a bag
and the moving average of eq. ui are merges. Nothing overflows, because the logits are exponentiated relative to their
maximum.

The paper's gradient estimators (G1, G2, G3) differ only in the point at which `linearize` takes the statistic.

Adding c to all logits of a bag adds c to its l and leaves its r as it is; adding c to all values adds c to its r. A
moving average answers only in part, with the weight of the new sample. With a level, `track` answers as the bag does.

Throughout, K bags have samples `z` [K, B] and `v` [K, B, V], and statistics `n` [K], `l` [K], `r` [K, V]. `mask` [K, B]
(bool, at least one true per row; default: all) marks the slots that hold an instance. Range: finite logits up to 1e30
in magnitude in float32, bags of at least one instance.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# ruff: noqa: E741


MAX_LAG_EXPONENT = 20.0
HEAVY = 0.5
"""Largest share of the weight of an instance that `without` takes out: above it, 1 - weight loses digits."""


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
    return _reduce(z, v, mask)[0]


def reduce_sample(z: Tensor, v: Tensor, *, mask: Tensor | None = None) -> BagStatistic:
    """Return the same as `reduce`, with the gradient of `linearize` at the sample's own point: one node, not twelve."""
    with torch.no_grad():
        (n, l, r), w = _reduce(z, v, mask)
    return BagStatistic(n, *linearize(z, v, l, r, w))


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


def without(whole: BagStatistic, weight: Tensor, v: Tensor) -> BagStatistic:
    """Return the statistics of m bags without one instance each, in closed form.

        n' = n - 1,    l' = log(n exp(l) (1 - w) / n'),    r' = (r - w v) / (1 - w)

    Parameters
    ----------
    whole : BagStatistic [m]
        Statistics with the instances.
    weight, v : Tensor [m], Tensor [m, V]
        The share w of each instance in the weight of its bag, and its value. Range: w up to `HEAVY`; a larger one
        counts as `HEAVY`: merge the other instances instead.

    Examples
    --------
    >>> whole = reduce(torch.zeros(1, 4), torch.tensor([[[1.0], [2.0], [3.0], [6.0]]]))
    >>> without(whole, torch.tensor([0.25]), torch.tensor([[6.0]])).r.item()
    2.0
    """
    rest, n = (1 - weight).clamp(min=1 - HEAVY), whole.n
    level = whole.l + torch.log(rest) + torch.log(n / (n - 1).clamp(min=1.0))
    return BagStatistic(n - 1, level, (whole.r - weight[:, None] * v) / rest[:, None])


def moving_average(
    l_old: Tensor, r_old: Tensor, l_new: Tensor, r_new: Tensor, *, gamma0: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Update the paper's moving average (eq. ui, sm, ab) in log space: s = (1 - gamma0) s_old + gamma0 s_new.

    `gamma0` [K], or a number for all bags, is in (0, 1]; at 1 the old state, whose l may be -inf, has no effect.

    Examples
    --------
    >>> none, one = torch.zeros(1, 0), torch.ones(1)
    >>> l, r = moving_average(torch.zeros(1), none, one, none, gamma0=one)
    >>> l.item()
    1.0
    """
    rate = gamma0 if isinstance(gamma0, float) else gamma0.unsqueeze(-1)
    l, share = _average(l_old.unsqueeze(-1), l_new.unsqueeze(-1), rate)
    return l.squeeze(-1), torch.lerp(r_old, r_new, share)


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
    l_hat, r_hat = _AtPoint.apply(z, v, l.detach(), r.detach(), w.detach())  # type: ignore[no-untyped-call]
    return l_hat, r_hat


class _AtPoint(torch.autograd.Function):
    """Returns the point; its backward pass is that of `cotangents`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, v: Tensor, l: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004, PLR0917
        ctx.save_for_backward(v, r, w)
        ctx.set_materialize_grads(False)
        return l.clone(), r.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_l: Tensor | None, grad_r: Tensor | None) -> tuple[Tensor | None, ...]:
        v, r, w = ctx.saved_tensors
        if grad_r is None or v.shape[-1] == 0:
            return None if grad_l is None else w * grad_l.unsqueeze(1), None, None, None, None
        level = w.new_zeros(()) if grad_l is None else grad_l.unsqueeze(1)
        return *cotangents(v, r.unsqueeze(1), w, level, grad_r.unsqueeze(1)), None, None, None


def track(
    z: Tensor,
    v: Tensor,
    old: Tensor,
    *,
    gamma0: Tensor | float,
    mask: Tensor | None = None,
    level: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Merge samples into remembered statistics; return l [K] and r [K, V] with the gradient of the samples.

    `old` [K, 1 + V] are the remembered l and r; the third result are the new ones. With the statistics (l_S, r_S) of
    the samples, l and r are their `moving_average` (eq. ui, sm, ab), and the gradient is that of `linearize` at this
    point. The weights sum to ``m = exp(l_S - l)``, which is at most 1 / gamma0:

        l_hat = l + m d(l_S)
        r_hat = r + m [ d(r_S) + (r_S - r) d(l_S) ]                    d(x) = x - sg x

    This is the state as the paper prints it. Add a constant to all logits of a bag: its l rises by it and its r stays.
    Add one to all values: its r rises by it. The printed state rises by a part only, and its gradient is m instead of
    1, or not 0. With a `level`, the mean of (l_S, r_S) over the bags of the step, what is remembered is the difference
    from it, and the level of the current step is added again, with its gradient:

        l_hat = l + m d(l_S) + (1 - m) d(level l)
        r_hat = r + m [ d(r_S) + (r_S - r) d(l_S - level l) ] + (1 - m) d(level r)

    So l and r answer such constants as those of the whole bag do. At gamma0 = 1 the level has no effect.

    Parameters
    ----------
    z, v, mask
        As in the module; `z` is very low where `mask` is false.
    old : Tensor [K, 1 + V]
        l, and r; relative to the level of an earlier step if there is a `level`.
    gamma0 : Tensor [K, 1] or float
        In (0, 1]; at 1 `old` has no effect.
    level : callable, optional
        Returns the mean over the bags of the step, for each row, of numbers [K, 1 + V], as [K, 1 + V] or [1, 1 + V].

    Examples
    --------
    All logits of a step rise by 3, and so does l:

    >>> z, v, old = torch.zeros(2, 4), torch.zeros(2, 4, 0), torch.tensor([[1.0], [-1.0]])
    >>> mean = lambda x: x.mean(dim=0, keepdim=True)
    >>> low, high = (track(x, v, old, gamma0=0.5, level=mean)[0] for x in (z, z + 3))
    >>> torch.allclose(high, low + 3)
    True
    """
    l, r, new = _Track.apply(z, v, old, gamma0, mask, level)  # type: ignore[no-untyped-call]
    return l, r, new


class _Track(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any,
        z: Tensor,
        v: Tensor,
        old: Tensor,
        gamma0: Tensor | float,
        mask: Tensor | None,
        level: Callable[[Tensor], Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        l_s, r_s, weight = _sample(z, v, mask)
        sample = torch.cat([l_s, r_s], dim=1) if v.shape[-1] else l_s
        base = None if level is None else level(sample)
        if base is not None:
            old = old + base
        l, share = _average(old.narrow(1, 0, 1) if v.shape[-1] else old, l_s, gamma0)
        new, pull = l, None
        m = share / gamma0
        if v.shape[-1]:
            r_old = old.narrow(1, 1, v.shape[-1])
            r = torch.lerp(r_old, r_s, share)
            new, pull = torch.cat([l, r], dim=1), m * (r_s - r)
        ctx.level = level
        ctx.save_for_backward(weight, v, r_s, m, pull)
        ctx.set_materialize_grads(False)
        kept = new.clone() if base is None else new - base
        ctx.mark_non_differentiable(kept)
        return l.squeeze(1), r if v.shape[-1] else r_s, kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_l: Tensor | None, grad_r: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        weight, v, r_s, m, pull = ctx.saved_tensors
        grad_l = None if grad_l is None else grad_l.unsqueeze(1)
        to_l: Any = 0.0 if grad_l is None else m * grad_l
        if pull is None or grad_r is None:
            return weight * _answer(to_l, grad_l, ctx.level), None, None, None, None, None
        to_l = _answer(to_l + (pull * grad_r).sum(dim=1, keepdim=True), grad_l, ctx.level)
        to_r = _answer(m * grad_r, grad_r, ctx.level)
        return *cotangents(v, r_s.unsqueeze(1), weight, to_l, to_r.unsqueeze(1)), None, None, None, None


def _answer(taken: Tensor, grad: Tensor | None, level: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return the gradient of the samples' statistic: what the bags take of `grad`, and what the level of the step."""
    if level is None:
        return taken
    return taken + level(-taken if grad is None else grad - taken)


def _average(l_old: Tensor, l_new: Tensor, gamma0: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the moving average of l [K, 1], and the share [K, 1] of the new values in it."""
    kept: Tensor | float
    taken: Tensor | float
    if isinstance(gamma0, float):
        kept, taken = math.log1p(-gamma0) if gamma0 < 1 else -math.inf, math.log(gamma0)
    else:
        kept, taken = torch.log1p(-gamma0), torch.log(gamma0)
    l = torch.logaddexp(l_old + kept, l_new + taken)
    # Not exp(l_new + taken - l): logits of 1e7 in float32 leave no digit of it.
    return l, torch.sigmoid(l_new - l_old + (taken - kept))


def _mix(a: Tensor, r_a: Tensor, b: Tensor, r_b: Tensor) -> tuple[Tensor, Tensor]:
    level = torch.logaddexp(a, b)
    if r_a.shape[-1] == 0:
        return level, r_b
    empty = level == -math.inf
    safe = torch.where(empty, torch.zeros_like(level), level)
    return level, torch.exp(a - safe).unsqueeze(-1) * r_a + torch.exp(b - safe).unsqueeze(-1) * r_b


def _reduce(z: Tensor, v: Tensor, mask: Tensor | None) -> tuple[BagStatistic, Tensor]:
    """Return the statistic of padded rows, and the weights [K, B] of its instances, which sum to 1."""
    l, r, weight = _sample(z, v, mask)
    n = z.new_full((len(z),), float(z.shape[1])) if mask is None else mask.sum(dim=-1).to(z.dtype)
    return BagStatistic(n, l.squeeze(1), r), weight


def _sample(z: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return l [K, 1] and r [K, V] of padded rows, and the weights [K, B] of their instances, which sum to 1."""
    log_n: Tensor | float
    if mask is None:
        log_n = math.log(z.shape[1])
    else:
        log_n = torch.log(mask.sum(dim=1, keepdim=True).to(z.dtype))
        z = z.masked_fill(~mask, _lowest(z.dtype))
        v = v.masked_fill(~mask.unsqueeze(-1), 0.0)
    # Not logsumexp and softmax, which take twice as long together. Relative to the maximum, logits of 1e7 in float32
    # keep all digits of the weights.
    top = z.detach().amax(dim=1, keepdim=True)
    weight = torch.exp(z - top)
    total = weight.sum(dim=1, keepdim=True)
    weight = weight / total
    # Not einsum: autocast would compute the sum in half precision.
    r = (weight.unsqueeze(-1) * v).sum(dim=1) if v.shape[-1] else v[:, 0]
    return torch.log(total) + top - log_n, r, weight


def _lowest(dtype: torch.dtype) -> float:
    # A masked logit stays finite: -inf would turn z - max(z) into NaN in a row that autograd still visits.
    return torch.finfo(dtype).min / 4
