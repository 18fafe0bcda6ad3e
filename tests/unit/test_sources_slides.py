"""Whole slides as bags of patches: magnifications, tissue, places in level 0, and what is refused."""

import contextlib
import dataclasses
import io

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.probing import probe_files

from midam.data.sources import read_bags
from midam.data.sources.probe import open_file, probe
from midam.data.sources.request import ImageOptions
from midam.errors import BagDataError
from midam.imaging.pyramid import is_pyramid, open_pyramid, tiff_pyramid

ALL = ImageOptions(patch_size=32, tissue=0)


def scene(side=512):
    """A smooth stain of 512x512 pixels, of which the left half is tissue."""
    y, x = np.mgrid[:side, :side]
    array = np.full((side, side, 3), 244, dtype=np.uint8)
    tissue = np.stack([170 + 40 * np.sin(x / 40), 70 + 30 * np.cos(y / 50), 150 + 20 * np.sin((x + y) / 60)], axis=2)
    array[:, : side // 2] = tissue[:, : side // 2].astype(np.uint8)
    return array


def write_pyramid(path, array, *, levels=3, micrometers=0.5, tile=(64, 64), **options):
    """A TIFF of halved levels; tiled, it is one that OpenSlide knows."""
    resolution = {} if micrometers is None else {"resolution": (1e4 / micrometers,) * 2, "resolutionunit": "CENTIMETER"}
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
    for (x, y), patch in zip(opened.coords[rows], opened.features[rows]):
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
    assert opened.coords[:2].tolist()[1] == ([side, 0] if n > 1 else None)
    for (x, y), patch in zip(opened.coords[:n], opened.features[:n]):
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
        places = opened.coords[: opened.coords.shape[0]]
        assert len(places) == (256 // side) * (512 // side)
        assert places[:, 0].max() == 256 - side
        opened.close()


def test_a_patch_is_the_same_alone_and_in_a_run(pyramids):
    paths, _ = pyramids
    opened = open_file(paths["openslide"], ImageOptions(patch_size=24, tissue=0, magnification=7))
    run = opened.features[: opened.features.shape[0]]
    np.testing.assert_array_equal(opened.features[np.array([5])], run[[5]])
    known = open_file(paths["openslide"], ImageOptions(patch_size=24, magnification=7), np.array([[33, 50]]))
    assert known.features.shape == (1, 3, 24, 24)


def test_a_slide_without_the_magnification_says_what_it_has(pyramids, tmp_path):
    paths, array = pyramids
    with pytest.raises(BagDataError, match=r"40x, got a slide of 20x, 10x, 5x .*leave out `magnification`"):
        probe(paths["openslide"], ImageOptions(magnification=40))
    silent = write_pyramid(tmp_path / "silent.tif", array, micrometers=None)
    with pytest.raises(BagDataError, match=r"neither objective power .*silent.tif"):
        probe(silent, ImageOptions(magnification=20))
    assert probe(silent, ALL).attributes["coords"]["level0_magnification"] == "unknown"


def test_slides_of_several_scanners_are_warned_of_unless_read_at_one_magnification(pyramids, tmp_path):
    paths, array = pyramids
    other = write_pyramid(tmp_path / "fine.tif", array, micrometers=0.25)
    with pytest.warns(UserWarning, match=r"several magnifications \(20.0, 40.0\).*`magnification`"):
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
    with pytest.raises(BagDataError, match="lower `tissue`"):
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


def test_a_magnification_of_a_plain_tiff_is_refused(tmp_path):
    lines = ["file,label"]
    for number in range(4):
        Image.fromarray(scene(64)).save(tmp_path / f"{number}.tif")
        lines.append(f"{number},{number % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    assert len(read_bags(tmp_path, labels=tmp_path / "labels.csv", images=ALL)) == 4
    with pytest.raises(BagDataError, match=r"got 4 of 4 that cannot") as caught:
        read_bags(tmp_path, labels=tmp_path / "labels.csv", images=ImageOptions(tissue=0, magnification=5))
    for number, line in enumerate(str(caught.value).splitlines()[1:]):
        assert f"{number}.tif" in line
        assert "leave out `magnification`" in line


def test_slides_and_images_are_not_mixed(pyramids, tmp_path):
    paths, array = pyramids
    plain = [tmp_path / name for name in ("a.tif", "b.png")]
    for path in plain:
        Image.fromarray(array).save(path)
    assert len(probe_files(plain, ALL)) == 2
    with pytest.raises(BagDataError, match=r"are images as in \S*a.tif, got slides \(in \S*tiled.tif\); leave one"):
        probe_files([plain[0], paths["openslide"], plain[1]], ALL)


def write_ome(path, array, *, levels=3, size=0.5, unit="\u00b5m", tiles=None, **options):
    """An OME-TIFF as QuPath and Bio-Formats write it: levels inside the first image, its resolution in XML."""
    said = {"axes": "YXS", "PhysicalSizeX": size, "PhysicalSizeXUnit": unit, "PhysicalSizeY": size}
    with tifffile.TiffWriter(path, ome=True) as file:
        for level in range(levels):
            part = np.asarray(Image.fromarray(array).reduce(2**level))
            kind = {"subfiletype": 1} if level else {"subifds": levels - 1, "metadata": said}
            data = part if tiles is None else tiles(part)
            shape = {"photometric": "rgb"} | options | {"shape": part.shape, "dtype": np.uint8, "tile": (64, 64)}
            file.write(data, **kind, **shape)
    return path


@pytest.mark.parametrize(("size", "unit"), [(0.5, "\u00b5m"), (0.5, "\u03bcm"), (500.0, "nm"), (0.0005, "mm")])
@pytest.mark.parametrize(("name", "levels"), [("a.ome.tif", 3), ("renamed.tif", 3), ("one.ome.tif", 1)])
def test_levels_and_resolution_of_ome_tiffs_are_read(tmp_path, name, levels, size, unit):
    array = scene()
    path = write_ome(tmp_path / name, array, levels=levels, size=size, unit=unit)
    slide = open_pyramid(path)
    assert slide.sizes == ((512, 512), (256, 256), (128, 128))[:levels]
    assert slide.magnification == pytest.approx(20)
    slide.close()
    opened = open_file(path, ImageOptions(tissue=0, magnification=5))
    for (x, y), patch in zip(opened.coords[:16], opened.features[:16]):
        part = np.asarray(Image.fromarray(array[y : y + 128, x : x + 128]).reduce(4)).transpose(2, 0, 1)
        assert np.abs(patch.astype(int) - part)[:, 2:-2, 2:-2].mean() < 2
    opened.close()
    level0 = open_file(path, ALL)
    np.testing.assert_array_equal(level0.features[20:21][0], array[32:64, 128:160].transpose(2, 0, 1))
    level0.close()


@pytest.mark.parametrize("unit", ["pixel", "reference frame"])
def test_a_size_without_a_length_is_no_magnification(tmp_path, unit):
    slide = open_pyramid(write_ome(tmp_path / "a.ome.tif", scene(128), unit=unit))
    assert slide.magnification is None
    slide.close()


def jpeg_tiles(array):
    for y in range(0, array.shape[0], 64):
        for x in range(0, array.shape[1], 64):
            data = io.BytesIO()
            Image.fromarray(array[y : y + 64, x : x + 64]).save(data, "jpeg", quality=95, subsampling=2)
            yield data.getvalue()


@pytest.mark.parametrize("decoded", [True, False], ids=["imagecodecs", "without imagecodecs"])
def test_levels_that_cannot_be_decoded_here_are_told_of(tmp_path, monkeypatch, decoded):
    array = scene()
    path = write_ome(tmp_path / "a.ome.tif", array, tiles=jpeg_tiles, compression="zlib")
    with tifffile.TiffFile(path, mode="r+") as file:  # tifffile writes no JPEG of its own, but the tags can be set
        for page in (file.pages[0], *file.pages[0].pages):
            page.tags["Compression"].overwrite(7)
            page.tags["PhotometricInterpretation"].overwrite(6)
    assert tifffile.COMPRESSION.JPEG in tifffile.TIFF.DECOMPRESSORS
    if not decoded:
        monkeypatch.setattr(tifffile.TIFF, "DECOMPRESSORS", {})
    with contextlib.nullcontext() if decoded else pytest.warns(UserWarning, match="imagecodecs"):
        slide = open_pyramid(path)
    assert len(slide.sizes) == (3 if decoded else 1)
    assert slide.magnification == pytest.approx(20)
    part = slide.region(64, 32, 0, 96)
    assert np.abs(part.astype(int) - array[32:128, 64:160]).mean() < 2
    slide.close()


def test_an_ome_tiff_of_channels_is_no_slide(tmp_path):
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, np.zeros((4, 64, 64), np.uint8), tile=(16, 16), metadata={"axes": "CYX"})
    with pytest.raises(BagDataError, match=r"red, green and blue, got axes CYX \[4, 64, 64\]"):
        probe(path, ALL)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("size", [100, 160, 700])
def test_a_thumbnail_is_read_by_parts(tmp_path, monkeypatch, levels, size):
    monkeypatch.setattr("midam.imaging.pyramid._BLOCK", 128)
    array = scene(640)[:, :600]
    read = []
    slide = open_pyramid(write_ome(tmp_path / "a.ome.tif", array, levels=levels))
    spied = dataclasses.replace(
        slide, region=lambda x, y, level, side: read.append(side) or slide.region(x, y, level, side)
    )
    found = spied.thumbnail(size)
    assert max(read) <= 128
    expected = Image.fromarray(array)
    expected.thumbnail((size, size))
    assert found.shape == np.asarray(expected).shape
    gap = np.abs(found.astype(int) - np.asarray(expected))
    assert gap.mean() < 1
    if size == 700:
        np.testing.assert_array_equal(found, array)
    slide.close()


def test_patches_across_the_parts_that_are_decoded_are_whole(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (200, 330, 3), dtype=np.uint8)
    for name, options in {
        "tiles": {"tile": (64, 48)},
        "rows": {"tile": None, "rowsperstrip": 1},
        "planes": {"tile": (64, 48), "planarconfig": "separate"},
    }.items():
        data = array.transpose(2, 0, 1) if name == "planes" else array
        tifffile.imwrite(tmp_path / f"{name}.tif", data, photometric="rgb", **options)
        slide = tiff_pyramid(tmp_path / f"{name}.tif")
        for x, y, size in ((0, 0, 16), (40, 60, 16), (47, 63, 130), (100, 1, 199), (320, 190, 30)):
            expected = np.full((size, size, 3), 255, dtype=np.uint8)
            part = array[y : y + size, x : x + size]
            expected[: part.shape[0], : part.shape[1]] = part
            np.testing.assert_array_equal(slide.region(x, y, 0, size), expected)
        slide.close()


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
    inside = {tuple(place) for place in kept.coords[:n].tolist()}
    outside = [row for row, place in enumerate(every.coords[:6348].tolist()) if tuple(place) not in inside]
    pale = every.features[np.array(outside[::40])].mean()
    assert pale > kept.features[np.arange(0, n, 40)].mean() + 40
    coarse = open_file(path, ImageOptions(magnification=5))
    assert coarse.attributes["coords"]["patch_size_level0"] == 128


def test_strips_that_overlap_in_part_are_refused_and_equal_ones_are_not(tmp_path):
    path = write_pyramid(tmp_path / "a.tif", scene(), tile=None, rowsperstrip=16)
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["StripOffsets"]
        size, offsets = {3: 2, 4: 4, 16: 8}[int(tag.dtype)], file.pages[0].dataoffsets
    content = bytearray(path.read_bytes())

    def moved(offset):
        place = tag.valueoffset + size
        content[place : place + size] = offset.to_bytes(size, "little")
        path.write_bytes(content)
        tiff_pyramid(path).close()

    moved(offsets[2])
    with pytest.raises(BagDataError, match=r"Expected a whole slide, got parts that overlap \(in .*a.tif\)"):
        moved(offsets[1] + 1536)
