"""The trials of the study of the tracked state: cells, arms, and who trains them."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.evaluate.ranking import auroc
from midam.train.trials import Trial, train_trials
from studies.engine import Store, short_digest, trial_name
from studies.regime.bags import Counts, nine_bags
from studies.theory.state_loop import CORRECTIONS, RENEWED, WHOLE, Arm, Job, run_job

NAME = "tracked-state"
LR = 0.2
MINIBATCH = 1.0  # gamma0 that forgets
TRACKED = (0.3, 0.5, 0.7, 0.9)  # gamma0 of the gain
FEW = (0.3, 0.9)  # gamma0 of all parts but the first
USUAL_TAU = 0.1
SPEEDS = (0.2, 1.0, 2.5)
# No estimators: bags are encoded whole in each step.
EXACT, EXACT_OLD = Arm(MINIBATCH, 1.0, WHOLE), Arm(FEW[0], 1.0, RENEWED)
LOOP = "loop"
# Corrections with older weights of one age
_TOGETHER = (("storm", "msvr"), ("visit",))


@dataclass(frozen=True)
class Cell:
    """Pooling, tau (attention has none) and B."""

    pooling: str
    tau: float
    b: int

    @property
    def head(self) -> str:
        """Pooling and tau."""
        return self.pooling if self.pooling == "attention" else f"{self.pooling}, tau {self.tau:g}"

    @property
    def refused(self) -> bool:
        """Whether the library refuses `minibatch` here: attention over one instance."""
        return self.pooling == "attention" and self.b == 1


@dataclass(frozen=True)
class Task:
    """What is trained at once: by the loop of the study, or by the library with a draw rule (and one arm)."""

    job: Job
    draw: str = LOOP


@dataclass(frozen=True)
class Design:
    """What is run."""

    heads: tuple[tuple[str, float], ...]  # Pooling and tau
    draws: dict[int, tuple[int, int]] = field(hash=False)  # By B: epochs, and witnesses of a positive bag
    gammas: tuple[float, ...]
    seeds: tuple[int, ...]
    few: tuple[int, ...]  # B of all parts but the first
    rules: tuple[str, ...]  # Draw rules, by the library, with smoothed-max
    drawn: tuple[int, ...]  # Their B
    longer: int = 4  # Epochs of the longer trainings, in those of the others
    size: int = 200
    counts: Counts = field(default_factory=Counts)

    @property
    def cells(self) -> list[Cell]:
        """Cells of the first part."""
        return [Cell(*head, b) for head in self.heads for b in self.draws]

    @property
    def usual(self) -> list[Cell]:
        """Cells of the other parts."""
        return [cell for cell in self.cells if cell.tau == USUAL_TAU and cell.b in self.few]

    def job(self, cell: Cell, arms: Iterable[Arm], *, longer: bool = False) -> Job:
        """Return arms of one cell; a corrected state costs a second forward pass, so that it gets 3/4 of the steps."""
        arms, (epochs, witnesses) = tuple(arms), self.draws[cell.b]
        times = self.longer if longer else 0.75 if arms[0].correction in CORRECTIONS else 1
        epochs = max(2, round(epochs * times))
        return Job(cell.pooling, cell.tau, cell.b, epochs, arms, self.seeds, self.size, witnesses, self.counts)

    def steered(self, cell: Cell, arms: Iterable[Arm] = ()) -> Job:
        """Return states that are kept along half a training with the first gamma0 of the few, plain."""
        job = self.job(cell, [Arm(FEW[0]), *arms])
        return replace(job, steered=True, epochs=max(2, job.epochs // 2))

    def exact(self, cell: Cell) -> tuple[Arm, ...]:
        """Return the arms whose states rest on whole bags; with attention, which costs twice as much, one."""
        return (EXACT_OLD, EXACT) if cell.pooling == "smoothed-max" else (EXACT,)

    def tasks(self) -> list[Task]:
        """Return all that is trained."""
        plain, few = [Arm(gamma0) for gamma0 in self.gammas], [Arm(gamma0) for gamma0 in (*FEW, MINIBATCH)]
        fast = [Arm(arm.gamma0, speed) for speed in SPEEDS if speed != 1 for arm in few]
        jobs = [self.job(cell, plain + (fast if cell in self.usual else [])) for cell in self.cells]
        for cell, kinds in itertools.product(self.usual, _TOGETHER):
            arms = [Arm(gamma0, 1.0, kind) for kind in kinds for gamma0 in FEW]
            jobs += [self.job(cell, arms), self.steered(cell, [Arm(FEW[1]), *arms])]
        jobs += [self.job(cell, few, longer=True) for cell in self.usual]
        jobs += [self.job(cell, [arm]) for cell in self.usual for arm in self.exact(cell)]
        drawn = [cell for cell in self.usual if cell.pooling == "smoothed-max" and cell.b in self.drawn]
        by_rule = itertools.product(drawn, self.rules, FEW)
        library = [Task(self.job(cell, [Arm(gamma0)]), rule) for cell, rule, gamma0 in by_rule]
        return [*map(Task, jobs), *library]


_HEADS = (("smoothed-max", 0.05), ("smoothed-max", USUAL_TAU), ("smoothed-max", 0.2), ("attention", USUAL_TAU))
_GAMMAS = (0.1, *TRACKED, MINIBATCH)
_DRAWS = {1: (600, 4), 2: (600, 2), 4: (600, 2), 16: (300, 2)}
_RULES = ("uniform", "top")
FULL = Design(_HEADS, _DRAWS, _GAMMAS, (0, 1, 2, 3), few=(1, 4), rules=_RULES, drawn=(1, 4))
QUICK = Design(_HEADS[1::2], {1: (200, 4), 4: (200, 2)}, _GAMMAS, (0, 1, 2), few=(4,), rules=_RULES[:1], drawn=(4,))
_TINY = {2: (4, 4), 4: (2, 4)}
SMALLER = Design(
    _HEADS[1::2],
    _TINY,
    _GAMMAS,
    (0, 1),
    few=(2,),
    rules=_RULES[:1],
    drawn=(2,),
    size=20,
    counts=Counts(train=32, val=2, test=8),
)


class Found:
    """The trials of a design: each number as an array over the repeats."""

    def __init__(self, design: Design, store: Store) -> None:
        self.design, self._store = design, store

    def values(self, cell: Cell, arm: Arm, key: str, *, draw: str = LOOP, longer: bool = False) -> NDArray[np.float64]:
        """Return a number of the trials [repeats]; the AUROC of a training that diverged is NaN."""
        rows = self._store.find(_names(Task(self.design.job(cell, [arm], longer=longer), draw)))
        return np.array([row[key] for row in rows if row is not None], dtype=np.float64)

    def test(self, cell: Cell, arm: Arm, *, draw: str = LOOP, longer: bool = False) -> NDArray[np.float64]:
        """Return the test AUROC [repeats]; a training that diverged counts as chance."""
        return np.nan_to_num(self.values(cell, arm, "test", draw=draw, longer=longer), nan=0.5)

    def error(self, cell: Cell, arm: Arm, key: str) -> float:
        """Return an error of a state along the same training as all others, median over the repeats."""
        job = self.design.steered(cell)
        rows = self._store.find(_names(Task(replace(job, arms=(arm,)))))
        return float(np.median([row[key] for row in rows if row is not None]))

    def gain(self, cell: Cell, speed: float = 1.0, *, gammas: Sequence[float] = TRACKED) -> NDArray[np.float64]:
        """Return what the tracked state adds to `minibatch`, mean over gamma0, [repeats]."""
        tracked = np.mean([self.test(cell, Arm(gamma0, speed)) for gamma0 in gammas], axis=0)
        found: NDArray[np.float64] = tracked - self.test(cell, Arm(MINIBATCH, speed))
        return found


def wanted_groups(design: Design) -> list[Group[Task]]:
    """Return what is to be trained."""
    return [Group(_names(task), [task]) for task in design.tasks()]


def _names(task: Task) -> list[Row]:
    job, counts = task.job, task.job.counts
    return [
        trial_name(
            NAME,
            pooling=job.pooling,
            temperature=job.temperature,
            instances=job.instances,
            epochs=job.epochs,
            bags=[job.size, job.witnesses, counts.train, counts.val, counts.test],
            draw=task.draw,
            gamma0=arm.gamma0,
            speed=arm.speed,
            correction=arm.correction,
            repeat=seed,
            settings=short_digest([LR]),
            **({"steered": True} if job.steered else {}),
        )
        for arm, seed in itertools.product(job.arms, job.seeds)
    ]


def run_task(task: Task) -> list[Row]:
    """Train a task; returns a row for each arm and seed."""
    job, counts = task.job, task.job.counts
    if task.draw == LOOP:
        return run_job(job, LR)
    bags = nine_bags(job.size, sets=[(job.witnesses, seed) for seed in job.seeds], counts=counts)
    y, trials = bags.require_labels(), []
    for place, seed in enumerate(job.seeds):
        trials.append(Trial(counts.positions("train", place=place), counts.positions("test", place=place), seed))
    results = train_trials(job.config(job.arms[0].gamma0, LR).replace(draw=task.draw), bags, trials)
    scores = [result.scores[-1] for result in results]
    return [
        {"test": auroc(y[trial.score], own) if np.isfinite(own).all() else None} for trial, own in zip(trials, scores)
    ]
