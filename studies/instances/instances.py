"""`python -m studies instances`: which number finds the instances that decide.

**Question.** A model can give an instance several numbers (`studies.instances.scores`): the weight of the pooling, the
score of the instance alone, what the bag loses without it, and others. Which of them finds the instances that make a
bag positive, where these are known? And with which pooling and estimator?

**Rule of decision**, fixed before the first trial of any set. The metric is the AUROC in a bag
(`midam.evaluate.labeled_instances`) on test bags. Every method has the same weight in the mean of a set, and every set
the same weight.

1. `midam explain` ranks instances by "contribution". Another number replaces it if both hold. (a) With each set left
   out in turn, the number with the highest mean over the other sets is the same one for most of the sets, and for all
   sets together. (b) On the sets left out, the numbers so chosen are ahead of "contribution" by a mean whose 95% t
   interval, over the sets, lies above 0. Only numbers that every pooling and estimator of the library has can be
   chosen; "gradient x input" needs a gradient, and so cannot.
2. Nothing else is decided here: tables by pooling, estimator and set describe.

Labels of instances and test bags choose no setting: all methods have the defaults, one member, and 40 epochs on 120
bags; `auto` chooses by its own inner folds. Sets are made anew in each repeat. Five repeats were planned, two of them
with `auto`; because the machine was shared, three were run, one of them with `auto`. This was decided when the
first repeat had ended, and the rule was left as it was.

**Rule for other libraries**, fixed before their first trial. `torchmil-abmil` and `mikit-attention` of `studies.peers`
train on the same bags. Their number for an instance is the one that their documentation names: attention before
normalization (`return_att=True`) and `get_instance_weights`. midam's is the contribution, of `auto` and of attention
with vrsp. A difference is midam's figure minus that of the library in the same repeat.

1. Attention and the libraries have ten repeats. Those after the third count here alone. As sets are made anew in each
   repeat, intervals are t intervals over repeats. `auto` keeps its one repeat: its difference on a set has no interval,
   only its mean over the sets has, a t interval over sets.
2. midam is ahead on a set if its attention is ahead of both libraries in AUROC in a bag, each with p < 0.05 after
   Holm's correction over sets and libraries. The goal is two thirds of the sets. The page names the others.
3. Average precision in a bag and the pooled AUROC describe. So does the weight of midam's attention, the same number
   as that of the libraries.
4. The machine is shared, so time decides the number of repeats: they run in order, and those that are not complete on
   all sets when the machine's time ends are left out. Five were complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.labeled_instances import InstanceMetrics, evaluate_instances
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods.names import make_method
from midam.methods.store import Row
from midam.nn.scorer import BagEnsemble
from midam.settings import Settings
from midam.train.side import Trial
from midam.train.trainer import Trainer
from studies.engine import Store, complete, short_digest, trial_name
from studies.instances.libraries import ATTENTION, LIBRARIES, WEIGHT, compared
from studies.instances.page import body, plot
from studies.instances.scores import SCORES, score_instances
from studies.instances.sets import SETS, load
from studies.options import StudyOptions
from studies.peers import MikitAttention, TorchMILABMIL, installed_peers
from studies.regime.run import run_design
from studies.registry import as_study

NAME = "instances"
AUTO = "auto"
FIGURES = ("auroc_in_bag", "auprc_in_bag", "hit_rate", "auroc")
_POOLINGS = ("attention", "smoothed-max", "gated-attention", "embedding-attention", "mean")
# Pooling and estimator of each method; the two first poolings have all estimators.
METHODS: dict[str, dict[str, Any]] = {
    **{f"{pooling}, vrsp": {"pooling": pooling, "estimator": "vrsp"} for pooling in _POOLINGS},
    **{
        f"{pooling}, {estimator}": {"pooling": pooling, "estimator": estimator}
        for pooling in _POOLINGS[:2]
        for estimator in ("minibatch", "exact")
    },
}


@dataclass(frozen=True)
class Design:
    """Sets, methods, repeats (of `auto` the first), bags of training and test, and epochs."""

    sets: tuple[str, ...] = tuple(SETS)
    methods: tuple[str, ...] = (*METHODS, AUTO)
    repeats: tuple[int, ...] = tuple(range(3))
    train: int = 120
    test: int = 60
    epochs: int = 40
    compared: tuple[int, ...] = tuple(range(5))  # repeats next to other libraries

    @property
    def trials(self) -> list[tuple[str, str, int]]:
        """Set, method and repeat of each trial, repeat by repeat."""
        every = [(name, method, repeat) for repeat in self.repeats for name in self.sets for method in self.methods]
        return [one for one in every if one[1] != AUTO or one[2] in self.repeats[:1]]

    def trials_of(self, method: str) -> list[tuple[str, str, int]]:
        """Set, method and repeat of the trials of a method next to other libraries, repeat by repeat."""
        return [(name, method, repeat) for repeat in self.compared for name in self.sets]

    def name(self, trial: tuple[str, str, int]) -> Row:
        """Return the name of a trial."""
        of_set, method, repeat = trial
        sizes = short_digest([self.train, self.test, self.epochs])
        return trial_name(NAME, set=of_set, method=method, repeat=repeat, sizes=sizes)


FULL = Design()
QUICK = Design(("digits", "neighbors"), ("attention, vrsp", "smoothed-max, vrsp"), (0, 1), compared=(0, 1))
SMALLER = Design(
    ("digits", "neighbors"), ("attention, vrsp", "mean, vrsp"), (0, 1), train=20, test=12, epochs=2, compared=(0, 1)
)
_COMPARED = "attention, vrsp"
_NETWORKS: dict[str, type[TorchMILABMIL | MikitAttention]] = {
    "torchmil-abmil": TorchMILABMIL,
    "mikit-attention": MikitAttention,
}
_SHOWS = (
    "Which of the numbers that a model gives an instance finds the instances that make a bag positive? Seven sets with "
    "known labels of instances, which no training sees."
)


def _run(task: tuple[Design, tuple[str, str, int]]) -> list[Row]:
    """Train a method on a set, and evaluate all numbers of its instances on the test bags."""
    design, (name, method, repeat) = task
    train, test, best = load(name, repeat, train=design.train, test=design.test)
    if method in _NETWORKS:
        return [_of_library(method, train, test, repeat)]
    model = _model(method, train.replace(instance_labels=None), repeat, epochs=design.epochs)
    found = score_instances(model, test, np.asarray(train.instances).mean(axis=0))
    area = auroc(test.require_labels(), predict(model, test))
    scores = {score: _figures(evaluate_instances(test, values, resamples=1)) for score, values in found.items()}
    limits = {score: _figures(evaluate_instances(test, values, resamples=1)) for score, values in best.items()}
    return [{"auroc": area, "scores": scores, "best": limits}]


def _of_library(method: str, train: Bags, test: Bags, seed: int) -> Row:
    """Train the network of a library, and evaluate its attention on the test bags."""
    labels = np.append(train.require_labels(), test.require_labels())
    bags = Bags.from_list([part[at] for part in (train, test) for at in range(len(part))], labels)
    trial = Trial(np.arange(len(train)), np.arange(len(train), len(bags)), seed)
    scores, attention = _NETWORKS[method]().score_with_instances(bags, trial)
    figures = _figures(evaluate_instances(test, attention, resamples=1))
    return {"auroc": auroc(test.require_labels(), scores), "scores": {"attention": figures}}


def _figures(metrics: InstanceMetrics) -> list[float | None]:
    """Return the values of `FIGURES`."""
    return [None if (found := getattr(metrics, name)) is None else found.value for name in FIGURES]


def _model(method: str, train: Bags, seed: int, *, epochs: int) -> BagEnsemble:
    common: dict[str, Any] = {"accelerator": "cpu", "threads": 1, "seed": seed}
    if method == AUTO:
        return make_method(AUTO).fit(train, None, Settings(**common).resolve(train.instance_shape)).model
    return Trainer(Settings(**common, members=1, epochs=epochs, **METHODS[method]), train).fit().model


def table_of(design: Design, store: Store) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return the figures by set and method, [repeats, scores, figures]; NaN where a model lacks a score."""
    rows = dict(zip(design.trials, store.find([design.name(trial) for trial in design.trials])))
    tables: dict[str, dict[str, NDArray[np.float64]]] = {}
    for of_set in design.sets:
        for method in design.methods:
            found = [rows.get((of_set, method, repeat)) for repeat in design.repeats]
            known = [[row["scores"].get(score, [None] * len(FIGURES)) for score in SCORES] for row in found if row]
            tables.setdefault(of_set, {})[method] = np.array(known, dtype=np.float64)
    return tables


def figures_of(design: Design, store: Store) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return the figures of midam and of the libraries that have trials, by set, as `compared` takes them."""
    numbers = {AUTO: (AUTO, "contribution"), ATTENTION: (_COMPARED, "contribution"), WEIGHT: (_COMPARED, "weight")}
    numbers |= {library: (library, "attention") for library in LIBRARIES}
    figures: dict[str, dict[str, NDArray[np.float64]]] = {of_set: {} for of_set in design.sets}
    for name, (method, score) in numbers.items():
        for of_set in design.sets:
            trials = [trial for trial in design.trials_of(method) if trial[0] == of_set]
            rows = [row["scores"][score] for row in store.find([design.name(trial) for trial in trials]) if row]
            if rows:
                figures[of_set][name] = np.array(rows, dtype=np.float64)
    return figures


@as_study("which number finds the instances that decide", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page and its figure."""

    def study(design: Design, store: Store, figure: Path) -> Iterable[str]:
        others = [trial for method in (_COMPARED, *installed_peers(LIBRARIES)) for trial in design.trials_of(method)]
        every = dict.fromkeys([*design.trials, *sorted(others, key=lambda trial: trial[2])])
        groups = [Group([design.name(trial)], [(design, trial)]) for trial in every]
        complete(groups, _run, store=store, options=options, section=NAME)
        rows = [row for row in store.find([design.name(trial) for trial in design.trials]) if row is not None]
        tables = table_of(design, store)
        plot(tables, figure)
        return [*body(tables, rows, figure.name), *compared(figures_of(design, store))]

    run_design(options, NAME, (FULL, QUICK, SMALLER), study, title="Which instances decided", shows=_SHOWS)
