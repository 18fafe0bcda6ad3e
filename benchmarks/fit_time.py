"""CPU time and memory of `midam fit` by default, on real sets and on large tables, of one or two source trees in turn.

    MIDAM_DATA=... python benchmarks/fit_time.py --write
    MIDAM_DATA=... python benchmarks/fit_time.py --against ../old --write

A fit is the whole command with nothing but the data, with one thread: imports, reading, training, the folds, scores,
intervals, report. CPU is that of the process, user and system; memory is its highest resident size. With `--against`,
the tree in this folder takes each set right after this one. The large tables are CSV files of the customers of the
study `tracked`: 12 features, 12% of the bags positive. The slides are HDF5 files of 3000 to 9000 made-up vectors, 32
random numbers mixed to 768 with noise; in 20 positive ones a twentieth of the vectors lies 3 deviations off.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
import h5py
import numpy as np
import pandas as pd
from benchmarks.shared import RESULTS, measured_on
from rich.console import Console
from rich.progress import track

from midam.files import write_text
from studies.page import table
from studies.regime.tracked_sets import Customers
from studies.sets import catalog

PAGE, HERE = RESULTS / "fit-time.md", Path(__file__).parents[1]
TABLES = {"20 000 bags of 30 rows": (20_000, 30), "100 000 bags of 10 rows": (100_000, 10)}
SLIDES = "60 slides of 6000 vectors"
WANTED = {"musk1": 8, "fox": 10, "physionet2012_icu": 40, "20 000 bags of 30 rows": 60, "100 000 bags of 10 rows": 120}


class Fit(NamedTuple):
    """A fit: seconds of CPU, seconds, highest resident memory in MiB, and the AUROC that it reports."""

    cpu: float
    wall: float
    mib: float
    auroc: float


def fit(data: str, tree: Path) -> Fit:
    """Run `midam fit` of a source tree."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    with tempfile.TemporaryDirectory(prefix="midam-fit-") as folder:
        run, log = Path(folder, "run"), Path(folder, "log")
        command = [sys.executable, "-m", "midam.cli", "fit", data, "--seed", "0", "--out", str(run)]
        started = time.perf_counter()
        with log.open("wb") as file:
            opened = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number in (1, 2)]
            environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            pid = os.posix_spawn(sys.executable, command, environment, file_actions=opened)
            _, status, used = os.wait4(pid, 0)
        wall = time.perf_counter() - started
        if status:
            raise RuntimeError(f"{' '.join(command)} failed: {log.read_text()[-2000:]}")
        summary = json.loads((run / "summary.json").read_text())
    part = next(summary[name] for name in ("test", "out_of_fold") if name in summary)
    return Fit(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, part["auroc"])


def commit_of(tree: Path) -> str:
    """Return the commit of a source tree."""
    command = ["git", "-C", str(tree), "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def data_of(name: str, folder: Path) -> str:
    """Return the file of a set; the large tables, and the slides, are written into a folder."""
    if name == SLIDES:
        return str(slides(folder / "slides"))
    if name not in TABLES:
        return str(catalog.describe(name)["location"])
    path = folder / f"{name.replace(' ', '-')}.csv"
    if not path.exists():
        bags, size = TABLES[name]
        drawn = Customers(train=bags, score=0, size=size).load(0, folder).bags
        numbers = np.repeat(np.arange(bags), size)
        rows = pd.DataFrame(drawn.instances, columns=[f"f{at}" for at in range(drawn.instance_shape[0])])
        rows.insert(0, "bag", numbers)
        rows.insert(1, "label", drawn.require_labels()[numbers])
        rows.to_csv(path, index=False, float_format="%.4f")
    return str(path)


def slides(folder: Path) -> Path:
    """Return a folder with the slides, which are written if it is absent."""
    if folder.exists():
        return folder
    folder.mkdir()
    random = np.random.default_rng(0)
    mixing = random.normal(size=(32, 768))
    for number in range(60):
        rows = random.normal(size=(int(random.integers(3000, 9000)), 32)) + 0.5 * random.normal(size=32)
        if number % 3 == 0:
            rows[: len(rows) // 20, 0] += 3.0
        with h5py.File(folder / f"slide-{number:02}.h5", "w") as file:
            file["features"] = (rows @ mixing + random.normal(size=(len(rows), 768))).astype(np.float32)
            file.attrs["label"] = int(number % 3 == 0)
    return folder


def page(found: dict[str, dict[str, Fit]], call: str) -> str:
    """Return the text of the page: a row for each set and tree."""
    rows = [
        [name, tree, *(f"{value:.0f}" for value in one[:3]), f"{one.auroc:.3f}", str(WANTED.get(name, ""))]
        for name, trees in found.items()
        for tree, one in trees.items()
    ]
    about = (__doc__ or "").split("\n\n")
    return "\n".join(
        [
            "# The time of `midam fit`",
            "",
            " ".join(about[2].split()),
            "",
            *table(["set", "commit", "CPU, s", "seconds", "memory, MiB", "AUROC", "wanted CPU, s"], rows),
            "",
            f"- Command: `{call}`",
            f"- {measured_on()}",
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sets", default=",".join([*WANTED, SLIDES]), metavar="A,B,...", help="sets of the catalogue, or tables"
    )
    parser.add_argument("--against", type=Path, metavar="TREE", help="folder of another source tree")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="folder that keeps the large tables")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    trees = {commit_of(tree): tree for tree in (HERE, (options.against or HERE).resolve())}
    found: dict[str, dict[str, Fit]] = {}
    with tempfile.TemporaryDirectory(prefix="midam-tables-") as made:
        folder = options.tables or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        data = {name: data_of(name, folder) for name in options.sets.split(",")}
        turns = [(name, tree) for name in data for tree in trees]
        for name, tree in track(turns, description="fits", console=Console(stderr=True)):
            found.setdefault(name, {})[tree] = one = fit(data[name], trees[tree])
            print(f"{name}, {tree}: {one.cpu:.1f} s of CPU, {one.wall:.1f} s, {one.mib:.0f} MiB", flush=True)
    call = " ".join(["python benchmarks/fit_time.py", *(["--against TREE"] if options.against else []), "--write"])
    text = page(found, call)
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
