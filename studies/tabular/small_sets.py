"""`python -m studies small-sets`: how `auto` should weight its methods when there are 40 bags.

**Question.** Five folds of 40 bags hardly tell methods apart. Does the choice of weights help there, or would the prior
weights alone rank new bags better?

**Rule of decision**, written when two of the ten draws of each set had been seen: another form of the weights is taken
if the mean AUROC over the kinds is then higher, whichever kind is left out, and no set loses more than 0.01. It was
written for `min(1, 2 p) within folds`, which lost more on one set of made-up bags. The two other forms are parts of it,
and were judged by the same rule on the same draws; of those that pass, the one that changes least is taken.

**Trials.** Of each set of the study `defaults` with enough bags, ten draws of 20 positive and 20 negative bags; up to
600 of the others judge. Each method of `auto` is scored by inner folds, and fitted to the 40 bags. Nothing is tuned.
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from midam.compare.plan import single_threaded
from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.evaluate.calibrate import PlattCalibrator
from midam.evaluate.intervals import paired_delong
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.functional.poolings import bounded_logit
from midam.methods.auto.candidates import VECTORS, make_candidate
from midam.methods.auto.search import Mixture, areas_of, best_epochs, fit_line, fit_mixture, prior_weights
from midam.methods.inner_folds import inner_trials
from midam.methods.store import Row
from midam.nn.scorer import BagEnsemble
from studies.engine import Store, complete, trial_name
from studies.options import StudyOptions
from studies.page import section, table, write_page
from studies.registry import as_study
from studies.sets import catalog
from studies.split_statistics import mean_interval
from studies.synthetic import synthetic_sets
from studies.tabular.defaults_trials import KINDS, SYNTHETIC

NAME = "small-sets"
BEFORE, NOW, FOLDS, TWICE = "p, 0 at chance", "p", "p within folds", "min(1, 2 p) within folds"
PRIOR_ALONE, BEST = "the prior alone", "the best alone"
_EACH, _JUDGES, _DRAWS, _SYNTHETIC_BAGS, _SYNTHETIC_SEED = 20, 600, 10, 400, 7
_MOST_LOST, _LEAST = 0.01, 0.01

Scores = NDArray[np.float64]
Labels = NDArray[np.int64]
Task = tuple[str, int]  # set and draw


@cache
def _bags(name: str) -> Bags:
    if name in KINDS[SYNTHETIC]:
        return synthetic_sets(bags=_SYNTHETIC_BAGS, seed=_SYNTHETIC_SEED)[name]
    return catalog.load(name)


def score_draw(task: Task) -> list[Row]:
    """Return the AUROC of new bags by each rule, and by each method alone."""
    name, draw = task
    bags, random = _bags(name), np.random.default_rng([draw, 3])
    labels = bags.require_labels()
    drawn = np.concatenate([random.permutation(np.flatnonzero(labels == label))[:_EACH] for label in (0, 1)])
    rest = random.permutation(np.setdiff1d(np.arange(len(bags)), drawn))[:_JUDGES]
    some, new = bags.subset(np.sort(drawn)), bags.subset(np.sort(rest))
    trials = inner_trials(some, np.arange(len(some)), seed=draw)
    inner, scores = list[list[Scores]](), list[list[Scores]]()
    with warnings.catch_warnings(action="ignore"), single_threaded():
        for method in VECTORS:
            candidate = make_candidate(method, some.instance_shape, len(some))
            held = list(candidate.held_out(some, trials))
            at = best_epochs(areas_of(some.require_labels(), trials, held))
            epochs = candidate.epochs[at] if candidate.baseline is None else None
            scorers = candidate.fit(some, seed=draw, epochs=epochs)
            inner.append([of_trial[at] for of_trial in held])
            scores.append([predict(BagEnsemble([scorer]), new) for scorer in scorers])
    parts = [some.require_labels()[trial.score] for trial in trials]
    return [{"auroc": judged(parts, inner, new.require_labels(), scores)}]


def judged(
    labels: Sequence[Labels], inner: Sequence[Sequence[Scores]], new: Labels, scores: Sequence[Sequence[Scores]]
) -> dict[str, float]:
    """Return the AUROC of the new bags by each rule and method.

    `labels` and `inner` are those of the bags of each fold, `inner` and `scores` of each method; `scores` of each
    scorer.
    """
    known, folds = np.concatenate(labels), np.repeat(np.arange(len(labels)), [len(part) for part in labels])
    logits = [_logits(np.concatenate(parts)[None]) for parts in inner]
    areas = [float(np.mean([auroc(y, x) for y, x in zip(labels, parts)])) for parts in inner]
    on_new, prior = [_logits(np.stack(parts)) for parts in scores], prior_weights(VECTORS)
    mixture = fit_mixture(logits, areas, known, None, prior)
    shares, best = [line.probabilities(x) for line, x in zip(mixture.lines, logits)], int(np.argmax(areas))
    alike = np.array([paired_delong(known, shares[best], share, folds=folds)[3] for share in shares])
    weights = {
        BEFORE: _earlier(logits, areas, known, prior),
        NOW: mixture.weights,
        FOLDS: _scaled(prior * alike),
        TWICE: _scaled(prior * np.minimum(1, 2 * alike)),
        PRIOR_ALONE: prior,
        BEST: np.eye(len(areas))[best],
    }
    found = {rule: auroc(new, Mixture(each, mixture.lines).scores(on_new)) for rule, each in weights.items()}
    return found | {method: auroc(new, x.mean(axis=0)) for method, x in zip(VECTORS, on_new)}


def _logits(scores: Scores) -> Scores:
    return bounded_logit(torch.from_numpy(scores)).numpy()


def _scaled(weights: Scores) -> Scores:
    kept = np.where(weights < _LEAST * weights.sum(), 0.0, weights)
    return np.asarray(kept / kept.sum())


def _earlier(logits: Sequence[Scores], areas: Sequence[float], labels: Labels, prior: Scores) -> Scores:
    """Return the weights by p over all folds at once, without methods whose pooled scores are at chance."""
    shares = [fit_line(x, labels).probabilities(x) for x in logits]
    with warnings.catch_warnings(action="ignore"):
        ranks = np.array([PlattCalibrator.fit(x[0], labels, raw=True).ranks for x in logits])
    if not ranks.any():
        return prior
    best = shares[int(np.argmax(np.where(ranks, areas, -1.0)))]
    weights = prior * ranks * [paired_delong(labels, best, share)[3] for share in shares]
    return _scaled(weights)


@as_study("weights of `auto` for 40 bags", store=NAME)
def run(options: StudyOptions) -> None:
    """Run the study and write its page."""
    kinds = {kind: tuple(name for name in names if name != "colon_nuclei") for kind, names in KINDS.items()}
    kinds = {kind: own for kind, own in kinds.items() if own}
    if options.smaller:
        kinds = {name: (name,) for name in KINDS[SYNTHETIC][:2]}
    tasks = [(name, draw) for draw in range(1 if options.smaller else _DRAWS) for own in kinds.values() for name in own]
    groups = [Group([trial_name(NAME, set=name, draw=draw)], [(name, draw)]) for name, draw in tasks]
    with Store(options.cache, NAME) as store:
        complete(groups, score_draw, store=store, options=options, section=NAME)
        rows = [row for group in groups for row in store.find(group.names) if row is not None]
        write_page(
            options,
            NAME,
            title="Weights of `auto` for 40 bags",
            shows="Five folds of 40 bags hardly tell methods apart. Does the choice of weights help there?",
            seeds="0 to 9, of draws, folds and methods",
            seconds=store.wall_time(),
            store=store,
            body=body(rows, kinds),
        )


def body(rows: Sequence[Row], kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sections of the page."""
    columns = list(rows[0]["auroc"])
    of_set = {
        name: {rule: np.array([row["auroc"][rule] for row in rows if row["set"] == name]) for rule in columns}
        for own in kinds.values()
        for name in own
    }
    lines = [[name, *(f"{means[rule].mean():.3f}" for rule in columns)] for name, means in of_set.items()]
    by_kind = {
        rule: [float(np.mean([of_set[name][rule].mean() for name in own])) for own in kinds.values()]
        for rule in columns
    }
    lines.append(["mean of the kinds", *(f"{np.mean(by_kind[rule]):.3f}" for rule in columns)])
    decided = [[form, *_verdict(form, of_set, by_kind)] for form in (NOW, FOLDS, TWICE)]
    return [
        *section(
            "What ranks new bags",
            f"Mean test AUROC over {len(rows) // len(of_set)} draws. `{BEFORE}`: the earlier weights, p of all bags at "
            f"once, and 0 for what ranks them no better than chance. `{NOW}`: without that exception, as in `auto`.",
            table(["set", *columns], lines),
        ),
        *section(
            "Decision",
            f"Minus `{BEFORE}`: mean over the kinds with its interval, the least mean with a kind left out, the worst "
            "set. The rule is in `studies/tabular/small_sets.py`.",
            table(["weights", "over the kinds", "without a kind", "worst set", "passes"], decided),
        ),
    ]


def _verdict(
    form: str, of_set: Mapping[str, Mapping[str, Scores]], by_kind: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return the cells of a form of the weights."""
    gains = [new - old for new, old in zip(by_kind[form], by_kind[BEFORE])]
    without = min(float(np.mean(np.delete(gains, at))) for at in range(len(gains)))
    worst = min(float((means[form] - means[BEFORE]).mean()) for means in of_set.values())
    passes = "yes" if without > 0 and worst >= -_MOST_LOST else "no"
    return [f"{mean_interval(gains, bounds=(-1.0, 1.0)):+}", f"{without:+.3f}", f"{worst:+.3f}", passes]
