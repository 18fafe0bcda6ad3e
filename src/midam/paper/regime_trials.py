"""The trials of the study of regimes: how they are trained, what they leave behind, and the choice among rates."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.paper.options import StudyOptions
from midam.paper.regime_bags import Counts, nine_bags
from midam.paper.regime_design import METHODS, Cell, Design, Method
from midam.paper.store import Key, Row, Store, settings_hash
from midam.paper.work import compute
from midam.train.config import FitConfig
from midam.train.lockstep import Trial, train_trials
from midam.train.step import train_step
from midam.train.training import Training, build_training

VERSION = 1
SECTION = "regime"


@dataclass(frozen=True)
class Group:
    """Trainings that are done together: they differ in witnesses and repeat alone.

    Attributes
    ----------
    design, cell, method, lr
        What is trained; the witnesses of the cell are those of the first.
    sets : tuple of (int, int)
        Witnesses and repeat of those that are missing.
    """

    design: Design
    cell: Cell
    method: Method
    lr: float
    sets: tuple[tuple[int, int], ...]


def run_trials(design: Design, *, store: Store, options: StudyOptions) -> None:
    """Compute the trials of a design that the store does not hold."""
    groups = missing_groups(design, store)
    compute(groups, train_group, store=store, options=options, section=SECTION, sizes=[len(g.sets) for g in groups])


def missing_groups(design: Design, store: Store) -> list[Group]:
    """Return what is to be trained, the largest bags first; neighbours in the list share their bags."""
    done = by_key(store.rows)
    groups: dict[tuple[Cell, Method, float], list[tuple[int, int]]] = defaultdict(list)
    for cell in design.cells():
        first = replace(cell, witnesses=design.witness_counts(cell.size)[0])
        for method in METHODS:
            for lr in design.lrs:
                for repeat in design.repeats:
                    if design.steps_of(cell, method) and _key(_name(design, cell, method, lr, repeat)) not in done:
                        groups[first, method, lr].append((cell.witnesses, repeat))
    found = [Group(design, cell, method, lr, tuple(sets)) for (cell, method, lr), sets in groups.items()]
    return sorted(found, key=lambda group: -group.cell.size)


def train_group(group: Group) -> list[Row]:
    """Train a group and return its rows."""
    design, cell, method = group.design, group.cell, group.method
    config, counts = design.config(cell, method, group.lr), design.counts
    sets = [(count, repeat) for count in design.witness_counts(cell.size) for repeat in design.repeats]
    bags = _bags(cell.size, tuple(sets), counts)
    trials = []
    for wanted in group.sets:
        place = sets.index(wanted)
        train, val, test = (counts.positions(split, place=place) for split in ("train", "val", "test"))
        trials.append(Trial(train, np.concatenate([val, test]), wanted[1]))
    if method.estimator in ("minibatch", "vrsp"):
        results = [(r.scores[-1], float(r.loss[-1]), r.seconds) for r in train_trials(config, bags, trials)]
    else:
        steps = design.steps_of(cell, method)
        results = [train_steps(config, bags, trial, steps=steps) for trial in trials]
    rows = []
    for (count, repeat), trial, (scores, loss, seconds) in zip(group.sets, trials, results):
        labels = bags.require_labels()[trial.score]
        found = {
            "val": _auroc(labels[: counts.val], scores[: counts.val]),
            "test": _auroc(labels[counts.val :], scores[counts.val :]),
            "loss": loss if np.isfinite(loss) else None,
            "seconds": seconds,
        }
        rows.append({**_name(design, replace(cell, witnesses=count), method, group.lr, repeat), **found})
    return rows


def train_steps(config: FitConfig, bags: Bags, trial: Trial, *, steps: int) -> tuple[NDArray[np.float64], float, float]:
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
        member = build_training(replace(config, seed=trial.seed), train)
        member.model.train()
        losses = [
            train_step(member.trained, member.estimator, member.objective, member.optimizer, batch)[0]
            for batch in _batches(config, member, steps=steps)
        ]
        finite = all(bool(torch.isfinite(p).all()) for p in member.model.parameters())
        scores = predict(member.model, score, chunk_size=config.chunk_size) if finite else np.nan
    finally:
        torch.set_num_threads(threads)
    loss = float(torch.stack(losses[-max(1, steps // 10) :]).mean())
    return np.broadcast_to(scores, len(trial.score)), loss, time.perf_counter() - started


def by_key(rows: Sequence[Row]) -> dict[Key, Row]:
    """Return the trials among the rows of a store, by what identifies them."""
    return {_key(row): row for row in rows if row.get("study") == SECTION}


def select(trials: Mapping[Key, Row], design: Design, cell: Cell, method: Method) -> dict[int, Row]:
    """Return the row of each repeat whose learning rate has the highest validation AUROC, the first of equals.

    A training that diverged is never chosen; a repeat for which a rate is missing is left out.
    """
    wanted = [_key(_name(design, cell, method, lr, repeat)) for lr in design.lrs for repeat in design.repeats]
    return choose([trials[key] for key in wanted if key in trials], design.lrs)


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


def _batches(config: FitConfig, member: Training, *, steps: int) -> Iterator[Any]:
    """Batches of `steps` steps, over as many epochs as it takes; the rates fall as those of an epoch would."""
    schedule = replace(config, epochs=steps)
    step = 0
    while True:
        for batch in member.batches():
            if step == steps:
                return
            member.set_rates(schedule.decays(step))
            step += 1
            yield batch


# Neighbouring groups share their bags, which take a while to draw.
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


def _name(design: Design, cell: Cell, method: Method, lr: float, repeat: int) -> Row:
    counts = design.counts
    return {
        "study": SECTION,
        "version": VERSION,
        "pooling": cell.pooling,
        "size": cell.size,
        "witnesses": cell.witnesses,
        "instances": cell.instances,
        "steps": cell.steps,
        "method": method.name,
        "taken": design.steps_of(cell, method),
        "lr": lr,
        "repeat": repeat,
        "bags": [counts.train, counts.val, counts.test],
        "settings": _settings(design, cell, method, lr),
    }


# A page asks for the same settings once a repeat.
@lru_cache(maxsize=4096)
def _settings(design: Design, cell: Cell, method: Method, lr: float) -> str:
    return settings_hash(design.config(cell, method, lr))


def _key(row: Mapping[str, Any]) -> Key:
    return tuple(str(value) for name, value in row.items() if name not in ("val", "test", "loss", "seconds"))
