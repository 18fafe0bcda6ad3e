"""Where an image shows tissue: saturated color, told from the pale ground by Otsu's threshold."""

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
    """Saturation [H, W] of colors [3, H, W], as of HSV: 255 (max - min) / max.

    Examples
    --------
    >>> saturation(np.array([[[200]], [[100]], [[150]]], dtype=np.uint8))
    array([[127]], dtype=uint8)
    """
    high, low = pixels.max(axis=0), pixels.min(axis=0)
    share: NDArray[np.uint8] = ((high - low).astype(np.uint16) * 255 // np.maximum(high, 1)).astype(np.uint8)
    return share


def otsu(values: NDArray[np.uint8]) -> int:
    """Threshold t that sets the values <= t and > t furthest apart (Otsu 1979).

    Examples
    --------
    >>> 10 <= otsu(np.array([9, 10, 10, 200, 201], dtype=np.uint8)) < 200
    True
    """
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

    Examples
    --------
    >>> tissue_mask(np.array([[[180, 244, 5]], [[60, 242, 0]], [[140, 243, 2]]], dtype=np.uint8))
    array([[ True, False, False]])
    """
    values, seen = saturation(pixels), pixels.max(axis=0) >= _BLACK
    found: NDArray[np.bool_] = seen & (values > min(otsu(values[seen]), _MOST))
    return found


def covered(mask: NDArray[np.bool_], corners: NDArray[Any], side: float) -> NDArray[np.float64]:
    """Part of each square that a mask [H, W] covers; its top left corner (x, y) and its side are in pixels of the mask.

    Examples
    --------
    >>> covered(np.array([[True, False], [True, False]]), np.array([[0, 0], [1, 0]]), 2)
    array([0.5, 0. ])
    """
    sums = np.pad(np.cumsum(np.cumsum(mask, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    height, width = mask.shape
    low = np.minimum(np.floor(corners).astype(np.int64), [width - 1, height - 1])
    high = np.clip(np.floor(corners + side).astype(np.int64), low + 1, [width, height])
    (x0, y0), (x1, y1) = low.T, high.T
    inside = sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0]
    found: NDArray[np.float64] = inside / ((x1 - x0) * (y1 - y0))
    return found


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
