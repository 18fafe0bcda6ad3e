"""What POSIX alone has is not needed: a run is trained, applied and explained without it."""

import subprocess
import sys

import pytest
from tests.integration.commands import table

POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "syslog")
CALLS = ("posix_fallocate", "posix_fadvise", "preadv", "pread", "O_CLOEXEC", "fork", "sched_getaffinity")
WITHOUT = f"""
import os, sys
for name in {CALLS}:
    if hasattr(os, name):
        delattr(os, name)
for name in {POSIX}:
    sys.modules[name] = None
"""


def run(code: str, folder) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT + code], check=True, cwd=folder)


def test_what_is_blocked_cannot_be_had(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        run("import fcntl", tmp_path)


@pytest.mark.long
def test_a_run_needs_nothing_of_posix(tmp_path):
    pytest.importorskip("h5py")
    table(tmp_path / "bags.csv")
    commands = [
        ["fit", "bags.csv", "--epochs", "1", "--members", "1", "--out", "run"],
        ["data", "import", "bags.csv", "--out", "store"],
        ["predict", "run", "store", "--out", "p.csv", "--instances", "instances"],
        ["evaluate", "run", "bags.csv"],
        ["explain", "run", "bags.csv", "--bags", "b01", "--out", "why"],
    ]
    run(f"from midam.cli import main\nfor words in {commands}:\n    assert main(words) == 0, words", tmp_path)
    assert len(list((tmp_path / "instances").iterdir())) == 40
