"""Maps of the patches of a slide, on its image if there is one."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.data.bag_files import BagFile, source_paths
from midam.data.bags import Bags
from midam.explain.backdrop import MAX_SIDE, Backdrop, ImageFolder, read_backdrop, slide_facts
from midam.explain.explanation import Explanation
from midam.explain.layers import Layer, layers_of
from midam.explain.patches import Patches, SlideFacts, is_picture, patches_of, rasterize
from midam.report.figures import GRAY
from midam.report.words import shortened

WIDTH = 10.0  # inches
_MOST = 6  # maps of a bag
_BELOW, _HIGHEST = 1.0, 5.5  # inches


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
            for color, width in (("white", 2.6), ("black", 1.2)):
                frame: dict[str, Any] = {"fill": False, "edgecolor": color, "linewidth": width}
                axes.add_patch(Rectangle((left, high), right - left, low - high, **frame))
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
        bar.set_label(f"{layer.meaning}{layer.here}", fontsize=8.5, color=GRAY)
