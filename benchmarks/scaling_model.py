"""What a step and a pass cost with W processes, N instances and K bags a step: measured here, and a model from it.

    python benchmarks/scaling_model.py --write

Measured, with one thread a process: the seconds of a step of one process over 2, 4, 8 and 16 bags; those of an
instance that is scored; the bytes and the number of exchanges of a step, as two processes count them; and the seconds
of a sum over 2, 3 and 4 processes (gloo, through this machine) of 4 bytes to 4 MiB.

The model, for a step of K bags of B drawn instances:

    seconds(W, K) = fixed + instance * B * ceil(K / W) + exchanges(W)
    exchanges(W) = number * latency * hops(W) + 2 * (W - 1) / W * bytes / bandwidth

`fixed` and `instance` are a line through the steps of one process. Of gloo, hops(W) = W - 1, for its sums go around a
ring; latency and bandwidth are fitted to the sums. Of a cluster, hops(W) = log2(W), as in the trees of NCCL, with the
latency and bandwidth that are given by --latency and --bandwidth: an assumption, not a measurement.
"""

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on

from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.files import write_text
from midam.process_group import Ranks
from midam.settings import Settings
from midam.train.loop import Training
from midam.train.members import build_members, labels_of, open_reader

PAGE = RESULTS / "scaling-model.md"
CASES: dict[str, tuple[str, tuple[int, ...]]] = {
    "patches of 32 x 32 x 3, ResNet20": ("resnet20", (3, 32, 32)),
    "1024 features, mlp": ("mlp", (1024,)),
}
BAGS, SIZE, DRAWN = 48, 24, 16
STEPS_OF = (2, 4, 8, 16)
SUMS = (4, 4096, 65536, 1 << 20, 4 << 20)
WORLDS = (2, 3, 4)
STATE_BYTES, INSTANCES_A_BAG = 12, 1000


def make_bags(case: str) -> Bags:
    """Return bags of random numbers."""
    rows = np.random.default_rng(0).standard_normal((BAGS, SIZE, *CASES[case][1]), dtype=np.float32)
    return Bags.from_list(list(rows), np.arange(BAGS) % 2)


def make_training(case: str, bags: Bags, bags_a_step: int, ranks: Ranks | None = None) -> Training:
    """Return a training of one scorer, in one process or as one of several processes."""
    half, device = bags_a_step // 2, torch.device("cpu")
    given = {"encoder": CASES[case][0], "num_positive": half, "num_negative": half, "num_instances": DRAWN}
    config = Settings.from_flat({**given, "members": 1, "standardize": False, "threads": 1})
    (member,) = build_members(config, bags, device=device)
    reader = open_reader(member.config, bags, transform=None, device=device)
    return Training(member, reader, labels_of(bags, reader), ranks=ranks)


def step_seconds(training: Training, bags_a_step: int, epochs: int = 3) -> float:
    """Return the median seconds of a step over epochs, after a first epoch."""
    found = []
    for epoch in range(1 + epochs):
        started = time.perf_counter()
        training.train_epoch(epoch)
        found.append((time.perf_counter() - started) / (BAGS // bags_a_step))
    return median(found[1:])


def alone(case: str) -> dict[str, Any]:
    """Return step times of one process, the line through them, and the seconds to score an instance."""
    bags = make_bags(case)
    steps = {count: step_seconds(make_training(case, bags, count), count) for count in STEPS_OF}
    slope, fixed = np.polyfit([count * DRAWN for count in STEPS_OF], list(steps.values()), 1)
    model = make_training(case, bags, 16).model
    predict(model, bags)
    started = time.perf_counter()
    predict(model, bags)
    scored = (time.perf_counter() - started) / bags.num_instances
    return {"steps": steps, "instance": slope, "fixed": max(0.0, fixed), "scored": scored}


def worker(out: Path) -> None:
    """Run one of several processes: measure the time of sums, and count the exchanges of a step of each case."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = Ranks(dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
    sums = {size: _timed(partial(dist.all_reduce, torch.zeros(size // 4))) for size in SUMS}
    cases = {}
    for case in CASES if ranks.count == 2 else ():
        training, steps = make_training(case, make_bags(case), 16, ranks), BAGS // 16
        training.train_epoch(0)
        before = ranks.exchanged_bytes, ranks.exchanges
        started = time.perf_counter()
        for epoch in range(1, 4):
            training.train_epoch(epoch)
        seconds = (time.perf_counter() - started) / (3 * steps)
        counted = (ranks.exchanged_bytes - before[0], ranks.exchanges - before[1])
        cases[case] = {"bytes": counted[0] / (3 * steps), "number": counted[1] / (3 * steps), "seconds": seconds}
    if ranks.leads:
        write_text(out, json.dumps({"sums": sums, "cases": cases}))
    ranks.leave()


def _timed(call: Callable[[], Any], repeats: int = 60) -> float:
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return median(found[repeats // 6 :])


def together(count: int, out: Path) -> dict[str, Any]:
    """Return the measurements of `count` processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    env = {**os.environ, **address, "WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--worker", str(out)]
    kids = [subprocess.Popen(command, env={**env, "RANK": str(rank)}) for rank in range(count)]
    if any(kid.wait() for kid in kids):
        raise RuntimeError(f"one of {count} processes failed")
    found: dict[str, Any] = json.loads(out.read_text())
    out.unlink()
    return found


def fit_network(sums: dict[int, dict[str, float]]) -> tuple[float, float]:
    """Return the latency of a hop in seconds and the bytes per second of a ring, by relative least squares."""
    rows = [
        (count - 1, 2 * (count - 1) / count * int(size), value)
        for count, of in sums.items()
        for size, value in of.items()
    ]
    table = np.array([[hops / value, size / value] for hops, size, value in rows])
    (latency, per_byte), _ = nnls(table, np.ones(len(rows)))
    return float(latency), 1 / max(per_byte, 1e-15)


def exchange_seconds(of: dict[str, float], count: int, *, hops: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of the exchanges in a step."""
    return 0.0 if count == 1 else of["number"] * latency * hops + 2 * (count - 1) / count * of["bytes"] / bandwidth


def page(found: dict[str, Any], options: argparse.Namespace) -> str:
    """Return the measurements and the model as Markdown."""
    latency, bandwidth = fit_network(found["sums"])
    ring = {"latency": latency, "bandwidth": bandwidth}
    cluster = {"latency": options.latency * 1e-6, "bandwidth": options.bandwidth * 1e9}
    lines = [
        "# A model of the cost",
        "",
        f"- Command: `{' '.join(['python', 'benchmarks/scaling_model.py', *sys.argv[1:]])}`",
        f"- {measured_on()}",
        f"- {BAGS} bags of {SIZE} instances in memory, {DRAWN} drawn; attention, vrsp; one thread a process.",
        "",
        "## Measured",
        "",
        "| | step of 2, 4, 8, 16 bags, ms | an instance, ms | fixed, ms | scored, ms | exchanges | bytes a step |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, one in found["alone"].items():
        two = found["two"][case]
        steps = ", ".join(f"{1e3 * value:.1f}" for value in one["steps"].values())
        lines.append(
            f"| {case} | {steps} | {1e3 * one['instance']:.3f} | {1e3 * one['fixed']:.1f} | {1e3 * one['scored']:.3f} "
            f"| {two['number']:.1f} | {two['bytes']:,.0f} |"
        )
    lines += [
        "",
        f"Sums over gloo: {1e6 * latency:.0f} microseconds a hop and {bandwidth / 1e9:.2f} GB a second, fitted to:",
        "",
        "| processes | " + " | ".join(_bytes(size) for size in SUMS) + " |",
        "|---|" + "---|" * len(SUMS),
        *(
            f"| {count} | " + " | ".join(f"{1e3 * value:.2f} ms" for value in of.values()) + " |"
            for count, of in found["sums"].items()
        ),
        "",
        "| | two processes, measured, ms | the model, ms |",
        "|---|---|---|",
    ]
    for case, one in found["alone"].items():
        two = found["two"][case]
        modeled = one["fixed"] + one["instance"] * DRAWN * 8 + exchange_seconds(two, 2, hops=1, **ring)
        lines.append(f"| {case} | {1e3 * two['seconds']:.1f} | {1e3 * modeled:.1f} |")
    lines += [
        "",
        "## To 1000 processes",
        "",
        "The time of a step by the model, and the share of exchanges in it. `ring`: gloo as measured here. `cluster`: "
        f"hops of {options.latency:g} microseconds in a tree and {options.bandwidth:g} GB a second, not measured.",
        "",
        "| | processes | bags a step | compute, ms | ring, ms | share | cluster, ms | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, one in found["alone"].items():
        for count in (1, 2, 8, 64, 1000):
            for bags in dict.fromkeys((max(16, count), 16 * count)):
                compute = one["fixed"] + one["instance"] * DRAWN * math.ceil(bags / count)
                row = f"| {case} | {count} | {bags} | {1e3 * compute:.1f} |"
                # The bytes of gradients do not depend on the number of bags; the other bytes grow with it.
                of = dict(found["two"][case])
                of["bytes"] += (bags - 16) * STATE_BYTES
                for hops, network in ((count - 1, ring), (math.log2(count), cluster)):
                    more = exchange_seconds(of, count, hops=hops, **network)
                    row += f" {1e3 * (compute + more):.1f} | {more / (compute + more):.1%} |"
                lines.append(row)
    lines += [
        "",
        "## To 1e9 instances",
        "",
        f"Bags of {INSTANCES_A_BAG} instances. A step draws the same few whatever their number. What grows: the state "
        f"that each process holds ({STATE_BYTES} bytes a bag), and the time of a pass over all (scoring, or `exact`), "
        "which is shared.",
        "",
        "| instances | state | " + " | ".join(f"pass with 1 / 1000 cores: {case}" for case in found["alone"]) + " |",
        "|---|---|" + "---|" * len(found["alone"]),
    ]
    for count in (10**6, 10**7, 10**8, 10**9):
        passes = " | ".join(
            f"{_time(one['scored'] * count)} / {_time(one['scored'] * count / 1000)}" for one in found["alone"].values()
        )
        lines.append(f"| {count:,} | {_bytes(STATE_BYTES * count // INSTANCES_A_BAG)} | {passes} |")
    text = (__doc__ or "").split("\n\n")
    lines += ["", "## How", "", text[2], "", text[3], "", text[4], "", text[5].strip(), ""]
    return "\n".join(lines)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} s"


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--latency", type=float, default=20.0, metavar="US", help="of a hop of the cluster")
    parser.add_argument("--bandwidth", type=float, default=10.0, metavar="GB", help="a second, of the cluster")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        worker(options.worker)
        return
    torch.set_num_threads(1)
    found: dict[str, Any] = {"alone": {case: alone(case) for case in CASES}, "sums": {}}
    for count in WORLDS:
        of = together(count, Path(f"{os.getpid()}.scaling.json").resolve())
        found["sums"][count] = of["sums"]
        found["two"] = of["cases"] or found["two"]
    text = page(found, options)
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
