"""midam and LibAUC's own loop, each with the settings of the other, on the tabular sets, fold by fold.

The defaults of midam were chosen on these sets, the settings of LibAUC's tutorial were not. Here both libraries train
with both settings, one scorer each, on the same stratified folds for the same number of steps, and are tested with the
weights of the last epoch. Each fold has another seed, the same for all, so that no start decides all folds of a set:

    python benchmarks/tabular_settings.py --repeats 1 --write

Folds that were computed before are kept (`--cache`), so a stopped run continues at its last fold.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.tabular import EPOCHS, FOLDS, PAGE, SETS, compute, how_made

from midam.compare.summary import corrected_interval
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.nn.standardizer import Standardizer
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.peers import LibAUCAttention
from studies.sets import catalog

OURS = Settings(epochs=EPOCHS, accelerator="cpu", members=1, hidden=[]).resolve((1,))
# A training has collapsed if it ranks even its training bags hardly better than chance.
COLLAPSED = 0.6
TUTORIAL = OURS.replace(
    lr=LibAUCAttention.lr, dual_lr=LibAUCAttention.lr, num_instances=LibAUCAttention.num_instances, standardize=False
)


class LibAUCAtOurs(LibAUCAttention):
    """LibAUC's loop with midam's learning rate, instances a bag and standardized features."""

    lr = OURS.training.lr
    num_instances = OURS.training.num_instances

    def tensors(self, bags: Bags, trial: Trial) -> list[list[torch.Tensor]]:
        """Return the bags as midam's default network gets them."""
        parts = [[torch.from_numpy(bags[i]) for i in part] for part in (trial.train, trial.score)]
        standardizer = Standardizer(bags.instance_shape, clip=OURS.model.clip, scaling=OURS.model.scaling)
        standardizer.fit(torch.cat(parts[0]))
        return [[standardizer(x).float() for x in part] for part in parts]


def midam_at_tutorial(bags: Bags, trial: Trial) -> np.ndarray:
    """Return the scores of midam with the tutorial's settings, on features standardized as in the tutorial."""
    scaler = StandardScaler().fit(np.concatenate([bags[i] for i in trial.train]))
    seen = bags.replace(instances=scaler.transform(bags.instances).astype(np.float32), digests=None)
    return train_trials(TUTORIAL, seen, [trial])[0].scores[0]


SIDES = {
    "midam": lambda bags, trial: train_trials(OURS, bags, [trial])[0].scores[0],
    "libauc-at-midam": lambda bags, trial: LibAUCAtOurs().score(bags, trial),
    "midam-at-libauc": midam_at_tutorial,
    "libauc": lambda bags, trial: LibAUCAttention().score(bags, trial),
}
NAMES = {
    "midam": "midam at its own settings",
    "libauc-at-midam": "LibAUC at midam's",
    "midam-at-libauc": "midam at LibAUC's",
    "libauc": "LibAUC at its own",
}


def run_repeat(name: str, repeat: int, who: str) -> list[dict[str, Any]]:
    """Train one side on all folds of a repeat."""
    torch.set_num_threads(1)
    bags = catalog.load(name)
    labels = bags.require_labels()
    folds = stratified_folds(labels, folds=FOLDS, seed=repeat)
    rows = []
    for fold in range(FOLDS):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        scored = np.concatenate([test, train])
        scores = np.split(SIDES[who](bags, Trial(train, scored, FOLDS * repeat + fold)), [len(test)])
        about = {"set": name, "repeat": repeat, "fold": fold, "who": who, "settings": settings_of(who)}
        areas = {"auroc": auroc(labels[test], scores[0]), "train_auroc": auroc(labels[train], scores[1])}
        rows.append({**about, **areas, "test": len(test), "train": len(train)})
    return rows


def settings_of(who: str) -> str:
    """Return the settings with which a kept fold was computed."""
    return str({"midam": OURS, "libauc-at-midam": OURS, "midam-at-libauc": TUTORIAL}.get(who, "tutorial"))


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the Markdown table: a row for each set, both sides with both settings, differences at equal settings."""
    names = list(NAMES.values())
    heads = ("set", *names[:2], "difference", *names[2:], "difference")
    lines, apart = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"], 0
    for name in SETS:
        by = {who: {(r["repeat"], r["fold"]): r for r in rows if (r["set"], r["who"]) == (name, who)} for who in SIDES}
        keys = sorted(by["midam"])
        areas = {who: np.array([found[key]["auroc"] for key in keys]) for who, found in by.items()}
        ratio = float(np.mean([by["midam"][key]["test"] / by["midam"][key]["train"] for key in keys]))
        cells = []
        for ours, theirs in (("midam", "libauc-at-midam"), ("midam-at-libauc", "libauc")):
            gap = corrected_interval(areas[ours] - areas[theirs], ratio=ratio)
            cells += [f"{areas[ours].mean():.3f}", f"{areas[theirs].mean():.3f}"]
            cells.append(f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
            apart += gap.low * gap.high > 0
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", f"At equal settings {apart} of {2 * len(SETS)} intervals exclude 0. {collapses(rows)}"]


def collapses(rows: list[dict[str, Any]]) -> str:
    """Return a sentence on the trainings that rank even their training bags hardly better than chance."""
    counts = []
    for who in SIDES:
        areas = [row["train_auroc"] for row in rows if row["who"] == who]
        lost = Counter(row["set"] for row in rows if row["who"] == who and row["train_auroc"] < COLLAPSED)
        where = f" ({', '.join(f'{name} {count}' for name, count in lost.items())})" if lost else ""
        counts.append(f"{NAMES[who]} {lost.total()} of {len(areas)}{where}")
    return f"Trainings whose AUROC on their own training bags ended below {COLLAPSED:g}: {'; '.join(counts)}."


def page(lines: list[str], *, command: str, repeats: int) -> str:
    """Return the results page."""
    ours, theirs = OURS.training, TUTORIAL.training
    clip = f"clipped at {OURS.model.clip:g} deviations, piled-up ones blended with the normal score of their rank"
    return "\n".join(
        [
            "# midam and LibAUC, each at the settings of the other",
            "",
            "The defaults of midam were chosen [on these five sets](defaults.md), the settings of LibAUC's tutorial "
            "were not, so [the default model against LibAUC](tabular.md) compares method, settings and choice at once. "
            "Here both train at both settings: mean test AUROC, and midam minus LibAUC at equal settings, paired by "
            "fold, with the 95% interval of Nadeau and Bengio.",
            "",
            *lines,
            "",
            "| setting | midam's | LibAUC's |",
            "|---|---|---|",
            f"| learning rate | {ours.lr:g} | {theirs.lr:g} |",
            f"| instances a bag | {ours.num_instances} | {theirs.num_instances} |",
            f"| features | standardized robustly, {clip} | standardized |",
            f"| eta', of the dual variable | {OURS.method.dual_lr:g}; in LibAUC the learning rate | "
            f"{TUTORIAL.method.dual_lr:g}, the learning rate |",
            "",
            "The same in both: attention, margin 1, gamma0 0.9, momentum 0.1, weight decay 1e-4, 8 + 8 bags a batch, "
            "one tanh layer as wide as the input, the learning rate divided by ten after 50 and 75 epochs, one scorer "
            "(the default of midam is the mean of three). What settings do not reach stays as it is in each: LibAUC "
            "decays the centers a and b too, and divides eta' by ten where midam halves it.",
            "",
            *how_made(command),
            f"- Stratified {FOLDS}-fold, repeats: {repeats} (shuffled with seeds from 0; trial (repeat r, fold f) has "
            f"the seed {FOLDS} r + f), {EPOCHS} epochs of as many steps, the last one tested.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=Path("runs/tabular-settings.jsonl"))
    parser.add_argument("--write", action="store_true", help="write records/tabular-settings.md")
    options = parser.parse_args()
    sides = {who: settings_of(who) for who in SIDES}
    rows = compute(run_repeat, sides, repeats=options.repeats, cache=options.cache, processes=options.jobs)
    lines = table(rows)
    print("\n".join(lines))
    if options.write:
        command = f"python benchmarks/tabular_settings.py --repeats {options.repeats} --write"
        out = PAGE.with_name("tabular-settings.md")
        out.write_text(page(lines, command=command, repeats=options.repeats), encoding="utf-8")


if __name__ == "__main__":
    main()
