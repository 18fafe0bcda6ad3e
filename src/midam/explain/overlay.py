"""Patches on their image: the image, the weights and the scores, side by side."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from midam.explain.backdrop import MAX_SIDE, Backdrop
from midam.explain.explanation import Explanation
from midam.explain.marks import draw_marks
from midam.explain.patches import Patches, rasterize
from midam.report.figures import GRAY

WEIGHT, SCORE = "Weight, in multiples of uniform (1/n)", "Score of the instance alone"
COLORS = "viridis"  # perceptually uniform, and told apart by color-blind readers
_ALPHA = 0.62
_PANEL, _BELOW = 0.9, 1.0  # share of the width that panels take; inches of title and scale
_PAPER = "#F2F2F2"
_LEAST_RANGE = 2.0  # multiples of the uniform weight: weights that hardly differ must not look as if they did


class Layer(NamedTuple):
    """What a map shows."""

    values: NDArray[Any]  # [n], one a patch
    name: str
    scale: Normalize  # of colors


@dataclass(frozen=True)
class PatchMap:
    """What a map shows: an explanation, the patches of its bag, and their image where it is at hand."""

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

    @property
    def layers(self) -> list[Layer]:
        """What is mapped: the scores, before them the weights where they differ."""
        score, weight = self.found.instances.score, self.found.relative_weight
        layers = [Layer(score, SCORE, Normalize(float(score.min()), float(score.max())))]
        if self.found.ranked_by == "weight":
            layers.insert(0, Layer(weight, WEIGHT, weight_range(weight)))
        return layers

    @property
    def count(self) -> int:
        """Panels side by side."""
        return len(self.layers) + (self.backdrop is not None)

    @property
    def sides(self) -> NDArray[np.float64]:
        """Left, top, right and lower side of each patch, [n, 4], in pixels of the map."""
        return self.patches.sides * self.scale

    def raster(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Map of values, one a patch; NaN where there is no patch."""
        return rasterize(self.patches, values, shape=self.shape, scale=self.scale)

    def height(self, width: float) -> float:
        """Height in inches of the maps side by side, so wide together, that leaves no gaps."""
        rows, columns = self.shape
        return min(max(_PANEL * width / self.count * rows / columns, 1.5), 5.5) + _BELOW

    def points(self, width: float, height: float) -> float:
        """Points on paper for a pixel of the map, about, where all panels have so many inches."""
        rows, columns = self.shape
        return 72 * min(_PANEL * width / self.count / columns, (height - _BELOW) / rows)


def weight_range(relative: NDArray[np.floating[Any]]) -> Normalize:
    """Scale of relative weights: from 0 to the 99th percentile, at least 2; to the greatest where that is below 1.

    Examples
    --------
    >>> weight_range(np.ones(10)).vmax, weight_range(np.append(np.zeros(999), 1000.0)).vmax
    (2.0, 1000.0)
    """
    high = float(np.percentile(relative, 99))
    # A few instances with all the weight: the percentile would paint them all alike.
    high = float(relative.max()) if high < 1 else high
    return Normalize(0.0, max(high, _LEAST_RANGE))


def draw_map(part: SubFigure, drawn: PatchMap, *, top: int) -> None:
    """Draw the image with the top patches framed, and the maps of weight and score."""
    layers = drawn.layers
    first = 0 if drawn.backdrop is None else 1
    panels: NDArray[Any] = part.subplots(2, first + len(layers), squeeze=False, height_ratios=[1, 0.035])
    if drawn.backdrop is not None:
        panels[0, 0].imshow(drawn.backdrop.pixels)
        points = drawn.points(part.bbox.width / part.figure.dpi, part.bbox.height / part.figure.dpi)
        # Pixels of an image lie around whole numbers: the first one from -0.5 to 0.5.
        draw_marks(panels[0, 0], drawn.sides[drawn.found.order[:top]] - 0.5, shape=drawn.shape, points=points)
        title = f"Image; the {min(top, len(drawn.found))} top patches, by rank"
        panels[0, 0].set_title(title, fontsize=9.5, loc="left")
        panels[1, 0].set_axis_off()
    for axes, bar, layer in zip(*panels[:, first:], layers, strict=True):
        _panel(axes, bar, drawn, layer)
    for axes in panels[0]:
        axes.set_axis_off()


def _panel(axes: Axes, bar: Axes, drawn: PatchMap, layer: Layer) -> None:
    values, name, scale = layer
    raster = np.ma.masked_invalid(drawn.raster(values))
    alpha = 1.0
    if drawn.backdrop is None:
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, color=_PAPER, zorder=0))
    else:
        gray = drawn.backdrop.pixels.mean(axis=-1)  # the colors of the image would mix with those of the map
        axes.imshow(gray, cmap="gray", vmin=0, vmax=255)
        alpha = _ALPHA
    axes.imshow(raster, cmap=COLORS, norm=scale, alpha=alpha, interpolation="nearest")
    axes.set_title(name, fontsize=9.5, loc="left")
    beyond = bool(values.max() > (scale.vmax or 0) * (1 + 1e-6))
    colors, extend = ScalarMappable(scale, colormaps[COLORS]), "max" if beyond else "neither"
    shown = axes.figure.colorbar(colors, cax=bar, orientation="horizontal", alpha=alpha, extend=extend)
    bar.tick_params(labelsize=8.5)
    if beyond:
        shown.set_label(f"greatest: {values.max():.3g}", fontsize=8.5, color=GRAY)
