"""A package outside adds one of each: every surface knows its names if it is given as a plug-in."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.integration.commands import finish, fork

from midam.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"

NAMES = {
    "--pooling": "linear-softmax",
    "--objective": "focused-auc",
    "--estimator": "cross-fitted",
    "--encoder": "two-layers",
}


def run_all(commands, path, cwd, codes):
    """Run midam's commands in this process, which finds a package at `path`; their exit codes go to a file."""
    sys.path.insert(0, str(path))
    os.chdir(cwd)
    codes.write_text(json.dumps([main(words) for words in commands]))


def run(commands, *, path, cwd):
    """Run midam's commands in a process that finds a package at `path`; returns their codes and what they printed."""
    log, codes = cwd / "log", cwd / "codes"
    log.unlink(missing_ok=True)
    assert finish(fork(run_all, commands, path, cwd, codes, log=log, COLUMNS="200")) == 0, log.read_text()
    return json.loads(codes.read_text()), log.read_text()


def options(names, *, epochs=3):
    """Words of a small training with parts of these names."""
    given = [word for pair in names.items() for word in pair]
    return [
        *given,
        "--members",
        "1",
        "--no-baseline",
        "--epochs",
        str(epochs),
        "--encoder-args",
        "{width: 8, in_features: 3}",
    ]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the example package is installed into."""
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


@pytest.fixture(scope="module")
def surfaces(installed, bags, tmp_path_factory):
    """What became of commands with the installed package: folder, codes by name, output."""
    folder = tmp_path_factory.mktemp("surfaces")
    np.savez(
        folder / "images.npz",
        X=np.random.default_rng(0).random((40, 1, 8, 8), dtype=np.float32),
        bag=np.repeat(np.arange(20), 2),
        y=np.arange(20) % 2,
    )
    data, methods = str(bags), "focused-auc+cross-fitted+linear-softmax,bag-size"
    few = ["--cv", "1x2", "--epochs", "2", "--lrs", "0.1", "--margins", "1.0", "--jobs", "1"]
    small = ["fit", "images.npz", "--epochs", "1", "--encoder", "mlp", "--members", "1"]
    commands = {
        "fit": ["fit", data, *options(NAMES), "--out", "one"],
        "fit again": ["fit", data, "--config", "one/config.yaml", "--out", "two"],
        "evaluate": ["evaluate", "one", data, "--metrics", "auroc,partial-auroc"],
        "predict": ["predict", "one", data, "--out", "scores.csv"],
        "compare": ["compare", data, "--methods", methods, *few, "--out", "compared"],
        "near name": ["fit", data, "--pooling", "linear-sofmax"],
        "plain": [*small, "--out", "plain"],
    }
    named = [[*words, "--plugin", "midam_example"] for words in commands.values()]
    codes, printed = run(named, path=installed, cwd=folder)
    return folder, dict(zip(commands, codes, strict=True)), printed


@pytest.mark.long
def test_every_surface_knows_the_names_of_an_installed_package(surfaces):
    folder, codes, printed = surfaces
    assert {name: code for name, code in codes.items() if code} == {"near name": 2}, printed
    assert "partial-auroc" in printed
    assert "pooling: linear-softmax" in (folder / "one" / "config.yaml").read_text()
    assert torch.equal(weights(folder / "one"), weights(folder / "two"))
    assert len((folder / "scores.csv").read_text().splitlines()) == 41
    trials = (folder / "compared" / "trials.csv").read_text()
    assert trials.count("bag-size") == trials.count("focused-auc+cross-fitted+linear-softmax") == 2


@pytest.mark.long
def test_the_objectives_memory_of_each_bag_is_in_the_checkpoint(surfaces):
    last = torch.load(surfaces[0] / "one" / "checkpoints" / "last.pt", weights_only=True)
    inner = last["trainer"]["members"][0]["objective"]["inner"]
    assert inner.shape == (40,)  # a number for each bag of the training set
    assert (inner > 0).sum() == 20  # of which the positive ones are remembered


@pytest.mark.long
def test_an_unknown_name_is_refused_with_the_nearest(surfaces):
    assert "did you mean 'linear-softmax'" in surfaces[2]


@pytest.mark.long  # `test_plugins.py` names plug-ins in one process
def test_a_plug_in_does_without_an_installation(bags, tmp_path):
    words = ["fit", str(bags), *options(NAMES), "--plugin", "midam_example", "--reader", "jsonl", "--out", "run"]
    assert run([words], path=EXAMPLE / "src", cwd=tmp_path)[0] == [0]
    added = (tmp_path / "run" / "config.yaml").read_text().partition("plugins:\n")[2].split()
    assert {name.removesuffix(":") for name in added[::2]} == {*NAMES.values(), "jsonl"}
    assert set(added[1::2]) == {"midam_example"}
    codes, printed = run([["predict", "run", str(bags), "--out", "p.csv"]], path=EXAMPLE / "src", cwd=tmp_path)
    assert codes == [2]
    assert "which the plug-in midam_example adds; pass --plugin midam_example" in " ".join(printed.split())
