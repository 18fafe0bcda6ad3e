"""Several processes that train one model, on the CPU: what they give, how they go on, and what a lost one does."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import product

import numpy as np
import pytest
import torch
from tests.fuzz.endings import WAYS, end_often
from tests.fuzz.lost_ranks import lose_processes
from tests.ranked import launch, train

from midam.cli import main
from midam.errors import ConfigError
from midam.process_group import Ranks

POOLINGS = ("attention", "embedding-attention", "smoothed-max", "mean", "max")
CASES = [
    *(
        {"pooling": p, "estimator": e}
        for p, e in product(POOLINGS, ("vrsp", "minibatch", "exact"))
        if (p, e) != ("max", "vrsp")
    ),
    {"estimator": "exact", "chunk_size": 4},
    {"objective": "pairwise", "num_positive": 1, "num_negative": 2},
    {"objective": "partial-auc"},
    {"bags": "multiclass", "objective": "auto"},
    {"bags": "multilabel", "objective": "auto"},
    {"bags": "survival", "objective": "cox"},
    {"optimizer": "adam"},
]
FIT = ["fit", "digits", "--members", "1", "--no-baseline", "--threads", "1"]


def midam(*words, **options):
    """Start a command of midam, with both of its streams in one pipe."""
    command = [sys.executable, "-m", "midam.cli", *words]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, **streams, env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def done(*words, **options):
    """Run a command to its end; returns its exit code and what it said."""
    process = midam(*words, **options)
    said = process.communicate(timeout=300)[0]
    return process.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "every"), [(2, 5), pytest.param(2, 1, marks=pytest.mark.long), pytest.param(3, 4, marks=pytest.mark.long)]
)
def test_several_processes_train_what_one_does(tmp_path, count, every):
    cases = CASES[::every]
    alone = [train(case, None) for case in cases]
    for case, one, several in zip(cases, alone, launch(cases, tmp_path, count), strict=True):
        assert one.keys() == several.keys()
        for name, value in one.items():
            np.testing.assert_allclose(several[name], value, rtol=1e-9, atol=1e-9, err_msg=f"{case} {name}")
    # All of it moved: what does not train is the same however many train it.
    assert all(np.ptp([one[f"loss-{epoch}"] for epoch in range(3)]) > 1e-4 for one in alone)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of one process that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main([*FIT, "--epochs", "24", "--out", str(run)]) == 0
    return run


@pytest.mark.slow
@pytest.mark.long
def test_a_run_of_two_processes_loses_one_and_goes_on_with_one_and_with_three(whole, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    process = midam(*FIT, "--epochs", "24", "--out", str(run), "--devices", "2")
    wait_for_epochs(run, 3)
    (child,) = children_of(process.pid)
    os.kill(int(child), signal.SIGKILL)
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 3
    assert "on digits in 2 processes" in said
    assert "lost one of 2 processes" in said
    assert "holds what was finished. Continue with" in said
    shutil.copytree(run, other)
    assert main(["fit", "--resume", str(run)]) == 0
    code, said = done("fit", "--resume", str(other), "--devices", "3")
    assert code == 0, said
    assert said.count("epoch 24/24") == 1
    for name in ("metrics.csv", "predictions.csv"):
        rows = [np.genfromtxt(folder / name, delimiter=",", skip_header=1)[:, -3:] for folder in (whole, run, other)]
        np.testing.assert_allclose(rows[1], rows[0], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(rows[2], rows[0], rtol=1e-3, atol=1e-4)
    seconds = json.loads((other / "summary.json").read_text())["seconds"]
    assert 0 < seconds["exchanges"] < seconds["training"]


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_process_ends_the_others_and_the_run_goes_on(tmp_path):
    found = lose_processes(tmp_path, 2, seed=3)
    assert found.kills == {0: 1, 1: 1}
    assert not found.faults, found.said


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("devices", "busy"), [(2, 0), (3, 1)])
def test_groups_end_in_every_way_without_an_abort(tmp_path, devices, busy):
    found = end_often(tmp_path, len(WAYS), seed=1, devices=devices, busy=busy)
    assert found.ways.total() == len(WAYS)
    assert not found.faults, found.said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--devices", "0"], "Expected --devices as a whole number of at least 1, got 0"),
        (["--devices", "2", "--method", "bag-statistics-extratrees"], "a method that is trained step by step"),
    ],
)
def test_what_cannot_be_started_is_said(words, said, tmp_path, capsys):
    assert main(["fit", "digits", *words, "--out", str(tmp_path / "run")]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_batch_holds_a_bag_for_each_process():
    ranks = Ranks(0, 3, torch.device("cpu"))
    ranks.check_batch(3)
    with pytest.raises(ConfigError, match="at least 3 bags per batch, one per process, got 2"):
        ranks.check_batch(2)


@pytest.mark.slow
@pytest.mark.long
def test_torchrun_starts_the_processes_and_starts_them_anew_where_one_dies(whole, tmp_path):
    run, start = tmp_path / "run", ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    words = [sys.executable, "-m", "torch.distributed.run", *start, "-m", "midam.cli", *FIT]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen([*words, "--epochs", "24", "--out", str(run)], **how)
    wait_for_epochs(run, 3)
    os.kill(int(children_of(process.pid)[-1]), signal.SIGKILL)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    assert said.count("training attention x vrsp x minmax-auc on digits in 2 processes") == 1
    rows = [np.genfromtxt(folder / "metrics.csv", delimiter=",", skip_header=1) for folder in (whole, run)]
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-3, atol=1e-4)


def wait_for_epochs(run, count):
    """Wait until so many epochs stand in the table of a run."""
    deadline = time.monotonic() + 120
    table = run / "metrics.csv"
    while not table.exists() or len(table.read_text().splitlines()) <= count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children_of(pid):
    """Processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        return listed.read().split()
