"""Each example for a loop of one's own runs as its first lines say, in a process of its own, and learns."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *words: str, start: tuple[str, ...] = (), cwd: Path | None = None) -> str:
    """Run an example; returns what it prints."""
    command = [sys.executable, *start, str(EXAMPLES / name), *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def auroc(printed: str) -> float:
    """The last test AUROC of a text."""
    return float(re.findall(r"test AUROC (\d\.\d+)", printed)[-1])


@pytest.mark.slow
def test_plain_torch(tmp_path):
    assert auroc(run("torch_loop.py", cwd=tmp_path)) > 0.9
