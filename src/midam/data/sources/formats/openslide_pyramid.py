"""Slides as pyramids of levels: through OpenSlide, or tifffile for TIFFs that OpenSlide does not know in full."""

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.formats.open_file import need
from midam.data.sources.formats.pyramid import Pyramid, magnification_of, micrometers_of, whole_slide
from midam.data.sources.formats.tiff_pyramid import tiff_facts, tiff_pyramid
from midam.errors import BagDataError

_LARGE = 1 << 28  # pixels, from which a TIFF without levels is read in parts all the same
_LEVELS = 330  # the tag of TIFF for images inside an image, where OME-TIFFs keep their levels
_PLAIN = "generic-tiff"  # OpenSlide's word for a tiled TIFF of no maker; it then sees no levels in such images
_CACHE = 256 * 2**20  # bytes of decoded tiles, of all slides together


def is_pyramid(path: Path) -> bool:
    """Whether a TIFF has several levels, or is too large to be read as one image."""
    from PIL import Image

    if path.name.lower().endswith((".ome.tif", ".ome.tiff")):
        return True
    try:
        with Image.open(path) as image:
            if getattr(image, "n_frames", 1) == 1 and _LEVELS not in getattr(image, "tag_v2", {}):
                return bool(image.width * image.height > _LARGE)
    except Image.DecompressionBombError:
        return True
    except Exception:  # Pillow raises what it likes
        return False  # the reader of images reports the fault
    try:
        slide = open_pyramid(path)
        slide.close()
        return len(slide.sizes) > 1 or tiff_facts(path).levels > 1
    except BagDataError:
        return False


def open_pyramid(path: Path) -> Pyramid:
    """Open a slide; a file that is damaged, or of a format that neither OpenSlide nor tifffile knows, is refused."""
    openslide = need("openslide", "slides", path, extra="wsi")
    if not path.is_file():
        raise BagDataError(f"Expected a slide, got a folder (in {path}); name the file.")
    with whole_slide(path):
        maker = openslide.OpenSlide.detect_format(path)
        slide = None if maker is None else openslide.OpenSlide(path)
    if slide is None:
        return tiff_pyramid(path)
    micrometers: str | float | None = slide.properties.get(openslide.PROPERTY_NAME_MPP_X)
    if maker == _PLAIN and slide.level_count == 1:
        facts = tiff_facts(path)
        if facts.levels > 1 and not facts.coded:
            slide.close()
            return tiff_pyramid(path)
        if facts.levels > 1:
            warnings.warn(
                f"{path}: its smaller levels need the package imagecodecs; without it all is read from level 0, slowly",
                stacklevel=1,
            )
        micrometers = facts.micrometers
    slide.set_cache(_tile_cache())

    def region(x: int, y: int, level: int, size: int) -> NDArray[np.uint8]:
        with whole_slide(path):
            part = np.asarray(slide.read_region((x, y), level, (size, size)))
        # Areas that were not scanned are transparent; they become white, as the ground of a slide is.
        return np.where(part[..., 3:] == 0, np.uint8(255), part[..., :3])

    power, stated = slide.properties.get(openslide.PROPERTY_NAME_OBJECTIVE_POWER), micrometers_of(micrometers)
    sizes, factors = tuple(slide.level_dimensions), tuple(slide.level_downsamples)
    left, top = (int(slide.properties.get(f"openslide.bounds-{axis}", 0)) for axis in "xy")
    return Pyramid(sizes, factors, magnification_of(power, stated), stated, region, corner=(left, top))


@functools.cache
def _tile_cache() -> Any:
    import openslide

    return openslide.OpenSlideCache(_CACHE)
