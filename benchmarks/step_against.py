"""Time of a training step against that of another commit, in turns of one run.

    python benchmarks/step_against.py e434d67

One process for each commit trains the same bags of standard normal instances with the library's default settings; the
processes take turns of some steps, in an order that changes each round. A figure is the median of the ratios of the
rounds, with its 95% interval by the order statistics of the median.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

ROOT = Path(__file__).parents[1]
CASES: dict[str, dict[str, Any]] = {
    "features, attention": {"shape": (166,)},
    "features, smoothed-max": {"shape": (166,), "pooling": "smoothed-max"},
    "patches, ResNet20": {"shape": (3, 32, 32), "encoder": "resnet20"},
}
STEPS = {"features, attention": 200, "features, smoothed-max": 200, "patches, ResNet20": 3}


def child(case: str) -> None:
    """Train some steps at each line of the input, and answer with the seconds of one step."""
    import torch

    from midam.data.bags import Bags
    from midam.settings import Settings
    from midam.train.loop import train_step
    from midam.train.trainer import build_training

    torch.set_num_threads(1)
    options = dict(CASES[case])
    rows = np.random.default_rng(0).standard_normal((96, 40, *options.pop("shape")), dtype=np.float32)
    training = build_training(Settings.from_flat(options), Bags.from_list(list(rows), [i % 2 for i in range(96)]))
    training.trained.train()
    parts = training.trained, training.estimator, training.objective, training.optimizer

    def endless() -> Any:
        while True:
            yield from training.batches()

    batches = endless()
    for line in sys.stdin:
        started = time.perf_counter()
        for _ in range(int(line)):
            train_step(*parts, next(batches))
        print(json.dumps((time.perf_counter() - started) / int(line)), flush=True)


def ratios(case: str, sources: list[Path], rounds: int) -> np.ndarray[Any, Any]:
    """Return the seconds of a step [rounds, 2] of the sources, in turns."""
    command = [sys.executable, __file__, "--child", case]
    kids = [
        subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for source in sources
    ]

    def turn(number: int) -> float:
        stdin, stdout = kids[number].stdin, kids[number].stdout
        if stdin is None or stdout is None:
            raise RuntimeError("no pipes")
        print(STEPS[case], file=stdin, flush=True)
        seconds: float = json.loads(stdout.readline())
        return seconds

    found = np.empty((rounds, 2))
    try:
        for number in (0, 1):
            turn(number)
        for count in range(rounds):
            for number in (0, 1) if count % 2 else (1, 0):
                found[count, number] = turn(number)
    finally:
        for kid in kids:
            kid.kill()
            kid.wait()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit", nargs="?", help="what git calls it")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    if options.commit is None:
        parser.error("Expected a commit, got none; name one, such as HEAD~10.")
    with tempfile.TemporaryDirectory(prefix="midam-step-") as folder:
        archive = subprocess.run(["git", "archive", options.commit, "src"], cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        print(f"| one thread | {options.commit}, ms | now, ms | now / {options.commit} | 95% interval |")
        print("|---|---|---|---|---|")
        for case in CASES:
            seconds = ratios(case, [Path(folder) / "src", ROOT / "src"], options.rounds)
            of = np.sort(seconds[:, 1] / seconds[:, 0])
            low = int(binom.ppf(0.025, len(of), 0.5))
            before, now = 1e3 * np.median(seconds, axis=0)
            interval = f"{of[max(low - 1, 0)]:.3f} to {of[min(len(of) - low, len(of) - 1)]:.3f}"
            print(f"| {case} | {before:.3f} | {now:.3f} | {np.median(of):.3f} | {interval} |", flush=True)


if __name__ == "__main__":
    main()
