"""Where an image shows tissue: saturated colour, told from the pale ground by Otsu's threshold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST = 30  # of 255: a picture that is all tissue must not be cut in two by its own stain
# Of 255. Saturation is a ratio, so that the noise of a black border passes for colour. CLAM takes patches for black
# whose mean red, green and blue are all below 40.
_BLACK = 40


def saturation(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Saturation of colours, as of HSV: 255 (max - min) / max.

    Parameters
    ----------
    pixels : array of uint8 [3, H, W]
        Red, green, blue.

    Returns
    -------
    array of uint8 [H, W]

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
    """Where colours [3, H, W] are more saturated than Otsu's threshold, or than 30 of 255 where that is less.

    Pixels without a colour of 40 or more are black: they are no tissue, and Otsu's threshold is that of the others.

    Examples
    --------
    >>> tissue_mask(np.array([[[180, 244, 5]], [[60, 242, 0]], [[140, 243, 2]]], dtype=np.uint8))
    array([[ True, False, False]])
    """
    values, seen = saturation(pixels), pixels.max(axis=0) >= _BLACK
    found: NDArray[np.bool_] = seen & (values > min(otsu(values[seen]), _MOST))
    return found


def covered(mask: NDArray[np.bool_], corners: NDArray[Any], side: float) -> NDArray[np.float64]:
    """Part of each square that a mask covers.

    Parameters
    ----------
    mask : array of bool [H, W]
        The mask.
    corners : array [n, 2]
        x and y of the squares' top left corners, in pixels of the mask.
    side : float
        Of a square, in pixels of the mask; less than one pixel counts as one.

    Returns
    -------
    array of float64 [n], in [0, 1]

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
