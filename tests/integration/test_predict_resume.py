"""A prediction that is stopped goes on where it was, and ends with the very file of one that was not."""

import signal

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import Moment, fitted, scoring, start, stop, stop_at

import midam.runs.instance_files
import midam.runs.kept_scores
from midam.cli import main
from midam.errors import ConfigError
from midam.runs.kept_scores import journal_of


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose bags are scored 16 at a time, and its data."""
    return fitted(tmp_path_factory.mktemp("stopped"), "--epochs", "2", "--members", "1", "--chunk-size", "3")


def lines_of(journal):
    return journal.read_bytes().count(b"\n")


def test_a_stopped_prediction_goes_on(made, tmp_path, monkeypatch, capsys):
    assert main(scoring(made, tmp_path / "whole.csv")) == 0
    calls = stop_at(monkeypatch, midam.runs.kept_scores, "predict", 3)
    assert main(scoring(made, tmp_path / "p.csv")) == 130
    assert "p.csv.part holds 32 of 40 bags. The same command continues from there" in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()
    assert main(scoring(made, tmp_path / "p.csv")) == 0
    assert "holds the scores of 32 bags: continuing there" in capsys.readouterr().err
    assert [len(bags) for _, bags, *_ in calls] == [16, 16, 8, 8]
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "whole.csv"]


def test_stopped_before_its_first_bag_it_leaves_nothing(made, tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, midam.runs.kept_scores, "predict", 1)
    assert main(scoring(made, tmp_path / "p.csv")) == 130
    assert "midam: stopped\n" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_killed_prediction_goes_on(made, tmp_path):
    _, run = made
    bags = np.repeat(np.arange(480), 3)
    x = np.random.default_rng(0).normal(size=(len(bags), 4))
    many = tmp_path / "many.npz"
    np.savez(many, X=x, bag=bags)
    assert main(scoring((many, run), tmp_path / "whole.csv")) == 0
    journal = tmp_path / "p.csv.part"
    process = start(*scoring((many, run), tmp_path / "p.csv"), log=tmp_path / "log", wait_at=Moment(journal, 1))
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    assert 0 < 16 * lines_of(journal) < 480
    # As if the power had gone in the middle of a line.
    journal.write_bytes(journal.read_bytes()[:-5])
    assert main(scoring((many, run), tmp_path / "p.csv")) == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not journal.exists()


def test_a_bag_that_changed_meanwhile_is_refused(made, tmp_path, monkeypatch, capsys):
    data, run = made
    stop_at(monkeypatch, midam.runs.kept_scores, "predict", 3)
    own = tmp_path / "own.csv"
    frame = pd.read_csv(data)
    frame.to_csv(own, index=False)
    assert main(scoring((own, run), tmp_path / "p.csv")) == 130
    frame.loc[frame["bag"] == "b03", "f0"] += 5.0
    frame.to_csv(own, index=False)
    assert main(scoring((own, run), tmp_path / "p.csv")) == 2
    assert "Expected scores of the same run, options and bags" in capsys.readouterr().err
    (tmp_path / "p.csv.part").unlink()
    assert main(scoring((own, run), tmp_path / "p.csv")) == 0


@pytest.mark.parametrize("change", ["another run", "another option", "another score", "not ours"])
def test_scores_of_another_call_are_refused(change, made, tmp_path, monkeypatch, capsys):
    data, run = made
    stop_at(monkeypatch, midam.runs.kept_scores, "predict", 2)
    assert main(scoring(made, tmp_path / "p.csv")) == 130
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
    assert main(scoring((data, run), tmp_path / "p.csv", *words)) == 2
    assert "Expected scores of the same run, options and bags" in capsys.readouterr().err
    assert part.read_bytes() == before
    assert not (tmp_path / "instances").exists()


def test_files_of_instances_that_are_done_are_left_alone(made, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    folder = tmp_path / "instances"
    words = scoring(made, tmp_path / "p.csv", "--instances", folder)
    calls = stop_at(monkeypatch, midam.runs.instance_files, "write_bag", 8)
    assert main(words) == 130
    done = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(done) == 7
    lost = folder / "b02.h5"
    lost.unlink()
    # The row of a bag is on the disk before its file has its name.
    assert lines_of(tmp_path / "p.csv.part") == 7
    assert main(words) == 0
    assert len(calls) == 8 + 34
    assert len(list(folder.iterdir())) == 40
    assert all(path.stat().st_mtime_ns == at for path, at in done.items() if path != lost)
    assert main(scoring(made, tmp_path / "q.csv", "--instances", tmp_path / "others")) == 0
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


def test_a_file_of_instances_that_is_not_ours_is_kept(made, tmp_path, monkeypatch, capsys):
    pytest.importorskip("h5py")
    folder = tmp_path / "instances"
    words = scoring(made, tmp_path / "p.csv", "--instances", folder)
    stop_at(monkeypatch, midam.runs.instance_files, "write_bag", 3)
    assert main(words) == 130
    (folder / "b30.h5").write_text("mine")
    assert main(words) == 2
    assert "got 1 of them" in capsys.readouterr().err
    assert (folder / "b30.h5").read_text() == "mine"


def test_two_predictions_do_not_write_one_file(made, tmp_path, monkeypatch, capsys):
    stop_at(monkeypatch, midam.runs.kept_scores, "predict", 2)
    assert main(scoring(made, tmp_path / "p.csv")) == 130
    part = tmp_path / "p.csv.part"
    before = part.read_bytes()
    with journal_of(tmp_path / "p.csv"):
        assert main(scoring(made, tmp_path / "p.csv")) == 2
        assert "got one that is running" in capsys.readouterr().err
        assert part.read_bytes() == before
    assert main(scoring(made, tmp_path / "p.csv")) == 0


def test_rows_are_held_before_the_first(tmp_path):
    path = tmp_path / "j.csv.part"

    def fail():
        with journal_of(tmp_path / "j.csv"):
            assert path.exists()
            with pytest.raises(ConfigError, match="got one that is running"), journal_of(tmp_path / "j.csv"):
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not path.exists(), "nothing was scored"


def test_scores_are_kept_until_the_list_is_written(made, tmp_path):
    (tmp_path / "p.why.html").mkdir()
    assert main(scoring(made, tmp_path / "p.csv", "--why")) != 0
    assert lines_of(tmp_path / "p.csv.part") == 3
    (tmp_path / "p.why.html").rmdir()
    assert main(scoring(made, tmp_path / "p.csv", "--why")) == 0
    assert not (tmp_path / "p.csv.part").exists()
