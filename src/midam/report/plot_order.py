"""Figures of bags whose labels have an order: grades, numbers, and times to an event."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from midam.errors import plural
from midam.evaluate.survival import bags_at_risk, kaplan_meier
from midam.report.figures import BLUE, DASHES, GRAY, GREEN, ORANGE, add_dots, evenly, finish, new_chart
from midam.report.words import shortened

_LONG_NAME = 24
RISK_NAMES = ("Low risk", "Middle risk", "High risk")
_RISK_COLORS = (GREEN, BLUE, ORANGE)


def plot_grade_scores(*, names: Sequence[str], grades: NDArray[np.int64], scores: NDArray[np.float64]) -> Figure:
    """Plot the scores [N] of the bags of each grade, 0 to G - 1, with their quartiles; `names` are ascending."""
    wide = float(np.clip(0.8 * len(names), 3.6, 9))
    figure, axes = new_chart(width=wide, height=3.3, bottom=0.68)
    parts = [scores[grades == code] for code in range(len(names))]
    line, dots = {"color": BLUE}, {"marker": ".", "markeredgecolor": GRAY}
    style: dict[str, Any] = {"boxprops": line, "whiskerprops": line, "capprops": line, "flierprops": dots}
    axes.boxplot(parts, positions=range(len(names)), widths=0.6, medianprops=line | {"linewidth": 2}, **style)
    room = int(wide / len(names) / 0.075)
    ticks = [f"{shortened(name, max(room, 4))}\nn = {len(part)}" for name, part in zip(names, parts)]
    axes.set_xticks(range(len(names)), ticks)
    axes.set(xlabel="Grade", ylabel="Score", xlim=(-0.6, len(names) - 0.4))
    return finish(figure)


def plot_number_scores(
    *,
    name: str,
    values: NDArray[np.float64],
    scores: NDArray[np.float64],
    knots: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> Figure:
    """Plot the score of each bag against its number, the column `name`, and the predicted number of each score.

    `knots` are scores, ascending, and their predicted numbers.
    """
    figure, axes = new_chart(height=3.3)
    positions = evenly(values)
    alpha = float(np.clip(400 / len(positions), 0.12, 0.65))
    add_dots(axes, values[positions], scores[positions], markeredgewidth=0, markersize=3, alpha=alpha, color=BLUE)
    if knots is not None:
        expected, numbers = knots
        ends = [min(float(expected[0]), float(scores.min())), *expected, max(float(expected[-1]), float(scores.max()))]
        line = "Number that a score stands for"
        axes.plot([numbers[0], *numbers, numbers[-1]], ends, color=ORANGE, linewidth=1.8, label=line, zorder=4)
    axes.set(xlabel=shortened(name, _LONG_NAME), ylabel="Score")
    axes.margins(0.04)
    return finish(figure)


def plot_survival(*, time: NDArray[np.float64], event: NDArray[np.float64], groups: NDArray[np.int64]) -> Figure:
    """Plot Kaplan-Meier curves of groups of bags with intervals and the numbers at risk.

    `time` [N] is that of the event, or of censoring if `event` is 0; a tick on a curve is a censored bag. `groups` [N]
    are positions in `RISK_NAMES`.
    """
    present = {group: groups == group for group in range(len(RISK_NAMES)) if (groups == group).any()}
    figure, axes = new_chart(height=3.2, left=0.3 + 0.08 * max(map(len, RISK_NAMES)), bottom=0.7 + 0.17 * len(present))
    for group, inside in present.items():
        style: dict[str, Any] = {"color": _RISK_COLORS[group], "linestyle": DASHES[group]}
        name = f"{RISK_NAMES[group]} ({plural(int(inside.sum()), 'bag')})"
        _survival_curve(axes, time[inside], event[inside] == 1, style, name)
    axes.set(ylim=(-0.02, 1.04), ylabel="Share without event", xlim=(0, float(time.max()) * 1.02))
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= time.max()]
    axes.set_xticks(ticks)
    axes.set_xlabel("Time")
    _numbers_at_risk(axes, ticks, {RISK_NAMES[group]: time[inside] for group, inside in present.items()})
    return finish(figure)


def _numbers_at_risk(axes: Axes, ticks: Sequence[float], times: Mapping[str, NDArray[np.float64]]) -> None:
    """Write below the axis how many bags of each group are at risk at each tick."""
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "va": "center", "annotation_clip": False}
    axes.annotate("Bags at risk", (0, 0), (-6, -40), xycoords="axes fraction", color=GRAY, **style, ha="right")
    for row, (name, time) in enumerate(times.items()):
        down = -52 - 12 * row
        axes.annotate(name, (0, 0), (-14, down), xycoords="axes fraction", ha="right", **style)
        for tick, count in zip(ticks, bags_at_risk(time, ticks)):
            axes.annotate(str(count), (tick, 0), (0, down), xycoords=("data", "axes fraction"), ha="center", **style)


def _survival_curve(
    axes: Axes, time: NDArray[np.float64], event: NDArray[np.bool_], style: dict[str, Any], name: str
) -> None:
    curve = kaplan_meier(time, event)
    at = np.append(0.0, curve.time)
    survival, low, high = (np.append(1.0, part) for part in (curve.survival, curve.low, curve.high))
    axes.step(at, survival, where="post", linewidth=1.9, label=name, zorder=3, **style)
    axes.fill_between(at, low, high, step="post", color=style["color"], alpha=0.13, linewidth=0, zorder=2)
    censored = np.unique(time[~event])
    height = survival[np.searchsorted(at, censored, side="right") - 1]
    axes.plot(censored, height, linestyle="None", marker="|", markersize=7, color=style["color"], zorder=3)
