"""The standardizer: fitted on training instances alone, stored in the model."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

Scaling = Literal["linear", "blend", "auto"]

_TAIL = 0.01
_KNOTS = 200
_MAX_NORMAL_SCORE = 3.0
_HEAP = 0.25
_SAME = 1e-5
_VALUES_AT_A_TIME = 2**19  # of a fit, which takes some float64 copies of them


class Standardizer(nn.Module):
    """Clipped standardization ``u = clip((x - center) / scale)``; until fitted, a cast to the dtype of the weights.

    Feature vectors [D] are standardized robustly, feature by feature: by mean and standard deviation of the values
    winsorized at the 1st and 99th percentile, at least one value a side from five instances on. Where these are all
    equal, the plain standard deviation is taken; a constant feature gets scale 1. Images and volumes [C, ...] take the
    mean and standard deviation of each channel.

    With ``scaling="blend"`` a feature becomes (u + g(u)) / 2, where g(u) is its normal score: the standard normal
    quantile, within +-3, of its rank among the training instances. The rank spreads heavy tails and the rare values of
    a sparse feature; u keeps the distances. With "auto" only features are blended of which at least a quarter of the
    training instances share one value.

    Parameters
    ----------
    instance_shape : tuple of int
        Shape of one instance: [D] or [C, ...].
    clip : float
        Bound on the magnitude of u, in (scaled) deviations; inf for none.
    scaling : {"linear", "blend", "auto"}
        "linear" gives u. Images and volumes take u in any case.

    Examples
    --------
    >>> s = Standardizer((1,), clip=10.0, scaling="linear").fit(torch.tensor([[-1e9], [0.0], [1.0], [2.0], [1e9]]))
    >>> s(torch.tensor([[1.0], [1e9]])).flatten().tolist()
    [0.0, 10.0]
    """

    center: Tensor
    center_low: Tensor
    scale: Tensor
    knots: Tensor
    blended: Tensor

    def __init__(self, instance_shape: tuple[int, ...], *, clip: float, scaling: Scaling) -> None:
        super().__init__()
        self.clip = clip
        self.scaling: Scaling = scaling if len(instance_shape) == 1 else "linear"
        shape = (instance_shape[0], *(1 for _ in instance_shape[1:])) if instance_shape else (1,)
        self.register_buffer("center", torch.zeros(shape))
        # What float32 loses of the center: float64 features with a large offset keep their digits.
        self.register_buffer("center_low", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        if self.scaling != "linear":
            # Training values of u at equal steps of rank, and the features that use them.
            self.register_buffer("knots", torch.zeros(instance_shape[0], _KNOTS))
            self.register_buffer("blended", torch.zeros(instance_shape[0], dtype=torch.bool))

    @torch.no_grad()
    def fit(self, x: Tensor) -> "Standardizer":
        """Set the statistics from instances x [M, ...], M >= 1."""
        if x.ndim > 2:
            self._set(slice(None), *_moments(x.to("cpu", torch.float64).transpose(0, 1).flatten(1).T, robust=False))
            return self
        # In sixteens, so that torch sums a column in the same order whatever the others.
        width = max(_VALUES_AT_A_TIME // len(x) // 16, 1) * 16
        for low in range(0, x.shape[1], width):
            part = slice(low, low + width)
            columns = x[:, part].to("cpu", torch.float64)
            self._set(part, *_moments(columns, robust=True))
            if self.scaling != "linear":
                self._set_ranks(part, columns.to(self.center.device))
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardized instances, shaped as x [M, ...]."""
        u = self._linear(x)
        if self.scaling == "linear":
            return u
        return torch.where(self.blended, 0.5 * (u + _normal_scores(u, self.knots)), u)

    def _set(self, part: slice, center: Tensor, scale: Tensor) -> None:
        center, scale = (x.view(self.center[part].shape) for x in (center, scale))
        self.center[part] = center
        self.center_low[part] = center - center.to(self.center.dtype).double()
        self.scale[part] = scale

    def _set_ranks(self, part: slice, columns: Tensor) -> None:
        ordered = self._linear(columns, part).sort(dim=0).values
        ranks = torch.linspace(0, len(ordered) - 1, _KNOTS, dtype=torch.float64).round().long()
        self.knots[part] = ordered[ranks.to(ordered.device)].T
        self.blended[part] = _piled_up(ordered) | (self.scaling == "blend")

    def _linear(self, x: Tensor, part: slice | None = None) -> Tensor:
        center, low, scale = self.center, self.center_low, self.scale
        if part is not None:
            center, low, scale = center[part], low[part], scale[part]
        if x.dtype == torch.float64 and center.dtype != torch.float64:
            x = x - center.double() - low.double()
            return (x / scale).clamp(-self.clip, self.clip).to(center.dtype)
        return ((x.to(center.dtype) - center) / scale).clamp(-self.clip, self.clip)


def _moments(columns: Tensor, *, robust: bool) -> tuple[Tensor, Tensor]:
    """Center and scale [D] of columns [M, D] in float64."""
    constant = columns.amin(dim=0) == columns.amax(dim=0)
    kept = _winsorize(columns) if robust else columns
    center, scale = kept.mean(dim=0), kept.std(dim=0, correction=0)
    if not (scale > 0).all():
        scale = torch.where(scale > 0, scale, columns.std(dim=0, correction=0))
    # In floating point the deviation of many equal numbers need not be exactly 0.
    return center, torch.where(constant, torch.ones_like(scale), scale)


def _piled_up(ordered: Tensor) -> Tensor:
    """Columns [D] of sorted values [M, D] in which one value makes up a quarter of the rows or more."""
    width = max(math.ceil(_HEAP * len(ordered)), 2)
    if len(ordered) < width:
        return torch.zeros(ordered.shape[1], dtype=torch.bool, device=ordered.device)
    return (ordered[width - 1 :] == ordered[: len(ordered) - width + 1]).any(dim=0)


def _normal_scores(u: Tensor, knots: Tensor) -> Tensor:
    """Normal scores [M, D] of u [M, D] among knots [D, K], ascending; a constant feature gives 0.

    Values between two knots are interpolated, equal ones share the middle of their ranks, the extremes take the ends.
    """
    last = knots.shape[1] - 1
    columns = u.T.contiguous()
    # A value read as float32 here and as float64 there is the same value, and must meet its own knot.
    low = torch.searchsorted(knots, columns - _SAME)
    high = torch.searchsorted(knots, columns + _SAME, right=True)
    upper = high.clamp(1, last)
    left, right = knots.gather(1, upper - 1), knots.gather(1, upper)
    between = upper - 1 + ((columns - left) / (right - left).clamp(min=torch.finfo(u.dtype).tiny)).clamp(0, 1)
    rank = torch.where(high > low, 0.5 * (low + high - 1).to(u.dtype), between)
    first, end = knots[:, :1], knots[:, -1:]
    rank = torch.where(columns >= end - _SAME, torch.full_like(rank, last), rank)
    rank = torch.where(columns <= first + _SAME, torch.zeros_like(rank), rank)
    score = torch.special.ndtri((rank / last).double()).clamp(-_MAX_NORMAL_SCORE, _MAX_NORMAL_SCORE).to(u.dtype)
    return torch.where(first == end, torch.zeros_like(score), score).T


def _winsorize(x: Tensor) -> Tensor:
    last = x.shape[0] - 1
    cut = max(math.floor(_TAIL * last), 1 if last >= 4 else 0)
    # Two ranks of each column are wanted, not all of them in order.
    parted = torch.from_numpy(np.partition(x.numpy(), (cut, last - cut), axis=0))
    return x.clamp(parted[cut], parted[last - cut])
