"""Trainings side by side are those of trainers of their own, up to rounding, and none disturbs another."""

import numpy as np
import pytest
import torch
from tests.trainings import witness_bags
from tests.unit.test_trials import make_config, make_trials

from midam.errors import DivergedError, StaleStateError
from midam.evaluate.predict import predict
from midam.methods.auto.candidates import Candidate
from midam.train.side import SideBySide, Trial, fit_side, shape_of, train_trial, trains_side
from midam.train.state_check import StateError
from midam.train.trainer import Trainer

AFTER = [1, 4, 12]  # in the first epochs the rate of the state falls


def resolved(bags, **settings):
    return make_config(**{"epochs": 12, "num_instances": 4, **settings}).resolve(bags.instance_shape)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, marks=pytest.mark.long),
        {"anneal": 0.5, "state_rate": 0.5, "objective_weight": "pairwise"},
        {"hidden": [5, 3], "num_positive": 2, "optimizer": "adam"},
    ],
    ids=str,
)
def test_trials_side_by_side_have_the_scores_of_trials_one_by_one(settings):
    bags = witness_bags(31)
    config = resolved(bags, **settings)
    trials = [*make_trials(bags), *(Trial(x.train[:12], x.score, 7) for x in make_trials(bags, count=2))]
    # Two shapes, several memories, and bags smaller than a draw.
    members = [Trainer(config, bags.subset(trial.train)).members[0] for trial in trials]
    assert len({shape_of(member) for member in members}) > 1
    assert len({member.estimator.settled_rate(4) for member in members}) > 1
    assert bags.sizes.min() < 4
    candidate = Candidate("midam", config=config)
    expected = [train_trial(config, bags, trial, after=candidate.epochs).scores for trial in trials]
    for scores, wanted in zip(candidate.paths(bags, trials), expected, strict=True):
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)  # float32 over 12 epochs
    assert np.ptp(expected[0][-1]) > 1e-3


def test_instances_of_a_trial_may_be_prepared_for_it_alone():
    bags = witness_bags(30)
    trials, candidate = make_trials(bags), Candidate("midam", config=resolved(bags))

    def prepare(trial):
        return bags.replace(instances=bags.instances + trial.seed)

    found = candidate.paths(bags, trials, prepare=prepare)
    for trial, scores in zip(trials, found, strict=True):
        wanted = train_trial(candidate.config, prepare(trial), trial, after=candidate.epochs).scores
        np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5)


def test_members_side_by_side_are_those_of_a_fit_with_the_state_of_their_bags():
    bags = witness_bags(30)
    config = resolved(bags, members=3)
    alone, side = Trainer(config, bags).fit(epochs=9), fit_side(Trainer(config, bags), epochs=9)
    assert side.epoch == alone.epoch == 9
    np.testing.assert_allclose(predict(side.model, bags), predict(alone.model, bags), rtol=0, atol=1e-5)
    for one, other in zip(side.members, alone.members, strict=True):
        torch.testing.assert_close(one.estimator.bag_state, other.estimator.bag_state, rtol=1e-4, atol=1e-4)
    for trainer in (alone, side):
        trainer.check_states()
    assert [x.whole for x in side.states] == pytest.approx([x.whole for x in alone.states], abs=1e-3)


@pytest.mark.parametrize("settings", [{}, {"pooling": "gated-attention"}], ids=["side by side", "alone"])
def test_a_model_of_fewer_epochs_is_refused_if_what_it_remembers_is_out_of_date(settings, monkeypatch):
    bags = witness_bags(30)
    wrong = StateError(bags=30, tracked=1.0, whole=0.5, l=9.0, r=0.0, enough=True)
    monkeypatch.setattr("midam.train.trainer.state_error", lambda _: wrong)
    with pytest.raises(StaleStateError, match="out of date"):
        Candidate("midam", config=resolved(bags, **settings)).fit(bags, seed=0, epochs=2)


def test_a_training_that_diverges_leaves_the_others_alone():
    bags = witness_bags(30)
    config = resolved(bags, members=3)
    sane, spoilt = SideBySide(Trainer(config, bags).members), SideBySide(Trainer(config, bags).members)
    with torch.no_grad():
        next(iter(spoilt._weights.values()))[1] = torch.nan
    for epoch in range(3):
        sane.train_epoch(epoch)
        spoilt.train_epoch(epoch)
    assert sane.write() == [True, True, True]
    assert spoilt.write() == [True, False, True]
    for at in (0, 2):
        for one, other in zip(sane._trainings[at].model.parameters(), spoilt._trainings[at].model.parameters()):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_diverged_fit_is_refused_and_a_diverged_trial_has_no_scores():
    bags = witness_bags(30)
    wild = resolved(bags, lr=1e30, standardize=False)
    with pytest.raises(DivergedError, match="lower lr"):
        fit_side(Trainer(wild, bags))
    for scores in Candidate("midam", config=wild).paths(bags, make_trials(bags)):
        assert np.isnan(scores).any()


@pytest.mark.parametrize("settings", [{"pooling": "smoothed-max"}, {"objective": "bce"}, {"dropout": 0.5}], ids=str)
def test_other_parts_are_trained_alone(settings):
    bags = witness_bags(30)
    assert trains_side(resolved(bags), bags)
    assert not trains_side(resolved(bags), bags.replace(weights=np.arange(1.0, 31)))
    config = resolved(bags, **settings)
    assert not trains_side(config, bags)
    (trial,) = make_trials(bags, count=1)
    (scores,) = Candidate("other", config=config).paths(bags, [trial])
    np.testing.assert_array_equal(scores, train_trial(config, bags, trial, after=[1, 2, 6, 12]).scores)
