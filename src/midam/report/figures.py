"""Common parts of all figures: colors, axes, legends, and writing as PNG and SVG.

Each figure has its own canvas; pyplot's global state is never used. An SVG takes its colors from its page, so that it
fits light mode, dark mode and print.
"""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from midam.evaluate.proportions import Estimate
from midam.files import write_bytes
from midam.report.words import METRIC_NAMES, metric_of_history, shortened

# Okabe and Ito's palette, safe for color-blind readers; lines differ in dash and marker as well.
BLUE, ORANGE, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#6E6E6E"
PURPLE, YELLOW, SKY = "#CC79A7", "#E69F00", "#56B4E9"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY, "#000000")
DASHES: tuple[Any, ...] = ((0, ()), (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
GRID = "#E6E6E6"
# CSS variables of the page for these colors.
_VARIABLES = dict(zip((BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY), ("c0", "c1", "c2", "c3", "c5", "c6")))
_VARIABLES |= {GRAY: "soft", GRID: "grid", "#000000": "ink", "#FFFFFF": "paper"}
_VARIABLES = {color: f"var(--{name})" for color, name in _VARIABLES.items()}
_DPI = 150
_NO_MATH: dict[Any, Any] = {"text.parse_math": False}  # names of bags and classes may contain $
_LETTER, _LINE = 0.074, 0.18  # width of a letter of a legend, height of its line, in inches
_WIDTH = 3.6  # of the axes of a chart


def new_figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure of a size in inches with automatic layout."""
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def new_chart(
    *, width: float = _WIDTH, height: float = 2.9, left: float = 0.7, bottom: float = 0.5
) -> tuple[Figure, Axes]:
    """Return a figure with one pair of axes of a size in inches; fixed margins make it fast to draw."""
    top, right = 0.12, 0.16
    size = (left + width + right, bottom + height + top)
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((left / size[0], bottom / size[1], width / size[0], height / size[1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    return figure, axes


def finish(figure: Figure, *, grid: Literal["both", "x"] = "both") -> Figure:
    """Style the axes with a thin grid along them, or along x, and add a legend below them."""
    style_axes(figure, grid=grid)
    _add_legend_below(figure)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure


def style_axes(figure: Figure, *, grid: Literal["both", "x"] = "both") -> None:
    """Give all axes small ticks and a thin grid behind the data, and leave out the box around them."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GRAY)
        axes.grid(axis=grid, color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9.5, color=GRAY)


def add_dots(axes: Axes, x: Any, y: Any, **style: Any) -> None:
    """Plot markers without lines."""
    axes.plot(x, y, **{"linestyle": "None", "marker": "o", **style})


def add_frame(axes: Axes, left: float, top: float, width: float, height: float) -> None:
    """Frame a box in black on white, which shows on any image."""
    for color, line in (("white", 2.6), ("black", 1.2)):
        axes.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=color, linewidth=line))


def save_figure(figure: Figure, path: Path) -> None:
    """Style the axes, and write the PNG."""
    style_axes(figure)
    write_figure(figure, path)


def write_figure(figure: Figure, path: Path, *, dpi: int = _DPI) -> None:
    """Write the PNG in one step: the file is complete or missing."""
    content = BytesIO()
    figure.savefig(content, format="png", dpi=dpi, facecolor="white")
    write_bytes(path, content.getvalue())


def svg_text(figure: Figure, description: str) -> str:
    """Return the figure as SVG for a page; screen readers read `description`."""
    content = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": description, **_NO_MATH}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    text = content.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    inside = text[text.index("<g id=") : text.rindex("</svg>")]
    defined = "".join(re.findall(r"<defs>\s*<clipPath.*?</defs>", text, re.DOTALL)) if "<clipPath" not in inside else ""
    inside = re.sub(r"\s+", " ", inside + defined)
    fonts = r"font-family: [^;\"]*;? ?|font: ([\d.]+px) [^;\"]*"
    inside = re.sub(fonts, lambda style: f"font-size: {style[1]}" if style[1] else "", inside)
    inside = re.sub(r"#[0-9a-f]{6}\b", lambda color: _VARIABLES.get(color[0].upper(), color[0]), inside)
    inside = re.sub(r'( (?:d|x|y|transform)=")([^"]+)"', lambda part: f'{part[1]}{_brief(part[2])}"', inside)
    start = f'<svg viewBox="{box[1] if box else ""}" role="img" aria-label="{escape(description)}">'
    # Names of groups are dropped; ids that are referred to are hashes that differ between the figures of a page.
    return start + re.sub(r' id="[\w.]*_\d{1,4}"', "", inside).replace("xlink:href", "href") + "</svg>"


def unit_axes(axes: Axes, across: str, up: str, *, diagonal: str = "") -> None:
    """Set both axes to [0, 1] with a margin, and plot the diagonal if it has a name for the legend."""
    if diagonal:
        axes.plot([0, 1], [0, 1], color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2, label=diagonal, zorder=2)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=across, ylabel=up)


def evenly(values: NDArray[np.float64], most: int = 1000) -> NDArray[np.intp]:
    """Return the positions of at most `most` values, spread evenly over their order."""
    order = np.argsort(values, kind="stable")
    return order if order.size <= most else order[np.linspace(0, order.size - 1, most).round().astype(np.intp)]


def span(values: Sequence[float] | NDArray[np.float64], *, pad: float = 0.06) -> tuple[float, float]:
    """Return the range of an axis for all values with a margin; a range of length one if all are equal."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    low, high = (0.0, 1.0) if not finite.size else (float(finite.min()), float(finite.max()))
    margin = pad * (high - low) or 0.5
    return low - margin, high + margin


def _add_legend_below(figure: Figure) -> None:
    """Add the legend below the axes, and make the figure higher by its height."""
    entries = {name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels())}
    width, height = figure.get_size_inches()
    if not entries:
        return
    columns = max(1, int((width - 0.1) / (0.5 + _LETTER * max(map(len, entries)))))
    more = _LINE * math.ceil(len(entries) / columns) + 0.06
    for axes in figure.axes:
        x, y, across, up = axes.get_position().bounds
        axes.set_position((x, (y * height + more) / (height + more), across, up * height / (height + more)))
    figure.set_size_inches(width, height + more)
    style: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 9.5, "borderpad": 0, "labelspacing": 0.3}
    style |= {"handlelength": 1.9, "columnspacing": 1.2, "borderaxespad": 0.3}
    figure.legend(list(entries.values()), list(entries), loc="lower center", **style)


def _brief(numbers: str) -> str:
    """Round numbers to one decimal, which is enough for a page."""
    return re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), numbers).strip()


_LINES = (("Training", BLUE, "o", (0, ())), ("Validation", ORANGE, "s", (0, (4, 1))))
_MANY_EPOCHS = 25
_WIDEST, _NAME_LETTER = 2.3, 0.08  # in inches: most width for names of rows, and width of a letter

History = Sequence[Mapping[str, float | None]]


class Row(NamedTuple):
    """A row of a forest plot."""

    name: str
    estimate: Estimate | None
    marker: str = "o"
    color: str = BLUE


def learning_curves(history: History, *, best_epoch: int | None = None) -> dict[str, Figure]:
    """Plot loss and main metric along the epochs, each by its name if it was measured."""
    metric = metric_of_history(history)
    panels = {"Loss": ("loss", "val_loss"), METRIC_NAMES[metric]: (f"train_{metric}", f"val_{metric}")}
    curves = {title: [_column(history, key) for key in keys] for title, keys in panels.items()}
    measured = {title: lines for title, lines in curves.items() if np.isfinite(lines).any()}
    return {title: plot_curves(history, title, lines, best_epoch) for title, lines in measured.items()}


def plot_curves(history: History, title: str, lines: list[NDArray[np.float64]], best_epoch: int | None) -> Figure:
    """Plot the curve of the training and of the validation bags [epochs], NaN where it was not measured."""
    figure, axes = new_chart()
    axes.set_ylabel(title)
    epochs = _column(history, "epoch")
    for values, (name, color, marker, dashes) in zip(lines, _LINES):
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
            axes.text(sum(axes.get_xlim()) / 2, y, "nothing to rank", ha="center", va="center", color=GRAY)
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
    margin = min(_WIDEST, 0.25 + _NAME_LETTER * max(map(len, names)))
    width = max(2.4, 4.4 - margin)
    figure, axes = new_chart(width=width, height=height * (len(names) + 0.3), left=margin)
    short = [shortened(name, int((margin - 0.12) / _NAME_LETTER)) for name in names]
    axes.set_yticks(range(len(names)), short)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def _column(history: Sequence[Mapping[str, float | None]], key: str) -> NDArray[np.float64]:
    """Return a column of the history, with NaN, which matplotlib leaves out, for missing values."""
    return np.array([row.get(key) for row in history], dtype=np.float64)
