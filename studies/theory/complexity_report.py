"""Page and figure of the study of complexity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from midam.methods.store import Row
from midam.report.figures import GRAY, new_figure
from studies.drawing import COLORS, DASHES, MARKERS, add_legend, save_figure
from studies.page import table
from studies.theory.exponents import TOLERANCE, Exponent, fit_exponent, verdict
from studies.theory.stationary import NUM_BAGS, NUM_FEATURES, NUM_INSTANCES, STEP_SIZES, Cell
from studies.theory.step_cost import MEASURED, Timing

_AXES: dict[str, Callable[[Cell], float]] = {
    "D / S": lambda cell: cell.bags_per_batch,
    "B": lambda cell: float(cell.instances),
    "eps": lambda cell: cell.eps2**0.5,
}
_FLAT = 0.02
_BLOCKS = 10
_BUILT = (
    "**What this is no proof of.** The step sizes are those of the proof, and they make the steps follow the bound "
    "nearly by construction: the sweeps show that these sizes suffice, not that they are needed."
)


@dataclass(frozen=True)
class Sweep:
    """Runs along one axis, with everything else constant."""

    title: str  # In the table and in the figure
    axis: str  # Parameter that varies
    bound: float  # Exponent of T in this parameter, by the theorem
    cells: tuple[Cell, ...]  # Cells with one pooling and one seed

    @property
    def x(self) -> list[float]:
        """Return the values along the axis."""
        return [_AXES[self.axis](cell) for cell in self.cells]


@dataclass(frozen=True)
class Outcome:
    """Rows of a sweep for one pooling: a list for each cell, with a row for each seed."""

    pooling: str
    sweep: Sweep
    rows: Sequence[Sequence[Row]]

    def values(self, name: str) -> NDArray[np.float64]:
        """Return `steps` or `first` of all runs, [seeds, cells]; NaN if it was not reached."""
        found = [[np.nan if row[name] is None else row[name] for row in cell] for cell in self.rows]
        return np.array(found, dtype=np.float64).T

    def exponent(self, name: str) -> Exponent | None:
        """Return the fitted exponent; None if any run did not reach the bound."""
        values = self.values(name)
        return None if np.isnan(values).any() else fit_exponent(self.sweep.x, values)

    @property
    def verdict(self) -> str:
        """Return the verdict on the theorem's T."""
        fit = self.exponent("steps")
        if fit is None:
            values = self.values("steps")
            return f"open: {int(np.isnan(values).sum())} of {values.size} runs did not get there"
        # T increases for smaller eps: the bound is for the exponent in 1 / eps.
        rising = self.sweep.axis != "eps"
        return verdict(fit if rising else -fit, self.sweep.bound if rising else -self.sweep.bound)


def body(timings: Sequence[Timing], outcomes: Sequence[Outcome], *, figure: str) -> list[str]:
    """Return the lines of the page, below its head."""
    return [
        *_words(timings, outcomes),
        "",
        f"![Time of a step, and steps to a stationary point]({figure})",
        "",
        "## Cost of a step",
        "",
        MEASURED,
        "",
        *_cost_table(timings),
        "",
        "## Steps to a stationary point",
        "",
        *_setting(outcomes),
        "",
        *_sweep_table(outcomes),
        "",
        *_reading(outcomes),
        "",
        "## All runs",
        "",
        *_median_table(outcomes),
    ]


def cost_exponent(timings: Sequence[Timing], estimator: str) -> Exponent:
    """Return the exponent of the time of a step in the bag size; medians of blocks of steps replace seeds."""
    own = [timing for timing in timings if timing.estimator == estimator]
    count = min(_BLOCKS, *(len(timing.ms) for timing in own))
    medians = [[np.median(block) for block in np.array_split(timing.ms, count)] for timing in own]
    return fit_exponent([timing.size for timing in own], np.array(medians).T)


def cost_verdict(timings: Sequence[Timing]) -> str:
    """Return the verdict on the claim that the cost of a step does not depend on the bag size."""
    fit = cost_exponent(timings, "vrsp")
    if fit.low > _FLAT:
        return "not flat"
    return "flat" if fit.low >= -_FLAT and fit.high <= _FLAT else "open: the times scatter too much"


def draw(timings: Sequence[Timing], outcomes: Sequence[Outcome], path: Path) -> None:
    """Draw the time of a step against the bag size, and the steps against each axis."""
    sweeps = [outcome.sweep for outcome in outcomes if outcome.pooling == outcomes[0].pooling]
    panels = 1 + len(sweeps)
    columns = 4
    figure = new_figure((3.1 * columns, 2.9 * -(-panels // columns) + 0.6))
    axes = figure.subplots(-(-panels // columns), columns, squeeze=False).ravel()
    _draw_cost(axes[0], timings)
    for panel, sweep in zip(axes[1:], sweeps):
        _draw_sweep(panel, [outcome for outcome in outcomes if outcome.sweep is sweep])
    for unused in axes[panels:]:
        unused.set_axis_off()
    add_legend(figure, columns=5)
    save_figure(figure, path)


def _draw_cost(axes: Axes, timings: Sequence[Timing]) -> None:
    for style, estimator in ((2, "vrsp"), (3, "exact")):
        own = [timing for timing in timings if timing.estimator == estimator]
        axes.plot(
            [timing.size for timing in own],
            [np.median(timing.ms) for timing in own],
            color=COLORS[style],
            marker=MARKERS[style],
            linestyle=DASHES[style],
            label=f"{estimator}: time of a step",
        )
    axes.set(xscale="log", yscale="log", xlabel="Instances a bag", ylabel="ms a step")
    axes.set_title("Time of a step", loc="left", fontweight="bold", fontsize=10)


def _draw_sweep(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    for style, outcome in enumerate(outcomes):
        x, steps = np.array(outcome.sweep.x), outcome.values("steps")
        axes.plot(x, steps.T, color=COLORS[style], marker=MARKERS[style], linestyle="", markersize=3, alpha=0.5)
        mean = np.exp(np.log(steps).mean(axis=0))
        name = f"{outcome.pooling} (line: geometric mean)"
        axes.plot(x, mean, color=COLORS[style], linestyle=DASHES[style], linewidth=1.6, label=name)
        bound = mean[0] * (x / x[0]) ** outcome.sweep.bound
        if style == 0:
            axes.plot(x, bound, color=GRAY, linestyle=":", linewidth=1.4, label="slope of the bound")
    axes.set(xscale="log", yscale="log", xlabel=outcomes[0].sweep.axis, ylabel="Steps T")
    axes.set_xticks(outcomes[0].sweep.x, [f"{value:.2g}" for value in outcomes[0].sweep.x])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(outcomes[0].sweep.title, loc="left", fontweight="bold", fontsize=9)


def _words(timings: Sequence[Timing], outcomes: Sequence[Outcome]) -> list[str]:
    """Return what the numbers show, in words that depend on the numbers."""
    own = [timing for timing in timings if timing.estimator == "vrsp"]
    first, last = float(np.median(own[0].ms)), float(np.median(own[-1].ms))
    whole = [float(np.median(timing.ms)) for timing in timings if timing.estimator == "exact"]
    lines = [
        f"- **Cost of a step: {cost_verdict(timings)}.** From {own[0].size:,} to {own[-1].size:,} instances a bag the "
        f"step of `vrsp` goes from {first:.2f} to {last:.2f} ms, that of `exact` from {whole[0]:.2f} to "
        f"{whole[-1]:,.0f} ms."
    ]
    for sweep in dict.fromkeys(outcome.sweep for outcome in outcomes):
        found = "; ".join(
            f"{outcome.pooling} {outcome.exponent('steps') or '-'}, {outcome.verdict}"
            for outcome in outcomes
            if outcome.sweep is sweep
        )
        lines.append(f"- **{sweep.title}**, bound {sweep.bound:g}: {found}.")
    return [*lines, f"- {_BUILT}"]


def _cost_table(timings: Sequence[Timing]) -> list[str]:
    sizes = list(dict.fromkeys(timing.size for timing in timings))
    head = ["estimator", *(f"{size:,} instances a bag, ms" for size in sizes), "exponent", "steps timed"]
    rows = []
    for estimator in dict.fromkeys(timing.estimator for timing in timings):
        own = [timing for timing in timings if timing.estimator == estimator]
        counts = sorted({len(timing.ms) for timing in own}, reverse=True)
        cells = [f"{np.median(timing.ms):.3g}" for timing in own]
        rows.append([f"`{estimator}`", *cells, str(cost_exponent(own, estimator)), " or ".join(map(str, counts))])
    note = (
        f"Medians. Exponent: slope of log time on log size, 95% t interval over the medians of {_BLOCKS} "
        f"blocks of steps (fewer where fewer steps were timed). Flat: the interval of `vrsp` lies within "
        f"{_FLAT} of 0, a factor of {10 ** (4 * _FLAT):.1f} over four decades."
    )
    return [*table(head, rows), "", note]


def _sweep_table(outcomes: Sequence[Outcome]) -> list[str]:
    head = ["varied", "pooling", "range", "exponent of T", "bound", "verdict", "exponent of the first step below eps"]
    rows = []
    for outcome in outcomes:
        x = outcome.sweep.x
        cells = [f"{min(x):.2g} to {max(x):.2g}", str(outcome.exponent("steps") or "-"), f"{outcome.sweep.bound:g}"]
        first = str(outcome.exponent("first") or "not all runs got there")
        rows.append([outcome.sweep.title, outcome.pooling, *cells, outcome.verdict, first])
    return table(head, rows)


def _median_table(outcomes: Sequence[Outcome]) -> list[str]:
    head = [
        "varied",
        "pooling",
        "value",
        "eta",
        "gamma0",
        "beta1 = eta'",
        "eta set by",
        "T, median",
        "T, range",
        "clips",
    ]
    rows = []
    for outcome in outcomes:
        for value, runs, steps in zip(outcome.sweep.x, outcome.rows, outcome.values("steps").T):
            one = runs[0]
            rates = [f"{one['eta']:.3g}", f"{one['gamma0']:.3g}", f"{one['beta1']:.3g}", one["decided"]]
            reached = steps[~np.isnan(steps)]
            spread = f"{reached.min():,.0f} to {reached.max():,.0f}" if reached.size else "-"
            spread += f", {len(steps) - reached.size} not reached" if reached.size < len(steps) else ""
            # A run that did not reach the bound counts as longer than all others.
            middle = np.median(np.nan_to_num(steps, nan=np.inf))
            clips = str(sum(row["clips"] for row in runs))
            named = [outcome.sweep.title, outcome.pooling, f"{value:.3g}"]
            rows.append([*named, *rates, f"{middle:,.0f}", spread, clips])
    return table(head, rows)


def _setting(outcomes: Sequence[Outcome]) -> list[str]:
    seeds = len(outcomes[0].rows[0])
    return [
        f"{NUM_BAGS} bags of each class, and copies of them, hold {NUM_INSTANCES} normal instances of {NUM_FEATURES} "
        "features; the scorer has one hidden layer of 4 tanh units; float64, no weight decay. Copies add bags and "
        "leave Phi as it is. Training uses the library's `VarianceReduced`, `MinMaxAUCLoss` and `train_step`, "
        "linearized at s^{t-1} as Algorithm 1 prints it, except for the last sweep, which takes s^t, the library's "
        "default. A bag's first visit takes the sample as it is.",
        "",
        STEP_SIZES,
        "",
        "T is the number of steps after which the mean of the squared gradient norm of Phi over all steps so far is at "
        "most eps^2. This is what the proof bounds. The gradient of Phi is computed over all instances of all bags, "
        "with alpha at its maximum in closed form. A run that is not there after 20 / (eta eps^2) steps has step sizes "
        "that are too large for its eps; no exponent is fitted then.",
        "",
        f"Exponents are least-squares slopes in log-log, means over {seeds} seeds, with 95% t intervals over "
        f"the seeds. Verdict: the interval lies below the bound's exponent (no worse) or above it (worse), with "
        f"{TOLERANCE:.0%} of the exponent as tolerance, since a fit over a finite range cannot tell constants and "
        "terms of lower order from the exponent.",
    ]


def _reading(outcomes: Sequence[Outcome]) -> list[str]:
    decided = {row["decided"] for outcome in outcomes for cell in outcome.rows for row in cell}
    only = decided == {"gamma0 S / D"}
    return [
        "How to read it:",
        "",
        "- The bound is an upper one, and its step sizes make T follow it: eta falls as S / D, as B and as eps^2 do. "
        "The measurement shows that these step sizes are small enough to get there, not that they are needed.",
        "- The proof gives the factors D / S and 1 / B only where the term gamma0 S / D is the smallest in eta; here "
        f"it is {'in every run' if only else 'in some runs only (last table)'}. Where beta1 or eta' decide, eta holds "
        "neither S, D nor B, and the bound is eps^-4 alone.",
        "- The words of the theorem give gamma0 = O(eps^2) and eta = O(S / D eps^2), without B. The sweep 'gamma0 "
        "without B' takes them at their word (the values of B = 4 at any B): what it gains from a larger B is what the "
        "1 / B of the theorem would have to come from.",
    ]
