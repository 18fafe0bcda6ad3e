"""Command lines in real processes, and small tables to run them on.

A server imports the command line once; each command is a fork of it, so that a test can afford many of them.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests import quick

from midam.cli import main

PATIENCE = 120.0
_TICK = 0.001
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("midam.cli", "midam.explain.run", "midam.runs.report", "midam.train.trainer", "midam.compare"),
        *("scipy.stats", "sklearn.ensemble"),
    ]
)


class Moment(NamedTuple):
    """When a command is to be stopped: a while after a file has so many `rows`.

    The command itself waits there for the signal, so that one on a busy machine is not done before it comes.
    """

    path: Path
    rows: int
    delay: float = 0.0  # seconds of its own work


def fork(function: Callable[..., object], *arguments: Any, log: Path, **environment: str) -> BaseProcess:
    """Start a function of a module in a process that has imported midam; what it prints goes to `log`."""
    process = _CONTEXT.Process(target=_call, args=(function, arguments, str(log), environment))
    process.start()
    return process


def start(*arguments: str, log: Path, file_limit: int | None = None, wait_at: Moment | None = None) -> BaseProcess:
    """Start a command; its output goes to `log`, and no file may grow beyond `file_limit` bytes."""
    process = _CONTEXT.Process(target=run, args=(arguments, str(log), file_limit, wait_at, quick.state()))
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


def stop(process: BaseProcess, signal_number: int) -> int:
    """Send a signal to a command that waits at a `Moment`; returns its exit code."""
    stat = Path(f"/proc/{process.pid}/stat")
    deadline = time.monotonic() + PATIENCE
    while process.is_alive() and stat.read_text().rpartition(")")[2].split()[0] != "T":
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError("the command did not come to the moment at which it was to be stopped")
        time.sleep(_TICK)
    os.kill(process.pid, signal_number)
    os.kill(process.pid, signal.SIGCONT)
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


def run(
    arguments: tuple[str, ...], log: str, file_limit: int | None, wait_at: Moment | None, state: dict[str, bool]
) -> None:
    """Run a command in this process, which ends with it."""
    quick.install(waits=wait_at is not None)
    quick.restore(state)
    _begin(log)
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    if wait_at is not None:
        _wait_at(wait_at)
    sys.exit(main(list(arguments)))


def _begin(log: str) -> None:
    torch.set_num_threads(1)
    # Tests that run in the background of a shell inherit an ignored SIGINT; a command at a prompt does not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)


def _call(function: Callable[..., object], arguments: Sequence[Any], log: str, environment: dict[str, str]) -> None:
    _begin(log)
    os.environ.update(environment)
    function(*arguments)


def _wait_at(moment: Moment) -> None:
    """Stop this process at a moment, until it is continued."""
    # Each tick asks for the next one: a tick during another would stop the process again after its signal.
    reached: list[float] = []

    def check(*_: Any) -> None:
        if not reached and rows(moment.path) >= moment.rows:
            reached.append(time.process_time())
        if reached and time.process_time() - reached[0] >= moment.delay:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            signal.setitimer(signal.ITIMER_REAL, _TICK)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, _TICK)


def scoring(made: tuple[Path, Path], out: Path | str, *words: object) -> list[str]:
    """Return the words of `midam predict` with the data and the run that `fitted` returns."""
    data, run = made
    return ["predict", str(run), str(data), "--out", str(out), *map(str, words)]
