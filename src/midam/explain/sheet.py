"""Contact sheet: the instances from both ends of the ranking, with their weight and score."""

import math
from typing import Any

import numpy as np
from matplotlib.figure import SubFigure
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.explain.backdrop import as_rgb
from midam.explain.explanation import Explanation
from midam.report.figures import BLUE, ORANGE

COLUMNS = 8
_ROW = 1.62
_MOST = 32


def sheet_height(found: Explanation, top: int) -> float:
    """Height of the sheet in inches."""
    high, low = shown(found, top)
    return _ROW * (_rows(len(high)) + _rows(len(low)))


def shown(found: Explanation, top: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instances of the sheet: the top ones, and as many from the bottom, lowest last; none twice, at most 32 each."""
    high = found.order[: min(top, _MOST)]
    low = found.order[max(len(high), len(found) - min(top, _MOST)) :]
    return high, low


def pictures_of(bags: Bags, index: int, instances: NDArray[np.int64]) -> list[NDArray[np.uint8]]:
    """Instances of a bag as [H, W, 3], of a three-dimensional one the middle slice.

    All are stretched alike; colors of uint8 stay as they are.
    """
    pixels = bags.gather(int(bags.starts[index]) + instances)
    if pixels.ndim == 3:  # [m, H, W]
        pixels = pixels[:, None]
    if pixels.ndim == 5:  # [m, C, D, H, W]
        pixels = pixels[:, :, pixels.shape[2] // 2]
    if pixels.dtype == np.uint8 and pixels.shape[1] == 3:
        return [as_rgb(one) for one in pixels]
    low, high = float(pixels.min()), float(pixels.max())
    return [as_rgb(one, low=low, high=high) for one in pixels]


def draw_sheet(part: SubFigure, found: Explanation, bags: Bags, *, top: int) -> None:
    """Draw the top instances, below them the bottom ones."""
    high, low = shown(found, top)
    rows = _rows(len(high)) + _rows(len(low))
    panels: NDArray[Any] = part.subplots(rows, COLUMNS, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    _fill(panels[: _rows(len(high))], high, found, bags, name="Top by", color=ORANGE)
    _fill(panels[_rows(len(high)) :], low, found, bags, name="Bottom by", color=BLUE)


def caption(found: Explanation, instance: int) -> str:
    """Number of an instance, its weight in multiples of uniform (where weights differ) and its score."""
    weight = f"  {found.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}" if found.ranked_by == "weight" else ""
    return f"#{instance}{weight}\nscore {found.instances.score[instance]:.3f}"


def _fill(
    panels: NDArray[Any], instances: NDArray[np.int64], found: Explanation, bags: Bags, *, name: str, color: str
) -> None:
    if not len(instances):
        return
    for axes, instance, picture in zip(panels.flat, instances, pictures_of(bags, found.index, instances)):
        axes.imshow(picture)
        axes.set_title(caption(found, int(instance)), fontsize=8, color="#303030", pad=3)
    note = panels[0, 0].annotate(f"{name} {found.ranked_by}", (0, 0.5), (-6, 0), "axes fraction", "offset points")
    note.set(rotation=90, ha="right", va="center", fontsize=8.5, fontweight="bold", color=color)


def _rows(count: int) -> int:
    return math.ceil(count / COLUMNS)
