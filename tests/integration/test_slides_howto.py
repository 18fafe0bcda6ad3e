"""The way of the docs from feature files to scores, on real images in three true layouts."""

import csv
import json
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from tests.integration.commands import finish, start
from tests.pages import blocks, without_walk_throughs

from midam import ResNet20
from midam.data.store import open_store

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
LAYOUTS = ["clam", "trident", "stamp"]
_PATCH = 32


def digit_slides():
    """Twenty-four bags of real digits; the positive ones hold nines."""
    images, target = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    nines, others = np.flatnonzero(target == 9), np.flatnonzero(target != 9)
    for number in range(24):
        rows = rng.choice(others, 12, replace=False)
        if number % 2:
            rows[:4] = rng.choice(nines, 4, replace=False)
        patches = np.repeat(np.repeat(images[rows].reshape(-1, 1, 8, 8), 4, axis=2), 4, axis=3)
        yield f"slide{number:02d}", f"patient{number}", number % 2, np.repeat(patches * 15, 3, axis=1).astype(np.uint8)


def image_slides(folder, *, count):
    """The first images of each label, in patches of 32 x 32."""
    with (folder / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    for label in ("0", "1"):
        for row in [row for row in rows if row["label"] == label][:count]:
            pixels = np.asarray(Image.open(folder / row["path"]).convert("RGB"))
            high, wide = (n // _PATCH for n in pixels.shape[:2])
            tiles = pixels[: high * _PATCH, : wide * _PATCH].reshape(high, _PATCH, wide, _PATCH, 3)
            patches = tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, _PATCH, _PATCH)
            yield row["bag_id"], row["group"], int(label), patches[:: max(1, len(patches) // 48)]


@torch.no_grad()
def encode(patches):
    """Features of a fixed encoder: ResNet20 with the weights of seed 0."""
    torch.manual_seed(0)
    return ResNet20(3).eval()(torch.from_numpy(patches).float() / 255).numpy()


def write(folder, slides, layout):
    """Write slides as a tool lays them out; returns the reading options."""
    folder.mkdir(parents=True)
    lines = []
    for name, patient, label, patches in slides:
        x = encode(patches)
        key = "feats" if layout == "stamp" else "features"
        with h5py.File(folder / f"{name}.h5", "w") as file:
            chunks = (1, x.shape[1]) if layout == "trident" else True
            file.create_dataset(key, data=x, chunks=chunks, maxshape=(None, x.shape[1]))
            places = file.create_dataset("coords", data=np.arange(2 * len(x)).reshape(-1, 2) * _PATCH)
            if layout == "trident":
                places.attrs["patch_size_level0"], places.attrs["target_magnification"] = _PATCH, 20
            if layout == "stamp":
                file.attrs["extractor"] = "resnet20"
        lines.append((patient, name, "tumor" if label else "normal"))
    table = folder.parent / "labels.csv"
    if layout == "stamp":
        patients = dict.fromkeys((patient, label) for patient, _, label in lines)
        table.write_text("PATIENT,label\n" + "".join(f"{p},{y}\n" for p, y in patients))
        (folder.parent / "slides.csv").write_text("PATIENT,FILENAME\n" + "".join(f"{p},{n}.h5\n" for p, n, _ in lines))
        return ["--slides", str(folder.parent / "slides.csv")]
    table.write_text("case_id,slide_id,label\n" + "".join(f"{p},{n},{y}\n" for p, n, y in lines))
    return []


def how_to():
    """The four commands of the page, without their comments."""
    (block,) = [b for b in blocks("sh", without_walk_throughs(PAGE)) if "data import" in b]
    lines = [line.split("#")[0] for line in block.replace("\\\n", " ").splitlines() if line.startswith("midam")]
    assert [line.split()[1] for line in lines] == ["data", "fit", "predict", "evaluate"]
    return [shlex.split(line)[1:] for line in lines]


def follow(root, options, monkeypatch):
    """Run the page's commands in `root`; only the training is shortened."""
    monkeypatch.chdir(root)
    further = {
        "data": options,
        "fit": ["--epochs", "2", "--members", "1", "--num-positive", "4", "--num-negative", "4"],
    }
    for words in how_to():
        log = root / "log.txt"
        log.unlink(missing_ok=True)
        assert finish(start(*words, *further.get(words[0], []), log=log)) == 0, log.read_text()


def check(root, slides):
    bags = open_store(root / "slides.store")
    assert sorted(bags.ids.tolist()) == sorted(name for name, *_ in slides)
    assert dict(zip(bags.ids, bags.labels)) == {name: label for name, _, label, _ in slides}
    assert dict(zip(bags.ids, bags.groups)) == {name: patient for name, patient, _, _ in slides}
    first = next(iter(slides))
    number = bags.ids.tolist().index(first[0])
    np.testing.assert_array_equal(bags[number], encode(first[3]))
    with (root / "scores.csv").open() as file:
        scores = {row["bag"]: float(row["score"]) for row in csv.DictReader(file)}
    assert set(scores) == set(bags.ids)
    for name, score in scores.items():
        with h5py.File(root / "attention" / f"{name}.h5") as file:
            assert len(file["attention_scores"]) == len(file["coords"]) == bags.sizes[bags.ids == name][0]
            assert file.attrs["bag_score"] == pytest.approx(score, abs=1e-6)
    assert json.loads((root / "runs" / "slides" / "summary.json").read_text())["out_of_fold"]["bags"] == len(slides)


@pytest.mark.long  # each is read in tests/unit/test_sources_nested.py
@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_feature_files_to_scores(tmp_path, monkeypatch, layout):
    slides = list(digit_slides())
    options = write(tmp_path / "features", slides, layout)
    follow(tmp_path, options, monkeypatch)
    check(tmp_path, slides)


@pytest.mark.data
@pytest.mark.parametrize(("layout", "name"), [*zip(LAYOUTS, ["ucsb_breast", "lc25000_colon", "ucsb_breast"])])
def test_from_the_features_of_real_images_to_scores(tmp_path, monkeypatch, data_root, layout, name):
    slides = list(image_slides(data_root / name, count=16))
    if layout == "stamp":  # a microarray holds both labels, a patient of STAMP has one
        slides = [(slide, slide, label, patches) for slide, _, label, patches in slides]
    options = write(tmp_path / "features", slides, layout)
    follow(tmp_path, options, monkeypatch)
    check(tmp_path, slides)
