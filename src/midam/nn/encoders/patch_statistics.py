"""Handcrafted features of images and volumes: statistics of color and texture, with nothing to train."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require, require_counts

_LEAST = 4  # so that the halved image has two pixels along each axis
_LEVELS = 4  # mean, deviation, tilt; deviation of the halved image


class PatchStatistics(nn.Module):
    """Color and texture of each channel of an image [C, H, W] in 10 numbers, of a volume [C, D, H, W] in 12.

    Mean, standard deviation and tilt: the root mean square deviation of the pixels above the mean less that of those
    below. Then texture, fine and coarse, that is of the image and of its means over 2 x 2 (x 2) pixels: the mean
    absolute step between neighbors along each axis, and the root mean square of the Laplacian, the sum of the steps
    from a pixel to its neighbors; before the coarse ones their standard deviation. All are in the units of the pixels.
    An odd last row is left out of the coarse ones. Computed in float64; an instance alone has the same numbers as among
    others, but for rounding.

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
        require(instance_shape, Sequence, "instance_shape", "give one of images or volumes, such as (3, 32, 32)")
        require_counts(**{f"instance_shape[{axis}]": size for axis, size in enumerate(instance_shape)})
        channels, *sides = instance_shape or (0,)
        if len(sides) not in (2, 3) or min(sides) < _LEAST:
            raise ConfigError(
                f"Expected images or volumes of at least {_LEAST} pixels along each axis for statistics of patches, "
                f"got instances of shape {list(instance_shape)}; cut larger ones, or take bag-statistics-extratrees."
            )
        self.out_features = channels * (_LEVELS + 2 * (len(sides) + 1))

    def forward(self, x: Tensor) -> Tensor:
        """Statistics [M, D] in float64 of instances x [M, C, ...], channel after channel."""
        fine = x.double()
        coarse = _halved(fine)
        mean, deviation, tilt = _levels(fine)
        found = [mean, deviation, tilt, *_texture(fine), _levels(coarse)[1], *_texture(coarse)]
        return torch.stack(found, dim=2).flatten(1)


def _levels(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviation and tilt [M, C]."""
    pixels = x.flatten(2)
    mean = pixels.mean(dim=2)
    gap = pixels - mean.unsqueeze(2)
    above, below = gap.clamp(min=0).square().mean(dim=2), gap.clamp(max=0).square().mean(dim=2)
    # A third moment would need its cube root, which makes much of a rounding error where the pixels are symmetric.
    return mean, (above + below).sqrt(), above.sqrt() - below.sqrt()


def _texture(x: Tensor) -> list[Tensor]:
    """Mean absolute step along each axis, and root mean square of the Laplacian, each [M, C]."""
    steps, laplacian = [], torch.zeros_like(x)
    for axis in range(2, x.ndim):
        step, size = x.diff(dim=axis), x.shape[axis] - 1
        steps.append(step.abs().flatten(2).mean(dim=2))
        laplacian.narrow(axis, 0, size).add_(step)
        laplacian.narrow(axis, 1, size).sub_(step)
    return [*steps, laplacian.square().flatten(2).mean(dim=2).sqrt()]


def _halved(x: Tensor) -> Tensor:
    """Means of two neighbors along each axis."""
    for axis in range(2, x.ndim):
        half = x.shape[axis] // 2
        pairs = (*x.shape[:axis], half, 2, *x.shape[axis + 1 :])
        x = x.narrow(axis, 0, 2 * half).reshape(pairs).mean(dim=axis + 1)
    return x
