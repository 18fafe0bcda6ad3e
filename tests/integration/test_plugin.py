"""A package outside adds one of each: installed, every surface knows its names; not installed, its class paths do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"

NAMES = {
    "--pooling": "linear-softmax",
    "--objective": "partial-auc",
    "--estimator": "cross-fitted",
    "--draw": "first",
    "--encoder": "two-layers",
}
PATHS = {
    "--pooling": "midam_example.pooling.LinearSoftmaxPooling",
    "--objective": "midam_example.objective.PartialAUC",
    "--estimator": "midam_example.estimator.CrossFitted",
    "--draw": "midam_example.draw.First",
    "--encoder": "midam_example.encoder.TwoLayers",
}

# One process for all commands: each would import torch anew.
RUN = """
import json, sys
from midam.cli import main
codes = [main(words) for words in json.loads(sys.argv[1])]
sys.exit(max(codes))
"""


def run(commands, *, path, cwd):
    """Run midam's commands in an interpreter that finds a package at `path`; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def options(names, *, epochs=3):
    """Words of a small training with parts of these names."""
    given = [word for pair in names.items() for word in pair]
    return [*given, "--members", "1", "--epochs", str(epochs), "--encoder-args", "{width: 8, in_features: 3}"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the example package is installed into, its names with it."""
    target = tmp_path_factory.mktemp("site")
    command = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target), str(EXAMPLE)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """A file of JSON lines: positive bags hold an instance far out."""
    rng = np.random.default_rng(0)
    lines = []
    for number in range(40):
        rows = rng.normal(size=(int(rng.integers(2, 6)), 3))
        rows[0] += 3.0 * (number % 2)
        lines.append(json.dumps({"bag": f"b{number}", "label": number % 2, "instances": rows.round(3).tolist()}))
    path = tmp_path_factory.mktemp("data") / "bags.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def weights(folder):
    """All weights of a run's model."""
    content = torch.load(folder / "model.pt", weights_only=True)["model"]
    return torch.cat([tensor.flatten().double() for tensor in content.values()])


def test_every_surface_knows_the_names_of_an_installed_package(installed, bags, tmp_path):
    again = ["fit", str(bags), "--config", "one/config.yaml", "--out", "two"]
    methods = "partial-auc+cross-fitted+linear-softmax,bag-size"
    printed = run(
        [
            ["fit", str(bags), *options(NAMES), "--out", "one"],
            again,
            ["evaluate", "one", str(bags), "--metrics", "auroc,partial-auroc"],
            ["predict", "one", str(bags), "--out", "scores.csv"],
            ["compare", str(bags), "--methods", methods, "--cv", "1x2", "--epochs", "2", "--out", "compared"],
        ],
        path=installed,
        cwd=tmp_path,
    )
    assert "partial-auroc" in printed
    config = (tmp_path / "one" / "config.yaml").read_text()
    assert "pooling: linear-softmax" in config
    assert torch.equal(weights(tmp_path / "one"), weights(tmp_path / "two"))
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 41
    trials = (tmp_path / "compared" / "trials.csv").read_text()
    assert trials.count("bag-size") == trials.count("partial-auc+cross-fitted+linear-softmax") == 2


def test_the_objectives_memory_of_each_bag_is_in_the_checkpoint(installed, bags, tmp_path):
    run([["fit", str(bags), *options(NAMES), "--out", "run"]], path=installed, cwd=tmp_path)
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.pt", weights_only=True)
    inner = last["trainer"]["members"][0]["objective"]["inner"]
    assert inner.shape == (24,)  # a number for each bag of the training set
    assert (inner > 0).sum() == 12  # of which the positive ones are remembered


def test_class_paths_do_without_an_installation(bags, tmp_path):
    words = ["fit", str(bags), *options(PATHS), "--reader", "midam_example.reader.JSONLines", "--out", "run"]
    run([words], path=EXAMPLE / "src", cwd=tmp_path)
    assert (tmp_path / "run" / "model.pt").exists()


def test_an_unknown_name_is_refused_with_the_nearest(installed, bags, tmp_path):
    words = ["fit", str(bags), "--pooling", "linear-sofmax"]
    with pytest.raises(AssertionError, match="did you mean 'linear-softmax'"):
        run([words], path=installed, cwd=tmp_path)


def test_an_augmentation_from_outside_changes_images(installed, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "images.npz",
        X=rng.random((40, 1, 8, 8), dtype=np.float32),
        bag=np.repeat(np.arange(20), 2),
        y=np.arange(20) % 2,
    )
    small = ["fit", "images.npz", "--epochs", "1", "--encoder", "mlp", "--members", "1"]
    run([[*small, "--augment", "noise", "--out", "one"], [*small, "--out", "two"]], path=installed, cwd=tmp_path)
    assert not torch.equal(weights(tmp_path / "one"), weights(tmp_path / "two"))
