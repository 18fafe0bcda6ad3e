"""The standardiser: fitted on training instances alone, stored in the model."""

import math

import torch
from torch import Tensor, nn

_TAIL = 0.01


class Standardizer(nn.Module):
    """Clipped standardisation ``clip((x - center) / scale)``; until fitted, a cast to the dtype of the weights.

    Feature vectors [D] are standardised robustly feature by feature: mean and standard deviation of the values
    winsorised at the 1st and 99th percentile, at least one value a side from five instances on; where these are all
    equal, the plain standard deviation; a constant feature gets scale 1. Images and volumes [C, ...] take the mean and
    standard deviation of each channel.

    Parameters
    ----------
    instance_shape : tuple of int
        Shape of one instance: [D] or [C, ...].
    clip : float
        Bound on the magnitude of a standardised value, in (scaled) deviations; inf for none.

    Examples
    --------
    >>> s = Standardizer((1,)).fit(torch.tensor([[-1e9], [0.0], [1.0], [2.0], [1e9]]))
    >>> s(torch.tensor([[1.0], [1e9]])).flatten().tolist()
    [0.0, 10.0]
    """

    center: Tensor
    center_low: Tensor
    scale: Tensor

    def __init__(self, instance_shape: tuple[int, ...], *, clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        shape = (instance_shape[0], *(1 for _ in instance_shape[1:])) if instance_shape else (1,)
        self.register_buffer("center", torch.zeros(shape))
        # What float32 loses of the center: float64 features with a large offset keep their digits.
        self.register_buffer("center_low", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

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
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardised and clipped instances, shaped as x [M, ...]."""
        if x.dtype == torch.float64 and self.center.dtype != torch.float64:
            x = x - self.center.double() - self.center_low.double()
            return (x / self.scale).clamp(-self.clip, self.clip).to(self.center.dtype)
        return ((x.to(self.center.dtype) - self.center) / self.scale).clamp(-self.clip, self.clip)


def _winsorise(x: Tensor) -> Tensor:
    last = x.shape[0] - 1
    cut = max(math.floor(_TAIL * last), 1 if last >= 4 else 0)
    ordered = x.sort(dim=0).values
    return x.clamp(ordered[cut], ordered[last - cut])
