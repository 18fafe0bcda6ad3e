"""The sets of the catalog whose bags are ranked by more than 0 and 1: what they hold, and that nothing else passes."""

import dataclasses
import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits

from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.store import open_store, write_store
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, DataNotFoundError, Note
from studies.sets import catalog
from studies.sets.npz import read_npz, write_npz
from studies.sets.tabular import content_digest

BY_HAND = [
    name for name, entry in catalog.CATALOG.items() if getattr(entry, "target", "binary") != "binary" and entry.obtain
]
DRAWN = ("digits-classes", "digits-labels")
SOURCE = load_digits()
DIGITS = {tuple(image): int(digit) for image, digit in zip(SOURCE.data.astype(int).tolist(), SOURCE.target)}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Empty data folders."""
    monkeypatch.setenv("MIDAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path))
    (tmp_path / "targets").mkdir()
    return tmp_path


def outcome_of(name, seed=0):
    """A made-up outcome of a few bags, of the target of a set."""
    entry, rng = catalog.CATALOG[name], np.random.default_rng(seed)
    values = {
        "multiclass": lambda: np.arange(3 * len(entry.names)) % len(entry.names),
        "multilabel": lambda: np.eye(max(6, len(entry.names)))[:, : len(entry.names)],
        "continuous": lambda: rng.normal(size=6),
        "survival": lambda: np.stack([rng.exponential(size=6) + 0.01, [1, 0, 1, 1, 0, 1]], axis=1),
    }[entry.target]()
    return TargetLabels.of(entry.target, values, names=entry.names)


def made(name):
    """A few bags like those of a set."""
    outcome, rng = outcome_of(name), np.random.default_rng(1)
    sizes = rng.integers(1, 4, len(outcome))
    return Bags.from_list([rng.normal(size=(size, catalog.CATALOG[name].features)) for size in sizes], outcome=outcome)


def expect(monkeypatch, name, bags):
    """Make the entry expect these bags."""
    monkeypatch.setitem(catalog.CATALOG, name, dataclasses.replace(catalog.CATALOG[name], digest=content_digest(bags)))


def digits_in(bags, number):
    return [DIGITS[tuple(row)] for row in (bags[number] * 16).astype(int).tolist()]


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_bags_are_what_the_entry_says(name):
    bags, entry = catalog.load(name), catalog.CATALOG[name]
    assert content_digest(bags) == entry.digest
    assert (len(bags), bags.num_instances, bags.instance_shape) == (entry.bags, entry.instances, (entry.features,))
    assert (bags.outcome.target, bags.outcome.names, bags.labels) == (entry.target, entry.names, None)
    assert bags.instances.dtype == np.float32
    assert (bags.ids[0], bags.source) == ("train-0000", name)
    for split, count in {"train": 200, "val": 60, "test": 200}.items():
        assert len(bags.where_split(split)) == count


@pytest.mark.parametrize("name", DRAWN)
def test_no_digit_stands_in_two_splits(name):
    bags = catalog.load(name)
    pools = {split: set() for split in ("train", "val", "test")}
    for number, split in enumerate(bags.splits):
        images = [tuple(row) for row in (bags[number] * 16).astype(int).tolist()]
        assert len(set(images)) == len(images)
        pools[split].update(images)
    assert not any(one & other for one, other in itertools.combinations(pools.values(), 2))


def test_the_class_is_the_digit_that_occurs_most_and_its_images_are_the_witnesses():
    bags = catalog.load("digits-classes")
    classes = bags.outcome.values[:, 0].astype(int)
    assert set(bags.sizes.tolist()) == set(range(5, 16))
    for number, own in enumerate(classes.tolist()):
        found = digits_in(bags, number)
        counts = np.bincount(found, minlength=10)
        assert counts[own] == max(2, round(len(found) / 3))
        assert (np.delete(counts, own) < counts[own]).all()
        start = bags.starts[number]
        assert bags.instance_labels[start : start + len(found)].tolist() == [digit == own for digit in found]
    for split, each in {"train": 20, "val": 6, "test": 20}.items():
        assert np.bincount(classes[bags.where_split(split)]).tolist() == [each] * 10
    assert list(catalog.CATALOG["digits-classes"].counts) == np.bincount(classes).tolist()


def test_the_labels_are_the_digits_that_occur_and_each_split_has_bags_with_and_without():
    bags = catalog.load("digits-labels")
    assert set(bags.sizes.tolist()) == {2, 3, 4, 5, 6}
    for number, said in enumerate(bags.outcome.values):
        assert set(np.flatnonzero(said)) == set(digits_in(bags, number))
    for split in ("train", "val", "test"):
        has = bags.outcome.values[bags.where_split(split)].sum(axis=0)
        assert has.min() >= 15
        assert (len(bags.where_split(split)) - has).min() >= 30
    assert list(catalog.CATALOG["digits-labels"].counts) == bags.outcome.values.sum(axis=0).tolist()


@pytest.mark.parametrize("name", BY_HAND)
def test_a_set_that_is_not_here_says_how_it_is_obtained(home, name):
    entry = catalog.describe(name)
    assert (entry["location"], entry["archive"]) == (None, None)
    assert entry["url"]
    for act in (catalog.load, catalog.fetch):
        with pytest.raises(DataNotFoundError) as caught:
            act(name)
        assert entry["obtain"] in str(caught.value)
        assert f"targets/{name}.npz" in str(caught.value)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_set_is_the_same_in_any_order_place_and_precision(home, monkeypatch, name):
    bags = made(name)
    expect(monkeypatch, name, bags)
    write_npz(bags, home / "targets" / f"{name}.npz")
    first = catalog.load(name)
    assert (first.outcome.target, first.outcome.names) == (bags.outcome.target, catalog.CATALOG[name].names)
    assert first.instances.dtype == np.float32
    assert (first.ids[0], first.source) == (f"{name}-0000", name)
    (home / "targets" / f"{name}.npz").unlink()
    order = np.random.default_rng(2).permutation(len(bags))
    short = dataclasses.replace(bags.outcome.subset(order), values=bags.outcome.values[order].astype(np.float32))
    parts = [bags[number][::-1].astype(np.float32) for number in order]
    write_npz(Bags.from_list(parts, outcome=short), home / f"{name}.npz")
    again = catalog.load(name)
    assert again.fingerprint() == first.fingerprint()
    stored = open_store(write_store(again, home / "store"))
    assert stored.fingerprint() == first.fingerprint()
    assert content_digest(first) == catalog.CATALOG[name].digest


@pytest.mark.parametrize("name", BY_HAND)
def test_one_other_label_is_other_content(home, monkeypatch, name):
    bags = made(name)
    expect(monkeypatch, name, bags)
    values = bags.outcome.values.copy()
    if bags.outcome.target == "multiclass":
        values[[0, 1]] = values[[1, 0]]
    else:
        values[0, -1] = 1 - values[0, -1]
    other = bags.replace(outcome=TargetLabels(bags.outcome.target, values, bags.outcome.names))
    write_npz(other, home / "targets" / f"{name}.npz")
    with pytest.raises(BagDataError, match=rf"content of {name} .*remove the file and"):
        catalog.load(name)


def test_the_digest_tells_targets_and_unknown_labels_apart():
    rows, known = [[[1.0]], [[2.0]]], TargetLabels.of("multilabel", [[1, 0], [0, 1]], names=["p", "q"])
    of = {
        "labels": Bags.from_list(rows, [1, 0]),
        "multiclass": Bags.from_list(rows, outcome=TargetLabels.of("multiclass", [1, 0], names=["a", "b"])),
        "continuous": Bags.from_list(rows, outcome=TargetLabels.of("continuous", [1, 0], names=["x"])),
        "known": Bags.from_list(rows, outcome=known),
        "unknown": Bags.from_list(rows, outcome=dataclasses.replace(known, values=np.array([[1, np.nan], [0, 1]]))),
    }
    assert len({content_digest(bags) for bags in of.values()}) == len(of)
    renamed = dataclasses.replace(known, names=("r", "s"))
    assert content_digest(Bags.from_list(rows, outcome=renamed)) == content_digest(of["known"])


def test_a_transplant_counts_as_censored(home, monkeypatch):
    bags = made("pbc2_landmark2y")
    expect(monkeypatch, "pbc2_landmark2y", bags)
    event = bags.outcome.values[:, 1].astype(int)
    event[np.flatnonzero(event == 0)[0]] = 2
    number = np.repeat(np.arange(len(bags)), bags.sizes)
    arrays = {"X": bags.instances, "bag": number, "time": bags.outcome.values[:, 0], "event": event}
    np.savez(home / "targets" / "pbc2_landmark2y.npz", **arrays, name="pbc2", features=["f"] * 16)
    assert catalog.load("pbc2_landmark2y").outcome.values[:, 1].sum() == (event == 1).sum()


def test_digits_points_can_be_made_as_its_entry_says(home):
    rows, columns = np.mgrid[:8, :8]
    parts = [
        np.stack([columns[image > 0], rows[image > 0], image[image > 0]], axis=1).astype(float)
        for image in load_digits().images
    ]
    number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    np.savez(home / "digits_points.npz", X=np.concatenate(parts), bag=number, y=load_digits().target)
    bags, entry = catalog.load("digits_points"), catalog.CATALOG["digits_points"]
    assert bags.num_instances == entry.instances
    assert np.bincount(bags.outcome.values[:, 0].astype(int)).tolist() == list(entry.counts)


def test_a_set_of_the_catalog_takes_the_target_that_it_has_and_no_other():
    assert read_bags("digits", target="binary").outcome is None
    with pytest.raises(BagDataError, match=r"target 'survival', got 'binary' .*leave `target` out"):
        read_bags("digits", target="survival")
    with pytest.warns(Note, match="labels are ignored"):
        assert read_bags("digits", target="ordinal", bad_labels="ignore").labels is None


def test_stores_are_read_with_the_classes_of_a_run_in_its_order(tmp_path):
    rows = [[[1.0]], [[2.0]], [[3.0]]]
    classes = TargetLabels.of("multiclass", [0, 1, 1], names=["lung", "skin", "rare"])
    store = str(write_store(Bags.from_list(rows, outcome=classes), tmp_path / "classes"))
    found = read_bags(store, target="multiclass", classes=("brain", "Skin", "lung")).outcome
    assert [found.names[code] for code in found.values[:, 0].astype(int)] == ["lung", "Skin", "Skin"]
    with pytest.raises(BagDataError, match=r"classes brain, lung as in training in column label, got skin .*bag 1"):
        read_bags(store, target="multiclass", classes=("brain", "lung"))
    labels = TargetLabels.of("multilabel", [[1, 0], [0, 1], [1, np.nan]], names=["p", "q"])
    store = str(write_store(Bags.from_list(rows, outcome=labels), tmp_path / "labels"))
    found = read_bags(store, target="multilabel", classes=("q", "p")).outcome
    assert found.names == ("q", "p")
    np.testing.assert_array_equal(found.values, [[0, 1], [1, 0], [np.nan, 1]])
    for asked in (("p", "q", "r"), ("p", "r")):
        with pytest.raises(BagDataError, match="as in training, got"):
            read_bags(store, target="multilabel", classes=asked)


def test_short_numbers_are_read_as_the_decimals_that_they_stand_for(tmp_path):
    arrays = {"X": np.ones((2, 1)), "bag": [0, 1], "y": np.array([-0.77, 1e-9], dtype=np.float32)}
    np.savez(tmp_path / "bags.npz", **arrays)
    assert read_npz(tmp_path / "bags.npz", target="continuous").outcome.values.ravel().tolist() == [-0.77, 1e-9]


@pytest.mark.data
@pytest.mark.parametrize("name", BY_HAND)
def test_real_data_are_what_the_entry_says(data_root, monkeypatch, name):
    if not (data_root / "targets").is_dir():
        pytest.skip(f"data: MIDAM_DATA={data_root} holds no folder 'targets'")
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    bags, entry = catalog.load(name), catalog.CATALOG[name]
    assert (len(bags), bags.num_instances, bags.instance_shape) == (entry.bags, entry.instances, (entry.features,))
    assert (bags.outcome.target, bags.outcome.names) == (entry.target, entry.names)
    values = bags.outcome.values
    counts = {
        "multiclass": lambda: np.bincount(values[:, 0].astype(int)).tolist(),
        "multilabel": lambda: values.sum(axis=0).tolist(),
        "continuous": list,
        "survival": lambda: [values[:, 1].sum()],
    }[entry.target]()
    assert counts == list(entry.counts)
    assert np.isfinite(bags.instances).all()


@pytest.mark.data
def test_the_labels_of_the_scenes_stand_in_the_published_order(data_root, monkeypatch):
    """Table 1 of the page that the set is described at: photographs by their sets of labels."""
    if not (data_root / "targets").is_dir():
        pytest.skip(f"data: MIDAM_DATA={data_root} holds no folder 'targets'")
    monkeypatch.setenv("MIDAM_DATA", str(data_root))
    outcome = catalog.load("miml_scene").outcome
    found = {}
    for row in outcome.values == 1:
        names = "+".join(name for name, own in zip(outcome.names, row) if own)
        found[names] = found.get(names, 0) + 1
    published = {"desert": 340, "mountains": 268, "sea": 341, "sunset": 216, "trees": 378, "sea+sunset": 172}
    published |= {"mountains+trees": 106, "mountains+sea": 38, "desert+sea": 5, "sea+sunset+trees": 4}
    assert {names: found[names] for names in published} == published
