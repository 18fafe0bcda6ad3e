"""Maps of the patches of a slide, on its image if there is one."""

import warnings
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.sources.file_names import file_name, strip_suffix
from midam.data.sources.file_rows import BagFile, source_paths
from midam.errors import DataNotFoundError, MidamError
from midam.explain.explanation import Explanation
from midam.explain.patches import Patches, SlideFacts, patches_of, rasterize
from midam.imaging.images import ImageReader, read_pixels
from midam.imaging.pyramid import is_pyramid, open_pyramid
from midam.imaging.slides import SlideReader, TiffReader
from midam.report.figures import BLUE, GRAY, ORANGE, add_frame
from midam.report.words import shortened, signed

MEANING = "orange raises the score, blue lowers it"
DIVERGING = LinearSegmentedColormap.from_list("midam", [BLUE, "#F7F7F7", ORANGE])
_LEAST_ADDED = 0.1  # times 1/n: what a uniform instance adds whose score differs by 0.1; small changes must look small
WIDTH = 10.0  # inches
_BELOW, _HIGHEST = 1.0, 5.5  # inches
_OPAQUE = 0.8
MAX_SIDE = 1600
_SUFFIXES = (*ImageReader.suffixes, *TiffReader.suffixes, *SlideReader.suffixes)


def added_range(added: NDArray[np.floating[Any]]) -> Normalize:
    """Return the scale of contributions: symmetric about 0, to the 99th percentile of their sizes, at least 0.1 / n.

    Examples
    --------
    >>> added_range(np.array([0.0, 0.2, -0.4])).vmax, added_range(np.full(100, 1e-9)).vmax
    (0.396, 0.001)
    """
    sizes = np.abs(added)
    # If one instance contributes nearly everything, the percentile is too small: use at least a quarter of it.
    high = max(float(np.percentile(sizes, 99)), float(sizes.max()) / 4, _LEAST_ADDED / len(added))
    return Normalize(-high, high)


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

    try:
        if not path.exists():
            raise MidamError("it no longer exists")
        if _is_slide(path):
            with closing(open_pyramid(path)) as slide:
                pixels, side = slide.thumbnail(MAX_SIDE), max(slide.sizes[0])
        else:
            image = Image.fromarray(as_rgb(read_pixels(path)))
            side = max(image.size)
            image.thumbnail((MAX_SIDE, MAX_SIDE))  # which leaves a smaller image as it is
            pixels = np.asarray(image)
        return Backdrop(pixels, max(pixels.shape[:2]) / side)
    except MidamError as error:
        warnings.warn(f"the image {path} is left out of the picture: {error}", stacklevel=3)
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


def maps_of(explanation: Explanation, bags: Bags, images: ImageFolder | None = None) -> list[PatchMap]:
    """Return the map of the patches of each slide of a bag, on its image if there is one.

    Scale and bounds are those of the slide, if its file is available. Warnings state why an image cannot be drawn.
    """
    maps, index = list[PatchMap](), explanation.index
    for patches in patches_of(bags, index, lambda file: slide_facts(_image_of(bags, index, file, images))):
        path = _image_of(bags, index, patches.file, images)
        if path is None and images is not None:
            name = explanation.bag if patches.file is None else patches.file.name
            text = "no image is plotted: no file has this name, or files of several bags do"
            warnings.warn(f"{text} ({name})", stacklevel=2)
        maps.append(PatchMap(explanation, patches, None if path is None else _fitting(path, patches)))
    return maps


def _image_of(bags: Bags, index: int, file: BagFile | None, images: ImageFolder | None) -> Path | None:
    """Return the image of the patches of a file: the file itself, or that of this name in the folder of images."""
    if file is not None and file.path.suffix.lower() in _SUFFIXES and (images is None or file.path.exists()):
        return file.path
    several = len(source_paths(bags, index)) > 1
    return None if images is None else images.find(str(bags.ids[index]), file, several=several)


def _fitting(path: Path, patches: Patches) -> Backdrop | None:
    """Return a copy of the image of patches; None with a warning if it does not fit."""
    backdrop, itself = read_backdrop(path), patches.file is not None and path == patches.file.path
    if backdrop is None:
        return None
    (right, low), (rows, columns) = patches.extent, backdrop.pixels.shape[:2]
    scale = backdrop.scale if itself or _is_slide(path) else patches.scale_on((rows, columns), backdrop.scale)
    if not patches.in_pixels:
        reason = "coordinates are in micrometers, and its micrometers per pixel are unknown"
    elif scale is None:
        reason = "its scale is unknown: the file of the patches has no width of level 0"
    elif max(right * scale - columns, low * scale - rows) <= max(patches.width, patches.height) * scale:
        return Backdrop(backdrop.pixels, scale)
    else:
        reason = "patches lie outside it: it is another image, or has another scale"
    warnings.warn(f"no image is plotted: {reason} ({path.name})", stacklevel=3)
    return None


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


def as_rgb(pixels: NDArray[Any], window: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """Convert pixels [C, H, W] to uint8 [H, W, 3]; unless there are three channels, the first is shown in gray.

    Values are stretched from black to white of a window; without one, from minimum to maximum, or kept if uint8.

    Examples
    --------
    >>> as_rgb(np.array([[[0.0, 0.5, 1.0]]]))[0, :, 0].tolist()
    [0, 127, 255]
    """
    channels = pixels if len(pixels) == 3 else pixels[:1]
    if channels.dtype != np.uint8 or window is not None:
        values = channels.astype(np.float64)
        low, high = (values.min(), values.max()) if window is None else window
        channels = (255 * np.clip((values - low) / max(high - low, 1e-12), 0, 1)).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(channels, (3, *channels.shape[1:])).transpose(1, 2, 0))
