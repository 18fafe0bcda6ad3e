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
from typing import Any

import numpy as np
import pytest
import torch

from midam.cli import main
from midam.report.terminal import BagProgress

PATIENCE = 120.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("midam.cli", "midam.explain.run", "midam.runs.report", "midam.runs.loggers", "midam.train.trainer"),
        *("midam.compare", "torch._dynamo", "scipy.stats", "sklearn.ensemble"),
    ]
)


def start(*arguments: str, log: Path, file_limit: int | None = None, pause_s: float = 0.0) -> BaseProcess:
    """Start a command; its output goes to `log`, and no file may grow beyond `file_limit` bytes.

    It pauses after each bag that it is done with, so that a signal finds it at work on a busy machine too.
    """
    process = _CONTEXT.Process(target=_run, args=(arguments, str(log), file_limit, pause_s))
    process.start()
    return process


def finish(process: BaseProcess, *, patience: float = PATIENCE) -> int:
    """Wait for a command; returns its exit code."""
    process.join(patience)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError("the command did not end")
    process.close()
    return code


def stop_after(process: BaseProcess, path: Path, *, lines: int, delay: float, signal_number: int) -> int:
    """Send a signal a while after a file has so many `rows`; returns the exit code."""
    deadline = time.monotonic() + PATIENCE
    while rows(path) < lines and process.is_alive():
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError(f"{path} did not grow")
        time.sleep(0.001)
    time.sleep(delay)
    os.kill(process.pid, signal_number)
    return finish(process)


def rows(path: Path) -> int:
    """Lines of a file but the first: the epochs of metrics.csv, what a journal says is done."""
    return max(0, path.read_text().count("\n") - 1) if path.exists() else 0


def stop_at(patch: pytest.MonkeyPatch, module: Any, name: str, call: int) -> list[tuple[Any, ...]]:
    """Let a function raise what Ctrl-C raises at its call number `call`; returns the list of its calls."""
    function, calls = getattr(module, name), []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    patch.setattr(module, name, counted)
    return calls


def session(leader: int) -> dict[int, str]:
    """Command lines of the processes of a session that are alive, by process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            line = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found[int(stat.parent.name)] = line.strip()
    return found


def fitted(folder: Path, *words: str) -> tuple[Path, Path]:
    """A `table` in a folder, and a run that was trained on it with these options, without a baseline beside it."""
    data, run = table(folder / "bags.csv"), folder / "run"
    if main(["fit", str(data), *words, "--no-baseline", "--out", str(run)]):
        raise RuntimeError("the run was not trained")
    return data, run


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


def _run(arguments: tuple[str, ...], log: str, file_limit: int | None, pause_s: float) -> None:
    torch.set_num_threads(1)
    # Tests that run in the background of a shell inherit an ignored SIGINT; a command at a prompt does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if pause_s:
        update = BagProgress.update
        BagProgress.update = lambda bar, bag: (update(bar, bag), time.sleep(pause_s))[0]
    sys.exit(main(list(arguments)))
