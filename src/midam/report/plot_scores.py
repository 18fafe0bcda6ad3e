"""Figures of scored bags: ranking curves and probabilities, scores by grade and number, survival by risk."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_curve, roc_curve

from midam.errors import plural
from midam.evaluate.calibrate import Bin, Line
from midam.evaluate.curves import net_benefit, roc_points
from midam.evaluate.ranking import Labels, Scores
from midam.evaluate.survival import bags_at_risk, kaplan_meier
from midam.report.figures import COLORS, DASHES, GRAY, add_dots, evenly, finish, new_chart, span, unit_axes
from midam.report.words import shortened

BLUE, ORANGE, GREEN = COLORS[:3]
_BINS = _LONG_NAME = 24
RISK_NAMES = ("Low risk", "Middle risk", "High risk")
_RISK_COLORS = (GREEN, BLUE, ORANGE)
_DASH = "\N{EN DASH}"
_FALL_OUT = "1 \N{MINUS SIGN} specificity"


def plot_roc(
    labels: Labels, scores: Scores, summary: Mapping[str, Any], *, folds: NDArray[Any] | None = None
) -> Figure:
    """Plot the ROC curve of bags of both classes with the AUROC of their summary, and its operating point, if any.

    Of cross-validated bags, with `folds` [N], it is the mean curve of the folds.
    """
    figure, axes = new_chart(height=3.4)
    low, high = summary["auroc_ci95"]
    name = f"AUROC {summary['auroc']:.3f} (95% CI {low:.3f}{_DASH}{high:.3f})"
    (curve,) = axes.plot(*roc_points(labels, scores, folds), color=BLUE, linewidth=2.0, label=name, zorder=3)
    curve.set_solid_joinstyle("miter")
    if "at_threshold" in summary:
        _operating_point(axes, summary["at_threshold"])
    unit_axes(axes, _FALL_OUT, "Sensitivity", diagonal="Chance")
    return finish(figure)


def _operating_point(axes: Axes, point: Mapping[str, Any]) -> None:
    """Mark the operating point, with its intervals as bars."""
    x, up = 1 - point["specificity"], point["sensitivity"]
    low, high = (1 - bound for bound in reversed(point["specificity_ci95"]))
    below, above = point["sensitivity_ci95"]
    errors: dict[str, Any] = {"xerr": [[x - low], [high - x]], "yerr": [[up - below], [above - up]]}
    style: dict[str, Any] = {"fmt": "o", "color": ORANGE, "markersize": 7, "markeredgecolor": "white", "zorder": 4}
    name = f"Threshold: sens. {up:.2f}, spec. {1 - x:.2f}"
    axes.errorbar([x], [up], **errors, **style, elinewidth=1.4, capsize=3, clip_on=False, label=name)


def plot_precision(labels: Labels, scores: Scores) -> Figure:
    """Plot the precision-recall curve, and the share of positive bags."""
    figure, axes = new_chart()
    precision, recall, _ = precision_recall_curve(labels, scores)
    axes.plot(recall[:-1], precision[:-1], color=BLUE, linewidth=2.0, label="This model", zorder=3)
    axes.axhline(float(labels.mean()), color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2, label="No skill")
    unit_axes(axes, "Recall (sensitivity)", "Precision (PPV)")
    return finish(figure)


def plot_histogram(labels: Labels, scores: Scores, *, threshold: float | None) -> Figure:
    """Plot the histograms of the scores of both classes."""
    figure, axes = new_chart()
    edges = np.linspace(*span(scores, pad=0.02), _BINS + 1)
    for label, color, name in ((0, BLUE, "Negative"), (1, ORANGE, "Positive")):
        axes.hist(scores[labels == label], edges.tolist(), color=color, alpha=0.65, label=name, zorder=3)
    axes.set(xlabel="Score", ylabel="Bags", xlim=(edges[0], edges[-1]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    if threshold is not None and edges[0] < threshold < edges[-1]:
        style: dict[str, Any] = {"color": GRAY, "linestyle": (0, (4, 3)), "linewidth": 1.3, "zorder": 4}
        axes.axvline(threshold, label="Threshold", **style)
    return finish(figure)


def plot_reliability(bins: Sequence[Bin], across: str, up: str, line: Line | None = None) -> Figure:
    """Plot observed shares against probabilities, in bins with intervals, and the recalibration line, if any."""
    figure, axes = new_chart(height=3.3)
    unit_axes(axes, across, up, diagonal="Perfect")
    x, shares, lows, highs, _ = np.array([(part.probability, *part.observed) for part in bins]).T
    bars = np.maximum([shares - lows, highs - shares], 0)
    style: dict[str, Any] = {"fmt": "o", "color": BLUE, "markersize": 7, "markeredgecolor": "white", "zorder": 4}
    axes.errorbar(x, shares, yerr=bars, elinewidth=1.4, label="Bin, 95% interval", **style)
    if line is not None and len(bins) > 1:
        p = np.linspace(max(0.001, float(x.min())), min(0.999, float(x.max())), 101)
        fitted = scipy.special.expit(line.slope.value * scipy.special.logit(p) + line.intercept.value)
        axes.plot(p, fitted, color=GREEN, linestyle=DASHES[1], linewidth=1.8, label="Recalibration line", zorder=3)
    return finish(figure)


def plot_decision_curve(labels: Labels, probabilities: Scores) -> Figure:
    """Plot the net benefit against the threshold probability, for the model, for acting on all bags and on none."""
    figure, axes = new_chart()
    at = np.arange(100) / 100
    benefit, everyone = net_benefit(labels, probabilities, at), net_benefit(labels, np.ones(labels.size), at)
    top = max(float(benefit.max()), float(everyone.max()))
    low = -0.35 * top
    axes.plot(at, benefit, color=BLUE, linewidth=2.0, label="This model", zorder=3)
    axes.plot(at, everyone, color=ORANGE, linestyle=DASHES[1], linewidth=1.8, label="Act on all", zorder=2.5)
    axes.axhline(0, color=GRAY, linestyle=(0, (4, 3)), linewidth=1.2, label="Act on none")
    axes.set(xlim=(0, 1), ylim=(low, 1.08 * top), xlabel="Threshold probability", ylabel="Net benefit")
    return finish(figure)


def plot_class_rocs(names: Sequence[str], labels: Scores, scores: Scores, summary: Mapping[str, Any]) -> Figure:
    """Plot the ROC curve of each class against the rest, or of each label, with AUROCs and intervals.

    `labels` and `scores` [N, C] are as in `midam.evaluate.classes.class_aurocs`, with NaN for unknown labels.
    """
    figure, axes = new_chart(height=3.4)
    for column, name in enumerate(names):
        inside, part = np.isfinite(labels[:, column]), summary["per_class"][str(name)]
        if part["auroc"] is not None:
            across, up, _ = roc_curve(labels[inside, column], scores[inside, column], drop_intermediate=False)
            low, high = part["auroc_ci95"]
            title = f"{shortened(str(name), _LONG_NAME)}: {part['auroc']:.3f} ({low:.3f}{_DASH}{high:.3f})"
            style: dict[str, Any] = {"color": COLORS[column % len(COLORS)], "linestyle": DASHES[column % len(DASHES)]}
            axes.plot(across, up, **style, linewidth=1.8, label=title, solid_joinstyle="miter", zorder=3)
    unit_axes(axes, _FALL_OUT, "Sensitivity", diagonal="Chance")
    return finish(figure)


def plot_grade_scores(names: Sequence[str], grades: Labels, scores: Scores) -> Figure:
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


def plot_number_scores(name: str, values: Scores, scores: Scores, predicted: Scores | None) -> Figure:
    """Plot the score of each bag against its number, the column `name`, and the predicted number of each score."""
    figure, axes = new_chart(height=3.3)
    positions = evenly(values)
    alpha = float(np.clip(400 / len(positions), 0.12, 0.65))
    add_dots(axes, values[positions], scores[positions], markeredgewidth=0, markersize=3, alpha=alpha, color=BLUE)
    if predicted is not None:
        order = np.argsort(scores, kind="stable")
        line = "Number that a score stands for"
        axes.plot(predicted[order], scores[order], color=ORANGE, linewidth=1.8, label=line, zorder=4)
    axes.set(xlabel=shortened(name, _LONG_NAME), ylabel="Score")
    axes.margins(0.04)
    return finish(figure)


def plot_survival(time: Scores, event: Scores, groups: Labels) -> Figure:
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


def _numbers_at_risk(axes: Axes, ticks: Sequence[float], times: Mapping[str, Scores]) -> None:
    """Write below the axis how many bags of each group are at risk at each tick."""
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "va": "center", "annotation_clip": False}
    axes.annotate("Bags at risk", (0, 0), (-6, -40), xycoords="axes fraction", color=GRAY, **style, ha="right")
    for row, (name, time) in enumerate(times.items()):
        down = -52 - 12 * row
        axes.annotate(name, (0, 0), (-14, down), xycoords="axes fraction", ha="right", **style)
        for tick, count in zip(ticks, bags_at_risk(time, ticks)):
            axes.annotate(str(count), (tick, 0), (0, down), xycoords=("data", "axes fraction"), ha="center", **style)


def _survival_curve(axes: Axes, time: Scores, event: NDArray[np.bool_], style: dict[str, Any], name: str) -> None:
    curve = kaplan_meier(time, event)
    at = np.append(0.0, curve.time)
    survival, low, high = (np.append(1.0, part) for part in (curve.survival, curve.low, curve.high))
    axes.step(at, survival, where="post", linewidth=1.9, label=name, zorder=3, **style)
    axes.fill_between(at, low, high, step="post", color=style["color"], alpha=0.13, linewidth=0, zorder=2)
    censored = np.unique(time[~event])
    height = survival[np.searchsorted(at, censored, side="right") - 1]
    axes.plot(censored, height, linestyle="None", marker="|", markersize=7, color=style["color"], zorder=3)
