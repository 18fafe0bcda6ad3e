"""The C-index, classes, grades and times against naive loops, scikit-learn, scipy and lifelines."""

import contextlib
import itertools
import json
import warnings

import numpy as np
import pytest
from scipy.stats import kendalltau, norm
from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score, confusion_matrix, roc_auc_score
from tests import judging

from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate import classes, concordance, survival
from midam.evaluate.classes import class_aurocs, paired_macro_auroc
from midam.evaluate.concordance import paired_concordance
from midam.evaluate.decisions import GradeCuts, LabelCalibrator, RiskGroups, TemperatureCalibrator, quadratic_kappa
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import Pairs, auroc

TARGETS = ("multiclass", "multilabel", "ordinal", "continuous", "survival")


@contextlib.contextmanager
def lifelines():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lifelines, about newer pandas
        import lifelines as found
        import lifelines.statistics
        import lifelines.utils

        yield found


def times(seed, bags, *, ties=True, rate=0.6):
    generator = np.random.default_rng(seed)
    time = generator.integers(1, 12, bags).astype(float) if ties else generator.exponential(size=bags)
    risk = np.round(generator.normal(size=bags) - 0.3 * time, 0 if ties else 9)
    return time, (generator.random(bags) < rate).astype(int), risk


def pair_tables(time, event, risk):
    """The comparable pairs (i, j), i the earlier one, and those that the risk orders rightly, ties one half."""
    bags = len(time)
    pairs, wins = np.zeros((2, bags, bags))
    for i, j in itertools.permutations(range(bags), 2):
        if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
            pairs[i, j] = 1
            wins[i, j] = (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
    return pairs, wins


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ties", [False, True])
def test_each_bag_wins_as_a_loop_counts(seed, ties):
    time, event, risk = times(seed, 4 + 3 * seed, ties=ties)
    table, won = pair_tables(time, event, risk)
    pairs = Pairs.of_times(time, event)
    for found, right in zip(pairs.wins(risk), (won.sum(1) + won.sum(0), table.sum(1) + table.sum(0))):
        np.testing.assert_array_equal(found, right)
    np.testing.assert_allclose(pairs.concordance(risk), won.sum() / table.sum(), rtol=1e-12)
    np.testing.assert_allclose(pairs.total, table.sum(), rtol=1e-12)
    sides = [table.any(axis=1), table.any(axis=0)]
    np.testing.assert_array_equal(pairs.sides, sides)


@pytest.mark.parametrize("ties", [False, True])
def test_harrells_c_is_that_of_lifelines(ties):
    time, event, risk = times(3, 300, ties=ties)
    with lifelines() as oracle:
        expected = oracle.utils.concordance_index(time, -risk, event)
    assert Pairs.of_times(time, event).concordance(risk) == pytest.approx(expected, rel=1e-12)


def test_ties_in_time_follow_scikit_survival():
    # Two events at one time are not comparable; who is censored then has outlived the event.
    assert Pairs.of_times([1, 1, 2], [1, 1, 0]).concordance([0, 5, 1]) == 0.5
    assert Pairs.of_times([1, 1], [1, 0]).concordance([2, 1]) == 1.0
    with pytest.raises(OneClassError, match="Expected two bags that their labels order"):
        Pairs.of_times([1, 1], [1, 1]).concordance([2, 1])
    with pytest.raises(OneClassError):
        Pairs.of_times([1, 2], [0, 1]).concordance([2, 1])


def test_c_index_of_numbers_is_kendalls_tau_and_the_auroc():
    generator = np.random.default_rng(0)
    values, scores = generator.normal(size=(2, 200))
    tau = kendalltau(values, scores).statistic
    assert Pairs.of_numbers(values).concordance(scores) == pytest.approx((1 + tau) / 2, rel=1e-12)
    labels, scores = generator.integers(0, 2, 200), generator.integers(0, 9, 200)
    assert Pairs.of_numbers(labels).concordance(scores) == pytest.approx(auroc(labels, scores), rel=1e-12)


@pytest.mark.parametrize("kind", ["numbers", "grades", "times"])
def test_the_variance_is_that_of_resampled_bags(kind):
    generator = np.random.default_rng(1)
    values = generator.normal(size=500)
    scores = values + generator.normal(size=500)
    pairs = {
        "numbers": lambda: Pairs.of_numbers(values),
        "grades": lambda: Pairs.of_numbers(np.digitize(values, [-1, 0, 1])),
        "times": lambda: Pairs.of_times(np.exp(-values), generator.random(500) < 0.5),
    }[kind]()
    found = concordance.concordance_interval(pairs, scores)
    assert found.method == "logit-jackknife"
    order, weights = pairs._order, pairs._event
    right = scores[order][:, None] > scores[order]
    table = (np.arange(500) >= pairs._stop[:, None]) * weights[:, None]
    counts = generator.multinomial(500, np.full(500, 1 / 500), size=2000).astype(float)
    draws = ((counts @ (table * right)) * counts).sum(1) / ((counts @ table) * counts).sum(1)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found.high - found.low == pytest.approx(high - low, rel=0.08)  # 2000 resamples


def test_the_interval_of_two_grades_is_nearly_that_of_the_auroc():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [300, 250])
    scores = generator.normal(size=550) + labels
    for groups in (None, np.repeat(np.arange(275), 2)):
        ours = concordance.concordance_interval(Pairs.of_numbers(labels), scores, groups=groups)
        theirs = auroc_interval(labels, scores, groups=groups)
        np.testing.assert_allclose(ours[:2], theirs[:2], atol=0.012 if groups is not None else 1e-4)
    labels, scores = labels[::10], np.arange(55)
    ours, theirs = concordance.concordance_interval(Pairs.of_numbers(labels), scores), auroc_interval(labels, scores)
    np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-9)
    assert (ours.method, ours.high) == ("score", 1.0)
    labels, units, scores = np.repeat([0, 1], [32, 20]), np.arange(52) // 4, np.arange(52)
    pairs = Pairs.of_numbers(labels)
    ours = concordance.concordance_interval(pairs, scores, groups=units)
    theirs = auroc_interval(labels, scores, groups=units)
    np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-9)
    assert ours.method == theirs.method == "score (groups)"


def test_the_interval_is_honest_at_the_border():
    for bags, least in ((2, 0.05), (10, 0.6), (2000, 0.99)):
        found = concordance.concordance_interval(Pairs.of_numbers(np.arange(bags)), np.arange(bags))
        assert found.high == 1.0
        assert least < found.low < 0.9999
        reverse = concordance.concordance_interval(Pairs.of_numbers(np.arange(bags)), -np.arange(bags))
        np.testing.assert_allclose([1 - reverse.high, 1 - reverse.low], found[:2], atol=1e-12)
    values = np.arange(1000.0)
    near, far = values + 40 * np.sin(7 * values), values + 400 * np.sin(7 * values)
    of = Pairs.of_numbers(values)
    assert concordance.concordance_interval(of, near).method == "logit-jackknife + score"
    assert concordance.concordance_interval(of, far).method == "logit-jackknife"
    units = np.repeat(np.arange(5), 4)
    grouped = concordance.concordance_interval(Pairs.of_numbers(np.arange(20)), np.arange(20), groups=units)
    plain = concordance.concordance_interval(Pairs.of_numbers(np.arange(20)), np.arange(20))
    assert grouped.method == "score (groups)"
    assert grouped.low < plain.low - 0.1


def test_copies_of_bags_in_a_group_tell_nothing_new():
    generator = np.random.default_rng(0)
    values = generator.normal(size=240)
    scores = values + generator.normal(size=240)
    once = concordance.concordance_interval(Pairs.of_numbers(values), scores)
    copied = Pairs.of_numbers(np.repeat(values, 5))
    grouped = concordance.concordance_interval(copied, np.repeat(scores, 5), groups=np.repeat(np.arange(240), 5))
    assert grouped.method == "cluster-jackknife"
    np.testing.assert_allclose(grouped[:2], once[:2], atol=1e-3)


@pytest.mark.parametrize(("bags", "groups"), [(20, 0), (60, 0), (60, 20)])
def test_the_interval_covers(bags, groups):
    generator = np.random.default_rng(0)
    units = np.arange(bags) % groups if groups else None
    truth, held = 0.5 + np.arcsin(0.8) / np.pi, 0
    for _ in range(200):
        values, noise = generator.normal(size=(2, bags))
        if groups:
            shared = generator.normal(size=(2, groups))[:, units]
            values, noise = np.sqrt(0.5) * (np.stack([values, noise]) + shared)
        pairs = Pairs.of_numbers(values)
        low, high, _ = concordance.concordance_interval(pairs, 0.8 * values + 0.6 * noise, groups=units)
        held += low <= truth <= high
    assert held >= 186  # 0.93; the score interval makes it more than 0.95


def labeled(seed, bags, columns, *, missing=0.0):
    generator = np.random.default_rng(seed)
    labels = (generator.random((bags, columns)) < 0.4).astype(float)
    scores = generator.normal(size=labels.shape) + labels
    labels[generator.random(labels.shape) < missing] = np.nan
    return labels, np.round(scores, 1)


def test_aurocs_of_classes_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 4, 300)
    scores = np.round(generator.normal(size=(300, 4)) + np.eye(4)[codes], 1)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    table = classes.one_against_rest(codes, 4)
    for average in ("macro", "weighted"):
        expected = roc_auc_score(codes, shares, multi_class="ovr", average=average)
        summary = judging.summarize("multiclass", "abcd", codes[:, None], shares)
        assert summary[f"auroc_{average}"] == pytest.approx(expected, rel=1e-12)
    called = shares.argmax(axis=1)
    assert summary["confusion"] == confusion_matrix(codes, called).tolist()
    assert summary["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(codes, called), rel=1e-12)
    assert judging.metric_value("multiclass", codes[:, None], shares) == summary["auroc_macro"]
    np.testing.assert_array_equal(table.argmax(axis=1), codes)


def test_missing_entries_take_part_in_nothing():
    labels, scores = labeled(0, 200, 3, missing=0.3)
    for column, found in enumerate(classes.class_aurocs(labels, scores)):
        known = np.isfinite(labels[:, column])
        assert found == pytest.approx(roc_auc_score(labels[known, column], scores[known, column]), rel=1e-12)
    scores[np.isnan(labels)] = 1e6
    again = judging.summarize("multilabel", "abc", labels, scores)
    scores[np.isnan(labels)] = -1e6
    assert again == judging.summarize("multilabel", "abc", labels, scores)


def test_the_macro_interval_of_one_column_is_that_of_its_auroc():
    labels, scores = labeled(0, 700, 1)
    ours, theirs = classes.macro_auroc_interval(labels, scores), auroc_interval(labels[:, 0], scores[:, 0])
    np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-9)
    copies = np.repeat(labels, 3, axis=1), np.repeat(scores, 3, axis=1)
    np.testing.assert_allclose(classes.macro_auroc_interval(*copies)[:2], ours[:2], rtol=1e-9)


@pytest.mark.parametrize("groups", [None, 400])
def test_the_macro_variance_is_that_of_resampled_groups(groups):
    labels, scores = labeled(2, 800, 3)
    units = np.arange(800) % groups if groups else np.arange(800)
    if groups:
        scores += np.random.default_rng(0).normal(size=(groups, 3))[units]
    found = classes.macro_auroc_interval(labels, scores, groups=units if groups else None)
    generator, draws = np.random.default_rng(1), []
    for _ in range(600):
        counts = np.bincount(generator.integers(0, units.max() + 1, units.max() + 1), minlength=units.max() + 1)
        picked = np.repeat(np.arange(800), counts[units])
        draws.append(classes.macro_auroc(labels[picked], scores[picked]))
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found.high - found.low == pytest.approx(high - low, rel=0.12)  # 600 resamples
    assert found.method == ("cluster-delong" if groups else "logit-delong")


def test_the_macro_interval_is_honest_at_the_border_and_covers():
    codes = np.arange(30) % 3
    table = np.eye(3)[codes]
    perfect = classes.macro_auroc_interval(table, table)
    assert (perfect.method, perfect.high) == ("columns", 1.0)
    assert perfect.low < 0.9
    generator, held = np.random.default_rng(0), 0
    truth = norm.cdf(1.5 / np.sqrt(2))
    for _ in range(200):
        codes = generator.choice(3, p=[0.5, 0.3, 0.2], size=60)
        scores = generator.normal(size=(60, 3)) + 1.5 * np.eye(3)[codes]
        low, high, _ = classes.macro_auroc_interval(np.eye(3)[codes], scores)
        held += low <= truth <= high
    assert held >= 186


def test_classes_without_bags_are_named_and_left_out():
    labels, scores = labeled(0, 100, 3)
    labels[:, 1] = 0
    found = judging.summarize("multilabel", ["edema", "mass", "nodule"], labels, scores)
    assert found["per_class"]["mass"] == {
        "positives": 0,
        "negatives": 100,
        "auroc": None,
        "auroc_ci95": None,
        "ap": None,
    }
    assert found["auroc_macro"] == pytest.approx(np.mean([found["per_class"][n]["auroc"] for n in ("edema", "nodule")]))
    assert "mass" in found["warnings"][0]
    assert "edema" not in found["warnings"][0]
    none = judging.summarize("multilabel", "abc", np.zeros((9, 3)), scores[:9])
    assert none["auroc_macro"] is none["auroc_macro_ci95"] is none["auroc_weighted"] is None
    assert judging.metric_value("multilabel", np.zeros((9, 3)), scores[:9]) is None


@pytest.mark.parametrize("groups", [None, 100])
def test_the_paired_difference_is_that_of_delong(groups):
    generator = np.random.default_rng(0)
    labels, units = generator.integers(0, 2, 400), np.arange(400) % groups if groups else None
    a, b = np.round(generator.normal(size=(2, 400)), 1) + labels * np.array([[1.0], [0.8]])
    expected = paired_delong(labels, a, b, groups=units)  # its variance differs by 1 / N
    np.testing.assert_allclose(judging.difference("ordinal", labels[:, None], a, b, groups=units), expected, rtol=0.05)
    tables = [np.stack([table, table], axis=1) for table in (labels, a, b)]
    np.testing.assert_allclose(judging.difference("multilabel", *tables, groups=units), expected, rtol=0.05)
    assert judging.difference("ordinal", labels[:, None], a, 2 * a, groups=units) == (0, 0, 0, 1)


def test_the_paired_difference_covers_and_has_an_interval_at_the_border():
    generator, held, sure = np.random.default_rng(0), 0, 0
    gap = (np.arcsin(0.8) - np.arcsin(0.6)) / np.pi
    for _ in range(300):
        values, noise, other = generator.normal(size=(3, 50))
        pairs = Pairs.of_numbers(values)
        found = paired_concordance(pairs, 0.8 * values + 0.6 * noise, 0.6 * values + 0.8 * other)
        held += found[1] <= gap <= found[2]
        sure += (found[3] < 0.05) == (not found[1] <= 0 <= found[2])
    assert held >= 277  # 0.925
    assert sure == 300
    pairs = Pairs.of_numbers(np.arange(12))
    difference, low, high, p = paired_concordance(pairs, np.arange(12), -np.arange(12))
    assert (difference, high) == (1.0, 1.0)
    assert 0.3 < low < 0.9
    assert p < 0.001
    table = np.eye(3)[np.arange(12) % 3]
    difference, low, high, p = paired_macro_auroc(table, table, np.zeros((12, 3)))
    assert 0 < low < difference == 0.5 < high < 1
    with pytest.raises(OneClassError):
        judging.difference("multilabel", np.zeros((9, 2)), np.zeros((9, 2)), np.zeros((9, 2)))
    with pytest.raises(OneClassError):
        judging.difference("survival", [[1, 0], [2, 0]], [0, 1], [1, 0])


@pytest.mark.parametrize("count", [2, 5])
def test_kappa_is_that_of_scikit_learn(count):
    grades, called = np.random.default_rng(count).integers(0, count, (2, 50))
    expected = cohen_kappa_score(grades, called, weights="quadratic", labels=range(count))
    assert quadratic_kappa(grades, called, count) == pytest.approx(expected, rel=1e-12)
    assert quadratic_kappa([1, 1], [1, 1], count) is None


@pytest.mark.parametrize("seed", range(9))
def test_cuts_give_as_many_of_each_grade_as_there_are(seed):
    generator = np.random.default_rng(seed)
    count = 2 + seed % 3
    grades = np.append([0, 1], generator.integers(0, count, 10))
    scores = generator.normal(size=12) + grades
    called = GradeCuts.fit(scores, grades, count=count).predict(scores)
    assert called[np.argsort(scores)].tolist() == sorted(grades)


def test_equal_scores_get_one_grade():
    cuts = GradeCuts.fit([0.0, 0.0, 0.0, 1.0], [0, 0, 1, 1], count=2)
    assert cuts.predict([0.0, 0.4, 0.6, 1.0]).tolist() == [0, 0, 1, 1]


def test_cuts_of_useless_scores_call_the_median():
    with pytest.warns(UserWarning, match="no better than chance"):
        cuts = GradeCuts.fit([3.0, 2.0, 1.0, 0.0], [0, 1, 1, 2], count=3)
    assert cuts.predict([-1.0, 0.0, 3.0, 4.0]).tolist() == [1, 1, 1, 1]  # also beyond the validation scores
    assert GradeCuts.from_dict(cuts.to_dict()) == cuts


@pytest.mark.parametrize("ties", [False, True])
def test_kaplan_meier_is_that_of_lifelines(ties):
    time, event, _ = times(2, 80, ties=ties)
    with lifelines() as oracle:
        fitter = oracle.KaplanMeierFitter().fit(time, event)
        reverse = oracle.KaplanMeierFitter().fit(time, 1 - event).median_survival_time_
    found = survival.kaplan_meier(time, event)
    np.testing.assert_allclose(found.survival, fitter.survival_function_at_times(found.time), rtol=1e-9)
    bounds = fitter.confidence_interval_.loc[found.time].to_numpy()
    inside = (found.survival < 1) & (found.survival > 0)
    np.testing.assert_allclose(np.stack([found.low, found.high], axis=1)[inside], bounds[inside], rtol=1e-9)
    assert survival.median_time(found) == fitter.median_survival_time_
    assert (np.diff([0 * found.low, found.low, found.survival, found.high, 1 + 0 * found.low], axis=0) >= 0).all()
    table = fitter.event_table.loc[found.time]
    np.testing.assert_array_equal(found.at_risk, table["at_risk"])
    assert survival.median_follow_up(time, event) == (reverse if np.isfinite(reverse) else None)


def test_curves_that_reach_a_share_exactly_are_read_there_whatever_the_rounding():
    for count in range(20, 200, 10):
        days, event = np.arange(1, count + 1), np.ones(count)
        assert survival.median_time(survival.kaplan_meier(days, event)) == count / 2
        assert survival.median_follow_up(days, 1 - event) == count / 2


def test_the_bags_of_one_patient_have_all_figures():
    values, scores = np.array([[1.0, 1], [2, 1], [3, 0], [4, 1]]), np.array([0.9, 0.2, 0.4, 0.1])
    decision = RiskGroups.fit(scores, values)
    target = judging.target("survival", ("time", "event"))
    summary = target.summarize(values, scores, groups=np.array(["p"] * 4), decision=decision)
    assert summary["c_index"] == pytest.approx(4 / 5)
    table, patient = np.eye(3)[np.arange(12) % 3], np.array(["p"] * 12)
    for count in (1, 3):
        *_, p = paired_macro_auroc(table[:, :count], table[:, :count], table[:, :count] * 0, groups=patient)
        assert 0 < p < 1


def test_groups_of_risk_hold_a_third_each():
    risk = np.random.default_rng(0).normal(size=99)
    assert np.bincount(RiskGroups.fit(risk, risk).predict(risk)).tolist() == [33, 33, 33]
    assert RiskGroups.fit([1.0, 1.0, 1.0], [1, 2, 3]).cuts == []


def outcome(target, seed=0, bags=60):
    """Names, values and scores of made-up bags."""
    generator = np.random.default_rng(seed)
    latent = generator.normal(size=bags)
    scores = latent + 0.5 * generator.normal(size=bags)
    if target in ("multiclass", "multilabel"):
        codes = generator.integers(0, 3, bags)
        values = codes[:, None] if target == "multiclass" else (generator.random((bags, 3)) < 0.5).astype(float)
        shown = np.eye(3)[codes] if target == "multiclass" else values
        return ("a", "b", "c"), values, 2 * shown + generator.normal(size=(bags, 3))
    if target == "ordinal":
        return ("0", "1", "2"), np.digitize(latent, [-0.5, 0.5])[:, None], scores
    if target == "continuous":
        return ("size",), 10 * latent[:, None], scores
    values = np.stack([np.exp(-latent), generator.random(bags) < 0.7], axis=1)
    return ("time", "event"), values, scores


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("groups", [None, "grouped"])
def test_summaries_are_whole_and_ready_for_json(target, groups):
    names, values, scores = outcome(target)
    decision = judging.decide(target, names, *outcome(target, seed=1)[1:])
    units = None if groups is None else np.arange(60) // 2
    found = judging.summarize(target, names, values, scores, groups=units, decision=decision)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    key = judging.target(target).metric
    low, high = found[f"{key}_ci95"]
    assert 0 <= low < found[key] < high <= 1
    assert found[key] == judging.metric_value(target, values, scores)
    assert found.get("groups") == (None if groups is None else 30)
    assert found["bags"] == 60
    again = judging.load_decision(target, json.loads(json.dumps(decision.to_dict())))
    np.testing.assert_array_equal(again.predict(scores), decision.predict(scores))
    further = {
        "multiclass": "accuracy",
        "multilabel": "per_class",
        "ordinal": "quadratic_kappa",
        "continuous": "mae",
        "survival": "risk_groups",
    }
    assert further[target] in found
    if target == "continuous":
        assert found["mae"] < 0.7 * found["mae_constant"]
    if target == "survival":
        assert [row["group"] for row in found["risk_groups"]] == [0, 1, 2]
        assert found["warnings"] == []
    if target in ("multiclass", "ordinal"):
        assert found["accuracy_ci95"][0] < found["accuracy"] < found["accuracy_ci95"][1]


@pytest.mark.parametrize("target", TARGETS)
def test_bags_that_no_label_orders_have_no_figure(target):
    names, values, scores = outcome(target)
    values = np.repeat(values[:1], 60, axis=0)
    found = judging.summarize(target, names, values, scores)
    key = judging.target(target).metric
    assert found[key] is found[f"{key}_ci95"] is judging.metric_value(target, values, scores) is None
    assert json.dumps(found, allow_nan=False)
    assert found["warnings"]
    if target not in ("continuous", "survival"):
        assert judging.decide(target, names, values, scores) is None


def test_the_temperature_is_found_again():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 3)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (shares.cumsum(axis=1) < generator.random((20_000, 1))).sum(axis=1)
    shifted = 3 * logits + np.array([5.0, -2.0, 0.0])
    found = TemperatureCalibrator.fit(shifted, codes)
    np.testing.assert_allclose(found.predict(shifted), shares, atol=0.02)  # 20 000 bags
    assert found.scale / found.slope == pytest.approx(3, rel=0.03)
    separable = TemperatureCalibrator.fit(np.eye(3), [0, 1, 2])
    assert 0.45 < separable.predict(np.eye(3))[0, 0] < 0.99
    with pytest.warns(UserWarning, match="no better than chance"):
        useless = TemperatureCalibrator.fit(-np.eye(3), [0, 1, 2])
    np.testing.assert_allclose(useless.predict(np.eye(3)), 1 / 3, atol=1e-6)


def test_a_label_of_one_kind_has_no_probability():
    labels, scores = labeled(0, 50, 2)
    labels[:, 1] = 1
    found = LabelCalibrator.fit(scores, labels)
    probabilities = judging.load_decision("multilabel", found.to_dict()).predict(scores)
    assert np.isfinite(probabilities[:, 0]).all()
    assert np.isnan(probabilities[:, 1]).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: judging.load_decision("ordinal", {"cuts": [2.0, 1.0]}), "cuts: .*do not ascend"),
        (lambda: judging.load_decision("survival", {"cut": []}), "RiskGroups, got cuts: Field required"),
        (lambda: judging.load_decision("multiclass", {"slope": 1}), "center: Field required"),
        (
            lambda: judging.load_decision("continuous", {"scores": ["a"], "numbers": [1]}),
            "scores.0: Input should be a valid number",
        ),
        (lambda: judging.load_decision("multilabel", {"columns": 3}), "columns: Input should be a valid list"),
    ],
)
def test_settings_that_make_no_sense(call, match):
    with pytest.raises(ConfigError, match=match):
        call()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Pairs.of_numbers([0, 1]).concordance([0, np.nan]), r"finite scores, got nan \(bag 1\)"),
        (lambda: Pairs.of_numbers([0, np.inf]).concordance([0, 1]), r"finite labels, got inf \(bag 1\)"),
        (lambda: Pairs.of_numbers([0, 1]).concordance([0]), "one score per bag"),
        (
            lambda: Pairs.of_times([1, 2], [1, 2]).concordance([0, 1]),
            r"events 0 \(censored\) and 1, got 2",
        ),
        (lambda: class_aurocs([[0, 2]], [[0, 1]]), r"labels 0, 1 and NaN, got 2.0 \(bag 0, column 1\)"),
        (lambda: class_aurocs([[0, 1]], [[0, np.inf]]), r"finite scores, got inf \(bag 0, column 1\)"),
        (
            lambda: judging.summarize("multiclass", "abc", [[0], [3]], np.zeros((2, 3))),
            "codes 0 to 2, got 3.0",
        ),
    ],
)
def test_arrays_that_cannot_be_used(call, match):
    with pytest.raises(BagDataError, match=match):
        call()
