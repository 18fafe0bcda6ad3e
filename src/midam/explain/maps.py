"""Maps of the patches of a slide, on its image if there is one."""

import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_name, strip_suffix
from midam.data.sources.file_rows import BagFile, source_paths
from midam.errors import DataNotFoundError, MidamError
from midam.explain.explanation import Explanation
from midam.explain.patches import Patches, SlideFacts, is_picture, level0_width, patches_of, rasterize
from midam.explain.tiles import DIVERGING, MEANING, added_range, as_rgb
from midam.imaging.images import ImageReader, read_pixels
from midam.imaging.pyramid import is_pyramid, open_pyramid
from midam.imaging.slides import SlideReader, TiffReader
from midam.report.figures import GRAY, add_frame
from midam.report.words import shortened, signed

WIDTH = 10.0  # inches
_BELOW, _HIGHEST = 1.0, 5.5  # inches
_OPAQUE = 0.8
MAX_SIDE = 1600
_SUFFIXES = (*ImageReader.suffixes, *TiffReader.suffixes, *SlideReader.suffixes)


class Backdrop(NamedTuple):
    """A small copy of an image."""

    pixels: NDArray[np.uint8]  # [rows, columns, 3]
    scale: float  # pixels of the copy for a pixel of level 0


class ImageFolder:
    """Folder with images of slides, named as the bags: slides that OpenSlide reads, or PNG, JPEG and TIFF.

    An image has the name of a bag, or of its file, with the folder of the file or without; a name without folder that
    several files share, as 0.png for a/0 and b/0, is that of none of them. The scale of a PNG, JPEG or plain TIFF is
    computed from the width of level 0 in the feature file; an image as large as the area of the patches is level 0
    itself.

    Parameters
    ----------
    folder : Path
        Folder of the images.
    bags : Bags
        All bags.

    Raises
    ------
    DataNotFoundError
        If there is no such folder, or the folder holds no image.
    """

    def __init__(self, folder: Path, bags: Bags) -> None:
        paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _SUFFIXES]
        if not paths:
            kinds = ", ".join(_SUFFIXES)
            raise DataNotFoundError(f"Expected images or slides ({kinds}), got none (in {folder}); name their folder.")
        self._paths = {strip_suffix(path.relative_to(folder).as_posix()): path for path in paths}
        self._stems = Counter(file_name(path) for i in range(len(bags)) for path in source_paths(bags, i))

    def find(self, bag: str, file: BagFile | None, *, several: bool = False) -> Path | None:
        """Return the image named as the file or, unless the bag has `several` files, as the bag; None without one."""
        names = [] if several else [bag]
        if file is not None:
            stem = file_name(file.path)
            names += [f"{file.path.parent.name}/{stem}", *([stem] if self._stems[stem] == 1 else [])]
        return next((self._paths[name] for name in names if name in self._paths), None)


def _is_slide(path: Path) -> bool:
    suffix = path.suffix.lower()
    return suffix in SlideReader.suffixes or (suffix in TiffReader.suffixes and is_pyramid(path))


def slide_facts(path: Path | None) -> SlideFacts:
    """Return scale and bounds of a slide; empty if the file is not a slide, is missing, or cannot be read."""
    with suppress(MidamError):  # drawing it shows the error
        if path is not None and path.exists() and _is_slide(path):
            with closing(open_pyramid(path)) as slide:
                return SlideFacts(slide.micrometers, slide.corner)
    return SlideFacts()


def read_backdrop(path: Path) -> Backdrop | None:
    """Return a copy of an image or slide, at most 1600 pixels per side; None, with a warning, if it cannot be read."""
    from PIL import Image

    reason = "it no longer exists"
    try:
        if path.exists() and _is_slide(path):
            with closing(open_pyramid(path)) as slide:
                pixels = slide.thumbnail(MAX_SIDE)
                return Backdrop(pixels, max(pixels.shape[:2]) / max(slide.sizes[0]))
        if path.exists():
            pixels = as_rgb(read_pixels(path))
            image = Image.fromarray(pixels)
            image.thumbnail((MAX_SIDE, MAX_SIDE))  # which leaves a smaller image as it is
            return Backdrop(np.asarray(image), max(image.size) / max(pixels.shape[:2]))
    except MidamError as error:
        reason = str(error)
    warnings.warn(f"the image {path} is left out of the picture: {reason}", stacklevel=3)
    return None


@dataclass(frozen=True)
class PatchMap:
    """Content of a map: an explanation, the patches of one slide of its bag, and the slide's image if known."""

    explanation: Explanation
    patches: Patches
    backdrop: Backdrop | None

    @property
    def scale(self) -> float:
        """Pixels of the map for a pixel of level 0."""
        return min(MAX_SIDE / max(self.patches.extent), 1.0) if self.backdrop is None else self.backdrop.scale

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        if self.backdrop is not None:
            return self.backdrop.pixels.shape[0], self.backdrop.pixels.shape[1]
        right, low = self.patches.extent
        return max(1, round(low * self.scale)), max(1, round(right * self.scale))

    def raster(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the map of values [n] of all instances; NaN without a patch."""
        return rasterize(self.patches, values[self.patches.instances], shape=self.shape, scale=self.scale)


def placed_patches(explanation: Explanation, bags: Bags, images: ImageFolder | None = None) -> list[Patches]:
    """Return the patches of each slide of a bag, with scale and bounds of the slide if its file is available."""
    index = explanation.index
    return patches_of(bags, index, lambda file: slide_facts(_image_of(bags, index, file, images)))


def map_of(explanation: Explanation, bags: Bags, slide: Patches, images: ImageFolder | None = None) -> PatchMap | None:
    """Return the map of the patches of a slide, on its image if available; None for pictures without an image.

    A warning states why an image cannot be drawn.
    """
    path, backdrop = _image_of(bags, explanation.index, slide.file, images), None
    if path is not None:
        attributes = bags.described(explanation.index) if slide.file is None else slide.file.attributes
        backdrop = _fitting(path, slide, attributes)
    elif images is not None:
        name = explanation.bag if slide.file is None else slide.file.name
        warnings.warn(f"no image is plotted: no file has this name, or files of several bags do ({name})", stacklevel=2)
    return None if backdrop is None and is_picture(bags.instance_shape) else PatchMap(explanation, slide, backdrop)


def _image_of(bags: Bags, index: int, file: BagFile | None, images: ImageFolder | None) -> Path | None:
    """Return the image of the patches of a file: the file itself, or that of this name in the folder of images."""
    if file is not None and file.path.suffix.lower() in _SUFFIXES and (images is None or file.path.exists()):
        return file.path
    several = len(source_paths(bags, index)) > 1
    return None if images is None else images.find(str(bags.ids[index]), file, several=several)


def _fitting(path: Path, patches: Patches, meta: Mapping[str, Any]) -> Backdrop | None:
    """Return a copy of the image of patches whose file has the attributes `meta`; None with a warning if none fits."""
    backdrop, itself = read_backdrop(path), patches.file is not None and path == patches.file.path
    if backdrop is None:
        return None
    scale = backdrop.scale if itself or _is_slide(path) else _scale(backdrop, meta, patches)
    if not patches.in_pixels:
        reason = "coordinates are in micrometers, and its micrometers per pixel are unknown"
    elif scale is None:
        reason = "its scale is unknown: the file of the patches has no width of level 0"
    else:
        (right, low), (rows, columns) = patches.extent, backdrop.pixels.shape[:2]
        if max(right * scale - columns, low * scale - rows) <= max(patches.width, patches.height) * scale:
            return Backdrop(backdrop.pixels, scale)
        reason = "patches lie outside it: it is another image, or has another scale"
    warnings.warn(f"no image is plotted: {reason} ({path.name})", stacklevel=3)
    return None


def _scale(backdrop: Backdrop, meta: Mapping[str, Any], patches: Patches) -> float | None:
    """Return the pixels of a copy for a pixel of level 0; None if unknown."""
    width = float(backdrop.pixels.shape[1])
    if (stated := level0_width(meta)) is not None:
        return width / stated
    return backdrop.scale if patches.extent[0] * backdrop.scale <= width + 1 else None


def height_of(view: PatchMap) -> float:
    """Return the height in inches at which the panels of a map have no gaps."""
    (rows, columns), across = view.shape, 1 + (view.backdrop is not None)
    return min(max(0.9 * WIDTH / across * rows / columns, 1.5), _HIGHEST) + _BELOW


def shades_of(view: PatchMap) -> NDArray[np.float64]:
    """Return the colors [rows, columns, 4] of what the patches add; on an image, those that add little are clear."""
    added, scale = view.raster(view.explanation.contribution), added_range(view.explanation.contribution)
    shades = DIVERGING(np.asarray(scale(np.nan_to_num(added))))
    strength = 1.0 if view.backdrop is None else _OPAQUE * np.clip(np.abs(added) / float(scale.vmax or 1), 0, 1)
    shades[..., 3] = np.where(np.isfinite(added), strength, 0.0)
    return np.asarray(shades)


def draw_map(part: SubFigure, view: PatchMap, *, top: int) -> None:
    """Plot the image with framed top patches, and the map of contributions; the title is the file."""
    panels = list(part.subplots(1, 1 + (view.backdrop is not None), squeeze=False).flat)
    if view.patches.file is not None:
        part.suptitle(shortened(view.patches.file.name, 90), fontsize=11, fontweight="bold", x=0.012, ha="left")
    for axes in panels:
        axes.set_axis_off()
    if view.backdrop is not None:
        axes = panels[0]
        axes.imshow(view.backdrop.pixels)
        ranks, places = view.patches.ranked(view.explanation.order, top=top)
        sides = view.patches.sides[places] * view.scale - 0.5  # imshow centers pixels at whole numbers
        # The top rank is drawn last, so that no frame covers its frame.
        for rank, (left, high, right, low) in reversed(list(zip(ranks.tolist(), sides))):
            add_frame(axes, left, high, right - left, low - high)
            name = axes.annotate(str(rank), (left, high), (2, -2), textcoords="offset points", va="top", fontsize=7.5)
            name.set(fontweight="bold", path_effects=[withStroke(linewidth=2.2, foreground="white")])
        axes.set_title(f"Image; the {len(ranks)} top patches, by rank", fontsize=10, loc="left")
        # In gray: colors of the image would mix with colors of the map.
        panels[-1].imshow(view.backdrop.pixels.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
    panels[-1].imshow(shades_of(view), interpolation="nearest")
    panels[-1].set_title("What each patch adds to the score of the bag", fontsize=10, loc="left")
    added = view.explanation.contribution
    colors = ScalarMappable(added_range(added), DIVERGING)
    bar = part.colorbar(colors, ax=panels[-1], orientation="horizontal", aspect=40, pad=0.02)
    bar.ax.xaxis.set_major_locator(MaxNLocator(4))
    least, most = (signed(float(end)) for end in (added.min(), added.max()))
    bar.set_label(f"{MEANING}; here {least} to {most}", fontsize=8.5, color=GRAY)
