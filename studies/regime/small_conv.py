"""An encoder of images that two cores can train many times."""

from torch import Tensor, nn

from midam.registry import ENCODERS


class SmallConv(nn.Module):
    """Two convolutions that halve the sides, and a layer of 64 tanh units.

    Examples
    --------
    >>> import torch
    >>> SmallConv(3)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 64])
    """

    repeatable = True

    def __init__(self, in_channels: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(in_channels, 16, 5, stride=2, padding=2), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, 64), nn.Tanh()),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Encodings [M, 64] of images [M, C, H, W]."""
        found: Tensor = self.layers(images)
        return found


SMALL_CONV = "studies.regime.real_sets.SmallConv"  # as published trials name it
ENCODERS.add(SMALL_CONV, SmallConv)
