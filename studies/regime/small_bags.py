"""`python -m studies small-bags`: how much a state remembers of bags that hold less than its memory.

**Question.** In large bags the state of a bag averages over about 32 instances (`midam.nn.tracked`). Most real bags
hold fewer. Does a state that averages over no more instances than the median bag holds rank better?
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.nn.tracked import settled_rate
from midam.settings import Settings
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
OLD, TAKEN, SHORT = "32", "the bag", "gamma0 0.9"
MEMORIES = (OLD, TAKEN, "half the bag", SHORT)
JUDGED = (OLD, TAKEN, SHORT)
MADE = ("witness", "shift", "pair", "sparse", "witness, 1 in 8", "sparse, 1 in 8", *(f"digits, {n}" for n in _SHARES))
REAL: Mapping[str, int] = {"musk1": 3, "musk2": 3, "elephant": 3, "fox": 3, "tiger": 3, "physionet2012_icu": 1}
_SEEDS = 10  # of made bags; of real sets repeats of ten folds
_INDEPENDENT = 1e-9  # draws share no bag, so there is nothing to correct
_MOST_LOSS = 0.01
Areas = Mapping[tuple[str, int, str], NDArray[np.float64]]


RULE = (
    "Written before this study, when seeds 0 to 9 of the made bags had been seen, and one repeat of real sets that "
    "could not tell the rules apart. Training is that of the defaults, one scorer, B = 2 and 4. Of the memories that "
    "are behind 32 instances in no made task by more than 0.010, the one with the highest mean over tasks and B is "
    "taken. It becomes the default if on the real sets the interval of its difference, the mean over sets and B, does "
    "not lie below 0, and the demo of the README ranks no worse. A memory that allows for a sample drawn without "
    "replacement was tried on the made bags too: it is as 32 instances."
)


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
    made, real = (MADE[:1], {"musk1": 1}) if options.smaller else (MADE, REAL)
    seeds = 2 if options.smaller else _SEEDS
    fits = [
        Fit(data, b, memory, seed, options.smaller)
        for data in made
        for b in _DRAWN
        for memory in MEMORIES
        for seed in range(seeds)
    ]
    fits += [
        Fit(data, b, memory, seed, options.smaller)
        for data, repeats in real.items()
        for b in _DRAWN
        for memory in JUDGED
        for seed in range(repeats)
    ]
    with Store(options.cache, NAME) as store:
        complete([fit.group() for fit in fits], train_fit, store=store, options=options, section=NAME)
        found: dict[tuple[str, int, str], list[float]] = {}
        for fit, row in zip(fits, store.find([fit.group().names[0] for fit in fits]), strict=True):
            found.setdefault((fit.data, fit.drawn, fit.memory), []).extend(row["auroc"] if row else [])
        areas = {key: np.array(values) for key, values in found.items()}
        write_page(
            options,
            NAME,
            title="How much to remember of small bags",
            shows="The state of a bag averages over about 32 instances; here bags hold fewer. `midam`, one scorer, B "
            "instances of a bag a step, with four lengths of memory.",
            seeds=f"0 to {seeds - 1} of made bags; repeats of real sets from 0",
            seconds=store.wall_time(),
            store=store,
            body=[*_made(areas, made), *_real(areas, list(real))],
        )


def load(data: str, seed: int) -> tuple[Bags, NDArray[np.int64], NDArray[np.int64]]:
    """Return made bags, and which of them are for training and for scoring."""
    if data.startswith("digits"):
        size = int(data.split()[1])
        split = Digits(size, _SHARES[size], train=200, score=600).load(seed, Path())
        return split.bags, split.train, split.score
    kind, _, rare = data.partition(", 1 in ")
    bags = synthetic_sets(bags=_TRAIN + _SCORE, every=int(rare or 2), seed=seed)[kind]
    return bags, np.arange(_TRAIN), np.arange(_TRAIN, _TRAIN + _SCORE)


def rate_of(memory: str, drawn: int, sizes: NDArray[np.int64]) -> float | str:
    """Return the setting `state_rate` for a length of memory.

    Examples
    --------
    >>> [rate_of(memory, 4, np.array([6, 12, 12])) for memory in MEMORIES]
    [0.2222222222222222, 'auto', 0.8, 0.9]
    """
    if memory in (TAKEN, SHORT):
        return "auto" if memory == TAKEN else 0.9
    if memory == OLD:
        return settled_rate(drawn)
    whole = settled_rate(drawn, sizes)
    return min(1.0, 4 * whole / (2 + whole))  # half of the memory B (2 / gamma0 - 1)


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
    values = {"epochs": 1} if fit.smaller else {}
    rate = rate_of(fit.memory, fit.drawn, bags.sizes)
    config = Settings(num_instances=fit.drawn, state_rate=rate, members=1, accelerator="cpu", threads=1, **values)
    trials = [Trial(train, score, fit.seed) for train, score in parts]
    results = train_trials(config.resolve(bags.instance_shape), bags, trials)
    labels = bags.require_labels()
    areas = [auroc(labels[trial.score], result.scores[0]) for trial, result in zip(trials, results, strict=True)]
    return [{"auroc": [round(float(area), 6) for area in areas], "seconds": round(time.perf_counter() - started, 1)}]


def _made(areas: Areas, names: Sequence[str]) -> list[str]:
    """Return the part of made bags: each memory minus that of 32 instances, and what the rule takes."""
    gaps = _gaps(areas, names, MEMORIES[1:])
    kept = {memory: over_sets([*own.values()], ratio=_INDEPENDENT) for memory, own in gaps.items()}
    safe = {m: gap for m, gap in kept.items() if min(x.mean() for x in gaps[m].values()) >= -_MOST_LOSS}
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
        "draws of new bags. Tables: 120 bags of 4 to 16 rows, tested on 1000; digits: 200 bags, tested on 600.",
        RULE,
        table(["bags", *MEMORIES], [*rows, ["mean", "", *map(str, kept.values())]]),
        f"By the rule: **{chosen}**.",
    )


def _real(areas: Areas, names: Sequence[str]) -> list[str]:
    """Return the part of real sets, which judge the rule."""
    gaps = _gaps(areas, names, JUDGED[1:])
    rows = [
        [
            f"{data}, B = {drawn}",
            f"{areas[data, drawn, OLD].mean():.3f}",
            *(paired(gaps[memory][data, drawn], ratio=1 / (_FOLDS - 1)) for memory in JUDGED[1:]),
        ]
        for data in names
        for drawn in _DRAWN
    ]
    mean = [str(over_sets([*own.values()], ratio=1 / (_FOLDS - 1))) for own in gaps.values()]
    return section(
        "Real sets, which judge",
        "The same on ten folds, with corrected intervals.",
        table(["set", *JUDGED], [*rows, ["mean", "", *mean]]),
    )


def _gaps(
    areas: Areas, names: Sequence[str], memories: Sequence[str]
) -> dict[str, dict[tuple[str, int], NDArray[np.float64]]]:
    """Return by memory, set and B the AUROC minus that with a memory of 32 instances."""
    cells = [(data, drawn) for data in names for drawn in _DRAWN]
    return {memory: {cell: areas[*cell, memory] - areas[*cell, OLD] for cell in cells} for memory in memories}
