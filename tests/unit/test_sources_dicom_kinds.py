"""DICOM beyond one gray slice a file: many frames, images without a place, compressed pixels, slices that differ."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import generate_uid
from tests.unit.test_sources_volumes import body, save_series

from midam.data.sources import read_bags
from midam.data.sources.file_rows import instance_columns
from midam.data.sources.probe import open_file, probe
from midam.data.sources.request import ImageOptions
from midam.errors import BagDataError, Note

SHAPE = (6, 4, 5)
GRAY1 = "MONOCHROME1"
SCOUT = "ORIGINAL\\PRIMARY\\LOCALIZER"


def features(path, **options):
    opened = open_file(path, ImageOptions(**options))
    return opened.features[: opened.features.shape[0]]


def said(path, **options):
    return probe(path, ImageOptions(**options)).attributes["file"]


def change(path, **tags):
    file = pydicom.dcmread(path)
    for name, value in tags.items():
        if value is None:
            del file[name]
        else:
            setattr(file, name, value)
    file.save_as(path)


def each(folder, numbers, **tags):
    for number in numbers:
        change(sorted(folder.iterdir())[number], **tags)
    return folder


def group(**tags):
    item = Dataset()
    for name, value in tags.items():
        setattr(item, name, value)
    return Sequence([item])


def enhanced(path, data, *, slopes=None, modality="CT", order=None, extra=None):
    """One file of many frames [slice, row, column], stored in an `order`, with the place and slope of each."""
    folder = save_series(path.parent, data[:1], names=[path.name], Modality=modality)
    file = pydicom.dcmread(folder / path.name)
    for name in ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness"):
        del file[name]
    order = range(len(data)) if order is None else order
    file.NumberOfFrames, frames = len(data), []
    for number in order:
        frame = Dataset()
        frame.PlanePositionSequence = group(ImagePositionPatient=[-20.0, 7.0, 11.0 + 2 * number])
        if slopes is not None and slopes[number] is not None:
            frame.PixelValueTransformationSequence = group(RescaleSlope=slopes[number], RescaleIntercept=-5)
        for name, values in (extra or {}).items():
            setattr(frame, name, group(**values[number]))
        frames.append(frame)
    shared = Dataset()
    shared.PlaneOrientationSequence = group(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])
    shared.PixelMeasuresSequence = group(PixelSpacing=[1.0, 1.5], SliceThickness=2)
    file.SharedFunctionalGroupsSequence, file.PerFrameFunctionalGroupsSequence = Sequence([shared]), Sequence(frames)
    file.PixelData = np.stack([data[number] for number in order]).astype(np.uint16).tobytes()
    file.save_as(path)
    return path


def flat(folder, shapes, *, modality="DX", study=None, values=None, **tags):
    """X-rays: an image a file, each a series of its own, without a place."""
    study = study or generate_uid()
    for number, shape in enumerate(shapes):
        name, pixels = f"v{number}.dcm", body((1, *shape), number) if values is None else values[number][None]
        own = {key: value[number] if isinstance(value, list) else value for key, value in tags.items()}
        own = {"PatientID": study[-40:], **own}
        save_series(folder, pixels, names=[name], Modality=modality, StudyInstanceUID=study, **own)
        change(folder / name, ImagePositionPatient=None, ImageOrientationPatient=None)
    return folder


@pytest.mark.parametrize("modality", ["CT", "MR"])
def test_frames_of_one_file_are_slices_by_their_own_places_and_slopes(tmp_path, modality):
    data, slopes = body(SHAPE), [1, 2, 3, 1, 2, 3]
    path = enhanced(tmp_path / "p" / "all.dcm", data, slopes=slopes, modality=modality, order=[3, 0, 5, 1, 4, 2])
    expected = data * np.array(slopes, dtype=np.float32)[:, None, None] - 5
    for source in (path, path.parent):
        np.testing.assert_array_equal(features(source)[:, 0], expected)
    known = said(path)
    assert (known["plane"], known["edges"]) == ("axial", "RLAP")
    assert known["slices"]["frame_number"] == [2, 4, 6, 1, 5, 3]
    assert known["slices"]["position_mm"] == [11, 13, 15, 17, 19, 21]
    listed = instance_columns(read_bags(tmp_path, require_labels=False), 0)
    assert listed["frame_number"] == [2, 4, 6, 1, 5, 3]


def test_a_file_of_frames_is_the_series_of_its_slices(tmp_path):
    data = body((6, 8, 8))
    one = enhanced(tmp_path / "one" / "all.dcm", data)
    many = save_series(tmp_path / "many", data, spacing=(2.0, 1.0, 1.5))
    for options in ({}, {"axis": 0}, {"slice_size": 5}, {"volume": True}):
        np.testing.assert_array_equal(features(one, **options), features(many, **options))


def test_files_of_frames_in_one_folder_are_bags(tmp_path):
    for number in range(3):
        change(enhanced(tmp_path / "data" / f"p{number}.dcm", body(SHAPE, number)), StudyInstanceUID=generate_uid())
    table = tmp_path / "labels.csv"
    table.write_text("file,label\np0,0\np1,1\np2.dcm,1")
    assert read_bags(tmp_path / "data", labels=table).ids.tolist() == ["p0", "p1", "p2"]


FRAMES = {
    "half the slopes": ({"slopes": [1, 2, 3, None, None, None]}, "none in 3 of 6: all.dcm, frame 4"),
    "two echoes": (
        {"extra": {"MREchoSequence": [{"EffectiveEchoTime": 10 + 20 * (n % 2)} for n in range(6)]}},
        "2 kinds .* by EffectiveEchoTime",
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_frames_that_do_not_belong_together_are_refused(tmp_path, case):
    how, words = FRAMES[case]
    with pytest.raises(BagDataError, match=words):
        probe(enhanced(tmp_path / "all.dcm", body(SHAPE), **how))


def test_more_frames_than_there_are_pixels_or_groups_are_refused(tmp_path):
    path = enhanced(tmp_path / "all.dcm", body(SHAPE))
    change(path, NumberOfFrames=7)
    with pytest.raises(BagDataError, match="7 frames"):
        probe(path)
    change(path, NumberOfFrames=2_000_000_000, PerFrameFunctionalGroupsSequence=None)
    with pytest.raises(BagDataError, match="2000000000 frames"):
        probe(path)


# What some of the slices state otherwise than the rest: how, and the words of the error; None where it is read right.
DIFFERING = {
    "no slope in half": (
        {"RescaleSlope": 3, "RescaleIntercept": -1000},
        {"RescaleSlope": None, "RescaleIntercept": None},
        "RescaleSlope and RescaleIntercept in all slices or in none, got none in 3 of 6: 001.dcm; 002.dcm; 003.dcm",
    ),
    "no intercept": ({"RescaleSlope": 3, "RescaleIntercept": 1}, {"RescaleIntercept": None}, "RescaleIntercept"),
    "a slope of 0": ({"RescaleSlope": 3, "RescaleIntercept": 1}, {"RescaleSlope": 0}, "RescaleSlope that is not 0"),
    "no slope where it is 1": (
        {"RescaleSlope": 1, "RescaleIntercept": 0},
        {"RescaleSlope": None, "RescaleIntercept": None},
        None,
    ),
    "a type": (
        {"RescaleSlope": 1, "RescaleIntercept": 0, "RescaleType": "HU"},
        {"RescaleType": "US"},
        "one unit, got the RescaleType HU and US",
    ),
    "a unit": ({"Units": "BQML"}, {"Units": "CNTS"}, "the Units BQML and CNTS"),
    "the pixel spacing": ({}, {"PixelSpacing": [3.0, 3.0]}, "one size, direction and pixel spacing"),
    "the direction": ({}, {"ImageOrientationPatient": [0, 1, 0, 0, 0, 1]}, "one size, direction and pixel spacing"),
    "the echo": ({"EchoTime": [10, 20, 10, 20, 10, 20]}, {}, "2 kinds .3 of 10.0, 3 of 20.0. by EchoTime"),
    "the time": (
        {"TemporalPositionIdentifier": [1, 2, 1, 2, 1, 2]},
        {},
        "2 kinds .3 of 1, 3 of 2. by TemporalPositionIdentifier",
    ),
    "the color": ({}, {"PhotometricInterpretation": "YBR_FULL_422"}, "MONOCHROME1"),
}


@pytest.mark.parametrize("case", DIFFERING)
def test_slices_that_differ_are_refused_by_name_or_read_right(tmp_path, case):
    tags, others, words = DIFFERING[case]
    folder = each(save_series(tmp_path / "scan", body(SHAPE), **tags), range(3) if others else (), **others)
    if words is None:
        np.testing.assert_array_equal(features(folder)[:, 0], body(SHAPE))
        return
    with pytest.raises(BagDataError, match=words) as caught:
        probe(folder)
    assert "scan" in str(caught.value)


def test_slices_may_differ_in_slope_sign_inversion_and_number(tmp_path):
    data = body(SHAPE)
    folder = save_series(
        tmp_path / "pet", data, RescaleSlope=[1, 2, 3, 4, 5, 6], RescaleIntercept=0, InstanceNumber=[2, 2, 1, 1, 3, 3]
    )
    np.testing.assert_array_equal(features(folder)[:, 0], data * np.arange(1, 7)[:, None, None])
    folder = each(save_series(tmp_path / "inverted", data), range(6), PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(features(each(folder, [5], PhotometricInterpretation="MONOCHROME2"))[0, 0], data[0])
    np.testing.assert_array_equal(features(folder)[1:, 0], 65535 - data[1:].astype(int))
    folder = each(save_series(tmp_path / "signed", data), [5], PixelRepresentation=1)
    np.testing.assert_array_equal(features(folder)[:, 0], data)


def test_depths_and_acquisitions_that_differ_are_in_doubt(tmp_path):
    folder = each(save_series(tmp_path / "a", body(SHAPE)), range(3), BitsStored=12, HighBit=11)
    assert "12 and 16 bits" in said(folder)["doubt"]
    folder = save_series(tmp_path / "b", body(SHAPE), AcquisitionNumber=[1, 2, 1, 2, 1, 2])
    assert "3 of 1, 3 of 2) by AcquisitionNumber are interleaved" in said(folder)["doubt"]
    folder = save_series(tmp_path / "c", body(SHAPE), AcquisitionNumber=[1, 1, 1, 2, 2, 2])
    assert "doubt" not in said(folder)
    folder = each(save_series(tmp_path / "d", body(SHAPE)), range(6), PhotometricInterpretation="MONOCHROME1")
    with pytest.raises(BagDataError, match=r"one BitsStored of all MONOCHROME1 images, .* got 12 and 16"):
        probe(each(folder, [0], BitsStored=12, HighBit=11))


def test_scouts_are_set_aside_with_their_number(tmp_path):
    for number in range(3):
        home = tmp_path / "data" / f"p{number}"
        save_series(home / "ct", body(SHAPE, number), Modality="CT", PatientID=f"p{number}")
        save_series(home / "scout", body((1, 7, 7)), Modality="CT")
        save_series(home / "localizer", body((3, 7, 7)), Modality="CT", ImageType=SCOUT)
    inside = save_series(tmp_path / "data" / "p0" / "ct", body((1, 4, 5)), names=["x"], ImageType=SCOUT, PatientID="p0")
    for path in inside.iterdir():
        change(path, SeriesInstanceUID="1.2.3")
    table = tmp_path / "labels.csv"
    table.write_text("patient,label\np0,0\np1,1\np2,1")
    with pytest.warns(
        UserWarning, match=r"13 images that are not slices, .* are left out of 3 of 3 scans, the first .*p0"
    ):
        bags = read_bags(tmp_path / "data", labels=table)
    assert bags.sizes.tolist() == [6, 6, 6]
    np.testing.assert_array_equal(bags[1][:, 0], body(SHAPE, 1))
    with pytest.warns(UserWarning, match="are left out of 3 of 3 scans"):
        assert read_bags(tmp_path / "data", require_labels=False).ids.tolist() == ["p0", "p1", "p2"]


def test_a_localizer_alone_is_no_scan(tmp_path):
    save_series(tmp_path / "p", body((3, 7, 7)), ImageType=SCOUT)
    with pytest.raises(BagDataError, match="a scan, got only 1 localizer"):
        probe(tmp_path / "p")


def test_images_without_a_place_are_instances_and_a_study_is_a_bag(tmp_path):
    for number in range(3):
        flat(tmp_path / "data" / f"p{number}", [(8, 6)] * (number + 1), modality="MG")
    table = tmp_path / "labels.csv"
    table.write_text("patient,label\np0,0\np1,1\np2,1")
    with pytest.warns(
        UserWarning, match=r"3 of 3 files or folders hold images without a position \(MG\): each image is"
    ):
        bags = read_bags(tmp_path / "data", labels=table)
    assert (bags.sizes.tolist(), bags.instance_shape) == ([1, 2, 3], (1, 8, 6))
    np.testing.assert_array_equal(bags[1][1], body((1, 8, 6), 1))
    assert len(bags.described(1)["p1"]["file"]["slices"]["sop_instance_uid"]) == 2


def test_a_study_of_a_folder_an_image_is_a_bag(tmp_path):
    study = generate_uid()
    for view in ("CC", "MLO"):
        flat(tmp_path / "data" / "p1" / "study" / view, [(8, 6)], study=study)
    with pytest.warns(UserWarning, match="without a position"):
        bags = read_bags(tmp_path / "data", require_labels=False)
    assert (bags.ids.tolist(), bags.sizes.tolist()) == (["p1"], [2])


def test_x_rays_of_many_patients_in_one_folder_are_bags_by_file_or_patient(tmp_path):
    folder = tmp_path / "data"
    for number in range(4):
        flat(folder, [(8, 6)])
        (folder / "v0.dcm").rename(folder / f"x{number}.dcm")
    table = tmp_path / "labels.csv"
    table.write_text("patient,file,label\na,x0,0\na,x1,0\nb,x2,1\nb,x3,1")
    with pytest.warns(UserWarning, match="without a position"):
        assert read_bags(folder, labels=table).sizes.tolist() == [1, 1, 1, 1]
    with pytest.warns(UserWarning, match="without a position"):
        assert read_bags(folder, labels=table, bag_by="patient").sizes.tolist() == [2, 2]


def test_x_rays_of_several_sizes_are_resized_or_shown_the_way(tmp_path):
    folder = flat(tmp_path / "p", [(8, 6), (12, 6)], PixelSpacing=["1\\1", "2\\2"])
    with pytest.raises(BagDataError, match=r"images of one size, got 2: 12 x 6, 8 x 6 .*`slice_size=64`"):
        probe(folder)
    found = features(folder, slice_size=6)
    assert found.shape == (2, 1, 6, 6)
    assert features(folder, spacing=2.0, slice_size=6).shape == (2, 1, 6, 6)
    for options in ({"axis": 2}, {"volume": True}):
        with pytest.raises(BagDataError, match="leave out"):
            probe(folder, ImageOptions(**options))


def test_an_inverted_x_ray_is_turned_and_depths_that_differ_are_in_doubt(tmp_path):
    values = [np.arange(48).reshape(8, 6), np.arange(48).reshape(8, 6)]
    tags = {"BitsStored": [10, 12], "HighBit": [9, 11], "PhotometricInterpretation": ["MONOCHROME2", "MONOCHROME1"]}
    folder = flat(tmp_path / "p", [(8, 6)] * 2, values=values, **tags)
    np.testing.assert_array_equal(features(folder)[:, 0], [values[0], 4095 - values[1]])
    assert "10 and 12 bits" in said(folder)["doubt"]


@pytest.mark.parametrize("signed", [0, 1])
def test_numbers_in_the_upper_bits_are_shifted_down_or_refused(tmp_path, signed):
    values = 40 * np.arange(48).reshape(8, 6) - 800 * signed
    tags = {"BitsStored": 12, "HighBit": 15, "PixelRepresentation": signed}
    folder = flat(tmp_path / "p", [(8, 6)], values=[values * 16], **tags)
    np.testing.assert_array_equal(features(folder)[0, 0], values)
    for tags in ({"BitsStored": 8}, {"HighBit": 13}):  # numbers have bits elsewhere
        with pytest.raises(BagDataError, match=r"HighBit of BitsStored - 1, got .*v0.dcm"):
            features(each(folder, [0], **{"BitsStored": 12, "HighBit": 15} | tags))


@pytest.mark.parametrize(("stored", "high"), [(12, 15), (16, 11), (16, 0)])
def test_numbers_in_the_lower_bits_are_read_as_they_are_whatever_the_header_says(tmp_path, stored, high):
    values = np.arange(48).reshape(8, 6)
    folder = flat(tmp_path / "p", [(8, 6)], values=[values], BitsStored=stored, HighBit=high)
    np.testing.assert_array_equal(features(folder)[0, 0], values)


def test_slices_that_have_lost_their_place_are_no_x_rays(tmp_path):
    folder = each(save_series(tmp_path / "p", body(SHAPE), Modality="CT"), range(6), ImagePositionPatient=None)
    with pytest.raises(BagDataError, match="no usable ImagePositionPatient"):
        probe(folder)


def sample(name):
    return Path(get_testdata_file(name, download=False))


COLORS = {  # each of the same picture, of 100 x 100 pixels, with the mean difference that its compression makes
    "SC_rgb_rle.dcm": 0,
    "SC_rgb_jpeg_gdcm.dcm": 0,  # JPEG Lossless
    "SC_rgb_gdcm_KY.dcm": 3,  # JPEG 2000
    "SC_rgb_jls_lossy_sample.dcm": 3,  # JPEG-LS
    "SC_rgb_jpeg_dcmtk.dcm": 3,  # YBR
    "SC_ybr_full_422_uncompressed.dcm": 3,
    "SC_rgb_jpeg_lossy_gdcm.dcm": 3,
}


@pytest.mark.parametrize("name", COLORS)
def test_colors_are_red_green_and_blue_whatever_the_file_holds(tmp_path, name):
    (tmp_path / "a.dcm").write_bytes(sample(name).read_bytes())
    found = features(tmp_path)
    assert (found.shape, found.dtype) == ((1, 3, 100, 100), np.uint8)
    expected = pydicom.dcmread(sample("SC_rgb_rle.dcm")).pixel_array.transpose(2, 0, 1)
    if name.startswith("SC_rgb_jls"):  # of another picture
        expected = pydicom.pixels.pixel_array(sample(name)).transpose(2, 0, 1)
    assert np.abs(found[0].astype(int) - expected).mean() <= COLORS[name]


@pytest.mark.parametrize("kind", ["RLE", "jp2klossless", "jpeg_ls_lossless", "bigendian", "implicit"])
def test_compressed_slices_are_those_that_are_not(tmp_path, kind):
    for name, folder in (("MR_small.dcm", "plain"), (f"MR_small_{kind}.dcm", "packed")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.dcm").write_bytes(sample(name).read_bytes())
    np.testing.assert_array_equal(features(tmp_path / "packed"), features(tmp_path / "plain"))


def test_a_loop_of_ultrasound_is_a_bag_of_its_frames(tmp_path):
    (tmp_path / "us.dcm").write_bytes(sample("examples_ybr_color.dcm").read_bytes())
    assert probe(tmp_path).instance_shape == (3, 240, 320)
    assert probe(tmp_path).rows == 30


def test_a_palette_becomes_colors(tmp_path):
    (tmp_path / "us.dcm").write_bytes(sample("examples_palette.dcm").read_bytes())
    assert features(tmp_path).shape == (1, 3, 350, 800)


def test_gray_images_and_colored_ones_are_not_mixed(tmp_path):
    flat(tmp_path, [(100, 100)], modality="US")
    (tmp_path / "z.dcm").write_bytes(sample("SC_rgb_rle.dcm").read_bytes())
    change(tmp_path / "z.dcm", Modality="US")
    with pytest.raises(BagDataError, match="got 1 gray and 1 color images"):
        probe(tmp_path)


def test_a_decoder_that_is_missing_is_named_with_what_to_install(tmp_path):
    (tmp_path / "a.dcm").write_bytes(sample("SC_rgb_jpeg_gdcm.dcm").read_bytes())
    code = (
        "import sys; sys.modules['gdcm'] = sys.modules['_gdcm'] = None\n"
        "from pathlib import Path; from midam.data.sources.probe import probe\n"
        f"probe(Path({str(tmp_path)!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Expected a decoder of JPEG Lossless" in ended.stderr
    assert 'pip install "midam[medical]"' in ended.stderr


@pytest.mark.parametrize("kind", ["enhanced", "x-ray"])
def test_files_of_one_study_that_a_table_names_are_bags_each(kind, tmp_path):
    (tmp_path / "f").mkdir()
    for number in range(3):
        path = tmp_path / "f" / f"s{number}.dcm"
        enhanced(path, body(SHAPE, number))
        if kind == "x-ray":
            save_series(path.parent, body(SHAPE, number)[:1], names=[path.name], Modality="DX")
            change(path, ImagePositionPatient=None, ImageOrientationPatient=None)
        change(path, StudyInstanceUID="1.2.3", SeriesInstanceUID="1.2.3.4")
    (tmp_path / "l.csv").write_text("file,label\ns0,0\ns1.dcm,1\ns2,0\n")
    with pytest.warns(Note) if kind == "x-ray" else nullcontext():
        bags = read_bags(tmp_path / "f", labels=tmp_path / "l.csv")
    assert bags.ids.tolist() == ["s0", "s1", "s2"]
    assert bags.sizes.tolist() == ([6] * 3 if kind == "enhanced" else [1] * 3)
    with pytest.raises(BagDataError, match="or files with `labels`"):
        read_bags(tmp_path / "f")


@pytest.mark.parametrize("named", ["image_id", "path", ""])
def test_files_in_folders_of_patients_that_a_table_names_are_bags_each(named, tmp_path):
    rows, file_column = ["patient_id,image_id,laterality,cancer"], named or "image_id"
    for patient in range(3):
        home = flat(tmp_path / "f" / f"p{patient}", [(4, 5)] * 4, PatientID=f"p{patient}")
        for number, path in enumerate(sorted(home.iterdir())):
            path.rename(home / f"{patient}{number}.dcm")
            name = f"p{patient}/{patient}{number}.dcm" if named == "path" else f"{patient}{number}"
            rows.append(f"p{patient},{name},{'LLRR'[number]},{int(patient == number == 1)}")
    del rows[-4:]  # a patient whom the table lacks
    (tmp_path / "l.csv").write_text("\n".join(rows).replace("image_id", file_column))
    options = {"labels": tmp_path / "l.csv", "label_column": "cancer", **({"bag_column": named} if named else {})}
    with pytest.warns(UserWarning, match="4 of 12 files have no label"), pytest.warns(Note, match="without a position"):
        bags = read_bags(tmp_path / "f", **options)
    assert (bags.ids[:5].tolist(), bags.sizes.tolist()) == (["00", "01", "02", "03", "10"], [1] * 8)
    assert bags.groups.tolist() == ["p0"] * 4 + ["p1"] * 4
    assert bags.labels.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("suffix", [".dicom", ".IMA", "", ".840.113"])
def test_x_rays_are_found_whatever_their_suffix(suffix, tmp_path):
    for number in range(3):
        path = flat(tmp_path / str(number), [(4, 5)], PatientID=f"p{number}") / "v0.dcm"
        (tmp_path / "f").mkdir(exist_ok=True)
        path.rename(tmp_path / "f" / f"1.{number}{suffix}")
    end = suffix if suffix == ".840.113" else ""
    (tmp_path / "l.csv").write_text("image_id,label\n" + "".join(f"1.{n}{end},{n % 2}\n" for n in range(3)))
    with pytest.warns(Note, match="images without a position"):
        bags = read_bags(tmp_path / "f", labels=tmp_path / "l.csv")
    assert bags.ids.tolist() == [f"1.{number}{end}" for number in range(3)]


def test_whole_slides_in_dicom_are_refused(tmp_path):
    """Their frames are tiles of several levels, and the label of the glass."""
    flat(tmp_path / "s", [(4, 5)] * 3, modality="SM", SeriesInstanceUID="1.2.3")
    with pytest.raises(BagDataError, match=r"no usable ImagePositionPatient .*convert whole slides .SM. to TIFF"):
        read_bags(tmp_path, require_labels=False)


def test_folders_of_images_that_are_classes_hold_a_bag_a_file(tmp_path):
    for number in range(6):
        home = tmp_path / "f" / ("normal", "tumor")[number % 2]
        save_series(home, body(SHAPE, number)[:1], names=[f"{number // 2}.dcm"], Modality="DX")
        path = home / f"{number // 2}.dcm"
        change(path, ImagePositionPatient=None, ImageOrientationPatient=None, StudyInstanceUID=f"1.2.{number}")
    with pytest.warns(Note):
        bags = read_bags(tmp_path / "f")
    assert (bags.sizes.tolist(), bags.labels.tolist()) == ([1] * 6, [0, 0, 0, 1, 1, 1])
    with pytest.warns(Note):
        assert read_bags(tmp_path / "f", require_labels=False).ids.tolist() == bags.ids.tolist()
    (tmp_path / "l.csv").write_text("patient,label\nnormal,0\ntumor,1\n")
    with pytest.warns(UserWarning, match="it holds images of 3 patients, by PatientID"), pytest.warns(Note):
        assert read_bags(tmp_path / "f", labels=tmp_path / "l.csv").sizes.tolist() == [3, 3]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize(
    ("limit", "photometric"), [(None, "MONOCHROME2"), (-1900, "MONOCHROME2"), (None, "MONOCHROME1")]
)
def test_padding_gets_the_lowest_intensity_of_its_slice(tmp_path, limit, photometric, unsigned):
    data = body(SHAPE)
    data[:, 0] = -2000
    data[:, 1, 0] = -2000 if limit is None else -1950
    data[5] = -2000  # a slice of padding alone is as stored
    tags = {"PixelRepresentation": 1, "PixelPaddingValue": -2000, "PhotometricInterpretation": photometric}
    tags |= {} if limit is None else {"PixelPaddingRangeLimit": limit}
    folder = save_series(tmp_path / "a", data, RescaleSlope=2, RescaleIntercept=-1000, **tags)
    for path in [*folder.iterdir()] if unsigned else []:  # as scanners of one maker write it
        file = pydicom.dcmread(path)
        for tag, value in ((0x00280120, -2000), (0x00280121, limit)):
            if value is not None:
                file.add_new(tag, "US", 2**16 + value)
        file.save_as(path)
    read = features(folder, drop_empty=False)
    shown = 2.0 * (data if photometric == "MONOCHROME2" else -1 - data) - 1000
    for k, values in enumerate(shown[:5]):
        padding = data[k] <= -1950
        values[padding] = values[~padding].min()
    np.testing.assert_array_equal(read[:, 0], shown)
