"""`midam explain`, `predict --instances` and what they say where bags are ranked by more than 0 and 1."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from midam import registry
from midam.cli import main
from midam.errors import ConfigError
from midam.explain import ExplainOptions, explain_bags
from midam.explain.run import extreme_bags
from midam.runs.apply import read_for
from midam.runs.loaded import load_run, predict_run

h5py = pytest.importorskip("h5py")

N, CLASS = 60, np.arange(60) % 3
NAMES = ["bone", "lung", "skin"]
SETTINGS = ["--epochs", "4", "--lr", "0.02", "--optimizer", "adam", "--members", "2"]
SETTINGS += ["--no-baseline", "--test-fraction", "0.2"]
OUTCOMES = {
    "multiclass": {"y": np.array(NAMES)[CLASS]},
    "multilabel": {"y": np.eye(3, dtype=int)[CLASS]},
    "ordinal": {"y": CLASS},
    "survival": {"time": np.exp(-CLASS) + np.arange(N) / N, "event": (np.arange(N) % 4 > 0).astype(int)},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Data and run of each target, trained when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("outcomes"), {}

    def find(target):
        if target not in made:
            rng = np.random.default_rng(0)
            x = rng.normal(size=(N, 4, 4))
            x[np.arange(N), 0, CLASS] += 4
            data, run = folder / f"{target}.npz", folder / target
            known = {"bag": np.repeat(np.arange(N), 4), "ids": np.array([f"b{i:02}" for i in range(N)])}
            known["instance_label"] = np.tile(np.arange(4) == 0, N)
            np.savez(data, X=x.reshape(-1, 4), **known, **OUTCOMES[target])
            more = ["--attention", "per-class"] if target == "multiclass" else []
            assert main(["fit", str(data), "--target", target, *SETTINGS, *more, "--out", str(run)]) == 0
            made[target] = str(run), str(data)
        return made[target]

    return find


def entries(folder):
    return json.loads((folder / "explain.json").read_text())["bags"]


def test_a_class_is_explained_by_its_own_score(runs, tmp_path, capsys):
    run, data = runs("multiclass")
    predicted = pd.read_csv(f"{run}/predictions.csv").set_index("bag")
    command = ["explain", run, data, "--bags", "b01", "b00", "--out"]
    assert main([*command, str(tmp_path / "skin"), "--class", "skin"]) == 0
    shown = capsys.readouterr().out
    assert main([*command, str(tmp_path / "own")]) == 0
    for folder in ("skin", "own"):
        for entry in entries(tmp_path / folder):
            row = predicted.loc[entry["bag"]]
            name = "skin" if folder == "skin" else row["class"]
            assert entry["explained"] == name
            assert (entry["label"], entry["called"]) == (row["label"], row["class"])
            np.testing.assert_allclose(entry["score"], row[f"score_{name}"], rtol=0, atol=1e-6)
            np.testing.assert_allclose(entry["probability"], row[f"probability_{name}"], rtol=1e-4)
            text = f"{entry['bag']}: for {name}, called {row['class']}, probability {entry['probability']:.3f} (score "
            assert text in " ".join(shown.split()) or folder == "own"
    page = (tmp_path / "skin" / "index.html").read_text()
    assert '<th scope="col">class</th>' in page
    assert f"probability {entries(tmp_path / 'skin')[0]['probability']:.3f} (score " in page
    # Witnesses make a bag positive, which is not what these bags are.
    assert "witness" not in shown


def test_predict_writes_all_classes_and_explain_one_of_them(runs, tmp_path):
    run, data = runs("multiclass")
    out, all_classes = tmp_path / "p.csv", tmp_path / "all"
    assert main(["predict", run, data, "--out", str(out), "--instances", str(all_classes)]) == 0
    assert main(["explain", run, data, "--bags", "b04", "--class", "lung", "--out", str(tmp_path / "lung")]) == 0
    scores = pd.read_csv(out).set_index("bag")
    mine, (entry,) = pd.read_csv(tmp_path / "lung" / "b04.csv").sort_values("instance"), entries(tmp_path / "lung")
    with h5py.File(all_classes / "b04.h5") as its:
        assert its.attrs["columns"].tolist() == NAMES
        np.testing.assert_allclose(its.attrs["bag_score"], scores.loc["b04", [f"score_{name}" for name in NAMES]])
        assert entry["explained"] == "lung"
        np.testing.assert_allclose(entry["score"], its.attrs["bag_score"][1], rtol=0, atol=1e-6)
        for name in ("score", "weight"):
            np.testing.assert_allclose(mine[name], its[name][:, 1], rtol=1e-5, atol=1e-7)
        assert np.ptp(its["weight"][:], axis=1).max() > 1e-4, "each class has an attention of its own"


METRICS = """
import numpy as np
from sklearn.metrics import log_loss

from midam.registry import METRICS

def surprise(values, scores, predictions):
    return log_loss(values, predictions)

def ranked_first(values, scores, groups):
    return len(set(groups)) if values.ndim == 1 else float(scores[values[:, 0].argmin()])

def shape(values, scores):
    return values.ndim * 10 + scores.ndim

for metric in (surprise, ranked_first, shape):
    METRICS.add(f"own_metrics.{metric.__name__}", metric)
"""


def test_metrics_from_outside_work_with_any_target(runs, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_metrics.py").write_text(METRICS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry.METRICS, "_added", {})  # no later test has them
    names = [f"own_metrics.{name}" for name in ("surprise", "ranked_first", "shape")]
    run, data = runs("multiclass")
    out = tmp_path / "found.json"
    assert (
        main(
            ["evaluate", run, data, "--plugin", "own_metrics", "--metrics", f"{names[0]},{names[2]}", "--out", str(out)]
        )
        == 0
    )
    test = json.loads(out.read_text())["test"]
    rows = pd.read_csv(f"{run}/predictions.csv").query("split == 'test'")
    shares = rows[[name for name in rows if name.startswith("probability_")]].to_numpy()
    codes = rows["label"].map({name: code for code, name in enumerate(test["per_class"])})
    assert test["metrics"][names[0]] == pytest.approx(log_loss(codes, shares), rel=1e-6)
    assert test["metrics"][names[2]] == 12, "codes [N], scores [N, C]"
    assert f"{names[0]}: " in capsys.readouterr().out
    run, data = runs("survival")
    assert main(["evaluate", run, data, "--metrics", ",".join(names[1:]), "--out", str(out)]) == 0
    found = json.loads(out.read_text())["test"]["metrics"]
    assert found == {names[1]: None, names[2]: 21}, "times and events [N, 2]; these bags have no groups"


def test_metrics_that_cannot_take_the_labels_are_refused(runs, capsys):
    run, data = runs("multiclass")
    assert main(["evaluate", run, data, "--metrics", "auprc"]) == 2
    assert "Expected metrics for the target 'multiclass', got 'auprc', which fails:" in capsys.readouterr().err
    assert main(["evaluate", run, data, "--metrics", "f1"]) == 2
    shown = capsys.readouterr().err
    assert "got 'f1', which needs 'threshold'" in shown
    assert "scoring" not in shown, "known before the bags are scored"


def test_the_extremes_are_those_of_a_class(runs, tmp_path, capsys):
    run, data = runs("multiclass")
    test = pd.read_csv(f"{run}/predictions.csv").query("split == 'test'").set_index("bag")
    out = ["--out"]
    assert main(["explain", run, data, "--class", "bone", *out, str(tmp_path / "bone")]) == 0
    wanted = [test["score_bone"].idxmax(), test["score_bone"].idxmin()]
    assert [entry["bag"] for entry in entries(tmp_path / "bone")] == wanted
    assert main(["explain", run, data, *out, str(tmp_path / "any")]) == 0
    own = pd.Series({bag: row[f"score_{row['class']}"] for bag, row in test.iterrows()})
    assert [entry["bag"] for entry in entries(tmp_path / "any")] == [own.idxmax(), own.idxmin()]
    assert "test bags of the run; name others" in capsys.readouterr().out


def test_labels_are_explained_by_the_most_probable_one(runs, tmp_path):
    run, data = runs("multilabel")
    loaded = load_run(run)
    bags = read_for(loaded, data)
    explain_bags(loaded, bags, [3, 4], tmp_path / "out", options=ExplainOptions())
    scores, _ = predict_run(loaded, bags.subset([3, 4]))
    shares = loaded.decision.predict(scores)
    for entry, own, score in zip(entries(tmp_path / "out"), shares, scores, strict=True):
        assert entry["explained"] == loaded.target.columns[own.argmax()]
        assert entry["score"] == pytest.approx(score[own.argmax()], abs=1e-6)
        assert entry["label"] == str(CLASS[int(entry["bag"][1:])])
        assert entry["predicted"] == {}
    assert len(extreme_bags(loaded, bags, range(10), label="1")) == 2
    with pytest.raises(ConfigError, match="Expected a class of the run, got '7'; known are 0, 1, 2"):
        explain_bags(loaded, bags, [3], tmp_path / "wrong", options=ExplainOptions(label="7"))
    assert not (tmp_path / "wrong").exists()


@pytest.mark.parametrize(("target", "told"), [("ordinal", "grade"), ("survival", "risk")])
def test_one_score_is_explained_with_what_it_says(target, told, runs, tmp_path, capsys):
    run, data = runs(target)
    row = pd.read_csv(f"{run}/predictions.csv", dtype={"grade": str, "label": str}).set_index("bag").loc["b05"]
    command = ["explain", run, data, "--bags", "b05", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    (entry,) = entries(tmp_path / "out")
    assert (entry["explained"], entry["probability"], entry["called"]) == (None, None, None)
    assert entry["predicted"] == {told: row[told]}
    times = "" if target == "ordinal" else f"time {float(row['time']):g}, event {row['event']}"
    assert entry["label"] == (times or row["label"])
    assert entry["score"] == pytest.approx(row["score"], abs=1e-6)
    assert f"predicted {told} {row[told]}, label" in (tmp_path / "out" / "index.html").read_text()
    capsys.readouterr()
    assert main([*command, "--class", "high"]) == 2
    assert "Expected a class of the run, got" in capsys.readouterr().err
