"""Explanations of embedded scans, X-rays and images: the raw files are shown, and what decides in them is marked."""

import csv
import json
import shutil

import numpy as np
import pydicom
import pytest
import torch
from PIL import Image
from tests import quick
from tests.unit.test_embed import STRIDE, TINY, Tiny
from tests.unit.test_sources_volumes import save_series

from midam.cli import main
from midam.data.bags import Bags
from midam.data.sources import read_bags
from midam.data.sources.request import ImageOptions
from midam.data.store import open_store
from midam.explain.explanation import explain_bag, peak_of
from midam.explain.raw import RawFiles, covered
from midam.nn.pooling import MaxPooling
from midam.nn.scorer import BagScorer
from midam.registry import ENCODERS

pytestmark = pytest.mark.drawn
SIDE, DEPTH = 8 * STRIDE, 6


@pytest.fixture(scope="module", autouse=True)
def known():
    """The network of this file by its name."""
    ENCODERS.add(TINY, Tiny)
    yield
    ENCODERS.remove(TINY)


def volume(number):
    """Slices of noise, one of them with a bright square if the number is odd, and the center of the square."""
    rng = np.random.default_rng(number)
    slices = rng.integers(300, 400, (DEPTH, SIDE, SIDE)).astype(np.uint16)
    at, y, x = number % DEPTH, 16 + 11 * number % 80, 20 + 7 * number % 70
    if number % 2:
        slices[at, y : y + 24, x : x + 24] = 1500
    return slices, (x + 11.5, y + 11.5)


def _stated(number):
    return {"PatientID": f"p{number:02d}", "InstanceNumber": list(range(1, DEPTH + 1))}


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Twenty-four series, the store of their slices, a run on it, and the explanation of two patients."""
    root = tmp_path_factory.mktemp("scans")
    rows = ["patient,label"]
    for number in range(24):
        save_series(root / f"raw/p{number:02d}", volume(number)[0], **_stated(number))
        rows.append(f"p{number:02d},{number % 2}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        embed = ["embed", "raw", "--labels", "labels.csv", "--encoder", TINY, "--dtype", "float32"]
        assert main([*embed, "--window", "0,1600", "--out", "f.store"]) == 0
        fit = ["fit", "f.store", "--method", "midam", "--pooling", "smoothed-max", "--epochs", "60", "--lr", "0.1"]
        quick.draw(False)  # the pages of the run
        assert main([*fit, "--members", "1", "--no-baseline", "--folds", "0", "--seed", "0", "--out", "run"]) == 0
        quick.draw(True)
        assert main(["explain", "run", "f.store", "--bags", "p01", "p00", "--out", "why"]) == 0
    return root


@pytest.fixture
def here(scans, tmp_path, monkeypatch):
    """A copy of these as the working folder; the store names the original files."""
    shutil.copytree(scans, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entries(folder):
    return {entry["bag"]: entry for entry in json.loads((folder / "explain.json").read_text())["bags"]}


def test_an_embedded_scan_shows_its_slices_and_marks_what_decided(scans):
    for bag, entry in entries(scans / "why").items():
        assert (entry["picture"], entry["notes"]) == ("strip", [])
        with Image.open(scans / "why" / f"{bag}.png") as picture:
            assert picture.height > 1.3 * picture.width  # strip, top slices, maps, chart
        slices, (x, y) = volume(int(bag[1:]))
        best = entry["instances"][0]
        best |= best["columns"]
        assert best["slice_file"] == f"{DEPTH + 1 - best['instance_number']:03d}.dcm"
        assert best["position_mm"] is not None
        if entry["label"] == "1":
            assert slices[best["instance_number"] - 1].max() == 1500
            assert np.hypot(best["peak_x"] - x, best["peak_y"] - y) < 12  # in the square of 24 pixels


@pytest.mark.drawn(False)
def test_the_console_and_the_table_name_the_slice(here, capsys):
    assert main(["explain", "run", "f.store", "--bags", "p01", "--out", "again"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    with (here / "again/p01.csv").open() as file:
        best = next(csv.DictReader(file))
    assert f"no. {best['instance_number']} at " in said
    assert {"slice_file", "peak_x", "peak_y"} <= set(best)


def test_files_that_are_not_there_any_more_are_named(scans):
    bags = open_store(scans / "f.store")
    moved = bags.replace(sources=[f"/gone/raw/{bag}" for bag in bags.ids])
    with pytest.warns(UserWarning, match=r"not there any more; name their folder .*--images \(.*raw/p00\)"):
        assert RawFiles(moved).pictures(0) is None


def test_files_are_found_where_they_were_moved_to(scans, tmp_path):
    shutil.copytree(scans / "raw", tmp_path / "archive")
    bags = open_store(scans / "f.store")
    shutil.move(scans / "raw", scans / "hidden")
    try:
        pictures = RawFiles(bags, tmp_path / "archive").pictures(3)
        with pytest.warns(UserWarning, match="not there any more"):
            assert RawFiles(bags).pictures(3) is None
    finally:
        shutil.move(scans / "hidden", scans / "raw")
    raw = read_bags(scans / "raw", images=ImageOptions(window=(0, 1600)), require_labels=False)
    np.testing.assert_array_equal(pictures.bag[0], raw[3])


@pytest.mark.drawn(False)
def test_the_command_takes_the_folder_that_holds_the_files_now(scans, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(scans)
    shutil.move(scans / "raw", tmp_path / "archive")
    try:
        words = ["explain", "run", "f.store", "--bags", "p00"]
        assert main([*words, "--out", str(tmp_path / "without")]) == 0
        assert "not there any more; name their folder" in " ".join(capsys.readouterr().err.split())
        assert main([*words, "--images", str(tmp_path / "archive"), "--out", str(tmp_path / "with")]) == 0
    finally:
        shutil.move(tmp_path / "archive", scans / "raw")
    kinds = [entries(tmp_path / name)["p00"]["picture"] for name in ("without", "with")]
    assert kinds == ["bars", "strip"]


def test_other_files_of_the_same_name_have_no_map(scans, tmp_path):
    for number in (3, 5):
        save_series(tmp_path / f"p{number:02d}", volume(number)[0] // 2)
    raw = RawFiles(open_store(scans / "f.store"), tmp_path)
    parts = raw.parts(raw.pictures(3), 3)
    assert all(parts(i, np.array([[[0.0, 0.0], [0.25, 0.25]]])) is None for i in range(DEPTH))


def test_a_window_loses_its_spot_and_keeps_its_edges():
    picture = np.full((1, 64, 80), 3.0, np.float32)
    picture[0, :, 40:] = 10.0  # an edge through the window
    spotted = picture.copy()
    spotted[0, 20:28, 32:38] = 100.0
    # Over the parts of rows 2 and 3, columns 3 and 4; and a quarter of a window, where the picture is flat.
    windows = np.array([[[2, 3], [4, 5]], [[0, 0], [1, 1]]]) / 8
    whole, shown, other = covered(spotted, windows)
    np.testing.assert_array_equal(whole, spotted)
    changed = np.argwhere(shown[0] != spotted[0])
    assert changed.min(axis=0).tolist() >= [16, 30]
    assert changed.max(axis=0).tolist() <= [31, 49]
    assert shown.max() < 10.1
    assert np.abs(shown - picture)[0, 16:32, [31, 48]].max() < 1  # away from the edge
    assert (other == spotted).all()


def test_the_peak_lies_between_parts_that_add_alike():
    added = np.zeros((8, 8))
    added[2:4, 5:7] = 1.0
    assert peak_of(added, (0.5, 0.5), 1 / 8) == (0.75, 0.375)
    assert peak_of(np.full((8, 8), -1.0), (0.5, 0.5), 1 / 8) == pytest.approx((0.125, 0.125))
    assert peak_of(added[:4, 4:], (0.1, 0.5), 1 / 16) == pytest.approx((0.1, 0.5625))


def test_the_second_windows_find_a_spot_that_is_smaller_than_a_part():
    """The score is the sum of the pixels; the spot lies off the middle of the part, next to its edge."""
    spot, looked = np.array([61.0, 36.0]), []  # row and column of 128
    y, x = np.mgrid[:128, :128]
    picture = np.exp(-((y - spot[0]) ** 2 + (x - spot[1]) ** 2) / 18)

    def parts(_, windows):
        looked.append(len(windows))
        rows = [picture.sum()]
        for low, high in np.rint(windows * 128).astype(int):
            shown = picture.copy()
            shown[low[0] : high[0], low[1] : high[1]] = 0
            rows.append(shown.sum())
        return np.array(rows)[:, None]

    pooling = MaxPooling(1)
    torch.nn.init.constant_(pooling.scorer.weight, 0.05), torch.nn.init.zeros_(pooling.scorer.bias)
    bags = Bags.from_list([np.array([[picture.sum()], [0.0]], np.float32)])
    (found,) = explain_bag(BagScorer(torch.nn.Identity(), pooling), bags, 0, parts=parts).parts.values()
    assert looked == [81, 25]
    coarse = np.array(peak_of(found.added, (0.5, 0.5), 1 / 8))
    off = [np.abs(peak * 128 - 0.5 - spot[::-1]).max() for peak in (coarse, np.array(found.peak))]
    assert off[0] > 2 * off[1]
    assert off[1] < 2


@pytest.mark.drawn(False)
def test_xrays_name_their_side_view_and_file_and_one_alone_has_a_map(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, rows = np.random.default_rng(0), ["study,label"]
    for number in range(16):
        for view, side in (("CC", "L"), ("MLO", "R"))[: 1 if number == 3 else 2]:
            pixels = rng.integers(300, 400, (SIDE, SIDE)).astype(np.uint16)
            pixels[40:64, 50:74] += 900 * (number % 2) * (side == "L")
            facts = {
                "ViewPosition": view,
                "ImageLaterality": side,
                "Modality": "MG",
                "StudyInstanceUID": f"1.2.{number}",
            }
            folder = save_series(tmp_path / f"raw/s{number:02d}", pixels[None], names=[f"{side}{view}.dcm"], **facts)
            file = pydicom.dcmread(folder / f"{side}{view}.dcm")
            del file.ImagePositionPatient, file.ImageOrientationPatient
            file.save_as(folder / f"{side}{view}.dcm")
        rows.append(f"s{number:02d},{number % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    embed = ["embed", "raw", "--labels", "labels.csv", "--encoder", TINY, "--dtype", "float32", "--window", "0,1600"]
    assert main([*embed, "--out", "f.store"]) == 0
    fit = ["fit", "f.store", "--method", "midam", "--pooling", "smoothed-max", "--epochs", "60", "--lr", "0.1"]
    assert main([*fit, "--folds", "0", "--no-baseline", "--members", "1", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["explain", "run", "f.store", "--bags", "s01", "s03", "--out", "why"]) == 0
    assert "L CC, LCC.dcm: adds" in " ".join(capsys.readouterr().out.split())
    for bag, kind in (("s01", "strip"), ("s03", "sheet")):
        entry = entries(tmp_path / "why")[bag]
        best = entry["instances"][0]
        best |= best["columns"]
        assert (entry["picture"], best["laterality"], best["view"], best["slice_file"]) == (kind, "L", "CC", "LCC.dcm")
        assert np.hypot(best["peak_x"] - 61.5, best["peak_y"] - 51.5) < 12
    page = (tmp_path / "why/index.html").read_text()
    assert all(f">{head}</th>" in page for head in ("laterality", "view", "slice file"))


def test_cells_of_images_are_drawn_with_what_surrounds_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 200, (70, 100, 3)).astype(np.uint8) for _ in range(2)]
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"images/i{number}.png")
    patch = ["--patch-size", str(STRIDE), "--unlabeled"]
    assert main(["embed", "images", "--encoder", TINY, *patch, "--out", "f.store"]) == 0
    pictures = RawFiles(open_store(tmp_path / "f.store")).pictures(1)
    assert pictures.bag.instance_shape == (3, 48, 48)
    places, boxes = pictures.bag.places(0), pictures.boxes
    for i, (x, y) in enumerate(open_store(tmp_path / "f.store").places(1)):
        (left, top), (across, down, width, height) = places[i], boxes[i]
        shown = pictures.bag[0][i][:, down : down + height, across : across + width]
        np.testing.assert_array_equal(shown, pixels[1][y : y + STRIDE, x : x + STRIDE].transpose(2, 0, 1))
        assert (left + across, top + down) == (x, y)
