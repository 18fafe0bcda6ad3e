"""Figures of runs and comparisons: learning curves, forest plots, folds; and figures of bag sizes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike, NDArray

from midam.evaluate.proportions import Estimate
from midam.report.describe import is_wide, size_edges
from midam.report.figures import BLUE, GRAY, ORANGE, add_dots, finish, new_chart, new_figure, save_figure, span
from midam.report.words import METRIC_NAMES, metric_of_history, shortened

_LINES = {"Training": (BLUE, "o", (0, ())), "Validation": (ORANGE, "s", (0, (4, 1)))}
_MANY_EPOCHS = 25
_BINS = 30  # of bag sizes
_DECADES = 1000
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


def plot_curves(path: str | Path, history: History, *, best_epoch: int | None = None) -> Figure:
    """Plot all panels of the learning curves to a PNG file.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    history : sequence of mapping
        A row for each epoch: `epoch`, and `lr`, `loss`, `train_auroc`, `val_auroc` and `val_loss` (None or missing if
        not measured).
    best_epoch : int, optional
        Epoch with the best validation metric, marked in all panels.
    """
    figure = new_figure((8.4, 3.8))
    for axes, panel in zip(figure.subplots(1, 2), learning_panels(history), strict=True):
        _learning(axes, history, panel, best_epoch)
        axes.set_title(panel[0], loc="left", fontweight="bold")
    save_figure(figure, Path(path), columns=4)
    return figure


def plot_learning(history: History, panel: tuple[str, dict[str, str]], *, best_epoch: int | None = None) -> Figure:
    """Plot one of `learning_panels`."""
    figure, axes = new_chart()
    _learning(axes, history, panel, best_epoch)
    axes.set_ylabel(panel[0])
    return finish(figure)


def _learning(axes: Axes, history: History, panel: tuple[str, dict[str, str]], best_epoch: int | None) -> None:
    epochs = _column(history, "epoch")
    for key, name in panel[1].items():
        values, (color, marker, dashes) = _column(history, key), _LINES[name]
        finite = np.isfinite(values)
        if finite.any():
            (line,) = axes.plot(epochs[finite], values[finite], linestyle=dashes, color=color, label=name, zorder=3)
            line.set(marker=marker if finite.sum() <= _MANY_EPOCHS else "None", markersize=4, linewidth=1.6)
    axes.set_xlabel("Epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if not axes.lines:
        axes.text(0.5, 0.5, "Not measured", transform=axes.transAxes, ha="center", color=GRAY)
        axes.set(xticks=[], yticks=[])
        return
    axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
    if best_epoch is not None:
        axes.axvline(best_epoch, color=GRAY, linewidth=1.4, label=f"Best validation: epoch {best_epoch}", zorder=1)
    rates = _column(history, "lr")
    falls = rates[1:] < 0.5 * rates[:-1]  # only steps, not a smooth decay
    for position, epoch in enumerate(epochs[1:][falls].tolist()):
        label = "Learning rate lowered" if position == 0 else None
        axes.axvline(epoch, color=GRAY, linestyle=":", linewidth=1.2, label=label, zorder=1)
    axes.margins(y=0.08)


def plot_forest(
    rows: Sequence[Row], label: str, *, reference: float | None = None, missing: str = "one class only"
) -> Figure:
    """Plot a row for each estimate, hollow without an interval; `missing` is the text without an estimate.

    A dashed line marks `reference`.
    """
    figure, axes = _row_chart([row.name for row in rows], 0.27)
    draw_forest(axes, rows, reference=reference, missing=missing)
    axes.set_xlabel(label)
    return finish(figure, grid="x")


def draw_forest(
    axes: Axes, rows: Sequence[Row], *, reference: float | None = None, missing: str = "one class only"
) -> None:
    """Plot the rows of `plot_forest`."""
    estimates = [row.estimate for row in rows if row.estimate is not None]
    bounds = [bound for estimate in estimates for bound in estimate[:3]] + ([] if reference is None else [reference])
    axes.set_xlim(*span(bounds, pad=0.05))
    if reference is not None:
        axes.axvline(reference, color=GRAY, linestyle=(0, (4, 3)), linewidth=1.3, zorder=2)
    for y, row in enumerate(rows):
        if row.estimate is None:
            axes.text(sum(axes.get_xlim()) / 2, y, missing, ha="center", va="center", color=GRAY, fontsize=8.5)
            continue
        value, low, high, _ = row.estimate
        whole = bool(np.isfinite(low))
        if whole:
            axes.plot([low, high], [y, y], color=row.color, linewidth=1.6, solid_capstyle="butt", zorder=3)
        style: dict[str, Any] = {"fillstyle": "full" if whole or row.marker == "D" else "none", "color": row.color}
        add_dots(axes, value, y, marker=row.marker, markersize=6.5, zorder=4, **style)


def plot_fold_strip(label: str, folds: Mapping[str, Sequence[float]], means: Mapping[str, float | None]) -> Figure:
    """Plot the metric of each fold and the mean of each method."""
    figure, axes = _row_chart(list(folds), 0.31)
    axes.set_xlim(max(0.0, min(value for values in folds.values() for value in values) - 0.03), 1.0)
    for y, (name, values) in enumerate(folds.items()):
        up = [y + 0.32 * ((at * 7) % 11 / 10 - 0.5) for at in range(len(values))]
        add_dots(axes, values, up, color=BLUE, markersize=4, zorder=3, label="A fold" if y == 0 else None)
        if (mean := means[name]) is not None:
            style = {"marker": "D", "color": ORANGE, "markersize": 7, "label": "Mean" if y == 0 else None}
            add_dots(axes, mean, y, **style, zorder=3)
    axes.set_xlabel(f"{label} of a fold")
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


def plot_sizes(path: str | Path, *, sizes: ArrayLike, labels: ArrayLike | None, title: str) -> Figure:
    """Plot a histogram of bag sizes [N] to a PNG file, with the classes (labels [N] of 0 and 1) stacked."""
    sizes = np.asarray(sizes, dtype=np.int64)
    figure = new_figure((6.4, 3.9))
    axes = figure.subplots()
    _histogram(axes, sizes, None if labels is None else np.asarray(labels))
    if is_wide(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        if sizes.max() < _DECADES * sizes.min():  # else matplotlib writes other ticks as powers of ten
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("Instances in a bag")
    axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    save_figure(figure, Path(path), columns=2)
    return figure


def _histogram(axes: Axes, sizes: NDArray[np.int64], labels: NDArray[Any] | None) -> None:
    """Plot bars of the bag sizes, with classes stacked."""
    edges = size_edges(sizes, bins=_BINS)
    parts: list[tuple[str, NDArray[np.int64], dict[str, Any]]] = [("bags", sizes, {"color": GRAY})]
    if labels is not None:
        positive = labels == 1
        parts = [
            ("negative bags", sizes[~positive], {"color": BLUE}),
            ("positive bags", sizes[positive], {"color": ORANGE, "hatch": "//"}),
        ]
    bottom = np.zeros(len(edges) - 1)
    for name, part, style in parts:
        counts, _ = np.histogram(part, bins=edges)
        style |= {"align": "edge", "edgecolor": "white", "linewidth": 0.6, "label": f"{len(part)} {name}"}
        axes.bar(edges[:-1] - 0.5, counts, np.diff(edges), bottom, **style)
        bottom += counts
    if len(edges) == 2:  # bags of one size: a bar that does not fill the axes
        axes.set_xlim(edges[0] - 3, edges[0] + 3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel("Bags")


def _column(history: Sequence[Mapping[str, float | None]], key: str) -> NDArray[np.float64]:
    """Return a column of the history, with NaN, which matplotlib leaves out, for missing values."""
    return np.array([row.get(key) for row in history], dtype=np.float64)
