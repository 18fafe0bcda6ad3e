"""Frozen networks by name, which map an image to a vector, or to a map of vectors."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from midam.errors import ConfigError


class Network(nn.Module):
    """A pretrained network with frozen weights, and the preprocessing of its images.

    A subclass sets the attributes, and defines `maps` (or `vectors`, where it has no feature map).

    Attributes
    ----------
    name : str
        Its name for `midam.embed.load_network`.
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
        Layer that gives the vectors.
    repeatable : bool
        Whether an image has the same vector alone as among others, in training too: no dropout, no statistics of a
        batch.

    Examples
    --------
    A custom network, the mean color of cells of 8 x 8 pixels:

    >>> class MeanColor(Network):
    ...     name, weights, width, stride = "mean-color", "none", 3, 8
    ...
    ...     def maps(self, images):
    ...         return nn.functional.avg_pool2d(images, 8)
    >>> images = torch.ones(2, 3, 16, 24)
    >>> MeanColor().maps(images).shape, MeanColor().vectors(images).shape
    (torch.Size([2, 3, 2, 3]), torch.Size([2, 3]))
    """

    name: str
    weights: str
    width: int
    stride: int | None = None
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    sides: tuple[int, int] | None = None
    layer: str = "last"
    repeatable: bool = False

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
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()).data)
    return digest.hexdigest()


def assembled(cells: NDArray[Any], columns: int) -> NDArray[Any]:
    """Put cells [n, C, S, S], row by row, together to one image [1, C, n / columns * S, columns * S]."""
    count, channels, side = cells.shape[:3]
    rows = count // columns
    grid = cells.reshape(rows, columns, channels, side, side).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(grid).reshape(1, channels, rows * side, columns * side)


def intensities(pixels: NDArray[Any], span: tuple[float, float]) -> NDArray[np.float32]:
    """Pixels as float32: the two intensities of a span become 0 and 1, those outside are clipped."""
    low, high = span
    scaled = pixels.astype(np.float32)
    scaled -= np.float32(low)
    scaled /= np.float32(max(high - low, 1e-12))
    return np.clip(scaled, 0.0, 1.0, out=scaled)


def standardized(x: Tensor, recipe: Mapping[str, Any]) -> Tensor:
    """Images [M, C, H, W] from 0 to 1 preprocessed by a recipe: size, three channels, mean; x may be overwritten."""
    if recipe["size"] is not None and list(x.shape[2:]) != recipe["size"]:
        rows, columns = x.shape[2:]
        more = abs(rows - columns)
        before = [more // 2, more - more // 2]
        x = pad(x, [*before, 0, 0] if rows > columns else [0, 0, *before]) if more else x
        x = interpolate(x, size=recipe["size"], mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)
    mean, std = (torch.tensor(recipe[name], dtype=x.dtype, device=x.device)[:, None, None] for name in ("mean", "std"))
    return (x.sub_(mean) if x.shape[1] == 3 else x - mean).div_(std)
