"""The study `candidates`: methods that `auto` does not try, alone and among those that it tries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from midam.compare.plan import single_threaded
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from midam.evaluate.ranking import auroc
from midam.methods.auto.candidates import Candidate, limited
from midam.methods.auto.search import areas_of, best_epochs
from midam.methods.baselines import median_gamma
from midam.methods.inner_folds import inner_folds
from midam.methods.networks import EmbeddingNetworks
from midam.methods.statistics_models import fit_trees, trees_mean
from midam.methods.store import Row
from midam.settings import ResolvedSettings, Settings
from midam.train.side import Trial
from studies.differences import holm, over_sets, paired
from studies.engine import PACKED, Store, complete, take_published, trial_name
from studies.options import OUT, StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.sets import catalog
from studies.split_statistics import Estimate, mean_interval
from studies.tabular.defaults_page import Judged, judged_areas, prior_of
from studies.tabular.defaults_trials import (
    CHOSEN,
    DEFAULT,
    KINDS,
    SYNTHETIC,
    TREES,
    Areas,
    config_of,
    nested_fits,
    outer_folds,
    train_fit,
    trials_of,
)
from studies.tabular.encoders import GeluMLP
from studies.tabular.instance_methods import standardized_bags
from studies.tabular.prior_fitted import PriorFitted, load, predict

Numbers = NDArray[np.float64]
NAME, NETWORK, WEIGHTS = "candidates", "prior-fitted network", "prior-fitted.pt"
_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_ROWS, _MAP, _ROUNDS = 6000, 300, 5  # of mi-SVM: most instances, features of the kernel map, rounds
POOLED = "embedding networks"
ALL, _IN_PLACE, _MOST_LOST = "all but deep networks", ", for midam", 0.01
_HIGHEST = (0.0, 0.05, 1.0)  # shares of a bag whose mean score is the bag's: the highest instance, some, all
RULE = (
    "Written before the runs: a method is taken if `auto` with it, minus `auto`, has a mean over the six kinds of real "
    "sets with a 95% interval (t, over kinds) above 0, and p < 0.05 after Holm's correction over the methods. The "
    "rule of the network is older than the others and has no correction. The prior weights of `auto`, that of the "
    "method among them, come from the other real kinds. No real set chose anything of a method. When the network was "
    "fitted, and seen on one fold of three sets, its views were made smaller, so that it scores 100 bags in the time "
    "that `auto` may take."
)
NETWORK_RULE = (
    "The deep networks came later, after a first look at them on newsgroups1, musk1, musk2, colon_nuclei and made-up "
    "bags. Their rule, written before the runs: beside `midam` or in its place, the first of the four ways is taken "
    "that gains in the mean over the six kinds, gains in the mean over the other kinds whichever kind is left out, and "
    "loses more than 0.01 on no set. Embedding networks came last, when the rest of this page stood, after a look at "
    "five folds of musk1, fox and newsgroups1. Their rule, written before their runs: beside `midam` they must pass "
    "the same rule; if their mean gain over the kinds is then no smaller than that of the first of the four ways, they "
    "are taken in its place, because they cost less."
)


@dataclass(frozen=True, eq=False)
class Fit:
    """A method on trials: it sees the labels of `train`, and scores the other bags of each trial."""

    data: str
    fold: int
    method: str
    bags: Bags
    trials: list[Trial]
    weights: Path  # of the network
    views: int

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        views = {"views": self.views} if self.method == NETWORK else {}
        return Group([trial_name(NAME, set=self.data, fold=self.fold, method=self.method, **views)], [self])


@as_study("further methods for `auto`, alone and in it", takes=("device",), store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study, and write its page."""
    real = [name for kind, names in KINDS.items() if kind != SYNTHETIC for name in names]
    study(options, {name: catalog.load(name) for name in real})


def study(options: StudyOptions, sets: Mapping[str, Bags]) -> None:
    """Run the study on these real sets."""
    options.use_cuda()
    one = Fit("", 0, "", next(iter(sets.values())), [], options.cache / WEIGHTS, 2 if options.smaller else 4)
    fits = [
        replace(one, data=data, fold=number, method=method, bags=bags, trials=trials_of(bags, fold))
        for method in EVERY
        for data, bags in sets.items()
        for number, fold in enumerate(outer_folds(bags, 0))
    ]
    with Store(options.cache, NAME) as store:
        missing = store.missing([fit.group() for fit in fits])
        if not one.weights.is_file() and any(fit.method == NETWORK for group in missing for fit in group.tasks):
            raise DataNotFoundError(
                f"Expected the network, got no file {one.weights}; fit it (studies/tabular/prior_fitted.py says how), "
                f"or take its scores with --trials {OUT}/trials/{NAME}{PACKED}."
            )
        complete([fit.group() for fit in fits], score_fit, store=store, options=options, section=NAME)
        found = store.find([fit.group().names[0] for fit in fits])
        rows = {(fit.method, fit.data, fit.fold): row["scores"] for fit, row in zip(fits, found, strict=True) if row}
        write_page(
            options,
            NAME,
            title="Further methods for `auto`",
            shows="`auto` mixed the methods [that its page compares](defaults.md). Would another one help? Among them "
            "is a network of our own that is fitted once to made-up bags, and labels the bags of a new task in one "
            "pass, as the newest rival does ([ICMIL](icmil.md)).",
            seeds="0 for folds, methods, the views of the network and its fit (1 for the second round of it)",
            seconds=store.wall_time(),
            store=store,
            body=[*_judged(options, sets, rows), *_described()],
        )


def score_fit(fit: Fit) -> list[Row]:
    """Return the scores [1, n] in [0, 1] of the bags that each trial holds out."""
    with single_threaded():
        if fit.method == NETWORK:
            network = load(fit.weights)
            network.to("cuda" if torch.cuda.is_available() else "cpu")
            scores = [_network_scores(network, fit, trial) for trial in fit.trials]
        elif fit.method == POOLED:
            scores = list(EmbeddingNetworks().held_out(fit.bags, fit.trials))
        elif fit.method in NETWORKS:
            scores = _trained(fit)
        else:
            scores = [expit(METHODS[fit.method](fit.bags, trial)) for trial in fit.trials]
    return [{"scores": [[[round(float(value), 6) for value in own]] for own in scores]}]


def _network_of(bags: Bags, args: Mapping[str, Any]) -> ResolvedSettings:
    """Return the settings of midam with another network: three layers of GELU without a clip, and Adam."""
    encoder = {"in_features": int(np.prod(bags.instance_shape)), "hidden": [256, 128, 64]}
    name = f"{GeluMLP.__module__}.{GeluMLP.__name__}"
    values = {"encoder": name, "encoder_args": encoder, "clip": 1e6, "center_start": 0.5, "members": 1, **args}
    return Settings.from_flat({**values, "optimizer": "adam", "lr": 0.001}).resolve(bags.instance_shape)


def _trained(fit: Fit) -> list[Numbers]:
    """Return the scores of a network of midam after the number of epochs that the inner folds choose."""
    config = limited(_network_of(fit.bags, NETWORKS[fit.method]), len(fit.trials[-1].train))
    paths = list(Candidate(fit.method, config=config).paths(fit.bags, fit.trials))
    at = best_epochs(areas_of(fit.bags.require_labels(), fit.trials[:-1], paths[:-1]))
    return [own[at] for own in paths]


def _network_scores(network: PriorFitted, fit: Fit, trial: Trial) -> Numbers:
    labels = fit.bags.require_labels()[trial.train]
    return predict(
        network,
        torch.as_tensor(np.asarray(fit.bags.instances), dtype=torch.float32),
        torch.as_tensor(fit.bags.starts),
        torch.as_tensor(fit.bags.sizes),
        labels=torch.as_tensor(np.stack([trial.train, labels], axis=1)),
        test=torch.as_tensor(trial.score),
        seed=0,
        views=fit.views,
    ).numpy()


def _quantiles(bags: Bags, index: Sequence[int] | NDArray[np.int64]) -> Numbers:
    """Return mean, deviation and seven quantiles of each feature over the bag [n, 9 f]."""
    rows = [np.asarray(bags[i], dtype=np.float64) for i in index]
    return np.stack(
        [np.concatenate([x.mean(axis=0), x.std(axis=0), np.quantile(x, _QUANTILES, axis=0).ravel()]) for x in rows]
    )


def _quantile_trees(bags: Bags, trial: Trial) -> Numbers:
    trees = fit_trees(_quantiles(bags, trial.train), bags.require_labels()[trial.train], seed=trial.seed)
    return _log_odds(trees_mean(trees, _quantiles(bags, trial.score)))


def _boosting(bags: Bags, trial: Trial) -> Numbers:
    model = HistGradientBoostingClassifier(min_samples_leaf=5, max_leaf_nodes=8, max_bins=64, random_state=trial.seed)
    model.fit(_quantiles(bags, trial.train), bags.require_labels()[trial.train])
    return np.asarray(model.decision_function(_quantiles(bags, trial.score)))


def _quantile_svm(bags: Bags, trial: Trial) -> Numbers:
    y, folds = bags.require_labels()[trial.train], inner_folds(bags, trial.train, seed=trial.seed)
    inner = [(np.setdiff1d(np.arange(len(y)), test), test) for test in folds]
    model = make_pipeline(StandardScaler(), SVC())
    search = GridSearchCV(model, {"svc__C": [0.1, 1.0, 10.0, 100.0]}, cv=inner, scoring="roc_auc")
    return np.asarray(search.fit(_quantiles(bags, trial.train), y).decision_function(_quantiles(bags, trial.score)))


def _mi_svm(bags: Bags, trial: Trial) -> Numbers:
    """Return an RBF-SVM of one witness in each positive bag: at first the instance farthest from all negative ones.

    Then it is the instance that a machine of the other half of the bags scores highest. Those scores choose how a bag
    is scored.
    """
    random = np.random.default_rng(trial.seed)
    train, score = standardized_bags(bags, trial)
    labels, most = bags.require_labels()[trial.train], max(1, _ROWS // len(train))
    train = [x[random.permutation(len(x))[:most]] for x in train]
    x, bag = np.concatenate(train), np.repeat(np.arange(len(train)), [len(own) for own in train])
    halves = np.empty(len(train), dtype=np.int64)
    for label in (0, 1):
        own = random.permutation(np.flatnonzero(labels == label))
        halves[own] = np.arange(len(own)) % 2
    half, positive = halves[bag], labels[bag] == 1
    kernel = Nystroem(gamma=median_gamma(x, seed=0), n_components=min(_MAP, len(x)), random_state=0).fit(x)
    near = NearestNeighbors(n_neighbors=2).fit(x[~positive]).kneighbors(x)[0]
    mapped, scores, marked = kernel.transform(x), np.where(positive, near[:, 0], near[:, 1]), np.zeros(len(x), bool)
    for _ in range(_ROUNDS):
        new = np.zeros_like(marked)
        for number in np.flatnonzero(labels == 1):
            own = np.flatnonzero(bag == number)
            new[own[np.argmax(scores[own])]] = True
        if (new == marked).all():
            break
        marked, scores = new, np.empty(len(x))
        for part in (0, 1):
            machine = LinearSVC(class_weight="balanced").fit(mapped[half != part], marked[half != part])
            scores[half == part] = machine.decision_function(mapped[half == part])
    held = [scores[bag == number] for number in range(len(train))]
    share = max(_HIGHEST, key=lambda own: auroc(labels, [_highest(x, own) for x in held]))
    machine = LinearSVC(class_weight="balanced").fit(mapped, marked)
    return np.array([_highest(machine.decision_function(kernel.transform(own)), share) for own in score])


def _highest(scores: Numbers, share: float) -> float:
    return float(np.sort(scores)[::-1][: max(1, round(share * len(scores)))].mean())


def _log_odds(p: Numbers) -> Numbers:
    clipped = np.clip(p, 0.001, 0.999)
    return np.asarray(np.log(clipped / (1 - clipped)))


METHODS: Mapping[str, Callable[[Bags, Trial], Numbers]] = {
    "mi-SVM from novelty": _mi_svm,
    "trees on quantiles": _quantile_trees,
    "SVM on quantiles": _quantile_svm,
    "boosting on quantiles": _boosting,
}

# Networks of midam: three layers of GELU, and what else differs from its default.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "midam, deep": {},
    "midam, deep, pooled vectors": {"pooling": "embedding-attention"},
}


EVERY = (NETWORK, *METHODS, *NETWORKS, POOLED)


def _judged(options: StudyOptions, sets: Mapping[str, Bags], rows: Mapping[tuple[str, str, int], Any]) -> list[str]:
    """Return the tables of all sets and the decisions."""
    of_kind = {kind: [name for name in names if name in sets] for kind, names in KINDS.items()}
    kinds = {kind: names for kind, names in of_kind.items() if names}
    epochs = 2 if options.smaller else None
    if not options.smaller:
        take_published(OUT / "trials" / f"defaults{PACKED}", options.cache)
    of = {(method, data): _by_fold(rows, method, data) for method in EVERY for data in sets}
    with Store(options.cache, "defaults") as store:
        usual_fits = [
            fit
            for data, bags in sets.items()
            for fit in nested_fits(data, bags, config_of(CHOSEN, bags, epochs=epochs), 0)
        ]
        complete([fit.group() for fit in usual_fits], train_fit, store=store, options=options, section="judged")
        usual = _areas(Areas(store, epochs=epochs), kinds, sets)
        scores = {name: partial(_of_set, of, name) for name in EVERY}
        ways: dict[str, tuple[Mapping[str, Any], Sequence[str]]] = {
            name: ({name: own}, ()) for name, own in scores.items()
        }
        ways |= {f"{name}{_IN_PLACE}": ({name: scores[name]}, (DEFAULT,)) for name in (*NETWORKS, POOLED)}
        early = {name: scores[name] for name in (NETWORK, *METHODS)}
        ways[ALL] = (early, ())
        found = {
            way: _areas(Areas(store, epochs=epochs, others=others, without=without), kinds, sets)
            for way, (others, without) in ways.items()
        }
        with_pooled = Areas(store, epochs=epochs, others={POOLED: scores[POOLED]})
        prior = prior_of(with_pooled, sets, kinds, without=None, repeats=range(1))
    gaps = {way: {data: own[data]["auto"] - usual[data]["auto"] for data in sets} for way, own in found.items()}
    by_kind = {
        way: [float(np.mean([own[data].mean() for data in names])) for names in kinds.values()]
        for way, own in gaps.items()
    }
    lines = {way: mean_interval(means, bounds=(-1.0, 1.0)) for way, means in by_kind.items()}
    tested = [(lines[name].mean, lines[name].low, lines[name].high) for name in early]
    p_of = dict(zip(early, holm(tested, freedom=len(kinds) - 1)))
    taken = {name: _verdict(name, lines[name], p) for name, p in p_of.items()} | _networks_taken(by_kind, gaps)
    decided = [
        [
            *(way, f"{line:+}", f"{p_of[way]:.3f}" if way in p_of else "-"),
            *(str(over_sets(list(gaps[way].values()))), taken.get(way, "-")),
        ]
        for way, line in lines.items()
    ]
    gains = [
        [data, f"{usual[data]['auto'].mean():.3f}", *(paired(own[data]) for own in gaps.values())] for data in sets
    ]
    alone = [
        [data, f"{usual[data][TREES].mean():.3f}", *(f"{found[name][data][name].mean():.3f}" for name in scores)]
        for data in sets
    ]
    return [
        *section(
            "What `auto` gains",
            RULE,
            NETWORK_RULE,
            "Test AUROC of `auto` with a method, minus `auto`: mean over the kinds, with the interval over kinds; over "
            "the sets, with the Nadeau-Bengio corrected interval, which takes the sets for independent.",
            table(["method", "over 6 kinds", "p (Holm)", "over 9 sets", "taken"], decided),
            "Each set: AUROC of `auto`, and the difference with the method, over the folds of [the defaults]"
            "(defaults.md), whose scores of the other methods are used again.",
            table(["set", "`auto`", *lines], gains),
            f"Prior weights of `auto` with {POOLED}, over these kinds: "
            f"{', '.join(f'{method} {weight:.2f}' for method, weight in prior.items())}.",
        ),
        *section("Alone", "Test AUROC over the same folds.", table(["set", "ExtraTrees", *scores], alone)),
    ]


def _networks_taken(
    by_kind: Mapping[str, Sequence[float]], gaps: Mapping[str, Mapping[str, Numbers]]
) -> dict[str, str]:
    """Return the verdict of each way to use the networks, by their rule."""
    ways = [f"{name}{how}" for name in NETWORKS for how in ("", _IN_PLACE)]
    passing = [way for way in (*ways, POOLED) if _passes(by_kind[way], gaps[way])]
    taken = passing[0] if passing else None
    if POOLED in passing and np.mean(by_kind[POOLED]) >= np.mean(by_kind[passing[0]]):
        taken = POOLED
    return {way: "yes" if way == taken else "passes" if way in passing else "no" for way in (*ways, POOLED)}


def _passes(means: Sequence[float], gaps: Mapping[str, Numbers]) -> bool:
    """Return whether a way gains in the mean over kinds, also without any one, and loses too much on no set."""
    others = [float(np.delete(means, at).mean()) for at in range(len(means))] if len(means) > 1 else []
    return min(float(np.mean(means)), *others) > 0 and all(gap.mean() >= -_MOST_LOST for gap in gaps.values())


def _by_fold(rows: Mapping[tuple[str, str, int], Any], method: str, data: str) -> list[Any]:
    return [scores for (name, own, _), scores in sorted(rows.items()) if (name, own) == (method, data)]


def _areas(areas: Areas, kinds: Mapping[str, Sequence[str]], sets: Mapping[str, Bags]) -> Judged:
    return judged_areas(areas, sets, kinds, repeats=range(1))


def _of_set(of: Mapping[tuple[str, str], Any], name: str, data: str, _: int) -> Any:
    return of[name, data]


def _verdict(name: str, gain: Estimate, p: float) -> str:
    return "yes" if gain.low > 0 and (p < 0.05 or name == NETWORK) else "no"


def _described() -> list[str]:
    return section(
        "The methods",
        "- The network: attention over instances, features and bags in turn, fitted for 400 s and then 372 s on one "
        "H200 to bags with witnesses, shifts, pairs and other rules (`studies/tabular/prior_fitted.py`).\n"
        "- mi-SVM from novelty: one witness in each positive bag, at first the instance farthest from all negative "
        "ones, then the one that a machine of the other half of the bags scores highest.\n"
        "- On quantiles: mean, deviation and seven quantiles of each feature over the bag, for extra trees, for a "
        "support vector machine with C by inner folds, and for histogram gradient boosting.\n"
        "- Deep: `midam` with three layers of 256, 128 and 64 GELU, features without a clip, centers that begin at "
        "0.5, Adam (0.001), one member, and the epochs that the inner folds choose. With pooled vectors, attention "
        "averages the vectors of the last layer, and two layers score the average.\n"
        "- Embedding networks: two networks of 64 and 64 GELU, whose vectors a mean, in the second network that of "
        "attention, averages for a linear head; cross-entropy, Adam (0.003), steps of up to 128 bags and 16 instances "
        "of each, up to 80 epochs and 24 000 bags in all (`midam.methods.networks`).",
    )
