"""Augmentation on the device: each instance of a training step is flipped, turned, shifted or toned at random."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from midam.errors import ConfigError, require
from midam.registry import AUGMENTATIONS

_SHIFT = 8  # a crop moves an instance by up to a part of 8 of each side
_TONE = 0.2


class Augmentation:
    """Base of the augmentations: one kind of random change.

    `instance_shape` is [C, H, W] or [C, D, H, W]; a `ConfigError` if instances of this shape cannot be changed so.

    Examples
    --------
    An augmentation of one's own, which inverts half of the instances:

    >>> class Invert(Augmentation):
    ...     draws = 1
    ...
    ...     def __call__(self, x, u):
    ...         return torch.where(u.view(-1, 1, 1, 1) < 0.5, 1 - x, x)
    >>> changed = Invert((1, 8, 8))(torch.zeros(2, 1, 8, 8), torch.tensor([[0.2], [0.9]]))
    >>> changed.mean(dim=(1, 2, 3)).tolist()
    [1.0, 0.0]
    """

    draws: int  # random numbers that an instance takes

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        require(instance_shape, Sequence, "instance_shape", "give one such as (3, 32, 32)")
        if len(instance_shape) not in (3, 4):
            raise ConfigError(
                "Expected instances of shape [C, H, W] or [C, D, H, W] to augment, got "
                f"{list(instance_shape)}; remove augment."
            )

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances x [M, C, ...], each by its own row of u [M, draws], uniform in [0, 1)."""
        raise NotImplementedError


class _OfAxes(Augmentation):
    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__(instance_shape)
        self.draws = len(instance_shape) - 1


class Flip(_OfAxes):
    """Reverse each spatial axis with probability 1/2."""

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
        for axis in range(2, x.ndim):
            x = torch.where(_of_instance(u[:, axis - 2] < 0.5, x), x.flip(axis), x)
        return x


class Rotate90(Augmentation):
    """Turn by 0, 90, 180 or 270 degrees in the plane of the last two axes, which are of one length."""

    draws = 1

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__(instance_shape)
        if instance_shape[-1] != instance_shape[-2]:
            raise ConfigError(
                "Expected the last two axes of one length for augment 'rotate90', got "
                f"{list(instance_shape)}; use 'flip', or cut square instances."
            )

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
        turns = (4 * u[:, 0]).long()
        x = torch.where(_of_instance(turns % 2 == 1, x), x.rot90(1, (-2, -1)), x)
        return torch.where(_of_instance(turns >= 2, x), x.flip(-2, -1), x)


class Crop(_OfAxes):
    """Move along each spatial axis by a whole number of positions, up to 1/8 of its length (at least 1) either way.

    What comes in from outside is the reflection.
    """

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
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


class Intensity(Augmentation):
    """Contrast times 0.8 to 1.2 about the instance's mean, shift by -0.2 to 0.2 of its deviation; channels alike."""

    draws = 2

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
        axes = tuple(range(1, x.ndim))
        mean, deviation = x.mean(dim=axes, keepdim=True), x.std(dim=axes, keepdim=True, correction=0)
        contrast, shift = (_of_instance(_TONE * (2 * part - 1), x).to(x.dtype) for part in u.unbind(1))
        return mean + (x - mean) * (1 + contrast) + shift * deviation


class Color(Intensity):
    """Of three channels, saturation and contrast times 0.8 to 1.2, and a shift as of `Intensity`."""

    draws = 3

    def __init__(self, instance_shape: tuple[int, ...]) -> None:
        super().__init__(instance_shape)
        if instance_shape[0] != 3:
            raise ConfigError(
                f"Expected three channels for augment 'color', got {list(instance_shape)}; use 'intensity', which "
                "takes any number."
            )

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        """Return changed instances."""
        gray = x.mean(dim=1, keepdim=True)
        saturation = _of_instance(1 + _TONE * (2 * u[:, 0] - 1), x).to(x.dtype)
        return super().__call__(gray + (x - gray) * saturation, u[:, 1:])


class Augment(nn.Module):
    """Changes each instance at random in training mode, none in evaluation mode.

    The changes are applied in the order of `midam.registry.AUGMENTATIONS`, class paths last. All draws of a call come
    from one call to torch's generator of the device, and repeat with its state.

    `instance_shape` is [C, H, W] or [C, D, H, W]. A `ConfigError` for a name that is not known or comes twice, or
    instances that cannot be changed so.

    Examples
    --------
    >>> augment = Augment(["flip", "crop"], instance_shape=(1, 8, 8))
    >>> augment(torch.randn(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """

    def __init__(self, names: Sequence[str], *, instance_shape: tuple[int, ...]) -> None:
        super().__init__()
        require(names, Sequence, "names", "give a list of names, such as ['flip']")
        for name in names:
            AUGMENTATIONS.check(name)
        if len(set(names)) < len(names):
            raise ConfigError(f"Expected each name once in augment, got {', '.join(names)}; remove the second.")
        known = AUGMENTATIONS.names()
        self.names = tuple(sorted(names, key=lambda name: known.index(name) if name in known else len(known)))
        self._parts = [AUGMENTATIONS.find(name)(instance_shape) for name in self.names]

    def forward(self, x: Tensor) -> Tensor:
        """Augmented instances, of the shape and dtype of x [M, C, ...] (floating point)."""
        if not (self.training and self._parts):
            return x
        widths = [part.draws for part in self._parts]
        draws = torch.split(torch.rand(len(x), sum(widths), device=x.device), widths, dim=1)
        for part, u in zip(self._parts, draws):
            x = part(x, u)
        return x


def _of_instance(value: Tensor, x: Tensor) -> Tensor:
    return value.view(-1, *[1] * (x.ndim - 1))
