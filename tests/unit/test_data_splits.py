import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from midam.data.splits import check_disjoint, split_bags, stratified_folds
from midam.errors import BagDataError, ConfigError, LeakageError
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import auroc

NAMES = ("train", "val", "test")


def feasible(labels, groups, parts):
    """Each part needs a group with both classes or one of each: count by hand."""
    kinds = [frozenset(labels[groups == g].tolist()) for g in set(groups.tolist())]
    mixed = kinds.count(frozenset((0, 1)))
    return mixed + min(kinds.count(frozenset((0,))), kinds.count(frozenset((1,)))) >= parts


def test_shares_hold_for_each_class():
    labels = np.array([1] * 50 + [0] * 150)
    splits = split_bags(labels, seed=3)
    for value, count in ((1, 50), (0, 150)):
        found = [int((splits[labels == value] == name).sum()) for name in NAMES]
        assert found == [count * 0.6, count * 0.2, count * 0.2]


def test_a_share_of_zero_stays_empty():
    splits = split_bags([0, 1] * 10, fractions=(0.9, 0.0, 0.1))
    assert sorted(set(splits.tolist())) == ["test", "train"]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), min_size=3, max_size=40), st.integers(0, 9))
def test_groups_stay_together_and_each_split_has_both_classes(bags, seed):
    groups = np.array([f"g{g}" for g, _ in bags])
    labels = np.array([y for _, y in bags])
    assume(len(set(labels.tolist())) == 2)
    if not feasible(labels, groups, 3):
        with pytest.raises(BagDataError, match="ask for fewer splits"):
            split_bags(labels, groups=groups, seed=seed)
        return
    splits = split_bags(labels, groups=groups, seed=seed)
    check_disjoint(splits, groups)
    for name in NAMES:
        assert set(labels[splits == name].tolist()) == {0, 1}


def test_grouped_shares_are_near_the_wanted_ones():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 60, 600)
    labels = rng.integers(0, 2, 600)
    splits = split_bags(labels, groups=groups, seed=1)
    for value in (0, 1):
        shares = [float((splits[labels == value] == name).mean()) for name in NAMES]
        np.testing.assert_allclose(shares, [0.6, 0.2, 0.2], atol=0.03)


def test_the_seed_decides():
    labels = [0, 1] * 20
    assert split_bags(labels, seed=1).tolist() == split_bags(labels, seed=1).tolist()
    assert split_bags(labels, seed=1).tolist() != split_bags(labels, seed=2).tolist()


def test_too_few_groups_are_counted():
    with pytest.raises(BagDataError, match="got 2 groups with positive and 2 with negative"):
        split_bags([1, 1, 0, 0, 0, 1], groups=list("ababab"), fractions=(0.6, 0.2, 0.2))
    with pytest.raises(BagDataError, match="got 2 bags with positive and 8 with negative"):
        split_bags([1] * 2 + [0] * 8)
    with pytest.raises(BagDataError, match="one group for each of the 2 bags"):
        split_bags([0, 1], groups=["a"])


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.5, 0.2, 0.2), (1.2, -0.1, -0.1)])
def test_bad_fractions_are_refused(fractions):
    with pytest.raises(ConfigError, match="sum to 1"):
        split_bags([0, 1] * 9, fractions=fractions)


def test_a_shared_group_is_refused_unless_permitted():
    splits, groups = ["train", "test", "test", "val"], ["p1", "p1", "p2", "p3"]
    with pytest.raises(LeakageError, match=r"1 of 3 groups .*p1 in test and train.*allow_leakage=True"):
        check_disjoint(splits, groups)
    check_disjoint(splits, groups, allow_leakage=True)
    check_disjoint(splits, ["p1", "p4", "p2", "p3"])


def test_folds_are_stratified():
    labels = np.array([1] * 47 + [0] * 45)
    folds = stratified_folds(labels, folds=10, seed=4)
    assert sorted(set(folds.tolist())) == list(range(10))
    for value in (0, 1):
        assert np.ptp(np.bincount(folds[labels == value])) <= 1
    assert folds.tolist() != stratified_folds(labels, folds=10, seed=5).tolist()


def test_grouped_folds_are_disjoint_with_both_classes():
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(12), rng.integers(1, 9, 12))
    labels = (groups % 2 == 0).astype(int)
    folds = stratified_folds(labels, groups=groups, folds=5)
    for group in range(12):
        assert len(set(folds[groups == group].tolist())) == 1
    for fold in range(5):
        assert set(labels[folds == fold].tolist()) == {0, 1}


def test_impossible_folds_are_refused():
    with pytest.raises(BagDataError, match="3 bags with positive"):
        stratified_folds([1] * 3 + [0] * 20, folds=5)
    with pytest.raises(ConfigError, match="at least 2 folds"):
        stratified_folds([0, 1], folds=1)


def test_series_of_the_same_bags_in_another_order_are_refused():
    labels = pd.Series([0, 1] * 6, index=[f"bag{i:02}" for i in range(12)])
    groups = pd.Series([f"p{i // 2}" for i in range(12)], index=labels.index)
    scores, mixed = pd.Series(np.arange(12.0), index=labels.index), groups.sample(frac=1, random_state=0)
    for call in (
        lambda: split_bags(labels, groups=mixed),
        lambda: stratified_folds(labels, groups=mixed, folds=2),
        lambda: check_disjoint(labels, mixed),
        lambda: auroc(labels, scores[::-1]),
        lambda: auroc_interval(labels, scores, groups=mixed),
        lambda: paired_delong(labels, scores, scores, groups=mixed),
    ):
        with pytest.raises(BagDataError, match="Series of the bags in one order, got 'bag00' and"):
            call()
    assert split_bags(labels, groups=groups).tolist() == split_bags(labels.tolist(), groups=groups.tolist()).tolist()
    assert auroc(labels, scores) == auroc(labels.to_numpy(), scores) == auroc(labels, scores.reset_index(drop=True))


@pytest.mark.parametrize("missing", [None, np.nan, "", "NA"])
def test_missing_groups_are_no_group(missing):
    labels, groups = [0, 1] * 6, [missing] * 6 + list("abcdef")
    for call in (
        lambda: split_bags(labels, groups=groups),
        lambda: stratified_folds(labels, groups=groups, folds=2),
        lambda: check_disjoint(["train", "test"] * 6, groups),
    ):
        with pytest.raises(BagDataError, match="a group for each bag, got"):
            call()
