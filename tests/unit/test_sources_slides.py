"""Whole slides as bags of patches: magnifications, tissue, places in level 0, and what is refused."""

import numpy as np
import pytest
import tifffile
from PIL import Image

from midam.data.sources.files import open_file, probe, probe_files
from midam.data.sources.imageoptions import ImageOptions
from midam.data.sources.pyramids import is_pyramid, open_pyramid
from midam.errors import BagDataError

ALL = ImageOptions(patch_size=32, tissue=0)


def scene(side=512):
    """A smooth stain of 512x512 pixels, of which the left half is tissue."""
    y, x = np.mgrid[:side, :side]
    array = np.full((side, side, 3), 244, dtype=np.uint8)
    tissue = np.stack([170 + 40 * np.sin(x / 40), 70 + 30 * np.cos(y / 50), 150 + 20 * np.sin((x + y) / 60)], axis=2)
    array[:, : side // 2] = tissue[:, : side // 2].astype(np.uint8)
    return array


def write_pyramid(path, array, *, levels=3, micrometres=0.5, tile=(64, 64), **options):
    """A TIFF of halved levels; tiled, it is one that OpenSlide knows."""
    resolution = {} if micrometres is None else {"resolution": (1e4 / micrometres,) * 2, "resolutionunit": "CENTIMETER"}
    with tifffile.TiffWriter(path) as file:
        for level in range(levels):
            part = array
            if level:
                size = (array.shape[1] >> level, array.shape[0] >> level)
                part = np.asarray(Image.fromarray(array).resize(size, Image.Resampling.BOX))
            kind = {"subfiletype": 1} if level else {}
            file.write(part, photometric="rgb", tile=tile, metadata=None, **kind, **resolution, **options)
    return path


@pytest.fixture(scope="module")
def pyramids(tmp_path_factory):
    """One slide for OpenSlide, one in strips, which only tifffile reads; and their pixels."""
    folder = tmp_path_factory.mktemp("slides")
    array = scene()
    tiled = write_pyramid(folder / "tiled.tif", array)
    strips = write_pyramid(folder / "strips.tif", array, tile=None, rowsperstrip=16)
    return {"openslide": tiled, "tifffile": strips}, array


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
def test_patches_of_level_0_are_its_pixels(pyramids, reader):
    paths, array = pyramids
    opened = open_file(paths[reader], ALL)
    assert opened.serial == (reader == "tifffile")
    n = opened.features.shape[0]
    assert opened.features.shape == (256, 3, 32, 32)
    rows = np.array([0, 17, n - 1])
    for (x, y), patch in zip(opened.coords.gather(rows), opened.features.gather(rows)):
        np.testing.assert_array_equal(patch, array[y : y + 32, x : x + 32].transpose(2, 0, 1))
    opened.close()


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
@pytest.mark.parametrize(("magnification", "side"), [(20, 32), (10, 64), (8, 80), (5, 128), (2.5, 256)])
def test_a_magnification_shows_the_same_place_smaller(pyramids, reader, magnification, side):
    paths, array = pyramids
    options = ImageOptions(patch_size=32, tissue=0, magnification=magnification)
    opened = open_file(paths[reader], options)
    said = opened.attributes["coords"]
    n = opened.features.shape[0]
    assert said["patch_size_level0"] == side
    assert said["target_magnification"] == magnification
    assert n == (512 // side) ** 2
    assert opened.coords.read(0, 2).tolist()[1] == ([side, 0] if n > 1 else None)
    for (x, y), patch in zip(opened.coords.read(0, n), opened.features.read(0, n)):
        part = Image.fromarray(array[y : y + side, x : x + side]).resize((32, 32), Image.Resampling.BOX)
        # Where tissue ends, filters differ; inside, the scene is smooth.
        inner = slice(2, 30)
        gap = np.abs(patch.astype(int) - np.asarray(part).transpose(2, 0, 1))[:, inner, inner]
        assert np.median(gap) <= 1
        assert gap.mean() < 3
    opened.close()


@pytest.mark.parametrize("reader", ["openslide", "tifffile"])
def test_half_the_slide_is_tissue(pyramids, reader):
    paths, _ = pyramids
    for options in (ImageOptions(), ImageOptions(tissue=0.9), ImageOptions(magnification=10)):
        opened = open_file(paths[reader], options)
        side = opened.attributes["coords"]["patch_size_level0"]
        places = opened.coords.read(0, opened.coords.shape[0])
        assert len(places) == (256 // side) * (512 // side)
        assert places[:, 0].max() == 256 - side
        opened.close()


def test_a_patch_is_the_same_alone_and_in_a_run(pyramids):
    paths, _ = pyramids
    opened = open_file(paths["openslide"], ImageOptions(patch_size=24, tissue=0, magnification=7))
    run = opened.features.read(0, opened.features.shape[0])
    np.testing.assert_array_equal(opened.features.gather(np.array([5])), run[[5]])
    known = open_file(paths["openslide"], ImageOptions(patch_size=24, magnification=7), np.array([[33, 50]]))
    assert known.features.shape == (1, 3, 24, 24)


def test_a_slide_without_the_magnification_says_what_it_has(pyramids, tmp_path):
    paths, array = pyramids
    with pytest.raises(BagDataError, match=r"40x, got a slide of 20x, 10x, 5x .*leave out --magnification"):
        probe(paths["openslide"], ImageOptions(magnification=40))
    silent = write_pyramid(tmp_path / "silent.tif", array, micrometres=None)
    with pytest.raises(BagDataError, match=r"neither objective power .*silent.tif"):
        probe(silent, ImageOptions(magnification=20))
    assert probe(silent, ALL).attributes["coords"]["level0_magnification"] == "unknown"


def test_slides_of_several_scanners_are_warned_of_unless_read_at_one_magnification(pyramids, tmp_path):
    paths, array = pyramids
    other = write_pyramid(tmp_path / "fine.tif", array, micrometres=0.25)
    with pytest.warns(UserWarning, match=r"several magnifications \(20.0, 40.0\).*--magnification"):
        probe_files([paths["openslide"], other], ALL)
    assert len(probe_files([paths["openslide"], other], ImageOptions(tissue=0, magnification=10))) == 2


def test_unusable_slides_are_refused(pyramids, tmp_path):
    paths, array = pyramids
    (tmp_path / "text.svs").write_text("no slide")
    with pytest.raises(BagDataError, match=r"whole slide.*text.svs"):
        probe(tmp_path / "text.svs", ALL)
    with pytest.raises(BagDataError, match="600x600 pixels, one patch, got 512x512"):
        probe(paths["tifffile"], ImageOptions(patch_size=600))
    blank = write_pyramid(tmp_path / "blank.tif", np.full_like(array, 244))
    with pytest.raises(BagDataError, match="lower --tissue"):
        probe(blank, ImageOptions())
    whole = paths["openslide"].read_bytes()
    (tmp_path / "cut.svs").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(BagDataError, match=r"cut\.svs"):
        probe(tmp_path / "cut.svs", ALL)


def test_a_plain_tiff_is_an_image_and_a_pyramid_a_slide(pyramids, tmp_path):
    paths, array = pyramids
    Image.fromarray(array).save(tmp_path / "plain.tif")
    assert [is_pyramid(path) for path in (*paths.values(), tmp_path / "plain.tif")] == [True, True, False]
    assert "level0_magnification" not in probe(tmp_path / "plain.tif", ALL).attributes["coords"]
    assert probe(paths["openslide"], ALL).attributes["coords"]["level0_magnification"] == pytest.approx(20)


@pytest.mark.data
def test_a_real_slide(data_root):
    path = data_root / "wsi" / "cmu-1-small-region.svs"
    slide = open_pyramid(path)
    assert slide.sizes[0] == (2220, 2967)
    assert slide.magnification == 20
    every = open_file(path, ALL)
    assert every.features.shape[0] == (2220 // 32) * (2967 // 32)
    kept = open_file(path, ImageOptions())
    n = kept.features.shape[0]
    assert 0.3 < n / every.features.shape[0] < 0.4
    # What was left out is pale: it is brighter than what was kept by far.
    inside = {tuple(place) for place in kept.coords.read(0, n).tolist()}
    outside = [row for row, place in enumerate(every.coords.read(0, 6348).tolist()) if tuple(place) not in inside]
    pale = every.features.gather(np.array(outside[::40])).mean()
    assert pale > kept.features.gather(np.arange(0, n, 40)).mean() + 40
    coarse = open_file(path, ImageOptions(magnification=5))
    assert coarse.attributes["coords"]["patch_size_level0"] == 128
