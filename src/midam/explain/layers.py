"""Values that maps show: contributions, weights and scores, each with a fixed scale of colors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from numpy.typing import NDArray

from midam.explain.explanation import Explanation
from midam.report.figures import BLUE, ORANGE

ADDED = "What it adds to the score of the bag"
WEIGHT, SCORE = "Weight, in multiples of uniform (1/n)", "Score of the instance alone, from 0 to 1"
RAISES, LOWERS = "raises the score", "lowers the score"
COLORS = "viridis"  # perceptually uniform, and readable for color-blind readers
DIVERGING = LinearSegmentedColormap.from_list("midam", [BLUE, "#F7F7F7", ORANGE])
_LEAST_RANGE = 2.0  # multiples of the uniform weight: nearly equal weights must look equal
_LEAST_ADDED = 0.1  # times 1/n: the same for contributions; that of a uniform instance whose score differs by 0.1
_OPAQUE = 0.8


class Layer(NamedTuple):
    """Values of a map."""

    name: str
    values: NDArray[np.float64]  # [n], one for each instance
    opacity: NDArray[np.float64]  # [n], in [0, 1], on an image: unimportant instances are transparent
    scale: Normalize
    colors: Colormap
    meaning: str = ""  # of its colors

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


def layers_of(explanation: Explanation) -> list[Layer]:
    """Return the values of the maps: contributions of instances, weights if they differ, and scores."""
    added, relative = explanation.contribution.astype(np.float64), explanation.relative_weight.astype(np.float64)
    around = added_range(added)
    matters = np.clip(np.abs(added) / float(around.vmax or 1), 0, 1)
    layers = [Layer(ADDED, added, matters, around, DIVERGING, f"blue {LOWERS}, orange {RAISES}\n")]
    if explanation.weighted:
        scale = weight_range(relative)
        # Only weights above uniform are visible: a slide with equal weights stays clear.
        preferred = np.clip((relative - 1) / (float(scale.vmax or 0) - 1), 0, 1)
        layers.append(Layer(WEIGHT, relative, preferred, scale, colormaps[COLORS]))
    score = explanation.instances.score.astype(np.float64)
    return [*layers, Layer(SCORE, score, matters, Normalize(0.0, 1.0), colormaps[COLORS])]


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
