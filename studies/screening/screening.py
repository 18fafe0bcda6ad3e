"""`python -m studies screening`: objectives for screening: few bags are positive, few false alarms are allowed.

**Question.** 5% of the bags are positive, and a test is wanted at a specificity of 95%. Do objectives of that part of
the curve, partial AUC one-way and two-way, and average precision find more of the positive bags there than the AUC
objective that midam trains by default? What do they cost elsewhere?

**Rule of decision**, fixed before the run. The metric that decides is the sensitivity at a specificity of at least 95%
on 2000 test bags. An objective is ahead of `minmax-auc` if the mean difference over the ten seeds, paired, has a 95%
t interval above 0, and behind if it lies below. Average precision and AUROC are told by the same rule. Six objectives
are compared, so in one such study of seven one would be ahead by chance. Each has its own learning rate, of the
highest mean sensitivity on three seeds that are not among the ten. The default objective stays whatever is found: it is
for rankings, and the page says for what another one serves better.

**Size.** 400 training bags (20 positive) of 20 digits, one nine in a positive bag, 8 instances a bag and step, 60
epochs: of the sizes that were tried on the seeds of the choice, one where trainings neither all succeed nor all fail.
On these seeds `fpr_temperature` 0.2 and `pair_rate` 0.9, the defaults, were set too. Some minutes on one core.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.methods.store import Row
from midam.report.figures import new_figure
from studies.differences import left_after_holm
from studies.drawing import COLORS, DASHES, add_legend, save_figure
from studies.engine import Store
from studies.options import StudyOptions
from studies.page import figure_path, section, table, write_page
from studies.registry import as_study
from studies.screening.trials import (
    FALSE_ALARMS,
    FULL,
    GRID,
    METRICS,
    QUICK,
    REFERENCE,
    RULES,
    SECTION,
    SMALLER,
    Design,
    image_share,
    outcomes,
    run_trials,
)
from studies.split_statistics import Estimate, paired_interval

_WORDS = {
    "sensitivity": "sensitivity at 95% specificity",
    "average_precision": "average precision",
    "auroc": "AUROC",
}
_SHOWS = (
    "A screening test has few positive bags and may give few false alarms. Objectives of that part of the curve were "
    "trained beside the AUC objective, on bags of digits of which 5% hold a nine. Sensitivity is that at a specificity "
    "of at least 95%."
)
_LINES = (*COLORS, "#7F7F7F")
_DASHES = (*DASHES, (0, (1, 2)))


@dataclass(frozen=True)
class Found:
    """Results of the trials: for each rule its learning rate, its metrics [seeds] and its curves [seeds, rates]."""

    rates: dict[str, float]
    metrics: dict[tuple[str, str], NDArray[np.float64]]  # by rule and metric
    curves: dict[str, NDArray[np.float64]]

    def difference(self, rule: str, metric: str) -> NDArray[np.float64]:
        """Return the metric of a rule minus the metric of `minmax-auc`, for each seed."""
        difference: NDArray[np.float64] = self.metrics[rule, metric] - self.metrics[REFERENCE.name, metric]
        return difference

    def interval(self, rule: str, metric: str) -> Estimate:
        """Return the mean of `difference` and its 95% t interval."""
        return paired_interval(self.metrics[rule, metric], self.metrics[REFERENCE.name, metric])


@as_study("objectives for few positive bags and few false alarms: partial AUC, average precision", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""
    part, design = ("", FULL)
    if options.quick or options.smaller:
        part, design = ("-smaller", SMALLER) if options.smaller else ("-quick", QUICK)
    with Store(options.cache, f"{SECTION}{part}") as store:
        found = _collect(design, store, run_trials(design, store=store, options=options))
        figure = figure_path(options, SECTION)
        _plot(found, figure)
        write_page(
            options,
            SECTION,
            title="Objectives for screening",
            shows=_SHOWS,
            seeds=f"{design.seeds[0]} to {design.seeds[-1]}, of images, bags, weights and draws; rates chosen on "
            f"{', '.join(map(str, design.choice_seeds))}",
            seconds=store.wall_time(),
            store=store,
            body=_body(found, design, figure.name),
        )


def _collect(design: Design, store: Store, rates: dict[str, float]) -> Found:
    rows: dict[str, list[Row]] = {
        rule.name: outcomes(design, store, rule, rates[rule.name], design.seeds) for rule in RULES
    }
    metrics = {(name, m): np.array([row[m] for row in own]) for name, own in rows.items() for m in METRICS}
    return Found(rates, metrics, {name: np.array([row["curve"] for row in own]) for name, own in rows.items()})


def _body(found: Found, design: Design, figure: str) -> Iterator[str]:
    """Yield the lines of the page below its head."""
    yield "**In short.**"
    yield ""
    for metric, words in _WORDS.items():
        yield f"- {words[0].upper()}{words[1:]}: {_told(found, metric)}"
    yield from ("", f"![Sensitivity by false positive rate, and differences to minmax-auc]({figure})", "")
    yield (
        "Left, mean sensitivity by the false positive rate; the line stands at 5%. Right, sensitivity there minus that "
        "of `minmax-auc`, a dot a seed, with the mean and its 95% interval. The curves have steps because one test "
        f"image stands in {image_share(design):.0%} of the negative bags: a single one that passes for a nine costs as "
        "much specificity."
    )
    yield ""
    head = ["objective", "learning rate", *_WORDS.values()]
    means = [
        [rule.name, f"{found.rates[rule.name]:g}", *(f"{found.metrics[rule.name, m].mean():.3f}" for m in METRICS)]
        for rule in RULES
    ]
    differences = [[rule.name, *(_marked(found.interval(rule.name, m)) for m in METRICS)] for rule in RULES[1:]]
    yield from section("Means over the seeds", table(head, means))
    single = {f"{rule.name}, {_WORDS[m]}": found.interval(rule.name, m) for rule in RULES[1:] for m in METRICS}
    left = left_after_holm(single, freedom=len(design.seeds) - 1)
    yield from section(
        "Minus minmax-auc",
        f"Mean paired difference and its 95% t interval, in bold where it does not hold 0. {left}",
        table(["objective", *_WORDS.values()], differences),
    )
    yield from section(
        "How",
        f"{sum(design.train)} training bags ({design.train[0]} positive) and {sum(design.test)} test bags "
        f"({design.test[0]} positive) of {design.size} digits, one nine in a positive bag. `vrsp` with smoothed-max, a "
        f"hidden layer of 32, 8 + 8 bags of 8 instances a step, {design.epochs} epochs of Adam. The learning rate of "
        f"each is that of {', '.join(f'{rate:g}' for rate in design.rates)} with the highest mean sensitivity on the "
        f"seeds {', '.join(map(str, design.choice_seeds))}, on which the defaults of `fpr_temperature` and "
        "`pair_rate` were set too. A training that diverged finds nothing. Ahead is an objective whose interval lies "
        "above 0: six are compared, so that in one such study of seven one would be ahead by chance.",
    )


def _told(found: Found, metric: str) -> str:
    """Return a sentence on the objectives that are ahead of the reference, and those that are not."""
    named: dict[str, list[str]] = {"ahead": [], "behind": [], "": []}
    for rule in RULES[1:]:
        estimate = found.interval(rule.name, metric)
        side = "ahead" if estimate.low > 0 else "behind" if estimate.high < 0 else ""
        named[side].append(f"`{rule.name}` {estimate:+}")
    said = [
        f"{', '.join(named[side]) or 'none'} {words}"
        for side, words in (("ahead", "ahead"), ("behind", "behind"), ("", "not told apart"))
        if named[side] or side == "ahead"
    ]
    own = found.metrics[REFERENCE.name, metric].mean()
    return f"`{REFERENCE.name}` {own:.3f}; {'; '.join(said)}."


def _marked(estimate: Estimate) -> str:
    return f"{estimate:+}" if estimate.holds(0.0) else f"**{estimate:+}**"


def _plot(found: Found, path: Path) -> None:
    """Draw the curves at low false positive rates, and the paired differences in sensitivity."""
    figure = new_figure((9.2, 4.2))
    curves, dots = figure.subplots(1, 2, width_ratios=(1, 1))
    for rule, color, dash in zip(RULES, _LINES, _DASHES):
        curves.plot(GRID, found.curves[rule.name].mean(axis=0), color=color, linestyle=dash, label=rule.name)
    curves.axvline(FALSE_ALARMS, color="#B0B0B0", linewidth=1)
    curves.set(xlabel="false positive rate", ylabel="sensitivity", xlim=(0, GRID[-1]), ylim=(0, 1))
    for line, (rule, color) in enumerate(zip(RULES[1:], _LINES[1:])):
        own, estimate = found.difference(rule.name, "sensitivity"), found.interval(rule.name, "sensitivity")
        dots.scatter(own, line + np.linspace(-0.2, 0.2, len(own)), s=14, color=color, alpha=0.6, linewidths=0)
        dots.plot([estimate.low, estimate.high], [line, line], color="#202020", linewidth=1.4)
        dots.scatter([estimate.mean], [line], s=60, marker="|", color="#202020", linewidths=2)
    dots.axvline(0, color="#B0B0B0", linewidth=1)
    dots.set_yticks(range(len(RULES) - 1), [rule.name for rule in RULES[1:]])
    dots.set_ylim(len(RULES) - 1.5, -0.5)
    dots.set_xlabel("sensitivity at 95% specificity, minus minmax-auc")
    add_legend(figure, columns=4)
    save_figure(figure, path)
