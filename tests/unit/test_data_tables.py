"""Labels as words, formats of tables, all faults at once, columns that protect from leaks, missing values."""

import csv
import gzip
import inspect
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from midam import read_bags
from midam.cli import main
from midam.data import open_store, write_store
from midam.data.bags import Bags
from midam.data.missing import fill_values, impute, marked_missing, missing_counts
from midam.data.sources.inputs import rows_of
from midam.data.sources.probe import open_file
from midam.data.sources.request import Request
from midam.data.sources.table_columns import Table
from midam.data.sources.table_files import read_names, sound_text
from midam.errors import BagDataError, ConfigError, Note
from midam.settings.data import DataSettings
from studies.sets.npz import read_npz, write_npz


def frame(labels=("yes", "no", "yes"), **columns):
    rows = {"bag": ["a", "a", "b", "c"], "label": [labels[0], labels[0], *labels[1:]], "x": [1.5, 2.5, 3.5, 4.5]}
    return pd.DataFrame({**rows, **columns})


def written(table, path):
    if path.suffix == ".xlsx":
        table.to_excel(path, index=False)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


FORMATS = ("t.csv", "t.tsv", "t.csv.gz", "t.tsv.gz", "t.xlsx", "t.parquet")


@pytest.mark.parametrize("positive", [None, "True", "1", "0"])
@pytest.mark.parametrize("words", [("0", "1", "True"), ("False", "0", "1"), ("1", "TRUE", "1")])
def test_labels_that_mean_the_same_are_to_be_written_alike(words, positive, tmp_path):
    path = written(frame(words), tmp_path / "t.csv")
    if positive is not None and positive.lower() not in [word.lower() for word in words]:
        return
    with pytest.raises(
        BagDataError, match=r"labels 0 and 1 in column label, got .*; write True as 1 and False as 0\.$"
    ):
        read_bags(path, **({} if positive is None else {"positive": positive}))


@pytest.mark.parametrize("name", FORMATS)
def test_words_are_labels_in_each_format(tmp_path, name):
    path = written(frame(("mutated", "wildtype", "other")), tmp_path / name)
    with pytest.raises(BagDataError, match=r"got mutated, other, wildtype .*positive='mutated'.: all others are 0"):
        read_bags(path)
    bags = read_bags(path, positive="Mutated")
    assert bags.labels.tolist() == [1, 0, 0]
    assert bags.classes == ("not mutated", "mutated")
    np.testing.assert_array_equal(bags.instances[:, 0], [1.5, 2.5, 3.5, 4.5])


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        (("yes", "no", "yes"), ("no", "yes")),
        (("malignant", "benign", "benign"), ("benign", "malignant")),
        (("tumor", "normal", "tumor"), ("normal", "tumor")),
        (("positive", "negative", "positive"), ("negative", "positive")),
        ((1, -1, -1), ("-1", "1")),
    ],
)
def test_plain_pairs_are_taken_and_told(tmp_path, words, classes):
    path = written(frame(words), tmp_path / "t.csv")
    with pytest.warns(
        Note, match=rf"{classes[1]} is positive .1. and {classes[0]} negative .0. in column label"
    ) as said:
        bags = read_bags(path)
    assert len(said) == 1
    assert bags.classes == classes
    assert bags.labels.tolist() == [int(str(word).lower() == classes[1]) for word in words]
    assert read_bags(path, positive=classes[0]).labels.tolist() == [1 - label for label in bags.labels]


@pytest.mark.parametrize("words", [("A", "B", "A"), ("yes", "maybe", "yes"), ("benign", "normal", "benign"), (1, 2, 1)])
def test_what_is_in_doubt_is_refused(tmp_path, words):
    with pytest.raises(BagDataError, match="say which value is positive, such as `positive="):
        read_bags(written(frame(words), tmp_path / "t.csv"))


def test_truth_values_and_numbers_are_themselves(tmp_path):
    assert read_bags(written(frame((True, False, True)), tmp_path / "t.csv")).labels.tolist() == [1, 0, 1]
    assert read_bags(written(frame((True, False, True)), tmp_path / "t.parquet")).labels.tolist() == [1, 0, 1]
    bags = read_bags(written(frame((1.0, 0.0, 1.0)), tmp_path / "t.csv"))
    assert (bags.labels.tolist(), bags.classes) == ([1, 0, 1], None)
    assert read_bags(written(frame((3, 5, 3)), tmp_path / "t.csv"), positive="3.0").classes == ("5", "3")


def test_words_in_an_archive(tmp_path):
    arrays = {"X": np.ones((3, 2)), "bag": [0, 1, 2]}
    np.savez(tmp_path / "b.npz", **arrays, y=np.array(["hot", "cold", "hot"]))
    assert read_bags(tmp_path / "b.npz", positive="hot").classes == ("cold", "hot")
    bags = read_npz(tmp_path / "b.npz", positive="hot")
    write_npz(bags, tmp_path / "c.npz")
    assert read_npz(tmp_path / "c.npz", positive="hot").labels.tolist() == [1, 0, 1]
    np.savez(tmp_path / "b.npz", **arrays, y=np.array([b"no", b"yes", b"no"]))
    with pytest.warns(Note):
        assert read_npz(tmp_path / "b.npz").labels.tolist() == [0, 1, 0]


@pytest.fixture
def folder(tmp_path):
    """Feature files a to f."""
    for number, name in enumerate("abcdef"):
        np.save(tmp_path / f"{name}.npy", np.full((2, 3), float(number)))
    return tmp_path


def labeled(folder, name="labels.csv", **columns):
    table = {"file": list("abcdef"), "label": ["mut", "wt", "mut", "wt", "mut", "wt"], **columns}
    return written(pd.DataFrame(table), folder / name)


@pytest.mark.parametrize("name", FORMATS[:-1])
def test_label_tables_and_manifests_in_each_format(folder, name):
    (folder / "tables").mkdir()
    bags = read_bags(folder, labels=labeled(folder / "tables", name), positive="mut")
    assert (bags.labels.tolist(), bags.classes) == ([1, 0, 1, 0, 1, 0], ("wt", "mut"))
    manifest = {"bag": list("abcdef"), "path": [f"{n}.npy" for n in "abcdef"], "label": list("NYNYNY")}
    path = written(pd.DataFrame(manifest), folder / f"manifest{name[1:]}")
    with pytest.warns(Note, match="Y is positive"):
        assert read_bags(path).classes == ("N", "Y")


def test_folders_are_classes(folder, tmp_path):
    for place, names in {"Tumor": "ace", "Normal": "bdf"}.items():
        (folder / place).mkdir()
        for name in names:
            (folder / f"{name}.npy").rename(folder / place / f"{name}.npy")
    with pytest.warns(Note, match=r"Tumor is positive .1. and Normal negative .0. in the folders of the files"):
        bags = read_bags(folder)
    assert dict(zip(bags.ids.tolist(), bags.labels.tolist())) == {n: int(n in "ace") for n in "abcdef"}
    assert read_bags(folder, positive="normal").labels.sum() == 3
    assert read_bags(folder, require_labels=False, classes=("tumor", "normal")).classes == ("tumor", "normal")
    (folder / "Tumor").rename(folder / "B")
    with pytest.raises(ConfigError, match=r"Expected `labels` with a folder of files, got .* take --unlabeled"):
        read_bags(folder)
    assert read_bags(folder, positive="B").classes == ("Normal", "B")


def test_folders_of_splits_are_no_classes(folder):
    (folder / "train").mkdir()
    (folder / "test").mkdir()
    for name in "abcdef":
        (folder / f"{name}.npy").rename(folder / ("train" if name in "abc" else "test") / f"{name}.npy")
    with pytest.raises(ConfigError, match="Expected `labels`"):
        read_bags(folder, positive="test")


def test_groups_and_splits_of_a_label_table_hold(folder):
    splits = ["train", "train", "train", "val", "test", "test"]
    table = labeled(folder, "t.csv", group=list("ppqqrr"), split=splits)
    bags = read_bags(folder, labels=table, positive="mut")
    assert bags.groups.tolist() == list("ppqqrr")
    assert bags.splits.tolist() == splits
    named = labeled(folder, "t.csv", group=list("ppqqrr"), patient=list("abcdef"))
    assert read_bags(folder, labels=named, positive="mut", groups="patient").groups.tolist() == list("abcdef")


def test_a_numeric_column_group_of_instances_is_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="column group is read as a feature"):
        read_bags(written(frame((1, 0, 1), group=[1, 1, 2, 3]), tmp_path / "t.csv"))


@pytest.mark.parametrize("name", ["PatientID", "case no", "subject_number", "slide-group", "Participants"])
def test_columns_called_like_those_of_groups_are_warned_of(tmp_path, name):
    path = written(frame((1, 0, 1), **{name: [1, 1, 2, 3]}), tmp_path / "t.csv")
    with pytest.warns(UserWarning, match=rf"column {name} is read as a feature .*groups='{name}'"):
        read_bags(path)
    assert read_bags(path, groups=name).groups.tolist() == ["1", "2", "3"]


@pytest.mark.parametrize("name", ["instance", "instance_id", "index", "level_1", "Row"])
@pytest.mark.parametrize("values", [[0, 1, 0, 0], [0, 1, 2, 3], [1, 2, 1, 1]])
def test_columns_that_number_the_instances_are_warned_of(tmp_path, name, values):
    table = frame((1, 0, 1), **{name: values})
    for read in (read_bags, Bags.from_dataframe):
        source = written(table, tmp_path / "t.csv") if read is read_bags else table
        with pytest.warns(UserWarning, match=rf"column {name} is read as a feature .*ignore=\['{name}'\]"):
            assert read(source).feature_names == ("x", name)
        assert read(source, ignore=[name]).feature_names == ("x",)


def test_features_of_usual_names_are_read_without_a_word(tmp_path):
    columns = {"index": [5, 2, 1, 1], "row": [1.5, 2.6, 0, 0], "groups": [1, 2, 1, 2]}
    read_bags(written(frame((1, 0, 1), **columns), tmp_path / "t.csv"))
    single = pd.DataFrame({"bag": ["a", "b"], "label": [0, 1], "level": [3, 1]})
    read_bags(written(single, tmp_path / "t.csv"))


def test_the_names_of_classes_stay_in_a_store(folder):
    table = labeled(folder, "t.csv")
    store = write_store(read_bags(folder, labels=table, positive="mut"), folder / "store")
    assert open_store(store).classes == ("wt", "mut")
    again = read_bags(store, labels=table)
    assert (again.labels.tolist(), again.classes) == ([1, 0, 1, 0, 1, 0], ("wt", "mut"))
    with pytest.raises(BagDataError, match="say which value is positive"):
        read_bags(store, labels=labeled(folder, "u.csv", label=list("ABABAB")))


def test_bad_labels_can_be_ignored(tmp_path):
    path = written(frame(("A", "B", "A")), tmp_path / "t.csv")
    with pytest.warns(Note, match=r"labels are ignored, as scoring needs none: .*got A, B"):
        assert read_bags(path, require_labels=False, bad_labels="ignore").labels is None
    path = written(frame((1, None, 0)), tmp_path / "t.csv")
    with pytest.warns(Note, match=r"labels are ignored.*a label in each row"):
        assert read_bags(path, require_labels=False, bad_labels="ignore").labels is None


def test_bad_labels_of_a_manifest_can_be_ignored(folder):
    text = "bag,path,label,split\na,a.npy,yes,?\na,b.npy,{},?\nc,c.npy,no,?\n"
    for word, fault in (
        ("", "a label (in each row|of each bag)"),
        ("no", "one label in a bag, got yes and no .*line 3, .*bag a"),
    ):
        (folder / "m.csv").write_text(text.format(word).replace("?", "train"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="yes is positive")
            with pytest.raises(BagDataError, match=fault):
                read_bags(folder / "m.csv")
            (folder / "m.csv").write_text(text.format(word))
            with pytest.warns(Note, match=f"labels are ignored.*{fault}"):
                bags = read_bags(folder / "m.csv", require_labels=False, bad_labels="ignore")
        assert (bags.labels, bags.splits, bags.sizes.tolist()) == (None, None, [4, 2])


def test_known_features_are_found_by_name(tmp_path):
    path = written(frame((1, 0, 1), y=[5.0, 6.0, 7.0, 8.0], site=list("ssst")), tmp_path / "t.csv")
    with pytest.warns(Note, match="left out a column that training did not use: site"):
        bags = read_bags(path, features=["y", "x"])
    assert bags.feature_names == ("y", "x")
    np.testing.assert_array_equal(bags[0], [[5.0, 1.5], [6.0, 2.5]])
    with pytest.raises(BagDataError, match="features of training, got no 'z'"):
        read_bags(path, features=["x", "z"])


# Formats.


def test_semicolons_and_decimal_commas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("bag;label;x;y\na;1;1,5;2\na;1;-,25;3\nb;0;2e-1;4\nc;1;;\n".replace(";;", ";3;5"))
    with pytest.warns(Note, match=r"commas in column x are read as decimal points: 1,5 is 1\.5"):
        bags = read_bags(path)
    np.testing.assert_array_equal(bags.instances, [[1.5, 2], [-0.25, 3], [0.2, 4], [3, 5]])
    for target, columns in (("continuous", "label"), ("survival", "time;event")):  # labels too
        rest = ";1" * columns.count(";")
        path.write_text(f"bag;{columns};x\na;0,5{rest};1\nb;30{rest};2\n")
        with pytest.warns(Note, match="commas in column .* are read as decimal points"):
            assert read_bags(path, target=target).outcome.values[:, 0].tolist() == [0.5, 30.0]
        path.write_text(f"bag;{columns};x\na;1.500{rest};1\nb;30{rest};2\n")
        with pytest.warns(
            UserWarning, match=r"decimal sign, but others have none, in 1\.500 in (label|time), perhaps th"
        ):
            read_bags(path, target=target)
    path.write_text("bag;label;x\na;1;1.5\nb;0;2,5\n")
    with pytest.raises(BagDataError, match=r"numbers in column x, got '2,5' .*line 3"):
        read_bags(path)
    path.write_text("bag\tlabel\tx\na\t1\t1.5\nb\t0\t2.5\n")
    assert read_bags(path).instances.ravel().tolist() == [1.5, 2.5]
    path.write_text('"bag;x",label\na,1\n')  # a semicolon in quotes separates nothing
    with pytest.raises(BagDataError, match="the column 'bag'"):
        read_bags(path)


def test_sheets(tmp_path):
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        frame((1, 0, 1)).to_excel(book, sheet_name="First", index=False)
        frame((0, 0, 1), bag=["007", "007", "b", "c"]).to_excel(book, sheet_name="Second", index=False)
    with pytest.warns(Note, match=r"'First' is read, the first of 2 sheets .*sheet='Second'"):
        assert read_bags(path).labels.tolist() == [1, 0, 1]
    bags = read_bags(path, sheet="Second")
    assert (bags.ids.tolist(), bags.labels.tolist()) == (["007", "b", "c"], [0, 0, 1])
    with pytest.raises(BagDataError, match=r"sheet 'Secnd' of `sheet`, got none .*did you mean 'Second'"):
        read_bags(path, sheet="Secnd")
    with pytest.raises(ConfigError, match=r"no `sheet` with t\.csv"):
        read_bags(written(frame((1, 0, 1)), tmp_path / "t.csv"), sheet="Second")


@pytest.mark.parametrize("name", ["t.xlsx", "t.csv.gz"])
def test_damaged_tables_are_refused(tmp_path, name):
    path = written(frame((1, 0, 1)), tmp_path / name)
    whole = path.read_bytes()
    at = len(whole) // 3
    turned = bytes(255 - byte for byte in whole[at : at + 9])
    for damaged in (whole[: len(whole) // 2], b"", b"bag,label,x", whole[:at] + turned + whole[at + 9 :]):
        path.write_bytes(damaged)
        with pytest.raises(BagDataError, match=name):
            read_bags(path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "labels.csv", "features.csv"])
@pytest.mark.parametrize("text", ["bag,größe\n", "bag,label,x\na,1,2\nb,0,größer\n"])
def test_text_of_another_encoding_is_told_how_to_be_saved(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode("latin-1")) if name.endswith("gz") else text.encode("latin-1"))
    read = {"labels.csv": read_names, "features.csv": open_file}.get(name, read_bags)
    with pytest.raises(BagDataError, match=r"Expected text in UTF-8, got a byte 0xF6 .*save it as UTF-8: in Excel"):
        read(path)


@pytest.mark.parametrize("name", [*FORMATS, "t.npz", "labels.csv", "s.h5", "s.pt", "s.npy", "s.png", "s.nii.gz"])
def test_an_empty_file_is_said_to_be_empty(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    with pytest.raises(BagDataError, match=f"got an empty one .*{name}"):
        (read_names if name == "labels.csv" else open_file if name.startswith("s.") else read_bags)(path)


def test_a_first_line_without_a_word_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("\n\na,1\n")
    for read in (read_bags, read_names):
        with pytest.raises(BagDataError, match="in the first line, got none"):
            read(tmp_path / "t.csv")


def test_an_empty_first_row_of_a_workbook_is_named(tmp_path):
    frame().to_excel(tmp_path / "t.xlsx", index=False, startrow=1)
    with pytest.raises(BagDataError, match=r"names of the columns in the first line, got none .* remove empty lines"):
        read_bags(tmp_path / "t.xlsx")


def test_the_index_of_a_packed_table_counts_its_lines(tmp_path):
    with gzip.open(tmp_path / "t.csv.gz", "wt") as file:
        file.write("bag,label,x\na,1,2\n\nb,0,u\n")
    with pytest.raises(BagDataError, match=r"got 'u' .*line 4"):
        read_bags(tmp_path / "t.csv.gz")


# All faults at once.


def test_all_faults_of_a_table_are_listed(tmp_path):
    rows = [f"b{n},{n % 2},{n},1" for n in range(40)]
    rows[3], rows[5], rows[7] = "b3,,3,1", "b5,1,,1", "b7,1,7,seven"
    for n in range(20, 33):
        rows[n] = f"b{n},{n % 2},inf,1"
    (tmp_path / "t.csv").write_text("bag,label,x,y\n" + "\n".join(rows) + "\n")
    with pytest.raises(BagDataError) as refused:
        read_bags(tmp_path / "t.csv")
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("Expected a sound table, got 4 kinds of faults")
    assert "a label in each row, got none" in lines[1]
    assert "line 5" in lines[1]
    assert "numbers in column y, got 'seven'" in lines[2]
    assert "line 9" in lines[2]
    assert "finite numbers, got nan" in lines[3]
    assert "`impute='median'`" in lines[3]
    assert "13 such lines: 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 and 3 more" in lines[4]


def test_each_fault_has_its_advice(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,x,y,z\na,1,u,v,1\nb,0,w,q,nan\n")
    with pytest.raises(BagDataError) as refused:
        read_bags(tmp_path / "t.csv")
    head, *lines = str(refused.value).splitlines()
    assert head.endswith("got 3 kinds of faults (in " + str(tmp_path / "t.csv") + "); correct them:")
    assert [line[:2] for line in lines] == ["- "] * 3
    advice = "name it with `categories=['x', 'y']`, or leave out columns that are not features with "
    assert all(line.endswith(f"{advice}`ignore=['x', 'y']`.") for line in lines[:2])


def test_no_feature_of_a_run_is_advised_to_be_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,x,label2\na,1,u,1\nb,0,1,nan\n")
    with pytest.raises(BagDataError, match="numbers in column x") as refused:
        read_bags(tmp_path / "t.csv", features=["x", "label2"])
    assert "correct it" in str(refused.value)
    assert "ignore" not in str(refused.value)


def test_all_columns_that_are_not_there_are_named(tmp_path):
    with pytest.raises(BagDataError, match=r"columns 'case' of `bag_column` and 'grade' of `label_column`, got none"):
        read_bags(written(frame((1, 0, 1)), tmp_path / "t.csv"), bag_column="case", label_column="grade")


def test_faults_of_a_manifest_are_listed(tmp_path):
    (tmp_path / "m.csv").write_text("bag,path,label,group\na,,1,g\n,b.npy,0,h\nc,c.npy,1,\n")
    with pytest.raises(BagDataError, match="3 kinds of faults") as refused:
        read_bags(tmp_path / "m.csv")
    assert "a bag in each row, got none" in str(refused.value)
    assert "line 4" in str(refused.value)


def test_at_most_ten_kinds_are_shown():
    table = Table("t.csv", frame())
    table.faults = [f"Expected sense in column {number}, got none (in t.csv, line 2); add it." for number in range(14)]
    with pytest.raises(BagDataError, match=r"got 14 kinds(.|\n)*column 9(.|\n)*- and 4 more$"):
        table.refuse()


# Missing values.


def gaps(tmp_path):
    return written(frame((1, 0, 1), x=[1.0, None, 3.0, 8.0], y=[None, 1.0, 2.0, 4.0]), tmp_path / "t.csv")


@pytest.mark.parametrize(("how", "filled"), [("median", [2.0, 1.5]), ("mean", [2.0, 1.5]), ("zero", [0.0, 0.0])])
def test_missing_values_are_filled_from_the_training_bags(tmp_path, how, filled):
    bags = read_bags(gaps(tmp_path), impute=True)
    assert missing_counts(bags).tolist() == [1, 1]
    values = fill_values(bags.subset([0, 1]), how)
    np.testing.assert_array_equal(values, filled)
    full = impute(bags, values)
    np.testing.assert_array_equal(full[0], [[1.0, filled[1]], [filled[0], 1.0]])
    assert not missing_counts(full).any()
    assert full.fingerprint() != bags.fingerprint()
    np.testing.assert_array_equal(full[2], [[8.0, 4.0]])


def test_missing_values_are_refused_unless_asked_for(tmp_path):
    with pytest.raises(BagDataError, match="finite numbers, got nan"):
        read_bags(gaps(tmp_path))
    bags = read_bags(gaps(tmp_path), impute=True).subset([0])
    values = np.array([[1.0, np.nan], [2.0, np.nan]])
    with pytest.warns(UserWarning, match=r"^no training bag has a value of y: gaps .* with 0; .*ignore=\['y'"):
        np.testing.assert_array_equal(fill_values(bags.replace(instances=values), "mean"), [1.5, 0])
    with pytest.raises(BagDataError, match=r"got inf"):
        read_bags(written(frame((1, 0, 1), x=[1.0, None, np.inf, 8.0]), tmp_path / "t.csv"), impute=True)


def test_archives_may_miss_values(tmp_path):
    np.savez(tmp_path / "b.npz", X=[[1.0], [np.nan]], bag=[0, 1], y=[0, 1])
    with pytest.raises(BagDataError, match="got nan"):
        read_bags(tmp_path / "b.npz")
    assert missing_counts(read_bags(tmp_path / "b.npz", impute=True)).tolist() == [1]
    assert missing_counts(Bags.from_list([[[1]]])).tolist() == [0]


def test_words_that_are_one_value_in_each_bag_are_offered_as_covariates(tmp_path):
    frame = pd.DataFrame({"bag": list("aabbcc"), "label": [0, 0, 1, 1, 0, 0], "x": np.arange(6.0)})
    frame = frame.assign(
        plan=list("AABBAA"), channel=list("ABABAB"), patient=list("PPQQRR"), gap=["u", "u", None, None, "v", "v"]
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(BagDataError) as error:
        read_bags(tmp_path / "t.csv")
    text = str(error.value)
    assert "name facts about a bag with `covariates=['plan', 'gap']`" in text
    assert "`groups='patient'`" in text
    assert (
        "column channel, bag a; 6 such lines: 2, 3, 4, 5, 6, 7); name it with `categories=['channel']`, or leave out"
        in text
    )
    frame.groupby("bag").first().reset_index().to_csv(tmp_path / "one.csv", index=False)
    with pytest.raises(BagDataError) as error:
        read_bags(tmp_path / "one.csv")
    assert "covariates" not in str(error.value)


def test_read_bags_has_the_parameters_of_a_request_and_warns_at_the_line_of_its_caller(tmp_path):
    data, splits = tmp_path / "b.csv", tmp_path / "s.csv"
    rows = [f"b{bag},{bag % 2},{bag}.5" for bag in range(8) for _ in range(2)]
    data.write_text("\n".join(["bag,label,x", *rows]) + "\n")
    splits.write_text(
        "\n".join(["bag,split", *(f"b{bag},{('train', 'test')[bag // 2 % 2]}" for bag in range(6))]) + "\n"
    )
    with pytest.warns(UserWarning, match="no split") as seen:
        assert len(read_bags(data, split_file=splits)) == 6
    assert [one.filename for one in seen] == [__file__]
    inside = {"named", "time_features", "indicators"}
    assert {*inspect.signature(read_bags).parameters} == {*inspect.signature(Request).parameters} - inside
    with pytest.raises(ConfigError, match=r"'label_colum'.*did you mean 'label_column'"):
        read_bags(data, label_colum="label")


@pytest.mark.parametrize("error", [MemoryError("malloc failed"), pd.errors.ParserError("C error: out of memory")])
def test_a_table_beyond_the_memory_of_the_process_is_not_damaged(error):
    text = "fits into the memory that this process may use"
    with pytest.raises(BagDataError, match=text) as refused, sound_text("a table", Path("t.csv.gz")):
        raise error
    assert "correct the file" not in str(refused.value)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_lines_of_comments_before_the_header_are_skipped_and_counted(tmp_path, name):
    lines = ["#Patient\tSex\tValue", "#STRING\tSTRING\tNUMBER", "#the id\tof a\tperson", "#1\t1\t1", "bag\tlabel\ta"]
    lines += [f"b{row // 2}\t{row // 2 % 2}\t{row}" for row in range(8)]
    text = "\n".join(lines) if name == "t.tsv" else "\n".join(lines).replace("\t", ",")
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert read_bags(path).feature_names == ("a",)
    assert list(read_names(path).columns) == ["bag", "label", "a"]
    path.write_bytes(path.read_bytes() if name.endswith("gz") else text.replace("7", "x").encode())
    if not name.endswith("gz"):
        with pytest.raises(BagDataError, match="line 13, column a"):
            read_bags(path)


def test_points_of_thousands_beside_decimal_commas_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"b{b};{b % 2};{count};0,5{b}\n" for b in range(4) for count in ("1.234", "12.001", "999")]
    path.write_text("bag;label;count;x\n" + "".join(rows))
    with pytest.raises(BagDataError, match=r"one decimal sign in a file, got 1,5 in some columns and 1\.234 in count"):
        read_bags(path)
    path.write_text("bag;label;count;x\n" + "".join(row.replace("1.234", "1.5") for row in rows))
    with pytest.warns(Note, match="commas in column x"):
        assert read_bags(path).instances[0].tolist() == [1.5, 0.5]
    path.write_text("bag;label;count;x\n" + "".join(row.replace("0,5", "") for row in rows))
    with pytest.warns(UserWarning, match=r"1\.234 in count, perhaps thousands .*such as 1234"):
        read_bags(path)
    for decimal in ("0.5", "0.123"):
        values = ("1.234", "2", decimal)
        path.write_text("bag;label;x\n" + "".join(f"b{b};{b % 2};{x}\n" for b in range(4) for x in values))
        read_bags(path)
    frame = pd.DataFrame({"bag": [*"aabb"], "label": [0, 0, 1, 1], "x": [1.234, 999, 2.5, 1.234]})
    frame[["bag", "label", "x"]].iloc[[0, 1, 3]].to_excel(tmp_path / "t.xlsx", index=False)
    read_bags(tmp_path / "t.xlsx")


@pytest.mark.parametrize("mark", ["-9999", "99999", "-2147483648", "-9223372036854775808"])
def test_a_usual_mark_of_missing_values_is_named_before_a_training(tmp_path, capsys, mark):
    rows = [f"b{i // 3},{i // 3 % 2},{mark if i == 5 else i % 7},{9999 - i}" for i in range(90)]
    path = tmp_path / "t.csv"
    path.write_text("bag,label,area,dose\n" + "\n".join(rows) + "\n")
    text = f"{mark} in 1 of 90 values of area lies far outside the others"
    for command in (
        ["fit", "--epochs", "1", "--members", "1", "--no-baseline", "--out", str(tmp_path / "run")],
        ["data", "describe"],
    ):
        words = [command[0], str(path), *command[1:]] if command[0] == "fit" else [*command, str(path)]
        assert main(words) == 0
        said = capsys.readouterr()
        assert text in said.out + said.err
        assert "of dose" not in said.out + said.err


@pytest.mark.parametrize(
    ("target", "column"), [("continuous", "label"), ("ordinal", "label"), ("multiclass", "label"), ("survival", "time")]
)
def test_marks_of_missing_labels_are_named(target, column):
    """A score of 999, or a time of 9999 days, orders its bag before all others."""
    values = [*range(1, 10)] * 4
    frame = pd.DataFrame({"bag": range(36), column: [999, *values[1:]], "event": 1, "x": np.arange(36.0)})
    frame = frame if target == "survival" else frame.drop(columns="event")
    bags = Bags.from_dataframe(frame, target=target)
    assert marked_missing(bags) == f"999 in 1 of 36 values of the {column} lies far outside the others"
    assert marked_missing(Bags.from_dataframe(frame.assign(**{column: values}), target=target)) == ""


def test_marks_of_missing_values_are_named_in_stores_covariates_and_new_data(tmp_path, capsys):
    areas = [-999 if i == 5 else 9999 if i == 7 else i % 7 for i in range(90)]
    rows = [f"b{i // 3},{i // 3 % 2},{area},{-99 if i // 3 == 7 else i // 3 % 15}" for i, area in enumerate(areas)]
    table, store, run = (str(tmp_path / name) for name in ("t.csv", "t.store", "run"))
    Path(table).write_text("bag,label,area,age\n" + "\n".join(rows) + "\n")
    assert main(["data", "import", table, "--covariates", "age", "--out", store]) == 0
    few = ("--epochs", "1", "--members", "1", "--no-baseline", "--folds", "0")
    assert main(["fit", store, "--covariates", "age", *few, "--out", run]) == 0
    fitted = capsys.readouterr().err
    assert main(["predict", run, table, "--out", str(tmp_path / "scores.csv")]) == 0
    said = capsys.readouterr().err
    for mark in ("-999 in 1 of 90 values of area", "9999 in 1 of 90", "-99 in 1 of 30 values of the covariate age"):
        assert mark in fitted
        assert mark in said


@pytest.mark.parametrize("start", ["", "\ufeff", "sep=,\n", "# one\n# two\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_lines_of_instances_count_quoted_line_breaks(start, end, tmp_path):
    text = start + 'bag,label,note,x\na,1,"two\nlines",1\na,1,one,2\n\nb,0,"three\n\nlines",3\nb,0,one,4\n'
    (tmp_path / "t.csv").write_bytes(text.replace("\n", end).encode())
    rows = rows_of(str(tmp_path / "t.csv"), ["a", "b"], DataSettings())
    lines = [None, *text.split("\n")]
    assert [lines[line][0] for bag in "ab" for line in rows[bag]["line"]] == ["a", "a", "b", "b"]
    assert [lines[line][-1] for line in rows["a"]["line"][1:] + rows["b"]["line"][1:]] == ["2", "4"]


def test_the_lines_of_instances_repeat_no_warning_of_the_bags(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,code,x\n" + "a,1,0117,1\nb,0,117,2\n" * 3)
    with pytest.warns(UserWarning, match="may be codes"):
        read_bags(tmp_path / "t.csv")
    assert rows_of(str(tmp_path / "t.csv"), ["a"], DataSettings()) == {"a": {"line": [2, 4, 6]}}


@pytest.mark.parametrize("start", ["", "\ufeff", "sep=,\n", "# one\n# two\n"])
@pytest.mark.parametrize("field", ["two\nlines", "x" * 200_000 + "\n"], ids=["short", "beyond the limit of csv"])
def test_messages_about_rows_count_quoted_line_breaks(start, field, tmp_path):
    path = tmp_path / "t.csv"
    text = f'{start}bag,label,note,x\na,1,,1\n\na,1,"{field}",2\nb,0,one,\n'
    path.write_text(text)
    line = text.split("\n").index("b,0,one,") + 1
    with pytest.raises(BagDataError, match=rf"line {line}, column x, bag b"):
        read_bags(path, ignore=["note"])


def test_messages_about_a_manifest_count_quoted_line_breaks(tmp_path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((2, 2)))
    (tmp_path / "m.csv").write_text('bag,note,path,label\na,"two\nlines",a.npy,1\nb,,b.npy,\n')
    with pytest.raises(BagDataError, match=r"a label in each row, got none .*line 4"):
        read_bags(tmp_path / "m.csv")


@pytest.mark.parametrize("last", ["b", "c"])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_field_that_only_begins_with_a_quote_takes_no_lines_with_it(last, end, tmp_path):
    lines = ["bag,label,x,note", *(f"{bag},{label},1,ok" for bag, label in zip("abcd", (1, 0, 1, 0)))]
    path, place = tmp_path / "t.csv", "abcd".index(last) + 1
    lines[1], lines[place] = (lines[number][:-2] + '"left" lobe' for number in (1, place))
    path.write_text("\n".join(lines) + end)
    assert len(read_bags(path, ignore=["note"])) == 4  # no line break is in quotes
    path.write_text("\n".join(lines).replace('"left"', '"left') + end)
    for read in (partial(read_bags, path, ignore=["note"]), partial(read_names, path)):
        with pytest.raises(BagDataError, match=rf"quotes around whole fields, got text after one .*line {place + 1}"):
            read()


@pytest.mark.parametrize("values", [[1, 30, 2, 1], [1.5, None, 2.0, 1.5]])
def test_categories_of_numbers_are_categories_in_parquet_too(tmp_path, values):
    table = frame(("1", "0", "1"), k=pd.Categorical(values))
    with warnings.catch_warnings(action="ignore"):
        expected = Bags.from_dataframe(table, impute=True)
        found = read_bags(written(table, tmp_path / "t.parquet"), impute=True)
    assert [column.kind for column in found.columns] == ["number", "category"]
    assert found.columns == expected.columns
    np.testing.assert_array_equal(found.instances, expected.instances)
    # A run that was trained on numbers reads them as numbers.
    again = read_bags(tmp_path / "t.parquet", features=("x", "k"), kinds={"x": "number", "k": "number"}, impute=True)
    np.testing.assert_array_equal(again.instances[:, 1], np.array(values, dtype=float))


@pytest.mark.parametrize("row", [0, 1, 3])
def test_fields_longer_than_the_limit_of_csv_are_read(tmp_path, row):
    notes = ["short"] * 4
    notes[row] = "a report\n" * 20_000
    table = frame(("1", "0", "1"), note=notes)
    bags = read_bags(written(table, tmp_path / "t.csv"), ignore=["note"])
    assert bags.instances[:, 0].tolist() == table["x"].tolist()
    table["x"] = [1.0, 2.0, 3.0, np.nan]
    place = 5 + 20_000 * (row < 3)
    with pytest.raises(BagDataError, match=f"got nan .*line {place}, column x"):
        read_bags(written(table, tmp_path / "t.csv"), ignore=["note"])


def test_several_labels_are_found_in_any_order(tmp_path):
    table = frame().drop(columns="label").assign(label_b=[1, 1, 0, 1], label_a=[0, 0, 1, 1])
    path, options = written(table, tmp_path / "t.csv"), {"target": "multilabel"}
    assert read_bags(path, **options).outcome.names == ("b", "a")
    found = read_bags(path, classes=("a", "b"), **options).outcome
    assert (found.names, found.values.tolist()) == (("a", "b"), [[0, 1], [1, 0], [1, 1]])
    with pytest.raises(BagDataError, match="labels a, c as in training, got b, a"):
        read_bags(path, classes=("a", "c"), **options)


@pytest.mark.parametrize("name", ["patient_id", "Patient ID", "PATIENTS", "instance-labels"])
def test_keys_of_archives_that_mean_another_are_refused(tmp_path, name):
    arrays = {"X": np.ones((2, 1)), "bag": [0, 1], "y": [0, 1], name: ["p", "q"]}
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(BagDataError, match=f"got {name!r}"):
        read_bags(tmp_path / "t.npz")


def test_row_numbers_that_pandas_named_are_asked_about(tmp_path):
    table = frame(("1", "0", "1"))
    table.insert(0, "Unnamed: 0", range(4))
    with pytest.warns(UserWarning, match="column Unnamed: 0 is read as a feature .*if it numbers the instances"):
        read_bags(written(table, tmp_path / "t.csv"))


def cells(**columns):
    """Return a table of 12 bags of four cells."""
    rng = np.random.default_rng(0)
    bags = np.repeat(np.arange(12), 4)
    return pd.DataFrame({"bag": bags, "label": bags % 2, "area": rng.normal(size=48), **columns})


NUMBERS = {
    "Unnamed: 0": np.delete(np.arange(72), np.arange(0, 72, 3)),  # of a table of which rows were left out
    "index": np.random.default_rng(1).permutation(48),
    "ObjectNumber": np.tile([1, 2, 3, 4], 12),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_row_numbers_with_gaps_or_in_another_order_are_asked_about(tmp_path, name):
    with pytest.warns(UserWarning, match=f"column {name} is read as a feature .*if it numbers the instances"):
        read_bags(written(cells(**{name: NUMBERS[name]}), tmp_path / "t.csv"))


@pytest.mark.parametrize(("name", "kind"), [("instance_label", int), ("is_tumor", bool), ("label_gt", int)])
def test_labels_of_instances_are_no_feature_without_a_question(tmp_path, name, kind):
    """One positive cell makes its bag positive: the maximum of such a column is the label."""
    path = written(cells(**{name: (np.arange(48) % 8 == 5).astype(kind)}), tmp_path / "t.csv")
    question = f"column {name} is read .*if it labels the instances, give `instance_label='{name}'`"
    with pytest.warns(UserWarning, match=question):
        read_bags(path)
    assert read_bags(path, instance_label=name).feature_names == ("area",)


@pytest.mark.parametrize("column", [{"level": [0.5, 2, 1, 3] * 12}, {"label_intensity": np.arange(48) % 7 / 3}])
def test_measurements_with_names_of_numbers_or_labels_are_features(tmp_path, column):
    assert read_bags(written(cells(**column), tmp_path / "t.csv")).feature_names == ("area", *column)


def test_a_label_table_next_to_a_table_of_instances_is_refused_with_the_place_of_labels(tmp_path):
    path = written(frame(), tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="no `labels` with a table of instances, whose labels are a column of it"):
        read_bags(path, labels=path)


def test_a_missing_label_leaves_the_patients_and_a_missing_patient_the_labels(tmp_path):
    """Of data that need no labels; a store without patients could split one later."""
    frame = pd.DataFrame({"bag": list("aabb"), "f1": [1.0, 2, 3, 4], "pat": list("ppqq"), "label": [1.0, 1, np.nan, 0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    how = {"groups": "pat", "bad_labels": "ignore", "require_labels": False}
    with pytest.warns(Note, match="labels are ignored"):
        bags = read_bags(tmp_path / "t.csv", **how)
    assert (bags.labels, bags.groups.tolist()) == (None, ["p", "q"])
    frame.assign(label=[1, 1, 0, 0], pat=["p", "p", None, "q"]).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(Note):
        bags = read_bags(tmp_path / "t.csv", **how)
    assert (bags.labels.tolist(), bags.groups) == ([1, 0], None)


def test_a_split_is_no_feature_where_labels_are_not_needed(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,split,f1\na,0,1,1\nb,1,2,2\n")
    bags = read_bags(tmp_path / "t.csv", split="split", bad_labels="ignore", require_labels=False)
    assert bags.feature_names == ("f1",)


def test_a_covariate_has_one_spelling_in_a_bag_and_a_split_one_meaning(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,gene,part,f1\na,0,F,Train,1\na,0,f,training,2\nb,1,m,test,3\n")
    with pytest.raises(BagDataError, match=r"one gene in a bag, got F and f .*line 3"):
        read_bags(tmp_path / "t.csv", covariates=["gene"], split="part")
    assert read_bags(tmp_path / "t.csv", ignore=["gene"], split="part").splits.tolist() == ["train", "test"]


def test_reading_a_table_leaves_the_limit_of_fields_of_the_process(tmp_path):
    before = csv.field_size_limit(1 << 17)
    try:
        (tmp_path / "t.csv").write_text(f'bag,label,x,report\na,0,1,"{"x" * (1 << 18)}\n"\nb,1,2,y\n')
        assert read_bags(tmp_path / "t.csv", ignore=["report"]).sizes.tolist() == [1, 1]
        assert csv.field_size_limit() == 1 << 17
    finally:
        csv.field_size_limit(before)
