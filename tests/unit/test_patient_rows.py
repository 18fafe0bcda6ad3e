"""Other endpoints for a store, tables with a row a patient, TCGA barcodes, and groups of several columns."""

import warnings

import numpy as np
import pandas as pd
import pytest

from midam.data import Bags, write_store
from midam.data.sources import read_bags
from midam.errors import BagDataError, Note

PATIENTS = [f"P{number}" for number in range(12)]
UUID = "0f6c1b2e-8d1a-4b6b-9d4a-1f2e3d4c5b6a"


def endpoints(repeat=1):
    table = pd.DataFrame({"patient": PATIENTS, "mut": [0, 1] * 6, "grade": ["low", "mid", "high"] * 4})
    table = table.assign(kind=list("ABC") * 4, time=np.arange(12) + 1.5, event=[0, 1] * 6, age=np.arange(12) * 1.25)
    table = table.assign(label_a=[0, 1] * 6, label_b=[1, 1, 0] * 4, dx=["malignant", "benign"] * 6)
    return table.loc[table.index.repeat(repeat)].reset_index(drop=True)


@pytest.fixture
def store(tmp_path):
    """24 bags of 12 patients, with labels of their own."""
    rows = [np.full((2, 2), number) for number in range(24)]
    how = {"ids": [f"s{number}" for number in range(24)], "groups": [PATIENTS[number // 2] for number in range(24)]}
    bags = Bags.from_list(rows, ["benign", "malignant"] * 12, classes=("benign", "malignant"), **how)
    return write_store(bags, tmp_path / "store")


@pytest.mark.parametrize("names", ["TCGA-A1-A0SB-01Z-00-DX{}", "sub-01_ses-{}"])
def test_groups_that_part_the_patients_of_names_are_warned_of(tmp_path, names):
    ids = [names.format(1), names.format(2), "other"]
    table = pd.DataFrame({"bag": ids, "group": ["a", "b", "c"], "x": [1.5, 2.5, 3.5], "label": [0, 0, 1]})
    table.to_csv(tmp_path / "t.csv", index=False)
    patient = names[:12] if names.startswith("TCGA") else names[:6]
    words = f"1 patient with bags in several groups, by the TCGA or BIDS names that theirs begin with: {patient}"
    with pytest.warns(UserWarning, match=words):
        assert read_bags(tmp_path / "t.csv", groups="group").groups.tolist() == ["a", "b", "c"]


ASKED = {
    "binary": ({"label_column": "mut"}, None),
    "known classes": ({"label_column": "dx"}, None),
    "multiclass": ({"label_column": "kind"}, "multiclass"),
    "ordinal": ({"label_column": "grade", "grades": ["low", "mid", "high"]}, "ordinal"),
    "survival": ({"label_column": "time,event"}, "survival"),
    "labels": ({"label_column": "label_a,label_b"}, "multilabel"),
    "continuous": ({"label_column": "age", "target": "continuous"}, "continuous"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("rows", ["slides", "patients"])
def test_a_store_takes_any_endpoint_of_another_table(tmp_path, store, rows, asked):
    how, target = ASKED[asked]
    table = endpoints(1 if rows == "patients" else 2)
    if rows == "slides":
        table.insert(0, "slide", [f"s{number}" for number in range(24)])
    table.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        bags = read_bags(store, labels=tmp_path / "t.csv", **how)
    told = [str(one.message) for one in said if "holds 12 of the groups of the bags" in str(one.message)]
    assert len(told) == (rows == "patients")
    assert len(bags) == 24
    assert bags.groups.tolist() == [PATIENTS[number // 2] for number in range(24)]
    assert (None if bags.outcome is None else bags.outcome.target) == target
    assert bags.classes == (("benign", "malignant") if asked == "known classes" else None)
    if asked == "binary":
        assert bags.labels.tolist() == [number // 2 % 2 for number in range(24)]
    if asked == "survival":
        assert bags.outcome.values[:, 0].tolist() == [number // 2 + 1.5 for number in range(24)]


def test_no_table_takes_a_group_of_a_store_apart_without_a_word(tmp_path, store):
    names = [f"s{number}" for number in range(24)]
    table = pd.DataFrame({"slide": names, "mut": [0, 1] * 12, "patient": names, "site": ["north", "south"] * 12})
    table.to_csv(tmp_path / "t.csv", index=False)
    asked = {"labels": tmp_path / "t.csv", "label_column": "mut"}
    with pytest.warns(UserWarning, match="would split 12 groups of the store, such as P0 "):
        bags = read_bags(store, **asked)
    assert bags.groups.tolist() == [PATIENTS[number // 2] for number in range(24)]
    with pytest.warns(UserWarning, match="split 12 groups of the store, such as P0 .* may be in two splits"):
        assert read_bags(store, **asked, groups="patient").groups.tolist() == names
    table.assign(patient=[f"family {number // 4}" for number in range(24)]).to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(set(read_bags(store, **asked).groups)) == 6, "whole patients together are fine"
    # P0 and P1 are a family of the table, which takes P2 apart: all stay whole, and the family together.
    family = ["fam"] * 4 + ["a", "b"] + [f"t{number // 2}" for number in range(6, 24)]
    table.assign(patient=family).to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="would split 1 group of the store, such as P2 .* they are merged"):
        groups = read_bags(store, **asked).groups.tolist()
    assert groups == ["P0"] * 4 + ["P2"] * 2 + [PATIENTS[number // 2] for number in range(6, 24)]


def test_patients_that_are_missing_or_contradict_themselves_are_named(tmp_path, store):
    table = endpoints()
    table.loc[3, "patient"] = "P99"
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(Note, match="a row of the table"), pytest.raises(BagDataError, match=r"none for 1 of 23: P99"):
        read_bags(store, labels=tmp_path / "t.csv", label_column="mut")
    pd.concat([endpoints(), endpoints().assign(mut=0)]).to_csv(tmp_path / "t.csv", index=False)
    with (
        pytest.warns(Note, match="a row of the table"),
        pytest.raises(BagDataError, match=r"one mut in a file, got .*s2") as caught,
    ):
        read_bags(store, labels=tmp_path / "t.csv", label_column="mut")
    numbers = str(caught.value).partition("such lines: ")[2].partition(" and ")[0].split(", ")
    assert len(numbers) == len(set(numbers)) > 1, "a row counts once, however many bags the patient has"


def tcga(folder, names):
    folder.mkdir()
    for name in names:
        np.save(folder / f"{name}.{UUID}.npy", np.ones((2, 2)))
    return folder


def test_barcodes_of_patients_match_files_by_their_beginning(tmp_path):
    names = [f"TCGA-A1-A0S{letter}-01Z-00-DX1" for letter in "BCDE"]
    folder = tcga(tmp_path / "f", names)
    table = pd.DataFrame(
        {"case_id": [name[:12] for name in names], "label": [0, 1] * 2, "fold_0": ["train", "test"] * 2}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(Note, match="column case_id holds 4 of the TCGA or BIDS names that files begin with, for 4 b"):
        bags = read_bags(folder, labels=tmp_path / "t.csv")
    assert bags.groups.tolist() == [name[:12] for name in names]
    assert bags.labels.tolist() == [0, 1, 0, 1]
    slides = table.assign(case_id=names).rename(columns={"case_id": "slide_id"})
    slides.to_csv(tmp_path / "s.csv", index=False)
    bags = read_bags(folder, labels=tmp_path / "s.csv", split_file=tmp_path / "t.csv", fold=0)
    assert bags.splits.tolist() == ["train", "test"] * 2


@pytest.mark.filterwarnings("ignore:a row of the table is a patient")
@pytest.mark.parametrize("column", ["patient", "sample"])
def test_slides_of_ones_own_stand_beside_those_of_tcga(tmp_path, column):
    """And tables of samples leave out the vial."""
    names = [f"TCGA-A1-A0S{letter}-01Z-00-DX1" for letter in "BCDE"]
    folder = tcga(tmp_path / "f", names)
    for name in ("own1", "own2"):
        np.save(folder / f"{name}.npy", np.ones((2, 2)))
    known = [name[: 12 if column == "patient" else 15] for name in names]
    table = pd.DataFrame({column: known, "label": [0, 1] * 2})
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="2 of 6 files have no label and are left out: own1, own2"):
        assert read_bags(folder, labels=tmp_path / "t.csv").labels.tolist() == [0, 1, 0, 1]
    if column == "patient":
        own = pd.DataFrame({column: ["own1", "own2"], "label": [1, 0]})
        pd.concat([table, own]).to_csv(tmp_path / "t.csv", index=False)
        assert read_bags(folder, labels=tmp_path / "t.csv").labels.tolist() == [0, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("kind", ["files", "table", "store"])
def test_slides_of_a_tcga_patient_are_one_group(tmp_path, kind):
    """A table of slides names no patients, and the splits would part them."""
    names = [f"TCGA-A1-A0S{letter}-01Z-00-DX{number}" for letter in "BC" for number in (1, 2)]
    table = pd.DataFrame({"bag": names, "label": [0, 0, 1, 1]})
    if kind == "files":
        data, how = tcga(tmp_path / "f", names), {"labels": tmp_path / "t.csv"}
    else:
        table, data, how = table.assign(a=1.0, b=np.arange(4.0)), tmp_path / "t.csv", {}
    table.to_csv(tmp_path / "t.csv", index=False)
    if kind == "store":
        data = write_store(Bags.from_dataframe(table), tmp_path / "store")
    with pytest.warns(
        Note, match="2 patients with several bags, by the TCGA or BIDS names .* the patients are the groups"
    ):
        assert read_bags(data, **how).groups.tolist() == [name[:12] for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        assert read_bags(data, **how, require_labels=False).groups is None


@pytest.mark.parametrize("table", ["files", "participants"])
def test_files_of_a_bids_subject_are_one_group(tmp_path, table):
    """A table of files names no subjects, and the splits would part their sessions."""
    sessions = 2 if table == "files" else 1
    names = [f"sub-{subject}_ses-{number}_T1w" for subject in ("01", "A2") for number in range(sessions)]
    (folder := tmp_path / "f").mkdir()
    for name in names:
        np.save(folder / f"{name}.npy", np.ones((2, 2)))
    rows = {"file": names} if table == "files" else {"participant_id": ["sub-01", "sub-A2"]}
    pd.DataFrame({**rows, "label": np.repeat([0, 1], sessions)}).to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    with pytest.warns(Note, match="TCGA or BIDS names that"):
        bags = read_bags(folder, labels=tmp_path / "t.tsv")
    assert bags.groups.tolist() == np.repeat(["sub-01", "sub-A2"], sessions).tolist()


def test_columns_that_name_the_group_together_do_so_in_tables_of_splits_and_of_a_store(tmp_path):
    groups = [f"{site}/{patient}" for site in "AB" for patient in (1, 2) for _ in range(2)]
    bags = Bags.from_list([np.ones((2, 2))] * 8, [0, 1] * 4, ids=[f"s{n}" for n in range(8)], groups=groups)
    store = write_store(bags, tmp_path / "store")
    table = pd.DataFrame({"site": list("AABB"), "patient": [1, 2, 1, 2], "label": [0, 1, 1, 0]})
    table.assign(fold=[0, 1, 1, 0]).to_csv(tmp_path / "t.csv", index=False)
    how = {"labels": tmp_path / "t.csv", "groups": "site,patient"}
    with pytest.warns(Note, match="its column site,patient holds 4 of the groups of the bags, for 8 bags"):
        found = read_bags(store, **how, split_file=tmp_path / "t.csv", fold=1)
    assert found.groups.tolist() == groups
    assert found.labels.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert found.splits.tolist() == [*["train"] * 2, *["test"] * 4, *["train"] * 2]
    with pytest.raises(BagDataError, match=r"such as 's0' .* or the patients, such as 'A/1'; name it"):
        read_bags(store, labels=tmp_path / "t.csv")


def test_patients_of_several_files_are_refused_with_a_list_or_make_one_bag(tmp_path):
    names = [f"TCGA-A1-A0S{letter}-01Z-00-DX{number}" for letter in "BC" for number in (1, 2)]
    folder = tcga(tmp_path / "f", names)
    table = "case_id,label\nTCGA-A1-A0SB,0\nTCGA-A1-A0SC,1\n"
    (tmp_path / "t.csv").write_text(table)
    with pytest.raises(
        BagDataError, match=r"one file for each patient, got several for 2: TCGA-A1-A0SB: .*DX1.*DX2.*bag_by"
    ):
        read_bags(folder, labels=tmp_path / "t.csv")
    with pytest.warns(Note, match="a row of the table is a patient"):
        bags = read_bags(folder, labels=tmp_path / "t.csv", bag_by="patient")
    assert bags.ids.tolist() == ["TCGA-A1-A0SB", "TCGA-A1-A0SC"]
    assert bags.sizes.tolist() == [4, 4]
    normal = tcga(tmp_path / "n", [*names, "TCGA-A1-A0SB-11A-01-TS1"])
    with pytest.raises(BagDataError, match=r"one kind of sample for each patient, got several for 1: TCGA-A1-A0SB"):
        read_bags(normal, labels=tmp_path / "t.csv", bag_by="patient")


@pytest.mark.parametrize("kind", ["csv", "frame", "manifest", "labels", "patients"])
def test_several_columns_name_the_group(tmp_path, kind):
    """The patient 1 of one hospital is another than that of the next."""
    table = pd.DataFrame({"bag": [f"b{number}" for number in range(8)], "label": [0, 1] * 4, "site": list("AB") * 4})
    table["patient"] = [1, 1, 1, 1, 2, 2, 2, 2]
    wanted = [f"{site}/{patient}" for site, patient in zip(table.site, table.patient)]
    (tmp_path / "f").mkdir()
    for name in table.bag:
        np.save(tmp_path / "f" / f"{name}.npy", np.ones((1, 2)))
    how = {"groups": "site, patient"}
    if kind in ("csv", "frame"):
        rows = table.assign(a=1.0, b=np.arange(8.0))
        rows.to_csv(tmp_path / "t.csv", index=False)
        bags = read_bags(tmp_path / "t.csv", **how) if kind == "csv" else Bags.from_dataframe(rows, **how)
        assert bags.feature_names == ("a", "b")
    elif kind == "manifest":
        table.assign(path=[f"f/{name}.npy" for name in table.bag]).to_csv(tmp_path / "t.csv", index=False)
        bags = read_bags(tmp_path / "t.csv", **how)
    else:
        table = table.assign(label=[0, 1, 0, 1, 1, 0, 1, 0])
        table.to_csv(tmp_path / "t.csv", index=False)
        bags = read_bags(
            tmp_path / "f", labels=tmp_path / "t.csv", bag_by="patient" if kind == "patients" else "slide", **how
        )
    found = bags.ids if kind == "patients" else bags.groups
    assert found.tolist() == (sorted(set(wanted)) if kind == "patients" else wanted)


def test_groups_of_several_columns_are_one_for_each_pair():
    """Whatever the names hold, A/B of C is another than A of B/C."""
    parts = ["A", "B", "A/B", "B/C", '"A"', '"A/B"', "A/", "/A", "\\", "A\\/B", '"', '"/"', "A/B/C", "C"]
    pairs = [(one, other) for one in parts for other in parts]
    table = pd.DataFrame(pairs, columns=["site", "patient"]).assign(a=1.0, label=0)
    table = table.assign(bag=[f"b{number}" for number in range(len(pairs))])
    found = Bags.from_dataframe(table, groups="site,patient").groups.tolist()
    assert len(set(found)) == len(pairs)
    assert all(group == f"{one}/{other}" for group, (one, other) in zip(found, pairs) if not {*'/"'} & {*one, *other})


def test_a_column_of_the_group_that_is_missing_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("bag,label,site,a\nx,0,A,1\ny,1,B,2\n")
    with pytest.raises(BagDataError, match=r"the column 'patient' of `groups`, got none"):
        read_bags(tmp_path / "t.csv", groups="site,patient")
