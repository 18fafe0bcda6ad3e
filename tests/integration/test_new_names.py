"""An estimator and an objective under new names: every surface knows them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from midam.cli import main
from midam.errors import RunStoppedError
from midam.functional.objectives import pairwise_squared_hinge
from midam.registry import ESTIMATORS, OBJECTIVES
from midam.runs.fit import fit_run, resume_run
from midam.runs.folder import RunFolder
from midam.settings import Settings
from midam.train import MiniBatch, Objective


class Counting(MiniBatch):
    """A mini-batch that counts its steps."""

    steps: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def commit(self, loss):
        self.steps += 1


class Visited(Objective):
    """A pairwise loss that counts the visits of each bag."""

    visits: Tensor

    def __init__(self, *, num_bags, margin, shift=0.0):
        super().__init__()
        self.margin = margin + shift
        self.register_buffer("visits", torch.zeros(num_bags))

    def loss(self, h, labels, *, weights, index):
        visits = self.visits.index_add(0, index, torch.ones_like(h))
        return pairwise_squared_hinge(h, weights, margin=self.margin), {"visits": visits}


NEW = ["--estimator", "counting", "--objective", "visited", "--objective-args", "{shift: 0.1}", "--members", "1"]


@pytest.fixture
def bags(tmp_path, monkeypatch):
    ESTIMATORS.add("counting", Counting)
    OBJECTIVES.add("visited", Visited)
    rng = np.random.default_rng(0)
    rows = [f"b{i},{i % 2},{x:.3f},{y:.3f}" for i in range(30) for x, y in rng.normal(size=(3, 2)) + i % 2]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x,y", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    yield "bags.csv"
    ESTIMATORS.remove("counting")
    OBJECTIVES.remove("visited")


def checkpoint(folder):
    """What the last checkpoint of a run holds of its only member, and its weights."""
    content = torch.load(f"{folder}/checkpoints/last.pt", weights_only=True)["trainer"]
    weights = torch.cat([tensor.flatten() for tensor in content["model"].values()])
    return content["members"][0], weights


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fit_yaml_and_checkpoint(bags):
    assert main(["fit", bags, *NEW, "--epochs", "4", "--out", "one"]) == 0
    assert main(["fit", "--config", "one/config.yaml", "--out", "two"]) == 0
    member, weights = checkpoint("one")
    assert member["objective"]["visits"].shape == (18,)
    assert member["objective"]["visits"].sum() == 16 * member["estimator"]["steps"] > 0
    assert torch.equal(weights, checkpoint("two")[1])
    assert main(["predict", "one", bags, "--out", "scores.csv"]) == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_resume_goes_on_bit_for_bit(bags):
    assert main(["fit", bags, *NEW, "--epochs", "4", "--out", "one"]) == 0

    def stop(row, _):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    settings = Settings(estimator="counting", objective="visited", objective_args={"shift": 0.1}, members=1, epochs=4)
    with pytest.raises(RunStoppedError, match="holds everything up to the last whole epoch"):
        fit_run(bags, settings, RunFolder(Path("two")), on_epoch=stop)
    resume_run(None, RunFolder(Path("two")))
    (one, weights), (two, resumed) = checkpoint("one"), checkpoint("two")
    assert torch.equal(weights, resumed)
    assert torch.equal(one["objective"]["visits"], two["objective"]["visits"])
    assert one["estimator"]["steps"] == two["estimator"]["steps"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.long
def test_compare_and_help(bags, capsys):
    methods = "visited+counting+attention,instance-logistic-max"
    command = ["compare", bags, "--methods", methods, "--cv", "1x2", "--epochs", "1", "--out", "compared"]
    # A name that is added is known in its own process.
    assert main([*command, "--lrs", "0.1", "--margins", "1.0", "--jobs", "1"]) == 0
    with open("compared/trials.csv") as file:
        assert file.read().count("visited+counting+attention") == 2
    with pytest.raises(SystemExit) as done:
        main(["fit", "--help"])
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert "counting" in text
    assert "visited" in text


def test_a_name_that_is_nearly_one_of_them_is_refused(bags, capsys):
    assert main(["fit", bags, "--objective", "visitted"]) == 2
    assert main(["fit", bags, *NEW, "--objective-args", "{shfit: 0.1}"]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'visited'?" in said
    assert "did you mean 'shift'?" in said
