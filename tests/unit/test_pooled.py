"""Scores of bags with some of their instances removed, replaced or added, against scoring the changed bags."""

import errno

import numpy as np
import pytest
import torch
from tests.trainings import make_scorers
from tests.unit.test_explain import POOLINGS, make_bags

from midam import Bags, predict
from midam.evaluate import pooled
from midam.evaluate.pooled import PooledBags, numbers_of, pooled_groups
from midam.explain import explain_bag
from midam.methods.baselines import BagStatisticsTrees

KINDS = [*POOLINGS, "noisy-and", "gated-attention", "forest"]


def model_of(kind, members=2):
    if kind != "forest":
        return make_scorers(kind, members).double()
    rng = np.random.default_rng
    many = Bags.from_list([rng(k).normal(size=(5, 4)) + k % 2 for k in range(12)], [0, 1] * 6)
    return BagStatisticsTrees().scorer(many, seed=0)


def doubled():
    bags = make_bags()
    return bags.replace(instances=bags.instances.astype(np.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_are_those_of_explain(kind):
    model, bags = model_of(kind), doubled()
    pooled = PooledBags(model, bags, chunk_size=10)
    np.testing.assert_allclose(pooled.scores(), predict(model, bags), rtol=1e-6)
    added, weights = (
        np.split(x, np.cumsum(bags.sizes)[:-1]) for x in (pooled.contributions(), pooled.weights_of_instances())
    )
    for index in range(len(bags)):
        explained = explain_bag(model, bags, index)
        np.testing.assert_allclose(added[index], explained.contribution, rtol=1e-4, atol=2e-7)
        np.testing.assert_allclose(weights[index], explained.weight, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_removed_added_and_exchanged_instances_score_as_the_changed_bags(kind):
    model, bags, rng = model_of(kind), doubled(), np.random.default_rng(3)
    pooled = PooledBags(model, bags)
    kept = rng.random(bags.num_instances) < 0.7
    kept[bags.sizes[0]] = False  # the only instance of the second bag
    parts = np.split(np.arange(bags.num_instances), np.cumsum(bags.sizes)[:-1])
    chosen = [part[kept[part]] for part in parts]
    rest = pooled.keep(kept)
    scores = rest.scores()
    assert np.isnan(scores[1])
    expected = predict(model, Bags.from_list([bags.instances[chosen[i]] for i in (0, 2)]))
    np.testing.assert_allclose(scores[[0, 2]], expected, rtol=1e-6)
    pairs = [(0, 0), (2, 0, 1), (1,)]
    lists = [np.concatenate([bags.instances[chosen[i]] for i in pair]) for pair in pairs[:2]]
    np.testing.assert_allclose(rest.compose(pairs[:2]).scores(), predict(model, Bags.from_list(lists)), rtol=1e-6)
    assert np.isnan(rest.compose(pairs).scores()[2])
    singles = [bags.instances[[i]] for i in np.flatnonzero(kept)]
    np.testing.assert_allclose(rest.alone(), predict(model, Bags.from_list(singles)), rtol=1e-6)
    x, places = rng.normal(size=(3, 4)), np.array([2, 1, 2])
    added = rest.with_instance(places, torch.from_numpy(x))
    lists = [np.concatenate([bags.instances[chosen[i]], x[None, t]]) for t, i in enumerate(places)]
    np.testing.assert_allclose(added, predict(model, Bags.from_list(lists)), rtol=1e-6)
    scored = Bags.from_list([bags.instances[np.setdiff1d(chosen[0], [i])] for i in chosen[0]])
    losses = scores[0] - predict(model, scored)
    np.testing.assert_allclose(rest.contributions()[: len(losses)], losses, rtol=1e-4, atol=2e-7)


def test_large_bags_are_pooled_alone():
    model = model_of("forest")
    assert numbers_of(model) == 17
    assert list(pooled_groups(model, np.array([5, 2**18, 7, 8, 9]))) == [range(1), range(1, 2), range(2, 5)]


def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(monkeypatch):
    def full(file, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pooled, "_LARGE", 0)
    monkeypatch.setattr(pooled, "allocate", full)
    with pytest.raises(OSError, match="No space left"):
        PooledBags(make_scorers("attention"), make_bags())


def test_a_column_of_encoded_bags_is_that_of_bags_encoded_for_it():
    model, bags = make_scorers("attention", 2, columns=3), make_bags()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.linspace(-0.4, 0.4, weights.numel()).view(weights.shape))
    first = PooledBags(model, bags, column=0, chunk_size=3)
    composed, kept = [[1, 0], [2]], np.arange(bags.num_instances) % 2 == 0
    for column in (1, 2):
        alone = PooledBags(model, bags, column=column, chunk_size=3)
        assert (alone.scores() != first.scores()).all()
        for one, other in ((first, alone), (first.keep(kept), alone.keep(kept))):
            np.testing.assert_array_equal(one.of_column(column).contributions(), other.contributions())
        np.testing.assert_array_equal(
            first.compose(composed).of_column(column).scores(), alone.compose(composed).scores()
        )


def test_chunks_of_instances_join_to_all_and_leave_the_grad_mode_alone():
    model, bags = make_scorers("attention", 2), make_bags()
    pooled = PooledBags(model, bags, chunk_size=3)
    chunks = pooled.instance_chunks()
    _, head = next(chunks)
    assert torch.is_grad_enabled()
    assert len(head.score) == 3
    whole = PooledBags(model, bags, chunk_size=1000).instances()
    np.testing.assert_allclose(pooled.instances().weight, whole.weight, rtol=1e-6)
    np.testing.assert_allclose(pooled.instances().members[1].score, whole.members[1].score, rtol=1e-6)
