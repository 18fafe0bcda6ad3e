"""Figures of the studies: panels of curves, and points with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from midam.report.figures import BLUE, ORANGE, new_figure, write_figure

# Okabe and Ito's palette, safe for color-blind readers; lines also differ in dashes, points in markers.
COLORS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#000000", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ((0, ()), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 2, 1, 2)), (0, (2, 2)))
_DPI = 130


@dataclass(frozen=True, eq=False)
class Band:
    """A curve with a band."""

    name: str  # In the legend
    # At the epochs 1 .. E [E]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """A panel of curves, with its title and the label of its y axis."""

    title: str
    ylabel: str
    bands: Sequence[Band]


def plot_panels(path: Path, panels: Sequence[Sequence[Panel]], *, order: Sequence[str]) -> None:
    """Draw a grid of panels along the epochs; a name has the same color in all panels."""
    columns = len(panels[0])
    figure = new_figure((3.1 * max(columns, 2) + 0.4, 2.5 * len(panels) + 0.7))
    grid = figure.subplots(len(panels), columns, squeeze=False, sharey="row", sharex=True)
    for line, axes_line in zip(panels, grid):
        for panel, axes in zip(line, axes_line):
            for band in panel.bands:
                _draw(axes, band, order.index(band.name))
            axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=10)
        axes_line[0].set_ylabel(line[0].ylabel)
    for axes in grid[-1]:
        axes.set_xlabel("Epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    add_legend(figure, columns=min(len(order), 5))
    save_figure(figure, path)


def plot_points(
    axes: Axes,
    positions: ArrayLike,
    means: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    *,
    name: str,
    style: int = 0,
    horizontal: bool = False,
) -> None:
    """Draw points with vertical or horizontal intervals, in the color and marker number `style`."""
    low = [mean - bound[0] for mean, bound in zip(means, bounds)]
    high = [bound[1] - mean for mean, bound in zip(means, bounds)]
    options: dict[str, Any] = {
        "fmt": MARKERS[style],
        "color": COLORS[style],
        "markersize": 5,
        "capsize": 3,
        "elinewidth": 1.4,
        "label": name,
        "zorder": 3,
    }
    if horizontal:
        axes.errorbar(means, positions, xerr=[low, high], **options)
    else:
        axes.errorbar(positions, means, yerr=[low, high], **options)


def add_legend(figure: Figure, *, columns: int) -> None:
    """Add a legend below the panels, where no curve can run behind it."""
    entries = {name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels())}
    if entries:
        style: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 9}
        figure.legend(list(entries.values()), list(entries), loc="outside lower center", **style)


def save_figure(figure: Figure, path: Path, *, grid: bool = True) -> None:
    """Style the axes, and write the PNG completely or not at all."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        if grid:
            axes.grid(color="#E6E6E6", linewidth=0.8)
            axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
    write_figure(figure, path, dpi=_DPI)


def _draw(axes: Axes, band: Band, style: int) -> None:
    epochs = np.arange(1, len(band.mean) + 1)
    axes.plot(epochs, band.mean, color=COLORS[style], linestyle=DASHES[style], linewidth=1.6, label=band.name, zorder=3)
    axes.fill_between(epochs, band.low, np.minimum(band.high, 1.0), color=COLORS[style], alpha=0.13, linewidth=0)
