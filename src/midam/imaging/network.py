"""Base class of frozen networks, which map an image to a vector or to a map of vectors."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from midam.errors import ConfigError, MidamError, first_line


class Network(nn.Module):
    """A pretrained network with frozen weights, and the preprocessing of its images.

    A subclass sets the attributes and defines `maps`, or `vectors` if it has no feature map.

    Attributes
    ----------
    name : str
        Name for `midam.imaging.load_network`.
    weights : str
        SHA-256 of the weights.
    width : int
        Length of a vector.
    stride : int, optional
        Pixels from one cell of the last feature map to the next; None without a feature map.
    mean, std : tuple of three floats
        Mean and deviation of each color, by which images in [0, 1] are standardized.
    sides : tuple of two ints, optional
        Range of the side of the squares to which patches and slices are resized; None: they are not resized.
    resample : {"bilinear", "bicubic", "nearest-exact"}
        Interpolation by which they are resized.
    layer : str
        Layer that gives the vectors.
    repeatable : bool
        Whether the vector of an image does not depend on the other images of its batch, also in training: no dropout
        and no batch statistics.

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
    resample: str = "bilinear"
    layer: str = "last"
    repeatable: bool = False

    def maps(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Return vectors [M, D, h, w] of the cells of images [M, 3, H, W] whose sides are multiples of the stride."""
        raise ConfigError(f"Expected a network with a feature map, got {self.name}; cut patches with `patch_size`.")

    @abstractmethod
    def vectors(self, images: Tensor) -> Tensor:
        """Return vectors [M, D] of images [M, 3, H, W]: the mean of the cells."""
        return self.maps(images).mean((2, 3))

    def side(self, shape: tuple[int, ...]) -> int | None:
        """Return the side of the square to which patches or slices [..., H, W] are resized; None: no resizing."""
        if self.sides is None:
            return None
        side, step = min(max(*shape[-2:], self.sides[0]), self.sides[1]), self.stride or 1
        return -(-side // step) * step


def passed(layers: Callable[[Tensor], Tensor], images: Tensor, name: str) -> Tensor:
    """Pass images through layers of the network `name`, whose code may raise any error."""
    try:
        return layers(images)
    except (MidamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        got = f"an error of {name}: {first_line(error)}; use another network or size"
        raise ConfigError(f"Expected a network for images {list(images.shape)}, got {got}.") from error


def weights_digest(module: nn.Module) -> str:
    """Return the SHA-256 of the names and values of all weights of a module."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().flatten().contiguous().view(torch.uint8).numpy()).data)
    return digest.hexdigest()


def assembled(cells: NDArray[Any], columns: int) -> NDArray[Any]:
    """Join cells [n, C, S, S] row by row into one image [1, C, n / columns * S, columns * S]."""
    count, channels, side = cells.shape[:3]
    rows = count // columns
    grid = cells.reshape(rows, columns, channels, side, side).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(grid).reshape(1, channels, rows * side, columns * side)


def intensities(pixels: NDArray[Any], span: tuple[float, float]) -> NDArray[np.float32]:
    """Convert pixels to float32: the two intensities of `span` become 0 and 1, values outside are clipped."""
    low, high = span
    scaled = pixels.astype(np.float32)
    scaled -= np.float32(low)
    scaled /= np.float32(max(high - low, 1e-12))
    return np.clip(scaled, 0.0, 1.0, out=scaled)


def standardized(x: Tensor, recipe: Mapping[str, Any]) -> Tensor:
    """Preprocess images [M, C, H, W] in [0, 1] by a recipe: size, three channels, mean, deviation; may overwrite x."""
    if recipe["size"] is not None and list(x.shape[2:]) != recipe["size"]:
        rows, columns = x.shape[2:]
        more = abs(rows - columns)
        before = [more // 2, more - more // 2]
        x = pad(x, [*before, 0, 0] if rows > columns else [0, 0, *before]) if more else x
        mode = recipe["resample"]
        x = interpolate(x, size=recipe["size"], mode=mode, antialias=mode != "nearest-exact").clamp(0, 1)
    mean, std = (torch.tensor(recipe[name], dtype=x.dtype, device=x.device)[:, None, None] for name in ("mean", "std"))
    return (x.sub_(mean) if x.shape[1] == 3 else x - mean).div_(std)
