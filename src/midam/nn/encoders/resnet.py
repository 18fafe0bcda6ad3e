"""ResNet20 for patches and slices (2-D) and for volumes (3-D)."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require, require_choice, require_counts

Norm = Literal["group", "batch"]
_Maker = Callable[..., nn.Module]

_CONV: dict[int, _Maker] = {2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORM: dict[int, _Maker] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class ResNet20(nn.Module):
    """ResNet20 of He et al. (2016) for small images: three stages of three residual blocks, 16, 32 and 64 channels.

    A stage halves the sides and doubles the channels; its shortcut drops every other position and pads the channels
    with zeros (option A there). With ``spatial=3`` each convolution spans 3 x 3 x 3 voxels.

    Parameters
    ----------
    in_channels : int
        Channels of an instance, >= 1: 1 for gray images, slices and scans, 3 for color.
    norm : {"group", "batch"}
        Group normalization (8 groups) does not depend on the batch, which tracked scores and two-pass gradients need;
        batch normalization is what the paper used.
    spatial : {2, 3}
        Axes of an instance after the channels: [C, H, W] or [C, D, H, W].

    References
    ----------
    He et al., "Deep residual learning for image recognition", CVPR 2016, section 4.2.

    Examples
    --------
    >>> ResNet20(3)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 64])
    >>> ResNet20(1, spatial=3)(torch.zeros(2, 1, 8, 8, 8)).shape
    torch.Size([2, 64])
    """

    def __init__(self, in_channels: int = 3, *, norm: Norm = "group", spatial: Literal[2, 3] = 2) -> None:
        super().__init__()
        require_counts(in_channels=in_channels)
        require_choice(get_args(Norm), norm=norm)
        require_choice(tuple(_CONV), spatial=spatial)
        conv = partial(_CONV[spatial], kernel_size=3, padding=1, bias=False)
        make_norm = partial(nn.GroupNorm, 8) if norm == "group" else _BATCH_NORM[spatial]
        self.stem = nn.Sequential(conv(in_channels, 16), make_norm(16), nn.ReLU(inplace=True))
        widths = [16, *[16] * 3, *[32] * 3, *[64] * 3]
        block = partial(_ResidualBlock, conv=conv, make_norm=make_norm)
        self.blocks = nn.Sequential(*(block(before, width) for before, width in pairwise(widths)))
        self.out_features = 64
        self.repeatable = norm == "group"

    def forward(self, x: Tensor) -> Tensor:
        """Encode instances x [M, C, ...] as [M, 64]."""
        e: Tensor = self.blocks(self.stem(x))
        return e.mean(dim=tuple(range(2, e.ndim)))


def resnet20(instance_shape: tuple[int, ...], *, norm: Norm = "group") -> ResNet20:
    """`ResNet20` of patches and slices [C, H, W]; raises `ConfigError` for instances of another shape."""
    return _of_shape("resnet20", "[channels, height, width]", instance_shape, norm=norm, spatial=2)


def resnet20_3d(instance_shape: tuple[int, ...], *, norm: Norm = "group") -> ResNet20:
    """`ResNet20` of volumes [C, D, H, W]; raises as `resnet20`."""
    return _of_shape("resnet20-3d", "[channels, depth, height, width]", instance_shape, norm=norm, spatial=3)


def _of_shape(name: str, axes: str, instance_shape: tuple[int, ...], *, norm: Norm, spatial: Literal[2, 3]) -> ResNet20:
    require(instance_shape, Sequence, "instance_shape", f"give one of shape {axes}")
    if len(instance_shape) != spatial + 1:
        raise ConfigError(
            f"Expected instances of shape {axes} for the encoder {name!r}, got {list(instance_shape)}; use 'mlp' for "
            "feature vectors, 'resnet20' for patches and slices, 'resnet20-3d' for volumes, which --volume makes of "
            "scans."
        )
    return ResNet20(instance_shape[0], norm=norm, spatial=spatial)


class _ResidualBlock(nn.Module):
    def __init__(self, width_in: int, width: int, *, conv: _Maker, make_norm: _Maker) -> None:
        super().__init__()
        self.stride = width // width_in
        self.conv1 = conv(width_in, width, stride=self.stride)
        self.norm1 = make_norm(width)
        self.conv2 = conv(width, width)
        self.norm2 = make_norm(width)
        self.pad = (width - width_in) // 2

    def forward(self, x: Tensor) -> Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.stride > 1:
            spatial = x.ndim - 2
            every_other = (slice(None), slice(None), *[slice(None, None, self.stride)] * spatial)
            x = nn.functional.pad(x[every_other], (*[0] * (2 * spatial), self.pad, self.pad))
        return torch.relu(out + x)
