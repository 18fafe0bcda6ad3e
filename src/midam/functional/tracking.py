"""The tracked state of the paper (eq. ui, sm, ab) and the sample's weights at it, in one pass.

`track` is `reduce`, `moving_average` and `point_weights` of `midam.functional.logmean`, fused into one softmax: every
step of the variance-reduced estimator takes it.

A state with values weighs them by exp(l). Where the weights of a bag have fallen since its last visit, the old values
outweigh the sample, however stale they are, and the sample gets no gradient: a training can lower all weights and live
on its memory. So the sample's share of such a state has a floor. A state without values, that of smoothed-max, is l
itself, and has none.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Rate(NamedTuple):
    """Weight of a new sample, and its logarithms."""

    gamma0: Tensor
    log_old: Tensor  # log(1 - gamma0)
    log_new: Tensor  # log(gamma0)
    log_each: Tensor | None = None  # log(gamma0 / B), worked out once
    # log((1 - f) / f), the largest ratio of the old state to a sample whose least share is f; None: no bound
    log_most: Tensor | None = None


def rate_of(gamma0: Tensor, *, drawn: int | None = None, floor: float = 0.0) -> Rate:
    """Rate of weights in (0, 1], of samples of so many instances where that is known.

    `floor` in [0, 1) is the least share of the sample in a state with values, at most gamma0; 0 is the paper's.
    """
    log_new = torch.log(gamma0)
    log_each = None if drawn is None else log_new - math.log(drawn)
    least = gamma0.clamp(max=floor)
    return Rate(gamma0, torch.log1p(-gamma0), log_new, log_each, torch.log1p(-least) - least.log() if floor else None)


def track(
    z: Tensor, v: Tensor, l_old: Tensor, r_old: Tensor, *, rate: Rate, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Advance the tracked statistic by a sample: new l [K, 1], r [K, V], and the weights w [K, B] to linearize there.

    The new state is the log-mean of the old one, of weight 1 - gamma0, and of B instances of weight gamma0 / B each. An
    instance's share of it is gamma0 w. Of a state with values the old one weighs less, where the sample's share would
    fall below the floor of the rate. `z` [K, B] is very low where `mask` [K, B] is false, `l_old` [K, 1] is -inf for
    s = 0, and the rate is a number a bag, [K, 1], or one for all, [1, 1].

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
    own, old = z + log_each, l_old + rate.log_old
    if rate.log_most is not None and v.shape[-1]:
        old = torch.minimum(old, own.logsumexp(dim=1, keepdim=True) + rate.log_most)
    parts = torch.cat([old, own], dim=1)
    top = parts.amax(dim=1, keepdim=True)
    share = torch.exp_(parts - top)
    total = share.sum(dim=1, keepdim=True)
    share /= total
    w = share.narrow(1, 1, z.shape[1]) / rate.gamma0
    if v.shape[-1] == 0:
        return top + total.log_(), r_old, w
    # Not einsum: autocast would take the sum in half precision.
    r = (share.unsqueeze(-1) * torch.cat([r_old.unsqueeze(1), v], dim=1)).sum(dim=1)
    return top + total.log_(), r, w
