"""Trials in lockstep give what a trainer of their own gives, to rounding."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.trainings import witness_bags

from midam.data.bags import Bags
from midam.data.sampling import BagSampler
from midam.data.score_memory import ScoreMemory
from midam.evaluate.predict import predict
from midam.nn.encoders import MLP
from midam.nn.stack import StackedScorer
from midam.settings import Settings, member_seed
from midam.train import lockstep
from midam.train.build import build_method
from midam.train.lockstep import Trial, every_epoch, train_trials
from midam.train.trainer import Trainer

keep = MLP.keep_inputs
METHODS = [
    ("attention", "vrsp", "minmax-auc"),
    ("smoothed-max", "vrsp", "bce"),
    ("embedding-attention", "vrsp", "minmax-auc"),
    ("gated-attention", "minibatch", "pairwise"),
    ("noisy-and", "exact", "minmax-auc"),
    ("noisy-or", "minibatch", "bce"),
    ("generalized-mean", "exact", "pairwise"),
    ("mean", "exact", "bce"),
    ("max", "exact", "minmax-auc"),
    ("max", "minibatch", "minmax-auc"),
]


def make_config(pooling="attention", estimator="vrsp", objective="minmax-auc", **settings):
    settings = {"epochs": 4, "num_positive": 4, "num_negative": 4, "num_instances": 3, "members": 1, **settings}
    return Settings(pooling=pooling, estimator=estimator, objective=objective, **settings)


def make_trials(bags, *, count=3, seed=0, held=10):
    trials = []
    for k in range(count):
        order = np.random.default_rng([seed, k]).permutation(len(bags))
        trials.append(Trial(np.sort(order[held:]), np.sort(order[:held])[: held - k], seed=k))
    return trials


def alone(config, bags, trial):
    trainer = Trainer(config.replace(seed=trial.seed), bags.subset(trial.train))
    scores = []
    while not trainer.finished:
        trainer.train_epoch()
        scores.append(predict(trainer.reported, bags.subset(trial.score)))
    return np.stack(scores), np.array([row["loss"] for row in trainer.history])


def needles(count=36):
    """Float64 bags of 2 to 59 instances, some within a draw of 3."""
    bags = witness_bags(count, largest=60)
    rng = np.random.default_rng(5)
    x = bags.instances + rng.normal(size=bags.instances.shape) * 1e-3
    return Bags(x, starts=bags.starts, sizes=bags.sizes, labels=bags.labels)


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# Whole bags of 4 instances on average are padded to equal rows a trial, those of 40 are not.
@pytest.mark.parametrize("largest", [9, 80])
@pytest.mark.parametrize("method", METHODS, ids="-".join)
def test_every_trial_is_that_of_a_trainer_of_its_own(method, largest):
    bags, config = witness_bags(30, largest=largest), make_config(*method, weight_decay=0.01, temperature=None)
    trials = make_trials(bags)
    for trial, result in zip(trials, train_trials(config, bags, trials, after=every_epoch(config)), strict=True):
        scores, loss = alone(config, bags, trial)
        assert result.scores.shape == (4, len(trial.score))
        np.testing.assert_allclose(result.scores, scores, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(result.loss, loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        *({"state_schedule": "warmup"}, {"lag": True}, {"optimizer": "adam"}, {"hidden": [6, 4]}),
        {"average_from": 0.25, "decay_at": []},
        *({"anneal": 0.6}, {"anneal": 0.6, "estimator": "exact"}),
    ],
    ids=str,
)
def test_every_setting_of_a_step_is_followed(settings):
    bags, config = witness_bags(30), make_config(**settings)
    trials = make_trials(bags)
    for trial, result in zip(trials, train_trials(config, bags, trials), strict=True):
        np.testing.assert_allclose(result.scores[0], alone(config, bags, trial)[0][-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("largest", [9, 80])
@pytest.mark.parametrize("settings", [{}, {"hidden": [6, 4], "weight_decay": 0.1}, {"standardize": False}], ids=str)
def test_whole_bags_of_any_size_follow_the_settings(settings, largest):
    bags, config = witness_bags(30, largest=largest), make_config(pooling="max", estimator="exact", **settings)
    trials = make_trials(bags)
    for trial, result in zip(trials, train_trials(config, bags, trials), strict=True):
        np.testing.assert_allclose(result.scores[0], alone(config, bags, trial)[0][-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("largest", [9, 80])
def test_max_pooling_under_dropout_scores_the_instances_that_it_found(largest, monkeypatch):
    bags, config = witness_bags(30, largest=largest), make_config(pooling="max", estimator="exact", dropout=0.5)
    rows = []
    instances = StackedScorer.instances
    monkeypatch.setattr(StackedScorer, "instances", lambda s, x: rows.append(len(x)) or instances(s, x))
    trials = make_trials(bags, count=2)
    train_trials(config, bags, trials)
    assert rows.count(2 * 8) == 0
    rows.clear()
    train_trials(config.replace(dropout=0.0), bags, trials)
    # 2 trials of 8 bags, in each of 3 steps of 4 epochs.
    assert rows.count(2 * 8) == 12


@pytest.mark.parametrize("settings", [{}, {"hidden": [6, 4], "weight_decay": 0.1}], ids=str)
@pytest.mark.parametrize("estimator", ["vrsp", "exact"])
def test_features_that_never_vary_are_not_multiplied(estimator, settings, monkeypatch):
    bags, config = witness_bags(30), make_config(estimator=estimator, **settings)
    wide = np.zeros((len(bags.instances), 12), dtype=np.float32)
    wide[:, [1, 4, 5, 8, 11]] = bags.instances
    sparse = Bags(wide, starts=bags.starts, sizes=bags.sizes, labels=bags.labels)
    kept = []
    monkeypatch.setattr(MLP, "keep_inputs", lambda own, columns: kept.append(columns.tolist()) or keep(own, columns))
    trials = make_trials(bags)
    for trial, result in zip(trials, train_trials(config, sparse, trials), strict=True):
        np.testing.assert_allclose(result.scores[0], alone(config, sparse, trial)[0][-1], rtol=1e-5, atol=1e-6)
    assert kept == [[1, 4, 5, 8, 11]] * 3


@pytest.mark.parametrize("estimator", ["exact-point", "exact"])
def test_what_cannot_be_stacked_is_trained_one_after_the_other(estimator):
    # Bags of 200 on average: their arithmetic is what a step costs, with or without company.
    bags, config = witness_bags(30, largest=400), make_config(estimator=estimator)
    trials = make_trials(bags, count=2)
    for trial, result in zip(trials, train_trials(config, bags, trials, after=every_epoch(config)), strict=True):
        np.testing.assert_array_equal(result.scores, alone(config, bags, trial)[0])


def test_trials_of_different_numbers_of_steps_and_single_ones_keep_their_order():
    bags, config = witness_bags(30), make_config()
    order = np.random.default_rng(0).permutation(len(bags))
    trials = [Trial(np.sort(order[cut:]), order[:cut], seed=s) for s, cut in enumerate([5, 14, 6, 15])]
    for trial, result in zip(trials, train_trials(config, bags, trials), strict=True):
        np.testing.assert_allclose(result.scores[0], alone(config, bags, trial)[0][-1], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("objective", ["minmax-auc", "pairwise", "bce"])
def test_in_float64_every_trial_is_that_of_a_trainer_to_the_last_digits(objective, monkeypatch):
    monkeypatch.setattr(lockstep, "_alone", None)
    # Averages over 3 bags: a third in float32 is another number.
    bags, config = needles(), make_config(objective=objective, num_positive=3)
    trials = make_trials(bags)
    for trial, result in zip(trials, train_trials(config, bags, trials, after=every_epoch(config)), strict=True):
        scores, loss = alone(config, bags, trial)
        np.testing.assert_allclose(result.scores, scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.loss, loss, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("draw_args", [{"refresh": 2}, {"stale": 0.005, "pass_budget": 5.0}], ids=str)
@pytest.mark.parametrize("estimator", ["minibatch", "vrsp"])
@pytest.mark.parametrize("pooling", ["smoothed-max", "attention"])
@pytest.mark.parametrize("draw", ["scored", "top"])
def test_draws_by_scores_are_those_of_a_trainer_of_its_own(draw, pooling, estimator, draw_args, monkeypatch):
    memories = []
    make = ScoreMemory.__init__
    monkeypatch.setattr(ScoreMemory, "__init__", lambda own, sizes: memories.append(own) or make(own, sizes))
    monkeypatch.setattr(lockstep, "_alone", None)
    settings = {"draw": draw, "draw_args": draw_args, "anneal": 0.6, "epochs": 6, "hidden": [4], "lr": 0.1}
    bags, config = needles(), make_config(pooling, estimator, "bce", **settings)
    trials = make_trials(bags)
    # One bag fewer: the bags of the next trial begin elsewhere in its memory than in the stack.
    trials[1] = dataclasses.replace(trials[1], train=trials[1].train[:-1])
    together = train_trials(config, bags, trials, after=every_epoch(config))
    stacked = memories.copy()
    for trial, result, memory in zip(trials, together, stacked, strict=True):
        memories.clear()
        scores, loss = alone(config, bags, trial)
        np.testing.assert_allclose(result.scores, scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(result.loss, loss, rtol=1e-9, atol=1e-9)
        assert memories[0].passes == memory.passes
        own = memories[0].state_dict()
        assert all(torch.equal(own[name], memory.state_dict()[name]) for name in ("values", "candidates"))
    passes = [memory.passes for memory in stacked]
    assert passes == [3] * 3 if "refresh" in draw_args else sum(passes) > 0


def test_trials_of_one_set_draw_each_for_itself(monkeypatch):
    bags, config = needles(), make_config("smoothed-max", "minibatch", draw="top", draw_args={"refresh": 2})
    plans = []
    end = BagSampler.end_epoch
    monkeypatch.setattr(BagSampler, "end_epoch", lambda own, plan: plans.append(plan) or end(own, plan))
    trial = make_trials(bags, count=1)[0]
    train_trials(config, bags, [dataclasses.replace(trial, seed=seed) for seed in (0, 1)])
    assert len(plans) == 2 * config.training.epochs
    for first, second in zip(plans[::2], plans[1::2], strict=True):
        assert not torch.equal(first.slots, second.slots)
        assert not torch.equal(first.seen, second.seen)


def test_members_are_averaged():
    bags, config = witness_bags(30), make_config(members=3)
    trial = make_trials(bags, count=1)[0]
    (found,) = train_trials(config, bags, [trial], after=every_epoch(config))
    own = [dataclasses.replace(trial, seed=member_seed(trial.seed, m)) for m in range(3)]
    single = config.replace(members=1)
    expected = np.mean([alone(single, bags, t)[0] for t in own], axis=0)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-6)


def test_a_trial_that_diverges_leaves_the_others_alone():
    bags = witness_bags(30)
    trials = make_trials(bags, held=12)
    # A training bag of the first trial alone holds values near the end of float32.
    only = sorted(set(trials[0].train) - set(trials[1].train) - set(trials[2].train))[0]
    x = np.array(bags.instances)
    x[bags.starts[only] : bags.starts[only] + bags.sizes[only]] = 3e38
    spoilt = Bags(x, starts=bags.starts, sizes=bags.sizes, labels=bags.labels)
    config = make_config(standardize=False, lr=1e30, epochs=2)
    sane = make_config(standardize=False, epochs=2)
    lost = train_trials(config, spoilt, trials, after=every_epoch(config))
    assert np.isnan(lost[0].scores[-1]).all()
    clean = [Trial(t.train, np.setdiff1d(t.score, [only]), t.seed) for t in trials]
    mixed = train_trials(sane, spoilt, clean)
    for trial, result in list(zip(clean, mixed, strict=True))[1:]:
        np.testing.assert_allclose(result.scores[0], alone(sane, bags, trial)[0][-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("draw", ["scored", "top"])
def test_a_trial_that_diverges_remembers_nothing_for_the_others(draw):
    config = make_config("attention", "vrsp", "bce", draw=draw, draw_args={"refresh": 1}, standardize=False, epochs=3)
    bags, trials = needles(), make_trials(needles(), count=2)
    only = np.setdiff1d(trials[0].train, trials[1].train)[0]
    x = bags.instances.copy()
    x[bags.starts[only] : bags.starts[only] + bags.sizes[only]] = np.nan
    spoilt = Bags(x, starts=bags.starts, sizes=bags.sizes, labels=bags.labels)
    trials[1] = dataclasses.replace(trials[1], score=trials[0].score)
    lost, kept = train_trials(config, spoilt, trials)
    assert np.isnan(lost.scores).all()
    np.testing.assert_array_equal(kept.scores, train_trials(config, bags, trials)[1].scores)


def test_the_global_random_state_is_left_alone():
    bags, config = witness_bags(30), make_config(dropout=0.5)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = train_trials(config, bags, make_trials(bags))
    assert torch.equal(torch.get_rng_state(), before)
    again = train_trials(config, bags, make_trials(bags))
    np.testing.assert_array_equal(first[0].scores, again[0].scores)


@pytest.mark.parametrize("pooling", ["attention", "embedding-attention", "noisy-and", "max"])
def test_a_stacked_scorer_is_its_scorers(pooling):
    scorers = [
        build_method(make_config(pooling, "exact", seed=s, hidden=[6, 4]), instance_shape=(5,), num_bags=1).model
        for s in range(3)
    ]
    stacked = StackedScorer(scorers)
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    z, v = stacked.instances(x.flatten(0, 1))
    for m, scorer in enumerate(scorers):
        z_own, v_own = scorer.instances(x[m])
        torch.testing.assert_close(z.view(3, 7)[m], z_own)
        torch.testing.assert_close(v.view(3, 7, v.shape[-1])[m], v_own)
    assert sum(p.numel() for p in stacked.parameters()) == 3 * sum(p.numel() for p in scorers[0].parameters())
