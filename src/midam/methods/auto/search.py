"""The search of `auto`: score candidates by inner cross-validation of the training bags, and mix the best."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit, logit

from midam.data.bags import Bags
from midam.errors import CheckpointError, ConfigError
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import PRIOR, SEARCH, Candidate
from midam.methods.callbacks import QUIET
from midam.methods.inner_folds import MANY, inner_trials
from midam.methods.store import Row, TrialStore
from midam.reading import Form, Number, Share, check_form
from midam.targets import OutOfFold
from midam.train.side import Prepare, Trial

Numbers = NDArray[np.float64]
_Tell = Callable[[float], None]  # called with the share of the folds that are done
_LEAST = 0.03
_FLAT = 0.5  # deviation of logits on the line of scores that rank no better than chance


@dataclass(frozen=True, eq=False)
class Line:
    """Probability of a candidate: the mean over its scorers of ``sigmoid(slope logit + intercept)`` with slope > 0."""

    slope: float = 1.0
    intercept: float = 0.0

    def probabilities(self, logits: Numbers) -> Numbers:
        """Return probabilities [n] for logits [M, n] of M scorers."""
        return expit(self.slope * logits + self.intercept).mean(axis=0)


def fit_line(logits: Numbers, labels: NDArray[np.int64]) -> Line:
    """Fit Platt's line (1999) on logits [M, n] of held-out bags.

    If they rank no better than chance, the line is nearly flat: it keeps the order, with a deviation of 1/2 around the
    share of positive bags.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a warning about such logits
        calibrator = PlattCalibrator.fit(logits.ravel(), np.tile(labels, len(logits)), raw=True)
    if not calibrator.ranks:
        slope = _FLAT / (float(logits.std()) or 1.0)
        return Line(slope, float(logit(labels.mean()) - slope * logits.mean()))
    slope = calibrator.slope / calibrator.scale
    return Line(slope, calibrator.intercept - slope * calibrator.center)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights [C] >= 0 with sum 1, and the line of each of C candidates."""

    weights: Numbers
    lines: list[Line]

    def scores(self, logits: Sequence[Numbers]) -> Numbers:
        """Return scores [n] in [0, 1] for the logits [M, n] of each candidate."""
        return self.weights @ np.array([line.probabilities(x) for line, x in zip(self.lines, logits)])


def prior_weights(methods: Sequence[str], prior: Mapping[str, float] = PRIOR) -> Numbers:
    """Return prior weights [C] of methods with sum 1; a method that is not in `prior` gets the mean weight."""
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
    """Fit lines and weights to logits [M, n] of C candidates on held-out bags.

    The weight of a candidate is proportional to its prior weight times the p-value of the test that its AUROC equals
    that of the best candidate (`paired_delong` of the probabilities). If the bags cannot distinguish the candidates,
    the prior decides; a clearly worse candidate gets almost no weight. A weight below 0.03 becomes 0, which spares its
    training on all bags. A candidate at chance is no exception: of few bags, a good one may be.

    Parameters
    ----------
    logits : sequence of array [M, n]
        Logits of each candidate; the number of scorers M may differ.
    areas : sequence of float
        AUROC of each candidate within the folds. The best candidate is the first with the highest AUROC.
    labels, groups : array [n]
        Labels and groups of the bags.
    prior : array [C], optional
        Prior weights; default: equal weights.
    """
    before = np.full(len(logits), 1 / len(logits)) if prior is None else prior
    lines = [fit_line(x, labels) for x in logits]
    shares = [line.probabilities(x) for line, x in zip(lines, logits)]
    best = shares[int(np.argmax(areas))]
    weights = before * [paired_delong(labels, best, share, groups=groups)[3] for share in shares]
    weights = np.where(weights < _LEAST * weights.sum(), 0.0, weights)
    return Mixture(weights / weights.sum(), lines)


DIVERGED = "left out: a training diverged"
SETTLED = "not tried: the AUROC of {} is at least {:g}"
BEHIND = "stopped: behind {} after {} of {} folds (p < {})"
_FAR_BEHIND = 0.01  # p-value
_BLOCK = 3  # folds of a block


@dataclass(frozen=True)
class Tried:
    """A candidate and its result.

    Attributes
    ----------
    method : str
        Name of the candidate.
    auroc : float, optional
        Mean AUROC of the held-out bags over the inner folds; None for the reason in `note`.
    seconds : float
        Time of the inner cross-validation.
    weight : float
        Weight in the model, in [0, 1].
    note : str, optional
        Reason why it was not tried, or left out.
    epochs : int, optional
        Number of epochs that the inner folds chose, for a method that is trained in epochs.
    interval : list of two floats, optional
        95% interval of `auroc`; None if a fold has a single bag of a class.
    by_fold : list of float, optional
        AUROC of the held-out bags of each fold.
    """

    method: str
    auroc: float | None = None
    seconds: float = 0.0
    weight: float = 0.0
    note: str | None = None
    epochs: int | None = None
    interval: list[float] | None = None
    by_fold: list[float] | None = None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes
    ----------
    tried : list of Tried
        All candidates, in order.
    taken : list of str
        Names of candidates with a weight, in order.
    mixture : Mixture
        Mixture of these candidates.
    auroc : float, optional
        Mean AUROC of the mixture over the folds; what a fold is scored with was chosen without it.
    folds : int
        Number of inner folds; 0 if the training bags are too few, in which case all candidates are taken untested.
    out_of_fold : OutOfFold, optional
        Scores of the held-out bags by these mixtures.
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
    journal: Path | None = None,
    on_candidate: Callable[[str, int, int, float], None] = QUIET.on_candidate,
    trials: Sequence[Trial] | None = None,
    prepare: Prepare | None = None,
) -> SearchResult:
    """Score each candidate on bags held out from its training, and mix the best.

    Parameters
    ----------
    candidates : sequence of Candidate
        At least one, in the order of the trials. One is not tried if another before it has a mean AUROC that is
        `enough`. For more than 500 bags, a candidate stops once its folds are behind the best before it with p < 0.01.
    bags : Bags
        Training bags of both classes; the inner folds are stratified and disjoint by group.
    seed : int
        Seed of folds, weights and sampling.
    journal : Path, optional
        File of finished candidates, with which a second call continues.
    on_candidate : callable, optional
        As in `midam.methods.callbacks.Callbacks`.
    trials : sequence of Trial, optional
        Folds of a cross-validation, each with the bags to train on and to score. Epochs, weights and lines for a fold
        then come from trainings that have seen none of its bags, see `block_trials`. Default: the inner folds of these
        bags, where the other folds choose the epochs and weights for a fold.
    prepare : callable, optional
        As in `Candidate.held_out`.
    """
    blocks = None if trials is None else block_trials(bags, trials)
    trials = inner_trials(bags, np.arange(len(bags)), seed=seed) if trials is None else trials
    every = [*trials, *(block.trial for block in blocks or ())]
    if not trials:
        names = [candidate.name for candidate in candidates if candidate.name != SEARCH]  # no other is known to fail
        mixture = Mixture(prior_weights(names), [Line()] * len(names))
        tried = [Tried(name, weight=float(weight)) for name, weight in zip(names, mixture.weights)]
        return SearchResult(tried, names, mixture, None, 0)
    rows: list[Row] = []
    with TrialStore(journal) as store:
        for number, candidate in enumerate(candidates):
            tell = partial(on_candidate, candidate.name, number, len(candidates))
            tell(0.0)
            done = [(_area(bags, trials, row), row) for row in rows if row["scores"] is not None]
            area, best = max(done, key=itemgetter(0), default=(0.0, None))
            if best is not None and area >= candidate.enough:
                note = SETTLED.format(best["method"], candidate.enough)
                rows.append({"method": candidate.name, "note": note, "scores": None, "seconds": 0.0})
                continue
            name = {"method": candidate.name, "of": candidate.digest(bags, seed=seed)}
            (row,) = store.find([name])
            if row is None:
                races = best if len(bags) > MANY and blocks is None else None
                row = {**name, **_try_candidate(candidate, bags, every, tell, prepare=prepare, best=races)}
                store.add([row])
            elif journal is not None:
                _check_row(row, every, journal)
            rows.append(row)
    return mix(bags, trials, rows, blocks=blocks)


class Block(NamedTuple):
    """Some folds, and the training without any of them that scores their bags, one fold after the other."""

    folds: tuple[int, ...]
    trial: Trial


def block_trials(bags: Bags, trials: Sequence[Trial]) -> list[Block]:
    """Return blocks of folds: each three that follow each other in a ring, or each two of fewer than five folds.

    One training serves the choice for each fold of a block: it scores the others, and has seen none of them. So up to
    four neighbors choose for a fold. A block whose other folds cannot be trained on is left out.
    """
    count, blocks = len(trials), list[Block]()
    of_blocks: Iterable[tuple[int, ...]] = combinations(range(count), 2)
    if count >= _BLOCK + 2:
        of_blocks = (tuple((first + ahead) % count for ahead in range(_BLOCK)) for first in range(count))
    for folds in of_blocks:
        held = np.concatenate([trials[fold].score for fold in folds])
        kept = np.setdiff1d(trials[folds[0]].train, held)
        if len(kept) and len(np.unique(bags.require_labels()[kept])) == 2:
            blocks.append(Block(folds, Trial(kept, held, trials[folds[0]].seed)))
    return blocks


def _try_candidate(
    candidate: Candidate, bags: Bags, trials: Sequence[Trial], tell: _Tell, *, prepare: Prepare | None, best: Row | None
) -> Row:
    """Return the row of a candidate: scores of the held-out bags, and seconds."""
    started, held, note = time.perf_counter(), list[Numbers](), None
    try:
        for scores in candidate.held_out(bags, trials, prepare=prepare):
            held.append(scores)
            tell(len(held) / len(trials))
            if best is not None and len(held) < len(trials) and _is_behind(bags, trials, held, best):
                note = BEHIND.format(best["method"], len(held), len(trials), _FAR_BEHIND)
                break
    except ConfigError as error:  # data that it does not take, such as too thin volumes
        note = f"left out: {error}"
    row: Row = {"note": note, "scores": None, "seconds": time.perf_counter() - started}
    if note is not None:
        return row
    # A training that diverged has no scores after its last epochs.
    known = np.all([np.isfinite(scores).all(axis=1) for scores in held], axis=0)
    if not known.any():
        return {**row, "note": DIVERGED}
    after = [count for count, finite in zip(candidate.epochs, known) if finite] if candidate.baseline is None else None
    return {**row, "after": after, "scores": [scores[known].tolist() for scores in held]}


def _area(bags: Bags, trials: Sequence[Trial], row: Row) -> float:
    """Return the mean AUROC of a candidate after the epochs that the folds choose."""
    areas = areas_of(bags.require_labels(), trials, row["scores"])
    return float(areas.mean(axis=0)[best_epochs(areas)])


def _is_behind(bags: Bags, trials: Sequence[Trial], scores: Sequence[Numbers], best: Row) -> bool:
    """Return whether the best numbers of epochs of the first folds rank their bags far worse than another candidate.

    Both are compared after the epochs that these folds rank highest.
    """
    labels, done, compared = bags.require_labels(), trials[: len(scores)], list[Numbers]()
    sizes = [len(trial.score) for trial in done]
    for parts in (scores, best["scores"][: len(scores)]):
        at = int(areas_of(labels, done, parts).mean(axis=0).argmax())
        compared.append(np.concatenate([np.asarray(part)[at] for part in parts]))
    if not all(np.isfinite(each).all() for each in compared):
        return False
    held, folds = np.concatenate([trial.score for trial in done]), np.repeat(np.arange(len(done)), sizes)
    groups = None if bags.groups is None else bags.groups[held]
    gain, *_, p = paired_delong(labels[held], *compared, groups=groups, folds=folds)
    return gain < 0 and p < _FAR_BEHIND


def areas_of(labels: NDArray[np.int64], trials: Sequence[Trial], scores: Sequence[Any]) -> Numbers:
    """Return the AUROC [T, A] of the scores [A, n] of each trial; 0 where they are not finite."""
    return np.array(
        [
            [auroc(labels[trial.score], row) if np.isfinite(row).all() else 0.0 for row in np.asarray(part)]
            for trial, part in zip(trials, scores)
        ]
    )


def best_epochs(areas: Numbers) -> int:
    """Return the position of the best of A numbers of epochs by the AUROCs [T, A] of T folds.

    Fewer epochs than all are taken only if they gain more than the standard error of the gain over the folds.
    """
    gain = areas - areas[:, -1:]
    error = gain.std(axis=0, ddof=1) / np.sqrt(len(areas)) if len(areas) > 1 else np.zeros(areas.shape[1])
    gained = np.where(gain.mean(axis=0) > error, gain.mean(axis=0), 0.0)
    return len(gained) - 1 - int(gained[::-1].argmax())


class _Row(Form):
    """A line of candidates.jsonl without its key fields."""

    note: str | None
    scores: list[list[list[Share]]] | None
    after: list[Annotated[int, Field(ge=1)]] | None = None
    seconds: Annotated[Number, Field(ge=0)]


def _check_row(row: Row, trials: Sequence[Trial], journal: Path) -> None:
    """Refuse a line of a journal that does not match these trials."""
    advice = "remove the line to try the method again"
    check_form(row, _Row, journal, expected="a method that was tried", advice=advice)
    numbers = len(row.get("after") or [0])
    counts = [[len(scores) for scores in trial_scores] for trial_scores in row["scores"] or ()]
    if row["scores"] is not None and counts != [[len(trial.score)] * numbers for trial in trials]:
        raise CheckpointError(
            f"Expected one score for each of {sum(len(trial.score) for trial in trials)} held-out bags, got others (in "
            f"{journal}, method {row['method']}); {advice}."
        )


def mix(
    bags: Bags,
    trials: Sequence[Trial],
    rows: Sequence[Row],
    *,
    prior: Mapping[str, float] = PRIOR,
    blocks: Sequence[Block] | None = None,
) -> SearchResult:
    """Mix the candidates that were tried to the end.

    A row holds `method`, `seconds`, `note`, `after` and `scores`: [A, n] of the n bags that each trial, then each block
    scores, after each of the A numbers of epochs in `after`, or None. `prior` are the prior weights of methods.

    With `blocks`, the mixture of a fold is chosen by trainings that have not seen it, as in a nested cross-validation;
    without a block it has the prior weights. Else the other folds choose epochs and weights, with the lines of all
    folds. The models of other folds have seen its bags, so that the AUROC is then too high.
    """
    whole = [number for number, row in enumerate(rows) if row["scores"] is not None]
    if not whole:
        why = "; ".join(f"{row['method']}: {row['note']}" for row in rows)
        raise ConfigError(f"Expected a method that takes these bags, got none ({why}); name another with `method`.")
    before = prior_weights([rows[number]["method"] for number in whole], prior)
    held = _HeldOut(bags, trials, [rows[number]["scores"] for number in whole], before)
    every = np.arange(len(trials))
    fold_count = 1 + round(len(trials[0].train) / len(trials[0].score)) if trials else None  # of which some are run
    final = held.choice(every)
    crossed = []
    for fold in every.tolist():
        choosing, by = (held, every[every != fold]) if blocks is None else held.without(fold, blocks)
        choice = choosing.choice(by)
        lines = choosing.lines(choice)
        crossed.append(held.scores(choice, lines, fold))
    figure = np.mean([auroc(held.labels[held.fold == fold], each) for fold, each in enumerate(crossed)])
    tried = [Tried(row["method"], seconds=row["seconds"], note=row["note"]) for row in rows]
    for place, number in enumerate(whole):
        after, at = rows[number].get("after"), final.epochs[place]
        logits = held.logits[place][at]
        known: dict[str, Any] = {"groups": held.groups, "folds": held.fold, "fold_count": fold_count}
        tried[number] = replace(
            tried[number],
            auroc=final.areas[place],
            weight=float(final.weights[place]),
            epochs=None if after is None else after[at],
            interval=list(auroc_interval(held.labels, logits, **known)[:2]),
            by_fold=held.areas[place][:, at].tolist(),
        )
    taken = np.flatnonzero(final.weights > 0).tolist()
    lines = held.lines(final)
    mixture = Mixture(final.weights[taken], [lines[place] for place in taken])
    chosen = [tried[whole[place]].method for place in taken]
    out_of_fold = OutOfFold(held.labels, np.concatenate(crossed), held.fold, held.groups)
    return SearchResult(tried, chosen, mixture, float(figure), len(trials), out_of_fold)


class _Choice(NamedTuple):
    """What some folds chose: of each candidate the position of its epochs, its mean AUROC then, and its weight."""

    epochs: list[int]
    areas: list[float]
    weights: Numbers


class _HeldOut:
    """The held-out bags of all folds, and the candidates' logits [A, N] for them.

    `scores` holds those of the trials, then those of blocks.
    """

    def __init__(self, bags: Bags, trials: Sequence[Trial], scores: Sequence[Sequence[Any]], prior: Numbers) -> None:
        labels = bags.require_labels()
        self._bags, self._trials, self._scores = bags, trials, scores
        self._prior = prior
        self._line = cache(lambda place, at: fit_line(self.logits[place][[at]], self.labels))
        self.areas = [areas_of(labels, trials, parts) for parts in scores]
        parts_of = [[np.asarray(part, dtype=np.float64) for part in parts[: len(trials)]] for parts in scores]
        joined = [np.concatenate(parts, axis=1) for parts in parts_of]
        self.logits = [bounded_logit(torch.from_numpy(x)).numpy() for x in joined]
        self.fold = np.repeat(np.arange(len(trials)), [len(trial.score) for trial in trials])
        index = np.concatenate([trial.score for trial in trials])
        self.labels = labels[index]
        self.groups = None if bags.groups is None else bags.groups[index]

    def choice(self, folds: NDArray[np.int64]) -> _Choice:
        """Choose epochs and weights on these folds; without folds all epochs and the prior weights."""
        if not len(folds):
            return _Choice([x.shape[1] - 1 for x in self.areas], [], self._prior)
        inside = np.isin(self.fold, folds)
        epochs = [best_epochs(areas[folds]) for areas in self.areas]
        areas = [float(each[folds, at].mean()) for each, at in zip(self.areas, epochs)]
        logits = [x[[at]][:, inside] for x, at in zip(self.logits, epochs)]
        groups = None if self.groups is None else self.groups[inside]
        return _Choice(epochs, areas, fit_mixture(logits, areas, self.labels[inside], groups, self._prior).weights)

    def scores(self, choice: _Choice, lines: list[Line], fold: int) -> Numbers:
        """Return the scores of the bags of a fold by this choice and these lines."""
        inside = self.fold == fold
        return Mixture(choice.weights, lines).scores([x[[at]][:, inside] for x, at in zip(self.logits, choice.epochs)])

    def without(self, fold: int, blocks: Sequence[Block]) -> "tuple[_HeldOut, NDArray[np.int64]]":
        """Return the held-out bags of the other folds of its blocks, by trainings without a fold, and their numbers."""
        inner, at = dict[int, Trial](), dict[int, tuple[int, slice]]()
        for number, block in enumerate(blocks, start=len(self._trials)):
            ends = np.cumsum([len(self._trials[other].score) for other in block.folds]).tolist()
            for other, low, high in zip(block.folds, [0, *ends], ends):
                if fold in block.folds and other != fold and other not in inner:
                    inner[other] = Trial(block.trial.train, self._trials[other].score, block.trial.seed)
                    at[other] = number, slice(low, high)
        if not inner:
            return self, np.arange(0)
        scores = [[np.asarray(parts[number])[:, part] for number, part in at.values()] for parts in self._scores]
        return _HeldOut(self._bags, list(inner.values()), scores, self._prior), np.arange(len(inner))

    def lines(self, choice: _Choice) -> list[Line]:
        """Return the line of each candidate after these epochs, fitted on all folds; equal ones if no fold chose."""
        if not choice.areas:
            return [Line()] * len(choice.epochs)
        return [self._line(place, at) for place, at in enumerate(choice.epochs)]
