"""The standardiser: fitted on training instances alone, stored in the model."""

import torch
from torch import Tensor, nn

_MAD_TO_SD = 1.4826


class Standardizer(nn.Module):
    """Clipped standardisation ``clip((x - center) / scale)``; until fitted, a cast to the dtype of the weights.

    Feature vectors [D] are standardised robustly feature by feature: median and scaled median absolute deviation;
    where the latter is 0 (more than half of the values equal) the standard deviation; a constant feature gets scale 1.
    Images and volumes [C, ...] take the mean and standard deviation of each channel.

    Parameters
    ----------
    instance_shape : tuple of int
        Shape of one instance: [D] or [C, ...].
    clip : float
        Bound on the magnitude of a standardised value, in (scaled) deviations; inf for none.

    Examples
    --------
    >>> s = Standardizer((1,)).fit(torch.tensor([[0.0], [1.0], [2.0], [50.0]]))
    >>> s(torch.tensor([[1.5], [1e9]])).flatten().tolist()
    [0.0, 10.0]
    """

    center: Tensor
    scale: Tensor

    def __init__(self, instance_shape: tuple[int, ...], *, clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        shape = (instance_shape[0], *(1 for _ in instance_shape[1:])) if instance_shape else (1,)
        self.register_buffer("center", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    @torch.no_grad()
    def fit(self, x: Tensor) -> "Standardizer":
        """Set the statistics from instances x [M, ...], M >= 1."""
        x = x.to("cpu", torch.float64)
        if x.ndim <= 2:
            center = _median(x)
            scale = _median((x - center).abs()) * _MAD_TO_SD
            scale = torch.where(scale > 0, scale, x.std(dim=0, correction=0))
        else:
            channels = x.transpose(0, 1).flatten(1)
            center, scale = channels.mean(dim=1), channels.std(dim=1, correction=0)
        self.center.copy_(center.view(self.center.shape))
        self.scale.copy_(torch.where(scale > 0, scale, torch.ones_like(scale)).view(self.scale.shape))
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Standardised and clipped instances, shaped as x [M, ...]."""
        return ((x.to(self.center.dtype) - self.center) / self.scale).clamp(-self.clip, self.clip)


def _median(x: Tensor) -> Tensor:
    ordered = x.sort(dim=0).values
    half = x.shape[0] // 2
    return ordered[half] if x.shape[0] % 2 else (ordered[half - 1] + ordered[half]) / 2
