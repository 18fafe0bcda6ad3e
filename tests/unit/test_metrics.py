"""Metrics: equality with scikit-learn and loops, the operating point, the summary."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, f1_score, roc_auc_score

from midam import Bags
from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.calibrate import BinaryDecision, calibration_line, one_scale, reliability_bins
from midam.evaluate.classes import class_aurocs, macro_auroc, macro_auroc_interval, paired_macro_auroc
from midam.evaluate.concordance import concordance_interval
from midam.evaluate.decisions import GradeCuts, NumberScale, TemperatureCalibrator
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.labeled_instances import instance_metrics
from midam.evaluate.metrics import GIVEN, auprc, auprc_estimate, measure, summarize, threshold_metrics
from midam.evaluate.proportions import RULES, operating_points, proportion
from midam.evaluate.ranking import Pairs, auroc
from midam.evaluate.subgroups import binary_figures, find_subgroups
from midam.registry import METRICS
from midam.settings import Settings
from midam.targets import OutOfFold, target_named
from midam.targets.binary import Binary


@st.composite
def bags(draw):
    count = draw(st.integers(2, 40))
    labels = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count).filter(lambda y: 0 < sum(y) < len(y)))
    kind = st.integers(-3, 3).map(float) if draw(st.booleans()) else st.floats(-1e6, 1e6)
    return np.array(labels), np.array(draw(st.lists(kind, min_size=count, max_size=count)))


@given(bags())
@settings(max_examples=100, deadline=None)
def test_areas_equal_scikit_learn(sample):
    labels, scores = sample
    assert auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), rel=1e-12, abs=1e-12)
    assert auprc(labels, scores) == pytest.approx(average_precision_score(labels, scores), rel=1e-12)


@given(bags())
@settings(max_examples=60, deadline=None)
def test_auroc_depends_on_ranks_alone(sample):
    labels, scores = sample
    assert auroc(labels, np.unique(scores, return_inverse=True)[1]) == auroc(labels, scores)
    assert auroc(labels, -scores) == pytest.approx(1 - auroc(labels, scores), abs=1e-12)


def test_auroc_is_exact_at_the_ends():
    labels = np.repeat([0, 1], [17, 23])
    assert auroc(labels, np.linspace(0, 1, 40)) == 1.0
    assert auroc(labels, -np.linspace(0, 1, 40)) == 0.0
    assert auroc(labels, np.zeros(40)) == 0.5


def operating_point(labels, scores, rule="youden"):
    """The threshold of a rule."""
    return operating_points(labels, scores, [rule])[0].threshold


@given(bags())
@settings(max_examples=100, deadline=None)
def test_operating_point_beats_every_threshold(sample):
    labels, scores = sample

    def youden(threshold):
        called = scores >= threshold
        return called[labels == 1].mean() - called[labels == 0].mean()

    best = max([youden(threshold) for threshold in np.unique(scores)] + [0.0])
    assert youden(operating_point(labels, scores)) == pytest.approx(best, abs=1e-12)


def test_operating_point_lies_halfway():
    assert operating_point([0, 1, 0, 1], [0.0, 3.0, 1.0, 2.0]) == 1.5


def test_operating_point_breaks_ties_by_balance_then_by_sensitivity():
    # J = .5 with (sensitivity, specificity) = (.5, 1), (.75, .75), (1, .5): the balanced one.
    labels, scores = [0, 0, 1, 0, 1, 0, 1, 1], [0, 1, 2, 3, 4, 5, 6, 7]
    assert operating_point(labels, scores) == 3.5
    # J = .5 with (.5, 1) and (1, .5): equally balanced, so the lower threshold.
    assert operating_point([0, 1, 0, 1], [0, 1, 2, 3]) == 0.5


def test_operating_point_without_a_useful_threshold_calls_all_positive():
    assert operating_point([1, 1, 0, 0], [0.0, 1.0, 2.0, 3.0]) == 0.0
    assert 0.3 - 1e-8 < operating_point([0, 1], [0.3, 0.3]) <= 0.3


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
def test_classes_are_the_same_by_scores_with_nine_digits():
    rng = np.random.default_rng(0)
    for count in (1, 2, 20):
        scores = rng.choice(rng.random(count).astype(np.float32), 60).astype(np.float64)
        labels, folds = np.arange(60) % 2, np.arange(60) // 12
        made = target_named(None).cross_decide(OutOfFold(labels, scores, folds))
        points = [(scores, point.threshold) for point in operating_points(labels, scores)]
        for values, threshold in [*points, (made.scores, made.decision.threshold)]:
            rounded = np.array([float(f"{value:.9g}") for value in values])
            np.testing.assert_array_equal(rounded >= threshold, values >= threshold)


def test_operating_point_between_neighboring_floats_and_huge_scores():
    upper = np.nextafter(1.0, 2.0)
    threshold = operating_point([0, 1], [1.0, upper])
    assert 1.0 < threshold <= upper
    assert operating_point([0, 1], [-1.7e308, 1.7e308]) == 0.0


@given(bags(), st.sampled_from(["f1", "cost=10:1", "cost=1:3", "ppv=0.5", "ppv=0.9"]))
@settings(max_examples=100, deadline=None)
def test_thresholds_by_rule_beat_every_other_one(sample, rule):
    labels, scores = np.array(sample[0]), np.array(sample[1])
    name, _, number = rule.partition("=")

    def gain(threshold):
        called = scores >= threshold
        hits, alarms = int(called[labels == 1].sum()), int(called[labels == 0].sum())
        missed = int(labels.sum()) - hits
        if name == "f1":
            return 2 * hits / (2 * hits + alarms + missed)
        if name == "cost":
            missing, alarm = map(float, number.split(":"))
            return -missing * missed - alarm * alarms
        precision = hits / max(hits + alarms, 1)
        return (1.0, hits) if precision >= float(number) - 1e-9 else (0.0, precision)

    (found,) = operating_points(labels, scores, [rule])
    every = [*np.unique(scores), np.nextafter(scores.max(), np.inf)]
    assert gain(found.threshold) == pytest.approx(max(map(gain, every)), abs=1e-12)


def test_a_rule_that_cannot_be_met_says_what_is_taken():
    labels, scores = [0, 1, 0, 1, 0, 0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    (ppv, specificity) = operating_points(labels, scores, ["ppv=0.9", "specificity=1"])
    assert re.search(r"threshold with ppv=0\.9, got .* 0\.40", ppv.note)
    assert ppv.threshold == 1.5
    assert "specificity=1 calls no bag positive" in specificity.note
    assert specificity.threshold > 6
    assert [point.rule for point in operating_points(labels, scores)] == list(RULES)


@pytest.mark.parametrize(
    "rule", ["", "youdn", "sensitivity", "sensitivity=", "ppv=1.5", "f1=0.5", "cost=0:1", "0.5", 0.5]
)
def test_other_rules_are_refused_before_anything_runs(rule):
    with pytest.raises(ConfigError, match="threshold"):
        operating_point([0, 1], [0.0, 1.0], rule)
    with pytest.raises(ConfigError, match="threshold"):
        Settings(threshold=rule)


def test_rules_are_written_in_one_way():
    assert [Settings(threshold=rule).run.threshold for rule in ("sensitivity=.9", "ppv=0.50", "cost=10:1")] == [
        "sensitivity=0.9",
        "ppv=0.5",
        "cost=10:1",
    ]


def test_pooled_bags_find_the_threshold_of_rare_positives():
    """Of 2000 bags, 3% positive, 400 are for validation, 720 scored by inner folds: calls at a sensitivity of 0.9."""
    rng = np.random.default_rng(0)

    def sample(bags):
        labels = (np.arange(bags) < 0.03 * bags).astype(np.int64)
        return labels, rng.normal(size=bags) + 2.5 * labels

    excess = {"alone": [], "pooled": []}
    for _ in range(60):
        val, inner, (labels, scores) = sample(400), OutOfFold(*sample(720), np.arange(720) % 5), sample(4000)
        needed = (scores >= operating_point(labels, scores, "sensitivity=0.9")).sum()
        for name, more in (("alone", None), ("pooled", inner)):
            decision = Binary().decide(*val, rule="sensitivity=0.9", out_of_fold=more)
            excess[name].append(np.log(decision.call(scores).sum() / needed))
    assert decision.thresholds.bags == 1120
    assert np.exp(np.mean(excess["pooled"])) < 1.5
    assert np.quantile(np.exp(excess["pooled"]), 0.9) < 2.5
    assert np.std(excess["pooled"]) < 0.8 * np.std(excess["alone"])


def test_enough_validation_bags_are_taken_alone():
    labels, scores = np.arange(60) % 2, np.arange(60.0)
    more = OutOfFold(np.array([0, 1]), np.array([-1.0, 99.0]), np.array([0, 0]))
    assert Binary().decide(labels, scores, out_of_fold=more).thresholds.bags == 60
    assert Binary().decide(labels[:38], scores[:38], out_of_fold=more).thresholds.bags == 40
    none = Binary().decide(labels[:0], scores[:0], out_of_fold=more)
    assert (none.thresholds.bags, none.thresholds.out_of_fold) == (2, 2)


def folds_of_other_scales(rng, bags, signal):
    """Labels, scores by the models of five folds, whose logits differ in place and scale, and the folds."""
    labels, folds = (np.arange(bags) // 5 % 10 < 3).astype(np.int64), np.arange(bags) % 5
    logits = rng.normal(size=bags) + signal * labels
    return labels, expit(np.array([0.1, 3.0, 0.5, 1.0, 0.3])[folds] * logits + np.arange(-2, 3)[folds]), folds


def test_one_scale_keeps_the_order_of_each_model_and_removes_what_they_differ_in():
    rng = np.random.default_rng(0)
    gaps = {signal: [] for signal in (0.0, 1.5)}
    for signal, differences in gaps.items():
        for _ in range(100):
            labels, scores, folds = folds_of_other_scales(rng, 60, signal)
            made = one_scale(scores, folds)
            inside = [auroc(labels[folds == fold], scores[folds == fold]) for fold in range(5)]
            assert inside == [auroc(labels[folds == fold], made[folds == fold]) for fold in range(5)]
            differences.append([np.mean(inside) - auroc(labels, s) for s in (scores, made)])
    before, after = np.mean(gaps[1.5], axis=0)
    assert before > 0.15
    assert after < 0.03
    assert abs(np.mean(gaps[0.0], axis=0)[1]) < 0.02, "noise stays noise"
    alike = expit(rng.normal(size=1000))
    assert np.abs(one_scale(alike, np.arange(1000) % 5) - alike).max() < 0.05, "chance is left"


def test_the_chance_between_models_is_that_of_whole_patients():
    rng, moved = np.random.default_rng(0), {"bags": [], "patients": []}
    patients = np.repeat(np.arange(20), 10)
    models = patients % 5  # the model of a fold scores four patients, whose bags are alike
    for _ in range(20):
        scores = rng.normal(size=20)[patients] + 0.5 * rng.normal(size=200)
        moved["bags"].append(np.abs(one_scale(scores, models) - scores).mean())
        moved["patients"].append(np.abs(one_scale(scores, models, groups=patients) - scores).mean())
        np.testing.assert_array_equal(one_scale(scores, models, groups=np.arange(200)), one_scale(scores, models))
    assert np.mean(moved["bags"]) > 3 * np.mean(moved["patients"]), "what the models do not differ in stays"
    shifted = scores + 9 * models
    gaps = [
        np.ptp([np.median(x[models == k]) for k in range(5)])
        for x in (shifted, one_scale(shifted, models, groups=patients))
    ]
    assert gaps[0] > 30
    assert gaps[1] < 3
    np.testing.assert_allclose(one_scale(shifted, models, groups=models), shifted)  # one patient tells no scale
    np.testing.assert_array_equal(one_scale(np.full(200, 0.5), models, groups=patients), 0.5)
    labels, names = patients // 2 % 2, patients.astype(str)
    one, by_patients = (
        target_named(None).cross_decide(OutOfFold(labels, scores + 2 * labels, models, groups))
        for groups in (None, names)
    )
    assert np.abs(one.scores - by_patients.scores).max() > 0.1
    decisions = [
        target_named(None).decide(
            labels[::10], (scores + labels)[::10], out_of_fold=OutOfFold(labels, shifted, models, groups)
        )
        for groups in (None, names)
    ]
    assert decisions[0].threshold != decisions[1].threshold


@pytest.mark.parametrize("scores", [[0.3, 0.3, 0.3, 0.3], [0.0, 1.0, 0.0, 1.0], [-3.0, 5.0, 0.0, 2.0], [0.5] * 4])
def test_one_scale_takes_scores_that_are_equal_or_at_their_ends(scores):
    for models in ([0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 2, 3]):
        for like in (None, 0, 3):
            made = one_scale(scores, models, like=like)
            assert np.isfinite(made).all()
            kept = np.array(models) == like
            assert made[kept].tolist() == np.array(scores)[kept].tolist()
    assert one_scale([], []).tolist() == []


def test_probabilities_by_few_bags_do_not_depend_on_the_scales_of_the_folds():
    """A slope near 1 on new bags; pooled as they are, the scores of such folds give one of 5 and more."""
    rng = np.random.default_rng(0)
    slopes = {"now": [], "pooled": []}
    for _ in range(40):
        labels, scores, folds = folds_of_other_scales(rng, 60, 1.5)
        val, test = (rng.random(n) < 0.3 for n in (20, 4000))
        val_scores, test_scores = (expit(rng.normal(size=len(y)) + 1.5 * y) for y in (val, test))
        if not 0 < val.sum() < 20:
            continue
        more = OutOfFold(labels, scores, folds)
        made = Binary().decide(val.astype(np.int64), val_scores, out_of_fold=more)
        pooled = BinaryDecision.fit(np.append(val_scores, scores), np.append(val, labels).astype(np.int64))
        for name, decision in (("now", made), ("pooled", pooled)):
            slopes[name].append(calibration_line(test.astype(np.int64), decision.predict(test_scores))[0])
    assert 0.8 < np.median(slopes["now"]) < 1.25
    assert np.median(slopes["pooled"]) > 1.5


def test_other_targets_have_no_rule():
    with pytest.raises(ConfigError, match="Expected no `threshold` with the target 'multiclass', got 'f1'"):
        target_named({"target": "multiclass", "names": ["a", "b", "c"]}).check_rule("f1")
    target_named(None).check_rule("f1")


def test_threshold_metrics_equal_scikit_learn():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [31, 17])
    scores = generator.normal(size=48) + labels
    found = threshold_metrics(labels, scores, 0.4)
    called = scores >= 0.4
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, called), rel=1e-12)
    assert found["f1"] == pytest.approx(f1_score(labels, called), rel=1e-12)
    for name, label, hits in (("sensitivity", 1, called), ("specificity", 0, ~called)):
        right, count = int(hits[labels == label].sum()), int((labels == label).sum())
        assert found[name] == right / count
        wilson = binomtest(right, count).proportion_ci(0.95, method="wilson")
        assert found[f"{name}_ci95"] == pytest.approx([wilson.low, wilson.high], rel=1e-9)


def test_threshold_is_inclusive_and_wilson_is_exact_at_the_ends():
    found = threshold_metrics([0, 0, 1, 1], [0.0, 0.1, 0.5, 0.9], 0.5)
    assert (found["sensitivity"], found["specificity"], found["f1"]) == (1.0, 1.0, 1.0)
    assert found["sensitivity_ci95"][1] == 1.0
    missed = threshold_metrics([0, 0, 1, 1], [0.0, 0.1, 0.5, 0.9], 1.0)
    assert missed["sensitivity_ci95"][0] == 0.0
    assert missed["f1"] == 0.0


def test_threshold_metrics_with_one_class_hold_none():
    found = threshold_metrics([0, 0], [0.1, 0.2], 0.5)
    assert (found["sensitivity"], found["sensitivity_ci95"], found["balanced_accuracy"]) == (None, None, None)
    assert found["specificity"] == 1.0
    assert found["f1"] is None


def test_summary_is_json_and_complete():
    generator = np.random.default_rng(1)
    labels = np.arange(60) % 2
    scores = (generator.normal(size=60) + 1.5 * labels).astype(np.float32)
    probabilities = 1 / (1 + np.exp(-scores))
    found = summarize(labels, scores, threshold=np.float64(0.7), probabilities=probabilities)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found) == [
        *("auroc", "auroc_ci95", "auroc_method", "auprc", "bags", "positives", "at_threshold"),
        *("brier", "calibration_slope", "calibration_intercept", "warnings"),
    ]
    assert found["auroc"] == auroc(labels, scores)
    assert found["auroc_ci95"][0] < found["auroc"] < found["auroc_ci95"][1]
    assert (found["bags"], found["positives"]) == (60, 30)
    assert found["at_threshold"] == threshold_metrics(labels, scores, 0.7)
    assert found["brier"] == pytest.approx(np.mean((probabilities - labels) ** 2), rel=1e-9)
    assert found["warnings"] == []


def test_summary_without_options_leaves_their_keys_out():
    found = summarize([0, 1] * 20, np.arange(40))
    assert set(found) == {"auroc", "auroc_ci95", "auroc_method", "auprc", "bags", "positives", "warnings"}


def test_summary_warns_of_few_bags_and_of_groups():
    few = summarize([0] * 19 + [1] * 30, np.arange(49))
    assert any("30 positive, 19 negative" in warning for warning in few["warnings"])
    grouped = summarize([0, 1] * 30, np.sin(np.arange(60)), groups=np.arange(60) // 3, threshold=0.0)
    assert grouped["groups"] == 20
    assert grouped["auroc_method"].startswith("clustered logit-delong")
    assert grouped["warnings"] == []
    single = summarize([0, 1] * 30, np.sin(np.arange(60)), groups=np.arange(60), threshold=0.0)
    assert (single["groups"], single["warnings"]) == (60, [])


def test_summary_of_one_class_keeps_what_makes_sense():
    found = summarize([1, 1, 1], [0.1, 0.2, 0.9], threshold=0.15, probabilities=[0.5, 0.5, 1.0], groups=["a", "a", "b"])
    assert found["auroc"] is found["auroc_ci95"] is found["auroc_method"] is found["auprc"] is None
    assert found["at_threshold"]["sensitivity"] == 2 / 3
    assert found["brier"] == pytest.approx(0.5 / 3)
    assert found["calibration_slope"] is None
    assert "3 positive and 0 negative" in found["warnings"][0]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_summary_is_reproducible_by_its_seed():
    labels, scores, groups = np.arange(40) % 2, np.cos(np.arange(40)), np.arange(40) // 2
    assert summarize(labels, scores, groups=groups) == summarize(labels, scores, groups=groups)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([], [], "one label per bag"),
        ([0, 1], [0.1], "one score per bag"),
        ([[0, 1]], [[0.1, 0.2]], "one label per bag"),
        ([0, 2], [0.1, 0.2], r"got 2 \(bag 1\)"),
        ([0, 1], [0.1, math.nan], r"got nan \(bag 1\)"),
        ([0, 1], [math.inf, 0.1], r"got inf \(bag 0\)"),
    ],
)
def test_bad_input_is_refused(labels, scores, message):
    for function in (auroc, auprc, operating_point, summarize):
        with pytest.raises(BagDataError, match=message):
            function(labels, scores)


@pytest.mark.parametrize("function", [auroc, auprc, operating_point])
def test_one_class_is_refused(function):
    with pytest.raises(OneClassError, match="0 positive and 2 negative"):
        function([0, 0], [0.1, 0.2])


def test_probabilities_outside_the_unit_interval_are_refused():
    with pytest.raises(BagDataError, match=r"got 1.5 \(bag 1\)"):
        summarize([0, 1], [0.1, 0.2], probabilities=[0.5, 1.5])


LABELS, SCORES, GROUPS = np.arange(40) % 2, np.sin(np.arange(40)), np.arange(40) // 2


def test_named_metrics_are_those_of_the_summary():
    given = {"threshold": 0.2, "probabilities": (SCORES + 1) / 2}
    found = summarize(LABELS, SCORES, **given, metrics=METRICS.names())
    same = {**found, **found["at_threshold"]}
    assert found["metrics"] == {name: same[name] for name in METRICS.names()}


def test_a_metric_gets_what_it_names():
    METRICS.add("first-group", lambda labels, scores, *, groups: scores[np.asarray(groups) == groups[0]].sum())
    try:
        assert measure(["first-group"], LABELS, SCORES, {"groups": GROUPS})["first-group"] == SCORES[:2].sum()
        assert measure(["first-group"], LABELS, SCORES) == {"first-group": None}
    finally:
        METRICS.remove("first-group")
    METRICS.add("area", roc_auc_score)
    try:
        assert measure(["area"], LABELS, SCORES)["area"] == pytest.approx(auroc(LABELS, SCORES), rel=1e-12)
    finally:
        METRICS.remove("area")


def test_a_number_that_does_not_exist_is_none():
    names = ["auroc", "auprc", "sensitivity", "specificity", "balanced_accuracy", "brier"]
    found = measure(names, [1, 1], [0.1, 0.9], {**GIVEN, "threshold": 0.5})
    assert found == {**dict.fromkeys(names), "sensitivity": 0.5}
    METRICS.add("endless", lambda labels, scores: math.inf)
    try:
        assert measure(["endless"], LABELS, SCORES) == {"endless": None}
    finally:
        METRICS.remove("endless")


def test_unknown_metrics_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'auroc'"):
        measure(["aurok"], LABELS, SCORES)
    METRICS.add("odd", lambda labels, scores, weights: 0.0)
    try:
        with pytest.raises(ConfigError, match="'odd', which needs 'weights'"):
            measure(["odd"], LABELS, SCORES)
    finally:
        METRICS.remove("odd")


def test_masked_scores_and_groups_without_a_name_are_refused():
    y, s = [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]
    hidden = np.ma.masked_equal(s, 0.4)
    for call in (lambda: auroc(y, hidden), lambda: auprc(np.ma.masked_equal(y, 1), s), lambda: summarize(y, hidden)):
        with pytest.raises(BagDataError, match="Expected no masked entries"):
            call()
    for name in (pd.NA, pd.NaT, "", "NA", None, math.nan):
        with pytest.raises(BagDataError, match=r"Expected a group for each bag, got .*\(bag 1\)"):
            summarize(y, s, groups=["a", name, "c", "d"])
    assert auroc(y, torch.tensor(s, requires_grad=True)) == auroc(y, s)


def test_whole_numbers_that_rounding_makes_equal_are_refused():
    assert auroc([0, 1], np.array([2**53 - 1, 2**53])) == 1.0
    for scores in (np.array([2**60, 2**60 + 1]), torch.tensor([2**60, 2**60 + 1]), [2**60, 2**60 + 1]):
        with pytest.raises(BagDataError, match=r"up to 2\*\*53"):
            auroc([0, 1], scores)


NAMED = [f"bag{i:02}" for i in range(40)]
SIDES = pd.Series(np.arange(40) % 2, index=NAMED)
HEIGHTS = pd.Series(np.random.default_rng(0).random(40), index=NAMED)
PATIENTS = pd.Series([f"p{i // 2}" for i in range(40)], index=NAMED)
TABLE = pd.DataFrame({"a": SIDES, "b": 1 - SIDES})
MIXED = np.random.default_rng(1).permutation(40)
IN_OTHER_ORDER = {
    "summary's groups": lambda: summarize(SIDES, HEIGHTS, groups=PATIENTS.iloc[MIXED]),
    "summary's folds": lambda: summarize(SIDES, HEIGHTS, folds=PATIENTS.iloc[MIXED]),
    "summary's probabilities": lambda: summarize(SIDES, HEIGHTS, probabilities=HEIGHTS.iloc[MIXED]),
    "folds": lambda: auroc(SIDES, HEIGHTS, folds=PATIENTS.iloc[MIXED]),
    "groups and scores": lambda: auroc_interval(SIDES.to_numpy(), HEIGHTS, groups=PATIENTS.iloc[MIXED]),
    "two scores": lambda: paired_delong(SIDES.to_numpy(), HEIGHTS, HEIGHTS.iloc[MIXED]),
    "threshold": lambda: threshold_metrics(SIDES, HEIGHTS, 0.5, groups=PATIENTS.iloc[MIXED]),
    "proportion": lambda: proportion(SIDES, groups=PATIENTS.iloc[MIXED]),
    "bins": lambda: reliability_bins(SIDES, HEIGHTS, groups=PATIENTS.iloc[MIXED]),
    "average precision": lambda: auprc_estimate(SIDES, HEIGHTS, groups=PATIENTS.iloc[MIXED]),
    "subgroups": lambda: find_subgroups(SIDES, HEIGHTS.iloc[MIXED], PATIENTS, figures=binary_figures()),
    "concordance": lambda: Pairs.of_numbers(SIDES).concordance(HEIGHTS.iloc[MIXED]),
    "its groups": lambda: concordance_interval(Pairs.of_numbers(SIDES), HEIGHTS, groups=PATIENTS.iloc[MIXED]),
    "times": lambda: Pairs.of_times(HEIGHTS, SIDES).concordance(HEIGHTS.iloc[MIXED]),
    "tables": lambda: macro_auroc(TABLE, TABLE.iloc[MIXED]),
    "columns": lambda: class_aurocs(TABLE, TABLE[["b", "a"]]),
    "their groups": lambda: macro_auroc_interval(TABLE, TABLE, groups=PATIENTS.iloc[MIXED]),
    "two tables": lambda: paired_macro_auroc(TABLE, TABLE, TABLE.iloc[MIXED]),
    "grades": lambda: GradeCuts.fit(HEIGHTS.iloc[MIXED], SIDES, count=2),
    "numbers": lambda: NumberScale.fit(HEIGHTS.iloc[MIXED], SIDES),
    "classes": lambda: TemperatureCalibrator.fit(TABLE.iloc[MIXED], SIDES),
    "instances": lambda: instance_metrics(SIDES, HEIGHTS.iloc[MIXED], [20, 20]),
    "other bags in part": lambda: auroc(SIDES, HEIGHTS.set_axis([f"bag{i:02}" for i in range(1, 41)])),
}


@pytest.mark.parametrize("call", IN_OTHER_ORDER.values(), ids=IN_OTHER_ORDER)
def test_series_in_another_order_are_refused_everywhere(call):
    with pytest.raises(BagDataError, match="in one place; order one by the other"):
        call()


def test_series_in_one_order_give_the_numbers_of_arrays():
    series = summarize(SIDES, HEIGHTS, groups=PATIENTS, folds=PATIENTS.str[-1], probabilities=HEIGHTS)
    arrays = [part.to_numpy() for part in (SIDES, HEIGHTS, PATIENTS, PATIENTS.str[-1], HEIGHTS)]
    names = ("labels", "scores", "groups", "folds", "probabilities")
    assert series == summarize(**dict(zip(names, arrays, strict=True)))


def test_names_of_other_kinds_and_columns_are_no_other_order():
    table = pd.DataFrame({"patient": list("aabbcc"), "slide": list("uvwxyz"), "y": [0, 1] * 3, "s": np.arange(6.0)})
    levels = table.groupby(["patient", "slide"]).s.first()
    expected = auroc(table.y, table.s)
    assert auroc(table.set_index("slide").y, levels) == auroc(levels * 0 + table.y.to_numpy(), table.s) == expected
    features, place = pd.DataFrame({"x": [1.0, 2.0], "area": [3.0, 4.0]}), pd.DataFrame({"x": [0, 1], "y": [0, 1]})
    assert len(Bags.from_arrays(features, [0, 1], coords=place)) == 2
    assert threshold_metrics([0, 1], [0.2, 0.8], np.inf)["sensitivity"] == 0


def test_what_is_no_share_threshold_or_fold_is_refused():
    for hits in ([0.9, 0.1], [np.nan, 1.0], ["no", "yes"]):
        with pytest.raises(BagDataError, match="hits as truth values"):
            proportion(hits)
    with pytest.raises(ConfigError, match="`threshold` as a finite number, got nan"):
        threshold_metrics([0, 1], [0.2, 0.7], math.nan)
    for folds in ([np.nan, np.nan, 0, 0], ["a", None, "a", "a"]):
        with pytest.raises(BagDataError, match="a fold for each bag, got"):
            auroc([0, 1, 0, 1], [1, 2, 3, 4], folds=folds)
    with pytest.raises(BagDataError, match="one fold per bag"):
        auroc([0, 1, 0, 1], [1, 2, 3, 4], folds=[0, 0])
