"""Baselines on bag statistics for classes, labels, grades, numbers and times, by their names in a comparison."""

import numpy as np
import pytest
from tests.trainings import outcome_bags

from midam.data.bags import Bags
from midam.data.statistics import bag_statistics
from midam.data.target_labels import TargetLabels
from midam.methods import statistics_models
from midam.methods.statistics_models import _residuals, tree_scores
from midam.registry import BASELINES
from midam.targets import target_of
from midam.targets.survival import choose_cox
from midam.train.side import Trial

TREES = "bag-statistics-extratrees"
TARGETS = ("multiclass", "multilabel", "ordinal", "continuous", "survival")


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(statistics_models, "_TREES", 25)


@pytest.mark.parametrize(
    ("target", "method"), [*((target, TREES) for target in TARGETS), ("survival", "bag-statistics-cox")]
)
def test_baselines_rank_and_look_at_no_other_labels(target, method):
    bags = outcome_bags(target, 90)
    trial = Trial(np.arange(60), np.arange(60, 90), 0)
    baseline = BASELINES.find(method)()
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
