"""A slide that is open for reading, whatever reads it: a pyramid of levels."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import sound

_TEN_FOLD = 10.0  # magnification times micrometers a pixel
_COARSE = 10.0  # micrometers a pixel, from which they are no microscope's: 72 dots an inch, often a default, are 353
_BLOCK = 2048  # pixels of a level that a thumbnail reads at a time, each way


@dataclass(frozen=True)
class Pyramid:
    """A slide that is open for reading; one of OpenSlide closes itself when nothing reads it.

    `region(x, y, level, size)` gives the colors [size, size, 3] of a square at a level, whose top left corner x, y is
    in pixels of level 0; what lies outside the slide is white.
    """

    sizes: tuple[tuple[int, int], ...]  # width and height of each level, level 0 first
    factors: tuple[float, ...]  # pixels of level 0 for one of each level
    magnification: float | None  # of level 0, where the file says it
    micrometers: float | None  # a pixel of level 0, where the file says it
    region: Callable[[int, int, int, int], NDArray[np.uint8]]
    serial: bool = False  # whether one thread at a time may read
    close: Callable[[], None] = lambda: None
    corner: tuple[int, int] = (0, 0)  # of what was scanned, where the file states its bounds; viewers count from there

    def thumbnail(self, size: int) -> NDArray[np.uint8]:
        """Show the whole slide [h, w, 3], the longer side at most `size` pixels, block by block to spare memory."""
        from PIL import Image

        least = min(size, max(self.sizes[0]))
        level = max(number for number, sides in enumerate(self.sizes) if max(sides) >= least)
        width, height = self.sizes[level]
        shrink = max(1, max(width, height) // size)
        step = max(1, _BLOCK // shrink) * shrink
        canvas = np.empty((-(-height // shrink), -(-width // shrink), 3), np.uint8)
        for top in range(0, height, step):
            for left in range(0, width, step):
                x, y = round(left * self.factors[level]), round(top * self.factors[level])
                block = self.region(x, y, level, step)[: height - top, : width - left]
                part = np.asarray(Image.fromarray(block).reduce(shrink))
                row, column = top // shrink, left // shrink
                canvas[row : row + part.shape[0], column : column + part.shape[1]] = part
        scale = min(1.0, size / max(width, height))
        asked = (max(1, round(width * scale)), max(1, round(height * scale)))
        seen = (0, 0, width / shrink, height / shrink)  # the last pixels may be averages of fewer
        return np.asarray(Image.fromarray(canvas).resize(asked, Image.Resampling.BICUBIC, box=seen))


def micrometers_of(stated: Any) -> float | None:
    """Micrometers a pixel of level 0; None where they are not stated, or no microscope's.

    Examples
    --------
    >>> micrometers_of("0.5"), micrometers_of(None), micrometers_of(353), micrometers_of("unknown")
    (0.5, None, None, None)
    """
    try:
        return float(stated) if stated is not None and 0 < float(stated) < _COARSE else None
    except ValueError:
        return None


def magnification_of(power: Any, micrometers: float | None) -> float | None:
    """Magnification of level 0: as the scanner says, or 10 / micrometers a pixel; None where neither is known.

    Examples
    --------
    >>> magnification_of("40", 0.3), magnification_of(None, 0.5), magnification_of(None, None)
    (40.0, 20.0, None)
    """
    try:
        if power is not None and float(power) > 0:
            return float(power)
    except ValueError:
        return None
    return None if micrometers is None else _TEN_FOLD / micrometers


def whole_slide(path: Path) -> AbstractContextManager[None]:
    """Turn any error into that of a slide that cannot be read."""
    return sound("a whole slide", path, advice="copy or convert the file again")
