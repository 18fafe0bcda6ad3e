"""The image that the patches of a bag were cut from, small enough to draw on."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.images import ImageReader, read_pixels
from midam.data.sources.formats.openslide_pyramid import is_pyramid, open_pyramid
from midam.data.sources.formats.slides import SlideReader, TiffReader
from midam.errors import MidamError

MAX_SIDE = 1600


@dataclass(frozen=True)
class Backdrop:
    """A small copy of an image."""

    pixels: NDArray[np.uint8]  # [rows, columns, 3]
    scale: float  # its pixels for a pixel of level 0


def read_backdrop(path: Path) -> Backdrop | None:
    """Small copy of an image or a slide, at most 1600 pixels a side; None where the file is none, or cannot be read.

    What should be there and cannot be drawn is warned of, by name.
    """
    suffix = path.suffix.lower()
    if suffix not in (*ImageReader.suffixes, *TiffReader.suffixes, *SlideReader.suffixes):
        return None
    reason = "it is not there any more"
    if path.exists():
        try:
            slide = suffix in SlideReader.suffixes or (suffix in TiffReader.suffixes and is_pyramid(path))
            return _thumbnail(path) if slide else _shrunk(as_rgb(read_pixels(path)))
        except MidamError as error:
            reason = str(error)
    warnings.warn(f"the image {path} is left out of the picture: {reason}", UserWarning, stacklevel=3)
    return None


def as_rgb(pixels: NDArray[Any], *, low: float | None = None, high: float | None = None) -> NDArray[np.uint8]:
    """Pixels [C, H, W] as [H, W, 3] of uint8; of other than three channels the first, in gray.

    Values are stretched from `low` to `high`, by default the least and the greatest; uint8 only where both are given.

    Examples
    --------
    >>> as_rgb(np.array([[[0.0, 0.5, 1.0]]]))[0, :, 0].tolist()
    [0, 127, 255]
    """
    chosen = pixels if len(pixels) == 3 else pixels[:1]
    if chosen.dtype != np.uint8 or (low is not None and high is not None):
        values = chosen.astype(np.float64)
        low = float(values.min()) if low is None else low
        high = float(values.max()) if high is None else high
        chosen = (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(chosen, (3, *chosen.shape[1:])).transpose(1, 2, 0))


def _shrunk(pixels: NDArray[np.uint8]) -> Backdrop:
    from PIL import Image  # noqa: PLC0415

    full = max(pixels.shape[:2])
    if full <= MAX_SIDE:
        return Backdrop(pixels, 1.0)
    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return Backdrop(np.asarray(image), max(image.size) / full)


def _thumbnail(path: Path) -> Backdrop:
    slide = open_pyramid(path)
    pixels = slide.thumbnail(MAX_SIDE)
    return Backdrop(pixels, max(pixels.shape[:2]) / max(slide.sizes[0]))
