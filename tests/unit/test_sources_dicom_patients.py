"""Patients, sites and tilts that the headers of DICOM files state."""

import json
import shutil

import numpy as np
import pytest
from tests.unit.test_embed import Tiny
from tests.unit.test_sources_dicom import SHAPE, series, table
from tests.unit.test_sources_dicom_kinds import change, flat
from tests.unit.test_sources_volumes import body, save_series

from midam.cli import main
from midam.data import open_store
from midam.data.sources import read_bags
from midam.data.sources.patients import group_origin
from midam.data.sources.probe import probe
from midam.data.store import write_store
from midam.errors import BagDataError, LeakageError, Note
from midam.registry import ENCODERS
from midam.report.describe import describe_bags
from midam.runs.data import split_data
from midam.settings import Settings


def cohort(folder, patients, **tags):
    """A scan for each patient of the list, and their label table."""
    for number, patient in enumerate(patients):
        tags_of = {name: values[number] for name, values in tags.items()}
        series(folder / "data" / f"s{number}", number, PatientID=patient, **tags_of)
    return folder / "data", table(folder / "l.csv", [(f"s{n}", n % 2) for n in range(len(patients))], "scan")


def test_the_patients_of_the_headers_are_the_groups_and_stay_in_one_split(tmp_path):
    data, labels = cohort(tmp_path, ["A", "B", "A", "C"])
    with pytest.warns(Note, match="1 patient with several bags, by the PatientID of their DICOM headers"):
        bags = read_bags(data, labels=labels)
    assert bags.groups.tolist() == ["A", "B", "A", "C"]
    assert describe_bags("x", bags).facts["groups from"] == "PatientID of the DICOM headers"
    divided = bags.replace(splits=["train", "train", "test", "val"])
    with pytest.raises(LeakageError):
        split_data(divided, Settings())
    stored = open_store(write_store(bags, tmp_path / "store"))
    assert group_origin(stored) == "PatientID of the DICOM headers"


def test_bags_of_one_patient_each_have_groups_without_a_word(tmp_path):
    data, labels = cohort(tmp_path, ["A", "B"])
    assert read_bags(data, labels=labels).groups.tolist() == ["A", "B"]
    assert read_bags(data, require_labels=False).groups.tolist() == ["A", "B"]


@pytest.mark.parametrize(
    "patients", [["", "", ""], ["ANONYMOUS", "anonymized", "Anon"], ["X7", "X7", "X7"], ["0", "", "-"]]
)
def test_names_of_nobody_make_no_group(tmp_path, patients):
    data, labels = cohort(tmp_path, patients)
    with pytest.warns(UserWarning, match="headers of 3 of 3 bags name no patient, or all the same one"):
        bags = read_bags(data, labels=labels)
    assert bags.groups is None


def test_unknown_patients_are_grouped_by_study_and_else_alone(tmp_path):
    data, labels = cohort(tmp_path, ["A", "B", "", "", ""], StudyInstanceUID=["1", "2", "3", "3", ""])
    with pytest.warns(UserWarning, match="3 of 5 bags name no patient"), pytest.warns(Note, match="1 patient with"):
        bags = read_bags(data, labels=labels)
    assert bags.groups.tolist() == ["A", "B", "3", "3", "s4"]
    assert group_origin(bags) == "PatientID of the DICOM headers, unknown for 3 bags"


def test_sites_and_scanners_are_groups_where_they_are_asked_for(tmp_path):
    sites, scanners = ["North", "North", "South"], ["1", "2", "1"]
    data, labels = cohort(tmp_path, ["A", "B", "C"], InstitutionName=sites, DeviceSerialNumber=scanners)
    bags = read_bags(data, labels=labels, groups="InstitutionName")
    assert bags.groups.tolist() == sites
    assert group_origin(bags) == "InstitutionName of the DICOM headers"
    both = read_bags(data, labels=labels, groups="InstitutionName,DeviceSerialNumber")
    assert both.groups.tolist() == ["North/1", "North/2", "South/1"]
    with pytest.raises(
        BagDataError, match=r"Expected StationName as a column, or in the DICOM headers of all bags, got none in 3"
    ):
        read_bags(data, labels=labels, groups="StationName")
    labels.write_text("scan,label,StationName\ns0,0,a\ns1,1,a\ns2,1,b\n")  # a column of the table comes first
    assert read_bags(data, labels=labels, groups="StationName").groups.tolist() == ["a", "a", "b"]
    store = write_store(read_bags(data, labels=labels), tmp_path / "store")
    labels.write_text("scan,label\ns0,0\ns1,1\ns2,1\n")
    assert read_bags(store, labels=labels, groups="InstitutionName").groups.tolist() == sites
    manifest = tmp_path / "m.csv"
    manifest.write_text("bag,path,label,patient\na,data/s0,0,p\nb,data/s1,1,q\nc,data/s2,1,r\n")
    assert read_bags(manifest, groups="InstitutionName").groups.tolist() == sites


def test_data_that_a_run_evaluates_have_the_groups_of_the_headers_that_it_names(tmp_path):
    data, _ = cohort(tmp_path, ["A", "B", "C"], InstitutionName=["North", "North", "South"])
    reading = {"groups": "InstitutionName", "require_labels": False}
    store = write_store(read_bags(data, require_labels=False), tmp_path / "store")
    assert open_store(store).groups.tolist() == ["A", "B", "C"]
    for source in (data, store):
        assert read_bags(source, **reading).groups.tolist() == ["North", "North", "South"]
    series(data / "s3", 3, PatientID="D")
    with pytest.warns(UserWarning, match="headers of some bags state no InstitutionName: their patients are the group"):
        bags = read_bags(data, **reading)
    assert bags.groups.tolist() == ["A", "B", "C", "D"]


def test_groups_of_a_table_that_separate_a_patient_are_told_with_the_patient(tmp_path):
    data, labels = cohort(tmp_path, ["A", "B", "A", "C"])
    labels.write_text("scan,label,patient\ns0,0,p\ns1,1,q\ns2,0,r\ns3,1,s\n")
    with pytest.warns(UserWarning, match=r"1 patient with bags in several groups, by the PatientID .*: A \("):
        bags = read_bags(data, labels=labels)
    assert bags.groups.tolist() == ["p", "q", "r", "s"]
    assert group_origin(bags) == "a column of the data"


def test_scans_of_several_modalities_planes_and_units_are_said(tmp_path):
    hounsfield = {"Modality": "CT", "RescaleSlope": 1, "RescaleIntercept": -1024}
    oblique = [(1, 0, 0), (0, np.cos(0.2), np.sin(0.2))]
    kinds = [
        {**hounsfield, "RescaleType": "HU"},
        {**hounsfield, "direction": oblique},
        {"Modality": "CT", "direction": [(0, 1, 0), (0, 0, -1)]},
        {"Modality": "PT", "Units": "BQML"},
    ]
    for number, tags in enumerate(kinds):
        save_series(tmp_path / "d" / f"s{number}", body(SHAPE, number), PatientID=f"p{number}", **tags)
    with pytest.warns(UserWarning, match="files of several") as said:
        read_bags(tmp_path / "d", require_labels=False)
    texts = [str(warning.message).partition(":")[0] for warning in said]
    assert texts == [
        "files of several modalities (3 CT, 1 PT)",
        "files of several planes (3 axial, 1 sagittal)",
        "files of several units (2 HU, 1 no RescaleSlope, 1 BQML)",
    ]
    for number in (2, 3):
        shutil.rmtree(tmp_path / "d" / f"s{number}")
    read_bags(tmp_path / "d", require_labels=False)


@pytest.mark.filterwarnings("ignore:.* images without a position")
@pytest.mark.parametrize("scale", [{}, {"RescaleSlope": 1, "RescaleIntercept": 0}])
def test_x_rays_of_several_depths_are_said(tmp_path, scale):
    """Nothing maps their numbers to one scale: the depth of a device would tell the class."""
    for number, bits in enumerate((12, 12, 8)):
        tags = {"BitsStored": bits, "HighBit": bits - 1, "PatientID": f"p{number}", **scale}
        flat(tmp_path / f"s{number}", [(8, 6)], study=f"1.2.{number}", **tags)
    with pytest.warns(UserWarning, match=r"files of several units \(2 12 bits, 1 8 bits\): a model may learn these"):
        read_bags(tmp_path, require_labels=False)
    shutil.rmtree(tmp_path / "s2")
    read_bags(tmp_path, require_labels=False)


@pytest.mark.filterwarnings("ignore:.* images without a position")
def test_raw_and_processed_x_rays_are_said(tmp_path):
    """A mammograph stores each view twice: as counted, and as shown."""
    intents = ["FOR PROCESSING", "FOR PRESENTATION"]
    for number in range(2):
        tags = {"PatientID": f"p{number}", "study": f"1.2.{number}", "PresentationIntentType": intents[number]}
        flat(tmp_path / "apart" / f"s{number}", [(8, 6)], **tags)
    words = r"files of several presentation intents \(1 FOR PROCESSING, 1 FOR PRESENTATION\): a model may learn these"
    with pytest.warns(UserWarning, match=words):
        read_bags(tmp_path / "apart", require_labels=False)
    flat(tmp_path / "both" / "s", [(8, 6)] * 2, PresentationIntentType=intents)
    with pytest.warns(UserWarning, match=r"doubtful.* it holds images FOR PRESENTATION and FOR PROCESSING"):
        read_bags(tmp_path / "both", require_labels=False)


def test_images_of_several_patients_in_a_bag_are_in_doubt(tmp_path):
    folder = series(tmp_path / "s", PatientID=[*"AAABBB"])
    assert probe(folder).attributes["file"]["doubt"] == "it holds images of 2 patients, by PatientID: A, B"


@pytest.mark.parametrize("study", [True, False])
def test_an_empty_file_next_to_images_is_in_doubt(tmp_path, study):
    place = {"ImagePositionPatient": None, "ImageOrientationPatient": None, "Modality": "MG"} if study else {}
    folder = series(tmp_path / "s")
    for number, file in enumerate(sorted(folder.iterdir())):
        if place:
            change(file, **place)
        file.rename(folder / f"IM{number}")
    assert "doubt" not in probe(folder).attributes["file"]
    (folder / ".hidden").touch()
    (folder / "IM9").touch()
    doubt = "empty files lie next to its images, as after a broken copy: IM9"
    assert probe(folder).attributes["file"]["doubt"] == doubt


def test_a_tilted_gantry_is_said(tmp_path):
    shifted = [[-20.0, 7.0 + 0.5 * number, 11.0 + 2 * number] for number in range(len(body(SHAPE)))]
    for name in ("a", "b"):
        save_series(tmp_path / "d" / name, body(SHAPE), Modality="CT")
    tilted = save_series(tmp_path / "d" / "c", body(SHAPE), Modality="CT", ImagePositionPatient=shifted)
    assert probe(tilted).attributes["file"]["tilt"] == 14
    assert "tilt" not in probe(tmp_path / "d" / "a").attributes["file"]
    with pytest.warns(UserWarning, match=r"tilted in 1 of 3 scans, the first .*c by 14.: their slices are shifted"):
        bags = read_bags(tmp_path / "d", require_labels=False)
    np.testing.assert_array_equal(bags[2][:, 0], body(SHAPE))


def x_rays(folder):
    """X-rays of several sizes, and their label table."""
    rng = np.random.default_rng(0)
    for number in range(8):
        rows = 64 + 8 * (number % 3)
        tags = {"values": [rng.integers(0, 4000, (rows, 72))], "PatientID": f"of {number % 4}"}
        path = flat(folder / "data" / f"x{number}", [(rows, 72)], **tags)
        assert path.exists()
    return folder / "data", table(folder / "l.csv", [(f"x{n}", n % 2) for n in range(8)], "scan")


# A patient stands for his bags; the map of an embedded one takes a second.
@pytest.mark.parametrize(
    ("encoder", "who", "explained"),
    [
        ("efficientnet-lite0", "x3", ["x3"]),
        pytest.param("fine-tuned", "of 3", ["x3", "x7"], marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_network_that_resizes_takes_x_rays_of_several_sizes(tmp_path, capsys, encoder, who, explained):
    data, labels = x_rays(tmp_path)
    words = ["fit", str(data), "--labels", str(labels), "--encoder", encoder, "--out", str(tmp_path / "run")]
    words += ["--epochs", "1", "--members", "1", "--num-positive", "2", "--num-negative", "2", "--val-fraction", "0"]
    words += ["--no-baseline", "--folds", "0"]
    assert main([*words, "--freeze", "network.*"] if encoder == "fine-tuned" else words) == 0
    assert "slices of several sizes are resized to 224 x 224 pixels" in " ".join(capsys.readouterr().err.split())
    assert main(["predict", str(tmp_path / "run"), str(data), "--out", str(tmp_path / "scores.csv")]) == 0
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 9
    out = tmp_path / "why"
    assert main(["explain", str(tmp_path / "run"), str(data), "--bags", who, "--out", str(out)]) == 0
    assert [bag["bag"] for bag in json.loads((out / "explain.json").read_text())["bags"]] == explained


def test_a_network_that_does_not_resize_takes_slices_of_one_size_alone(tmp_path, capsys, monkeypatch):
    data, labels = x_rays(tmp_path)
    network = "tiny-eyes"
    monkeypatch.setitem(ENCODERS._added, network, Tiny)
    assert main(["embed", str(data), "--labels", str(labels), "--encoder", network, "--out", str(tmp_path / "s")]) == 2
    assert "--slice-size 64" in " ".join(capsys.readouterr().err.split())
