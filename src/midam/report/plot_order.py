"""Figures of bags whose labels have an order: grades, numbers, and times to an event."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from midam.errors import BagDataError, plural
from midam.evaluate.ranking import check_numbers, check_scores, check_times
from midam.evaluate.survival import bags_at_risk, kaplan_meier, log_rank
from midam.report.figures import BLUE, COLORS, DASHES, GRAY, GREEN, ORANGE, add_dots, evenly, finish, new_chart
from midam.report.words import shortened

_MANY_BAGS = 300
_LONG_NAME = 24
RISK_NAMES = ("Low risk", "Middle risk", "High risk")


def plot_grade_scores(
    path: str | Path | None = None,
    *,
    names: Sequence[str],
    grades: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str = "",
    cuts: Sequence[float] = (),
) -> Figure:
    """Plot the scores of the bags of each grade, with their quartiles and the cuts between grades.

    Parameters
    ----------
    path : str or Path, optional
        PNG file to write; replaced in one step.
    names : sequence of str
        The G grades, ascending.
    grades, scores : array_like, shape [N]
        Codes 0 to G - 1, and finite scores.
    summary : mapping
        Result of `midam.targets.Target.summarize` on the same bags.
    title : str
        Title of the figure.
    cuts : sequence of float
        Cuts of the score, chosen on validation bags.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    """
    y = check_numbers(grades)
    s = check_scores(scores, y.size)
    wide = float(np.clip(0.8 * len(names), 3.6, 9))
    figure, axes = new_chart(width=wide, height=3.3, bottom=0.68, title=title, note=_c_index(summary))
    rng = np.random.default_rng(0)
    line = {"color": BLUE}
    style: dict[str, Any] = {"boxprops": {"facecolor": "none", "edgecolor": BLUE}}
    style |= {"medianprops": {"color": BLUE, "linewidth": 2}}
    style |= {"whiskerprops": line, "capprops": line, "showfliers": False, "patch_artist": True, "widths": 0.6}
    for code in range(len(names)):
        if (y == code).any():
            axes.boxplot(s[y == code], positions=[code], **style, zorder=4)
    positions = evenly(s)
    _dots(axes, y[positions] + rng.uniform(-0.18, 0.18, positions.size), s[positions])
    for place, cut in enumerate(cuts):
        name = "Cuts between grades" if place == 0 else None
        axes.axhline(cut, color=ORANGE, linestyle=(0, (4, 1.5)), linewidth=1.4, label=name, zorder=2.5)
    room = int(wide / len(names) / 0.075)
    sizes = [int((y == code).sum()) for code in range(len(names))]
    ticks = [f"{shortened(name, max(room, 4))}\nn = {size}" for name, size in zip(names, sizes)]
    axes.set_xticks(range(len(names)), ticks)
    axes.set(xlabel="Grade", ylabel="Score", xlim=(-0.6, len(names) - 0.4))
    return finish(figure, path)


def plot_number_scores(
    path: str | Path | None = None,
    *,
    name: str,
    values: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str = "",
    knots: tuple[ArrayLike, ArrayLike] | None = None,
) -> Figure:
    """Plot the score of each bag against its number, and the predicted number of each score.

    Parameters
    ----------
    path : str or Path, optional
        PNG file to write; replaced in one step.
    name : str
        The column of the numbers.
    values, scores : array_like, shape [N]
        Numbers and finite scores.
    summary : mapping
        Result of `midam.targets.Target.summarize` on the same bags.
    title : str
        Title of the figure.
    knots : pair of array_like, shape [K], optional
        Scores and their predicted numbers, see `midam.evaluate.NumberScale`.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    """
    y = check_numbers(values)
    s = check_scores(scores, y.size)
    figure, axes = new_chart(height=3.3, title=title, note=_c_index(summary))
    positions = evenly(y)
    _dots(axes, y[positions], s[positions], color=BLUE)
    if knots is not None:
        expected, numbers = (np.asarray(part, dtype=np.float64) for part in knots)
        ends = [min(float(expected[0]), float(s.min())), *expected, max(float(expected[-1]), float(s.max()))]
        line = "Number that a score stands for"
        axes.plot([numbers[0], *numbers, numbers[-1]], ends, color=ORANGE, linewidth=1.8, label=line, zorder=4)
    axes.set(xlabel=shortened(name, _LONG_NAME), ylabel="Score")
    axes.margins(0.04)
    return finish(figure, path)


def plot_survival(
    path: str | Path | None = None,
    *,
    time: ArrayLike,
    event: ArrayLike,
    groups: ArrayLike,
    names: Sequence[str] = RISK_NAMES,
    title: str = "",
    unit: str = "",
) -> Figure:
    """Plot Kaplan-Meier curves of groups of bags with intervals, the numbers at risk and the log-rank p-value.

    Parameters
    ----------
    path : str or Path, optional
        PNG file to write; replaced in one step.
    time, event : array_like, shape [N]
        Times of the event, or of censoring if `event` is 0; a tick on a curve is a censored bag.
    groups : array_like of int, shape [N]
        Group of each bag, a position in `names`.
    names : sequence of str
        Names of the groups.
    title : str
        Title of the figure.
    unit : str
        Unit of the times, such as "months".

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    """
    t, e = check_times(time, event)
    group_of = np.asarray(groups, dtype=np.int64)
    if group_of.shape != t.shape or group_of.min() < 0 or group_of.max() >= len(names):
        raise BagDataError(f"Expected {t.size} groups from 0 to {len(names) - 1}, got other values; pass [N].")
    present = [group for group in range(len(names)) if (group_of == group).any()]
    note, margin = f"{plural(t.size, 'bag')}, {plural(int(e.sum()), 'event')}", 0.3 + 0.08 * max(map(len, names))
    low = 0.7 + 0.17 * len(present)
    figure, axes = new_chart(height=3.2, left=max(margin, 0.7), bottom=low, title=title, note=note)
    colors = (GREEN, BLUE, ORANGE) if len(names) == 3 else COLORS
    for group in present:
        inside = group_of == group
        style: dict[str, Any] = {"color": colors[group % len(colors)], "linestyle": DASHES[group % len(DASHES)]}
        _survival_curve(axes, t[inside], e[inside], style, f"{names[group]} ({plural(int(inside.sum()), 'bag')})")
    p = log_rank(t, e, group_of) if len(present) > 1 else None
    if p is not None:
        p_text = "Log-rank p < 0.001" if p < 0.001 else f"Log-rank p = {p:.3f}"
        axes.plot([], [], linestyle="None", label=p_text)  # only in the legend, where no curve can run behind it
    axes.set(ylim=(-0.02, 1.04), ylabel="Share without event", xlim=(0, float(t.max()) * 1.02))
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= t.max()]
    axes.set_xticks(ticks)
    axes.set_xlabel(f"Time ({unit})" if unit else "Time")
    _numbers_at_risk(axes, ticks, {names[group]: t[group_of == group] for group in present})
    return finish(figure, path)


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


def _dots(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], *, color: str = GRAY) -> None:
    """Plot a dot for each bag; with more bags, dots are smaller and fainter."""
    many = x.size > _MANY_BAGS
    style: dict[str, Any] = {"markersize": 2.2 if many else 3.6, "alpha": float(np.clip(400 / x.size, 0.12, 0.65))}
    add_dots(axes, x, y, markeredgewidth=0, color=color, zorder=3, **style)


def _c_index(summary: Mapping[str, Any]) -> str:
    if summary["c_index"] is None:
        return plural(summary["bags"], "bag")
    low, high = summary["c_index_ci95"]
    return f"{plural(summary['bags'], 'bag')}, C-index {summary['c_index']:.3f} (95% CI {low:.3f}\N{EN DASH}{high:.3f})"
