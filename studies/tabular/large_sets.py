"""The study `large-sets`: how long `midam` trains, when it stops, and how far trees grow, on more than 500 bags.

Question: on small sets 100 epochs are a few hundred steps, on large ones thousands, and the network learns the training
bags by heart, as trees do that grow until each leaf is pure. Which limit on the training keeps the AUROC of new bags,
and brings that of the training bags near it?
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.data.statistics import bag_statistics
from midam.evaluate.ranking import auroc
from midam.methods.store import Row
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.engine import Store, complete, trial_name
from studies.images.features import FEATURES, load_features
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.sets import catalog
from studies.synthetic import synthetic_sets

NAME = "large-sets"
_FOLDS, _EACH, _POINTS, _STEPS, _A_STEP, _MOST_GAP, _MOST_LOSS = 5, 30, 20, 1500, 16, 0.08, -0.005
TRAININGS: dict[str, dict[str, Any]] = {
    "100 epochs": {},
    "1500 steps": {"steps": _STEPS},
    "100 epochs, decay 0.01": {"weight_decay": 0.01},
    "1500 steps, decay 0.01": {"steps": _STEPS, "weight_decay": 0.01},
}
ENDS = ("last", "best")
LEAVES = (1, 2, 5, 10, 20, 50)
USUAL, TAKEN = ("100 epochs", "last"), ("100 epochs, decay 0.01", "best")
KINDS: Mapping[str, Sequence[str]] = {
    "intensive care": ("physionet2012_icu",),
    "volumes": ("adrenal",),
    "made up": ("witness", "shift", "pair", "sparse", "witness 3%", "shift 3%"),
}
Found = dict[tuple[str, str | int], list[Any]]
_FOLDS_RUN = {"physionet2012_icu": 5, "adrenal": 1}  # of 5; of the made-up sets 2
RULE = (
    "Written before the first run. Four lengths of a training, each with its last epoch or the one with the best "
    "validation AUROC: eight ways. A way is near if the AUROC of the training bags is at most 0.080 above that of the "
    "validation bags, as a mean over each kind. Of the near ways that lose at most 0.005 of test AUROC to the usual "
    "one (100 epochs, the last) on each kind, the one with the highest mean test AUROC over the kinds becomes the "
    "default above 500 training bags; if all lose more, nothing changes. If no way is near, the one with the smallest "
    "gap does, if it gains test AUROC over the kinds. The same choice without each kind is shown. When two sets had "
    "been seen, each of the first 30 epochs was looked at, for all trainings alike, no longer 20 points of each; the "
    "rule stayed."
)
TREE_RULE = (
    "Written before the first run of trees. Extremely randomized trees, 500, on the mean, minimum, maximum and "
    "deviation of each feature, as `auto` has them; a leaf holds at least so many training bags (now 1). Of the sizes "
    "whose gap is at most 0.080 on each kind and that lose at most 0.005 of test AUROC to size 1 on each kind, the one "
    "with the highest mean test AUROC over the kinds becomes the default of `auto` above 500 training bags; if there "
    "is none, nothing changes."
)


@dataclass(frozen=True, eq=False)
class Fit:
    """One training: a fold of a set, and the length of the training, or the least number of bags in a leaf of trees."""

    data: str
    bags: Bags
    fold: int
    training: str | int
    epochs: int | None

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        named = {"set": self.data, "fold": self.fold, "training": self.training}
        return Group([trial_name(NAME, **named, epochs=self.epochs)], [self])

    def parts(self) -> dict[str, NDArray[np.bool_]]:
        """Return which bags [N] are test, validation and training bags."""
        number = stratified_folds(self.bags.require_labels(), folds=_FOLDS, seed=0)
        test, validation = number == self.fold, number == (self.fold + 1) % _FOLDS
        return {"test": test, "validation": validation, "train": ~(test | validation)}


@as_study("length of the training on sets of more than 500 bags", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    sets = {"physionet2012_icu": catalog.load("physionet2012_icu")}
    sets["adrenal"] = load_features("adrenal", FEATURES, cache=options.cache).bags
    sets |= synthetic_sets(bags=1000)
    rare = synthetic_sets(bags=2000, every=33)
    study(options, sets | {f"{name} 3%": rare[name] for name in ("witness", "shift")})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these sets."""
    epochs = 2 if options.smaller else None
    trainings: list[str | int] = [*TRAININGS, *LEAVES]
    fits = [
        Fit(data, bags, fold, training, epochs)
        for data, bags in sets.items()
        for fold in range(1 if options.smaller else _FOLDS_RUN.get(data, 2))
        for training in trainings
    ]
    with Store(options.cache, NAME) as store:
        complete([fit.group() for fit in fits], train_fit, store=store, options=options, section=NAME)
        rows = store.find([fit.group().names[0] for fit in fits])
        found: Found = {(fit.data, fit.training): [] for fit in fits}
        for fit, row in zip(fits, rows, strict=True):
            found[fit.data, fit.training].append(row)
        write_page(
            options,
            NAME,
            title="Large sets: when to stop",
            shows="`midam`, one scorer, on sets of more than 500 bags. Of five folds, one is test and one validation, "
            "as in `midam fit`; the other three are trained on. Colon, whose vectors every method ranks at 0.999, was "
            "left out.",
            seeds="0 for the folds, the fold for weights and sampling",
            seconds=store.wall_time(),
            store=store,
            body=[*body(found), *tree_body(found)],
        )


def train_fit(fit: Fit) -> list[Row]:
    """Return the AUROC of training, validation and test bags after each of the first 30 epochs and each twentieth."""
    if isinstance(fit.training, int):
        return fit_trees(fit, leaf=fit.training)
    labels, every, parts = fit.bags.require_labels(), np.arange(len(fit.bags)), fit.parts()
    values = dict(TRAININGS[fit.training])
    if steps := values.pop("steps", None):
        values["epochs"] = min(Settings().training.epochs, max(1, round(steps * _A_STEP / parts["train"].sum())))
    if fit.epochs is not None:
        values["epochs"] = fit.epochs
    config = Settings(**values, members=1, accelerator="cpu", threads=1).resolve(fit.bags.instance_shape)
    epochs = config.training.epochs
    after = np.union1d(np.arange(1, min(_EACH, epochs) + 1), np.linspace(1, epochs, _POINTS).round().astype(int))
    (result,) = train_trials(config, fit.bags, [Trial(every[parts["train"]], every, fit.fold)], after=after.tolist())
    areas = {name: [round(auroc(labels[mask], row[mask]), 5) for row in result.scores] for name, mask in parts.items()}
    return [{"after": after.tolist(), **areas, "seconds": round(result.seconds, 1)}]


def fit_trees(fit: Fit, *, leaf: int) -> list[Row]:
    """Return the AUROC of training, validation and test bags by trees with at least `leaf` training bags in a leaf."""
    labels, parts, started = fit.bags.require_labels(), fit.parts(), time.perf_counter()
    rows = bag_statistics(fit.bags, np.arange(len(fit.bags)))
    forest = ExtraTreesClassifier(500 if fit.epochs is None else 10, min_samples_leaf=leaf, random_state=fit.fold)
    scores = forest.fit(rows[parts["train"]], labels[parts["train"]]).predict_proba(rows)[:, 1]
    areas = {name: [round(auroc(labels[mask], scores[mask]), 5)] for name, mask in parts.items()}
    return [{"after": [1], **areas, "seconds": round(time.perf_counter() - started, 1)}]


def _kinds(found: Found) -> dict[str, list[str]]:
    return {kind: own for kind, names in KINDS.items() if (own := [n for n in names if (n, USUAL[0]) in found])}


def tree_body(found: Found) -> list[str]:
    """Return the table of trees and the choice."""
    kinds = _kinds(found)
    points = {(data, leaf): _ends(found[data, leaf], "last") for data, leaf in found if isinstance(leaf, int)}
    by_kind = {
        (kind, leaf): np.mean([points[data, leaf].mean(axis=0) for data in names], axis=0)
        for kind, names in kinds.items()
        for leaf in LEAVES
    }
    mean = {leaf: float(np.mean([by_kind[kind, leaf][1] for kind in kinds])) for leaf in LEAVES}
    rows = [[str(leaf), *(_pair(by_kind[kind, leaf]) for kind in kinds), f"{mean[leaf]:.3f}"] for leaf in LEAVES]
    each = [
        [data, *(_pair(points[data, leaf].mean(axis=0)) for leaf in LEAVES)] for own in kinds.values() for data in own
    ]
    kept = [leaf for leaf in LEAVES if all(by_kind[kind, leaf][0] <= _MOST_GAP for kind in kinds)]
    kept = [leaf for leaf in kept if all(by_kind[k, leaf][1] - by_kind[k, 1][1] >= _MOST_LOSS for k in kinds)]
    chosen = max(kept, key=mean.__getitem__, default=1)
    return section(
        "Trees",
        TREE_RULE,
        table(["least bags of a leaf", *kinds, "mean"], rows),
        f"By the rule: **{chosen}**.",
        table(["set", *map(str, LEAVES)], each),
    )


def _pair(point: NDArray[np.float64]) -> str:
    return f"{point[1]:.3f} ({point[0]:+.3f})"


def body(found: Found) -> list[str]:
    """Return the tables and the choice."""
    ways = [(training, end) for training in TRAININGS for end in ENDS]
    kinds = _kinds(found)
    points = {
        (data, way): _ends(found[data, way[0]], way[1]) for names in kinds.values() for data in names for way in ways
    }
    by_kind = {
        (kind, way): np.mean([points[data, way].mean(axis=0) for data in names], axis=0)
        for kind, names in kinds.items()
        for way in ways
    }
    rows = [
        [
            ", ".join(way),
            *(_pair(by_kind[kind, way]) for kind in kinds),
            f"{np.mean([by_kind[kind, way][1] for kind in kinds]):.3f}",
        ]
        for way in ways
    ]
    each = [
        [data, *(_pair(points[data, way].mean(axis=0)) for way in ways)] for names in kinds.values() for data in names
    ]
    chosen = choose(by_kind, list(kinds), ways)
    mean = {way: float(np.mean([by_kind[kind, way][1] for kind in kinds])) for way in ways}
    without = [f"{kind}: {', '.join(choose(by_kind, [k for k in kinds if k != kind], ways))}" for kind in kinds]
    return section(
        "By kind",
        RULE,
        "Test AUROC, and in brackets the AUROC of the training bags minus that of the validation bags.",
        table(["training, epoch", *kinds, "mean"], rows),
        f"By the rule: **{', '.join(chosen)}**. Without a kind: {'; '.join(without)}.",
        f"Taken: {', '.join(TAKEN)}, so that `epochs` has one default; its mean is {mean[TAKEN] - mean[chosen]:+.4f} "
        "from that of the rule's choice.",
        "Each set:",
        table(["set", *(", ".join(way) for way in ways)], each),
    )


def choose(
    by_kind: Mapping[tuple[str, tuple[str, str]], NDArray[np.float64]],
    kinds: Sequence[str],
    ways: Sequence[tuple[str, str]],
) -> tuple[str, str]:
    """Return the way that the rule takes by these kinds.

    Examples
    --------
    >>> usual, other = USUAL, ("1500 steps", "best")
    >>> found = {("one", usual): np.array([0.2, 0.8]), ("one", other): np.array([0.05, 0.79])}
    >>> choose(found, ["one"], [usual, other])
    ('100 epochs', 'last')
    >>> choose({**found, ("one", other): np.array([0.1, 0.81])}, ["one"], [usual, other])
    ('1500 steps', 'best')
    """
    mean = {way: float(np.mean([by_kind[kind, way][1] for kind in kinds])) for way in ways}
    gap = {way: float(np.mean([by_kind[kind, way][0] for kind in kinds])) for way in ways}
    near = [way for way in ways if all(by_kind[kind, way][0] <= _MOST_GAP for kind in kinds)]
    if not near:
        nearest = min(ways, key=gap.__getitem__)
        return nearest if mean[nearest] > mean[USUAL] else USUAL
    kept = [way for way in near if all(by_kind[k, way][1] - by_kind[k, USUAL][1] >= _MOST_LOSS for k in kinds)]
    return max(kept, key=mean.__getitem__, default=USUAL)


def _ends(rows: Sequence[Any], end: str) -> NDArray[np.float64]:
    """Return the gap and the test AUROC of each fold [F, 2], at the last or at the best epoch."""
    at = [-1 if end == "last" else int(np.argmax(row["validation"])) for row in rows]
    return np.array([[row["train"][i] - row["validation"][i], row["test"][i]] for row, i in zip(rows, at, strict=True)])
