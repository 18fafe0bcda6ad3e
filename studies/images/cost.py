"""Cost of a study on images: instances encoded, floating-point operations, and the time on a device."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from midam.nn.encoders.images import ResNet20
from studies.images.design import half_precision, image_config
from studies.images.trials import Job, score_epochs
from studies.page import duration, table

_CALIBRATION_VALUES = 65536
_LEAST, _MOST = 1, 64
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """Cost of some trials of one row."""

    shape: Shape  # Shape of an instance
    # Instances encoded with a backward pass, and without
    trained: int
    scored: int
    steps: int  # Number of training steps

    @property
    def flop(self) -> float:
        """Return the floating-point operations; a backward pass counts as two forward passes."""
        return forward_flop(self.shape) * (3 * self.trained + self.scored)


@lru_cache(maxsize=32)
def forward_flop(shape: Shape) -> int:
    """Return the floating-point operations of ResNet20 on one instance of this shape, forward.

    Examples
    --------
    >>> forward_flop((3, 32, 32)) // 10**6
    81
    """
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        ResNet20(shape[0], spatial=3 if len(shape) == 4 else 2)(torch.empty(1, *shape))
    return int(counter.get_total_flops())


def job_cost(job: Job) -> Cost:
    """Return the cost of a trial: search, training and all scoring; a baseline has no cost here."""
    shape = job.bags.instance_shape
    if job.is_baseline:
        return Cost(shape, 0, 0, 0)
    recipe, sizes = job.recipe, job.bags.sizes
    runs = len(recipe.rates(job.method)) + len(recipe.margins_of(job.method)) - 1
    final = recipe.epochs_of(job.method)
    epochs = final + (recipe.search_epochs(job.method) * runs if runs > 1 else 0)
    config = image_config(job.method, recipe, lr=0.1, margin=1.0, epochs=1, cuda=job.cuda)
    drawn = min(2 * recipe.bags, len(job.split.train))
    steps = -(-len(job.split.train) // drawn)
    train = sizes[job.split.train]
    of_bag = float(train.mean())
    streamed = 0.0
    if config.method.estimator != "exact":
        of_bag = float(np.minimum(train, recipe.instances).mean())
    elif of_bag * drawn > config.resolve(shape).run.chunk_size:
        streamed = of_bag
    times = len(score_epochs(final, recipe.score_every)) if len(job.split.val) else 1
    scored = times * int(sizes[job.split.score].sum()) + (runs if runs > 1 else 0) * int(sizes[job.split.val].sum())
    bags = epochs * steps * drawn
    return Cost(shape, round(bags * of_bag), scored + round(bags * streamed), epochs * steps)


def row_costs(jobs: Sequence[Job]) -> dict[tuple[str, str], Cost]:
    """Return the cost of each set and method over its trials, without methods of no cost."""
    found: dict[tuple[str, str], Cost] = {}
    for job in jobs:
        own = job_cost(job)
        before = found.get((job.name, job.method), Cost(own.shape, 0, 0, 0))
        total = Cost(own.shape, before.trained + own.trained, before.scored + own.scored, before.steps + own.steps)
        found[job.name, job.method] = total
    return {key: cost for key, cost in found.items() if cost.trained}


def measure_seconds(costs: Mapping[tuple[str, str], Cost], *, cuda: bool) -> dict[Shape, tuple[float, float]]:
    """Return the seconds for an instance of each shape with one thread: with a backward pass, and without."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {shape: _seconds(shape, cuda=cuda) for shape in dict.fromkeys(cost.shape for cost in costs.values())}
    finally:
        torch.set_num_threads(threads)


def row_seconds(cost: Cost, seconds: Mapping[Shape, tuple[float, float]]) -> float:
    """Return the time of a row on one process, after `measure_seconds`."""
    trained, scored = seconds[cost.shape]
    return cost.trained * trained + cost.scored * scored


def cost_table(
    costs: Mapping[tuple[str, str], Cost],
    jobs: Sequence[Job],
    *,
    expected: Mapping[tuple[str, str], float] | None = None,
    taken: Mapping[tuple[str, str], float] | None = None,
) -> list[str]:
    """Return a Markdown table of the costs, with expected and measured time."""
    trials = {key: sum((job.name, job.method) == key for job in jobs) for key in costs}
    head = ["set, method", "trials", "steps", "instances trained", "instances scored", "TFLOP"]
    head += ["expected"] if expected else []
    head += ["taken"] if taken else []
    rows = []
    for (name, method), cost in costs.items():
        numbers: list[Any] = [trials[name, method], cost.steps, cost.trained, cost.scored, round(cost.flop / 1e12)]
        cells = [f"{name}, {method}", *map(str, numbers)]
        cells += [duration(expected[name, method])] if expected else []
        cells += [duration(taken[name, method]) if (name, method) in taken else "-"] if taken else []
        rows.append(cells)
    return table(head, rows)


def _seconds(shape: Shape, *, cuda: bool) -> tuple[float, float]:
    device = torch.device("cuda" if cuda else "cpu")
    count = min(_MOST, max(_LEAST, _CALIBRATION_VALUES // int(np.prod(shape[1:]))))
    count = count * 16 if cuda else count
    model = ResNet20(shape[0], spatial=3 if len(shape) == 4 else 2).to(device)
    x = torch.zeros(count, *shape, device=device)
    low = torch.autocast(device.type, torch.bfloat16, enabled=half_precision(stacked=len(shape) == 4, cuda=cuda))
    both, forward = [], []
    for _ in range(3):
        with low:
            start = _now(cuda)
            model(x).sum().backward()
            middle = _now(cuda)
        # Bags are scored in full precision.
        with torch.no_grad():
            model(x)
        both.append(middle - start)
        forward.append(_now(cuda) - middle)
    return min(both) / count, min(forward) / count


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
        return time.perf_counter()
    # Processor time: on a shared machine, wall time depends on other processes too.
    return time.process_time()
