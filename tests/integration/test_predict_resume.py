"""A prediction that is stopped goes on where it was, and ends with the very file of one that was not."""

import os
import signal
import stat
import threading

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import Moment, fitted, start, stop, stop_at

import midam.runs.instance_files
import midam.runs.scoring
from midam.cli import main
from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.calibrate import BinaryDecision, PlattCalibrator
from midam.runs.loaded import load_run
from midam.runs.results import predictions_text
from midam.runs.scoring import journal_of
from midam.targets.binary import Binary


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose bags are scored 16 at a time, and its data."""
    return fitted(tmp_path_factory.mktemp("stopped"), "--epochs", "2", "--members", "1", "--chunk-size", "3")


def command(made, out, *words):
    data, run = made
    return ["predict", str(run), str(data), "--out", str(out), *map(str, words)]


def lines_of(journal):
    return journal.read_bytes().count(b"\n")


def test_a_stopped_prediction_goes_on(made, tmp_path, monkeypatch, capsys):
    assert main(command(made, tmp_path / "whole.csv")) == 0
    calls = stop_at(monkeypatch, midam.runs.scoring, "predict_each", 3)
    assert main(command(made, tmp_path / "p.csv")) == 130
    assert "p.csv.part holds 32 of 40 bags. The same command continues from there" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
    assert main(command(made, tmp_path / "p.csv")) == 0
    assert "holds the scores of 32 bags: continuing from there" in capsys.readouterr().err
    assert [len(bags) for _, bags in calls] == [16, 16, 8, 8]
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "whole.csv"]


def test_a_link_as_output_stays_and_its_file_is_written(made, tmp_path):
    target, link = tmp_path / "target.csv", tmp_path / "link.csv"
    target.write_text("bag,score\nold,0.5\n")
    link.symlink_to(target)
    assert main(command(made, link)) == 0
    assert main(command(made, tmp_path / "whole.csv")) == 0
    assert link.is_symlink()
    assert target.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "target.csv", "whole.csv"]


def test_a_file_that_holds_no_scores_is_not_written_over(made, tmp_path, capsys):
    notes, link = tmp_path / "notes.csv", tmp_path / "link.csv"
    notes.write_text("bag,remark\nb00,ask again\n")
    link.symlink_to(notes)
    for out in (notes, link):
        assert main(command(made, out)) == 2
        assert "Expected a new file or one of scores for --out" in capsys.readouterr().err
    assert notes.read_text() == "bag,remark\nb00,ask again\n"


@pytest.mark.parametrize("kind", ["pipe", "null", "stdout"])
def test_a_device_as_output_is_written_to(kind, made, tmp_path, capfd):
    assert main(command(made, tmp_path / "whole.csv")) == 0
    capfd.readouterr()
    whole, found = (tmp_path / "whole.csv").read_text(), []
    out = {"pipe": tmp_path / "pipe", "null": "/dev/null", "stdout": "/dev/stdout"}[kind]
    if kind == "pipe":
        os.mkfifo(out)
        reader = threading.Thread(target=lambda: found.append(out.read_text()))
        reader.start()
    assert main(command(made, out)) == 0
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
    assert main(command((tmp_path / "own.csv", run), tmp_path / "p.csv", "--groups", "patient")) == 0
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["bag", "label", "score", "probability", "class", "group"]
    assert (found["class"] == (found["score"] >= loaded.threshold)).all()
    assert (found["group"] == "p" + (found["bag"].str[1:].astype(int) // 2).astype(str)).all()


def test_classes_go_by_the_names_of_the_labels():
    bags = Bags.from_list([[[1.0]], [[2.0]]])
    calibrator = PlattCalibrator.fit([0.1, 0.3, 0.6, 0.9], [0, 1, 0, 1])
    decision = BinaryDecision(calibrator=calibrator, threshold=0.5)
    text = predictions_text(bags, Binary(("benign", "malignant")), np.array([0.25, 0.5]), decision=decision)
    low, high = decision.predict([0.25, 0.5])
    assert text == f"bag,score,probability,class\n0,0.25,{low:.9g},benign\n1,0.5,{high:.9g},malignant\n"


def test_stopped_before_its_first_bag_it_leaves_nothing(made, tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, midam.runs.scoring, "predict_each", 1)
    assert main(command(made, tmp_path / "p.csv")) == 130
    assert "midam: stopped\n" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_killed_prediction_goes_on(made, tmp_path):
    _, run = made
    bags = np.repeat(np.arange(1500), 3)
    x = np.random.default_rng(0).normal(size=(len(bags), 4))
    many = tmp_path / "many.npz"
    np.savez(many, X=x, bag=bags)
    assert main(command((many, run), tmp_path / "whole.csv")) == 0
    journal = tmp_path / "p.csv.part"
    process = start(*command((many, run), tmp_path / "p.csv"), log=tmp_path / "log", wait_at=Moment(journal, 1))
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    assert 0 < 16 * lines_of(journal) < 1500
    # As if the power had gone in the middle of a line.
    journal.write_bytes(journal.read_bytes()[:-5])
    assert main(command((many, run), tmp_path / "p.csv")) == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not journal.exists()


def test_a_bag_that_changed_meanwhile_is_refused(made, tmp_path, monkeypatch, capsys):
    data, run = made
    stop_at(monkeypatch, midam.runs.scoring, "predict_each", 3)
    own = tmp_path / "own.csv"
    frame = pd.read_csv(data)
    frame.to_csv(own, index=False)
    assert main(command((own, run), tmp_path / "p.csv")) == 130
    frame.loc[frame["bag"] == "b03", "f0"] += 5.0
    frame.to_csv(own, index=False)
    assert main(command((own, run), tmp_path / "p.csv")) == 2
    assert "Expected scores of the same run, options and bags" in capsys.readouterr().err
    (tmp_path / "p.csv.part").unlink()
    assert main(command((own, run), tmp_path / "p.csv")) == 0


@pytest.mark.parametrize("change", ["another run", "another option", "another score", "not ours"])
def test_scores_of_another_call_are_refused(change, made, tmp_path, monkeypatch, capsys):
    data, run = made
    stop_at(monkeypatch, midam.runs.scoring, "predict_each", 2)
    assert main(command(made, tmp_path / "p.csv")) == 130
    part, words = tmp_path / "p.csv.part", []
    if change == "another run":
        run = tmp_path / "other"
        fit = ["fit", str(data), "--epochs", "1", "--members", "1", "--chunk-size", "3", "--out", str(run)]
        assert main(fit) == 0
    elif change == "another option":
        words = ["--instances", tmp_path / "instances"]
    elif change == "another score":
        part.write_text(part.read_text().replace("0.", "0.1", 1))
    else:
        part.write_text("mine\n")
    before = part.read_bytes()
    assert main(command((data, run), tmp_path / "p.csv", *words)) == 2
    assert "Expected scores of the same run, options and bags" in capsys.readouterr().err
    assert part.read_bytes() == before
    assert not (tmp_path / "instances").exists()


def test_files_of_instances_that_are_done_are_left_alone(made, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    folder = tmp_path / "instances"
    words = command(made, tmp_path / "p.csv", "--instances", folder)
    calls = stop_at(monkeypatch, midam.runs.instance_files, "write_bag", 8)
    assert main(words) == 130
    done = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(done) == 7
    lost = folder / "b02.h5"
    lost.unlink()
    assert main(words) == 0
    assert len(calls) == 8 + 34
    assert len(list(folder.iterdir())) == 40
    assert all(path.stat().st_mtime_ns == at for path, at in done.items() if path != lost)
    assert main(command(made, tmp_path / "q.csv", "--instances", tmp_path / "others")) == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


def test_a_file_of_instances_that_is_not_ours_is_kept(made, tmp_path, monkeypatch, capsys):
    pytest.importorskip("h5py")
    folder = tmp_path / "instances"
    words = command(made, tmp_path / "p.csv", "--instances", folder)
    stop_at(monkeypatch, midam.runs.instance_files, "write_bag", 3)
    assert main(words) == 130
    (folder / "b30.h5").write_text("mine")
    assert main(words) == 2
    assert "got 1 of them" in capsys.readouterr().err
    assert (folder / "b30.h5").read_text() == "mine"


def test_two_predictions_do_not_write_one_file(made, tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, midam.runs.scoring, "predict_each", 2)
    assert main(command(made, tmp_path / "p.csv")) == 130
    part = tmp_path / "p.csv.part"
    before = part.read_bytes()
    with journal_of(tmp_path / "p.csv"):
        assert main(command(made, tmp_path / "p.csv")) == 2
        assert "got one that is running" in capsys.readouterr().err
        assert part.read_bytes() == before
    assert main(command(made, tmp_path / "p.csv")) == 0


def test_rows_are_held_before_the_first(tmp_path):
    path = tmp_path / "j.csv.part"
    with journal_of(tmp_path / "j.csv"):
        assert path.exists()
        with pytest.raises(ConfigError, match="got one that is running"), journal_of(tmp_path / "j.csv"):
            pass
    assert not path.exists(), "nothing was scored"
