"""Patches on their image: the top patches framed and numbered, the weights and the scores, side by side."""

from collections.abc import Iterable, Sequence
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
from midam.explain.charts import Layer, layers_of
from midam.explain.explanation import Explanation
from midam.explain.patches import Patches, rasterize
from midam.report.figures import GRAY, ORANGE
from midam.report.words import shortened, signed

_PANEL, _BELOW = 0.9, 1.0  # share of the width that panels take; inches of title and scale
_HIGHEST = 5.5  # inches of a panel
_PAPER = "#F2F2F2"
_NAME = 90  # characters of the name of a file
_CONTOUR = 0.5  # of the scale of contributions
_SMALLEST, _LARGEST = 5.5, 9.0  # points of a number; a smaller one cannot be read
_COVERED = 0.4  # of a patch that its number may hide
_TOUCH = 1e-6  # of a pixel: patches of a grid share their sides
# Directions from the center of a patch, and how far numbers stand from it, in their heights.
_CORNERS = np.array([(-1, -1), (1, -1), (-1, 1), (1, 1)])
_AROUND = np.array([(0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1)])
_AWAY = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0)


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
        draw_numbers(axes, drawn.sides[places] - 0.5, ranks.tolist(), shape=drawn.shape, points=points)
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


def draw_numbers(
    axes: Axes, patches: NDArray[np.float64], ranks: Sequence[int], *, shape: tuple[int, int], points: float
) -> None:
    """Frame patches (left, top, right and lower side, [k, 4], by rank, in pixels of the map) and number them.

    The map has `shape` rows and columns, its first pixel from -0.5 to 0.5, as imshow draws it, and `points` points on
    paper for a pixel.
    """
    size = _font_size(patches, points)
    boxes = number_boxes(patches, ranks, shape=shape, points=points)
    # The top rank last, so that no other frame covers its own.
    for rank, patch, box in reversed(list(zip(ranks, patches, boxes, strict=True))):
        _frame(axes, patch, points)
        if box is not None:
            _number(axes, patch, box, rank, size)


def number_boxes(
    patches: NDArray[np.float64], ranks: Sequence[int], *, shape: tuple[int, int], points: float
) -> list[NDArray[np.float64] | None]:
    """Left, top, right and lower side of the number of each patch; None where all places are taken.

    A number stands in a corner of its patch, the top left one first, or near a patch that it would hide. It covers no
    other number, and the fewest frames that it can.
    """
    size = _font_size(patches, points) / points
    first, last = -0.5 - _TOUCH, np.array(shape)[::-1] - 0.5 + _TOUCH
    boxes = list[NDArray[np.float64] | None]()
    for place, (rank, patch) in enumerate(zip(ranks, patches, strict=True)):
        extent = np.array([0.72 * size * len(str(rank)) + 0.3 * size, 1.1 * size])
        side, center = patch[2:] - patch[:2], (patch[:2] + patch[2:]) / 2
        if (extent <= side).all() and extent.prod() <= _COVERED * side.prod():
            centers, frames = center + _CORNERS * (side - extent) / 2, np.delete(patches, place, axis=0)
        else:
            rings = [_AROUND * (side / 2 + extent / 2 + away * extent[1]) for away in _AWAY]
            centers, frames = center + np.concatenate(rings), patches
        places = np.concatenate([centers - extent / 2, centers + extent / 2], axis=1)
        taken = [box for box in boxes if box is not None]
        free = [box for box in places if (box[:2] >= first).all() and (box[2:] <= last).all()]
        free = [box for box in free if not _overlaps(box, taken)]
        boxes.append(min(free, key=lambda box: _overlaps(box, frames), default=None))
    return boxes


def _overlaps(box: NDArray[np.float64], others: Iterable[NDArray[np.float64]]) -> int:
    """How many other boxes a box overlaps."""
    return sum(bool((box[:2] < other[2:] - _TOUCH).all() and (other[:2] < box[2:] - _TOUCH).all()) for other in others)


def _font_size(patches: NDArray[np.float64], points: float) -> float:
    return float(np.clip(0.4 * _side(patches[0], points), _SMALLEST, _LARGEST)) if len(patches) else _SMALLEST


def _side(patch: NDArray[np.float64], points: float) -> float:
    return float((patch[2:] - patch[:2]).min()) * points


def _frame(axes: Axes, patch: NDArray[np.float64], points: float) -> None:
    """Draw a frame within its patch, so that those of neighbors do not cover one another."""
    side = _side(patch, points)
    width = float(np.clip(side / 8, 1.2, 3.0))
    inset = min(width / 2, side / 4) / points
    for color, part in (("white", 1.0), ("black", 0.5)):
        size = patch[2:] - patch[:2] - 2 * inset
        axes.add_patch(Rectangle(tuple(patch[:2] + inset), *size, fill=False, edgecolor=color, linewidth=part * width))


def _number(axes: Axes, patch: NDArray[np.float64], box: NDArray[np.float64], rank: int, size: float) -> None:
    """Draw a number in its box, with a line from the patch to one that stands outside."""
    center = (box[:2] + box[2:]) / 2
    start = np.clip(center, patch[:2], patch[2:])
    outside = bool((start != center).any())
    if outside:
        for color, width in (("white", 2.2), ("black", 0.9)):
            axes.plot(*np.stack([start, center], axis=1), color=color, linewidth=width, scalex=False, scaley=False)
    edge = {"linewidth": 0.6, "edgecolor": "black"} if outside else {"linewidth": 0}
    axes.add_patch(Rectangle(tuple(box[:2]), *(box[2:] - box[:2]), facecolor="white", zorder=3, **edge))
    text = axes.text(center[0], center[1], str(rank), ha="center", va="center_baseline", fontsize=size, zorder=4)
    text.set_fontweight("bold")
