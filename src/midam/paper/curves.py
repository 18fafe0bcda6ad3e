"""Curves along the epochs: AUROC of training, validation and test bags, one arm a method and number of instances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.paper.options import StudyOptions
from midam.paper.protocol import drop_margin, epoch_aurocs, paper_config
from midam.paper.sets import Split, paper_splits
from midam.paper.store import Row, Store, settings_hash
from midam.paper.work import compute
from midam.train.config import FitConfig
from midam.train.lockstep import Trial, train_trials

VERSION = 1
_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Arm:
    """A curve: a method, and the number of instances that it draws from a bag.

    Attributes
    ----------
    method : str
        A name of `midam.train.method_names`.
    instances : int
        B; without meaning where whole bags are used.
    """

    method: str
    instances: int = 4


@dataclass(frozen=True)
class CurvePlan:
    """What is run: each arm on each split (its first fold) with each learning rate.

    Attributes
    ----------
    arms : tuple of Arm
        Curves.
    lrs : tuple of float
        Learning rates to choose from.
    margin : float
        c of the AUC objectives.
    splits, epochs : int
        Splits 0 .. splits - 1, epochs of a training.
    """

    arms: tuple[Arm, ...]
    lrs: tuple[float, ...]
    margin: float
    splits: int
    epochs: int

    def config(self, arm: Arm, lr: float) -> FitConfig:
        """Return the settings of a training."""
        return paper_config(arm.method, lr=lr, margin=self.margin, epochs=self.epochs, num_instances=arm.instances)


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of an arm at the learning rate that validation bags chose.

    Attributes
    ----------
    lr : float
        The rate.
    train, val, test : float64 array [splits, epochs]
        AUROC of whole bags after each epoch; NaN after a divergence.
    """

    lr: float
    train: NDArray[np.float64]
    val: NDArray[np.float64]
    test: NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    name: str
    config: FitConfig
    bags: Bags
    splits: tuple[Split, ...]


def run_curves(plan: CurvePlan, sets: Mapping[str, Bags], *, store: Store, options: StudyOptions, section: str) -> None:
    """Compute the curves of a plan that the store does not hold; studies share them."""
    done = {(_key(row), row["split"]) for row in store.rows if row.get("study") == "curves"}
    groups = []
    for name, bags in sets.items():
        splits = paper_splits(bags.require_labels(), splits=range(plan.splits), folds=1)
        for arm in plan.arms:
            for lr in plan.lrs:
                config = plan.config(arm, lr)
                key = _key(_name(name, config, bags))
                missing = tuple(split for split in splits if (key, split.split) not in done)
                if missing:
                    groups.append(_Group(name, config, bags, missing))
    groups.sort(key=lambda group: -group.bags.num_instances)
    sizes = [len(group.splits) for group in groups]
    compute(groups, _train, store=store, options=options, section=section, sizes=sizes)


def find_curves(plan: CurvePlan, arms: Sequence[Arm], name: str, bags: Bags, *, store: Store) -> list[Curves]:
    """Return the curves of arms that are compared, at one learning rate, so that they do not differ by the rate.

    It is the one with the highest validation AUROC of the last epoch, mean over arms and splits. Equals go to the first
    rate of the plan; a rate at which a training diverged comes last.
    """
    found = [[_find(plan, arm, lr, name, bags, store=store) for arm in arms] for lr in plan.lrs]
    means = [float(np.mean([curves.val[:, -1].mean() for curves in at_rate])) for at_rate in found]
    return found[int(np.argmax([mean if np.isfinite(mean) else -1.0 for mean in means]))]


def _find(plan: CurvePlan, arm: Arm, lr: float, name: str, bags: Bags, *, store: Store) -> Curves:
    key = _key(_name(name, plan.config(arm, lr), bags))
    rows = [row for row in store.rows if row.get("study") == "curves" and _key(row) == key]
    rows = sorted((row for row in rows if row["split"] < plan.splits), key=lambda row: int(row["split"]))
    return Curves(lr, *[np.array([row[part] for row in rows], dtype=np.float64) for part in _PARTS])


def _train(group: _Group) -> list[Row]:
    labels = group.bags.require_labels()
    parts = [(split.train, split.val, split.test) for split in group.splits]
    trials = [Trial(s.train, np.concatenate(own), s.split) for s, own in zip(group.splits, parts)]
    named = _name(group.name, group.config, group.bags)
    rows = []
    for split, own, result in zip(
        group.splits, parts, train_trials(group.config, group.bags, trials, every_epoch=True)
    ):
        cuts = np.cumsum([len(part) for part in own])[:-1]
        row: Row = {**named, "split": split.split, "seed": split.split, "seconds": result.seconds}
        for part, positions, scores in zip(_PARTS, own, np.split(result.scores, cuts, axis=1)):
            values = epoch_aurocs(labels[positions], scores)
            row[part] = [round(float(v), 5) if np.isfinite(v) else None for v in values]
        rows.append(row)
    return rows


def _name(name: str, config: FitConfig, bags: Bags) -> Row:
    return {
        "study": "curves",
        "version": VERSION,
        "set": name,
        "method": f"{config.pooling} x {config.estimator} x {config.objective}",
        "instances": config.num_instances,
        "lr": config.lr,
        "margin": drop_margin(config),
        "settings": settings_hash(config, bags=bags),
    }


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(k) for k in ("version", "set", "method", "instances", "lr", "margin", "settings"))


def bands(values: NDArray[np.float64]) -> Sequence[NDArray[np.float64]]:
    """Return mean, and mean -+ one standard deviation over splits, of each epoch; a single split has no width.

    Examples
    --------
    >>> [band.tolist() for band in bands(np.array([[0.5, 0.8], [0.7, 0.8]]))][0]
    [0.6, 0.8]
    """
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    return mean, mean - spread, mean + spread
