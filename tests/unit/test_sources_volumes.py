"""Volumes as bags of slices, or whole: order against nibabel's and pydicom's own geometry, and what is refused."""

import pickle
from contextlib import nullcontext

import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, MRImageStorage, generate_uid
from tests.probing import probe_files

from midam.cli import main
from midam.data.sources import read_bags
from midam.data.sources.probe import open_file, probe
from midam.data.sources.request import ImageOptions
from midam.errors import BagDataError
from midam.imaging.dicom import read_series
from midam.imaging.volumes import resized
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings

SHAPE = (5, 6, 7)  # to the right, the front, the head
SPACING = (2.0, 1.5, 3.0)


def body(shape=SHAPE, seed=0):
    """A volume of which each voxel is another, none the least."""
    return np.random.default_rng(seed).permutation(np.arange(1, np.prod(shape) + 1)).reshape(shape).astype(np.int16)


def save_nifti(path, data, codes="RAS", spacing=SPACING):
    """Store a volume [right, front, head] along other axes, with the affine that says so."""
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = (-10, 4, 30)
    image = nibabel.Nifti1Image(data, affine)
    turn = nibabel.orientations.ornt_transform(nibabel.io_orientation(affine), nibabel.orientations.axcodes2ornt(codes))
    nibabel.save(image.as_reoriented(turn), path)
    return path


def save_series(folder, data, *, names=None, spacing=SPACING, direction=((1, 0, 0), (0, 1, 0)), **changes):
    """Store [slice, row, column] as one DICOM file a slice, named against their order."""
    folder.mkdir(parents=True, exist_ok=True)
    uid, across, down = generate_uid(), *np.array(direction, dtype=float)
    normal = np.cross(across, down)
    for number, pixels in enumerate(data):
        meta = FileMetaDataset()
        meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, MRImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        path = folder / (names[number] if names else f"{len(data) - number:03d}.dcm")
        file = FileDataset(path, {}, file_meta=meta, preamble=b"\0" * 128)
        file.SOPClassUID, file.SOPInstanceUID = MRImageStorage, meta.MediaStorageSOPInstanceUID
        file.SeriesInstanceUID, file.Modality, file.PatientID = uid, "MR", changes.get("SeriesInstanceUID", uid)[-40:]
        file.Rows, file.Columns = pixels.shape
        file.PixelSpacing, file.SliceThickness = list(spacing[1:]), spacing[0]
        file.ImageOrientationPatient = [*across, *down]
        file.ImagePositionPatient = [float(v) for v in np.array([-20.0, 7.0, 11.0]) + number * spacing[0] * normal]
        file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
        file.BitsAllocated = file.BitsStored = 16
        file.HighBit, file.PixelRepresentation = 15, 0
        for name, value in changes.items():
            setattr(file, name, value[number] if isinstance(value, list) else value)
        file.PixelData = pixels.astype(np.uint16).tobytes()
        file.save_as(path, enforce_file_format=True)
    return folder


def features(path, **options):
    opened = open_file(path, ImageOptions(**options))
    return opened.features[: opened.features.shape[0]]


def numbers(path, **options):
    opened = open_file(path, ImageOptions(**options))
    return opened.coords[: opened.coords.shape[0]][:, 0].tolist()


@pytest.mark.parametrize("codes", ["RAS", "LPS", "SPR", "AIL", "IRP"])
@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
def test_slices_follow_the_patient_whatever_the_file_says(tmp_path, codes, suffix):
    data = body()
    path = save_nifti(tmp_path / f"a.{suffix}", data, codes)
    axial = features(path)
    assert axial.shape == (7, 1, 6, 5)
    assert axial.dtype == np.float32
    for k, part in enumerate(axial[:, 0]):  # rows to the back, columns to the left
        np.testing.assert_array_equal(part, data[::-1, ::-1, k].T)
    for i, part in enumerate(features(path, axis=0)[:, 0]):  # rows to the feet, columns to the back
        np.testing.assert_array_equal(part, data[i, ::-1, ::-1].T)
    for j, part in enumerate(features(path, axis=1)[:, 0]):
        np.testing.assert_array_equal(part, data[::-1, j, ::-1].T)
    assert numbers(path) == list(range(7))


def test_slices_rise_by_nibabels_own_affine(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body(), "SPR")
    image = nibabel.load(path)
    stored, slices = np.asarray(image.dataobj), features(path)
    heights = []
    for part in slices[:, 0]:
        voxel = np.argwhere(stored == part[2, 3])[0]
        heights.append(nibabel.affines.apply_affine(image.affine, voxel)[2])
    np.testing.assert_allclose(np.diff(heights), SPACING[2])


def test_a_series_is_ordered_by_position_not_by_name_or_number(tmp_path):
    data = body((6, 4, 5))
    folder = save_series(tmp_path / "scan", data, InstanceNumber=[4, 1, 6, 2, 5, 3])
    np.testing.assert_array_equal(features(folder)[:, 0], data)
    assert numbers(folder) == list(range(6))
    files = [pydicom.dcmread(path) for path in folder.iterdir()]
    files.sort(key=lambda file: float(file.ImagePositionPatient[2]))
    np.testing.assert_array_equal(features(folder)[:, 0], [file.pixel_array for file in files])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_series_and_the_same_scan_as_nifti_give_the_same_slices(tmp_path, axis):
    data = body()
    nifti = save_nifti(tmp_path / "a.nii.gz", data)
    # Sagittal slices from left to right, of which rows go to the feet and columns to the back.
    sagittal = data[:, ::-1, ::-1].transpose(0, 2, 1)
    # The normal of such slices points to the right of the patient, which is against DICOM's first axis.
    folder = save_series(tmp_path / "scan", sagittal, spacing=(2.0, 3.0, 1.5), direction=((0, 1, 0), (0, 0, -1)))
    np.testing.assert_array_equal(features(folder, axis=axis), features(nifti, axis=axis))


def test_oblique_slices_keep_their_order(tmp_path):
    data = body((5, 4, 4))
    turn = np.deg2rad(25)
    direction = ((1, 0, 0), (0, np.cos(turn), np.sin(turn)))
    folder = save_series(tmp_path / "scan", data, direction=direction)
    np.testing.assert_array_equal(features(folder)[:, 0], data)
    volume = read_series(sorted(folder.iterdir()), None)
    np.testing.assert_allclose(volume.spacings[0], SPACING)


def test_slope_intercept_and_inversion(tmp_path):
    data = body((3, 4, 5))
    folder = save_series(tmp_path / "ct", data, RescaleSlope="2", RescaleIntercept=["-1000", "-1000", "-900"])
    expected = 2.0 * data - np.array([1000, 1000, 900])[:, None, None]
    np.testing.assert_array_equal(features(folder)[:, 0], expected)
    folder = save_series(
        tmp_path / "inverted", data, PhotometricInterpretation="MONOCHROME1", BitsStored=12, HighBit=11
    )
    np.testing.assert_array_equal(features(folder)[:, 0], 4095 - data)
    image = nibabel.Nifti1Image(body(), np.eye(4))
    image.header.set_slope_inter(0.5, 3)
    nibabel.save(image, tmp_path / "scaled.nii")
    stored = np.asarray(nibabel.load(tmp_path / "scaled.nii").dataobj)
    assert np.sort(features(tmp_path / "scaled.nii").ravel()).tolist() == np.sort(stored.ravel()).tolist()


@pytest.mark.parametrize("suffix", ["npy", "npz"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_arrays_are_sliced_along_their_own_axes_and_empty_slices_dropped(tmp_path, suffix, axis):
    data = np.zeros(SHAPE, dtype=np.uint8)
    data[1:4, 2:4, 3:6] = 200
    path = tmp_path / f"a.{suffix}"
    (np.save if suffix == "npy" else np.savez)(path, data)
    kept = [[1, 2, 3], [2, 3], [3, 4, 5]][axis]
    assert numbers(path, axis=axis) == kept
    assert numbers(path, axis=axis, drop_empty=False) == list(range(SHAPE[axis]))
    found = features(path, axis=axis)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found[:, 0], np.moveaxis(data, axis, 0)[kept])
    known = open_file(path, ImageOptions(axis=axis), np.array([[2]]))
    np.testing.assert_array_equal(known.features[:1][0, 0], np.moveaxis(data, axis, 0)[2])


def test_window_spacing_and_size(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body())
    plain = features(path)
    window = features(path, window=(50, 150))
    np.testing.assert_allclose(window, np.clip((plain - 50) / 100, 0, 1), rtol=1e-6)
    # 6 rows of 1.5 mm are 9 mm, 5 columns of 2 mm are 10 mm: 11 of 12 rows are filled, none is squashed.
    padded = features(path, slice_size=12)
    assert padded.shape == (7, 1, 12, 12)
    np.testing.assert_array_equal(padded[:, 0, :11], resized(plain[:, 0], (7, 11, 12)))
    assert (padded[:, 0, 11] == 1).all()  # the least intensity of the volume
    # 6 rows of 1.5 mm are 9 mm, 5 columns of 2 mm are 10 mm.
    assert features(path, spacing=1.0).shape == (7, 1, 9, 10)
    fitted = features(path, spacing=1.0, slice_size=12)
    np.testing.assert_array_equal(fitted[:, 0, 1:10, 1:11], features(path, spacing=1.0)[:, 0])
    assert (fitted[:, 0, 0] == 1).all()  # the least intensity of the volume
    np.testing.assert_array_equal(
        features(path, spacing=1.0, slice_size=4), features(path, spacing=1.0)[:, :, 2:6, 3:7]
    )
    ones = np.full((4, 4, 4), 7.0)
    np.testing.assert_allclose(resized(ones, (2, 8, 3)), 7.0)
    ramp = np.arange(8.0)[None, None] * np.ones((2, 3, 1))
    np.testing.assert_allclose(resized(ramp, (2, 3, 4))[0, 0, 1:3], [2.5, 4.5])


def test_a_slice_is_the_same_alone_and_in_a_run(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body((30, 40, 20)))
    for options in ({"slice_size": 16}, {"spacing": 1.3, "slice_size": 16}, {"window": (0, 900), "slice_size": 48}):
        opened = open_file(path, ImageOptions(**options))
        run = opened.features[:20]
        for row in (0, 7, 19):
            np.testing.assert_array_equal(opened.features[np.array([row])][0], run[row])


@pytest.mark.parametrize("options", [{}, {"volume": True}, {"spacing": 2.0}])
def test_pixels_of_several_sizes_are_warned_of(tmp_path, options, recwarn):
    """A slice that fills its frame has the size of what it shows, whatever its pixels were."""
    for number, (side, width) in enumerate(((6, 1.0), (6, 1.9), (3, 2.0))):
        save_nifti(tmp_path / f"s{number}.nii", body((side, side, 5), number), spacing=(width, width, 3))
    options = {"volume_size": (5, 6, 6), **options} if "volume" in options else {"slice_size": 6, **options}
    read_bags(tmp_path, require_labels=False, images=ImageOptions(**options))
    assert not [one for one in recwarn if "pixels of scans" in str(one.message)]
    save_nifti(tmp_path / "s3.nii", body((6, 6, 5), 3), spacing=(8, 8, 3))
    ends, usual = ("1.442 to 5.769", "2.21") if "volume" in options else ("1 to 8", "1.9")
    words = f"pixels of scans are {ends} mm wide.*: give one size, such as `spacing={usual}"
    with nullcontext() if "spacing" in options else pytest.warns(UserWarning, match=words):
        read_bags(tmp_path, require_labels=False, images=ImageOptions(**options))


def test_scans_with_pixels_of_another_size_than_in_training_are_warned_of(tmp_path, capsys):
    for folder, width in (("train", 0.8), ("alike", 1.0), ("coarse", 3.0)):
        (tmp_path / folder).mkdir()
        for number in range(12 if folder == "train" else 2):
            data = body((6, 6, 5), number)
            save_nifti(tmp_path / folder / f"s{number}.nii", data, spacing=(width, width, 3))
    (tmp_path / "l.csv").write_text("scan,label\n" + "".join(f"s{n},{n % 2}\n" for n in range(12)))
    made = ["--labels", str(tmp_path / "l.csv"), "--epochs", "1", "--folds", "0", "--out", str(tmp_path / "run")]
    assert main(["fit", str(tmp_path / "train"), *made]) == 0
    for folder in ("alike", "coarse"):
        assert (
            main(["predict", str(tmp_path / "run"), str(tmp_path / folder), "--out", str(tmp_path / f"{folder}.csv")])
            == 0
        )
        words = "pixels of the files are 3 mm wide, in the training"
        assert (words in " ".join(capsys.readouterr().err.split())) == (folder == "coarse")


def test_a_whole_volume_is_one_instance(tmp_path):
    path = save_nifti(tmp_path / "a.nii.gz", body())
    whole = features(path, volume=True)
    np.testing.assert_array_equal(whole[0], features(path).swapaxes(0, 1))
    assert open_file(path, ImageOptions(volume=True)).coords is None
    assert features(path, volume=True, volume_size=(4, 8, 8)).shape == (1, 1, 4, 8, 8)
    # 7 slices of 3 mm are 21 mm.
    assert features(path, volume=True, spacing=1.5).shape == (1, 1, 14, 6, 7)
    assert features(path, volume=True, spacing=1.5, volume_size=(8, 8, 8)).shape == (1, 1, 8, 8, 8)


def test_folders_of_scans_become_bags(tmp_path):
    (tmp_path / "nifti").mkdir()
    for number in range(4):
        data = body((6, 6, 6), seed=number)
        save_nifti(tmp_path / "nifti" / f"scan.{number}.nii.gz", data)
        save_series(tmp_path / "dicom" / f"scan.{number}", data, names=[f"{n}" for n in range(6)])
    rows = [f"scan.{number},{number % 2}" for number in range(4)]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    for kind in ("nifti", "dicom"):
        bags = read_bags(tmp_path / kind, labels=tmp_path / "labels.csv")
        assert bags.ids.tolist() == [f"scan.{number}" for number in range(4)]
        assert bags.labels.tolist() == [0, 1, 0, 1]
        assert bags.sizes.tolist() == [6] * 4
        assert bags.instance_shape == (1, 6, 6)
        np.testing.assert_array_equal(bags.places(2), np.arange(6)[:, None])
        copy = pickle.loads(pickle.dumps(bags.instances))
        np.testing.assert_array_equal(copy.take([13, 2]), bags.gather([13, 2]))
    with pytest.raises(BagDataError, match="name the folder above"):
        read_bags(tmp_path / "dicom" / "scan.0", labels=tmp_path / "labels.csv")
    listed = ["bag,path,label", *(f"{n},dicom/scan.{n},{n % 2}" for n in range(4))]
    (tmp_path / "manifest.csv").write_text("\n".join(listed))
    np.testing.assert_array_equal(read_bags(tmp_path / "manifest.csv")[1], bags[1])


def remove(folder, number):
    sorted(folder.iterdir())[number].unlink()


def double(folder):
    path = sorted(folder.iterdir())[2]
    (folder / "again.dcm").write_bytes(path.read_bytes())


def cut(folder):
    path = sorted(folder.iterdir())[2]
    path.write_bytes(path.read_bytes()[:-40])


BROKEN = {
    "missing": (lambda folder: remove(folder, 2), "slices are missing"),
    "double": (double, "one slice at each position, got 1 duplicates"),
    "mixed": (lambda folder: save_series(folder, body((2, 4, 5)), names=["x.dcm", "y.dcm"]), "one series, got 2"),
    "cut": (cut, "003.dcm"),
    "no place": (lambda folder: change(folder, ImagePositionPatient=None), "no usable ImagePositionPatient"),
    "localizer": (
        lambda folder: change(folder, ImageOrientationPatient=[0, 1, 0, 0, 0, 1]),
        "localizer",
    ),
    "frames": (lambda folder: change(folder, NumberOfFrames=2), "no usable ImagePositionPatient"),
    "no samples": (lambda folder: change(folder, SamplesPerPixel=None), "no usable SamplesPerPixel"),
    "half a place": (lambda folder: change(folder, PixelSpacing=[1.5]), "no usable PixelSpacing"),
}


def change(folder, **values):
    path = sorted(folder.iterdir())[1]
    file = pydicom.dcmread(path)
    for name, value in values.items():
        if value is None:
            delattr(file, name)
        else:
            setattr(file, name, value)
    file.save_as(path)


@pytest.mark.parametrize("case", BROKEN)
def test_a_series_that_is_no_whole_one_is_named(tmp_path, case):
    folder = save_series(tmp_path / "scan", body((6, 4, 5)))
    spoil, words = BROKEN[case]
    spoil(folder)
    with pytest.raises(BagDataError, match=words) as caught:
        probe(folder)
    assert "scan" in str(caught.value)


@pytest.mark.parametrize("kept", [(0, 2, 3), (0, 1, 3, 5), (0, 2, 3, 5, 7), (0, 3, 4)])
def test_a_missing_slice_is_seen_in_a_short_series(tmp_path, kept):
    folder = save_series(tmp_path / "scan", body((8, 4, 5)), names=[f"{n}.dcm" for n in range(8)])
    for number in set(range(8)) - set(kept):
        (folder / f"{number}.dcm").unlink()
    with pytest.raises(BagDataError, match=r"2\.00 mm apart.*slices are missing"):
        probe(folder)


EVERY_OTHER = list(range(1, 13, 2))
DOUBTS = {
    "spacing": (
        {"SpacingBetweenSlices": 1.0, "SliceThickness": 0.8},
        "2.00 mm apart, the SpacingBetweenSlices is 1 mm",
    ),
    "thickness": ({"SliceThickness": 1.0}, "2.00 mm apart, the SliceThickness is 1 mm"),
    "numbers": ({"InstanceNumber": EVERY_OTHER}, "InstanceNumber skips 5 of 1 to 11"),
    "one number": ({"InstanceNumber": [1, 2, 3, 5, 6, 7]}, "InstanceNumber skips 1 of 1 to 7"),
}


@pytest.mark.parametrize("case", DOUBTS)
def test_tags_that_speak_for_missing_slices_are_warned_of_once(tmp_path, case):
    tags, words = DOUBTS[case]
    for name in ("a", "b"):
        save_series(tmp_path / name, body((6, 4, 5)), **tags)
    save_series(tmp_path / "c", body((6, 4, 5)))
    with pytest.warns(UserWarning, match=f"2 of 3 files are doubtful, the first .*a: slices may be.*{words}") as caught:
        assert read_bags(tmp_path, require_labels=False).sizes.tolist() == [6, 6, 6]
    assert len(caught) == 1


@pytest.mark.parametrize(
    "tags",
    [
        {"InstanceNumber": [5, 2, 6, 3, 7, 4]},  # in another order, from 2
        {"InstanceNumber": EVERY_OTHER, "SpacingBetweenSlices": 2.0},  # echoes in turn
        {"InstanceNumber": [1] * 6},
        {"SpacingBetweenSlices": 0.2, "SliceThickness": 1.8},  # the room between slices
        {"SpacingBetweenSlices": -2.0, "SliceThickness": 4.0},  # overlapping
        {"SpacingBetweenSlices": None, "SliceThickness": ""},
        {"ImagePositionPatient": [[0, 0, z] for z in (0.0, 2.0, 4.1, 6.0, 8.1, 10.0)]},  # rounded
    ],
)
def test_series_of_uncommon_tags_are_read_in_silence(tmp_path, tags):
    save_series(tmp_path / "a", body((6, 4, 5)), **tags)
    assert read_bags(tmp_path, require_labels=False).sizes.tolist() == [6]


def test_a_nifti_without_a_place_is_warned_of_once(tmp_path):
    for name in "ab":
        image = nibabel.Nifti1Image(body(), None)
        assert (int(image.header["sform_code"]), int(image.header["qform_code"])) == (0, 0)
        nibabel.save(image, tmp_path / f"{name}.nii.gz")
    save_nifti(tmp_path / "c.nii.gz", body())
    with pytest.warns(
        UserWarning, match=r"2 of 3 files are doubtful, the first .*a\.nii\.gz: sform and qform"
    ) as caught:
        bags = read_bags(tmp_path, require_labels=False)
    assert len(caught) == 1
    assert "sform and qform" in bags.described(0)["a.nii.gz"]["file"]["doubt"]


def test_a_nifti_whose_two_forms_mirror_each_other_is_warned_of(tmp_path):
    for name in "abc":
        image = nibabel.load(save_nifti(tmp_path / f"{name}.nii.gz", body()))
        image.set_sform(image.affine, 1)
        image.set_qform(np.diag([-1.0 if name == "b" else 1.0, 1, 1, 1]) @ image.affine, 2)
        nibabel.save(image, tmp_path / f"{name}.nii.gz")
    with pytest.warns(
        UserWarning, match=r"1 of 3 files are doubtful, .*b\.nii\.gz: sform .*RAS and LAS.*sform is read"
    ):
        read_bags(tmp_path, require_labels=False)


def test_a_nifti_whose_two_forms_are_equal_is_sound_at_any_angle(tmp_path, recwarn):
    turn = np.eye(4)
    turn[:2, :2] = np.sqrt(0.5) * np.array([[1, -1], [1, 1]])
    for name, by in zip("abc", (1, 3, 5), strict=True):  # by 45, 135 and 225 degrees
        image = nibabel.load(save_nifti(tmp_path / f"{name}.nii.gz", body()))
        turned = np.linalg.matrix_power(turn, by) @ image.affine
        image.set_sform(turned, 1)
        image.set_qform(turned, 1)
        nibabel.save(image, tmp_path / f"{name}.nii.gz")
    read_bags(tmp_path, require_labels=False)
    assert not [text for warning in recwarn if "doubtful" in (text := str(warning.message))]


def scan_with_a_body(ground, noise=0.0):
    """20 slices, of which those from 5 to 14 show something."""
    rng = np.random.default_rng(0)
    data = np.full((16, 16, 20), ground, dtype=np.float32) + noise * rng.random((16, 16, 20), dtype=np.float32)
    data[4:12, 4:12, 5:15] = 50 + 100 * rng.random((8, 8, 10), dtype=np.float32)
    return data


def test_slices_that_show_nothing_are_left_out_whatever_their_ground(tmp_path):
    shown, path = list(range(5, 15)), tmp_path / "a.nii.gz"
    for ground in (0, -1000, 300):
        data = scan_with_a_body(ground)
        save_nifti(path, data)
        assert numbers(path) == shown
        data[6, 6, [7, 18]] = ground - 0.01
        save_nifti(path, data)
        assert numbers(path) == shown
        assert numbers(path, drop_empty=False) == list(range(20))
    save_nifti(path, scan_with_a_body(-1000, noise=3))
    assert numbers(path, window=(0, 400)) == shown
    assert numbers(path) == list(range(20))  # noise is no ground without a window
    np.save(tmp_path / "a.npy", scan_with_a_body(-1000, noise=3))
    assert numbers(tmp_path / "a.npy", axis=2, window=(0, 400)) == shown
    # The commonest intensity may be the bright one.
    assert len(numbers(path, window=(-1000, -990))) == 20
    for options in ({}, {"volume": True}, {"drop_empty": False}):
        with pytest.raises(BagDataError, match=r"after the window 500,900.*another `window`"):
            probe(path, ImageOptions(window=(500, 900), **options))
    save_nifti(path, np.arange(6.0)[None, None] * np.ones((4, 5, 1)))
    with pytest.raises(BagDataError, match="one intensity in each slice"):
        probe(path)
    assert numbers(path, axis=0) == list(range(4))


def test_a_note_before_the_slices_hides_no_series(tmp_path):
    for name in ("a", "b"):
        folder = save_series(tmp_path / name, body((6, 4, 5)), names=[f"{n}" for n in range(6)])
        (folder / "-notes.txt").write_text("seen")
        (folder / "-preview.bin").write_bytes(b"x" * 200)
    assert read_bags(tmp_path, require_labels=False).ids.tolist() == ["a", "b"]


def test_what_is_no_bag_is_spoken_of_where_no_table_names_the_bags(tmp_path):
    data, table = tmp_path / "data", tmp_path / "labels.csv"
    for name in "abc":
        save_series(data / name, body((6, 4, 5)))
    for name in ("x", "y"):
        (data / name).mkdir()
        (data / name / "slice.png").write_bytes(b"none")
    for name in ("notes.txt", "labels.csv", ".hidden", "scan.mha"):
        (data / name).write_text("file,label")
    with pytest.warns(UserWarning, match=r"3 of 6 files and folders.*formats: scan\.mha, x/, y/ \(in") as caught:
        assert read_bags(data, require_labels=False).ids.tolist() == ["a", "b", "c"]
    assert len(caught) == 1
    table.write_text("file,label\na,0\nb,1\nc,0")
    assert len(read_bags(data, labels=table)) == 3
    table.write_text("file,label\na,0\nb,1\nc,0\nx,1")
    with pytest.raises(BagDataError, match="a file for each row, got none for 1 of 4: x"):
        read_bags(data, labels=table)


def test_the_data_of_a_file_beside_it_is_not_spoken_of(tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3), dtype=np.float32))
        (tmp_path / name).mkdir()  # as MRXS has them
    assert len(read_bags(tmp_path, require_labels=False)) == 2


def test_series_that_lie_deeper_are_shown_the_way(tmp_path):
    for name in ("p1", "p2"):
        save_series(tmp_path / "data" / name / "study" / "1.2.3", body((6, 4, 5)))
        for folder in ("nii", "nii/deep"):
            (tmp_path / folder / name / "study").mkdir(parents=True)
        save_nifti(tmp_path / "nii" / "deep" / name / "study" / "a.nii.gz", body())
    with pytest.raises(BagDataError, match=r"name the folder that holds them, or a manifest.*columns bag, path, label"):
        read_bags(tmp_path / "nii", require_labels=False)
    rows = [f"{name},data/{name}/study/1.2.3,{label}" for label, name in enumerate(("p1", "p2"))]
    (tmp_path / "manifest.csv").write_text("\n".join(["bag,path,label", *rows]))
    assert read_bags(tmp_path / "manifest.csv").ids.tolist() == ["p1", "p2"]


def test_unusable_volumes_are_all_named_before_training_starts(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    rows = ["file,label"]
    for number in range(8):
        data = body((6, 6, 6), seed=number).astype(np.float32)
        if number == 3:
            data[2, 2, 4] = np.nan
        if number == 5:
            data[:] = 4
        save_nifti(folder / f"s{number}.nii.gz", data)
        rows.append(f"s{number},{number % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    settings = Settings(labels=str(tmp_path / "labels.csv"), epochs=1)
    with pytest.raises(BagDataError) as caught:
        fit_run(str(folder), settings, RunFolder(tmp_path / "run"))
    assert "NaN or infinity in slice 4 of 6" in str(caught.value)
    assert "s3.nii.gz" in str(caught.value)
    assert "4 in every voxel" in str(caught.value)
    assert "s5.nii.gz" in str(caught.value)
    assert not list(tmp_path.glob("run/*.pt"))


def test_volumes_that_do_not_fit_together_are_refused(tmp_path):
    one = save_nifti(tmp_path / "a.nii.gz", body())
    two = save_nifti(tmp_path / "b.nii.gz", body((8, 6, 7)))
    with pytest.raises(BagDataError, match=r"b\.nii\.gz.*`slice_size=64`"):
        probe_files([one, two])
    assert len(probe_files([one, two], ImageOptions(slice_size=8))) == 2
    four = nibabel.Nifti1Image(np.ones((4, 4, 4, 3)), np.eye(4))
    nibabel.save(four, tmp_path / "four.nii")
    with pytest.raises(BagDataError, match="a file for each sequence"):
        probe(tmp_path / "four.nii")
    (tmp_path / "text.nii.gz").write_text("no volume")
    with pytest.raises(BagDataError, match="whole NIfTI"):
        probe(tmp_path / "text.nii.gz")
    whole = one.read_bytes()
    (tmp_path / "cut.nii.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BagDataError, match=r"cut\.nii\.gz"):
        probe(tmp_path / "cut.nii.gz")
    np.save(tmp_path / "a.npy", np.ones((3, 4, 5)))
    with pytest.raises(BagDataError, match="`spacing`"):
        probe(tmp_path / "a.npy", ImageOptions(spacing=1.0))


@pytest.mark.data
def test_a_real_series_and_real_volumes(data_root):
    folder = data_root / "volumes" / "dicom_t1post"
    slices = features(folder)
    files = sorted((pydicom.dcmread(path) for path in folder.iterdir()), key=lambda file: float(file.SliceLocation))
    assert slices.shape == (22, 1, 320, 280)
    found = [file.pixel_array for file in files]
    # SliceLocation may count against the normal; the order is one or the other, never a third.
    assert np.array_equal(slices[:, 0], found) or np.array_equal(slices[:, 0], found[::-1])
    for path in sorted((data_root / "volumes" / "nifti").iterdir()):
        image = nibabel.as_closest_canonical(nibabel.load(path))
        expected = np.asarray(image.dataobj)[::-1, ::-1].transpose(2, 1, 0)
        np.testing.assert_array_equal(features(path, drop_empty=False)[:, 0], expected)


def slices_of(path, **options):
    facts = probe(path, ImageOptions(**options))
    return facts.attributes["file"]["slices"], facts.places[:, 0]


@pytest.mark.parametrize("codes", ["RAS", "LPS", "SPR", "AIL", "IRP"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_of_a_volume_are_known_by_index_and_position(tmp_path, codes, axis):
    path = save_nifti(tmp_path / "a.nii.gz", body(), codes)
    image = nibabel.load(path)
    stored, (known, places) = np.asarray(image.dataobj), slices_of(path, axis=axis)
    for place, part in zip(places, features(path, axis=axis)[:, 0], strict=True):
        voxels = np.argwhere(np.isin(stored, part))
        world = nibabel.affines.apply_affine(image.affine, voxels)
        along = int(np.argmin(np.ptp(voxels, axis=0)))
        assert set(voxels[:, along]) == {known["slice_index"][place]}
        assert known["position_mm"][place] == pytest.approx(world[:, axis].mean(), abs=1e-3)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("direction", [((1, 0, 0), (0, 1, 0)), ((0, 1, 0), (0, 0, -1)), ((1, 0, 0), (0, 0, -1))])
def test_slices_of_a_series_are_known_by_number_uid_and_position(tmp_path, axis, direction):
    data = body((6, 4, 5))
    folder = save_series(tmp_path / "scan", data, direction=direction, InstanceNumber=[4, 1, 6, 2, 5, 3])
    files = [pydicom.dcmread(path) for path in folder.iterdir()]
    acquired = int(np.abs(np.cross(*direction)).argmax())
    known, places = slices_of(folder, axis=axis)
    parts = features(folder, axis=axis)[:, 0]
    if axis not in (None, acquired):
        assert list(known) == ["position_mm"]
        assert len(known["position_mm"]) == len(parts)
        return
    for place, part in zip(places, parts, strict=True):
        file = next(file for file in files if set(file.pixel_array.ravel()) == set(part.ravel()))
        assert known["instance_number"][place] == file.InstanceNumber
        assert known["sop_instance_uid"][place] == file.SOPInstanceUID
        assert known["position_mm"][place] == pytest.approx(file.ImagePositionPatient[acquired])


def test_a_series_without_numbers_has_slices_all_the_same(tmp_path):
    known, _ = slices_of(save_series(tmp_path / "scan", body((3, 4, 5))))
    assert known["instance_number"] == [None] * 3


def test_a_ct_says_the_window_that_it_asks_to_be_shown_with(tmp_path):
    said = {"Modality": "CT", "WindowCenter": [40, 300], "WindowWidth": [400, 1500]}
    folder = save_series(tmp_path / "scan", body((3, 4, 5)))
    for path in folder.iterdir():
        file = pydicom.dcmread(path)
        for name, value in said.items():
            setattr(file, name, value)
        file.save_as(path)
    found = probe(folder).attributes["file"]
    assert (found["modality"], found["window"]) == ("CT", [-160, 240])


def test_a_slice_that_is_cut_after_its_header_is_refused(tmp_path):
    save_series(tmp_path / "a", body(seed=0))
    path = sorted((tmp_path / "a").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BagDataError, match=rf"a whole DICOM file, got .*{path.name}"):
        read_bags(tmp_path, require_labels=False)


def test_slices_of_several_sizes_are_looked_at(tmp_path, capsys):
    from midam.cli import main

    (tmp_path / "scans").mkdir()
    for number in range(6):
        side = 96 if number % 3 else 128
        np.save(tmp_path / "scans" / f"s{number}.npy", np.random.default_rng(number).random((2, side, side)))
    (tmp_path / "l.csv").write_text("scan,label\n" + "".join(f"s{number},{number % 2}\n" for number in range(6)))
    for command in (["data", "describe"], ["new", "--out", str(tmp_path / "m.yaml")]):
        words = (
            [*command[:2], str(tmp_path / "scans")]
            if command[0] == "data"
            else ["new", str(tmp_path / "scans"), *command[1:]]
        )
        assert main([*words, "--labels", str(tmp_path / "l.csv")]) == 0
        assert "slices of several sizes are resized to 224 x 224 pixels" in capsys.readouterr().err


@pytest.mark.parametrize(("unit", "factor"), [("meter", 1e-3), ("micron", 1e3)])
def test_the_unit_of_lengths_is_that_of_the_file(tmp_path, unit, factor):
    data, affine = body((6, 8, 5)), np.diag([2.0, 2.0, 5.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(data, affine), tmp_path / "mm.nii")
    other = nibabel.Nifti1Image(data, np.diag([factor, factor, factor, 1]) @ affine)
    other.header.set_xyzt_units(unit)
    nibabel.save(other, tmp_path / "other.nii")
    expected, read = (open_file(tmp_path / name, ImageOptions(spacing=4)) for name in ("mm.nii", "other.nii"))
    np.testing.assert_allclose(read.features[:5], expected.features[:5], rtol=1e-5)
    assert read.attributes["file"]["slices"] == expected.attributes["file"]["slices"]
