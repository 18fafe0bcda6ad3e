"""Tissue in an image: saturated color, separated from the pale ground by Otsu's threshold."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.imageoptions import Places
from midam.errors import BagDataError

_MOST = 30  # of 255: a picture that is all tissue must not be cut in two by its own stain
# Of 255. Saturation is a ratio, so that the noise of a black border passes for color. CLAM takes patches for black
# whose mean red, green and blue are all below 40.
_BLACK = 40


def saturation(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Saturation [H, W] of colors [3, H, W], as of HSV: 255 (max - min) / max."""
    high, low = pixels.max(axis=0), pixels.min(axis=0)
    return np.asarray((high - low).astype(np.uint16) * 255 // np.maximum(high, 1), dtype=np.uint8)


def otsu(values: NDArray[np.uint8]) -> int:
    """Threshold t that sets the values <= t and > t furthest apart (Otsu 1979)."""
    counts = np.bincount(values.reshape(-1), minlength=256).astype(np.float64)
    below = np.cumsum(counts)
    sums = np.cumsum(counts * np.arange(256))
    above = below[-1] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = sums / below - (sums[-1] - sums) / above
    return int(np.argmax(np.nan_to_num(below * above * gap**2, posinf=0.0)))


def tissue_mask(pixels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Where colors [3, H, W] are more saturated than Otsu's threshold, or than 30 of 255 where that is less.

    Pixels without a color of 40 or more are black: they are no tissue, and Otsu's threshold is that of the others.
    """
    values, seen = saturation(pixels), pixels.max(axis=0) >= _BLACK
    return np.asarray(seen & (values > min(otsu(values[seen]), _MOST)), dtype=np.bool_)


def covered(mask: NDArray[np.bool_], corners: NDArray[Any], side: float) -> NDArray[np.float64]:
    """Part of each square that a mask [H, W] covers; top left corners (x, y) and side are in pixels of the mask."""
    sums = np.pad(np.cumsum(np.cumsum(mask, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    height, width = mask.shape
    low = np.minimum(np.floor(corners).astype(np.int64), [width - 1, height - 1])
    high = np.clip(np.floor(corners + side).astype(np.int64), low + 1, [width, height])
    (x0, y0), (x1, y1) = low.T, high.T
    inside = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]
    return np.asarray(inside / ((x1 - x0) * (y1 - y0)), dtype=np.float64)


def on_tissue(
    places: Places, pixels: NDArray[np.uint8], *, side: float, share: float, zoom: float = 1.0, what: str, path: Path
) -> Places:
    """Squares that are tissue to this share at least; `zoom` leads from their pixels to those that are looked at."""
    kept = places[covered(tissue_mask(pixels), places * zoom, side * zoom) >= share]
    if not len(kept):
        raise BagDataError(
            f"Expected a patch that is tissue to {share:g}, got none of {len(places)} (in {path}); lower `tissue`, or "
            f"leave the {what} out."
        )
    return kept
