"""An open slide, a pyramid of levels: through OpenSlide, or through tifffile if OpenSlide cannot read it."""

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.covariates import number_of
from midam.data.sources.formats.open_file import need, sound
from midam.errors import BagDataError

_TEN_FOLD = 10.0  # magnification times micrometers per pixel
_COARSE = 10.0  # micrometers per pixel beyond a microscope's: 72 dots per inch, often a default, are 353
_BLOCK = 2048  # pixels of a level that a thumbnail reads at a time, each way
_LARGE = 1 << 28  # pixels from which even a TIFF without levels is read in parts
_LEVELS = 330  # the tag of TIFF for images inside an image, where OME-TIFFs keep their levels
_PLAIN = "generic-tiff"  # OpenSlide's name for a tiled TIFF of no maker, in which it does not see such levels
_CACHE = 256 * 2**20  # bytes of decoded tiles, of all slides together
_INCHES = {2: 25400.0, 3: 10000.0}  # micrometers in an inch and a centimeter, the units of TIFF
# Micrometers in the units of OME-XML, where both signs for micro occur.
_UNITS = {"nm": 1e-3, "\u00b5m": 1.0, "\u03bcm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6, "in": 25400.0}
_AGAIN = "copy or convert the file again"


@dataclass(frozen=True)
class Pyramid:
    """An open slide; a slide of OpenSlide closes itself when it is no longer used.

    `region(x, y, level, size)` returns the colors [size, size, 3] of a square at a level, with its top left corner x, y
    in pixels of level 0; areas outside the slide are white.
    """

    sizes: tuple[tuple[int, int], ...]  # width and height of each level, level 0 first
    factors: tuple[float, ...]  # pixels of level 0 for one of each level
    magnification: float | None  # of level 0, if the file states it
    micrometers: float | None  # per pixel of level 0, if the file states it
    region: Callable[[int, int, int, int], NDArray[np.uint8]]
    serial: bool = False  # whether one thread at a time may read
    close: Callable[[], None] = lambda: None
    corner: tuple[int, int] = (0, 0)  # of the scanned area, if the file states its bounds; viewers count from there

    def thumbnail(self, size: int) -> NDArray[np.uint8]:
        """Return the whole slide [h, w, 3], at most `size` pixels on its longer side; read by blocks to save memory."""
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
        target = (max(1, round(width * scale)), max(1, round(height * scale)))
        box = (0, 0, width / shrink, height / shrink)  # the last pixels may be averages of fewer
        return np.asarray(Image.fromarray(canvas).resize(target, Image.Resampling.BICUBIC, box=box))


def micrometers_of(stated: Any) -> float | None:
    """Return the micrometers per pixel of level 0; None if they are not stated, or not a microscope's.

    Examples
    --------
    >>> micrometers_of("0.5"), micrometers_of(None), micrometers_of(353), micrometers_of("unknown")
    (0.5, None, None, None)
    """
    micrometers = number_of(str(stated))
    return micrometers if micrometers is not None and 0 < micrometers < _COARSE else None


def magnification_of(power: Any, micrometers: float | None) -> float | None:
    """Return the magnification of level 0, as stated or 10 / micrometers per pixel; None if neither is known.

    Examples
    --------
    >>> magnification_of("40", 0.3), magnification_of(None, 0.5), magnification_of(None, None)
    (40.0, 20.0, None)
    """
    stated = number_of(str(power))
    if stated is not None and stated > 0:
        return stated
    return None if micrometers is None else _TEN_FOLD / micrometers


def whole_slide(path: Path, close: Callable[[], None] | None = None) -> AbstractContextManager[None]:
    """Turn any error into the error about a slide that cannot be read."""
    return sound("a whole slide", path, advice=_AGAIN, close=close)


def is_pyramid(path: Path) -> bool:
    """Return whether a TIFF has several levels, or is too large to be read as one image."""
    from PIL import Image

    if path.name.lower().endswith((".ome.tif", ".ome.tiff")):
        return True
    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) == 1 and _LEVELS not in getattr(image, "tag_v2", {}):
                return bool(image.width * image.height > _LARGE)
    except Image.DecompressionBombError:
        return True
    except Exception:  # Pillow raises various errors
        return False  # the reader of images reports the fault
    try:
        slide = open_pyramid(path)
        slide.close()
        return len(slide.sizes) > 1 or tiff_facts(path)[0] > 1
    except BagDataError:
        return False


def open_pyramid(path: Path) -> Pyramid:
    """Open a slide; refuse a damaged file, and a format that neither OpenSlide nor tifffile knows."""
    openslide = need("openslide", "slides", path, extra="wsi")
    with whole_slide(path):
        maker = openslide.OpenSlide.detect_format(path)
        slide = None if maker is None else openslide.OpenSlide(path)
    if slide is None:
        return tiff_pyramid(path)
    micrometers: str | float | None = slide.properties.get(openslide.PROPERTY_NAME_MPP_X)
    if maker == _PLAIN and slide.level_count == 1:
        levels, micrometers, coded = tiff_facts(path)
        if levels > 1 and not coded:
            slide.close()
            return tiff_pyramid(path)
        if levels > 1:
            text = f"{path}: its smaller levels need the package imagecodecs"
            warnings.warn(f"{text}; without it, reading from level 0 is slow", stacklevel=1)
    slide.set_cache(_tile_cache())

    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        with whole_slide(path):
            part = np.asarray(slide.read_region((x, y), level, (size, size)))
        # Areas that were not scanned are transparent; they become white, like the background of a slide.
        return np.where(part[..., 3:] == 0, np.uint8(255), part[..., :3])

    power, stated = slide.properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER), micrometers_of(micrometers)
    sizes, factors = tuple(slide.level_dimensions), tuple(slide.level_downsamples)
    left, top = (int(slide.properties.get(f"openslide.bounds-{axis}", 0)) for axis in "xy")
    return Pyramid(sizes, factors, magnification_of(power, stated), stated, region, corner=(left, top))


@functools.cache
def _tile_cache() -> Any:
    import openslide

    return openslide.OpenSlideCache(_CACHE)


def tiff_facts(path: Path) -> tuple[int, float | None, bool]:
    """Return a TIFF's number of levels, its micrometers per pixel of level 0, and whether a decoder for it is missing.

    A damaged file, and an OME-TIFF that is not red, green and blue, are refused.
    """
    file, tifffile = _opened(path)
    with file, whole_slide(path):
        series, page = file.series[0], file.pages[0]
        if file.is_ome:
            _require_color(series, path)
        coded = page.compression not in tifffile.TIFF.DECOMPRESSORS
        return len(series.levels), _micrometers(file), coded


def tiff_pyramid(path: Path) -> Pyramid:
    """Open a TIFF by tiles; errors as in `tiff_facts`."""
    file, _ = _opened(path)
    import zarr

    with whole_slide(path, close=file.close):
        series = file.series[0]
        _require_color(series, path)
        levels = [zarr.open_array(series.aszarr(level=n), mode="r") for n in range(len(series.levels))]
        micrometers = micrometers_of(_micrometers(file))
    planes = series.axes == "SYX"
    sizes = tuple((int(x.shape[planes + 1]), int(x.shape[planes])) for x in levels)
    factors = tuple(sizes[0][0] / width for width, _ in sizes)
    region = _regions(levels, factors, planes=planes, path=path)
    magnification = magnification_of(None, micrometers)
    return Pyramid(sizes, factors, magnification, micrometers, region, serial=True, close=file.close)


def _opened(path: Path) -> tuple[Any, Any]:
    """Return an open TIFF, and the package that opened it."""
    need("zarr", "this TIFF", path, extra="wsi")
    tifffile = need("tifffile", "this TIFF", path, extra="wsi")
    with whole_slide(path):
        file = tifffile.TiffFile(path)
    with whole_slide(path, close=file.close):
        for level in file.series[0].levels if file.series else ():
            for page in level.pages:
                if page is not None:
                    _check_parts(page.dataoffsets, page.databytecounts, path)
        return file, tifffile


def _check_parts(offsets: Sequence[int], counts: Sequence[int], path: Path) -> None:
    """Refuse strips or tiles that overlap in part, by a damaged offset; equal tiles may share their bytes."""
    parts = np.unique(np.array([offsets, counts], dtype=np.int64).T, axis=0)
    parts = parts[parts[:, 1] > 0]
    if (parts[1:, 0] < parts[:-1].sum(axis=1)).any():
        raise BagDataError(f"Expected a whole slide, got parts that overlap (in {path}); {_AGAIN}.")


def _require_color(series: Any, path: Path) -> None:
    if series.axes not in ("YXS", "SYX") or series.dtype != np.uint8 or 3 not in series.shape:
        got = f"axes {series.axes} {list(series.shape)} of {series.dtype} (in {path})"
        raise BagDataError(f"Expected a slide of red, green and blue, got {got}; convert it to a TIFF of RGB.")


def _regions(levels: Sequence[Any], factors: Sequence[float], *, planes: bool, path: Path) -> Any:
    """Return `Pyramid.region` for levels [H, W, 3], or [3, H, W] for `planes`, that are decoded where they are read."""

    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        left, top = round(x / factors[level]), round(y / factors[level])
        square = (slice(top, top + size), slice(left, left + size))
        with sound("a whole slide", path, advice=f"{_AGAIN}; compressed TIFFs may need the package imagecodecs"):
            part = np.moveaxis(levels[level][:, *square], 0, 2) if planes else levels[level][square]
        canvas = np.full((size, size, 3), 255, dtype=np.uint8)
        canvas[: part.shape[0], : part.shape[1]] = part
        return canvas

    return region


def _micrometers(file: Any) -> float | None:
    """Return the micrometers per pixel of level 0 from the OME header, or from the tags."""
    size = _of_ome(file.ome_metadata) if file.is_ome else None
    if size is not None:
        return size
    tags = file.pages[0].tags
    unit = _INCHES.get(int(tags["ResolutionUnit"].value)) if "ResolutionUnit" in tags else None
    if unit is None or "XResolution" not in tags:
        return None
    above, below = tags["XResolution"].value
    return unit * below / above if above else None


def _of_ome(text: str) -> float | None:
    import tifffile

    try:
        images = tifffile.xml2dict(text)["OME"]["Image"]
        pixels = (images[0] if isinstance(images, list) else images)["Pixels"]
        return float(pixels["PhysicalSizeX"]) * _UNITS[pixels.get("PhysicalSizeXUnit", "um")]
    except (SyntaxError, KeyError, TypeError, ValueError):
        return None  # not stated, or in a unit without a length, such as "pixel"
