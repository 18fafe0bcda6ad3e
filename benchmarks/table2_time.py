"""Time of the protocol of the paper's Table 2 at one margin, from an empty cache.

    python benchmarks/table2_time.py --write
    python benchmarks/table2_time.py --device cuda --jobs 1

Ten methods on five sets, each at three learning rates on the 15 trials (3 splits, 5 folds) of the paper, 100 epochs
each: 2250 trainings, each scored on its validation and test bags after every epoch. The 15 trainings of a method at a
rate on a set are one program: their scorers stand side by side in one tensor and take each step together, on a CPU as
on a GPU. The trials stand in `records/trials/table2.jsonl.gz`; that those of this run agree is checked.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on
from rich.console import Console

from midam.compare.engine import Row
from midam.data.sets import catalog
from midam.files import write_text
from studies.engine import PACKED, Store, read_packed
from studies.options import StudyOptions
from studies.page import duration, table
from studies.paper_tables import SETS
from studies.tabular.table2 import plan
from studies.tabular.table2_trials import Plan, run_trials, select_rows

PAGE = RESULTS / "table2-time.md"
PUBLISHED = RESULTS / "trials" / f"table2{PACKED}"
_NAMES = ("set", "method", "lr", "margin", "split", "fold")


def measure(wanted: Plan, options: StudyOptions, sets: tuple[str, ...] = SETS) -> tuple[float, dict[str, list[Row]]]:
    """Seconds that the trials take, and the trials by set."""
    bags = {name: catalog.load(name) for name in sets}
    with tempfile.TemporaryDirectory(prefix="midam-table2-") as folder, Store(Path(folder), "table2") as store:
        started = time.perf_counter()
        run_trials(wanted, bags, store=store, options=options)
        seconds = time.perf_counter() - started
        found = {
            name: [row for method in wanted.methods for row in select_rows(wanted, name, own, method, store=store)]
            for name, own in bags.items()
        }
    return seconds, found


def agreement(found: dict[str, list[Row]], published: list[Row]) -> tuple[int, float, float]:
    """Trainings that were published too, the share with the same test AUROC, and the largest difference of a mean.

    A mean is that of a method at a rate on a set over its trials, at the last epoch.
    """
    known = {tuple(row[name] for name in _NAMES): row["test_last"] for row in published if "split" in row}
    pairs: dict[tuple[object, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in (row for rows in found.values() for row in rows):
        theirs = known.get(tuple(row[name] for name in _NAMES))
        if theirs is not None and row["test_last"] is not None:
            pairs[row["set"], row["method"], row["lr"]].append((row["test_last"], theirs))
    every = np.array([pair for own in pairs.values() for pair in own]).reshape(-1, 2)
    gaps = [abs(np.mean([ours - theirs for ours, theirs in own])) for own in pairs.values()]
    return len(every), float((every[:, 0] == every[:, 1]).mean()) if len(every) else 0.0, float(max(gaps, default=0.0))


def page(seconds: float, found: dict[str, list[Row]], options: StudyOptions, told: tuple[int, float, float]) -> str:
    """Text of the page."""
    rows = [
        [
            name,
            str(len(own)),
            str(sum(row["steps"] for row in own)),
            duration(sum(row["seconds"] for row in own)),
            f"{1e3 * sum(row['seconds'] for row in own) / max(1, sum(row['steps'] for row in own)):.3f}",
        ]
        for name, own in found.items()
    ]
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    return "\n".join(
        [
            "# The time of Table 2's protocol",
            "",
            f"**{duration(seconds)}** by {options.jobs} process{'es' if options.jobs > 1 else ''} at a time on "
            f"{where}, margin {options.margin:g}, from an empty cache.",
            "",
            " ".join((__doc__ or "").split("\n\n")[2].split()),
            "",
            *table(["set", "trainings", "steps", "time of all processes", "ms a step of a training"], rows),
            "",
            f"Of these trainings {told[0]} are among the published ones, which another processor has computed: "
            f"{told[1]:.0%} have the same test AUROC to the last digit, and the mean over the trials of a method at a "
            f"rate on a set differs by at most {told[2]:.3f}.",
            "",
            f"- Command: `{' '.join(['python', 'benchmarks/table2_time.py', *sys.argv[1:]])}`",
            f"- {measured_on()}",
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--margin", type=float, default=1.0, help="margin c of the AUC objectives")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the scorers are trained")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, one thread each")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    console = Console(stderr=True)
    asked = StudyOptions(margin=options.margin, device=options.device, jobs=options.jobs, console=console)
    seconds, found = measure(plan(asked), asked)
    text = page(seconds, found, asked, agreement(found, read_packed(PUBLISHED)))
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
