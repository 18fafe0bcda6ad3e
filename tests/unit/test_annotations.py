"""Labels of patches from masks and GeoJSON annotations of images and slides."""

import json

import numpy as np
import pytest
from PIL import Image

from midam.cli import main
from midam.data import Bags, open_store, read_bags
from midam.errors import BagDataError
from midam.explain import label_by_masks

SIDE = 16


@pytest.fixture
def images(tmp_path):
    """Two classes of images of 3 x 2 patches, one of each class, and a folder for masks."""
    rng = np.random.default_rng(0)
    for label in ("negative", "positive"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 255, (2 * SIDE, 3 * SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{label}{number}.png")
    (tmp_path / "masks").mkdir()
    return tmp_path


def read(images):
    return read_bags(images / "images", positive="positive", images={"patch_size": SIDE})


def labels_of(bags, name):
    """The labels of a bag, row by row."""
    (index,) = np.flatnonzero(np.char.find(bags.ids, name) >= 0)
    start, size = int(bags.starts[index]), int(bags.sizes[index])
    return bags.instance_labels[start : start + size]


def test_a_patch_is_positive_where_a_tenth_of_it_is_marked(images):
    mask = np.zeros((2 * SIDE, 3 * SIDE), np.uint8)
    mask[:SIDE, :SIDE] = 255  # all of the first patch
    mask[SIDE : SIDE + 4, SIDE : SIDE + 4] = 1  # 1/16 of the fifth
    mask[SIDE : SIDE + 6, 2 * SIDE : 2 * SIDE + 6] = 1  # more than a tenth of the sixth
    Image.fromarray(mask).save(images / "masks/positive0.png")
    bags = label_by_masks(read(images), images / "masks")
    assert labels_of(bags, "positive0").tolist() == [1, 0, 0, 0, 0, 1]
    assert np.isnan(labels_of(bags, "positive1")).all(), "an image without a mask"
    assert labels_of(bags, "negative0").tolist() == [0] * 6
    half = label_by_masks(read(images), images / "masks", share=0.5)
    assert labels_of(half, "positive0").tolist() == [1, 0, 0, 0, 0, 0]
    Image.fromarray(mask[::2, ::2]).save(images / "masks/positive1.png")
    assert labels_of(label_by_masks(read(images), images / "masks"), "positive1").tolist() == [1, 0, 0, 0, 0, 1]


def test_polygons_of_geojson_label_patches(images):
    def ring(left, top, right, low):
        return [[left, top], [right, top], [right, low], [left, low], [left, top]]

    hole = {"type": "Polygon", "coordinates": [ring(0, 0, 2 * SIDE, SIDE), ring(0, 0, SIDE, SIDE)]}
    several = {"type": "MultiPolygon", "coordinates": [[ring(40, 20, 48, 32)], [ring(0, 30, 2, 32)]]}
    features = [{"type": "Feature", "geometry": shape} for shape in (hole, several)]
    path = images / "masks/positive0.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    bags = label_by_masks(read(images), images / "masks")
    assert labels_of(bags, "positive0").tolist() == [0, 1, 0, 0, 0, 1]
    for wrong in ("[1]", '{"features": [{"geometry": {"type": "Polygon", "coordinates": [[[0, 0]]]}}]}', "{"):
        path.write_text(wrong)
        with pytest.raises(BagDataError, match="GeoJSON of polygons"):
            label_by_masks(read(images), images / "masks")


def test_masks_that_fit_no_image_are_refused(images):
    with pytest.raises(BagDataError, match="got none"):
        label_by_masks(read(images), images / "nothing")
    with pytest.raises(BagDataError, match="named like the files or bags"):
        label_by_masks(read(images), images / "masks")
    Image.new("L", (50, 50)).save(images / "masks/positive0.png")
    with pytest.raises(BagDataError, match="48 x 32 pixels or smaller in proportion, got 50 x 50"):
        label_by_masks(read(images), images / "masks")


def test_the_command_keeps_the_labels_in_a_store(images):
    Image.new("L", (3 * SIDE, 2 * SIDE), 255).save(images / "masks/positive0.png")
    command = ["data", "import", str(images / "images"), "--positive", "positive", "--patch-size", str(SIDE)]
    assert main([*command, "--instance-masks", str(images / "masks"), "--out", str(images / "store")]) == 0
    assert labels_of(open_store(images / "store"), "positive0").tolist() == [1] * 6


def test_what_is_transparent_in_a_mask_is_not_marked(images):
    marked = np.zeros((2 * SIDE, 3 * SIDE, 4), np.uint8)
    marked[:SIDE, :SIDE] = (255, 0, 0, 128)
    Image.fromarray(marked).save(images / "masks/positive0.png")
    palette = Image.fromarray(marked[..., 3] // 128).convert("P")
    palette.putpalette([90, 90, 90, 255, 0, 0])
    palette.save(images / "masks/positive1.png", transparency=0)
    deep = marked[..., 3].astype(np.uint16) * 9 + 7
    Image.fromarray(deep).save(images / "masks/negative0.png", transparency=7)
    bags = label_by_masks(read(images), images / "masks")
    for name in ("positive0", "positive1", "negative0"):
        assert labels_of(bags, name).tolist() == [1, 0, 0, 0, 0, 0], name


@pytest.mark.parametrize("colors", [[255, 255, 255, 0, 0, 0], [90, 90, 90, 255, 0, 0]], ids=["black", "red"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_the_numbers_of_an_indexed_mask_count_and_not_their_colors(images, colors, suffix):
    numbers = np.zeros((2 * SIDE, 3 * SIDE), np.uint8)
    numbers[:SIDE, :SIDE] = 1
    mask = Image.fromarray(numbers).convert("P")
    mask.putpalette(colors)
    mask.save(images / f"masks/positive0.{suffix}")
    bags = label_by_masks(read(images), images / "masks")
    assert labels_of(bags, "positive0").tolist() == [1, 0, 0, 0, 0, 0]


def ring(left, top, right, low):
    return [[left, top], [right, top], [right, low], [left, low], [left, top]]


def geojson(*shapes, classes=()):
    """Polygons, each with its outline and its holes."""
    features = [{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [*shape]}} for shape in shapes]
    for feature, name in zip(features, classes):
        feature["properties"] = {"classification": name and {"name": name}}
    return json.dumps({"type": "FeatureCollection", "features": features})


@pytest.mark.parametrize("order", [1, -1])
def test_a_hole_leaves_what_another_polygon_marks(images, order):
    island = [ring(SIDE, 0, 2 * SIDE, SIDE)]
    around = [ring(-5, -5, 3 * SIDE, SIDE), ring(SIDE, 0, 2 * SIDE, SIDE)]
    (images / "masks/positive0.geojson").write_text(geojson(*[island, around, [ring(900, 0, 950, 9)]][::order]))
    assert labels_of(label_by_masks(read(images), images / "masks"), "positive0").tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("classes", [("Tumor", "Stroma"), ("Tumor", None)])
def test_polygons_of_several_classes_are_warned_of(images, classes):
    path = images / "masks/positive0.geojson"
    path.write_text(geojson([ring(0, 0, 9, 9)], [ring(20, 0, 29, 9)], classes=classes))
    with pytest.warns(UserWarning, match=r"polygons of 2 classes \(.*Tumor.*all count as marked"):
        label_by_masks(read(images), images / "masks")
    one = geojson([ring(0, 0, 9, 9)], [ring(20, 0, 29, 9)], classes=("Tumor", "Tumor"))
    for text in (one, one.replace('{"name": "Tumor"}', '"Tumor"')):
        path.write_text(text)
        label_by_masks(read(images), images / "masks")


def patches_of_a_slide(corner=(0, 0), size=64):
    """A bag of four patches of 8 pixels in a slide of 64 x 64, with the corner of its bounds."""
    at = {"patch_size_level0": 8, "level0_width": size, "level0_height": size, "corner_x": corner[0]}
    facts = {"file": {}, "coords": at | {"corner_y": corner[1]}}
    return Bags.from_list(
        [np.zeros((4, 3))],
        [1],
        ids=["a"],
        coords=[np.array([[0, 0], [16, 0], [16, 16], [40, 40]])],
        sources=["a.mrxs"],
        attributes=[json.dumps({"a.mrxs": facts})],
    )


def test_polygons_count_from_the_corner_of_a_slide_as_in_viewers(tmp_path):
    bags = patches_of_a_slide(corner=(12, 10))
    (tmp_path / "a.geojson").write_text(geojson([ring(4, 6, 12, 14)]))  # from (16, 16) of level 0 on
    assert label_by_masks(bags, tmp_path, share=0.9).instance_labels.tolist() == [0, 0, 1, 0]


def test_a_patch_smaller_than_a_pixel_of_the_mask_has_its_label(tmp_path):
    mask = np.zeros((4, 4), np.uint8)
    mask[0, 1] = mask[2, 2] = 1
    Image.fromarray(mask).save(tmp_path / "a.png")
    assert label_by_masks(patches_of_a_slide(), tmp_path).instance_labels.tolist() == [0, 1, 0, 1]


def test_a_mask_is_that_of_one_image(tmp_path):
    for number, folder in enumerate(("normal", "tumor")):
        (tmp_path / "images" / folder).mkdir(parents=True)
        pixels = np.random.default_rng(number).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / folder / "0.png")
    (tmp_path / "masks/tumor").mkdir(parents=True)
    Image.new("L", (SIDE, SIDE), 255).save(tmp_path / "masks/tumor/0.png")
    bags = read_bags(tmp_path / "images", positive="tumor", images={"patch_size": SIDE})
    assert label_by_masks(bags, tmp_path / "masks").instance_labels.tolist() == [0, 1]
    (tmp_path / "masks/tumor/0.png").rename(tmp_path / "masks/0.png")
    with pytest.raises(BagDataError, match="a mask for each image, got one of normal/0 and tumor/0"):
        label_by_masks(bags, tmp_path / "masks")


def test_an_empty_polygon_marks_nothing(images):
    (images / "masks/positive0.geojson").write_text(geojson([], [ring(0, 0, SIDE, SIDE)]))
    assert labels_of(label_by_masks(read(images), images / "masks"), "positive0").tolist() == [1, 0, 0, 0, 0, 0]
