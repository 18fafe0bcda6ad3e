"""Two commands never write one run; one that was killed as it began is begun again; nothing of a kill stays."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.commands import PATIENCE, finish, fitted, rows, session, start, table

import midam
from midam.cli import main
from midam.compare import repeated_folds, run_comparison
from midam.data.sources import read_bags
from midam.runs.folder import RunFolder

PARTIAL = ".config.yaml.0123456789abcdef.midam-partial"

_FIT = ("--epochs", "2", "--members", "1", "--num-instances", "2", "--no-baseline")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, and its data."""
    return fitted(tmp_path_factory.mktemp("whole"), *_FIT)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_is_trained_is_left_to_its_process(resumed, tmp_path, capsys):
    data, run, log = table(tmp_path / "bags.csv"), tmp_path / "run", tmp_path / "log"
    process = start("fit", str(data), "--epochs", "100000", "--out", str(run), log=log)
    deadline = time.monotonic() + PATIENCE
    while rows(run / "metrics.csv") < 1 and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    words = ["--resume", str(run)] if resumed else ["--out", str(run)]
    assert main(["fit", str(data), *words]) == 2
    error = capsys.readouterr().err
    if resumed:
        assert f"no other `midam fit` that writes to {run}, got one that is running; wait for its end" in error
    else:
        assert "which holds a run" in error
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process) == 130
    assert ".lock" not in files(run)


def test_two_runs_at_once_into_one_folder(tmp_path, capsys):
    data, folder = table(tmp_path / "bags.csv"), RunFolder(tmp_path / "new" / "run")
    with folder.held():
        assert main(["fit", str(data), *_FIT, "--out", str(folder.root)]) == 2
        error = capsys.readouterr().err
        assert "got one that is running; wait for its end, or choose another folder." in error
        assert files(folder.root) == [".lock"]
    assert [path.name for path in tmp_path.iterdir()] == ["bags.csv"], "an empty folder that was made is removed"


@pytest.mark.parametrize("left", [[".lock"], [".lock", PARTIAL]])
def test_killed_before_its_settings_were_written_the_command_is_given_again(left, whole, tmp_path, capsys):
    data, done = whole
    run = tmp_path / "run"
    run.mkdir()
    for name in left:
        (run / name).write_text("")
    assert main(["fit", "--resume", str(run)]) == 2
    advice = f"got nothing in {run}; start it with `midam fit DATA --out {run}`"
    assert advice in capsys.readouterr().err
    assert main(["fit", str(data), *_FIT, "--out", str(run)]) == 0
    assert files(run) == files(done)


def test_a_folder_that_does_not_exist_is_not_taken_for_another_run(whole, tmp_path, capsys, monkeypatch):
    shutil.copytree(whole[1], tmp_path / "kref")
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--resume", "kr"]) == 2
    error = capsys.readouterr().err
    assert "got nothing in kr" in error
    assert list((tmp_path / "kref").iterdir())
    assert not (tmp_path / "kr").exists()


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", f"checkpoints/{PARTIAL}"]])
def test_killed_before_its_first_checkpoint_a_run_begins_anew(left, whole, tmp_path, capsys):
    data, done = whole
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in left:
        (run / name).write_text("")
    (run / "config.yaml").write_bytes((done / "config.yaml").read_bytes())
    assert main(["fit", str(data), *_FIT, "--out", str(run)]) == 2
    error = capsys.readouterr().err
    assert "which holds a run; choose another folder, remove it, or continue with" in error
    assert f"`midam fit --resume {run}`" in error
    assert main(["fit", "--resume", str(run)]) == 0
    assert f"warning: {run} was stopped before its end: it starts again" in capsys.readouterr().err
    assert files(run) == files(done)
    for name in ("predictions.csv", "metrics.csv", "config.yaml"):
        assert (run / name).read_bytes() == (done / name).read_bytes()


def test_a_run_that_is_resumed_elsewhere_says_how(whole, tmp_path, capsys, monkeypatch):
    data, done = whole
    run = tmp_path / "run"
    shutil.copytree(done, run)
    config = run / "config.yaml"
    written = config.read_text()
    config.write_text(written.replace(str(data), data.name))
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--resume", "run"]) == 2
    error = capsys.readouterr().err
    assert f"got none (in {data.name})" in error
    assert "Resume where the run was started, or name moved data: `midam fit DATA --resume run`." in error
    assert main(["fit", str(data), "--resume", "run"]) == 0
    before = files(run)
    config.write_text(written + "method: auto\n")
    assert main(["fit", "--resume", "run"]) == 2
    assert "got a different method" in capsys.readouterr().err
    assert files(run) == before


def test_a_finished_run_without_its_checkpoints_is_kept(whole, tmp_path, capsys):
    _, done = whole
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.yaml", "model.pt"):
        (run / name).write_bytes((done / name).read_bytes())
    assert main(["fit", "--resume", str(run)]) == 2
    assert "Expected a checkpoint, got nothing" in capsys.readouterr().err
    assert files(run) == ["config.yaml", "model.pt"]


def test_a_comparison_that_was_killed_as_it_began_goes_on(tmp_path):
    data, out = table(tmp_path / "bags.csv"), tmp_path / "out"
    out.mkdir()
    left = [out / "trials.jsonl.lock", out / PARTIAL]
    for path in left:
        path.write_text("")
    bags, methods = read_bags(data), ["bag-statistics-logistic", "mean-map-svm"]
    run_comparison(bags, methods, repeated_folds(bags, repeats=1, folds=2), out=out)
    assert not [path for path in left if path.exists()]


COMPARE = """
from midam import read_bags
from midam.compare import Workers, repeated_folds, run_comparison
from midam.settings import Settings
bags = read_bags({data!r})
how = dict(settings=Settings(epochs=300), workers=Workers(jobs=2), out={out!r})
run_comparison(bags, ["midam-att", "midam-smx"], repeated_folds(bags, repeats=4, folds=2), **how)
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_workers_of_a_killed_comparison_end(tmp_path):
    data, out = table(tmp_path / "bags.csv"), tmp_path / "out"
    command = [sys.executable, "-c", COMPARE.format(data=str(data), out=str(out))]
    path = os.pathsep.join([str(Path(midam.__file__).parents[1]), str(Path(__file__).parents[2])])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    null = subprocess.DEVNULL
    parent = subprocess.Popen(command, env=environment, stdout=null, stderr=null, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and parent.poll() is None:
        if sum("loky" in line for line in session(parent.pid).values()) >= 2:
            break
        time.sleep(0.05)
    assert parent.poll() is None
    parent.kill()
    parent.wait()
    while time.monotonic() < deadline and session(parent.pid):
        time.sleep(0.1)
    assert session(parent.pid) == {}
    assert {path.name for path in tmp_path.iterdir()} == {"bags.csv", "out"}
