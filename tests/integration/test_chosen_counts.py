"""Runs whose counts are left open: chosen once, written down, and followed ever after."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.integration.commands import Moment, rows, start, stop
from tests.integration.test_resume import assert_same_run

from midam.cli import main
from midam.data.bags import Bags
from midam.data.sources.npz import write_npz
from midam.runs.fit import resume_run
from midam.runs.folder import RunFolder
from midam.settings import read_yaml

OPEN = ["--num-instances", "auto", "--num-positive", "auto", "--num-negative", "auto"]
COUNTS = ("num_positive", "num_negative", "num_instances")
EPOCHS = 8


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
    always = ["--epochs", str(EPOCHS), "--members", "1", "--hidden", "[]", "--test-fraction", "0.2"]
    return ["fit", str(data), *always, *words, "--out", str(run)]


def counts(run: Path) -> tuple[int, ...]:
    values = read_yaml(run / "config.yaml")
    assert values["memory_budget"] is None
    return tuple(values[name] for name in COUNTS)


@pytest.fixture(scope="module")
def whole(ragged, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(fit(ragged, run, *OPEN, "--memory-budget", "0.0003")) == 0
    return run


def test_a_run_says_what_was_chosen_and_writes_numbers(ragged, whole, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(fit(ragged, run, *OPEN, "--memory-budget", "0.0003")) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "bags per step" in line]
    assert len(told) == 1
    assert told[0].startswith("note: ")
    assert told[0].endswith(" of 322123 bytes")
    found = counts(run)
    assert found == counts(whole)
    assert found == (2, 2, 8)
    chosen = json.loads((run / "summary.json").read_text())["chosen"]
    assert tuple(chosen[name] for name in COUNTS) == found
    line = (run / "config.yaml").read_text().splitlines()[0]
    assert line == f"# chosen: {chosen['note']}"
    assert chosen["note"].startswith(
        f"{found[2]} instances of a bag and {found[0]} + {found[1]} bags per step: bags hold "
    )


def test_numbers_that_the_user_gave_leave_no_note(ragged, tmp_path, capsys):
    assert main(fit(ragged, tmp_path / "run", "--num-instances", "4", "--epochs", "1")) == 0
    assert "bags per step" not in capsys.readouterr().err
    assert (tmp_path / "run/config.yaml").read_text().startswith("data: ")
    assert "chosen" not in json.loads((tmp_path / "run/summary.json").read_text())


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_run_resumes_to_the_same_bits(ragged, whole, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    moment = Moment(run / "metrics.csv", 3, delay=0.01)
    process = start(*fit(ragged, run, *OPEN, "--memory-budget", "0.0003"), log=log, wait_at=moment)
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
    config.write_text("num_instances: auto\nmemory_budget: 1\nepochs: 1\nmembers: 1\n")
    assert main(["fit", str(ragged), "--config", str(config), "--out", str(run)]) == 0
    assert counts(run) == (8, 8, 16)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--num-instances", "atuo"],
            "--num-instances as a whole number >= 1, or auto, got 'atuo'; did you mean 'auto'?",
        ),
        (["--num-positive", "0"], "Expected --num-positive >= 1, or auto, got 0;"),
        (["--num-negative", "2.5"], "--num-negative as a whole number >= 1, or auto, got 2.5;"),
        (["--memory-budget", "5"], "Expected --num-instances auto with --memory-budget, got 8;"),
        ([*OPEN, "--memory-budget", "0"], "Expected --memory-budget > 0, got 0.0;"),
    ],
)
def test_nonsense_is_refused(words, said, ragged, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(fit(ragged, run, *words)) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: single features")]
    assert len(error) == 1
    assert said in error[0]
    assert not run.exists()


_STEPS = """
import gc, json, re
import numpy as np
from pathlib import Path
from midam.data.bags import Bags
from midam.settings import Settings
from midam.train.batch_size import measure_step
from midam.train.trainer import Trainer

rng, status = np.random.default_rng(0), Path("/proc/self/status")

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) * 1024

def tried(shape, **settings):
    bags = Bags.from_list([rng.normal(size=(8, *shape)).astype(np.float32) for _ in range(16)], np.arange(16) % 2)
    config = Settings(members=1, threads=1, **settings).resolve(shape)
    trainer = Trainer(config, bags)
    weights, instance = measure_step(config, shape, device=trainer.fabric.device, fabric=trainer.fabric)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    trainer.train_epoch()
    return peak() - before, weights + 16 * 8 * instance

found = [tried((3, 16, 16)), tried((3, 32, 32), checkpointing=True), tried((1, 8, 12, 12))]
found.append(tried((256,), hidden=[2048]))
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is read as on Linux")
def test_a_step_takes_the_memory_that_was_foreseen():
    # Memory that was given back is gone at once, whatever the allocator would keep.
    quick = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", _STEPS], env={**os.environ, **quick}, check=True, capture_output=True, text=True
    )
    for taken, foreseen in json.loads(done.stdout.splitlines()[-1]):
        assert 0.6 * taken < foreseen < 2 * taken
