"""Summaries of bags as mergeable statistics, and heads of plain arrays on them."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from midam.functional import summary as f
from midam.functional.logmean import BagStatistic, identity
from midam.methods import statistics_models
from midam.methods.statistics_models import fit_trees, forest_head, trees_mean
from midam.nn.pooling.summary import ChannelSummary, FeatureSummary, Linear

COLUMNS = {"reduce": partial(f.reduce_columns, kinds=f.KINDS), "merge": partial(f.merge_columns, kinds=f.KINDS)}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_two_parts_merge_to_the_whole_and_an_empty_one_changes_nothing(count):
    x = torch.from_numpy(np.random.default_rng(count).normal(size=(count, 2)))
    v = torch.cat([x, x, x, 0 * x], dim=1)
    z, one = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    whole = COLUMNS["reduce"](z, v, one, num_bags=1)
    for inside in itertools.islice(itertools.product([False, True], repeat=count), 40):
        part = torch.tensor(inside)
        segment = part.long()
        parts = COLUMNS["reduce"](z, v, segment, num_bags=2)
        merged = COLUMNS["merge"](*(BagStatistic(*(x[i : i + 1] for x in parts)) for i in (0, 1)))
        for found, wanted in zip(merged, whole):
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    empty = identity(1, v.shape[1], like=z)
    for pair in ((empty, whole), (whole, empty)):
        assert all(torch.equal(a, b) for a, b in zip(COLUMNS["merge"](*pair), whole))


def test_a_summary_is_that_of_bag_statistics():
    x = np.random.default_rng(0).normal(size=(9, 3)) + 1e6  # a mean far from zero costs no digits of the deviation
    pooling = FeatureSummary(3, Linear)
    stat = pooling.statistic.reduce_segments(
        *pooling(torch.from_numpy(x)), torch.zeros(9, dtype=torch.int64), num_bags=1
    )
    wanted = np.concatenate([x.mean(0), x.min(0), x.max(0), x.std(0)])
    np.testing.assert_allclose(pooling.rows(stat.r)[0].numpy(), wanted, rtol=1e-9)


@pytest.mark.parametrize(("summary", "shape"), [(FeatureSummary, (4,)), (ChannelSummary, (2, 9))])
def test_a_sample_of_a_bag_has_the_summary_of_what_it_shows(summary, shape):
    pooling = summary(shape[0], Linear)
    z, v = pooling(torch.from_numpy(np.random.default_rng(0).normal(size=(6, *shape))))
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = pooling.statistic.sample(z.view(2, 3), v.view(2, 3, -1), mask=mask)
    wanted = pooling.statistic.reduce_segments(z[[0, 1, 3]], v[[0, 1, 3]], torch.tensor([0, 0, 1]), num_bags=2)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted))


@pytest.mark.parametrize("depth", [None, 1, 0])
def test_a_forest_of_arrays_agrees_with_scikit_learn(depth):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 12)), np.arange(60) % 2
    how = {"max_depth": depth} if depth != 0 else {"min_samples_split": 100}  # each tree a leaf
    forest = ExtraTreesRegressor(20, random_state=0, **how).fit(x, y)
    head = forest_head(12, forest.estimators_)
    new = rng.normal(size=(700, 12))
    found = head(torch.from_numpy(new)).numpy()
    np.testing.assert_allclose(found, forest.predict(new), rtol=0, atol=1e-12)
    head.check()


@pytest.mark.parametrize("weighted", [False, True])
def test_trees_of_two_classes_are_those_of_scikit_learn(weighted):
    rng = np.random.default_rng(2)
    x, y, new = rng.normal(size=(50, 9)), np.arange(50) % 3 // 2, rng.normal(size=(40, 9))
    weights = rng.integers(1, 4, 50).astype(float) if weighted else None  # sums without rounding, so no tie differs
    forest = ExtraTreesClassifier(statistics_models._TREES, random_state=4).fit(x, y, weights)
    found = trees_mean(fit_trees(x, y, weights, seed=4), new)
    np.testing.assert_allclose(found, forest.predict_proba(new)[:, 1], rtol=0, atol=1e-12)
    first = np.mean([tree.predict_proba(new)[:, 1] for tree in forest.estimators_[:7]], axis=0)
    np.testing.assert_allclose(trees_mean(fit_trees(x, y, weights, seed=4), new, 7), first, rtol=0, atol=1e-12)
