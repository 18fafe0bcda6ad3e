"""The study `defaults`: settings for small tabular bags, chosen without the set that they are judged on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.compare.baselines import extra_trees
from midam.compare.statistics import corrected_interval
from midam.data import catalog
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.paper.options import StudyOptions
from midam.paper.page import table, write_page
from midam.paper.store import Row, Store, settings_hash
from midam.paper.synthetic import synthetic_sets
from midam.paper.work import compute, wall_time
from midam.train.config import FitConfig, member_seed
from midam.train.lockstep import Trial, train_trials

NAME = "defaults"
TREES = "bag-statistics-extratrees"
SETS = ("musk1", "musk2", "elephant", "fox", "tiger")
MEMBERS = (1, 3)
_FINALISTS = 4
_REPEATS = 3
_FOLDS = 10
# Raised when the meaning of a setting changes, so that no row of before is taken for one of after.
_VERSION = 2
_BASE: dict[str, Any] = {
    **{"pooling": "attention", "estimator": "vrsp", "objective": "minmax-auc", "objective_weight": "paper"},
    **{"epochs": 100, "lr": 0.05, "weight_decay": 1e-4, "num_instances": 4, "state_rate": 0.5, "margin": 1.0},
    **{"hidden": [], "scaling": "linear", "clip": 10.0},
}
# What the study `regime` decides, and no candidate: a choice is judged as the library has it.
_DECIDED = {"state_rate": 0.9}

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
# The default pooling stays attention, which explains a bag; others are tried to show what it costs.
_OTHER_POOLINGS = tuple(name for name, values in CANDIDATES.items() if "pooling" in values)
# Tried after the choice was made. Either would take its place if it were ahead of it beyond doubt: an interval of the
# paired difference that excludes zero. That was fixed before the three repeats were run.
_LATER = tuple(name for name, values in CANDIDATES.items() if "average_from" in values)


@dataclass(frozen=True)
class _Group:
    """One candidate (or the trees) on all folds of a repeat of one set."""

    data: str
    bags: Bags
    candidate: str
    values: Mapping[str, Any] | None
    repeat: int
    member: int
    epochs: int | None
    key: str


def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    study(options, {name: catalog.load(name) for name in SETS}, synthetic_sets())


def study(options: StudyOptions, real: Mapping[str, Bags], synthetic: Mapping[str, Bags]) -> None:
    """Run the study on these sets: candidates on all of them, then each real set under the choice made without it."""
    store = Store(options.cache / f"{NAME}.jsonl")
    epochs = 2 if options.smaller else None
    few = [*list(CANDIDATES)[:3], _LATER[0]]
    candidates = {name: CANDIDATES[name] for name in few} if options.smaller else CANDIDATES
    everything = {**real, **synthetic}
    small = options.quick or options.smaller
    first = _try(candidates, everything, range(1), store=store, options=options, epochs=epochs)
    kept = {data: finalists(first, without=data, count=1 if small else _FINALISTS) for data in (*real, None)}
    later = [name for name in _LATER if name in candidates]
    final_names = list(dict.fromkeys([*(name for names in kept.values() for name in names), *later]))
    finals = {name: candidates[name] for name in final_names}
    repeats = range(1 if small else _REPEATS)
    second = _try(finals, everything, repeats, store=store, options=options, epochs=epochs)
    chosen = {
        data: finalists({name: second[name] for name in names}, without=data, count=1)[0]
        for data, names in kept.items()
    }
    judged = range(1 if small else 5)
    ours = [
        _Group(data, bags, name, settings_of(name, judged=True), repeat, member, epochs, "")
        for data, bags in real.items()
        for name in dict.fromkeys((chosen[data], chosen[None]))
        for repeat in judged
        for member in range(max(MEMBERS))
    ]
    trees = [_Group(data, bags, TREES, None, repeat, 0, None, "") for data, bags in real.items() for repeat in judged]
    _complete([*ours, *trees], store, options, section="judged")
    areas = _Areas(store, epochs=epochs)
    write_page(
        options,
        NAME,
        title="The defaults, chosen without the set they are judged on",
        shows="What a user gets who tunes nothing. Each candidate is trained on all sets; for each real set the "
        "candidate with the highest mean AUROC on the *other* sets, synthetic ones included, is judged on it. The list "
        "of candidates itself grew while results on all sets were seen: the scalings and clips were thought of then. "
        f"The candidates were tried at gamma0 = {_BASE['state_rate']:g}; what was chosen is judged at "
        f"{_DECIDED['state_rate']:g}, which the [map of estimators](regime.md) decides. 'Averaged' reports "
        "the mean of the weights after each epoch of the second half.",
        seeds=f"0 to {repeats[-1]} for the choice, 0 to {judged[-1]} for the judgement: folds, weights and sampling",
        seconds=wall_time(store),
        store=store,
        body=[
            *_judged(areas, real, chosen, repeats=judged),
            *_tried(list(real), first, second, repeats),
            *_averaged(areas, everything, chosen[None], later, repeats),
        ],
    )


def settings_of(candidate: str, *, judged: bool = False) -> dict[str, Any]:
    """Return the settings of a candidate, as it is tried or as it is judged.

    Examples
    --------
    >>> [settings_of("linear", judged=judged)["state_rate"] for judged in (False, True)]
    [0.5, 0.9]
    """
    return {**_BASE, **CANDIDATES[candidate], **(_DECIDED if judged else {})}


def finalists(found: Mapping[str, Mapping[str, float]], *, without: str | None, count: int) -> list[str]:
    """Return the attention candidates with the highest mean AUROC over the sets but one, the best first.

    Parameters
    ----------
    found : mapping
        AUROC by candidate and set.
    without : str or None
        The set that has no say.
    count : int
        How many.

    Examples
    --------
    >>> finalists({"a": {"x": 0.9, "y": 0.5}, "b": {"x": 0.5, "y": 0.8}}, without="y", count=1)
    ['a']
    """
    means = {
        name: np.mean([value for data, value in of.items() if data != without])
        for name, of in found.items()
        if name not in (*_OTHER_POOLINGS, *_LATER)
    }
    return sorted(means, key=lambda name: -means[name])[:count]


def _try(
    candidates: Mapping[str, Mapping[str, Any]],
    sets: Mapping[str, Bags],
    repeats: range,
    *,
    store: Store,
    options: StudyOptions,
    epochs: int | None,
) -> dict[str, dict[str, float]]:
    """Mean AUROC over the folds of the repeats, one member, by candidate and set."""
    groups = [
        _Group(data, bags, name, settings_of(name), repeat, 0, epochs, "")
        for name in candidates
        for data, bags in sets.items()
        for repeat in repeats
    ]
    _complete(groups, store, options, section="candidates")
    areas = _Areas(store, epochs=epochs)
    return {
        name: {data: float(areas.of(data, bags, name, repeats=repeats).mean()) for data, bags in sets.items()}
        for name in candidates
    }


def _complete(groups: list[_Group], store: Store, options: StudyOptions, *, section: str) -> None:
    done = {row["key"] for row in store.rows if "key" in row}
    keyed = [_Group(**{**vars(group), "key": _key(group)}) for group in groups]
    missing = [group for group in keyed if group.key not in done]
    compute(missing, _run, store=store, options=options, section=section, sizes=[_FOLDS] * len(missing))


def _key(group: _Group) -> str:
    config = None if group.values is None else _config(group)
    settings = (
        TREES if config is None else f"{settings_hash(config)} lr {config.primal()[1]:g} margin {config.margin:g}"
    )
    trial = f"repeat {group.repeat} member {group.member}"
    return f"v{_VERSION} {group.data} {group.bags.num_instances} | {settings} | {trial}"


def _config(group: _Group) -> FitConfig:
    values = {**(group.values or {}), **({} if group.epochs is None else {"epochs": group.epochs})}
    return FitConfig(**values, members=1).for_instances((1,))


def _run(group: _Group) -> list[Row]:
    labels = group.bags.require_labels()
    tests = fold_tests(labels, group.repeat)
    every = np.arange(len(labels))
    trials = [Trial(np.setdiff1d(every, test), test, seed=member_seed(group.repeat, group.member)) for test in tests]
    if group.values is None:
        scores = [extra_trees(group.bags, trial) for trial in trials]
    else:
        scores = [result.scores[0] for result in train_trials(_config(group), group.bags, trials)]
    return [{"key": group.key, "scores": [[float(x) for x in s] for s in scores]}]


def fold_tests(labels: NDArray[np.int64], repeat: int) -> list[NDArray[np.int64]]:
    """Test bags of each of the stratified folds of a repeat, which is the seed."""
    folds = stratified_folds(labels, folds=_FOLDS, seed=repeat)
    return [np.flatnonzero(folds == k) for k in range(_FOLDS)]


class _Areas:
    """AUROCs from the scores that were kept."""

    def __init__(self, store: Store, *, epochs: int | None) -> None:
        self._rows = {row["key"]: row["scores"] for row in store.rows if "key" in row}
        self._epochs = epochs

    def of(
        self, data: str, bags: Bags, candidate: str, *, repeats: range, members: int = 1, judged: bool = False
    ) -> NDArray[np.float64]:
        """AUROC of each fold of the repeats, of the mean score of so many members."""
        values = None if candidate == TREES else settings_of(candidate, judged=judged)
        labels = bags.require_labels()
        areas = []
        for repeat in repeats:
            groups = [
                _Group(data, bags, candidate, values, repeat, member, self._epochs, "") for member in range(members)
            ]
            scores = [self._rows[_key(group)] for group in groups]
            for fold, test in enumerate(fold_tests(labels, repeat)):
                areas.append(auroc(labels[test], np.mean([of[fold] for of in scores], axis=0)))
        return np.array(areas)


def _judged(areas: _Areas, real: Mapping[str, Bags], chosen: Mapping[str | None, str], *, repeats: range) -> list[str]:
    rows, totals, gaps = [], [], []
    for data, bags in real.items():
        ours = [areas.of(data, bags, chosen[data], repeats=repeats, members=count, judged=True) for count in MEMBERS]
        trees = areas.of(data, bags, TREES, repeats=repeats)
        gaps.append(ours[-1] - trees)
        difference = _interval(gaps[-1])
        default = areas.of(data, bags, chosen[None], repeats=repeats, members=MEMBERS[-1], judged=True)
        totals.append([*(float(o.mean()) for o in ours), float(trees.mean()), float(default.mean())])
        *means, of_default = (f"{mean:.3f}" for mean in totals[-1])
        rows.append([data, chosen[data], *means, difference, of_default])
    mean = np.mean(totals, axis=0)
    *means, of_default = (f"{value:.3f}" for value in mean)
    reached, trees_mean = mean[len(MEMBERS) - 1], mean[len(MEMBERS)]
    rows.append(["mean", "", *means, _interval(np.mean(gaps, axis=0)), of_default])
    head = ["set", "chosen without it", *(f"{m} member{'s' if m > 1 else ''}" for m in MEMBERS), "ExtraTrees"]
    within = "is" if reached >= trees_mean - 0.01 else "is not"
    return [
        "## Each set under the choice made without it",
        "",
        f"Stratified {_FOLDS}-fold, {len(repeats)} repeat{'s' if len(repeats) > 1 else ''}. ExtraTrees: 500 trees on "
        "the mean, minimum, maximum and deviation of each feature over the bag, the same folds. The difference is of "
        "the largest number of members, with the Nadeau-Bengio corrected 95% interval; that of the mean pairs the "
        "folds of the sets, which are independent. The last column is the choice made with all sets, with as many "
        "members.",
        "",
        *table([*head, "difference", "default"], rows),
        "",
        f"The mean over the sets {within} within 0.01 of ExtraTrees: {reached:.3f} against {trees_mean:.3f}.",
        "",
        f"Chosen with all sets: **{chosen[None]}**.",
        "",
    ]


def _interval(difference: NDArray[np.float64]) -> str:
    gap = corrected_interval(difference, ratio=1 / (_FOLDS - 1))
    return f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"


def _tried(
    real: Sequence[str],
    first: Mapping[str, Mapping[str, float]],
    second: Mapping[str, Mapping[str, float]],
    repeats: range,
) -> list[str]:
    def lines(found: Mapping[str, Mapping[str, float]]) -> list[str]:
        rows = [
            [
                name,
                *(f"{value:.3f}" for value in of.values()),
                f"{np.mean([of[data] for data in real]):.4f}",
                f"{np.mean(list(of.values())):.4f}",
            ]
            for name, of in found.items()
        ]
        return table(["candidate", *next(iter(found.values())), "mean of the real sets", "mean of all"], rows)

    return [
        "## The candidates",
        "",
        "Mean AUROC over the folds of one repeat, one member. Other poolings than attention, and averaged "
        "weights, are shown, not chosen.",
        "",
        *lines(first),
        "",
        f"The best {_FINALISTS} of each choice, from which it was made, and averaged weights, over {len(repeats)} "
        f"repeat{'s' if len(repeats) > 1 else ''}:",
        "",
        *lines(second),
    ]


def _averaged(areas: _Areas, sets: Mapping[str, Bags], chosen: str, later: Sequence[str], repeats: range) -> list[str]:
    """What the mean of the weights adds to the choice."""
    rows = []
    for name in later:
        gaps = [
            areas.of(data, bags, name, repeats=repeats) - areas.of(data, bags, chosen, repeats=repeats)
            for data, bags in sets.items()
        ]
        rows.append([name, *(f"{gap.mean():+.3f}" for gap in gaps), _interval(np.mean(gaps, axis=0))])
    if not rows:
        return []
    return [
        "",
        f"Averaged weights minus '{chosen}', paired by fold, the mean with its corrected 95% interval. They were tried "
        "after the choice, and would have taken its place with an interval above zero:",
        "",
        *table(["candidate", *sets, "mean"], rows),
    ]
