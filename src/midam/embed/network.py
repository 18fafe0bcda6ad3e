"""Frozen networks by name: what maps an image to a vector, or to a map of vectors."""

import hashlib
from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from midam.errors import ConfigError


class Network(nn.Module):
    """A network that has seen before, with frozen weights, and how it wants its images.

    A subclass sets the attributes, and defines `maps` (or `vectors`, where it has no feature map).

    Attributes
    ----------
    name : str
        As `midam.embed.load_network` takes it.
    weights : str
        SHA-256 of the weights.
    width : int
        Numbers of a vector.
    stride : int, optional
        Pixels from one cell of the last feature map to the next; None where it has none.
    mean, std : tuple of three floats
        Images in [0, 1] are standardized by these, a color each.
    sides : tuple of two ints, optional
        Patches and slices are resized to squares with sides in this range; None: they stay as they are.
    layer : str
        Which layer the vectors are of.
    """

    name: str
    weights: str
    width: int
    stride: int | None = None
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    sides: tuple[int, int] | None = None
    layer: str = "last"

    def maps(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Vectors [M, D, h, w] of the cells of images [M, 3, H, W], whose sides are multiples of the stride."""
        raise ConfigError(f"Expected a network with a feature map, got {self.name}; cut patches with `patch_size`.")

    @abstractmethod
    def vectors(self, images: Tensor) -> Tensor:
        """Vectors [M, D] of images [M, 3, H, W]: the mean of the cells."""
        return self.maps(images).mean((2, 3))

    def side(self, shape: tuple[int, ...]) -> int | None:
        """Side of the squares to which patches or slices [..., H, W] are resized; None: they stay as they are."""
        if self.sides is None:
            return None
        side, step = min(max(*shape[-2:], self.sides[0]), self.sides[1]), self.stride or 1
        return -(-side // step) * step


def weights_digest(module: nn.Module) -> str:
    """SHA-256 of the names and values of all weights of a module."""
    found = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        found.update(np.ascontiguousarray(value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()).data)
    return found.hexdigest()
