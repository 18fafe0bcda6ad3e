"""Parts of the paper's studies: statistics, selection, cache, registry, splits and the unit-test bags."""

import json
import re

import numpy as np
import pytest

from midam.compare.workers import Group
from midam.data.bags import Bags
from midam.data.on_disk import on_disk
from midam.errors import CheckpointError, ConfigError
from midam.settings import Settings
from studies.engine import Store, complete, settings_hash
from studies.options import StudyOptions
from studies.protocol import epoch_aurocs, paper_config, train_splits
from studies.registry import STUDIES, as_study, check_study, find_study
from studies.split_statistics import mean_interval, predictive_interval, split_means
from studies.splits import paper_splits, published_folds
from studies.tabular import figure_generalization, figure_instances
from studies.tabular.curves import Arm, CurvePlan, Curves, _names, find_curves
from studies.tabular.table2 import plan
from studies.tabular.table2_page import Row, paired_section, relative_section
from studies.tabular.table2_trials import Chosen, choose
from studies.theory.unit_test_bags import TESTS, unit_test_bags

T_2, T_3 = 4.302652729749462, 3.182446305283708  # 97.5% points of t with 2 and 3 degrees of freedom, from tables


def row(*, split=0, fold=0, lr=0.1, best=(0.5, 0.5), last=(0.5, 0.5), train=1.0):
    return {
        "split": split,
        "fold": fold,
        "lr": lr,
        "val_best": best[0],
        "test_best": best[1],
        "val_last": last[0],
        "test_last": last[1],
        "train_last": train,
    }


def small_bags(count=40, seed=0, width=4):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    arrays = [rng.normal(label, 1.0, (int(rng.integers(1, 6)), width)) for label in labels]
    return Bags.from_list([a.astype(np.float32) for a in arrays], labels)


def test_intervals_of_split_means_by_hand():
    means = split_means({0: [0.6, 0.8], 2: [0.9, 0.7], 1: [0.7, 0.3]})
    assert means == pytest.approx([0.7, 0.5, 0.8])
    # Mean 2/3, variance ((1/30)^2 + (1/6)^2 + (2/15)^2) / 2 = 7/300.
    sd = (7 / 300) ** 0.5
    found = mean_interval(means, bounds=(-9.0, 9.0))
    assert (found.mean, found.low) == pytest.approx((2 / 3, 2 / 3 - T_2 * sd / 3**0.5))
    assert mean_interval(means).high == 1.0


def test_predictive_interval_by_hand():
    found = predictive_interval([0.50, 0.52, 0.54, 0.56], count=3)
    half = T_3 * (0.002 / 3) ** 0.5 * (1 / 3 + 1 / 4) ** 0.5
    assert (found.mean, found.low, found.high) == pytest.approx((0.53, 0.53 - half, 0.53 + half))
    assert found.holds(0.53 + 0.99 * half)
    assert not found.holds(0.53 + 1.01 * half)


def test_predictive_interval_covers_a_new_mean():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        draws = rng.normal(0.5, 0.01, 9)
        hits += predictive_interval(draws[:6].tolist(), count=3).holds(draws[6:].mean())
    assert 0.935 < hits / 2000 < 0.965


def _row(method, values, *, name="musk1"):
    trials = [Chosen(split, fold, 0.1, value, 1.0) for split, value in enumerate(values) for fold in range(2)]
    return Row(name, method, trials, trials, trials)


def test_midam_is_paired_with_dam_by_split():
    rows = [
        _row("midam-printed-att", [0.9, 0.8, 0.85]),
        _row("dam-att", [0.8, 0.6, 0.7]),
        _row("midam-printed-smx", [0.7, 0.8, 0.9]),
        _row("dam-smx", [0.6, 0.7]),
        _row("midam-printed-att", [0.5, 0.75], name="new"),
        _row("dam-att", [0.5, 0.75], name="new"),
    ]
    found = [line for line in paired_section(rows, margin=1.0) if line.startswith(("| musk1", "| new"))]
    # Differences 0.1, 0.2, 0.15: sd 0.05, t_2 = 4.3027, 1/3 and 1/3 + 0.1 / 0.72; p = 0.049, twice that by Holm.
    assert found == [
        "| musk1, MIDAM (att) - DAM (att) | 3 | +0.150 [+0.026, +0.274] | [+0.002, +0.298] | +0.058 | 0.10 | above 0 |",
        "| new, MIDAM (att) - DAM (att) | 2 | +0.000 [+0.000, +0.000] | - | - | 1.00 | no spread |",
    ]
    assert paired_section(rows[2:4], margin=1.0) == paired_section([_row("dam-att", [0.5])], margin=1.0) == []


def test_the_relative_state_is_compared_over_the_splits_that_both_have():
    rows = [_row("midam-printed-att", [0.5, 0.6, 0.1]), _row("midam-printed-smx", [0.4, 0.4])]
    ours = [_row("midam-att", [0.6, 0.72]), _row("midam-smx", [0.5])]
    (line,) = [line for line in relative_section(rows, ours, margin=1.0) if line.startswith("| musk1")]
    assert line.split(" | ")[:3] == ["| musk1, MIDAM (att), relative", "2", "+0.110 [-0.017, +0.237]"]
    assert relative_section(rows, ours[1:], margin=1.0) == []


def test_the_rate_is_chosen_by_validation_of_the_reported_epoch():
    rows = [
        row(lr=0.1, best=(0.9, 0.1), last=(0.6, 0.2)),
        row(lr=0.01, best=(0.8, 0.3), last=(0.7, 0.4)),
    ]
    assert [c.test for c in choose(rows, epoch="best", lrs=[0.1, 0.01])] == [0.1]
    assert [c.test for c in choose(rows, epoch="last", lrs=[0.1, 0.01])] == [0.4]


def test_equal_rates_go_to_the_other_epoch_and_then_to_the_first():
    tied = [row(lr=0.1, best=(0.9, 0.1), last=(0.6, 0.0)), row(lr=0.01, best=(0.9, 0.2), last=(0.7, 0.0))]
    assert choose(tied, epoch="best", lrs=[0.1, 0.01])[0].lr == 0.01
    assert choose([row(lr=0.1), row(lr=0.01)], epoch="best", lrs=[0.1, 0.01])[0].lr == 0.1


def test_a_divergence_is_never_chosen_and_an_unfinished_trial_is_left_out():
    gone = row(lr=0.1, best=(None, None), last=(None, None), train=None)
    assert choose([gone, row(lr=0.01)], epoch="best", lrs=[0.1, 0.01])[0].lr == 0.01
    assert choose([gone], epoch="best", lrs=[0.1]) == []
    assert choose([row(lr=0.1)], epoch="best", lrs=[0.1, 0.01]) == []


def test_splits_are_disjoint_stratified_and_cover_the_training_part():
    labels = np.array([1] * 45 + [0] * 47)
    for split in range(2):
        trials = paper_splits(labels, splits=[split])
        test = trials[0].test
        assert len(test) == 10
        assert 4 <= labels[test].sum() <= 6
        assert sorted(np.concatenate([t.val for t in trials])) == sorted(set(range(92)) - set(test.tolist()))
        for trial in trials:
            assert sorted(np.concatenate([trial.train, trial.val, trial.test])) == list(range(92))
    seeds = [t.seed for t in paper_splits(labels, splits=[0, 1, 2])]
    assert seeds == list(range(15))


def test_the_best_epoch_is_the_last_of_equals_and_test_bags_do_not_matter():
    bags = small_bags()
    splits = paper_splits(bags.require_labels(), splits=[0], folds=2)
    config = paper_config("midam-smx", lr=0.1, epochs=6)
    rows = train_splits(config, bags, splits)
    flipped = bags.require_labels().copy()
    flipped[splits[0].test] = 1 - flipped[splits[0].test]
    other = Bags(bags.instances, starts=bags.starts, sizes=bags.sizes, labels=flipped)
    for one, two in zip(rows, train_splits(config, other, splits)):
        assert (one["best_epoch"], one["val_best"], one["val_last"]) == (
            two["best_epoch"],
            two["val_best"],
            two["val_last"],
        )
        assert one["test_best"] == pytest.approx(1 - two["test_best"])
        assert one["val_best"] >= one["val_last"]


def test_epoch_aurocs_skip_what_is_not_finite():
    found = epoch_aurocs(np.array([0, 1, 1]), np.array([[0.1, 0.2, 0.0], [np.nan, 0.0, 1.0]]))
    assert found[0] == 0.5
    assert np.isnan(found[1])


def test_the_store_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "x" / "trials.jsonl"
    with Store(path.parent, "trials") as store:
        store.add([{"a": 1}, {"a": 2}])
    path.write_bytes(path.read_bytes() + b'{"a": 3')
    with Store(path.parent, "trials") as again:
        again.add([{"a": 4}])
        assert [r["a"] for r in again.rows] == [1, 2, 4]
    assert [json.loads(line)["a"] for line in path.read_text().splitlines()] == [1, 2, 4]


def _where(array):
    return [{"on_disk": on_disk(array)}]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.long
def test_the_bags_of_a_group_reach_every_process_in_memory(jobs, tmp_path):
    # More than the megabyte from which joblib would pass a file.
    groups = [Group([{"study": "where", "number": n}], [np.full(2**18, n)]) for n in range(2)]
    with Store(tmp_path, "study") as store:
        complete(groups, _where, store=store, options=StudyOptions(jobs=jobs), section="where")
        assert [row["on_disk"] for row in store.rows if "on_disk" in row] == [False, False]
        assert store.wall_time("where") > 0
        rows = list(store.rows)
        complete(groups, _where, store=store, options=StudyOptions(jobs=jobs), section="where")
        assert store.rows == rows


def test_the_store_names_a_damaged_line(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text('{"a": 1}\n{"a\n{"a": 2}\n')
    with pytest.raises(CheckpointError, match="line 2"):
        Store(tmp_path, "trials")


def test_the_hash_knows_settings_and_bags():
    one, two = small_bags(), small_bags(seed=1)
    assert settings_hash(Settings(), bags=one) != settings_hash(Settings(), bags=two)
    assert settings_hash(Settings(epochs=3)) != settings_hash(Settings(epochs=4))
    assert settings_hash(Settings(lr=0.3, seed=7)) == settings_hash(Settings())


def test_an_option_that_a_study_does_not_take_is_refused():
    with pytest.raises(ConfigError, match=r"no --margin with the study table1.*table2"):
        check_study("table1", StudyOptions(margin=0.1))


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"margin": 0.0}, {"splits": 1}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        StudyOptions(**wrong)


def test_a_study_is_a_row_or_added(tmp_path):
    called = []
    STUDIES.add("note", as_study("a note")(called.append))
    try:
        find_study("note")(StudyOptions(out=tmp_path))
    finally:
        STUDIES.remove("note")
    assert [options.out for options in called] == [tmp_path]
    with pytest.raises(ConfigError, match=r"Expected a known study, got .json\.dumps."):
        find_study("json.dumps")


@pytest.mark.data
def test_published_folds_go_with_the_order_of_the_file(data_root):
    from studies.sets import catalog

    loaded = catalog.load("fox")
    bags, folds = published_folds("fox", loaded)
    assert folds.shape == (5, 10, 200)
    assert ((~folds).sum(axis=1) == 1).all()  # each bag is tested once a repeat
    assert ((~folds) @ bags.require_labels() == 10).all()  # 10 of 20 test bags are positive: the order is right
    assert published_folds("musk2", catalog.load("musk2")) is None
    assert published_folds("fox", small_bags()) is None


@pytest.mark.parametrize("test", list(TESTS))
def test_unit_test_bags_hold_what_the_recipe_says(test):
    bags = unit_test_bags(test, seeds=[0], bags=60)
    labels, splits = bags.require_labels(), bags.splits
    means = [bags[i].mean(axis=1) for i in range(len(bags))]
    poisoned = np.array([(m < -8).any() for m in means])

    def share(split, label):
        return poisoned[(splits == split) & (labels == label)].mean()

    if test == 3:
        assert not poisoned.any()
        negatives = [m for m, s, y in zip(means, splits, labels) if s == "test" and y == 0]
        assert all(35 <= max((m > 1.5).sum(), (m < -1.5).sum()) <= 39 for m in negatives)
    else:
        assert (share("train", 0), share("test", 1), share("test", 0)) == (1.0, 1.0, 0.0)
        assert (share("train", 1) == 0) if test == 1 else (0 < share("train", 1) < 0.3)
    if test == 2:
        both = np.array([(abs(m - 2) < 0.2).any() and (abs(m - 3) < 0.2).any() for m in means])
        assert (both == labels).all()


def curves(train, test):
    """Curves of three splits and two epochs that end at these AUROCs; the first epoch has half of them."""
    parts = [np.outer(values, [0.5, 1.0]) for values in (train, [0.5] * 3, test)]
    return Curves(0.1, *parts)


def test_arms_that_are_compared_have_one_learning_rate(tmp_path):
    bags = Bags.from_list([[[float(i)]] for i in range(8)], [0, 1] * 4)
    arms = (Arm("midam-att"), Arm("dam-att"))
    wanted = CurvePlan(arms, lrs=(0.1, 0.01, 0.001), margin=1.0, splits=1, epochs=1)
    # Alone, MIDAM would take 0.1 and DAM 0.01; together 0.01 is best; at 0.001 a training diverged.
    val = {("midam-att", 0.1): 0.9, ("midam-att", 0.01): 0.8, ("midam-att", 0.001): None}
    val |= {("dam-att", 0.1): 0.6, ("dam-att", 0.01): 0.8, ("dam-att", 0.001): 1.0}
    with Store(tmp_path, "curves") as store:
        for (method, lr), value in val.items():
            store.keep(_names(wanted, Arm(method), lr, "a", bags), [{"train": [1.0], "val": [value], "test": [lr]}])
        found = find_curves(wanted, arms, "a", bags, store=store)
    assert [(curves.lr, curves.test.item()) for curves in found] == [(0.01, 0.01)] * 2
    assert [curves.val.item() for curves in found] == [0.8, 0.8]


def test_the_account_of_generalization_is_judged_by_both_intervals():
    low, high = curves([0.8, 0.81, 0.8], [0.7, 0.71, 0.7]), curves([0.9, 0.91, 0.91], [0.9, 0.9, 0.91])
    worse_and_better = curves([0.7, 0.71, 0.7], [0.9, 0.9, 0.91])
    found = {("a", "smx", "MIDAM (smx)"): worse_and_better, ("a", "smx", "DAM (smx)"): low}
    found |= {("a", "att", "MIDAM (att)"): high, ("a", "att", "DAM (att)"): low}
    found |= {("b", p, f"{method} ({p})"): low for method in ("MIDAM", "DAM") for p in ("smx", "att")}
    text = "\n".join(figure_generalization._claim(found, figure_generalization.arms()))
    assert "**Shown in 1 of 4, contradicted in 1.**" in text
    rows = {tuple(row[:2]): row[-1] for row in re.findall(r"^\| (\w) \| (\w+) \|.*\| ([\w ]+) \|$", text, re.MULTILINE)}
    assert rows == {
        ("a", "smx"): "shown",
        ("a", "att"): "contradicted",
        ("b", "smx"): "not shown",
        ("b", "att"): "not shown",
    }


def test_the_claims_on_instances_are_judged_by_paired_intervals():
    slow, fast = curves([0.8, 0.81, 0.8], [0.7] * 3), curves([0.9, 0.91, 0.91], [0.7] * 3)
    near = curves([0.895, 0.905, 0.905], [0.7] * 3)
    texts = ["B = 1", "B = 4", "B = 8", "all"]
    found = {("a", "smx", text): c for text, c in zip(texts, (slow, near, fast, fast))}
    found |= {("a", "att", text): c for text, c in zip(texts, (fast, slow, slow, fast))}
    text = "\n".join(figure_instances._claims(found, texts))
    assert "**Shown in 1 and 1 of 2.**" in text
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines() if line.startswith("| a |")]
    assert [(row[0], row[2], row[4]) for row in rows] == [
        ("smx", "shown", "shown"),
        ("att", "contradicted", "contradicted"),
    ]


def test_table2_trains_where_it_is_told(monkeypatch):
    assert plan(StudyOptions()).config("midam-att", 0.1).run.accelerator == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert plan(StudyOptions()).config("midam-att", 0.1).run.accelerator == "cpu"
    assert plan(StudyOptions(device="auto")).config("midam-att", 0.1).run.accelerator == "cuda"
    assert plan(StudyOptions(device="cpu")).config("midam-att", 0.1).run.accelerator == "cpu"
    # The key of a trial does not know where it ran.
    keys = {settings_hash(plan(StudyOptions(device=device)).config("midam-att", 0.1)) for device in ("cpu", "cuda")}
    assert len(keys) == 1
