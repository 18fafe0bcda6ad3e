"""`python -m studies needle`: draws for one witness in hundreds or thousands of instances, at equal cost.

`python -m studies needle-vectors`: one nine in up to 500 digits of MNIST, which a pretrained network made vectors of.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from midam.compare.baselines import BagStatisticsLogistic, BagStatisticsTrees, Baseline
from midam.compare.engine import Group, Row
from midam.data.bags import Bags
from midam.data.sampling import BagSampler
from midam.evaluate.ranking import auroc
from midam.registry import typed
from midam.settings import Settings
from midam.train.trainer import Trainer
from midam.train.trials import Trial
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.regime.bags import Counts, draw_rows, embed_digits, image_bags, is_nine, nine_bags, single_images
from studies.regime.needle_page import body, plot_trials, vector_body
from studies.regime.run import run_design
from studies.registry import as_study

SECTION, VECTORS = "needle", "needle-vectors"
NETWORK = "efficientnet-lite0"
_STEP_BAGS = 16
_FORWARD, _BACKWARD = 1, 2  # Cost of a pass of one instance
_PLAIN_STEPS, _PLAIN_INSTANCES = 2400, 16
_NEXT_SEED = 1000  # Seeds of further trainings of a repeat, so far apart that none is another repeat's


@dataclass(frozen=True)
class Rule:
    """A way to train, by the settings in which it differs."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    tries: int = 1  # Trainings with weights and draws of their own, of which validation bags keep one
    rates: tuple[float, ...] = ()  # The pretrained network is trained on, at rates of which validation bags keep one


_DRAWN = {"num_instances": _PLAIN_INSTANCES, "num_positive": 8, "num_negative": 8}
UNIFORM = Rule("uniform", _DRAWN | {"estimator": "minibatch", "epochs": 800})
TRACKED = Rule("uniform, tracked state", UNIFORM.settings | {"estimator": "vrsp"})
ANNEALED = Rule("uniform, annealed", UNIFORM.settings | {"anneal": 0.7})
TOP = Rule("top at once", _DRAWN | {"estimator": "minibatch", "draw": "top", "draw_args": {"grow": 0.0}})
GROWN = Rule("top, annealed", _DRAWN | {"estimator": "minibatch", "draw": "top", "anneal": 0.7})
GROWN_TRACKED = Rule("top, annealed, tracked state", GROWN.settings | {"estimator": "vrsp"})
BEST = Rule("top, annealed, best of 4", GROWN.settings, tries=4)
EXACT = Rule(
    "exact, 100 epochs",
    {"estimator": "exact", "num_positive": 1, "num_negative": 1, "epochs": 100, "anneal": 0.7},
)
# No draw rule: what the images would allow if each training instance had its label.
LABELED = Rule("instances labeled")
LABELED_TUNED = Rule("instances labeled, fine-tuned", rates=(0.001, 0.0003))
# Fitted in one step.
FITTED: dict[str, Callable[[], Baseline]] = {
    "trees on bag statistics": BagStatisticsTrees,
    "logistic regression on bag statistics": BagStatisticsLogistic,
}
FEW = (UNIFORM, TRACKED, GROWN, GROWN_TRACKED)
FEWEST = (UNIFORM, GROWN)
ALL = (UNIFORM, TRACKED, ANNEALED, TOP, GROWN, GROWN_TRACKED, BEST, EXACT, LABELED)


@dataclass(frozen=True)
class Cell:
    """Bags of one kind, and how they are pooled."""

    pooling: str
    size: int
    witnesses: int
    rules: tuple[Rule, ...]
    # Of rules that remember: what is left to steps, and to passes over all bags, of a budget of 2
    epochs: int = 700
    pass_budget: float = 0.1


@dataclass(frozen=True)
class Design:
    """What is run."""

    cells: tuple[Cell, ...]
    repeats: tuple[int, ...]
    epochs: int | None = None  # In place of those of the rules
    counts: Counts = field(default_factory=Counts)
    digits: int = 0  # Digits of MNIST as vectors; 0: pixels of those that scikit-learn carries
    vectors: Path | None = field(default=None, compare=False)  # Their store
    cuda: bool = field(default=False, compare=False)  # The pretrained network is trained on a GPU

    def bags(self, cell: Cell, repeat: int) -> Bags:
        """Return the bags of a repeat."""
        return _bags(cell.size, cell.witnesses, repeat, self.counts, self.vectors)

    def images(self, cell: Cell, repeat: int) -> Bags:
        """Return the same bags as images."""
        assert self.vectors is not None, "digits of MNIST"
        return _images(cell.size, cell.witnesses, repeat, self.counts, self.vectors)

    def config(self, cell: Cell, rule: Rule, repeat: int) -> Settings:
        """Return the settings of a training."""
        common: dict[str, Any] = {
            "pooling": cell.pooling,
            "optimizer": "adam",
            "lr": 0.01,
            "decay_at": [0.75, 0.9],
            "members": 1,
            "center_start": 0.5,
            "state_floor": 0.0,
            "hidden": [],
            "standardize": False,
            "accelerator": "cpu",
            "threads": 1,
            "seed": repeat,
        }
        own = dict(rule.settings)
        if own.get("draw", "uniform") != "uniform":
            own["epochs"] = cell.epochs
            own["draw_args"] = {"pass_budget": cell.pass_budget, **own.get("draw_args", {})}
        own |= {} if self.epochs is None else {"epochs": self.epochs}
        if rule.rates:
            own |= {"encoder": "fine-tuned", "encoder_args": {"network": typed(NETWORK)}, "standardize": True}
            own |= {"hidden": None, "precision": "bf16-mixed" if self.cuda else "32-true"}
            own |= {"accelerator": "cuda" if self.cuda else "cpu"}
        return Settings(**common | {"val_every": own.get("epochs", 1)} | own)


FULL = Design(
    cells=(
        Cell("smoothed-max", 500, 1, ALL),
        Cell("smoothed-max", 5000, 5, (UNIFORM, TOP, GROWN, BEST, EXACT, LABELED), epochs=400, pass_budget=0.8),
        Cell("attention", 500, 1, FEW),
        Cell("attention", 5000, 5, FEWEST, epochs=400, pass_budget=0.8),
    ),
    repeats=tuple(range(10)),
)
QUICK = Design(cells=(Cell("smoothed-max", 500, 1, (UNIFORM, GROWN)),), repeats=(0, 1, 2))
SMALLER = Design(
    cells=(Cell("smoothed-max", 60, 1, (UNIFORM, GROWN, EXACT)),),
    repeats=(0, 1),
    epochs=2,
    counts=Counts(train=16, val=6, test=8),
)
# What trains the network on. Whole bags of 500 would encode a million images a training.
_TUNED = {20: (), 100: (UNIFORM.name, GROWN.name), 500: (UNIFORM.name, TRACKED.name, GROWN.name)}
_BOUNDS = (LABELED.name, LABELED_TUNED.name)
# Passes over all bags, two of each class a step.
_EXACT_EPOCHS = {20: 20, 100: 20, 500: 12}


def vector_cells(size: int) -> tuple[Cell, ...]:
    """All rules at one bag size."""
    plain = {"estimator": "exact", "num_positive": 2, "num_negative": 2, "epochs": _EXACT_EPOCHS[size]}
    exact = Rule("exact", plain)
    drawn = [replace(rule, settings=rule.settings | {"epochs": 40}) for rule in (UNIFORM, TRACKED, GROWN)]
    annealed = replace(exact, settings=plain | {"anneal": 0.7})
    rules = {
        "smoothed-max": (*drawn, annealed, *(_tuned(rule) for rule in drawn if rule.name in _TUNED[size])),
        "attention": (drawn[0], exact),
        "mean": (exact, *(Rule(name) for name in FITTED), LABELED, LABELED_TUNED),
    }
    return tuple(Cell(pooling, size, 1, own, epochs=40) for pooling, own in rules.items())


def _tuned(rule: Rule) -> Rule:
    return replace(rule, name=f"{rule.name}, fine-tuned", rates=LABELED_TUNED.rates)


def _vector_design(sizes: tuple[int, ...]) -> Design:
    cells = tuple(cell for size in sizes for cell in vector_cells(size))
    return Design(cells, tuple(range(4)), counts=Counts(200, 100, 200), digits=10_000)


VECTOR_DESIGNS = (
    _vector_design((20, 100, 500)),
    replace(_vector_design((20,)), repeats=(0, 1)),
    replace(_vector_design((100,)), repeats=(0, 1), epochs=2, counts=Counts(16, 6, 20), digits=400),
)
_SHOWS = (
    "One instance in five hundred, or five in five thousand, makes a bag positive, and nothing says which. A uniform "
    "draw of 16 nearly always misses it. Rules that remember what each instance scored were compared at the same cost, "
    "counted in instances encoded: at most twice that of 2400 uniform steps."
)

_QUESTION = (
    "One nine makes a bag of 20, 100 or 500 digits of MNIST positive, and nothing says which. Each digit (28 x 28) "
    f"first passed once through a frozen network ({NETWORK}, ImageNet); what is trained sees 64 numbers. "
    "[From pixels](needle.md), uniform draws are at chance with one of 500. Is the nine found in vectors, by which "
    "rule, and in bags of which size?\n\n"
    "Written before the first run: a rule finds the needle at a size where the 95% t interval of its mean test AUROC "
    "over the repeats lies above 0.7. It is at chance where the interval reaches 0.5, and weak between these. Two "
    "rules differ where the interval of their paired differences leaves out 0. Rows with 'fine-tuned' train the "
    "network on, all its layers, from the pixels: that pays at a size where the interval of a rule's paired difference "
    "to the same rule on frozen vectors lies above 0."
)
_HOW = (
    "10 000 digits of MNIST; in each repeat 60% of them are for training bags, 15% for validation and 25% for test "
    "bags, and none is in two of these. A bag draws its digits with replacement from those of its part, so bags of a "
    "part share digits. Half of the 200 training, 100 validation and 200 test bags are positive. Vectors become "
    "the 64 first principal components of those of the training digits, each standardized and cut off at 3 deviations. "
    "One tanh layer of 64 before the pooling, one scorer, Adam at 0.01 for all rules, as in [The needle](needle.md). "
    "`uniform` draws 16 digits of a bag, 8 + 8 bags, 520 steps (`minibatch`); `tracked state` is `vrsp` at gamma0 = "
    "0.9 on the same draws; `top, annealed` draws what scored highest; `exact` sees whole bags, 2 + 2 a step. Cost as "
    "in [The needle](needle.md). Trees and logistic regression see mean, minimum, maximum and standard deviation of "
    "each number over the bag. `instances labeled` is no rule but a bound: a network with the same layer, trained on "
    "which training digits are nines, which scores a bag by its highest digit. Fine-tuned, the network itself is "
    "trained on, with no layer after it, on the same draws, bags and steps, by Adam at 0.001 or 0.0003, as validation "
    "bags choose; its cost is of the whole network for each instance, where the others pass it once; "
    "`instances labeled, fine-tuned` is trained on single digits, 32 + 32 a step, 6 epochs. Whole bags are not trained "
    "on so: at 1 of 500 that would encode a million digits a training."
)


def _train(task: tuple[Design, Cell, Rule, int]) -> list[Row]:
    design, cell, rule, repeat = task
    bags, started = (design.images if rule.rates else design.bags)(cell, repeat), time.perf_counter()
    train, val, test = (bags.subset(design.counts.positions(split)) for split in ("train", "val", "test"))
    device = {"device": torch.cuda.get_device_name() if design.cuda else "CPU"} if rule.rates else {}
    if rule == LABELED_TUNED:
        tried = [_labeled_areas(design, cell, repeat, lr) for lr in rule.rates]
        best = max(tried, key=lambda own: own["val"])
        return [{**best, "cost": None, "drawn_weight": None, **device, "seconds": time.perf_counter() - started}]
    if rule == LABELED or rule.name in FITTED:
        labels, scores = bags.require_labels(), _fitted_scores(design, cell, rule, repeat)
        val_auroc, test_auroc = (auroc(labels[at], scores[at]) for at in map(design.counts.positions, ("val", "test")))
        seconds = time.perf_counter() - started
        return [{"val": val_auroc, "test": test_auroc, "cost": None, "drawn_weight": None, "seconds": seconds}]
    config, tried = design.config(cell, rule, repeat), []
    rates = rule.rates or (config.training.lr,)
    for number, lr in product(range(rule.tries), rates):
        trainer = Trainer(config.replace(seed=repeat + number * _NEXT_SEED, lr=lr), train, val).fit()
        row = trainer.history[-1]
        scores = trainer.scores(test, trainer.reader(test))
        test_auroc = auroc(test.require_labels(), scores)
        own = {"val": row["val_auroc"], "test": test_auroc, "drawn_weight": row.get("drawn_weight")}
        tried.append({**own, "cost": cost(trainer, cell, design)})
    best = max(tried, key=lambda own: own["val"])
    paid = sum(own["cost"] for own in tried)
    return [{**best, "cost": paid, **device, "seconds": time.perf_counter() - started}]


@lru_cache(maxsize=1)
def _bags(size: int, witnesses: int, repeat: int, counts: Counts, vectors: Path | None) -> Bags:
    return nine_bags(size, sets=[(witnesses, repeat)], counts=counts, vectors=vectors)


@lru_cache(maxsize=1)
def _images(size: int, witnesses: int, repeat: int, counts: Counts, vectors: Path) -> Bags:
    return image_bags(size, positive=witnesses, repeat=repeat, counts=counts, vectors=vectors)


def _fitted_scores(design: Design, cell: Cell, rule: Rule, repeat: int) -> NDArray[np.float64]:
    """Scores of all bags after one step of fitting: a method on bag statistics, or the bound."""
    bags, train = design.bags(cell, repeat), design.counts.positions("train")
    if rule.name in FITTED:
        return FITTED[rule.name]().score(bags, Trial(train, np.arange(len(bags)), repeat))
    # A network of the same layer, trained on the labels of the images themselves; a bag scores by its highest.
    rows = draw_rows(cell.size, positive=cell.witnesses, repeat=repeat, counts=design.counts, vectors=design.vectors)
    distinct, first = np.unique(rows[train], return_index=True)
    x = np.stack([bags[int(train[at // cell.size])][at % cell.size] for at in first]).astype(np.float32)
    network = MLPClassifier((x.shape[1],), activation="tanh", max_iter=1000, random_state=repeat)
    network.fit(x, is_nine(distinct, design.vectors))
    return np.array([network.predict_proba(bags[i].astype(np.float32))[:, 1].max() for i in range(len(bags))])


def _labeled_areas(design: Design, cell: Cell, repeat: int, lr: float) -> Row:
    """AUROC of bags by their highest image, of the network trained on with the labels of the training images."""
    assert design.vectors is not None, "digits of MNIST"
    counts = design.counts
    rows = draw_rows(cell.size, positive=cell.witnesses, repeat=repeat, counts=counts, vectors=design.vectors)
    config = design.config(cell, LABELED_TUNED, repeat).replace(
        pooling="mean", estimator="minibatch", lr=lr, num_instances=1, num_positive=32, num_negative=32, epochs=6
    )
    train = single_images(np.unique(rows[counts.positions("train")]), design.vectors)
    distinct, at = np.unique(rows, return_inverse=True)
    images = single_images(distinct, design.vectors)
    trainer = Trainer(config, train).fit()
    scores = trainer.scores(images, trainer.reader(images))[at.reshape(rows.shape)].max(axis=1)
    labels = np.arange(len(rows)) % 2
    return {split: auroc(labels[own], scores[own]) for split in ("val", "test") for own in [counts.positions(split)]}


def cost(trainer: Trainer, cell: Cell, design: Design) -> float:
    """Instances encoded, in those of 2400 uniform steps of 16 from 16 bags; a backward pass counts as two."""
    (member,), config = trainer.members, trainer.config
    whole = config.method.estimator == "exact"
    sampler = cast(BagSampler, member.sampler)
    steps = trainer.epoch * sampler.steps_per_epoch
    bags = sampler.num_positive + sampler.num_negative
    drawn = cell.size if whole else min(cell.size, config.training.batch[2])
    memory = sampler.draw.memory
    passed = 0 if memory is None else memory.passes * design.counts.train * cell.size * _FORWARD
    plain = _PLAIN_STEPS * _STEP_BAGS * _PLAIN_INSTANCES * (_FORWARD + _BACKWARD)
    return (steps * bags * drawn * (_FORWARD + _BACKWARD) + passed) / plain


def wanted_groups(design: Design) -> list[Group[tuple[Design, Cell, Rule, int]]]:
    """Return what is to be trained, cell after cell."""
    return [
        Group([_name(design, cell, rule, repeat)], [(design, cell, rule, repeat)])
        for cell in design.cells
        for repeat in design.repeats
        for rule in cell.rules
    ]


def _left_over(design: Design, tuned: Sequence[Row]) -> Iterable[str]:
    """A sentence for each rule with fine-tuned trials that were made, but that no cell of the design has."""
    wanted = {(cell.size, rule.name) for cell in design.cells for rule in cell.rules}
    by: dict[tuple[int, str], list[float]] = {}
    for row in tuned:
        by.setdefault((row["size"], row["rule"]), []).append(row["test"])
    for (size, rule), test in by.items():
        if (size, rule) not in wanted:
            yield (
                f"Not in the tables: {len(test)} of {len(design.repeats)} trainings with `{rule}` in bags of {size} "
                f"were made, test AUROC {min(test):.3f} to {max(test):.3f}."
            )


def _turn(group: Group[tuple[Design, Cell, Rule, int]]) -> tuple[bool, int, int]:
    """When a group's turn is: trainings on pixels come last, and of these the largest bags first."""
    ((_, cell, rule, repeat),) = group.tasks
    return (True, -cell.size, repeat) if rule.rates else (False, repeat, cell.size)


def outcomes(design: Design, store: Store, cell: Cell, rule: Rule) -> NDArray[np.float64]:
    """Return test AUROC, validation AUROC and cost of each repeat, [repeats, 3]."""
    names = [_name(design, cell, rule, repeat) for repeat in design.repeats]
    rows: Sequence[Row | None] = store.find(names)
    return np.array([[row["test"], row["val"], row["cost"]] for row in rows if row is not None], dtype=np.float64)


def _name(design: Design, cell: Cell, rule: Rule, repeat: int) -> Row:
    counts = design.counts
    return trial_name(
        SECTION,
        pooling=cell.pooling,
        size=cell.size,
        witnesses=cell.witnesses,
        rule=rule.name,
        repeat=repeat,
        bags=[counts.train, counts.val, counts.test],
        settings=settings_hash(replace(design, cuda=False).config(cell, rule, repeat)),
        **({"tries": rule.tries} if rule.tries > 1 else {}),
        **({"rates": list(rule.rates)} if rule.rates else {}),
        **({"digits": design.digits, "lr": design.config(cell, rule, repeat).training.lr} if design.digits else {}),
    )


def _parts(design: Design, store: Store) -> Iterable[tuple[Cell, dict[str, NDArray[np.float64]]]]:
    for cell in design.cells:
        yield cell, {rule.name: outcomes(design, store, cell, rule) for rule in cell.rules}


@as_study("draws that find one witness in hundreds or thousands of instances", store=SECTION)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        complete(wanted_groups(design), _train, store=store, options=options, section=SECTION)
        found = [(f"{cell.pooling}, {cell.witnesses} of {cell.size}", rows) for cell, rows in _parts(design, store)]
        plot_trials(found, figure)
        return body(found, figure.name, reference=UNIFORM.name, ours=GROWN.name)

    run_design(options, SECTION, (FULL, QUICK, SMALLER), study, title="The needle", shows=_SHOWS)


@as_study(
    "one nine in up to 500 digits, by a pretrained network that is frozen or trained on",
    takes=("device",),
    store=VECTORS,
)
def run_vectors(options: StudyOptions) -> None:
    """Run the study on vectors and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        vectors = embed_digits(NETWORK, design.digits, cache=options.cache)
        design = replace(design, vectors=vectors, cuda=options.use_cuda())
        groups = sorted(wanted_groups(design), key=_turn)
        complete(groups, _train, store=store, options=options, section=VECTORS)
        found: dict[int, dict[str, NDArray[np.float64]]] = {}
        for cell, rows in _parts(design, store):
            for name, own in rows.items():
                title = name if name in (*FITTED, *_BOUNDS) else f"{cell.pooling}, {name}"
                found.setdefault(cell.size, {})[title] = own
        plot_trials([(f"1 of {size}", rows) for size, rows in found.items()], figure)
        lines = vector_body(found, figure.name, reference="smoothed-max, uniform", bounds=_BOUNDS)
        tuned = [row for row in store.rows if row.get("device")]
        devices = sorted({row["device"] for row in tuned})
        made = f"Fine-tuned rows were trained on: {', '.join(devices)}."
        return [*lines, " ".join([_HOW, *_left_over(design, tuned), made])]  # before trials are published

    run_design(options, VECTORS, VECTOR_DESIGNS, study, title="The needle in vectors of images", shows=_QUESTION)
