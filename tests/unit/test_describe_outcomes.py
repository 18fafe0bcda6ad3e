"""A description of bags ranked by more than 0 and 1 counts what they hold, and warns of what was planted alone."""

import io

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import roc_auc_score

from midam.data.bags import Bags
from midam.data.target_labels import TargetLabels
from midam.report.describe import bag_facts, describe_bags
from midam.report.leaks import size_warnings
from midam.report.terminal import print_description

pytestmark = pytest.mark.drawn

N = 120


def outcomes(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.permuted(np.tile([[1.0], [0.0], [0.0]], (N // 3, 2)), axis=0)
    labels[:3, 1] = np.nan
    return {
        "multiclass": TargetLabels.of("multiclass", rng.permutation(N) % 3, names=["brain", "lung", "skin"]),
        "ordinal": TargetLabels.of("ordinal", rng.permutation(N) % 3, names=["low", "mid", "high"]),
        "multilabel": TargetLabels.of("multilabel", labels, names=["tumor", "fat"]),
        "continuous": TargetLabels.of("continuous", rng.normal(size=N), names=["age"]),
        "survival": TargetLabels.of(
            "survival", np.stack([rng.exponential(9.0, N), rng.permutation(N) % 2], axis=1), names=["time", "event"]
        ),
    }


def bags_of(outcome, *, sizes=None, seed=1, **columns):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 30, len(outcome)) if sizes is None else np.asarray(sizes)
    return Bags(rng.normal(size=(sizes.sum(), 4)), sizes=sizes, outcome=outcome, **columns)


def warned(bags, start):
    return [text for text in describe_bags("x", bags).warnings if text.startswith(start)]


@pytest.mark.parametrize("target", list(outcomes()))
def test_good_bags_raise_no_warning_and_say_their_target(target):
    found = describe_bags("x", bags_of(outcomes()[target], splits=["train"] * 60 + ["val"] * 30 + ["test"] * 30))
    assert (found.warnings, found.notes) == ([], [])
    assert found.facts["target"] == target


def test_classes_are_counted_with_their_splits():
    outcome = outcomes()["multiclass"]
    bags = bags_of(outcome, splits=["train"] * 60 + ["val"] * 30 + ["test"] * 30)
    facts = bag_facts("x", bags)
    assert facts["bags"] == "120"
    assert facts["classes"] == "brain 40, lung 40, skin 40"
    assert facts["splits"] == "train 60, val 30, test 30"


def test_labels_are_counted_and_unknown_ones_named():
    outcome = outcomes()["multilabel"]
    facts, with_it = bag_facts("x", bags_of(outcome)), (outcome.values == 1).sum(axis=0)
    assert facts["labels"] == f"tumor {with_it[0]}, fat {with_it[1]}, entries unknown 3"


def test_numbers_and_times_are_told_by_range_and_median():
    number = bag_facts("x", bags_of(TargetLabels.of("continuous", [3, 1, 2, 10, 4], names=["age"])))
    assert number["numbers"] == "1 to 10, median 3"
    times = TargetLabels.of("survival", [[1, 1], [2, 0], [3, 1], [4, 0], [5, 0]], names=["time", "event"])
    survival = bag_facts("x", bags_of(times, splits=["train"] * 3 + ["test"] * 2))
    assert survival["events"] == "2"
    # Of those still seen, 1 of 4 is lost at 2 and 1 of 2 at 4: half are left there.
    assert survival["median follow-up"] == "4"
    assert survival["splits"] == "train 3, val 0, test 2"


@pytest.mark.parametrize(
    ("outcome", "messages"),
    [
        (
            TargetLabels.of("multiclass", [0] * 30 + [1] * 5, names=["a", "b", "c"]),
            ["no bags of class c: nothing can be trained", "few bags of a class: b (5)"],
        ),
        (
            TargetLabels.of("multilabel", [[1, 0], [1, 1]] * 20, names=["p", "q"]),
            ["no bags with or without p: nothing can be trained"],
        ),
        (
            TargetLabels.of(
                "multilabel", [[1, 0, np.nan]] * 30 + [[0, 1, 0]] * 25 + [[0, 1, 1]] * 5, names=["p", "q", "r"]
            ),
            ["few bags of a class: r (5)"],
        ),
        (TargetLabels.of("ordinal", [0] * 30 + [1] * 4 + [2] * 30, names="abc"), ["few bags of a class: b (4)"]),
        (TargetLabels.of("continuous", [2.5] * 30, names=["age"]), ["one number alone"]),
        (TargetLabels.of("survival", [[1, 0]] * 30, names=["time", "event"]), ["no events"]),
        (TargetLabels.of("survival", [[1, 0], [2, 0], [3, 1]] * 10, names=["time", "event"]), ["few events: 10"]),
    ],
)
def test_missing_and_rare_labels(outcome, messages):
    found = describe_bags("x", bags_of(outcome, sizes=np.full(len(outcome), 3))).warnings
    assert len(found) == len(messages)
    assert all(text.startswith(message) for text, message in zip(found, messages))


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_bag_sizes_that_tell_a_class_are_named_with_their_auroc(target):
    outcome = outcomes()[target]
    own = outcome.values[:, 0] == 1  # lungs, or tumors
    rng = np.random.default_rng(2)
    bags = bags_of(outcome, sizes=rng.integers(20, 30, N) + 7 * own)
    (text,) = warned(bags, "the bag size predicts the label")
    area = roc_auc_score(own, bags.sizes)
    assert f"its AUROC alone is {area:.3f} for {'lung' if target == 'multiclass' else 'tumor'}" in text
    assert "fat" not in text


@pytest.mark.parametrize("target", ["ordinal", "continuous", "survival"])
def test_bag_sizes_that_tell_an_order_are_told_with_their_c_index(target):
    outcome = outcomes()[target]
    key = -outcome.values[:, 0] if target == "survival" else outcome.values[:, 0]
    sizes = 10 + np.argsort(np.argsort(key + 0.3 * np.random.default_rng(3).normal(size=N) * key.std()))
    (text,) = warned(bags_of(outcome, sizes=sizes), "the bag size predicts")
    event = outcome.values[:, 1] if target == "survival" else np.ones(N)
    right = pairs = 0.0
    for i in range(N):
        for j in range(N):
            if event[i] and key[i] > key[j]:
                pairs += 1
                right += (sizes[i] > sizes[j]) + 0.5 * (sizes[i] == sizes[j])
    assert f"its C-index alone is {right / pairs:.3f} " in text


def test_groups_widen_what_the_sizes_tell():
    codes = np.arange(N) // 4 % 2
    rng = np.random.default_rng(4)
    sizes = np.repeat(rng.integers(10, 30, N // 4), 4) + 2 * codes
    outcome = TargetLabels.of("ordinal", codes, names=["low", "high"])
    assert warned(bags_of(outcome, sizes=sizes), "the bag size predicts the label")
    grouped = bags_of(outcome, sizes=sizes, groups=[f"g{i // 4}" for i in range(N)])
    assert not warned(grouped, "the bag size predicts the label")


@pytest.mark.parametrize(
    ("outcome", "differ"),
    [
        (TargetLabels.of("multiclass", [0, 0, 1] * 20, names=["a", "b"]), (False, True)),
        (TargetLabels.of("multilabel", [[1, np.nan], [1, np.nan], [1, 0]] * 20, names=["p", "q"]), (False, True)),
        (TargetLabels.of("continuous", [2.5, 2.5, 2.6] * 20, names=["age"]), (False, True)),
        (TargetLabels.of("survival", [[3, 1], [3, 1], [3, 0]] * 20, names=["time", "event"]), (False, True)),
    ],
    ids=lambda value: value.target if isinstance(value, TargetLabels) else "",
)
def test_duplicates_that_differ_in_label(outcome, differ):
    for copy, said in zip((1, 2), differ):
        bags = bags_of(outcome, sizes=np.full(60, 12))
        bags.instances[12 * copy : 12 * copy + 12] = bags[0]
        assert warned(bags, "duplicate bags: 2 bags have the content of another, such as 0")
        assert bool(warned(bags, "duplicate bags that differ in label: 1 set,")) is said


def shown(bags):
    console = Console(file=io.StringIO(), width=200)
    print_description(console, "x", bag_facts("x", bags), bags)
    return console.file.getvalue()


@pytest.mark.parametrize("target", list(outcomes()))
def test_the_histogram_counts_every_bag(target):
    text = shown(bags_of(outcomes()[target]))
    rows = [line.split()[-1] for line in text.split("bag sizes:\n")[1].splitlines()]
    assert sum(map(int, rows)) == N


def test_many_classes_are_named_in_part():
    outcome = TargetLabels.of("multiclass", np.arange(N) % 40, names=[f"c{i}" for i in range(40)])
    assert "and 10 more" in bag_facts("x", bags_of(outcome))["classes"]


def test_sizes_without_a_meaning_are_rarely_said_to_tell_one_of_many_classes():
    told = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        outcome = TargetLabels.of("multiclass", rng.permutation(200) % 10, names=[str(digit) for digit in range(10)])
        told += any(size_warnings(bags_of(outcome, seed=seed)))
    assert told <= 6  # 3 are expected; of ten intervals at 95% each, some exclude 0.5 in 23 of these 60
