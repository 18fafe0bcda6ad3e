"""Baselines on bag statistics for classes, labels, grades, numbers and times, by their names in a comparison."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests import quick
from tests.trainings import bags_with, outcome_bags

from midam.data.bags import Bags
from midam.data.statistics import bag_statistics
from midam.data.target_labels import TargetLabels
from midam.methods import statistics_models
from midam.methods.inner_folds import inner_folds
from midam.methods.statistics_models import _residuals, tree_scores
from midam.registry import BASELINES
from midam.targets import target_of
from midam.targets.survival import choose_cox
from midam.train.side import Trial

TREES = "bag-statistics-extratrees"
LINEAR = {
    "multiclass": "bag-statistics-logistic",
    "multilabel": "bag-statistics-logistic",
    "ordinal": "bag-statistics-ridge",
    "continuous": "bag-statistics-ridge",
    "survival": "bag-statistics-cox",
}


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(statistics_models, "_TREES", 25)


@pytest.mark.parametrize("target", LINEAR)
@pytest.mark.parametrize("method", ["trees", "linear"])
def test_baselines_rank_and_look_at_no_other_labels(target, method):
    bags = outcome_bags(target, 90)
    trial = Trial(np.arange(60), np.arange(60, 90), 0)
    baseline = BASELINES.find(TREES if method == "trees" else LINEAR[target])()
    scores, kind = baseline.score(bags, trial), target_of(bags)
    assert scores.shape == ((30, kind.count) if kind.count > 1 else (30,))
    assert kind.metric_value(kind.values(bags)[60:], scores) > (0.68 if target == "survival" else 0.75)
    values = bags.outcome.values.copy()
    values[60:] = values[60:][::-1]
    swapped = Bags.from_list([bags[i] for i in range(90)], outcome=TargetLabels(target, values, bags.outcome.names))
    np.testing.assert_array_equal(baseline.score(swapped, trial), scores)


def test_the_trees_and_cox_are_those_of_the_statistics():
    bags, train, test = outcome_bags("multiclass"), np.arange(40), np.arange(40, 60)
    x, values = bag_statistics(bags, np.arange(60)), bags.outcome.values
    found = BASELINES.find(TREES)().score(bags, Trial(train, test, 3))
    np.testing.assert_array_equal(found, tree_scores(target_of(bags), x[train], values[train], x[test], seed=3))
    bags = outcome_bags("survival", groups=[f"g{i // 2}" for i in range(60)])
    x, (time, event) = bag_statistics(bags, np.arange(60)), bags.outcome.values.T
    found = BASELINES.find("bag-statistics-cox")().score(bags, Trial(train, test, 3))
    model = choose_cox(x[train], time[train], event[train], groups=bags.groups[train], seed=3)
    np.testing.assert_array_equal(found, model.predict(x[test]))


@pytest.mark.parametrize("target", ["multiclass", "ordinal"])
def test_linear_models_choose_their_strength_on_inner_folds(target, monkeypatch):
    monkeypatch.setattr("midam.methods.baselines._LOGISTIC_C", quick.usual["_LOGISTIC_C"])
    bags, train, test = outcome_bags(target, 50), np.arange(40), np.arange(40, 50)
    x, y, kind = bag_statistics(bags, np.arange(50)), bags.outcome.values[:, 0], target_of(bags)

    def fitted(strength, rows, others):
        model = LogisticRegression(C=strength, max_iter=5000) if target == "multiclass" else Ridge(alpha=strength)
        model = make_pipeline(StandardScaler(), model).fit(x[rows], y[rows])
        return model.predict_proba(x[others]) if target == "multiclass" else model.predict(x[others])

    best, strengths = (-1.0, None), 10.0 ** (np.arange(-4, 3) if target == "multiclass" else np.arange(4, -4, -1))
    for strength in strengths:
        metrics = []
        for fold in inner_folds(bags, train, seed=5):
            rest = np.setdiff1d(train, fold)
            metrics.append(kind.metric_value(y[fold, None], fitted(strength, rest, fold)))
        best = max(best, (np.mean(metrics), strength), key=lambda pair: pair[0])
    found = BASELINES.find(LINEAR[target])().score(bags, Trial(train, test, 5))
    np.testing.assert_allclose(found, fitted(best[1], train, test), rtol=1e-9)


def test_classes_and_labels_that_training_bags_lack_score_zero():
    baseline = BASELINES.find("bag-statistics-logistic")()
    found = baseline.score(
        bags_with("multiclass", [0, 2] * 6, ["a", "b", "c"]), Trial(np.arange(8), np.arange(8, 12), 0)
    )
    assert (found[:, 1] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    labels = np.stack([np.arange(12) % 2, np.zeros(12)], axis=1)
    found = baseline.score(bags_with("multilabel", labels, ["p", "q"]), Trial(np.arange(8), np.arange(8, 12), 0))
    assert (found[:, 1] == 0).all()
    assert (found[:, 0] > 0).all()


def test_martingale_residuals_are_those_of_their_definition():
    rng = np.random.default_rng(0)
    values = np.stack([rng.integers(1, 8, 30).astype(float), rng.random(30) < 0.6], axis=1)
    time, event = values.T
    expected = []
    for bag in range(30):
        hazard = sum(event[other] / (time >= time[other]).sum() for other in range(30) if time[other] <= time[bag])
        expected.append(event[bag] - hazard)
    np.testing.assert_allclose(_residuals(values), expected, rtol=1e-9)
    assert sum(expected) == pytest.approx(0, abs=1e-9)
