"""Plain methods on statistics of bags, for the labels of any target.

What they choose, they choose by the mean metric of the target over inner folds of the training bags, which are disjoint
by group; the first of equals is taken.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from midam.compare.fitted import tree_offset
from midam.compare.folds import Positions, inner_folds
from midam.data.bags import Bags
from midam.evaluate import kaplan_meier
from midam.targets import Target, target_of
from midam.targets.cox import choose_cox
from midam.train.lockstep import Trial

Scores = NDArray[np.float64]
Statistics = Callable[[Bags, Positions], Scores]
# Of a strength, rows and labels of training bags, and rows of others: their scores, [n] or [n, C].
Fit = Callable[[float, Scores, Scores, Scores], Scores]

_TREES = 500
_RIDGES = 10.0 ** np.arange(4, -4, -1)
_MAX_ITERATIONS = 5000


def tree_scores(target: Target, x: Scores, values: NDArray[Any], scored: Scores, *, seed: int) -> Scores:
    """Scores [n] or [n, C] of 500 extremely randomized trees (Geurts et al. 2006), fitted to statistics of bags.

    Of classes and labels they are probabilities, of labels by a forest each, of the bags whose entry is known; a class
    without training bags scores 0, a label of one kind its share. Of grades and numbers they are what the trees
    predict. Of survival the trees predict the martingale residuals of the training bags: events less the cumulative
    hazard at a bag's time, so that who has the event early is above 0 (Therneau, Grambsch and Fleming 1990, Biometrika
    77:147).

    Parameters
    ----------
    target : Target
        What the bags are ranked by.
    x, values : array, shape [N, D] and [N] or [N, L]
        Statistics of the training bags, and their labels as `Target.values` has them.
    scored : array, shape [n, D]
        Statistics of the bags to score.
    seed : int
        Of the trees.
    """
    offset = tree_offset(x)
    if offset is not None:
        x, scored = x - offset, scored - offset
    if target.pairs == "binary":
        return _shares(x, values, scored, count=2, seed=seed)[:, 1]
    if target.pairs == "classes":
        return _shares(x, values[:, 0].astype(np.int64), scored, count=target.count, seed=seed)
    if target.pairs == "labels":
        return np.stack([_of_label(x, column, scored, seed=seed) for column in values.T], axis=1)
    numbers = _residuals(values) if target.pairs == "survival" else values[:, 0]
    return np.asarray(ExtraTreesRegressor(_TREES, random_state=seed).fit(x, numbers).predict(scored), dtype=np.float64)


def make_forest(*, seed: int) -> ExtraTreesClassifier:
    """The trees of classes, unfitted."""
    return ExtraTreesClassifier(_TREES, random_state=seed)


def _shares(x: Scores, codes: NDArray[np.int64], scored: Scores, *, count: int, seed: int) -> Scores:
    forest = make_forest(seed=seed).fit(x, codes)
    shares = np.zeros((len(scored), count))
    shares[:, forest.classes_] = forest.predict_proba(scored)
    return shares


def _of_label(x: Scores, label: Scores, scored: Scores, *, seed: int) -> Scores:
    known = np.isfinite(label)
    if np.unique(label[known]).size == 2:
        return _shares(x[known], label[known].astype(np.int64), scored, count=2, seed=seed)[:, 1]
    return np.full(len(scored), label[known][0] if known.any() else 0.0)


def logistic_scores(statistics: Statistics, bags: Bags, trial: Trial, strengths: NDArray[Any]) -> Scores:
    """Scores [n, C] of logistic regression, of several classes at once, or of each label; C of `strengths` is chosen.

    A class without training bags scores 0, and so does a label of one kind.
    """
    target = target_of(bags)

    def of_classes(strength: float, x: Scores, y: Scores, test: Scores) -> Scores:
        fitted, found = _logistic(strength).fit(x, y[:, 0].astype(np.int64)), np.zeros((len(test), target.count))
        found[:, fitted.classes_] = fitted.predict_proba(test)
        return found

    def of_labels(strength: float, x: Scores, y: Scores, test: Scores) -> Scores:
        found = np.zeros((len(test), target.count))
        for column, label in enumerate(y.T):
            known = np.isfinite(label)
            if len(np.unique(label[known])) > 1:
                found[:, column] = _logistic(strength).fit(x[known], label[known]).predict_proba(test)[:, 1]
        return found

    return _chosen(of_classes if target.pairs == "classes" else of_labels, strengths, statistics, bags, trial)


def ridge_scores(statistics: Statistics, bags: Bags, trial: Trial) -> Scores:
    """Grades or numbers [n] by ridge regression."""

    def fit(strength: float, x: Scores, y: Scores, test: Scores) -> Scores:
        model = make_pipeline(StandardScaler(), Ridge(alpha=strength))
        return np.asarray(model.fit(x, y[:, 0]).predict(test))

    return _chosen(fit, _RIDGES, statistics, bags, trial)


def cox_scores(statistics: Statistics, bags: Bags, trial: Trial) -> Scores:
    """Log hazards [n] of Cox regression, see `choose_cox`."""
    time, event = target_of(bags).values(bags)[trial.train].T
    groups = None if bags.groups is None else bags.groups[trial.train]
    model = choose_cox(statistics(bags, trial.train), time, event, groups=groups, seed=trial.seed)
    return model.predict(statistics(bags, trial.score))


def _logistic(strength: float) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS))


def _chosen(fit: Fit, strengths: NDArray[Any], statistics: Statistics, bags: Bags, trial: Trial) -> Scores:
    """Scores with the strength of the best mean metric over inner folds; without folds, that in the middle."""
    target = target_of(bags)
    x, y = statistics(bags, trial.train), target.values(bags)[trial.train]
    metrics: list[list[float | None]] = []
    for fold in inner_folds(bags, trial.train, seed=trial.seed):
        rest = np.setdiff1d(np.arange(len(y)), fold)
        metrics.append(
            [target.metric_value(y[fold], fit(strength, x[rest], y[rest], x[fold])) for strength in strengths]
        )
    best = int(np.argmax(np.mean(np.array(metrics, dtype=np.float64), axis=0))) if metrics else len(strengths) // 2
    return fit(strengths[best], x, y, statistics(bags, trial.score))


def _residuals(values: Scores) -> Scores:
    """Martingale residuals [n] of times and events [n, 2] without any statistics, by the Nelson-Aalen estimator."""
    time, event = values.T
    curve = kaplan_meier(time, event)
    hazard = np.cumsum(curve.events / curve.at_risk)
    return event - hazard[np.searchsorted(curve.time, time)]
