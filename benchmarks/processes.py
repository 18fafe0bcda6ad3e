"""Speed of several processes that train one model, and the share of their exchanges.

    python benchmarks/processes.py --write
    python benchmarks/processes.py --accelerator cuda --write     # one process for each GPU: 1, 2, 4, ... GPUs

Bags of 16 to 48 patches of 32 x 32 x 3 (random numbers: the cost of a step does not depend on them) in a store;
ResNet20, attention, vrsp, 16 patches of each of 16 bags in a step, in float32. Each run is `midam fit` in new
processes, with one scorer and no baseline. The result is the seconds of training of an epoch: the difference of
`seconds.training` between two runs with different --epochs, so that the start and the first access to the data do not
count. The ways take turns, --repeats times; a figure is the median, a ratio is a ratio of medians.

- `1 process, 1 thread` to `1 process, N threads`: the use that torch itself makes of the cores.
- `N processes, 1 thread each`: `--devices N`. Strong scaling: the same 16 bags in a step, distributed.
- Weak scaling: 16 bags in a step for each process, so N times the bags in a step; the time is for the same number of
  bags.
- Exchanges: `seconds.exchanges` of summary.json over the seconds of training, including the waiting for other
  processes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on

from midam.data.bags import Bags
from midam.data.store import write_store
from midam.files import write_text
from midam.report.figures import new_figure
from studies.drawing import COLORS, MARKERS, add_legend, save_figure

PAGE = RESULTS / "processes.md"
BAGS_A_STEP, DRAWN = 16, 16


@dataclass(frozen=True)
class Way:
    """Numbers of processes, of threads of each process, and of bags in a step."""

    devices: int
    threads: int
    bags: int = BAGS_A_STEP

    @property
    def title(self) -> str:
        """Return the name of its row."""
        many = f"{self.devices} process{'es' * (self.devices > 1)}"
        return f"{many}, {self.threads} thread{'s' * (self.threads > 1)}{' each' * (self.devices > 1)}"


def ways(accelerator: str) -> list[Way]:
    """Return ways with threads of one process, processes on the same step, and processes on a step that grows."""
    if accelerator == "cuda":
        counts = [2**power for power in range(10) if 2**power <= torch.cuda.device_count()]
        return [*(Way(n, 1) for n in counts), *(Way(n, 1, BAGS_A_STEP * n) for n in counts[1:])]
    cores = len(os.sched_getaffinity(0))
    counts = [2**power for power in range(1, 10) if 2**power <= cores]
    found = [Way(1, 1), *(Way(1, n) for n in counts), *(Way(n, 1) for n in counts)]
    return [*found, *(Way(n, 1, BAGS_A_STEP * n) for n in counts)]


def write_data(folder: Path, bags: int) -> Path:
    """Write a store of bags of patches, two thirds of them for training."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 256, (int(rng.integers(16, 49)), 3, 32, 32), dtype=np.uint8) for _ in range(bags)]
    splits = np.array(["train", "train", "val"])[np.arange(bags) // 2 % 3]
    made = Bags.from_list(parts, np.arange(bags) % 2).replace(splits=splits)
    return write_store(made, folder / "patches.store")


def trained(data: Path, out: Path, way: Way, epochs: int, accelerator: str) -> dict[str, float]:
    """Run a training, and return the seconds from its summary."""
    half = str(way.bags // 2)
    words = ["fit", str(data), "--out", str(out), "--devices", str(way.devices), "--epochs", str(epochs)]
    words += ["--members", "1", "--no-baseline", "--num-instances", str(DRAWN), "--accelerator", accelerator]
    words += ["--num-positive", half, "--num-negative", half, "--threads", str(way.threads), "--val-every", "1000"]
    command, env = [sys.executable, "-m", "midam.cli", *words], {**os.environ, "OMP_NUM_THREADS": str(way.threads)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds: dict[str, float] = json.loads((out / "summary.json").read_text())["seconds"]
    return seconds


def measure(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each way: seconds of an epoch in each repeat, and the share of exchanges."""
    data, found = write_data(folder, options.bags), {way: [] for way in ways(options.accelerator)}
    for repeat in range(options.repeats):
        for number, (way, rows) in enumerate(found.items()):
            short, long = (
                trained(data, folder / f"{repeat}-{number}-{epochs}", way, epochs, options.accelerator)
                for epochs in (1, 1 + options.epochs)
            )
            seconds = (long["training"] - short["training"]) / options.epochs
            exchanged = (long.get("exchanges", 0.0) - short.get("exchanges", 0.0)) / options.epochs
            rows.append({"seconds": seconds, "exchanges": exchanged / seconds})
            print(json.dumps({"way": way.title, "bags": way.bags, **rows[-1]}), flush=True)
    return [
        {
            "way": way.title,
            "devices": way.devices,
            "threads": way.threads,
            "bags": way.bags,
            "seconds": median(row["seconds"] for row in rows),
            "lowest": min(row["seconds"] for row in rows),
            "highest": max(row["seconds"] for row in rows),
            "exchanges": median(row["exchanges"] for row in rows),
        }
        for way, rows in found.items()
    ]


def page(rows: Sequence[dict[str, Any]], options: argparse.Namespace, command: str) -> str:
    """Return the table, and what it shows."""
    alone = rows[0]["seconds"]
    lines = [
        f"| {row['way']} | {row['bags']} | {row['seconds']:.2f} | {row['lowest']:.2f} to {row['highest']:.2f} | "
        f"{alone / row['seconds']:.2f} | {row['exchanges']:.1%} |"
        for row in rows
    ]
    on = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}" if options.accelerator == "cuda" else "CPU"
    return "\n".join(
        [
            "# Several processes on one model",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}; {on}",
            f"- {options.bags} bags, two of three trained on; a figure is the median of {options.repeats} repeats.",
            "",
            "| | bags a step | seconds an epoch | lowest to highest | speed | in exchanges |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
            "Speed is that against one process of one thread. " + " ".join((__doc__ or "").split("\n\n")[2].split()),
            "",
            *(__doc__ or "").split("\n\n")[3].strip().splitlines(),
            "",
            "![Speed against the number of cores or GPUs](processes.png)",
            "",
        ]
    )


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw speed against workers: threads of one process, and processes with strong and weak scaling."""
    figure = new_figure((5.2, 3.4))
    axes = figure.subplots()
    alone = rows[0]["seconds"]
    kinds = {
        "threads of one process": [row for row in rows if row["devices"] == 1],
        "processes, the same step": [row for row in rows if row["threads"] == 1 and row["bags"] == BAGS_A_STEP],
        "processes, the step grows": [rows[0], *(row for row in rows if row["bags"] > BAGS_A_STEP)],
    }
    most = max(row["devices"] * row["threads"] for row in rows)
    axes.plot([1, most], [1, most], color="0.7", linewidth=1, label="as many times faster")
    for number, (name, chosen) in enumerate(kinds.items()):
        workers = [row["devices"] * row["threads"] for row in chosen]
        speed = [alone / row["seconds"] for row in chosen]
        axes.plot(workers, speed, marker=MARKERS[number], color=COLORS[number], label=name)
    axes.set_xlabel("Cores, or GPUs")
    axes.set_ylabel("Speed, one core or GPU = 1")
    axes.set_xticks(sorted({row["devices"] * row["threads"] for row in rows}))
    add_legend(figure, columns=2)
    save_figure(figure, path)


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accelerator", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bags", type=int, default=144)
    parser.add_argument("--epochs", type=int, default=4, help="that count, behind a first one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its figure")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="midam-processes-") as folder:
        rows = measure(options, Path(folder))
    text = page(rows, options, " ".join(["python", "benchmarks/processes.py", *sys.argv[1:]]))
    print(text)
    if options.json is not None:
        write_text(options.json, json.dumps(rows, indent=2))
    if options.write:
        write_text(PAGE, text)
        draw(rows, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
