"""Instances that cannot be looked at: all weights in their order, and the top instances by name."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patheffects import withStroke

from midam.explain.explanation import Explanation
from midam.report.figures import BLUE, GRAY, ORANGE

_MANY, _POINTS, _MOST = 60, 2000, 16


def place_name(found: Explanation, instance: int) -> str:
    """Number of an instance and its place, where that is known."""
    if found.coords is None:
        return f"#{instance}"
    return f"#{instance} ({', '.join(f'{x:g}' for x in found.coords[instance])})"


def draw_bars(part: SubFigure, found: Explanation, *, top: int) -> None:
    """Draw the sorted weights (or scores) of all instances, and beside them those of the top instances."""
    by_weight, values = found.ranked_by == "weight", found.ranking
    name = "Weight, in multiples of uniform (1/n)" if by_weight else "Score of the instance alone"
    every, best = part.subplots(1, 2, width_ratios=[1.15, 1])
    ranked, count = values[found.order], min(top, _MOST, len(found))
    ranks = np.arange(1, len(found) + 1)
    if len(found) <= _MANY:
        every.bar(ranks, ranked, color=np.where(ranks <= count, ORANGE, BLUE))
    else:
        # A curve needs no more points than the picture has pixels.
        kept = np.unique(np.geomspace(1, len(found), _POINTS).astype(np.int64)) - 1
        every.plot(ranks[kept], ranked[kept], color=BLUE, linewidth=1.8)
        every.set_xscale("log")
    if by_weight:
        mark_uniform(every)
    every.set_title(name, loc="left", fontsize=9.5)
    every.set_xlabel(f"Rank (all {len(found)} instances)", fontsize=9)
    chosen = found.order[:count]
    best.barh(np.arange(count), values[chosen], color=ORANGE, height=0.72)
    best.set_yticks(np.arange(count), [place_name(found, int(i)) for i in chosen])
    best.invert_yaxis()
    for row, i in enumerate(chosen):
        score = f"{found.instances.score[i]:.3f}"
        best.text(1.01, row, score, transform=best.get_yaxis_transform(), fontsize=8.5, va="center")
    best.set_title(f"Top {count}; score at the right", loc="left", fontsize=9.5)


def mark_uniform(axes: Axes) -> None:
    """Draw the weight that all instances would have if they were weighed alike."""
    axes.axhline(1, color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2)
    name = axes.text(0.995, 1, "uniform", transform=axes.get_yaxis_transform(), fontsize=8, va="bottom", ha="right")
    name.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
