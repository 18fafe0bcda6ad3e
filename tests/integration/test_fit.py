"""`midam fit`: what a run folder holds, and that a seed decides it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from sklearn.metrics import average_precision_score, roc_auc_score
from tests.integration.commands import finish, rows, start, table

import midam
from midam.cli import main
from midam.data.sources import read_bags
from midam.evaluate.predict import predict
from midam.methods.callbacks import Callbacks
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.settings import Settings, member_seed
from studies.sets import catalog

FILES = {
    "config.yaml",
    "metrics.csv",
    "predictions.csv",
    "report.html",
    "summary.json",
    "model.pt",
    "checkpoints",
}


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "run"
    command = ["fit", "digits", "--epochs", "4", "--members", "1", "--lr", "0.01", "--num-instances", "8"]
    assert main([*command, "--out", str(folder)]) == 0
    return folder


def test_the_folder_is_complete(run):
    assert {path.name for path in run.iterdir()} == FILES
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"last.pt", "best.pt"}


def test_the_settings_are_all_there(run):
    values = yaml.safe_load((run / "config.yaml").read_text())
    assert values.pop("data") == "digits"
    given = {"epochs": 4, "members": 1, "lr": 0.01, "num_instances": 8, "select": "last", "weight_decay": 1e-4}
    settings = Settings(**given, folds=0).resolve((64,))  # the data have splits
    assert values == settings.flat()
    assert Settings.from_flat(values).resolve((64,)) == settings


def test_the_settings_repeat_the_run(run, tmp_path):
    assert main(["fit", "--config", str(run / "config.yaml"), "--out", str(tmp_path / "again")]) == 0
    for name in ("predictions.csv", "metrics.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (run / name).read_bytes()


def test_the_command_line_beats_the_settings_file(run, tmp_path):
    out = tmp_path / "again"
    assert main(["fit", "--epochs=1", "--config", str(run / "config.yaml"), "--out", str(out)]) == 0
    values = yaml.safe_load((out / "config.yaml").read_text())
    assert (values["epochs"], values["lr"]) == (1, 0.01)


def test_metrics_hold_a_row_an_epoch(run):
    found = read_csv(run / "metrics.csv")
    assert list(found[0]) == ["epoch", "lr", "state_rate", "dual_lr", "loss", "train_auroc", "val_auroc"]
    assert [row["epoch"] for row in found] == ["1", "2", "3", "4"]
    assert all(0 <= float(row["val_auroc"]) <= 1 and np.isfinite(float(row["loss"])) for row in found)


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_a_row_of_metrics_is_there_when_its_epoch_ends(tmp_path):
    seen = []
    folder = RunFolder(tmp_path / "run")
    settings = Settings(epochs=4, lr=0.01, num_instances=8, members=1)
    calls = Callbacks(on_epoch=lambda row, _: seen.append((row["epoch"], rows(folder.metrics))))
    fit_run("digits", settings, folder, callbacks=calls)
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_predictions_are_those_of_the_model(run):
    found, bags = read_csv(run / "predictions.csv"), catalog.load("digits")
    assert list(found[0]) == ["bag", "label", "split", "score", "probability", "class", "positive", "instances"]
    assert [int(row["instances"]) for row in found] == bags.sizes.tolist()
    assert [row["bag"] for row in found] == bags.ids.tolist()
    assert [int(row["label"]) for row in found] == bags.require_labels().tolist()
    assert [row["split"] for row in found] == bags.splits.tolist()
    loaded = load_run(run)
    scores = predict(loaded.model, bags)
    assert [row["score"] for row in found] == [f"{score:.9g}" for score in scores]
    assert [row["probability"] for row in found] == [f"{p:.9g}" for p in loaded.calibrator.predict(scores)]
    assert [int(row["class"]) for row in found] == (scores >= loaded.threshold).tolist()


def test_the_summary_agrees_with_the_predictions(run):
    summary, found = json.loads((run / "summary.json").read_text()), read_csv(run / "predictions.csv")
    assert set(summary) - {"digest", "files"} == {
        *("test", "val", "train", "selected", "by_weights", "method", "members", "data", "epochs", "baseline"),
        *("seconds", "version", "environment", "thresholds", "state", "assumption", "instances"),
    }
    chosen = summary["thresholds"]
    assert (chosen["bags"], chosen["positives"], chosen["out_of_fold"]) == (60, 30, 0)
    assert chosen["points"][0]["threshold"] == summary["test"]["at_threshold"]["threshold"]
    for split, bags in (("test", 100), ("val", 60), ("train", 200)):
        part = [row for row in found if row["split"] == split]
        labels, scores = [int(row["label"]) for row in part], [float(row["score"]) for row in part]
        assert summary[split]["auroc"] == pytest.approx(roc_auc_score(labels, scores), rel=1e-12)
        assert summary[split]["auprc"] == pytest.approx(average_precision_score(labels, scores), rel=1e-12)
        low, high = summary[split]["auroc_ci95"]
        assert 0 <= low < summary[split]["auroc"] < high <= 1
        assert (summary[split]["bags"], summary[split]["positives"]) == (bags, bags // 2)
    assert summary["selected"] == {"weights": "last", "epoch": 4}
    seconds = summary["seconds"]
    assert list(seconds) == ["reading", "training", "evaluation", "baseline", "total", "waiting"]
    assert seconds.pop("waiting") == 0, "the instances are in memory"
    assert min(seconds.values()) > 0
    assert seconds["total"] > sum(seconds.values()) - seconds["total"] - 0.01
    assert summary["epochs"] == 4
    assert summary["by_weights"]["last"]["test_auroc"] == summary["test"]["auroc"]
    assert summary["method"] == {"pooling": "attention", "estimator": "vrsp", "objective": "minmax-auc"}
    assert summary["members"] == 1
    data = {"name": "digits", "bags": 360, "instances": 3667, "instance_shape": [64], "classes": None, "notes": []}
    assert summary["data"] == {**data, "fingerprint": catalog.load("digits").fingerprint()}
    assert set(summary["environment"]) == {"python", "torch", "numpy", "scipy", "scikit-learn", "system"}


def split_table(folder):
    return table(folder / "bags.csv", split=["train"] * 20 + ["val"] * 10 + ["test"] * 10)


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_the_scores_of_a_run_of_members_are_the_mean_of_single_runs(tmp_path, capsys):
    data = split_table(tmp_path)
    command, scores = (
        ["fit", str(data), "--split", "split", "--epochs", "1", "--num-instances", "2", "--no-baseline"],
        {},
    )
    for members, seed in ((2, 5), *((1, member_seed(5, member)) for member in range(2))):
        out = tmp_path / f"{members}-{seed}"
        assert main([*command, "--members", str(members), "--seed", str(seed), "--out", str(out)]) == 0
        scores[members, seed] = predict(load_run(out).model, read_bags(data, split="split"))
    together = scores.pop((2, 5))
    # The splits are those of the table; only weights and draws depend on the seed.
    assert np.array_equal(together, np.mean(list(scores.values()), axis=0))
    assert json.loads((tmp_path / "2-5" / "summary.json").read_text())["members"] == 2
    assert [row["score"] for row in read_csv(tmp_path / "2-5" / "predictions.csv")] == [f"{h:.9g}" for h in together]
    assert "mean of 2 scorers" in capsys.readouterr().out


def test_the_seed_decides_the_run(tmp_path):
    command = ["fit", str(split_table(tmp_path)), "--split", "split", "--epochs", "1", "--dropout", "0.2"]
    command, texts = [*command, "--members", "1", "--no-baseline"], []
    for number, seed in enumerate((3, 3, 4)):
        out = tmp_path / str(number)
        assert main([*command, "--seed", str(seed), "--out", str(out)]) == 0
        texts.append((out / "predictions.csv").read_bytes())
    assert texts[0] == texts[1] != texts[2]


def test_the_best_epoch_is_reported_on_request(tmp_path):
    out = tmp_path / "run"
    # After a first epoch the rate is so high that the weights get worse.
    command = ["fit", "digits", "--epochs", "5", "--lr", "0.3", "--decay-at", "[]", "--select", "best", "--no-baseline"]
    command += ["--members", "2"]
    assert main([*command, "--out", str(out)]) == 0
    summary, metrics = json.loads((out / "summary.json").read_text()), read_csv(out / "metrics.csv")
    values = [float(row["val_auroc"]) for row in metrics]
    best = max(epoch for epoch in range(1, 6) if values[epoch - 1] == max(values))
    assert summary["selected"] == {"weights": "best", "epoch": best}
    assert summary["val"]["auroc"] == pytest.approx(max(values), rel=1e-8)
    assert summary["by_weights"]["last"]["val_auroc"] == pytest.approx(values[-1], rel=1e-8)


def test_without_validation_bags_nothing_is_calibrated(tmp_path):
    out = tmp_path / "run"
    data, held_out = table(tmp_path / "t.csv"), ["--test-fraction", "0.2", "--val-fraction", "0"]
    assert main(["fit", str(data), "--epochs", "2", *held_out, "--out", str(out)]) == 0
    assert "val" not in json.loads((out / "summary.json").read_text())
    found = read_csv(out / "predictions.csv")
    assert {row["split"] for row in found} == {"train", "test"}
    assert {row["probability"] for row in found} == {""}
    assert {path.name for path in (out / "checkpoints").iterdir()} == {"last.pt"}


@pytest.mark.parametrize(("options", "column"), [([], "fold"), (["--test-fraction", "0.2"], "split")])
def test_groups_of_a_table_stay_together(options, column, tmp_path):
    out = tmp_path / "run"
    data = table(tmp_path / "t.csv", patient=[f"p{bag // 4}" for bag in range(40)])
    assert main(["fit", str(data), "--epochs", "1", "--groups", "patient", *options, "--out", str(out)]) == 0
    parts: dict[int, set[str]] = {}
    for row in read_csv(out / "predictions.csv"):
        parts.setdefault(int(row["bag"][1:]) // 4, set()).add(row[column])
    assert len(parts) == 10
    assert all(len(names) == 1 for names in parts.values())
    assert len(set.union(*parts.values())) > 1
    assert all(row["group"] == f"p{int(row['bag'][1:]) // 4}" for row in read_csv(out / "predictions.csv"))


def test_a_run_without_a_name_gets_a_new_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table(tmp_path / "bags.csv")
    for _ in range(2):
        assert main(["fit", str(data), "--epochs", "1", "--members", "1", "--seed", "7", "--no-baseline"]) == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["bags-attention-vrsp-seed7", "bags-attention-vrsp-seed7-2"]


def test_a_handler_of_the_caller_is_put_back():
    before = signal.getsignal(signal.SIGTERM)
    assert main(["doctor"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_a_real_process_trains_and_ends_with_its_result(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(midam.__file__).parents[1])}
    command = [sys.executable, "-m", "midam.cli", "fit", "digits", "--epochs", "1", "--no-baseline", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    out, error = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == 0, error
    assert out.splitlines()[-1] == "run folder: run"
    lines = [
        line for line in out.splitlines() if "AUROC" in line and not line.startswith(("warning", " bags", "labeled"))
    ]
    assert [line.partition(" 0.")[0] for line in lines] == ["test AUROC"]
    # A slow machine has more lines: each half minute, how much is done.
    shown = [line for line in error.splitlines() if not re.search(r"% done|: (?!360/)[1-9]\d*/360 bags", line)]
    assert shown[0] == "training attention x vrsp x minmax-auc on digits"
    assert shown[1].startswith("epoch 1/1  loss ")
    after = ["scoring: 0/360 bags", "scoring: 360/360 bags"]  # once: not the best ones
    after += ["writing results", "evaluating the instances", "changing bags"]
    assert shown[2:] == after
    assert "instead" not in out


def test_a_failed_command_is_known_by_its_exit_code(tmp_path):
    log = tmp_path / "log"
    assert finish(start("fit", "none.csv", "--out", str(tmp_path / "run"), log=log)) == 2
    assert log.read_text() == "midam: error: Expected a file, got none (in none.csv); check the path.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "bags have the same instances as a bag in an earlier fold, first b"),
        (
            ["--test-fraction", "0.2"],
            "validation or test bags have the same instances as a bag in an earlier split, first b",
        ),
    ],
)
def test_copies_of_a_bag_in_two_splits_or_folds_are_warned_of(options, said, tmp_path, capsys):
    # Half of the bags are copies of one positive, and of one negative bag.
    rows = [f"b{i:02},{i % 2},{i % 2 if i < 20 else i}" for i in range(40) for _ in range(2)]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x", *rows]) + "\n")
    assert main(["fit", str(tmp_path / "bags.csv"), "--epochs", "1", *options, "--out", str(tmp_path / "run")]) == 0
    assert said in " ".join(capsys.readouterr().err.split())
    notes = json.loads((tmp_path / "run/summary.json").read_text())["data"]["notes"]
    assert any(said in note for note in notes)
