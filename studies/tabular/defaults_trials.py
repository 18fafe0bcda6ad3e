"""The trials of the study `defaults`: its sets and candidates, and their scores for each fold."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata

from midam.compare.plan import single_threaded
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.splits import stratified_folds
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import Candidate, limited, make_candidate
from midam.methods.auto.search import SearchResult, areas_of, best_epochs, mix
from midam.methods.baselines import MOST_BAGS
from midam.methods.inner_folds import inner_trials
from midam.methods.method import Baseline
from midam.methods.store import Row
from midam.registry import BASELINES
from midam.settings import Settings
from midam.train.side import Trial, train_trials
from studies.engine import Store, settings_hash, trial_name
from studies.tabular.encoders import NoisyMLP, ReluMLP

TREES, LINEAR, KERNEL = "bag-statistics-extratrees", "bag-statistics-logistic", "mean-map-svm"
DEFAULT, CHOSEN_EPOCHS = "midam", "epochs"
# Also evaluated, with the settings of their libraries; they do not affect a choice.
BESIDE = ("libauc-midam-att", "torchmil-abmil")
SYNTHETIC = "synthetic"
# Sets of one kind share instances or a source.
KINDS: dict[str, tuple[str, ...]] = {
    "musk": ("musk1", "musk2"),
    "corel": ("elephant", "fox", "tiger"),
    "mutagenesis": ("mutagenesis1",),
    "newsgroups": ("newsgroups1",),
    "intensive care": ("physionet2012_icu",),
    "nuclei": ("colon_nuclei",),
    SYNTHETIC: ("witness", "shift", "pair", "sparse"),
}
_FOLDS, _FEWER, _MANY = 10, 5, 1000
AUTO_ROWS = ("auto", "no prior", "best", "chosen epochs")

# The defaults with the width of the paper; then one change each.
_PAPER_WIDTH: dict[str, Any] = {"hidden": []}
CANDIDATES: dict[str, dict[str, Any]] = {
    "as wide as the input": {},
    "width at least 64": {"least": 64},
    "width at least 128": {"least": 128},
    "width 64 to 128": {"least": 64, "most": 128},
    "two layers of 64": {"hidden": [64, 64]},
    **{
        f"width at least 64, {what}": {"least": 64, **values}
        for what, values in (
            ("1500 steps", {"steps": 1500}),
            ("weight decay 0.01", {"weight_decay": 0.01}),
        )
    },
    **{f"width at least 64, {pooling}": {"least": 64, "pooling": pooling} for pooling in ("mean", "smoothed-max")},
}
# The default, which had the largest gain, and further changes to it: only shown, because they came after the choice.
CHOSEN = "width at least 128"
# Defaults of the mlp that another encoder does not have.
_AS_MLP: dict[str, Any] = {"optimizer": "sgd", "lr": 0.05, "center_start": 0.0}
_NO_CLIP = 1e6
_CHANGES: dict[str, dict[str, Any]] = {
    "weight decay 0.01": {"weight_decay": 0.01},
    "dropout 0.5": {"dropout": 0.5},
    "16 instances a draw": {"num_instances": 16},
    "margin 0.5": {"margin": 0.5},
    "all features half by rank": {"scaling": "blend"},
    "no feature by rank": {"scaling": "linear"},
    "noise 0.2 on instances": {"noise": 0.2},
    "noise 0.5 on instances": {"noise": 0.5},
    "ReLU for tanh": {"relu": True},
    "ReLU for tanh, no clip": {"relu": True, "clip": _NO_CLIP},
}
AROUND = {f"{CHOSEN}, {what}": {**CANDIDATES[CHOSEN], **values} for what, values in _CHANGES.items()}
# Poolings of the members of one model, and models of three members with the mean of their scores or ranks.
ATTENTION = "attention"
MEMBERS: dict[str, dict[str, Any]] = {
    f"{CHOSEN}, {pooling}": {**CANDIDATES[CHOSEN], "pooling": pooling}
    for pooling in ("mean", "smoothed-max", "embedding-attention")
}
MIXTURES = (
    (ATTENTION, "mean", "smoothed-max"),
    (ATTENTION, "embedding-attention", "mean"),
    (ATTENTION, ATTENTION, "mean"),
    (ATTENTION, ATTENTION, "embedding-attention"),
)
_EPOCHS = (30, 400)


def config_of(candidate: str, bags: Bags, *, epochs: int | None) -> Settings:
    """Return the settings of a candidate for these bags, with one member; `epochs` replaces its epochs."""
    values = {**_PAPER_WIDTH, **(CANDIDATES | AROUND | MEMBERS)[candidate]}
    least, most, steps = (values.pop(name, None) for name in ("least", "most", "steps"))
    noise, relu = values.pop("noise", None), values.pop("relu", False)
    width = int(np.prod(bags.instance_shape))
    if least is not None and not least <= width <= (most or width):
        values["hidden"] = [least if width < least else most]
    if noise is not None or relu:
        encoder, own = (ReluMLP, {}) if relu else (NoisyMLP, {"noise": noise})
        args = {"in_features": width, "hidden": values.pop("hidden"), **own}
        values |= {"encoder": f"{encoder.__module__}.{encoder.__name__}", "encoder_args": args, **_AS_MLP}
    if steps is not None:
        values["epochs"] = int(np.clip(round(steps / (len(bags) / 16)), *_EPOCHS))
    if epochs is not None:
        values["epochs"] = epochs
    return Settings(**values, members=1, accelerator="cpu").resolve(bags.instance_shape)


@dataclass(frozen=True, eq=False)
class Fit:
    """A method, or a candidate for the default, on all folds of a repeat of one set."""

    data: str
    bags: Bags
    method: str
    config: Settings | None  # settings of a candidate; None for a method of another library
    repeat: int
    # With the inner folds of each training part. For a candidate, True means all its members until the last epoch,
    # without inner folds; "epochs" means until the epoch that the inner folds choose, as in `auto`.
    nested: bool | str = False

    def group(self) -> Group["Fit"]:
        """Return the trial with its name."""
        name = trial_name(
            "defaults",
            set=self.data,
            instances=self.bags.num_instances,
            method=self.method,
            settings=None if self.config is None else _settings(self.config),
            repeat=self.repeat,
            nested=self.nested,
        )
        return Group([name], [self])


def nested_fits(data: str, bags: Bags, config: Settings, repeat: int) -> list[Fit]:
    """Return the fits to evaluate a set: the default until the last and until chosen epochs, and other methods."""
    fits = [Fit(data, bags, DEFAULT, config, repeat, nested=how) for how in (True, CHOSEN_EPOCHS)]
    names = (TREES, LINEAR, KERNEL) if len(bags) <= MOST_BAGS else (TREES, LINEAR)
    return [*fits, *(Fit(data, bags, name, None, repeat, nested=True) for name in names)]


def train_fit(fit: Fit) -> list[Row]:
    """Return the scores of each fold of a repeat."""
    folds = outer_folds(fit.bags, fit.repeat)
    if fit.nested:
        candidate = make_candidate(fit.method, fit.bags.instance_shape)
        chosen = fit.nested == CHOSEN_EPOCHS
        if fit.config is not None:
            config = fit.config.replace(members=members_of(candidate)).resolve((1,))
            candidate = Candidate(fit.method, config=limited(config, len(folds[0].train)) if chosen else config)
        parts = [trials_of(fit.bags, fold) if chosen or fit.config is None else [fold] for fold in folds]
        return [{"scores": nested_scores(candidate, fit.bags, parts)}]
    if fit.config is None:
        peer: Baseline = BASELINES.find(fit.method)()
        with single_threaded():
            return [{"scores": [peer.score(fit.bags, fold).tolist() for fold in folds]}]
    return [{"scores": [result.scores[-1].tolist() for result in train_trials(fit.config, fit.bags, folds)]}]


def members_of(candidate: Candidate) -> int:
    """Return the number of scorers that a candidate trains from different seeds."""
    return 1 if candidate.config is None else candidate.config.training.members


def nested_scores(candidate: Candidate, bags: Bags, parts: Sequence[Sequence[Trial]]) -> list[list[Any]]:
    """Return scores [M, n] of the inner trials of each part, then of its last trial, which uses their choice."""
    trials = [trial for part in parts for trial in part]
    if candidate.baseline is not None:
        scores = candidate.held_out(bags, [trial for part in parts for trial in part[:-1]])
        return [[*(next(scores).tolist() for _ in part[:-1]), _fitted(candidate, bags, part[-1])] for part in parts]
    paths, labels = candidate.paths(bags, trials), bags.require_labels()
    outer = [part[-1] for part in parts]
    members = [list(candidate.paths(bags, outer, member=member)) for member in range(1, members_of(candidate))]
    rows: list[list[Any]] = []
    for number, part in enumerate(parts):
        *inner, last = (next(paths) for _ in part)
        at = best_epochs(areas_of(labels, part[:-1], inner)) if inner else len(candidate.epochs) - 1
        test = np.stack([own[at] for own in (last, *(member[number] for member in members))])
        rows.append([*([own[at].tolist()] for own in inner), test.tolist()])
    return rows


def _fitted(candidate: Candidate, bags: Bags, trial: Trial) -> list[list[float]]:
    """Return the scores [M, n] of the M scorers that the candidate has in a model."""
    held = bags.subset(trial.score)
    return [predict(each, held).tolist() for each in candidate.fit(bags.subset(trial.train), seed=trial.seed)]


def outer_folds(bags: Bags, repeat: int) -> list[Trial]:
    """Return training and test bags of each stratified fold; the repeat is the seed. 5 folds of many bags, else 10."""
    count = _FEWER if len(bags) > _MANY else _FOLDS
    numbers, every = stratified_folds(bags.require_labels(), folds=count, seed=repeat), np.arange(len(bags))
    tests = [np.flatnonzero(numbers == fold) for fold in range(count)]
    return [Trial(np.setdiff1d(every, test), test, seed=repeat) for test in tests]


def trials_of(bags: Bags, fold: Trial) -> list[Trial]:
    """Return the inner folds of the training part as `auto` makes them, and the fold itself."""
    return [*inner_trials(bags, fold.train, seed=fold.seed), fold]


class Areas:
    """AUROCs from the stored scores; `others` are further methods for `auto`, with the scores `[fold][part][M, n]`.

    `auto` does not try the methods in `without`.
    """

    def __init__(
        self,
        store: Store,
        *,
        epochs: int | None,
        others: Mapping[str, Callable[[str, int], Any]] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self._store, self._epochs, self._others, self._without = store, epochs, others or {}, without
        self._weights: dict[tuple[str, range], dict[str, float]] = {}

    def of(self, data: str, bags: Bags, candidate: str, *, repeats: range) -> NDArray[np.float64]:
        """Return the AUROC of a candidate for the default, for each fold of the repeats."""
        config, found = config_of(candidate, bags, epochs=self._epochs), []
        for repeat in repeats:
            scores = self._row(Fit(data, bags, DEFAULT, config, repeat))
            found += [_area(bags, fold, own) for fold, own in zip(outer_folds(bags, repeat), scores, strict=True)]
        return np.array(found)

    def mixed(self, data: str, bags: Bags, poolings: Sequence[str], *, ranks: bool) -> NDArray[np.float64]:
        """Return the AUROC for each fold of the first repeat, of the mean score or rank of members with these poolings.

        The members with attention are the first members of the default with three members.
        """
        usual = config_of(CHOSEN, bags, epochs=self._epochs)
        own = [part[-1] for part in self._row(Fit(data, bags, DEFAULT, usual, 0, nested=True))]  # [folds][M, n]
        other = {
            name: self._row(Fit(data, bags, DEFAULT, config_of(f"{CHOSEN}, {name}", bags, epochs=self._epochs), 0))
            for name in dict.fromkeys(poolings)
            if name != ATTENTION
        }
        found = []
        for number, fold in enumerate(outer_folds(bags, 0)):
            members = [np.array(own[number][i]) for i in range(poolings.count(ATTENTION))]
            members += [np.array(scores[number]) for scores in other.values()]
            found.append(_area(bags, fold, np.mean([rankdata(s) if ranks else s for s in members], axis=0)))
        return np.array(found)

    def beside(self, data: str, bags: Bags, method: str, *, repeats: range) -> NDArray[np.float64] | None:
        """Return the AUROC of a method of another library for each fold of the repeats; None if it was not run."""
        fits = [Fit(data, bags, method, None, repeat) for repeat in repeats]
        if None in self._store.find([name for fit in fits for name in fit.group().names]):
            return None
        return np.array(
            [
                _area(bags, fold, own)
                for fit in fits
                for fold, own in zip(outer_folds(bags, fit.repeat), self._row(fit), strict=True)
            ]
        )

    def weights(self, data: str, bags: Bags, *, repeats: range) -> dict[str, float]:
        """Return the mean weight over the folds of each method that `auto` tries, if only the inner folds decide."""
        key = data, repeats
        if key not in self._weights:
            self._weights[key] = self._mean_weights(data, bags, repeats)
        return self._weights[key]

    def _mean_weights(self, data: str, bags: Bags, repeats: range) -> dict[str, float]:
        config, found = config_of(CHOSEN, bags, epochs=self._epochs), defaultdict[str, list[float]](list)
        for repeat in repeats:
            rows = self._tried(data, bags, config, repeat)
            for number, fold in enumerate(outer_folds(bags, repeat)):
                for one in self._search(bags, fold, _parts(bags, fold, rows, number), {}).tried:
                    found[one.method].append(one.weight)
        return {method: float(np.mean(own)) for method, own in found.items()}

    def _tried(self, data: str, bags: Bags, config: Settings, repeat: int) -> dict[str, Any]:
        fits = nested_fits(data, bags, config, repeat)
        rows = {fit.method: self._row(fit) for fit in fits if fit.nested == CHOSEN_EPOCHS or fit.method != DEFAULT}
        return rows | {method: scores(data, repeat) for method, scores in self._others.items()}

    def nested(
        self, data: str, bags: Bags, prior: Mapping[str, float], *, repeats: range
    ) -> dict[str, NDArray[np.float64]]:
        """Return the AUROC for each fold of the repeats: the default, the other methods of `auto`, and `auto`.

        `prior` has the weights of methods before any data; "no prior" is `auto` with equal weights.
        """
        config = config_of(CHOSEN, bags, epochs=self._epochs)
        areas: dict[str, list[float]] = {
            name: [] for name in (DEFAULT, TREES, LINEAR, KERNEL, *self._others, *AUTO_ROWS)
        }
        for repeat in repeats:
            rows = self._tried(data, bags, config, repeat)
            alone = self._row(Fit(data, bags, DEFAULT, config, repeat, nested=True))
            for number, fold in enumerate(outer_folds(bags, repeat)):
                own = _parts(bags, fold, rows, number)
                found = self._search(bags, fold, own, prior)
                for method, parts in {**own, DEFAULT: [np.array(alone[number][-1])]}.items():
                    areas[method].append(_area(bags, fold, parts[-1].mean(axis=0)))
                if KERNEL not in own:
                    areas[KERNEL].append(float("nan"))
                areas["chosen epochs"].append(_area(bags, fold, own[DEFAULT][-1].mean(axis=0)))
                for name, mixed in (("auto", found), ("no prior", self._search(bags, fold, own, {}))):
                    logits = [_logits(own[method][-1]) for method in mixed.taken]
                    areas[name].append(_area(bags, fold, mixed.mixture.scores(logits)))
                best = max(found.tried, key=lambda row: row.auroc or 0.0).method
                areas["best"].append(areas[best][-1])
        return {method: np.array(own) for method, own in areas.items()}

    def _search(
        self, bags: Bags, fold: Trial, parts: Mapping[str, list[NDArray[np.float64]]], prior: Mapping[str, float]
    ) -> SearchResult:
        tried = {method: scores for method, scores in parts.items() if method not in self._without}
        return search_of(bags, fold, tried, prior)

    def _row(self, fit: Fit) -> Any:
        (row,) = self._store.find(fit.group().names)
        if row is None:
            raise KeyError(f"{fit.data}, {fit.method}")
        return row["scores"]


def _parts(bags: Bags, fold: Trial, rows: Mapping[str, Any], number: int) -> dict[str, list[NDArray[np.float64]]]:
    """Return for each method the scores of the inner folds of the outer fold `number`, and of its test bags."""
    inner = len(trials_of(bags, fold)) - 1
    return {name: [np.array(part) for part in (*row[number][:inner], row[number][-1])] for name, row in rows.items()}


def search_of(
    bags: Bags, fold: Trial, scores: Mapping[str, Sequence[NDArray[np.float64]]], prior: Mapping[str, float]
) -> SearchResult:
    """Return the result of `auto` in a fold, from scores [M, n] of each method for the inner folds, then the test."""
    rows = [
        {"method": method, "scores": [own.tolist() for own in parts[:-1]], "seconds": 0.0, "note": None}
        for method, parts in scores.items()
    ]
    return mix(bags, trials_of(bags, fold)[:-1], rows, prior=prior)


def _settings(config: Settings) -> str:
    """Return the digest of the settings without the margin, and the margin if it is not the default."""
    margin, digest = config.method.margin, settings_hash(config)
    return digest if margin == Settings().method.margin else f"{digest}, margin {margin:g}"


def _logits(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = bounded_logit(torch.from_numpy(scores)).numpy()
    return found


def _area(bags: Bags, fold: Trial, scores: Sequence[float] | NDArray[np.float64]) -> float:
    return auroc(bags.require_labels()[fold.score], scores)
