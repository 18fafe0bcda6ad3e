"""Places of instances, whatever the type, the reader and the tool that wrote them: maps, GeoJSON, and what is said."""

import json
import warnings

import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
import zarr
from PIL import Image
from tests.pairs import each
from tests.trainings import make_scorers

from midam.cli.parser import normalize
from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.sources.file_rows import files_of, instance_columns, source_paths
from midam.data.sources.request import ImageOptions
from midam.data.store import open_store, write_store
from midam.errors import BagDataError
from midam.explain.explanation import explain_bag
from midam.explain.geojson import geojson_text, slide_names
from midam.explain.maps import ImageFolder, maps_of, slide_facts
from midam.explain.patches import SlideFacts, patches_of, warn_of_unknown
from midam.explain.picture import Pictures, draw_explanation
from midam.explain.run import note_lines
from midam.runs.instance_files import file_name, file_names, write_instance_scores

GRID = np.stack(np.meshgrid(np.arange(3), np.arange(2)), axis=-1).reshape(-1, 2) * 8  # x, y: fits into 8 bits
TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def numbers(seed, count=6):
    return np.random.default_rng(seed).normal(size=(count, 4)).astype("f4")


def save_h5(folder, name, x, places, **said):
    with h5py.File(folder / f"{name}.h5", "w") as file:
        file["features"] = x
        if places is not None:
            file["coords"] = places
            file["coords"].attrs.update(said)


def save_zarr(folder, name, x, places):
    group = zarr.open_group(str(folder / f"{name}.zarr"), mode="w")
    for key, values in (("features", x), ("coords", places))[: 1 + (places is not None)]:
        group.create_array(key, shape=values.shape, dtype=values.dtype)[:] = values


def save_pt(folder, name, x, places):
    torch.save({"features": torch.from_numpy(x), "coords": torch.from_numpy(places)}, folder / f"{name}.pt")


def save_npz(folder, name, x, places):
    np.savez(folder / f"{name}.npz", features=x, **({} if places is None else {"coords": places}))


SAVERS = [save_h5, save_zarr, save_pt, save_npz]


def cohort(folder, save, kind, count=3):
    """Bags of files of which the last has places of another type."""
    folder.mkdir()
    for number in range(count):
        save(folder, f"s{number}", numbers(number), GRID.astype(kind if number == count - 1 else "i8"))
    return read_bags(folder, require_labels=False)


def drawn(bags, index=0):
    """Patches of a bag that is of one slide, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = patches_of(bags, index)
    return found


@pytest.mark.parametrize(("kind", "save"), each(TYPES, SAVERS))
def test_whole_numbers_of_any_type_are_places_of_every_bag(save, kind, tmp_path):
    bags = cohort(tmp_path / "f", save, kind)
    stored = open_store(write_store(bags, tmp_path / "store"))
    for these in (bags, stored):
        for index in range(3):
            found = drawn(these, index)
            np.testing.assert_array_equal(found.corners, GRID)
            assert (found.width, found.height) == (8, 8)
    explained = explain_bag(make_scorers("attention"), stored, 2)
    (one,) = maps_of(explained, stored)
    assert np.isfinite(one.raster(explained.contribution)).all()
    assert len(json.loads(geojson_text(explained, one.patches))["features"]) == 6


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_places_of_a_table_and_of_an_archive_are_drawn_too(kind, tmp_path):
    x, places = np.concatenate([numbers(0), numbers(1)]), np.concatenate([GRID, GRID])
    path, bag = tmp_path / f"t.{kind}", np.repeat([0, 1], 6)
    if kind == "npz":
        np.savez(path, X=x, bag=bag, y=[0, 1], coords=places.astype("f8"))
        bags = read_bags(path)
    else:
        frame = pd.DataFrame({"bag": bag.astype(str), "label": bag, "x": places[:, 0], "y": places[:, 1]})
        frame = frame.assign(**{f"f{i}": x[:, i] for i in range(4)})
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
        bags = read_bags(path, coords=["x", "y"])
    np.testing.assert_array_equal(drawn(bags, 1).corners, GRID)


@pytest.mark.parametrize("places", [GRID.astype("S4"), GRID.astype(np.complex64), GRID[:4]])
def test_places_that_are_no_numbers_or_not_of_these_instances_are_refused(places, tmp_path):
    save_h5(tmp_path, "s0", numbers(0), places)
    with pytest.raises(BagDataError, match=r"coordinates \[6, C\], got .*s0\.h5"):
        read_bags(tmp_path, require_labels=False)


@pytest.mark.parametrize("save", [save_h5, save_zarr, save_npz])
@pytest.mark.parametrize(("lacking", "width"), [(1, 0), (1, 1), (1, 3), (1, None), (3, None)])
def test_files_without_the_places_of_the_others_are_read_and_said(save, lacking, width, tmp_path):
    (tmp_path / "f").mkdir()
    for number in range(4):
        places = GRID if number >= lacking else None if width is None else np.ones((6, width), "i8")
        save(tmp_path / "f", f"s{number}", numbers(number), places)
    with pytest.warns(UserWarning, match=rf"{lacking} of 4 files hold no coordinates of width 2 .* first .*s0\."):
        bags = read_bags(tmp_path / "f", require_labels=False)
    stored = open_store(write_store(bags, tmp_path / "store"))
    for these in (bags, stored):
        np.testing.assert_array_equal(drawn(these, 3).corners, GRID)
        np.testing.assert_array_equal(these[0], numbers(0))
        with pytest.warns(UserWarning, match=r"the map leaves out instances.*\(6 of 6\)"):
            assert patches_of(these, 0) == []
    together = patients_of_two(tmp_path, save)
    with pytest.warns(UserWarning, match=r"\(6 of 12\)"):
        (found,) = patches_of(together, 0)
    assert found.file.stem == "b"


def patients_of_two(folder, save):
    """A patient of two slides of which the first has no places."""
    (folder / "two").mkdir()
    for name, places in (("a", None), ("b", GRID)):
        save(folder / "two", name, numbers(0), places)
    (folder / "two.csv").write_text("slide,label,patient\na,1,p\nb,1,p\n")
    with pytest.warns(UserWarning, match="1 of 2 files hold no coordinates"):
        return read_bags(folder / "two", labels=folder / "two.csv", bag_by="patient")


def test_patches_at_one_place_are_of_no_known_size(tmp_path):
    save_h5(tmp_path, "s0", numbers(0), GRID * 0)
    (found,) = patches_of(read_bags(tmp_path, require_labels=False), 0)
    with pytest.warns(UserWarning, match=r"estimated \(the usual distance between two, 1 pixels\)"):
        warn_of_unknown(found)


@pytest.mark.parametrize("case", ["contours", "sample"])
def test_the_size_of_patches_is_their_usual_distance(case, tmp_path):
    """CLAM begins the grid of each contour at the corner of its box."""
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(5)), axis=-1).reshape(-1, 2) * 256
    rng = np.random.default_rng(0)
    places = {
        "contours": np.concatenate([grid + corner for corner in np.array([[0, 0], [5056, 192], [64, 4416]])]),
        "sample": rng.integers(0, 100, (60, 2)) * 256,
    }[case]
    save_h5(tmp_path, "s0", rng.normal(size=(len(places), 4)), places)
    (found,) = patches_of(read_bags(tmp_path, require_labels=False), 0)
    assert (found.width, found.height, found.estimated) == (256, 256, True)


@pytest.mark.parametrize(
    "lost", [pytest.param(np.nan, marks=pytest.mark.drawn), np.inf, -np.inf, 2.0**63, -(2.0**63), 1e300]
)
@pytest.mark.parametrize("count", [1, 6])
def test_instances_without_a_place_are_counted_and_the_others_drawn(lost, count, tmp_path):
    places = GRID.astype("f8")
    places[:count, 0] = lost
    save_h5(tmp_path, "s0", numbers(0), places, patch_size_level0=8)
    bags = read_bags(tmp_path, require_labels=False)
    found = explain_bag(make_scorers("attention"), bags, 0)
    with pytest.warns(UserWarning, match=rf"the map leaves out instances.*\({count} of 6\)"):
        maps = maps_of(found, bags)
    assert len(maps) == (count < 6)
    for one in maps:
        features = json.loads(geojson_text(found, one.patches))["features"]
        assert [feature["properties"]["instance"] for feature in features] == [i for i in found.order if i >= count]
        ranks = [int(feature["properties"]["name"].split("rank ")[1]) for feature in features]
        assert [found.order[rank - 1] for rank in ranks] == [f["properties"]["instance"] for f in features]
    assert draw_explanation(tmp_path / "p.png", found, bags, maps=maps) in ("map", "bars")


def test_places_that_float16_has_rounded_are_doubted(tmp_path):
    save_h5(tmp_path, "s0", numbers(0), (GRID * 1001).astype("f2"), patch_size_level0=8)
    with pytest.warns(UserWarning, match=r"1 of 1 files are doubtful, .*s0\.h5: .* float16"):
        read_bags(tmp_path, require_labels=False)


def test_fractions_are_places_where_the_file_says_the_size_of_a_patch(tmp_path):
    for name, said in (("s0", {"patch_size_level0": 12.5}), ("s1", {})):
        save_h5(tmp_path, name, numbers(0), GRID * 1.5625, **said)
    bags = read_bags(tmp_path, require_labels=False)
    np.testing.assert_allclose(drawn(bags, 0).corners, GRID * 1.5625)
    with pytest.warns(UserWarning, match=r"no map and no GeoJSON: .* whole numbers.*\(s1\.h5\)"):
        assert patches_of(bags, 1) == []


def patients(folder, save=save_h5, slides=3, **said):
    """Bags of several files of a patient each, the second in a folder of another name and the same file name."""
    folder.mkdir()
    rows = []
    for patient in range(2):
        for number in range(slides):
            name = f"p{patient}_{number}"
            save(folder, name, numbers(number + 10 * patient), GRID + 8 * number, **said)
            rows.append(f"{name},{patient},p{patient}")
    (folder / "labels.tsv").write_text("\n".join(["slide,label,patient", *rows]).replace(",", "\t"))
    return read_bags(folder, labels=folder / "labels.tsv", bag_by="patient")


@pytest.mark.parametrize("save", [pytest.param(save_h5, marks=pytest.mark.drawn), *SAVERS[1:]])
def test_each_slide_of_a_patient_has_its_own_patches(save, tmp_path):
    bags = patients(tmp_path / "f", save)
    stored = open_store(write_store(bags, tmp_path / "store"))
    for these in (bags, stored, stored.subset([1, 0]).subset([1])):
        files = files_of(these, 0)
        assert [file.stem for file in files] == ["p0_0", "p0_1", "p0_2"]
        found = explain_bag(make_scorers("attention"), these, 0)
        maps = maps_of(found, these)
        assert [one.patches.file for one in maps] == files
        shown = []
        for number, one in enumerate(maps):
            np.testing.assert_array_equal(one.patches.corners, GRID + 8 * number)
            read = json.loads(geojson_text(found, one.patches))["features"]
            shown += [feature["properties"]["instance"] for feature in read]
            assert {feature["properties"]["file"] for feature in read} == {files[number].name}
            assert all(6 * number <= i < 6 * number + 6 for i in shown[-6:])
        assert sorted(shown) == list(range(18))
        assert instance_columns(these, 0)["file"] == [file.name for file in files for _ in range(6)]
        assert found.several_files
    write_instance_scores(make_scorers("attention"), stored, tmp_path / "out")
    with h5py.File(tmp_path / "out" / "p1.h5") as file:
        assert file["file"].asstr()[::6].tolist() == [file.name for file in files_of(stored, 1)]
    if save is save_h5:
        assert draw_explanation(tmp_path / "p.png", found, stored, maps=maps) == "map"


def test_a_store_that_does_not_say_whose_its_instances_are_says_so(tmp_path):
    bags = patients(tmp_path / "f")
    said = [{name: {} for name in bags.described(i)} for i in range(len(bags))]
    old = bags.replace(attributes=[json.dumps(own) for own in said], instances=np.concatenate([bags[0], bags[1]]))
    old = open_store(write_store(old.replace(coords=bags.coords[:36]), tmp_path / "store"))
    assert files_of(old, 0) == []
    assert instance_columns(old, 0) == {}
    with pytest.warns(UserWarning, match=r"no map .*file of each instance .* \(3 files\)"):
        assert patches_of(old, 0) == []


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    rows = ["bag,path,label"]
    for site in ("north", "south; east"):
        (tmp_path / site).mkdir()
        save_h5(tmp_path / site, "a", numbers(0), GRID, patch_size_level0=8)
        rows.append(f'p,"{site}/a.h5",1')
    (tmp_path / "manifest.csv").write_text("\n".join(rows))
    bags = read_bags(tmp_path / "manifest.csv")
    stored = open_store(write_store(bags, tmp_path / "store"))
    for these in (bags, stored):
        assert [file.name for file in files_of(these, 0)] == ["north/a.h5", "south; east/a.h5"]
        assert source_paths(these, 0) == [tmp_path / "north" / "a.h5", tmp_path / "south; east" / "a.h5"]
        assert [one.width for one in patches_of(these, 0)] == [8, 8]
    assert len(set(slide_names(stored, [0])[0])) == 2


STAMP = {
    "2.1": {"unit": "um", "tile_size_um": 256.0, "tile_size_px": 224, "stamp_version": "2.1.0", "extractor": "uni"},
    "2.0": {"unit": "um", "tile_size": 256.0, "extractor": "ctranspath"},
}


@pytest.mark.parametrize("version", STAMP)
def test_places_of_stamp_in_micrometers_become_pixels_by_the_slide(version, tmp_path):
    with h5py.File(tmp_path / "s0.h5", "w") as file:
        file["feats"], file["coords"] = numbers(0), (GRID // 8 * 256.0).astype("f4")
        file.attrs.update(STAMP[version])
    bags = read_bags(tmp_path, require_labels=False)
    (found,) = patches_of(bags, 0, lambda _: SlideFacts(0.5))
    np.testing.assert_allclose(found.corners, GRID // 8 * 512)
    assert (found.width, found.height, found.estimated, found.in_pixels) == (512, 512, False, True)
    (alone,) = patches_of(bags, 0)
    assert not alone.in_pixels
    with pytest.warns(UserWarning, match=r"no GeoJSON: coordinates are in micrometers.*s0\.h5"):
        warn_of_unknown(alone)


def slide(path, micrometers=0.5, side=1024):
    """A tiled TIFF of two levels that states its scale."""
    pixels = np.full((side, side, 3), 200, np.uint8)
    how = {"tile": (256, 256), "photometric": "rgb", "resolutionunit": "CENTIMETER"}
    with tifffile.TiffWriter(path) as file:
        file.write(pixels, subifds=1, resolution=(1e4 / micrometers, 1e4 / micrometers), **how)
        file.write(pixels[::2, ::2], subfiletype=1, resolution=(5e3 / micrometers, 5e3 / micrometers), **how)


def test_the_scale_of_a_slide_is_found_in_the_folder_of_images(tmp_path):
    for folder in ("f", "images"):
        (tmp_path / folder).mkdir()
    with h5py.File(tmp_path / "f" / "s0.h5", "w") as file:
        file["feats"], file["coords"] = numbers(0), (GRID // 8 * 128.0).astype("f4")
        file.attrs.update({"unit": "um", "tile_size_um": 128.0})
    bags = read_bags(tmp_path / "f", require_labels=False)
    found = explain_bag(make_scorers("attention"), bags, 0)
    slide(tmp_path / "images" / "s0.tif")
    (one,) = maps_of(found, bags, ImageFolder(tmp_path / "images", bags))
    np.testing.assert_allclose(one.patches.corners, GRID // 8 * 256, rtol=1e-6)
    assert one.backdrop is not None
    (tmp_path / "images" / "s0.tif").unlink()
    Image.new("RGB", (64, 64)).save(tmp_path / "images" / "s0.png")
    with pytest.warns(UserWarning, match=r"no image is plotted: .* in micrometers.*\(s0\.png"):
        (one,) = maps_of(found, bags, ImageFolder(tmp_path / "images", bags))
    assert (one.backdrop, one.patches.in_pixels) == (None, False)


SCN = """<?xml version="1.0"?><scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">
<collection sizeX="{all}" sizeY="{all}"><image><pixels sizeX="1024" sizeY="1024">
<dimension sizeX="1024" sizeY="1024" r="0" ifd="0"/><dimension sizeX="512" sizeY="512" r="1" ifd="1"/></pixels>
<view sizeX="{own}" sizeY="{own}" offsetX="{left}" offsetY="{top}"/>
<scanSettings><objectiveSettings><objective>20</objective></objectiveSettings>
<illuminationSettings><illuminationSource>brightfield</illuminationSource></illuminationSettings></scanSettings>
</image></collection></scn>"""


def bounded_slide(path):
    """A slide of Leica that was scanned from pixel 400, 200 on of a glass of 2048 x 2048 pixels; nanometers in XML."""
    text = SCN.format(all=2048 * 500, own=1024 * 500, left=400 * 500, top=200 * 500)
    pixels = np.full((1024, 1024, 3), 180, np.uint8)
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for number, part in enumerate((pixels, pixels[::2, ::2])):
            said = {"description": text} if number == 0 else {}
            file.write(part, tile=(256, 256), photometric="rgb", compression="jpeg", metadata=None, **said)


def test_polygons_count_from_the_corner_of_what_was_scanned_as_qupath_does(tmp_path):
    pytest.importorskip("imagecodecs")
    (tmp_path / "images").mkdir()
    bounded_slide(tmp_path / "images" / "s0.scn")
    known = slide_facts(tmp_path / "images" / "s0.scn")
    assert known.corner == (400, 200)
    (tmp_path / "f").mkdir()
    save_h5(tmp_path / "f", "s0", numbers(0), GRID + np.array([600, 300]), patch_size_level0=8)
    bags = read_bags(tmp_path / "f", require_labels=False)
    found = explain_bag(make_scorers("attention"), bags, 0)
    (one,) = maps_of(found, bags, ImageFolder(tmp_path / "images", bags))
    read = json.loads(geojson_text(found, one.patches))["features"]
    for feature in read:
        corner = feature["geometry"]["coordinates"][0][0]
        assert corner == (bags.places(0)[feature["properties"]["instance"]] - [400, 200]).tolist()
    assert one.scale == 1600 / 2048  # the image shows the whole glass
    np.testing.assert_allclose(one.patches.corners, GRID + np.array([600, 300]))
    own = read_bags(
        tmp_path / "images", require_labels=False, images=ImageOptions(patch_size=512, tissue=0), reader="slide"
    )
    assert own.described(0)["s0.scn"]["coords"]["corner_x"] == 400


IDS = [
    *(
        "-x",
        "--help",
        "a/b",
        "a%2Fb",
        "..",
        "../../evil",
        "A",
        "a",
        "x",
        "x.score",
        "x.image",
        "sp ace",
        "\u00e9\u4e2d",
    ),
    *(
        "L" * 300,
        "L" * 299 + "M",
        "con",
        "nul.h5",
        "index",
        "explain",
        "draws",
        ".hidden",
        "a\\b",
        "=cmd()",
        "p.q",
        ".",
    ),
]


def test_no_two_bags_write_a_file_of_one_name_and_none_outside(tmp_path):
    bags = Bags(np.ones((len(IDS), 2), np.float32), sizes=[1] * len(IDS), ids=IDS)
    stems, slides = file_names(bags), slide_names(bags, range(len(IDS)))
    every = [f"{stem}{suffix}".lower() for stem in stems for suffix in (".png", ".h5", ".csv")]
    every += [name.lower() for names in slides.values() for name in names]
    assert len(set(every)) == len(every)
    assert len({name.lower() for name in file_names(bags)}) == len(IDS)
    for name in every:
        assert (tmp_path / name).resolve().parent == tmp_path.resolve()
        assert len(name.encode()) < 255
        assert not name.startswith((".", "-"))
    assert file_name("") == "%"


@pytest.mark.parametrize("value", ["-x", "-1", "--help", "--x=1"])
def test_a_value_may_begin_with_a_dash(value):
    tokens = normalize(["explain", f"--bags={value}"])
    assert tokens == (["explain", "--bags", value] if value[:2] != "--" else ["explain", f"--bags={value}"])


def test_what_cannot_be_drawn_is_a_line_a_reason():
    entries = [{"bag": f"s{i}", "notes": [f"no map: {reason} ({i})" for reason in "ab"[: 1 + i % 2]]} for i in range(5)]
    assert note_lines(entries) == [
        "no map: a (0); 5 of 5 bags, the first s0",
        "no map: b (1); 2 of 5 bags, the first s1",
    ]


@pytest.mark.parametrize(
    ("said", "cut", "words"),
    [
        ({}, None, "1st to 99th percentile of the intensities, "),
        ({"modality": "MR", "window": [1, 2]}, None, "1st to 99th percentile of the intensities, "),
        ({"modality": "CT"}, None, "soft tissue: its file has no window, -160 to 240 HU"),
        ({"modality": "CT", "window": [-1350, 150]}, None, "the window of its file, -1350 to 150 HU"),
        ({"modality": "CT", "window": [3000, 4000]}, None, "1st to 99th percentile of the intensities, "),
        ({"modality": "CT"}, {"window": [-100, 300]}, "the window that the data were read with, -100 to 300 HU"),
        ({}, {"window": [0, 5]}, "the window that the data were read with, 0 to 5"),
    ],
)
def test_a_ct_is_drawn_in_a_window_of_hounsfield_units(said, cut, words):
    pixels = np.linspace(-1000, 1000, 3 * 64).reshape(3, 1, 8, 8).astype(np.float32)
    known = [json.dumps({"a.nii": {"file": said}})]
    bags = Bags(pixels, sizes=[3], coords=np.arange(3)[:, None], sources=["a.nii"], attributes=known, cut=cut)
    (scan,) = set(Pictures(bags).scans(np.arange(3)))
    assert scan.shown.startswith(words)
    if cut:
        assert scan.ends == (0, 1)
    elif "HU" in words:
        assert "{:g} to {:g} HU".format(*scan.ends) in words
