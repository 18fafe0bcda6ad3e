"""The maximum of a bag, as a statistic next to the log-weighted mean of `midam.functional.logmean`.

A statistic is a triple (n, l, r) here too: l is the largest logit, r the value of the first instance with this logit.
The identity is ``(0, -inf, 0)``. The gradient goes to that instance alone, and no moving average tracks the maximum.
"""

import torch
from torch import Tensor

from midam.functional.logmean import BagStatistic


def reduce(z: Tensor, v: Tensor, *, mask: Tensor | None = None) -> BagStatistic:
    """Return the statistic of K bags given as padded rows; parameters as in `midam.functional.logmean.reduce`."""
    if mask is None:
        n = z.new_full((z.shape[0],), float(z.shape[1]))
    else:
        n = mask.sum(dim=-1).to(z.dtype)
        z = z.masked_fill(~mask, torch.finfo(z.dtype).min)
    top = z.max(dim=1)
    return BagStatistic(n, top.values, v[torch.arange(len(v), device=v.device), top.indices])


def reduce_segments(z: Tensor, v: Tensor, segment: Tensor, *, num_bags: int) -> BagStatistic:
    """Return the statistic of bags in one flat array; parameters as in `midam.functional.logmean.reduce_segments`."""
    row = first_maximum(z, segment, num_bags=num_bags)
    present = row < z.shape[0]
    # A bag that is empty or has a NaN score has no first maximum; its row only has to be a valid index.
    row = row.clamp(max=z.shape[0] - 1)
    n = torch.bincount(segment, minlength=num_bags).to(z.dtype)
    return BagStatistic(n, torch.where(present, z[row], -torch.inf), torch.where(present.unsqueeze(1), v[row], 0.0))


def merge(first: BagStatistic, second: BagStatistic) -> BagStatistic:
    """Return the statistic of the union of two disjoint parts of each bag; if both maxima are equal, the first's r."""
    later = (second.l > first.l).unsqueeze(1)
    return BagStatistic(first.n + second.n, torch.maximum(first.l, second.l), torch.where(later, second.r, first.r))


def first_maximum(z: Tensor, segment: Tensor, *, num_bags: int) -> Tensor:
    """Return the row of the first maximum of each bag, [K] int64; bags without a row get z.shape[0].

    Examples
    --------
    >>> first_maximum(torch.tensor([1.0, 3.0, 3.0]), torch.tensor([0, 0, 0]), num_bags=2).tolist()
    [1, 3]
    """
    top = z.new_full((num_bags,), torch.finfo(z.dtype).min).scatter_reduce(0, segment, z.detach(), "amax")
    rows = torch.arange(z.shape[0], device=z.device)
    candidates = torch.where(z.detach() == top[segment], rows, z.shape[0])
    return torch.full((num_bags,), z.shape[0], device=z.device).scatter_reduce(0, segment, candidates, "amin")
