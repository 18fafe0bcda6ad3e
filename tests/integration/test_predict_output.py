"""Where commands write: links, devices, files of others; and what stands in the columns of `midam predict`."""

import os
import re
import stat
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import fitted, scoring

from midam.cli import main
from midam.data.bags import Bags
from midam.evaluate.calibrate import BinaryDecision, PlattCalibrator
from midam.runs.loaded import load_run
from midam.runs.results import predictions_text
from midam.targets.binary import Binary


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose bags are scored 16 at a time, and its data."""
    return fitted(tmp_path_factory.mktemp("stopped"), "--epochs", "2", "--members", "1", "--chunk-size", "3")


def test_a_link_as_output_stays_and_its_file_is_written(made, tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("bag,score\nold,0.5\n")
    link.symlink_to(target)
    assert main(scoring(made, link)) == 0
    assert main(scoring(made, tmp_path / "whole.csv")) == 0
    assert link.is_symlink()
    assert target.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "target.csv", "whole.csv"]


def test_a_file_that_holds_no_scores_is_not_written_over(made, tmp_path, capsys):
    notes, link = tmp_path / "notes.csv", tmp_path / "link.csv"
    notes.write_text("bag,remark\nb00,ask again\n")
    link.symlink_to(notes)
    for out in (notes, link):
        assert main(scoring(made, out)) == 2
        assert "Expected a new file or one of scores for --out" in capsys.readouterr().err
    assert notes.read_text() == "bag,remark\nb00,ask again\n"


OUTPUTS = {
    "predict --out p.csv": "p.csv p.left-out.csv",
    "predict --why --out p.csv": "p.why.csv p.why.html",
    "evaluate --out e.json": "e.json report-none.html report-none.left-out.csv",
    "report --pseudonyms --out r.html": "r.html r.left-out.csv r.pseudonyms.csv",
}


@pytest.mark.parametrize("words", OUTPUTS)
def test_a_file_of_others_is_refused_before_the_data_are_read(words, made, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command, *options = words.split()
    for name in OUTPUTS[words].split():
        Path(name).write_text("bag,remark\nb00,ask again\n")
        assert main([command, str(made[1]), "none.csv", *options]) == 2
        refused = f"Expected (a new file or .* for --out, got {name}|a key of pseudonyms.*in {name}.*); .*choose"
        assert re.search(refused, capsys.readouterr().err)
        assert Path(name).read_text() == "bag,remark\nb00,ask again\n"
        Path(name).unlink()
    assert main([command, str(made[1]), "none.csv", *options]) == 2
    assert "got none (in none.csv)" in capsys.readouterr().err


@pytest.mark.parametrize("words", [*OUTPUTS][1:])
def test_a_command_replaces_what_it_wrote_before(words, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *options = words.split()
    command = [command, str(made[1]), str(made[0]), *options]
    assert main(command) == 0
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wanted = OUTPUTS[words].replace("none", "bags").split()
    assert {name for name in wanted if "left-out" not in name} <= {*first}
    assert main(command) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_metrics_and_their_page_have_files_of_their_own(made, tmp_path, capsys):
    for out in ("report-bags.html", "."):
        assert main(["evaluate", str(made[1]), str(made[0]), "--out", str(tmp_path / out)]) == 2
        assert "Expected a file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_metrics_are_printed_where_their_file_cannot_be_written(made, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["evaluate", str(made[1]), str(made[0]), "--out", str(tmp_path / "file/e.json")]) == 2
    printed = capsys.readouterr()
    assert "train bags (no test: the model has seen them): AUROC" in printed.out
    assert "Expected a file that can be read or written" in printed.err


@pytest.mark.parametrize("kind", ["pipe", "null", "stdout"])
def test_a_device_as_output_is_written_to(kind, made, tmp_path, capfd):
    assert main(scoring(made, tmp_path / "whole.csv")) == 0
    capfd.readouterr()
    whole, found = (tmp_path / "whole.csv").read_text(), []
    out = {"pipe": tmp_path / "pipe", "null": "/dev/null", "stdout": "/dev/stdout"}[kind]
    if kind == "pipe":
        os.mkfifo(out)
        reader = threading.Thread(target=lambda: found.append(out.read_text()))
        reader.start()
    assert main(scoring(made, out)) == 0
    printed = capfd.readouterr()
    assert f"40 bags scored: {out}" in printed.err
    assert printed.out == (whole if kind == "stdout" else ""), "what reads the scores reads nothing else"
    if kind == "pipe":
        reader.join(30)
        assert found == [whole]
        assert out.is_fifo()
        out.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["whole.csv"]
    assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


def test_the_class_is_what_the_score_is_called_and_groups_are_named(made, tmp_path):
    data, run = made
    loaded = load_run(run)
    frame = pd.read_csv(data)
    frame["patient"] = "p" + (frame["bag"].str[1:].astype(int) // 2).astype(str)
    frame.to_csv(tmp_path / "own.csv", index=False)
    assert main(scoring((tmp_path / "own.csv", run), tmp_path / "p.csv", "--groups", "patient")) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["bag", "label", "score", "probability", "class", "positive", "group"]
    assert (found["class"] == (found["score"] >= loaded.threshold)).all()
    assert (found["group"] == "p" + (found["bag"].str[1:].astype(int) // 2).astype(str)).all()


def test_classes_go_by_the_names_of_the_labels():
    bags = Bags.from_list([[[1.0]], [[2.0]]])
    calibrator = PlattCalibrator.fit([0.1, 0.3, 0.6, 0.9], [0, 1, 0, 1])
    decision = BinaryDecision(calibrator=calibrator, threshold=0.5)
    text = predictions_text(bags, Binary(("benign", "malignant")), np.array([0.25, 0.5]), decision=decision)
    low, high = decision.predict([0.25, 0.5])
    assert text == (
        f"bag,score,probability,class,positive\n0,0.25,{low:.9g},benign,malignant\n1,0.5,{high:.9g},malignant,malignant\n"
    )
