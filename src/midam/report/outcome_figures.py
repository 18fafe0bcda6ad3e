"""Figures of bags that are ranked by more than 0 and 1: ROC curves of classes, confusion, score and label, survival.

Drawn and written like those of `midam.report.figures`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from midam.errors import BagDataError
from midam.evaluate.outcomes.classes import check_table
from midam.evaluate.outcomes.pairs import check_numbers, check_scores, check_times
from midam.evaluate.outcomes.survival import bags_at_risk, kaplan_meier, log_rank
from midam.report.figures import BLUE, GRAY, GREEN, ORANGE, add_legend, new_figure, save_figure, write_figure

# Okabe and Ito's colors without the yellow, which is too light for a line; dashes tell apart what a color cannot.
_COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: tuple[Any, ...] = ((0, ()), (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
_MOST_CURVES = 10
_MANY_BAGS = 300
_LONG_NAME = 24
_EN_DASH = "\N{EN DASH}"


def plot_class_rocs(
    path: str | Path,
    *,
    names: Sequence[str],
    labels: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str,
) -> None:
    """Draw the ROC curve of each class against the rest, or of each label, with the AUROCs and their intervals.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    names : sequence of str
        The C classes or labels. Of more than ten, those with the most positive bags are drawn.
    labels, scores : array_like, shape [N, C]
        As of `midam.evaluate.outcomes.classes.class_aurocs`; NaN where a label is not known.
    summary : mapping
        Result of `midam.targets.Target.summarize` on the same bags.
    title : str
        Title of the figure.

    Raises
    ------
    BagDataError
        The tables do not fit together, or hold values that cannot be used.
    """
    y, s = check_table(labels, scores)
    figure = new_figure((5.4, 6.3 + 0.21 * min(len(names), _MOST_CURVES)))
    axes = figure.add_subplot()
    parts = [summary["per_class"][str(name)] for name in names]
    known = [column for column, part in enumerate(parts) if part["auroc"] is not None]
    drawn = sorted(sorted(known, key=lambda column: -parts[column]["positives"])[:_MOST_CURVES])
    for place, column in enumerate(drawn):
        inside, part = np.isfinite(y[:, column]), parts[column]
        across, up, _ = roc_curve(y[inside, column], s[inside, column], drop_intermediate=False)
        low, high = part["auroc_ci95"]
        name = f"{_short(names[column])}: {part['auroc']:.3f} ({low:.3f}{_EN_DASH}{high:.3f})"
        style: dict[str, Any] = {"color": _COLORS[place % len(_COLORS)], "linestyle": _DASHES[place % len(_DASHES)]}
        axes.plot(across, up, **style, linewidth=1.8, label=name, solid_joinstyle="miter", zorder=3)
    if not drawn:
        axes.text(0.5, 0.6, "No ROC curve: no class with others beside it", ha="center", color=GRAY)
    axes.plot([0, 1], [0, 1], color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2, label="Chance", zorder=2)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    axes.set(xlabel="1 \N{MINUS SIGN} specificity", ylabel="Sensitivity")
    said = f"{len(y)} bags"
    if summary["auroc_macro"] is not None:
        low, high = summary["auroc_macro_ci95"]
        said += f", macro AUROC {summary['auroc_macro']:.3f} (95% CI {low:.3f}{_EN_DASH}{high:.3f})"
    if len(drawn) < len(known):
        said += f"; {len(drawn)} of {len(known)} curves"
    _head(axes, title, said)
    add_legend(figure, columns=1)
    save_figure(figure, Path(path))


def plot_confusion(path: str | Path, *, names: Sequence[str], confusion: ArrayLike, title: str) -> None:
    """Draw a confusion matrix: counts, shaded by their share of the bags of a class (row).

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    names : sequence of str
        The C classes or grades.
    confusion : array_like of int, shape [C, C]
        Bags of each class (row) that are called each class (column).
    title : str
        Title of the figure.

    Raises
    ------
    BagDataError
        Not a row and a column of each name.
    """
    table = np.asarray(confusion, dtype=np.int64)
    count = len(names)
    if table.shape != (count, count):
        raise BagDataError(f"Expected a table [{count}, {count}], got {table.shape}; pass a row and column a class.")
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    size = float(np.clip(2.4 + 0.45 * count, 4.2, 11))
    figure = new_figure((size + 0.9, size))
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    font = float(np.clip(100 / count, 5, 11))
    for (row, column), bags in np.ndenumerate(table):
        share = shares[row, column]
        color = "white" if share > 0.55 else "#C0C0C0" if bags == 0 else "black"
        how: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": font, "color": color}
        axes.text(column, row, str(bags), **how).set_in_layout(False)
    shown = [_short(name) for name in names]
    turned = max(map(len, shown)) * count > 40
    turn: dict[str, Any] = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    axes.set_xticks(range(count), shown, **turn)
    axes.set_yticks(range(count), shown)
    axes.tick_params(labelsize=min(9.0, font), length=0)
    axes.set(xlabel="Called", ylabel="Label")
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=28, format=lambda share, _: f"{share:.0%}")
    bar.set_label("Share of the bags of a label", fontsize=9)
    bar.ax.tick_params(labelsize=9)
    bar.outline.set_visible(False)
    right = int(np.trace(table))
    _head(axes, title, f"{int(table.sum())} bags, {right} called right")
    write_figure(figure, Path(path))


def plot_grade_scores(
    path: str | Path,
    *,
    names: Sequence[str],
    grades: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str,
    cuts: Sequence[float] = (),
) -> None:
    """Draw the scores of the bags of each grade as boxes, with the cuts between grades.

    Parameters
    ----------
    path : str or Path
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
    figure = new_figure((float(np.clip(2.4 + 0.8 * len(names), 4.6, 11)), 4.6))
    axes = figure.add_subplot()
    rng = np.random.default_rng(0)
    for code in range(len(names)):
        own = s[y == code]
        if not own.size:
            continue
        line = {"color": BLUE}
        style: dict[str, Any] = {"boxprops": {"facecolor": "#D6E6F2", "edgecolor": BLUE}, "medianprops": line}
        style |= {"whiskerprops": line, "capprops": line, "showfliers": False, "patch_artist": True, "widths": 0.6}
        axes.boxplot(own, positions=[code], **style)
        at = code + rng.uniform(-0.18, 0.18, own.size)
        _dots(axes, at, own, total=s.size)
    for place, cut in enumerate(cuts):
        name = "Cuts between grades" if place == 0 else None
        axes.axhline(cut, color=ORANGE, linestyle=(0, (4, 1.5)), linewidth=1.4, label=name, zorder=2.5)
    sizes = [int((y == code).sum()) for code in range(len(names))]
    axes.set_xticks(range(len(names)), [f"{_short(name)}\nn = {size}" for name, size in zip(names, sizes)])
    axes.set(xlabel="Grade", ylabel="Score", xlim=(-0.6, len(names) - 0.4))
    _head(axes, title, _told(summary))
    add_legend(figure, columns=2)
    save_figure(figure, Path(path))


def plot_number_scores(
    path: str | Path,
    *,
    name: str,
    values: ArrayLike,
    scores: ArrayLike,
    summary: Mapping[str, Any],
    title: str,
    knots: tuple[ArrayLike, ArrayLike] | None = None,
) -> None:
    """Draw the score of each bag against its number, and what number a score stands for.

    Parameters
    ----------
    path : str or Path
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
        Scores and the numbers that they stand for, see `midam.evaluate.outcomes.NumberScale`.

    Raises
    ------
    BagDataError
        The arrays do not fit together, or hold values that cannot be used.
    """
    y = check_numbers(values)
    s = check_scores(scores, y.size)
    figure = new_figure((5.4, 4.8))
    axes = figure.add_subplot()
    _dots(axes, y, s, total=y.size, color=BLUE)
    if knots is not None:
        of, numbers = (np.asarray(part, dtype=np.float64) for part in knots)
        ends = [min(float(of[0]), float(s.min())), *of, max(float(of[-1]), float(s.max()))]
        line = "Number that a score stands for"
        axes.plot([numbers[0], *numbers, numbers[-1]], ends, color=ORANGE, linewidth=1.8, label=line, zorder=4)
    axes.set(xlabel=_short(name), ylabel="Score")
    axes.margins(0.04)
    _head(axes, title, _told(summary))
    add_legend(figure, columns=1)
    save_figure(figure, Path(path))


def plot_survival(
    path: str | Path,
    *,
    time: ArrayLike,
    event: ArrayLike,
    groups: ArrayLike,
    names: Sequence[str] = ("Low risk", "Middle risk", "High risk"),
    title: str,
    unit: str = "",
) -> None:
    """Draw Kaplan-Meier curves of groups of bags with their intervals, the numbers at risk, and the log-rank p-value.

    Parameters
    ----------
    path : str or Path
        PNG file to write; replaced in one step.
    time, event : array_like, shape [N]
        Times to the event, or of censoring where `event` is 0; a tick on a curve is a censored bag.
    groups : array_like of int, shape [N]
        Group of each bag, a position in `names`.
    names : sequence of str
        The groups.
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
    own = np.asarray(groups, dtype=np.int64)
    if own.shape != t.shape or own.min() < 0 or own.max() >= len(names):
        raise BagDataError(f"Expected a group 0 to {len(names) - 1} of each of {t.size} bags, got others; pass [N].")
    present = [group for group in range(len(names)) if (own == group).any()]
    figure = new_figure((6.2, 4.7 + 0.24 * len(present)))
    axes, table = figure.subplots(2, 1, sharex=True, height_ratios=[1, 0.06 + 0.07 * len(present)])
    colors = (BLUE, GREEN, ORANGE) if len(names) == 3 else _COLORS
    for group in present:
        inside = own == group
        style: dict[str, Any] = {"color": colors[group % len(colors)], "linestyle": _DASHES[group % len(_DASHES)]}
        _curve(axes, t[inside], e[inside], style, f"{_short(names[group])} ({int(inside.sum())} bags)")
    p = log_rank(t, e, own) if len(present) > 1 else None
    if p is not None:
        said = "Log-rank p < 0.001" if p < 0.001 else f"Log-rank p = {p:.3f}"
        axes.text(0.02, 0.05, said, transform=axes.transAxes, fontsize=9)
    axes.set(ylim=(-0.02, 1.04), ylabel="Share without event", xlim=(0, float(t.max()) * 1.02))
    ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= t.max()]
    axes.set_xticks(ticks)
    axes.tick_params(labelbottom=True)
    axes.set_xlabel(f"Time ({unit})" if unit else "Time")
    for place, group in enumerate(present):
        for tick, count in zip(ticks, bags_at_risk(t[own == group], ticks)):
            table.text(tick, -place, str(count), ha="center", va="center", fontsize=8.5)
    table.set_yticks([-place for place in range(len(present))], [_short(names[group]) for group in present])
    table.set(ylim=(-len(present) + 0.4, 0.6))
    table.set_title("Bags at risk", loc="left", fontsize=9, color=GRAY)
    _head(axes, title, f"{t.size} bags, {int(e.sum())} events")
    add_legend(figure, columns=len(present))
    _save_survival(figure, table, Path(path))


def _curve(axes: Axes, time: NDArray[np.float64], event: NDArray[np.bool_], style: dict[str, Any], name: str) -> None:
    curve = kaplan_meier(time, event)
    at = np.append(0.0, curve.time)
    survival, low, high = (np.append(1.0, part) for part in (curve.survival, curve.low, curve.high))
    axes.step(at, survival, where="post", linewidth=1.9, label=name, zorder=3, **style)
    axes.fill_between(at, low, high, step="post", color=style["color"], alpha=0.13, linewidth=0, zorder=2)
    left = np.unique(time[~event])
    height = survival[np.searchsorted(at, left, side="right") - 1]
    axes.plot(left, height, linestyle="None", marker="|", markersize=7, color=style["color"], zorder=3)


def _save_survival(figure: Figure, table: Axes, path: Path) -> None:
    """Write the figure; the table below has numbers alone."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=9)
    figure.axes[0].grid(color="#E6E6E6", linewidth=0.8)
    table.spines[:].set_visible(False)
    table.tick_params(length=0, pad=16, labelbottom=False)
    write_figure(figure, path)


def _dots(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], *, total: int, color: str = GRAY) -> None:
    """A dot for each bag, smaller and fainter the more there are."""
    many = total > _MANY_BAGS
    style: dict[str, Any] = {"markersize": 2.2 if many else 3.6, "alpha": float(np.clip(400 / total, 0.12, 0.65))}
    axes.plot(x, y, linestyle="None", marker="o", markeredgewidth=0, color=color, zorder=3, **style)


def _told(summary: Mapping[str, Any]) -> str:
    if summary["c_index"] is None:
        return f"{summary['bags']} bags"
    low, high = summary["c_index_ci95"]
    return f"{summary['bags']} bags, C-index {summary['c_index']:.3f} (95% CI {low:.3f}{_EN_DASH}{high:.3f})"


def _head(axes: Axes, title: str, said: str) -> None:
    """Title, and a line of figures below it."""
    axes.set_title(title, loc="left", fontweight="bold", pad=20)
    axes.annotate(
        said, (0, 1), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points", color=GRAY, fontsize=9
    )


def _short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _LONG_NAME else f"{text[: _LONG_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
