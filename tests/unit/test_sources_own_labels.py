"""Feature files that say their label, group and split themselves, as attributes."""

import h5py
import numpy as np
import pytest
import zarr

from midam.cli import main
from midam.data.sources import read_bags
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, ConfigError, Note

WORDS = ["normal", "tumor", "tumor", "normal"]


def rows(seed):
    return np.random.default_rng(seed).normal(size=(3 + seed, 4)).astype(np.float32)


def as_attribute(folder, number, **said):
    with h5py.File(folder / f"s{number}.h5", "w") as file:
        file["features"] = rows(number)
        file.attrs.update(said)


def as_attribute_of_features(folder, number, **said):
    with h5py.File(folder / f"s{number}.h5", "w") as file:
        file["features"] = rows(number)
        file["features"].attrs.update(said)


def as_attribute_of_zarr(folder, number, **said):
    group = zarr.open_group(str(folder / f"s{number}.zarr"), mode="w")
    group.create_array("features", data=rows(number))
    group.attrs.update(said)


def write(folder, *, how=as_attribute, **columns):
    folder.mkdir(exist_ok=True)
    for number, values in enumerate(zip(*columns.values(), strict=True)):
        how(folder, number, **{name: value for name, value in zip(columns, values, strict=True) if value is not None})
    return folder


FORMS = [as_attribute, as_attribute_of_features, as_attribute_of_zarr]


@pytest.mark.parametrize("how", FORMS)
def test_words_are_labels(how, tmp_path):
    folder = write(tmp_path / "f", how=how, label=WORDS)
    with pytest.warns(Note, match=r"tumor is positive \(1\) and normal negative"):
        bags = read_bags(folder)
    assert (bags.labels.tolist(), bags.classes) == ([0, 1, 1, 0], ("normal", "tumor"))
    assert bags.ids.tolist() == ["s0", "s1", "s2", "s3"]
    for number in range(4):
        np.testing.assert_array_equal(bags[number], rows(number))
    assert read_bags(folder, positive="normal").labels.tolist() == [1, 0, 0, 1]
    assert open_store(write_store(bags, tmp_path / "store")).classes == ("normal", "tumor")


@pytest.mark.parametrize("how", FORMS)
def test_numbers_are_labels_and_another_name_can_be_given(how, tmp_path):
    folder = write(tmp_path / "f", how=how, outcome=[0, 1, 1, 0])
    assert read_bags(folder, label_column="outcome").labels.tolist() == [0, 1, 1, 0]
    with pytest.raises(BagDataError, match=r"column 'outcom' of `label_column`.*did you mean 'outcome'"):
        read_bags(folder, label_column="outcom")
    with pytest.raises(ConfigError, match="or an attribute of HDF5 and Zarr files"):
        read_bags(folder)
    assert read_bags(folder, require_labels=False).labels is None


def test_words_in_doubt_are_refused(tmp_path):
    folder = write(tmp_path / "f", label=["no", "yes", "maybe", "no"])
    with pytest.raises(BagDataError, match=r"got maybe, no, yes .*say which value is positive"):
        read_bags(folder)
    assert read_bags(folder, positive="no").labels.tolist() == [1, 0, 0, 1]


def test_groups_and_splits_hold_as_those_of_a_table(tmp_path):
    splits = ["train", "train", "validation", "test"]
    folder = write(tmp_path / "f", how=as_attribute_of_features, label=[0, 1, 1, 0], Patient=[7, 7, 8, 9], split=splits)
    bags = read_bags(folder)
    assert bags.groups.tolist() == ["7", "7", "8", "9"]
    assert bags.splits.tolist() == ["train", "train", "val", "test"]
    gaps = write(tmp_path / "g", label=[0, 1, 1, 0], patient=["p", None, "q", "q"])
    with pytest.raises(BagDataError, match=r"Expected a patient in each row, got none .*file 2, .*file s1"):
        read_bags(gaps)
    assert read_bags(gaps, require_labels=False, bad_labels="ignore").groups is None


def test_files_that_do_not_say_it_are_left_out_where_labels_are_needed_alone(tmp_path):
    folder = write(tmp_path / "f", label=[0, 1, None, 0])
    with pytest.warns(UserWarning, match="1 of 4 files have no label and are left out: s2"):
        assert read_bags(folder).ids.tolist() == ["s0", "s1", "s3"]
    with pytest.warns(Note, match="labels are ignored, as scoring needs none: 1 of 4 files have none"):
        assert len(read_bags(folder, require_labels=False, bad_labels="ignore")) == 4


def test_a_label_table_goes_before_what_files_say(tmp_path):
    folder = write(tmp_path / "f", label=WORDS)
    (tmp_path / "l.csv").write_text("slide,label\ns0,1\ns1,0\ns2,0\ns3,1\n")
    assert read_bags(folder, labels=tmp_path / "l.csv").labels.tolist() == [1, 0, 0, 1]


def test_a_dataset_of_another_file_says_nothing(tmp_path):
    folder = write(tmp_path / "f", other=[0, 1, 1, 0])
    for number in range(4):
        with h5py.File(folder / f"s{number}.h5", "a") as file:
            file["label"] = h5py.ExternalLink(f"s{number}.h5", "other")
    with pytest.raises(ConfigError, match="name a label table"):
        read_bags(folder)


def test_a_run_is_trained_tested_and_applied_without_a_table(tmp_path, capsys):
    folder, run, out = write(tmp_path / "f", label=WORDS * 6), tmp_path / "run", tmp_path / "p.csv"
    assert main(["fit", str(folder), "--epochs", "1", "--members", "1", "--positive", "tumor", "--out", str(run)]) == 0
    assert main(["evaluate", str(run), str(folder)]) == 0
    assert main(["predict", str(run), str(folder), "--out", str(out)]) == 0
    capsys.readouterr()
    assert {line.split(",")[4] for line in out.read_text().splitlines()[1:]} <= {"normal", "tumor"}
