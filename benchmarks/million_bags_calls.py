"""The work of `million_bags.py`: a store of many small bags, runs, calls of `midam predict` in separate processes.

For each call the clock starts with its process; its memory is the highest value that the kernel records (VmHWM).
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.shared import finish_store, memory_mib

from midam.cli import main
from midam.data.digests import content_hash
from midam.data.store.format import INSTANCES, RowFacts
from midam.evaluate.predict import bag_groups
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings, usual_chunk

SIZE, WIDTH = 10, 8
RUNS = {"a": {"seed": 0}, "b": {"seed": 1, "pooling": "smoothed-max"}, "c": {"seed": 2, "estimator": "minibatch"}}
_TRAINED_BAGS = 400
_BLOCK = 1 << 14
_LOOK_S = 0.01
_GROUP_S = 0.2  # the longest delay of a kill after its group is on the disk: about the time of a group


@dataclass(frozen=True)
class Plan:
    """Sizes of the measurement.

    Attributes
    ----------
    bags : int
        Number of bags of the pass that is killed.
    beside : tuple of int
        Smaller numbers of bags that are scored too, in ascending order.
    kills : tuple of tuple of float
        For each killed pass, the shares of the groups that are on the disk at its kills, each followed by a random
        delay. A pass is killed once for each share.
    together : int
        Number of bags that several runs score in one pass.
    repeats : int
        Number of turns of the pass for several runs and the single passes.
    chunk_size : int
        Number of instances that a run encodes at a time; 16 chunks, or 4096 bags, are a group.
    """

    bags: int
    beside: tuple[int, ...]
    kills: tuple[tuple[float, ...], ...]
    together: int
    repeats: int
    chunk_size: int = usual_chunk((WIDTH,))

    @property
    def groups(self) -> int:
        """Return the number of groups of bags in a pass."""
        return sum(1 for _ in bag_groups(np.full(self.bags, SIZE), chunk_size=self.chunk_size))


def plan_of(bags: int, *, seed: int = 0) -> Plan:
    """Return the plan for `bags` bags, and for a thousand, a tenth and three tenths; seven kills of five passes."""
    shares = np.random.default_rng(seed).uniform(0, 1, size=6).round(3).tolist()
    kills = (*((share,) for share in shares[:3]), (1.0,), tuple(sorted(shares[3:])))
    beside = tuple(sorted({min(1000, bags // 10), bags // 10, 3 * bags // 10}))
    return Plan(bags, beside, kills, together=3 * bags // 10, repeats=3)


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


def make_runs(folder: Path, plan: Plan) -> dict[str, Path]:
    """Train the runs on a few other bags."""
    data = make_store(folder / "trained", _TRAINED_BAGS, seed=1)
    for name, own in RUNS.items():
        how: dict[str, Any] = {"epochs": 5, "members": 1, "baseline": False, "accelerator": "cpu"}
        fit_run(str(data), Settings(**how, **own, chunk_size=plan.chunk_size), RunFolder(folder / name))
    return {name: folder / name for name in RUNS}


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


def killed(words: Sequence[str | Path], journal: Path, *, groups: int, delay_s: float) -> int:
    """Kill a call `delay_s` after its journal has `groups` groups; returns the bags that the journal then has."""
    with tempfile.TemporaryDirectory() as name, started(words, Path(name, "report"), Path(name, "log")) as process:
        while process.poll() is None and _lines(journal) < groups + 1:  # the first line identifies the call
            time.sleep(_LOOK_S)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
    lines = journal.read_text(encoding="utf-8").split("\n")[1:-1] if journal.exists() else []
    return sum(json.loads(line)[1][1] for line in lines)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def same(one: Path, other: Path) -> bool:
    """Return whether two files have the same bytes."""
    digests = []
    for path in (one, other):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return digests[0] == digests[1]


def score_passes(plan: Plan, run: Path, folder: Path) -> list[dict[str, Any]]:
    """Return a row for each number of bags: seconds, memory, bytes of store and scores of a pass; keeps the files."""
    rows = []
    for bags in (*plan.beside, plan.bags):
        data, out = make_store(folder / f"store-{bags}", bags), folder / f"whole-{bags}.csv"
        call = predict(run, data, "--out", out)
        stored = sum(file.stat().st_size for file in data.iterdir())
        row = {"bags": bags, "seconds": call.seconds, "peak_mib": call.peak_mib, "said": call.said}
        rows.append({**row, "store_bytes": stored, "bytes": out.stat().st_size})
    return rows


def kill_passes(plan: Plan, run: Path, folder: Path, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of the killed passes: bags on disk at kills, cost of the last call, whether the file is `whole`."""
    rng, rows = np.random.default_rng([seed, 1]), []
    data, whole = folder / f"store-{plan.bags}", folder / f"whole-{plan.bags}.csv"
    for number, shares in enumerate(plan.kills):
        out = folder / f"killed-{number}.csv"
        journal, words = out.with_name(f"{out.name}.part"), (run, data, "--out", out)
        held = [
            killed(words, journal, groups=round(share * plan.groups), delay_s=float(rng.uniform(0, _GROUP_S)))
            for share in shares
        ]
        rest = predict(*words)
        row = {"held": held, "seconds": rest.seconds, "peak_mib": rest.peak_mib, "same": same(out, whole)}
        rows.append(row)
        out.unlink()
    return rows


def score_together(plan: Plan, runs: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Return the seconds of all runs in one pass and one after the other, by turns, and whether the files agree."""
    data, rows, equal = folder / f"store-{plan.together}", [], True
    for number in range(plan.repeats):

        def alone() -> float:
            return sum(predict(run, data, "--out", folder / f"alone.{name}.csv").seconds for name, run in runs.items())

        def together() -> float:
            return predict(*runs.values(), data, "--out", folder / "together.csv").seconds

        order = (alone, together) if number % 2 == 0 else (together, alone)
        took = {turn.__name__: turn() for turn in order}
        rows.append(took)
        equal = equal and all(same(folder / f"alone.{name}.csv", folder / f"together.{name}.csv") for name in runs)
    return {"rows": rows, "same": equal}


if __name__ == "__main__":
    code = main(["predict", *sys.argv[2:]])
    Path(sys.argv[1]).write_text(json.dumps(memory_mib()), encoding="utf-8")
    sys.exit(code)
