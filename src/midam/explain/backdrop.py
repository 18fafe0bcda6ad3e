"""The image below a map: the file of the bag, or for bags of features an image in a folder."""

import warnings
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bag_files import BagFile
from midam.data.brief import BriefRepr
from midam.data.sources.file_names import NameIndex, file_name, strip_suffix
from midam.errors import ConfigError, DataNotFoundError, MidamError, listed
from midam.explain.patches import Patches, SlideFacts, level0_width
from midam.explain.tiles import as_rgb
from midam.imaging.images import ImageReader, read_pixels
from midam.imaging.pyramid import is_pyramid, open_pyramid
from midam.imaging.slides import SlideReader, TiffReader
from midam.names import nearby

MAX_SIDE = 1600
_SUFFIXES = (*ImageReader.suffixes, *TiffReader.suffixes, *SlideReader.suffixes)


@dataclass(frozen=True, repr=False)
class Backdrop(BriefRepr):
    """A small copy of an image."""

    pixels: NDArray[np.uint8]  # [rows, columns, 3]
    scale: float  # pixels of the copy for a pixel of level 0


class ImageFolder:
    """Folder with images of slides, named as the bags: slides that OpenSlide reads, or PNG, JPEG and TIFF.

    Parameters
    ----------
    folder : Path
        Folder of the images; subfolders are not searched.
    downsample : float, optional
        Pixels of level 0 for one pixel of a PNG, JPEG or plain TIFF, >= 1. Default: computed from the width of level 0
        in the feature file; an image as large as the area of the patches is level 0 itself.

    Raises
    ------
    ConfigError, DataNotFoundError
        If there is no such folder, or the folder holds no image.
    """

    def __init__(self, folder: Path, downsample: float | None = None) -> None:
        if not folder.is_dir():
            advice = nearby(folder, otherwise="name the folder of the slides' images.")
            raise ConfigError(f"Expected a folder for --images, got {folder}; {advice}")
        self._folder, self._downsample = folder, downsample
        inside = sorted(path for path in folder.iterdir() if path.name[0] != "." and path.is_file())
        self._paths = [path for path in inside if path.suffix.lower() in _SUFFIXES]
        if not self._paths:
            names = listed([path.name for path in inside]) or "an empty folder"
            raise DataNotFoundError(
                f"Expected images or slides ({', '.join(_SUFFIXES)}), got {names} (in {folder}); name another folder."
            )
        self._names = NameIndex([strip_suffix(path.name) for path in self._paths])

    def find(self, bag: str, file: BagFile | None, *, several: bool = False) -> Path | None:
        """Return the image named as the file or, unless the bag has `several` files, as the bag; None without one."""
        names = [] if several else [bag]
        names += [] if file is None else [file.stem, file_name(file.path)]
        position = next((at for at in map(self._names.find, names) if at is not None), None)
        return None if position is None else self._paths[position]

    def read(self, bag: str, patches: Patches, meta: Mapping[str, Any], *, several: bool = False) -> Backdrop | None:
        """Return a small copy of the image for patches of a bag, whose file has the attributes `meta`.

        None, with a warning, if there is no image that fits the patches.
        """
        path, backdrop, reason = self.find(bag, patches.file, several=several), None, "no file has this name"
        name = patches.file.stem if several and patches.file is not None else bag
        if path is not None:
            name, reason, backdrop = path.name, "", read_backdrop(path)
            if backdrop is None:  # a warning was shown
                return None
            if not patches.in_pixels:
                reason = "coordinates are in micrometers, and its micrometers per pixel are unknown"
            elif not _is_slide(path):
                scale = self._scale(backdrop, meta, patches)
                reason = "" if scale else "its scale is unknown; give --image-downsample"
                backdrop = Backdrop(backdrop.pixels, scale or 1.0)
            (right, low), (rows, columns) = patches.extent, backdrop.pixels.shape[:2]
            reach = max(right * backdrop.scale / columns, low * backdrop.scale / rows)
            if not reason and reach > 1 + max(patches.width, patches.height) * backdrop.scale / min(rows, columns):
                reason = "patches lie outside it: it is another image, or has another scale"
                name = f"{name}, {reach:.2f} times as far"
        if not reason:
            return backdrop
        warnings.warn(f"no image is plotted: {reason} ({name}; in {self._folder})", stacklevel=2)
        return None

    def _scale(self, backdrop: Backdrop, meta: Mapping[str, Any], patches: Patches) -> float | None:
        """Return the pixels of the copy for a pixel of level 0; None if unknown."""
        width = float(backdrop.pixels.shape[1])
        if self._downsample is not None:
            return backdrop.scale / self._downsample
        stated = level0_width(meta)
        if stated is not None:
            return width / stated
        return backdrop.scale if patches.extent[0] * backdrop.scale <= width + 1 else None


def slide_facts(path: Path) -> SlideFacts:
    """Return scale and bounds of a slide; empty if the file is not a slide, is missing, or cannot be read."""
    with suppress(MidamError):  # drawing it shows the error
        if path.suffix.lower() in _SUFFIXES and path.exists() and _is_slide(path):
            with closing(open_pyramid(path)) as slide:
                return SlideFacts(slide.micrometers, slide.corner)
    return SlideFacts()


def read_backdrop(path: Path) -> Backdrop | None:
    """Return a copy of an image or slide, at most 1600 pixels per side; None if the file is neither or cannot be read.

    A warning names an image or slide that is missing or cannot be read.
    """
    if path.suffix.lower() not in _SUFFIXES:
        return None
    reason = "it no longer exists"
    if path.exists():
        try:
            return _thumbnail(path) if _is_slide(path) else _shrunk(as_rgb(read_pixels(path)))
        except MidamError as error:
            reason = str(error)
    warnings.warn(f"the image {path} is left out of the picture: {reason}", stacklevel=3)
    return None


def _is_slide(path: Path) -> bool:
    suffix = path.suffix.lower()
    return suffix in SlideReader.suffixes or (suffix in TiffReader.suffixes and is_pyramid(path))


def _shrunk(pixels: NDArray[np.uint8]) -> Backdrop:
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))  # which leaves a smaller image as it is
    return Backdrop(np.asarray(image), max(image.size) / max(pixels.shape[:2]))


def _thumbnail(path: Path) -> Backdrop:
    with closing(open_pyramid(path)) as slide:
        pixels = slide.thumbnail(MAX_SIDE)
    return Backdrop(pixels, max(pixels.shape[:2]) / max(slide.sizes[0]))
