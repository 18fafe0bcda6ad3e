"""Names that look the same are one, in every input; those that differ only in case are kept apart, with a warning."""

import gzip
import unicodedata
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from tests.pairs import each

import midam
from midam.cli import main
from midam.data import Bags, open_store, write_store
from midam.data.bags import warn_of_doubts
from midam.data.column_codes import ColumnCoder
from midam.data.sources import read_bags
from midam.data.target_labels import TargetLabels
from midam.errors import BagDataError, Note
from midam.names import alike, name_of, on_disk
from midam.settings import Settings
from midam.targets import target_named
from studies.sets.torchmil import from_torchmil

NFC, NFD = (lambda text: unicodedata.normalize("NFC", text)), (lambda text: unicodedata.normalize("NFD", text))
FORMS = {
    "blank": lambda text: f"{text} ",
    "no-break": lambda text: f"\u00a0{text}\u202f",
    "inside": lambda text: text.replace(" ", "\u00a0"),
    "zero-width": lambda text: f"{text}\u200b",
    "mark": lambda text: f"\ufeff{text}",
    "decomposed": NFD,
}
PLAIN = [f"José {number}" for number in range(12)]  # bags
PATIENTS = [f"Müller {number // 3}" for number in range(12)]
SITES = [f"Kliniköst {number % 2}" for number in range(12)]
LABELS = ["évolué" if number % 2 else "stable" for number in range(12)]
SPLITS = [("train", "val", "test")[number // 3 % 3] for number in range(12)]
COVARIATES = ["ja ü" if number % 4 else "nein" for number in range(12)]


def odd(values, form):
    """Every other value in another form."""
    return [FORMS[form](value) if number % 2 else value for number, value in enumerate(values)]


def frame(form=None, rows=2):
    values = [PLAIN, PATIENTS, SITES, LABELS, SPLITS, COVARIATES]
    if form is not None:
        values = [values[0], *(odd(own, form) for own in values[1:])]
    names = ["bag", "patiént", "sité", "lábel", "split", "état"]
    found = pd.DataFrame(dict(zip(names, values, strict=True)))
    table = found.loc[found.index.repeat(rows)].reset_index(drop=True)
    table["größe"] = np.arange(len(table)) / 7
    table["b"] = np.arange(len(table)) % 5
    if form is not None:
        table["bag"] = odd(table["bag"].tolist(), form)
        table.columns = [FORMS[form](name) for name in table.columns]
    return table


OPTIONS = {"label_column": "lábel", "groups": "patiént", "site_column": "sité", "positive": "évolué"}
OPTIONS |= {"covariates": ["état"], "split": "split", "bag_column": "bag"}


def options(form, **changes):
    """The options with their names in a form, of each reader."""
    found = {**OPTIONS, **changes}
    if form is None:
        return found
    write = FORMS[form]
    return {k: [write(name) for name in v] if isinstance(v, list) else write(v) for k, v in found.items() if v}


def facts(bags):
    covariates = None if bags.covariates is None else bags.covariates.values()
    names = [None if own is None else own.tolist() for own in (bags.ids, bags.groups, bags.sites, bags.splits)]
    return [*names, bags.labels.tolist(), bags.classes, covariates, bags.feature_names]


def expected(**changes):
    labels = [int(word == "évolué") for word in LABELS]
    known = {"ids": PLAIN, "groups": PATIENTS, "sites": SITES, "splits": SPLITS, "labels": labels}
    known |= {
        "classes": ("stable", "évolué"),
        "covariates": {"état": COVARIATES},
        "features": ("größe", "b"),
        **changes,
    }
    return list(known.values())


def write_folder(folder, form):
    """Feature files, whose names are in a form, and a table of one row each."""
    (folder / "files").mkdir()
    for number, name in enumerate(PLAIN):
        stem = name if form is None else FORMS[form](name)
        with h5py.File(folder / "files" / f"{stem}.h5", "w") as file:
            file["features"] = np.full((3, 2), number, np.float32)


@pytest.mark.parametrize(("suffix", "form"), each(["csv", "tsv", "csv.gz", "xlsx", "parquet", "frame"], FORMS))
def test_a_table_of_instances_in_any_form_is_the_same(tmp_path, suffix, form):
    table, path = frame(form), tmp_path / f"t.{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        if suffix == "frame":
            how = options(form)
            how.pop("site_column")
            bags = Bags.from_dataframe(table.drop(columns=FORMS[form]("sité")), **how)
        else:
            {
                "xlsx": lambda: table.to_excel(path, index=False),
                "parquet": lambda: table.to_parquet(path),
                "tsv": lambda: table.to_csv(path, sep="\t", index=False),
            }.get(suffix, lambda: table.to_csv(path, index=False))()
            bags = read_bags(path, **options(form))
    assert facts(bags) == expected(**({"sites": None} if suffix == "frame" else {}))


@pytest.mark.parametrize(("kind", "form"), each(["labels", "store", "manifest"], FORMS))
def test_files_and_their_tables_in_two_forms_belong_together(tmp_path, kind, form):
    """Files in one form and their table in the other, both ways round; the table's own names are mixed."""
    for own, other in ((None, form), (form, None)):
        folder = tmp_path / str(own)
        folder.mkdir()
        write_folder(folder, own)
        table = frame(form, rows=1).iloc[:, :6]
        column = table.columns[0]
        table[column] = [name if other is None else FORMS[other](name) for name in PLAIN]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Note)
            if kind == "manifest":
                stems = [name if other is None else FORMS[other](name) for name in PLAIN]
                table["path"] = [f"files/{stem}.h5" for stem in stems]
                table.to_csv(folder / "m.csv", index=False)
                bags = read_bags(folder / "m.csv", **options(form))
            else:
                table.to_csv(folder / "labels.csv", index=False)
                bags, data = None, folder / "files"
                if kind == "store":
                    bare = read_bags(data, require_labels=False)
                    data = write_store(bare, folder / "store")
                bags = read_bags(data, labels=folder / "labels.csv", **options(form))
        order = np.argsort(bags.ids)
        assert facts(bags.subset(order)) == facts(bags.subset(np.argsort(PLAIN))) if kind == "manifest" else True
        found = dict(zip(bags.ids.tolist(), bags.groups.tolist(), strict=True))
        assert found == dict(zip(PLAIN, PATIENTS, strict=True))
        assert sorted(set(bags.sites.tolist())) == sorted(set(SITES))
        assert int(bags.labels.sum()) == 6


@pytest.mark.parametrize("form", FORMS)
def test_npz_files_and_stores_of_any_form_are_read_in_one(tmp_path, form):
    write = FORMS[form]
    groups, ids = np.array(odd(PATIENTS, form)), np.array(odd(PLAIN, form))
    labels, sites = np.array(odd(LABELS, form)), np.array(odd(SITES, form))
    how = {"X": np.arange(24.0).reshape(12, 2), "bag": np.arange(12), "y": labels, "ids": ids, "group": groups}
    np.savez(tmp_path / "t.npz", **how, **{"sité": sites}, split=np.array(odd(SPLITS, form)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        bags = read_bags(tmp_path / "t.npz", positive=write("évolué"), site_column=write("sité"))
        assert facts(bags)[:6] == expected()[:6]
        covariates = {write("sité"): sites, write("größe"): np.arange(12.0)}
        own = Bags(
            how["X"], sizes=np.ones(12, int), ids=ids, groups=groups, labels=np.arange(12) % 2, covariates=covariates
        )
        store = write_store(own, tmp_path / "store")
        again = read_bags(store, site_column=write("sité"), covariates=[write("größe")])
    assert again.ids.tolist() == PLAIN
    assert again.groups.tolist() == PATIENTS
    assert again.sites.tolist() == SITES
    assert again.covariates.names == ("größe",)


@pytest.mark.parametrize("form", FORMS)
def test_a_store_that_was_written_with_other_forms_is_read_in_one(tmp_path, form, monkeypatch):
    """As an older midam wrote it, which kept names as they were."""
    bags = Bags(np.ones((12, 2)), sizes=np.ones(12, int), ids=PLAIN, groups=PATIENTS, labels=np.arange(12) % 2)
    vars(bags).update(
        ids=np.array(odd(PLAIN, form)), groups=np.array(odd(PATIENTS, form)), feature_names=(FORMS[form]("größe"), "b")
    )
    store = open_store(write_store(bags, tmp_path / "store"))
    assert store.ids.tolist() == PLAIN
    assert store.groups.tolist() == PATIENTS
    assert store.feature_names == ("größe", "b")


@pytest.mark.parametrize("form", FORMS)
def test_arrays_datasets_and_splits_from_python_have_one_form(form):
    rows, groups = [np.ones((1, 2))] * 12, odd(PATIENTS, form)
    listed = Bags.from_list(rows, np.arange(12) % 2, ids=odd(PLAIN, form), groups=groups)
    flat = Bags.from_arrays(np.ones((12, 2)), np.arange(12), np.arange(12) % 2, ids=odd(PLAIN, form), groups=groups)
    for bags in (listed, flat):
        assert bags.ids.tolist() == PLAIN
        assert bags.groups.tolist() == PATIENTS
    words = Bags.from_list(rows, odd(LABELS, form), classes=("stable", FORMS[form]("évolué")))
    assert words.labels.tolist() == [0, 1] * 6

    class Items(list):
        bag_names = odd(PLAIN, form)

    items = Items({"X": torch.ones(2, 3), "Y": torch.tensor(float(number % 2))} for number in range(12))
    assert from_torchmil(items).ids.tolist() == PLAIN
    many = [f"{name}{number}" for number in range(4) for name in PATIENTS]
    labels = np.arange(len(many)) // 2 % 2
    splits = midam.split_bags(labels, groups=odd(many, form), seed=0)
    assert (splits == midam.split_bags(labels, groups=many, seed=0)).all()
    frame = pd.DataFrame({FORMS[form]("größe"): [1.0, 2.0], "b": [1.0, 3.0]}, index=[0, 1])
    model = midam.MIDAMClassifier(epochs=1, members=1, val_fraction=0, num_positive=4, num_negative=4)
    y = np.array(odd(LABELS, form), dtype=object)
    with (
        nullcontext() if "évolué" in y else pytest.warns(UserWarning, match="in y is read, and predicted, as 'évolué'")
    ):
        model.fit([frame, frame * 2] * 6, y, groups=groups)
    assert model.classes_.tolist() == ["stable", "évolué"]
    assert model.feature_names_in_.tolist() == ["größe", "b"]


@pytest.mark.parametrize("form", FORMS)
def test_split_tables_and_settings_are_matched_in_one_form(tmp_path, form):
    write = FORMS[form]
    frame().to_csv(tmp_path / "t.csv", index=False)
    how = {**OPTIONS, "split": None, "ignore": ["split"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        for names in (PLAIN, sorted(set(PATIENTS))):
            table = pd.DataFrame(
                {write("name"): odd(names, form), write("split"): odd((SPLITS * 2)[: len(names)], form)}
            )
            table.to_csv(tmp_path / "s.csv", index=False)
            bags = read_bags(tmp_path / "t.csv", **how, split_file=tmp_path / "s.csv")
            own = bags.ids if names is PLAIN else bags.groups
            assert dict(zip(own.tolist(), bags.splits.tolist())) == dict(zip(names, SPLITS * 2))
    data = Settings(groups=write("patiént"), ignore=[write("größe")], positive=write("évolué")).data
    assert (data.groups, data.ignore, data.positive) == ("patiént", ("größe",), "évolué")


def test_a_run_is_trained_and_applied_across_forms(tmp_path, capsys):
    plain, other = frame(rows=3), frame(rows=3)
    other.columns = [NFD(name) for name in other.columns]
    other[NFD("lábel")] = [NFD(word) for word in other[NFD("lábel")]]
    plain.to_csv(tmp_path / "a.csv", index=False)
    other.to_csv(tmp_path / "b.csv", index=False)
    words = ["--epochs", "1", "--members", "1", "--no-baseline", "--label-column", NFD("lábel"), "--groups", "patiént"]
    words += ["--positive", NFD("évolué"), "--ignore", f"split,{NFD('sité')}", "--covariates", "état"]
    assert main(["fit", str(tmp_path / "a.csv"), *words, "--out", str(tmp_path / "run")]) == 0
    run = str(tmp_path / "run")
    assert main(["predict", run, str(tmp_path / "b.csv"), "--out", str(tmp_path / "p.csv")]) == 0
    assert pd.read_csv(tmp_path / "p.csv").bag.tolist() == PLAIN
    assert main(["explain", run, str(tmp_path / "b.csv"), "--bags", NFD(PLAIN[3]), "--out", str(tmp_path / "e")]) == 0


def test_paths_in_another_form_or_with_backslashes_are_found(tmp_path):
    (tmp_path / NFD("Größe")).mkdir()
    (tmp_path / NFD("Größe") / "a.csv").write_text("x")
    assert on_disk(tmp_path / "Größe" / "a.csv").read_text() == "x"
    assert on_disk(f"{tmp_path}/Größe\\a.csv").read_text() == "x"
    missing = tmp_path / "Größe" / "b.csv"
    assert on_disk(missing) == missing
    (tmp_path / "Größe\u200b").mkdir()
    with pytest.raises(BagDataError, match=r"Expected one file of the name .* got 2"):
        on_disk(tmp_path / "Größe" / "a.csv")


def test_manifests_from_windows_are_read(tmp_path):
    (tmp_path / "f").mkdir()
    for name in "abcd":
        np.save(tmp_path / "f" / f"{name}.npy", np.ones((2, 2)))
    lines = [f"{name},f\\{name}.npy,{number % 2}" for number, name in enumerate("abcd")]
    (tmp_path / "m.csv").write_text("\n".join(["bag,path,label", *lines]))
    assert len(read_bags(tmp_path / "m.csv")) == 4


def test_two_columns_of_one_name_are_refused(tmp_path):
    for suffix, write in {"csv": "to_csv", "xlsx": "to_excel"}.items():
        path = tmp_path / f"t.{suffix}"
        table = pd.DataFrame([["a", 0, 1.0, 2.0], ["b", 1, 2.0, 3.0]], columns=["bag", "label", "é", NFD("é")])
        getattr(table, write)(path, index=False)
        with pytest.raises(BagDataError, match="unique names of columns, got 'é' twice"):
            read_bags(path)


@pytest.mark.parametrize("kind", ["bags", "groups", "classes", "sites"])
def test_names_that_differ_only_in_case_are_warned_of_once(tmp_path, kind):
    count = 8
    names = ["P1", "p1", "P2", "P3", "P4", "P5", "P6", "P7"]
    rows = [np.ones((1, 2))] * count
    how = {"ids": names} if kind == "bags" else {"groups": names} if kind == "groups" else {}
    if kind == "classes":
        how = {"classes": ("P1", "p1")}
    named = Bags(np.ones((8, 2)), sizes=[1] * 8, sites=names)
    make = {"sites": lambda: warn_of_doubts(named)}.get(kind, lambda: Bags.from_list(rows, [0, 1] * 4, **how))
    with pytest.warns(UserWarning, match=rf"{kind} P1 and p1 \(in memory\)") as shown:
        make()
    assert len(shown) == 1
    if kind in ("bags", "groups"):
        column = {"bags": "bag", "groups": "patient"}[kind]
        table = pd.DataFrame({"bag": [f"b{n}" for n in range(8)], "label": [0, 1] * 4, "patient": "x", "a": 1.0})
        table[column] = names
        table["patient"] = table["patient"].where(table["patient"] != "x", [f"g{n}" for n in range(8)])
        table.to_csv(tmp_path / "t.csv", index=False)
        with pytest.warns(UserWarning, match=f"{kind} P1 and p1") as shown:
            bags = read_bags(tmp_path / "t.csv", groups="patient")
        assert [str(one.message) for one in shown if "differ only" in str(one.message)] == [str(shown[0].message)]
        assert len(set((bags.ids if kind == "bags" else bags.groups).tolist())) == 8


def test_groups_given_to_split_bags_are_warned_of_once():
    with pytest.warns(UserWarning, match="groups P1 and p1") as shown:
        midam.split_bags([0, 1] * 6, groups=["P1", "p1", *map(str, range(10))])
    assert len(shown) == 1


@pytest.mark.parametrize("column", ["label", "sex"])
def test_words_that_are_read_as_one_are_said(tmp_path, column):
    table = pd.DataFrame({"bag": [f"b{n}" for n in range(8)], "label": [0, 1] * 4, "sex": list("fm") * 4, "a": 1.0})
    table[column] = ["yes", "no", "Yes", "no"] * 2
    table.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        read_bags(tmp_path / "t.csv", covariates=["sex"], positive="yes" if column == "label" else None)
    assert sum("differ only in case are read as one: yes and Yes" in str(one.message) for one in shown) == 1


def test_numbers_as_names_have_one_form(tmp_path):
    """A column of whole numbers with gaps is one of decimals to pandas: 7.0 is the bag 7."""
    assert [name_of(value) for value in (7, 7.0, np.float32(7), np.int64(7), "7", "07", "7.0", 2**60, 0.5)] == [
        *("7",) * 5, "07", "7.0", str(2**60), "0.5",
    ]  # fmt: skip
    assert alike(["7", "07", "7.0", "8"]) == [("7", "07", "7.0")]
    table = pd.DataFrame(
        {"bag": [1.0, 1.0, 2.0, 3.0, 4.0], "label": [0, 0, 1, 0, 1], "patient": [1.0, 1, 2, 3, 4], "a": 1.0}
    )
    table.to_parquet(tmp_path / "t.parquet")
    assert read_bags(tmp_path / "t.parquet", groups="patient").ids.tolist() == ["1", "2", "3", "4"]
    assert Bags.from_dataframe(table, groups="patient").groups.tolist() == ["1", "2", "3", "4"]
    assert Bags.from_list([np.ones((1, 1))] * 2, [0, 1], groups=[1.0, 2.0]).groups.tolist() == ["1", "2"]
    splits = pd.DataFrame({"bag": ["1.0", "2.0", "3.0", "4.0"], "split": ["train", "train", "val", "test"]})
    splits.to_csv(tmp_path / "s.csv", index=False)
    own = read_bags(tmp_path / "t.parquet", ignore=["patient"], split_file=tmp_path / "s.csv")
    assert own.splits.tolist() == ["train", "train", "val", "test"]


@pytest.mark.parametrize("suffix", ["csv", "xlsx", "parquet", "npz"])
def test_large_whole_numbers_are_exact_names_or_refused(tmp_path, suffix):
    ids = [2**53 + number for number in range(4)]
    table = pd.DataFrame({"bag": [f"b{n}" for n in range(4)], "label": [0, 1, 0, 1], "patient": ids, "a": 1.0})
    path = tmp_path / f"t.{suffix}"
    if suffix == "npz":
        np.savez(path, X=np.ones((4, 1)), bag=np.arange(4), y=[0, 1, 0, 1], group=np.array(ids))
        bags = read_bags(path)
    else:
        {"csv": lambda: table.to_csv(path, index=False), "parquet": lambda: table.to_parquet(path)}.get(
            suffix, lambda: table.assign(patient=table.patient.astype(str)).to_excel(path, index=False)
        )()
        bags = read_bags(path, groups="patient")
    assert bags.groups.tolist() == [str(own) for own in ids]
    with pytest.raises(BagDataError, match=r"below 2\*\*53, got the decimal number 9007199254740992"):
        Bags.from_dataframe(table.assign(patient=table.patient.astype(float)), groups="patient")


@pytest.mark.parametrize(
    ("dtype", "most"), [("float16", 11), ("float32", 24), ("Float32", 24), ("float[pyarrow]", 24), ("float64", 53)]
)
def test_decimals_that_may_be_rounded_are_no_names(tmp_path, dtype, most):
    """Short decimals round earlier: 16777217 is 16777216 in float32, and two patients or bags would be one."""
    table = pd.DataFrame({"bag": list("abcd"), "label": [0, 1, 0, 1], "patient": np.arange(4), "a": 1.0})
    exact = table.assign(patient=(table.patient + 2**most - 4).astype(dtype))
    bags = Bags.from_dataframe(exact, groups="patient")
    assert bags.groups.tolist() == [str(2**most - 4 + n) for n in range(4)]
    short = f"float{16 if most == 11 else 32 if most == 24 else 64}"
    rounded = table.assign(patient=(table.patient + 2**most).astype(short).astype(dtype))
    told = rf"below 2\*\*{most}, got the decimal number {2**most}, .* \(in a DataFrame, column patient\)"
    with pytest.raises(BagDataError, match=told):
        Bags.from_dataframe(rounded, groups="patient")
    with pytest.raises(BagDataError, match=rf"below 2\*\*{most}"):
        Bags.from_dataframe(rounded.rename(columns={"patient": "bag", "bag": "x"}), ignore=["x"])


def test_numbers_of_excel_that_may_be_rounded_are_no_names(tmp_path):
    """Excel holds numbers as float64: of longer ids, several would be one patient, or one bag."""
    ids = [2**53 + number for number in range(4)]
    table = pd.DataFrame({"slide": list("abcd"), "label": [0, 1, 0, 1], "patient": ids, "a": [1e17, 2.0, 3.0, 4.0]})
    table.to_excel(tmp_path / "t.xlsx", index=False)
    told = (
        r"below 2\*\*53, got the decimal number 9007199254740992, .*t.xlsx, column patient\); store such names as text"
    )
    with pytest.raises(BagDataError, match=told):
        read_bags(tmp_path / "t.xlsx", bag_column="slide", groups="patient")
    with pytest.raises(BagDataError, match=told):
        read_bags(tmp_path / "t.xlsx", bag_column="patient", ignore=["slide"])
    (tmp_path / "f").mkdir()
    for slide in "abcd":
        np.save(tmp_path / "f" / f"{slide}.npy", np.ones((2, 2)))
    table[["slide", "label", "patient"]].to_excel(tmp_path / "labels.xlsx", index=False)
    with pytest.raises(BagDataError, match=told.replace("t.xlsx", "labels.xlsx")):
        read_bags(tmp_path / "f", labels=tmp_path / "labels.xlsx")
    table.assign(patient=table.patient.astype(str)).to_excel(tmp_path / "text.xlsx", index=False)
    bags = read_bags(tmp_path / "text.xlsx", bag_column="slide", groups="patient")
    assert (bags.groups.tolist(), bags[0].item()) == ([*map(str, ids)], 1e17)
    numbers = table[["slide", "label"]].assign(volume=ids, case_id=[*map(str, ids)])
    numbers.to_excel(tmp_path / "labels.xlsx", index=False)  # a volume names nothing
    assert read_bags(tmp_path / "f", labels=tmp_path / "labels.xlsx").groups.tolist() == [*map(str, ids)]


def test_names_that_differ_in_zeros_inside_are_warned_of():
    names = ["P1", "P01", "sub-010_x", "sub-10_x", "P10", "v1.1", "v1.01", "a0", "0.5", "0.05", "5"]
    assert alike(names) == [("P1", "P01"), ("sub-010_x", "sub-10_x")]
    with pytest.warns(UserWarning, match="blanks or zeros are kept apart: groups P1 and P01"):
        Bags.from_list([np.ones((1, 1))] * 4, [0, 1, 0, 1], groups=["P1", "P01", "P2", "P3"])


def test_packed_tables_keep_their_names(tmp_path):
    text = "\ufeffbag ,label,a\nb1 ,0,1\nb2,1,2\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert read_bags(tmp_path / "t.csv.gz").ids.tolist() == ["b1", "b2"]


@pytest.mark.parametrize("form", ["no-break", "zero-width", "mark"])
@pytest.mark.parametrize("key", ["ids", "group", "split"])
def test_keys_of_npz_files_that_look_known_are_refused(tmp_path, key, form):
    known = {"X": np.ones((4, 2)), "bag": np.arange(4), "y": np.arange(4) % 2}
    values = np.array(["train", "val", "test", "train"]) if key == "split" else np.array(list("abcd"))
    np.savez(tmp_path / "t.npz", **known, **{FORMS[form](key): values})
    with pytest.raises(BagDataError, match=f"Expected the key '{key}'"):
        read_bags(tmp_path / "t.npz")


@pytest.mark.parametrize("form", FORMS)
def test_the_class_to_explain_is_known_in_any_form(form):
    outcome = TargetLabels.of("multiclass", [0, 1, 2], names=["léger", "moyen", "sévère 1"])
    assert target_named({"target": "multiclass", "names": list(outcome.names)}).column(FORMS[form]("sévère 1")) == 2


@pytest.mark.parametrize("letter", [0x110000, 0xD800])
def test_letters_that_are_no_characters_are_refused(letter, tmp_path):
    ids = np.array(["a", "b"])
    ids.view(np.uint32)[0] = letter
    with pytest.raises(BagDataError, match=r"Unicode, .*\(in memory"):
        Bags.from_arrays(np.eye(2), [0, 1], [0, 1], ids=ids)
    for key in ("ids", "group", "split", "y"):
        keys = {"y": [0, 1], key: ids}
        np.savez(tmp_path / "bags.npz", X=np.eye(2), bag=[0, 1], **keys)
        with pytest.raises(BagDataError, match=rf"strings in Unicode, .*\(in .*bags\.npz, key {key}"):
            read_bags(tmp_path / "bags.npz")


@pytest.mark.parametrize("column", ["bag", "label", "group", "split", "color", "age"])
def test_bytes_in_a_table_that_are_not_utf8_are_refused_with_their_place(column, tmp_path):
    words = {"bag": list("aabbcd"), "label": list("110010"), "group": list("uuvvwx"), "split": ["train"] * 6}
    table = pd.DataFrame({**words, "color": list("rgrgrg"), "age": list("112234"), "x": np.arange(6.0)})
    first = table[column][0]
    table[column] = pd.Series([b"\xff" if word == first else word.encode() for word in table[column]], dtype=object)
    table.to_parquet(tmp_path / "t.parquet")
    options = {"groups": "group", "split": "split", "covariates": ["age"]}
    for read in (lambda: read_bags(tmp_path / "t.parquet", **options), lambda: Bags.from_dataframe(table, **options)):
        with pytest.raises(BagDataError, match=rf"valid Unicode, .* at position 0 \(in .*, row 1, column {column}\)"):
            read()


def test_columns_of_bytes_that_are_not_used_are_left_alone(tmp_path, capsys):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"bag": np.repeat(np.arange(40), 2), "label": np.repeat([0, 1] * 20, 2), "x": rng.normal(size=80)}
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    table.assign(thumb=[b"\xff\xd8"] * 80, parts=[[1, 2]] * 80).to_parquet(tmp_path / "t.parquet")
    assert len(read_bags(tmp_path / "t.parquet", ignore=["thumb", "parts"])) == 40
    with pytest.raises(BagDataError, match=r"row 1, column thumb\); .*leave it out") as caught:
        read_bags(tmp_path / "t.parquet")
    assert len(str(caught.value)) < 300
    run = str(tmp_path / "run")
    assert main(["fit", str(tmp_path / "t.csv"), "--method", "mean-map-svm", "--out", run]) == 0
    assert main(["predict", run, str(tmp_path / "t.parquet"), "--out", str(tmp_path / "scores.csv")]) == 0
    assert main(["new", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "s.yaml")]) == 2
    assert "column thumb" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"\xff", "\ud800"])
@pytest.mark.parametrize(
    "name", ["ids", "labels", "groups", "splits", "sites", "feature_names", "covariates", "classes"]
)
def test_names_of_bags_that_are_no_unicode_are_refused(name, text):
    names = [text, "train"]
    parts = {"covariates": {"site": names}} if name == "covariates" else {name: names}
    with pytest.raises(BagDataError, match=r"Unicode|two names of classes|equal length"):
        Bags(np.eye(2), sizes=[1, 1], **{"labels": [0, 1], **parts})


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64"])
def test_missing_entries_of_pandas_arrays_are_refused_like_others(dtype):
    with pytest.raises(BagDataError, match=r"a group for each bag, got '<NA>'.* bag 1"):
        Bags(np.eye(2), sizes=[1, 1], groups=pd.array([1, None], dtype=dtype))
    with pytest.raises(BagDataError, match=r"labels 0 or 1, got (nan|<NA>) .* bag 1"):
        Bags(np.eye(2), sizes=[1, 1], labels=pd.array([1, None], dtype=dtype))
    for ids in (pd.array([1, None], dtype=dtype), ["a", None], [1.0, np.nan], pd.Series(["a", None], dtype="str")):
        for make in (
            lambda ids=ids: Bags.from_list([np.eye(2)] * 2, ids=ids),
            lambda ids=ids: Bags(np.eye(2), sizes=[1, 1], ids=ids),
        ):
            with pytest.raises(BagDataError, match=r"a name for each bag, got none .*bag 1"):
                make()
    assert Bags(np.eye(2), sizes=[1, 1], ids=["a", "None"]).ids.tolist() == ["a", "None"]


def test_a_torch_file_that_claims_to_span_disks_is_refused_by_its_name(tmp_path):
    path = tmp_path / "files" / "a.pt"
    path.parent.mkdir()
    torch.save(torch.eye(2), path)
    # The end of an archive with a locator of ZIP64 before it, which says that there are two disks.
    path.write_bytes(path.read_bytes()[:-22] + b"PK\6\7" + bytes(12) + b"\2\0\0\0" + b"PK\5\6" + bytes(18))
    with pytest.raises(BagDataError, match=r"a whole \.pt file, got: .* disks .*a\.pt"):
        read_bags(tmp_path / "files", require_labels=False)


CODES = [("0117", "117"), ("250.10", "250.1"), ("1E5", "100000"), ("250.0", "250"), ("+5", "5"), ("1e400", "inf5")]
TABLES = ["csv", "tsv", "semicolon", "xlsx", "parquet", "frame"]


def read_as(form: str, folder: Path, frame: pd.DataFrame, **how: Any) -> Bags:
    """Read a frame in a format."""
    path = folder / f"t.{form.replace('semicolon', 'csv')}"
    if form == "frame":
        return Bags.from_dataframe(frame, **how)
    if form in ("xlsx", "parquet"):
        (frame.to_excel if form == "xlsx" else frame.to_parquet)(path, index=False)
    else:
        frame.to_csv(path, index=False, sep={"csv": ",", "tsv": "\t", "semicolon": ";"}[form])
    return read_bags(path, **how)


def of_codes(one: str, other: str) -> pd.DataFrame:
    """Eight bags of two rows, whose names differ in zeros alone; the texts alternate over the bags."""
    codes = np.repeat([one, other] * 4, 2)
    ids = [f"{'0' * (number // 2)}{number % 2 + 1}" for number in range(8)]
    frame = pd.DataFrame({"bag": np.repeat(ids, 2), "a": np.arange(16.0), "code": codes, "site": codes, "icd": codes})
    return frame.assign(group=frame.bag)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("form", "pair"), each(TABLES, CODES))
def test_text_of_tables_is_no_number_before_it_is_a_name(tmp_path, form, pair):
    table = of_codes(*pair)
    options = {"groups": "group", "site_column": "site", "categories": ["code"], "covariates": ["icd"]}
    if form == "frame":
        table["icd"] = ["V45"] * 2 + table.icd.tolist()[2:]
    else:  # new bags of a run, which may hold only such codes
        options["kinds"] = {"a": "number", "code": "category", "icd": "category"}
        options |= {"features": ["a", "code"], "require_labels": False}
    bags = read_as(form, tmp_path, table, **options)
    assert bags.ids.tolist() == bags.groups.tolist() == table.bag[::2].tolist()
    assert set(bags.columns[1].words) == set(bags.sites.tolist()) == {*pair}
    assert bags.covariates.columns[0].tolist() == table.icd[::2].tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("form", "pair"), each([*TABLES, "label table", "npz"], CODES[:3]))
def test_text_of_labels_is_no_number_before_it_is_a_class(tmp_path, form, pair):
    table = of_codes(*pair)[["bag", "a"]].assign(label=of_codes(*pair).code, event=1, time=2.5)
    table["event"] = table.label

    def read(**how: Any) -> Bags:
        if form == "npz":
            bag, y = pd.factorize(table.bag)[0], table.label[::2].to_numpy(dtype=np.str_)
            arrays = {"time": table.time[::2], "event": y} if how.get("target") == "survival" else {"y": y}
            np.savez(tmp_path / "t.npz", X=table[["a"]], bag=bag, **arrays)
            return read_bags(tmp_path / "t.npz", **how)
        if form == "label table":
            (tmp_path / "f").mkdir(exist_ok=True)
            for name in table.bag.unique():
                np.save(tmp_path / "f" / f"{name}.npy", np.ones((2, 2)))
            table.groupby("bag", as_index=False).first().drop(columns="a").to_csv(tmp_path / "l.csv", index=False)
            columns = {"label_column": "time,event"} if how.get("target") == "survival" else {}
            return read_bags(tmp_path / "f", labels=tmp_path / "l.csv", **columns, **how)
        others = ["label"] if how.get("target") == "survival" else ["time", "event"]
        return read_as(form, tmp_path, table.drop(columns=others), **how)

    of_bag = dict(zip(table.bag, table.label == pair[0]))
    bags = read(positive=pair[0])
    assert set(bags.classes) == {*pair}
    assert bags.labels.tolist() == [of_bag[name] for name in (bags.ids if form != "npz" else table.bag[::2])]
    assert set(read(target="multiclass").outcome.names) == {*pair}
    assert set(read(target="ordinal", grades=pair).outcome.names) == {*pair}
    assert read(target="survival", positive=pair[0]).outcome.values[:, 1].tolist() == bags.labels.tolist()


@pytest.mark.parametrize("values", [["1.0", "0.0"], ["1", "0"], ["+1", "-0"[1:]], ["1.000e+00", "0.000e+00"]], ids=str)
def test_labels_as_programs_write_the_numbers_0_and_1_are_these(tmp_path, values):
    table = pd.DataFrame({"bag": [*"abcd"], "label": values * 2, "a": np.arange(4.0)})
    assert read_as("csv", tmp_path, table).labels.tolist() == [1, 0, 1, 0]


def test_a_category_that_pandas_writes_with_a_decimal_is_the_one_of_training(tmp_path):
    """A column of whole numbers with gaps is one of decimals to pandas."""
    for first, second in ((["7.0", "8.0", ""], ["7", "8", "9"]), (["7", "8", "9"], ["7.0", "8.0", ""])):
        tables = [pd.DataFrame({"bag": [*"abc"] * 3, "code": words * 3, "a": 1.0}) for words in (first, second)]
        train, new = (read_as("csv", tmp_path, t, categories=["code"], require_labels=False) for t in tables)
        coder = ColumnCoder.fit(train.replace(instances=np.repeat(train.instances, 3, 0)[:9]), Settings().data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert coder.encode(new)[0].tolist() == coder.encode(train)[0].tolist()


@pytest.mark.parametrize("ids", [["a\0", "b"], ["a", "b\0c"], np.array(["a", "b\0c"]), np.array(["é\0e", "b"])])
def test_a_bag_whose_name_holds_nul_is_refused(ids):
    with pytest.raises(BagDataError, match=r"without NUL, got '.*x00.*\(in memory\); rename it"):
        Bags.from_list([[[0.0]], [[1.0]]], ids=ids)


@pytest.mark.parametrize("names", ["feature_names", "classes"])
def test_features_and_classes_whose_names_hold_nul_are_refused(names):
    with pytest.raises(BagDataError, match=r"without NUL, got 'x\\x00y' \(in memory\); rename it"):
        Bags.from_arrays(np.zeros((2, 2)), [0, 1], [0, 1], **{names: ["a", "x\0y"]})


def test_hdf5_names_with_nul_are_refused(tmp_path):
    for name in ("a", "b"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["features"] = np.ones((2, 2))
            file["feature_names"] = np.array([b"area", b"x\0y"])
    with pytest.raises(BagDataError, match=r"without NUL, got 'x\\x00y' \(in .*a\.h5.*\); rename it"):
        read_bags(tmp_path, require_labels=False)
    for name in ("a", "b"):
        with h5py.File(tmp_path / f"{name}.h5", "a") as file:
            del file["feature_names"]
            file.attrs["label"] = np.bytes_(b"x\0y")
    with pytest.raises(BagDataError, match=r"without NUL, got 'x\\x00y' \(in .*\); rename it"):
        read_bags(tmp_path)
