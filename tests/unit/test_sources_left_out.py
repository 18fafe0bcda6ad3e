"""Files of a folder that cannot be used: what is left out, what is said of it, and what is refused."""

import csv
import gzip
import shutil
from contextlib import nullcontext
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pydicom
import pytest
import torch
import zarr
from PIL import Image
from tests.unit.test_sources_dicom_kinds import flat
from tests.unit.test_sources_volumes import body, save_nifti, save_series

from midam.cli import main
from midam.data.sources import read_bags
from midam.data.sources.request import ImageOptions
from midam.errors import BagDataError, Note
from midam.runs.apply import read_for
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run, predict_run
from midam.settings import Settings

D = 4


def write_h5(path, x):
    with h5py.File(path, "w") as file:
        file["feats"] = x


def write_zarr(path, x):
    zarr.save(str(path), features=x)


def write_csv(path, x):
    path.write_text("\n".join([",".join(f"f{n}" for n in range(D)), *(",".join(map(str, row)) for row in x)]) + "\n")


def write_png(path, x):
    Image.fromarray((np.asarray(x) * 255).astype(np.uint8)).save(path)


FEATURES = {  # formats of features, with what writes them
    "h5": write_h5,
    "pt": lambda path, x: torch.save(torch.from_numpy(np.asarray(x)), path),
    "npy": np.save,
    "npz": lambda path, x: np.savez(path, features=x),
    "zarr": write_zarr,
    "csv": write_csv,
}


def rows(count=3, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(count, D)).astype(dtype)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def table(folder, names="abcd"):
    path = folder.parent / "labels.csv"
    path.write_text("\n".join(["file,label", *(f"{name},{number % 2}" for number, name in enumerate(names))]))
    return path


@pytest.mark.parametrize("kind", FEATURES)
def test_a_file_without_instances_is_left_out_with_a_count(folder, kind):
    for seed, name in enumerate("abc"):
        FEATURES[kind](folder / f"{name}.{kind}", rows(seed=seed))
    FEATURES[kind](folder / f"d.{kind}", rows(0))
    words = rf"1 of 4 files are left out: d\.{kind}: Expected at least one instance, .*; 1 bag has no other file: d"
    with pytest.warns(UserWarning, match=words) as caught:
        bags = read_bags(folder, labels=table(folder))
    assert len(caught) == 1
    assert bags.ids.tolist() == ["a", "b", "c"]
    (lost,) = bags.left_out
    assert (lost.bag, lost.file, lost.kept) == ("d", str(folder / f"d.{kind}"), 0)


def test_files_that_are_left_out_for_several_reasons_are_a_list(folder):
    for seed, name in enumerate("abc"):
        write_h5(folder / f"{name}.h5", rows(seed=seed))
    write_h5(folder / "d.h5", rows(0))
    (folder / "e.h5").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="left out") as caught:
        read_bags(folder, require_labels=False, missing="skip")
    head, *lines = str(caught[0].message).split("\n")
    assert head == f"2 of 5 files are left out; 2 bags have no other file: d, e (in {folder}):"
    assert [line[:17] for line in lines] == ["- d.h5: Expected ", "- e.h5: Expected "]


@pytest.mark.parametrize("shape", [(0,), (0, 0), (1, 0, D), (0, D)])
def test_no_instances_are_none_in_any_shape(folder, shape):
    write_h5(folder / "a.h5", rows())
    write_h5(folder / "b.h5", np.empty(shape, np.float32))
    with pytest.warns(UserWarning, match="left out"):
        assert read_bags(folder, require_labels=False).ids.tolist() == ["a"]


def test_a_patient_keeps_the_other_slides(folder):
    for seed, name in enumerate("abc"):
        write_h5(folder / f"{name}.h5", rows(seed=seed))
    write_h5(folder / "d.h5", rows(0))
    path = folder.parent / "labels.csv"
    path.write_text("patient,slide,label\np1,a,0\np2,b,1\np2,d,1\np3,c,0")
    with pytest.warns(UserWarning, match=r"1 of 4 files are left out: d\.h5"):
        bags = read_bags(folder, labels=path, bag_by="patient")
    assert (bags.ids.tolist(), bags.sizes.tolist(), bags.labels.tolist()) == (["p1", "p2", "p3"], [3, 3, 3], [0, 1, 0])
    assert [(lost.bag, lost.kept) for lost in bags.left_out] == [("p2", 1)]
    np.testing.assert_array_equal(bags[1], rows(seed=1))


def test_files_without_instances_alone_are_refused(folder):
    for name in "ab":
        write_h5(folder / f"{name}.h5", rows(0))
    with pytest.raises(BagDataError, match=r"at least one instance, got none .*2 such: a\.h5, b\.h5"):
        read_bags(folder, labels=table(folder, "ab"))


@pytest.mark.parametrize("kind", [kind for kind in FEATURES if kind != "csv"])
@pytest.mark.parametrize(
    ("types", "read_as"),
    [
        (("float16", "float32"), "float32"),
        (("float32", "float64"), "float64"),
        (("float16", "int32"), "float64"),
        (("uint8", "float32"), "float32"),
        (("uint8", "int8"), "int16"),
    ],
)
def test_features_of_several_types_are_widened_with_a_note(folder, kind, types, read_as):
    values = [np.arange(12).reshape(3, D).astype(types[name == "c"]) + 1 for name in "abc"]
    for name, x in zip("abc", values):
        FEATURES[kind](folder / f"{name}.{kind}", x)
    words = rf"features of several types \(2 of {types[0]}, 1 of {types[1]} files\) are read as {read_as}"
    with pytest.warns(UserWarning, match=words):
        bags = read_bags(folder, require_labels=False)
    assert bags.instances.dtype == read_as
    for number, x in enumerate(values):
        np.testing.assert_array_equal(bags[number], x)


def cut(path):
    if path.is_dir():
        shutil.rmtree(path)
        path.mkdir()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def text(path):
    if path.is_dir():
        shutil.rmtree(path)
    path.write_bytes(b"no such file")


def empty(path):
    if path.is_dir():
        shutil.rmtree(path)
    path.write_bytes(b"")


def dead_link(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.with_name("moved"))


SPOILED = {"cut": cut, "text": text, "empty": empty, "dead link": dead_link}


@pytest.mark.parametrize("kind", [kind for kind in FEATURES if kind != "csv"])
@pytest.mark.parametrize("fault", [*SPOILED, "dead link", "nan", "one infinite", "another width"])
def test_features_that_cannot_be_used_are_refused_or_skipped(folder, kind, fault):
    for seed, name in enumerate("abc"):
        FEATURES[kind](folder / f"{name}.{kind}", rows(seed=seed))
    x, path = rows(40, seed=3), folder / f"d.{kind}"
    x = np.concatenate([x, x], axis=1) if fault == "another width" else x
    x[:] = np.nan if fault == "nan" else x
    x[20, 1] = np.inf if fault == "one infinite" else x[20, 1]
    FEATURES[kind](path, x)
    SPOILED.get(fault, lambda path: None)(path)
    with pytest.raises(BagDataError, match=rf"d\.{kind}.*missing='skip'"):
        read_bags(folder, labels=table(folder)).check()  # what is not finite is found when it is read
    with pytest.warns(UserWarning, match=r"1 of 4 files are left out: d\."):
        bags = read_bags(folder, labels=table(folder), missing="skip")
    assert bags.ids.tolist() == ["a", "b", "c"]
    assert [(lost.bag, lost.file) for lost in bags.left_out] == [("d", str(path))]
    bags.check()


def write_nifti(path, seed):
    save_nifti(path, body((6, 6, 6), seed))


def write_dicom(path, seed):
    save_series(path, body((6, 6, 6), seed))


def spoil_dicom(path):
    file = pydicom.dcmread(sorted(path.iterdir())[2])
    file.PixelData = file.PixelData[:-4]
    file.save_as(sorted(path.iterdir())[2])


def half_of_a_zip(path):
    path.write_bytes(gzip.compress(b"no volume"))


SCANS = {
    "nii.gz": (write_nifti, half_of_a_zip),
    "nii": (write_nifti, cut),
    "dicom": (write_dicom, spoil_dicom),
    "png": (lambda path, seed: write_png(path, np.random.default_rng(seed).random((32, 32))), cut),
    "tif": (lambda path, seed: write_png(path, np.random.default_rng(seed).random((32, 32))), cut),
    "jpg": (lambda path, seed: write_png(path, np.random.default_rng(seed).random((32, 32))), text),
}


@pytest.mark.parametrize("kind", SCANS)
def test_scans_and_images_that_cannot_be_used_are_refused_or_skipped(folder, kind):
    write, spoil = SCANS[kind]
    paths = {name: folder / (name if kind == "dicom" else f"{name}.{kind}") for name in "abcd"}
    for seed, path in enumerate(paths.values()):
        write(path, seed)
    spoil(paths["d"])
    how = {"labels": table(folder), "images": ImageOptions(patch_size=16) if kind in ("png", "tif", "jpg") else None}
    how = {name: value for name, value in how.items() if value is not None}
    with pytest.raises(BagDataError, match=r"d.*missing='skip'"):
        read_bags(folder, **how)
    with pytest.warns(UserWarning, match=r"1 of 4 files are left out: d"):
        assert read_bags(folder, **how, missing="skip").ids.tolist() == ["a", "b", "c"]


def test_x_rays_of_a_folder_one_of_which_is_damaged_are_bags_by_file(folder):
    for name in "abcd":
        flat(folder, [(6, 6)])
        (folder / "v0.dcm").rename(folder / f"{name}.dcm")
    (folder / "d.dcm").write_bytes((folder / "d.dcm").read_bytes()[:300])
    how = {"labels": table(folder)}
    with pytest.raises(BagDataError, match=r"d\.dcm.*missing='skip'"):
        read_bags(folder, **how)
    with pytest.warns(Note, match="without a position"), pytest.warns(UserWarning, match=r"1 of 4 files .*: d\.dcm"):
        assert read_bags(folder, **how, missing="skip").ids.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("studies", [1, 2])
def test_an_empty_slice_leaves_out_its_series_alone(folder, number, studies):
    for seed, name in enumerate(("a", "b/t1", "b/t2")[: 1 + studies]):
        save_series(folder / name, body((6, 6, 6), seed), StudyInstanceUID=f"1.2.{seed}")
    sorted((folder / "b" / "t1").iterdir())[number].write_bytes(b"")
    with pytest.raises(BagDataError, match=r"with content, got an empty one \(in .*b.t1.00.\.dcm.*missing='skip'"):
        read_bags(folder, require_labels=False)
    with pytest.warns(UserWarning, match=rf"1 of {1 + studies} files are left out: (b|t1): Expected a file with"):
        bags = read_bags(folder, require_labels=False, missing="skip")
    assert bags.ids.tolist() == ["a", "b/t2"][:studies]


@pytest.mark.parametrize("other", ["gray", "16 bits"])
def test_an_image_of_another_kind_can_be_left_out(folder, other):
    pixels = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3)).astype(np.uint8)
    if other == "16 bits":
        pixels = pixels[..., 0]
    last = pixels[3][..., 0] if other == "gray" else pixels[3].astype(np.uint16) * 200
    for name, own in zip("abcd", [*pixels[:3], last]):
        Image.fromarray(own).save(folder / f"{name}.png")
    how = {"labels": table(folder), "images": ImageOptions(patch_size=16)}
    with pytest.raises(BagDataError, match=r"d\.png\); convert .*, or leave such files out with `missing='skip'`\."):
        read_bags(folder, **how)
    with pytest.warns(UserWarning, match=r"1 of 4 files are left out: d\.png: Expected (instances|pixels) of"):
        assert read_bags(folder, **how, missing="skip").ids.tolist() == ["a", "b", "c"]


def test_a_manifest_leaves_out_alike_and_lists_all(folder):
    for seed, name in enumerate("abc"):
        write_h5(folder / f"{name}.h5", rows(seed=seed))
    write_h5(folder / "d.h5", rows(0))
    (folder / "c.h5").write_bytes(b"x")
    path = folder.parent / "manifest.csv"
    path.write_text("bag,path,label\np,data/a.h5,0\nq,data/b.h5,1\nq,data/c.h5,1\nr,data/d.h5,1\ns,data/e.h5,1\n")
    with pytest.warns(UserWarning, match="left out"):
        bags = read_bags(path, missing="skip")
    assert bags.ids.tolist() == ["p", "q"]
    assert [(lost.bag, Path(lost.file).name, lost.kept) for lost in bags.left_out] == [
        ("s", "e.h5", 0),
        ("q", "c.h5", 1),
        ("r", "d.h5", 0),
    ]


def test_a_split_table_may_name_what_was_left_out(folder):
    for seed, name in enumerate("abc"):
        write_h5(folder / f"{name}.h5", rows(seed=seed))
    write_h5(folder / "d.h5", rows(0))
    split = folder.parent / "split.csv"
    split.write_text("file,split\na,train\nb,train\nc,test\nd,test")
    with pytest.warns(UserWarning, match="left out"):
        bags = read_bags(folder, labels=table(folder), split_file=split)
    assert bags.splits.tolist() == ["train", "train", "test"]


INTENSITIES = {  # of a NIfTI: the type, what stands in it, and the words of the error; None where it is read
    "int64": (np.int64, lambda x: x, None),
    "uint64": (np.uint64, lambda x: x, None),
    "int64 with a large offset": (np.int64, lambda x: x + 10**12, "float32"),
    "float64": (np.float64, lambda x: x + 0.5, None),
    "huge": (np.float64, lambda x: x * 1e300, "float32"),
    "tiny": (np.float64, lambda x: x * 1e-40, "float32"),
    "nan": (np.float32, lambda x: np.where(x > 100, np.nan, x), "NaN or infinity"),
}


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
@pytest.mark.parametrize("case", INTENSITIES)
def test_intensities_of_any_type_are_read_or_refused(tmp_path, case, suffix):
    kind, change, words = INTENSITIES[case]
    data = change(body((6, 5, 4)).astype(np.int64)).astype(kind)
    path = tmp_path / f"a.{suffix}"
    nibabel.save(nibabel.Nifti1Image(data, np.eye(4), dtype=kind), path)
    if words is None:
        found = read_bags(tmp_path, require_labels=False)[0]
        np.testing.assert_array_equal(np.sort(found.ravel()), np.sort(data.ravel().astype(np.float32)))
        return
    with pytest.raises(BagDataError, match=words):
        read_bags(tmp_path, require_labels=False)


# What a NIfTI states as slope and intercept, and whether it says that its numbers are intensities as they are.
SLOPES = [(0, 0, True), (np.nan, np.nan, True), (np.nan, 3, True), (2, np.nan, False), (np.inf, 0, True)]


@pytest.mark.parametrize(("slope", "inter", "sound"), SLOPES)
def test_a_slope_that_is_none_is_left_alone_or_refused(tmp_path, slope, inter, sound):
    data = body((6, 5, 4)).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(data, np.eye(4)), tmp_path / "a.nii")
    raw = bytearray((tmp_path / "a.nii").read_bytes())
    raw[112:120] = np.array([slope, inter], "<f4").tobytes()  # scl_slope and scl_inter
    (tmp_path / "a.nii").write_bytes(raw)
    if not sound:
        with pytest.raises(BagDataError, match=r"a\.nii"):
            read_bags(tmp_path, require_labels=False)
        return
    found = read_bags(tmp_path, require_labels=False)[0]
    np.testing.assert_array_equal(np.sort(found.ravel()), np.sort(data.ravel()).astype(np.float32))


def test_four_axes_and_colors_of_a_nifti_are_refused(tmp_path):
    nibabel.save(nibabel.Nifti1Image(np.ones((4, 4, 4, 3), np.float32), np.eye(4)), tmp_path / "a.nii")
    with pytest.raises(BagDataError, match="a file for each sequence"):
        read_bags(tmp_path, require_labels=False)
    rgb = np.zeros((4, 4, 4), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(rgb, np.eye(4)), tmp_path / "a.nii")
    with pytest.raises(BagDataError, match=r"real numbers|plain"):
        read_bags(tmp_path, require_labels=False)


def listing(path):
    with path.open(newline="") as file:
        return [(row["bag"], row["files_kept"], row["reason"].partition(",")[0]) for row in csv.DictReader(file)]


def settings_of_cohort(folder):
    """A cohort of 12 slides, one without instances and one that holds NaN; and how a run reads it."""
    names = [f"s{number}" for number in range(14)]
    for seed, name in enumerate(names):
        write_h5(folder / f"{name}.h5", rows(3, seed) + seed % 2)
    write_h5(folder / "s12.h5", rows(0))
    write_h5(folder / "s13.h5", np.full((3, D), np.nan, np.float32))
    labels = str(table(folder, names))
    small = {"epochs": 1, "members": 1, "num_positive": 1, "num_negative": 1, "baseline": False}
    return Settings(labels=labels, missing="skip", **small)


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
def test_a_run_and_its_predictions_list_what_was_left_out(folder, capsys):
    run, settings = folder.parent / "run", settings_of_cohort(folder)
    with pytest.warns(UserWarning, match="2 bags have no other file: s12, s13"):
        fit_run(str(folder), settings, RunFolder(run))
    assert [row[:2] for row in listing(run / "left-out.csv")] == [("s12", "0"), ("s13", "0")]
    assert "left-out.csv lists them" in (run / "summary.json").read_text()
    scores = folder.parent / "scores.csv"
    assert main(["predict", str(run), str(folder), "--out", str(scores)]) == 0
    assert len(scores.read_text().splitlines()) == 13
    assert "2 whole bags, are left out: scores.left-out.csv lists them" in " ".join(capsys.readouterr().out.split())
    assert [row[:2] for row in listing(folder.parent / "scores.left-out.csv")] == [("s12", "0"), ("s13", "0")]
    assert main(["predict", str(run), str(folder), "--out", str(scores), "--missing", "error"]) != 0
    assert "s13.h5" in capsys.readouterr().err
    for command, place in {
        "evaluate": run / "report-data.left-out.csv",
        "report": run / "report-data.left-out.csv",
        "explain": run / "explain" / "index.left-out.csv",
    }.items():
        assert main([command, str(run), str(folder)]) == 0
        assert f"2 whole bags, are left out: {place.name} lists them" in " ".join(capsys.readouterr().out.split())
        assert [row[:2] for row in listing(place)] == [("s12", "0"), ("s13", "0")]
        place.unlink()


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
def test_a_store_remembers_what_its_import_left_out(folder, capsys):
    store, run, settings = folder.parent / "store", folder.parent / "run", settings_of_cohort(folder)
    reading = ["--labels", settings.data.labels, "--missing", "skip"]
    assert main(["data", "import", str(folder), "--out", str(store), *reading]) == 0
    said = "2 files or rows, and 2 whole bags, were left out when this store was made: store.json lists them"
    small = ["--epochs", "1", "--members", "1", "--num-positive", "1", "--num-negative", "1", "--no-baseline"]
    capsys.readouterr()
    assert main(["fit", str(store), "--out", str(run), *small]) == 0
    assert said in " ".join(capsys.readouterr().err.split())
    assert [row[:2] for row in listing(run / "left-out.csv")] == [("s12", "0"), ("s13", "0")]
    assert said in (run / "report.html").read_text()
    with pytest.warns(UserWarning, match=said):
        bags = read_bags(store)
    assert [Path(lost.file).name for lost in bags.left_out] == ["s12.h5", "s13.h5"]


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
@pytest.mark.parametrize(
    "kind", [*(pytest.param(x, marks=pytest.mark.long) for x in ("nii.gz", "npy")), "dicom", "volume"]
)
def test_a_run_scores_scans_of_other_sizes(folder, kind):
    def write(name, shape, seed):
        if kind == "dicom":
            save_series(folder / name, body(shape, seed))
        elif kind == "npy":
            np.save(folder / f"{name}.npy", body(shape, seed))
        else:
            save_nifti(folder / f"{name}.nii.gz", body(shape, seed))

    for seed in range(8):
        write(f"a{seed}", (10, 9, 8), seed)
    path = folder.parent / "labels.csv"
    path.write_text("\n".join(["file,label", *(f"a{number},{number % 2}" for number in range(8))]))
    settings = Settings(
        labels=str(path),
        epochs=1,
        members=1,
        num_positive=1,
        num_negative=1,
        volume=kind == "volume",
        baseline=False,
        folds=0,
    )
    fit_run(str(folder), settings, RunFolder(folder.parent / "run"))
    run = load_run(folder.parent / "run")
    own = predict_run(run, read_for(run, str(folder), labels=str(path)))[0]
    folder = folder.rename(folder.parent / "other")
    write("b", (20, 24, 30), 8)
    write("c", (10, 24, 9), 9)
    known = nullcontext() if kind == "npy" else pytest.warns(UserWarning, match="pixels of the files are .* mm wide")
    with known, pytest.warns(UserWarning, match=r"slices of 2 of 10 scans have another size than those of the run"):
        bags = read_for(run, str(folder))
    scores = predict_run(run, bags)[0]
    np.testing.assert_array_equal(scores[:8], own)
    assert np.isfinite(scores).all()
