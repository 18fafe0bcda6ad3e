"""Instances that are pictures: how they are drawn, and a contact sheet of both ends of the ranking."""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.explain.backdrop import as_rgb
from midam.explain.charts import multiple
from midam.explain.explanation import Explanation
from midam.explain.views import draw_view, views_of
from midam.explain.windows import Window, pixels_of, scan_window, window_of
from midam.report.figures import BLUE, ORANGE
from midam.report.words import shortened, signed

COLUMNS = 8
_ROW = 2.0
_MOST = 32
_NAME = 22  # characters of the name of a file


def sheet_height(found: Explanation, top: int) -> float:
    """Height of the sheet in inches."""
    high, low = shown(found, top)
    return _ROW * (_rows(len(high)) + _rows(len(low)))


def shown(found: Explanation, top: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instances of the sheet: the top ones, and as many from the bottom, lowest last; none twice, at most 32 each."""
    high = found.order[: min(top, _MOST)]
    low = found.order[max(len(high), len(found) - min(top, _MOST)) :]
    return high, low


def pictures_of(bags: Bags, index: int, instances: NDArray[np.int64], window: Window) -> list[NDArray[np.uint8]]:
    """Instances of a bag as [H, W, 3], of 3-D ones the middle slice; colors of bytes stay as they are."""
    pixels = pixels_of(bags, index, instances)
    if _colored(pixels):
        return [as_rgb(one) for one in pixels]
    return [as_rgb(one, low=window[0], high=window[1]) for one in pixels]


def _colored(pixels: NDArray[Any]) -> bool:
    return pixels.dtype == np.uint8 and pixels.shape[1] == 3


def draw_sheet(part: SubFigure, found: Explanation, bags: Bags, *, top: int) -> None:
    """Draw the top instances, below them the bottom ones; of scans, the middle slice with its sides."""
    high, low = shown(found, top)
    rows = _rows(len(high)) + _rows(len(low))
    panels: NDArray[Any] = part.subplots(rows, COLUMNS, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    both, scan = np.concatenate([high, low]), len(bags.instance_shape) == 4
    # Scans differ in the units of their intensities; other pictures are drawn alike.
    groups = [both[i : i + 1] for i in range(len(both))] if scan else [both]
    shown_as = [scan_window(bags, found.index, int(i)) for i in both] if scan else []
    windows = [one.ends for one in shown_as] or [window_of(bags, found.index, both, percentiles=False)]
    drawn = [pictures_of(bags, found.index, group, window) for group, window in zip(groups, windows)]
    ranges = dict(zip(both.tolist(), (f"\n{one.shown}" for one in shown_as)))
    pictures = dict(zip(both.tolist(), chain.from_iterable(drawn)))
    views = views_of(bags, found.index, len(found)) if scan else None

    def draw(axes: Axes, instance: int) -> None:
        axes.imshow(pictures[instance])
        axes.set_title(caption(found, instance) + ranges.get(instance, ""), fontsize=8, color="#303030", pad=3)
        if views is not None:
            draw_view(axes, views[instance])

    _fill(panels[: _rows(len(high))], high, draw, name="Top", color=ORANGE)
    _fill(panels[_rows(len(high)) :], low, draw, name="Bottom", color=BLUE)


def caption(found: Explanation, instance: int) -> str:
    """Number or file of an instance, weight (where weights differ), score, and what it adds to that of the bag."""
    weight = f"weight {multiple(found, instance)}\n" if found.weighted else ""
    added = f"adds {signed(found.contribution[instance], '+.2g')}"
    name = shortened(found.columns["file"][instance], _NAME) if found.several_files else f"#{instance}"
    return f"{name}\n{added}\n{weight}score {found.instances.score[instance]:.3f}"


def _fill(
    panels: NDArray[Any], instances: NDArray[np.int64], draw: Callable[[Axes, int], None], *, name: str, color: str
) -> None:
    if not len(instances):
        return
    for axes, instance in zip(panels.flat, instances.tolist()):
        draw(axes, instance)
    note = panels[0, 0].annotate(f"{name} {len(instances)}", (0, 0.5), (-6, 0), "axes fraction", "offset points")
    note.set(rotation=90, ha="right", va="center", fontsize=8.5, fontweight="bold", color=color)


def _rows(count: int) -> int:
    return math.ceil(count / COLUMNS)
