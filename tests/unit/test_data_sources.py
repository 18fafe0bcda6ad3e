import gzip
import re
import sys

import numpy as np
import pandas as pd
import pytest

from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.errors import BagDataError, ConfigError, DataNotFoundError, MidamError
from studies.sets.npz import read_npz, write_npz

TABLE = """bag,label,patient,part,x,size,tone
007,1,p1,Train,3,0.5,1
008,0,p2,valid,1,0.25,2
007,1,p1,TRAIN,4,1e-3,3
009,0,p3,test,2,-7,4
"""
COLUMNS = {"groups": "patient", "split": "part", "coords": ["x"]}


@pytest.fixture
def table(tmp_path):
    def write(text=TABLE, name="bags.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def check_table(bags):
    assert bags.ids.tolist() == ["007", "008", "009"]
    assert bags.labels.tolist() == [1, 0, 0]
    assert bags.groups.tolist() == ["p1", "p2", "p3"]
    assert bags.splits.tolist() == ["train", "val", "test"]
    np.testing.assert_array_equal(bags[0], [[0.5, 1.0], [1e-3, 3.0]])
    np.testing.assert_array_equal(bags.coords[:, 0], [3.0, 4.0, 1.0, 2.0])


def test_csv(table):
    check_table(read_bags(table(), **COLUMNS))


def test_tsv_with_blank_lines_and_byte_order_mark(table):
    text = "\ufeff" + TABLE.replace(",", "\t").replace("008", "\n008") + "\n\n"
    check_table(read_bags(table(text, "bags.tsv"), **COLUMNS))


def test_parquet_keeps_float32(table, tmp_path):
    frame = pd.read_csv(table(), dtype={"bag": str})
    frame[["size", "tone"]] = frame[["size", "tone"]].astype(np.float32)
    frame.to_parquet(tmp_path / "bags.parquet")
    bags = read_bags(tmp_path / "bags.parquet", **COLUMNS)
    assert bags.instances.dtype == np.float32
    np.testing.assert_array_equal(bags[0], np.array([[0.5, 1.0], [1e-3, 3.0]], dtype=np.float32))


@pytest.mark.parametrize("index", [["bag"], ["bag", "area"]])
def test_the_named_index_of_a_parquet_file_is_a_column(index, tmp_path):
    frame = pd.DataFrame({"bag": ["a", "a", "b"], "label": [0, 0, 1], "area": [1.0, 2.0, 3.0], "dark": [4.0, 5.0, 6.0]})
    frame.set_index(index).to_parquet(tmp_path / "bags.parquet")
    bags = read_bags(tmp_path / "bags.parquet")
    assert (bags.ids.tolist(), sorted(bags.feature_names)) == (["a", "b"], ["area", "dark"])


def test_the_row_numbers_of_a_parquet_file_are_no_column(tmp_path):
    frame = pd.DataFrame({"bag": ["a", "a", "b"], "label": [0, 0, 1], "area": [1.0, 2.0, 3.0]})
    for place, rows in enumerate([frame.rename_axis("row"), frame.set_axis([5, 3, 9])]):
        rows.to_parquet(tmp_path / f"{place}.parquet")
        assert read_bags(tmp_path / f"{place}.parquet").feature_names == ("area",)


@pytest.mark.parametrize("name", ["bags.csv", "bags.tsv", "bags.csv.gz"])
@pytest.mark.parametrize("start", ["\n", "\n\n", "  \n", "SEP" * 6 + "\n"])
def test_an_empty_first_line_is_named(start, name, tmp_path):
    separator = "\t" if "tsv" in name else ","
    text = (start.replace("SEP", ",") + TABLE).replace(",", separator).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(BagDataError, match=r"names .* in the first line, got none \(in .*bags.*remove empty lines"):
        read_bags(tmp_path / name, **COLUMNS)


def test_an_empty_field_of_the_split_column_is_named(table):
    path = table(TABLE.replace("p2,valid", "p2,"))
    with pytest.raises(
        BagDataError, match=r"a part in each row, got none \(in .*, line 3, column part, bag 008\); fill"
    ):
        read_bags(path, **COLUMNS)


def test_parquet_without_pyarrow_says_what_to_install(table, tmp_path, monkeypatch):
    path = tmp_path / "bags.parquet"
    pd.read_csv(table()).to_parquet(path)
    for package in ("pyarrow", "pyarrow.parquet", "fastparquet"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(MidamError, match=r"run `python -m pip install \"midam\[parquet\]\"`"):
        read_bags(path)


PATIENTS = "bag,label,Subject_ID,case,x\na,1,7,1,0.5\na,1,7,2,0.7\nb,0,7,1,0.1\nc,0,8,3,0.2\n"


def test_patients_by_number_are_warned_of_as_features(table):
    path = table(PATIENTS)
    with pytest.warns(
        UserWarning, match=r"column Subject_ID is read as a feature .*groups='Subject_ID'.*ignore="
    ) as caught:
        bags = read_bags(path)
    assert len(caught) == 1  # case differs within a bag, so that it names no patient of it
    assert bags.feature_names == ("Subject_ID", "case", "x")
    assert read_bags(path, groups="Subject_ID").groups.tolist() == ["7", "7", "8"]
    assert read_bags(path, ignore=["Subject_ID"]).groups is None
    with pytest.raises(BagDataError, match=r"got 'p1' .*with .groups='patient'..*ignore=.'patient'."):
        read_bags(table(), ignore=["part"])


def test_ignored_columns_are_no_features(table):
    bags = read_bags(table(), ignore=["patient", "part", "tone"])
    assert bags.instance_shape == (2,)
    assert bags.groups is None


def test_unlabeled_tables_are_read_on_demand(table):
    text = "bag,size\na,1\nb,2\n"
    with pytest.raises(BagDataError, match="column 'label'"):
        read_bags(table(text))
    assert read_bags(table(text), require_labels=False).labels is None
    assert read_bags(table("bag,label,size\na,,1\nb,,2\n"), require_labels=False).labels is None
    with pytest.raises(BagDataError, match=r"a label in each row, got none .*line 3, column label, bag b"):
        read_bags(table("bag,label,size\na,1,1\nb,,2\n"), require_labels=False)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            TABLE,
            {"bag_column": "bags"},
            "column 'bags' of `bag_column`, got none .in FILE.; .*did you mean 'bag'",
        ),
        (TABLE, {"ignore": ["patiens"]}, "column 'patiens'.*patient"),
        (TABLE, {}, "numbers in column patient, got 'p1' .in FILE, line 2, .*bag 007.*ignore=.'patient'."),
        (
            TABLE.replace("p1,TRAIN", "p9,TRAIN"),
            COLUMNS,
            "one patient in a bag, got p1 and p9 .in FILE, line 4, .*bag 007",
        ),
        (TABLE.replace("007,1,p1,TRAIN", "007,0,p1,train"), COLUMNS, "one label in a bag.*bag 007"),
        (TABLE.replace("TRAIN", "test"), COLUMNS, "one part in a bag, got Train and test .in FILE, line 4, .*bag 007"),
        (
            TABLE.replace(",test,", ",dev,"),
            COLUMNS,
            "train, val, test, got 'dev' .in FILE",
        ),
        (TABLE.replace("-7", ""), COLUMNS, "finite numbers, got nan .in FILE, line 5, column size, bag 009"),
        (TABLE.replace("-7", "inf"), COLUMNS, "finite numbers, got inf .in FILE, line 5, column size, bag 009"),
        (TABLE.replace("\n008", "\n\n008").replace("-7", "nan"), COLUMNS, "line 6, column size, bag 009"),
        (
            TABLE.replace("009", ""),
            COLUMNS,
            "^Expected a bag in each row, got none .in FILE, line 5[^;]*; name",
        ),
        (
            TABLE.replace("009,0", "009,2"),
            COLUMNS,
            "labels 0 and 1 in column label, got 0, 1, 2 .in FILE",
        ),
        (TABLE.replace("009,0", "009,no"), COLUMNS, "got 0, 1, no .in FILE"),
        (TABLE.replace(",4\n", ",4,5\n"), COLUMNS, "as many fields"),
        (TABLE.replace("0.5", "0.5,7", 1), COLUMNS, "as many fields in each line, got: .*, in the first line below it"),
        (TABLE.replace("tone", "size"), COLUMNS, "unique names of columns, got 'size' twice"),
        (TABLE.replace("bag,", ",", 1), COLUMNS, "name for each column, got none for column 1"),
        (TABLE.splitlines()[0], COLUMNS, "at least one row"),
        ("", {}, "got an empty one"),
        ("bag,label\na,1\nb,0\n", {}, "at least one feature column"),
        ("bag\tlabel\tx\n", {}, "at least one row"),
    ],
)
def test_bad_tables_are_named(table, text, options, message):
    path = table(text)
    with pytest.raises(BagDataError, match=message.replace("FILE", str(path))):
        read_bags(path, **options)


def test_files_of_another_format_are_refused(tmp_path):
    for name in ("bags.csv", "bags.parquet", "bags.npz"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00\x81 binary \x9d")
        with pytest.raises(BagDataError, match=name):
            read_bags(tmp_path / name)


def test_npz_round_trip(tmp_path):
    bags = Bags.from_list(
        [
            np.ones((2, 3, 4), dtype=np.uint8),
            np.zeros((1, 3, 4), dtype=np.uint8),
            np.full((3, 3, 4), 7, dtype=np.uint8),
        ],
        [1, 0, 1],
        ids=["a", "b", "c"],
        groups=["p", "q", "r"],
        splits=["train", "val", "test"],
        coords=[np.ones((2, 2)), np.ones((1, 2)), np.zeros((3, 2))],
    )
    bags = bags.replace(instance_labels=[0, 1, 0, 0, 0, 1]).subset([2, 0])
    path = tmp_path / "bags.npz"
    write_npz(bags, path)
    again = read_bags(path)
    assert again.fingerprint() == bags.fingerprint()
    assert again.instances.dtype == np.uint8
    assert again.num_instances == len(again.instances) == 5
    assert again.groups.tolist() == ["r", "p"]
    assert again.splits.tolist() == ["test", "train"]
    np.testing.assert_array_equal(again.coords, [[0, 0]] * 3 + [[1, 1]] * 2)
    assert again.instance_labels.tolist() == [0, 0, 1, 0, 1]
    assert again.source == str(path)
    assert [file.name for file in tmp_path.iterdir()] == ["bags.npz"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "bags.npz"
    bags = Bags.from_list([[[1.0]], [[2.0]]], labels=[0, 1])
    write_npz(bags, path)
    before = path.read_bytes()
    vars(bags)["ids"] = np.array([object(), object()])
    with pytest.raises(ValueError, match="allow_pickle"):
        write_npz(bags, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["bags.npz"]


GOOD = {"X": np.ones((3, 2)), "bag": np.array([0, 1, 1]), "y": np.array([1, 0])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": None}, "got no X but bag, y .in FILE"),
        ({"y": None}, "got no y"),
        ({"bag": np.array([0, 1])}, "3 entries, one for each instance, got 2 .in FILE, key bag"),
        ({"bag": np.array([0, 2, 2])}, "3 entries, one for each bag, got 2 .in FILE, key y"),
        ({"bag": np.array([0, 2, 2]), "y": np.array([0, 1, 1])}, "at least one instance.*in FILE, bag 1"),
        ({"y": np.array([0, 1, 1, 0])}, "at least one instance.*in FILE, bag 2"),
        ({"y": np.array([0, 1, 1])}, "labels of bags, got one for each instance .in FILE"),
        ({"y": np.array([0])}, "2 entries, one for each bag, got 1 .in FILE, key y"),
        ({"y": np.array(1)}, "single value .in FILE, key y"),
        ({"y": np.array([0, 3])}, "labels 0 and 1 in key y, got 0, 3 .in FILE, bag 1.; .*positive=.3."),
        ({"ids": np.array(["a"])}, "got 1 .in FILE, key ids"),
        ({"ids": np.array([["a"], ["b"]])}, r"2 entries, one for each bag, got \[2, 1\] .in FILE, key ids"),
        ({"group": np.array([["a", "b"]])}, r"2 entries, one for each bag, got \[1, 2\] .in FILE, key group"),
        ({"split": np.array(["train", "x"])}, "got 'x' .in FILE, bag 1"),
        ({"coords": np.ones((2, 2))}, "got 2 .in FILE, key coords"),
        (
            {"X": np.array([[{}], [1], [2]], dtype=object)},
            "Python objects .in FILE, key X.*all instances as one array X",
        ),
        ({"X": np.array([[1.0], [2.0], [np.nan]])}, "got nan at instance 1, column 0 .in FILE, bag 1"),
    ],
)
def test_bad_npz_files_are_named(tmp_path, changes, message):
    path = tmp_path / "bags.npz"
    np.savez(path, **{key: value for key, value in {**GOOD, **changes}.items() if value is not None})
    with pytest.raises(BagDataError, match=message.replace("FILE", str(path))):
        read_bags(path)


@pytest.mark.filterwarnings("ignore::midam.errors.Note")
@pytest.mark.parametrize("key", ["bag", "ids", "group", "split", "y", "coords", "instance_label", "time", "age"])
def test_the_advice_on_a_key_of_python_objects_works(key, tmp_path):
    path, request = tmp_path / "bags.npz", {"covariates": ["age"]}
    fields = {"ids": ["a", "b"], "group": ["p", "q"], "split": ["train", "test"], "coords": np.ones((3, 2))}
    fields |= {"instance_label": [0, 0, 1], "age": [40, 50]}
    outcome = {"time": [5.0, 2.5], "event": [0, 1]} if key == "time" else {"y": GOOD["y"]}
    good = {name: np.array(value) for name, value in {"X": GOOD["X"], "bag": GOOD["bag"], **fields, **outcome}.items()}
    np.savez(path, **good | {key: good[key].astype(object)})
    with pytest.raises(BagDataError, match=rf"key {key}\), which are not loaded; save numbers or texts"):
        read_bags(path, **request)
    kind = {"bag": int, "coords": float, "instance_label": float, "time": float, "age": float, "y": int}.get(key, str)
    np.savez(path, **good)
    expected = read_bags(path, **request).fingerprint()
    np.savez(path, **good | {key: good[key].astype(object).astype(kind)})
    assert read_bags(path, **request).fingerprint() == expected


def test_npz_without_labels_and_with_foreign_keys(tmp_path):
    path = tmp_path / "bags.npz"
    np.savez(path, X=GOOD["X"], bag=GOOD["bag"], notes=np.array([{}], dtype=object))
    assert read_npz(path, require_labels=False).labels is None


def test_a_cut_npz_is_refused(tmp_path):
    path = tmp_path / "bags.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(3, 500)), bag=GOOD["bag"], y=GOOD["y"])
    data = bytearray(path.read_bytes())
    data[300:340] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(BagDataError, match="Bad CRC"):
        read_bags(path)
    path.write_bytes(data[:2000])
    with pytest.raises(BagDataError, match="not a zip file"):
        read_bags(path)


def test_unknown_names_list_near_ones():
    with pytest.raises(DataNotFoundError, match="got 'digts'; did you mean 'digits'"):
        read_bags("digts")
    for name in ("absent.npz", "absent.csv"):
        with pytest.raises(DataNotFoundError, match=name):
            read_bags(name)


def test_a_missing_file_is_met_with_names_like_it(tmp_path):
    for name in ("visits.csv", "folds.csv", "scans.npz"):
        (tmp_path / name).write_text("bag,label,x\na,0,1\nb,1,2\n")
    for wrong, right in (("visit.csv", "visits.csv"), ("scan.npz", "scans.npz")):
        with pytest.raises(DataNotFoundError, match=f"got none.*did you mean '{right}'"):
            read_bags(tmp_path / wrong)
    with pytest.raises(DataNotFoundError, match=r"did you mean 'folds\.csv'"):
        read_bags(tmp_path / "visits.csv", split_file=tmp_path / "fold.csv", fold=0)
    with pytest.raises(DataNotFoundError, match="check the path"):
        read_bags(tmp_path / "nothing_alike.parquet")


def test_one_image_or_scan_is_to_be_put_into_a_folder(tmp_path):
    for name in ("one.png", "one.nii.gz"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(DataNotFoundError, match=f"{name}.*name its folder"):
            read_bags(tmp_path / name)


def test_a_file_of_no_kind_lists_each_suffix_once(tmp_path):
    (tmp_path / "bags.foo").write_text("x")
    with pytest.raises(DataNotFoundError) as caught:
        read_bags(tmp_path / "bags.foo")
    listed, _, advice = str(caught.value).partition("got ")
    suffixes = re.findall(r"\.[a-z.]+(?=[,)])", listed)
    assert ".csv" in suffixes
    assert len(set(suffixes)) == len(suffixes)
    assert "one of these formats" in advice


def test_columns_of_what_is_no_table_are_refused():
    with pytest.raises(ConfigError, match="got 'patient' for digits"):
        read_bags("digits", groups="patient")


def test_a_fault_of_one_value_names_the_table(tmp_path):
    frame = pd.DataFrame({"bag": [1e39, 1e39, 2.0, 2.0], "label": [0, 0, 1, 1], "x": [1.0, 2.0, 3.0, 4.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BagDataError, match=r"may be a rounded name \(in .*t\.parquet"):
        read_bags(tmp_path / "t.parquet")


def test_splits_of_an_npz_are_named_as_those_of_a_table(tmp_path):
    path = tmp_path / "bags.npz"
    np.savez(path, X=np.ones((4, 2)), bag=np.arange(4), y=[0, 1, 0, 1], split=["Train", "training", "VALID", b"Test"])
    assert read_npz(path).splits.tolist() == ["train", "train", "val", "test"]
    np.savez(path, X=np.ones((4, 2)), bag=np.arange(4), y=[0, 1, 0, 1], split=["train", "dev", "val", "test"])
    with pytest.raises(BagDataError, match=r"a split of train, val, test, got 'dev' .*bags\.npz"):
        read_npz(path)


def test_a_lock_file_of_office_is_no_table(tmp_path):
    path = tmp_path / "~$bags.xlsx"
    path.write_bytes(b"\x05user" + b" " * 160)
    with pytest.raises(BagDataError, match=r"a lock file of Office .*name bags\.xlsx itself"):
        read_bags(path)
