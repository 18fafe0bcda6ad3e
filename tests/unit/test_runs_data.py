import numpy as np
import pytest
from tests.unit.test_data_readers import WordReader

from midam import MIDAMClassifier
from midam.cli import main
from midam.data.bags import Bags
from midam.data.digests import set_digests
from midam.errors import BagDataError, ConfigError, LeakageError, OneClassError
from midam.registry import READERS
from midam.runs import evaluate_bags
from midam.runs.data import describe_origin, read_data, split_data
from midam.settings import Settings


def bags(labels, **columns):
    return Bags.from_list([np.full((2, 3), i, dtype=np.float32) for i in range(len(labels))], labels, **columns)


def test_shares_follow_the_settings_and_the_seed():
    data = bags([0, 1] * 50)
    parts = split_data(data, Settings(val_fraction=0.1, test_fraction=0.3))
    assert {name: len(parts.part(name)) for name in ("train", "val", "test")} == {"train": 60, "val": 10, "test": 30}
    assert parts.part("test").require_labels().mean() == 0.5
    other = split_data(data, Settings(val_fraction=0.1, test_fraction=0.3, seed=1))
    assert not np.array_equal(parts.splits, other.splits)


def test_splits_of_the_data_are_kept():
    splits = ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    parts = split_data(bags([0, 1] * 5, splits=splits), Settings())
    assert parts.splits.tolist() == splits


def test_missing_validation_bags_come_from_the_training_bags():
    splits = ["train"] * 20 + ["test"] * 4
    data = bags([0, 1] * 12, splits=splits)
    parts = split_data(data, Settings(val_fraction=0.2))
    assert parts.splits[20:].tolist() == ["test"] * 4
    assert (parts.splits == "val").sum() == 4
    assert (split_data(data, Settings(val_fraction=0.0)).splits == "val").sum() == 0
    assert data.splits.tolist() == splits, "the data must not be written to"


def test_validation_bags_that_are_split_off_share_no_group():
    groups = np.repeat(np.arange(12), 2)
    data = bags([0, 1] * 12, splits=["train"] * 20 + ["test"] * 4, groups=groups)
    parts = split_data(data, Settings(val_fraction=0.2))
    held = set(groups[parts.splits == "val"])
    assert held
    assert not held & set(groups[parts.splits == "train"])


def test_a_leaking_split_is_refused_unless_asked_for():
    groups = ["p0", "p0", "p1", "p1", "p2", "p2", "p3", "p3"]
    splits = ["train", "test", "train", "train", "val", "val", "test", "test"]
    data = bags([0, 1] * 4, groups=groups, splits=splits)
    with pytest.raises(LeakageError, match="p0 in test and train"):
        split_data(data, Settings())
    assert split_data(data, Settings(allow_leakage=True)).splits.tolist() == splits
    # Validation bags that midam itself would draw are not what the user named.
    data = bags([0, 1] * 12, groups=np.repeat(np.arange(6), 4), splits=["train", "train", "train", "test"] * 6)
    with pytest.raises(LeakageError, match=r"6 of 6 groups in several .*in test and train") as caught:
        split_data(data, Settings())
    assert "val" not in str(caught.value)


def test_a_training_set_needs_bags_of_both_classes():
    with pytest.raises(OneClassError):
        split_data(bags([1, 1, 1, 1]), Settings())
    with pytest.raises(OneClassError):
        split_data(bags([1, 1, 0, 0], splits=["train", "train", "test", "test"]), Settings(val_fraction=0.0))
    with pytest.raises(BagDataError, match="'train'"):
        split_data(bags([1, 0], splits=["val", "val"]), Settings())


def test_held_out_bags_of_one_class_are_warned_of():
    splits = ["train"] * 4 + ["val", "val", "test"]
    with pytest.warns(UserWarning, match="the test labels order no bags"):
        split_data(bags([0, 1, 0, 1, 0, 1, 1], splits=splits), Settings())


def test_column_names_of_the_settings_are_used(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("case,who,y,part,x,place,junk\na,p,1,train,0.5,3,z\nb,q,0,test,0.25,4,z\n")
    settings = Settings(
        bag_column="case", label_column="y", groups="who", split="part", coords=["place"], ignore=["junk"]
    )
    data = read_data(str(path), settings)
    assert data.ids.tolist() == ["a", "b"]
    assert data.require_labels().tolist() == [1, 0]
    assert data.groups.tolist() == ["p", "q"]
    assert data.splits.tolist() == ["train", "test"]
    assert data.feature_names == ("x",)
    assert data.coords.tolist() == [[3], [4]]
    with pytest.raises(ConfigError, match="digits"):
        read_data("digits", settings)


def test_the_reader_of_the_settings_is_used(tmp_path, capsys, monkeypatch):
    path = tmp_path / "bags.words"
    path.write_text("a 1 2\nb 3\n")
    reader = "words"
    monkeypatch.setitem(READERS._added, reader, WordReader)
    assert read_data(str(path), Settings(reader=reader)).ids.tolist() == ["a", "b"]
    assert main(["data", "describe", str(path), "--reader", reader]) == 0
    assert "bags: 2 (1 positive)" in capsys.readouterr().out
    assert main(["data", "describe", str(path), "--reader", "tabel"]) == 2
    assert "Expected a known reader, got 'tabel'; did you mean 'table'?" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ConfigError, match="known reader, got 'tabel'; did you mean 'table'"):
        Settings(reader="tabel")


def in_another_order(data, *, dtype=np.float32):
    rng, parts = np.random.default_rng(0), [data[i] for i in range(len(data))]
    parts = [part[rng.permutation(len(part))].astype(dtype) for part in parts]
    return Bags.from_list(parts, data.labels, ids=[f"new-{name}" for name in data.ids])


def test_bags_in_another_order_under_other_names_are_those_of_the_run():
    rng = np.random.default_rng(1)
    data = Bags.from_list(rng.normal(size=(40, 6, 3)), [0, 1] * 20)
    run = MIDAMClassifier(epochs=1, members=1, val_fraction=0.2).fit(data, data.labels).to_run()
    copies = in_another_order(data)
    assert run.known_splits(copies) == run.known_splits(data) == [run.splits[name] for name in data.ids]
    assert set(evaluate_bags(run, copies).result) >= {"val", "train"}
    assert "new" not in evaluate_bags(run, copies).result
    changed = np.array(copies.instances)
    changed[3] += 1
    assert run.known_splits(copies.replace(instances=changed))[0] is None


def test_copies_in_another_order_in_an_earlier_split_are_named():
    spread = [np.arange(6.0).reshape(3, 2) + 10 * i for i in range(10)]
    both = [*spread, spread[4][::-1], spread[4] + 0.5]
    both = Bags.from_list(both, [0, 1] * 6, splits=["train"] * 10 + ["test"] * 2)
    with pytest.warns(UserWarning, match="1 validation or test bags have the same instances as a bag in an earlier"):
        describe_origin(split_data(both, Settings(val_fraction=0.0)))


@pytest.mark.parametrize("width", [1, 2, 5])
def test_digests_of_sets_are_equal_for_equal_sets_alone(width):
    rng = np.random.default_rng(width)
    parts = [rng.integers(0, 2, size=(3, width)).astype(float) for _ in range(300)]
    digests = set_digests(Bags.from_list(parts))
    names = [str(sorted(map(tuple, part.tolist()))) for part in parts]  # of the sets
    assert len(set(zip(digests, names))) == len(set(digests)) == len(set(names))
    # Whole numbers behind a column of zeros, whose sums of weak hashes are equal.
    triples = [np.column_stack([np.zeros((3, width)), part]) for part in rng.integers(0, 80, size=(4000, 3, 1))]
    sets = {str(sorted(part[:, -1].tolist())) for part in triples}
    assert len(set(set_digests(Bags.from_list(triples)))) == len(sets)
    for dtype in (np.int64, np.float64):
        assert set_digests(in_another_order(Bags.from_list(parts), dtype=dtype)) == digests
    assert set_digests(Bags.from_list([np.zeros((3, 2))])) == set_digests(Bags.from_list([np.full((3, 2), -0.0)]))


@pytest.mark.parametrize("base", [2**21, 2**30, 1_700_000_000_000])
def test_digests_tell_large_numbers_apart_that_are_equal_as_float32(base):
    offsets = np.arange(40).reshape(40, 1, 1) + np.zeros((1, 2, 1))
    close = base + offsets / (8 if base == 2**21 else 1)
    assert len(np.unique(close.astype(np.float32))) < 40
    beside = np.concatenate([close, np.ones((40, 2, 1))], axis=2)
    for parts in (close, close.astype(np.int64)[:: 8 if base == 2**21 else 1], beside, close + 0.3):
        assert len(set(set_digests(Bags.from_list(list(parts))))) == len(parts)
    # Measured values are the same as float32 and as text, whatever their size.
    measured = [np.random.default_rng(i).uniform(0, 2, size=(3, 2)) * [1, base] for i in range(9)]
    single = [part.astype(np.float32) for part in measured]
    assert set_digests(Bags.from_list(measured)) == set_digests(Bags.from_list(single))
