"""Maps of the patches of a slide, on its image if there is one."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.brief import BriefRepr
from midam.data.sources.file_names import NameIndex, file_name, strip_suffix
from midam.data.sources.file_rows import BagFile, source_paths
from midam.errors import ConfigError, DataNotFoundError, MidamError, listed
from midam.explain.explanation import Explanation
from midam.explain.layers import Layer, layers_of
from midam.explain.patches import Patches, SlideFacts, is_picture, level0_width, patches_of, rasterize
from midam.explain.tiles import as_rgb
from midam.imaging.images import ImageReader, read_pixels
from midam.imaging.pyramid import is_pyramid, open_pyramid
from midam.imaging.slides import SlideReader, TiffReader
from midam.names import nearby
from midam.report.figures import GRAY, add_frame
from midam.report.words import shortened, signed

WIDTH = 10.0  # inches
_MOST = 6  # maps of a bag
_BELOW, _HIGHEST = 1.0, 5.5  # inches
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
        Folder of the images; those in a folder in it that is named as that of the data are found too.
    bags : Bags
        All bags. An image whose name several of their files share, as 0.png for a/0 and b/0, is that of none of them.
    downsample : float, optional
        Pixels of level 0 for one pixel of a PNG, JPEG or plain TIFF, >= 1. Default: computed from the width of level 0
        in the feature file; an image as large as the area of the patches is level 0 itself.

    Raises
    ------
    ConfigError, DataNotFoundError
        If there is no such folder, or the folder holds no image.
    """

    def __init__(self, folder: Path, bags: Bags, downsample: float | None = None) -> None:
        if not folder.is_dir():
            advice = nearby(folder, otherwise="name the folder of the slides' images.")
            raise ConfigError(f"Expected a folder for --images, got {folder}; {advice}")
        self._folder, self._bags, self._downsample = folder, bags, downsample
        # Other folders inside may hold pictures that were drawn of the bags.
        of_data = {Path(path).parent.name for i, bag in enumerate(bags.ids) for path in (bag, *source_paths(bags, i))}
        folders = [folder, *(folder / name for name in sorted(of_data) if name and (folder / name).is_dir())]
        inside = sorted(path for one in folders for path in one.glob("[!.]*") if path.is_file())
        self._paths = [path for path in inside if path.suffix.lower() in _SUFFIXES]
        if not self._paths:
            names = listed([path.name for path in inside]) or "an empty folder"
            raise DataNotFoundError(
                f"Expected images or slides ({', '.join(_SUFFIXES)}), got {names} (in {folder}); name another folder."
            )
        self._names = NameIndex([strip_suffix(path.relative_to(folder).as_posix()) for path in self._paths])

    def find(self, bag: str, file: BagFile | None, *, several: bool = False) -> Path | None:
        """Return the image named as the file or, unless the bag has `several` files, as the bag; None without one."""
        position = self._position(bag, None if file is None else file.path, several=several)
        if position is None or (self._names.names[position] != bag and len(self._owners[position]) > 1):
            return None
        return self._paths[position]

    def _position(self, bag: str, path: Path | None, *, several: bool) -> int | None:
        names = [] if several else [bag]
        names += [] if path is None else [f"{path.parent.name}/{file_name(path)}", file_name(path)]
        return next((at for at in map(self._names.certain, names) if at is not None), None)

    @cached_property
    def _owners(self) -> dict[int | None, set[str]]:
        """What would be drawn on each image: files of bags, or bags without files."""
        owners: dict[int | None, set[str]] = {}
        for i, bag in enumerate(map(str, self._bags.ids)):
            paths = source_paths(self._bags, i)
            for path in (*paths, *[None][len(paths) :]):
                at = self._position(bag, path, several=len(paths) > 1)
                owners.setdefault(at, set()).add(bag if path is None else str(path))
        return owners

    def read(self, bag: str, patches: Patches, meta: Mapping[str, Any], *, several: bool = False) -> Backdrop | None:
        """Return a small copy of the image for patches of a bag, whose file has the attributes `meta`.

        None, with a warning, if there is no image that fits the patches.
        """
        path, backdrop = self.find(bag, patches.file, several=several), None
        reason = "no file has this name, or files of several bags do; name its folder as that of the data"
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

    @cached_property
    def layers(self) -> list[Layer]:
        """Values of the maps."""
        return layers_of(self.explanation)

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and bottom of each patch, [n, 4], in pixels of the map."""
        return self.patches.sides * self.scale

    def raster(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the map of values [n] of all instances; NaN without a patch."""
        return rasterize(self.patches, self.patches.of(values), shape=self.shape, scale=self.scale)


def placed_patches(explanation: Explanation, bags: Bags, images: ImageFolder | None = None) -> list[Patches]:
    """Return the patches of each slide of a bag, with scale and bounds of the slide if its file is available."""
    count = len(source_paths(bags, explanation.index))

    def slide_of(file: BagFile | None) -> SlideFacts:
        facts = SlideFacts() if file is None else slide_facts(file.path)
        if images is None or facts != SlideFacts():
            return facts
        path = images.find(explanation.bag, file, several=count > 1)
        return facts if path is None else slide_facts(path)

    return patches_of(bags, explanation.index, slide_of)


def map_of(explanation: Explanation, bags: Bags, slide: Patches, images: ImageFolder | None = None) -> PatchMap | None:
    """Return the map of the patches of a slide, on its image if available; None for pictures without an image.

    A warning states why an image cannot be drawn.
    """
    several = len(source_paths(bags, explanation.index)) > 1
    attributes = bags.described(explanation.index) if slide.file is None else slide.file.attributes
    backdrop = None if images is None else images.read(explanation.bag, slide, attributes, several=several)
    if backdrop is None and slide.file is not None:
        backdrop = read_backdrop(slide.file.path)
    return None if backdrop is None and is_picture(bags.instance_shape) else PatchMap(explanation, slide, backdrop)


def foremost(maps: Sequence[PatchMap]) -> list[PatchMap]:
    """Return the shown maps in their order."""
    first = [int(patch_map.patches.ranked(patch_map.explanation.order)[0][0]) for patch_map in maps]
    positions = sorted(range(len(maps)), key=first.__getitem__)[:_MOST]
    if len(maps) > _MOST:
        text = f"the picture shows the maps of {_MOST} slides; the GeoJSON files hold the patches of all"
        warnings.warn(f"{text} ({len(maps)} slides)", stacklevel=3)
    return [maps[at] for at in sorted(positions)]


def _grid(view: PatchMap) -> tuple[int, int]:
    """Return rows and columns of the panels of a map."""
    count = len(view.layers) + (view.backdrop is not None)
    return (2, 2) if count == 4 else (1, count)


def height_of(view: PatchMap) -> float:
    """Return the height in inches at which the panels of a map have no gaps."""
    (rows, columns), (down, across) = view.shape, _grid(view)
    return down * (min(max(0.9 * WIDTH / across * rows / columns, 1.5), _HIGHEST) + _BELOW)


def draw_map(part: SubFigure, view: PatchMap, *, top: int, named: bool = False) -> None:
    """Plot the image with framed top patches, and maps of contribution, weight and score; title if `named`."""
    panels = list(part.subplots(*_grid(view), squeeze=False).flat)
    if named and view.patches.file is not None:
        part.suptitle(shortened(view.patches.file.name, 90), fontsize=11, fontweight="bold", x=0.012, ha="left")
    for axes in panels:
        axes.set_axis_off()
    if view.backdrop is not None:
        axes = panels.pop(0)
        axes.imshow(view.backdrop.pixels)
        ranks, places = view.patches.ranked(view.explanation.order, top=top)
        # The top rank is drawn last, so that no frame covers its frame; imshow centers pixels at whole numbers.
        for rank, (left, high, right, low) in reversed(list(zip(ranks.tolist(), view.sides[places] - 0.5))):
            add_frame(axes, left, high, right - left, low - high)
            name = axes.annotate(str(rank), (left, high), (2, -2), textcoords="offset points", va="top", fontsize=7.5)
            name.set(fontweight="bold", path_effects=[withStroke(linewidth=2.2, foreground="white")])
        axes.set_title(f"Image; the {len(ranks)} top patches, by rank", fontsize=10, loc="left")
    for axes, layer in zip(panels, view.layers, strict=True):
        if view.backdrop is not None:  # in gray: colors of the image would mix with colors of the map
            axes.imshow(view.backdrop.pixels.mean(axis=-1), cmap="gray", vmin=0, vmax=255)
        axes.imshow(layer.on_image(view.raster, opaque=view.backdrop is None), interpolation="nearest")
        axes.set_title(layer.name, fontsize=10, loc="left")
        colors = ScalarMappable(layer.scale, layer.colors)
        bar = part.colorbar(colors, ax=axes, orientation="horizontal", extend=layer.extend, aspect=40, pad=0.02)
        bar.ax.xaxis.set_major_locator(MaxNLocator(4))
        here = f"here {signed(layer.values.min())} to {signed(layer.values.max())}"
        bar.set_label(f"{layer.meaning}{here}", fontsize=8.5, color=GRAY)
