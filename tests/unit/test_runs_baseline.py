"""The baseline beside a run in words, on disk, and on bags of any size."""

from dataclasses import replace

import numpy as np
import pytest
from tests.trainings import witness_bags

from midam.data.bags import Bags
from midam.data.statistics import bag_statistics
from midam.report.words import baseline_notes, result_words, verdict
from midam.runs.baseline import held_out_scores, train_baseline, usual_baseline
from midam.runs.data import SplitBags
from midam.targets.binary import Binary


def entry(difference, low, high, **changes):
    areas = {"auroc": 0.8, "auroc_ci95": [0.7, 0.9], "auroc_method": "logit-delong"}
    gap = {"difference": difference, "difference_ci95": [low, high], "difference_method": "paired delong"}
    return {"method": "bag-statistics-extratrees", "part": "test", **areas, **gap, **changes}


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        ((0.05, 0.01, 0.09), "the model is ahead"),
        ((0.05, -0.01, 0.11), "it is unknown which of the two is better"),
        ((-0.05, -0.11, 0.01), "it is unknown which of the two is better"),
        ((-0.05, -0.09, 0.0), "it is unknown which of the two is better"),
        ((-0.05, -0.09, -0.01), "the model is behind"),
        ((0.0, 0.0, 0.0), "both rank these bags in the same way"),
    ],
)
def test_the_interval_decides_what_is_said(gap, words):
    found = entry(*gap)
    assert verdict(found) == words
    line = result_words(found)
    assert line.startswith("baseline AUROC 0.800 (bag-statistics-extratrees); model minus baseline ")
    assert line.endswith(f": {words}")
    assert (f"{gap[0]:+.3f} (95% CI {gap[1]:+.3f} to {gap[2]:+.3f})" in line) == ("same way" not in words)
    assert (baseline_notes(found) != []) == ("behind" in words)


def test_advice_names_the_baseline():
    (said,) = baseline_notes(entry(-0.2, -0.3, -0.1))
    assert "`midam compare DATA --methods midam,bag-statistics-extratrees`" in said
    assert "`midam fit DATA --method bag-statistics-extratrees`" in said


def test_a_comparison_on_validation_bags_says_so():
    (said,) = baseline_notes(entry(0.1, 0.0, 0.2, part="val"))
    assert "favors the model" in said


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((5,), "bag-statistics-extratrees"),
        ((3, 4, 4), "bag-statistics-extratrees"),
        ((3, 32, 32), "rgb-trees"),
        ((1, 8, 16, 16), "rgb-trees"),
    ],
)
def test_pixels_stand_beside_their_colors(shape, name):
    assert usual_baseline(shape, Binary()) == name


def parts_of(bags, test):
    return SplitBags(bags, np.where(np.isin(np.arange(len(bags)), test), "test", "train"))


def test_test_bags_of_one_class_give_way_to_validation_bags():
    bags, splits = witness_bags(30), np.repeat(["train", "val", "test"], [16, 8, 6])
    splits[24:] = np.where(bags.require_labels()[24:] == 1, "test", "train")
    assert train_baseline(SplitBags(bags, splits), np.arange(30.0), seed=0)["baseline"]["part"] == "val"


def test_scores_of_folds_are_on_one_scale():
    folds = np.arange(60) % 3
    parts = SplitBags(witness_bags(60), np.repeat("out_of_fold", 60), folds=folds)
    truth, tested = np.random.default_rng(0).normal(size=60), np.arange(60)

    def score(trial):
        fold = folds[trial.score[0]]
        return 10.0**fold * truth[trial.score] + fold

    found = held_out_scores(parts, tested, score, seed=0)
    spread = [found[folds == fold].std() for fold in range(3)]
    assert max(spread) < 1.5 * min(spread)
    sites = held_out_scores(replace(parts, by_site=True), tested, score, seed=0)
    np.testing.assert_array_equal(sites, 10.0**folds * truth + folds)
    alone = replace(parts, bags=parts.bags.replace(groups=folds.astype(str)))  # a patient each: nothing tells the scale
    np.testing.assert_array_equal(held_out_scores(alone, tested, score, seed=0), sites)


@pytest.mark.parametrize("width", [1, 2, 64, 300_000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_statistics_of_large_bags_are_streamed_to_the_same_bits(width, dtype):
    rng = np.random.default_rng(width)
    rows = rng.normal(3, 2, size=(max(3, 600_000 // width), width)).astype(dtype)
    bags = Bags.from_list([rows[:2], rows, rows[:1]])
    names = ("mean", "min", "max", "std", "size")
    doubles = [x.astype(np.float64) for x in (rows, rows[:2])]
    expected = [np.concatenate([x.mean(0), x.min(0), x.max(0), x.std(0), [len(x)]]) for x in doubles]
    assert np.array_equal(bag_statistics(bags, np.array([1, 0]), names), expected)
    median = np.median(rows.astype(np.float64), axis=0)
    assert np.array_equal(bag_statistics(bags, np.array([1]), ["median"])[0], median)
