"""Time of a training step as a function of the bag size."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, SampledBatch, WholeBatch, sampled_batches, whole_batches
from midam.data.sampling import BagSampler
from midam.settings import Settings
from midam.train.build import build_method, build_optimizer
from midam.train.loop import train_step

NUM_FEATURES = 32
NUM_BAGS = 16
NUM_INSTANCES = 4
_WARM_UP = 3
_SLOW = 0.02  # seconds
_SLOW_EVERY = 40
MEASURED = (
    f"A step draws its bags and instances, reads, encodes, back-propagates and updates. It takes {NUM_BAGS} bags, all "
    f"of the set, of normal noise with {NUM_FEATURES} features; attention, the min-max objective, B = {NUM_INSTANCES} "
    "for `vrsp`, float32, one thread, and is timed in processor time. All members take one step in each round, in "
    f"random order; a timed step follows an untimed one of the same member, as in training. Steps of more than "
    f"{_SLOW * 1e3:.0f} ms are timed in every {_SLOW_EVERY}th round and the last one only, without the untimed one."
)


@dataclass(frozen=True)
class Timing:
    """Times of single steps in milliseconds, in their order."""

    estimator: str
    size: int
    ms: NDArray[np.float64]


def time_steps(sizes: Sequence[int], *, rounds: int) -> list[Timing]:
    """Measure steps of `vrsp` and `exact` on bags of each size; each round has one step of each, in random order.

    For the method see `MEASURED`.

    Examples
    --------
    >>> [(t.estimator, t.size, t.ms.shape) for t in time_steps([10], rounds=2)]
    [('vrsp', 10, (2,)), ('exact', 10, (2,))]
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        members: dict[tuple[str, int], Callable[[], None]] = {}
        for size in sizes:
            bags = _noise(size)
            members |= {(estimator, size): _stepper(estimator, bags) for estimator in ("vrsp", "exact")}
        slow = {member for member, step in members.items() if _warm_up(step) > _SLOW}
        taken: dict[tuple[str, int], list[float]] = {member: [] for member in members}
        rng = np.random.Generator(np.random.Philox(0))
        for number in range(rounds):
            for i in rng.permutation(len(members)):
                member = list(members)[i]
                if member not in slow:
                    members[member]()
                if member not in slow or number % _SLOW_EVERY == 0 or number == rounds - 1:
                    taken[member].append(_seconds(members[member]) * 1e3)
    finally:
        torch.set_num_threads(threads)
    return [Timing(*member, np.array(ms)) for member, ms in taken.items()]


def _noise(size: int) -> Bags:
    rng = np.random.Generator(np.random.Philox(size))
    instances = rng.standard_normal((NUM_BAGS * size, NUM_FEATURES), dtype=np.float32)
    starts = np.arange(NUM_BAGS) * size
    return Bags(instances, starts=starts, sizes=np.full(NUM_BAGS, size), labels=np.arange(NUM_BAGS) % 2)


def _stepper(estimator: str, bags: Bags) -> Callable[[], None]:
    # The noise is already standardized; a training standardizes features in memory once, not at each visit.
    values = {"estimator": estimator, "num_instances": NUM_INSTANCES, "standardize": False}
    config = Settings.from_flat(values).resolve(bags.instance_shape)
    method = build_method(config, instance_shape=bags.instance_shape, num_bags=len(bags))
    optimizer = build_optimizer(config, method.model, method.objective)
    batches = _endless(bags, whole=method.estimator.whole)

    def step() -> None:
        train_step(method.model, method.estimator, method.objective, optimizer, next(batches))

    return step


def _endless(bags: Bags, *, whole: bool) -> Iterator[SampledBatch | WholeBatch]:
    labels = bags.require_labels()
    sampler = BagSampler(labels, bags.sizes, num_instances=None if whole else NUM_INSTANCES, seed=0)
    reader, targets = InstanceReader(bags), torch.from_numpy(labels).float()
    make = whole_batches if whole else sampled_batches
    while True:
        yield from make(reader, sampler, targets)


def _warm_up(step: Callable[[], None]) -> float:
    return min(_seconds(step) for _ in range(_WARM_UP))


def _seconds(step: Callable[[], None]) -> float:
    # Processor time: on a shared machine, wall time depends on other processes too.
    start = time.process_time()
    step()
    return time.process_time() - start
