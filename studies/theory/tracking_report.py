"""Page and figure of the study of the tracked state's error."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.methods.store import Row
from midam.report.figures import GRAY, new_figure
from studies.drawing import COLORS, DASHES, MARKERS, add_legend, save_figure
from studies.page import table
from studies.theory.exponents import TOLERANCE, Exponent, fit_exponent, verdict

Found = Mapping[str, Sequence[Sequence[Row]]]
"""Rows by pooling and state, then by scale, then by seed."""

MEASURES = {
    "relative": "error of s, relative to mean squared s",
    "error": "squared error of s",
    "score": "squared error of the bag's score",
}


def mean_error(row: Row, measure: str) -> float:
    """Return the mean over the measured steps of one run.

    Examples
    --------
    >>> row = {"error": [1.0, 3.0], "size": [2.0, 2.0], "score": [0.5, 0.5]}
    >>> mean_error(row, "error"), mean_error(row, "relative"), mean_error(row, "score")
    (2.0, 1.0, 0.5)
    """
    if measure == "relative":
        return float(np.mean(row["error"]) / np.mean(row["size"]))
    return float(np.mean(row[measure]))


def mean_errors(rows: Sequence[Sequence[Row]], measure: str) -> NDArray[np.float64]:
    """Return the mean errors of the runs of one arm, [seeds, scales]."""
    return np.array([[mean_error(row, measure) for row in runs] for runs in rows]).T


def exponent(rows: Sequence[Sequence[Row]], scales: Sequence[float], measure: str) -> Exponent:
    """Return the exponent of the mean error in the scale of the step sizes."""
    return fit_exponent(scales, mean_errors(rows, measure))


def body(found: Found, scales: Sequence[float], *, data: str, bags: Bags, figure: str) -> list[str]:
    """Return the lines of the page, below its head."""
    return [
        *_words(found, scales),
        "",
        f"![Error of the tracked state against the scale of the step sizes, and along training]({figure})",
        "",
        *_exponent_table(found, scales),
        "",
        *_setting(found, data=data, bags=bags),
        "",
        "## All runs",
        "",
        *_mean_table(found, scales),
    ]


def draw(found: Found, scales: Sequence[float], path: Path) -> None:
    """Draw the mean error against the scale on the left, and along training in a panel for each state of attention."""
    along = [arm for arm in found if arm.startswith("attention")]
    figure = new_figure((11.4, 6.0))
    grid = figure.subplots(2, 1 + len(along), sharey="row")
    for row, (measure, label) in zip(grid, (("relative", "Error of s, relative"), ("score", "Squared error of score"))):
        _draw_means(row[0], found, scales, measure)
        row[0].set_ylabel(label)
        for axes, arm in zip(row[1:], along):
            _draw_runs(axes, found[arm], scales, measure)
            axes.set_title(arm, loc="left", fontweight="bold", fontsize=10)
    for axes in grid[1, 1:]:
        axes.set_xlabel("Share of the steps")
    grid[1, 0].set_xlabel("Scale of the step sizes, eps^2")
    grid[0, 0].set_title("Mean over the run", loc="left", fontweight="bold", fontsize=10)
    add_legend(figure, columns=5)
    save_figure(figure, path)


def _draw_means(axes: Axes, found: Found, scales: Sequence[float], measure: str) -> None:
    for style, (arm, rows) in enumerate(found.items()):
        values = mean_errors(rows, measure)
        mean = np.exp(np.log(values).mean(axis=0))
        axes.plot(scales, values.T, color=COLORS[style], marker=MARKERS[style], linestyle="", markersize=3, alpha=0.5)
        axes.plot(scales, mean, color=COLORS[style], linestyle=DASHES[style], linewidth=1.6, label=arm)
        if style == 0:
            line = mean[0] * np.array(scales) / scales[0]
            axes.plot(scales, line, color=GRAY, linestyle=":", linewidth=1.4, label="slope of the bound")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(scales, [_scale(scale) for scale in scales])
    axes.xaxis.set_minor_locator(NullLocator())


def _draw_runs(axes: Axes, rows: Sequence[Sequence[Row]], scales: Sequence[float], measure: str) -> None:
    for number, (scale, runs) in enumerate(zip(scales, rows)):
        values = np.array([_along(row, measure) for row in runs])
        share = np.mean([row["step"] for row in runs], axis=0) / runs[0]["steps"]
        shade = str(0.75 * number / max(len(scales) - 1, 1))
        mean = np.exp(np.log(np.maximum(values, 1e-12)).mean(axis=0))
        axes.plot(share, mean, color=shade, linewidth=1.2, label=f"eps^2 = {_scale(scale)}")
    axes.set_yscale("log")


def _along(row: Row, measure: str) -> NDArray[np.float64]:
    if measure == "relative":
        return np.array(row["error"], dtype=np.float64) / np.array(row["size"], dtype=np.float64)
    return np.array(row[measure], dtype=np.float64)


def _words(found: Found, scales: Sequence[float]) -> list[str]:
    """Return what the numbers show, in words that depend on the numbers."""
    lines = []
    for arm, rows in found.items():
        relative, absolute = (exponent(rows, scales, measure) for measure in ("relative", "error"))
        means = np.exp(np.log(mean_errors(rows, "relative")).mean(axis=0))
        lines.append(
            f"- **{arm.capitalize()}.** As the step sizes shrink by a factor of {scales[0] / scales[-1]:g}, the "
            f"error of s relative to its size goes from {means[0]:.2g} to {means[-1]:.2g}. It falls as eps^2 to the "
            f"power {relative} (bound 1): {verdict(-relative, -1.0)}. Without the division by the size: {absolute}, "
            f"{verdict(-absolute, -1.0)}."
        )
    return lines


def _exponent_table(found: Found, scales: Sequence[float]) -> list[str]:
    head = ["pooling, state", "measured", "exponent in eps^2", "bound", "verdict"]
    rows = []
    for arm, runs in found.items():
        for measure, words in MEASURES.items():
            fit = exponent(runs, scales, measure)
            rows.append([arm, words, str(fit), "1", verdict(-fit, -1.0)])
    return table(head, rows)


def _mean_table(found: Found, scales: Sequence[float]) -> list[str]:
    head = ["pooling, state", "eps^2", "steps", *(f"{words}" for words in MEASURES.values())]
    rows = []
    for arm, cells in found.items():
        for number, scale in enumerate(scales):
            means = [np.exp(np.log(mean_errors(cells, measure)[:, number]).mean()) for measure in MEASURES]
            rows.append([arm, _scale(scale), f"{cells[number][0]['steps']:,}", *(f"{mean:.3g}" for mean in means)])
    return table(head, rows)


def _setting(found: Found, *, data: str, bags: Bags) -> list[str]:
    first = next(iter(found.values()))[0][0]
    return [
        f"- Data: {data}, all its {len(bags)} bags, {int(bags.sizes.min())} to {int(bags.sizes.max())} instances, "
        f"{int(np.median(bags.sizes))} in the median; 4 drawn a bag, 8 bags of each class a step.",
        "- At eps^2 = 1 the step sizes are the paper's: lr 0.1, gamma0 0.9, eta' 1, and 0.9 for the weight of the new "
        "gradient. All four are multiplied by eps^2, without decay, and the steps are those of the theorem, "
        f"{first['steps']} / eps^4. A bag's first visit, and a visit that draws the whole bag, take the sample as it "
        "is.",
        "- Error: |s_i - f_1(w; X_i)|^2 in the paper's space, s = exp(l) for smoothed-max and (exp(l) r, exp(l)) for "
        "attention, between forward pass and update of a step, mean over all bags, visited in that step or not, and "
        "over 64 steps, one drawn from each 64th part of the run. A bag before its first visit has s = 0.",
        "- 'Printed' is the state of the paper, of which the theorem speaks. 'Relative' is the state of `vrsp`, the "
        "default of `midam fit`: l and r relative to the level of the step. Its s is the remembered row plus the level "
        "of the measured step, which is that of the samples of 16 bags and so varies from step to step by itself.",
        "- The relative error divides by the mean of |f_1|^2 over the same bags and steps. The proof's bound is in "
        "proportion to the square of B_{f_1}, a fixed bound on |f_1|; the sizes met here grow as the model learns, and "
        "runs with smaller step sizes are longer. Division by the size takes this growth out. The score's error is "
        "what Lemma 1 bounds by that of s; it is taken over the bags visited so far.",
        "- Exponents are least-squares slopes in log-log, means over the seeds, with 95% t intervals over the "
        f"seeds; verdict with {TOLERANCE:.0%} of the exponent as tolerance. The table of all runs gives geometric "
        "means over the seeds.",
    ]


def _scale(scale: float) -> str:
    return "1" if scale == 1 else f"1/{1 / scale:g}"
