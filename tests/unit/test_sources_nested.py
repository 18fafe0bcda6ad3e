"""Folders of TRIDENT, CLAM and STAMP, as their programs write them: what is found, and which folder a message names."""

import h5py
import numpy as np
import pytest
from PIL import Image

from midam.data.sources import read_bags
from midam.data.store import write_store
from midam.errors import BagDataError
from midam.runs.apply import read_for
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.settings import Settings


def features(path, names=("s1", "s2"), *, suffix=".h5"):
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        if suffix == ".h5":
            with h5py.File(path / f"{name}.h5", "w") as file:
                file["features"] = np.ones((3, 4), dtype=np.float32)
        else:
            np.save(path / f"{name}.npy", np.ones((3, 4), dtype=np.float32))


def trident(job, *extractors, scale="20x_256px_0px_overlap", names=("s1", "s2")):
    """A job folder of TRIDENT: pictures of contours, coordinates without features, features, those of whole slides."""
    (job / "contours").mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64)).save(job / "contours" / "s1.jpg")
    for name in names:
        (job / scale / "patches").mkdir(parents=True, exist_ok=True)
        with h5py.File(job / scale / "patches" / f"{name}_patches.h5", "w") as file:
            file["coords"] = np.ones((3, 2), dtype=np.int64)
    for extractor in extractors:
        features(job / scale / f"features_{extractor}", names)
    features(job / scale / "slide_features_titan", names)


def ids(folder, **how):
    return read_bags(folder, require_labels=False, **how).ids.tolist()


def test_the_job_folder_of_trident_is_read(tmp_path):
    trident(tmp_path / "job", "uni_v1")
    assert ids(tmp_path / "job") == ["s1", "s2"]
    assert ids(tmp_path / "job" / "20x_256px_0px_overlap") == ["s1", "s2"]
    table = tmp_path / "labels.csv"
    table.write_text("slide_id,label\ns1.svs,0\ns2.svs,1")
    assert read_bags(tmp_path / "job", labels=table).labels.tolist() == [0, 1]


def test_several_extractors_or_scales_are_named(tmp_path):
    trident(tmp_path / "a", "uni_v1", "conch_v15")
    with pytest.raises(BagDataError, match=r"20x_\S+/features_conch_v15, 20x_\S+/features_uni_v1 .*name one of them"):
        ids(tmp_path / "a")
    trident(tmp_path / "b", "uni_v1")
    trident(tmp_path / "b", "uni_v1", scale="10x_256px_0px_overlap")
    with pytest.raises(BagDataError, match=r"10x_\S+/features_uni_v1, 20x_\S+/features_uni_v1"):
        ids(tmp_path / "b")


KINDS = {
    "encoder": (lambda file: file["features"].attrs, ["uni_v1", "phikon"], "networks"),
    "target_magnification": (lambda file: file["coords"].attrs, [20, 10], "magnifications"),
    "extractor": (lambda file: file.attrs, ["ctranspath", "phikon"], "networks"),
    "tile_size_um": (lambda file: file.attrs, [256.0, 512.0], "tile sizes"),
}


def stating(folder, name, value, numbers):
    """Feature files s0, s1, ... that state how they were made."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        with h5py.File(folder / f"s{number}.h5", "w") as file:
            x = np.random.default_rng(number).normal(size=(3, 4)) + number % 2
            file["features"], file["coords"] = x, np.arange(6).reshape(3, 2)
            KINDS[name][0](file)[name] = value
    return folder


@pytest.mark.parametrize("name", KINDS)
def test_features_of_several_networks_or_magnifications_are_said(tmp_path, name):
    _, (one, other), several = KINDS[name]
    ids(stating(tmp_path / "f", name, one, range(3)))
    stating(tmp_path / "f", name, other, [3])
    with pytest.warns(UserWarning, match=rf"files of several {several} \(3 {one}, 1 {other}\): a model may learn"):
        ids(tmp_path / "f")


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
def test_features_of_another_network_than_a_runs_are_said(tmp_path):
    old, new = (stating(tmp_path / at, "encoder", at, range(12)) for at in ("uni_v1", "phikon"))
    table = tmp_path / "labels.csv"
    table.write_text("slide,label\n" + "".join(f"s{number},{number % 2}\n" for number in range(12)))
    small = {"epochs": 1, "members": 1, "num_positive": 1, "num_negative": 1, "baseline": False}
    fit_run(str(old), Settings(labels=str(table), **small), RunFolder(tmp_path / "run"))
    run = load_run(tmp_path / "run")
    for data in (new, write_store(read_bags(new, labels=table), tmp_path / "store")):
        message = r"encoder of the files phikon, in the training of .*run uni_v1: their scores may be wrong; use files"
        with pytest.warns(UserWarning, match=message):
            read_for(run, str(data))
    read_for(run, str(old))


@pytest.mark.parametrize("made", [True, False])
def test_pictures_of_a_job_without_features_are_no_bags(tmp_path, made):
    trident(tmp_path / "job")
    if made:  # as a job that was stopped leaves it
        (tmp_path / "job" / "20x_256px_0px_overlap" / "features_uni_v1").mkdir()
    with pytest.raises(BagDataError, match=r"files of features in 20x_\S+, got none, and .* files elsewhere"):
        ids(tmp_path / "job")
    assert ids(tmp_path / "job" / "contours") == ["s1"]


def test_sites_with_a_job_folder_each_are_one_set(tmp_path):
    for site in ("mainz", "bonn"):
        trident(tmp_path / "data" / site, "uni_v1", names=(f"{site}1", f"{site}2"))
    assert ids(tmp_path / "data") == ["bonn1", "bonn2", "mainz1", "mainz2"]
    trident(tmp_path / "data" / "bonn", "uni_v1", names=("mainz1",))
    assert ids(tmp_path / "data") == ["bonn/bonn1", "bonn/bonn2", "bonn/mainz1", "mainz/mainz1", "mainz/mainz2"]
    table = tmp_path / "labels.csv"
    table.write_text("slide,label\nbonn/mainz1,0\nmainz/mainz1,1")
    with pytest.warns(UserWarning, match="3 of 5 files have no label"):
        assert read_bags(tmp_path / "data", labels=table).ids.tolist() == ["bonn/mainz1", "mainz/mainz1"]


@pytest.mark.parametrize("above", ["", "uni", "results/uni"])
def test_clam_is_read_from_its_folder_or_above(tmp_path, above):
    features(tmp_path / "d" / above / "h5_files")
    (tmp_path / "d" / above / "pt_files").mkdir()
    (tmp_path / "d" / above / "pt_files" / "s1.pt").write_bytes(b"not looked at")
    with pytest.warns(UserWarning, match=r"the \.h5 files are read"):
        assert ids(tmp_path / "d") == ["s1", "s2"]


@pytest.mark.parametrize("suffix", [".h5", ".npy"])
def test_stamp_with_a_folder_a_site_and_folders_in_them(tmp_path, suffix):
    features(tmp_path / "d" / "bonn" / "2020", suffix=suffix)
    features(tmp_path / "d" / "bonn" / "2021", ("s3",), suffix=suffix)
    features(tmp_path / "d" / "mainz", ("s4",), suffix=suffix)
    assert ids(tmp_path / "d") == ["s4", "s1", "s2", "s3"]
    features(tmp_path / "d" / "mainz", ("s1",), suffix=suffix)
    assert set(ids(tmp_path / "d")) == {"bonn/2020/s1", "bonn/2020/s2", "bonn/2021/s3", "mainz/s1", "mainz/s4"}


def test_what_lies_too_deep_is_named(tmp_path):
    features(tmp_path / "a" / "b" / "c" / "d" / "e" / "f")
    with pytest.raises(BagDataError, match=r"name the folder that holds them, or a manifest"):
        ids(tmp_path / "a")


def test_a_link_that_leads_back_ends(tmp_path):
    features(tmp_path / "d" / "site" / "sub")
    (tmp_path / "d" / "site" / "again").symlink_to(tmp_path / "d", target_is_directory=True)
    assert ids(tmp_path / "d") == ["s1", "s2"]
