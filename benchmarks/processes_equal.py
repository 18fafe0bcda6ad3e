"""Training in two and three processes compared with one process: the largest differences, in float64.

    python benchmarks/processes_equal.py --write

29 bags of 1 to 9 instances, three epochs with batches of 3 positive and 4 negative bags, so that the processes have
different numbers of bags and, in some steps, no positive bag. A figure is the largest difference over losses, metrics,
weights, tracked states, dual variables and scores, each relative to the largest entry of its tensor. One process with
another order of the sums has differences of the same size.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on
from tests.ranked import USUAL, bags_of, launch

from midam.errors import ConfigError
from midam.files import write_text
from midam.registry import POOLINGS
from midam.settings import Settings
from midam.train.members import build_members

PAGE = RESULTS / "processes-equal.md"
ESTIMATORS = ("vrsp", "minibatch", "exact")
OTHERS: dict[str, dict[str, Any]] = {
    "exact in chunks of 4 instances": {"estimator": "exact", "chunk_size": 4},
    "pairs weighted alike": {"objective_weight": "pairwise"},
    "one positive and two negative bags": {"num_positive": 1, "num_negative": 2},
    "pairwise": {"objective": "pairwise"},
    "bce": {"objective": "bce"},
    "partial-auc": {"objective": "partial-auc"},
    "average-precision": {"objective": "average-precision"},
    "three classes": {"bags": "multiclass", "objective": "auto"},
    "two labels, some missing": {"bags": "multilabel", "objective": "auto"},
    "survival, pairs": {"bags": "survival", "objective": "auto"},
    "survival, cox": {"bags": "survival", "objective": "cox"},
    "adam": {"optimizer": "adam"},
}


def difference(one: Mapping[str, Any], several: Mapping[str, Any]) -> float:
    """Return the largest difference of an entry, relative to the largest entry of its tensor."""
    found = 0.0
    for name, value in one.items():
        scale = max(float(np.abs(value, where=np.isfinite(value), out=np.zeros_like(value, dtype=float)).max()), 1e-300)
        same = (value == several[name]) | (np.isnan(value) & np.isnan(several[name]))
        with np.errstate(invalid="ignore"):
            gap = np.where(same, 0.0, np.abs(np.asarray(several[name], dtype=float) - np.asarray(value, dtype=float)))
        found = max(found, float(gap.max(initial=0.0)) / scale)
    return found


def makes_sense(case: Mapping[str, Any]) -> bool:
    """Return whether the library accepts this pooling with this estimator."""
    try:
        build_members(Settings(**USUAL, **case).replace(threads=1), bags_of("binary"), device=torch.device("cpu"))
    except ConfigError:
        return False
    return True


def measure() -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return differences of two and three processes, by pooling and estimator, and of the other cases."""
    cases = {
        (pooling, estimator): {"pooling": pooling, "estimator": estimator}
        for pooling in POOLINGS.names()
        for estimator in ESTIMATORS
    }
    taken = {key: case for key, case in cases.items() if makes_sense(case)}
    every = [*taken.values(), *OTHERS.values()]
    with tempfile.TemporaryDirectory(prefix="midam-equal-") as folder:
        runs = {count: launch(every, Path(folder) / str(count), count) for count in (1, 2, 3)}
    told = [
        ", ".join(f"{difference(one, runs[count][number]):.0e}" for count in (2, 3))
        for number, one in enumerate(runs[1])
    ]
    by_key = dict(zip(taken, told))
    table = {p: {e: by_key.get((p, e), "refused") for e in ESTIMATORS} for p in POOLINGS.names()}
    return table, dict(zip(OTHERS, told[len(taken) :], strict=True))


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    table, others = measure()
    text = "\n".join(
        [
            "# Two and three processes train what one does",
            "",
            f"- Command: `{' '.join(['python', 'benchmarks/processes_equal.py', *sys.argv[1:]])}`",
            f"- {measured_on()}, gloo",
            "",
            " ".join((__doc__ or "").split("\n\n")[2].split()),
            "",
            f"| two, three processes | {' | '.join(ESTIMATORS)} |",
            "|---|" + "---|" * len(ESTIMATORS),
            *(f"| {pooling} | {' | '.join(row.values())} |" for pooling, row in table.items()),
            "",
            "With attention and vrsp, but for what the first column says:",
            "",
            "| | two, three processes |",
            "|---|---|",
            *(f"| {name} | {told} |" for name, told in others.items()),
            "",
        ]
    )
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
