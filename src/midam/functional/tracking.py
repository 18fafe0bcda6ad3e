"""The tracked state of the paper (eq. ui, sm, ab) and the sample's weights at it, in one pass.

`track` is `reduce`, `moving_average` and `point_weights` of `midam.functional.logmean`, fused into one softmax: every
step of the variance-reduced estimator takes it.
"""

import math

import torch
from torch import Tensor


def track(
    z: Tensor,
    v: Tensor,
    l_old: Tensor,
    r_old: Tensor,
    *,
    gamma0: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Advance the tracked statistic by a sample; returns it and the weights that linearize at it.

    The new state is the log-mean of the old one, of weight 1 - gamma0, and of B instances of weight gamma0 / B each. An
    instance's share of it is gamma0 w, which gives the weights w.

    Parameters
    ----------
    z : Tensor [K, B]
        Logits of the sample, very low where `mask` is false.
    v : Tensor [K, B, V]
        Values of the sample.
    l_old : Tensor [K, 1]
        Tracked log-mean weight; -inf for s = 0.
    r_old : Tensor [K, V]
        Tracked value.
    gamma0 : Tensor [K, 1]
        Weight of the sample, in (0, 1].
    mask : Tensor [K, B], bool, or None
        True for the instances that exist.

    Returns
    -------
    l, r, w : Tensor [K, 1], Tensor [K, V], Tensor [K, B]

    Examples
    --------
    >>> none = torch.zeros(1, 0)
    >>> l, _, w = track(torch.zeros(1, 2), torch.zeros(1, 2, 0), torch.zeros(1, 1), none,
    ...                 gamma0=torch.full((1, 1), 0.5), mask=None)
    >>> l.item(), w.tolist()
    (0.0, [[0.5, 0.5]])
    """
    log_n = math.log(z.shape[1]) if mask is None else mask.sum(dim=1, keepdim=True).to(z.dtype).log()
    parts = torch.cat([l_old + torch.log1p(-gamma0), z + (torch.log(gamma0) - log_n)], dim=1)
    top = parts.amax(dim=1, keepdim=True)
    share = torch.exp_(parts - top)
    total = share.sum(dim=1, keepdim=True)
    share /= total
    w = share[:, 1:] / gamma0
    if v.shape[-1] == 0:
        return top + total.log_(), r_old, w
    # Not einsum: autocast would take the sum in half precision.
    r = (share.unsqueeze(-1) * torch.cat([r_old.unsqueeze(1), v], dim=1)).sum(dim=1)
    return top + total.log_(), r, w
