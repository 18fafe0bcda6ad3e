"""Folders of TRIDENT, CLAM and STAMP, as their programs write them: what is found, and which folder a message names."""

import h5py
import numpy as np
import pytest
from PIL import Image

from midam.data.sources import read_bags
from midam.errors import BagDataError


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
