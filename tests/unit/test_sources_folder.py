"""Folders of feature files with label and split tables, manifests, and stores with other labels."""

import warnings
from contextlib import nullcontext

import h5py
import numpy as np
import pandas as pd
import pytest
import torch

from midam.data.sources import read_bags
from midam.data.sources.file_names import NameIndex, strip_suffix
from midam.data.splits import check_disjoint
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, ConfigError, DataNotFoundError, LeakageError

D = 4
SLIDES = ["TCGA.A-01", "TCGA.A-02", "TCGA.B-01", "c", "d"]
PATIENTS = ["A", "A", "B", "C", "D"]
LABELS = [1, 1, 0, 1, 0]
CLAM = "case_id,slide_id,label\nA,TCGA.A-01,tumor\nA,TCGA.A-02,tumor\nB,TCGA.B-01,normal\nC,c,tumor\nD,d,normal\n"


def features(name):
    seed = sum(map(ord, name))
    return np.random.default_rng(seed).normal(size=(3 + seed % 5, D)).astype(np.float32)


def write_h5(path, name, *, key="features", x=None):
    x = features(name) if x is None else x
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.create_dataset(key, data=x, chunks=(1, D), maxshape=(None, D))
        file["coords"] = np.arange(2 * len(x)).reshape(-1, 2)


@pytest.fixture
def folder(tmp_path):
    for name in SLIDES:
        write_h5(tmp_path / "slides" / f"{name}.h5", name)
    return tmp_path / "slides"


@pytest.fixture
def table(tmp_path):
    def write(text, name="labels.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def check(bags, *, ids=SLIDES, labels=LABELS, groups=PATIENTS):
    assert bags.ids.tolist() == list(ids)
    assert (None if bags.labels is None else bags.labels.tolist()) == labels
    assert (None if bags.groups is None else bags.groups.tolist()) == groups
    for number, name in enumerate(ids):
        np.testing.assert_array_equal(bags[number], features(name))
        assert bags.sources[number].split("/")[-1].startswith(name)


def test_clam_folder_and_labels(folder, table):
    bags = read_bags(folder, labels=table(CLAM), positive="tumor")
    check(bags)
    assert bags.places(1).tolist() == np.arange(2 * bags.sizes[1]).reshape(-1, 2).tolist()
    again = read_bags(folder, labels=table(CLAM), positive="normal")
    assert again.labels.tolist() == [1 - label for label in LABELS]


def test_clam_output_of_both_formats_reads_h5_and_says_so(folder, table):
    root = folder.parent / "out"
    (root / "pt_files").mkdir(parents=True)
    folder.rename(root / "h5_files")
    for name in SLIDES:
        torch.save(torch.from_numpy(features(name)), root / "pt_files" / f"{name}.pt")
    with pytest.warns(UserWarning, match=r"\.h5 and \.pt files: the \.h5 files are read"):
        bags = read_bags(root, labels=table(CLAM), positive="tumor")
    assert bags.coords is not None
    check(bags)
    check(read_bags(root / "pt_files", labels=table(CLAM), positive="tumor"))


def test_trident_folder(folder, table):
    root = folder.parent / "20x_256px_0px_overlap"
    root.mkdir()
    folder.rename(root / "features_uni_v1")
    (root / "patches").mkdir()
    write_h5(root / "patches" / "c_patches.h5", "c", key="none")
    (root / "features_uni_v1" / "_config.json").write_text("{}")
    labels = table(CLAM)
    check(read_bags(root, labels=labels, positive="tumor"))
    write_h5(root / "features_conch_v15" / "c.h5", "c")
    with pytest.raises(BagDataError, match="one folder of features, got features_conch_v15, features_uni_v1"):
        read_bags(root, labels=labels, positive="tumor")


def test_stamp_tables(folder, table):
    for name in SLIDES:
        write_h5(folder / f"{name}.h5", name, key="feats")
    clini = table("PATIENT,MSI,AGE\nA,MSIH,50\nB,nonMSIH,60\nC,MSIH,\nD,nonMSIH,1\n", "clini.csv")
    rows = "".join(f"{name}.h5,{patient}\n" for name, patient in zip(SLIDES, PATIENTS))
    slides = table("FILENAME,PATIENT\n" + rows, "slides.csv")
    columns = {"labels": clini, "slides": slides, "label_column": "MSI", "positive": "MSIH"}
    check(read_bags(folder, **columns))
    bags = read_bags(folder, **columns, bag_by="patient")
    assert bags.ids.tolist() == ["A", "B", "C", "D"]
    assert bags.labels.tolist() == [1, 0, 1, 0]
    assert bags.groups is None
    np.testing.assert_array_equal(bags[0], np.concatenate([features(SLIDES[0]), features(SLIDES[1])]))
    assert len(bags.places(0)) == bags.sizes[0]
    assert bags.sources[0].count(".h5") == 2
    with pytest.raises(BagDataError, match=r"none for 1 of 6: E .*missing='skip'"):
        read_bags(folder, **{**columns, "labels": table(clini.read_text() + "E,MSIH,9\n", "more.csv")})
    other = clini.read_text().replace("A,", "1.0,").replace("B,", "2,").replace("C,", "3,").replace("D,", "4,")
    with pytest.raises(BagDataError, match=r"patients of both tables, got none: 1\.0, 2, 3 in .*A, B, C in .*slides"):
        read_bags(folder, **{**columns, "labels": table(other, "other.csv")})


@pytest.mark.parametrize(
    ("name", "options"), [("split", {}), ("fold", {"split": "fold"}), ("site", {"groups": "site"})]
)
def test_two_rows_of_a_patient_that_contradict_each_other_are_refused(folder, table, name, options):
    clini = table(f"PATIENT,label,{name}\nA,1,train\nA,1,test\nB,0,test\n", "clini.csv")
    slides = table("FILENAME,PATIENT\nc.h5,A\nd.h5,B\n", "slides.csv")
    message = f"one {name} in a file, got train and test .*clini.csv, line 3, column {name}, file c"
    with pytest.warns(UserWarning, match="3 of 5 files have no label"), pytest.raises(BagDataError, match=message):
        read_bags(folder, labels=clini, slides=slides, **options)


def test_dsmil_folder(tmp_path):
    lines = ["0,label"]
    for name, label in zip(SLIDES, LABELS):
        place = tmp_path / "mil" / ("tumor" if label else "normal") / f"{name}.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(features(name)).to_csv(place, index=False, float_format="%.9g")
        lines.append(f"datasets/mil/{place.parent.name}/{name}.csv,{label}")
    labels = tmp_path / "mil" / "mil.csv"
    labels.write_text("\n".join(lines))
    bags = read_bags(tmp_path / "mil", labels=labels)
    order = np.argsort(SLIDES)
    check(bags, ids=[SLIDES[i] for i in order], labels=[LABELS[i] for i in order], groups=None)


@pytest.mark.parametrize("suffix", ["npy", "npz", "pt"])
def test_folders_of_arrays(tmp_path, table, suffix):
    (tmp_path / "bags").mkdir()
    for name in SLIDES:
        path = tmp_path / "bags" / f"{name}.{suffix}"
        x = features(name)
        {"npy": np.save, "npz": np.savez, "pt": lambda p, a: torch.save(torch.from_numpy(a), p)}[suffix](path, x)
    check(read_bags(tmp_path / "bags", labels=table(CLAM), positive="tumor"))


def test_ids_are_matched_with_suffix_folder_and_case(folder, table):
    text = CLAM.replace("TCGA.A-01", "raw/tcga.a-01.SVS").replace(",c,", ",C.svs,").replace("d,n", "d.ome.tif,n")
    check(read_bags(folder, labels=table(text), positive="tumor"))
    write_h5(folder / "C.h5", "c")
    exact = CLAM + "C,C,tumor\n"
    with pytest.warns(UserWarning, match="bags C and c"):
        bags = read_bags(folder, labels=table(exact), positive="tumor")
    assert bags.ids.tolist() == sorted([*SLIDES, "C"])


def test_files_of_one_name_in_class_folders_stay_apart(tmp_path, table):
    place = tmp_path / "cls"
    for name in ("normal/0", "tumor/0", "tumor/1"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{name}.npy", features(name))
    ids = ["normal/0", "tumor/0", "tumor/1"]
    bare = read_bags(place, require_labels=False)
    assert bare.ids.tolist() == ids
    rows = "id,label\ndata/cls/normal/0.csv,0\nTumor/0,1\n1.npy,1\n"
    bags = read_bags(
        place, labels=table(rows), split_file=table("id,split\nnormal/0,train\ntumor/0.npy,val\n1,test\n", "s.csv")
    )
    assert bags.ids.tolist() == ids
    assert bags.labels.tolist() == [0, 1, 1]
    assert bags.splits.tolist() == ["train", "val", "test"]
    for number, name in enumerate(ids):
        np.testing.assert_array_equal(bags[number], features(name))
        np.testing.assert_array_equal(bare[number], features(name))
    again = read_bags(write_store(bare, tmp_path / "store"), labels=table(rows))
    assert again.labels.tolist() == [0, 1, 1]
    with pytest.raises(BagDataError, match="one file '0', got 'normal/0' and 'tumor/0'"):
        read_bags(place, labels=table("id,label\n0,0\n1,1\n"))


@pytest.mark.parametrize("names", [("a.h5", "a.hdf5"), ("h5_files/a.h5", "features_uni/a.h5")])
def test_files_of_one_name_are_refused(tmp_path, names):
    for name in names:
        write_h5(tmp_path / "slides" / name, name)
    with pytest.raises(BagDataError, match=f"got {names[0]} and {names[1]} .*manifest"):
        read_bags(tmp_path / "slides", require_labels=False)


def test_two_columns_that_name_different_files_are_refused(tmp_path, table):
    (tmp_path / "bags").mkdir()
    for number in range(3):
        np.save(tmp_path / "bags" / f"{number}.npy", features(str(number)))
    path = table("id,slide_number,file,label\n0,2,2.svs,1\n1,0,0.svs,0\n2,1,1.svs,0\n")
    with pytest.raises(ConfigError, match=r"got 'id' and 'slide_number', which .*labels\.csv.*`bag_column`"):
        read_bags(tmp_path / "bags", labels=path)
    assert read_bags(tmp_path / "bags", labels=path, bag_column="file").labels.tolist() == [0, 0, 1]
    agree = table("file,slide_number,age,label\n2.svs,2,1,1\n0.svs,0,1,0\n1.svs,1,2,0\n")
    assert read_bags(tmp_path / "bags", labels=agree).labels.tolist() == [0, 0, 1]
    bags = read_bags(tmp_path / "bags", require_labels=False)
    splits = table("id,slide_number,split\n0,2,test\n1,0,train\n2,1,train\n", "s.csv")
    with pytest.raises(ConfigError, match="'id' and 'slide_number'"):
        read_bags(write_store(bags, tmp_path / "store"), split_file=splits)


@pytest.mark.parametrize(
    ("text", "names"), [("x/c.svs,1\ny/c.svs,1", ("x/c.svs", "y/c.svs")), ("C,1\nc,1", ("C", "c"))]
)
def test_two_names_of_one_file_are_refused(folder, table, text, names):
    message = f"one name of a file, got {names[0]} and {names[1]} .*line 3, column id, file c"
    with pytest.warns(UserWarning, match="4 of 5 files have no label"), pytest.raises(BagDataError, match=message):
        read_bags(folder, labels=table(f"id,label\n{text}\n"))
    with pytest.warns(UserWarning, match="4 of 5 files have no label"):
        assert read_bags(folder, labels=table("id,label\nc,1\nc,1\n")).ids.tolist() == ["c"]


def test_names_keep_their_dots():
    assert strip_suffix("a.b.1") == "a.b.1"
    assert strip_suffix(".svs") == ".svs"
    index = NameIndex(["a.1", "a.2", "x.svs"])
    for names, name in ((["a.svs", "a"], "x/a"), (["Ab", "aB"], "AB.tif")):
        with pytest.raises(BagDataError, match=f"one file '{name}', got '{names[0]}' and '{names[1]}'"):
            NameIndex(names).find(name)
    assert [index.find(name) for name in ("a.1", "a.2.svs", "x", "a", "X.SVS")] == [0, 1, 2, None, 2]


def test_the_column_of_the_files_is_found_or_given(folder, table):
    renamed = table(CLAM.replace("slide_id", "image").replace("case_id", "who"))
    bags = read_bags(folder, labels=renamed, positive="tumor")
    check(bags, groups=None)
    check(read_bags(folder, labels=renamed, positive="tumor", bag_column="image", groups="who"))
    with pytest.raises(BagDataError, match=r"column 'img' of `bag_column`, got none .*did you mean 'image'"):
        read_bags(folder, labels=renamed, positive="tumor", bag_column="img")
    with pytest.raises(BagDataError, match=r"names the files, such as 'TCGA.A-01'.*`bag_column`.*`slides`"):
        read_bags(folder, labels=table("id,label\nx,1\n"))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (CLAM.replace("tumor", "lusc"), {}, "labels 0 and 1 in column label, got lusc, normal .*positive='lusc'"),
        (CLAM, {"positive": "cancer"}, "positive value 'cancer' .*got normal, tumor"),
        (CLAM, {"label_column": "grade", "positive": "1"}, "column 'grade' of `label_column`, got none"),
        (CLAM, {"positive": "tumor", "groups": "site"}, "column 'site'"),
        (CLAM + "E,e,tumor\nF,f,tumor\n", {"positive": "tumor"}, "none for 2 of 7: e, f .*missing='skip'"),
        (CLAM + "A,c,tumor\n", {"positive": "tumor"}, "one case_id in a file, got C and A .*line 7, .*file c"),
        (CLAM + "C,c,normal\n", {"positive": "tumor"}, "one label in a file, got tumor and normal .*line 7, .*file c"),
        (CLAM.replace("A,TCGA.A-02,tumor", "A,TCGA.A-02,normal"), {"positive": "tumor", "bag_by": "patient"},
         "one label in a bag, got tumor and normal .in .*labels.csv, line 3, .*bag A"),
        (CLAM.replace("\nC,", "\n,"), {"positive": "tumor"}, "a case_id in each row, got none .*line 5, .*file c"),
        (CLAM.replace("case_id", "center"), {"positive": "tumor", "bag_by": "patient"}, "column of patients"),
        ("case_id,slide_id,label\n", {}, "at least one row"),
        ("case_id,slide_id,label\nA,c,1,9\n", {}, "as many fields in each line, got"),
    ],
)  # fmt: skip
def test_bad_label_tables_are_named(folder, table, text, options, message):
    path = table(text)
    with pytest.raises(BagDataError, match=message) as caught:
        read_bags(folder, labels=path, **options)
    assert "labels.csv" in str(caught.value) or "slides" in str(caught.value)


def test_files_without_a_label_are_left_out_with_a_warning(folder, table):
    text = CLAM.replace("C,c,tumor\n", "").replace("D,d,normal", "D,d,")
    with (
        pytest.warns(UserWarning, match="1 of 4 rows have no label"),
        pytest.warns(UserWarning, match="2 of 5 files have no label and are left out: c, d"),
    ):
        bags = read_bags(folder, labels=table(text), positive="tumor")
    check(bags, ids=SLIDES[:3], labels=LABELS[:3], groups=PATIENTS[:3])


def test_labels_without_a_file_are_skipped_on_demand(folder, table):
    text = CLAM + "E,e,tumor\n"
    with pytest.warns(UserWarning, match="1 of 6 rows have no file and are left out: e"):
        check(read_bags(folder, labels=table(text), positive="tumor", missing="skip"))


def test_unlabeled_folders_are_read_on_demand(folder, table):
    with pytest.raises(ConfigError, match="`labels` with"):
        read_bags(folder)
    check(read_bags(folder, require_labels=False), labels=None, groups=None)
    bare = table("\n".join(line.rsplit(",", 1)[0] for line in CLAM.splitlines()))
    check(read_bags(folder, labels=bare, require_labels=False), labels=None)
    assert len(read_bags(folder, labels=bare, require_labels=False, bag_by="patient")) == 4
    with pytest.raises(ConfigError, match="a table of patients"):
        read_bags(folder, require_labels=False, bag_by="patient")


def test_folders_without_features_are_named(tmp_path, table):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.txt").touch()
    for name, message in (("empty", "got an empty folder"), ("text", "got notes.txt")):
        with pytest.raises(BagDataError, match=message):
            read_bags(tmp_path / name, labels=table(CLAM))
    (tmp_path / "empty" / "a.npy").touch()
    with pytest.raises(DataNotFoundError, match=r"absent\.csv"):
        read_bags(tmp_path / "empty", labels=tmp_path / "absent.csv")


def test_a_bad_file_of_a_folder_is_named(folder, table):
    (folder / "d.h5").write_bytes((folder / "c.h5").read_bytes()[:700])
    with pytest.raises(BagDataError, match=r"d\.h5"):
        read_bags(folder, labels=table(CLAM), positive="tumor")


CLAM_SPLITS = ",train,val,test\n0,TCGA.A-01,c,d\n1,TCGA.A-02,,\n2,TCGA.B-01,,\n"
CLAM_BOOL = (
    ",train,val,test\nTCGA.A-01,True,False,False\nTCGA.A-02,True,False,False\nTCGA.B-01,True,False,False\n"
    "c,False,True,False\nd,False,False,True\n"
)
BENCH = (
    "case_id\tslide_id\tlabel\tfold_0\tfold_1\nA\tTCGA.A-01\t1\ttrain\ttest\nA\tTCGA.A-02\t1\ttrain\ttest\n"
    "B\tTCGA.B-01\t0\ttrain\ttrain\nC\tc\t1\tval\ttrain\nD\td\t0\ttest\ttrain\n"
)
BENCH_CASES = "case_id\tlabel\tfold_0\nA\t1\ttrain\nB\t0\ttrain\nC\t1\tval\nD\t0\ttest\n"
EXPECTED = ["train", "train", "train", "val", "test"]


def read_split(folder, table, path, **options):
    return read_bags(folder, labels=table(CLAM), positive="tumor", split_file=path, **options)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        (CLAM_SPLITS, "splits_0.csv", {}),
        (CLAM_SPLITS, "splits_0.csv", {"fold": 0}),
        (CLAM_SPLITS, "any.csv", {}),
        (CLAM_BOOL, "splits_0_bool.csv", {}),
        (BENCH, "k=all.tsv", {"fold": 0}),
        (BENCH_CASES, "k=all.tsv", {"fold": 0}),
        ("id,split\n" + "".join(f"{n}.svs,{s.title()}\n" for n, s in zip(SLIDES, EXPECTED)), "s.csv", {}),
        ("patient,split\nA,train\nB,train\nC,validation\nD,test\n", "s.csv", {}),
    ],
)  # fmt: skip
def test_split_tables(folder, table, text, name, options):
    bags = read_split(folder, table, table(text, name), **options)
    assert bags.splits.tolist() == EXPECTED
    check(bags)


def test_folds_of_a_folder_and_of_columns(folder, table, tmp_path):
    (tmp_path / "splits").mkdir()
    table(CLAM_SPLITS, "splits/splits_0.csv")
    table(CLAM_SPLITS.replace("c,d", "d,c"), "splits/splits_1.csv")
    assert read_split(folder, table, tmp_path / "splits", fold=0).splits.tolist() == EXPECTED
    assert read_split(folder, table, tmp_path / "splits", fold=1).splits.tolist()[3:] == ["test", "val"]
    with pytest.raises(ConfigError, match=r"`fold` with a folder.*splits_0\.csv, splits_1\.csv"):
        read_split(folder, table, tmp_path / "splits")
    with pytest.raises(DataNotFoundError, match=r"splits_7\.csv, got splits_0\.csv"):
        read_split(folder, table, tmp_path / "splits", fold=7)
    with pytest.raises(ConfigError, match=r"fold 1 with splits_1\.csv, got `fold=0`"):
        read_split(folder, table, tmp_path / "splits" / "splits_1.csv", fold=0)
    bench = table(BENCH, "k=all.tsv")
    assert read_split(folder, table, bench, fold=1).splits.tolist() == ["test", "test", "train", "train", "train"]
    for fold in (None, 5):
        with pytest.raises(ConfigError, match="one of 0, 1, got"):
            read_split(folder, table, bench, fold=fold)
    with pytest.raises(ConfigError, match=r"columns fold_0, .* with `fold`, got"):
        read_split(folder, table, table(CLAM_SPLITS, "s.csv"), fold=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLAM_SPLITS.replace("c,d", "c,x"), "names of bags of .*slides, got 1 unknown: x"),
        (CLAM_SPLITS.replace("c,d", "c,c"), "one split for c, got val and test"),
        (CLAM_BOOL.replace("c,False", "c,True"), "one split, got train and val .*, c"),
        ("id,part\nc,train\n", "train, val, test, or fold_0, ..., or split, got id, part"),
        ("id,split\nc,dev\n", "got 'dev'"),
        ("id,split\nx,train\n", "names the files"),
        (",train,test\n0,x,y\n", "got 2 unknown: x, y"),
    ],
)
def test_bad_split_tables_are_named(folder, table, text, message):
    with pytest.raises(BagDataError, match=message) as caught:
        read_split(folder, table, table(text, "s.csv"))
    assert "s.csv" in str(caught.value)


def test_bags_and_names_that_do_not_meet(folder, table):
    partial = table("id,split\nc,train\nd,test\n", "s.csv")
    with pytest.warns(UserWarning, match="3 of 5 bags have no split and are left out: TCGA.A-01"):
        assert read_split(folder, table, partial).splits.tolist() == ["train", "test"]
    unknown = table(CLAM_SPLITS + "3,x,,\n", "s.csv")
    assert read_split(folder, table, unknown, missing="skip").splits.tolist() == EXPECTED


def test_splits_of_the_label_table(folder, table):
    lines = CLAM.splitlines()
    text = "\n".join([lines[0] + ",part", *(f"{line},{split}" for line, split in zip(lines[1:], EXPECTED))])
    bags = read_bags(folder, labels=table(text), positive="tumor", split="part")
    assert bags.splits.tolist() == EXPECTED
    with pytest.raises(ConfigError, match="`split` or `split_file`"):
        read_split(folder, table, table(CLAM_SPLITS, "s.csv"), split="part")


def test_manifest(folder, table):
    text = "bag,path,label,group,split\n" + "".join(
        f"{patient},slides/{name}.h5,{label},g{patient},{split}\n"
        for name, patient, label, split in zip(SLIDES, PATIENTS, LABELS, EXPECTED)
    )
    bags = read_bags(table(text))
    assert bags.ids.tolist() == ["A", "B", "C", "D"]
    assert bags.labels.tolist() == [1, 0, 1, 0]
    assert bags.groups.tolist() == ["gA", "gB", "gC", "gD"]
    assert bags.splits.tolist() == ["train", "train", "val", "test"]
    np.testing.assert_array_equal(bags[0], np.concatenate([features(SLIDES[0]), features(SLIDES[1])]))
    scattered = text.splitlines()
    scattered = "\n".join([scattered[0], *sorted(scattered[1:], key=lambda line: line.split("/")[1][-5])])
    again = read_bags(table(scattered))
    for bag in "ABCD":
        number, other = again.ids.tolist().index(bag), bags.ids.tolist().index(bag)
        np.testing.assert_array_equal(again[number], bags[other])
    assert read_bags(table(text.replace(",1,", ",yes,").replace(",0,", ",no,")), positive="yes").labels.tolist() == [
        *(1, 0, 1, 0)
    ]


NAMES_OF_PATIENTS = [
    "patient",
    "PATIENT",
    "Patient_ID",
    "PatientID",
    "case_id",
    "subject",
    "Subject_ID",
    "participant_id",
    "Patient ID",
    "case-id",
]


@pytest.mark.parametrize("name", NAMES_OF_PATIENTS)
def test_patients_of_manifests_and_label_tables_are_groups(folder, table, name):
    rows = [f"{slide},slides/{slide}.h5,{n % 2},{'pq'[n // 3]}" for n, slide in enumerate(SLIDES)]
    manifest = "\n".join([f"bag,path,label,{name}", *rows])
    expected = ["p", "p", "p", "q", "q"]
    assert read_bags(table(manifest)).groups.tolist() == expected
    assert read_bags(folder, labels=table(manifest.replace("path,", "note,"))).groups.tolist() == expected
    # The manifest's own column of groups goes first, and a column that was named before both.
    both = "\n".join(["bag,path,label,group,site," + name, *(f"{row[:-2]},g,s{row[-1]},{row[-1]}" for row in rows)])
    assert read_bags(table(both)).groups.tolist() == ["g"] * 5
    assert read_bags(table(both), groups="site").groups.tolist() == ["sp", "sp", "sp", "sq", "sq"]


@pytest.mark.parametrize("name", ["PatientNo", "MRN", "person id", "Pat. Nr"])
def test_a_column_that_may_name_patients_is_asked_about_where_nothing_gives_groups(folder, table, name):
    rows = [f"{slide},slides/{slide}.h5,{n % 2},{'pq'[n // 3]}" for n, slide in enumerate(SLIDES)]
    manifest = "\n".join([f"bag,path,label,{name}", *rows])
    for given, options in (
        (table(manifest), {}),
        (folder, {"labels": table(manifest.replace("path,", "note,"), "l.csv")}),
    ):
        with pytest.warns(UserWarning, match=f"if {name} names patients .*give `groups='{name}'`"):
            assert read_bags(given, **options).groups is None
        assert read_bags(given, groups=name, **options).groups.tolist() == ["p", "p", "p", "q", "q"]
        assert read_bags(given, require_labels=False, **options).groups is None


def test_patients_of_a_manifest_are_in_one_split_and_bags_by_patient_have_no_groups(folder, table):
    text = "patient,path,label,split\np,slides/c.h5,1,train\np,slides/d.h5,1,train\nq,slides/TCGA.A-01.h5,0,test\n"
    bags = read_bags(table(text), bag_column="patient")
    assert (bags.ids.tolist(), bags.groups) == (["p", "q"], None)
    text = "bag,path,label,patient,split\na,slides/c.h5,1,p,train\nb,slides/d.h5,0,p,test\n"
    bags = read_bags(table(text))
    with pytest.raises(LeakageError, match="p in test and train"):
        check_disjoint(bags.splits, bags.groups)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("bag,path\na,slides/c.h5\n", BagDataError, "column 'label'"),
        ("bag,path,label,patient\na,slides/c.h5,1,\n", BagDataError, "a patient in each row, got none .*line 2"),
        ("name,path,label\na,slides/c.h5,1\n", BagDataError, "column 'bag'"),
        ("bag,path,label\na,slides/x.h5,1\n", DataNotFoundError, "1 of 1 rows: slides/x.h5"),
        ("bag,path,label\na,slides/c.h5,1\na,slides/d.h5,0\n", BagDataError, "one label in a bag, got 1 and 0"),
        ("bag,path,label\na,slides/c.h5,\n", BagDataError, "a label in each row, got none .*line 2"),
        ("bag,path,label\na,slides/c.h5,2\n", BagDataError, "labels 0 and 1 in column label, got 2"),
        (
            "bag,path,label\na,slides/c.h5,1\na,slides/c.h5,1\n",
            BagDataError,
            "a file once in a bag, got 'slides/c.h5' .*line 3, .*bag a",
        ),
    ],
)
def test_bad_manifests_are_named(folder, table, text, error, message):
    with pytest.raises(error, match=message) as caught:
        read_bags(table(text))
    assert "labels.csv" in str(caught.value)


def test_files_whose_zeros_a_table_has_lost_are_named(tmp_path, table):
    for name in ("007", "008"):
        write_h5(tmp_path / "scans" / f"{name}.h5", "c")
    with pytest.raises(BagDataError, match="007 and 7 differ; name it with"):
        read_bags(tmp_path / "scans", labels=table("slide,label\n7,1\n8,0\n"))


def test_a_file_in_two_bags_of_a_manifest_is_named(folder, table):
    path = table("bag,path,label\na,slides/c.h5,1\na,slides/d.h5,1\nb,slides/c.h5,0\n")
    with pytest.warns(UserWarning, match=r"c\.h5 is in several bags .*line 4, bag b"):
        assert read_bags(path).ids.tolist() == ["a", "b"]
    path = table("bag,path,label,group\na,slides/c.h5,1,p\na,slides/d.h5,1,p\nb,slides/c.h5,0,p\n")
    assert read_bags(path).groups.tolist() == ["p", "p"]
    with pytest.raises(BagDataError, match=r"a file once in a bag, got .*line 3, column path"):
        read_bags(table("bag,path,label\na,slides/c.h5,1\na,slides/../slides/c.h5,1\n"))


def test_rows_of_a_manifest_without_a_file_are_skipped_on_demand(folder, table):
    path = table("bag,path,label\na,slides/c.h5,1\nb,slides/x.h5,0\n")
    with pytest.warns(UserWarning, match="1 of 2 rows: slides/x.h5"):
        assert read_bags(path, missing="skip").ids.tolist() == ["a"]


def test_a_column_of_paths_that_is_ignored_makes_no_manifest(table):
    bags = read_bags(table("bag,label,path,x\na,1,p,0.5\nb,0,q,1\n"), ignore=["path"])
    assert bags.instance_shape == (1,)


def test_settings_that_do_not_apply_are_refused(folder, table):
    labels = table(CLAM)
    tables = table("bag,label,x\na,1,0\n", "t.csv")
    for path, options, message in (
        (folder, {"labels": labels, "positive": "tumor", "coords": ["x"]}, "no `coords` with a folder"),
        (tables, {"labels": labels}, "no `labels` with a table"),
        (tables, {"bag_by": "patient"}, "no `bag_by` with a table"),
        ("digits", {"labels": labels}, "no `labels` with a set of digits"),
        ("digits", {"fold": 1}, "`split_file` with `fold`"),
        (folder, {"slides": labels}, "`labels` with `slides`"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_bags(path, **options)
    with pytest.raises(ConfigError, match="no `labels` with a table"):
        read_bags(tables, labels=labels, require_labels=False)
    assert len(read_bags(tables, bag_by="patient", require_labels=False)) == 1


def test_a_store_takes_other_labels_and_splits(folder, table, tmp_path):
    write_store(read_bags(folder, labels=table(CLAM), positive="tumor"), tmp_path / "store")
    check(read_bags(tmp_path / "store"))
    other = table("bag,grade,case_id\nc,1,x\nd,0,y\nTCGA.A-01,1,z\n", "other.csv")
    with pytest.warns(UserWarning, match="2 of 5 files have no label"):
        bags = read_bags(tmp_path / "store", labels=other, label_column="grade")
    check(bags, ids=[SLIDES[0], "c", "d"], labels=[1, 1, 0], groups=["z", "x", "y"])
    splits = read_bags(tmp_path / "store", split_file=table(CLAM_SPLITS, "s.csv"))
    assert splits.splits.tolist() == EXPECTED
    turned = read_bags(tmp_path / "store", positive="normal")
    assert (turned.labels.tolist(), turned.classes) == ([1 - label for label in LABELS], ("tumor", "normal"))
    with pytest.raises(BagDataError, match=r"Expected the positive value 'benign' .*, got normal, tumor"):
        read_bags(tmp_path / "store", positive="benign")
    (tmp_path / "store" / "store.json").unlink()
    with pytest.raises(BagDataError, match="store"):
        read_bags(tmp_path / "store")


def test_nothing_is_warned_of_where_all_fits(folder, table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(read_bags(folder, labels=table(CLAM), positive="tumor"))


def test_what_the_files_say_goes_with_the_bag_and_into_a_store(folder, tmp_path):
    for number, path in enumerate(sorted(folder.iterdir())):
        with h5py.File(path, "a") as file:
            file["coords"].attrs["patch_size_level0"] = 256 + number
    bags = read_bags(folder, require_labels=False)
    stored = open_store(write_store(bags, tmp_path / "store"))
    for number, name in enumerate(bags.ids):
        expected = {f"{name}.h5": {"coords": {"patch_size_level0": 256 + number}}}
        assert bags.described(number) == stored.described(number) == expected
    assert bags.subset([2]).described(0) == bags.described(2)


def test_a_folder_next_to_loose_files_is_named_or_read_where_the_table_names_its_files(folder, table):
    (folder / "more").mkdir()
    (folder / "d.h5").rename(folder / "more" / "d.h5")
    with pytest.warns(UserWarning, match=r"4 of 5 files and folders are read.* unknown formats: more/ "):
        check(read_bags(folder, labels=table(CLAM.replace("D,d,normal\n", "")), positive="tumor"), **_FIRST_FOUR)
    for name in ("more/d", "more/d.h5", "more\\d.h5"):
        check(read_bags(folder, labels=table(CLAM.replace("D,d,", f"D,{name},")), positive="tumor"))


_FIRST_FOUR = {"ids": SLIDES[:4], "labels": LABELS[:4], "groups": PATIENTS[:4]}


def test_a_file_that_changes_after_the_first_look_is_refused(tmp_path):
    for number in range(2):
        write_h5(tmp_path / "f" / f"f{number}.h5", f"f{number}", x=np.full((3, D), number, np.float32))
    write_h5(tmp_path / "other.h5", "f1", x=np.full((3, D), 9, np.float32))
    bags = read_bags(tmp_path / "f", require_labels=False)
    assert (bags[1] == 1).all()
    (tmp_path / "f" / "f1.h5").write_bytes((tmp_path / "other.h5").read_bytes())
    assert (bags[0] == 0).all()
    with pytest.raises(BagDataError, match=r"the file as first read, got a changed one \(in .*f1.h5\)"):
        bags[1]


def test_columns_of_files_that_are_no_features_are_named(tmp_path, table):
    (tmp_path / "csv").mkdir()
    for n in range(4):
        x = pd.DataFrame({"area": [1.5, 0.5, 2.5], "stage": [1.0, 3.0, 2.0], "tile": [4, 9, 1]}) + n
        more = {"Patient ID": 100 + n // 2, "label": n % 2, "bag": n, "row": [0, 2, 5], "cell_label": [0, n % 2, 0]}
        x.assign(**more).to_csv(tmp_path / "csv" / f"s{n}.csv", index=False)
    labels = table("slide,label\n" + "".join(f"s{n},{n % 2}\n" for n in range(4)))
    with pytest.warns(UserWarning, match="are features: Patient ID, label, bag, row, cell_label") as warned:
        bags = read_bags(tmp_path / "csv", labels=labels)
    assert len(warned) == 1
    with warnings.catch_warnings(action="error"):
        read_bags(tmp_path / "csv", labels=labels, features=bags.feature_names)


@pytest.mark.filterwarnings("ignore:labels of the columns time and event")
@pytest.mark.parametrize("form", ["labels", "manifest", "survival"])
def test_folders_that_may_be_patients_are_named(tmp_path, form):
    """A table of files names no patients, and the splits would part their images."""
    names = [f"p{patient}/{number}" for patient in range(3) for number in range(2)]
    for name in names:
        (path := tmp_path / "d" / f"{name}.npy").parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.ones((2, 2)))
    label = (
        {"time": [3, 3, 5, 5, 4, 4], "event": [1, 1, 0, 0, 1, 1]}
        if form == "survival"
        else {"label": [0, 0, 1, 1, 0, 0]}
    )
    rows = {"bag": names, "path": [f"d/{name}.npy" for name in names]} if form == "manifest" else {"file": names}
    table = pd.DataFrame({**rows, **label})
    data, given = (tmp_path / "t.csv", {}) if form == "manifest" else (tmp_path / "d", {"labels": tmp_path / "t.csv"})
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="if the 3 folders of the files, such as p0, are patients, name them in a col"):
        read_bags(data, **given)
    table.assign(patient=[name[:2] for name in names]).to_csv(tmp_path / "t.csv", index=False)
    assert read_bags(data, **given).groups.tolist() == [name[:2] for name in names]
    if form == "labels":  # folders with both labels are no patients
        table.assign(label=[0, 1] * 3).to_csv(tmp_path / "t.csv", index=False)
        assert read_bags(data, **given).groups is None


@pytest.mark.parametrize(
    ("names", "labels", "first"),
    [
        (["P1_L_CC", "P1_R_CC", "P2_left", "P2_right"], [0, 1, 1, 1], "P1_L_CC, P1_R_CC"),
        (["7-OD", "7-OS", "8-OD", "8-OS"], [0, 1, 0, 1], "7-OD, 7-OS"),
        ([f"P{n // 2}_t{n % 2}" for n in range(6)], [0, 0, 1, 1, 1, 1], "P0_t0, P0_t1"),
        ([f"P{n // 2}_t{n % 2}" for n in range(6)], [0, 0, 1, 1, 0, 1], ""),  # one has both labels
        ([f"class{n // 2}_{n % 2}" for n in range(6)], [0, 0, 1, 1, 2, 2], ""),  # these are the classes
        (["l", "r", "left", "2019-1", "2019-2", "2020-1", "2020-2", "s1.0", "s1.1"], [0, 1] * 4 + [0], ""),
    ],
)
def test_names_that_may_be_of_one_patient_are_warned_of(tmp_path, names, labels, first):
    (tmp_path / "d").mkdir()
    for name in names:
        np.save(tmp_path / "d" / f"{name}.npy", np.random.default_rng(0).normal(size=(2, 2)))
    table = pd.DataFrame({"file": names, "label": labels})
    table.to_csv(tmp_path / "t.csv", index=False)
    options = {"labels": tmp_path / "t.csv", "target": "auto" if max(labels) < 2 else "multiclass"}
    words = f"names that differ in the side or end alone, such as {first}: if these are of one patient"
    with pytest.warns(UserWarning, match=words) if first else nullcontext():
        read_bags(tmp_path / "d", **options)
    table.assign(patient=[name[:2] for name in names]).to_csv(tmp_path / "t.csv", index=False)
    assert read_bags(tmp_path / "d", **options).groups is not None


def test_folders_that_may_be_splits_are_named(tmp_path):
    names = ["train/a", "train/b", "Test/c", "Test/d"]
    for name in names:
        (path := tmp_path / "d" / f"{name}.npy").parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.ones((2, 2)))
    table = pd.DataFrame({"file": names, "label": [0, 1] * 2})
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.warns(UserWarning, match="the folders Test, train are not used as splits: give the table a column"):
        read_bags(tmp_path / "d", labels=tmp_path / "t.csv")
    table.assign(split=[name.split("/")[0] for name in names]).to_csv(tmp_path / "t.csv", index=False)
    assert read_bags(tmp_path / "d", labels=tmp_path / "t.csv").splits.tolist() == ["train"] * 2 + ["test"] * 2
