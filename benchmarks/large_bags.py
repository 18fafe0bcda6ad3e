"""Training on 200 bags of 50 000 real digits at a witness rate of 0.2%: AUROC of the estimators at equal time.

    python benchmarks/large_bags.py --write

An instance is one of the 8x8 digits of scikit-learn (64 float16); a positive bag has 100 nines among 50 000 digits, a
negative bag has none. Training and test bags share no image; each repeat has other images, bags and initial weights.
The bags are in a store on the disk and are read as the trainer reads them.

Each pooling is a separate study; both are measured at the same time, each in one process. Every method has the same
settings: minmax-auc, one member, 16 bags in a step, 64 instances of a bag, and a constant learning rate, because a
training that the clock ends has no known last epoch.

- `vrsp`: the tracked state, empty until the first visit of a bag.
- `minibatch`: the pooling of the drawn instances.
- `top`: `minibatch` with `--draw top` and annealing. Its schedule uses the number of epochs that fit into the time
  without a pass over the bags. A trial of a twentieth of the time, which does not count, predicts it. In the first
  half, the contest grows and the weights become sharper, then one pass, which counts, fills the score memory.

The first two have the default learning rate, which was chosen on small bags. The others have the rate that
`python benchmarks/large_bags.py --choose` chose for their pooling: on bags of seed 100, which is in no figure,
`minibatch` takes 5000 steps at each of the rates 0.1, 0.2, 0.5 and 1. The rate with the highest AUROC on 40 extra bags
of that seed is chosen, at a tie the lowest rate. A training that diverges counts as chance.

The clock runs only while a method trains, not while it is built or test bags are scored. The methods take turns from
one mark of the clock to the next, so that other load of the machine affects all methods equally. A step or pass that is
not finished at a mark is completed first; the last column gives the time of the longest training. `exact-point`, which
streams whole bags, was measured for an earlier page (commit 47d55a5): after 45 s it was clearly worse than `vrsp` with
attention.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.large_bags_training import (
    CHOSEN,
    METHODS,
    POOLINGS,
    QUICK,
    QUICK_CHOICE,
    Choice,
    Plan,
    choose_rates,
    run_repeat,
)
from benchmarks.shared import RESULTS, AnonymousPeak, measured_on

from midam.report.figures import add_legend, new_figure
from midam.settings import Settings
from studies.drawing import COLORS, MARKERS, save_figure

PAGE = RESULTS / "large-bags.md"
LIMIT_GIB = 4
AIM = 0.95
# Methods with the same learning rate: the first minus each of the others.
GROUPS = tuple([name for name, method in METHODS.items() if method.tuned == tuned] for tuned in (False, True))
PAIRS = [(names[0], other) for names in GROUPS for other in names[1:]]
_TUNED = ", chosen lr"


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean over the repeats, and half of its 95% t interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def column(rows: list[dict[str, Any]], method: str, mark: float, name: str = "auroc") -> NDArray[np.float64]:
    """Return one figure of all repeats, in their order."""
    found = [(r["repeat"], r[name]) for r in rows if (r["method"], r["mark"]) == (method, mark)]
    return np.array([value for _, value in sorted(found)], dtype=np.float64)


def table(rows: list[dict[str, Any]], plan: Plan) -> list[str]:
    """Return Markdown tables of one pooling: AUROC, paired differences, steps."""
    head, line = " | ".join(f"{mark:g} s" for mark in plan.marks), "|---" + "|---:" * len(plan.marks) + "|"
    lines = [f"| AUROC of the test bags | {head} |", line]
    for method in METHODS:
        found = [interval(column(rows, method, mark)) for mark in plan.marks]
        lines.append(f"| {method} | {' | '.join(f'{mean:.3f} ± {half:.3f}' for mean, half in found)} |")
    lines += ["", f"| difference | {head} |", line]
    for first, other in PAIRS:
        found = [interval(column(rows, first, mark) - column(rows, other, mark)) for mark in plan.marks]
        values = " | ".join(f"{mean:+.3f} ± {half:.3f}" for mean, half in found)
        lines.append(f"| `{first}` minus `{other}` | {values} |")
    lines += ["", f"| steps, mean | {head} | CPU seconds at the end | longest training, s |", f"{line}---:|---:|"]
    for method in METHODS:
        steps = [f"{column(rows, method, mark, 'steps').mean():.0f}" for mark in plan.marks]
        cpu, wall = (column(rows, method, plan.marks[-1], name) for name in ("cpu_s", "seconds"))
        lines.append(f"| {method} | {' | '.join(steps)} | {cpu.mean():.1f} | {wall.max():.1f} |")
    return lines


def of_pooling(rows: list[dict[str, Any]], pooling: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["pooling"] == pooling]


def verdicts(rows: list[dict[str, Any]], plan: Plan, peak_mib: float) -> list[str]:
    """Return what the rows show."""
    said = []
    end = plan.marks[-1]
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        own = of_pooling(rows, pooling)
        reached = {name: interval(column(own, name, end)) for name in METHODS}
        for word, met in {"Met": True, "Missed": False}.items():
            parts = [f"`{name}` {m:.3f} ± {half:.3f}" for name, (m, half) in reached.items() if (m >= AIM) == met]
            said.append(f"- {pooling.capitalize()}, AUROC of at least {AIM} after {end:g} s. {word}: {_joined(parts)}.")
        parts = []
        for first, other in PAIRS:
            mean, half = interval(column(own, first, end) - column(own, other, end))
            kind = "open: the interval holds 0" if abs(mean) <= half else "higher" if mean > 0 else "lower"
            parts.append(f"`{first}` minus `{other}` {mean:+.3f} ± {half:.3f} ({kind})")
        said.append(f"- {pooling.capitalize()}, differences of AUROC after {end:g} s: {_joined(parts)}.")
    good = "Met" if peak_mib < LIMIT_GIB * 1024 else "Missed"
    said.append(
        f"- Highest anonymous memory of a process, libraries and writing of the stores included: {peak_mib:.0f} MiB. "
        f"Aim: under {LIMIT_GIB} GiB. {good}."
    )
    return said


def _joined(parts: list[str]) -> str:
    return "; ".join(parts) or "none"


def draw(rows: list[dict[str, Any]], plan: Plan, path: Path) -> None:
    """Draw AUROC against time, with intervals and a panel for each pooling; filled: at the chosen learning rate."""
    poolings = list(dict.fromkeys(row["pooling"] for row in rows))
    figure = new_figure((1.2 + 4.2 * len(poolings), 4.6))
    kinds = list(dict.fromkeys(method.removesuffix(_TUNED) for method in METHODS))
    for axes, pooling in zip(figure.subplots(1, len(poolings), squeeze=False, sharey=True)[0], poolings):
        for place, (name, method) in enumerate(METHODS.items()):
            found = np.array([interval(column(of_pooling(rows, pooling), name, mark)) for mark in plan.marks])
            # Small distances, so that no interval hides another.
            marks = np.array(plan.marks) * (1 + 0.04 * (place - len(METHODS) // 2))
            style = kinds.index(name.removesuffix(_TUNED))
            look = {"color": COLORS[style], "marker": MARKERS[style], "linestyle": "-" if method.tuned else ":"}
            face = COLORS[style] if method.tuned else "white"
            axes.errorbar(*(marks, *found.T), label=name, capsize=3, lw=1.6, markersize=5, mfc=face, **look)
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
    """Return the results page."""
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
            f"{plan.repeats} repeats, seeds 0 to {plan.repeats - 1}, paired. gamma0 of vrsp: "
            f"{Settings().method.state_rate:g}.",
            f"- Learning rate: {Settings().resolve((1,)).training.lr:g} by default; chosen: "
            f"{', '.join(f'{rate:g} with {pooling}' for pooling, rate in CHOSEN.items())}.",
            "- ±: half of the 95% t interval over the repeats. They share the collection of digits.",
            "",
            *tables,
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def measure(plan: Plan, pooling: str, scratch: Path | None) -> dict[str, Any]:
    """Return the rows of all repeats of a pooling, and the highest anonymous memory."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with AnonymousPeak(every_s=0.02) as memory:
        for number in range(plan.repeats):
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                rows += run_repeat(Path(folder), plan, pooling, number)
    return {"rows": rows, "anonymous_mib": memory.mib}


def choose(choice: Choice, scratch: Path | None) -> None:
    """Choose the learning rates and print them."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        print(json.dumps(choose_rates(Path(folder), choice)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--write", action="store_true", help="write records/large-bags.md and its figure")
    parser.add_argument("--quick", action="store_true", help="small bags and short times (not for the page)")
    parser.add_argument("--choose", action="store_true", help="choose the learning rates, and measure nothing")
    parser.add_argument("--pooling", choices=POOLINGS, action="append", help="only this one")
    parser.add_argument("--measured", type=Path, nargs="+", metavar="FILE", help="take the rows of earlier calls")
    parser.add_argument("--scratch", type=Path, help="folder for the stores, 1.6 GB a pooling (default: the system's)")
    options = parser.parse_args()
    if options.choose:
        choose(QUICK_CHOICE if options.quick else Choice(), options.scratch)
        return
    plan = QUICK if options.quick else Plan()
    if options.measured:
        parts = [json.loads(path.read_text(encoding="utf-8")) for path in options.measured]
    else:
        poolings = options.pooling or POOLINGS
        with ProcessPoolExecutor(len(poolings), mp_context=multiprocessing.get_context("spawn")) as pool:
            parts = list(pool.map(measure, repeat(plan), poolings, repeat(options.scratch)))
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
