"""Runs whose counts are left open: chosen once, written down, and followed ever after."""

import signal
from pathlib import Path

import numpy as np
import pytest
from tests.integration.commands import Moment, rows, start, stop
from tests.integration.test_resume import assert_same_run

from midam.cli import main
from midam.data.bags import Bags
from midam.runs.fit import resume_run
from midam.runs.folder import RunFolder
from midam.settings import read_yaml
from studies.sets.npz import write_npz

OPEN = ["--num-instances", "auto", "--num-positive", "auto", "--num-negative", "auto"]
COUNTS = ("num_positive", "num_negative", "num_instances")
EPOCHS = 5


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Bags of 1 to 300 instances, 6 of 60 positive, of which some stand in each split."""
    path, rng = tmp_path_factory.mktemp("ragged") / "bags.npz", np.random.default_rng(0)
    sizes = np.linspace(1, 300, 60).round().astype(int)
    labels = (np.arange(60) % 4 == 0).astype(int)
    parts = [rng.normal(size=(size, 100)).astype(np.float32) + label for size, label in zip(sizes, labels)]
    write_npz(Bags.from_list(parts, labels), path)
    return path


def fit(data: Path, run: Path, *words: str) -> list[str]:
    always = ["--epochs", str(EPOCHS), "--members", "1", "--hidden", "[]", "--test-fraction", "0.2", "--no-baseline"]
    return ["fit", str(data), *always, *words, "--out", str(run)]


def counts(run: Path) -> tuple[int, ...]:
    values = read_yaml(run / "config.yaml")
    return tuple(values[name] for name in COUNTS)


@pytest.fixture(scope="module")
def whole(ragged, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(fit(ragged, run, *OPEN)) == 0
    return run


def test_a_run_writes_numbers(whole):
    assert counts(whole) == (8, 8, 16)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_bits(ragged, whole, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    moment = Moment(run / "metrics.csv", 3, delay=0.01)
    process = start(*fit(ragged, run, *OPEN), log=log, wait_at=moment)
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    assert 3 <= rows(run / "metrics.csv") < EPOCHS
    assert main(["fit", "--resume", str(run)]) == 0
    assert_same_run(run, whole)


@pytest.mark.filterwarnings("ignore:single features rank")
def test_a_run_that_had_no_checkpoint_yet_keeps_what_was_chosen(ragged, whole, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_bytes((whole / "config.yaml").read_bytes())
    with pytest.warns(UserWarning, match="starts again"):
        resume_run(None, RunFolder(run))
    assert_same_run(run, whole)


def test_settings_of_a_file_may_leave_counts_open(ragged, tmp_path):
    config, run = tmp_path / "c.yaml", tmp_path / "run"
    config.write_text("num_instances: auto\nepochs: 1\nmembers: 1\nbaseline: false\nfolds: 0\n")
    assert main(["fit", str(ragged), "--config", str(config), "--out", str(run)]) == 0
    assert counts(run) == (8, 8, 16)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--num-instances", "atuo"],
            "--num-instances, got 'atuo': input should be 'auto'",
        ),
        (["--num-positive", "0"], "Expected a valid --num-positive, got 0: "),
        (["--num-negative", "2.5"], "--num-negative, got 2.5: input should be a valid integer"),
    ],
)
def test_nonsense_is_refused(words, said, ragged, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(fit(ragged, run, *words)) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: single features")]
    assert len(error) == 1
    assert said in error[0]
    assert not run.exists()
