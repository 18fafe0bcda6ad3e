"""`python -m studies needle`: one witness among hundreds of instances, of which no two are alike.

**Question.** One nine among 100, or 500, digits makes a bag positive, and nothing says which. Each digit is distorted
in its own way, so that none recurs. Which way of training finds the nine?

**Rules of decision.** Rule 1 was fixed before the first run. The others took this form when all ways but `attention,
uniform, tracked state` had been judged once.

1. A way finds the needle at a size if the 95% t interval of its mean test AUROC over eight repeats lies above 0.7, and
   it is at chance if the interval reaches 0.5.
2. Primary comparison, which decides what the documentation advises: `uniform, tracked state` minus `uniform`, one
   scorer, in bags of 500. The tracked state is advised if the 95% interval of the paired difference lies above 0.
3. The tracked state helps a pooling at a size if the difference that it makes is above 0 after Holm's correction over
   both poolings and sizes. (The state as the paper prints it was added when the others had been judged; it decides
   nothing.)
4. A way that the library lacks is a candidate for it if it is ahead of `uniform, tracked state`, the best way of the
   library that samples, in bags of both sizes, after Holm's correction over these ways and sizes. The library takes one
   at most, with the highest mean over both sizes.

**Tuning.** Networks are trained by Adam at one of five rates. Two trainings on images of no judged bag choose it, by
their mean validation AUROC, for each way and size. Novelty and the SVMs have none.

**Bags.** The distortion is the largest of 1, 1/2 and 1/4 of that of `tracked` at which a network that was told the
label of each instance reached a test AUROC of 0.9 on images of no judged bag.

**Budget.** Ways that sample have 3000 steps of 8 + 8 bags and 16 instances. `exact` has whole epochs of whole bags for
the same, and once for eight times as much.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.regime.needle_page import body, plot_trials
from studies.regime.references import BOUNDS, NETWORKS, REFERENCES, reference_aurocs
from studies.regime.run import run_design
from studies.regime.tracked_sets import CHOOSING, Digits, Split
from studies.registry import as_study

NAME = "needle"
_STEPS, _BAGS, _INSTANCES = 3000, 8, 16
_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)


@dataclass(frozen=True)
class Way:
    """A way of training by the library, by the settings in which it differs."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)
    times: int = 1  # of the budget

    def config(self, split: Split, lr: float, seed: int, *, steps: int = _STEPS) -> Settings:
        """Return the settings of a training that costs as much as so many steps of `uniform`, `times` times."""
        sizes, sampled = split.bags.sizes[split.train], 2 * _BAGS * _INSTANCES
        epochs = steps / (len(sizes) // (2 * _BAGS))
        if self.settings["estimator"] == "exact":
            epochs = self.times * steps * sampled / int(sizes.sum())
        common = {
            "pooling": "smoothed-max",
            "optimizer": "adam",
            "lr": lr,
            "decay_at": [0.75, 0.9],
            "members": 1,
            "center_start": 0.5,
            "hidden": [],
            "standardize": False,
            "num_positive": _BAGS,
            "num_negative": _BAGS,
            "num_instances": _INSTANCES,
            "epochs": max(1, int(epochs)),
            "accelerator": "cpu",
            "threads": 1,
            "seed": seed,
        }
        return Settings(**common | dict(self.settings))


_EXACT = {"estimator": "exact", "num_positive": 1, "num_negative": 1, "anneal": 0.7}
UNIFORM = Way("uniform", {"estimator": "minibatch"})
TRACKED = Way(f"{UNIFORM.name}, tracked state", {"estimator": "vrsp"})
PRINTED = Way(f"{UNIFORM.name}, state as printed", {"estimator": "vrsp-printed"})
_ATTENTION = Way("attention, uniform", {**UNIFORM.settings, "pooling": "attention"})
_ATTENTION_TRACKED = Way(f"{_ATTENTION.name}, tracked state", {**TRACKED.settings, "pooling": "attention"})
WAYS = (
    UNIFORM,
    TRACKED,
    PRINTED,
    _ATTENTION,
    _ATTENTION_TRACKED,
    Way("exact", _EXACT),
    Way("exact, eight times the cost", _EXACT, times=8),
)
# With a tracked state, and without.
PAIRS = ((TRACKED.name, UNIFORM.name), (_ATTENTION_TRACKED.name, _ATTENTION.name))
# What the library lacks. Of the references those are new that are neither bounds nor baselines.
NEW = (*NETWORKS, "mi-SVM, cross-fitted from novelty")


@dataclass(frozen=True)
class Design:
    """What is run."""

    bags: tuple[Digits, ...]
    ways: tuple[Way, ...] = WAYS
    references: tuple[str, ...] = tuple(name for name in REFERENCES if name not in NETWORKS)
    networks: tuple[str, ...] = NETWORKS  # that label instances
    rates: tuple[float, ...] = _RATES
    choosing: tuple[int, ...] = CHOOSING[:2]
    repeats: tuple[int, ...] = tuple(range(8))
    steps: int = _STEPS

    @property
    def tuned(self) -> "tuple[Way | str, ...]":
        """What has a rate."""
        return (*self.ways, *self.networks)


FULL = Design(tuple(Digits(size, 1 / size, train=200, distortion=0.25) for size in (100, 500)))
QUICK = Design(FULL.bags[:1], (UNIFORM, TRACKED), ("novelty",), (), _RATES[2:3], CHOOSING[:1], (0, 1, 2))
SMALLER = Design(
    (Digits(20, 0.05, train=32, score=16),),
    (UNIFORM, TRACKED),
    ("novelty", NEW[-1]),
    NETWORKS,
    _RATES[1:3],
    CHOOSING[:1],
    (0, 1),
    steps=8,
)
_SHOWS = (
    "One nine among 100, or 500, digits makes a bag positive, and nothing says which. Each digit is distorted in its "
    "own way, so that none recurs. Which way of training finds the nine?"
)


@dataclass(frozen=True)
class _Work:
    """One training, or one reference, of one repeat."""

    bags: Digits
    way: Way | str
    lr: float | None
    repeat: int
    steps: int = _STEPS

    @property
    def name(self) -> Row:
        """What the trial is known by."""
        fields: dict[str, Any] = {"size": self.bags.size, "data": str(self.bags), "repeat": self.repeat}
        fields["distortion"] = self.bags.distortion
        if isinstance(self.way, str):
            return trial_name(NAME, way=self.way, lr=self.lr, **fields)
        told = settings_hash(Settings(**self.way.settings))
        return trial_name(NAME, way=self.way.name, settings=told, lr=self.lr, **fields)


@as_study("ways of training that find one witness among hundreds of instances", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        _complete(_tried(design), store, options)
        chosen = choose(design, store)
        _complete(_judged(design, chosen), store, options)
        found = outcomes(design, chosen, store)
        plot_trials(found, figure)
        rates = {(f"1 of {bags.size}", way): lr for (bags, way), lr in chosen.items()}
        ways = UNIFORM.name, TRACKED.name
        return body(found, figure.name, rates=rates, ways=ways, tracked=PAIRS, new=NEW, bounds=BOUNDS)

    run_design(options, NAME, (FULL, QUICK, SMALLER), study, title="The needle", shows=_SHOWS)


Chosen = dict[tuple[Digits, str], float]


def choose(design: Design, store: Store) -> Chosen:
    """Return the rate of each way and size with the highest mean validation AUROC, the first of equals."""
    chosen: Chosen = {}
    for bags in design.bags:
        for way in design.tuned:
            means = []
            for lr in design.rates:
                rows = store.find([_Work(bags, way, lr, repeat).name for repeat in design.choosing])
                means.append(np.mean([row["auroc"] for row in rows if row is not None] or [0.0]))
            chosen[bags, _name(way)] = design.rates[int(np.argmax(means))]
    return chosen


def outcomes(design: Design, chosen: Chosen, store: Store) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return the test AUROC of each repeat, by size and way."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for work in _judged(design, chosen):
        (row,) = store.find([work.name])
        assert row is not None
        name = _name(work.way)
        rows = found.setdefault(f"1 of {work.bags.size}", {})
        rows[name] = np.append(rows.get(name, []), row["auroc"])
    return found


def _tried(design: Design) -> list[_Work]:
    return [
        _Work(bags, way, lr, repeat, design.steps)
        for bags in design.bags
        for repeat in design.choosing
        for way in design.tuned
        for lr in design.rates
    ]


def _judged(design: Design, chosen: Chosen) -> list[_Work]:
    return [
        work
        for bags in design.bags
        for repeat in design.repeats
        for work in (
            *(_Work(bags, way, chosen[bags, _name(way)], repeat, design.steps) for way in design.tuned),
            *(_Work(bags, name, None, repeat) for name in design.references),
        )
    ]


def _name(way: Way | str) -> str:
    return way if isinstance(way, str) else way.name


def _complete(works: Iterable[_Work], store: Store, options: StudyOptions) -> None:
    complete([Group([work.name], [work]) for work in works], _train, store=store, options=options, section=NAME)


def _train(work: _Work) -> list[Row]:
    split, started = _load(work.bags, work.repeat), time.perf_counter()
    if isinstance(work.way, str):
        names, rows = [work.way], len(split.train) * work.bags.size
        (found,) = reference_aurocs(split, work.repeat, names=names, rows=rows, rate=work.lr or 0.0).values()
        return [{"auroc": found, "seconds": time.perf_counter() - started}]
    assert work.lr is not None
    trainer = Trainer(work.way.config(split, work.lr, work.repeat, steps=work.steps), split.bags.subset(split.train))
    scored = split.bags.subset(split.score)
    scores = trainer.fit().scores(scored, trainer.reader(scored))
    return [{"auroc": auroc(scored.require_labels(), scores), "seconds": time.perf_counter() - started}]


@lru_cache(maxsize=1)
def _load(bags: Digits, repeat: int) -> Split:
    return bags.load(repeat, Path())
