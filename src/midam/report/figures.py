"""Figures of bags and runs: the sizes of bags, the ROC curve of the test bags, and the learning curves.

Each is drawn on its own canvas, never through pyplot's global state, and written as a PNG file in one step.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from midam.evaluate.metrics import threshold_metrics
from midam.evaluate.ranking import auroc, check_bags
from midam.files import write_bytes
from midam.report.describe import is_wide, size_edges
from midam.report.words import MERITS, merit_of

# Okabe and Ito's palette, safe for color-blind readers; lines differ in dash and marker as well.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#6E6E6E"
_LINES = {"Training": (BLUE, "o", (0, ())), "Validation": (ORANGE, "s", (0, (4, 1)))}
_LINES |= {"Weight drawn": (GREEN, "o", (0, ())), "Drift of the memory": ("#CC79A7", "s", (0, (1, 1)))}
_LINES |= {
    "Draws with a witness": ("#E69F00", "s", (0, (4, 1))),
    "Witnesses found so far": ("#56B4E9", "^", (0, (6, 1, 1, 1))),
}
_MEMORY = "Memory, in standard deviations"
_DPI = 150
_MANY_EPOCHS = 25
_BINS = 30  # of bag sizes


def plot_roc(
    path: str | Path,
    *,
    labels: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str,
    threshold: float | None = None,
    baseline: ArrayLike | None = None,
) -> None:
    """Draw the ROC curve of bags, with the AUROC and its interval, and the operating point with its intervals.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    labels, scores : array_like, shape [N]
        Labels 0 or 1, and scores. With one class only the figure says that there is no curve.
    summary : mapping
        Result of `midam.evaluate.metrics.summarize` on the same bags.
    title : str
        Title of the figure.
    threshold : float, optional
        Operating point chosen on validation bags.
    baseline : array_like, shape [N], optional
        Scores of a baseline, for a second curve.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    """
    y, s = check_bags(labels, scores)
    figure = new_figure((4.9, 6.1))
    axes = figure.add_subplot()
    if summary["auroc"] is None:
        axes.text(0.5, 0.6, "No ROC curve: bags of one class", ha="center", color=GRAY)
    else:
        false_rate, true_rate, _ = roc_curve(y, s, drop_intermediate=False)
        low, high = summary["auroc_ci95"]
        name = f"AUROC {summary['auroc']:.3f} (95% CI {low:.3f}\N{EN DASH}{high:.3f})"
        axes.plot(false_rate, true_rate, color=BLUE, linewidth=2.2, label=name, solid_joinstyle="miter", zorder=3)
        if baseline is not None:
            across, up, _ = roc_curve(y, baseline, drop_intermediate=False)
            name = f"Baseline: AUROC {auroc(y, baseline):.3f}"
            axes.plot(across, up, color=GREEN, linestyle=(0, (4, 1)), linewidth=1.6, label=name, zorder=2.5)
        if threshold is not None:
            _operating_point(axes, threshold_metrics(y, s, threshold))
    axes.plot([0, 1], [0, 1], color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2, label="Chance", zorder=2)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="1 \N{MINUS SIGN} specificity", ylabel="Sensitivity")
    positives = int(y.sum())
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    counts = f"{y.size} bags: {positives} positive, {y.size - positives} negative"
    axes.text(0, 1.025, counts, transform=axes.transAxes, color=GRAY, fontsize=9)
    add_legend(figure, columns=1)
    save_figure(figure, Path(path))


def plot_curves(
    path: str | Path, history: Sequence[Mapping[str, float | None]], *, best_epoch: int | None = None
) -> None:
    """Draw the learning curves: the loss, and the figure of merit, AUROC say, of training and validation bags.

    Of draws that go by remembered scores two more panels show what share of a bag's weight they hold and, where
    witnesses are known, whether they hold one; and how far the scores had moved since they were remembered, and when
    the memory was filled.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    history : sequence of mapping
        One row an epoch: `epoch`, and where known `lr`, `loss`, `train_auroc`, `val_auroc`, `val_loss`, `drawn_weight`,
        `drawn_witnesses`, `found_witnesses`, `memory_drift`, `memory_age` (None or absent where not measured).
    best_epoch : int, optional
        Epoch with the best validation bags, marked in all panels.
    """
    merit = merit_of(history)
    panels = [
        ("Loss", {"loss": "Training", "val_loss": "Validation"}),
        (MERITS[merit], {f"train_{merit}": "Training", f"val_{merit}": "Validation"}),
    ]
    drawn = {"drawn_weight": "Weight drawn", "drawn_witnesses": "Draws with a witness"}
    if any(np.isfinite(_column(history, key)).any() for key in drawn):
        panels.append(("Draws, as shares", drawn | {"found_witnesses": "Witnesses found so far"}))
        panels.append((_MEMORY, {"memory_drift": "Drift of the memory"}))
    rows = len(panels) // 2
    figure = new_figure((8.4, 3.3 * rows + 0.5))
    epochs = _column(history, "epoch")
    drops = _drops(epochs, _column(history, "lr"))
    for axes, (title, lines) in zip(figure.subplots(rows, 2).flat, panels):
        for key, line in lines.items():
            _curve(axes, epochs, _column(history, key), line)
        if title == _MEMORY:
            _passes(axes, epochs, _column(history, "memory_age"))
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel("Epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
        if not axes.lines:
            axes.text(0.5, 0.5, "Not measured", transform=axes.transAxes, ha="center", color=GRAY)
            axes.set(xticks=[], yticks=[])
            continue
        axes.set_xlim(epochs.min() - 0.5, epochs.max() + 0.5)
        if best_epoch is not None:
            axes.axvline(best_epoch, color=GRAY, linewidth=1.4, label=f"Best validation: epoch {best_epoch}", zorder=1)
        for position, epoch in enumerate(drops):
            name = "Learning rate lowered" if position == 0 else None
            axes.axvline(epoch, color=GRAY, linestyle=":", linewidth=1.2, label=name, zorder=1)
        axes.margins(y=0.08)
    add_legend(figure, columns=4)
    save_figure(figure, Path(path))


def plot_sizes(path: str | Path, *, sizes: ArrayLike, labels: ArrayLike | None, title: str) -> None:
    """Draw the histogram of the bag sizes [N], the classes (labels [N], 0 or 1) beside each other, to a PNG file."""
    sizes = np.asarray(sizes, dtype=np.int64)
    edges = size_edges(sizes, bins=_BINS)
    figure = new_figure((6.4, 3.9))
    axes = figure.add_subplot()
    parts: list[tuple[str, NDArray[np.int64], dict[str, Any]]] = [("bags", sizes, {"color": GRAY})]
    if labels is not None:
        positive = np.asarray(labels) == 1
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
    if is_wide(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if len(edges) == 2:  # bags of one size: a bar, not a wall, over one number
        axes.set_xlim(edges[0] - 3, edges[0] + 3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel="Instances in a bag", ylabel="Bags")
    axes.set_title(title, loc="left", fontweight="bold")
    add_legend(figure, columns=2)
    save_figure(figure, Path(path))


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty figure of a size in inches with a canvas of its own."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def add_legend(figure: Figure, *, columns: int) -> None:
    """Name each kind of line once, below the panels, where no curve can run behind it."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        handles, names = axes.get_legend_handles_labels()
        entries |= dict(zip(names, handles, strict=True))
    if entries:
        figure.legend(
            list(entries.values()), list(entries), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
        )


def _operating_point(axes: Axes, found: Mapping[str, Any]) -> None:
    """Mark the operating point, its Wilson intervals as bars."""
    across, up = 1 - found["specificity"], found["sensitivity"]
    low, high = (1 - bound for bound in reversed(found["specificity_ci95"]))
    errors: dict[str, Any] = {
        "xerr": [[across - low], [high - across]],
        "yerr": [[up - found["sensitivity_ci95"][0]], [found["sensitivity_ci95"][1] - up]],
    }
    point: dict[str, Any] = {"fmt": "o", "color": ORANGE, "markersize": 7, "markeredgecolor": "white", "zorder": 4}
    name = f"Validation threshold: sens. {up:.2f}, spec. {1 - across:.2f}"
    axes.errorbar([across], [up], **errors, **point, elinewidth=1.4, capsize=3, clip_on=False, label=name)


def _column(history: Sequence[Mapping[str, float | None]], key: str) -> NDArray[np.float64]:
    """One column of the history; NaN, which matplotlib leaves out, for what was not measured."""
    values = (row.get(key) for row in history)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _drops(epochs: NDArray[np.float64], rates: NDArray[np.float64]) -> list[float]:
    """Epochs that start at less than half the learning rate of the epoch before: steps, not smooth decay."""
    falls = np.flatnonzero(rates[1:] < 0.5 * rates[:-1]) + 1
    return [float(epoch) for epoch in epochs[falls]]


def _curve(axes: Axes, epochs: NDArray[np.float64], values: NDArray[np.float64], name: str) -> None:
    """Draw the curve of training or validation bags through the epochs that have a value."""
    color, marker, dashes = _LINES[name]
    known = np.isfinite(values)
    if not known.any():
        return
    (line,) = axes.plot(epochs[known], values[known], linestyle=dashes, color=color, label=name, zorder=3)
    line.set(marker=marker if known.sum() <= _MANY_EPOCHS else "None", markersize=4, linewidth=1.6)


def _passes(axes: Axes, epochs: NDArray[np.float64], ages: NDArray[np.float64]) -> None:
    """Mark the epochs that began with a pass, which fills the memory, at the lower edge."""
    found = epochs[ages == 0]
    if len(found):
        mark: dict[str, Any] = {"color": GRAY, "marker": "^", "markersize": 6, "linestyle": "None", "clip_on": False}
        axes.plot(found, np.zeros(len(found)), transform=axes.get_xaxis_transform(), label="Memory filled", **mark)


def save_figure(figure: Figure, path: Path) -> None:
    """Style the axes and write the PNG in one step."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
    write_figure(figure, path)


def write_figure(figure: Figure, path: Path, *, dpi: int = _DPI) -> None:
    """Write the PNG as it is; it appears whole or not at all."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=dpi, facecolor="white")
    write_bytes(path, content.getvalue())
