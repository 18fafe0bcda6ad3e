"""From the voxels of a volume to those of an instance: window, spacing, size."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.sources.imageoptions import ImageOptions


class Resampling:
    """From intensities as they are stored to those of an instance.

    Voxels have the `spacing` [mm]. What is padded has the stored intensity `least`; `small` says whether uint8 stays
    uint8 where there is no window.
    """

    def __init__(
        self, options: ImageOptions, spacing: tuple[float, float, float] | None, *, least: float, small: bool
    ) -> None:
        wanted, depth, height, width = options.spacing, 1.0, 1.0, 1.0
        if wanted is not None and spacing is not None:
            depth = spacing[0] / wanted if options.volume else 1.0
            height, width = spacing[1] / wanted, spacing[2] / wanted
        self._zoom = (depth, height, width)  # new voxels for an old one
        # Sizes at the end; None leaves an axis as it is.
        self._size = options.volume_size or (None, options.slice_size, options.slice_size)
        self._window, self._crop, self._least, self._small = options.window, wanted is not None, least, small

    def dtype(self, stored: "np.dtype[Any]") -> "np.dtype[Any]":
        """Type of the instances."""
        small = self._small and self._window is None and stored in (np.uint8, np.bool_)
        return np.dtype(np.uint8 if small else np.float32)

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """Sizes at the end of an array [D, H, W]."""
        return tuple(old if new is None else new for old, new in zip(self._zoomed(stored), self._size))

    def __call__(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Resample intensities [D, H, W]."""
        kind, zoomed, shape = self.dtype(stored.dtype), self._zoomed(stored.shape), self.shape(stored.shape)
        found = self._windowed(np.ascontiguousarray(stored, dtype=kind))
        if shape == zoomed == stored.shape:
            return found
        if self._crop:
            ground = float(self._windowed(np.array(self._least, dtype=kind)))
            found = _fitted(resized(found, zoomed), shape, ground)
        else:
            found = resized(found, shape)
        return np.rint(found).astype(kind) if kind == np.uint8 else found

    def _windowed(self, found: NDArray[Any]) -> NDArray[Any]:
        if self._window is None:
            return found
        low, high = self._window
        inside: NDArray[Any] = np.clip((found - np.float32(low)) / np.float32(high - low), 0, 1)
        return inside

    def _zoomed(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(1, round(old * zoom)) for old, zoom in zip(shape, self._zoom))


def resized(data: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Resize [D, H, W] linearly along each axis, averaged where it shrinks; float32."""
    x = torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32))
    if shape[1:] != tuple(x.shape[1:]):
        x = _bilinear(x[:, None], shape[1:])[:, 0]
    if shape[0] != len(x):
        x = _bilinear(x.flatten(1)[None, None], (shape[0], math.prod(shape[1:])))[0, 0].reshape(shape)
    return x.numpy()


def _bilinear(x: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, size=list(size), mode="bilinear", antialias=True)


def _fitted(data: NDArray[np.float32], shape: tuple[int, ...], ground: float) -> NDArray[np.float32]:
    """Crop and pad about the center; what is added is ground."""
    for axis, (old, new) in enumerate(zip(data.shape, shape)):
        if old > new:
            data = data.take(np.arange((old - new) // 2, (old - new) // 2 + new), axis=axis)
        elif old < new:
            pads = [(0, 0)] * 3
            pads[axis] = ((new - old) // 2, new - old - (new - old) // 2)
            data = np.pad(data, pads, constant_values=ground)
    return data
