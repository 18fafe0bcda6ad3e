"""What a run of every method that is fitted in one step must keep: it scores, explains, resumes and runs no code."""

import csv
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from tests.integration.commands import finish, start

from midam.cli import main
from midam.data.bags import Bags
from midam.errors import CheckpointError
from midam.evaluate.predict import predict
from midam.explain.explanation import explain_bag
from midam.nn.scorer import BagEnsemble
from midam.registry import BASELINES
from midam.runs import load_run
from midam.train.side import Trial

IMAGES = ("rgb-logistic", "rgb-trees", "patch-statistics-extratrees")
FILES = {"config.yaml", "model.pt", "predictions.csv", "report.html", "summary.json"}
AUTO = pytest.param("auto", marks=pytest.mark.long)  # fits all the others, several times
# A run is alike for all methods: one of each kind of model has its run tested, all have their scores tested.
every = pytest.mark.parametrize("method", [AUTO, "bag-statistics-extratrees", "mean-map-svm", "rgb-logistic"])
SLOW = ("witness-search", "patch-statistics-extratrees")
alone = pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in BASELINES.where(lambda method: method.lacks is None)
        if name != "auto"
    ],
)


def bags_for(method: str, number: int = 40) -> Bags:
    """Bags of both classes that the method can tell apart: small images, or features."""
    rng, labels = np.random.default_rng(3), np.arange(number) % 2
    shape = (3, 8, 8) if method in IMAGES else (5,)
    parts = []
    for label in labels:
        part = rng.normal(size=(int(rng.integers(1, 6)), *shape))
        part[0] += 2 * label
        parts.append(part)
    return Bags.from_list(parts, labels)


def archive(path: Path, bags: Bags) -> Path:
    number = np.repeat(np.arange(len(bags)), bags.sizes)
    np.savez(path, X=bags.instances, bag=number, y=bags.require_labels())
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder with the data and the run of each method, made when it is first asked for."""
    made = {}

    def of(method: str) -> Path:
        if method not in made:
            folder = made[method] = tmp_path_factory.mktemp("run")
            data = archive(folder / "bags.npz", bags_for(method))
            words = ["fit", str(data), "--method", method, "--seed", "4", "--test-fraction", "0.2"]
            assert main([*words, "--out", str(folder / "run")]) == 0
        return made[method]

    return of


def scores_in(path: Path) -> list[float]:
    with path.open(newline="") as file:
        return [float(row["score"]) for row in csv.DictReader(file)]


@alone
def test_a_fitted_model_scores_as_its_baseline_in_every_chunk(method):
    bags = bags_for(method)
    train, test = np.arange(24), np.arange(24, 40)
    baseline = BASELINES.find(method)()
    wanted = baseline.score(bags, Trial(train, test, 4))
    model = BagEnsemble(baseline.scorers(bags.subset(train), seed=4))
    atol = 1e-6 if method == "embedding-networks" else 1e-12  # networks are float32, and chunks sum in another order
    for chunk in (4096, 3):
        np.testing.assert_allclose(predict(model, bags.subset(test), chunk_size=chunk), wanted, rtol=0, atol=atol)
    filled = baseline.model(bags.instance_shape, model.state_dict(), ())
    filled.load_state_dict(model.state_dict())
    assert predict(filled, bags).tolist() == predict(model, bags).tolist()


@alone
def test_what_an_instance_adds_is_the_score_less_that_without_it(method):
    bags = bags_for(method)
    model = BASELINES.find(method)().scorer(bags, seed=4)
    large = int(bags.sizes.argmax())
    x = np.asarray(bags[large])
    without = Bags.from_list([np.delete(x, i, axis=0) for i in range(len(x))])
    wanted = predict(model, bags.subset([large])) - predict(model, without)
    found = explain_bag(model, bags, large, chunk_size=2)
    np.testing.assert_allclose(found.contribution, wanted, rtol=0, atol=1e-6)
    alone = [predict(model, Bags.from_list([row[None]]))[0] for row in x]
    np.testing.assert_allclose(found.alone, alone, rtol=0, atol=1e-6)
    single = int(bags.sizes.argmin())
    only = explain_bag(model, bags, single)
    assert only.contribution.tolist() == [pytest.approx(only.score, abs=1e-7)]


@every
def test_a_run_holds_what_other_runs_hold(runs, method):
    root = runs(method) / "run"
    assert {path.name for path in root.iterdir()} >= FILES
    assert not (root / "checkpoints").exists()
    assert not (root / "metrics.csv").exists()
    summary = json.loads((root / "summary.json").read_text())
    config = yaml.safe_load((root / "config.yaml").read_text())
    assert summary["method"] == {"name": method}
    assert config["method"] == method
    assert config["seed"] == 4
    assert "pooling" not in config
    assert "lr" not in config
    assert {"test", "val", "train", "data", "seconds", "environment"} <= set(summary)
    page = (root / "report.html").read_text()
    assert f"--method {method}" in page
    assert "attention" not in page


@every
def test_another_process_scores_the_same(runs, method, tmp_path):
    folder = runs(method)
    out = tmp_path / "scores.csv"
    process = start("predict", str(folder / "run"), str(folder / "bags.npz"), "--out", str(out), log=tmp_path / "log")
    assert finish(process) == 0
    assert scores_in(out) == scores_in(folder / "run" / "predictions.csv")


@every
def test_its_settings_repeat_it(runs, method, tmp_path):
    folder, out = runs(method), tmp_path / "again"
    assert main(["fit", "--config", str(folder / "run" / "config.yaml"), "--out", str(out)]) == 0
    assert (out / "predictions.csv").read_bytes() == (folder / "run" / "predictions.csv").read_bytes()
    assert load_run(out).digest() == load_run(folder / "run").digest()


@every
def test_its_own_bags_are_no_test_and_its_instances_are_explained(runs, method, tmp_path, capsys):
    folder = runs(method)
    run, data = str(folder / "run"), str(folder / "bags.npz")
    assert main(["evaluate", run, data, "--out", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["headline"] == "test"
    assert {"test", "val", "train"} <= set(found)
    capsys.readouterr()
    assert main(["explain", run, data, "--bags", "0", "--out", str(tmp_path / "why")]) == 0
    assert "adds" in capsys.readouterr().out
    entry = json.loads((tmp_path / "why" / "explain.json").read_text())
    assert entry["finished"]
    assert "draws" not in entry
    assert main(["report", run]) == 0


@pytest.mark.filterwarnings("ignore:.*is finished", "ignore:.*starts again", "ignore:.*continues after")
@every
def test_a_finished_run_says_so_and_a_killed_one_starts_anew(runs, method, tmp_path, capsys):
    folder, copy = runs(method), tmp_path / "run"
    shutil.copytree(folder / "run", copy)
    before = (copy / "summary.json").read_bytes()
    assert main(["fit", "--resume", str(copy)]) == 0
    assert "finished: nothing was left to do" in capsys.readouterr().err
    assert (copy / "summary.json").read_bytes() == before
    # How far a run had come is no matter of the method: each stage of a quick one, the earliest of the others.
    names = ["summary.json", "predictions.csv", "model.pt"]
    for killed in [[name] for name in names] if method in ("auto", "mean-map-svm") else [names]:
        for name in killed:
            (copy / name).unlink()
        assert main(["fit", "--resume", str(copy)]) == 0
        assert ("continues after" if method == "auto" else "starts again") in capsys.readouterr().err
        assert (copy / "predictions.csv").read_bytes() == (folder / "run" / "predictions.csv").read_bytes()


class Planted:
    """An object whose unpickling makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@every
def test_a_planted_pickle_is_not_loaded(runs, method, tmp_path):
    copy, canary = tmp_path / "run", tmp_path / "canary"
    shutil.copytree(runs(method) / "run", copy)
    content = torch.load(copy / "model.pt", weights_only=True)
    torch.save({**content, "model": Planted(canary)}, copy / "model.pt")
    with pytest.raises(CheckpointError, match="other Python objects, which are not loaded"):
        load_run(copy)
    assert not canary.exists()


def test_scoring_needs_no_scikit_learn_model(runs):
    run = load_run(runs("mean-map-svm") / "run")
    kinds = [type(module).__module__ for module in run.model.modules()]
    assert any(kind.startswith("midam.") for kind in kinds)
    assert not [kind for kind in kinds if "sklearn" in kind]


@pytest.mark.parametrize(
    "change",
    [
        {"method": "minmax-auc+vrsp+attention"},
        {"method": "bag-statistics-cox"},
        {"method": "bag-statistics-logistic"},
        {"method": "mean-map-svm"},
        {"branches": -1},
        {"branches": 10**9},
        {"branches": 0},
        {"feature": 10**6},
        {"roots": 10**9},
        {"value": 2},
    ],
    ids=str,
)
def test_what_is_no_forest_is_refused(runs, tmp_path, change):
    copy = tmp_path / "run"
    shutil.copytree(runs("bag-statistics-extratrees") / "run", copy)
    content = torch.load(copy / "model.pt", weights_only=True)
    for name, value in change.items():
        if name == "method":
            content["method"] = value
        else:
            weights = content["model"][f"members.0.pooling.head.{name}"]
            weights.view(-1)[5 if name == "branches" else 0] = value
    torch.save(content, copy / "model.pt")
    with pytest.raises((CheckpointError, ValueError)):
        load_run(copy)


def test_a_run_that_names_code_of_others_is_not_run(runs, tmp_path, monkeypatch):
    copy, canary = tmp_path / "run", tmp_path / "canary"
    shutil.copytree(runs("bag-statistics-extratrees") / "run", copy)
    (tmp_path / "evil.py").write_text(f"open({str(canary)!r}, 'w').close()\nclass Net: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    content = torch.load(copy / "model.pt", weights_only=True)
    torch.save({**content, "method": "evil.Net"}, copy / "model.pt")
    with pytest.raises(CheckpointError, match=r"a known method, got 'evil\.Net' \(in .*model\.pt\)"):
        load_run(copy)
    settings = copy / "config.yaml"
    settings.write_text(settings.read_text().replace("bag-statistics-extratrees", "evil.Net"))
    main(["fit", "--resume", str(copy)])  # a finished run, which is only shown
    assert main(["fit", "--config", str(settings), "--out", str(tmp_path / "out")]) == 2
    assert not canary.exists()


@pytest.mark.parametrize("value", [np.nan])
def test_missing_values_are_filled_as_in_training(tmp_path, value):
    bags = bags_for("bag-statistics-extratrees")
    rows = np.array(bags.instances)
    rows[::7, 2] = value
    gaps = archive(tmp_path / "gaps.npz", bags.replace(instances=rows))
    run, out = tmp_path / "run", tmp_path / "scores.csv"
    assert main(["fit", str(gaps), "--method", "bag-statistics-extratrees", "--out", str(run)]) == 2
    how = ["--method", "bag-statistics-extratrees", "--impute", "median", "--test-fraction", "0.2", "--out", str(run)]
    assert main(["fit", str(gaps), *how]) == 0
    assert main(["predict", str(run), str(gaps), "--out", str(out)]) == 0
    assert scores_in(out) == scores_in(run / "predictions.csv")
