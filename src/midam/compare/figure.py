"""The picture of a comparison: mean AUROC of each method, and its paired difference to the first."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from midam.files import write_bytes
from midam.report.figures import BLUE, GRAY, ORANGE

_DPI = 150


def plot_comparison(path: str | Path, summary: pd.DataFrame, *, title: str) -> None:
    """Draw a forest plot of ``Comparison.summary`` as PNG; its first row is what the others are compared with."""
    names = summary["method"].tolist()
    figure = Figure(figsize=(9.2, 1.5 + 0.34 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1))
    _bars(left, summary, "auroc", color=BLUE)
    left.set_xlabel("Mean AUROC over folds, 95% interval")
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    _bars(right, summary, "difference", color=ORANGE)
    right.axvline(0, color=GRAY, linewidth=1.2)
    right.plot([0], [0], marker="D", color=GRAY, markersize=6, zorder=4)
    right.set_xlabel(f"Paired difference to {names[0]}, 95% interval")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.grid(axis="x", color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9, left=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DPI, facecolor="white")
    write_bytes(Path(path), content.getvalue())


def _bars(axes: Axes, summary: pd.DataFrame, name: str, *, color: str) -> None:
    """Means as dots, intervals as lines; a mean without an interval is a hollow dot."""
    for y, row in enumerate(summary.to_dict("records")):
        value, low, high = float(row[name]), float(row[f"{name}_low"]), float(row[f"{name}_high"])
        if not np.isfinite(value):
            continue
        known = np.isfinite(low)
        if known:
            axes.plot([low, high], [y, y], color=color, linewidth=2, solid_capstyle="butt", zorder=3)
        axes.plot([value], [y], marker="o", color=color, fillstyle="full" if known else "none", markersize=6, zorder=4)
