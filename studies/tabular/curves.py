"""Curves along the epochs: AUROC of training, validation and test bags, an arm for each method and instance number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.methods.store import Row
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.engine import Store, complete, settings_hash, trial_name
from studies.options import StudyOptions
from studies.protocol import EPOCHS, LRS, MARGIN, drop_margin, paper_config, part_aurocs
from studies.splits import Split, paper_splits

_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Arm:
    """A curve: a method, and the number of instances B that it draws from a bag; B has no effect with whole bags."""

    method: str
    instances: int = 4


@dataclass(frozen=True)
class CurvePlan:
    """Trainings of the study: each arm on each split (its first fold) with each learning rate."""

    arms: tuple[Arm, ...]  # Curves
    lrs: tuple[float, ...]  # Learning rates to choose from
    margin: float  # c of the AUC objectives
    # Splits 0 .. splits - 1, epochs of a training
    splits: int
    epochs: int

    def config(self, arm: Arm, lr: float) -> Settings:
        """Return the settings of a training."""
        return paper_config(arm.method, lr=lr, margin=self.margin, epochs=self.epochs, num_instances=arm.instances)


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of an arm with the learning rate that validation bags chose."""

    lr: float  # The rate
    # AUROC of whole bags after each epoch; NaN after a divergence [splits, epochs]
    train: NDArray[np.float64]
    val: NDArray[np.float64]
    test: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Training:
    config: Settings
    bags: Bags
    splits: Sequence[Split]


Found = dict[tuple[str, str, str], Curves]
"""Curves by set, pooling and name of the arm."""


def curve_plan(options: StudyOptions, arms: Sequence[Arm]) -> CurvePlan:
    """Return the plan in the size of the options."""
    margin = MARGIN if options.margin is None else options.margin
    if options.smaller:
        return CurvePlan(tuple(arms), LRS[:1], margin, splits=2, epochs=3)
    return CurvePlan(tuple(arms), LRS, margin, splits=3 if options.quick else 10, epochs=EPOCHS)


def run_curves(
    plan: CurvePlan,
    compared: Mapping[str, Mapping[str, Arm]],
    sets: Mapping[str, Bags],
    *,
    store: Store,
    options: StudyOptions,
    section: str,
) -> Found:
    """Compute the missing curves of a plan, and return all its curves; studies share their trials.

    `compared` has the arms by pooling and name; the arms of a pooling have one learning rate, see `find_curves`.
    """
    groups = [
        Group(_names(plan, arm, lr, name, bags), [_Training(plan.config(arm, lr), bags, _splits(plan, bags))])
        for name, bags in sets.items()
        for arm in plan.arms
        for lr in plan.lrs
    ]
    groups.sort(key=lambda group: -group.tasks[0].bags.num_instances)
    complete(groups, _train, store=store, options=options, section=section)
    found: Found = {}
    for name, bags in sets.items():
        for pooling, arms in compared.items():
            curves = find_curves(plan, list(arms.values()), name, bags, store=store)
            found |= {(name, pooling, text): own for text, own in zip(arms, curves)}
    return found


def find_curves(plan: CurvePlan, arms: Sequence[Arm], name: str, bags: Bags, *, store: Store) -> list[Curves]:
    """Return the curves of compared arms with one learning rate, so that the rate is not a difference between them.

    It is the rate with the highest validation AUROC of the last epoch, mean over arms and splits. At a tie, it is the
    first rate of the plan; a rate with a diverged training is last.
    """
    found = [[_find(plan, arm, lr, name, bags, store=store) for arm in arms] for lr in plan.lrs]
    means = [float(np.mean([curves.val[:, -1].mean() for curves in at_rate])) for at_rate in found]
    return found[int(np.argmax([mean if np.isfinite(mean) else -1.0 for mean in means]))]


def bands(values: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
    """Return for each epoch the mean, and mean -+ one standard deviation over splits; for a single split without width.

    Examples
    --------
    >>> [band.tolist() for band in bands(np.array([[0.5, 0.8], [0.7, 0.8]]))][0]
    [0.6, 0.8]
    """
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return mean, mean - spread, mean + spread


def _find(plan: CurvePlan, arm: Arm, lr: float, name: str, bags: Bags, *, store: Store) -> Curves:
    rows = [row for row in store.find(_names(plan, arm, lr, name, bags)) if row is not None]
    return Curves(lr, *[np.array([row[part] for row in rows], dtype=np.float64) for part in _PARTS])


def _splits(plan: CurvePlan, bags: Bags) -> list[Split]:
    return paper_splits(bags.require_labels(), splits=range(plan.splits), folds=1)


def _names(plan: CurvePlan, arm: Arm, lr: float, name: str, bags: Bags) -> list[Row]:
    config = plan.config(arm, lr)
    named = trial_name(
        "curves",
        set=name,
        method=f"{config.method.pooling} x {config.method.estimator} x {config.method.objective}",
        instances=config.training.num_instances,
        lr=lr,
        margin=drop_margin(config),
        settings=settings_hash(config, bags=bags),
    )
    return [{**named, "split": split} for split in range(plan.splits)]


def _train(training: _Training) -> list[Row]:
    labels = training.bags.require_labels()
    parts = [(split.train, split.val, split.test) for split in training.splits]
    trials = [Trial(s.train, np.concatenate(own), s.split) for s, own in zip(training.splits, parts)]
    every = range(1, training.config.training.epochs + 1)
    results = train_trials(training.config, training.bags, trials, after=every)
    rows = []
    for own, result in zip(parts, results):
        areas = zip(_PARTS, part_aurocs(labels, own, result.scores))
        curves = {part: [round(float(v), 5) if np.isfinite(v) else None for v in values] for part, values in areas}
        rows.append({"seconds": result.seconds, **curves})
    return rows
