"""Each target from a CSV by the command line: trained, stopped and resumed, applied, tested on new bags."""

import json

import numpy as np
import pandas as pd
import pytest

from midam.cli.app import main
from midam.train.trainer import Trainer

_COMMON = ["--epochs", "12", "--members", "1", "--seed", "0", "--no-baseline"]
TARGETS = {
    "survival": [],
    "multiclass": ["--label-column", "kind"],
    "multilabel": ["--target", "multilabel"],
    "ordinal": ["--target", "ordinal", "--label-column", "grade", "--grades", "low,mid,high"],
    "continuous": ["--target", "continuous", "--label-column", "size"],
}
SAID = {
    "multiclass": ["kind"],
    "multilabel": ["label_a", "label_b"],
    "ordinal": ["grade"],
    "continuous": ["size"],
    "survival": ["time", "event"],
}
METRIC = {"multiclass": "auroc_macro", "multilabel": "auroc_macro"}


def bags_table(path, target, *, bags=90, seed=0):
    """Bags of 4 to 8 instances whose first feature tells a level of 0, 1 or 2, which the labels follow."""
    rng = np.random.default_rng(seed)
    level = np.arange(bags) % 3
    sizes = rng.integers(4, 9, bags)
    of = np.repeat(np.arange(bags), sizes)
    told = {
        "kind": np.array(["oak", "elm", "ash"])[level],
        "label_a": (level > 0).astype(int),
        "label_b": np.where(rng.random(bags) < 0.2, np.nan, level > 1),
        "grade": np.array(["low", "mid", "high"])[level],
        "size": level * 2.5 + rng.normal(0, 0.1, bags),
        "time": rng.exponential(1.0, bags) / np.exp(1.5 * level) + 1e-3,
        "event": (rng.random(bags) < 0.7).astype(int),
    }
    frame = pd.DataFrame({"bag": [f"s{seed}-{number}" for number in of]})
    for name in SAID[target]:
        frame[name] = told[name][of]
    frame["x"] = rng.normal(0, 1, len(of)) + level[of]
    frame["noise"] = rng.normal(0, 1, len(of))
    frame.to_csv(path, index=False)
    return path


def options(target):
    """Options of the command for a target."""
    return TARGETS[target]


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_is_trained_applied_and_tested(tmp_path, target, capsys):
    data, run = bags_table(tmp_path / "bags.csv", target), tmp_path / "run"
    assert main(["fit", str(data), *options(target), *_COMMON, "--out", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    metric = METRIC.get(target, "c_index")
    low, high = summary["out_of_fold"][f"{metric}_ci95"]
    assert summary["target"] == target
    assert low < summary["out_of_fold"][metric] <= high
    assert summary["out_of_fold"][metric] > 0.65
    predictions = pd.read_csv(run / "predictions.csv")
    scores = [name for name in predictions if name.startswith("score")]
    assert len(scores) == {"multiclass": 3, "multilabel": 2}.get(target, 1)
    assert predictions[scores].apply(lambda column: column.between(0, 1).all()).all()

    new = bags_table(tmp_path / "new.csv", target, bags=30, seed=1)
    out, told = tmp_path / "scores.csv", tmp_path / "told.json"
    assert main(["predict", str(run), str(new), "--out", str(out)]) == 0
    assert main(["evaluate", str(run), str(new), "--out", str(told)]) == 0
    found = json.loads(told.read_text())
    assert found["headline"] == "new"
    assert found["new"][metric] > 0.6
    bare = pd.read_csv(new).drop(columns=SAID[target])
    bare.to_csv(tmp_path / "bare.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "bare.csv"), "--out", str(tmp_path / "bare-scores.csv")]) == 0
    again = pd.read_csv(tmp_path / "bare-scores.csv")
    np.testing.assert_array_equal(pd.read_csv(out)[scores], again[scores])
    capsys.readouterr()


@pytest.mark.parametrize("target", [pytest.param("multiclass", marks=pytest.mark.long), "survival"])
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path, target, monkeypatch, capsys):
    data = bags_table(tmp_path / "bags.csv", target)
    command = ["fit", str(data), *options(target), *_COMMON]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    train_epoch = Trainer.train_epoch

    def stopped(trainer):
        if trainer.epoch == 5:
            raise KeyboardInterrupt
        return train_epoch(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_epoch", stopped)
        assert main([*command, "--out", str(tmp_path / "stopped")]) == 130
    assert main(["fit", "--resume", str(tmp_path / "stopped")]) == 0
    for name in ("predictions.csv", "metrics.csv"):
        assert (tmp_path / "stopped" / name).read_text() == (tmp_path / "whole" / name).read_text()
    capsys.readouterr()


def test_a_class_that_training_did_not_have_is_named(tmp_path, capsys):
    data, run = bags_table(tmp_path / "bags.csv", "multiclass"), tmp_path / "run"
    assert main(["fit", str(data), *options("multiclass"), *_COMMON, "--out", str(run)]) == 0
    new = tmp_path / "new.csv"
    pd.read_csv(bags_table(new, "multiclass", bags=30, seed=1)).replace({"kind": {"ash": "fir"}}).to_csv(
        new, index=False
    )
    capsys.readouterr()
    assert main(["evaluate", str(run), str(new)]) == 2
    assert "got fir" in capsys.readouterr().err
