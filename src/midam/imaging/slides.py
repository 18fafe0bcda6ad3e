"""One whole slide per file, cut into patches that are read one by one; and TIFFs, which may be slides."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.file_names import FileReader
from midam.data.sources.formats.open_file import Column, CutRows, OpenFile, cut_file
from midam.data.sources.request import ImageOptions, Places
from midam.errors import BagDataError
from midam.imaging.images import ImageReader, grid, need_pillow, on_tissue, require_patch
from midam.imaging.pyramid import Pyramid, is_pyramid, open_pyramid, whole_slide
from midam.settings.data import PATCHES

_TISSUE = 0.5
_THUMBNAIL = 2048  # pixels of the longer side
_EXACT = 0.02  # relative difference of equal magnifications: scanners state 0.2525 micrometers as 40x


class SlideReader(FileReader):
    """Reader of a slide as patches [n, 3, P, P] of uint8, with their top left corners x, y in pixels of level 0.

    At a magnification, a patch covers a larger square of level 0: it is read from the nearest finer level, and resized.
    Patches with a share of tissue of at least `options.tissue` on a thumbnail are kept. The attributes have TRIDENT's
    names.
    """

    what = "slides"
    suffixes = (".svs", ".ndpi", ".mrxs", ".scn", ".svslide", ".bif", ".vms", ".vmu")
    parameters = (*PATCHES, "magnification")

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a slide; needs the package openslide."""
        need_pillow(path)
        slide = open_pyramid(path)
        width, height = slide.sizes[0]
        with whole_slide(path, close=slide.close):
            scale = _scale(slide, options.magnification, path)
            side = round(options.patch_size * scale)
            require_patch(width, height, side, kind="slide", path=path)
        coords = {
            **{"patch_size": options.patch_size, "patch_size_level0": side},
            **{"level0_width": width, "level0_height": height},
            "level0_magnification": slide.magnification or "unknown",
            "target_magnification": options.magnification or slide.magnification or "unknown",
        }
        if any(slide.corner):
            coords |= {"corner_x": slide.corner[0], "corner_y": slide.corner[1]}

        def cut() -> tuple[Column, Column]:
            kept = _places(slide, options, scale, path) if places is None else places
            return _patches(slide, kept, side, options.patch_size), kept

        return cut_file("patches", cut, {"coords": coords}, serial=slide.serial, close=slide.close)


class TiffReader(ImageReader):
    """Reader of a TIFF, as `SlideReader` or `ImageReader`; only slides can be read at a magnification."""

    what = "images and slides"
    suffixes = (".tif", ".tiff")
    parameters = SlideReader.parameters

    def open(self, path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
        """Open a TIFF."""
        if is_pyramid(path):
            return SlideReader().open(path, options, places)
        opened = super().open(path, options, places)
        if options.magnification is not None:
            got = f"a plain image (in {path}); leave out `magnification` to read its pixels as they are"
            raise BagDataError(f"Expected a pyramidal TIFF with `magnification`, got {got}.")
        return opened


def _patches(slide: Pyramid, places: Places, side: int, size: int) -> CutRows:
    """Return patches `side` pixels of level 0 wide, resized to `size` pixels; each is read on access."""
    from PIL import Image

    level = max(number for number, factor in enumerate(slide.factors) if factor <= side / size * (1 + _EXACT))
    taken = max(1, round(side / slide.factors[level]))

    def patch(number: int) -> NDArray[np.uint8]:
        x, y = places[number].tolist()
        part = slide.region(x, y, level, taken)
        if taken != size:
            part = np.asarray(Image.fromarray(part).resize((size, size), Image.Resampling.BICUBIC))
        return part.transpose(2, 0, 1)

    return CutRows((len(places), 3, size, size), np.dtype(np.uint8), patch)


def _scale(slide: Pyramid, wanted: float | None, path: Path) -> float:
    """Return the pixels of level 0 per pixel that is read, at the wanted magnification."""
    if wanted is None:
        return 1.0
    if slide.magnification is None:
        got = f"neither objective power nor micrometers per pixel (in {path})"
        raise BagDataError(f"Expected a slide with a known magnification, got {got}; leave out `magnification`.")
    scale = slide.magnification / wanted
    if scale < 1 - _EXACT:
        levels = ", ".join(f"{slide.magnification / factor:.3g}x" for factor in slide.factors)
        got = f"a slide of {levels} (in {path}); choose one of at most {slide.magnification:.3g}"
        raise BagDataError(f"Expected a magnification of {wanted:g}x, got {got}, or leave out `magnification`.")
    return 1.0 if abs(scale - 1) < _EXACT else scale


def _places(slide: Pyramid, options: ImageOptions, scale: float, path: Path) -> Places:
    width, height = slide.sizes[0]
    side, step = round(options.patch_size * scale), max(1, round(options.step * scale))
    places = grid(width, height, size=side, stride=step)
    share = _TISSUE if options.tissue is None else options.tissue
    if not share:
        return places
    picture = slide.thumbnail(_THUMBNAIL).transpose(2, 0, 1)
    return on_tissue(places, picture, side=side, share=share, zoom=picture.shape[2] / width, path=path)
