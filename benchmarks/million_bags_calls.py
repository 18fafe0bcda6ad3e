"""The work of `million_bags.py`: a store of many small bags, a run, calls of `midam predict` in separate processes.

For each call the clock starts with its process; its memory is the highest value that the kernel records (VmHWM).
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.shared import finish_store, memory_mib

from midam.cli import main
from midam.data.digests import content_hash
from midam.data.store.format import INSTANCES, RowFacts
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings

SIZE, WIDTH = 10, 8
_TRAINED_BAGS = 400
_BLOCK = 1 << 14


def make_store(folder: Path, bags: int, *, seed: int = 0) -> Path:
    """Write a store of bags of ten instances in parts; every second bag has one shifted instance."""
    folder.mkdir(parents=True)
    dtype = np.dtype("<f2")
    facts = RowFacts("<f2", (bags * SIZE, WIDTH))
    begun, digests = content_hash(dtype, (WIDTH,)), list[str]()
    with (folder / INSTANCES).open("wb") as file:
        file.write(facts.header)
        for low in range(0, bags, _BLOCK):
            count = min(_BLOCK, bags - low)
            x = np.random.default_rng([seed, low]).normal(size=(count, SIZE, WIDTH))
            x[1::2, 0] += 1.5
            rows = x.astype(dtype)
            for bag in rows:
                digest = begun.copy()
                digest.update(bag.data)
                digests.append(digest.hexdigest())
            file.write(rows.data)
    ids = np.array([f"bag-{number:07d}" for number in range(bags)])
    return finish_store(folder, facts, ids=ids, size=SIZE, digests=digests, source="normal numbers")


def make_run(folder: Path) -> Path:
    """Train the run on a few other bags."""
    data = make_store(folder / "trained", _TRAINED_BAGS, seed=1)
    settings = Settings(epochs=5, members=1, baseline=False, accelerator="cpu", seed=0)
    fit_run(str(data), settings, RunFolder(folder / "run"))
    return folder / "run"


class Call(NamedTuple):
    """Cost of a call: seconds from its start, highest resident memory, and its output."""

    seconds: float
    peak_mib: float
    said: str


@contextlib.contextmanager
def started(words: Sequence[str | Path], report: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of `midam predict` with these words; it ends with the block."""
    command = [sys.executable, "-m", "benchmarks.million_bags_calls", str(report), *map(str, words)]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def predict(*words: str | Path) -> Call:
    """Call `midam predict` with these words, and wait for its end."""
    with tempfile.TemporaryDirectory() as name:
        report, log = Path(name, "report"), Path(name, "log")
        begun = time.perf_counter()
        with started(words, report, log) as process:
            code = process.wait()
            seconds = time.perf_counter() - begun
        said = log.read_text(encoding="utf-8")
        if code:
            raise RuntimeError(f"midam predict ended with {code}: {said}")
        return Call(seconds, json.loads(report.read_text(encoding="utf-8"))["VmHWM"], said)


def score_passes(counts: Sequence[int], run: Path, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each number of bags: seconds, memory, bytes of store and scores of a pass."""
    rows = []
    for bags in counts:
        data, out = make_store(folder / f"store-{bags}", bags), folder / f"whole-{bags}.csv"
        call = predict(run, data, "--out", out)
        stored = sum(file.stat().st_size for file in data.iterdir())
        row = {"bags": bags, "seconds": call.seconds, "peak_mib": call.peak_mib, "said": call.said}
        rows.append({**row, "store_bytes": stored, "bytes": out.stat().st_size})
    return rows


if __name__ == "__main__":
    code = main(["predict", *sys.argv[2:]])
    Path(sys.argv[1]).write_text(json.dumps(memory_mib()), encoding="utf-8")
    sys.exit(code)
