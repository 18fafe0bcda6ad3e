"""The targets: which strata splits and batches hold, what training bags are refused, and what the scores mean."""

import numpy as np
import pytest
import torch
from tests.trainings import outcome_bags

from midam.data.bags import Bags
from midam.data.sampling import StrataSampler
from midam.data.splits import split_strata, stratified_folds
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, CheckpointError, ConfigError
from midam.functional.pairs import comparable
from midam.registry import OBJECTIVES, TARGETS
from midam.report.leaks import size_warnings
from midam.settings import Settings
from midam.targets import target_named, target_of
from midam.train.trainer import build_training


def bags_with(outcome):
    """Bags of one instance."""
    return Bags.from_list([[[float(i)]] for i in range(len(outcome))], outcome=outcome)


@pytest.mark.parametrize("name", TARGETS.names())
def test_the_objectives_of_a_target_serve_it(name):
    target = TARGETS.find(name)(("a", "b"))
    assert all(target.pairs in OBJECTIVES.find(objective).serves for objective in target.objectives)
    assert target_named({"target": name, "names": ["a", "b"]}).name == name


def test_a_subclass_of_a_target_has_a_warning_of_sizes():
    TARGETS.add("count", type("Count", (TARGETS.find("continuous"),), {"name": "count"}))
    try:
        sizes = list(range(1, 41))
        outcome = TargetLabels.of("count", sizes, names=["cells"])
        bags = Bags.from_list([[[0.0]] * size for size in sizes], outcome=outcome)
        assert "the bag size predicts the label: its C-index" in next(size_warnings(bags))
    finally:
        TARGETS.remove("count")


@pytest.mark.parametrize(
    ("target", "values", "names", "message"),
    [
        ("multiclass", [0, 0, 1, 1, 2], ["lung", "skin", "rare"], r"each class, got fewer of rare \(1\)"),
        ("multilabel", [[1, 0]] * 3 + [[0, 0]] * 3, ["p", "q"], r"each label, got fewer of q \(0 with, 6 without\)"),
        ("ordinal", [1, 1, 1], ["a", "b"], "at least two grades"),
        ("continuous", [2.5, 2.5], ["age"], "different numbers"),
        ("survival", [[1, 0], [2, 0], [3, 0]], ["time", "event"], "with the event, got none"),
        ("survival", [[1, 0], [2, 0], [3, 1]], ["time", "event"], "with the event, got 1"),
        ("survival", [[1, 0], [5, 1], [5, 1]], ["time", "event"], "a time after the event of another"),
    ],
)
def test_bags_that_order_nothing_are_refused(target, values, names, message):
    bags = bags_with(TargetLabels.of(target, values, names=names))
    with pytest.raises(BagDataError, match=f"(?s){message}"):
        target_of(bags).check(bags)


def test_batches_hold_each_stratum_in_turn_and_resume():
    strata = np.repeat([0, 1, 2], [60, 9, 3])
    sampler = StrataSampler(strata, np.full(72, 4), num_positive=4, num_negative=5, num_instances=2)
    first = sampler.epoch()
    assert all((np.bincount(strata[row], minlength=3) == 3).all() for row in first.bags.numpy())
    assert all(len(set(row)) == 9 for row in first.bags.tolist())
    state, then = sampler.state_dict(), sampler.epoch()
    other = StrataSampler(strata, np.full(72, 4), num_positive=4, num_negative=5, num_instances=2)
    other.load_state_dict(state)
    assert other.epoch().bags.tolist() == then.bags.tolist()
    with pytest.raises(CheckpointError, match="3 strata"):
        sampler.load_state_dict({**state, "queues": state["queues"][:2]})


def test_a_small_stratum_leaves_its_turns_to_the_others():
    strata = np.repeat([0, 1], [30, 2])
    sampler = StrataSampler(strata, np.full(32, 4), num_positive=4, num_negative=4, num_instances=2)
    assert {tuple(np.bincount(strata[row])) for row in sampler.epoch().bags.numpy()} == {(6, 2)}
    with pytest.raises(ConfigError, match="`num_positive` as a whole number of at least 1"):
        StrataSampler(strata, np.full(32, 4), num_positive=0, num_instances=2)


def test_splits_and_folds_spread_the_strata_and_keep_groups():
    rng = np.random.default_rng(0)
    strata, groups = rng.integers(0, 4, 400), np.repeat(np.arange(100), 4).astype(str)
    splits = split_strata(strata, groups=groups, seed=1)
    assert all(len(set(splits[groups == group])) == 1 for group in np.unique(groups))
    for name, share in (("train", 0.6), ("val", 0.2), ("test", 0.2)):
        shares = np.bincount(strata[splits == name], minlength=4) / np.bincount(strata)
        np.testing.assert_allclose(shares, share, atol=0.03)
    folds = stratified_folds(strata, folds=5, seed=1, binary=False)
    assert all(np.ptp(np.bincount(folds[strata == code])) <= 1 for code in range(4))
    with pytest.raises(BagDataError, match="at least 3 bags"):
        split_strata([0, 1])


def test_the_rare_label_and_the_event_take_their_turns():
    labels = TargetLabels.of("multilabel", [[1, 1], [1, 0], [1, 0], [0, 0]], names=["often", "rare"])
    assert target_of(bags_with(labels)).turns(labels.values).tolist() == [2, 1, 1, 0]
    times = TargetLabels.of("survival", [[1, 1], [2, 0], [3, 0]], names=["time", "event"])
    assert target_of(bags_with(times)).turns(times.values).tolist() == [1, 0, 0]


def test_what_scores_mean_follows_the_validation_bags():
    rng = np.random.default_rng(0)
    grades = TargetLabels.of("ordinal", rng.integers(0, 3, 60), names=["low", "mid", "high"])
    target = target_of(bags_with(grades))
    scores = (grades.values[:, 0] + 0.5) / 3
    decision = target.decide(grades.values, scores)
    told = target.predictions(scores, target.decision({"decision": decision.to_dict()}))
    assert told["grade"] == grades.columns()["label"]
    assert target.summarize(grades.values, scores, decision=decision)["accuracy"] == 1
    assert target.predictions(scores, None) == {"grade": [None] * 60}


@pytest.mark.parametrize(
    ("target", "objective"), [("continuous", "pairwise"), ("survival", "pairwise"), ("survival", "cox")]
)
@pytest.mark.parametrize("offset", [0.0, 1e9])
def test_numbers_and_times_of_many_digits_stay_in_order(target, objective, offset):
    bags = outcome_bags(target, 40)
    # Seconds since 1970 of bags that are a second apart: float32 has one number for 64 of them.
    values = bags.outcome.values.copy()
    values[:, 0] = offset + np.arange(1, 41)
    bags = bags.replace(outcome=TargetLabels.of(target, values, names=list(bags.outcome.names)))
    settings = Settings(epochs=1, objective=objective, num_positive=4, num_negative=4)
    training = build_training(settings, bags)
    with training.epoch(0) as batches:
        batch = next(batches)
    index = batch.index
    expected = comparable(torch.from_numpy(values)[index], pairs=training.objective.pairs)
    assert expected.any()
    assert (comparable(batch.labels, pairs=training.objective.pairs) == expected).all()
    # Where float32 tells them apart, labels are as ever; losses and weights always are float32.
    assert batch.labels.dtype == (torch.float64 if offset else torch.float32)
    result = training.train_epoch(0)
    assert np.isfinite(result).all()
    assert {p.dtype for p in training.model.parameters()} == {torch.float32}
