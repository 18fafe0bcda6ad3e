"""Patches on their image: the top patches framed and numbered, the weights and the scores, side by side."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.explain.backdrop import MAX_SIDE, Backdrop
from midam.explain.explanation import Explanation
from midam.explain.layers import Layer, layers_of
from midam.explain.marks import draw_marks
from midam.explain.patches import Patches, rasterize
from midam.report.figures import GRAY, ORANGE
from midam.report.words import shortened, signed

_PANEL, _BELOW = 0.9, 1.0  # share of the width that panels take; inches of title and scale
_HIGHEST = 5.5  # inches of a panel
_PAPER = "#F2F2F2"
_NAME = 90  # characters of the name of a file
_CONTOUR = 0.5  # of the scale of contributions


@dataclass(frozen=True)
class PatchMap:
    """Content of a map: an explanation, the patches of one slide of its bag, and its image if there is one."""

    found: Explanation
    patches: Patches
    backdrop: Backdrop | None

    @property
    def scale(self) -> float:
        """Pixels of the map for a pixel of level 0."""
        if self.backdrop is not None:
            return self.backdrop.scale
        return min(MAX_SIDE / max(self.patches.extent), 1.0)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        if self.backdrop is not None:
            return self.backdrop.pixels.shape[0], self.backdrop.pixels.shape[1]
        right, low = self.patches.extent
        return max(1, round(low * self.scale)), max(1, round(right * self.scale))

    @cached_property
    def layers(self) -> list[Layer]:
        """Values that are mapped."""
        return layers_of(self.found)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of panels."""
        count = len(self.layers) + (self.backdrop is not None)
        return (2, 2) if count == 4 else (1, count)

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and lower side of each patch, [n, 4], in pixels of the map."""
        return self.patches.sides * self.scale

    def raster(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Map of values [n], one an instance of the bag; NaN where there is no patch."""
        return rasterize(self.patches, self.patches.of(values), shape=self.shape, scale=self.scale)

    def height(self, width: float) -> float:
        """Height in inches of the panels, so wide together, that leaves no gaps."""
        (rows, columns), (down, across) = self.shape, self.grid
        return down * (min(max(_PANEL * width / across * rows / columns, 1.5), _HIGHEST) + _BELOW)

    def points(self, width: float, height: float) -> float:
        """Points on paper for a pixel of the map, about, where all panels have so many inches."""
        (rows, columns), (down, across) = self.shape, self.grid
        return 72 * min(_PANEL * width / across / columns, (height / down - _BELOW) / rows)


def draw_map(part: SubFigure, drawn: PatchMap, *, top: int, named: bool = False) -> None:
    """Draw the image with the top patches framed, and the maps of contribution, weight and score, `named` by file."""
    down, across = drawn.grid
    file = drawn.patches.file
    if named and file is not None:
        part.suptitle(shortened(file.name, _NAME), fontsize=11, fontweight="bold", x=0.012, ha="left")
    panels: NDArray[Any] = part.subplots(2 * down, across, squeeze=False, height_ratios=[1, 0.03] * down)
    pairs = list(zip(panels[::2].flat, panels[1::2].flat, strict=True))
    if drawn.backdrop is not None:
        (axes, below), pairs = pairs[0], pairs[1:]
        axes.imshow(drawn.backdrop.pixels)
        points = drawn.points(part.bbox.width / part.figure.dpi, part.bbox.height / part.figure.dpi)
        # Pixels of an image lie around whole numbers: the first one from -0.5 to 0.5.
        ranks, places = drawn.patches.ranked(drawn.found.order, top=top)
        draw_marks(axes, drawn.sides[places] - 0.5, shape=drawn.shape, points=points, ranks=ranks.tolist())
        of = f" of {min(top, len(drawn.found))}" if len(ranks) < min(top, len(drawn.found)) else ""
        axes.set_title(f"Image; the {len(ranks)}{of} top patches, by rank", fontsize=10, loc="left")
        below.set_axis_off()
        axes.set_axis_off()
    for (axes, bar), layer in zip(pairs, drawn.layers, strict=True):
        _panel(axes, bar, drawn, layer)
        axes.set_axis_off()


def _panel(axes: Axes, bar: Axes, drawn: PatchMap, layer: Layer) -> None:
    if drawn.backdrop is None:
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, color=_PAPER, zorder=0))
    else:
        gray = drawn.backdrop.pixels.mean(axis=-1)  # the colors of the image would mix with those of the map
        axes.imshow(gray, cmap="gray", vmin=0, vmax=255)
    axes.imshow(layer.on_image(drawn.raster, opaque=drawn.backdrop is None), interpolation="nearest")
    outlined = ""
    if layer.key == "added":
        values = np.nan_to_num(drawn.raster(layer.values))
        level = _CONTOUR * float(layer.scale.vmax or 0)
        if min(values.shape) > 1 and values.min() < level < values.max():
            axes.contour(values, levels=[level], colors=[ORANGE], linewidths=1.1)
            outlined = f"; outlined from {signed(level)}"
    axes.set_title(layer.name, fontsize=10, loc="left")
    colors = ScalarMappable(layer.scale, layer.colors)
    shown = axes.figure.colorbar(colors, cax=bar, orientation="horizontal", extend=layer.extend)
    bar.tick_params(labelsize=8.5)
    bar.xaxis.set_major_locator(MaxNLocator(4))
    low, high = layer.ends
    meaning = f"blue {low}, orange {high}\n" if low else ""
    shown.set_label(f"{meaning}{layer.here}{outlined}", fontsize=8.5, color=GRAY)
