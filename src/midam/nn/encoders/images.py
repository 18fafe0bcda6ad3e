"""Encoders of images and volumes: ResNet20, and handcrafted statistics of color and texture without training."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require_choice

Norm = Literal["group", "batch"]
_Maker = Callable[..., nn.Module]

_CONV: dict[int, _Maker] = {2: nn.Conv2d, 3: nn.Conv3d}
_BATCH_NORM: dict[int, _Maker] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_LEAST = 4  # so that the halved image has two pixels along each axis
_LEVELS = 4  # mean, deviation, tilt; deviation of the halved image


class ResNet20(nn.Module):
    """ResNet20 of He et al. (2016) for small images: three stages of three residual blocks, 16, 32 and 64 channels.

    The second and third stage halve the sides and double the channels; their shortcut drops every other position and
    pads the channels with zeros (option A of the paper). With ``spatial=3`` each convolution spans 3 x 3 x 3 voxels.

    Parameters
    ----------
    in_channels : int
        Channels of an instance, >= 1: 1 for grayscale images, slices and scans, 3 for color.
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
        require_choice(get_args(Norm), norm=norm)
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
    """Return a `ResNet20` for patches and slices [C, H, W]; raise a `ConfigError` for another shape."""
    return _of_shape("resnet20", "[channels, height, width]", instance_shape, norm=norm, spatial=2)


def resnet20_3d(instance_shape: tuple[int, ...], *, norm: Norm = "group") -> ResNet20:
    """Return a `ResNet20` for volumes [C, D, H, W]; raise a `ConfigError` for another shape."""
    return _of_shape("resnet20-3d", "[channels, depth, height, width]", instance_shape, norm=norm, spatial=3)


def _of_shape(name: str, axes: str, instance_shape: tuple[int, ...], *, norm: Norm, spatial: Literal[2, 3]) -> ResNet20:
    if len(instance_shape) != spatial + 1:
        raise ConfigError(
            f"Expected instances of shape {axes} for the encoder {name!r}, got {list(instance_shape)}; use 'mlp' for "
            "feature vectors, 'resnet20' for patches and slices, 'resnet20-3d' for whole volumes (--volume)."
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


class PatchStatistics(nn.Module):
    """Statistics of color and texture: 10 per channel of an image [C, H, W], 12 per channel of a volume [C, D, H, W].

    The first three are mean, standard deviation and tilt: the root mean square deviation of the pixels above the mean
    minus that of the pixels below. The fine texture follows: the mean absolute step between neighbors along each axis,
    and the root mean square of the Laplacian (the sum of the steps from a pixel to its neighbors). The last are the
    standard deviation and the texture of the coarse image, the means over 2 x 2 (x 2) pixels, without an odd last row.
    All are in the units of the pixels and computed in float64; they do not depend on other instances, except for
    rounding.

    Parameters
    ----------
    instance_shape : tuple of int
        [C, H, W] or [C, D, H, W], at least 4 along each axis but the first.

    Raises
    ------
    ConfigError
        For instances of another shape.

    Examples
    --------
    >>> stripes = torch.tensor([0, 2, 0, 2]).expand(1, 1, 4, 4)
    >>> PatchStatistics((1, 4, 4))(stripes).tolist()
    [[1.0, 1.0, 0.0, 0.0, 2.0, 3.1622776601683795, 0.0, 0.0, 0.0, 0.0]]
    """

    repeatable = True

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        channels, *sides = instance_shape or (0,)
        if len(sides) not in (2, 3) or min(sides) < _LEAST:
            raise ConfigError(
                f"Expected images or volumes of at least {_LEAST} pixels along each axis for statistics of patches, "
                f"got instances of shape {list(instance_shape)}; cut larger ones, or use bag-statistics-extratrees."
            )
        self.out_features = channels * (_LEVELS + 2 * (len(sides) + 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the statistics [M, D] in float64 of instances x [M, C, ...], channel after channel."""
        fine = x.double()
        coarse = _halved(fine)
        mean, deviation, tilt = _levels(fine)
        statistics = [mean, deviation, tilt, *_texture(fine), _levels(coarse)[1], *_texture(coarse)]
        return torch.stack(statistics, dim=2).flatten(1)


def _levels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean, standard deviation and tilt, each [M, C]."""
    pixels = x.flatten(2)
    mean = pixels.mean(dim=2)
    gap = pixels - mean.unsqueeze(2)
    above, below = gap.clamp(min=0).square().mean(dim=2), gap.clamp(max=0).square().mean(dim=2)
    # The cube root of a third moment would amplify a rounding error if the pixels are symmetric.
    return mean, (above + below).sqrt(), above.sqrt() - below.sqrt()


def _texture(x: Tensor) -> list[Tensor]:
    """Return the mean absolute step along each axis and the root mean square of the Laplacian, each [M, C]."""
    steps, laplacian = [], torch.zeros_like(x)
    for axis in range(2, x.ndim):
        step, size = x.diff(dim=axis), x.shape[axis] - 1
        steps.append(step.abs().flatten(2).mean(dim=2))
        laplacian.narrow(axis, 0, size).add_(step)
        laplacian.narrow(axis, 1, size).sub_(step)
    return [*steps, laplacian.square().flatten(2).mean(dim=2).sqrt()]


def _halved(x: Tensor) -> Tensor:
    """Return the means of two neighbors along each axis."""
    for axis in range(2, x.ndim):
        half = x.shape[axis] // 2
        pairs = (*x.shape[:axis], half, 2, *x.shape[axis + 1 :])
        x = x.narrow(axis, 0, 2 * half).reshape(pairs).mean(dim=axis + 1)
    return x
