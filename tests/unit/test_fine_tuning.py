"""The encoder "fine-tuned": a pretrained network that is trained on, end to end or in its last layers."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import midam
from midam.cli import main
from midam.errors import ConfigError
from midam.imaging.networks import load_network
from midam.nn.standardizer import Intensities
from midam.settings import Settings
from midam.train.build import build_model
from midam.train.members import fit_standardizers


@pytest.fixture(scope="module")
def patches():
    """Eight bags of four patches."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 200 + 7 * number, (4, 3, 32, 32), dtype=np.uint8) for number in range(8)]
    return midam.Bags.from_list(arrays, [0, 1] * 4)


def test_a_network_that_is_trained_on_starts_from_the_vectors_of_the_frozen_one(patches, tmp_path):
    vectors = midam.embed_bags(patches, "efficientnet-lite0", tmp_path / "v", dtype="float32")
    model = build_model(Settings(encoder="fine-tuned"), instance_shape=(3, 32, 32))
    fit_standardizers([model.standardizer], patches, seed=0)
    with torch.inference_mode():
        found = model.encoder(model.standardized(torch.from_numpy(patches.instances)))
    np.testing.assert_allclose(found, vectors.instances[:], atol=1e-4)


@pytest.mark.parametrize(
    ("stored", "low", "high"), [(np.int16, -1000, 3000), (np.float32, 0.0, 1.0), (np.float32, 0.0, 1e25)]
)
def test_other_numbers_than_bytes_are_cut_at_percentiles(stored, low, high):
    x = torch.from_numpy(np.linspace(low, high, 1001).astype(stored).reshape(-1, 1, 1, 1))
    found = Intensities((1, 1, 1)).fit(x)(torch.tensor([[[[low]]], [[[high]]]])).flatten()
    np.testing.assert_allclose(found, [-0.005 / 0.99, 1.0], atol=1e-3)


@pytest.mark.parametrize("top", [1, 15, 255])
def test_bytes_are_shares_of_the_bits_of_the_brightest_pixel(top):
    x = torch.tensor([0, top], dtype=torch.uint8).reshape(-1, 1, 1, 1)
    assert Intensities((1, 1, 1)).fit(x)(x).flatten().tolist() == [0.0, 1.0]


@pytest.mark.filterwarnings("ignore:Expected scores that rank")
def test_frozen_layers_stay_and_the_others_learn(patches):
    fitted = midam.MIDAMClassifier(
        encoder="fine-tuned",
        freeze=["network.layers.?", "network.layers.1[0-6]"],
        epochs=1,
        members=1,
        lr=0.01,
        num_positive=3,
        num_negative=3,
    ).fit(patches)
    first = load_network("efficientnet-lite0").state_dict()
    last = fitted.model_.members[0].encoder.module.network.state_dict()
    moved = {name.split(".")[1] for name, value in first.items() if not torch.equal(value, last[name])}
    assert moved == {"17"}


@pytest.mark.parametrize(
    ("change", "shape", "message"),
    [
        ({}, (5,), "got instances of shape [5]"),
        ({"standardize": False}, (3, 32, 32), "got False"),
        ({"encoder_args": {"network": "efficientnet-lite9"}}, (3, 32, 32), "efficientnet-lite9"),
        ({"freeze": ["layers.1"]}, (3, 32, 32), "got 'layers.1'"),
    ],
)
def test_a_network_that_cannot_be_trained_on_is_refused(change, shape, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_model(Settings(encoder="fine-tuned", **change), instance_shape=shape)


def test_fit_trains_a_network_on_and_scores_raw_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    rng, rows = np.random.default_rng(0), ["file,label"]
    for number in range(12):
        Image.fromarray(rng.integers(0, 255, (120, 120, 3), dtype=np.uint8)).save(f"images/i{number:02d}.png")
        rows.append(f"i{number:02d}.png,{number % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    words = ["--encoder", "fine-tuned", "--freeze", "network.layers.?,network.layers.1[0-6]", "--epochs", "1"]
    words += ["--members", "1", "--no-baseline", "--folds", "0", "--out", "run"]
    assert main(["fit", "images", "--labels", "labels.csv", *words]) == 0
    assert "patches of 96 x 96 pixels" in capsys.readouterr().err
    assert main(["predict", "run", "images", "--out", "p.csv"]) == 0
    assert len(pd.read_csv("p.csv")) == 12
