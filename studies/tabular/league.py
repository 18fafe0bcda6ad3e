"""`python -m studies league`: `midam fit` against other libraries, on the same folds of real sets of many kinds.

**Question.** Does the default command rank new bags as well as the best that other libraries offer?

**Rule of decision**, fixed before the first training. The goal is met if `auto` minus the library with the highest mean
AUROC over the kinds is at least -0.005 in the mean over the kinds, and if `auto` is behind no library on any set by
more than 0.02 with p < 0.05 after Holm's correction over all sets and libraries.

**Trials.** The sets of `studies.sets.league`. Five stratified folds of each, seed 0; nothing is tuned. Each library has
the settings of its own documentation, and chooses among its methods by the mean AUROC of the five inner folds of the
training bags, as `auto` does. `--splits K` runs the first K of the five
folds, for a look with less to judge by; the rule stays.

- midam: `auto`. Its prior weights are the mean weights of its methods on the other kinds.
- scikit-learn: extra trees and logistic regression on mean, deviation, minimum and maximum of each feature over the
  bag; histogram boosting and a support vector machine, C by inner folds, on mean, deviation and seven quantiles.
- mikit-learn: its networks with mean and with attention. torchmil: ABMIL. LibAUC: MIDAM with attention and with the
  smoothed maximum; since it trains for longer than all others, the better one is chosen by the test bags, which favors
  it.

The libraries and the receptors: `pip install --no-deps mikit-learn==1.0.6 lightning pytorch-lightning torchmetrics
tcrdist3==0.3`, `pip install torchmil`, and LibAUC as `studies.peers` says.
"""

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from midam.compare.plan import single_threaded
from midam.compare.summary import corrected_interval
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import VECTORS, make_candidate
from midam.methods.auto.search import mix
from midam.methods.inner_folds import inner_trials
from midam.methods.store import Row
from midam.train.side import Trial
from studies.differences import holm, over_sets, paired
from studies.engine import PACKED, Store, complete, trial_name, write_packed
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.peers import PEERS
from studies.registry import as_study
from studies.sets.league import KINDS, SEEN
from studies.split_statistics import mean_interval
from studies.tabular.candidates import METHODS
from studies.tabular.defaults_trials import LINEAR, TREES, nested_scores

NAME, OURS = "league", "midam (`auto`)"
BOOSTING, SVM = "boosting on quantiles", "SVM on quantiles"
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "scikit-learn": (TREES, LINEAR, BOOSTING, SVM),
    "mikit-learn": ("mikit-mean", "mikit-attention"),
    "torchmil": ("torchmil-abmil",),
    "LibAUC": ("libauc-midam-att", "libauc-midam-smx"),
}
# Their methods are trained on the outer folds alone.
UNCHOSEN = ("torchmil", "LibAUC")
_OUTER = tuple(method for library in UNCHOSEN for method in LIBRARIES[library])
EVERY = (*VECTORS, BOOSTING, SVM, *LIBRARIES["mikit-learn"], *_OUTER)
_FOLDS, _SEED = 5, 0
_RATIO = 1 / (_FOLDS - 1)  # of test bags to training bags
_GOAL, _BEHIND, _LEAST_PRIOR = -0.005, -0.02, 0.01

Scores = NDArray[np.float64]
Parts = Sequence[Scores]  # scores [M, n] of the inner folds, then of the test bags
Task = tuple[int, str, str]  # outer fold, set and method
Areas = Mapping[str, Mapping[str, Scores]]  # AUROC of each fold, by set and method or library


@dataclass(frozen=True, eq=False)
class Judged:
    """An outer fold of a set."""

    name: str  # of the set
    number: int
    labels: Sequence[NDArray[np.int64]]  # of the bags that each inner fold holds out, then of the test bags
    ours: Scores  # of the test bags, by `auto`
    areas: Mapping[str, float]  # AUROC of the test bags by method, and by library that chooses


@cache
def _bags(name: str) -> Bags:
    return next(sets[name] for sets in KINDS.values() if name in sets)()


def trials_of(bags: Bags, number: int) -> list[Trial]:
    """Return the inner folds of the training bags of an outer fold, and the outer fold itself."""
    folds = stratified_folds(bags.require_labels(), folds=_FOLDS, seed=_SEED)
    outer = Trial(np.flatnonzero(folds != number), np.flatnonzero(folds == number), _SEED)
    return [*inner_trials(bags, outer.train, seed=_SEED), outer]


def score_fold(task: Task) -> list[Row]:
    """Return the scores of a method for the bags that each trial holds out, and its CPU seconds."""
    number, name, method = task
    bags, started = _bags(name), time.process_time()
    trials = trials_of(bags, number)
    with warnings.catch_warnings(action="ignore"), single_threaded():
        if method in PEERS:
            peer, some = PEERS[method](), trials[-1:] if method in _OUTER else trials
            scores = [[peer.score(bags, trial).tolist()] for trial in some]
        elif method in METHODS:
            scores = [[expit(METHODS[method](bags, trial)).tolist()] for trial in trials]
        else:
            candidate = make_candidate(method, bags.instance_shape, len(trials[-1].train))
            (scores,) = nested_scores(candidate, bags, [trials])
    rounded = [[[round(value, 6) for value in own] for own in part] for part in scores]
    return [{"scores": rounded, "seconds": round(time.process_time() - started, 2)}]


@as_study("`midam fit` against other libraries on real sets of many kinds", takes=("splits",), store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    kinds = {"musk": ["musk1"], "digits": ["presence"]} if options.smaller else {k: [*own] for k, own in KINDS.items()}
    methods = (*VECTORS, BOOSTING, SVM) if options.smaller else EVERY
    names = [name for own in kinds.values() for name in own]
    for name in names:
        _bags(name)  # a missing file or package ends the study before its first training
    for method in (method for method in methods if method in PEERS):
        PEERS[method]()
    numbers = range(min(options.splits or _FOLDS, _FOLDS))
    tasks = [(fold, name, method) for fold in numbers for name in names for method in methods]
    groups = [Group([trial_name(NAME, set=name, fold=f, method=m)], [(f, name, m)]) for f, name, m in tasks]
    with Store(options.cache, NAME) as store:
        complete(groups, score_fold, store=store, options=options, section=NAME)
        rows = [row for group in groups for row in store.find(group.names) if row is not None]
        folds = judged(rows, kinds)
        lines = [
            {"set": f.name, "fold": f.number, "labels": [y.tolist() for y in f.labels], "auto": f.ours.tolist()}
            for f in folds
        ]
        bags = options.out / "trials" / f"{NAME}-bags{PACKED}"
        write_packed(bags, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
        write_page(
            options,
            NAME,
            title="The league: `midam fit` against other libraries",
            shows="Does the default command rank new bags as well as the best that other libraries offer?",
            seeds="0, of folds and methods",
            seconds=store.wall_time(),
            store=store,
            body=body(rows, folds, kinds),
            made=[f"- Labels of all bags, and the scores of `auto`: [trials/{bags.name}](trials/{bags.name})"],
        )


def judged(rows: Sequence[Row], kinds: Mapping[str, Sequence[str]]) -> list[Judged]:
    """Return the folds in the order of the kinds, each judged with a prior that its own kind has no part in."""
    scores: dict[tuple[str, int], dict[str, Parts]] = {}
    for row in rows:
        scores.setdefault((row["set"], row["fold"]), {})[row["method"]] = [np.array(part) for part in row["scores"]]
    weights = {key: _weights(key, own) for key, own in scores.items()}
    found = []
    for kind, names in kinds.items():
        prior = prior_without(kind, kinds, weights)
        found += [
            _judge(name, number, scores[name, number], prior)
            for name in names
            for number in range(_FOLDS)
            if (name, number) in scores
        ]
    return found


def areas_of(folds: Sequence[Judged]) -> Areas:
    """Return the AUROC of each fold by set and method or library; of libraries that did not choose, the better one."""
    areas: dict[str, dict[str, Scores]] = {}
    for name in dict.fromkeys(fold.name for fold in folds):
        own = [fold.areas for fold in folds if fold.name == name]
        areas[name] = {method: np.array([each[method] for each in own]) for method in own[0]}
        for library in UNCHOSEN:
            tried = [areas[name][method] for method in LIBRARIES[library] if method in areas[name]]
            if tried:
                areas[name][library] = max(tried, key=lambda each: float(each.mean()))
    return areas


def _judge(name: str, number: int, scores: Mapping[str, Parts], prior: Mapping[str, float]) -> Judged:
    """Mix the methods of `auto`, let each library choose, and return the AUROC of the test bags of a fold."""
    bags, trials = _bags(name), trials_of(_bags(name), number)
    labels = [bags.require_labels()[trial.score] for trial in trials]
    result = mix(bags, trials[:-1], _rows(scores), prior=prior)
    logits = [bounded_logit(torch.from_numpy(scores[method][-1])).numpy() for method in result.taken]
    ours = np.round(result.mixture.scores(logits), 6)
    areas = {OURS: auroc(labels[-1], ours)}
    areas |= {m: auroc(labels[-1], parts[-1].mean(axis=0)) for m, parts in scores.items()}
    for library, methods in LIBRARIES.items():
        tried = [method for method in methods if method in scores and library not in UNCHOSEN]
        inner = {m: np.mean([auroc(y, x.mean(axis=0)) for y, x in zip(labels[:-1], scores[m])]) for m in tried}
        if inner:
            areas[library] = areas[max(inner, key=lambda method: float(inner[method]))]
    return Judged(name, number, labels, ours, areas)


def _rows(scores: Mapping[str, Parts]) -> list[Row]:
    """Return the scores of the methods of `auto` for the inner folds, as its search has them."""
    return [
        {"method": m, "scores": [part.tolist() for part in scores[m][:-1]], "seconds": 0.0, "note": None}
        for m in VECTORS
    ]


def _weights(key: tuple[str, int], scores: Mapping[str, Parts]) -> dict[str, float]:
    """Return the weight of each method of `auto` in a fold, if only the inner folds decide."""
    bags = _bags(key[0])
    return {row.method: row.weight for row in mix(bags, trials_of(bags, key[1])[:-1], _rows(scores), prior={}).tried}


def prior_without(
    kind: str, kinds: Mapping[str, Sequence[str]], weights: Mapping[tuple[str, int], Mapping[str, float]]
) -> dict[str, float]:
    """Return the mean weights of the methods over the other kinds, each at least 0.01."""
    of_kind = [
        [own for (name, _), own in weights.items() if name in names] for other, names in kinds.items() if other != kind
    ]
    return {
        method: max(_LEAST_PRIOR, float(np.mean([np.mean([own[method] for own in each]) for each in of_kind])))
        for method in VECTORS
    }


def body(rows: Sequence[Row], folds: Sequence[Judged], kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sections of the page."""
    areas, count = areas_of(folds), len({fold.number for fold in folds})
    first = next(iter(areas.values()))
    libraries = [library for library in LIBRARIES if library in first]
    means = {name: {method: float(own.mean()) for method, own in found.items()} for name, found in areas.items()}
    of_kind = {
        method: np.array([np.mean([means[name][method] for name in names]) for names in kinds.values()])
        for method in (OURS, *libraries)
    }
    lines = [
        [kind, name, *(_cell(means[name], library, (OURS, *libraries)) for library in (OURS, *libraries))]
        for kind, names in kinds.items()
        for name in names
    ]
    lines.append(["mean of the kinds", "", *(f"{of_kind[library].mean():.3f}" for library in (OURS, *libraries))])
    methods = [method for method in EVERY if method in first]
    alone = [[name, *(f"{means[name][method]:.3f}" for method in methods)] for name in means]
    seconds = {(name, method): 0.0 for name in means for method in methods}
    for row in rows:
        seconds[row["set"], row["method"]] += row["seconds"]
    middle = [f"{np.median([seconds[name, method] for name in means]):.1f}" for method in methods]
    alone.append(["CPU seconds, median of the sets", *middle])
    return [
        *section(
            "Libraries",
            f"Test AUROC, mean over {count} of {_FOLDS} folds of at most 200 bags; the highest of a row is bold. Each "
            "library chooses among its methods inside the training bags, except that the better method of LibAUC is "
            "chosen by the test bags. [The rule and the sets](../studies/tabular/league.py) are older than the "
            "trainings.",
            table(["kind", "set", OURS, *libraries], lines),
        ),
        *_decided(areas, kinds, of_kind, libraries),
        *section(
            "Methods",
            "Test AUROC of each method alone; the first five are those of `auto`. CPU seconds of all trainings of a "
            "set, six a fold, of torchmil and LibAUC one.",
            table(["set", *methods], alone),
        ),
    ]


def _cell(means: Mapping[str, float], library: str, libraries: Sequence[str]) -> str:
    best = round(max(means[each] for each in libraries), 3)
    text = f"{means[library]:.3f}"
    return f"**{text}**" if round(means[library], 3) == best else text


def _decided(
    areas: Areas, kinds: Mapping[str, Sequence[str]], of_kind: Mapping[str, Scores], libraries: Sequence[str]
) -> list[str]:
    """Return the differences to each library, over kinds and sets, and what the rule says."""
    gaps = {library: {name: own[OURS] - own[library] for name, own in areas.items()} for library in libraries}
    new = np.array([kind not in SEEN for kind in kinds])
    rows = []
    for library in libraries:
        of = of_kind[OURS] - of_kind[library]
        ahead = sum(gap.mean() > 0 for gap in gaps[library].values())
        line = [
            library,
            f"{mean_interval(of.tolist(), bounds=(-1.0, 1.0)):+}",
            str(over_sets([*gaps[library].values()], ratio=_RATIO)),
        ]
        unseen = f"{mean_interval(of[new].tolist(), bounds=(-1.0, 1.0)):+}" if new.sum() > 1 else "-"
        rows.append([*line, unseen, f"{ahead} of {len(gaps[library])}"])
    cells = [(library, name) for library in libraries for name in areas]
    intervals = [corrected_interval(gaps[library][name], ratio=_RATIO) for library, name in cells]
    p = holm([(one.mean, one.low, one.high) for one in intervals], freedom=intervals[0].trials - 1)
    behind = [
        f"{library} on {name} ({paired(gaps[library][name], ratio=_RATIO)}, p = {value:.3f})"
        for (library, name), value in zip(cells, p)
        if gaps[library][name].mean() < _BEHIND and value < 0.05
    ]
    worst = sorted(cells, key=lambda cell: float(gaps[cell[0]][cell[1]].mean()))[:5]
    best = max(libraries, key=lambda library: float(of_kind[library].mean()))
    gap = float((of_kind[OURS] - of_kind[best]).mean())
    return section(
        "`auto` minus each library",
        "Mean over the kinds with the interval over kinds (t); over the sets, with the Nadeau-Bengio corrected "
        "interval, which takes the sets for independent; over the kinds on which no default of midam was chosen; and "
        "the sets on which `auto` is ahead.",
        table(["library", "over the kinds", "over the sets", "over new kinds", "ahead on"], rows),
        f"- The best other library in the mean over the kinds is {best}: `auto` minus it is {gap:+.3f} (wanted: "
        f"{_GOAL:+.3f} or more), {'met' if gap >= _GOAL else 'not met'}.\n"
        f"- Behind by more than {-_BEHIND} with p < 0.05 after Holm's correction over {len(cells)} cells: "
        f"{'; '.join(behind) or 'nowhere'}.\n"
        "- The five cells that are farthest behind: "
        + "; ".join(f"{library} on {name} {paired(gaps[library][name], ratio=_RATIO)}" for library, name in worst)
        + ".",
    )
