"""`python -m studies tracked`: where remembering a bag pays.

**Question.** A step reads B instances of a bag. `minibatch` pools them as if they were the bag; `vrsp` (MIDAM) keeps a
tracked state of the bag beside them, relative to the level of the step. Where does the state raise the test AUROC, both
tuned alike, and is it behind anywhere?

**Rules of decision**, fixed before the first run of this form of the study.

1. Primary comparison: `vrsp`, gamma0 by the library's rule, minus `minibatch`, the mean over all tasks and both
   poolings at B = 1, 2 and 4 (attention has no `minibatch` at B = 1). Remembering pays on these tasks if the 95%
   interval lies above 0.
2. A cell (task, pooling, B) is ahead or behind where its p-value, after Holm's correction over all cells, is below .05.
   Every cell is printed. The rule for gamma0 stays the default only if `vrsp` is behind in no cell.
3. Advice for users is given by pooling and B: remember where the mean over tasks is ahead with its interval above 0 and
   no task is behind; a mini-batch where it is below 0 and no task is ahead; else it makes no difference that this study
   can tell.

**Tuning.** One grid of optimizers and one budget for all arms: eight trainings of each optimizer on bags that are not
judged, four folds at B = 2 and at B = 8; the highest mean validation AUROC takes it for all B, the first of equals. The
grid starts with six; where an arm chooses the lowest or highest rate of a kind, the next one is tried by all arms of
this task and pooling, until no choice is at an edge. The references that read whole bags choose among the six by four
trainings, two at each B. `vrsp, any gamma0` chooses among the same with gamma0 0.3 or 0.9,
the rule, or 1 (which is `minibatch`, and stands for it), eight trainings each: it contains the other two arms and has
four times their budget, to show what a choice of gamma0 gives; it decides nothing. Then ten trainings are judged, seeds
0 to 9, by the scores after the last step: nothing is chosen in them.

**Changed after a first run** of this form, before any training of the new one: with four trainings an optimizer and six
of them, 26 of 42 choices of `minibatch` and both states lay at an edge (a mini-batch's among them, where the gain was
largest), and in the task whose two cells were behind, optimizers were told apart by one standard error.

**Budget.** Steps of 8 + 8 bags, as many for each B on vectors; on images as many up to B = 4, and fewer above, so that
no cell costs more. `exact` has whole epochs of whole bags, 1 + 1 a step, for what the cell's instances cost; where that
buys none it is left out. `exact, as many steps` reads 8 + 8 whole bags in each step, whatever it costs, and is left out
for bags of more than 1000 instances. `--size small`, for two cores, leaves out the tasks that are trained from pixels,
B = 16, and the arm with any gamma0.
"""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.errors import ConfigError, DivergedError
from midam.evaluate.predict import stream_instances
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.nn.scorer import scorers_of
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.regime.references import reference_aurocs
from studies.regime.run import run_design
from studies.regime.small_conv import SMALL_CONV
from studies.regime.tracked_page import ANY, Cell, Outcomes, body, plot_gains
from studies.regime.tracked_sets import CHOOSING, Customers, Digits, Real, Split
from studies.registry import as_study

NAME, REFERENCE = "tracked", "tracked-reference"
SMX, ATT = "smoothed-max", "attention"
_BAGS = 8  # of each class in a step
_WHOLE_BAGS = 1  # of each class in a step of whole bags
_CHOICE_AT: tuple[int, ...] = (2, 8)  # B of the trainings that choose
_LONGEST = 4  # B above which trainings on images have fewer steps
_COUNTED, _CHUNK = 50, 4096  # bags whose attention is counted, and instances at a time
_FIRST = 6  # optimizers with which each choice begins
_LARGEST = 1000  # instances of a bag on average, above which no step reads sixteen whole bags


class Optimizer(NamedTuple):
    """An optimizer with its rate at the start, which falls twice by ten."""

    kind: str
    lr: float

    def settings(self) -> Mapping[str, Any]:
        """Return the settings of a training."""
        given = {"optimizer": self.kind, "lr": self.lr}
        sgd = {"momentum": 0.9, "decay_at": [0.5, 0.75]}
        return given | (sgd if self.kind == "sgd" else {"decay_at": [0.75, 0.9]})


Grid = tuple[Optimizer, ...]
_RATES = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def start_grid(*, deep: bool) -> Grid:
    """Return the six optimizers with which each choice begins."""
    adam, sgd = ((0.001, 0.003, 0.0003), (0.03, 0.01, 0.1)) if deep else ((0.003, 0.01, 0.001), (0.1, 0.03, 0.3))
    return *(Optimizer("adam", lr) for lr in adam), *(Optimizer("sgd", lr) for lr in sgd)


def widened(grid: Grid, chosen: Iterable[Optimizer]) -> Grid:
    """Return a grid with the next rate beyond each edge that was chosen.

    Examples
    --------
    >>> widened(start_grid(deep=False), [Optimizer("adam", 0.003), Optimizer("sgd", 0.03)])[6:]
    (Optimizer(kind='sgd', lr=0.01),)
    """
    new = list(grid)
    for kind, lr in chosen:
        rates = [one.lr for one in grid if one.kind == kind]
        for edge, step in ((min(rates), -1), (max(rates), 1)):
            at = _RATES.index(lr) + step
            if lr == edge and 0 <= at < len(_RATES):
                new.append(Optimizer(kind, _RATES[at]))
    return tuple(dict.fromkeys(new))


@dataclass(frozen=True)
class Way:
    """A way to pool a sample, as its trials name it."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Arm:
    """Ways to pool a sample, each with every optimizer, among which validation bags choose."""

    name: str
    ways: tuple[Way, ...]
    reads_bags: bool = False  # a reference, which chooses with half of the trainings, among the first optimizers

    def options(self, grid: Grid) -> "list[Option]":
        """Return each way with each optimizer."""
        return [(way, optimizer) for way in self.ways for optimizer in (grid[:_FIRST] if self.reads_bags else grid)]


Option = tuple[Way, Optimizer]


_MINIBATCH = Way("minibatch", {"estimator": "minibatch"})
_RULE, _LONG, _SHORT = (Way("vrsp", {"estimator": "vrsp", "state_rate": gamma0}) for gamma0 in ("auto", 0.3, 0.9))
_PRINTED = Way("vrsp-printed", {"estimator": "vrsp-printed", "state_rate": 0.9})
_EXACT = Way("exact", {"estimator": "exact", "num_positive": _WHOLE_BAGS, "num_negative": _WHOLE_BAGS})
_STEPS = Way("exact, as many steps", {"estimator": "exact"})
MINIBATCH, VRSP = (Arm(way.name, (way,)) for way in (_MINIBATCH, _RULE))
EXACT, STEPS = (Arm(way.name, (way,), reads_bags=True) for way in (_EXACT, _STEPS))
ARMS = (
    MINIBATCH,
    VRSP,
    Arm(ANY, (_RULE, _SHORT, _LONG, _MINIBATCH)),
    Arm(_PRINTED.name, (_PRINTED,)),
    EXACT,
    STEPS,
)


@dataclass(frozen=True)
class Task:
    """Bags, the network that is trained on them, and for how many steps."""

    name: str
    data: Customers | Digits | Real
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    deep: bool = False  # trained from the pixels of images
    overlap: float = 0.0  # test bags for each training bag, where repeats share bags

    def length(self, instances: int) -> int:
        """Return the steps of a training of B instances a bag."""
        return self.steps * _LONGEST // instances if self.deep and instances > _LONGEST else self.steps

    def config(self, cell: Cell, way: Way, optimizer: Optimizer, split: Split) -> Settings | None:
        """Return the settings of a training, or None where the budget buys no epoch of whole bags."""
        drawn = {"num_positive": _BAGS, "num_negative": _BAGS}
        length, sizes = self.length(cell.instances), split.bags.sizes[split.train]
        epochs = length / max(1, len(sizes) // (2 * _BAGS))
        if way == _EXACT:
            spent = length * 2 * _BAGS * np.minimum(sizes, cell.instances).mean()
            epochs = spent / sizes.sum()
        elif way != _STEPS:
            drawn["num_instances"] = cell.instances
        if epochs < 1 or (way == _STEPS and sizes.mean() > _LARGEST):
            return None
        return Settings(
            **{
                "pooling": cell.pooling,
                "epochs": max(1, int(epochs)),
                "members": 1,
                "threads": 1,
                "accelerator": "cpu",
                "center_start": 0.5,
                **drawn,
                **way.settings,
                **optimizer.settings(),
                **self.settings,
            }
        )


_PIXELS = {"hidden": [], "standardize": False, "scaling": "linear"}
_TABLE = {"hidden": [128], "scaling": "linear"}
_CONV = {"encoder": SMALL_CONV}
_COLOR = {**_CONV, "encoder_args": {"in_channels": 3}}
_HALF = 1 / 3  # a quarter of the bags tests, three train
TASKS = (
    Task("customers", Customers(), 3000, {"hidden": [128]}),
    Task("digits, bags of 200", Digits(200), 1500, _PIXELS),
    Task("adrenal, frozen vectors", Real("adrenal", vectors=True), 1500, _TABLE),
    Task("digits, bags of 1000", Digits(1000, 0.03, train=200), 1500, _PIXELS),
    Task("digits, bags of 5000", Digits(5000, 0.02, train=200, score=100), 1500, _PIXELS),
    Task("MUSK2", Real("musk2"), 600, _TABLE, overlap=_HALF),
    Task("intensive care", Real("physionet2012_icu"), 1500, _TABLE, overlap=_HALF),
    Task("adrenal, half resolution", Real("adrenal"), 1500, _CONV, deep=True),
    Task("colon, patches of 16", Real("colon", patch=16), 1000, _COLOR, deep=True, overlap=_HALF),
    Task("breast, patches of 32", Real("breast", patch=32), 600, _COLOR, deep=True, overlap=_HALF),
)


@dataclass(frozen=True)
class Design:
    """What is run."""

    tasks: tuple[Task, ...]
    instances: tuple[int, ...]
    repeats: tuple[int, ...]
    choosing: tuple[int, ...] = CHOOSING
    arms: tuple[Arm, ...] = ARMS

    def cells(self) -> list[Cell]:
        """Return all cells."""
        return [Cell(t.name, pooling, b) for t in self.tasks for pooling in (SMX, ATT) for b in self.instances]

    def options(self, cell: Cell, arm: Arm, grid: Grid) -> list[Option]:
        """Return the options of an arm: a sample of one instance gives attention without a state no gradient."""
        alone = cell.pooling == ATT and cell.instances == 1
        return [(way, optimizer) for way, optimizer in arm.options(grid) if not (alone and way == _MINIBATCH)]

    def tried(self, cell: Cell, arm: Arm) -> list[tuple[Cell, int]]:
        """Return the cell and the repeat of each training that chooses for an arm in a cell."""
        at = [b for b in _CHOICE_AT if b in self.instances] or [self.instances[0]]
        pairs = [(b, repeat) for repeat in self.choosing for b in at]
        if arm.reads_bags:
            pairs = [(at[i % len(at)], repeat) for i, repeat in enumerate(self.choosing)]
        return [(cell._replace(instances=b), repeat) for b, repeat in pairs]

    def task(self, cell: Cell) -> Task:
        """Return the task of a cell."""
        return next(task for task in self.tasks if task.name == cell.task)


FULL = Design(TASKS, (1, 2, 4, 8, 16), tuple(range(10)))
SMALL = replace(
    FULL,
    tasks=tuple(task for task in TASKS if not task.deep),
    instances=(1, 2, 4, 8),
    arms=tuple(arm for arm in ARMS if arm.name != ANY),
)
QUICK = Design((replace(TASKS[1], steps=200),), (2, 8), (0, 1, 2), CHOOSING[:1])
SMALLER = Design((Task("digits", Digits(20, 0.2, train=16, score=10), 4, _PIXELS),), (1, 4), (0, 1), CHOOSING[:1])
_SHOWS = (
    "A step reads B instances of a bag. `minibatch` pools them as if they were the bag; `vrsp` (MIDAM) keeps a tracked "
    "state of the bag beside them. Where does the state raise the test AUROC, both tuned alike?"
)


@dataclass(frozen=True)
class _Work:
    """One training."""

    design: Design
    cell: Cell
    way: Way
    optimizer: Optimizer
    repeat: int
    folder: Path = field(compare=False)  # of vectors that are made once

    @property
    def name(self) -> Row:
        """What the trial is known by."""
        task = self.design.task(self.cell)
        optimizer = self.optimizer.settings()
        settings = {**self.way.settings, **optimizer, **task.settings, "pooling": self.cell.pooling}
        rate = {"state_rate": self.way.settings["state_rate"]} if "state_rate" in self.way.settings else {}
        return trial_name(
            NAME,
            task=task.name,
            pooling=self.cell.pooling,
            instances=0 if self.way == _STEPS else self.cell.instances,
            steps=task.length(self.cell.instances),
            arm=self.way.name,
            option={key: value for key, value in optimizer.items() if key != "decay_at"} | rate,
            repeat=self.repeat,
            data=str(task.data),
            settings=settings_hash(Settings(**settings)),
        )


@as_study("where remembering a bag pays: tracked state or mini-batch, over tasks and B", takes=("size",), store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        chosen: Chosen = {}
        for task in design.tasks:
            part = replace(design, tasks=(task,))
            best = tune(part, store, options)
            _complete([work for works in _judged(part, best, options.cache).values() for work in works], store, options)
            chosen |= best
        complete(_references(design), _refer, store=store, options=options, section=NAME)
        cells = outcomes(design, chosen, store, options.cache)
        plot_gains(cells, figure)
        return body(cells, references(design, store), figure.name)

    if options.size not in (None, "full", "small"):
        raise ConfigError(f"Expected the size full or small, got {options.size!r}; name one of them.")
    small = options.size == "small"
    left_out = " Left out: tasks trained from pixels, B = 16, and the arm with any gamma0 (`--size small`)."
    shows = _SHOWS + (left_out if small else "")
    run_design(
        options, NAME, (SMALL if small else FULL, QUICK, SMALLER), study, title="Where remembering pays", shows=shows
    )


# By cell and arm: which of its options, and its mean validation AUROC.
Chosen = dict[tuple[Cell, str], tuple[Option, float]]
Judged = dict[tuple[Cell, str], "list[_Work]"]
Grids = dict[tuple[str, str], Grid]  # by task and pooling


def tune(design: Design, store: Store, options: StudyOptions) -> Chosen:
    """Run the trainings that choose, and return the choices; no edge of a grid is chosen."""
    grids = {cell[:2]: start_grid(deep=design.task(cell).deep) for cell in design.cells()}
    while True:
        _complete(_tried(design, grids, options.cache), store, options)
        chosen = choose(design, grids, store, options.cache)
        picked: dict[tuple[str, str], list[Optimizer]] = {key: [] for key in grids}
        for (cell, arm), ((_, best), _) in chosen.items():
            if arm not in (EXACT.name, STEPS.name):
                picked[cell[:2]].append(best)
        wider = {key: widened(grid, picked[key]) for key, grid in grids.items()}
        if wider == grids:
            return chosen
        grids = wider


def choose(design: Design, grids: Grids, store: Store, folder: Path) -> Chosen:
    """Return the option of each arm with the highest mean validation AUROC, the first of equals.

    A training that diverged counts as chance.
    """
    chosen: Chosen = {}
    for cell in design.cells():
        for arm in design.arms:
            means: list[tuple[Option, float]] = []
            for way, optimizer in design.options(cell, arm, grids[cell[:2]]):
                tried = design.tried(cell, arm)
                names = [_Work(design, at, way, optimizer, repeat, folder).name for at, repeat in tried]
                rows = [row for row in store.find(names) if row is not None]
                aurocs = [0.5 if row["auroc"] is None else row["auroc"] for row in rows]
                means.append(((way, optimizer), float(np.mean(aurocs)) if aurocs else 0.0))
            if means:
                chosen[cell, arm.name] = max(means, key=lambda option: option[1])
    return chosen


def outcomes(design: Design, chosen: Chosen, store: Store, folder: Path) -> list[Outcomes]:
    """Return the test AUROC of each judged training, a cell at a time; a training that diverged counts as chance."""
    cells = []
    judged = _judged(design, chosen, folder)
    for cell in design.cells():
        tests, options, validation, spread = {}, {}, {}, {}
        for arm in design.arms:
            works = judged.get((cell, arm.name), [])
            rows = [row for row in store.find([work.name for work in works]) if row is not None]
            if rows and not any(row.get("skipped") for row in rows):
                tests[arm.name] = np.array([0.5 if row["auroc"] is None else row["auroc"] for row in rows])
                options[arm.name] = works[0].name["option"]
                validation[arm.name] = chosen[cell, arm.name][1]
                counts = [row["effective"] for row in rows if row.get("effective") is not None]
                if counts:
                    spread[arm.name] = float(np.mean(counts))
        cells.append(Outcomes(cell, tests, options, design.task(cell).overlap, validation, spread))
    return cells


def references(design: Design, store: Store) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return, of each task on digits, the test AUROC of each reference over the repeats."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for task in design.tasks:
        rows = [row for row in store.find([group.names[0] for group in _references(design, task)]) if row is not None]
        if rows:
            found[task.name] = {name: np.array([row["auroc"][name] for row in rows]) for name in rows[0]["auroc"]}
    return found


def _references(design: Design, task: Task | None = None) -> list[Group[tuple[Task, int]]]:
    return [
        Group(
            [trial_name(REFERENCE, task=candidate.name, data=str(candidate.data), repeat=repeat)], [(candidate, repeat)]
        )
        for candidate in design.tasks
        if isinstance(candidate.data, Digits) and task in (None, candidate)
        for repeat in design.repeats
    ]


def _refer(work: tuple[Task, int]) -> list[Row]:
    task, repeat = work
    started = time.perf_counter()
    found = reference_aurocs(task.data.load(repeat, Path()), repeat)
    return [{"auroc": found, "seconds": time.perf_counter() - started}]


def _tried(design: Design, grids: Grids, folder: Path) -> list[_Work]:
    works = [
        _Work(design, at, way, optimizer, repeat, folder)
        for cell in design.cells()
        for arm in design.arms
        for at, repeat in design.tried(cell, arm)
        for way, optimizer in design.options(at, arm, grids[cell[:2]])
    ]
    return list({str(work.name): work for work in works}.values())


def _judged(design: Design, chosen: Chosen, folder: Path) -> Judged:
    return {
        (cell, arm.name): [_Work(design, cell, *chosen[cell, arm.name][0], repeat, folder) for repeat in design.repeats]
        for cell in design.cells()
        for arm in design.arms
        if (cell, arm.name) in chosen
    }


def _complete(works: Iterable[_Work], store: Store, options: StudyOptions) -> None:
    """Compute what is missing, trainings on the same bags one after the other: a process keeps what it read last."""
    works = sorted({str(work.name): work for work in works}.values(), key=lambda work: work.repeat)
    groups = [Group([work.name], [work]) for work in works]
    missing = {work.design.task(work.cell) for group in store.missing(groups) for work in group.tasks}
    for task in missing:
        if isinstance(task.data, Real) and task.data.vectors:
            task.data.load(CHOOSING[0], options.cache)  # made once, before several processes ask for them
    complete(groups, _train, store=store, options=options, section=NAME)


def _train(work: _Work) -> list[Row]:
    task = work.design.task(work.cell)
    split = _load(task, work.repeat, work.folder)
    config = task.config(work.cell, work.way, work.optimizer, split)
    if config is None:
        return [{"auroc": None, "skipped": True, "seconds": 0.0}]
    trainer = Trainer(config.replace(seed=work.repeat), split.bags.subset(split.train))
    scored = split.bags.subset(split.score)
    started = time.perf_counter()
    with suppress(DivergedError):
        trainer.fit()
    scores = trainer.scores(scored, trainer.reader(scored))
    finite = bool(np.isfinite(scores).all())
    found: Row = {"auroc": auroc(scored.require_labels(), scores) if finite else None}
    if finite and work.cell.pooling == ATT:
        found["effective"] = _effective(trainer, scored)
    return [{**found, "seconds": time.perf_counter() - started}]


def _effective(trainer: Trainer, bags: Bags) -> float:
    """Return the effective number 1 / sum(w^2) of instances of the attention, the mean over some bags."""
    (model,), reader = scorers_of(trainer.model), InstanceReader(bags)
    counts = []
    for number in range(min(_COUNTED, len(bags))):
        batch = WholeBatch.unlabeled(reader, torch.tensor([number]))
        z = torch.cat([z for _, _, z, _ in stream_instances(model, batch, chunk_size=_CHUNK)])
        counts.append(float(1 / torch.softmax(z.double(), 0).square().sum()))
    return float(np.mean(counts))


@lru_cache(maxsize=1)
def _load(task: Task, repeat: int, folder: Path) -> Split:
    return task.data.load(repeat, folder)
