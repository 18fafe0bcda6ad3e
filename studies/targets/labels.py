"""`python -m studies labels`: ten labels at once, compared with ten trainings of one label.

Question: what does a training of ten score columns cost beside one of a single column, and does it rank as well as ten
trainings of their own?

Rule, fixed before the repeats: ten labels at once cost at most 1.5 times one where the mean ratio of the training
times, taken in turns in one process, is below that; they rank as well where the paired 95% t interval of the difference
of macro AUROC holds 0. Settings are the defaults, one member.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.report.figures import new_figure
from midam.settings import Settings
from midam.train.trainer import Trainer
from studies.drawing import save_figure
from studies.engine import Store, complete, short_digest, trial_name
from studies.options import StudyOptions
from studies.regime.run import run_design
from studies.registry import as_study
from studies.split_statistics import paired_interval

SECTION = "labels"
_LIMIT = 1.5
_DIGITS = tuple(str(digit) for digit in range(10))
_SHARES = (0.6, 0.4)  # of the images: training, test
_DOT, _MEAN = "#0072B2", "#202020"
# Poolings, defined by the settings that differ.
POOLINGS: dict[str, dict[str, Any]] = {"attention, per class": {}}


@dataclass(frozen=True)
class Design:
    """Sizes of the study: bags of `least` to `most` digits, `train` and `test` of them."""

    poolings: tuple[str, ...]
    repeats: tuple[int, ...]
    train: int = 300
    test: int = 300
    least: int = 2
    most: int = 8
    settings: dict[str, Any] = field(default_factory=dict, hash=False)

    def config(self, pooling: str, repeat: int) -> Settings:
        """Return the settings of a training."""
        common: dict[str, Any] = {"members": 1, "accelerator": "cpu", "threads": 1, "seed": repeat}
        return Settings(**common | POOLINGS[pooling] | self.settings)


FULL = Design(tuple(POOLINGS), repeats=tuple(range(10)))
QUICK = Design(("attention, per class",), repeats=(0, 1))
SMALLER = Design(("attention, per class",), repeats=(0, 1), train=80, test=80, settings={"epochs": 2})
_SHOWS = (
    "A bag of 2 to 8 handwritten digits has ten labels: which digits occur in it. One training of ten score columns is "
    "set beside ten trainings of one column, on the same bags."
)


def label_bags(design: Design, repeat: int) -> tuple[Bags, Bags]:
    """Return training and test bags of a repeat, which share no image.

    Examples
    --------
    >>> train, test = label_bags(SMALLER, 0)
    >>> len(train), train.outcome.values.shape
    (80, (80, 10))
    """
    rng = np.random.Generator(np.random.Philox([2023, repeat]))
    digits = load_digits()
    rows = rng.permutation(len(digits.target))
    cut = int(_SHARES[0] * len(rows))
    made = []
    for known, count in ((rows[:cut], design.train), (rows[cut:], design.test)):
        members = [rng.choice(known, rng.integers(design.least, design.most, endpoint=True)) for _ in range(count)]
        there = [np.isin(np.arange(10), digits.target[own]) for own in members]
        outcome = TargetLabels.of("multilabel", np.stack(there), names=_DIGITS)
        made.append(Bags.from_list([(digits.data[own] / 16).astype(np.float32) for own in members], outcome=outcome))
    return made[0], made[1]


def _train(task: tuple[Design, str, int]) -> list[Row]:
    design, pooling, repeat = task
    train, test = label_bags(design, repeat)
    config = design.config(pooling, repeat)
    labels = [bags.outcome.values.astype(np.int64) for bags in (train, test) if bags.outcome is not None]
    together, seconds = _fitted(config, train, test)
    areas, alone, times = [], [], []
    for column, name in enumerate(_DIGITS):
        of_train, of_test = (
            bags.replace(outcome=None, labels=own[:, column]) for bags, own in zip((train, test), labels)
        )
        scores, took = _fitted(config, of_train, of_test)
        areas.append(auroc(labels[1][:, column], together[:, int(name)]))
        alone.append(auroc(labels[1][:, column], scores))
        times.append(took)
        if column == len(_DIGITS) // 2:  # again, in the midst of the others
            seconds = min(seconds, _fitted(config, train, test)[1])
    return [{"together": float(np.mean(areas)), "alone": float(np.mean(alone)), "ratio": seconds / np.median(times)}]


def _fitted(config: Settings, train: Bags, test: Bags) -> tuple[NDArray[np.float64], float]:
    """Train, and return the test scores and the seconds of the training."""
    trainer = Trainer(config, train).fit()
    return trainer.scores(test, trainer.reader(test)), trainer.trained_s


def _name(design: Design, pooling: str, repeat: int) -> Row:
    sizes = [design.train, design.test, design.least, design.most, design.settings]
    return trial_name(SECTION, pooling=pooling, repeat=repeat, settings=short_digest(sizes))


def body(found: dict[str, NDArray[np.float64]], figure: str) -> Iterator[str]:
    """Lines of the page; of each pooling macro AUROC together, alone, and the ratio of times, [repeats, 3]."""
    cheap = [name for name, own in found.items() if own[:, 2].mean() <= _LIMIT]
    yield f"At most {_LIMIT} times the cost of one: {', '.join(cheap) or 'none'}."
    yield ""
    yield f"![Macro AUROC of each repeat]({figure})"
    yield ""
    yield "| pooling | ten at once | ten alone | difference [95%] | cost of ten at once, of one |"
    yield "|---|---:|---:|---:|---:|"
    for name, own in found.items():
        ratio = own[:, 2]
        yield (
            f"| {name} | {own[:, 0].mean():.3f} | {own[:, 1].mean():.3f} | {paired_interval(own[:, 0], own[:, 1]):+} | "
            f"{ratio.mean():.2f} ({ratio.min():.2f} to {ratio.max():.2f}) |"
        )
    yield ""
    yield (
        "Macro AUROC is the mean of the ten. Intervals are 95% t intervals over the repeats, paired. The cost is that "
        "of the training of all ten columns, over the median of the ten trainings of one, in turns in one process."
    )


def plot(found: dict[str, NDArray[np.float64]], path: Path) -> None:
    """Draw the difference of macro AUROC of each repeat, with a row for each pooling."""
    figure = new_figure((6.6, 1.2 + 0.5 * len(found)))
    axes = figure.subplots()
    axes.axvline(0, color="#B0B0B0", linewidth=1)
    for line, own in enumerate(found.values()):
        difference = own[:, 0] - own[:, 1]
        spread = np.linspace(-0.2, 0.2, len(own))
        axes.scatter(difference, line + spread, s=16, color=_DOT, alpha=0.7, linewidths=0)
        axes.scatter([difference.mean()], [line], s=70, marker="|", color=_MEAN, linewidths=2)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel("macro AUROC, ten at once minus ten alone (bar: mean)")
    save_figure(figure, path, grid=False)


@as_study("ten labels at once, beside ten trainings of one", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        wanted = [(pooling, repeat) for repeat in design.repeats for pooling in design.poolings]
        groups = [Group([_name(design, *own)], [(design, *own)]) for own in wanted]
        complete(groups, _train, store=store, options=options, section=SECTION)
        found = {}
        for pooling in design.poolings:
            rows = store.find([_name(design, pooling, repeat) for repeat in design.repeats])
            known = [[row["together"], row["alone"], row["ratio"]] for row in rows if row is not None]
            found[pooling] = np.array(known, dtype=np.float64)
        plot(found, figure)
        return body(found, figure.name)

    run_design(options, SECTION, (FULL, QUICK, SMALLER), study, title="Ten labels at once", shows=_SHOWS)
