"""Why bags were called: the instances and features that did it, against scoring the changed bags."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.trainings import covariate_bags, outcome_bags
from tests.unit.test_pooled import KINDS, doubled, model_of

from midam import BagClassifier, Bags, MIDAMClassifier, predict
from midam.data.column_codes import prepare
from midam.data.covariates import Column
from midam.errors import ConfigError
from midam.evaluate import pooled
from midam.explain import why
from midam.explain.calls import decide
from midam.explain.explanation import Features
from midam.explain.page import calls_page
from midam.explain.words import bag_lines
from midam.nn.pooling import MaxPooling
from midam.nn.scorer import BagScorer
from midam.runs.typical import ordinary_values
from midam.settings import Settings

NAMES = ["a", "b", "c", "d"]


def features_of(bags):
    x = np.asarray(bags.instances)
    typical, middle = np.median(x, axis=0), np.quantile(x, [0.25, 0.75], axis=0)
    return Features(NAMES, np.array(NAMES), typical, x.mean(axis=0), middle)


@pytest.mark.parametrize("kind", KINDS)
def test_bags_in_blocks_and_files_have_the_reasons_of_bags_in_memory(kind, monkeypatch):
    model, bags = model_of(kind), doubled()
    features, options = features_of(bags), {"threshold": 0.4, "top": 3}
    together = list(decide(pooled.PooledBags(model, bags), bags, features, **options))
    monkeypatch.setattr(pooled, "MOST_NUMBERS", 20)
    monkeypatch.setattr(pooled, "_LARGE", 0)
    for reasons, expected in zip(
        decide(pooled.PooledBags(model, bags, chunk_size=10), bags, features, **options), together, strict=True
    ):
        assert [one["instance"] for one in reasons] == [one["instance"] for one in expected]
        for one, other in zip(reasons, expected):
            numbers = [
                [np.nan if x[name] is None else x[name] for name in ("adds", "share", "without")] for x in (one, other)
            ]
            np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-6)
            assert [feature["name"] for feature in one["features"]] == [
                feature["name"] for feature in other["features"]
            ]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_without_instances_and_features_are_those_of_the_changed_bags(kind):
    model, bags = model_of(kind), doubled()
    features = features_of(bags)
    scores = predict(model, bags)
    listed = decide(pooled.PooledBags(model, bags), bags, features, threshold=0.0, top=3)
    for index, reasons in enumerate(listed):
        x, before, left = bags[index], scores[index], np.arange(bags.sizes[index])
        assert 1 <= len(reasons) <= 3
        last = reasons[-1]["without"]
        taken = 1.0 if last is None else max(0.0, 1 - last / scores[index])
        np.testing.assert_allclose(sum(one["share"] for one in reasons), taken, rtol=1e-4, atol=1e-6)
        for one in reasons:
            rest = left[left != one["instance"]]
            for feature in one["features"]:
                row, at = x[one["instance"]].copy(), NAMES.index(feature["name"])
                assert (feature["value"], feature["typical"]) == (row[at], features.typical[at])
                row[at] = feature["typical"]
                (score,) = predict(model, Bags.from_list([np.concatenate([x[rest], row[None]])]))
                np.testing.assert_allclose(feature["adds"], before - score, rtol=1e-4, atol=2e-7)
                assert feature["adds"] > 0
            left = rest
            if len(left):
                (before,) = predict(model, Bags.from_list([x[left]]))
                np.testing.assert_allclose(one["without"], before, rtol=1e-6)
            else:
                assert one["without"] is None


def test_two_witnesses_that_are_alike_are_both_listed():
    model = BagScorer(torch.nn.Identity(), MaxPooling(1))
    torch.nn.init.ones_(model.pooling.scorer.weight), torch.nn.init.zeros_(model.pooling.scorer.bias)
    bags = Bags.from_list([np.array([[-5.0], [3.0], [-4.0], [3.0], [-6.0]], np.float32)])
    (reasons,) = decide(pooled.PooledBags(model, bags), bags, None, threshold=0.5, top=3)
    assert [one["instance"] for one in reasons] == [1, 3]
    assert [one["adds"] for one in reasons] == [0, 0], "alone, neither adds anything"
    np.testing.assert_allclose([one["share"] for one in reasons], (0.9526 - 0.018) / 0.9526 / 2, rtol=1e-3)
    np.testing.assert_allclose([one["without"] for one in reasons], [0.9526, 0.018], rtol=1e-3)


def planted(number=40, *, seed=0):
    """Bags of which instance 2 of each positive one is hot, and in mode 2."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 6, 3))
    x[:, :, 2] = rng.random((number, 6)) < 0.1
    x[1::2, 2, 1] += 8
    x[1::2, 2, 2] = 1
    return Bags.from_list(
        x, np.arange(number) % 2, feature_names=["noise", "heat", "mode"], groups=np.arange(number) // 2
    )


@pytest.fixture(scope="module")
def run():
    bags = planted()
    return MIDAMClassifier(epochs=30, members=1, seed=0).fit(bags, bags.labels).to_run()


def test_called_bags_name_their_witness_and_its_heat(run):
    bags = planted(20, seed=1)
    found = why(run, bags)
    scores = predict(run.model, bags)
    assert {one["index"] for one in found} == set(np.flatnonzero(scores >= run.threshold).tolist())
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    for one in found:
        if one["index"] % 2:
            first = one["instances"][0]
            (heat,) = (feature for feature in first["features"] if feature["name"] == "heat")
            assert first["instance"] == 2
            assert heat["value"] > 5 > heat["high"] > heat["typical"] > heat["low"]
        assert one["group"] == str(one["index"] // 2)
        assert one["size"] == 6
        assert one["called"] == "1"
    assert len(why(run, bags, every=True, top=1)) == 20


def test_a_bag_that_many_instances_carry_names_none(run):
    many = np.random.default_rng(3).normal([0, 8, 0], size=(100, 3))
    bags = Bags.from_list([many, planted(2)[1]], feature_names=["noise", "heat", "mode"])
    carried, decided = sorted(why(run, bags), key=lambda entry: entry["index"])
    without = f"without the top 3, the score would be {carried['instances'][-1]['without']:.3f}."
    assert bag_lines(carried)[1:] == [f"  No instance stands out: {without}"]
    assert bag_lines(decided)[1].startswith("  #2: ")
    page = calls_page("Why", [carried, decided], bags, total=2)
    assert page.count("No instance stands out") == 1
    assert page.count("The instances that add most") == page.count("The instances that decided")


def test_ordinary_values_are_those_of_negative_bags_alone(run):
    x = np.arange(80.0).reshape(8, 10, 1)
    bags = Bags.from_list(x, [1, 0] * 4)
    negative = x[1::2].reshape(-1)
    known = ordinary_values(bags)
    assert known["typical"] == [np.median(negative)]
    assert known["ordinary"]["bags"] == "negative"
    assert known["ordinary"]["instances"] == 40
    np.testing.assert_allclose(np.ravel(known["ordinary"]["middle"]), np.quantile(negative, [0.25, 0.75]))
    assert set(run.data["ordinary"]) == {"bags", "instances", "means", "middle"}
    assert ordinary_values(outcome_bags("continuous"))["ordinary"]["bags"] == "all"
    assert ordinary_values(Bags.from_list(np.zeros((2, 1, 3, 4, 4)), [0, 1]))["ordinary"] is None


def test_a_category_is_one_feature_with_its_share():
    rng, words = np.random.default_rng(0), np.array([0.0, 1.0])
    x = np.stack([rng.normal(size=240), rng.choice(words, 240, p=[0.9, 0.1])], axis=1)
    x[::12, 1] = 1  # the first row of each second bag
    columns = (Column("size"), Column("mode", "category", ("load", "ramp")))
    bags = Bags(x, sizes=np.full(40, 6), labels=np.arange(40) % 2 == 0, feature_names=["size", "mode"], columns=columns)
    made = prepare(bags, Settings().data, train=np.arange(40))
    known = ordinary_values(made.bags, made.columns)
    at = made.bags.feature_names.index("mode=ramp")
    assert known["ordinary"]["means"][at] == pytest.approx(
        np.asarray(made.bags.instances)[bags.labels.repeat(6) == 0, at].mean()
    )
    assert known["typical"][made.bags.feature_names.index("mode=load")] == 1


def test_covariates_and_several_classes_count():
    bags = covariate_bags(40)
    run = MIDAMClassifier(epochs=2, members=2).fit(bags, bags.labels).to_run()
    np.testing.assert_allclose(pooled.PooledBags(run.model, bags).scores(), predict(run.model, bags), rtol=1e-5)
    rng, classes = np.random.default_rng(0), np.arange(45) % 3
    several = Bags.from_list([rng.normal(size=(4, 3)) + [3 * (y == k) for k in range(3)] for y in classes])
    model = BagClassifier(epochs=5, members=2).fit(several, classes)
    found, scores = why(model.to_run(), several), predict(model.model_, several)
    assert len(found) == 45
    assert {one["explained"] for one in found} == {"0", "1", "2"}
    for one in found[:5]:
        assert one["threshold"] is None
        assert one["score"] == pytest.approx(scores[one["index"]].max(), rel=1e-5)


def test_a_run_without_a_threshold_is_refused(run):
    with pytest.raises(ConfigError, match="Expected a run with a threshold"):
        why(replace(run, decision=None), planted(4))
    assert len(why(replace(run, decision=None), planted(4), every=True)) == 4
