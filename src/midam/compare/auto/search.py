"""The search of `auto`: candidates scored by inner cross-validation of the training bags, and a mixture of the best."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit

from midam.compare.auto.candidates import PRIOR, Candidate, OverBudgetError
from midam.compare.engine import Row, TrialStore
from midam.compare.folds import MANY, inner_trials
from midam.data.bags import Bags
from midam.errors import CheckpointError, ConfigError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.intervals import fold_interval, paired_delong
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.reading import Form, Number, Share, check_form
from midam.targets import OutOfFold
from midam.train.trials import Trial

Numbers = NDArray[np.float64]
_LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Line:
    """A candidate's probability: the mean over its scorers of ``sigmoid(slope logit + intercept)``, the slope > 0."""

    slope: float = 1.0
    intercept: float = 0.0

    def probabilities(self, logits: Numbers) -> Numbers:
        """Probabilities [n] of logits [M, n] of M scorers."""
        return expit(self.slope * logits + self.intercept).mean(axis=0)


def fit_line(logits: Numbers, labels: NDArray[np.int64]) -> Line | None:
    """Platt's line (1999) on the logits [M, n] of held-out bags; None where they rank no better than chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of such logits
        calibrator = PlattCalibrator().fit(logits.ravel(), np.tile(labels, len(logits)), raw=True)
    slope = calibrator.slope_ / calibrator.scale_
    return Line(slope, calibrator.intercept_ - slope * calibrator.center_) if calibrator.ranks else None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights [C], 0 or more and of sum 1, and the line of each of C candidates."""

    weights: Numbers
    lines: list[Line]

    def scores(self, logits: Sequence[Numbers]) -> Numbers:
        """Scores [n] in [0, 1] of the logits [M, n] of each candidate."""
        return self.weights @ np.array([line.probabilities(x) for line, x in zip(self.lines, logits)])


def prior_weights(methods: Sequence[str], prior: Mapping[str, float] = PRIOR) -> Numbers:
    """Weights [C] of sum 1 that methods have before any bag is seen; one that `prior` does not know has their mean."""
    usual = float(np.mean(list(prior.values()) or [1.0]))
    weights = np.array([prior.get(method, usual) for method in methods])
    return weights / weights.sum()


def fit_mixture(
    logits: Sequence[Numbers],
    areas: Sequence[float],
    labels: NDArray[np.int64],
    groups: NDArray[np.str_] | None = None,
    prior: Numbers | None = None,
) -> Mixture:
    """Fit lines and weights to the logits [M, n] that C candidates gave to held-out bags.

    Up to a factor, the weight of a candidate is its prior weight times the p-value of its AUROC being that of the best
    (`paired_delong` of the probabilities): where the bags cannot tell candidates apart, the prior decides, and a
    candidate that is clearly worse gets almost no weight. A weight below 0.01 becomes 0, as does that of scores which
    rank no better than chance, unless all do.

    Parameters
    ----------
    logits : sequence of array [M, n]
        Of each candidate; the number of scorers M may differ.
    areas : sequence of float
        AUROC of each candidate within the folds. The highest is the best, the first of equals.
    labels, groups : array [n]
        Of the bags.
    prior : array [C], optional
        Weights before any bag is seen; default: all the same.
    """
    before = np.full(len(logits), 1 / len(logits)) if prior is None else prior
    lines = [fit_line(x, labels) for x in logits]
    if not any(lines):
        return Mixture(before, [Line()] * len(lines))
    shares = [line.probabilities(x) if line else np.zeros(len(labels)) for line, x in zip(lines, logits)]
    best = int(np.argmax([area if line else -1.0 for line, area in zip(lines, areas)]))
    alike = [paired_delong(labels, shares[best], share, groups=groups)[3] for share in shares]
    weights = before * [p if line else 0.0 for line, p in zip(lines, alike)]
    weights = np.where(weights < _LEAST * weights.sum(), 0.0, weights)
    return Mixture(weights / weights.sum(), [line or Line() for line in lines])


OnCandidate = Callable[[str, int, int], None]
OVER, STOPPED = "not tried: the budget leaves no time", "stopped: it takes longer than the budget leaves"
DIVERGED = "left out: a training diverged"
SETTLED = "not tried: nothing is left to gain"
_PERFECT = 0.998


@dataclass(frozen=True)
class Tried:
    """A candidate and its result.

    Attributes
    ----------
    method : str
        Its name.
    auroc : float, optional
        Mean over the inner folds, of their held-out bags; None where `note` says why.
    seconds : float
        Time of the inner cross-validation.
    weight : float
        In the model, in [0, 1].
    note : str, optional
        Why it was not tried, or left out.
    epochs : int, optional
        Epochs that were chosen on the inner folds, of a method that is trained by epochs.
    interval : list of two floats, optional
        95% interval of `auroc`; None where a fold has one bag of a class.
    """

    method: str
    auroc: float | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str | None = None
    epochs: int | None = None
    interval: list[float] | None = None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes
    ----------
    tried : list of Tried
        All candidates, in order.
    taken : list of str
        Names of those with a weight, in order.
    mixture : Mixture
        Of those that were taken.
    auroc : float, optional
        Mean over the inner folds of the AUROC of the mixture, which is fitted for each fold on the others.
    folds : int
        Inner folds; 0 where the training bags are too few for any, and all candidates are taken unseen.
    out_of_fold : OutOfFold, optional
        Scores of the bags that the folds held out, by these mixtures.
    """

    tried: list[Tried]
    taken: list[str]
    mixture: Mixture
    auroc: float | None
    folds: int
    out_of_fold: OutOfFold | None = None


def search(
    candidates: Sequence[Candidate],
    bags: Bags,
    *,
    seed: int,
    budget: float | None = None,
    journal: Path | None = None,
    on_candidate: OnCandidate | None = None,
) -> SearchResult:
    """Score each candidate on bags that were held out from its training, and mix the best.

    Parameters
    ----------
    candidates : sequence of Candidate
        At least one, in the order in which they are tried. Of more than 500 bags, nothing more is tried once one has a
        mean AUROC of at least 0.998.
    bags : Bags
        Training bags of both classes; the inner folds are stratified and disjoint by group.
    seed : int
        Of folds, weights and sampling.
    budget : float, optional
        Seconds that search and training may take. A candidate is not tried if a short trial of it predicts that it
        needs more than are left, and stopped after the fold that shows it; the first is always tried to its end.
    journal : Path, optional
        File of finished candidates, from which a second call continues.
    on_candidate : callable, optional
        Called with the name of a candidate that begins, its number from 0, and how many there are.
    """
    trials = inner_trials(bags, np.arange(len(bags)), seed=seed)
    if not trials:
        names = [candidate.name for candidate in candidates]
        mixture = Mixture(prior_weights(names), [Line()] * len(names))
        tried = [Tried(name, weight=float(weight)) for name, weight in zip(names, mixture.weights)]
        return SearchResult(tried, names, mixture, None, 0)
    rows: list[Row] = []
    with TrialStore(journal) as store:
        for number, candidate in enumerate(candidates):
            if on_candidate is not None:
                on_candidate(candidate.name, number, len(candidates))
            if len(bags) > MANY and any(_is_perfect(bags, trials, row) for row in rows):
                rows.append({"method": candidate.name, "note": SETTLED, "scores": None, "seconds": 0.0, "spent": 0.0})
                continue
            name = {"method": candidate.name, "of": candidate.digest(bags, seed=seed)}
            (row,) = store.find([name])
            if row is None:
                left = None if budget is None or not number else budget - sum(done["spent"] for done in rows)
                row = {**name, **_try(candidate, bags, trials, left=left)}
                store.add([row])
            elif journal is not None:
                _check_row(row, trials, journal)
            rows.append(row)
    return mix(bags, trials, rows)


def _try(candidate: Candidate, bags: Bags, trials: Sequence[Trial], *, left: float | None) -> Row:
    """Scores of the held-out bags of each fold, and the seconds that these took and the model on all bags will take."""
    started = time.perf_counter()
    nothing: Row = {"scores": None, "seconds": 0.0}
    try:
        if left is not None and (left <= 0 or candidate.seconds(bags, trials) > left):
            return {"note": OVER, **nothing, "spent": time.perf_counter() - started}
        tried = time.perf_counter() - started
        scores, epochs = candidate.held_out(bags, trials, left=None if left is None else left - tried)
    except OverBudgetError:
        seconds = time.perf_counter() - started
        return {"note": STOPPED, **nothing, "seconds": seconds, "spent": seconds}
    except ConfigError as error:  # what it does not take, such as volumes too thin for it
        return {"note": f"left out: {error}", **nothing, "spent": time.perf_counter() - started}
    seconds = time.perf_counter() - started
    row: Row = {"note": None, "scores": None, "seconds": seconds, "spent": seconds * (1 + candidate.refit(len(trials)))}
    row["epochs"] = epochs
    if not all(np.isfinite(trial_scores).all() for trial_scores in scores):
        return {**row, "note": DIVERGED}
    return {**row, "scores": [trial_scores.tolist() for trial_scores in scores]}


def _is_perfect(bags: Bags, trials: Sequence[Trial], row: Row) -> bool:
    """Whether a candidate that was tried ranks the held-out bags next to perfectly."""
    if row["scores"] is None:
        return False
    labels, means = bags.require_labels(), [np.mean(scores, axis=0) for scores in row["scores"]]
    return bool(np.mean([auroc(labels[trial.score], mean) for trial, mean in zip(trials, means)]) >= _PERFECT)


class _Row(Form):
    """A line of candidates.jsonl without the fields that name it."""

    note: str | None
    scores: list[list[list[Share]]] | None
    epochs: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[Number, Field(ge=0)]
    spent: Annotated[Number, Field(ge=0)]


def _check_row(row: Row, trials: Sequence[Trial], journal: Path) -> None:
    """Refuse a line of a journal that does not fit these trials."""
    advice = "remove the line to try the method again"
    check_form(row, _Row, journal, expected="a method that was tried", advice=advice)
    counts = [{len(scores) for scores in trial_scores} for trial_scores in row["scores"] or ()]
    wanted = [len(trial.score) for trial in trials]
    if row["scores"] is not None and counts != [{count} for count in wanted]:
        raise CheckpointError(
            f"Expected a score of each of {sum(wanted)} held-out bags, got others (in {journal}, method "
            f"{row['method']}); {advice}."
        )


def mix(
    bags: Bags, trials: Sequence[Trial], rows: Sequence[Row], *, prior: Mapping[str, float] = PRIOR
) -> SearchResult:
    """The mixture of what was tried to its end.

    A row holds `method`, `seconds`, `note` and `scores`: [M, n] of the n bags that each trial scores, or None. `prior`
    are the weights of methods before any bag is seen.
    """
    whole = [number for number, row in enumerate(rows) if row["scores"] is not None]
    if not whole:
        why = "; ".join(f"{row['method']}: {row['note']}" for row in rows)
        raise ConfigError(f"Expected a method that takes these bags, got none ({why}); name another one with `method`.")
    before = prior_weights([rows[number]["method"] for number in whole], prior)
    held = _HeldOut(bags, trials, [np.concatenate(rows[number]["scores"], axis=1) for number in whole], before)
    mixture, areas = held.fit(range(len(trials))), held.areas(range(len(trials)))
    crossed: list[Numbers] = []
    for fold in range(len(trials)):
        others = held.fit([other for other in range(len(trials)) if other != fold])
        inside = held.fold == fold
        crossed.append(others.scores([x[:, inside] for x in held.logits]))
    figure = np.mean([auroc(held.labels[held.fold == fold], scores) for fold, scores in enumerate(crossed)])
    tried = [Tried(row["method"], seconds=row["seconds"], note=row["note"], epochs=row.get("epochs")) for row in rows]
    for number, area, weight, logits in zip(whole, areas, mixture.weights, held.logits):
        ends = fold_interval(held.labels, logits.mean(axis=0), held.fold)
        tried[number] = replace(tried[number], auroc=area, weight=float(weight), interval=ends and list(ends[:2]))
    taken = [place for place, weight in enumerate(mixture.weights) if weight > 0]
    chosen = [tried[whole[place]].method for place in taken]
    mixture = Mixture(mixture.weights[taken], [mixture.lines[place] for place in taken])
    out_of_fold = OutOfFold(held.labels, np.concatenate(crossed))
    return SearchResult(tried, chosen, mixture, float(figure), len(trials), out_of_fold)


class _HeldOut:
    """The held-out bags of all folds, and the logits that the candidates gave to them."""

    def __init__(self, bags: Bags, trials: Sequence[Trial], scores: Sequence[Numbers], prior: Numbers) -> None:
        self._prior = prior
        self.logits = [bounded_logit(torch.from_numpy(candidate_scores)).numpy() for candidate_scores in scores]
        self.fold = np.repeat(np.arange(len(trials)), [len(trial.score) for trial in trials])
        index = np.concatenate([trial.score for trial in trials])
        self.labels = bags.require_labels()[index]
        self._groups = None if bags.groups is None else bags.groups[index]

    def fit(self, folds: Sequence[int]) -> Mixture:
        """The mixture that is fitted on these folds."""
        inside = np.isin(self.fold, folds)
        groups = None if self._groups is None else self._groups[inside]
        logits = [x[:, inside] for x in self.logits]
        return fit_mixture(logits, self.areas(folds), self.labels[inside], groups, self._prior)

    def areas(self, folds: Sequence[int]) -> list[float]:
        """Mean AUROC of each candidate, the mean of its scorers' logits, over these folds."""
        masks = [self.fold == fold for fold in folds]
        areas = [[auroc(self.labels[mask], x[:, mask].mean(axis=0)) for mask in masks] for x in self.logits]
        return [float(np.mean(area)) for area in areas]
