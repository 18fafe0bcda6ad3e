"""The map of the study of regimes: which estimator is best where."""

from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from midam.report.figures import new_figure
from studies.drawing import save_figure
from studies.regime.bags import witnesses
from studies.regime.design import Cell
from studies.regime.results import Results, Winner


class Content(NamedTuple):
    """What a cell shows: its color, its name, and the lines below that."""

    color: tuple[float, float, float]
    lines: list[str]


# Okabe and Ito's palette; the name stands in each cell as well.
_COLORS = {"minibatch": "#E69F00", "vrsp": "#56B4E9", "exact-point": "#009E73", "exact": "#CC79A7"}
_SHORT = {"minibatch": "minibatch", "vrsp": "vrsp", "exact-point": "point", "exact": "exact"}
_WHITE, _GREY, _SAND, _TEXT = "#FFFFFF", "#E4E4E4", "#F3EBC8", "#202020"
_PALE = 0.6


def plot_map(results: Results, path: Path) -> None:
    """Draw a grid of bag size by witness rate for each pooling, B and T; a cell names the best estimator."""
    design = results.design
    budgets = [(steps, instances) for steps in design.steps for instances in design.instances]
    height = 0.9 + len(budgets) * (0.85 + 0.6 * len(design.sizes))
    figure = new_figure((max(5.4, 5.4 * len(design.poolings)), height))
    panels = figure.subplots(len(budgets), len(design.poolings), squeeze=False)
    for row, (steps, instances) in zip(panels, budgets):
        for axes, pooling in zip(row, design.poolings):
            axes.set_title(f"{pooling}, B = {instances}, T = {steps}", loc="left", fontweight="bold", fontsize=10)
            of_panel = (pooling, instances, steps)
            _panel(axes, results, [c for c in results.cells if (c.pooling, c.instances, c.steps) == of_panel])
    shades = [Patch(color=color, label=name) for name, color in _COLORS.items()]
    figure.legend(
        handles=[
            *shades,
            Patch(color=_SAND, label="not separable"),
            Patch(color=_GREY, label="none shown above chance"),
        ],
        loc="outside lower center",
        ncols=6 if len(design.poolings) > 1 else 3,
        frameon=False,
        fontsize=9,
        columnspacing=1.2,
        handlelength=1.4,
    )
    save_figure(figure, path, grid=False)


def _panel(axes: Axes, results: Results, cells: list[Cell]) -> None:
    design = results.design
    by_place = {(cell.size, cell.witnesses): cell for cell in cells}
    for y, size in enumerate(design.sizes):
        counts = [witnesses(size, rate) for rate in design.rates]
        for x, count in enumerate(counts):
            # Rates that ask for the same number of witnesses are one cell, drawn at the highest of them.
            if count in counts[x + 1 :]:
                _box(axes, (x, y), Content(to_rgb(_WHITE), ["as the next"]))
                continue
            winner = results.winner(by_place[size, count])
            _box(axes, (x, y), _content(winner, f"{count} of {size} ({100 * count / size:g}%)"))
    axes.set(xlim=(-0.5, len(design.rates) - 0.5), ylim=(-0.5, len(design.sizes) - 0.5))
    axes.set_xticks(range(len(design.rates)), [f"{100 * rate:g}%" for rate in design.rates])
    axes.set_yticks(range(len(design.sizes)), [f"{size}" for size in design.sizes])
    axes.set_xlabel("witness rate asked for", fontsize=9)
    axes.set_ylabel("bag size n", fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _content(winner: Winner | None, place: str) -> Content:
    if winner is None:
        return Content(to_rgb(_GREY), ["not run", place])
    if not winner.learns:
        return Content(to_rgb(_GREY), ["none shown", f"best {winner.area.mean:.2f}", place])
    if len(winner.equals) == len(_COLORS) - 1:
        return Content(to_rgb(_SAND), [f"open {winner.area.mean:.2f}", place])
    name = winner.method.estimator
    red, green, blue = to_rgb(_COLORS[name])
    pale = _PALE if winner.equals else 0.0
    others = ", ".join(_SHORT[method.estimator] for method in winner.equals)
    color = (pale + (1 - pale) * red, pale + (1 - pale) * green, pale + (1 - pale) * blue)
    return Content(color, [f"{_SHORT[name]} {winner.area.mean:.2f}", *([f"~ {others}"] if others else []), place])


def _box(axes: Axes, place: tuple[int, int], content: Content) -> None:
    x, y = place
    axes.add_patch(Rectangle((x - 0.48, y - 0.47), 0.96, 0.94, facecolor=content.color, edgecolor="none"))
    head, *rest = content.lines
    name = axes.text(x, y + (0.22 if rest else 0), head, fontsize=7.5, color=_TEXT, ha="center", va="center")
    name.set_fontweight("bold" if rest else "normal")
    axes.text(x, y - 0.18, "\n".join(rest), fontsize=6.5, linespacing=1.3, color=_TEXT, ha="center", va="center")
