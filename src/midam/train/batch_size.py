"""How many bags and instances a step takes (S+, S-, B), where a setting leaves that open by "auto".

The first of `batch_sizes` is taken that fits the memory. What an instance takes is measured by what torch saves of a
forward pass.
"""

import inspect
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.free_memory import free_memory
from midam.errors import Note
from midam.registry import ESTIMATORS
from midam.settings import ResolvedSettings
from midam.targets import target_of
from midam.train.step_cost import (
    StepCost,
    held_memory,
    measure_step,
    memory_share,
)

# A single bag of a class stands beside at most _FEW instances.
_INSTANCES, _FEW = (16, 8, 4, 2, 1), 4
_BAGS, _FEW_BAGS, _ENOUGH_STEPS = (8, 4, 2, 1), 2, 2400
_GIB, _MIB = 2**30, 2**20


@dataclass(frozen=True)
class BatchSize:
    """Bags of a step, by class, and instances that are drawn of a bag."""

    num_positive: int  # S+
    num_negative: int  # S-
    num_instances: int  # B

    @property
    def bags(self) -> int:
        """Bags of a step."""
        return self.num_positive + self.num_negative


@dataclass(frozen=True)
class Choice:
    """Numbers in place of "auto"."""

    config: ResolvedSettings
    what: str
    why: str
    fits: bool  # into the memory

    def tell(self) -> str:
        """Say in one line what was chosen and why; returns the line."""
        line = f"{self.what}: {self.why}"
        warnings.warn(line, Note if self.fits else UserWarning, stacklevel=3)
        return line


def choose_batch_size(
    config: ResolvedSettings,
    train: Bags,
    *,
    device: torch.device,
    fabric: Any = None,
    cost: StepCost | None = None,
) -> Choice:
    """Choose what `config` leaves open for these training bags.

    The choice is the same for the same bags, settings and memory, taken as a power of two. `cost` is what
    `measure_step` gives for these settings, where that is known.

    Raises
    ------
    OneClassError
        Without bags of both classes.
    """
    target = target_of(train)
    target.check(train)
    positives = int(train.require_labels().sum()) if target.name == "binary" else len(train) // 2
    sizes = batch_sizes(config, largest=int(train.sizes.max()), counts=(positives, len(train) - positives))
    cost = cost or measure_step(config, train.instance_shape, device=device, fabric=fabric)
    memory = _Memory(config, train, cost, device=device)
    size = next((size for size in sizes if memory.of(size) <= memory.limit), sizes[-1])
    chosen = config.replace(**asdict(size), memory_budget=None)
    return Choice(chosen, _what(config, size), _why(config, size, train, memory), memory.of(size) <= memory.limit)


def choose_for_each(
    config: ResolvedSettings, bags: Bags, trains: Sequence[NDArray[np.int64]], *, fabric: Any
) -> list[Choice]:
    """Choose for the training bags at each of these positions; what a step takes is measured once."""
    how: dict[str, Any] = {"device": fabric.device, "fabric": fabric}
    cost = measure_step(config, bags.instance_shape, **how)
    return [choose_batch_size(config, bags.subset(train), **how, cost=cost) for train in trains]


def batch_sizes(config: ResolvedSettings, *, largest: int, counts: tuple[int, int]) -> list[BatchSize]:
    """Batch sizes in the order of preference; the last is the smallest that can be.

    First 16 instances of a bag, or the power of two that holds the `largest` bag, and 8 bags of each class, or all of
    the `counts` (positive, negative); 4 or 2 where bags are larger than that, and the epochs would take fewer than 2400
    steps. Then fewer bags, down to 2 + 2: an epoch has more steps, each with as much of a bag. Then fewer instances,
    down to 4; then both.
    """
    of, estimator = config.training, ESTIMATORS.find(config.method.estimator)
    # One instance alone has the weight 1, and nothing to learn from, unless the bag is remembered.
    least = 1 if estimator.tracks else 2
    whole = min((count for count in _INSTANCES if count >= max(largest, least)), default=_INSTANCES[0])
    drawn = [count for count in _INSTANCES if least <= count <= whole]
    if of.num_instances != "auto":
        drawn = [of.num_instances]
    elif not _draws(config):
        drawn = drawn[:1]

    def classes(bags: int) -> tuple[int, int]:
        positive = min(bags, counts[0]) if of.num_positive == "auto" else of.num_positive
        return positive, min(bags, counts[1]) if of.num_negative == "auto" else of.num_negative

    def enough(bags: int) -> bool:
        return of.epochs * math.ceil(sum(counts) / sum(classes(bags))) >= _ENOUGH_STEPS

    most_bags = next(bags for bags in _BAGS if largest <= drawn[0] or bags == _FEW_BAGS or enough(bags))
    found = [
        BatchSize(*classes(bags), instances)
        for instances in drawn
        for bags in _BAGS
        if bags <= most_bags and (bags >= _FEW_BAGS or instances <= _FEW or len(drawn) == 1)
    ]
    return list(dict.fromkeys(found))


def _what(config: ResolvedSettings, size: BatchSize) -> str:
    """The numbers in words."""
    counts = f"{size.num_positive} + {size.num_negative}"
    if not _draws(config):
        return f"{counts} whole bags a step"
    plural = "" if size.num_instances == 1 else "s"
    return f"{size.num_instances} instance{plural} of a bag and {counts} bags a step"


def _why(config: ResolvedSettings, size: BatchSize, train: Bags, memory: "_Memory") -> str:
    """Reason for the choice, with advice."""
    of, low, high = config.training, int(train.sizes.min()), int(train.sizes.max())
    reasons = [f"bags hold {_count(low)}{'' if low == high else f' to {_count(high)}'}"]
    if _draws(config) and high <= size.num_instances:
        reasons[0] += " and are drawn whole"
    if of.open != ["num_instances"]:
        steps = _count(of.epochs * math.ceil(len(train) / size.bags))
        reasons.append(f"{_count(of.epochs)} epochs of {_count(len(train))} bags take {steps} steps")
    advice = f"set `{config.training.open[-1]}` to choose"
    if not _draws(config) and config.training.open == ["num_instances"]:
        advice = f"`num_instances` is nothing to the estimator {config.method.estimator!r}"
    if memory.of(size) > memory.limit:
        advice = memory.advice
    return f"{', '.join([*reasons, memory.words(size)])}; {advice}"


def _draws(config: ResolvedSettings) -> bool:
    """Whether the estimator draws instances."""
    estimator = ESTIMATORS.find(config.method.estimator)
    return not estimator.whole or "num_instances" in inspect.signature(estimator).parameters


class _Memory:
    """Bytes that a step takes, and may take."""

    def __init__(self, config: ResolvedSettings, train: Bags, cost: StepCost, *, device: torch.device) -> None:
        smaller = "add `checkpointing=True`, or make the instances smaller"
        if "num_positive" not in config.training.open:
            smaller = "take fewer bags by `num_positive='auto'` and `num_negative='auto'`"
        self.advice = f"that may be too much: {smaller}"
        self._largest, self._cost = int(train.sizes.max()), cost
        self._most = None if _draws(config) else config.run.chunk_size
        given = config.run.memory_budget
        held = held_memory(config, train, device)
        self.limit = memory_share(free_memory(device) - held) if given is None else round(given * _GIB)

    def of(self, size: BatchSize) -> int:
        """Bytes that a step takes."""
        instances = _instances(size, largest=self._largest)
        if self._most is not None:
            instances = min(size.bags * self._largest, self._most)
        return self._cost.weights + self._cost.instance * instances

    def words(self, size: BatchSize) -> str:
        """Memory of a step as a share of the limit."""
        unit, name = (_GIB, "GiB") if self.limit >= _GIB else (_MIB, "MiB")
        return f"a step needs {_about(self.of(size) / unit)} of {_about(self.limit / unit)} {name}"


def _instances(size: BatchSize, *, largest: int) -> int:
    """Instances of a step."""
    return size.bags * min(size.num_instances, largest)


def _about(amount: float) -> str:
    return "less than 0.1" if amount < 0.1 else f"{amount:.{int(amount < 9.95)}f}".removesuffix(".0")


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
