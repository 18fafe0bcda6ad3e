"""Default attention model against LibAUC's own loop on the tabular sets, fold by fold.

Both train on the same stratified folds (10 folds, repeats seeded 0, 1, ...) for the same number of steps: `midam`
with one fixed configuration, its defaults; LibAUC 2.0.1 with its loss, its optimizer, its network and its tutorial's
settings (attention, lr 0.01, margin 1, gamma 0.9, momentum 0.1, weight decay 1e-4, rates divided at epochs 50 and 75,
standardised features). Both are tested with the weights of the last epoch. Differences are paired by fold; the bounds
are Nadeau and Bengio's (2003).

    python benchmarks/tabular.py --repeats 5 --write

Folds that were computed before are kept (`--cache`), so a stopped run goes on where it was.
"""

import argparse
import datetime
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

import midam
from midam.compare.peers import libauc_attention
from midam.compare.statistics import corrected_interval
from midam.data import catalog
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.metrics import auroc
from midam.evaluate.predict import predict
from midam.train.config import FitConfig, from_dict
from midam.train.lockstep import Trial
from midam.train.trainer import Trainer

SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
FOLDS = 10
EPOCHS = 100
PAGE = Path(__file__).parents[1] / "docs" / "results" / "tabular.md"
MARGIN = -0.02


def train_midam(train: Bags, test: Bags, *, seed: int, overrides: dict[str, Any]) -> float:
    """Test AUROC of the defaults."""
    trainer = Trainer(from_dict({"epochs": EPOCHS, "seed": seed, "accelerator": "cpu", **overrides}), train)
    while not trainer.finished:
        trainer.train_epoch()
    return auroc(test.require_labels(), predict(trainer.model, test))


def run_fold(name: str, repeat: int, fold: int, who: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """One method on one fold."""
    torch.set_num_threads(1)
    bags = catalog.load(name)
    folds = stratified_folds(bags.require_labels(), folds=FOLDS, seed=repeat)
    train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
    if who == "midam":
        value = train_midam(bags.subset(train), bags.subset(test), seed=repeat, overrides=overrides)
    else:
        value = auroc(bags.require_labels()[test], libauc_attention(bags, Trial(train, test, repeat)))
    return {
        "set": name,
        "repeat": repeat,
        "fold": fold,
        "who": who,
        "auroc": value,
        "test": len(test),
        "train": len(train),
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown table of both methods."""
    lines = [
        "| set | midam | LibAUC | difference [95% interval] | one-sided 95% lower bound | above -0.02 |",
        "|---|---|---|---|---|---|",
    ]
    for name in SETS:
        by = {
            who: {(r["repeat"], r["fold"]): r for r in rows if r["set"] == name and r["who"] == who}
            for who in ("midam", "libauc")
        }
        keys = sorted(by["midam"].keys() & by["libauc"].keys())
        if len(keys) < 2:
            continue
        ours = np.array([by["midam"][k]["auroc"] for k in keys])
        peer = np.array([by["libauc"][k]["auroc"] for k in keys])
        ratio = float(np.mean([by["midam"][k]["test"] / by["midam"][k]["train"] for k in keys]))
        both = corrected_interval(ours - peer, ratio=ratio)
        low = corrected_interval(ours - peer, ratio=ratio, level=0.9).low
        lines.append(
            f"| {name} | {ours.mean():.3f} | {peer.mean():.3f} | {both.mean:+.3f} [{both.low:+.3f}, {both.high:+.3f}] "
            f"| {low:+.3f} | {'yes' if low > MARGIN else 'no'} |"
        )
    return lines


def page(lines: list[str], *, command: str, repeats: int) -> str:
    """The results page."""
    head = __doc__.strip().splitlines()[0]
    return "\n".join(
        [
            "# Default model against LibAUC",
            "",
            head,
            "",
            f"- Command: `{command}`",
            f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, midam {midam.__version__}, torch {torch.__version__}, "
            f"{platform.machine()} CPU, one thread a process",
            f"- Stratified {FOLDS}-fold, {repeats} repeats (seeds 0 to {repeats - 1}), {EPOCHS} epochs of as many "
            "steps, last epoch.",
            f"- midam: the defaults, {_members(FitConfig().members)}: `{FitConfig()}`.",
            "- LibAUC 2.0.1: its tutorial's settings (attention, lr 0.01, margin 1, gamma 0.9), its loss, optimizer "
            "and network.",
            "- Differences are paired by fold; bounds with the Nadeau-Bengio correction.",
            "",
            *lines,
            "",
        ]
    )


def _members(count: int) -> str:
    return "one scorer" if count == 1 else f"the mean of {count} scorers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("runs/tabular.jsonl"))
    parser.add_argument("--only", choices=("midam", "libauc"), help="compute the folds of one side alone")
    parser.add_argument("--write", action="store_true", help="write docs/results/tabular.md")
    parser.add_argument(
        "--set", type=json.loads, default={}, metavar="JSON", help="other settings of midam (not for the page)"
    )
    options = parser.parse_args()
    options.cache.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in options.cache.read_text().splitlines()] if options.cache.exists() else []
    done = {(r["set"], r["repeat"], r["fold"], r["who"]) for r in rows}
    jobs = [
        (name, repeat, fold, who)
        for repeat in range(options.repeats)
        for name in SETS
        for fold in range(FOLDS)
        for who in ("midam", "libauc")
        if options.only in (None, who)
        if (name, repeat, fold, who) not in done
    ]
    results = Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
        delayed(run_fold)(*job, options.set) for job in jobs
    )
    with options.cache.open("a") as file:
        for row in results:
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    lines = table([r for r in rows if r["repeat"] < options.repeats])
    print("\n".join(lines))
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        command = f"python benchmarks/tabular.py --repeats {options.repeats} --write"
        PAGE.write_text(page(lines, command=command, repeats=options.repeats))


if __name__ == "__main__":
    main()
