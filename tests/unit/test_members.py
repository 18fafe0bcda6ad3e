"""Several scorers trained from different seeds, and their mean."""

import copy
import warnings

import numpy as np
import pytest
import torch
from tests.trainings import train, witness_bags
from tests.unit.test_trainer import make_config

from midam.errors import DivergedError
from midam.evaluate.predict import predict
from midam.evaluate.ranking import auroc
from midam.nn.scorer import BagEnsemble, scorers_of
from midam.settings import member_seed
from midam.train.build import build_ensemble
from midam.train.trainer import Trainer

ESTIMATORS = ["vrsp", "minibatch", "exact", "exact-point"]
NOISE = {"vrsp": 0.3, "minibatch": 0.3, "exact": 0.3, "exact-point": 0.0}


def config_of(estimator, **settings):
    return make_config(estimator=estimator, dropout=NOISE[estimator], chunk_size=16, lr=0.01, **settings)


def test_an_ensemble_is_the_mean_of_its_scorers():
    model = build_ensemble(make_config(members=3), instance_shape=(5,))
    x, sizes = torch.randn(9, 5), torch.tensor([4, 5])
    scores = torch.stack([member(x, sizes).score for member in scorers_of(model)])
    torch.testing.assert_close(model(x, sizes), scores.mean(dim=0), rtol=1e-6, atol=0)
    assert not torch.equal(scores[0], scores[1])


def test_an_ensemble_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one bag scorer"):
        BagEnsemble([])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_members_are_single_trainings_from_the_member_seeds(estimator):
    bags, val = witness_bags(), witness_bags(10, seed=1)
    together = train(Trainer(config_of(estimator, members=3, seed=4), bags, val))
    alone = [
        train(Trainer(config_of(estimator, members=1, seed=member_seed(4, member)), bags, val)) for member in range(3)
    ]
    for member, trainer in zip(together.members, alone, strict=True):
        expected = trainer.members[0].model.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in member.model.state_dict().items())
    scores = np.mean([predict(trainer.model, val) for trainer in alone], axis=0)
    assert np.array_equal(predict(together.model, val), scores)
    for row, *rows in zip(together.history, *(trainer.history for trainer in alone), strict=True):
        assert row["loss"] == np.mean([one["loss"] for one in rows])
        assert row["train_auroc"] == np.mean([one["train_auroc"] for one in rows])
    assert together.history[-1]["val_auroc"] == auroc(val.require_labels(), scores)


def test_all_members_follow_the_schedule():
    trainer = train(Trainer(make_config(members=3, lr=0.01), witness_bags()))
    last = trainer.history[-1]
    for member in trainer.members:
        assert {group["lr"] for group in member.optimizer.param_groups} == {last["lr"]}
        in_force = member.estimator.rate(member.config.training.batch[2])
        assert (in_force, member.objective.dual_lr) == (last["state_rate"], last["dual_lr"])


def test_members_share_nothing_but_the_bags():
    trainer = train(Trainer(make_config(members=2), witness_bags()))
    first, second = trainer.members
    # All stay alive: a state dictionary may make tensors, whose place another could take.
    states = [
        [tensor for module in (one.model, one.estimator, one.objective) for tensor in module.state_dict().values()]
        for one in (first, second)
    ]
    pointers = [{tensor.data_ptr() for tensor in tensors} for tensors in states]
    assert not pointers[0] & pointers[1]
    assert torch.equal(first.model.standardizer.center, second.model.standardizer.center)
    assert first.model.standardizer.center.abs().sum() > 0
    assert not torch.equal(first.estimator.bag_state, second.estimator.bag_state)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_state_of_members_continues_bit_for_bit(estimator):
    bags, val = witness_bags(), witness_bags(10, seed=1)
    config = config_of(estimator, members=2, epochs=5)
    whole = Trainer(config, bags, val)
    for _ in range(2):
        whole.train_epoch()
    state = copy.deepcopy(whole.state_dict())
    train(whole)
    resumed = Trainer(config, bags, val)
    resumed.load_state_dict(state)
    train(resumed)
    assert resumed.history == whole.history
    assert resumed.best_epoch == whole.best_epoch
    expected = whole.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model.state_dict().items())


def test_one_member_that_diverges_stops_the_run():
    trainer = Trainer(make_config(members=2), witness_bags())
    with torch.no_grad():
        next(trainer.members[1].model.parameters()).fill_(float("nan"))
    with pytest.raises(DivergedError, match="epoch 1"):
        trainer.train_epoch()
    assert trainer.epoch == len(trainer.history) == 0


def test_what_is_short_is_warned_of_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = Trainer(make_config(members=3, num_positive=50), witness_bags())
    assert len(caught) == 1
    assert [member.sampler.num_positive for member in trainer.members] == [12, 12, 12]


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    build_ensemble(make_config(members=2), instance_shape=(5,))
    Trainer(make_config(members=2, dropout=0.5), witness_bags()).train_epoch()
    assert torch.equal(torch.get_rng_state(), before)
