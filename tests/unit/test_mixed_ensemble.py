"""Models of several kinds in one weighted mean: every number is that of a naive calculation in float64."""

import copy
import pickle

import numpy as np
import pytest
import torch
from scipy.special import expit, logit, softmax
from tests.trainings import make_scorers, witness_bags

from midam.data.bags import Bags
from midam.data.store import open_store, write_store
from midam.errors import ConfigError
from midam.evaluate.pooled import instance_scores
from midam.evaluate.predict import predict
from midam.explain.explanation import explain_bag
from midam.functional.poolings import bounded_logit
from midam.methods.baselines import BagStatisticsLogistic, BagStatisticsTrees
from midam.nn.pooling import AttentionPooling, MaxPooling, NoisyOrPooling
from midam.nn.pooling.base import RescaledPooling
from midam.nn.scorer import BagEnsemble, BagScorer, without_standardizer
from midam.runs.instance_files import write_instance_scores

WEIGHTS, LINES = [0.5, 0.3, 0.2], [(1.7, -0.4), (0.6, 0.3), (2.1, 0.9)]


@pytest.fixture(scope="module")
def bags():
    return witness_bags(20, width=4)


@pytest.fixture(scope="module")
def parts(bags):
    """An attention scorer with its standardizer, a forest, and a regression on bag statistics."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("midam.methods.statistics_models._TREES", 30)
        trees = BagStatisticsTrees().scorer(bags, seed=0)
    attention = make_scorers("attention", standardize=True).members[0]
    attention.standardizer.fit(torch.from_numpy(np.asarray(bags.instances)))
    return [attention, trees, BagStatisticsLogistic().scorer(bags, seed=0)]


@pytest.fixture(scope="module")
def model(parts):
    scaled = [
        BagScorer(part.encoder, RescaledPooling(part.pooling, *line), standardizer=part.standardizer)
        for part, line in zip(parts, LINES, strict=True)
    ]
    return BagEnsemble(scaled, WEIGHTS)


def stacked(parts, bags):
    """The formula, of the scores of models each by itself, which no score of these comes near 0 or 1 to feel."""
    eps = 1e-6
    each = [logit(eps + (1 - 2 * eps) * predict(part, bags)) for part in parts]
    return sum(w * expit(a * z + b) for w, (a, b), z in zip(WEIGHTS, LINES, each, strict=True))


def test_weights_are_those_of_the_mean_and_equal_ones_are_as_none():
    single, x, sizes = make_scorers("attention", 3), torch.randn(9, 4), torch.tensor([4, 5])
    members = list(single.members)
    each = torch.stack([member(x, sizes).score.double() for member in members])
    wanted = 0.5 * each[0] + 0.3 * each[1] + 0.2 * each[2]
    torch.testing.assert_close(BagEnsemble(members, WEIGHTS)(x, sizes), wanted, rtol=0, atol=1e-12)
    bags = Bags.from_list([x[:4].numpy(), x[4:].numpy()])
    np.testing.assert_allclose(predict(BagEnsemble(members, WEIGHTS), bags), wanted.detach(), rtol=0, atol=1e-7)
    np.testing.assert_allclose(predict(BagEnsemble(members, [1 / 3] * 3), bags), predict(single, bags), atol=1e-12)
    only = predict(BagEnsemble(members, np.array([0.0, 1, 0])), bags)
    np.testing.assert_allclose(only, predict(members[1], bags), rtol=0, atol=1e-15)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.5, 0.6, -0.1], [0.5, 0.3, 0.1], [np.nan, 0.5, 0.5], []])
def test_weights_that_make_no_mean_are_refused(weights):
    with pytest.raises(ValueError, match="Expected 3 weights of at least 0 with the sum 1, got"):
        BagEnsemble(list(make_scorers("attention", 3).members), weights)


def test_weights_are_saved_where_they_are_given_alone():
    plain = make_scorers("attention", 3)
    weighted = BagEnsemble(list(plain.members), WEIGHTS)
    assert set(weighted.state_dict()) - set(plain.state_dict()) == {"weights"}
    other = BagEnsemble(list(copy.deepcopy(plain).members), [1.0, 0, 0])
    other.load_state_dict(weighted.state_dict())
    assert other.weights.tolist() == without_standardizer(other).weights.tolist() == WEIGHTS
    assert without_standardizer(plain).weights is None


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_a_mixed_ensemble_scores_by_the_formula_streamed_whole_and_from_disk(model, parts, bags, chunk_size, tmp_path):
    wanted = stacked(parts, bags)
    assert np.ptp(wanted) > 0.1
    np.testing.assert_allclose(predict(model, bags, chunk_size=chunk_size), wanted, rtol=0, atol=1e-6)
    write_store(bags, tmp_path / "store")
    on_disk = open_store(tmp_path / "store")
    assert not isinstance(on_disk.instances, np.ndarray)
    np.testing.assert_allclose(predict(model, on_disk, chunk_size=chunk_size), wanted, rtol=0, atol=1e-6)
    whole = model(torch.from_numpy(np.asarray(bags.instances)), torch.from_numpy(bags.sizes))
    np.testing.assert_allclose(whole.detach(), wanted, rtol=0, atol=1e-6)


def test_a_mixed_ensemble_is_saved_copied_and_pickled(model, bags):
    empty = copy.deepcopy(model)
    for value in empty.state_dict().values():
        value.zero_()
    empty.load_state_dict(model.state_dict())
    for other in (empty, pickle.loads(pickle.dumps(model))):
        assert predict(other, bags).tolist() == predict(model, bags).tolist()


@pytest.mark.parametrize("chunk_size", [2, 1000])
def test_instances_are_averaged_by_the_weights(model, bags, chunk_size, tmp_path):
    write_instance_scores(model, bags.replace(ids=None), tmp_path, chunk_size=chunk_size)
    for index in (0, 3):
        found = instance_scores(model, bags, index, chunk_size=chunk_size)
        alone = predict(model, Bags.from_list([row[None] for row in bags[index]]))
        np.testing.assert_allclose(found.score, alone, rtol=0, atol=1e-6)
        each = [softmax(member.attention.astype(np.float64)) for member in found.members]
        weight = np.average(each, axis=0, weights=WEIGHTS)
        np.testing.assert_allclose(found.weight, weight, rtol=1e-5)
        np.testing.assert_allclose(softmax(found.attention.astype(np.float64)), weight, rtol=1e-5)
        for one in each[1:]:
            np.testing.assert_allclose(one, 1 / len(weight))
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / f"{index}.h5") as file:
            for name, column in (("score", found.score), ("weight", weight)):
                np.testing.assert_allclose(file[name][:], column, rtol=1e-5)
            np.testing.assert_allclose(file["attention_scores"][:, 0], found.attention, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(file.attrs["bag_score"], predict(model, bags)[index], rtol=0, atol=1e-7)
            assert file.attrs["member_weights"].tolist() == WEIGHTS
            assert file.attrs["bag_score"] == np.average(file.attrs["member_scores"], weights=WEIGHTS)
            assert file.attrs["pooling"] == "attention + summary"


def test_logits_are_averaged_by_the_weights_where_a_member_has_no_softmax():
    members = [*make_scorers("max", 2).members, *make_scorers("attention").members]
    bags = witness_bags(2, width=4)
    found = instance_scores(BagEnsemble(members, WEIGHTS), bags, 0)
    for name in ("attention", "weight", "score"):
        each = [getattr(member, name) for member in found.members]
        np.testing.assert_allclose(getattr(found, name), np.average(each, axis=0, weights=WEIGHTS), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mixed_ensemble_is_explained_by_leaving_instances_out(model, bags, dtype):
    index = int(bags.sizes.argmax())
    # Numbers that float32 does not hold: trees tell them from their rounding.
    x = np.random.default_rng(1).normal(size=np.shape(bags[index])).astype(dtype)
    own = Bags.from_list([x])
    found = explain_bag(model, own, 0, chunk_size=3)
    without = predict(model, Bags.from_list([np.delete(x, i, axis=0) for i in range(len(x))]))
    np.testing.assert_allclose(found.contribution, predict(model, own) - without, rtol=0, atol=1e-6)
    assert found.score == pytest.approx(predict(model, own)[0], abs=1e-7)
    assert found.weighted is False
    flipped = BagEnsemble(list(model.members)[::-1], WEIGHTS[::-1])
    assert explain_bag(flipped, own, 0).weighted is False


def test_scores_of_zero_and_one_stay_finite_and_in_order():
    scores = torch.tensor([0, 1e-9, 1e-7, 2e-7, 0.3, 1 - 2e-9, 1 - 1e-9, 1], dtype=torch.float64)
    found = bounded_logit(scores)
    assert bool(found.isfinite().all())
    assert bool((found.diff() > 0).all())
    torch.testing.assert_close(found[4], torch.logit(scores[4]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("sure", [0, 1])
def test_a_forest_that_is_sure_has_a_finite_score(parts, bags, sure):
    forest = copy.deepcopy(parts[1])
    with torch.no_grad():
        forest.pooling.head.value.fill_(sure)
    assert (predict(forest, bags) == sure).all()
    found = predict(BagScorer(forest.encoder, RescaledPooling(forest.pooling, 0.8, 0.1)), bags)
    np.testing.assert_allclose(found, expit(0.1 + 0.8 * logit(1e-6 if sure == 0 else 1 - 1e-6)), rtol=1e-9)


@pytest.mark.parametrize("kind", [AttentionPooling, MaxPooling, NoisyOrPooling])
def test_a_rescaled_pooling_keeps_all_but_the_score(kind):
    inner = kind(4)
    pooling = RescaledPooling(inner, 2.0, -1.0)
    assert (pooling.name, pooling.statistic, pooling.weighted) == (inner.name, inner.statistic, inner.weighted)
    assert (pooling.value_size, pooling.in_features) == (inner.value_size, 4)
    x = torch.randn(5, 4)
    assert all(torch.equal(mine, its) for mine, its in zip(pooling(x), inner(x), strict=True))
    rows, sizes = torch.randn(50, 4), torch.full((10,), 5)
    own, its = (BagScorer(torch.nn.Identity(), part)(rows, sizes) for part in (pooling, inner))
    wanted = 2 * torch.logit(its.score.double()) - 1
    torch.testing.assert_close(own.logit, wanted, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(own.score, torch.sigmoid(wanted), rtol=1e-3, atol=1e-4)
    assert own.score.dtype == torch.float64
    assert own.score.argsort().tolist() == its.logit.argsort().tolist()


def test_a_rescaled_pooling_is_saved_checked_and_warns():
    pooling = RescaledPooling(NoisyOrPooling(4), 2.5, 0.1)
    other = RescaledPooling(NoisyOrPooling(4))
    other.load_state_dict(pooling.state_dict())
    assert (other.scale.item(), other.offset.item()) == (2.5, 0.1)
    assert other.scale.dtype == torch.float64
    with pytest.warns(UserWarning, match="saturates at 1 on large bags"):
        pooling.check_sizes(5000)
    with pytest.raises(ConfigError, match="Expected scale > 0, got 0"):
        RescaledPooling(NoisyOrPooling(4), 0.0)
