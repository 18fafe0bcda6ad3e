"""Encoders: from raw instances [M, ...] to encodings [M, D], D in `out_features`."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from midam.errors import ConfigError

Norm = Literal["group", "batch"]


class MLP(nn.Module):
    """Feed-forward encoder; the paper's network for tabular bags is one tanh layer as wide as the input.

    Parameters
    ----------
    in_features : int
        Number of features of an instance; further axes are flattened.
    hidden : sequence of int, optional
        Width of each layer, the last one being the encoding. Default: one layer of `in_features`.
    dropout : float
        In [0, 1), after each layer.

    Examples
    --------
    >>> MLP(3)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, in_features: int, *, hidden: Sequence[int] = (), dropout: float = 0.0) -> None:
        super().__init__()
        widths = [in_features, *(hidden or [in_features])]
        layers: list[nn.Module] = []
        for i, (width_in, width_out) in enumerate(pairwise(widths)):
            layers += [nn.Linear(width_in, width_out), nn.Tanh() if i == 0 else nn.ReLU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers)
        self.out_features = widths[-1]
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        e: Tensor = self.layers(x.flatten(1))
        return e


class ResNet20(nn.Module):
    """ResNet20 of He et al. (2016) for small patches: three stages of three residual blocks, 16, 32 and 64 channels.

    Parameters
    ----------
    in_channels : int
        1 for grey images and slices, 3 for colour.
    norm : {"group", "batch"}
        Group normalisation does not depend on the batch, which tracked scores and two-pass gradients need; batch
        normalisation is what the paper used.

    Examples
    --------
    >>> ResNet20(3)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(self, in_channels: int = 3, *, norm: Norm = "group") -> None:
        super().__init__()
        make_norm = _norm_maker(norm)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 16, 3, padding=1, bias=False), make_norm(16), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        width_in = 16
        for width in (16, 32, 64):
            for i in range(3):
                blocks.append(
                    _ResidualBlock(width_in, width, stride=2 if width > 16 and i == 0 else 1, make_norm=make_norm)
                )
                width_in = width
        self.blocks = nn.Sequential(*blocks)
        self.out_features = 64

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, ...] as [M, D]."""
        e: Tensor = self.blocks(self.stem(x)).mean(dim=(2, 3))
        return e


class _ResidualBlock(nn.Module):
    def __init__(self, width_in: int, width: int, *, stride: int, make_norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = make_norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = make_norm(width)
        self.stride = stride
        self.pad = (width - width_in) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.stride > 1:
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return torch.relu(out + x)


def _norm_maker(norm: Norm) -> Callable[[int], nn.Module]:
    if norm == "group":
        return lambda width: nn.GroupNorm(8, width)
    if norm == "batch":
        return nn.BatchNorm2d
    raise ConfigError(f"Expected norm 'group' or 'batch', got {norm!r}; choose one of them.")
