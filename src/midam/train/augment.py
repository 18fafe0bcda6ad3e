"""Augmentation on the device: each instance of a training step is flipped, turned, shifted or toned at random."""

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from midam.errors import ConfigError

AUGMENTATIONS = ("flip", "rotate90", "crop", "colour", "intensity")

_SHIFT = 8  # a crop moves an instance by up to a part of 8 of each side
_TONE = 0.2


class Augment(nn.Module):
    """Changes instances at random, each in its own way; in evaluation mode it returns them as they are.

    - "flip": each spatial axis is reversed with probability 1/2.
    - "rotate90": turned by 0, 90, 180 or 270 degrees in the plane of the last two axes, which are of one length.
    - "crop": moved along each spatial axis by a whole number of positions, up to 1/8 of its length (at least 1) either
      way; what comes in from outside is the reflection.
    - "colour": of three channels, saturation and contrast times 0.8 to 1.2, and a shift as of "intensity".
    - "intensity": contrast times 0.8 to 1.2 about the instance's mean, and a shift by -0.2 to 0.2 of its standard
      deviation; the same for all channels.

    They are applied in this order. The draws come from torch's generator of the device, in one call: who seeds it, or
    sets it back, gets the same ones.

    Parameters
    ----------
    names : sequence of str
        Any of the above, each at most once.
    instance_shape : tuple of int
        [C, H, W] or [C, D, H, W].

    Raises
    ------
    ConfigError
        For a name that is not known, feature vectors, "rotate90" where the last two axes differ, or "colour" without
        three channels.

    Examples
    --------
    >>> augment = Augment(["flip", "crop"], instance_shape=(1, 8, 8))
    >>> augment(torch.randn(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """

    def __init__(self, names: Sequence[str], *, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        check_names(names)
        if names:
            _check_shape(names, instance_shape)
        self.names = tuple(name for name in AUGMENTATIONS if name in names)
        self._spatial = len(instance_shape) - 1
        self._widths = {"flip": self._spatial, "rotate90": 1, "crop": self._spatial, "colour": 3, "intensity": 2}

    def forward(self, x: Tensor) -> Tensor:
        """Augmented instances, of the shape and dtype of x [M, C, ...] (floating point)."""
        if not (self.training and self.names):
            return x
        widths = [self._widths[name] for name in self.names]
        draws = torch.split(torch.rand(len(x), sum(widths), device=x.device), widths, dim=1)
        for name, u in zip(self.names, draws):
            x = _APPLY[name](x, u)
        return x


def check_names(names: Sequence[str]) -> None:
    """Refuse names of augmentations that are not known, or that come twice.

    Raises
    ------
    ConfigError
        With the nearest name.
    """
    for name in names:
        if name not in AUGMENTATIONS:
            near = difflib.get_close_matches(str(name), AUGMENTATIONS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "choose among them."
            raise ConfigError(f"Expected augment among {', '.join(AUGMENTATIONS)}, got {name!r}; {hint}")
    if len(set(names)) < len(names):
        raise ConfigError(f"Expected each name once in augment, got {', '.join(names)}; remove the second.")


def _check_shape(names: Sequence[str], shape: tuple[int, ...]) -> None:
    if len(shape) not in (3, 4):
        raise ConfigError(
            f"Expected instances of shape [C, H, W] or [C, D, H, W] to augment, got {list(shape)}; remove augment."
        )
    if "rotate90" in names and shape[-1] != shape[-2]:
        raise ConfigError(
            f"Expected the last two axes of one length for augment 'rotate90', got {list(shape)}; use 'flip', or cut "
            "square instances."
        )
    if "colour" in names and shape[0] != 3:
        raise ConfigError(
            f"Expected three channels for augment 'colour', got {list(shape)}; use 'intensity', which takes any number."
        )


def _flip(x: Tensor, u: Tensor) -> Tensor:
    for axis in range(2, x.ndim):
        x = torch.where(_of_instance(u[:, axis - 2] < 0.5, x), x.flip(axis), x)
    return x


def _rotate90(x: Tensor, u: Tensor) -> Tensor:
    turns = (4 * u[:, 0]).long()
    x = torch.where(_of_instance(turns % 2 == 1, x), x.rot90(1, (-2, -1)), x)
    return torch.where(_of_instance(turns >= 2, x), x.flip(-2, -1), x)


def _crop(x: Tensor, u: Tensor) -> Tensor:
    for axis in range(2, x.ndim):
        length = x.shape[axis]
        reach = min(max(length // _SHIFT, 1), length - 1)
        # Rounding can take the product of a number below 1 to the upper end.
        offset = ((2 * reach + 1) * u[:, axis - 2]).long().clamp(max=2 * reach) - reach
        place = torch.arange(length, device=x.device) + offset.unsqueeze(1)
        place = (length - 1) - ((length - 1) - place.abs()).abs()
        shape = [len(x), *[1] * (x.ndim - 1)]
        shape[axis] = length
        x = x.gather(axis, place.view(shape).expand_as(x))
    return x


def _intensity(x: Tensor, u: Tensor) -> Tensor:
    axes = tuple(range(1, x.ndim))
    mean, deviation = x.mean(dim=axes, keepdim=True), x.std(dim=axes, keepdim=True, correction=0)
    contrast, shift = (_of_instance(_TONE * (2 * part - 1), x).to(x.dtype) for part in u.unbind(1))
    return mean + (x - mean) * (1 + contrast) + shift * deviation


def _colour(x: Tensor, u: Tensor) -> Tensor:
    grey = x.mean(dim=1, keepdim=True)
    saturation = _of_instance(1 + _TONE * (2 * u[:, 0] - 1), x).to(x.dtype)
    return _intensity(grey + (x - grey) * saturation, u[:, 1:])


def _of_instance(value: Tensor, x: Tensor) -> Tensor:
    return value.view(-1, *[1] * (x.ndim - 1))


_APPLY = {"flip": _flip, "rotate90": _rotate90, "crop": _crop, "colour": _colour, "intensity": _intensity}
