"""Trees of DICOM as hospitals write them: which series is which bag, by the names that the labels use."""

import numpy as np
import pydicom
import pytest
from tests.unit.test_sources_volumes import body, save_nifti, save_series

from midam.data.sources import read_bags
from midam.data.sources.probe import open_file, probe
from midam.data.sources.request import ImageOptions
from midam.errors import BagDataError, ConfigError, Note

SHAPE = (6, 4, 5)


def series(folder, seed=0, number=1, description="T1", **tags):
    return save_series(
        folder, body(SHAPE, seed), SeriesDescription=description, SeriesNumber=number, **{"Modality": "MR", **tags}
    )


def table(path, rows, column="patient"):
    path.write_text("\n".join([f"{column},label", *(f"{name},{label}" for name, label in rows)]))
    return path


@pytest.fixture
def tree(tmp_path):
    """Two patients with a study of one series, and one with two series."""
    for seed, patient in enumerate(("p1", "p2")):
        series(tmp_path / "data" / patient / "2020 head" / "11 T1", seed)
    for number, name in enumerate(("T1", "T2")):
        series(tmp_path / "data" / "p3" / "2021 head" / name, 5 + number, number + 1, f"{name} axial")
    return tmp_path / "data"


def test_a_patient_of_one_series_is_a_bag_under_the_patients_name(tree, tmp_path):
    labels = table(tmp_path / "l.csv", [("p1", 0), ("p2", 1)])
    with pytest.warns(UserWarning, match="1 of 3 files have no label and are left out: p3"):
        bags = read_bags(tree, labels=labels)
    assert (bags.ids.tolist(), bags.labels.tolist(), bags.sizes.tolist()) == (["p1", "p2"], [0, 1], [6, 6])
    for seed in (0, 1):
        np.testing.assert_array_equal(bags[seed][:, 0], body(SHAPE, seed))


def test_one_series_is_one_bag_where_no_labels_are_asked_for(tmp_path, monkeypatch):
    folder = tmp_path / "p1"
    series(folder)
    (folder / "notes.csv").write_text("slice,remark\n1,good\n")
    series(tmp_path / "p2", 1)
    for path, at in ((folder, tmp_path), (".", folder)):
        monkeypatch.chdir(at)
        bags = read_bags(path, require_labels=False)
        assert (bags.ids.tolist(), bags.sizes.tolist(), bags.labels) == (["p1"], [6], None)
        np.testing.assert_array_equal(bags[0][:, 0], body(SHAPE, 0))
    with pytest.raises(BagDataError, match=r"got the slices of one .*name the folder above it"):
        read_bags(folder)


def test_several_series_of_a_patient_are_refused_with_the_list_and_the_way_out(tree, tmp_path):
    labels = table(tmp_path / "l.csv", [("p1", 0), ("p2", 1), ("p3", 1)])
    with pytest.raises(BagDataError) as caught:
        read_bags(tree, labels=labels)
    text = str(caught.value)
    for part in ("got 2", "'T1 axial' (MR, number 1, 6 files)", "'T2 axial' (MR, number 2, 6 files)", "p3", "`series="):
        assert part in text
    assert "patient/series" in text


@pytest.mark.parametrize(("numbers", "advised"), [((3, 4), "3"), ((5, 5), None)])
def test_the_advised_name_chooses_one_of_series_of_one_description(tmp_path, numbers, advised):
    for seed, number in enumerate(numbers):
        series(tmp_path / "p" / str(seed), seed, number, "T1")
    uid = pydicom.dcmread(next((tmp_path / "p" / "0").iterdir())).SeriesInstanceUID
    with pytest.raises(BagDataError, match=f"such as by `series='{advised or uid}'`, or name patient/series"):
        probe(tmp_path / "p")
    opened = open_file(tmp_path / "p", ImageOptions(series=advised or uid))
    np.testing.assert_array_equal(opened.features[:6][:, 0], body(SHAPE, 0))


def test_what_is_wrong_with_several_patients_alike_is_told_once(tree, tmp_path):
    for patient in ("p4", "p5"):
        for number, name in enumerate(("T1", "T2")):
            series(tree / patient / "2021 head" / name, 5 + number, number + 1, f"{name} axial")
    for patient in ("p6", "p7"):
        series(tree / patient / "T1", number=7, description="localizer")
        series(tree / patient / "T2", number=8)
    labels = table(tmp_path / "l.csv", [(f"p{number}", number % 2) for number in range(1, 8)])
    with pytest.raises(BagDataError) as caught:
        read_bags(tree, labels=labels)
    head, *lines = str(caught.value).splitlines()
    assert head == "Expected files that can be used, got 5 of 7 that cannot:"
    assert len(lines) == 2
    assert f"(in {tree / 'p3'}; 3 such: p3, p4, p5); choose one, such as by" in lines[0]
    assert f"(in {tree / 'p6'}; 2 such: p6, p7); choose one, such as by" in lines[1]


@pytest.mark.parametrize("wanted", ["T2", "t2 AXIAL", "2"])
def test_a_series_is_chosen_by_description_or_number(tree, tmp_path, wanted):
    labels = table(tmp_path / "l.csv", [("p3", 1)])
    with pytest.warns(UserWarning, match="2 of 3 files have no label"):
        bags = read_bags(tree, labels=labels, images=ImageOptions(series=wanted))
    assert bags.ids.tolist() == ["p3"]
    np.testing.assert_array_equal(bags[0][:, 0], body(SHAPE, 6))


def test_a_series_that_is_not_there_or_not_the_only_one_is_refused(tree):
    for wanted, words in (("FLAIR", "got none of 2: 'T1 axial'"), ("axial", "got 2 of 2"), ("MR", "got 2 of 2")):
        with pytest.raises(BagDataError, match=words):
            probe(tree / "p3", ImageOptions(series=wanted))


def test_the_exact_description_goes_before_a_part_of_it(tmp_path):
    for number, name in enumerate(("T1", "T1 post")):
        series(tmp_path / "p" / name, number, number, name)
    np.testing.assert_array_equal(
        open_file(tmp_path / "p", ImageOptions(series="t1")).features[:6][:, 0], body(SHAPE, 0)
    )


@pytest.mark.parametrize("name", ["{p}/{s}", "{p}/2021 head/{s}"])
def test_bags_may_be_series(tree, tmp_path, name):
    rows = [(name.format(p="p3", s=which), label) for label, which in enumerate(("T1", "T2"))]
    with pytest.warns(UserWarning, match="2 of 4 files have no label"), pytest.warns(Note, match="scans of several"):
        bags = read_bags(tree, labels=table(tmp_path / "l.csv", rows, "series"))
    assert bags.ids.tolist() == [row[0] for row in rows]
    np.testing.assert_array_equal(bags[1][:, 0], body(SHAPE, 6))


def test_series_of_several_descriptions_are_said(tmp_path):
    """A part of a description chooses images before contrast of one patient and after it of another."""
    for number, name in enumerate(("T1 pre", "T1 post", "T1 pre")):
        series(
            tmp_path / f"p{number}", number, description=name, StudyInstanceUID=f"1.{number}", PatientID=f"p{number}"
        )
    with pytest.warns(Note, match=r"scans of several series \(2 T1 pre, 1 T1 post\): if their contrasts differ, keep"):
        read_bags(tmp_path, require_labels=False, images=ImageOptions(series="T1"))


def test_bags_may_be_studies(tmp_path):
    for year in (2020, 2021):
        series(tmp_path / "data" / "p1" / f"{year}" / "T1", year)
    rows = [("p1/2020", 0), ("p1/2021", 1)]
    bags = read_bags(tmp_path / "data", labels=table(tmp_path / "l.csv", rows, "study"))
    assert bags.ids.tolist() == [row[0] for row in rows]


def test_without_labels_a_bag_is_a_patient_or_a_series_of_one_of_several_studies(tree, tmp_path):
    with pytest.raises(
        BagDataError, match=r"one series, got 2: 'T1 axial' .*; 'T2 axial' .*p3\); choose one, .*`series="
    ):
        read_bags(tree, require_labels=False)
    assert read_bags(tree / "p3", require_labels=False, images=ImageOptions(series="T1")).ids.tolist() == ["2021 head"]
    for year in ("2020", "2021"):
        series(tmp_path / "years" / "p4" / year, StudyInstanceUID=year)
    assert read_bags(tmp_path / "years", require_labels=False).ids.tolist() == ["p4/2020", "p4/2021"]
    series(tmp_path / "years" / "p4" / "2021 T2", description="T2", StudyInstanceUID="2021")
    with pytest.raises(BagDataError, match="one series, got 3"):
        read_bags(tmp_path / "years", require_labels=False)


@pytest.mark.filterwarnings("ignore:scans of several series")
def test_series_of_one_study_are_no_bag(tmp_path):
    for name in ("T1", "T2"):
        series(tmp_path / name, description=name, StudyInstanceUID="1", PatientID="A")
        series(tmp_path / f"{name} later", description="T1", StudyInstanceUID=name[1:] * 2, PatientID="A")
    rows = "a,T1 later,0\na,T2 later,0\nb,{},1\n"
    path = tmp_path / "m.csv"
    path.write_text("bag,path,label\n" + rows.format("T1"))
    with pytest.warns(UserWarning, match="name no patient"):
        assert read_bags(path).sizes.tolist() == [12, 6]
    path.write_text("bag,path,label\n" + rows.format("T1") + "b,T2,1\n")
    with pytest.raises(BagDataError, match=r"one series of a study in a bag, got 'T1', 'T2' \(in .*bag b\)"):
        read_bags(path)


def test_one_series_in_several_folders_is_one_bag(tmp_path):
    folder = series(tmp_path / "data" / "p1" / "a", SeriesInstanceUID="1.2.3")
    (tmp_path / "data" / "p1" / "b").mkdir()
    for path in sorted(folder.iterdir())[:3]:
        path.rename(tmp_path / "data" / "p1" / "b" / path.name)
    bags = read_bags(tmp_path / "data", require_labels=False)
    assert (bags.ids.tolist(), bags.sizes.tolist()) == (["p1"], [6])


def test_series_mixed_in_one_folder_are_told_apart_by_their_uid(tmp_path):
    folder = tmp_path / "data" / "p1"
    for number, name in enumerate(("T1", "T2")):
        series(folder, number, number, name, names=[f"{name}{n}" for n in range(6)])
    with pytest.raises(BagDataError, match=r"one series, got 2: 'T1' .*; 'T2' "):
        probe(folder)
    found = open_file(folder, ImageOptions(series="T2")).features[:6]
    np.testing.assert_array_equal(found[:, 0], body(SHAPE, 1))


def test_what_is_no_image_is_left_alone(tree):
    (tree / "p1" / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM")
    report = pydicom.dcmread(next((tree / "p1").rglob("*.dcm")))
    del report.PixelData, report.Rows, report.Columns
    report.SeriesInstanceUID, report.Modality = "1.2.9", "SR"
    report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = pydicom.uid.BasicTextSRStorage
    (tree / "p1" / "2020 head" / "SR").mkdir()
    report.save_as(tree / "p1" / "2020 head" / "SR" / "report.dcm")
    assert probe(tree / "p1").rows == 6


def test_slices_of_another_size_or_direction_are_named_with_their_numbers(tmp_path):
    save_series(tmp_path / "s", body(SHAPE), SeriesInstanceUID="1.2.3")
    save_series(tmp_path / "s", body((2, 8, 9)), names=["x.dcm", "y.dcm"], SeriesInstanceUID="1.2.3")
    with pytest.raises(BagDataError, match=r"6 of 4 rows and 5 columns, axial, .*2 of 8 rows and 9 columns, .*x\.dcm"):
        probe(tmp_path / "s")
    turned = ((0, 1, 0), (0, 0, -1))
    save_series(tmp_path / "t", body(SHAPE), SeriesInstanceUID="1.2.3")
    save_series(tmp_path / "t", body((2, 4, 5)), names=["x.dcm", "y.dcm"], SeriesInstanceUID="1.2.3", direction=turned)
    with pytest.raises(BagDataError, match=r"6 of .* axial, .*2 of .* sagittal"):
        probe(tmp_path / "t")


def test_a_series_cannot_be_asked_of_other_files(tmp_path):
    save_nifti(tmp_path / "a.nii.gz", body())
    labels = table(tmp_path / "l.csv", [("a", 1)])
    with pytest.raises(ConfigError, match="no `series` with volumes"):
        read_bags(tmp_path, labels=labels, images=ImageOptions(series="T1"))


SEEN = {
    "axial": (((1, 0, 0), (0, 1, 0)), "axial", "RLAP"),
    "sagittal": (((0, 1, 0), (0, 0, -1)), "sagittal", "APSI"),
    "coronal": (((1, 0, 0), (0, 0, -1)), "coronal", "RLSI"),
    "turned": (((-1, 0, 0), (0, 1, 0)), "axial", "LRAP"),
}


@pytest.mark.parametrize("case", SEEN)
def test_a_series_says_its_plane_and_its_sides(tmp_path, case):
    direction, plane, edges = SEEN[case]
    save_series(tmp_path / "s", body(SHAPE), direction=direction)
    said = probe(tmp_path / "s").attributes["file"]
    assert (said["plane"], said["edges"]) == (plane, edges)


def test_oblique_slices_say_so_and_slices_of_an_axis_are_seen_as_that_axis(tmp_path):
    turn = np.deg2rad(25)
    save_series(tmp_path / "s", body(SHAPE), direction=((1, 0, 0), (0, np.cos(turn), np.sin(turn))))
    assert probe(tmp_path / "s").attributes["file"]["plane"] == "axial (oblique by 25\N{DEGREE SIGN})"
    nifti = save_nifti(tmp_path / "a.nii.gz", body(), "SPR")
    for axis, (plane, edges) in enumerate((("sagittal", "APSI"), ("coronal", "RLSI"), ("axial", "RLAP"))):
        said = probe(nifti, ImageOptions(axis=axis)).attributes["file"]
        assert (said["plane"], said["edges"]) == (plane, edges)


@pytest.mark.parametrize("kept", [300, 427, 500])
def test_a_slice_that_was_cut_in_its_header_is_refused(tmp_path, kept):
    path = save_series(tmp_path / "a", body()) / "001.dcm"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BagDataError, match=r"001\.dcm"):
        open_file(tmp_path / "a", ImageOptions())
