"""Values of maps with fixed color scales, and charts: contributions of instances."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import SubFigure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from midam.explain.explanation import Explanation
from midam.report.figures import BLUE, GRAY, ORANGE
from midam.report.words import shortened, signed

ADDED = "What it adds to the score of the bag"
WEIGHT, SCORE = "Weight, in multiples of uniform (1/n)", "Score of the instance alone, from 0 to 1"
RAISES, LOWERS = "raises the score", "lowers the score"
COLORS = "viridis"  # perceptually uniform, and readable for color-blind readers
DIVERGING = LinearSegmentedColormap.from_list("midam", [BLUE, "#F7F7F7", ORANGE])
_LEAST_RANGE = 2.0  # multiples of the uniform weight: nearly equal weights must look equal
_LEAST_ADDED = 0.1  # times 1/n: the same for contributions; that of a uniform instance whose score differs by 0.1
_OPAQUE = 0.8
_MANY, _POINTS, _MOST = 60, 2000, 16
_NAME = 34  # most characters of an instance's name
_PAPER = "#ECECEC"  # background of the top instances
_EDGE: dict[str, Any] = {"edgecolor": GRAY, "linewidth": 0.6}  # bars of small contributions are nearly white


class Layer(NamedTuple):
    """Values of a map."""

    key: str  # "added", "weight" or "score"
    name: str
    values: NDArray[np.float64]  # [n], one for each instance
    opacity: NDArray[np.float64]  # [n], in [0, 1], on an image: unimportant instances are transparent
    scale: Normalize
    colors: Colormap
    ends: tuple[str, str] = ("", "")  # meaning of the ends of the scale

    def on_image(
        self, raster: Callable[[NDArray[Any]], NDArray[np.float64]], *, opaque: bool = False
    ) -> NDArray[np.uint8]:
        """Return colors [rows, columns, 4] of the map that `raster` makes of values; transparent without a value."""
        values = raster(self.values)
        covered = np.isfinite(values)
        colors = self.colors(np.asarray(self.scale(np.where(covered, values, 0.0))))
        strength = 1.0 if opaque else _OPAQUE * raster(self.opacity)
        colors[..., 3] = np.where(covered, strength, 0.0)
        return np.asarray((255 * colors).round(), dtype=np.uint8)

    @property
    def extend(self) -> str:
        """Ends of the scale that values exceed, as matplotlib names them."""
        low, high = float(self.scale.vmin or 0), float(self.scale.vmax or 0)
        below, above = self.values.min() < low * (1 + 1e-6), self.values.max() > high * (1 + 1e-6)
        return "both" if below and above else "min" if below else "max" if above else "neither"

    @property
    def here(self) -> str:
        """Range of the values of this bag, in words."""
        return f"here {signed(self.values.min())} to {signed(self.values.max())}"


def layers_of(explanation: Explanation) -> list[Layer]:
    """Return the values of the maps: contributions of instances, weights if they differ, and scores."""
    added, relative = explanation.contribution.astype(np.float64), explanation.relative_weight.astype(np.float64)
    around = added_range(added)
    matters = np.clip(np.abs(added) / float(around.vmax or 1), 0, 1)
    layers = [Layer("added", ADDED, added, matters, around, DIVERGING, (LOWERS, RAISES))]
    if explanation.weighted:
        scale = weight_range(relative)
        # Only weights above uniform are visible: a slide with equal weights stays clear.
        preferred = np.clip((relative - 1) / (float(scale.vmax or 0) - 1), 0, 1)
        layers.append(Layer("weight", WEIGHT, relative, preferred, scale, colormaps[COLORS]))
    score = explanation.instances.score.astype(np.float64)
    return [*layers, Layer("score", SCORE, score, matters, Normalize(0.0, 1.0), colormaps[COLORS])]


def colors_of(explanation: Explanation) -> NDArray[np.float64]:
    """Return the color [n, 4] of each instance's contribution, as on the map."""
    return np.asarray(DIVERGING(np.asarray(added_range(explanation.contribution)(explanation.contribution))))


def weight_range(relative: NDArray[np.floating[Any]]) -> Normalize:
    """Return the scale of relative weights: from 0 to the 99th percentile (the maximum if that is below 1), at least 2.

    Examples
    --------
    >>> weight_range(np.ones(10)).vmax, weight_range(np.append(np.zeros(999), 1000.0)).vmax
    (2.0, 1000.0)
    """
    high = float(np.percentile(relative, 99))
    # If a few instances have all the weight, a scale to the percentile would show them all alike.
    high = float(relative.max()) if high < 1 else high
    return Normalize(0.0, max(high, _LEAST_RANGE))


def added_range(added: NDArray[np.floating[Any]]) -> Normalize:
    """Return the scale of contributions: symmetric about 0, to the 99th percentile of their sizes, at least 0.1 / n.

    Examples
    --------
    >>> added_range(np.array([0.0, 0.2, -0.4])).vmax, added_range(np.full(100, 1e-9)).vmax
    (0.396, 0.001)
    """
    sizes = np.abs(added)
    # If one instance contributes nearly everything, the percentile is too small: use at least a quarter of it.
    high = max(float(np.percentile(sizes, 99)), float(sizes.max()) / 4, _LEAST_ADDED / len(added))
    return Normalize(-high, high)


def draw_bars(part: SubFigure, explanation: Explanation, *, top: int) -> None:
    """Plot the contributions of all instances by rank, and next to them the top instances with weights and scores.

    The colors are those of the map of contributions.
    """
    every, best = part.subplots(1, 2, width_ratios=[1.15, 1])
    added, count = explanation.contribution[explanation.order], min(top, _MOST, len(explanation))
    ranks, colors = np.arange(1, len(explanation) + 1), colors_of(explanation)[explanation.order]
    every.axvspan(0.5, count + 0.5, color=_PAPER, zorder=0, label=f"top {count}")
    if len(explanation) <= _MANY:
        every.bar(ranks, added, color=colors, **_EDGE)
        every.set_xlim(0.3, len(explanation) + 0.7)
        every.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    else:
        # A curve needs at most one point for each pixel of the picture.
        positions = np.unique(np.geomspace(1, len(explanation), _POINTS).astype(np.int64)) - 1
        every.plot(ranks[positions], added[positions], color=GRAY, linewidth=1.4)
        for color, side in ((ORANGE, np.maximum), (BLUE, np.minimum)):
            every.fill_between(ranks[positions], side(added[positions], 0), color=color, alpha=0.75, linewidth=0)
        every.set_xscale("log")
        every.xaxis.set_major_formatter(FuncFormatter(lambda rank, _: f"{rank:,.0f}"))
        every.xaxis.set_minor_formatter(NullFormatter())
    every.axhline(0, color=GRAY, linewidth=1)
    handles, names = every.get_legend_handles_labels()
    signs = [Patch(color=ORANGE), Patch(color=BLUE)]
    every.legend([*signs, *handles], [RAISES, LOWERS, *names], fontsize=8, loc="upper right")
    every.set_title("What each instance adds to the score of the bag", loc="left", fontsize=10)
    every.set_xlabel(f"Rank (all {len(explanation)} instances)", fontsize=9)
    every.set_ylabel("Added to the score", fontsize=9)
    instances = explanation.order[:count]
    best.barh(np.arange(count), added[:count], color=colors[:count], height=0.72, **_EDGE)
    best.set_yticks(np.arange(count), [shortened(explanation.name(int(i)), _NAME) for i in instances])
    best.invert_yaxis()
    best.axvline(0, color=GRAY, linewidth=1)
    best.set_xlabel("Added to the score", fontsize=9)
    best.xaxis.set_major_locator(MaxNLocator(4))
    columns = [(1.12, "score", [f"{explanation.instances.score[i]:.3f}" for i in instances])]
    if explanation.weighted:
        columns = [(1.12, "weight", [multiple(explanation, int(i)) for i in instances]), (1.31, *columns[0][1:])]
    for x, name, texts in columns:
        for row, text in enumerate([name, *texts], start=-1):
            style = {"fontsize": 8.5, "va": "center", "ha": "center", "color": GRAY if row < 0 else "black"}
            best.text(x, row, text, transform=best.get_yaxis_transform(), **style)
    best.set_title(f"Top {count}", loc="left", fontsize=10)


def multiple(explanation: Explanation, instance: int) -> str:
    """Return the weight of an instance as a multiple of the uniform weight."""
    return f"{explanation.relative_weight[instance]:.3g}\N{MULTIPLICATION SIGN}"


def mark_uniform(axes: Axes) -> None:
    """Plot a line at the uniform weight."""
    axes.axhline(1, color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2)
    name = axes.text(0.995, 1, "uniform", transform=axes.get_yaxis_transform(), fontsize=8, va="bottom", ha="right")
    name.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
