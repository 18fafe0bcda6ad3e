"""`python -m studies survival`: survival on bags of 2000 instances with a known best ranking.

Question: does the tracked state with pairs of bags reach the C-index of the true hazard within 0.03, and how does it
stand beside Cox's partial likelihood on mini-batches, beside mini-batch pooling with pairs, and beside mean pooling?

Rule, fixed before the repeats that are shown: each way to train takes learning rate, margin and gamma0 from a small
grid by its validation C-index on a repeat that is not in the table; then it is compared on ten others, paired
by repeat, with 95% t intervals. A way is within 0.03 where the upper end of the interval of its distance to the true
hazard is below that.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from midam.compare.workers import Group
from midam.evaluate.ranking import Pairs
from midam.methods.store import Row
from midam.report.figures import new_figure
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.differences import left_after_holm
from studies.drawing import save_figure
from studies.engine import Store, complete, short_digest, trial_name
from studies.options import StudyOptions
from studies.regime.run import run_design
from studies.registry import as_study
from studies.split_statistics import paired_interval
from studies.targets.survival_bags import Bag, Counts, survival_bags

SECTION = "survival"
_LIMIT = 0.03
_DOT, _MEAN = "#0072B2", "#202020"


@dataclass(frozen=True)
class Way:
    """A way of training, and the settings that are chosen for it."""

    name: str
    settings: Mapping[str, Any] = field(hash=False)
    grid: Mapping[str, tuple[float, ...]] = field(hash=False)

    def options(self) -> list[dict[str, Any]]:
        """Return all combinations of the grid."""
        return [dict(zip(self.grid, values)) for values in product(*self.grid.values())]


_LR = {"lr": (0.002, 0.01)}
_PAIRS = _LR | {"margin": (0.2, 1.0)}
_TRACKED = _PAIRS | {"state_rate": (0.3, 0.9)}
OURS = Way("tracked state, pairs, attention", {"pooling": "attention"}, _TRACKED)
WAYS = (
    OURS,
    Way("tracked state, pairs, smoothed-max", {"pooling": "smoothed-max"}, _TRACKED),
    Way("tracked state, pairs, mean", {"pooling": "mean"}, _TRACKED),
    Way("tracked state, Cox, attention", {"objective": "cox"}, _LR | {"state_rate": (0.3, 0.9)}),
    Way("mini-batch, pairs, attention", {"estimator": "minibatch"}, _PAIRS),
    Way("mini-batch, Cox, attention", {"estimator": "minibatch", "objective": "cox"}, _LR),
    Way("mini-batch, Cox, mean", {"estimator": "minibatch", "objective": "cox", "pooling": "mean"}, _LR),
)


@dataclass(frozen=True)
class Design:
    """Sizes of the study."""

    ways: tuple[Way, ...]
    repeats: tuple[int, ...]
    tuning: tuple[int, ...]  # repeats that choose the options
    epochs: int = 200
    bag: Bag = field(default_factory=Bag)
    counts: Counts = field(default_factory=Counts)

    def config(self, way: Way, option: dict[str, Any], repeat: int) -> Settings:
        """Return the settings of a training."""
        common: dict[str, Any] = {"hidden": [64], "standardize": False, "optimizer": "adam", "members": 1}
        common |= {"num_instances": 16, "decay_at": [0.75, 0.9], "epochs": self.epochs, "val_every": self.epochs}
        common |= {"accelerator": "cpu", "threads": 1, "seed": repeat}
        return Settings(**{"objective": "pairwise"} | common | dict(way.settings) | option)


FULL = Design(WAYS, repeats=tuple(range(10)), tuning=(100,))
QUICK = Design((OURS, WAYS[5]), repeats=(0, 1), tuning=(100,), epochs=100)
SMALLER = Design((OURS, WAYS[5]), (0, 1), (100,), epochs=2, bag=Bag(size=60), counts=Counts(30, 20, 20))
_SHOWS = (
    "Bags of 2000 handwritten digits, whose hazard grows with their share of nines, 0.2% to 5%; three bags in ten are "
    "censored. A step draws 16 instances of 16 bags, 128 times fewer than they hold. The ranking by the true hazard is "
    "known, and is the best that any model can reach."
)
Task = tuple[Design, Way, dict[str, Any], int]


def _train(task: Task) -> list[Row]:
    design, way, option, repeat = task
    bags, hazard = survival_bags(design.bag, design.counts, repeat=repeat)
    train, val, test = (bags.subset(bags.where_split(name)) for name in ("train", "val", "test"))
    started = time.perf_counter()
    trainer = Trainer(design.config(way, option, repeat), train, val).fit()
    row = trainer.history[-1]
    times, events = test.outcome.values.T if test.outcome is not None else ((), ())
    best = Pairs.of_times(times, events).concordance(hazard[bags.where_split("test")])
    own = Pairs.of_times(times, events).concordance(trainer.scores(test, trainer.reader(test)))
    seconds = time.perf_counter() - started
    return [{"test": own, "val": row["val_c_index"], "oracle": best, "seconds": seconds}]


def _name(design: Design, way: Way, option: dict[str, Any], repeat: int) -> Row:
    bag, counts = vars(design.bag), vars(design.counts)
    settings = short_digest([dict(way.settings), option, bag, counts, design.epochs])
    return trial_name(SECTION, way=way.name, repeat=repeat, settings=settings)


def _group(design: Design, way: Way, option: dict[str, Any], repeat: int) -> Group[Task]:
    return Group([_name(design, way, option, repeat)], [(design, way, option, repeat)])


def chosen(design: Design, store: Store, way: Way) -> dict[str, Any]:
    """Return the options of a way with the highest mean validation C-index on the repeats for tuning."""

    def metric(option: dict[str, Any]) -> float:
        rows = store.find([_name(design, way, option, repeat) for repeat in design.tuning])
        return float(np.mean([row["val"] for row in rows if row is not None]))

    return max(way.options(), key=metric)


def outcomes(design: Design, store: Store, way: Way, option: dict[str, Any]) -> NDArray[np.float64]:
    """Return the test C-index, the C-index of the true hazard, and the seconds of each repeat, [repeats, 3]."""
    rows = store.find([_name(design, way, option, repeat) for repeat in design.repeats])
    return np.array([[row["test"], row["oracle"], row["seconds"]] for row in rows if row is not None])


def body(found: dict[str, NDArray[np.float64]], options: dict[str, dict[str, Any]], figure: str) -> Iterator[str]:
    """Yield the lines of the page."""
    ours = found[OURS.name]
    yield (
        f"`{OURS.name}`: mean test C-index {ours[:, 0].mean():.3f}, the true hazard {ours[:, 1].mean():.3f}: "
        f"{paired_interval(ours[:, 1], ours[:, 0]):+} behind. Within {_LIMIT}, the upper end of the interval included: "
        f"{_within(found)}."
    )
    yield ""
    yield f"![Test C-index of each training]({figure})"
    yield ""
    yield f"| way | chosen | test C-index | worst | behind the true hazard [95%] | minus {OURS.name} [95%] | seconds |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, own in found.items():
        gain = "" if name == OURS.name else f"{paired_interval(own[:, 0], ours[:, 0]):+}"
        said = ", ".join(f"{key} {value:g}" for key, value in options[name].items())
        yield (
            f"| {name} | {said} | {own[:, 0].mean():.3f} | {own[:, 0].min():.3f} | "
            f"{paired_interval(own[:, 1], own[:, 0]):+} | {gain} | {own[:, 2].mean():.0f} |"
        )
    yield ""
    gains = {name: paired_interval(own[:, 0], ours[:, 0]) for name, own in found.items() if name != OURS.name}
    yield f"Minus {OURS.name}: {left_after_holm(gains, freedom=len(ours) - 1)}"
    yield ""
    yield (
        "Intervals are 95% t intervals over the repeats, paired: all ways of a repeat see the same bags. Learning "
        "rate, margin and gamma0 were chosen for each way from the same grid, by validation bags of a repeat that is "
        "not in the table. The network is one hidden layer of 64, trained with Adam for 200 epochs of 19 steps."
    )


def _within(found: dict[str, NDArray[np.float64]]) -> str:
    """Return the ways with a distance to the true hazard below the limit, for the whole interval."""
    names = []
    for name, own in found.items():
        behind = own[:, 1] - own[:, 0]
        half = student.ppf(0.975, len(behind) - 1) * behind.std(ddof=1) / np.sqrt(len(behind))
        names += [f"`{name}`"] if behind.mean() + half <= _LIMIT else []
    return ", ".join(names) or "none"


def plot(found: dict[str, NDArray[np.float64]], path: Path) -> None:
    """Draw the test C-index of each training, with a row for each way, and the range of the true hazard."""
    names = list(found)
    figure = new_figure((7.2, 1.1 + 0.36 * len(names)))
    axes = figure.subplots()
    best = next(iter(found.values()))[:, 1]
    axes.axvspan(best.min(), best.max(), color="#D8D8D8", label="true hazard, all repeats")
    for line, own in enumerate(found.values()):
        spread = np.linspace(-0.22, 0.22, len(own))
        axes.scatter(own[:, 0], line + spread, s=14, color=_DOT, alpha=0.7, linewidths=0)
        axes.scatter([own[:, 0].mean()], [line], s=60, marker="|", color=_MEAN, linewidths=2)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("test C-index (bar: mean)")
    axes.legend(loc="lower left", frameon=False)
    save_figure(figure, path, grid=False)


@as_study("survival on bags of 2000 instances: the tracked state and pairs, beside Cox and mean pooling", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        tuned = [_group(design, way, own, i) for i in design.tuning for way in design.ways for own in way.options()]
        complete(tuned, _train, store=store, options=options, section=SECTION)
        taken = {way.name: chosen(design, store, way) for way in design.ways}
        wanted = [_group(design, way, taken[way.name], i) for i in design.repeats for way in design.ways]
        complete(wanted, _train, store=store, options=options, section=SECTION)
        found = {way.name: outcomes(design, store, way, taken[way.name]) for way in design.ways}
        plot(found, figure)
        return body(found, taken, figure.name)

    run_design(options, SECTION, (FULL, QUICK, SMALLER), study, title="Survival", shows=_SHOWS)
