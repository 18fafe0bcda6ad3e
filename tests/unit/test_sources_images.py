"""Images as bags of patches: what is read, what is kept, and what is refused before training starts."""

import pickle
import struct
import threading
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.probing import probed
from tests.unit.test_sources_files import num_open

from midam.data.sources import read_bags
from midam.data.sources.file_rows import FileRows
from midam.data.sources.probe import open_file, probe
from midam.data.sources.request import ImageOptions
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, ConfigError
from midam.imaging.images import covered, grid, otsu, read_pixels, saturation, tissue_mask
from midam.settings import Settings

EIGHT = ImageOptions(patch_size=8)


def noise(height=20, width=27, channels=3, seed=0):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def save(path, array, **options):
    Image.fromarray(array).save(path, **options)
    return path


def patches_of(array, size, stride):
    """The patches [n, C, P, P] of an array [H, W, C], one by one."""
    found = []
    for y in range(0, array.shape[0] - size + 1, stride):
        for x in range(0, array.shape[1] - size + 1, stride):
            found.append(array[y : y + size, x : x + size].transpose(2, 0, 1))
    return np.stack(found)


@pytest.fixture
def folder(tmp_path):
    """Six images and their labels; a positive one is red."""
    (tmp_path / "images").mkdir()
    lines = ["file,label,patient"]
    for number in range(6):
        array = noise(seed=number)
        array[..., 0] = 255 * (number % 2)
        save(tmp_path / "images" / f"case.{number}.png", array)
        lines.append(f"case.{number}.png,{number % 2},p{number // 2}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("suffix", ["png", "tif", "tiff"])
@pytest.mark.parametrize("stride", [None, 5])
def test_patches_and_their_places(tmp_path, suffix, stride):
    array = noise()
    opened = open_file(save(tmp_path / f"a.{suffix}", array), ImageOptions(patch_size=8, stride=stride))
    expected = patches_of(array, 8, stride or 8)
    n = len(expected)
    assert opened.features.shape == (n, 3, 8, 8)
    assert opened.features.dtype == np.uint8
    np.testing.assert_array_equal(opened.features[:n], expected)
    np.testing.assert_array_equal(opened.features[np.array([1, n - 1])], expected[[1, n - 1]])
    for (x, y), patch in zip(opened.coords[:n], expected):
        np.testing.assert_array_equal(array[y : y + 8, x : x + 8].transpose(2, 0, 1), patch)
    assert opened.attributes["coords"] == {
        "patch_size": 8,
        "patch_size_level0": 8,
        "level0_width": 27,
        "level0_height": 20,
    }


def test_jpeg_in_tiff_and_jpeg_are_decoded(tmp_path):
    smooth = np.add.outer(np.arange(32), np.arange(32)).astype(np.uint8)[..., None].repeat(3, axis=2) * 2
    for name, options in (("a.tif", {"compression": "jpeg"}), ("a.jpg", {"quality": 95}), ("b.JPEG", {"quality": 95})):
        pixels = read_pixels(save(tmp_path / name, smooth, **options))
        assert np.abs(pixels.astype(int) - smooth.transpose(2, 0, 1)).max() <= 8


def test_gray_deep_indexed_and_transparent_images(tmp_path):
    gray, deep = noise(channels=1), noise(channels=1).astype(np.uint16) * 257
    assert read_pixels(save(tmp_path / "gray.png", gray)).tolist() == [gray.tolist()]
    for name in ("deep.png", "deep.tif"):
        found = read_pixels(save(tmp_path / name, deep))
        assert found.dtype == np.uint16
        assert found.tolist() == [deep.tolist()]
    clear = np.dstack([noise(), np.full((20, 27), 255, np.uint8)])
    clear[:10, :, 3] = 0
    found = read_pixels(save(tmp_path / "clear.png", clear))
    assert (found[:, :10] == 255).all()
    np.testing.assert_array_equal(found[:, 10:], clear[10:, :, :3].transpose(2, 0, 1))
    Image.fromarray(noise()).convert("P").save(tmp_path / "indexed.png")
    assert read_pixels(tmp_path / "indexed.png").shape == (3, 20, 27)
    Image.fromarray(gray > 99).save(tmp_path / "bits.png")
    assert np.unique(read_pixels(tmp_path / "bits.png")).tolist() == [0, 255]


@pytest.mark.filterwarnings("ignore:TIFFs with white as zero state no MaxSampleValue")
@pytest.mark.parametrize("options", [{}, {"rowsperstrip": 4}, {"compression": "zlib"}, {"tile": (16, 16)}], ids=str)
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_white_is_zero_where_a_tiff_says_so(tmp_path, kind, options):
    stored = noise(channels=1).astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="miniswhite", **options)
    expected = -stored if kind == np.float32 else 255 - stored
    whole = read_pixels(tmp_path / "a.tif")
    assert whole.dtype == kind
    np.testing.assert_array_equal(whole, expected[None])


def test_the_orientation_of_a_photograph_is_applied(tmp_path):
    array = np.zeros((16, 24, 3), dtype=np.uint8)
    array[:8, :8] = 255  # top left; turned by 90 degrees clockwise it is top right
    exif = Image.Exif()
    exif[274] = 6
    opened = open_file(save(tmp_path / "a.png", array, exif=exif), EIGHT)
    bright = opened.coords[:6][opened.features[:6].reshape(6, -1).min(axis=1) == 255]
    assert bright.tolist() == [[8, 0]]
    assert opened.attributes["coords"]["level0_width"] == 16


def test_pixels_of_8_bits_with_a_sign_are_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.full((8, 8), -3, np.int8))
    with pytest.raises(BagDataError, match="or a sign"):
        read_pixels(tmp_path / "a.tif")


def test_gray_with_a_second_channel_is_refused(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 24, 2)).astype(np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="minisblack", planarconfig="contig")
    with pytest.raises(BagDataError, match="gray with more channels, which would be lost"):
        read_pixels(tmp_path / "a.tif")


def test_the_transparent_color_of_a_deep_gray_png_becomes_white(tmp_path):
    array = np.array([[7, 300], [65000, 7]], np.uint16)
    path = save(tmp_path / "a.png", array, transparency=7)
    assert read_pixels(path).tolist() == [[[65535, 300], [65000, 65535]]]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("packed", [{}, {"compression": "zlib"}, {"rowsperstrip": 7}])
def test_a_turned_gray_tiff_is_read_alike_plain_and_packed(tmp_path, kind, packed):
    stored = noise(channels=1).astype(kind)
    shown = {6: np.rot90(stored, -1), 8: np.rot90(stored), 5: stored.T, 7: stored.T[::-1, ::-1], 3: stored[::-1, ::-1]}
    for orientation, expected in shown.items():
        tifffile.imwrite(tmp_path / "a.tif", stored, extratags=[(274, 3, 1, orientation, True)], **packed)
        np.testing.assert_array_equal(read_pixels(tmp_path / "a.tif")[0], expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.tif", "packed.tif", "a.jpg", "a.png"])
def test_the_size_that_is_said_is_that_of_the_turned_image(tmp_path, name, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    options = {"compression": "tiff_lzw"} if name == "packed.tif" else {}
    path = save(tmp_path / name, noise(), exif=exif, **options)
    opened = open_file(path, EIGHT)
    said = opened.attributes["coords"]
    assert read_pixels(path).shape == (3, said["level0_height"], said["level0_width"])
    assert (said["level0_height"], said["level0_width"]) == ((20, 27) if orientation < 5 else (27, 20))


def test_only_patches_of_tissue_are_kept(tmp_path):
    array = np.full((40, 40, 3), 245, dtype=np.uint8)
    array[:20, :20] = (180, 60, 140)
    path = save(tmp_path / "a.png", array)
    opened = open_file(path, ImageOptions(patch_size=10, tissue=0.5))
    assert opened.coords[: opened.coords.shape[0]].tolist() == [[0, 0], [10, 0], [0, 10], [10, 10]]
    half = open_file(path, ImageOptions(patch_size=40, tissue=0.25))
    assert half.features.shape[0] == 1
    with pytest.raises(BagDataError, match=r"none of 1 .*lower `tissue`"):
        probe(path, ImageOptions(patch_size=40, tissue=0.26))
    with pytest.raises(BagDataError, match="leave out `tissue`"):
        probe(save(tmp_path / "gray.png", array[..., 0]), ImageOptions(patch_size=10, tissue=0.5))


def test_tissue_is_saturated_color():
    assert saturation(np.array([[[0]], [[0]], [[0]]], dtype=np.uint8)).tolist() == [[0]]
    values = np.r_[np.full(50, 20), np.full(50, 220)].astype(np.uint8)
    # Otsu by its definition: the threshold with the largest variance between the classes.
    spread = [
        (values <= t).mean() * (values > t).mean() * (values[values <= t].mean() - values[values > t].mean()) ** 2
        for t in range(20, 220)
    ]
    assert otsu(values) == 20 + int(np.argmax(spread))
    # A picture that is all tissue, darker here and there, is all tissue.
    stain = np.array([[[190, 150]], [[90, 10]], [[150, 120]]], dtype=np.uint8)
    assert tissue_mask(stain).all()
    mask = np.random.default_rng(0).random((9, 11)) > 0.5
    corners = grid(11, 9, size=3, stride=2)
    expected = [mask[y : y + 3, x : x + 3].mean() for x, y in corners]
    np.testing.assert_allclose(covered(mask, corners, 3), expected)
    assert covered(mask, np.array([[4.6, 2.2]]), 0.1).tolist() == [float(mask[2, 4])]


def test_a_black_border_with_noise_is_no_tissue():
    rng = np.random.default_rng(0)
    picture = np.full((3, 60, 60), 244, dtype=np.uint8)
    picture[:, 20:40, 20:40] = np.array([180, 60, 140], dtype=np.uint8)[:, None, None]
    expected = tissue_mask(picture)
    assert expected.sum() == 400
    picture[:, :, :15] = rng.integers(0, 6, (3, 60, 15))
    np.testing.assert_array_equal(tissue_mask(picture), expected)
    assert not tissue_mask(rng.integers(0, 6, (3, 9, 9), dtype=np.uint8)).any()
    nuclei = np.array([[[45]], [[25]], [[80]]], dtype=np.uint8)  # the darkest that a stain shows
    assert tissue_mask(nuclei).all()


def test_a_folder_with_labels_becomes_bags(folder):
    bags = read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT)
    assert bags.ids.tolist() == [f"case.{number}" for number in range(6)]
    assert bags.labels.tolist() == [0, 1] * 3
    assert bags.groups.tolist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    assert bags.sizes.tolist() == [6] * 6
    assert bags.instance_shape == (3, 8, 8)
    assert [int(bags[i][:, 0].max()) for i in range(6)] == [0, 255] * 3
    assert bags.places(0).tolist() == grid(27, 20, size=8, stride=8).tolist()
    assert bags.sources[2].endswith("case.2.png")
    assert bags.described(1)["case.1.png"]["coords"]["patch_size_level0"] == 8


def test_by_patient_by_manifest_and_from_a_store_bags_are_the_same(folder):
    bags = read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT)
    table = folder / "by_patient.csv"
    table.write_text((folder / "labels.csv").read_text().replace(",0,", ",1,"))
    merged = read_bags(folder / "images", labels=table, bag_by="patient", images=EIGHT)
    assert merged.sizes.tolist() == [12] * 3
    np.testing.assert_array_equal(merged[1], np.concatenate([bags[2], bags[3]]))
    lines = [f"{number},images/case.{number}.png,{number % 2}" for number in range(6)]
    (folder / "manifest.csv").write_text("\n".join(["bag,path,label", *lines]))
    listed = read_bags(folder / "manifest.csv", images=EIGHT)
    write_store(bags, folder / "store")
    stored = open_store(folder / "store")
    for other in (listed, stored):
        np.testing.assert_array_equal(other[3], bags[3])
        np.testing.assert_array_equal(other.places(3), bags.places(3))
    assert stored.fingerprint() == bags.fingerprint()


def test_a_pickled_copy_carries_paths_and_reads_the_same_patches(folder):
    rows = read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT).instances
    expected = rows.take([35, 0, 7])
    pickled = pickle.dumps(rows)
    assert len(pickled) < 10_000
    np.testing.assert_array_equal(pickle.loads(pickled).take([35, 0, 7]), expected)


def test_threads_read_the_same_patches_and_an_image_is_decoded_once(folder, monkeypatch):
    paths = sorted((folder / "images").iterdir())
    rows = FileRows(probed(paths, EIGHT))
    expected = rows.take(np.arange(36))
    rows.close()
    decoded = []
    monkeypatch.setattr("midam.imaging.images.read_pixels", lambda path: decoded.append(path) or read_pixels(path))
    found = {}

    def read(seed):
        order = np.random.default_rng(seed).permutation(36)
        found[seed] = rows.take(order)[np.argsort(order)]

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(decoded) == paths
    for seed in range(8):
        np.testing.assert_array_equal(found[seed], expected)


def test_decoded_images_are_let_go_at_a_bound(folder, monkeypatch):
    rows = FileRows(probed(sorted((folder / "images").iterdir()), EIGHT))
    expected = rows.take(np.arange(36))
    assert num_open(rows.files) == 6
    monkeypatch.setattr("midam.data.sources.file_rows._HELD_BYTES", 2 * 20 * 27 * 3)
    np.testing.assert_array_equal(rows.take(np.arange(36)), expected)
    assert num_open(rows.files) == 2


def test_all_unusable_images_are_named_at_once(folder):
    images = folder / "images"
    whole = (images / "case.1.png").read_bytes()
    (images / "case.1.png").write_bytes(whole[: len(whole) // 2])
    (images / "case.2.png").write_bytes(b"no image")
    save(images / "case.4.png", noise(height=7))
    with pytest.raises(BagDataError) as caught:
        read_bags(images, labels=folder / "labels.csv", images=EIGHT)
    lines = str(caught.value).splitlines()
    assert lines[0] == "Expected files that can be used, got 3 of 6 that cannot:"
    for line, name, words in zip(lines[1:], ("case.1", "case.2", "case.4"), ("whole image", "whole image", "27x7")):
        assert name in line
        assert words in line


@pytest.mark.parametrize(
    ("array", "words"), [(noise(channels=1), r"\(1, 8, 8\)"), (noise(channels=1).astype(np.uint16), r"\(1, 8, 8\)")]
)
def test_a_gray_image_among_colored_ones_is_named(folder, array, words):
    save(folder / "images" / "case.3.png", array)
    with pytest.raises(BagDataError, match=rf"\(3, 8, 8\).*{words}.*case.3.png.*convert the images"):
        read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT)


def test_the_kind_that_most_images_have_is_the_right_one(folder):
    save(folder / "images" / "case.0.png", noise(channels=1))
    with pytest.raises(BagDataError, match=r"\(3, 8, 8\) as in \S*case.1.png, got \(1, 8, 8\) \(in \S*case.0.png\)"):
        read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT)
    for number in (1, 2):
        save(folder / "images" / f"case.{number}.png", noise(channels=1))
    with pytest.raises(BagDataError, match=r"\(1, 8, 8\) as in \S*case.0.png, got \(3, 8, 8\)"):  # three each
        read_bags(folder / "images", labels=folder / "labels.csv", images=EIGHT)


def png_of_16_bits(path, array, colors):
    """Pillow writes none: signature, header, data, end."""
    height, width = array.shape[:2]
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, colors, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    parts = [
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    ]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def test_colors_of_16_bits_are_refused_and_not_cut_to_8(folder):
    deep = noise().astype(np.uint16) * 257
    images = folder / "images"
    png_of_16_bits(images / "case.0.png", deep, 2)
    png_of_16_bits(images / "case.1.png", deep[..., :2], 4)  # gray and transparency
    with pytest.raises(BagDataError) as caught:
        read_bags(images, labels=folder / "labels.csv", images=EIGHT)
    assert str(caught.value).count("Expected 8 bits of each color, got 16") == 1
    assert "2 such: case.0.png, case.1.png" in str(caught.value)
    tiffs = {"strips": {}, "packed": {"compression": "zlib"}, "planes": {"planarconfig": "separate"}}
    for name, options in tiffs.items():
        array = deep.transpose(2, 0, 1) if name == "planes" else deep
        tifffile.imwrite(folder / f"{name}.tif", array, photometric="rgb", **options)
        with pytest.raises(BagDataError, match=rf"got 16.*{name}.tif.*convert it to 8 bits"):
            probe(folder / f"{name}.tif", EIGHT)
    png_of_16_bits(folder / "gray.png", deep[..., 0], 0)
    assert read_pixels(folder / "gray.png").tolist() == [deep[..., 0].tolist()]


def test_files_that_are_no_known_image_are_told_of(folder):
    Image.fromarray(noise()).save(folder / "images" / "extra.bmp")
    with pytest.warns(UserWarning, match=r"6 of 7 .*extra\.bmp"):
        bags = read_bags(folder / "images", images=EIGHT, require_labels=False)
    assert len(bags) == 6


@pytest.mark.parametrize("form", ["PNG", "GIF", "TIFF"])
def test_an_animation_is_not_read_as_its_first_frame(tmp_path, form):
    frames = [Image.fromarray(noise(seed=seed)).convert("P") for seed in range(3)]
    frames[0].save(tmp_path / "a.png", format=form, save_all=True, append_images=frames[1:])
    with pytest.raises(BagDataError, match="3 pages or frames"):
        probe(tmp_path / "a.png", EIGHT)


def test_a_volume_in_one_page_is_not_read_as_its_first_plane(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((32, 16, 16), np.uint8), volumetric=True, tile=(16, 16, 16))
    with pytest.raises(BagDataError, match="32 pages or frames"):
        probe(tmp_path / "a.tif", EIGHT)


def test_the_previews_in_a_photograph_are_no_further_images(tmp_path):
    frames = [Image.fromarray(noise(seed=seed)) for seed in range(2)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "b.jpg")
    assert np.array_equal(read_pixels(tmp_path / "a.jpg"), read_pixels(tmp_path / "b.jpg"))


def test_what_is_no_single_image_is_refused(tmp_path, monkeypatch):
    pages = [Image.fromarray(noise(seed=seed)) for seed in range(3)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(BagDataError, match="3 pages"):
        probe(tmp_path / "pages.tif", EIGHT)
    save(tmp_path / "large.png", noise())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(BagDataError, match="read as a slide"):
        probe(tmp_path / "large.png", EIGHT)


def test_settings_are_checked_and_must_apply(folder):
    for values, words in (
        ({"patch_size": 0}, "valid `patch_size`, got 0: .* greater than or equal to 1"),
        ({"tissue": 1.5}, "`tissue`, got 1.5"),
        ({"axis": 3}, "valid `axis`, got 3: .* less than or equal to 2"),
        ({"window": [400, 0]}, "`window` as two ascending"),
        ({"volume_size": [8, 8, 8]}, "volume=True"),
        ({"volume": True, "slice_size": 8}, "`volume_size` for whole volumes"),
    ):
        with pytest.raises(ConfigError, match=words):
            Settings.from_flat(values)
    assert Settings.from_flat({"window": [0, 400]}).cut == ImageOptions(window=(0, 400))
    for data, labels in ((folder / "images", folder / "labels.csv"), ("digits", None)):
        with pytest.raises(ConfigError, match="`window`"):
            read_bags(data, labels=labels, images=ImageOptions(window=(0, 1)))
    np.save(folder / "features.npy", np.ones((3, 4)))
    write_store(read_bags("digits"), folder / "store")
    with pytest.raises(ConfigError, match="`patch_size`"):
        read_bags(folder / "store", images=EIGHT)
    assert len(read_bags(folder / "store", images=EIGHT, require_labels=False)) == 360


def images_of_all_kinds(folder):
    """Images of 203 x 157 pixels."""
    base = np.kron(np.random.default_rng(0).integers(0, 255, (26, 20, 4)), np.ones((8, 8, 1)))[:203, :157]
    rgba = Image.fromarray(base.astype(np.uint8))
    kinds = {mode: rgba.convert("RGB").convert(mode) for mode in ("RGB", "L", "LA", "P", "1", "CMYK")} | {"RGBA": rgba}
    kinds["I;16"] = Image.fromarray(base[..., 0].astype(np.uint16) * 257)
    for mode, image in kinds.items():
        if mode != "CMYK":
            image.save(folder / f"{mode}.png")
        for code in (None, "tiff_lzw"):
            image.save(folder / f"{mode}-{code}.tif", compression=code, **({"strip_size": 4000} if code else {}))
    kinds["P"].save(folder / "clear.png", transparency=3)
    kinds["RGB"].save(folder / "a.jpg")
    kinds["CMYK"].save(folder / "b.jpg")
    kinds["RGB"].save(folder / "c.tif", compression="jpeg", strip_size=4000)
    pixels, strips = base[..., :3].astype(np.uint8), {"rowsperstrip": 16, "compression": "lzw", "predictor": True}
    ways = {"tiles": {"tile": (32, 48), "compression": "jpeg"}, "strips": strips, "one": {}, "big": {"byteorder": ">"}}
    ways["planes"] = {"planarconfig": "separate"}
    for name, how in ways.items():
        tifffile.imwrite(
            folder / f"{name}.tif", pixels.transpose(2, 0, 1) if name == "planes" else pixels, photometric="rgb", **how
        )
    return sorted(folder.iterdir())


@pytest.mark.parametrize("rows", [1, 17])
def test_an_image_that_is_converted_in_parts_is_the_image(tmp_path, monkeypatch, rows):
    for path in images_of_all_kinds(tmp_path):
        whole = read_pixels(path)
        with monkeypatch.context() as patch:
            patch.setattr("midam.imaging.images._ROWS", rows)
            parts = read_pixels(path)
        np.testing.assert_array_equal(parts, whole, err_msg=path.name)
        assert parts.dtype == whole.dtype


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.jpg"])
def test_an_image_that_is_cut_short_is_refused(tmp_path, name):
    how = {"compression": "tiff_lzw", "strip_size": 300} if "tif" in name else {}
    content = save(tmp_path / name, noise(height=61), **how).read_bytes()
    for share in (0.5, 0.9):
        (tmp_path / f"cut-{name}").write_bytes(content[: int(share * len(content))])
        with pytest.raises(BagDataError, match=f"cut-{name}"):
            probe(tmp_path / f"cut-{name}", ImageOptions(patch_size=8, stride=5))


@pytest.mark.filterwarnings("ignore:TIFFs with white as zero state no MaxSampleValue")
@pytest.mark.parametrize("bits", [10, 12, 14, 16])
@pytest.mark.parametrize(
    "how", [{}, {"rowsperstrip": 16}, {"tile": (64, 64)}, {"extratags": [(281, "H", 1, 4095, True)]}]
)
def test_white_as_zero_in_the_bits_in_use_is_the_same_picture(tmp_path, bits, how):
    top = 4095 if "extratags" in how else 2**bits - 1
    dark = (
        np.random.default_rng(0).integers(0, top // 4 if "extratags" in how else top, size=(200, 128)).astype(np.uint16)
    )
    dark[0, 0] = 0  # black, the highest stored number
    tifffile.imwrite(tmp_path / "a.tif", dark)
    tifffile.imwrite(tmp_path / "b.tif", (top - dark).astype(np.uint16), photometric="miniswhite", **how)
    expected = read_pixels(tmp_path / "a.tif")
    assert np.array_equal(read_pixels(tmp_path / "b.tif"), expected)
