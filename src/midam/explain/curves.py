"""Deletion and insertion curves of a bag, drawn beside those of random orders."""

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from midam.explain.faithful import Curve, Faithfulness
from midam.report.figures import GRAY, ORANGE

_LEAST_RANGE = 0.1


def draw_curves(part: SubFigure, found: Faithfulness) -> None:
    """Draw both curves, with the mean and the range of the random orders, and the areas in the legends."""
    left, right = part.subplots(1, 2, sharey=True)
    _panel(left, found.deletion, "Deletion: score as instances leave", "Share removed")
    _panel(right, found.insertion, "Insertion: score as instances enter", "Share entered")
    left.set_ylabel("Score of the bag", fontsize=9)
    left.set_ylim(*_limits(found))


def _limits(found: Faithfulness) -> tuple[float, float]:
    """Range of the scores, no narrower than 0.1, with room for the legend."""
    curves = (found.deletion.score, found.insertion.score, found.deletion.random, found.insertion.random)
    low, high = min(float(x.min()) for x in curves), max(float(x.max()) for x in curves)
    spare = max(0.0, _LEAST_RANGE - (high - low)) / 2
    low, high = max(0.0, low - spare), min(1.0, high + spare)
    return low - 0.04 * (high - low), high + 0.3 * (high - low)


def _panel(axes: Axes, curve: Curve, title: str, across: str) -> None:
    axes.set_title(title, loc="left", fontsize=9.5)
    axes.set_xlabel(across, fontsize=9)
    x, random, areas = curve.share, curve.random, curve.random_areas
    chance = f"{len(random)} random orders, area {areas.mean():.3f} ({areas.min():.3f}\N{EN DASH}{areas.max():.3f})"
    axes.fill_between(x, random.min(axis=0), random.max(axis=0), color=GRAY, alpha=0.25, linewidth=0)
    axes.plot(x, random.mean(axis=0), color=GRAY, linestyle=(0, (4, 2)), linewidth=1.6, label=chance)
    name = f"top first, area {curve.area:.3f}"
    axes.plot(x, curve.score, color=ORANGE, linewidth=2, marker="o", markersize=3, label=name)
    axes.legend(frameon=False, fontsize=8, loc="upper center")
