"""`python -m studies real-draws`: draw rules and the tracked state on real bags, at equal cost.

Two questions, with their rules of decision, written down before the first run.

1. Is there a loss where `top` is drawn in place of the default, `vrsp`, with smoothed-max, on sets that nobody made for
   it? None, where the 95% interval of the paired difference lies above -0.01, over each kind of sets; else `top` is no
   default.
2. Is a tracked state ahead of `minibatch` and of `exact` where memory allows one or two instances a bag? It is, where
   both intervals over at least 8 repeats lie above 0.

With attention the sample keeps a least share of the tracked state, a tenth; `vrsp, no floor` is the paper's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.trials import train_trials
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.page import figure_path, write_page
from studies.regime.real_page import TABULAR, Outcome, body, plot_differences
from studies.regime.real_sets import RealSet, load_real
from studies.registry import as_study

NAME = "real-draws"
CHOICE_REPEAT = 100
SMX, ATT = "smoothed-max", "attention"


@dataclass(frozen=True)
class Arm:
    """A draw rule with an estimator."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)

    @property
    def remembers(self) -> bool:
        """Whether it draws by a score memory, whose passes cost."""
        return "draw" in self.settings

    @property
    def whole(self) -> bool:
        """Whether it trains on whole bags."""
        return bool(self.settings["estimator"] == "exact")


MINIBATCH = Arm("minibatch", {"estimator": "minibatch"})
VRSP = Arm("vrsp", {"estimator": "vrsp"})
PAPER = Arm("vrsp, no floor", {"estimator": "vrsp", "state_floor": 0.0})
FLOORS = tuple(Arm(f"vrsp, floor {floor:g}", {"estimator": "vrsp", "state_floor": floor}) for floor in (0.5, 0.9))
TOP = Arm("top, minibatch", {"estimator": "minibatch", "draw": "top", "anneal": 0.7})
EXACT = Arm("exact", {"estimator": "exact", "num_positive": 1, "num_negative": 1})


@dataclass(frozen=True)
class Case:
    """Bags, B, and the arms of each pooling; all spend what so many epochs of B drawn instances cost."""

    title: str
    data: str  # For `load_real`
    epochs: int
    arms: Mapping[str, tuple[Arm, ...]] = field(hash=False)  # By pooling
    instances: int | None = None  # B; None: the default
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Learning rates of Adam, of which validation bags choose one for each arm; none: the library's optimizer and rate
    rates: tuple[float, ...] = ()
    pass_budget: float = 0.1  # Of rules that remember: cost of the passes, in costs of the steps
    repeats: int = 8
    same_rate: float | None = None  # All arms are tested at this rate as well: one training that chooses may err
    # Test bags for each training bag, where repeats share bags: their interval is corrected, and each repeat chooses
    # its own rate; else another repeat chooses for all
    overlap: float = 0.0

    @property
    def choosing(self) -> tuple[int, ...]:
        """Repeats whose validation bags choose."""
        return tuple(range(self.repeats)) if self.overlap else (CHOICE_REPEAT,)

    def config(self, pooling: str, arm: Arm, rate: float | None, found: RealSet) -> Settings:
        """Return the settings of a training."""
        epochs = self.epochs / (1 + self.pass_budget) if arm.remembers else self.epochs
        drawn = {} if self.instances is None else {"num_instances": self.instances}
        if arm.whole:
            sizes = found.bags.sizes[found.trials[0].train]
            epochs *= np.minimum(sizes, Settings(**drawn).training.batch[2]).sum() / sizes.sum()
            drawn = {}
        return Settings(
            pooling=pooling,
            members=1,
            threads=1,
            accelerator="cpu",
            epochs=max(1, round(epochs)),
            **drawn,
            **({"draw_args": {"pass_budget": self.pass_budget}} if arm.remembers else {}),
            **({} if rate is None else {"optimizer": "adam", "lr": rate, "decay_at": [0.75, 0.9]}),
            **{**self.settings, **arm.settings},
        )


_CONV = {"encoder": "studies.regime.real_sets.SmallConv", "center_start": 0.5}
_COLOR = {**_CONV, "encoder_args": {"in_channels": 3}}
_RATES = (0.001, 0.003)
_PART = 1 / 3  # one of five parts tests, three train
_STATE = {SMX: (MINIBATCH, VRSP, EXACT, TOP), ATT: (MINIBATCH, VRSP, PAPER, EXACT)}
_FOUND = {SMX: (MINIBATCH, TOP)}
_DEFAULTS = {SMX: (MINIBATCH, VRSP, TOP), ATT: (MINIBATCH, VRSP, PAPER)}
FULL = (
    *(Case(name, name, 100, _DEFAULTS, repeats=2, overlap=1 / 9) for name in TABULAR),
    Case("breast", "breast/32", 200, _DEFAULTS, settings=_COLOR, rates=_RATES, overlap=_PART),
    Case("colon", "colon/32", 20, _DEFAULTS, settings=_COLOR, rates=_RATES, overlap=_PART),
    Case("colon, patches of 16, B = 2", "colon/16", 20, _STATE, 2, _COLOR, _RATES, overlap=_PART),
    Case("adrenal, B = 2", "adrenal", 20, _STATE, 2, _CONV, _RATES, same_rate=_RATES[0]),
    Case(
        *("MNIST, 4 of 200, B = 2", "mnist/200/4", 300),
        {**_STATE, ATT: (*_STATE[ATT], *FLOORS)},
        *(2, _CONV, _RATES),
    ),
    Case("MNIST, 1 of 500, B = 16", "mnist/500/1", 300, {SMX: (MINIBATCH, VRSP, TOP)}, 16, _CONV, _RATES),
    # One witness in 500, at 6000 steps, and in bags ten times as large.
    Case("MNIST, 1 of 500, B = 16, longer", "mnist/500/1", 1000, _FOUND, 16, _CONV, _RATES[1:], repeats=4),
    Case("MNIST, 10 of 5000, B = 16", "mnist/5000/10", 1000, _FOUND, 16, _CONV, _RATES[1:], pass_budget=0.8, repeats=3),
)
QUICK = tuple(replace(case, repeats=2) for case in FULL[:2])
SMALLER = (Case("digits", "digits", 2, _STATE, 4, rates=(0.01,), repeats=2),)
_SHOWS = (
    "Draws and estimators on bags that nobody made for the question: molecules, patches of pictures, histology, "
    "slices of volumes, and MNIST at 28 x 28 with a convolutional encoder trained end to end. All arms of a "
    "case spend the same, counted in instances encoded, passes of the score memory included. `vrsp` is the default."
)


@dataclass(frozen=True)
class _Task:
    case: Case
    pooling: str
    arm: Arm
    rate: float | None
    repeat: int

    @property
    def name(self) -> Row:
        """What the trial is known by."""
        case = self.case
        content = settings_hash(Settings(**{**case.settings, **self.arm.settings, "pooling": self.pooling}))
        return trial_name(
            NAME,
            data=case.data,
            pooling=self.pooling,
            arm=self.arm.name,
            instances=case.instances,
            epochs=case.epochs,
            passes=case.pass_budget,
            rate=self.rate,
            repeat=self.repeat,
            settings=content,
        )


@as_study("draw rules and the tracked state on real bags, at equal cost", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page and its figure."""
    cases, part = (SMALLER, "-smaller") if options.smaller else (QUICK, "-quick") if options.quick else (FULL, "")
    with Store(options.cache, f"{NAME}{part}") as store:
        tried = _tried(cases)
        _complete(tried, store, options)
        wanted = _wanted(cases, _best(tried, store))
        _complete(wanted, store, options)
        found = {case.title: _outcomes(case, [t for t in wanted if t.case is case], store) for case in cases}
        same = _same_rate(cases)
        _complete(same, store, options)
        found |= {
            f"{case.title}, all arms at {case.same_rate:g}": _outcomes(case, own, store)
            for case in cases
            for own in [[task for task in same if task.case is case]]
            if own
        }
        figure = figure_path(options, NAME)
        plot_differences(found, figure)
        write_page(
            options,
            NAME,
            title="Draws on real data",
            shows=_SHOWS,
            seeds=f"repeats 0 to {max(case.repeats for case in cases) - 1}, of splits, weights and draws",
            seconds=store.wall_time(),
            store=store,
            body=body(found, figure.name),
        )


# By title of the case, pooling, arm and repeat.
_Chosen = Mapping[tuple[str, str, str, int], float | None]


def _tried(cases: Sequence[Case]) -> list[_Task]:
    """Trainings of which validation bags choose, those of one repeat together: a process keeps the bags it read."""
    return [
        _Task(case, pooling, arm, rate, repeat)
        for case in cases
        for repeat in case.choosing
        for pooling, arms in case.arms.items()
        for arm in arms
        for rate in case.rates
    ]


def _wanted(cases: Sequence[Case], chosen: _Chosen) -> list[_Task]:
    """Trainings that are tested, each with the rate that was chosen for it."""
    found = []
    for case in cases:
        for repeat in range(case.repeats):
            for pooling, arms in case.arms.items():
                for arm in arms:
                    key = case.title, pooling, arm.name, repeat if case.overlap else CHOICE_REPEAT
                    found.append(_Task(case, pooling, arm, chosen.get(key), repeat))
    return found


def _same_rate(cases: Sequence[Case]) -> list[_Task]:
    """Trainings that are tested at one rate for all arms; most are among those at the chosen rates."""
    return [
        _Task(case, pooling, arm, case.same_rate, repeat)
        for case in cases
        if case.same_rate is not None
        for repeat in range(case.repeats)
        for pooling, arms in case.arms.items()
        for arm in arms
    ]


def _complete(tasks: Sequence[_Task], store: Store, options: StudyOptions) -> None:
    complete([Group([task.name], [task]) for task in tasks], _train, store=store, options=options, section=NAME)


def _best(tried: Sequence[_Task], store: Store) -> _Chosen:
    """The rate of each arm with the highest validation AUROC, the first of equals; a divergence counts as chance."""
    best: dict[tuple[str, str, str, int], tuple[float, float | None]] = {}
    for task, row in zip(tried, store.find([task.name for task in tried])):
        key = task.case.title, task.pooling, task.arm.name, task.repeat
        value = 0.5 if row is None or row["val"] is None else row["val"]
        if key not in best or value > best[key][0]:
            best[key] = value, task.rate
    return {key: rate for key, (_, rate) in best.items()}


def _outcomes(case: Case, tasks: list[_Task], store: Store) -> list[Outcome]:
    """Of each pooling and arm the test AUROC of each trial."""
    found = []
    for pooling, arms in case.arms.items():
        for arm in arms:
            own = [task for task in tasks if (task.pooling, task.arm.name) == (pooling, arm.name)]
            rows = [row for row in store.find([task.name for task in own]) if row is not None]
            test: NDArray[np.float64] = np.array([row["test"] for row in rows], dtype=np.float64).reshape(-1)
            rates = tuple(task.rate for task in own if task.rate is not None)
            found.append(Outcome(pooling, arm.name, rates, test, case.overlap))
    return found


def _train(task: _Task) -> list[Row]:
    found = _load(task.case.data, task.repeat)
    config = task.case.config(task.pooling, task.arm, task.rate, found)
    results = train_trials(config, found.bags, found.trials)
    labels, val, test = found.bags.require_labels(), [], []
    for trial, result in zip(found.trials, results):
        y, scores = labels[trial.score], result.scores[-1]
        cut = found.validation
        finite = bool(np.isfinite(scores).all())
        test.append(auroc(y[cut:], scores[cut:]) if finite else 0.5)
        if cut:
            val.append(auroc(y[:cut], scores[:cut]) if finite else 0.5)
    seconds = sum(result.seconds for result in results)
    return [{"val": float(np.mean(val)) if val else None, "test": test, "seconds": seconds}]


@lru_cache(maxsize=1)
def _load(name: str, repeat: int) -> RealSet:
    return load_real(name, repeat)
