"""`python -m studies real-draws`: what is lost where `top` is drawn in place of the default, on real bags.

Smoothed-max at equal cost, on sets that nobody made for it. Rule of decision, written before the first run: nothing is
lost where the 95% interval of the paired difference to the default, `vrsp`, lies above -0.01, over each kind of sets;
else `top` is no default.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.engine import Group, Row
from midam.compare.summary import corrected_interval
from midam.evaluate.ranking import auroc
from midam.settings import Settings
from midam.train.trials import train_trials
from studies.differences import left_after_holm
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.page import table, write_page
from studies.regime.real_sets import SMALL_CONV, RealSet, load_real
from studies.registry import as_study
from studies.split_statistics import Estimate

NAME = "real-draws"
CHOICE_REPEAT = 100
POOLING = "smoothed-max"
LOSS = -0.01  # a lower bound above it is no loss
TABULAR = ("musk1", "musk2", "elephant", "fox", "tiger")


@dataclass(frozen=True)
class Arm:
    """A draw rule with an estimator."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)


MINIBATCH = Arm("minibatch", {"estimator": "minibatch"})
VRSP = Arm("vrsp", {"estimator": "vrsp"})
TOP = Arm("top, minibatch", {"estimator": "minibatch", "draw": "top", "anneal": 0.7})
ARMS = (MINIBATCH, VRSP, TOP)


@dataclass(frozen=True)
class Case:
    """Bags and B; all arms spend what so many epochs of B drawn instances cost."""

    title: str
    data: str  # For `load_real`
    epochs: int
    instances: int | None = None  # B; None: the default
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Learning rates of Adam, of which validation bags choose one for each arm; none: the library's optimizer and rate
    rates: tuple[float, ...] = ()
    pass_budget: float = 0.1  # Cost of the passes of `top`, in costs of the steps
    repeats: int = 8
    # Test bags for each training bag, where repeats share bags: their interval is corrected, and each repeat chooses
    # its own rate; else another repeat chooses for all
    overlap: float = 0.0

    @property
    def choosing(self) -> tuple[int, ...]:
        """Repeats whose validation bags choose."""
        return tuple(range(self.repeats)) if self.overlap else (CHOICE_REPEAT,)

    def config(self, arm: Arm, rate: float | None) -> Settings:
        """Return the settings of a training."""
        passes = self.pass_budget if "draw" in arm.settings else 0.0
        return Settings(
            pooling=POOLING,
            members=1,
            threads=1,
            accelerator="cpu",
            epochs=max(1, round(self.epochs / (1 + passes))),
            **({} if self.instances is None else {"num_instances": self.instances}),
            **({"draw_args": {"pass_budget": passes}} if passes else {}),
            **({} if rate is None else {"optimizer": "adam", "lr": rate, "decay_at": [0.75, 0.9]}),
            **{**self.settings, **arm.settings},
        )


_CONV = {"encoder": SMALL_CONV, "center_start": 0.5}
_COLOR = {**_CONV, "encoder_args": {"in_channels": 3}}
_RATES = (0.001, 0.003)
_PART = 1 / 3  # one of five parts tests, three train
FULL = (
    *(Case(name, name, 100, repeats=2, overlap=1 / 9) for name in TABULAR),
    Case("breast", "breast/32", 200, settings=_COLOR, rates=_RATES, overlap=_PART),
    Case("colon", "colon/32", 20, settings=_COLOR, rates=_RATES, overlap=_PART),
    Case("colon, patches of 16, B = 2", "colon/16", 20, 2, _COLOR, _RATES, overlap=_PART),
    Case("adrenal, B = 2", "adrenal", 20, 2, _CONV, _RATES),
)
QUICK = tuple(replace(case, repeats=2) for case in FULL[:2])
SMALLER = (Case("digits", "digits", 2, 4, rates=(0.01,), repeats=2),)
_SHOWS = (
    "Is anything lost where `top` is drawn in place of the default, `vrsp`, on bags that nobody made for the question: "
    "molecules, patches of pictures, histology, slices of volumes? Smoothed-max; all arms of a case spend the same, "
    "counted in instances encoded, passes of the score memory included."
)
_HOW = (
    "Intervals are 95% t intervals over trials, paired: the arms of a trial see the same bags and begin at the same "
    "weights. Trials on one set share bags; their intervals are corrected by Nadeau and Bengio's factor. Those of "
    "adrenal are repeated trainings, tested on the same published volumes: they leave out how much hangs on the "
    "volumes. The learning rate of Adam is chosen for each arm by validation bags, on each split of its own where "
    "splits share bags, else on one training. The tabular sets have the library's defaults, the images a small encoder "
    "of two convolutions."
)


@dataclass(frozen=True)
class _Task:
    case: Case
    arm: Arm
    rate: float | None
    repeat: int

    @property
    def name(self) -> Row:
        """What the trial is known by."""
        case = self.case
        content = settings_hash(Settings(**{**case.settings, **self.arm.settings, "pooling": POOLING}))
        return trial_name(
            NAME,
            data=case.data,
            pooling=POOLING,
            arm=self.arm.name,
            instances=case.instances,
            epochs=case.epochs,
            passes=case.pass_budget,
            rate=self.rate,
            repeat=self.repeat,
            settings=content,
        )


@as_study("draws by remembered scores on real bags, at equal cost", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    cases, part = (SMALLER, "-smaller") if options.smaller else (QUICK, "-quick") if options.quick else (FULL, "")
    with Store(options.cache, f"{NAME}{part}") as store:
        # Those of one repeat together: a process keeps the bags it read.
        tried = [
            _Task(case, arm, rate, repeat)
            for case in cases
            for repeat in case.choosing
            for arm in ARMS
            for rate in case.rates
        ]
        _complete(tried, store, options)
        chosen = _best(tried, store)
        wanted = [
            _Task(case, arm, chosen.get((case.title, arm.name, repeat if case.overlap else CHOICE_REPEAT)), repeat)
            for case in cases
            for repeat in range(case.repeats)
            for arm in ARMS
        ]
        _complete(wanted, store, options)
        write_page(
            options,
            NAME,
            title="Draws on real data",
            shows=_SHOWS,
            seeds=f"repeats 0 to {max(case.repeats for case in cases) - 1}, of splits, weights and draws",
            seconds=store.wall_time(),
            store=store,
            body=body({case: _tests(case, wanted, store) for case in cases}),
        )


# By case: of each arm the test AUROC of all trials.
Found = Mapping[Case, Mapping[str, NDArray[np.float64]]]


def body(found: Found) -> Iterator[str]:
    """Return the lines of the page."""
    gain_of, freedom = dict[str, Estimate](), list[int]()
    kinds = (("the five tabular sets", TABULAR), *((case.title, (case.title,)) for case in found if case.rates))
    for name, titles in kinds:
        cases = [case for case in found if case.title in titles]
        if cases:
            gain = _estimate(np.mean([_gain(found[case]) for case in cases], axis=0), cases[0].overlap)
            verdict = "no loss" if gain.low > LOSS else "a loss" if gain.high < 0 else "open"
            yield f"- `{TOP.name}` minus `{VRSP.name}`, {name}: {_told(gain)} ({verdict})."
            gain_of[name] = gain
            freedom.append(len(_gain(found[cases[0]])) - 1)
    yield ""
    yield from [left_after_holm(gain_of, freedom=freedom), ""] if gain_of else []
    rows = []
    for case, tests in found.items():
        gains = [_told(_estimate(_gain(tests, other), case.overlap)) for other in (VRSP.name, MINIBATCH.name)]
        rows.append([case.title, *(f"{test.mean():.3f}" for test in tests.values()), *gains])
    head = [*(arm.name for arm in ARMS), f"{TOP.name} minus {VRSP.name}", f"minus {MINIBATCH.name}"]
    yield from table(["bags", *head], rows)
    yield ""
    yield _HOW


# By title of the case, arm and repeat.
_Chosen = Mapping[tuple[str, str, int], float | None]


def _complete(tasks: Sequence[_Task], store: Store, options: StudyOptions) -> None:
    complete([Group([task.name], [task]) for task in tasks], _train, store=store, options=options, section=NAME)


def _best(tried: Sequence[_Task], store: Store) -> _Chosen:
    """The rate of each arm with the highest validation AUROC, the first of equals; a divergence counts as chance."""
    best: dict[tuple[str, str, int], tuple[float, float | None]] = {}
    for task, row in zip(tried, store.find([task.name for task in tried])):
        key = task.case.title, task.arm.name, task.repeat
        value = 0.5 if row is None or row["val"] is None else row["val"]
        if key not in best or value > best[key][0]:
            best[key] = value, task.rate
    return {key: rate for key, (_, rate) in best.items()}


def _tests(case: Case, tasks: Sequence[_Task], store: Store) -> dict[str, NDArray[np.float64]]:
    """Return, of each arm, the test AUROC of each trial."""
    found = {}
    for arm in ARMS:
        rows = store.find([task.name for task in tasks if task.case is case and task.arm is arm])
        found[arm.name] = np.concatenate([row["test"] for row in rows if row is not None]).astype(np.float64)
    return found


def _train(task: _Task) -> list[Row]:
    found = _load(task.case.data, task.repeat)
    results = train_trials(task.case.config(task.arm, task.rate), found.bags, found.trials)
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


def _gain(tests: Mapping[str, NDArray[np.float64]], other: str = VRSP.name) -> NDArray[np.float64]:
    return tests[TOP.name] - tests[other]


def _estimate(values: NDArray[np.float64], overlap: float) -> Estimate:
    found = corrected_interval(values, ratio=overlap)
    return Estimate(found.mean, found.low, found.high)


def _told(gain: Estimate) -> str:
    """A difference with its interval, where the trials differ at all."""
    return f"{gain:+}" if np.isfinite(gain.low) else f"{gain.mean:+.3f}"
