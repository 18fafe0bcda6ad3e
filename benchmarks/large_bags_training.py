"""The bags of `large_bags.py`, and trainings that the clock stops and continues."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.on_disk import Rows
from midam.data.store import open_store, write_store
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.step import train_step
from midam.train.trainer import build_training
from studies.regime.bags import Counts, draw_rows, split_images, witnesses
from studies.regime.budget import BACKWARD, FORWARD

RATE, DRAWN = 0.002, 64
POOLINGS: tuple[str, ...] = ("attention", "smoothed-max")
CANDIDATES = (0.1, 0.2, 0.5, 1.0)
# Result of `large_bags.py --choose`.
CHOSEN = {"attention": 0.2, "smoothed-max": 0.1}


@dataclass(frozen=True)
class Method:
    """A method of training, defined by the settings that differ from the other methods."""

    settings: Mapping[str, Any] = field(hash=False)
    tuned: bool = False  # Whether its learning rate is the rate chosen for its pooling, not the default

    @property
    def scheduled(self) -> bool:
        """Return whether its draws depend on the progress of the training."""
        return "draw" in self.settings


METHODS = {
    "vrsp": Method({"estimator": "vrsp"}),
    "minibatch": Method({"estimator": "minibatch"}),
    "vrsp, chosen lr": Method({"estimator": "vrsp"}, tuned=True),
    "minibatch, chosen lr": Method({"estimator": "minibatch"}, tuned=True),
    "top, chosen lr": Method({"estimator": "minibatch", "draw": "top"}, tuned=True),
}


@dataclass(frozen=True)
class Plan:
    """Size of the study: bags, their instances, repeats, and the marks of the clock in seconds."""

    counts: Counts = field(default_factory=lambda: Counts(train=200, val=0, test=40))
    size: int = 50_000
    repeats: int = 3
    marks: tuple[float, ...] = (5, 15, 45)


@dataclass(frozen=True)
class Choice:
    """Choice of the learning rates: bags, their instances, steps, and a seed that no repeat has."""

    counts: Counts = field(default_factory=lambda: Counts(train=200, val=40, test=0))
    size: int = 50_000
    steps: int = 5000
    seed: int = 100


QUICK = Plan(Counts(train=24, val=0, test=20), size=1000, repeats=2, marks=(0.2, 0.5))
QUICK_CHOICE = Choice(Counts(train=24, val=20, test=0), size=1000, steps=50)


class DigitRows(Rows):
    """The instances of all bags, stored as image numbers."""

    def __init__(self, images: NDArray[np.float16], numbers: NDArray[np.int16]) -> None:
        self.shape, self.dtype = (len(numbers), images.shape[1]), images.dtype
        self._images, self._numbers = images, numbers

    def gather(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """Return the instances at positions [m]."""
        return self._images[self._numbers[positions]]

    def read(self, low: int, high: int) -> NDArray[Any]:
        """Return the instances low, ..., high - 1."""
        return self._images[self._numbers[low:high]]

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def make_store(folder: Path, plan: Plan | Choice, repeat: int) -> Bags:
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
        splits=np.repeat(["train", "val", "test"], [counts.train, counts.val, counts.test]),
        source="nines",
    )
    return open_store(write_store(bags, folder / f"repeat-{repeat}", jobs=2))


class TimedTraining:
    """A training that stops and continues by the clock, or by a number of steps."""

    def __init__(self, config: Settings, train: Bags) -> None:
        self.config = config = config.resolve(train.instance_shape)
        self.member = build_training(config, train)
        self.epochs = self.steps = 0
        self.seconds = self.cpu_s = 0.0

    def train_until(self, mark: float = inf, *, steps: float = inf) -> None:
        """Train until the clock of this training shows `mark` seconds, or for `steps` steps.

        The rest of the epoch is then dropped; its bags come again in a later epoch.
        """
        member = self.member
        member.model.train()
        wall, cpu = time.perf_counter() - self.seconds, time.process_time() - self.cpu_s
        while time.perf_counter() - wall < mark and self.steps < steps:
            with member.epoch(self.epochs) as batches:
                for batch in batches:
                    train_step(member.trained, member.estimator, member.objective, member.optimizer, batch)
                    self.steps += 1
                    if time.perf_counter() - wall >= mark or self.steps >= steps:
                        break
            self.epochs += 1
        self.seconds, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu

    def auroc(self, bags: Bags) -> float:
        """Return the AUROC of other bags, or chance after the training has diverged."""
        scores = predict(self.member.model, bags, chunk_size=self.config.run.chunk_size)
        return auroc(bags.require_labels(), scores) if np.isfinite(scores).all() else 0.5


def settings(pooling: str, method: Method, seed: int, **others: Any) -> Settings:
    """Return the settings of a method; a tuned method has the learning rate chosen for the pooling."""
    common: dict[str, Any] = {"members": 1, "num_instances": DRAWN, "decay_at": [], "standardize": False}
    rate = {"lr": CHOSEN[pooling]} if method.tuned else {}
    return Settings(pooling=pooling, seed=seed, accelerator="cpu", **common, **rate, **method.settings, **others)


def schedule(config: Settings, train: Bags, seconds: float) -> dict[str, Any]:
    """Return settings of a schedule for the number of epochs that fit into `seconds` without a pass.

    A training for a twentieth of that time predicts this number. Contest and annealing end with the first half of the
    epochs. The second half begins with a pass over all bags, and lasts until the clock ends it.
    """
    trial = TimedTraining(config, train)
    trial.train_until(seconds / 20)
    half = max(1, round(trial.steps / trial.member.sampler.steps_per_epoch * seconds / trial.seconds / 2))
    # Between two epochs, so that no rounding moves the pass.
    cost = (half - 0.5) * len(train) * DRAWN * (FORWARD + BACKWARD)
    # Even if the logits have changed little since they were stored.
    draw_args = {"grow": 0.25, "pass_budget": train.num_instances / cost, "stale": 0.0}
    return {"epochs": 4 * half, "anneal": 0.25, "draw_args": draw_args}


def run_repeat(folder: Path, plan: Plan, pooling: str, repeat: int) -> list[dict[str, Any]]:
    """Train all methods by the clock, and return a row for each method and mark."""
    bags = make_store(folder, plan, repeat)
    train, test = (bags.subset(bags.where_split(name)) for name in ("train", "test"))
    trainings = {}
    for name, method in METHODS.items():
        config = settings(pooling, method, repeat)
        if method.scheduled:
            config = config.replace(**schedule(config, train, plan.marks[-1]))
        trainings[name] = TimedTraining(config, train)
    rows: list[dict[str, Any]] = []
    for mark in plan.marks:
        for name, training in trainings.items():
            before = training.steps
            training.train_until(mark)
            last = next((row for row in reversed(rows) if row["method"] == name), None)
            area = last["auroc"] if last and training.steps == before else training.auroc(test)
            row = {"pooling": pooling, "method": name, "repeat": repeat, "mark": mark, "auroc": area}
            rows.append({**row, "steps": training.steps, "seconds": training.seconds, "cpu_s": training.cpu_s})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def choose_rates(folder: Path, choice: Choice) -> dict[str, float]:
    """Return the learning rate of each pooling, by the rule in `large_bags.py`."""
    bags = make_store(folder, choice, choice.seed)
    train, extra = (bags.subset(bags.where_split(name)) for name in ("train", "val"))
    chosen = {}
    for pooling in POOLINGS:
        areas = []
        for rate in CANDIDATES:
            training = TimedTraining(settings(pooling, METHODS["minibatch"], choice.seed, lr=rate), train)
            training.train_until(steps=choice.steps)
            areas.append(training.auroc(extra))
            row = {"pooling": pooling, "lr": rate, "auroc": areas[-1], "seconds": training.seconds}
            print(json.dumps({**row, "cpu_s": training.cpu_s}), flush=True)
        chosen[pooling] = CANDIDATES[int(np.argmax(areas))]
    return chosen
