"""Default attention model against LibAUC's own loop on the tabular sets, fold by fold.

Both train on the same stratified folds (10 folds, repeats with the seeds 0, 1, ...) for the same number of steps:
`midam` with one fixed configuration, its defaults; LibAUC 2.0.1 with its loss, its optimizer, its network and its
tutorial's settings (attention, lr 0.01, margin 1, gamma 0.9, momentum 0.1, weight decay 1e-4, rates divided at epochs
50 and 75, standardized features). Both are tested with the weights of the last epoch. Differences are paired by fold;
the bounds are Nadeau and Bengio's (2003).

    python benchmarks/tabular.py --repeats 5 --write

Folds that were computed before are kept (`--cache`), so a stopped run continues at its last fold.
"""

import argparse
import dataclasses
import datetime
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

sys.path.insert(0, str(Path(__file__).parents[1]))
import midam
from midam.compare.summary import corrected_interval
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.peers import LibAUCAttention
from studies.sets import catalog

SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
FOLDS = 10
EPOCHS = 100
PAGE = Path(__file__).parents[1] / "records" / "tabular.md"
MARGIN = -0.02
CHOSEN = (
    "The defaults of midam were chosen [on these five sets](defaults.md), the settings of LibAUC's tutorial were not: "
    "a difference is one of method, settings and choice together. [Each at the settings of the "
    "other](tabular-settings.md) takes them apart."
)
# LibAUC a second time, with other seeds: it shows the bound for no difference.
AGAIN, AGAIN_SEED = "libauc-again", 1000


def run_repeat(name: str, repeat: int, who: str, config: Settings) -> list[dict[str, Any]]:
    """Train one side on all folds of a repeat."""
    torch.set_num_threads(1)
    bags = catalog.load(name)
    labels = bags.require_labels()
    folds = stratified_folds(labels, folds=FOLDS, seed=repeat)
    trials = [Trial(np.flatnonzero(folds != k), np.flatnonzero(folds == k), repeat) for k in range(FOLDS)]
    if who == "midam":
        scores = [result.scores[0] for result in train_trials(config, bags, trials)]
    else:
        shift = AGAIN_SEED if who == AGAIN else 0
        scores = [
            LibAUCAttention().score(bags, dataclasses.replace(trial, seed=trial.seed + shift)) for trial in trials
        ]
    return [
        {
            **{"set": name, "repeat": repeat, "fold": fold, "who": who, "settings": settings_of(who, config)},
            "auroc": auroc(labels[trial.score], own),
            "test": len(trial.score),
            "train": len(trial.train),
        }
        for fold, (trial, own) in enumerate(zip(trials, scores, strict=True))
    ]


def compute(
    run: Callable[[str, int, str], list[dict[str, Any]]],
    sides: Mapping[str, str],
    *,
    repeats: int,
    cache: Path,
    processes: int,
) -> list[dict[str, Any]]:
    """Return the folds of all sides (names with their settings) on all sets; folds in the cache are not recomputed."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    kept = [json.loads(line) for line in cache.read_text().splitlines()] if cache.exists() else []
    rows = [row for row in kept if sides.get(row["who"]) == row["settings"] and row["repeat"] < repeats]
    count = Counter((row["set"], row["repeat"], row["who"]) for row in rows)
    jobs = [job for job in product(SETS, range(repeats), sides) if count[job] < FOLDS]
    results = Parallel(n_jobs=processes, return_as="generator_unordered")(delayed(run)(*job) for job in jobs)
    with cache.open("a") as file:
        for found in results:
            rows += found
            file.writelines(json.dumps(row) + "\n" for row in found)
            file.flush()
    return rows


def settings_of(who: str, config: Settings) -> str:
    """Return the settings with which a kept fold was computed."""
    return str(config) if who == "midam" else "tutorial"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the Markdown table of both methods."""
    lines = [
        "| set | midam | LibAUC | difference [95% interval] | one-sided 95% lower bound | above -0.02 "
        "| bound of LibAUC against itself |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        by = {
            who: {(r["repeat"], r["fold"]): r for r in rows if r["set"] == name and r["who"] == who}
            for who in ("midam", "libauc", AGAIN)
        }
        keys = sorted(by["midam"].keys() & by["libauc"].keys())
        if len(keys) < 2:
            continue
        ours = np.array([by["midam"][k]["auroc"] for k in keys])
        peer = np.array([by["libauc"][k]["auroc"] for k in keys])
        ratio = float(np.mean([by["midam"][k]["test"] / by["midam"][k]["train"] for k in keys]))
        both = corrected_interval(ours - peer, ratio=ratio)
        low = corrected_interval(ours - peer, ratio=ratio, level=0.9).low
        same = "-"
        if keys == sorted(by[AGAIN].keys() & by["libauc"].keys()):
            again = np.array([by[AGAIN][k]["auroc"] for k in keys])
            same = f"{corrected_interval(again - peer, ratio=ratio, level=0.9).low:+.3f}"
        lines.append(
            f"| {name} | {ours.mean():.3f} | {peer.mean():.3f} | {both.mean:+.3f} [{both.low:+.3f}, {both.high:+.3f}] "
            f"| {low:+.3f} | {'yes' if low > MARGIN else 'no'} | {same} |"
        )
    return lines


def page(lines: list[str], *, command: str, repeats: int) -> str:
    """Return the results page."""
    head, defaults = __doc__.strip().splitlines()[0], Settings().resolve((1,))
    return "\n".join(
        [
            "# Default model against LibAUC",
            "",
            f"{head} Differences are paired by fold; bounds with the Nadeau-Bengio correction. The last column is the "
            "same bound for LibAUC trained again from other seeds, minus LibAUC: what a method that is no worse can "
            "expect.",
            "",
            CHOSEN,
            "",
            *lines,
            "",
            *how_made(command),
            f"- Stratified {FOLDS}-fold, {repeats} repeats (seeds 0 to {repeats - 1}), {EPOCHS} epochs of as many "
            "steps, last epoch.",
            f"- midam: all [defaults](../api/settings.md) of that version, {_members(defaults.training.members)}.",
            "- LibAUC 2.0.1: its tutorial's settings (attention, lr 0.01, margin 1, gamma 0.9), its loss, optimizer "
            "and network.",
            "",
        ]
    )


def how_made(command: str) -> list[str]:
    """Return the last heading of a page, and the first entries below it."""
    return [
        "## How this page was made",
        "",
        f"- Command: `{command}`",
        f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {midam.__version__}, torch {torch.__version__}, "
        f"{platform.machine()} CPU, one thread a process",
        "- Trials: not published. To check a figure, run the command again.",
    ]


def _members(count: int) -> str:
    return "one scorer" if count == 1 else f"the mean of {count} scorers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("runs/tabular.jsonl"))
    parser.add_argument("--only", choices=("midam", "libauc", AGAIN), help="compute the folds of one side alone")
    parser.add_argument("--write", action="store_true", help="write records/tabular.md")
    parser.add_argument(
        "--set", type=json.loads, default={}, metavar="JSON", help="other settings of midam (not for the page)"
    )
    options = parser.parse_args()
    config = Settings.from_flat({"epochs": EPOCHS, "accelerator": "cpu", **options.set})
    sides = {who: settings_of(who, config) for who in ("midam", "libauc", AGAIN) if options.only in (None, who)}
    run = partial(run_repeat, config=config)
    rows = compute(run, sides, repeats=options.repeats, cache=options.cache, processes=options.jobs)
    lines = table(rows)
    print("\n".join(lines))
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        command = f"python benchmarks/tabular.py --repeats {options.repeats} --write"
        PAGE.write_text(page(lines, command=command, repeats=options.repeats))


if __name__ == "__main__":
    main()
