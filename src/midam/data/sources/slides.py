"""One whole slide a file, cut into patches that are read from it one by one."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.sources.imageoptions import ImageOptions, Places
from midam.data.sources.images import grid, need_pillow, open_image
from midam.data.sources.lazy import Lazy, LazyColumn
from midam.data.sources.open_file import ArrayColumn, Column, OpenFile
from midam.data.sources.openslide_pyramid import is_pyramid, open_pyramid
from midam.data.sources.pyramid import Pyramid
from midam.data.sources.tissue import covered, tissue_mask
from midam.errors import BagDataError

SLIDE_SUFFIXES = (".svs", ".ndpi", ".mrxs", ".scn", ".svslide", ".bif", ".vms", ".vmu")

_TISSUE = 0.5
_THUMBNAIL = 2048  # pixels of the longer side
_EXACT = 0.02  # of a magnification: scanners note 0.2525 micrometres and 40x alike


def open_tiff(path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
    """Open a TIFF as a slide if it is a pyramid, else as an image.

    Raises
    ------
    BagDataError
        As `open_slide` and `midam.data.sources.images.open_image`; or if a magnification is asked of an image.
    """
    if is_pyramid(path):
        return open_slide(path, options, places)
    opened = open_image(path, options, places)
    if options.magnification is not None:
        raise BagDataError(
            f"Expected a pyramidal TIFF where a magnification is asked, got a plain image (in {path}); leave out "
            "--magnification to read its pixels as they are, or convert it to a pyramid that says its magnification."
        )
    return opened


def open_slide(path: Path, options: ImageOptions, places: Places | None = None) -> OpenFile:
    """Open a slide as its patches [n, 3, P, P] of uint8 and their places [n, 2].

    At a magnification, a patch covers a larger square of level 0; it is read from the level that is the nearest finer
    one, and resized. Without, patches are the pixels of level 0. Patches are found on a thumbnail: kept are those that
    are tissue to `options.tissue` (`midam.data.sources.tissue.tissue_mask`).

    Returns
    -------
    OpenFile
        `coords` are x and y of a patch's top left corner in pixels of level 0, row by row; the attributes give the side
        of a patch there, as TRIDENT writes it.

    Raises
    ------
    BagDataError
        If the slide is damaged, lacks the magnification, is smaller than a patch, or shows no tissue.
    MidamError
        If a package is missing.
    """
    need_pillow(path)
    slide = open_pyramid(path)
    try:
        scale = _scale(slide, options, path)
    except BagDataError:
        slide.close()
        raise
    side = round(options.patch_size * scale)
    width, height = slide.sizes[0]
    said = {
        "patch_size": options.patch_size,
        "patch_size_level0": side,
        "level0_width": width,
        "level0_height": height,
        "level0_magnification": slide.magnification or "unknown",
        "target_magnification": options.magnification or slide.magnification or "unknown",
    }
    kept = Lazy(lambda: _places(slide, options, scale, path) if places is None else places)
    return OpenFile(
        LazyColumn(Lazy[Column](lambda: SlidePatches(slide, kept(), side, options.patch_size))),
        LazyColumn(lambda: ArrayColumn(kept())),
        attributes={"features": {"kind": "patches"}, "coords": said},
        serial=slide.serial,
        close=slide.close,
    )


class SlidePatches:
    """Patches of a slide, read when they are asked for.

    Parameters
    ----------
    slide : Pyramid
        The slide.
    places : array of int64 [n, 2]
        x and y in pixels of level 0.
    side : int
        Of a patch, in pixels of level 0.
    size : int
        Of a patch, in pixels that are given.
    """

    def __init__(self, slide: Pyramid, places: Places, side: int, size: int) -> None:
        self._slide, self._places, self._side, self._size = slide, places, side, size
        fine = [number for number, factor in enumerate(slide.factors) if factor <= side / size * (1 + _EXACT)]
        self._level = fine[-1]
        self.shape = (len(places), 3, size, size)
        self.dtype = np.dtype(np.uint8)

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Copy the patches low, ..., high - 1."""
        return self.gather(np.arange(low, high))

    def gather(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the patches [m]."""
        from PIL import Image  # noqa: PLC0415

        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        taken = max(1, round(self._side / self._slide.factors[self._level]))
        for number, (x, y) in enumerate(self._places[rows].tolist()):
            part = self._slide.region(x, y, self._level, taken)
            if taken != self._size:
                size = (self._size, self._size)
                part = np.asarray(Image.fromarray(part).resize(size, Image.Resampling.BICUBIC))
            found[number] = part.transpose(2, 0, 1)
        return found


def _scale(slide: Pyramid, options: ImageOptions, path: Path) -> float:
    """Pixels of level 0 for one that is read."""
    scale = 1.0 if options.magnification is None else _reduction(slide, options.magnification, path)
    (width, height), side = slide.sizes[0], round(options.patch_size * scale)
    if min(width, height) < side:
        raise BagDataError(
            f"Expected a slide of at least {side}x{side} pixels, one patch, got {width}x{height} (in {path}); choose a "
            "smaller --patch-size, or leave the slide out."
        )
    return scale


def _reduction(slide: Pyramid, wanted: float, path: Path) -> float:
    if slide.magnification is None:
        raise BagDataError(
            f"Expected a slide that says its magnification, got neither objective power nor micrometres a pixel (in "
            f"{path}); leave out --magnification to read the pixels of level 0."
        )
    scale = slide.magnification / wanted
    if scale < 1 - _EXACT:
        levels = ", ".join(f"{slide.magnification / factor:.3g}x" for factor in slide.factors)
        raise BagDataError(
            f"Expected a magnification of {wanted:g}x, got a slide of {levels} (in {path}); choose one of at most "
            f"{slide.magnification:.3g}, or leave out --magnification to read the pixels of level 0."
        )
    return 1.0 if abs(scale - 1) < _EXACT else scale


def _places(slide: Pyramid, options: ImageOptions, scale: float, path: Path) -> Places:
    width, height = slide.sizes[0]
    side, step = round(options.patch_size * scale), max(1, round(options.step * scale))
    places = grid(width, height, size=side, stride=step)
    share = _TISSUE if options.tissue is None else options.tissue
    if not share:
        return places
    picture = slide.thumbnail(_THUMBNAIL)
    mask = tissue_mask(picture.transpose(2, 0, 1))
    zoom = mask.shape[1] / width
    kept = places[covered(mask, places * zoom, side * zoom) >= share]
    if not len(kept):
        raise BagDataError(
            f"Expected a patch that is tissue to {share:g}, got none of {len(places)} (in {path}); lower --tissue, or "
            "leave the slide out."
        )
    return kept
