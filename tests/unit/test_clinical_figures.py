"""Net benefit, thresholds, shares, curves and subgroups: against oracles and simulations."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_curve

from midam.errors import ConfigError, OneClassError
from midam.evaluate.calibrate import calibration_interval, reliability_bins
from midam.evaluate.curves import net_benefit, roc_points
from midam.evaluate.intervals import auroc_interval
from midam.evaluate.metrics import auprc_estimate, summarize, threshold_metrics
from midam.evaluate.proportions import Estimate, difference, operating_points, proportion
from midam.evaluate.ranking import auroc
from midam.evaluate.subgroups import MISSING, binary_figures, find_subgroups, make_levels

pytestmark = pytest.mark.drawn


def sample(count, *, seed=0, shift=1.5):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % 2)
    scores = rng.normal(size=count) + shift * labels
    return labels, scores, 1 / (1 + np.exp(-(scores - shift / 2)))


def test_net_benefit_is_that_of_dcurves():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of dcurves, about newer pandas
        import dcurves

        labels, _, probabilities = sample(137)
        probabilities[:20] = np.round(probabilities[:20], 1)  # some lie on a threshold
        thresholds = np.round(np.arange(1, 100) / 100, 2)
        frame = pd.DataFrame({"y": labels, "model": probabilities})
        table = dcurves.dca(data=frame, outcome="y", modelnames=["model"], thresholds=thresholds)
    for name, ours in (
        ("model", net_benefit(labels, probabilities, thresholds)),
        ("all", net_benefit(labels, np.ones(137), thresholds)),
    ):
        theirs = table[table["model"] == name].sort_values("threshold")["net_benefit"].to_numpy(dtype=float)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_threshold_probability_of_one_is_refused():
    with pytest.raises(ConfigError, match=r"in \[0, 1\)"):
        net_benefit([0, 1], [0.2, 0.8], [0.5, 1.0])


def grouped(rng, patients, *, spread=2.0):
    """Scores of bags of patients who differ in size and, much more than their bags, in score; and the patients."""
    sizes = rng.integers(1, 12, patients)
    own = np.repeat(spread * rng.normal(size=patients), sizes)
    return own + 0.3 * rng.normal(size=own.size), np.repeat(np.arange(patients), sizes)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=2, max_size=30), st.floats(0.05, 1.0))
def test_thresholds_reach_what_is_wanted_at_least_cost(bags, wanted):
    labels, scores = np.array([int(y) for y, _ in bags]), np.array([float(s) for _, s in bags])
    if labels.min() == labels.max():
        return
    candidates = [*(np.unique(scores)), scores.max() + 1]

    def shares(threshold):
        called = scores >= threshold
        return called[labels == 1].mean(), (~called)[labels == 0].mean()

    found = shares(operating_points(labels, scores, [f"sensitivity={wanted:.6f}"])[0].threshold)
    assert found[0] >= wanted - 1e-9
    assert found[1] == max(spec for sens, spec in map(shares, candidates) if sens >= wanted - 1e-9)
    found = shares(operating_points(labels, scores, [f"specificity={wanted:.6f}"])[0].threshold)
    assert found[1] >= wanted - 1e-9
    assert found[0] == max(sens for sens, spec in map(shares, candidates) if spec >= wanted - 1e-9)


def test_shares_of_independent_bags_have_the_intervals_of_the_summary():
    labels, scores, _ = sample(80)
    found = threshold_metrics(labels, scores, 0.4)
    share = proportion(scores[labels == 1] >= 0.4)
    assert [share.low, share.high] == found["sensitivity_ci95"]
    assert share.bags == 40
    assert proportion([]) is None


def test_shares_of_groups_have_the_intervals_of_the_summary():
    labels, scores, _ = sample(80)
    patients = np.argsort(np.argsort(scores)) // 5  # those of a patient have similar scores
    found = summarize(labels, scores, groups=patients, threshold=0.4)["at_threshold"]
    for name, label in (("sensitivity", 1), ("specificity", 0)):
        share = proportion((scores >= 0.4) == labels, groups=patients, among=labels == label)
        assert [share.low, share.high] == found[f"{name}_ci95"]
    assert found != threshold_metrics(labels, scores, 0.4)


def test_shares_of_groups_cover():
    rng, hits = np.random.default_rng(0), {True: 0, False: 0}
    for _ in range(400):
        scores, patients = grouped(rng, 40)
        for aware in hits:
            found = proportion(scores > 0, groups=patients if aware else None)
            hits[aware] += found.low <= 0.5 <= found.high
    assert hits[True] / 400 > 0.92
    assert hits[False] / 400 < 0.75


def test_a_difference_without_doubt_has_no_width():
    assert difference(Estimate(0.5, 0.5, 0.5, 3), Estimate(0.2, 0.2, 0.2, 4)) == (0.3, 0.3, 0.3, 7)


def test_the_interval_of_the_average_precision_is_that_of_a_bootstrap_and_narrows_with_bags():
    few, many = ((labels, np.round(scores, 1)) for labels, scores, _ in map(sample, (60, 600)))
    found, other = auprc_estimate(*few), auprc_estimate(*many)
    assert found.value == average_precision_score(*few)
    generator = np.random.default_rng(0)
    drawn = [generator.multinomial(60, np.full(60, 1 / 60)) for _ in range(1000)]
    areas = [average_precision_score(*few, sample_weight=copies) for copies in drawn]
    np.testing.assert_allclose(found[1:3], np.quantile(areas, [0.025, 0.975]), rtol=1e-12)
    assert other.high - other.low < (found.high - found.low) / 2


def test_the_curve_of_folds_is_the_mean_of_theirs_and_has_their_auroc_as_its_area():
    labels, scores, _ = sample(200)
    folds = np.random.default_rng(3).integers(0, 5, 200)
    scores = np.round(scores, 1) + 3.0 * folds  # ties, and a scale of each fold
    x, y = roc_points(labels, scores, folds)
    assert np.trapezoid(y, x) == pytest.approx(auroc(labels, scores, folds=folds), abs=1e-12)
    assert abs(auroc(labels, scores) - auroc(labels, scores, folds=folds)) > 0.1
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= -1e-12).all()
    assert (x[0], y[0], x[-1], y[-1]) == pytest.approx((0, 0, 1, 1))
    np.testing.assert_allclose(
        roc_points(labels, scores, [7] * 200)[1], roc_curve(labels, scores, drop_intermediate=False)[1]
    )
    with pytest.raises(OneClassError, match="a fold with bags of both classes, got none"):
        roc_points(labels, scores, folds=labels)


def test_the_interval_of_the_average_precision_is_wider_with_patients():
    rng = np.random.default_rng(2)
    scores, patients = grouped(rng, 30)
    labels = (patients % 2).astype(int)
    alone, together = (auprc_estimate(labels, scores, groups=groups) for groups in (None, patients))
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_bootstrap_that_cannot_vary_makes_no_interval():
    labels, scores = [0] * 5 + [1] * 5, list(range(10))
    perfect, other = (auprc_estimate(labels, one) for one in (scores, [*scores[:4], 5, 4, *scores[6:]]))
    assert perfect.value == 1
    assert np.isnan([perfect.low, perfect.high]).all()
    assert other.low < other.value < 1 == other.high


def test_intervals_of_folds_count_patients_and_shared_training_bags():
    labels, scores, _ = sample(80)
    folds = np.arange(80) // 20
    once, copies = auroc_interval(labels, scores, folds=folds), [np.repeat(x, 3) for x in (labels, scores)]
    known = {"folds": np.repeat(folds, 3)}
    thrice = auroc_interval(*copies, **known, groups=np.repeat(np.arange(80), 3))
    np.testing.assert_allclose(once[:2], thrice[:2], rtol=1e-6)
    # Other names of the groups, and four folds of ten, whose models share more bags.
    names = np.array([*range(40, 80), *range(40)]).repeat(3)
    np.testing.assert_allclose(auroc_interval(*copies, **known, groups=names)[:2], thrice[:2])
    of_ten = auroc_interval(labels, scores, folds=folds, fold_count=10)
    shrunk = np.sqrt((1 + 4 / 9) / (1 + 4 / 3))
    assert of_ten.high - of_ten.low == pytest.approx(shrunk * (once.high - once.low), rel=0.05)
    parts = find_subgroups(labels, scores, np.where(folds < 1, "a", "b"), figures=binary_figures(), folds=folds)
    alone = auroc_interval(labels[folds < 1], scores[folds < 1])
    assert (parts[0].figures["auroc"].low, parts[0].figures["auroc"].high) == alone[:2]


def test_calibration_lines_of_patients_are_wider():
    rng = np.random.default_rng(4)
    scores, patients = grouped(rng, 60)
    probabilities = 1 / (1 + np.exp(-scores))
    labels = (rng.random(60)[patients] < probabilities).astype(int)
    alone = calibration_interval(labels, probabilities)
    together = calibration_interval(labels, probabilities, groups=patients)
    assert alone.slope.value == together.slope.value
    assert together.slope.high - together.slope.low > alone.slope.high - alone.slope.low
    assert calibration_interval([0, 1], [0.1, 0.9]) is None


def test_reliability_bins_hold_every_bag_once():
    labels, _, probabilities = sample(203)
    bins = reliability_bins(labels, probabilities)
    assert sum(part.observed.bags for part in bins) == 203
    assert sum(part.observed.value * part.observed.bags for part in bins) == pytest.approx(labels.sum())
    assert len(reliability_bins([0, 1], [0.5, 0.5])) == 1


def test_subgroups_are_compared_with_the_largest():
    labels, scores, _ = sample(120)
    levels = np.array(["north"] * 70 + ["south"] * 40 + ["west"] * 10)
    labels[110:] = 1
    found = {part.level: part for part in find_subgroups(labels, scores, levels, figures=binary_figures(0.5))}
    assert found["north"].differences == {}
    assert set(found["south"].differences) == {"auroc", "sensitivity", "specificity"}
    assert found["west"].figures["auroc"] is None
    assert found["west"].figures["specificity"] is None
    gap = found["south"].differences["auroc"]
    assert gap.value == found["south"].figures["auroc"].value - found["north"].figures["auroc"].value
    assert gap.low < gap.value < gap.high


def test_levels_of_numbers_texts_and_gaps():
    ages = [str(age) for age in range(20, 80)] + [""]
    levels = make_levels(ages)
    assert sorted(set(levels)) == ["(missing)", "20 to 34", "35 to 49", "50 to 64", "65 to 79"]
    assert levels[-1] == MISSING
    assert set(make_levels([0, 1, 1, 0])) == {"0", "1"}
    # Numbers that agree in their first six digits are different levels.
    assert make_levels([1000001.0, 1000002.0, None]).tolist() == ["1000001", "1000002", MISSING]
    assert len(set(make_levels(range(20230101, 20230109)))) == 4
    assert make_levels(np.float32([0.1, 0.2])).tolist() == ["0.1", "0.2"]
    parts = find_subgroups([0, 1, 1], [0, 1, 2], make_levels([None, None, None]), figures=binary_figures())
    assert [part.level for part in parts] == [MISSING]


@pytest.mark.parametrize(
    ("bags", "rare"),
    [
        ([6, *[1] * 19], "(other: 9 levels)"),
        ([*range(3, 14), 2, 2], "(other: 2 levels)"),
        ([*range(1, 15)], "(other: 3 levels)"),
    ],
)
def test_rare_levels_are_one_that_says_how_many_they_are(bags, rare):
    sites = np.repeat([f"site {number}" for number in range(len(bags))], bags)
    levels = make_levels(sites)
    assert len(set(levels)) == 12
    assert (levels == rare).sum() == sum(sorted(bags)[: len(bags) - 11])
    found = find_subgroups(np.arange(len(levels)) % 2, np.arange(len(levels)), levels, figures=binary_figures())
    assert [part.level for part in found][-1] == rare
    assert make_levels(sites[levels != rare]).tolist() == sites[levels != rare].tolist()
