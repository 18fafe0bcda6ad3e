"""The bags of `large_bags.py`, and trainings that are stopped and continued by the clock."""

import json
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.data.on_disk import Rows
from midam.data.store import open_store, write_store
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.step import train_step
from midam.train.training import build_training
from midam.train.warm_start import warm_start
from studies.regime.bags import Counts, draw_rows, split_images, witnesses

RATE, DRAWN = 0.002, 64
POOLINGS: tuple[str, ...] = ("attention", "smoothed-max")
METHODS: dict[str, dict[str, Any]] = {
    "vrsp": {"estimator": "vrsp"},
    "vrsp, exact start": {"estimator": "vrsp", "state_start": "exact"},
    "minibatch": {"estimator": "minibatch"},
    "exact-point": {"estimator": "exact-point"},
}


@dataclass(frozen=True)
class Plan:
    """Size of the study: bags, their instances, repeats, and the marks of the clock in seconds."""

    counts: Counts = field(default_factory=lambda: Counts(train=200, val=0, test=60))
    size: int = 50_000
    repeats: int = 5
    marks: tuple[float, ...] = (3, 7, 15, 30, 45)


QUICK = Plan(Counts(train=24, val=0, test=20), size=1000, repeats=2, marks=(0.2, 0.5))


class DigitRows(Rows):
    """The instances of all bags, as numbers of images."""

    def __init__(self, images: NDArray[np.float16], numbers: NDArray[np.int16]) -> None:
        self.shape, self.dtype = (len(numbers), images.shape[1]), images.dtype
        self._images, self._numbers = images, numbers

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Instances at positions [m]."""
        return self._images[self._numbers[positions]]

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Instances low, ..., high - 1."""
        return self._images[self._numbers[low:high]]

    def close(self) -> None:
        """Nothing is open."""


def make_store(folder: Path, plan: Plan, repeat: int) -> Bags:
    """Write the bags of a repeat into a store and open it."""
    images = load_digits().data
    own = images[np.concatenate(split_images(repeat)["train"])]
    scaled = ((images - own.mean()) / own.std()).astype(np.float16)
    counts = plan.counts
    numbers = draw_rows(plan.size, positive=witnesses(plan.size, RATE), repeat=repeat, counts=counts)
    bags = Bags(
        DigitRows(scaled, numbers.astype(np.int16).reshape(-1)),
        starts=np.arange(counts.total) * plan.size,
        sizes=np.full(counts.total, plan.size),
        labels=np.arange(counts.total) % 2,
        splits=np.repeat(["train", "test"], [counts.train, counts.test]),
        source="nines",
    )
    return open_store(write_store(bags, folder / f"repeat-{repeat}", jobs=2))


class TimedTraining:
    """A training that is stopped and continued by the clock."""

    def __init__(self, config: Settings, train: Bags) -> None:
        self.config = config = config.resolve(train.instance_shape)
        self.member = build_training(config, train)
        self._reader = InstanceReader(train)
        self._chunk_size = config.run.chunk_size
        self._batches = self._endless()
        self.steps = 0
        self.seconds = 0.0
        self.cpu_s = 0.0

    def train_until(self, mark: float) -> None:
        """Train until the clock of this training shows `mark` seconds."""
        member = self.member
        member.model.train()
        wall, cpu = time.perf_counter() - self.seconds, time.process_time() - self.cpu_s
        if not self.seconds and self.config.method.state_start == "exact":
            warm_start([member], self._reader, epoch=0, chunk_size=self._chunk_size)
        while time.perf_counter() - wall < mark:
            batch = next(self._batches)
            train_step(member.trained, member.estimator, member.objective, member.optimizer, batch)
            self.steps += 1
        self.seconds, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu

    def close(self) -> None:
        """End the threads that read ahead."""
        self._batches.close()

    def _endless(self) -> Generator[Any, None, None]:
        while True:
            with closing(self.member.batches()) as batches:
                yield from batches


def settings(pooling: str, method: str, seed: int) -> Settings:
    common: dict[str, Any] = {"members": 1, "num_instances": DRAWN, "decay_at": [], "standardize": False}
    return Settings(pooling=pooling, seed=seed, accelerator="cpu", **common, **METHODS[method])


def run_repeat(folder: Path, plan: Plan, pooling: str, repeat: int) -> list[dict[str, Any]]:
    """Train all methods by the clock; a row a method and mark."""
    bags = make_store(folder, plan, repeat)
    train, test = (bags.subset(bags.where_split(name)) for name in ("train", "test"))
    trainings = {name: TimedTraining(settings(pooling, name, repeat), train) for name in METHODS}
    rows: list[dict[str, Any]] = []
    for mark in plan.marks:
        for name, training in trainings.items():
            before = training.steps
            training.train_until(mark)
            last = next((row for row in reversed(rows) if row["method"] == name), None)
            if last is not None and training.steps == before:
                area = last["auroc"]
            else:
                scores = predict(training.member.model, test, chunk_size=training.config.run.chunk_size)
                area = auroc(test.require_labels(), scores)
            row = {"pooling": pooling, "method": name, "repeat": repeat, "mark": mark, "auroc": area}
            rows.append({**row, "steps": training.steps, "seconds": training.seconds, "cpu_s": training.cpu_s})
            print(json.dumps(rows[-1]), flush=True)
    for training in trainings.values():
        training.close()
    return rows
