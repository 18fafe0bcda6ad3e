"""The standardiser: fitted on training instances alone, stored in the model."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

Scaling = Literal["linear", "blend"]

_TAIL = 0.01
_KNOTS = 200
_MAX_NORMAL_SCORE = 3.0


class Standardizer(nn.Module):
    """Clipped standardisation ``u = clip((x - center) / scale)``; until fitted, a cast to the dtype of the weights.

    Feature vectors [D] are standardised robustly feature by feature: mean and standard deviation of the values
    winsorised at the 1st and 99th percentile, at least one value a side from five instances on; where these are all
    equal, the plain standard deviation; a constant feature gets scale 1. Images and volumes [C, ...] take the mean and
    standard deviation of each channel.

    With ``scaling="blend"`` a feature becomes (u + g(u)) / 2, where g(u) is its normal score, the standard normal
    quantile of its rank among the training instances, within +-3. The rank spreads heavy tails and sets apart the rare
    values of a sparse feature, which u alone leaves in one heap; u keeps the distances that the rank forgets.

    Parameters
    ----------
    instance_shape : tuple of int
        Shape of one instance: [D] or [C, ...].
    clip : float
        Bound on the magnitude of u, in (scaled) deviations; inf for none.
    scaling : {"linear", "blend"}
        "linear" gives u. Images and volumes take u in any case.

    Examples
    --------
    >>> s = Standardizer((1,)).fit(torch.tensor([[-1e9], [0.0], [1.0], [2.0], [1e9]]))
    >>> s(torch.tensor([[1.0], [1e9]])).flatten().tolist()
    [0.0, 10.0]
    """

    center: Tensor
    center_low: Tensor
    scale: Tensor
    knots: Tensor

    def __init__(self, instance_shape: tuple[int, ...], *, clip: float = 10.0, scaling: Scaling = "linear") -> None:
        super().__init__()
        self.clip = clip
        self.blend = scaling == "blend" and len(instance_shape) == 1
        shape = (instance_shape[0], *(1 for _ in instance_shape[1:])) if instance_shape else (1,)
        self.register_buffer("center", torch.zeros(shape))
        # What float32 loses of the center: float64 features with a large offset keep their digits.
        self.register_buffer("center_low", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        # Training values of u at equal steps of rank; without a row until fitted, and ever without "blend".
        if self.blend:
            self.register_buffer("knots", torch.zeros(instance_shape[0], _KNOTS))

    @torch.no_grad()
    def fit(self, x: Tensor) -> "Standardizer":
        """Set the statistics from instances x [M, ...], M >= 1."""
        x = x.to("cpu", torch.float64)
        columns = x.flatten(1) if x.ndim <= 2 else x.transpose(0, 1).flatten(1).T
        constant = columns.amin(dim=0) == columns.amax(dim=0)
        kept = _winsorise(columns) if x.ndim <= 2 else columns
        center, scale = kept.mean(dim=0), kept.std(dim=0, correction=0)
        scale = torch.where(scale > 0, scale, columns.std(dim=0, correction=0))
        # In floating point the deviation of many equal numbers need not be exactly 0.
        scale = torch.where(constant, torch.ones_like(scale), scale)
        self.center.copy_(center.view(self.center.shape))
        self.center_low.copy_(center.view(self.center.shape) - self.center.double())
        self.scale.copy_(scale.view(self.scale.shape))
        if self.blend:
            ordered = self._linear(x.to(self.center.device)).sort(dim=0).values
            ranks = torch.linspace(0, len(ordered) - 1, _KNOTS, dtype=torch.float64).round().long()
            self.knots.copy_(ordered[ranks.to(ordered.device)].T)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardised instances, shaped as x [M, ...]."""
        u = self._linear(x)
        return 0.5 * (u + _normal_scores(u, self.knots)) if self.blend else u

    def _linear(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64 and self.center.dtype != torch.float64:
            x = x - self.center.double() - self.center_low.double()
            return (x / self.scale).clamp(-self.clip, self.clip).to(self.center.dtype)
        return ((x.to(self.center.dtype) - self.center) / self.scale).clamp(-self.clip, self.clip)


def _normal_scores(u: Tensor, knots: Tensor) -> Tensor:
    """Normal scores [M, D] of u [M, D] among knots [D, K], ascending; a constant feature gives 0.

    Values between two knots are interpolated, equal ones share the middle of their ranks, and the least and the
    largest value take the ends.
    """
    last = knots.shape[1] - 1
    columns = u.T.contiguous()
    low = torch.searchsorted(knots, columns)
    high = torch.searchsorted(knots, columns, right=True)
    upper = high.clamp(1, last)
    left, right = knots.gather(1, upper - 1), knots.gather(1, upper)
    between = upper - 1 + ((columns - left) / (right - left).clamp(min=torch.finfo(u.dtype).tiny)).clamp(0, 1)
    rank = torch.where(high > low, 0.5 * (low + high - 1).to(u.dtype), between)
    first, end = knots[:, :1], knots[:, -1:]
    rank = torch.where(columns >= end, torch.full_like(rank, last), rank)
    rank = torch.where(columns <= first, torch.zeros_like(rank), rank)
    score = torch.special.ndtri((rank / last).double()).clamp(-_MAX_NORMAL_SCORE, _MAX_NORMAL_SCORE).to(u.dtype)
    return torch.where(first == end, torch.zeros_like(score), score).T


def _winsorise(x: Tensor) -> Tensor:
    last = x.shape[0] - 1
    cut = max(math.floor(_TAIL * last), 1 if last >= 4 else 0)
    ordered = x.sort(dim=0).values
    return x.clamp(ordered[cut], ordered[last - cut])
