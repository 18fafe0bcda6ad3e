"""The tracked state of the paper (eq. ui, sm, ab) and the sample's weights at it, in one pass.

`track` is `reduce`, `moving_average` and `point_weights` of `midam.functional.logmean`, fused into one softmax: every
step of the variance-reduced estimator takes it.
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


def rate_of(gamma0: Tensor, *, drawn: int | None = None) -> Rate:
    """Rate of weights in (0, 1], of samples of so many instances where that is known."""
    log_new = torch.log(gamma0)
    return Rate(gamma0, torch.log1p(-gamma0), log_new, None if drawn is None else log_new - math.log(drawn))


def track(
    z: Tensor, v: Tensor, l_old: Tensor, r_old: Tensor, *, rate: Rate, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Advance the tracked statistic by a sample: new l [K, 1], r [K, V], and the weights w [K, B] to linearize there.

    The new state is the log-mean of the old one, of weight 1 - gamma0, and of B instances of weight gamma0 / B each. An
    instance's share of it is gamma0 w. `z` [K, B] is very low where `mask` [K, B] is false, `l_old` [K, 1] is -inf for
    s = 0, and the rate is a number a bag, [K, 1], or one for all, [1, 1].

    Examples
    --------
    >>> none = torch.zeros(1, 0)
    >>> l, _, w = track(torch.zeros(1, 2), torch.zeros(1, 2, 0), torch.zeros(1, 1), none,
    ...                 rate=rate_of(torch.full((1, 1), 0.5)), mask=None)
    >>> l.item(), w.tolist()
    (0.0, [[0.5, 0.5]])
    """
    log_each = rate.log_each
    if log_each is None or mask is not None:
        log_n = math.log(z.shape[1]) if mask is None else mask.sum(dim=1, keepdim=True).to(z.dtype).log()
        log_each = rate.log_new - log_n
    parts = torch.cat([l_old + rate.log_old, z + log_each], dim=1)
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
