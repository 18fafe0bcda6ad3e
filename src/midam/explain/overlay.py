"""Patches on their image: the top patches framed and numbered, the weights and the scores, side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

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


class Mark(NamedTuple):
    """Where the number of a patch stands."""

    box: NDArray[np.float64]  # [4], left, top, right and lower side
    inside: bool  # in the patch


def draw_marks(
    axes: Axes,
    patches: NDArray[np.float64],
    *,
    shape: tuple[int, int],
    points: float,
    ranks: Sequence[int] | None = None,
) -> list[Mark | None]:
    """Frame patches (left, top, right and lower side, [k, 4], by rank, in pixels of the map) and number them.

    `ranks` are their numbers, by default from 1. The map has `shape` rows and columns, its first pixel from -0.5 to
    0.5, as imshow draws it, and `points` points on paper for a pixel.
    """
    if not len(patches):
        return []
    size, ranks = _font_size(patches, points), range(1, len(patches) + 1) if ranks is None else ranks
    marks = place_marks(patches, shape=shape, points=points, ranks=ranks)
    # The top rank last, so that no other frame covers its own.
    for rank, patch, mark in reversed(list(zip(ranks, patches, marks, strict=True))):
        _frame(axes, patch, points)
        if mark is not None:
            _number(axes, patch, mark, rank, size)
    return marks


def place_marks(
    patches: NDArray[np.float64], *, shape: tuple[int, int], points: float, ranks: Sequence[int] | None = None
) -> list[Mark | None]:
    """Find a place for the number of each patch, by rank, as `draw_marks` needs it; None where there is none.

    It is a corner of the patch, the top left one unless another number or frame is there. Of a patch that its number
    would hide it is the nearest place outside that holds no frame and no number, where there is one.
    """
    size = _font_size(patches, points) / points
    taken, found = np.empty((0, 4)), list[Mark | None]()
    for at, (rank, patch) in enumerate(zip(ranks or range(1, len(patches) + 1), patches, strict=True)):
        extent = np.array([0.72 * size * len(str(rank)) + 0.3 * size, 1.1 * size])
        others = np.delete(patches, at, axis=0)
        mark = _inside(patch, extent, others, taken)
        if extent.prod() > _COVERED * (patch[2:] - patch[:2]).prod():
            mark = _outside(patch, extent, np.concatenate([patches, taken]), shape) or mark
        found.append(mark)
        if mark is not None:
            taken = np.concatenate([taken, mark.box[None]])
    return found


def _inside(
    patch: NDArray[np.float64], extent: NDArray[np.float64], others: NDArray[np.float64], taken: NDArray[np.float64]
) -> Mark | None:
    if (extent > patch[2:] - patch[:2]).any():
        return None
    corners = product((patch[1], patch[3] - extent[1]), (patch[0], patch[2] - extent[0]))
    boxes = [np.array([left, top, left + extent[0], top + extent[1]]) for top, left in corners]
    free = [box for box in boxes if not _overlaps(box, taken).any()]
    return Mark(min(free, key=lambda box: int(_overlaps(box, others).sum())), inside=True) if free else None


def _outside(
    patch: NDArray[np.float64], extent: NDArray[np.float64], used: NDArray[np.float64], shape: tuple[int, int]
) -> Mark | None:
    for corner in _around(patch, extent):
        box = np.concatenate([corner, corner + extent])
        within = (box[:2] >= -0.5).all() and (box[2:] <= np.array(shape)[::-1] - 0.5).all()
        if within and not _overlaps(box, used).any():
            return Mark(box, inside=False)
    return None


def _around(patch: NDArray[np.float64], extent: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Corners of boxes around a patch, nearest first."""
    center, half = (patch[:2] + patch[2:]) / 2, (patch[2:] - patch[:2]) / 2
    for away in (0.5, 1.0, 2.0, 3.0, 5.0, 8.0):
        for direction in ((0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1)):
            yield center + np.array(direction) * (half + extent / 2 + away * extent[1]) - extent / 2


def _overlaps(box: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    apart = (others[:, 2:] <= box[:2] + _TOUCH) | (others[:, :2] >= box[2:] - _TOUCH)
    return np.asarray(~apart.any(axis=1))


def _font_size(patches: NDArray[np.float64], points: float) -> float:
    return float(np.clip(0.4 * _side(patches[0], points), _SMALLEST, _LARGEST))


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


def _number(axes: Axes, patch: NDArray[np.float64], mark: Mark, rank: int, size: float) -> None:
    box = mark.box
    center = (box[:2] + box[2:]) / 2
    if not mark.inside:
        start = np.clip(center, patch[:2], patch[2:])
        line = np.stack([start, center], axis=1)
        for color, width in (("white", 2.2), ("black", 0.9)):
            axes.plot(*line, color=color, linewidth=width, scalex=False, scaley=False)
    edge = {"linewidth": 0} if mark.inside else {"linewidth": 0.6, "edgecolor": "black"}
    axes.add_patch(Rectangle(tuple(box[:2]), *(box[2:] - box[:2]), facecolor="white", zorder=3, **edge))
    text = axes.text(center[0], center[1], str(rank), ha="center", va="center_baseline", fontsize=size, zorder=4)
    text.set_fontweight("bold")
    if mark.inside:
        text.set_clip_path(Rectangle(tuple(patch[:2]), *(patch[2:] - patch[:2]), transform=axes.transData))
