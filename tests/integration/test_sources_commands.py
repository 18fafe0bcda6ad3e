"""Folders of feature files through the commands: fit in place, predict, evaluate, describe, import."""

import csv
import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import h5py
import numpy as np
import pytest
import torch

from midam.cli import main
from midam.runs.loaded import load_run

D = 5


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Forty slides of 32 patients in CLAM's layout, a table of them, CLAM's splits, and a run on them."""
    root = tmp_path_factory.mktemp("study")
    write_slides(root, seed=0, first=0, number=40)
    names = [f"S{number:02d}.x" for number in range(40)]
    lines = [",train,val,test", *(f"{i},{names[i]},{names[24 + i] if i < 8 else ''}," for i in range(24))]
    for i, line in enumerate(lines[1:9], start=1):
        lines[i] = line + names[32 + i - 1]
    (root / "splits").mkdir()
    (root / "splits" / "splits_0.csv").write_text("\n".join(lines))
    columns = ["--labels", str(root / "labels.csv"), "--positive", "yes"]
    options = [*columns, *quick(), "--test-fraction", "0.2"]
    code, text = run(root, "fit", root / "h5_files", *options, "--out", root / "run")
    assert code == 0, text
    return root


def quick():
    return ["--epochs", "2", "--members", "1", "--num-positive", "4", "--num-negative", "4", "--no-baseline"]


def write_slides(root, *, seed, first, number):
    rng = np.random.default_rng(seed)
    for folder in ("h5_files", "pt_files"):
        (root / folder).mkdir(parents=True)
    lines = ["case_id,slide_id,label"]
    for slide in range(first, first + number):
        x = rng.normal(size=(int(rng.integers(5, 30)), D)).astype(np.float32)
        x[0] += 4.0 * (slide % 2)
        with h5py.File(root / "h5_files" / f"S{slide:02d}.x.h5", "w") as file:
            file.create_dataset("features", data=x, chunks=(1, D), maxshape=(None, D))
            file["coords"] = rng.integers(0, 9999, (len(x), 2))
        torch.save(torch.from_numpy(x), root / "pt_files" / f"S{slide:02d}.x.pt")
        lines.append(f"P{slide},S{slide:02d}.x,{'yes' if slide % 2 else 'no'}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")


def run(root, *words):
    with redirect_stdout(text := StringIO()), redirect_stderr(text):
        return main([*map(str, words)]), text.getvalue()


def test_a_folder_is_trained_on_in_place(study):
    how = load_run(study / "run").settings.data
    assert (how.labels, how.positive) == (str(study / "labels.csv"), "yes")
    summary = json.loads((study / "run" / "summary.json").read_text())
    assert sum(summary[part]["bags"] for part in ("train", "val", "test")) == 40


def test_predict_and_evaluate_elsewhere_and_at_home(study, tmp_path):
    write_slides(tmp_path / "new", seed=1, first=50, number=12)
    new = tmp_path / "new" / "h5_files"
    code, text = run(tmp_path, "predict", study / "run", new, "--out", tmp_path / "scores.csv")
    assert code == 0, text
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert len(rows) == 12
    assert "label" not in rows[0]
    labels = ["--labels", tmp_path / "new" / "labels.csv"]
    code, text = run(tmp_path, "evaluate", study / "run", new, *labels, "--out", tmp_path / "new.json")
    assert code == 0, text
    assert json.loads((tmp_path / "new.json").read_text())["new"]["bags"] == 12
    code, text = run(tmp_path, "evaluate", study / "run", new)
    assert code == 2
    assert "labeled bags" in text
    # The run's own folder needs no table: it knows it. The same slides as tensors are known by their content.
    for data, options in ((study / "h5_files", []), (study / "pt_files", ["--labels", study / "labels.csv"])):
        code, text = run(tmp_path, "evaluate", study / "run", data, *options, "--out", tmp_path / "own.json")
        assert code == 0, text
        assert json.loads((tmp_path / "own.json").read_text())["headline"] == "test"
    code, text = run(tmp_path, "predict", study / "run", new, *labels, "--out", labels[1])
    assert code == 2
    assert "a file outside the data" in text


@pytest.mark.long
def test_a_store_is_the_folder(study, tmp_path):
    columns = ["--labels", study / "labels.csv", "--positive", "yes"]
    code, text = run(tmp_path, "data", "import", study / "h5_files", *columns, "--out", tmp_path / "store")
    assert code == 0, text
    scores = []
    for data in (study / "h5_files", tmp_path / "store"):
        code, text = run(tmp_path, "predict", study / "run", data, "--out", tmp_path / "p.csv")
        assert code == 0, text
        scores.append(
            {row["bag"]: float(row["score"]) for row in csv.DictReader((tmp_path / "p.csv").read_text().splitlines())}
        )
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    split = ["--split-file", study / "splits", "--fold", "0"]
    code, text = run(tmp_path, "fit", tmp_path / "store", *split, *quick(), "--out", tmp_path / "fold0")
    assert code == 0, text
    splits = load_run(tmp_path / "fold0").splits
    assert [name for name, split in splits.items() if split == "test"] == [f"S{number}.x" for number in range(32, 40)]


@pytest.mark.long
def test_describe_and_compare_read_folders(study, tmp_path):
    columns = ["--labels", study / "labels.csv", "--positive", "yes"]
    code, text = run(tmp_path, "data", "describe", study / "h5_files", *columns)
    assert code == 0, text
    assert "40 (20 positive)" in text
    words = [
        "--methods",
        "bag-statistics-logistic,mean-map-svm",
        "--cv",
        "1x3",
        "--jobs",
        "1",
        "--out",
        tmp_path / "cmp",
    ]
    code, text = run(tmp_path, "compare", study / "h5_files", *columns, *words)
    assert code == 0, text
    code, text = run(tmp_path, "compare", study / "h5_files", *columns, *words, "--fold", "0")
    assert code == 2
    assert "fold" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--labels", "LABELS", "--positive", "maybe"], "positive value 'maybe'"),
        (["--labels", "LABELS", "--positive", "yes", "--coords", "x"], "Expected no --coords with a folder"),
        (["--labels", "LABELS", "--positive", "yes", "--split-file", "SPLITS"], "Expected --fold with a folder"),
        (["--labels", "LABELS", "--positive", "yes", "--fold", "-1"], "Expected a valid --fold, got -1"),
        ([], "Expected --labels with a folder"),
        (["--label", "x"], "did you mean 'labels'"),
    ],
)
def test_mistakes_end_in_one_line(study, tmp_path, options, message):
    names = {"LABELS": study / "labels.csv", "SPLITS": study / "splits"}
    words = [names.get(word, word) for word in options]
    code, text = run(tmp_path, "fit", study / "h5_files", *words, "--out", tmp_path / "run")
    assert code == 2
    assert message in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "slides"),
        ("compare", "slides", "--methods", "bag-statistics-logistic,mean-map-svm", "--cv", "1x2"),
        ("data", "import", "slides"),
    ],
)
def test_nothing_is_put_where_it_would_pass_for_data(command, tmp_path, monkeypatch, capsys):
    write_slides(tmp_path / "slides", seed=1, first=0, number=8)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = [*command, "--labels", "slides/labels.csv", "--positive", "yes"]
    for out in ("slides", "slides/pt_files/out"):
        assert main([*words, "--out", out]) == 2
        expected = "which exists" if (command[1], out) == ("import", "slides") else "another folder than the data"
        assert expected in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
