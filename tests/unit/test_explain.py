"""Explanations: the numbers are those that were pooled, the curves those of real parts of a bag, the maps in place."""

import json
import re
import uuid
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from tests.trainings import make_scorers

from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.store import open_store, write_store
from midam.errors import BagDataError, DataNotFoundError
from midam.evaluate import pooled
from midam.evaluate.pooled import instance_scores
from midam.evaluate.predict import predict
from midam.explain import explain_bag
from midam.explain.explanation import Features, PartMap
from midam.explain.geojson import geojson_text
from midam.explain.maps import (
    MAX_SIDE,
    Backdrop,
    ImageFolder,
    PatchMap,
    draw_map,
    maps_of,
    read_backdrop,
    shades_of,
)
from midam.explain.patches import Patches, patches_of, rasterize, warn_of_unknown
from midam.explain.picture import SLICES, Pictures, draw_chart, draw_explanation, draw_tiles, tiled
from midam.explain.run import find_bags
from midam.explain.words import instance_name
from midam.methods.baselines import BagStatisticsTrees
from midam.nn.pooling.attention import AttentionPooling
from midam.nn.scorer import BagScorer
from midam.report.figures import new_figure

pytestmark = pytest.mark.drawn
UNDRAWN = pytest.mark.drawn(False)

POOLINGS = ["attention", "embedding-attention", "smoothed-max", "mean", "max", "noisy-or", "generalized-mean"]
SIZES = np.array([47, 1, 7])


def make_bags(shape=(4,), sizes=SIZES, dtype=np.float32, **columns):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sizes.sum(), *shape)) if dtype == np.float32 else rng.integers(0, 256, (sizes.sum(), *shape))
    return Bags(x.astype(dtype), starts=np.cumsum(sizes) - sizes, sizes=sizes, **columns)


def grid(columns, rows, side):
    return np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2) * side


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("members", [1, 3])
def test_the_numbers_are_those_that_predict_pools(pooling, members):
    model, bags = make_scorers(pooling, members), make_bags()
    scores = predict(model, bags)
    for index in range(len(bags)):
        found, expected = explain_bag(model, bags, index, chunk_size=10), instance_scores(model, bags, index)
        np.testing.assert_allclose(found.score, scores[index], rtol=0, atol=1e-6)
        for name, values in (("score", found.alone), ("weight", found.weight)):
            np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-5, atol=1e-7)
        assert sorted(found.order) == list(range(SIZES[index]))
        assert (np.diff(found.contribution[found.order]) <= 0).all()


@pytest.mark.parametrize("pooling", [*POOLINGS, "noisy-and", "gated-attention"])
@pytest.mark.parametrize("members", [1, 2])
def test_an_instance_adds_what_the_score_loses_without_it(pooling, members, monkeypatch):
    monkeypatch.setattr(pooled, "MOST_NUMBERS", 26)
    model = make_scorers(pooling, members).double()
    bags = Bags(make_bags().instances.astype(np.float64), starts=np.cumsum(SIZES) - SIZES, sizes=SIZES)
    for index in (0, 2):
        found, x = explain_bag(model, bags, index, chunk_size=10), bags[index]
        rest = predict(model, Bags.from_list([np.delete(x, i, axis=0) for i in range(len(x))]))
        np.testing.assert_allclose(found.contribution, found.score - rest, rtol=1e-4, atol=2e-7)
    np.testing.assert_allclose(explain_bag(model, bags, 1).contribution, predict(model, bags)[1:2], rtol=1e-6)


@pytest.mark.parametrize("pooling", [*POOLINGS, "forest"])
def test_a_feature_adds_what_the_score_loses_with_its_typical_value(pooling):
    bags = make_bags(labels=[0, 1, 0], feature_names=["a", "b", "c", "d"])
    bags = bags.replace(instances=bags.instances.astype(np.float64))
    many = Bags.from_list([np.random.default_rng(k).normal(size=(5, 4)) + k % 2 for k in range(12)], [0, 1] * 6)
    model = BagStatisticsTrees().scorer(many, seed=0) if pooling == "forest" else make_scorers(pooling, 2).double()
    typical = np.array([0.5, 0.0, -0.5, float(bags[0][0, 3])])
    middle = np.quantile(bags.instances, [0.25, 0.75], axis=0)
    features = Features(bags.feature_names, np.array(bags.feature_names), typical, typical, middle)
    for index in (0, 1):
        found, x = explain_bag(model, bags, index, features=features, top=2), bags[index]
        assert list(found.features) == found.order[:2].tolist()
        for instance, telling in found.features.items():
            losses = []
            for at, value in enumerate(typical):
                changed = x.copy()
                changed[instance, at] = value
                (score,) = predict(model, Bags.from_list([changed]).replace(feature_names=bags.feature_names))
                losses.append(found.score - score)
            least = max(0.1 * max(losses), 2e-7)
            assert {one.name for one in telling} >= {
                bags.feature_names[i] for i in range(4) if losses[i] > least + 1e-6
            }
            assert [one.adds for one in telling] == sorted((one.adds for one in telling), reverse=True)
            for one in telling:
                at = bags.feature_names.index(one.name)
                assert (one.value, one.typical) == (x[instance, at], typical[at])
                np.testing.assert_allclose(one.adds, losses[at], rtol=1e-4, atol=2e-7)


def test_an_instance_with_nearly_all_the_weight_is_taken_out_exactly():
    x = np.zeros((5, 2), dtype=np.float32)
    x[:, 1] = (3, -1, -1, -1, -2)
    x[0, 0] = 60  # the others share e**-60 of the weight
    found = explain_bag(BagScorer(torch.nn.Identity(), Direct()), Bags.from_list([x]), 0)
    alone = 1 / (1 + np.exp(1.25)), 1 / (1 + np.exp(-3.0))
    np.testing.assert_allclose(found.contribution[0], alone[1] - alone[0], rtol=1e-6)
    assert found.order[0] == 0


def test_top_is_what_raises_the_score_not_what_weighs_most():
    x = np.zeros((20, 2), dtype=np.float32)
    x[0], x[1] = (2, -3), (1, 4)  # most weight, against the score; less weight, for it
    found = explain_bag(BagScorer(torch.nn.Identity(), Direct()), Bags.from_list([x]), 0)
    assert found.weight.argmax() == 0
    assert (found.order[0], found.order[-1]) == (1, 0)
    assert found.contribution[1] > 0 > found.contribution[0]


def test_poolings_that_weigh_all_alike_are_known():
    weighted = {pooling: explain_bag(make_scorers(pooling), make_bags(), 0).weighted for pooling in POOLINGS}
    assert {pooling for pooling, differ in weighted.items() if not differ} == {"mean", "noisy-or"}


class Direct(AttentionPooling):
    """Attention whose logit is the first feature, and whose value is the second."""

    def __init__(self):
        super().__init__(2)

    def forward(self, e):
        return e[:, 0], e[:, 1:]


def test_a_bag_that_is_not_there_is_refused():
    with pytest.raises(BagDataError, match="from 0 to 2, got 3"):
        explain_bag(make_scorers("attention"), make_bags(), 3)


def test_max_pooling_gives_all_weight_to_the_first_maximum():
    found = explain_bag(make_scorers("max"), make_bags(), 0)
    assert found.relative_weight[found.order[0]] == SIZES[0]
    assert found.weight.sum() == 1
    assert (np.diff(found.alone[found.order]) <= 0).all()


def test_rasterised_patches_are_where_a_loop_puts_them():
    rng = np.random.default_rng(2)
    corners = rng.integers(0, 90, size=(40, 2)).astype(float)
    patches, values = Patches(corners, 16.0, 10.0, False, np.arange(40)), rng.normal(size=40)
    sums, counts = np.zeros((50, 48)), np.zeros((50, 48))
    for (x, y), value in zip(corners, values, strict=True):
        rows = slice(min(round(y / 2), 49), min(round((y + 10) / 2), 50))
        columns = slice(min(round(x / 2), 47), min(round((x + 16) / 2), 48))
        sums[rows, columns] += value
        counts[rows, columns] += 1
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(rasterize(patches, values, shape=(50, 48), scale=0.5), sums / counts, atol=1e-9)


def test_a_patch_smaller_than_a_pixel_stays_on_the_map():
    patches = Patches(grid(1000, 100, 224).astype(float), 224.0, 224.0, False, np.arange(100_000))
    found = rasterize(patches, np.arange(100_000.0), shape=(10, 100), scale=1 / 2240)
    assert np.isfinite(found).all()
    assert found[0, 0] < found[-1, -1]


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"patch_size_level0": 512, "patch_size": 256}, (512, 512)),
        ({"patch_size": 256, "downsample": [4.0, 2.0]}, (1024, 512)),
        ({"patch_size": 256}, None),
    ],
)
def test_the_size_of_a_patch_is_what_the_file_says(said, size):
    bags = make_bags(
        sizes=np.array([6]),
        coords=grid(3, 2, 300),
        attributes=[json.dumps({"a.h5": {"features": {"encoder": "x"}, "coords": said}})],
    )
    (found,) = patches_of(bags, 0)
    assert (found.width, found.height) == (size or (300, 300))
    assert found.estimated == (size is None)
    if size is None:
        with pytest.warns(UserWarning, match=r"the size of the patches is unknown, .*300 pixels"):
            warn_of_unknown(found)


def test_patches_that_are_pictures_have_their_own_size_and_others_no_place():
    n = np.array([6])
    (found,) = patches_of(make_bags((3, 8, 12), n, np.uint8, coords=grid(3, 2, 12)), 0)
    assert (found.width, found.height, found.estimated) == (12, 8, False)
    assert patches_of(make_bags(sizes=n), 0) == patches_of(make_bags(sizes=n, coords=np.arange(6)[:, None]), 0) == []
    for known, reason in (
        ({"sources": ["a.h5"]}, "the files hold no x and y"),
        ({"sources": ["a.h5"], "coords": np.arange(6)[:, None]}, "the files hold no x and y"),
        ({"coords": grid(3, 2, 1.5)}, "coordinates are not whole numbers, and their unit is unknown"),
        ({"coords": grid(3, 2, 8), "sources": ["a.h5\nb.h5"]}, "the file of each instance is unknown"),
    ):
        with pytest.warns(UserWarning, match=f"no map and no GeoJSON: {reason}"):
            assert patches_of(make_bags(sizes=n, **known), 0) == []


def test_geojson_is_what_qupath_reads():
    bags = make_bags(sizes=np.array([30]), coords=grid(6, 5, 256), ids=["slide 1"])
    found, patches = explain_bag(make_scorers("attention"), bags, 0), patches_of(bags, 0)[0]
    read = json.loads(geojson_text(found, patches, limit=10))
    assert read["type"] == "FeatureCollection"
    assert len(read["features"]) == 10
    for rank, feature in enumerate(read["features"]):
        (ring,), properties = feature["geometry"]["coordinates"], feature["properties"]
        i = properties["instance"]
        x, y = bags.places(0)[i]
        assert feature["type"] == "Feature"
        assert feature["geometry"]["type"] == "Polygon"
        assert ring == [[x, y], [x + 256, y], [x + 256, y + 256], [x, y + 256], [x, y]]
        assert uuid.UUID(feature["id"])
        assert properties["objectType"] == "annotation"
        assert i == found.order[rank]
        assert all(isinstance(value, float) for value in properties["measurements"].values())
        assert properties["weight"] == properties["measurements"]["weight"] == float(found.weight[i])
        assert properties["score"] == float(found.alone[i])
        assert all(0 <= part <= 255 and isinstance(part, int) for part in properties["color"])
    assert read["features"][0]["properties"]["classification"]["name"] == "top 1"
    assert len({feature["id"] for feature in read["features"]}) == 10
    assert len(json.loads(geojson_text(found, patches))["features"]) == 30


def image_bags(path, side=8, columns=6, rows=5, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (rows * side, columns * side, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    coords = grid(columns, rows, side)
    x = np.stack([pixels[b : b + side, a : a + side].transpose(2, 0, 1) for a, b in coords])
    return Bags(x, starts=[0], sizes=[len(x)], coords=coords, sources=[str(path)], ids=["one"]), pixels


def test_the_map_lies_on_the_patches_it_is_about(tmp_path):
    bags, pixels = image_bags(tmp_path / "one.png")
    found = explain_bag(make_scorers("smoothed-max", shape=(3, 8, 8), encoder="mlp"), bags, 0)
    drawn = PatchMap(found, patches_of(bags, 0)[0], read_backdrop(tmp_path / "one.png"))
    np.testing.assert_array_equal(drawn.backdrop.pixels, pixels)
    raster = drawn.raster(found.contribution)
    y, x = np.unravel_index(raster.argmax(), raster.shape)
    assert bags.coords[found.order[0]].tolist() == [x, y]
    top = Pictures(bags).picture(int(found.order[0]), (0, 255))
    np.testing.assert_array_equal(pixels[y : y + 8, x : x + 8], top)


def test_a_large_image_is_made_small_and_a_missing_or_damaged_one_named(tmp_path):
    Image.new("RGB", (4 * MAX_SIDE, MAX_SIDE), "red").save(tmp_path / "wide.png")
    found = read_backdrop(tmp_path / "wide.png")
    assert found.pixels.shape == (MAX_SIDE // 4, MAX_SIDE, 3)
    assert found.scale == 0.25
    (tmp_path / "bad.png").write_bytes(b"no image")
    for name, reason in (("gone.png", "no longer exists"), ("bad.png", "whole image")):
        with pytest.warns(UserWarning, match=rf"{name} is left out .*{reason}"):
            assert read_backdrop(tmp_path / name) is None


def picture(path, model, bags, **options):
    found = explain_bag(model, bags, 0)
    kind = draw_explanation(path, found, bags, maps=maps_of(found, bags), **options)
    with Image.open(path) as image:
        image.verify()
        return kind, image.size


def test_the_picture_fits_the_kind_of_the_bag(tmp_path):
    path, n, pooling = tmp_path / "p.png", np.array([30]), "attention"
    patches, coords = make_scorers(pooling, shape=(3, 8, 8), encoder="mlp"), grid(6, 5, 8)
    slices = make_scorers(pooling, shape=(1, 8, 8), encoder="mlp")
    vectors = make_scorers(pooling)
    cases = {
        "overlay": (patches, image_bags(tmp_path / "one.png")[0]),
        "sheet": (patches, make_bags((3, 8, 8), n, np.uint8)),
        "strip": (slices, make_bags((1, 8, 8), n, coords=np.arange(30)[:, None])),
        "map": (vectors, make_bags(sizes=n, coords=coords)),
        "bars": (vectors, make_bags(sizes=n)),
    }
    for kind, (model, bags) in cases.items():
        assert picture(path, model, bags)[0] == kind


@UNDRAWN
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_every_pooling_has_a_picture(pooling, tmp_path):
    bags, _ = image_bags(tmp_path / "one.png")
    assert picture(tmp_path / "p.png", make_scorers(pooling, shape=(3, 8, 8), encoder="mlp"), bags)[0] == "overlay"


@UNDRAWN
def test_a_moved_image_leaves_the_contact_sheet(tmp_path):
    bags, _ = image_bags(tmp_path / "one.png")
    (tmp_path / "one.png").rename(tmp_path / "two.png")
    model = make_scorers("attention", shape=(3, 8, 8), encoder="mlp")
    with pytest.warns(UserWarning, match=r"one\.png is left out of the picture: .*exists"):
        assert picture(tmp_path / "p.png", model, bags)[0] == "sheet"


# Of many instances, bars and sheet show the top ones, as of 30 in the test of the kinds.
@pytest.mark.parametrize("count", [1, pytest.param(3000, marks=UNDRAWN)])
def test_bars_and_sheets_of_few_and_of_many_instances(count, tmp_path):
    vectors, pictures = make_scorers("attention"), make_scorers("attention", shape=(3, 8, 8), encoder="mlp")
    n = np.array([count])
    assert picture(tmp_path / "v.png", vectors, make_bags(sizes=n), top=20)[0] == "bars"
    assert picture(tmp_path / "p.png", pictures, make_bags((3, 8, 8), n, np.uint8), top=12)[0] == "sheet"


def test_the_map_of_many_instances_is_no_larger_than_others(tmp_path):
    n = np.array([40_000])
    bags = make_bags(sizes=n, coords=grid(400, 100, 256))
    kind, size = picture(tmp_path / "m.png", make_scorers("attention"), bags)
    assert kind == "map"
    assert max(size) < 3000


def test_the_sheet_shows_both_ends_once():
    bags = make_bags()
    found = explain_bag(make_scorers("attention"), bags, 0)
    assert tiled(found, 8).tolist() == [*found.order[:8], *found.order[-8:]]
    shown = tiled(explain_bag(make_scorers("attention"), bags, 2), 5).tolist()
    assert sorted(shown) == list(range(7))


def test_the_strip_is_in_order_and_holds_the_top_slices():
    order = np.random.default_rng(3).permutation(40)[:, None]
    bags = make_bags((1, 8, 8), np.array([40]), coords=order)
    found = explain_bag(make_scorers("attention", shape=(1, 8, 8), encoder="mlp"), bags, 0)
    chosen = tiled(found, 8, sliced=True)
    assert len(chosen) == SLICES
    assert (np.diff(order[chosen, 0]) > 0).all()
    assert set(found.order[:6]) <= set(chosen)


def scans(folder, depths):
    """One bag of several volumes, of which all slices are instances."""
    rng = np.random.default_rng(0)
    for name, depth in depths.items():
        np.save(folder / f"{name}.npy", rng.integers(1, 200, (depth, 8, 8)).astype(np.uint8))
    rows = [f"{name},1,p" for name in depths]
    (folder / "labels.tsv").write_text("\n".join(["file,label,patient", *rows]).replace(",", "\t"))
    return read_bags(folder, labels=folder / "labels.tsv", bag_by="patient")


def test_scans_of_one_bag_are_told_apart_by_their_files(tmp_path):
    bags = scans(tmp_path, {"t1": 5, "t2": 9, "t3": 4})
    model = make_scorers("attention", shape=(1, 8, 8), encoder="mlp")
    stored = open_store(write_store(bags, tmp_path / "store"))
    for these in (bags, stored):
        found = explain_bag(model, these, 0)
        shown = tiled(found, 3, sliced=True)
        assert (len(shown), sorted(shown)) == (SLICES, shown.tolist())
        figure = new_figure((10, 4))
        draw_tiles(figure.subfigures(1, 1), found, Pictures(these), shown, top=3, sliced=True)
        titles = [axes.get_title().split("\n")[:2] for axes in figure.axes[:SLICES]]
        names = ["t1.npy" if i < 5 else "t2.npy" if i < 14 else "t3.npy" for i in shown]
        slices = [instance_name(i, these.places(0)[i]) for i in shown.tolist()]
        assert [(name, text.partition(",")[0]) for name, text in titles] == list(zip(names, slices))
    # The bars: one for each slice, none upon another, parted at the files.
    figure = new_figure((10, 4))
    draw_chart(figure.subfigures(1, 1), found, top=3, begins=[0, 5, 14])
    chart = figure.axes[0]
    assert [bar.get_x() for bar in chart.patches] == [at - 0.5 for at in range(18)]
    parted = [line.get_xdata()[0] for line in chart.lines if list(line.get_ydata()) == [0, 1]]
    assert parted == [4.5, 13.5]


def test_two_x_rays_are_drawn_once_with_their_names_apart(tmp_path, monkeypatch):
    facts = [{"instance_number": i + 1, "slice_file": f"S059_left_{i}.dcm", "laterality": "L"} for i in range(2)]
    bags = make_bags((1, 8, 8), np.array([2]), coords=np.arange(2)[:, None])
    found = explain_bag(make_scorers("attention", shape=(1, 8, 8), encoder="mlp"), bags, 0)
    columns = {name: [one[name] for one in facts] for name in facts[0]}
    found = replace(found, columns=columns, parts={int(found.order[0]): PartMap(np.ones((8, 8)), (0.5, 0.5))})
    drawn = []
    monkeypatch.setattr("midam.explain.picture.save_figure", lambda figure, _: drawn.append(figure))
    assert draw_explanation(tmp_path / "p.png", found, bags) == "strip"
    (figure,) = drawn
    figure.draw_without_rendering()
    titles = [axes.title for axes in figure.axes if "rank" in axes.get_title()]
    assert sorted(title.get_text().split("\n")[2] for title in titles) == [one["slice_file"] for one in facts]
    left, right = sorted((title.get_window_extent() for title in titles), key=lambda box: box.x0)
    assert left.x1 < right.x0
    chart = figure.axes[-1]
    assert [label.get_text().split(",")[0] for label in chart.get_yticklabels()] == [f"#{i}" for i in found.order]


def strip_of(tmp_path, **said):
    """Axes and texts of the strip of a bag of one scan whose file says this."""
    pixels = np.random.default_rng(0).normal(100, 1, (20, 1, 8, 8)).astype(np.float32)
    pixels[3, 0, 0, 0] = 1e6  # one bright voxel
    said = [json.dumps({"a.nii": {"file": said}})]
    coords = np.arange(20)[:, None]
    bags = Bags(pixels, starts=[0], sizes=[20], coords=coords, sources=["a.nii"], attributes=said)
    found = explain_bag(make_scorers("attention", shape=(1, 8, 8), encoder="mlp"), bags, 0)
    part = new_figure((10, 6)).subfigures(1, 1)
    draw_tiles(part, found, Pictures(bags), tiled(found, 3, sliced=True), top=3, sliced=True)
    return part, found


def test_the_strip_says_its_window_and_its_plane_and_shows_which_side_is_left(tmp_path):
    part, found = strip_of(tmp_path, plane="axial", edges="RLAP")
    note = part.get_suptitle()
    assert note.startswith("axial: ")
    low, high = (
        float(x) for x in re.search(r"1st to 99th percentile of the intensities, (\S+) to (\S+)$", note).groups()
    )
    assert 90 < low < high < 110
    first = part.axes[0]
    assert [(text.get_text(), text.get_position()[0] < 0.5) for text in first.texts[:2]] == [("R", True), ("L", False)]
    pixels = first.images[0].get_array()
    assert len(np.unique(pixels)) > 10  # not dark but for one voxel
    assert f"score {found.alone[0]:.3f}" in first.get_title()


def test_a_strip_of_arrays_does_not_guess_a_side(tmp_path):
    part, _ = strip_of(tmp_path)
    assert not part.axes[0].texts


def test_a_bag_whose_instances_are_alike_does_not_tint_the_image(tmp_path):
    bags, _ = image_bags(tmp_path / "one.png")
    bags = bags.replace(instances=np.repeat(bags.gather([0]), 30, axis=0))
    found = explain_bag(make_scorers("attention", shape=(3, 8, 8), encoder="mlp"), bags, 0)
    (drawn,) = maps_of(found, bags)
    assert shades_of(drawn)[..., 3].max() < 0.01
    assert shades_of(replace(drawn, backdrop=None))[..., 3].min() == 1


def test_what_adds_much_is_seen_and_what_adds_nothing_is_clear(tmp_path):
    x = np.zeros((40, 2), dtype=np.float32)
    x[7] = (3, 6)
    bags = Bags(x, starts=[0], sizes=[40], coords=grid(8, 5, 10))
    found = explain_bag(BagScorer(torch.nn.Identity(), Direct()), bags, 0)
    backdrop = Backdrop(np.zeros((50, 80, 3), np.uint8), 1.0)
    shades = shades_of(PatchMap(found, patches_of(bags, 0)[0], backdrop))
    red, _, blue, opacity = shades[5, 75]  # of instance 7
    assert red > blue
    assert opacity == pytest.approx(0.8)
    shades[:10, 70:] = 0
    assert shades[..., 3].max() < 0.2


@pytest.mark.parametrize("count", [1, 6, 200])
def test_the_chart_names_the_top_instances_in_the_colors_of_what_they_add(count):
    bags = make_bags(sizes=np.array([count]), coords=np.arange(count)[:, None])
    found = explain_bag(make_scorers("attention"), bags, 0)
    found = replace(found, contribution=found.contribution - np.float32(0.5 if count == 6 else 0))
    figure = new_figure((10, 3.4))
    draw_chart(figure.subfigures(1, 1), found, top=8)
    (chart,) = figure.axes
    shown = found.order[:8]
    assert [text.get_text() for text in chart.get_yticklabels()] == [f"#{i}" for i in shown]
    assert len(chart.patches) == len(shown)
    for bar, value in zip(chart.patches, found.contribution[shown]):
        assert bar.get_width() == pytest.approx(value)
        assert (bar.get_facecolor()[0] > bar.get_facecolor()[2]) == (value >= 0)
    assert "orange raises the score, blue lowers it" in chart.get_xlabel()


def test_the_map_names_its_colors_and_its_numbers_do_not_touch(tmp_path):
    bags = make_bags(sizes=np.array([30]), coords=grid(6, 5, 8))
    found = explain_bag(make_scorers("attention"), bags, 0)
    (drawn,) = maps_of(found, bags)
    figure = new_figure((10, 6))
    draw_map(figure.subfigures(1, 1), drawn, top=3)
    figure.canvas.draw()
    (bar,) = (axes for axes in figure.axes if "here" in axes.get_xlabel())
    assert "blue lowers it" in bar.get_xlabel()
    assert "\N{MINUS SIGN}" in bar.get_xlabel()
    boxes = [text.get_window_extent() for text in bar.get_xticklabels() if text.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    label = bar.xaxis.label.get_window_extent()
    assert figure.bbox.x0 <= label.x0 < label.x1 <= figure.bbox.x1


def feature_bags(said=None, side=8):
    attributes = None if said is None else [json.dumps({"s1.h5": {"coords": {"patch_size_level0": side, **said}}})]
    n = np.array([30])
    return make_bags(sizes=n, coords=grid(6, 5, side), ids=["s1"], sources=["x/s1.h5"], attributes=attributes)


@pytest.mark.parametrize(
    ("said", "scale"),
    [
        ({"level0_width": 480, "level0_height": 400}, 0.1),  # TRIDENT
        pytest.param({"level_dim": [240, 200], "downsample": [2.0, 2.0]}, 0.1, marks=UNDRAWN),  # CLAM
        # As large as what the patches cover: level 0 itself.
        pytest.param(None, 1.0, marks=UNDRAWN),
    ],
)
def test_slides_known_by_features_are_drawn_over_their_images(said, scale, tmp_path):
    bags = feature_bags(said)
    Image.new("RGB", (48, 40), "pink").save(tmp_path / "s1.png")
    (tmp_path / "s10.png").write_bytes((tmp_path / "s1.png").read_bytes())
    images = ImageFolder(tmp_path, bags)
    found = explain_bag(make_scorers("attention"), bags, 0)
    (drawn,) = maps_of(found, bags, images)
    assert drawn.backdrop.pixels.shape == (40, 48, 3)
    assert drawn.scale == pytest.approx(scale)
    assert draw_explanation(tmp_path / "p.png", found, bags, maps=[drawn]) == "overlay"


def test_an_image_named_as_files_of_several_bags_is_drawn_for_none_of_them(tmp_path):
    said = [json.dumps({"s1.h5": {"coords": {"level0_width": 48}}})] * 2
    places = np.concatenate([grid(6, 5, 8)] * 2)
    made = {"sizes": np.array([30, 30]), "coords": places, "attributes": said}
    bags = make_bags(ids=["a/s1", "b/s1"], sources=["a/s1.h5", "b/s1.h5"], **made)
    (tmp_path / "images" / "b").mkdir(parents=True)
    for folder in ("why", ".thumbnails"):
        (tmp_path / "images" / folder / "a").mkdir(parents=True)
        for drawn in (folder, f"{folder}/a"):
            Image.new("RGB", (48, 40), "blue").save(tmp_path / "images" / drawn / "s1.png")
    Image.new("RGB", (48, 40), "pink").save(tmp_path / "images" / "s1.png")
    found = [explain_bag(make_scorers("attention"), bags, i) for i in (0, 1)]
    for one in found:
        with pytest.warns(
            UserWarning, match=r"no image is plotted: no file has this name, or files of several bags do \(.*s1"
        ):
            assert maps_of(one, bags, ImageFolder(tmp_path / "images", bags))[0].backdrop is None
    assert maps_of(found[0], bags.subset([0]), ImageFolder(tmp_path / "images", bags.subset([0])))[0].backdrop
    Image.new("RGB", (48, 40), "red").save(tmp_path / "images" / "b" / "s1.png")  # its folder tells
    (drawn,) = maps_of(found[1], bags, ImageFolder(tmp_path / "images", bags))
    assert drawn.backdrop.pixels[0, 0].tolist() == [255, 0, 0]


def test_an_image_that_does_not_fit_is_not_drawn_over(tmp_path):
    Image.new("RGB", (20, 16), "pink").save(tmp_path / "s1.png")
    for said, reason in (
        ({}, r"its scale is unknown: .* \(s1.png"),
        ({"level0_width": 30}, r"patches lie outside it.* \(s1.png"),
    ):
        bags = feature_bags(said)
        found = explain_bag(make_scorers("attention"), bags, 0)
        with pytest.warns(UserWarning, match=rf"no image is plotted: .*{reason}"):
            assert maps_of(found, bags, ImageFolder(tmp_path, bags))[0].backdrop is None
    (tmp_path / "none").mkdir()
    with pytest.raises(DataNotFoundError, match="got none"):
        ImageFolder(tmp_path / "none", bags)


def test_an_unknown_bag_is_answered_with_near_names():
    bags = make_bags(ids=["slide_001", "slide_002", "other"])
    assert find_bags(bags, ["other", "slide_001"]) == [2, 0]
    of_patients = bags.replace(groups=["p1", "p1", "other"])
    assert find_bags(of_patients, ["other", "p1", "slide_002"]) == [2, 0, 1]
    with pytest.raises(BagDataError, match=r"got 'slide_003' .*'slide_00[12]' or 'slide_00[12]'"):
        find_bags(bags, ["slide_003"])


def test_bags_are_named_by_their_folder_by_their_group_or_all_at_once():
    bags = make_bags(ids=["p1/a", "p1/b", "p2/x/c"], groups=["u", "v", "v"])
    assert find_bags(bags, ["all"]) == [0, 1, 2]
    assert [find_bags(bags, [name]) for name in ("p1", "p2", "p2/x", "v")] == [[0, 1], [2], [2], [1, 2]]
    assert find_bags(bags.replace(groups=["p1", "all", "p1"]), ["p1", "all"]) == [0, 2, 1]  # groups before folders
