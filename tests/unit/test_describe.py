"""A description warns of what was planted, and of nothing else."""

import numpy as np
import pandas as pd
import pytest
from rich.filesize import decimal

from midam.cli import main
from midam.data.bags import Bags
from midam.data.store import open_store, write_store
from midam.report import describe
from midam.report.describe import bag_facts, describe_bags

pytestmark = pytest.mark.drawn


def make(*, bags=80, seed=0, sizes=None, **columns):
    rng = np.random.default_rng(seed)
    labels = np.arange(bags) % 2
    sizes = rng.integers(5, 30, bags) if sizes is None else sizes(labels, rng)
    values = rng.normal(size=(sizes.sum(), 4))
    return Bags(values, starts=np.cumsum(sizes) - sizes, sizes=sizes, **{"labels": labels, **columns})


def warned(bags, start):
    return [text for text in describe_bags("x", bags).warnings if text.startswith(start)]


def test_good_bags_raise_no_warning():
    bags = make(groups=[f"g{i // 2}" for i in range(80)], splits=["train"] * 40 + ["val"] * 20 + ["test"] * 20)
    found = describe_bags("x", bags)
    assert (found.warnings, found.notes) == ([], [])
    assert found.facts["splits"] == "train 40 (20 positive), val 20 (10 positive), test 20 (10 positive)"
    assert found.facts["groups"] == 40
    assert found.facts["instance shape"] == "[4] of float64"


def test_missing_values_are_counted_and_not_filled(tmp_path, capsys):
    frame = table_of_shops().assign(flat=7.0)
    frame.loc[::5, "x"] = frame.loc[1::10, "shop"] = frame.loc[::3, "flat"] = None
    frame.to_csv(tmp_path / "shops.csv", index=False)
    assert main(["data", "describe", str(tmp_path / "shops.csv")]) == 0
    said = capsys.readouterr().out
    assert "128 missing values need --impute median to train: flat 80, x 48; 24 missing values of categories" in said
    assert "are marked by a feature: shop 24 (in " in said
    assert "constant features: 1 of 7 (flat)" in said


def table_of_shops(*, instances=4):
    rng, labels = np.random.default_rng(0), np.arange(60) % 2
    shop = np.where(
        rng.random((60, instances)) < 0.2 + 0.5 * labels[:, None], "a", rng.choice(["b", "c"], (60, instances))
    )
    rows = {"bag": np.repeat(np.arange(60), instances), "label": np.repeat(labels, instances), "shop": shop.ravel()}
    return pd.DataFrame({**rows, "x": rng.normal(size=60 * instances)})


@pytest.mark.parametrize("sign", [1, -1])
def test_bag_sizes_that_tell_the_label(sign):
    bags = make(sizes=lambda labels, rng: rng.integers(20, 30, 80) + sign * 6 * labels)
    (text,) = warned(bags, "the bag size predicts the label")
    area = float(text.split("alone is ")[1].split()[0])
    assert (area > 0.9) == (sign > 0)


def test_duplicate_bags():
    bags = make(splits=["train"] * 40 + ["test"] * 40, sizes=lambda labels, rng: np.full(80, 12))
    bags.instances[bags.starts[3] : bags.starts[4]] = bags[1]
    assert warned(bags, "duplicate") == ["duplicate bags: 2 bags have the content of another, such as 1, 3"]
    bags.instances[bags.starts[50] : bags.starts[51]] = bags[1]
    vars(bags)["digests"] = None
    assert warned(bags, "duplicate") == [
        "duplicate bags: 3 bags have the content of another, such as 1, 3, 50",
        "duplicate bags that differ in label: 1 set, such as 1, 3, 50",
        "duplicate bags that are in several splits: 1 set, such as 1, 3, 50",
    ]


def test_constant_features():
    bags = make(feature_names=["a", "b", "c", "d"])
    bags.instances[:, [1, 3]] = 5.0
    assert warned(bags, "constant") == ["constant features: 2 of 4 (b, d)"]
    names = ["color=red", "color other", "c", "d"]
    assert warned(bags.replace(feature_names=names), "constant") == ["constant features: 1 of 4 (d)"]


def test_groups_that_cross_splits():
    bags = make(groups=[f"g{i % 40}" for i in range(80)], splits=["train"] * 41 + ["test"] * 39)
    (text,) = warned(bags, "groups that cross splits")
    assert "39 of 40 groups in several" in text


def test_missing_and_rare_classes():
    assert warned(make(labels=[0] * 80), "no bags of class positive")
    assert warned(make(labels=[1] * 5 + [0] * 75), "few bags of a class: positive (5)")
    assert not warned(make(labels=None), "few")


def test_near_empty_bags():
    bags = make(sizes=lambda labels, rng: np.where(np.arange(80) == 7, 1, 25))
    assert warned(bags, "near-empty bags: 1 of at most 1 instances, where the median is 25 (7)")
    assert not warned(make(sizes=lambda labels, rng: rng.integers(1, 6, 80)), "near-empty")


def test_constant_features_of_large_data_are_not_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(describe, "_EXACT_BYTES", 100)
    bags = make()
    bags.instances[:, 2] = 1.0
    found = describe_bags("x", bags)
    assert not found.warnings
    assert [note.split()[0] for note in found.notes] == ["duplicate", "constant"]
    stored = open_store(write_store(bags.subset([0, 1, 2]), tmp_path / "s"))
    assert [note.split()[0] for note in describe_bags(str(tmp_path / "s"), stored).notes] == ["constant"]


def test_facts_of_a_store(tmp_path):
    write_store(make(labels=None), tmp_path / "s")
    facts = bag_facts(str(tmp_path / "s"), open_store(tmp_path / "s"))
    assert facts["bags"] == "80 (unlabeled)"
    assert facts["on disk"] == decimal(sum(path.stat().st_size for path in (tmp_path / "s").iterdir()))


def test_a_folder_without_labels_is_described_without_them(tmp_path, capsys):
    (tmp_path / "bags").mkdir()
    for number in range(3):
        np.save(tmp_path / f"bags/b{number}.npy", np.random.default_rng(number).normal(size=(4 + number, 2)))
    assert main(["data", "describe", str(tmp_path / "bags")]) == 0
    printed = capsys.readouterr()
    assert "3 (unlabeled)" in printed.out
    assert "no labels found, the bags are described without; --labels names a table of them" in printed.err
    assert main(["data", "describe", str(tmp_path / "bags"), "--bag-by", "patient"]) == 2
    assert "name a table of patients" in capsys.readouterr().err
