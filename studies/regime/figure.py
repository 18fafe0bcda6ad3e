"""The picture of the map: each rule's AUROC in each cell."""

from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from midam.report.figures import new_figure
from studies.drawing import save_figure
from studies.regime.design import CEILING, DRAWN, EXACT, Cell
from studies.regime.results import CHANCE, Results

_BARS = (*DRAWN, EXACT)
# Okabe and Ito's palette; the order of the bars is that of the legend.
_COLORS = ("#E69F00", "#56B4E9", "#CC79A7", "#D55E00", "#0072B2", "#009E73")
_GROUND = {"informative": "#F7F7F7", "saturated": "#FFFFFF", "at chance": "#DDDDDD"}
_LINE, _TEXT = "#202020", "#202020"


def plot_map(results: Results, path: Path) -> None:
    """Draw a panel a pooling: rows are bags (n and witnesses), columns B, and a box holds a bar for each rule."""
    poolings = list(dict.fromkeys(cell.pooling for cell in results.cells))
    kinds = sorted({(cell.size, cell.witnesses) for cell in results.cells}, reverse=True)
    draws = sorted({cell.instances for cell in results.cells})
    width, height = 1.2 + 1.15 * len(draws), 1.2 + 0.72 * len(kinds)
    figure = new_figure((max(7.0, width * len(poolings)), height))
    panels = figure.subplots(1, len(poolings), squeeze=False, sharey=True)[0]
    for axes, pooling in zip(panels, poolings):
        for cell in results.cells:
            if cell.pooling == pooling:
                _box(axes, results, cell, (draws.index(cell.instances), kinds.index((cell.size, cell.witnesses))))
        axes.set_title(pooling, loc="left", fontweight="bold", fontsize=10)
        axes.set(xlim=(-0.5, len(draws) - 0.5), ylim=(-0.5, len(kinds) - 0.5))
        axes.set_xticks(range(len(draws)), [str(b) for b in draws])
        axes.set_yticks(range(len(kinds)), [f"{count} of {size}\n{100 * count / size:g}%" for size, count in kinds])
        axes.set_xlabel("B, instances of a bag drawn a step", fontsize=9)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    handles: list[Artist] = [Patch(color=color, label=rule.name) for color, rule in zip(_COLORS, _BARS)]
    handles.append(Line2D([], [], color=_LINE, linewidth=1.2, label=CEILING.name))
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=8, columnspacing=1.0)
    save_figure(figure, path, grid=False)


def _box(axes: Axes, results: Results, cell: Cell, place: tuple[int, int]) -> None:
    x, y = place[0] - 0.46, place[1] - 0.44
    width, height = 0.92, 0.88
    axes.add_patch(Rectangle((x, y), width, height, facecolor=_GROUND[results.kind(cell)], edgecolor="#BBBBBB", lw=0.5))
    step = width / (len(_BARS) + 1)
    best = 0.0
    for i, (rule, color) in enumerate(zip(_BARS, _COLORS)):
        area = results.area(rule, cell)
        if area is not None:
            best = max(best, area.mean)
            axes.add_patch(
                Rectangle((x + (i + 0.5) * step, y), 0.85 * step, height * _height(area.mean), facecolor=color)
            )
    ceiling = results.area(CEILING, cell)
    if ceiling is not None:
        level = y + height * _height(ceiling.mean)
        axes.plot([x, x + width], [level, level], color=_LINE, linewidth=1.2)
    if best > 0:
        axes.text(x + 0.03, y + height - 0.04, f"{best:.2f}", fontsize=6.5, color=_TEXT, ha="left", va="top")


def _height(area: float) -> float:
    """Share of a box that an AUROC fills: from 0.5 to 1."""
    return max(0.012, (area - CHANCE) / (1 - CHANCE) * 0.8)
