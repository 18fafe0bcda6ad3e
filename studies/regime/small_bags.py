"""`python -m studies small-bags`: how much a state remembers of bags that hold less than its memory.

**Question.** In large bags the state of a bag averages over about 32 instances (`midam.nn.tracked`). Most real bags
hold fewer. Does a state that averages over no more than one or two bags rank better?
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.nn.tracked import settled_rate
from midam.registry import ESTIMATORS
from midam.settings import Settings
from midam.train.estimators import VarianceReduced
from midam.train.side import Trial, train_trials
from studies.differences import over_sets, paired
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.regime.tracked_sets import Digits
from studies.registry import as_study
from studies.sets import catalog
from studies.synthetic import synthetic_sets

NAME = "small-bags"
_TRAIN, _SCORE, _FOLDS = 120, 1000, 10  # bags of the made tables, and folds of real sets
_DRAWN = (2, 4)
_SHARES = {6: 0.3, 10: 0.2, 16: 0.13, 24: 0.1}  # of nines in positive bags, by size
_MNIST, _OF_MNIST, _NINE = 480, 10, 9  # training bags of MNIST, their digits, and that of positive ones
OLD, TAKEN, ONE, SHORT = "32", "two bags", "one bag", "gamma0 0.9"
MULTIPLES = {OLD: np.inf, TAKEN: 2.0, ONE: 1.0}
MEMORIES = (*MULTIPLES, SHORT)
MADE = (
    *("witness", "shift", "pair", "sparse", "witness, 1 in 8", "sparse, 1 in 8"),
    *(f"digits, {n}" for n in _SHARES),
    "MNIST, 10",
)
REAL: Mapping[str, int] = {"musk1": 3, "musk2": 3, "elephant": 3, "fox": 3, "tiger": 3, "physionet2012_icu": 1}
_SEEDS, _SEEDS_OF_MNIST = 10, 5
_MOST_LOSS = 0.005
_INDEPENDENT = 1e-9  # draws share no bag, so there is nothing to correct
Areas = Mapping[tuple[str, int, str], NDArray[np.float64]]


RULE = (
    "Written before this study ran. Training is that of the defaults, one scorer, B = 2 and 4. Of the memories that "
    "are behind 32 instances in no task here, by 0.005 or more with the interval below 0, the one with the highest "
    "mean over tasks and B is taken. It becomes the default if on the real sets below the interval of its mean "
    "difference does not lie below 0, and the demo of the README ranks no worse. An earlier form of this study, "
    "without MNIST, took the highest mean of those behind by at most 0.010: one bag. Then the gallery's bags of "
    "MNIST, of whose ten digits one is a nine, ranked worse, 0.729 for 0.791: a state that holds one bag has often "
    "not seen its nine. So the rule became stricter, and two bags and this task were added, when some seeds of both "
    "had been seen. A memory that allows for a sample drawn without replacement was tried too: it is as 32 "
    "instances."
)


class Remembering(VarianceReduced):
    """The estimator of the library with another multiple of the median bag, of which it remembers 32 instances at most.

    Parameters
    ----------
    num_bags, value_size, branches, sizes
        As in `VarianceReduced`.
    multiple : float
        Median bags that a state averages over; infinity for 32 instances.
    """

    name = "remembering"

    def __init__(
        self, num_bags: int, value_size: int, *, branches: int = 1, sizes: NDArray[np.int64], multiple: float = 2.0
    ) -> None:
        super().__init__(num_bags, value_size, branches=branches, sizes=sizes)
        self._multiple = multiple

    def settled_rate(self, drawn: int) -> float:
        """Return gamma0 at the end."""
        return settled_rate(drawn, self._known_sizes, bags=self._multiple)


@dataclass(frozen=True)
class Fit:
    """Trainings on one draw of made bags, or on the folds of one repeat of a real set."""

    data: str
    drawn: int
    memory: str
    seed: int
    smaller: bool = field(compare=False)

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        return Group(
            [trial_name(NAME, set=self.data, instances=self.drawn, memory=self.memory, seed=self.seed)], [self]
        )


@as_study("how much a state remembers of bags that hold less than its memory", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    if options.smaller:
        repeats: Mapping[str, int] = {MADE[0]: 2, "musk1": 1}
    else:
        repeats = dict.fromkeys(MADE, _SEEDS) | {MADE[-1]: _SEEDS_OF_MNIST} | dict(REAL)
    fits = [
        Fit(data, drawn, memory, seed, options.smaller)
        for data, count in repeats.items()
        for drawn in _DRAWN
        for memory in MEMORIES
        for seed in range(count)
    ]
    with Store(options.cache, NAME) as store:
        complete([fit.group() for fit in fits], train_fit, store=store, options=options, section=NAME)
        found: dict[tuple[str, int, str], list[float]] = {}
        for fit, row in zip(fits, store.find([fit.group().names[0] for fit in fits]), strict=True):
            found.setdefault((fit.data, fit.drawn, fit.memory), []).extend(row["auroc"] if row else [])
        areas = {key: np.array(values) for key, values in found.items()}
        made, real = ([name for name in repeats if (name in REAL) == judges] for judges in (False, True))
        write_page(
            options,
            NAME,
            title="How much to remember of small bags",
            shows="The state of a bag averages over about 32 instances; here bags hold fewer. `midam`, one scorer, B "
            "instances of a bag a step, with four lengths of memory: 32 instances, as many as two or one median bag "
            "hold (of those with more than B), and gamma0 0.9.",
            seeds=f"0 to {_SEEDS - 1} of made bags, 0 to {_SEEDS_OF_MNIST - 1} of MNIST; repeats of real sets from 0",
            seconds=store.wall_time(),
            store=store,
            body=[*_made(areas, made), *_real(areas, real)],
        )


def load(data: str, seed: int) -> tuple[Bags, NDArray[np.int64], NDArray[np.int64]]:
    """Return made bags, and which of them are for training and for scoring."""
    if data.startswith("digits"):
        size = int(data.split()[1])
        split = Digits(size, _SHARES[size], train=200, score=600).load(seed, Path())
        return split.bags, split.train, split.score
    if data.startswith("MNIST"):
        return load_mnist(seed), np.arange(_MNIST), np.arange(_MNIST, _MNIST + _SCORE)
    kind, _, rare = data.partition(", 1 in ")
    bags = synthetic_sets(bags=_TRAIN + _SCORE, every=int(rare or 2), seed=seed)[kind]
    return bags, np.arange(_TRAIN), np.arange(_TRAIN, _TRAIN + _SCORE)


def load_mnist(seed: int) -> Bags:
    """Return bags of ten digits of MNIST, every second with one nine; test bags are of its test images."""
    rng, total, parts = np.random.default_rng(seed), _MNIST + _SCORE, list[NDArray[np.uint8]]()
    with np.load(Path(os.environ.get("MIDAM_DATA", ".")) / "digits" / "mnist_20k.npz") as file:
        for name, count in (("train", _MNIST), ("test", _SCORE)):
            images, nine = file[f"x_{name}"], file[f"y_{name}"] == _NINE
            drawn = rng.choice(np.flatnonzero(~nine), (count, _OF_MNIST))
            drawn[1::2, 0] = rng.choice(np.flatnonzero(nine), count // 2)
            parts.append(images[rng.permuted(drawn, axis=1)].reshape(count * _OF_MNIST, -1))
    return Bags(
        np.concatenate(parts).astype(np.float32) / 255,
        starts=np.arange(total) * _OF_MNIST,
        sizes=np.full(total, _OF_MNIST),
        labels=np.arange(total) % 2,
        source="MNIST",
    )


def train_fit(fit: Fit) -> list[Row]:
    """Return the test AUROC of made bags, or of each fold of a real set."""
    started = time.perf_counter()
    if fit.data in REAL:
        bags = catalog.load(fit.data)
        folds = stratified_folds(bags.require_labels(), groups=bags.groups, folds=_FOLDS, seed=fit.seed)
        parts = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(_FOLDS)]
    else:
        bags, train, score = load(fit.data, fit.seed)
        parts = [(train, score)]
    values: dict[str, Any] = {"num_instances": fit.drawn, "members": 1, "accelerator": "cpu", "threads": 1}
    values |= {"epochs": 1} if fit.smaller else {}
    if fit.memory == SHORT:
        values["state_rate"] = 0.9
    else:
        values |= {"estimator": Remembering.name, "estimator_args": {"multiple": MULTIPLES[fit.memory]}}
        if Remembering.name not in ESTIMATORS.names():
            ESTIMATORS.add(Remembering.name, Remembering)
    config = Settings(**values)
    trials = [Trial(train, score, fit.seed) for train, score in parts]
    results = train_trials(config.resolve(bags.instance_shape), bags, trials)
    labels = bags.require_labels()
    areas = [auroc(labels[trial.score], result.scores[0]) for trial, result in zip(trials, results, strict=True)]
    return [{"auroc": [round(float(area), 6) for area in areas], "seconds": round(time.perf_counter() - started, 1)}]


def _made(areas: Areas, names: Sequence[str]) -> list[str]:
    """Return the part of made bags: each memory minus that of 32 instances, and what the rule takes."""
    gaps = _gaps(areas, names, MEMORIES[1:])
    kept = {memory: over_sets([*own.values()], ratio=_INDEPENDENT) for memory, own in gaps.items()}
    each = {m: [over_sets([gap], ratio=_INDEPENDENT) for gap in gaps[m].values()] for m in gaps}
    safe = {m: gap for m, gap in kept.items() if all(one.high >= 0 or one.mean > -_MOST_LOSS for one in each[m])}
    chosen = max(safe, key=lambda memory: safe[memory].mean, default=OLD)
    rows = [
        [
            f"{data}, B = {drawn}",
            f"{areas[data, drawn, OLD].mean():.3f}",
            *(str(over_sets([gaps[memory][data, drawn]], ratio=_INDEPENDENT)) for memory in MEMORIES[1:]),
        ]
        for data in names
        for drawn in _DRAWN
    ]
    return section(
        "Made bags, which choose",
        "Mean test AUROC with a memory of 32 instances, and the other memories minus that, with 95% intervals over "
        "draws of new bags. Tables: 120 bags of 4 to 16 rows, tested on 1000; digits: 200 bags of scikit-learn's, "
        "distorted, tested on 600; MNIST: 480 bags of ten, one of them a nine in positive bags, tested on 1000.",
        RULE,
        table(["bags", *MEMORIES], [*rows, ["mean", "", *map(str, kept.values())]]),
        f"By the rule: **{chosen}**.",
    )


def _real(areas: Areas, names: Sequence[str]) -> list[str]:
    """Return the part of real sets, which judge the rule."""
    gaps = _gaps(areas, names, MEMORIES[1:])
    rows = [
        [
            f"{data}, B = {drawn}",
            f"{areas[data, drawn, OLD].mean():.3f}",
            *(paired(gaps[memory][data, drawn], ratio=1 / (_FOLDS - 1)) for memory in MEMORIES[1:]),
        ]
        for data in names
        for drawn in _DRAWN
    ]
    mean = [str(over_sets([*own.values()], ratio=1 / (_FOLDS - 1))) for own in gaps.values()]
    return section(
        "Real sets, which judge",
        "The same on ten folds, with corrected intervals.",
        table(["set", *MEMORIES], [*rows, ["mean", "", *mean]]),
    )


def _gaps(
    areas: Areas, names: Sequence[str], memories: Sequence[str]
) -> dict[str, dict[tuple[str, int], NDArray[np.float64]]]:
    """Return by memory, set and B the AUROC minus that with a memory of 32 instances."""
    cells = [(data, drawn) for data in names for drawn in _DRAWN]
    return {memory: {cell: areas[*cell, memory] - areas[*cell, OLD] for cell in cells} for memory in memories}
