"""Command lines in real processes, and small tables to run them on.

A server imports the command line once; each command is a fork of it, so that a test can afford many of them.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch

from midam.cli import main

PATIENCE = 120.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["midam.cli", "midam.explain.run", "midam.runs.fit", "midam.compare"])


def start(*arguments: str, log: Path, file_limit: int | None = None) -> BaseProcess:
    """Start a command; its output goes to `log`, and no file may grow beyond `file_limit` bytes."""
    process = _CONTEXT.Process(target=_run, args=(arguments, str(log), file_limit))
    process.start()
    return process


def finish(process: BaseProcess) -> int:
    """Wait for a command; returns its exit code."""
    process.join(PATIENCE)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError("the command did not end")
    process.close()
    return code


def stop_after(process: BaseProcess, metrics: Path, *, epochs: int, delay: float, signal_number: int) -> int:
    """Send a signal a while after so many epochs are in `metrics`; returns the exit code."""
    deadline = time.monotonic() + PATIENCE
    while rows(metrics) < epochs and process.is_alive():
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError("no epoch came to an end")
        time.sleep(0.002)
    time.sleep(delay)
    os.kill(process.pid, signal_number)
    return finish(process)


def rows(metrics: Path) -> int:
    """Epochs in metrics.csv."""
    return max(0, metrics.read_text().count("\n") - 1) if metrics.exists() else 0


def table(path: Path | str, **changes: Sequence[object]) -> Path:
    """Write a CSV of 40 bags with 3 instances of the features f0 to f3; `changes` are further columns, by bag."""
    rng = np.random.default_rng(5)
    columns = ["bag", "label", *changes, "f0", "f1", "f2", "f3"]
    lines = [",".join(columns)]
    for bag in range(40):
        label = bag % 2
        for instance in range(3):
            features = rng.normal(size=4) + (2.0 * label if instance == 0 else 0.0)
            further = [str(values[bag]) for values in changes.values()]
            lines.append(",".join([f"b{bag:02d}", str(label), *further, *(f"{value:.6f}" for value in features)]))
    path = Path(path)
    path.write_text("\n".join(lines) + "\n")
    return path


def _run(arguments: tuple[str, ...], log: str, file_limit: int | None) -> None:
    torch.set_num_threads(1)
    # Tests that run in the background of a shell inherit an ignored SIGINT; a command at a prompt does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.exit(main(list(arguments)))
