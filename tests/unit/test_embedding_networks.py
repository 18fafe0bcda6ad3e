"""`embedding-networks`: trained side by side as each would be alone, and blind to the bags that are held out."""

import json

import numpy as np
import pytest
import torch

from midam.cli import main
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.methods import networks
from midam.methods.networks import EmbeddingNetworks, _batches, _draw, _network, _Side
from midam.nn.scorer import BagEnsemble
from midam.train.side import Trial


def make_bags(count=60, *, most=9, seed=0, weights=None):
    rng, labels = np.random.default_rng(seed), np.arange(count) % 2
    parts = [rng.normal(size=(int(rng.integers(1, most)), 5)) + 1.5 * label * np.eye(5)[0] for label in labels]
    return Bags.from_list(parts, labels, weights=weights)


def halves(bags):
    even = np.arange(len(bags)) // 2 % 2 == 0
    return [Trial(np.flatnonzero(even == side), np.flatnonzero(even != side), 0) for side in (True, False)]


def test_networks_side_by_side_score_as_the_models_that_they_fill():
    bags = make_bags()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        scorers = [_network((5,)) for _ in range(3)]
    attends = [True, False, True]
    side = _Side.of(scorers, attends)
    x = torch.from_numpy(np.asarray(bags.instances)).float()
    bag = torch.from_numpy(np.repeat(np.arange(len(bags)), bags.sizes))
    logits = side.logits(x.expand(3, -1, -1), bag.expand(3, -1), len(bags))
    side.fill(scorers)
    for own, scorer in zip(logits, scorers):
        np.testing.assert_allclose(torch.sigmoid(own).detach(), predict(BagEnsemble([scorer]), bags), atol=1e-6)
    assert not torch.allclose(logits[0], logits[1])


def test_labels_and_instances_of_held_out_bags_change_no_network():
    bags = make_bags()
    trial, other = halves(bags)
    labels, rows = bags.labels.copy(), np.array(bags.instances)
    labels[trial.score] = 1 - labels[trial.score]
    inside = np.isin(np.repeat(np.arange(len(bags)), bags.sizes), trial.score)
    rows[inside] *= 7
    changed = bags.replace(labels=labels, instances=rows)
    alone, unlike = (networks._train_side(some, [trial, other], 2) for some in (bags, changed))
    for one, same in zip(alone[0], unlike[0]):
        assert all(torch.equal(value, same.state_dict()[name]) for name, value in one.state_dict().items())
    assert not all(torch.equal(*both) for both in zip(alone[1][0].state_dict().values(), unlike[1][0].parameters()))


def test_trials_that_are_trained_in_turn_are_those_that_are_trained_at_a_time(monkeypatch):
    bags = make_bags(300, most=40)
    together = list(EmbeddingNetworks().held_out(bags, halves(bags)))
    monkeypatch.setattr(networks, "_AT_A_TIME", 1)
    for one, other in zip(together, EmbeddingNetworks().held_out(bags, halves(bags)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)  # sums in another order


def test_they_rank_bags_that_they_have_not_seen(monkeypatch):
    monkeypatch.setattr(networks, "_EPOCHS", 80)  # as users get
    bags = make_bags(120)
    for trial, scores in zip(halves(bags), EmbeddingNetworks().held_out(bags, halves(bags))):
        assert auroc(bags.labels[trial.score], scores) > 0.9


def test_a_bag_of_weight_near_zero_teaches_nothing():
    bags = make_bags()
    wrong = np.arange(60) >= 40
    labels = np.where(wrong, 1 - bags.labels, bags.labels)
    trials = [Trial(np.arange(60), np.arange(60), 0)]
    (light,) = EmbeddingNetworks().held_out(bags.replace(labels=labels, weights=np.where(wrong, 1e-9, 1.0)), trials)
    (heavy,) = EmbeddingNetworks().held_out(bags.replace(labels=labels), trials)
    assert auroc(bags.labels, light) > auroc(bags.labels, heavy) + 0.05


@pytest.mark.parametrize("most", [9, 40])
def test_a_step_draws_up_to_16_instances_of_each_of_its_bags_evenly(most):
    bags, random = make_bags(most=most), np.random.default_rng(0)
    seen = np.zeros(bags.num_instances, dtype=int)
    for some in [next(_batches(np.arange(len(bags)), len(bags), random)) for _ in range(200)]:
        at, bag = (each.numpy() for each in _draw(bags, some, random))
        assert most > 16 or len(np.unique(at)) == len(at)
        owner = np.searchsorted(np.cumsum(bags.sizes), at, side="right")
        assert owner.tolist() == some[bag].tolist()
        assert np.bincount(bag, minlength=len(some)).tolist() == np.minimum(bags.sizes[some], 16).tolist()
        np.add.at(seen, at, 1)
    expected = 200 * np.repeat(np.minimum(bags.sizes, 16) / bags.sizes, bags.sizes)
    np.testing.assert_allclose(seen, expected, atol=40)


def test_each_epoch_visits_each_bag_once_in_steps_of_at_most_128_bags():
    steps = list(_batches(np.arange(300), 300, np.random.default_rng(0)))
    assert len(steps) == 3 * networks._EPOCHS
    assert sorted(np.concatenate(steps[:3]).tolist()) == list(range(300))
    assert max(map(len, steps)) <= 128
    assert sum(map(len, _batches(np.arange(24_000), 24_000, np.random.default_rng(0)))) == 24_000


def test_networks_of_fewer_bags_take_the_steps_of_those_beside_them():
    bags = make_bags(140)
    every, few = Trial(np.arange(140), np.arange(0), 0), Trial(np.arange(30), np.arange(30, 140), 0)
    alone, beside = networks._train_side(bags, [few], 2)[0], networks._train_side(bags, [every, few], 2)[1]
    steps = [len(list(_batches(np.arange(30), most, np.random.default_rng(0)))) for most in (30, 140)]
    assert steps == [networks._EPOCHS, 2 * networks._EPOCHS]
    scores = [predict(BagEnsemble(scorers), bags.subset(few.score)) for scorers in (alone, beside)]
    assert all(np.isfinite(each).all() and auroc(bags.labels[few.score], each) > 0.8 for each in scores)


def test_pixels_are_refused():
    bags = Bags.from_list([np.zeros((2, 1, 8, 8))] * 8, [0, 1] * 4)
    with pytest.raises(ConfigError, match=r"vectors for embedding-networks, got instances of shape \[1, 8, 8\]"):
        EmbeddingNetworks().scorers(bags, seed=0)


def test_a_run_of_networks_predicts_as_it_was_fitted(tmp_path, capsys):
    rows = [f"b{bag},{bag % 2},{bag % 2 + 0.1 * i},{i}" for bag in range(60) for i in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(["bag,label,f1,f2", *rows]))
    run = tmp_path / "run"
    assert main(["fit", str(tmp_path / "t.csv"), "--method", "embedding-networks", "--out", str(run)]) == 0
    assert json.loads((run / "summary.json").read_text())["out_of_fold"]["auroc"] > 0.9
    assert main(["predict", str(run), str(tmp_path / "t.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    assert "b59" in (tmp_path / "p.csv").read_text()
    capsys.readouterr()
