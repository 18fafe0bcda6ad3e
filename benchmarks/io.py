"""Speed of reading sampled batches: the store, a bare memory map, HDF5 and Zarr, warm and cold, by number of workers.

    python benchmarks/io.py --write

A batch is 16 bags of 64 rows of 3 KB (1536 float16), drawn by the library's sampler from 72 bags of 5000 rows of normal
numbers (1.1 GB in each format). Figures are rows per second over a run of batches of about a tenth of a second; the
members run in turn, up to 25 times, and the median of the runs is shown.

- `store`: the store as it is opened by default (mapped, because it is small compared with the memory), through the
  reader of the trainer. `store-pread`: the same with `reads="pread"`. Workers are its threads.
- `memmap`: only a `numpy.memmap` of the store's file, indexed with the same positions.
- `hdf5-contiguous`: a file for each bag, with one contiguous dataset. `hdf5-row-chunks`: chunks of one row, as CLAM and
  TRIDENT write them. `hdf5-auto-chunks`: chunks that h5py chooses (`chunks=True`). The files stay open; rows are read
  in ascending order.
- `zarr`: an array for each bag with the default chunks and codecs of Zarr 3, read by orthogonal selection.

For all members except the store, workers are processes of torch's DataLoader, which open files separately; they run
before the clock starts, and each batch goes to the caller through shared memory. Cold: before each batch, the reader of
the batch drops the files that it will read from the page cache (a mapped file is unmapped first); the time for this
counts. Caches below the page cache, such as the host of a virtual disk, are not emptied.
"""

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import zarr

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.io_formats import (
    BATCH_BAGS,
    DRAWN,
    FORMATS,
    MEMBERS,
    Draws,
    Run,
    Shape,
    draw,
    make_files,
    other_run,
    store_run,
)
from benchmarks.shared import RESULTS, forget, measured_on, resident_share

from midam.data.bags import Bags
from midam.data.on_disk import ReadsName, RowFile
from midam.data.store import open_store, write_store
from midam.report.figures import new_figure
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.drawing import COLORS, MARKERS, add_legend, save_figure

PAGE = RESULTS / "io.md"
WORKERS = (0, 2, 4)
CACHES = ("warm", "cold")
RUN_S, MOST, LEAST_RUNS, RUNS, BUDGET_S = 0.1, 200, 5, 25, 2.0
SHARE, TIMES, WAIT = 0.8, 10, 0.05


def measure(places: dict[str, Path], draws: Draws, *, rounds: int, run_s: float) -> list[dict[str, Any]]:
    """Return the rows per second of each member, cache and number of workers."""
    rows = []
    for cache, workers in itertools.product(CACHES, WORKERS):
        cold = cache == "cold"
        runs: dict[str, Run] = {}
        for who in MEMBERS:
            if who in FORMATS:
                runs[who] = other_run(FORMATS[who](places[who], draws, cold=cold), workers=workers)
            else:
                reads: ReadsName = "pread" if who == "store-pread" else "auto"
                runs[who] = store_run(places[who], draws, reads=reads, cold=cold, workers=workers)
        counts = {who: _enough(run, max(workers * 4, 3), run_s) for who, run in runs.items()}
        for who, run in runs.items():
            run(counts[who])  # The pages of a mapped file are mapped when they are first touched.
        times: dict[str, list[float]] = {who: [] for who in runs}
        for number in range(rounds):
            for who, run in runs.items():
                if number < LEAST_RUNS or sum(times[who]) * counts[who] < BUDGET_S:
                    times[who].append(_timed(run, counts[who]) / counts[who])
        for who, taken in times.items():
            rate = BATCH_BAGS * DRAWN / statistics.median(taken)
            rows.append({"who": who, "cache": cache, "workers": workers, "rows_per_s": rate, "batches": counts[who]})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def _enough(run: Run, least: int, run_s: float) -> int:
    """Return the number of batches that fill a run; also starts the workers and warms the caches."""
    run(least)
    return int(np.clip(run_s / (_timed(run, least) / least), least, MOST))


def _timed(run: Run, count: int) -> float:
    started = time.perf_counter()
    run(count)
    return time.perf_counter() - started


def left_after_dropping(places: dict[str, Path], draws: Draws) -> dict[str, float]:
    """Return the share of pages of a batch's files that the page cache still holds after dropping, by format."""
    bags, slots = draws[0]
    found = {}
    for who, kind in FORMATS.items():
        batches = kind(places[who], draws, cold=True)
        batches.read(bags, slots)
        batches.drop(bags)
        found[who] = resident_share(itertools.chain.from_iterable(batches.files(bag) for bag in bags[:2].tolist()))
    return found


def train_waits(folder: Path, shape: Shape, *, epochs: int) -> list[dict[str, Any]]:
    """Return the share of the training time that is waiting for data."""
    place = folder / "train"
    rng = np.random.default_rng(1)
    bags = [rng.standard_normal((shape.rows, shape.width), dtype=np.float32).astype(np.float16) for _ in range(2)]
    # All bags are copies of two bags: the speed of reading depends on the number of bytes, not on the content.
    which = np.arange(shape.bags) % 2
    memory = np.concatenate(bags)
    write_store(Bags(memory, starts=which * shape.rows, sizes=np.full(shape.bags, shape.rows), labels=which), place)
    rows = []
    for hidden, cache, workers in itertools.product(((), (128,)), CACHES, (None, 0)):
        config = Settings(
            num_instances=DRAWN, members=1, epochs=epochs, hidden=list(hidden), workers=workers, accelerator="cpu"
        )
        train = open_store(place)
        trainer = Trainer(config, train)
        while not trainer.finished:
            if cache == "cold" and isinstance(train.instances, RowFile):
                train.instances.close()
                forget(train.instances.paths)
            trainer.train_epoch()
        rows.append(
            {
                "encoder": "x".join(str(n) for n in (shape.width, *(hidden or (shape.width,)))),
                "cache": cache,
                "workers": "2 (default)" if workers is None else workers,
                "step_ms": 1e3 * trainer.trained_s / (epochs * -(-shape.bags // BATCH_BAGS)),
                "waited": trainer.waited_s / trainer.trained_s,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def rate_of(rows: list[dict[str, Any]], who: str, cache: str, workers: int) -> float:
    return next(r["rows_per_s"] for r in rows if (r["who"], r["cache"], r["workers"]) == (who, cache, workers))


def verdicts(rows: list[dict[str, Any]], training: list[dict[str, Any]]) -> list[str]:
    """Return what the rows show about the aims."""
    own = rate_of(rows, "store", "warm", 0)
    share, times = own / rate_of(rows, "memmap", "warm", 0), own / rate_of(rows, "hdf5-contiguous", "warm", 0)
    usual = [row["waited"] for row in training if row["workers"] != 0 and row["encoder"].count("x") == 1]
    default = max(row["waited"] for row in training if row["workers"] != 0 and len(set(row["encoder"].split("x"))) == 1)

    def met(good: bool) -> str:
        return "Met" if good else "Missed"

    return [
        f"- The store, warm and without workers, gives {share:.0%} of the rows of a bare memory map. Aim: at least "
        f"{SHARE:.0%}. {met(share >= SHARE)}.",
        f"- It gives {times:.1f} times the rows of contiguous HDF5. Aim: at least {TIMES}. {met(times >= TIMES)}.",
        f"- Training at 16 x 64 x 1024 with the default encoder and workers waits for data at most {default:.2%} of "
        f"the time (all encoders: {max(usual):.2%}). Aim: less than {WAIT:.0%}. {met(default < WAIT)}.",
    ]


def tables(rows: list[dict[str, Any]]) -> list[str]:
    lines = []
    for cache in CACHES:
        lines += [f"## {cache.capitalize()}", "", "Rows a second, in thousands, and against the store:", ""]
        lines += [
            f"| | {' | '.join(f'{w} workers' for w in WORKERS)} | store / this, 0 workers |",
            "|---" + "|---:" * 4 + "|",
        ]
        for who in MEMBERS:
            cells = [f"{rate_of(rows, who, cache, workers) / 1e3:.1f}" for workers in WORKERS]
            ratio = rate_of(rows, "store", cache, 0) / rate_of(rows, who, cache, 0)
            lines.append(f"| {who} | {' | '.join(cells)} | {ratio:.2f} |")
        lines.append("")
    return lines


def training_table(training: list[dict[str, Any]]) -> list[str]:
    lines = ["| encoder | cache | workers | ms a step | waiting for data |", "|---|---|---|---:|---:|"]
    for row in training:
        cells = f"| {row['encoder']} | {row['cache']} | {row['workers']} "
        lines.append(f"{cells}| {row['step_ms']:.1f} | {row['waited']:.2%} |")
    return lines


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the rows per second of each format, with a panel for each cache and a marker for each number of workers."""
    figure = new_figure((9.6, 3.9))
    heights = np.arange(len(MEMBERS))[::-1]
    for axes, cache in zip(figure.subplots(1, 2, sharey=True, sharex=True), CACHES):
        for style, workers in enumerate(WORKERS):
            rates = [rate_of(rows, who, cache, workers) for who in MEMBERS]
            axes.plot(
                rates,
                heights + 0.2 * (1 - style),
                MARKERS[style],
                color=COLORS[style],
                markersize=6,
                label=f"{workers} workers",
            )
        axes.set(xscale="log", xlabel="Rows a second")
        axes.set_yticks(heights, MEMBERS)
        axes.set_title(f"{cache.capitalize()} page cache", loc="left", fontweight="bold")
    add_legend(figure, columns=3)
    save_figure(figure, path)


def page(rows: list[dict[str, Any]], training: list[dict[str, Any]], left: dict[str, float], command: str) -> str:
    return "\n".join(
        [
            "# Speed of sampled reads",
            "",
            *verdicts(rows, training),
            "",
            "![Rows a second by format](io.png)",
            "",
            f"- Command: `{command}`",
            f"- {measured_on()}, h5py {h5py.__version__}, zarr {zarr.__version__}",
            "- The members of a column took turns; the columns were measured one after the other. Where other work "
            "runs on the machine, figures of one column compare, and those of two less so.",
            "- Cold and with workers, the dropping of one reader also takes away what another has just asked the disk "
            "for.",
            "- Share of a batch's files that the page cache still held after dropping them: "
            + ", ".join(f"{who} {share:.1%}" for who, share in left.items())
            + ".",
            "",
            *tables(rows),
            "## Waiting for data in training",
            "",
            "The trainer over a store of 64 bags of 8000 rows of 1024 float16 (1.05 GB), 16 bags of 64 instances a "
            "step, vrsp, one member, one thread; cold: the file is dropped from the page cache before each epoch of "
            "four steps.",
            "",
            *training_table(training),
            "",
            "## What is measured",
            "",
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    parser.add_argument("--write", action="store_true", help="write records/io.md and its figure")
    parser.add_argument("--quick", action="store_true", help="small files and short runs (not for the page)")
    parser.add_argument("--scratch", type=Path, help="folder for the files, 6.6 GB (default: the system's)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quick = options.quick
    shape = Shape(bags=16, rows=300) if quick else Shape()
    folder = Path(tempfile.mkdtemp(dir=options.scratch))
    try:
        places, draws = make_files(folder, shape), draw(shape)
        left = left_after_dropping(places, draws)
        rows = measure(places, draws, rounds=2 if quick else RUNS, run_s=0.02 if quick else RUN_S)
        waits = Shape(bags=16, rows=300, width=1024) if quick else Shape(bags=64, rows=8000, width=1024)
        training = train_waits(folder, waits, epochs=2 if quick else 10)
    finally:
        shutil.rmtree(folder)
    print("\n".join(verdicts(rows, training)))
    if options.json:
        found = {"rows": rows, "training": training, "left_after_dropping": left}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.write:
        PAGE.write_text(page(rows, training, left, "python benchmarks/io.py --write"), encoding="utf-8")
        plot(rows, PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
