"""Each example for a loop of one's own runs as its first lines say, in a process of its own, and learns."""

import importlib.util
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.integration.commands import finish, fork

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *words: str, start: tuple[str, ...] = (), cwd: Path | None = None, **environment: str) -> str:
    """Run an example; returns what it prints."""
    command = [sys.executable, *start, str(EXAMPLES / name), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_warm(name: str, *words: str, cwd: Path, count: int = 1) -> str:
    """Run an example in so many processes that have imported torch and midam; returns what they print."""
    log, group = cwd / "log", meeting_point() | {"WORLD_SIZE": str(count)}
    log.unlink(missing_ok=True)
    kids = [fork(execute, EXAMPLES / name, words, cwd, log=log, RANK=str(rank), **group) for rank in range(count)]
    assert [finish(kid) for kid in kids] == [0] * count, log.read_text()
    return log.read_text()


def execute(path: Path, words: tuple[str, ...], cwd: Path) -> None:
    """Be the program of a file."""
    sys.argv, sys.path[:0] = [str(path), *words], [str(path.parent)]
    os.chdir(cwd)
    runpy.run_path(str(path), run_name="__main__")


def meeting_point() -> dict[str, str]:
    """Where the processes of one run meet: a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}


def auroc(printed: str) -> float:
    """The last test AUROC of a text."""
    return float(re.findall(r"test AUROC (\d\.\d+)", printed)[-1])


@pytest.mark.slow
@pytest.mark.long  # the loop of `docs/own-loop.md` is run by a shorter test
def test_plain_torch(tmp_path):
    assert auroc(run_warm("torch_loop.py", cwd=tmp_path)) > 0.9


@pytest.mark.slow
@pytest.mark.long  # `test_modules_processes.py` compares two processes with one
@pytest.mark.parametrize("torchrun", [False, True])
def test_two_processes_with_a_checkpoint(torchrun, tmp_path):
    assert "continues" not in run_warm("torch_ddp.py", "--epochs", "1", cwd=tmp_path)
    if torchrun:
        start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")  # finds a free port
        both = run("torch_ddp.py", "--epochs", "5", start=start, cwd=tmp_path)
    else:
        both = run_warm("torch_ddp.py", "--epochs", "5", cwd=tmp_path, count=2)
    assert both.count("of 2 continues after epoch 1") == 2
    assert auroc(both) > 0.8
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert state["pool"]["bag_state"][:, 0].sum() == 5 * 13 * 16  # of all bags, whichever process has seen them


def needs(package: str) -> None:
    """Skip without a package; nothing of it is imported here."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make test-examples` runs this in an environment that has it")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_lightning_trains_saves_and_resumes(strategy, tmp_path):
    needs("lightning")
    words = ["--accelerator", "cpu", "--strategy", strategy, "--devices", "2" if strategy == "ddp" else "1"]
    first = run("lightning_trainer.py", "--epochs", "3", *words, cwd=tmp_path)
    assert "continues from" not in first
    assert f"after {3 * 13 * 16} visits of training bags" in first
    second = run("lightning_trainer.py", "--epochs", "6", *words, cwd=tmp_path)
    assert "continues from" in second
    assert f"after {6 * 13 * 16} visits of training bags" in second
    assert auroc(second) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate(processes, tmp_path):
    needs("accelerate")
    start = ("-m", "accelerate.commands.launch", "--num_processes", str(processes), "--cpu") if processes > 1 else ()
    printed = run("accelerate_loop.py", "--cpu", start=start, cwd=tmp_path)
    assert "the state holds 200 training bags" in printed
    assert auroc(printed) > 0.9


@pytest.mark.slow
def test_monai(tmp_path):
    needs("monai")
    assert auroc(run("monai_volumes.py", "--epochs", "6", cwd=tmp_path)) > 0.8


@pytest.mark.slow
@pytest.mark.timm
def test_timm(tmp_path):
    needs("torchvision")
    assert auroc(run("timm_finetuning.py", "--epochs", "8", cwd=tmp_path)) > 0.8
