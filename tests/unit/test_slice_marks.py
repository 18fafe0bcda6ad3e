"""Labels of slices from label volumes and tables of marked instances."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.test_sources_volumes import body, save_series

from midam.cli import main
from midam.data import open_store, read_bags
from midam.data.bags import Bags
from midam.errors import BagDataError, Note
from midam.explain import label_by_masks

EXAMPLES = str(Path(__file__).parents[2] / "examples")
LESION = [3, 4]  # slices in the file


@pytest.fixture
def scans(tmp_path):
    """A positive scan whose file counts its slices from head to feet, one without masks, and a negative one."""
    nibabel = pytest.importorskip("nibabel")
    rng, down = np.random.default_rng(0), np.diag([2.0, 2.0, -5.0, 1.0])
    for folder in ("scans", "masks"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b", "c"):
        volume = rng.normal(40, 12, size=(8, 9, 7)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(volume, down), tmp_path / f"scans/{name}.nii.gz")
    mask = np.zeros((8, 9, 7), np.uint8)
    mask[2, 3, LESION] = 2
    nibabel.save(nibabel.Nifti1Image(mask, down), tmp_path / "masks/a.nii.gz")
    (tmp_path / "labels.csv").write_text("scan,label\na,1\nb,1\nc,0\n")
    return tmp_path


def read(folder):
    return read_bags(folder / "scans", labels=folder / "labels.csv", bag_column="scan")


def labels_of(bags, name):
    (index,) = np.flatnonzero(bags.ids == name)
    return bags.instance_labels[bags.starts[index] : bags.starts[index] + bags.sizes[index]].tolist()


def test_a_label_volume_labels_the_slices_that_it_marks(scans):
    bags = label_by_masks(read(scans), scans / "masks")
    assert labels_of(bags, "a") == [0, 0, 1, 1, 0, 0, 0], "the scan is read from feet to head"
    assert np.isnan(labels_of(bags, "b")).all()
    assert labels_of(bags, "c") == [0] * 7
    command = ["data", "import", str(scans / "scans"), "--labels", str(scans / "labels.csv"), "--bag-column", "scan"]
    assert main([*command, "--instance-masks", str(scans / "masks"), "--out", str(scans / "store")]) == 0
    assert labels_of(open_store(scans / "store"), "a") == labels_of(bags, "a")


def test_a_label_volume_of_other_slices_is_refused(scans):
    nibabel = pytest.importorskip("nibabel")
    stored = nibabel.load(scans / "masks/a.nii.gz")
    mask = nibabel.Nifti1Image(np.asarray(stored.dataobj), stored.affine)
    nibabel.save(nibabel.Nifti1Image(mask.dataobj, np.eye(4)), scans / "masks/a.nii.gz")  # from feet to head
    with pytest.raises(BagDataError, match=r"the 7 slices of a\.nii\.gz, got others by its affine"):
        label_by_masks(read(scans), scans / "masks")
    turned = nibabel.as_closest_canonical(mask)
    nibabel.save(turned, scans / "masks/a.nii.gz")
    assert labels_of(label_by_masks(read(scans), scans / "masks"), "a") == [0, 0, 1, 1, 0, 0, 0]
    nibabel.save(nibabel.Nifti1Image(np.ones((8, 9, 6), np.uint8), np.eye(4)), scans / "masks/a.nii.gz")
    with pytest.raises(BagDataError, match=r"the 7 slices of a\.nii\.gz, got 6"):
        label_by_masks(read(scans), scans / "masks")


OBLIQUE = [(1, 0, 0), (0, np.cos(0.2), np.sin(0.2))]


@pytest.mark.parametrize(
    "direction",
    [
        [(1, 0, 0), (0, 1, 0)],  # axial, and the same mirrored: its slices are stacked downwards
        [(-1, 0, 0), (0, 1, 0)],
        OBLIQUE,
        [(0, 1, 0), (0, 0, -1)],  # sagittal
        [(1, 0, 0), (0, 0, -1)],  # coronal
    ],
)
def test_a_label_volume_labels_the_slices_of_a_series_of_any_plane(tmp_path, direction):
    nibabel = pytest.importorskip("nibabel")
    data = body((7, 8, 9))
    data[2, 3, 4] = 30_000
    save_series(tmp_path / "scans" / "a", data, spacing=(2.0, 1.0, 1.0), direction=direction)
    across, down = np.array(direction, dtype=float)
    affine = np.eye(4)
    affine[:3] = np.stack([across, down, 2 * np.cross(across, down), [-20.0, 7.0, 11.0]], axis=1)
    (tmp_path / "masks").mkdir()
    mask = (data == 30_000).astype(np.uint8).transpose(2, 1, 0)
    nibabel.save(nibabel.Nifti1Image(mask, np.diag([-1, -1, 1, 1]) @ affine), tmp_path / "masks/a.nii.gz")
    bags = label_by_masks(read_bags(tmp_path / "scans", require_labels=False), tmp_path / "masks")
    brightest = np.asarray(bags.instances[0 : len(bags.instances)]).reshape(7, -1).max(axis=1)
    assert bags.instance_labels.tolist() == (brightest == 30_000).tolist()


def test_a_table_names_slices_as_explain_does(scans):
    (scans / "boxes.csv").write_text("bag,slice_index,x,y,w,h,class\na,3,4,4,2,2,0\na,4,4,4,2,2,7\n")
    bags = label_by_masks(read(scans), scans / "boxes.csv")
    assert labels_of(bags, "a") == [0, 0, 1, 1, 0, 0, 0]
    assert np.isnan(labels_of(bags, "b")).all()
    assert labels_of(bags, "c") == [0] * 7


def test_tables_of_dicom_slices(tmp_path, monkeypatch):
    pytest.importorskip("pydicom")
    monkeypatch.syspath_prepend(EXAMPLES)
    planted = pytest.importorskip("planted_scans")
    planted.write_scans(tmp_path / "scans", planted.make_template(6, 96), count=4)
    lines = (tmp_path / "scans/lesions.csv").read_text().replace("patient", "bag").splitlines()
    (tmp_path / "lesions.csv").write_text("\n".join(lines))
    scans = read_bags(tmp_path / "scans", labels=tmp_path / "scans/labels.csv")
    by_table = label_by_masks(scans, tmp_path / "lesions.csv")
    for line in lines[1:]:
        bag, number = line.split(",")[:2]
        assert np.flatnonzero(labels_of(by_table, bag)).tolist() == [int(number) - 1]
    sys.modules.pop("planted_scans")


def test_spans_mark_rows_of_a_table(tmp_path):
    bags = Bags.from_list([np.zeros((5, 1)), np.zeros((2, 1)), np.zeros((2, 1))], [1, 1, 0], ids=["a", "b", "c"])
    (tmp_path / "spans.csv").write_text("bag,first,last\na,1,2\na,4,4\nother,0,9\n")
    with pytest.warns(Note, match="1 bag of the table not in the data, the first other"):
        labeled = label_by_masks(bags, tmp_path / "spans.csv")
    assert labels_of(labeled, "a") == [0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected a file with content"),
        ("bag,instance,label\na,1,1\na,2,0\n", "Expected marked instances, got label 0"),
        ("bag;instance;instance_label\na;1;True\na;2;False\n", "Expected marked instances, got instance_label 0"),
        ("bag,x\na,1\n", "Expected the column bag, and instance"),
        ("bag,instance\nz,1\n", "Expected bags such as a, got 'z'"),
        ("bag,instance\na,1\na,7\n", r"Expected an instance of bag a \(5 instances\), got .*line 3"),
        ("bag,first,last\na,x,2\n", "Expected an instance of bag a"),
        ("bag,instance_number\na,2\n", "Expected an instance of bag a"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, text, message):
    (tmp_path / "marks.csv").write_text(text)
    with pytest.raises(BagDataError, match=message):
        label_by_masks(Bags.from_list([np.zeros((5, 1))], [1], ids=["a"]), tmp_path / "marks.csv")


def test_frames_of_one_file_are_marked_by_a_table(tmp_path):
    pydicom = pytest.importorskip("pydicom")
    path = save_series(tmp_path / "scans/a", body((1, 8, 9)), names=["a.dcm"]) / "a.dcm"
    file, frames = pydicom.dcmread(path), body((3, 8, 9))
    del file.ImagePositionPatient, file.ImageOrientationPatient
    file.Modality, file.NumberOfFrames, file.PixelData = "US", 3, frames.astype(np.uint16).tobytes()
    file.save_as(path)
    with pytest.warns(Note, match="without a position"):
        bags = read_bags(tmp_path / "scans", require_labels=False)
    (tmp_path / "marks.csv").write_text("bag,frame_number\na,2\n")
    assert label_by_masks(bags, tmp_path / "marks.csv").instance_labels.tolist() == [0, 1, 0]


def test_a_label_volume_named_like_scans_of_two_bags_is_refused(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    scan = np.random.default_rng(0).normal(size=(4, 5, 3))
    for path in ("p1/t1", "p1/t2", "p2/t1", "masks/t1"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        volume = np.abs(scan) * [0, 1, 0] if "masks" in path else scan
        nibabel.save(nibabel.Nifti1Image(volume.astype(np.float32), np.eye(4)), tmp_path / f"{path}.nii.gz")
    (tmp_path / "list.csv").write_text("path,bag,label\np1/t1.nii.gz,p1,1\np1/t2.nii.gz,p1,1\np2/t1.nii.gz,p2,1\n")
    bags = read_bags(tmp_path / "list.csv")
    with pytest.raises(BagDataError, match=r"for each image, got one of p1 and p2 .*t1\.nii\.gz.*BAG/FILE"):
        label_by_masks(bags, tmp_path / "masks")
    (tmp_path / "masks" / "p2").mkdir()
    (tmp_path / "masks/t1.nii.gz").rename(tmp_path / "masks/p2/t1.nii.gz")
    labels = label_by_masks(bags, tmp_path / "masks")
    assert (labels_of(labels, "p2"), np.isnan(labels_of(labels, "p1")).all()) == ([0, 1, 0], True)
    (tmp_path / "masks/p2/t1.nii.gz").rename(tmp_path / "masks/p1.nii.gz")  # of both its scans
    assert labels_of(label_by_masks(bags, tmp_path / "masks"), "p1") == [0, 1, 0] * 2
    (tmp_path / "masks/pp2.nii.gz").write_bytes((tmp_path / "masks/p1.nii.gz").read_bytes())
    with pytest.warns(Note, match=r"1 mask of no bag in the data, the first pp2\.nii\.gz"):
        label_by_masks(bags, tmp_path / "masks")
