"""`midam export`: a run becomes a folder that scores bags as `midam predict` does, those with missing values too."""

import json
import runpy
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from pandas._libs.parsers import STR_NA_VALUES
from tests.integration.commands import table

from midam.cli import main
from midam.export.score_onnx import Model as OnnxModel

SHORT = ["--epochs", "1", "--members", "1", "--num-instances", "2", "--scaling", "linear"]


def with_gaps(path, words, seed=0):
    """A table of bags in which one value of six is missing, under any of the words for it."""
    frame, rng = pd.read_csv(table(path)), np.random.default_rng(seed)
    features = [name for name in frame if name.startswith("f")]
    frame[features] = frame[features].astype(object)
    for at, column in np.argwhere(rng.random((len(frame), len(features))) < 1 / 6):
        frame.loc[at, features[column]] = words[int(rng.integers(len(words)))]
    frame.to_csv(path, index=False)
    return path, frame, features


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run that fills missing values, its export, other bags with missing values, and what midam scores these."""
    folder = tmp_path_factory.mktemp("export")
    own, *_ = with_gaps(folder / "own.csv", [""], seed=1)
    other, frame, features = with_gaps(folder / "other.csv", sorted(STR_NA_VALUES), seed=2)
    run, out = str(folder / "run"), str(folder / "scores.csv")
    assert main(["fit", str(own), "--impute", "median", "--out", run, *SHORT]) == 0
    assert main(["predict", run, str(other), "--out", out]) == 0
    assert main(["export", run, "--out", str(folder / "model")]) == 0
    wanted = pd.read_csv(out, dtype={"bag": str}).set_index("bag")[["score", "probability"]]
    values = frame[features].apply(pd.to_numeric, errors="coerce").to_numpy()
    assert np.isnan(values).any(axis=0).all()
    bags = {bag: values[frame["bag"] == bag] for bag in wanted.index}
    return folder, bags, wanted


def test_tables_with_missing_values_are_scored_as_midam_does(exported):
    folder, _, wanted = exported
    command = [sys.executable, "score_bags.py", "../other.csv", "--out", "found.csv", "--chunk-size", "7"]
    done = subprocess.run(command, cwd=folder / "model", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(folder / "model" / "found.csv", dtype={"bag": str}).set_index("bag")
    np.testing.assert_allclose(found.loc[wanted.index, wanted.columns], wanted, atol=2e-6)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_arrays_with_missing_values_are_scored_as_midam_does(exported, kind):
    folder, bags, wanted = exported
    python = runpy.run_path(str(folder / "model" / "score_bags.py"))["Model"](folder / "model")
    for model, convert in ((python, torch.from_numpy), (OnnxModel(folder / "model"), np.array)):
        found = [model.score(convert(x.astype(kind)), chunk_size=3)[:2] for x in bags.values()]
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_fills_them_stands_in_each_part(exported):
    folder, _, _ = exported
    from safetensors import safe_open

    stated = json.loads((folder / "model/config.json").read_text())["data"]["imputed"]
    assert stated["how"] == "median"
    with safe_open(folder / "model/model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["imputed"]) == stated
    card = (folder / "model/README.md").read_text()
    assert "is filled with the median of the feature in the training bags." in card
    with pytest.raises(ValueError, match="Expected finite numbers or NaN"):
        OnnxModel(folder / "model").score(np.full((2, len(stated["values"])), np.inf))
