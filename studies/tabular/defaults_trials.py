"""The trials of the study `defaults`: which candidates there are, and their scores of each fold."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.baselines import BagStatisticsTrees
from midam.compare.engine import Group, Row
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.settings import Settings, member_seed
from midam.train.lockstep import Trial, train_trials
from studies.engine import Store, settings_hash, trial_name

TREES = "bag-statistics-extratrees"
FOLDS = 10
BASE: dict[str, Any] = {
    **{"pooling": "attention", "estimator": "vrsp", "objective": "minmax-auc", "objective_weight": "paper"},
    **{
        "epochs": 100,
        "lr": 0.05,
        "weight_decay": 1e-4,
        "num_instances": 4,
        "state_rate": 0.5,
        "state_floor": 0.0,
        "margin": 1.0,
    },
    **{"hidden": [], "scaling": "linear", "clip": 10.0},
}
# What the study `regime` decides, and no candidate: a choice is judged as the library has it.
DECIDED = {"state_rate": 0.9}

# In the order in which they were thought of: scalings and a width; a tighter clip; then, as clip 3 had come out ahead,
# changes at it and the blend for sparse features alone; then, around what had been chosen, rates, the objective and
# averaged weights.
CANDIDATES: dict[str, dict[str, Any]] = {
    "linear": {},
    "linear, hidden 64": {"hidden": [64]},
    "linear, clip 3": {"clip": 3.0},
    "linear, clip 2": {"clip": 2.0},
    "blend, clip 3": {"scaling": "blend", "clip": 3.0},
    "auto, clip 3": {"scaling": "auto", "clip": 3.0},
    "auto, clip 3, state rate 0.9": {"scaling": "auto", "clip": 3.0, "state_rate": 0.9},
    "auto, clip 3, B = 8": {"scaling": "auto", "clip": 3.0, "num_instances": 8},
    "linear, clip 3, state rate 0.9": {"clip": 3.0, "state_rate": 0.9},
    "linear, clip 3, B = 8": {"clip": 3.0, "num_instances": 8},
    "linear, clip 3, weight decay 0.01": {"clip": 3.0, "weight_decay": 0.01},
    **{
        f"auto, clip 3, B = 8, {what}": {"scaling": "auto", "clip": 3.0, "num_instances": 8, **values}
        for what, values in (
            ("lr 0.02", {"lr": 0.02}),
            ("lr 0.1", {"lr": 0.1}),
            ("margin 0.5", {"margin": 0.5}),
            ("pairwise weight", {"objective_weight": "pairwise"}),
            ("constant rates", {"decay_at": []}),
            ("averaged", {"average_from": 0.5}),
            ("constant rates, averaged", {"decay_at": [], "average_from": 0.5}),
        )
    },
    "auto, clip 3, gated": {"scaling": "auto", "clip": 3.0, "pooling": "gated-attention"},
    "auto, clip 3, smoothed-max": {"scaling": "auto", "clip": 3.0, "pooling": "smoothed-max"},
    "auto, clip 3, mean": {"scaling": "auto", "clip": 3.0, "pooling": "mean"},
}


@dataclass(frozen=True, eq=False)
class Fit:
    """One candidate (or the trees) on all folds of a repeat of one set."""

    data: str
    bags: Bags
    config: Settings | None
    repeat: int
    member: int = 0

    def group(self) -> Group["Fit"]:
        """The trial, named."""
        name = trial_name(
            "defaults",
            set=self.data,
            instances=self.bags.num_instances,
            settings=TREES if self.config is None else settings_hash(self.config),
            lr=None if self.config is None else self.config.training.lr,
            margin=None if self.config is None else self.config.method.margin,
            repeat=self.repeat,
            member=self.member,
        )
        return Group([name], [self])


def settings_of(candidate: str, *, judged: bool = False) -> dict[str, Any]:
    """Return the settings of a candidate, as it is tried or as it is judged.

    Examples
    --------
    >>> [settings_of("linear", judged=judged)["state_rate"] for judged in (False, True)]
    [0.5, 0.9]
    """
    return {**BASE, **CANDIDATES[candidate], **(DECIDED if judged else {})}


def config_of(candidate: str, *, epochs: int | None, judged: bool = False) -> Settings | None:
    """Return the settings of a training of a candidate, None for the trees."""
    if candidate == TREES:
        return None
    values = settings_of(candidate, judged=judged) | ({} if epochs is None else {"epochs": epochs})
    return Settings(**values, members=1).resolve((1,))


def train_fit(fit: Fit) -> list[Row]:
    """Scores of each fold of a repeat."""
    labels = fit.bags.require_labels()
    every, seed = np.arange(len(labels)), member_seed(fit.repeat, fit.member)
    trials = [Trial(np.setdiff1d(every, test), test, seed=seed) for test in fold_tests(labels, fit.repeat)]
    if fit.config is None:
        scores = [BagStatisticsTrees().score(fit.bags, trial) for trial in trials]
    else:
        scores = [result.scores[0] for result in train_trials(fit.config, fit.bags, trials)]
    return [{"scores": [[float(x) for x in own] for own in scores]}]


def fold_tests(labels: NDArray[np.int64], repeat: int) -> list[NDArray[np.int64]]:
    """Test bags of each of the stratified folds of a repeat, which is the seed."""
    folds = stratified_folds(labels, folds=FOLDS, seed=repeat)
    return [np.flatnonzero(folds == k) for k in range(FOLDS)]


class Areas:
    """AUROCs from the scores that were kept."""

    def __init__(self, store: Store, *, epochs: int | None) -> None:
        self._store = store
        self._epochs = epochs

    def of(
        self, data: str, bags: Bags, candidate: str, *, repeats: range, members: int = 1, judged: bool = False
    ) -> NDArray[np.float64]:
        """AUROC of each fold of the repeats, of the mean score of so many members."""
        config = config_of(candidate, epochs=self._epochs, judged=judged)
        labels = bags.require_labels()
        areas = []
        for repeat in repeats:
            names = [Fit(data, bags, config, repeat, member).group().names[0] for member in range(members)]
            scores = [row["scores"] for row in self._store.find(names) if row is not None]
            for fold, test in enumerate(fold_tests(labels, repeat)):
                areas.append(auroc(labels[test], np.mean([of[fold] for of in scores], axis=0)))
        return np.array(areas)
