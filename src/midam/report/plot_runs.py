"""Figures of runs and comparisons: learning curves, forest plots, folds."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.report.figures import BLUE, GRAY, ORANGE, add_dots, finish, new_chart, span
from midam.report.words import METRIC_NAMES, metric_of_history, shortened

_LINES = {"Training": (BLUE, "o", (0, ())), "Validation": (ORANGE, "s", (0, (4, 1)))}
_MANY_EPOCHS = 25
_WIDEST, _LETTER = 2.3, 0.08  # in inches: most width for names of rows, and width of a letter

History = Sequence[Mapping[str, float | None]]


class Row(NamedTuple):
    """A row of a forest plot."""

    name: str
    estimate: Estimate | None
    marker: str = "o"
    color: str = BLUE


def learning_panels(history: History) -> list[tuple[str, dict[str, str]]]:
    """Return the panels of the learning curves: a title, and the line name of each column."""
    metric = metric_of_history(history)
    return [
        ("Loss", {"loss": "Training", "val_loss": "Validation"}),
        (METRIC_NAMES[metric], {f"train_{metric}": "Training", f"val_{metric}": "Validation"}),
    ]


def plot_learning(history: History, panel: tuple[str, dict[str, str]], *, best_epoch: int | None = None) -> Figure:
    """Plot one of `learning_panels`."""
    figure, axes = new_chart()
    axes.set_ylabel(panel[0])
    epochs = _column(history, "epoch")
    for key, name in panel[1].items():
        values, (color, marker, dashes) = _column(history, key), _LINES[name]
        finite = np.isfinite(values)
        if finite.any():
            (line,) = axes.plot(epochs[finite], values[finite], linestyle=dashes, color=color, label=name, zorder=3)
            line.set(marker=marker if finite.sum() <= _MANY_EPOCHS else "None", markersize=4, linewidth=1.6)
    axes.set_xlabel("Epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
    if best_epoch is not None:
        axes.axvline(best_epoch, color=GRAY, linewidth=1.4, label=f"Best validation: epoch {best_epoch}", zorder=1)
    rates = _column(history, "lr")
    falls = rates[1:] < 0.5 * rates[:-1]  # only steps, not a smooth decay
    for position, epoch in enumerate(epochs[1:][falls].tolist()):
        label = "Learning rate lowered" if position == 0 else None
        axes.axvline(epoch, color=GRAY, linestyle=":", linewidth=1.2, label=label, zorder=1)
    axes.margins(y=0.08)
    return finish(figure)


def plot_forest(rows: Sequence[Row], label: str, *, reference: float | None = None) -> Figure:
    """Plot a row for each estimate, hollow without an interval.

    A dashed line marks `reference`.
    """
    figure, axes = _row_chart([row.name for row in rows], 0.27)
    estimates = [row.estimate for row in rows if row.estimate is not None]
    bounds = [bound for estimate in estimates for bound in estimate[:3]] + ([] if reference is None else [reference])
    axes.set_xlim(*span(bounds, pad=0.05))
    if reference is not None:
        axes.axvline(reference, color=GRAY, linestyle=(0, (4, 3)), linewidth=1.3, zorder=2)
    for y, row in enumerate(rows):
        if row.estimate is None:
            axes.text(
                sum(axes.get_xlim()) / 2, y, "nothing to rank", ha="center", va="center", color=GRAY, fontsize=8.5
            )
            continue
        value, low, high, _ = row.estimate
        whole = bool(np.isfinite(low))
        if whole:
            axes.plot([low, high], [y, y], color=row.color, linewidth=1.6, solid_capstyle="butt", zorder=3)
        style: dict[str, Any] = {"fillstyle": "full" if whole or row.marker == "D" else "none", "color": row.color}
        add_dots(axes, value, y, marker=row.marker, markersize=6.5, zorder=4, **style)
    axes.set_xlabel(label)
    return finish(figure, grid="x")


def _row_chart(names: Sequence[str], height: float) -> tuple[Figure, Axes]:
    """Return axes of rows of a height in inches, the first on top; long names lose their middle."""
    margin = min(_WIDEST, 0.25 + _LETTER * max(map(len, names)))
    width = max(2.4, 4.4 - margin)
    figure, axes = new_chart(width=width, height=height * (len(names) + 0.3), left=margin)
    short = [shortened(name, int((margin - 0.12) / _LETTER)) for name in names]
    axes.set_yticks(range(len(names)), short)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _column(history: Sequence[Mapping[str, float | None]], key: str) -> NDArray[np.float64]:
    """Return a column of the history, with NaN, which matplotlib leaves out, for missing values."""
    return np.array([row.get(key) for row in history], dtype=np.float64)
