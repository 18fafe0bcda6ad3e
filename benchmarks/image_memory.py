"""Memory of a training step on the breast images: sampled patches, whole bags, and whole bags in chunks.

    python benchmarks/image_memory.py --write

A step of ResNet20 (group normalization, float32, one thread) with attention and the min-max objective, on images of 672
patches of 32x32. Each figure comes from a separate process, started with MALLOC_MMAP_THRESHOLD_=131072. It is the
highest anonymous memory of the process (RssAnon, read every 5 ms) minus its memory after the images were loaded and the
model was built.

- `midam`: 8 + 8 images, 16 patches each.
- `whole, K`: K images, all patches in one pass with plain autograd. Measured for 1 and 2; the line through both is
  extended to 16, which is marked because it was not run.
- `exact`: 8 + 8 images, all patches, in chunks of 256 (the estimator "exact").

Gradients: of all parameters, exact in chunks of 256 compared with plain autograd on 2 whole images, and with exact in
chunks of 512 on the 16; for each parameter the largest difference divided by its largest gradient.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.shared import RESULTS, AnonymousPeak, measured_on, memory_mib

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches
from midam.data.sampling import BagSampler
from midam.files import write_text
from midam.functional.objectives import class_weights
from midam.settings import Settings
from midam.train.build import MethodParts, build_method
from midam.train.members import fit_standardizers
from studies.sets import catalog

PAGE = RESULTS / "image-memory.md"
HALF, DRAWN, CHUNK, OTHER_CHUNK = 8, 16, 256, 512
Gradient = dict[str, torch.Tensor]


def load(cap: int | None) -> Bags:
    """Return 8 malignant and 8 benign images in memory, malignant first; `cap` limits the patches of each."""
    bags = catalog.load("breast")
    labels = bags.require_labels()
    chosen = np.concatenate([np.flatnonzero(labels == value)[:HALF] for value in (1, 0)])
    arrays = [np.asarray(bags[i])[:cap] for i in chosen]
    return Bags.from_list(arrays, labels[chosen])


def method_of(estimator: str, chunk: int, bags: Bags) -> MethodParts:
    config = Settings(
        encoder="resnet20", estimator=estimator, members=1, chunk_size=chunk, num_instances=DRAWN, accelerator="cpu"
    )
    method = build_method(config, instance_shape=bags.instance_shape, num_bags=len(bags))
    fit_standardizers([method.model.standardizer], bags, seed=0)
    return method


def whole_batch(bags: Bags, count: int) -> WholeBatch:
    """Return `count` images, with both classes if there are two or more."""
    index = torch.tensor([i // 2 + (HALF if i % 2 else 0) for i in range(count)]).sort().values
    labels = torch.from_numpy(bags.require_labels()).float()[index]
    return WholeBatch(InstanceReader(bags), index, labels, class_weights=class_weights(labels))


def sampled_batch(bags: Bags) -> SampledBatch:
    labels = torch.from_numpy(bags.require_labels()).float()
    sampler = BagSampler(bags.require_labels(), bags.sizes, num_instances=DRAWN, seed=0)
    return next(iter(sampled_batches(InstanceReader(bags), sampler, labels)))


def gradient(method: MethodParts, batch: Any) -> Gradient:
    """Return the gradients of the first step from the weights of seed 0, by parameter."""
    output = method.estimator(method.model, batch)
    method.objective(output, batch.labels, weights=batch.class_weights).backward()
    return {name: p.grad.clone() for name, p in method.model.named_parameters() if p.grad is not None}


def measured(work: Callable[[], Gradient]) -> dict[str, float]:
    before = memory_mib()["RssAnon"]
    started = time.perf_counter()
    with AnonymousPeak() as peak:
        work()
    return {"mib": max(peak.mib - before, 0.0), "seconds": time.perf_counter() - started}


def run_one(name: str, cap: int | None) -> dict[str, float]:
    """Measure one member in this process."""
    torch.set_num_threads(1)
    bags = load(cap)
    torch.manual_seed(0)
    if name == "midam":
        method, batch = method_of("vrsp", CHUNK, bags), sampled_batch(bags)
    elif name == "exact":
        method, batch = method_of("exact", CHUNK, bags), whole_batch(bags, 2 * HALF)
    else:
        method, batch = (
            method_of("exact", bags.num_instances, bags),
            whole_batch(bags, int(name.removeprefix("whole, "))),
        )
    return measured(lambda: gradient(method, batch))


def run_gradients(cap: int | None) -> dict[str, float]:
    """Return the largest relative difference of gradients, for two pairs of ways to the same gradient."""
    torch.set_num_threads(1)
    bags = load(cap)
    chunk, other = (CHUNK, OTHER_CHUNK) if cap is None else (CHUNK // 16, OTHER_CHUNK // 16)
    found = {}
    for name, count, first, second in (
        ("two", 2, chunk, bags.num_instances),
        ("sixteen", 2 * HALF, chunk, other),
    ):
        ways = []
        for size in (first, second):
            torch.manual_seed(0)
            ways.append(gradient(method_of("exact", size, bags), whole_batch(bags, count)))
        scales = {key: float(g.abs().max()) for key, g in ways[1].items()}
        largest = max(scales.values())
        # A parameter with only rounding noise as gradient has no relative difference.
        kept = [key for key in scales if scales[key] > 1e-6 * largest]
        found[name] = max(float((ways[0][key] - ways[1][key]).abs().max()) / scales[key] for key in kept)
    return found


def in_process(name: str, cap: int | None) -> dict[str, float]:
    print(name, file=sys.stderr, flush=True)
    words = [sys.executable, str(Path(__file__).resolve()), "--one", name] + (
        [] if cap is None else ["--cap", str(cap)]
    )
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def page(rows: dict[str, dict[str, float]], same: dict[str, float], cap: int | None) -> str:
    one, two = rows["whole, 1"]["mib"], rows["whole, 2"]["mib"]
    extended = one + (2 * HALF - 1) * (two - one)
    patches = 672 if cap is None else cap
    lines = [
        "# Memory of a step on the breast images",
        "",
        "Peak memory of a training step of ResNet20 on images of "
        f"{patches} patches: MIDAM draws {DRAWN} of each, whole bags take all, `exact` takes all in chunks.",
        "",
        f"- Command: `python benchmarks/image_memory.py{'' if cap is None else ' --small'} --write`",
        f"- {measured_on()}",
        "- Each figure is the highest anonymous memory of a process of its own, above model and images; one thread.",
        "",
        "| step | images | patches encoded | peak memory, MiB | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    shown = {
        "midam": ("MIDAM, 16 patches an image", 2 * HALF, 2 * HALF * min(DRAWN, patches)),
        "whole, 1": ("whole bags, plain autograd", 1, patches),
        "whole, 2": ("whole bags, plain autograd", 2, 2 * patches),
        "exact": (f"whole bags, `exact` in chunks of {CHUNK}", 2 * HALF, 2 * HALF * patches),
    }
    for name, (text, images, count) in shown.items():
        row = rows[name]
        lines.append(f"| {text} | {images} | {count} | {row['mib']:.0f} | {row['seconds']:.1f} |")
        if name == "whole, 2":
            lines.append(
                f"| whole bags, plain autograd: **extended from 1 and 2, not run** | {2 * HALF} | "
                f"{2 * HALF * patches} | {extended:.0f} | - |"
            )
    return "\n".join(
        [
            *lines,
            "",
            f"Whole bags would take {extended / rows['midam']['mib']:.0f} times the memory of MIDAM's step, and "
            f"{extended / rows['exact']['mib']:.0f} times that of `exact` in chunks.",
            "",
            "Equal gradients: on 2 whole images `exact` in chunks differs from plain autograd by at most "
            f"{same['two']:.1e} of a parameter's largest gradient, and on all {2 * HALF} images two sizes of chunk "
            f"from each other by at most {same['sixteen']:.1e}, in float32.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--small", action="store_true", help="32 patches an image, to see that it runs; no result")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cap", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        found = run_gradients(options.cap) if options.one == "gradients" else run_one(options.one, options.cap)
        print(json.dumps(found))
        return
    if options.small and options.write:
        parser.error("Expected --small without --write, got both; a small run is no result.")
    cap = 32 if options.small else None
    rows = {name: in_process(name, cap) for name in ("midam", "whole, 1", "whole, 2", "exact")}
    text = page(rows, in_process("gradients", cap), cap)
    print(text)
    if options.write:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
