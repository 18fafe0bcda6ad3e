"""Baselines on bag statistics for classes, labels, grades, numbers and times."""

import warnings

import numpy as np
import pytest
from tests import judging

from midam.errors import BagDataError, ConfigError
from midam.evaluate.ranking import Pairs
from midam.methods import statistics_models
from midam.methods.statistics_models import tree_scores
from midam.targets.survival import CoxRidge, _inner_folds, choose_cox


def sample(target, bags=120, seed=0):
    """Statistics, values and columns of made-up bags."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(bags, 6))
    latent = 2 * x[:, 0] + 0.5 * generator.normal(size=bags)
    if target == "multiclass":
        return x, np.digitize(latent, [-1, 1])[:, None].astype(float), 3
    if target == "multilabel":
        values = (np.stack([latent, -x[:, 1], x[:, 2]], axis=1) > 0).astype(float)
        values[generator.random(values.shape) < 0.2] = np.nan
        return x, values, 3
    if target == "ordinal":
        return x, np.digitize(latent, [-2, 0, 2])[:, None].astype(float), 1
    if target == "continuous":
        return x, latent[:, None], 1
    return x, np.stack([np.exp(-latent), generator.random(bags) < 0.6], axis=1), 1


def times(seed, bags, features, *, ties):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(bags, features)) * np.linspace(1, 5, features) + 2
    time = generator.exponential(np.exp(-x[:, 0]))
    time = np.ceil(3 * time) if ties else time
    return x, time, generator.random(bags) < 0.6


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(statistics_models, "_TREES", 40)


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "ordinal", "continuous", "survival"])
def test_a_baseline_of_each_target_ranks(target):
    x, values, columns = sample(target)
    train, test = np.arange(80), np.arange(80, 120)
    kind = judging.target(target, range(columns))
    found = tree_scores(kind, x[train], values[train], x[test], seed=0)
    assert found.shape == ((40, columns) if columns > 1 else (40,))
    assert judging.metric_value(target, values[test], found) > 0.85
    np.testing.assert_array_equal(tree_scores(kind, x[train], values[train], x[test], seed=0), found)


def test_a_class_without_training_bags_scores_zero():
    x, values, _ = sample("multiclass")
    found = tree_scores(judging.target("multiclass", "abcd"), x[:80], 2 * (values[:80] > 0), x[80:], seed=0)
    assert (found[:, [1, 3]] == 0).all()
    assert found[:, 2].std() > 0.1
    labels = np.stack([values[:, 0] > 0, np.ones(120), np.full(120, np.nan)], axis=1)
    found = tree_scores(judging.target("multilabel", "abc"), x[:80], labels[:80], x[80:], seed=0)
    assert (found[:, 1] == 1).all()
    assert (found[:, 2] == 0).all()


def test_a_small_ridge_is_the_regression_of_lifelines():
    x, time, event = times(0, 150, 3, ties=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lifelines, about newer pandas
        import pandas as pd
        from lifelines import CoxPHFitter

        frame = pd.DataFrame(x).assign(time=time, event=event)
        expected = CoxPHFitter().fit(frame, "time", "event").params_.to_numpy()
    model = CoxRidge(1e-9).fit(x, time, event)
    np.testing.assert_allclose(model.coef_ / model.scale_, expected, rtol=1e-3)  # lifelines stops early


@pytest.mark.parametrize("features", [3, 60])
@pytest.mark.parametrize("ties", [False, True])
def test_the_gradient_of_the_loss_is_zero_by_a_loop(features, ties):
    x, time, event = times(1, 40, features, ties=ties)
    model = CoxRidge(0.3).fit(x, time, event)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    hazard = np.exp(z @ model.coef_)
    gradient = 0.3 * model.coef_
    for bag in np.flatnonzero(event):
        at_risk = time >= time[bag]
        gradient -= (z[bag] - hazard[at_risk] @ z[at_risk] / hazard[at_risk].sum()) / event.sum()
    np.testing.assert_allclose(gradient, 0, atol=1e-6)
    np.testing.assert_allclose(model.predict(x), z @ model.coef_, rtol=1e-9, atol=1e-12)


def test_a_ridge_against_noise_is_chosen_strong():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(100, 80))
    time = generator.exponential(np.exp(-1.5 * x[:, 0]))
    model = choose_cox(x, time, np.ones(100))
    assert model.l2 > 0.05
    later = generator.normal(size=(400, 80))
    after = generator.exponential(np.exp(-1.5 * later[:, 0]))
    weak = CoxRidge(1e-3).fit(x, time, np.ones(100))
    found, other = (Pairs.of_times(after, np.ones(400)).concordance(m.predict(later)) for m in (model, weak))
    assert found > other
    assert found > 0.65


def test_inner_folds_keep_groups_and_spread_events():
    event = np.zeros(60, dtype=bool)
    event[:12] = True
    units = np.arange(60) // 2
    folds = _inner_folds(event, units, seed=0)
    assert all(np.unique(folds[units == unit]).size == 1 for unit in range(30))
    assert (np.bincount(folds[event], minlength=5) > 0).all()
    assert folds.max() == 4
    lone = np.arange(60) == 0
    assert _inner_folds(lone, units, seed=0).max() == 0
    x = np.random.default_rng(0).normal(size=(60, 2))
    assert choose_cox(x, np.arange(1, 61), lone, groups=units).l2 == 1.0


def test_what_cannot_be_used():
    x, values, _ = sample("survival", bags=10)
    with pytest.raises(BagDataError, match="a bag with an event"):
        CoxRidge(1.0).fit(x, values[:, 0], np.zeros(10))
    with pytest.raises(ConfigError, match="a ridge above 0"):
        CoxRidge(0.0)
