"""Intervals of the AUROC: oracles, degenerate cases and coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm, t
from sklearn.metrics import average_precision_score
from tests.reference.naive import clustered_covariance

from midam.errors import BagDataError, ConfigError, OneClassError
from midam.evaluate.intervals import Interval, _variance, auroc_interval, paired_delong
from midam.evaluate.ranking import auroc, group_numbers, placements, resampled_areas

Z = norm.ppf(0.975)


def wins(labels, scores):
    """Win matrix [P, N] by comparing each pair."""
    pos, neg = scores[labels == 1], scores[labels == 0]
    return (pos[:, None] > neg).astype(float) + 0.5 * (pos[:, None] == neg)


def delong_oracle(labels, scores):
    win = wins(labels, scores)
    p, n = win.shape
    area = win.mean()
    variance = sum((win.mean(1) - area) ** 2) / (p - 1) / p + sum((win.mean(0) - area) ** 2) / (n - 1) / n
    return area, variance


def score_oracle(area, p, n):
    """Newcombe's method 5 on a fine grid, from Hanley and McNeil's Q1 and Q2."""
    grid = np.linspace(0, 1, 2_000_001)[1:-1]
    q1, q2, mean_size = grid / (2 - grid), 2 * grid**2 / (1 + grid), (p + n) / 2
    variance = (grid * (1 - grid) + (mean_size - 1) * (q1 - grid**2 + q2 - grid**2)) / (p * n)
    inside = grid[np.abs(area - grid) <= Z * np.sqrt(variance)]
    return inside[0], inside[-1]


def sample(seed, positives, negatives, *, area=0.8, ties=False, spread=1.0):
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat([1, 0], [positives, negatives]))
    noise = generator.standard_normal(labels.size)
    shift = norm.ppf(area) * np.sqrt(1 + spread**2)
    scores = np.where(labels == 1, shift + spread * noise, noise)
    return labels, np.round(scores * 2) if ties else scores


@pytest.mark.parametrize("ties", [False, True])
def test_placements_equal_the_win_matrix(ties):
    labels, scores = sample(0, 13, 29, ties=ties)
    of_pos, of_neg = placements(labels, scores)
    win = wins(labels, scores)
    np.testing.assert_allclose(of_pos, win.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(of_neg, win.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_many_bags_take_the_logit_delong_interval(ties):
    labels, scores = sample(1, 200, 240, ties=ties)
    area, variance = delong_oracle(labels, scores)
    center, half = np.log(area / (1 - area)), Z * np.sqrt(variance) / (area * (1 - area))
    found = auroc_interval(labels, scores)
    assert found.method == "logit-delong"
    expected = [1 / (1 + np.exp(-(center + side * half))) for side in (-1, 1)]
    np.testing.assert_allclose(found[:2], expected, rtol=1e-9)


@pytest.mark.parametrize(("positives", "negatives", "area"), [(10, 10, 0.8), (10, 90, 0.95), (199, 200, 0.6)])
def test_few_bags_take_the_hull_with_the_score_interval(positives, negatives, area):
    labels, scores = sample(2, positives, negatives, area=area)
    area, variance = delong_oracle(labels, scores)
    center, half = np.log(area / (1 - area)), Z * np.sqrt(variance) / (area * (1 - area))
    score = score_oracle(area, positives, negatives)
    found = auroc_interval(labels, scores)
    assert found.method == "logit-delong + score"
    np.testing.assert_allclose(found.low, min(1 / (1 + np.exp(half - center)), score[0]), atol=1e-6)
    np.testing.assert_allclose(found.high, max(1 / (1 + np.exp(-half - center)), score[1]), atol=1e-6)


def test_perfect_and_reversed_scores_have_a_score_interval():
    labels = np.repeat([0, 1], [12, 7])
    right, wrong = auroc_interval(labels, np.arange(19)), auroc_interval(labels, -np.arange(19))
    assert right.method == wrong.method == "score"
    np.testing.assert_allclose(right.low, score_oracle(1.0, 7, 12)[0], atol=1e-6)
    assert right.high == 1.0
    assert wrong.low == 0.0
    np.testing.assert_allclose([wrong.low, wrong.high], [1 - right.high, 1 - right.low], rtol=1e-9, atol=1e-12)


def test_large_perfect_sample_still_has_width():
    labels = np.repeat([0, 1], 5000)
    found = auroc_interval(labels, np.arange(10000))
    assert found.method == "score"
    assert 0.999 < found.low < 1.0 == found.high


@pytest.mark.parametrize(
    ("labels", "scores"),
    [([0, 0, 1, 1], [1, 1, 1, 1]), ([0, 0, 0, 1], [1, 2, 4, 3]), ([1, 0], [0.2, 0.1])],
    ids=["all-equal", "one-positive", "one-each"],
)
def test_no_variance_estimate_takes_the_score_interval(labels, scores):
    found = auroc_interval(labels, scores)
    assert found.method == "score"
    assert 0 <= found.low < auroc(labels, scores) <= found.high <= 1


@given(seed=st.integers(0, 10_000), positives=st.integers(1, 15), negatives=st.integers(1, 15), ties=st.booleans())
@settings(max_examples=60, deadline=None)
def test_interval_properties(seed, positives, negatives, ties):
    labels, scores = sample(seed, positives, negatives, ties=ties)
    found, area = auroc_interval(labels, scores), auroc(labels, scores)
    assert 0 <= found.low <= area <= found.high <= 1
    assert found.high - found.low > 0.05
    narrow = auroc_interval(labels, scores, level=0.8)
    assert found.low <= narrow.low
    assert narrow.high <= found.high
    swapped = auroc_interval(1 - labels, scores)
    np.testing.assert_allclose([1 - swapped.high, 1 - swapped.low], found[:2], rtol=1e-9, atol=1e-12)
    # A group for each bag is no grouping.
    assert auroc_interval(labels, scores, groups=[f"g{i}" for i in range(labels.size)]) == found


@pytest.mark.parametrize(
    ("positives", "negatives", "area", "spread"),
    [(10, 10, 0.95, 1), pytest.param(10, 90, 0.95, 1, marks=pytest.mark.long), (10, 90, 0.95, 2)],
)
def test_coverage(positives, negatives, area, spread):
    # Fails with probability 1e-4 for a true coverage of .93; logit DeLong alone covers about .78, .9 and .77 here.
    sims, held = 1000, 0
    for seed in range(sims):
        labels, scores = sample(seed, positives, negatives, area=area, spread=spread)
        found = auroc_interval(labels, scores)
        held += found.low <= area <= found.high
    assert held >= binom.ppf(1e-4, sims, 0.93)


def test_coverage_with_groups():
    # 20 groups of 3 correlated bags; the plain DeLong interval covers far less here.
    sims, held, area = 300, 0, 0.95
    units = np.repeat(np.arange(20), 3)
    labels = units % 2
    for seed in range(sims):
        generator = np.random.default_rng(seed)
        noise = np.sqrt(0.8) * generator.standard_normal(20)[units] + np.sqrt(0.2) * generator.standard_normal(60)
        scores = norm.ppf(area) * np.sqrt(2) * labels + noise
        found = auroc_interval(labels, scores, groups=units.astype(str))
        held += found.low <= area <= found.high
    assert held >= binom.ppf(1e-4, sims, 0.93)


def test_resampled_areas_equal_a_loop():
    labels, scores = sample(3, 9, 14, ties=True)
    units = np.arange(23) % 6
    found = resampled_areas(labels == 1, scores, units, resamples=40)
    counts = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=40)
    rows = [np.repeat(np.arange(23), count[units]) for count in counts]
    expected = [wins(labels[each], scores[each]).mean() for each in rows]
    assert found["auroc"][0] == pytest.approx(auroc(labels, scores))
    np.testing.assert_allclose(found["auroc"][1], expected, rtol=1e-12)
    expected = [average_precision_score(labels[each], scores[each]) for each in rows]
    np.testing.assert_allclose(found["auprc"][1], expected, rtol=1e-12)


def test_resamples_that_lose_a_class_are_left_out():
    labels, scores = np.array([1, 1, 0, 0, 0]), np.array([3.0, 1.0, 2.0, 0.0, 1.0])
    units = np.array([0, 0, 1, 2, 3])
    for value, found in resampled_areas(labels == 1, scores, units, resamples=500).values():
        assert 300 < len(found) < 500
        assert 0 < value < 1
        assert np.isfinite(found).all()


def test_resamples_of_many_scores_are_binned_around_the_value():
    labels, scores = sample(6, 3000, 3000)
    found = resampled_areas(labels == 1, scores, np.arange(6000), resamples=200)
    for value, resampled in found.values():
        assert resampled.mean() == pytest.approx(value, abs=0.002)
    assert found["auroc"][0] == pytest.approx(auroc(labels, scores), rel=1e-12)


def test_the_interval_of_many_groups_is_that_of_their_resamples():
    labels, scores = sample(4, 400, 400)
    groups = np.array([f"patient {i // 2}" for i in range(800)])
    found = auroc_interval(labels, scores, groups=groups)
    assert found.method == "clustered logit-delong"
    _, draws = resampled_areas(labels == 1, scores, group_numbers(groups, 800), resamples=2000)["auroc"]
    np.testing.assert_allclose(found[:2], np.quantile(draws, [0.025, 0.975]), atol=0.003)


def test_copies_of_bags_in_groups_add_no_information():
    labels, scores = sample(5, 15, 15, area=0.75)
    alone = auroc_interval(labels, scores)
    groups = np.tile(np.arange(30), 8)
    copied = auroc_interval(np.tile(labels, 8), np.tile(scores, 8), groups=groups)
    blind = auroc_interval(np.tile(labels, 8), np.tile(scores, 8))
    assert copied.method == "clustered logit-delong + score"
    assert copied.high - copied.low > 0.85 * (alone.high - alone.low)
    assert blind.high - blind.low < 0.5 * (alone.high - alone.low)


def test_perfect_groups_count_groups_not_bags():
    labels = np.repeat([0, 1], 30)
    found = auroc_interval(labels, np.arange(60), groups=np.arange(60) // 5)
    assert found.method == "score (groups)"
    np.testing.assert_allclose(found.low, score_oracle(1.0, 6, 6)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("groups", "method"),
    [
        (["a"] * 6, "score (groups)"),
        (["a", "a", "a", "b", "b", "b"], "score (groups)"),
        (["a", "a", "b", "c", "d", "e"], "clustered logit-delong + score"),
    ],
)
def test_few_groups_stay_wide(groups, method):
    found = auroc_interval([1, 0, 1, 0, 1, 0], [3, 1, 2, 2, 4, 3], groups=groups)
    assert found.method == method
    assert found.high - found.low > 0.4


def test_bad_input_is_refused():
    with pytest.raises(OneClassError, match="2 positive and 0 negative"):
        auroc_interval([1, 1], [0.1, 0.2])
    with pytest.raises(ConfigError, match="level"):
        auroc_interval([0, 1], [0.1, 0.2], level=1.0)
    with pytest.raises(BagDataError, match="one group per bag"):
        auroc_interval([0, 1], [0.1, 0.2], groups=["a"])
    with pytest.raises(BagDataError, match="bag 1"):
        auroc_interval([0, 1], [0.1, 0.2], groups=["a", None])
    with pytest.raises(BagDataError, match="bag 0"):
        auroc_interval([0, 1], [0.1, 0.2], groups=[float("nan"), "a"])


def test_paired_delong_equals_the_covariance():
    labels, a = sample(6, 31, 44, ties=True)
    b = a + np.random.default_rng(0).normal(size=75)
    win_a, win_b = wins(labels, a), wins(labels, b)
    of_pos, of_neg = np.cov(win_a.mean(1), win_b.mean(1)), np.cov(win_a.mean(0), win_b.mean(0))
    covariance = of_pos / 31 + of_neg / 44
    error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    expected = win_a.mean() - win_b.mean()
    found = paired_delong(labels, a, b)
    np.testing.assert_allclose(found[:3], [expected, expected - Z * error, expected + Z * error], rtol=1e-9)
    np.testing.assert_allclose(found[3], 2 * norm.sf(abs(expected) / error), rtol=1e-9)
    reverse = paired_delong(labels, b, a)
    np.testing.assert_allclose(reverse, (-found[0], -found[2], -found[1], found[3]), rtol=1e-9)


def test_paired_delong_of_equal_scores_is_no_difference():
    labels, scores = sample(7, 10, 10)
    assert paired_delong(labels, scores, 3 * scores + 1) == (0.0, 0.0, 0.0, 1.0)


def test_paired_delong_of_perfect_against_constant_is_no_point():
    labels = np.repeat([0, 1], 8)
    difference, low, high, p = paired_delong(labels, np.arange(16), np.zeros(16))
    assert difference == 0.5
    assert 0 < low < 0.5 < high <= 1
    assert 0 < p < 0.05
    folds = np.arange(16) % 4  # their models share training bags, as in the interval of each
    perfect, constant = (auroc_interval(labels, x, folds=folds) for x in (np.arange(16), np.zeros(16)))
    assert paired_delong(labels, np.arange(16), np.zeros(16), folds=folds)[1:3] == pytest.approx(
        (0.5 - np.hypot(1 - perfect.low, constant.high - 0.5), min(1, 0.5 + np.hypot(0, 0.5 - constant.low)))
    )


def two_scorers(seed, *, groups, bags, mixed, ties=False, areas=(0.9, 0.8), correlation=0.5):
    """Labels, groups and two scores that share noise, of groups with correlated bags."""
    generator = np.random.default_rng(seed)
    units = np.repeat(np.arange(groups), bags)
    labels = (np.arange(units.size) if mixed else units) % 2

    def noise():
        shared, own = generator.standard_normal(groups)[units], generator.standard_normal(units.size)
        return np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own

    both = noise()
    scores = [np.sqrt(2) * norm.ppf(area) * labels + np.sqrt(0.5) * (both + noise()) for area in areas]
    return labels, units, *(np.round(s * 2) if ties else s for s in scores)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_paired_groups_equal_obuchowskis_loops(mixed, ties):
    labels, units, a, b = two_scorers(1, groups=14, bags=3, mixed=mixed, ties=ties)
    pairs = [(a, a), (b, b), (a, b)]
    of_a, of_b, both = (clustered_covariance(labels.tolist(), x.tolist(), y.tolist(), units.tolist()) for x, y in pairs)
    groups_of_the_rarer_class = 14 if mixed else 7
    half = t(groups_of_the_rarer_class - 1).ppf(0.975) * np.sqrt(of_a + of_b - 2 * both)
    expected = wins(labels, a).mean() - wins(labels, b).mean()
    found = paired_delong(labels, a, b, groups=[f"patient {unit}" for unit in units])
    np.testing.assert_allclose(found[:3], [expected, expected - half, expected + half], rtol=1e-9)
    reverse = paired_delong(labels, b, a, groups=units)
    np.testing.assert_allclose(reverse, (-found[0], -found[2], -found[1], found[3]), rtol=1e-9)


def test_groups_of_one_bag_are_delong():
    labels, _, a, b = two_scorers(2, groups=30, bags=2, mixed=True, ties=True)
    singles = np.random.default_rng(0).permutation(60)
    assert paired_delong(labels, a, b, groups=singles) == paired_delong(labels, a, b)
    parts = [x - y for x, y in zip(placements(labels, a), placements(labels, b))]
    plain = sum(part.var(ddof=1) / part.size for part in parts)  # DeLong's
    np.testing.assert_allclose(_variance(labels, *parts, singles), plain, rtol=1e-12)


def test_copies_of_bags_in_groups_add_nothing_to_a_difference():
    labels, _, a, b = two_scorers(3, groups=40, bags=1, mixed=True, areas=(0.85, 0.75))
    alone = paired_delong(labels, a, b)
    groups = np.tile(np.arange(40), 6)
    copied = paired_delong(*(np.tile(x, 6) for x in (labels, a, b)), groups=groups)
    blind = paired_delong(*(np.tile(x, 6) for x in (labels, a, b)))
    assert copied[0] == pytest.approx(alone[0])
    # Student's t of 19 degrees of freedom in place of the normal quantile.
    assert copied[2] - copied[1] == pytest.approx((alone[2] - alone[1]) * t(19).ppf(0.975) / Z)
    assert blind[2] - blind[1] < 0.5 * (alone[2] - alone[1])


def test_one_group_of_a_class_has_a_wide_difference():
    labels = np.repeat([1, 0], [4, 16])
    groups = ["a"] * 4 + [f"b{i // 2}" for i in range(16)]
    a, b = np.arange(20) % 7, np.arange(20) % 5
    for found in (paired_delong(labels, a, b, groups=groups), paired_delong(labels, a, a[::-1], groups=groups)):
        assert found[1] < found[0] < found[2]
        assert found[2] - found[1] > 0.8
    assert paired_delong(labels, a, 2 * a, groups=groups) == (0.0, 0.0, 0.0, 1.0)


def test_one_positive_bag_says_little_of_a_difference():
    labels, a = np.array([1, 0, 0, 0, 0]), np.array([3, 1, 2, 4, 5])
    difference, low, high, p = paired_delong(labels, a, np.array([3, 4, 5, 1, 2]))
    assert (difference, p) == (0.0, 1.0)
    assert low < -0.4 < 0.4 < high


@pytest.mark.long
def test_paired_coverage_with_groups():
    # 20 groups of 3 correlated bags; intervals that know no groups cover about .8 here.
    sims, held, blind = 500, 0, 0
    for seed in range(sims):
        labels, units, a, b = two_scorers(seed, groups=20, bags=3, mixed=False, areas=(0.8, 0.8), correlation=0.8)
        _, low, high, _ = paired_delong(labels, a, b, groups=units)
        held += low <= 0 <= high
        _, low, high, _ = paired_delong(labels, a, b)
        blind += low <= 0 <= high
    assert held >= binom.ppf(1e-4, sims, 0.93)
    assert blind < binom.ppf(1e-4, sims, 0.93)


def test_interval_unpacks():
    low, high, method = Interval(0.1, 0.2, "score")
    assert (low, high, method) == (0.1, 0.2, "score")


@given(st.integers(0, 10**6), st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_folds_are_compared_within_themselves(seed, count):
    labels, scores = sample(seed, 12, 20)
    generator = np.random.default_rng(seed)
    folds = generator.integers(0, count, labels.size)
    if all(len({*labels[folds == fold]}) < 2 for fold in range(count)):
        return
    pairs = [wins(labels[folds == fold], scores[folds == fold]) for fold in range(count)]
    wanted = sum(part.sum() for part in pairs) / sum(part.size for part in pairs)
    assert auroc(labels, scores, folds=folds) == pytest.approx(wanted, abs=1e-12)
    # The models of the folds may have any scale.
    moved = scores * np.linspace(1, 3, count)[folds] + 10.0 * folds
    found = auroc_interval(labels, scores, folds=folds)
    assert auroc_interval(labels, moved, folds=folds) == found
    groups = np.char.add(folds.astype(str), generator.integers(0, 8, labels.size).astype(str))
    grouped = auroc_interval(labels, scores, folds=folds, groups=groups)
    assert grouped.low <= wanted <= grouped.high
    assert found.low <= wanted <= found.high


def test_one_fold_has_the_interval_of_its_bags():
    labels, scores = sample(3, 25, 40)
    one = np.zeros(labels.size, dtype=int)
    assert auroc_interval(labels, scores, folds=one) == auroc_interval(labels, scores)
    patients = np.arange(labels.size) // 3
    assert auroc_interval(labels, scores, folds=one, groups=patients) == auroc_interval(labels, scores, groups=patients)
    for got, wanted in zip(placements(labels, scores, one), placements(labels, scores)):
        np.testing.assert_allclose(got, wanted, atol=1e-12)
    with pytest.raises(OneClassError, match="fold with bags of both classes"):
        auroc([0, 1, 0, 1], [1, 2, 3, 4], folds=[0, 1, 2, 3])


def test_the_interval_of_folds_covers_the_true_area_as_often_as_it_says():
    generator, hits, truth = np.random.default_rng(0), 0, norm.cdf(1 / np.sqrt(2))
    folds, labels = np.repeat(np.arange(5), 12), np.tile([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 5)
    for _ in range(400):
        scores = generator.normal(size=60) + labels + 3.0 * generator.normal(size=5)[folds]
        low, high, _ = auroc_interval(labels, scores, folds=folds)
        hits += low <= truth <= high
    # Here the scores of the folds are independent, which those of models that share training bags are not.
    assert hits / 400 >= 0.95
