"""Whether a model keeps the assumption: models whose answers are known, and what a run says of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.quick import HELD_OUT
from tests.trainings import outcome_bags, witness_bags

from midam import BagClassifier, Bags, MIDAMClassifier, predict
from midam.errors import BagDataError, ConfigError
from midam.evaluate.assumption import check_assumption, checked_bags
from midam.nn.pooling import MaxPooling, MeanPooling, NoisyOrPooling
from midam.nn.pooling.base import RescaledPooling
from midam.nn.pooling.mean import MeanPooling as _Mean
from midam.nn.scorer import BagScorer
from midam.report.page.assumption import assumption_part, assumption_words
from midam.runs.assumption import check_fit, check_run


class SizeMean(_Mean):
    """A pooling that scores a bag by the number of its instances."""

    def score(self, l, r, n):  # noqa: E741
        return torch.sigmoid(torch.log(n) - 3 + 0 * r.squeeze(-1))

    def logit(self, l, r, n):  # noqa: E741
        return torch.logit(self.score(l, r, n))


def scores_of(kind):
    """A scorer of one score per instance, which is given."""
    pooling = kind(1)
    torch.nn.init.ones_(pooling.scorer.weight), torch.nn.init.zeros_(pooling.scorer.bias)
    return BagScorer(torch.nn.Identity(), pooling)


def bags_of(high=4.0, low=-4.0, *, size=20, number=40):
    """Bags of low scores, of which each second one has two high ones; in groups of four."""
    x = np.full((number, size, 1), low, np.float32) + np.random.default_rng(0).normal(size=(number, size, 1)) * 0.1
    x[1::2, 3:5] = high
    labels = np.arange(number) % 2
    return Bags.from_list(x.astype(np.float32), labels, groups=np.arange(number) // 4), labels == 1


def named(result):
    return {row["name"]: row for row in result["changes"]}


def test_a_maximum_keeps_it():
    bags, positive = bags_of()
    result = check_assumption(scores_of(MaxPooling), bags, positive, threshold=0.5)
    rows = named(result)
    assert (result["positive"], result["negative"], result["measure"], result["counts"]) == (20, 20, "score", False)
    for name in ("one negative bag", "10 times as large", "random 10%", "each instance twice"):
        assert rows[name]["change"]["value"] == pytest.approx(0, abs=1e-6), name
    assert rows["top 10%"]["called"]["value"] == 0
    assert rows["top 10%"]["median"] == pytest.approx(result["negatives"]["median"], abs=0.01)
    # Two of twenty: some draw takes none of the two in most bags, and both in few.
    assert rows["random 10%"]["called"]["value"] >= 0.9
    assert 0.4 <= rows["random 50%"]["called"]["value"] <= 0.95


def test_a_mean_is_diluted_by_what_negative_bags_hold():
    bags, positive = bags_of(high=30.0, low=-2.0)
    model = scores_of(MeanPooling)
    model.pooling.squash = False
    rows = named(check_assumption(model, bags, positive, threshold=0.5))
    scores = predict(model, bags)[positive]
    expected = 1 / (1 + np.exp(-(2 * 30 - 38 * 2) / 40))
    assert rows["one negative bag"]["median"] == pytest.approx(expected, abs=0.01)
    assert rows["one negative bag"]["change"]["value"] == pytest.approx(np.median(expected - scores), abs=0.01)
    assert rows["10 times as large"]["called"]["value"] == 0 < rows["each instance twice"]["called"]["value"]


def test_a_bag_that_counts_twice():
    bags, positive = bags_of(high=0.0, low=-3.0, size=6)
    counted = check_assumption(scores_of(NoisyOrPooling), bags, positive)
    assert counted["counts"]
    assert named(counted)["each instance twice"]["change"]["value"] > 0.05
    wrapped = BagScorer(torch.nn.Identity(), RescaledPooling(NoisyOrPooling(1), 2.0, 0.5))
    assert check_assumption(wrapped, bags, positive)["counts"]
    sized = check_assumption(scores_of(SizeMean), bags, positive)
    assert not sized["counts"]
    assert named(sized)["each instance twice"]["change"]["value"] == pytest.approx(
        12 / (12 + np.e**3) - 6 / (6 + np.e**3)
    )
    assert named(sized)["one negative bag"]["called"] is None


def test_removed_instances_are_those_of_the_changed_bags():
    bags, positive = bags_of()
    rng = np.random.default_rng(1)
    bags = bags.replace(instances=rng.normal(size=(bags.num_instances, 1)).astype(np.float32))
    rows = named(check_assumption(scores_of(MaxPooling), bags, positive))
    left = [np.sort(bags[i], axis=0)[:-2] for i in np.flatnonzero(positive)]
    assert rows["top 10%"]["median"] == pytest.approx(np.median(predict(scores_of(MaxPooling), Bags.from_list(left))))
    left = [np.sort(bags[i], axis=0)[:10] for i in np.flatnonzero(positive)]
    assert rows["top 50%"]["median"] == pytest.approx(np.median(predict(scores_of(MaxPooling), Bags.from_list(left))))


def test_intervals_count_groups_and_not_bags():
    bags, positive = bags_of(high=1.0)
    scores = np.random.default_rng(3).normal(size=10)
    shifted = np.asarray(bags.instances).reshape(40, 20) + scores.repeat(4)[:, None]
    bags = bags.replace(instances=shifted.reshape(-1, 1).astype(np.float32))
    alone = check_assumption(scores_of(MaxPooling), bags.replace(groups=None), positive)
    grouped = check_assumption(scores_of(MaxPooling), bags, positive)
    widths = [named(one)["top 10%"]["change"] for one in (alone, grouped)]
    assert widths[0]["high"] - widths[0]["low"] < widths[1]["high"] - widths[1]["low"]
    assert widths[0]["value"] == widths[1]["value"]


def test_bags_that_are_too_large_are_left_out():
    sizes = np.array([4, 2**25, 4, 4, 4, 4])
    bags = Bags(np.zeros((4, 1), np.float32), sizes=np.full(6, 4), starts=np.zeros(6, int))
    vars(bags)["sizes"] = sizes
    chosen = checked_bags(scores_of(MaxPooling), bags, np.arange(6) % 2 == 1, most=2)
    assert len(chosen) == 4
    assert 1 not in chosen


@pytest.fixture(scope="module")
def run():
    bags = witness_bags(60, shift=4.0)
    return MIDAMClassifier(epochs=20, members=1, seed=0).fit(bags, bags.labels).to_run()


def test_a_run_is_checked_on_labeled_and_unlabeled_bags(run):
    bags = witness_bags(40, seed=1, shift=4.0)
    labeled = check_run(run, bags, most=10)
    assert (labeled["positive"], labeled["negative"], labeled["positives"], labeled["part"]) == (
        10,
        10,
        "labeled",
        "new",
    )
    called = check_run(run, bags.replace(labels=None))
    assert called["positives"] == "called"
    assert called["before"]["called"]["value"] == 1
    assert len(assumption_words(called)) == 3
    assert len(assumption_part(called).blocks) >= 5
    assert check_fit(run.model, bags, np.arange(40), run.decision, chunk_size=64)["positive"] == HELD_OUT
    assert check_fit(run.model, bags, np.arange(8), run.decision, chunk_size=64) is None


def test_runs_and_bags_that_cannot_be_checked_are_refused(run):
    bags = outcome_bags("multilabel")
    several = BagClassifier(epochs=1, folds=0, members=1).fit(bags, np.array([[1, 0], [0, 1], [1, 1]] * 20))
    with pytest.raises(ConfigError, match="Expected a run of two classes, got the target 'multilabel'"):
        check_run(several.to_run(), bags)
    bags = witness_bags(8)
    with pytest.raises(ConfigError, match="Expected labeled bags for a run without a threshold"):
        check_run(replace(run, decision=None), bags.replace(labels=None))
    with pytest.raises(BagDataError, match="Expected positive and negative bags, got 0 positive bags of 4"):
        check_run(run, bags.subset(np.flatnonzero(bags.labels == 0)))
