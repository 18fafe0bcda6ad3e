"""Slides that are TIFFs which OpenSlide does not know, or not in full: through tifffile."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import need
from midam.data.sources.formats.pyramid import Pyramid, magnification_of, micrometers_of, whole_slide
from midam.errors import BagDataError

_INCHES = {2: 25400.0, 3: 10000.0}  # micrometers in an inch and a centimeter, the units of TIFF
# Micrometers in the units of OME-XML, in which both signs for micro are met.
_UNITS = {"nm": 1e-3, "\u00b5m": 1.0, "\u03bcm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6, "in": 25400.0}
_CACHE = 4 * 2**20  # bytes of decoded tiles that a level keeps: patches next to each other share them
_ROWS = 64
_Blocks = tuple[int, int, Callable[[int, int], NDArray[np.uint8]]]


class TiffFacts(NamedTuple):
    """Facts from the header of a TIFF."""

    levels: int
    micrometers: float | None  # a pixel of level 0
    coded: bool  # in a way that this installation cannot decode


def tiff_facts(path: Path) -> TiffFacts:
    """Read the header of a TIFF; a damaged one, and an OME-TIFF of anything but red, green and blue, are refused."""
    file, tifffile = _opened(path)
    with file, whole_slide(path):
        series, page = file.series[0], file.pages[0]
        if file.is_ome:
            _require_color(series, path)
        coded = page.compression not in tifffile.TIFF.DECOMPRESSORS
        return TiffFacts(len(series.levels), _micrometers(file), coded)


def tiff_pyramid(path: Path) -> Pyramid:
    """Open a TIFF by tiles; errors as of `tiff_facts`."""
    file, _ = _opened(path)
    import zarr

    try:
        with whole_slide(path):
            series = file.series[0]
            _require_color(series, path)
            levels = [zarr.open_array(series.aszarr(level=n), mode="r") for n in range(len(series.levels))]
            micrometers = micrometers_of(_micrometers(file))
    except BagDataError:
        file.close()
        raise
    planes = series.axes == "SYX"
    sizes = tuple((int(x.shape[planes + 1]), int(x.shape[planes])) for x in levels)
    factors = tuple(sizes[0][0] / width for width, _ in sizes)
    region = _tiles([_blocks(array, planes=planes, path=path) for array in levels], sizes, factors)
    magnification = magnification_of(None, micrometers)
    return Pyramid(sizes, factors, magnification, micrometers, region, serial=True, close=file.close)


def _opened(path: Path) -> tuple[Any, Any]:
    """A TIFF, and the package that opened it."""
    need("zarr", "this TIFF", path, extra="wsi")
    tifffile = need("tifffile", "this TIFF", path, extra="wsi")
    with whole_slide(path):
        return tifffile.TiffFile(path), tifffile


def _require_color(series: Any, path: Path) -> None:
    if series.axes not in ("YXS", "SYX") or series.dtype != np.uint8 or 3 not in series.shape:
        raise BagDataError(
            f"Expected a slide of red, green and blue, got axes {series.axes} {list(series.shape)} of {series.dtype} "
            f"(in {path}); convert it to a TIFF of RGB."
        )


def _tiles(blocks: Sequence[_Blocks], sizes: Sequence[tuple[int, int]], factors: Sequence[float]) -> Any:
    """`Pyramid.region` of levels that are decoded in blocks."""

    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        left, top = round(x / factors[level]), round(y / factors[level])
        height, width, block = blocks[level]
        canvas = np.full((size, size, 3), 255, dtype=np.uint8)
        for row in range(top // height * height, min(top + size, sizes[level][1]), height):
            for column in range(left // width * width, min(left + size, sizes[level][0]), width):
                (y0, x0), part = (max(row, top), max(column, left)), block(row, column)
                part = part[y0 - row : top + size - row, x0 - column : left + size - column]
                canvas[y0 - top :, x0 - left :][: part.shape[0], : part.shape[1]] = part
        return canvas

    return region


def _blocks(array: Any, *, planes: bool, path: Path) -> _Blocks:
    """Height and width of the parts that a level is decoded in, and a reader that keeps the last ones."""
    rows, width = (int(side) for side in array.chunks[planes : planes + 2])
    height: int = rows * -(-_ROWS // rows)  # a strip may be one row

    @functools.lru_cache(maxsize=_CACHE // (height * width * 3))
    def block(row: int, column: int) -> NDArray[np.uint8]:
        places = (slice(row, row + height), slice(column, column + width))
        try:
            part = np.moveaxis(array[:, *places], 0, 2) if planes else array[places]
        except Exception as error:  # decoders raise what they like
            hint = f"{error}; compressed TIFFs may need the package imagecodecs"
            raise BagDataError(
                f"Expected a whole slide, got: {hint} (in {path}); copy or convert the file again."
            ) from error
        return np.ascontiguousarray(part)

    return height, width, block


def _micrometers(file: Any) -> float | None:
    """Micrometers a pixel of level 0: of the OME header, or of the tags."""
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
