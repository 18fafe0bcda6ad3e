"""Slides as pyramids of levels: through OpenSlide, or tifffile for TIFFs that OpenSlide does not know."""

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.errors import BagDataError, MidamError

_LARGE = 1 << 28  # pixels, from which a TIFF without levels is read in parts all the same
_MICROMETRES = {2: 25400.0, 3: 10000.0}  # in an inch and a centimetre, the units of TIFF
_TEN_FOLD = 10.0  # magnification times micrometres a pixel
_CACHE = 256 * 2**20  # bytes of decoded tiles, of all slides together


@dataclass(frozen=True)
class Pyramid:
    """A slide that is open for reading.

    Attributes
    ----------
    sizes : tuple of (int, int)
        Width and height of each level, level 0 first.
    factors : tuple of float
        Pixels of level 0 for one of each level.
    magnification : float or None
        Of level 0, such as 20 or 40; None where the file does not say.
    region : callable
        (x, y, level, size): red, green and blue [size, size, 3] of a square at a level; x and y of its top left corner
        are pixels of level 0. What lies outside is white.
    thumbnail : callable
        (size): the whole slide [h, w, 3], the longer side at most `size` pixels.
    serial : bool
        Whether one thread at a time may read.
    close : callable
        Closes it; a slide of OpenSlide closes itself when nothing reads it any more.
    """

    sizes: tuple[tuple[int, int], ...]
    factors: tuple[float, ...]
    magnification: float | None
    region: Callable[[int, int, int, int], NDArray[np.uint8]]
    thumbnail: Callable[[int], NDArray[np.uint8]]
    serial: bool = False
    close: Callable[[], None] = lambda: None


def is_pyramid(path: Path) -> bool:
    """Whether a TIFF has several levels, or is too large to be read as one image."""
    from PIL import Image  # noqa: PLC0415

    if path.name.lower().endswith((".ome.tif", ".ome.tiff")):
        return True
    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) == 1:
                return bool(image.width * image.height > _LARGE)
    except Image.DecompressionBombError:
        return True
    except (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, EOFError, struct.error):
        return False  # the reader of images says what is wrong
    try:
        slide = open_pyramid(path)
    except BagDataError:
        return False
    slide.close()
    return len(slide.sizes) > 1


def open_pyramid(path: Path) -> Pyramid:
    """Open a slide.

    Raises
    ------
    BagDataError
        If the file is damaged or of a format that neither OpenSlide nor tifffile knows.
    MidamError
        If the packages are missing.
    """
    try:
        import openslide  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the package openslide to read slides, got none (in {path}); install midam[wsi]."
        ) from error
    if not path.is_file():
        raise BagDataError(f"Expected a slide, got a folder (in {path}); name the file.")
    try:
        known = openslide.OpenSlide.detect_format(path) is not None
        slide = openslide.OpenSlide(path) if known else None
    except openslide.OpenSlideError as error:
        raise _damaged(path, str(error)) from error
    return _tiff_pyramid(path) if slide is None else _of_openslide(slide, path)


def _of_openslide(slide: Any, path: Path) -> Pyramid:
    import openslide  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    slide.set_cache(_tile_cache())

    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        try:
            part = slide.read_region((x, y), level, (size, size))
        except openslide.OpenSlideError as error:
            raise _damaged(path, str(error)) from error
        return _on_white(part)

    def thumbnail(size: int) -> NDArray[np.uint8]:
        level = slide.get_best_level_for_downsample(max(slide.dimensions) / size)
        try:
            picture = slide.read_region((0, 0), level, slide.level_dimensions[level])
        except openslide.OpenSlideError as error:
            raise _damaged(path, str(error)) from error
        picture = Image.fromarray(_on_white(picture))
        picture.thumbnail((size, size))
        return np.asarray(picture)

    said = slide.properties
    return Pyramid(
        tuple(slide.level_dimensions),
        tuple(slide.level_downsamples),
        _magnification(said.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER), said.get(openslide.PROPERTY_NAME_MPP_X)),
        region,
        thumbnail,
    )


@functools.cache
def _tile_cache() -> Any:
    import openslide  # noqa: PLC0415

    return openslide.OpenSlideCache(_CACHE)


def _on_white(part: Any) -> NDArray[np.uint8]:
    """What was not scanned is transparent; it becomes white, as the ground of a slide is."""
    array = np.asarray(part)
    alpha = array[..., 3:]
    found: NDArray[np.uint8] = np.where(alpha == 0, np.uint8(255), array[..., :3])
    return found


def _tiff_pyramid(path: Path) -> Pyramid:
    """Open a TIFF by tiles."""
    try:
        import tifffile  # noqa: PLC0415
        import zarr  # noqa: PLC0415
    except ImportError as error:
        raise MidamError(
            f"Expected the packages tifffile and zarr to read this TIFF, got none (in {path}); install midam[wsi]."
        ) from error
    try:
        file = tifffile.TiffFile(path)
    except (tifffile.TiffFileError, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    try:
        series = file.series[0]
        levels = [zarr.open_array(series.aszarr(level=n), mode="r") for n in range(len(series.levels))]
        micrometres = _resolution(file.pages[0])
    except (OSError, ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        file.close()
        raise _damaged(path, str(error)) from error
    if series.axes not in ("YXS", "SYX") or levels[0].dtype != np.uint8 or 3 not in levels[0].shape:
        file.close()
        raise BagDataError(
            f"Expected a slide of red, green and blue, got axes {series.axes} of {levels[0].dtype} (in {path}); "
            "convert it to a TIFF of RGB."
        )
    planes = series.axes == "SYX"
    sizes = tuple((int(x.shape[2 if planes else 1]), int(x.shape[1 if planes else 0])) for x in levels)
    return Pyramid(
        sizes,
        tuple(sizes[0][0] / width for width, _ in sizes),
        _magnification(None, micrometres),
        _tiles(levels, sizes, planes=planes, path=path),
        _small(levels, sizes, planes=planes, path=path),
        serial=True,
        close=file.close,
    )


def _tiles(levels: Sequence[Any], sizes: Sequence[tuple[int, int]], *, planes: bool, path: Path) -> Any:
    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        factor = sizes[0][0] / sizes[level][0]
        left, top = round(x / factor), round(y / factor)
        found = np.full((size, size, 3), 255, dtype=np.uint8)
        part = _part(levels[level], slice(top, top + size), slice(left, left + size), planes=planes, path=path)
        found[: part.shape[0], : part.shape[1]] = part
        return found

    return region


def _small(levels: Sequence[Any], sizes: Sequence[tuple[int, int]], *, planes: bool, path: Path) -> Any:
    def thumbnail(size: int) -> NDArray[np.uint8]:
        from PIL import Image  # noqa: PLC0415

        enough = [number for number, level in enumerate(sizes) if max(level) >= min(size, max(sizes[0]))]
        picture = Image.fromarray(_part(levels[enough[-1]], slice(None), slice(None), planes=planes, path=path))
        picture.thumbnail((size, size))
        return np.asarray(picture)

    return thumbnail


def _part(array: Any, rows: slice, columns: slice, *, planes: bool, path: Path) -> NDArray[np.uint8]:
    try:
        part = array[:, rows, columns] if planes else array[rows, columns]
    except (ValueError, RuntimeError, OSError, struct.error, ImportError) as error:
        raise _damaged(path, f"{error}; compressed TIFFs may need the package imagecodecs") from error
    return np.ascontiguousarray(part.transpose(1, 2, 0) if planes else part)


def _resolution(page: Any) -> float | None:
    """Micrometres a pixel, where the tags are those of a microscope."""
    tags = page.tags
    unit = _MICROMETRES.get(int(tags["ResolutionUnit"].value)) if "ResolutionUnit" in tags else None
    if unit is None or "XResolution" not in tags:
        return None
    above, below = tags["XResolution"].value
    size = unit * below / above if above else 0.0
    return size if 0 < size < 10 else None  # 72 dots an inch, which many programs write, is 353 micrometres


def _magnification(power: Any, micrometres: Any) -> float | None:
    """Of level 0: as the scanner says, or 10 / micrometres a pixel."""
    try:
        if power is not None and float(power) > 0:
            return float(power)
        return _TEN_FOLD / float(micrometres) if micrometres is not None and float(micrometres) > 0 else None
    except ValueError:
        return None


def _damaged(path: Path, reason: str) -> BagDataError:
    return BagDataError(f"Expected a whole slide, got: {reason} (in {path}); copy or convert the file anew.")
