"""From instances as they are stored to images as a network wants them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, pad


def assembled(cells: NDArray[Any], columns: int) -> NDArray[Any]:
    """Put cells [n, C, S, S], row by row, together to one image [1, C, n / columns * S, columns * S]."""
    count, channels, side = cells.shape[:3]
    rows = count // columns
    grid = cells.reshape(rows, columns, channels, side, side).transpose(2, 0, 3, 1, 4)
    return np.ascontiguousarray(grid).reshape(1, channels, rows * side, columns * side)


def intensities(pixels: NDArray[Any], span: tuple[float, float]) -> NDArray[np.float32]:
    """Pixels as float32 from 0 to 1, which the two intensities of a span become; what lies outside is cut off."""
    low, high = span
    scaled = pixels.astype(np.float32)
    scaled -= np.float32(low)
    scaled /= np.float32(max(high - low, 1e-12))
    return np.clip(scaled, 0.0, 1.0, out=scaled)


def standardized(x: Tensor, recipe: Mapping[str, Any]) -> Tensor:
    """Images [M, C, H, W] from 0 to 1 with three channels, of the size and with the mean of a recipe."""
    if recipe["size"] is not None and list(x.shape[2:]) != recipe["size"]:
        rows, columns = x.shape[2:]
        more = abs(rows - columns)
        before = [more // 2, more - more // 2]
        x = pad(x, [*before, 0, 0] if rows > columns else [0, 0, *before]) if more else x
        x = interpolate(x, size=recipe["size"], mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)
    x = x.expand(-1, 3, -1, -1)
    mean, std = (torch.tensor(recipe[name], dtype=x.dtype, device=x.device)[:, None, None] for name in ("mean", "std"))
    return (x - mean).div_(std)
