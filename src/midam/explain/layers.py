"""Values that are mapped: contributions of instances, their weights, their scores; with fixed scales of colors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from numpy.typing import NDArray

from midam.explain.explanation import Explanation
from midam.report.figures import BLUE, ORANGE
from midam.report.words import signed

ADDED = "What it adds to the score of the bag"
WEIGHT, SCORE = "Weight, in multiples of uniform (1/n)", "Score of the instance alone, from 0 to 1"
RAISES, LOWERS = "raises the score", "lowers the score"
COLORS = "viridis"  # perceptually uniform, and told apart by color-blind readers
DIVERGING = LinearSegmentedColormap.from_list("midam", [BLUE, "#F7F7F7", ORANGE])
_LEAST_RANGE = 2.0  # multiples of the uniform weight: weights that hardly differ must not look as if they did
_LEAST_ADDED = 0.1  # times 1/n: the same of what instances add; a uniform one whose score differs by so much
_OPAQUE = 0.8


class Layer(NamedTuple):
    """Values of a map."""

    key: str  # "added", "weight" or "score"
    name: str
    values: NDArray[np.float64]  # [n], one an instance
    opacity: NDArray[np.float64]  # [n], in [0, 1], on an image: what hardly matters lets it through
    scale: Normalize
    colors: Colormap
    ends: tuple[str, str] = ("", "")  # what the ends of the scale mean

    def on_image(
        self, raster: Callable[[NDArray[Any]], NDArray[np.float64]], *, opaque: bool = False
    ) -> NDArray[np.uint8]:
        """Colors [rows, columns, 4] of the map that `raster` makes of values; clear where there is none."""
        values = raster(self.values)
        covered = np.isfinite(values)
        colors = self.colors(np.asarray(self.scale(np.where(covered, values, 0.0))))
        strength = 1.0 if opaque else _OPAQUE * raster(self.opacity)
        colors[..., 3] = np.where(covered, strength, 0.0)
        return np.asarray((255 * colors).round(), dtype=np.uint8)

    @property
    def extend(self) -> str:
        """At which ends values lie outside the scale, in matplotlib's word."""
        low, high = float(self.scale.vmin or 0), float(self.scale.vmax or 0)
        below, above = self.values.min() < low * (1 + 1e-6), self.values.max() > high * (1 + 1e-6)
        return "both" if below and above else "min" if below else "max" if above else "neither"

    @property
    def here(self) -> str:
        """Range of the values of this bag."""
        return f"here {signed(self.values.min())} to {signed(self.values.max())}"


def layers_of(found: Explanation) -> list[Layer]:
    """Values that are mapped: contributions of the instances, their weights where they differ, and their scores."""
    added, relative = found.contribution.astype(np.float64), found.relative_weight.astype(np.float64)
    around = added_range(added)
    matters = np.clip(np.abs(added) / float(around.vmax or 1), 0, 1)
    layers = [Layer("added", ADDED, added, matters, around, DIVERGING, (LOWERS, RAISES))]
    if found.weighted:
        scale = weight_range(relative)
        # Only what is preferred is seen: a slide that is weighed alike stays as it is.
        preferred = np.clip((relative - 1) / (float(scale.vmax or 0) - 1), 0, 1)
        layers.append(Layer("weight", WEIGHT, relative, preferred, scale, colormaps[COLORS]))
    score = found.instances.score.astype(np.float64)
    return [*layers, Layer("score", SCORE, score, matters, Normalize(0.0, 1.0), colormaps[COLORS])]


def colors_of(found: Explanation) -> NDArray[np.float64]:
    """Color [n, 4] of what each instance adds to the score, as on the map."""
    return np.asarray(DIVERGING(np.asarray(added_range(found.contribution)(found.contribution))))


def weight_range(relative: NDArray[np.floating[Any]]) -> Normalize:
    """Scale of relative weights: from 0 to the 99th percentile, at least 2; to the greatest where that is below 1.

    Examples
    --------
    >>> weight_range(np.ones(10)).vmax, weight_range(np.append(np.zeros(999), 1000.0)).vmax
    (2.0, 1000.0)
    """
    high = float(np.percentile(relative, 99))
    # A few instances with all the weight: the percentile would paint them all alike.
    high = float(relative.max()) if high < 1 else high
    return Normalize(0.0, max(high, _LEAST_RANGE))


def added_range(added: NDArray[np.floating[Any]]) -> Normalize:
    """Scale of contributions: symmetric to 0, to the 99th percentile of their sizes, at least 0.1 / n.

    Examples
    --------
    >>> added_range(np.array([0.0, 0.2, -0.4])).vmax, added_range(np.full(100, 1e-9)).vmax
    (0.396, 0.001)
    """
    sizes = np.abs(added)
    # Where one instance carries nearly all, its neighbors on the scale are no measure.
    high = max(float(np.percentile(sizes, 99)), float(sizes.max()) / 4, _LEAST_ADDED / len(added))
    return Normalize(-high, high)
