"""Training on 200 bags of 50 000 real digits at a witness rate of 0.2%: AUROC of the estimators at equal time.

    python benchmarks/large_bags.py --write

An instance is one of the 8x8 digits of scikit-learn (64 float16); a positive bag holds 100 nines among 50 000 digits, a
negative one none. Training and test bags share no image; a repeat has its own images, bags and initial weights. The
bags lie in a store on the disk and are read as the trainer reads them.

Each pooling is a study of its own. Every method has the same settings: minmax-auc, one member, 16 bags a step, 64
instances a bag (drawn or back-propagated), the default learning rate, which does not fall: a training that ends by the
clock has no last epoch.
Nothing was tuned; how long to train was seen on a repeat that is not in the figures (seed 100).

- `vrsp`: the tracked state, empty until a bag's first visit. `vrsp, exact start`: the state is streamed over all bags
  first, which counts as time of training.
- `minibatch`: the pooling of the drawn instances.
- `exact-point`: the whole bags are streamed in each step, 64 instances are back-propagated.

The clock runs while a method trains: not while it is built, nor while test bags are scored. The methods take turns from
one mark of the clock to the next, so that what else the machine does falls on all alike. A step that runs when a mark
is reached is finished first, which favors `exact-point`, whose steps are long.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.large_bags_training import METHODS, POOLINGS, QUICK, Plan, run_repeat
from benchmarks.shared import RESULTS, AnonymousPeak, measured_on

from midam.report.figures import add_legend, new_figure
from midam.settings import Settings
from studies.drawing import COLORS, DASHES, MARKERS, save_figure

PAGE = RESULTS / "large-bags.md"
LIMIT_GIB = 4


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean over the repeats, and half of its 95% t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def column(rows: list[dict[str, Any]], method: str, mark: float, name: str = "auroc") -> NDArray[np.float64]:
    """One figure of all repeats, in their order."""
    found = [(r["repeat"], r[name]) for r in rows if (r["method"], r["mark"]) == (method, mark)]
    return np.array([value for _, value in sorted(found)], dtype=np.float64)


def table(rows: list[dict[str, Any]], plan: Plan) -> list[str]:
    """Markdown tables of one pooling: AUROC, paired differences, steps."""
    head = [f"{mark:g} s" for mark in plan.marks]
    lines = [f"| AUROC of the test bags | {' | '.join(head)} |", "|---" + "|---:" * len(head) + "|"]
    for method in METHODS:
        found = [interval(column(rows, method, mark)) for mark in plan.marks]
        lines.append(f"| {method} | {' | '.join(f'{mean:.3f} ± {half:.3f}' for mean, half in found)} |")
    lines += ["", f"| vrsp minus | {' | '.join(head)} |", "|---" + "|---:" * len(head) + "|"]
    for method in list(METHODS)[1:]:
        found = [interval(column(rows, "vrsp", mark) - column(rows, method, mark)) for mark in plan.marks]
        lines.append(f"| {method} | {' | '.join(f'{mean:+.3f} ± {half:.3f}' for mean, half in found)} |")
    lines += ["", "| steps, mean | " + " | ".join(head) + " | CPU seconds at the end |"]
    lines.append("|---" + "|---:" * (len(head) + 1) + "|")
    for method in METHODS:
        steps = [f"{column(rows, method, mark, 'steps').mean():.0f}" for mark in plan.marks]
        cpu = column(rows, method, plan.marks[-1], "cpu_s").mean()
        lines.append(f"| {method} | {' | '.join(steps)} | {cpu:.1f} |")
    return lines


def of_pooling(rows: list[dict[str, Any]], pooling: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["pooling"] == pooling]


def verdicts(rows: list[dict[str, Any]], plan: Plan, peak_mib: float) -> list[str]:
    """What the rows say."""
    said = []
    end = plan.marks[-1]
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        parts = []
        for method in list(METHODS)[1:]:
            own = of_pooling(rows, pooling)
            mean, half = interval(column(own, "vrsp", end) - column(own, method, end))
            kind = "open: the interval holds 0" if abs(mean) <= half else "higher" if mean > 0 else "lower"
            parts.append(f"{method} {mean:+.3f} ± {half:.3f} ({kind})")
        said.append(f"- {pooling.capitalize()}, after {end:g} s: AUROC of vrsp minus that of {', '.join(parts)}.")
    good = "Met" if peak_mib < LIMIT_GIB * 1024 else "Missed"
    said.append(
        f"- Highest anonymous memory of the process, libraries and writing of the stores included: {peak_mib:.0f} MiB. "
        f"Aim: under {LIMIT_GIB} GiB. {good}."
    )
    return said


def draw(rows: list[dict[str, Any]], plan: Plan, path: Path) -> None:
    """AUROC against time, with intervals; a panel a pooling."""
    poolings = list(dict.fromkeys(row["pooling"] for row in rows))
    figure = new_figure((1.2 + 4.2 * len(poolings), 4.3))
    for axes, pooling in zip(figure.subplots(1, len(poolings), squeeze=False, sharey=True)[0], poolings):
        for style, method in enumerate(METHODS):
            found = np.array([interval(column(of_pooling(rows, pooling), method, mark)) for mark in plan.marks])
            # A little apart, so that no interval hides another.
            marks = np.array(plan.marks) * (1 + 0.04 * (style - 1.5))
            look = {"color": COLORS[style], "marker": MARKERS[style], "linestyle": DASHES[style]}
            axes.errorbar(*(marks, found[:, 0], found[:, 1]), label=method, capsize=3, lw=1.6, markersize=5, **look)
        axes.axhline(0.5, color="#6E6E6E", lw=1, ls=":")
        axes.set(xscale="log", xlabel="Seconds of training")
        axes.set_ylim(top=1.03)
        axes.set_xticks(plan.marks, [f"{mark:g}" for mark in plan.marks])
        axes.minorticks_off()
        axes.set_title(pooling.capitalize(), loc="left", fontweight="bold")
    figure.axes[0].set_ylabel("AUROC of the test bags")
    add_legend(figure, columns=4)
    save_figure(figure, path)


def page(rows: list[dict[str, Any]], plan: Plan, peak_mib: float, command: str) -> str:
    """The results page."""
    tables = []
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        tables += [f"## {pooling.capitalize()}", "", *table(of_pooling(rows, pooling), plan), ""]
    return "\n".join(
        [
            "# Training on bags of 50 000 instances",
            "",
            *verdicts(rows, plan, peak_mib),
            "",
            "![AUROC of the test bags against seconds of training](large-bags.png)",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}; one thread computes, two read ahead. The tables give the CPU seconds that each method "
            "got: other work on the machine lowers them.",
            f"- {plan.counts.train} training and {plan.counts.test} test bags, half of them positive; "
            f"{plan.repeats} repeats, seeds 0 to {plan.repeats - 1}, paired. Learning rate "
            f"{Settings().resolve((1,)).training.lr:g}; gamma0 of vrsp: {Settings().method.state_rate:g}.",
            "- ±: half of the 95% t interval over the repeats. They share the collection of digits.",
            "",
            *tables,
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def measure(plan: Plan, poolings: list[str], scratch: Path | None) -> dict[str, Any]:
    """Rows of all repeats, and the highest anonymous memory."""
    rows: list[dict[str, Any]] = []
    with AnonymousPeak(every_s=0.02) as memory:
        for pooling in poolings:
            for repeat in range(plan.repeats):
                folder = Path(tempfile.mkdtemp(dir=scratch))
                try:
                    rows += run_repeat(folder, plan, pooling, repeat)
                finally:
                    shutil.rmtree(folder)
    return {"rows": rows, "anonymous_mib": memory.mib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--write", action="store_true", help="write docs/results/large-bags.md and its figure")
    parser.add_argument("--quick", action="store_true", help="small bags and short times (not for the page)")
    parser.add_argument("--pooling", choices=POOLINGS, action="append", help="only this one")
    parser.add_argument("--measured", type=Path, nargs="+", metavar="FILE", help="take the rows of earlier calls")
    parser.add_argument("--scratch", type=Path, help="folder for the store, 1.7 GB (default: the system's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = QUICK if options.quick else Plan()
    if options.measured:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.measured]
    else:
        parts = [measure(plan, options.pooling or list(POOLINGS), options.scratch)]
    found = {"rows": [row for part in parts for row in part["rows"]]}
    found["anonymous_mib"] = max(part["anonymous_mib"] for part in parts)
    print("\n".join(verdicts(found["rows"], plan, found["anonymous_mib"])))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.write:
        measured = dict.fromkeys(row["pooling"] for row in found["rows"])
        only = [] if len(measured) == len(POOLINGS) else [f"--pooling {pooling}" for pooling in measured]
        command = " ".join(["python benchmarks/large_bags.py", *only, "--write"])
        PAGE.write_text(page(found["rows"], plan, found["anonymous_mib"], command), encoding="utf-8")
        draw(found["rows"], plan, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
