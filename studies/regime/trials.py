"""The trials of the study of regimes: how they are trained, what they leave behind, and the choice among rates."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.lockstep import Trial, train_trials
from midam.train.step import train_step
from midam.train.training import Training, build_training
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.regime.bags import Counts, nine_bags
from studies.regime.design import METHODS, Cell, Design, EstimatorRule

SECTION = "regime"


@dataclass(frozen=True)
class CellTraining:
    """What is trained together: a method at a learning rate, on the bags of each number of witnesses and repeat."""

    design: Design
    cell: Cell
    method: EstimatorRule
    lr: float

    @property
    def sets(self) -> list[tuple[int, int]]:
        """Witnesses and repeat."""
        counts = self.design.witness_counts(self.cell.size)
        return [(count, repeat) for count in counts for repeat in self.design.repeats]


def run_trials(design: Design, *, store: Store, options: StudyOptions) -> None:
    """Compute the trials of a design that the store does not hold."""
    complete(wanted_groups(design), _train, store=store, options=options, section=SECTION)


def wanted_groups(design: Design) -> list[Group[CellTraining]]:
    """Return what is to be trained, the largest bags first; neighbors in the list share their bags."""
    groups = []
    for cell in design.cells():
        if cell.witnesses != design.witness_counts(cell.size)[0]:
            continue
        for method in METHODS:
            for lr in design.lrs:
                own = CellTraining(design, cell, method, lr)
                names = [_name(design, replace(cell, witnesses=c), method, lr, repeat) for c, repeat in own.sets]
                groups += [Group(names, [own])] if design.steps_of(cell, method) else []
    return sorted(groups, key=lambda group: -group.tasks[0].cell.size)


def _train(training: CellTraining) -> list[Row]:
    design, cell, method = training.design, training.cell, training.method
    config, counts = design.config(cell, method, training.lr), design.counts
    bags = _bags(cell.size, tuple(training.sets), counts)
    trials = []
    for place, (_, repeat) in enumerate(training.sets):
        train, val, test = (counts.positions(split, place=place) for split in ("train", "val", "test"))
        trials.append(Trial(train, np.concatenate([val, test]), repeat))
    if method.estimator in ("minibatch", "vrsp"):
        results = [(r.scores[-1], float(r.loss[-1]), r.seconds) for r in train_trials(config, bags, trials)]
    else:
        steps = design.steps_of(cell, method)
        results = [train_steps(config, bags, trial, steps=steps) for trial in trials]
    rows = []
    for trial, (scores, loss, seconds) in zip(trials, results):
        labels = bags.require_labels()[trial.score]
        found = {
            "val": _auroc(labels[: counts.val], scores[: counts.val]),
            "test": _auroc(labels[counts.val :], scores[counts.val :]),
            "loss": loss if np.isfinite(loss) else None,
            "seconds": seconds,
        }
        rows.append(found)
    return rows


def train_steps(config: Settings, bags: Bags, trial: Trial, *, steps: int) -> tuple[NDArray[np.float64], float, float]:
    """Train for exactly `steps` steps, which need not be whole epochs.

    Returns
    -------
    scores : float64 array [len(trial.score)]
        Of the bags to score; NaN after a divergence.
    loss : float
        Mean of the last tenth of the steps.
    seconds : float
        Wall time.
    """
    started = time.perf_counter()
    train, score = _alone(bags, trial.train), _alone(bags, trial.score)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        member = build_training(config.replace(seed=trial.seed), train)
        member.model.train()
        losses = [
            train_step(member.trained, member.estimator, member.objective, member.optimizer, batch)[0]
            for batch in _batches(config, member, steps=steps)
        ]
        finite = all(bool(torch.isfinite(p).all()) for p in member.model.parameters())
        scores = predict(member.model, score, chunk_size=config.run.chunk_size) if finite else np.nan
    finally:
        torch.set_num_threads(threads)
    loss = float(torch.stack(losses[-max(1, steps // 10) :]).mean())
    return np.broadcast_to(scores, len(trial.score)), loss, time.perf_counter() - started


def select(store: Store, design: Design, cell: Cell, method: EstimatorRule) -> dict[int, Row]:
    """Return the row of each repeat whose learning rate has the highest validation AUROC, the first of equals.

    A training that diverged is never chosen; a repeat for which a rate is missing is left out.
    """
    names = [_name(design, cell, method, lr, repeat) for lr in design.lrs for repeat in design.repeats]
    return choose([row for row in store.find(names) if row is not None], design.lrs)


def choose(rows: Sequence[Row], lrs: Sequence[float]) -> dict[int, Row]:
    """Choose the learning rate of each repeat; see `select`.

    Examples
    --------
    >>> rows = [{"repeat": 0, "lr": lr, "val": v, "test": t} for lr, v, t in [(0.1, 0.7, 0.9), (0.5, 0.8, 0.6)]]
    >>> choose(rows, [0.1, 0.5])[0]["test"]
    0.6
    """
    chosen = {}
    for repeat in sorted({row["repeat"] for row in rows}):
        own = sorted((row for row in rows if row["repeat"] == repeat), key=lambda row: list(lrs).index(row["lr"]))
        sound = [row for row in own if row["val"] is not None]
        if len(own) == len(lrs) and sound:
            chosen[repeat] = max(sound, key=lambda row: float(row["val"]))
    return chosen


def _batches(config: Settings, member: Training, *, steps: int) -> Iterator[Any]:
    """Batches of `steps` steps, over as many epochs as it takes; the rates fall as those of an epoch would."""
    schedule = config.replace(epochs=steps)
    step = 0
    while True:
        for batch in member.batches():
            if step == steps:
                return
            member.set_rates(schedule.training.decays(step))
            step += 1
            yield batch


# Neighboring groups share their bags, which take a while to draw.
@lru_cache(maxsize=1)
def _bags(size: int, sets: tuple[tuple[int, int], ...], counts: Counts) -> Bags:
    return nine_bags(size, sets=sets, counts=counts)


def _alone(bags: Bags, index: NDArray[np.int64]) -> Bags:
    """Bags without the instances of others: a reader holds all instances."""
    part = bags.subset(index)
    rows = [np.arange(start, start + size) for start, size in zip(part.starts, part.sizes)]
    starts = np.cumsum(part.sizes) - part.sizes
    return Bags(bags.gather(np.concatenate(rows)), starts=starts, sizes=part.sizes, labels=part.labels)


def _auroc(labels: NDArray[np.int64], scores: NDArray[np.float64]) -> float | None:
    return auroc(labels, scores) if np.isfinite(scores).all() else None


def _name(design: Design, cell: Cell, method: EstimatorRule, lr: float, repeat: int) -> Row:
    counts = design.counts
    return trial_name(
        SECTION,
        pooling=cell.pooling,
        size=cell.size,
        witnesses=cell.witnesses,
        instances=cell.instances,
        steps=cell.steps,
        method=method.name,
        taken=design.steps_of(cell, method),
        lr=lr,
        repeat=repeat,
        bags=[counts.train, counts.val, counts.test],
        settings=_settings(design, cell, method, lr),
    )


# A page asks for the same settings once a repeat.
@lru_cache(maxsize=4096)
def _settings(design: Design, cell: Cell, method: EstimatorRule, lr: float) -> str:
    return settings_hash(design.config(cell, method, lr))
