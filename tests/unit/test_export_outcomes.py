"""Runs of more than two classes that were exported: the same scores, and what they mean, by both files."""

import csv
import json
import runpy
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest
import torch

from midam import Bags, Settings, predict
from midam.cli import main
from midam.export.onnx import Chunk, Merge, Outer
from midam.export.run import _onnx_script, write_export
from midam.export.score_bags import Ranked, ranked
from midam.export.score_onnx import Model as OnnxModel
from midam.nn.ensemble import scorers_of
from midam.runs.apply import read_for
from midam.runs.loaded import LoadedRun, load_run
from midam.runs.scoring import predict_run
from midam.targets import target_named
from midam.train.build import build_ensemble

pytestmark = pytest.mark.filterwarnings("ignore:the features have no names")

SIZES = [1, 7, 300]
NAMES = {
    "multiclass": ("bone", "lung", "skin"),
    "multilabel": ("fat", "blood", "rare"),
    "ordinal": ("low", "mid", "high"),
    "continuous": ("age",),
    "survival": ("time", "event"),
}
CASES = [
    *((name, {"attention": "shared"}) for name in ("attention", "embedding-attention")),
    *((name, {}) for name in ("mean", "noisy-or", "noisy-and", "max", "smoothed-max", "generalized-mean")),
    *((name, {"attention": "per-class"}) for name in ("attention", "gated-attention", "embedding-attention")),
]


def instances(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 4)) * 3 + 10


def bags_of(sizes):
    return Bags.from_list([instances(size, seed=number) for number, size in enumerate(sizes)])


def values_of(target, scores, rng):
    """Values of 40 validation bags that their scores [40, C] rank, if not without fault."""
    ranks = scores.argsort(axis=0).argsort(axis=0) + rng.normal(scale=8, size=scores.shape)
    return {
        "multiclass": ranks.argmax(axis=1)[:, None],
        "multilabel": np.where(np.arange(scores.shape[1]) < 2, ranks > 20, 0),
        "ordinal": np.digitize(ranks, [13, 26]),
        "continuous": ranks,
        "survival": np.stack([50 - ranks[:, 0].clip(max=49), rng.integers(0, 2, 40)], axis=1),
    }[target].astype(float)


def made(target="multiclass", *, calibrated=True, **settings):
    """A run with random weights, whose decision was fitted on what its scores rank."""
    rng, said = np.random.default_rng(1), {"target": target, "names": list(NAMES[target])}
    found, settings = target_named(said), Settings(**{"members": 2, **settings}).resolve((4,))
    torch.manual_seed(1)
    model = build_ensemble(settings, instance_shape=(4,), columns=found.count)
    with torch.no_grad():
        for member in scorers_of(model):
            member.standardizer.fit(torch.from_numpy(instances(500)))
            for value in member.parameters():
                value.add_(torch.randn_like(value), alpha=0.3)
    data = {"source": "/home/anna/bags.csv", "place": "/home/anna/bags.csv", "fingerprint": "f" * 64, "cut": None}
    data |= {"instance_shape": [4], "feature_names": list("abcd"), "outcome": said}
    scores = predict(model, bags_of([3] * 40))
    decision = found.decide(values_of(target, scores.reshape(40, -1), rng), scores) if calibrated else None
    return LoadedRun(model.eval(), settings, decision, {}, {}, set(), data)


def python_found(folder, bags, **how):
    model = runpy.run_path(str(folder / "score_bags.py"))["Model"](folder)
    return [model.score(torch.from_numpy(np.array(bags[i])), **how) for i in range(len(bags))]


def check(run, bags, found, *, atol):
    """That the scores are those of the run, and what they are said to mean is what it says of them."""
    wanted = predict(run.model, bags)
    got = np.array([list(one.scores.values()) for one in found])
    np.testing.assert_allclose(got, wanted.reshape(got.shape), rtol=0, atol=atol)
    assert list(found[0].scores) == list(run.target.columns)
    scores = got if run.target.count > 1 else got[:, 0]
    told = run.target.predictions(scores, run.decision)
    for row, one in enumerate(found):
        assert list(one.told) == list(told)
        for name, value in one.told.items():
            expected = told[name][row]
            assert value == (pytest.approx(expected, rel=1e-6, abs=1e-9) if isinstance(expected, float) else expected)


@pytest.mark.parametrize(("pooling", "how"), CASES)
def test_the_python_file_scores_each_column_as_the_run(pooling, how, tmp_path):
    run = made(pooling=pooling, hidden=(6, 5), **how)
    assert write_export(run, {}, tmp_path, formats=["python"]) == ["python"]
    assert np.ptp(predict(run.model, bags_of(SIZES)), axis=1).max() > 1e-4
    check(run, bags_of(SIZES), python_found(tmp_path, bags_of(SIZES), chunk_size=64), atol=1e-6)


@pytest.mark.parametrize("arguments", [{"learn_temperature": True}, {"learn_exponent": True}, {"head_hidden": 0}])
def test_what_columns_learn_of_their_own_is_in_the_python_file(arguments, tmp_path):
    (name,) = arguments
    pooling = {"learn_temperature": "smoothed-max", "learn_exponent": "generalized-mean"}.get(name)
    run = made(pooling=pooling or "embedding-attention", pooling_args=arguments)
    write_export(run, {}, tmp_path, formats=["python"])
    check(run, bags_of(SIZES), python_found(tmp_path, bags_of(SIZES)), atol=1e-6)


@pytest.mark.parametrize(("pooling", "how"), CASES)
def test_the_functions_that_onnx_holds_score_each_column_as_the_run(pooling, how):
    run, bags = made(pooling=pooling, hidden=(6, 5), **how), bags_of(SIZES)
    members = scorers_of(run.model)
    chunk, merge = Chunk(members), Merge(largest=pooling == "max")
    outer = Outer(members, {"calibration": None, "target": "multiclass", "decision": run.decision.to_dict()})
    with torch.no_grad():
        parts = [[chunk(x)[2:] for x in torch.from_numpy(bags[i]).split(64)] for i in range(len(bags))]
        found = [outer(*reduce(lambda a, b: merge(*a, *b), part)) for part in parts]
    wanted = predict(run.model, bags)
    np.testing.assert_allclose([score for score, _, _ in found], wanted, rtol=0, atol=1e-6)
    assert found[0][1].shape == (2, 3)
    shares = run.decision.predict(wanted)
    np.testing.assert_allclose([chance for _, _, chance in found], shares, rtol=0, atol=1e-5)


# Traced in seconds: a column a branch, and labels of which one has no probability.
@pytest.mark.parametrize(("target", "attention"), [("multiclass", "per-class"), ("multilabel", "shared")])
@pytest.mark.long
def test_onnx_scores_each_column_as_the_run(target, attention, tmp_path):
    run = made(target, members=1, attention=attention, scaling="linear")
    assert write_export(run, {}, tmp_path, formats=["onnx"]) == ["onnx"]
    model, bags = OnnxModel(tmp_path), bags_of(SIZES)
    found = [model.score(bags[i], chunk_size=64) for i in range(len(bags))]
    assert all(isinstance(one, Ranked) for one in found)
    check(run, bags, found, atol=1e-5)
    if target == "multilabel":
        assert found[0].told["probability_rare"] is None
    rows = 3 if attention == "per-class" else 1
    statistic = {"n": np.array(1.0), "l": np.zeros(rows), "r": np.zeros((rows, 3 // rows))}
    score, _, chance = model._parts["score"].run(None, statistic)
    shares = run.decision.predict(score[None])[0]
    np.testing.assert_allclose(chance, shares, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("calibrated", [True, False])
def test_what_a_score_means_goes_along(target, calibrated, tmp_path):
    run, bags = made(target, calibrated=calibrated), bags_of([1, 2, 3, 5, 8, 13, 21, 34])
    write_export(run, {}, tmp_path, formats=["python"])
    found, config = python_found(tmp_path, bags), json.loads((tmp_path / "config.json").read_text())
    if calibrated:
        check(run, bags, found, atol=1e-6)
        said = [ranked(config, list(one.scores.values())).told for one in found]
        assert said == [one.told for one in found], "both files say the same"
    else:
        assert [one.told for one in found] == [{}] * len(bags)
    assert "anna" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_numbers_lie_between_the_knots(tmp_path):
    write_export(made("continuous"), {}, tmp_path, formats=["python"])
    # The script that goes with an ONNX export; tracing one takes seconds.
    (tmp_path / "score_onnx.py").write_text(_onnx_script(), encoding="utf-8")
    config = json.loads((tmp_path / "config.json").read_text())
    knots, numbers = config["decision"]["scores"], config["decision"]["numbers"]
    scores = [-1.0, 2.0, *knots, *np.linspace(0, 1, 101).tolist()]
    for file in ("score_bags.py", "score_onnx.py"):
        ranked = runpy.run_path(str(tmp_path / file))["ranked"]
        found = [ranked(config, [score]).told["number"] for score in scores]
        np.testing.assert_allclose(found, np.interp(scores, knots, numbers), rtol=1e-12)


@pytest.mark.parametrize("target", ["multiclass", "survival"])
def test_an_exported_run_scores_tables_as_predict_does(target, tmp_path):
    rng, classes = np.random.default_rng(0), np.arange(60) % 3
    x = rng.normal(size=(60, 3, 4)) + 3 * np.eye(4)[classes][:, None]
    known = {"y": np.array(["bone", "lung", "skin"])[classes]}
    if target == "survival":
        known = {"time": 1.0 + rng.random(60) + classes, "event": (np.arange(60) % 4 > 0).astype(int)}
    data, run = str(tmp_path / "bags.npz"), str(tmp_path / "run")
    np.savez(data, X=x.reshape(-1, 4), bag=np.repeat(np.arange(60), 3), **known)
    how = ["--target", target, "--epochs", "2", "--members", "1", "--no-baseline", "--out", run]
    assert main(["fit", data, *how]) == 0
    assert main(["export", run, "--out", str(tmp_path / "out"), "--format", "python"]) == 0
    rows = [[f"b{i // 3}", *x[i // 3, i % 3]] for i in range(9)]
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["bag", "f0", "f1", "f2", "f3"], *rows])
    command = [sys.executable, "score_bags.py", "../table.csv"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = load_run(run)
    scores, _ = predict_run(loaded, read_for(loaded, data).subset([0, 1, 2]))
    found = list(csv.DictReader(done.stdout.splitlines()))
    columns = [f"score_{name}" for name in ("bone", "lung", "skin")] if target == "multiclass" else ["score"]
    np.testing.assert_allclose(
        [[float(row[name]) for name in columns] for row in found], scores.reshape(3, -1), rtol=0, atol=1e-6
    )
    told = loaded.target.predictions(scores, loaded.decision)
    key = "class" if target == "multiclass" else "risk"
    assert [row[key] for row in found] == told[key]
