"""Time and memory of a training step of ResNet20 on a GPU: bare encoder, midam, LibAUC, and exact on whole bags.

    python benchmarks/gpu.py --write

Cases: `patches`, 16 bags x 64 patches of 3 x 32 x 32; `slices`, 8 bags x 32 slices of 1 x 240 x 240. Attention
pooling, bytes on the device, SGD. Modes: float32; bf16 autocast; the same with channels-last weights; the same with
torch.compile.

- `bare`: encoder and head on one fixed batch, sum, backward, optimizer, in each mode; a ratio is to the bare encoder in
  the same mode.
- `midam`: gather, standardize, encode, pool, loss, backward, optimizer, dual step and commit of the tracked state. The
  draws of an epoch are made together, in one of eight steps: the median leaves them out.
- `libauc`: LibAUC 2.0.1's loss, optimizer, network (batch normalization) and loop over bags, float32; its bags are on
  the device.
- `exact, n = ...`: the exact gradient of whole bags of n instances, float32; the same number of bags in a step.

A row is the median over steps that the members take in turn, and the peak of the device memory of a member in a step:
weights, state, activations, and for `exact` its bags.
"""

import argparse
import contextlib
import datetime
import io
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, measured_on

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.errors import ConfigError
from midam.files import write_text
from midam.settings import Settings
from midam.train.build import MethodParts, build_method, build_optimizer
from midam.train.loop import train_step
from midam.train.members import training_scorer
from studies.peers import load_libauc

PAGE = RESULTS / "gpu.md"
_COMMAND = "python benchmarks/gpu.py --write"
_SHOWS = (
    "Time and device memory of one training step of ResNet20: the bare encoder, midam, LibAUC 2.0.1 and the exact "
    "gradient of whole bags. `patches`: 16 bags x 64 patches of 3 x 32 x 32; `slices`: 8 bags x 32 slices of 1 x 240 x "
    "240. Attention pooling, bytes on the device, SGD. A ratio is to the bare encoder of its own mode. Rows are "
    "medians of steps that the members of a process take in turn; compiled modes have a process of their own. The "
    "memory is what a member holds at the peak of a step: weights, state, activations and, of exact, its bags."
)
STEPS_PER_EPOCH = 8
WARM_UP = 5

Step = Callable[[], object]
Parts = tuple[Settings, MethodParts, torch.optim.Optimizer]


class Case(NamedTuple):
    """Sizes of a step: bags, drawn instances, their shape; the bag sizes of `exact` and its chunk."""

    name: str
    bags: int
    drawn: int
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    chunk: int


CASES = (
    Case("patches", 16, 64, (3, 32, 32), (64, 256, 1024, 4096), 4096),
    Case("slices", 8, 32, (1, 240, 240), (64, 256), 64),
)
SMALL = (
    Case("patches", 4, 4, (3, 16, 16), (8, 16), 16),
    Case("slices", 4, 2, (1, 24, 24), (8,), 8),
)


class Mode(NamedTuple):
    """Mode in which the encoder runs."""

    name: str
    bf16: bool
    last: bool
    compile: bool


FLOAT32 = Mode("float32", False, False, False)
MODES = (
    FLOAT32,
    Mode("bf16", True, False, False),
    Mode("bf16, channels last", True, True, False),
    Mode("compiled", True, True, True),
)


class Bench:
    """The members of one case on one device."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.bags = self._make_bags(STEPS_PER_EPOCH * case.bags, 2 * case.drawn)
        self.reader = InstanceReader(self.bags, device=device, resident=True)

    def _make_bags(self, count: int, size: int) -> Bags:
        rows = np.random.default_rng(0).integers(0, 256, size=(count * size, *self.case.shape), dtype=np.uint8)
        starts = np.arange(count, dtype=np.int64) * size
        sizes = np.full(count, size, dtype=np.int64)
        return Bags(rows, starts=starts, sizes=sizes, labels=np.arange(count) % 2, source="the benchmark")

    def _method(self, mode: Mode, *, estimator: str = "vrsp") -> Parts:
        config = Settings(
            encoder="resnet20",
            estimator=estimator,
            compile=mode.compile,
            chunk_size=self.case.chunk,
            optimizer="sgd",
            lr=0.01,
        )
        method = build_method(config, instance_shape=self.case.shape, num_bags=len(self.bags))
        method.model.to(self.device).train()
        method.estimator.to(self.device)
        method.objective.to(self.device)
        if mode.last:
            for p in method.model.encoder.parameters():
                if p.ndim == 4:
                    p.data = p.data.contiguous(memory_format=torch.channels_last)
        return config, method, build_optimizer(config, method.model, method.objective)

    def _autocast(self, mode: Mode) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mode.bf16)

    def bare(self, mode: Mode) -> Step:
        """Return a step of encoder and head on one fixed batch."""
        config, method, optimizer = self._method(mode)
        encoder = training_scorer(method.model, config).encoder
        x = torch.randn(self.case.bags * self.case.drawn, *self.case.shape, device=self.device)

        def step() -> None:
            with self._autocast(mode):
                z, v = method.model.pooling(encoder(x))
                optimizer.zero_grad()
                (z.sum() + v.sum()).backward()
                optimizer.step()

        return step

    def midam(self, mode: Mode) -> Step:
        """Return a step of MIDAM as the trainer runs it."""
        return self._stepper(self._method(mode), mode, endless(self.bags, self.reader, self.case))

    def exact(self, size: int) -> Step:
        """Return a step with exact gradients of whole bags of this size."""
        bags = self._make_bags(self.case.bags, size)
        reader = InstanceReader(bags, device=self.device, resident=True)
        parts = self._method(FLOAT32, estimator="exact")
        return self._stepper(parts, FLOAT32, endless(bags, reader, self.case, whole=True))

    def _stepper(self, parts: Parts, mode: Mode, batches: Iterator[SampledBatch | WholeBatch]) -> Step:
        config, method, optimizer = parts
        model = training_scorer(method.model, config)

        def step() -> None:
            with self._autocast(mode):
                train_step(model, method.estimator, method.objective, optimizer, next(batches))

        return step

    def libauc(self) -> Step:
        """Return a step of LibAUC's loop over bags."""
        peer = load_libauc()
        with contextlib.redirect_stdout(io.StringIO()):  # LibAUC's network and optimizer print.
            model = peer.mil_models.ResNet20_stoc_att(inchannels=self.case.shape[0]).to(self.device)
            loss_fn = peer.mil.MIDAMLoss(mode="attention", data_len=len(self.bags), margin=1.0, device=self.device)
            optimizer = peer.midam.MIDAM(
                model.parameters(), loss_fn=loss_fn, lr=0.01, momentum=0.1, weight_decay=1e-4, device=self.device
            )
        data = self.reader.all.split(self.bags.sizes.tolist())
        labels = torch.from_numpy(self.bags.require_labels()).float().to(self.device)
        sampler = make_sampler(self.bags, self.case, drawn=None)
        draws = iter([index for _ in range(500) for index in sampler.epoch().bags])
        sample = {"model": model, "instance_batch_size": self.case.drawn, "mode": "att", "device": self.device}

        def step() -> None:
            index = next(draws)
            pooled = [peer.paper_utils.MIL_sampling(bag_X=data[i], **sample) for i in index.tolist()]
            prediction: Any = [torch.cat([p[k] for p in pooled]) for k in range(2)]
            loss = loss_fn(y_pred=prediction, y_true=labels[index.to(self.device)].view(-1, 1), index=index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step


def make_sampler(bags: Bags, case: Case, *, drawn: int | None) -> BagSampler:
    half = case.bags // 2
    return BagSampler(
        bags.require_labels(), bags.sizes, num_positive=half, num_negative=half, num_instances=drawn, seed=0
    )


def endless(
    bags: Bags, reader: InstanceReader, case: Case, *, whole: bool = False
) -> Iterator[SampledBatch | WholeBatch]:
    """Yield the trainer's batches, epoch after epoch."""
    sampler = make_sampler(bags, case, drawn=None if whole else case.drawn)
    labels = torch.from_numpy(bags.require_labels()).to(reader.device, torch.float32)
    while True:
        yield from (whole_batches if whole else sampled_batches)(reader, sampler, labels)


def measure(
    case: Case, device: torch.device, modes: tuple[Mode, ...], *, repeats: int, seconds: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of one case, and notes on the members that could not run."""
    torch.compiler.reset()
    bench = Bench(case, device)
    makers: dict[tuple[str, str], Callable[[], Step]] = {}
    for mode in modes:
        makers["bare", mode.name] = lambda mode=mode: bench.bare(mode)
        makers["midam", mode.name] = lambda mode=mode: bench.midam(mode)
    if FLOAT32 in modes:
        makers["libauc", FLOAT32.name] = bench.libauc
        for size in case.whole:
            makers[f"exact, n = {size}", FLOAT32.name] = lambda size=size: bench.exact(size)
    steps, peaks, notes = {}, {}, []
    for key, make in makers.items():
        print(f"{case.name}: {', '.join(key)}", file=sys.stderr, flush=True)
        try:
            steps[key], peaks[key] = warmed(make, device)
        except (ConfigError, torch.OutOfMemoryError, RuntimeError) as error:
            notes.append(f"{case.name}, {', '.join(key)}: not measured ({str(error).strip().splitlines()[0]})")
    times = in_turn(steps, device, repeats=repeats, seconds=seconds)
    rows = []
    for (who, mode), taken in times.items():
        ms, bare = statistics.median(taken), times.get(("bare", mode))
        ratio = ms / statistics.median(bare) if bare else None
        row = {"case": case.name, "who": who, "mode": mode, "ms": ms, "ratio": ratio, "steps": len(taken)}
        rows.append({**row, "peak_mib": peaks[who, mode]})
    return rows, notes


def warmed(make: Callable[[], Step], device: torch.device) -> tuple[Step, float | None]:
    """Return a step that has run a few times, and its memory peak in MiB."""
    cuda = device.type == "cuda"
    before = torch.cuda.memory_allocated(device) if cuda else 0
    step = make()
    for _ in range(WARM_UP):
        step()
    if not cuda:
        return step, None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return step, (torch.cuda.max_memory_allocated(device) - before) / 2**20


def in_turn(
    steps: dict[tuple[str, str], Step], device: torch.device, *, repeats: int, seconds: float
) -> dict[tuple[str, str], list[float]]:
    """Return milliseconds of steps that members take in turn; a member stops after its seconds and at least 3 steps."""
    times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for _ in range(repeats):
        for key, step in steps.items():
            if len(times[key]) < 3 or sum(times[key]) < 1e3 * seconds:
                times[key].append(timed(step, device))
    return times


def timed(step: Step, device: torch.device) -> float:
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    step()
    wait()
    return (time.perf_counter() - start) * 1e3


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table."""
    lines = ["| case | who | mode | ms a step | ratio to bare | peak memory, MiB |", "|---|---|---|---:|---:|---:|"]
    for row in rows:
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.2f}"
        peak = "-" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
        lines.append(f"| {row['case']} | {row['who']} | {row['mode']} | {row['ms']:.2f} | {ratio} | {peak} |")
    return lines


def page(lines: list[str]) -> str:
    """Return the page of these lines."""
    return "\n".join(["# A step on a GPU", "", _SHOWS, "", *lines, "", f"Command: `{_COMMAND}`"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="tiny sizes that show that it runs; no result")
    parser.add_argument("--repeats", type=int, default=30, help="steps of each member")
    parser.add_argument("--seconds", type=float, default=6.0, help="after so many a member sits out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "MODES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(
            "Expected a CUDA device, got none; run it on one, or with --device cpu --small to see that it runs."
        )
    if options.device == "cpu" and not options.small:
        parser.error("Expected --small with --device cpu, got full sizes; they are made for a GPU.")
    device = torch.device(options.device)
    # A compiler takes a minute to warm up; a small run only shows that the other modes run.
    modes = tuple(mode for mode in MODES if not (options.small and mode.compile))
    cases = SMALL if options.small else CASES
    if options.one is not None:
        (case,) = (case for case in cases if case.name == options.one[0])
        own = tuple(mode for mode in modes if mode.compile == (options.one[1] == "compiled"))
        print(json.dumps(measure(case, device, own, repeats=options.repeats, seconds=options.seconds)))
        return
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU"
    measured = f"{name}, {measured_on()}{', small sizes: no result' if options.small else ''}."
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    lines: list[str] = []
    parts = [(case.name, part) for case in cases for part in (("plain",) if options.small else ("plain", "compiled"))]
    for number, (case, part) in enumerate(parts, 1):
        # After a CUDA error, a process can measure nothing more: thus each process has few members.
        command = [sys.executable, __file__, *sys.argv[1:], "--one", case, part]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            notes.append(f"{case}, {part}: not measured (the process ended with {done.returncode})")
        else:
            found, said = json.loads(done.stdout.splitlines()[-1])
            rows += found
            notes += said
            print("\n".join(table(found)), flush=True)
        left = [f"{', '.join(later)}: not measured (the command was stopped before)" for later in parts[number:]]
        lines = [measured, "", *(f"- {note}" for note in (*notes, *left)), "", *table(rows)]
        if options.write:  # after each part, since a later one may be stopped
            write_text(PAGE, page(lines))
    about = {"device": name, "torch": torch.__version__, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"}
    if options.json:
        content = {**about, "small": options.small, "rows": rows, "notes": notes}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
