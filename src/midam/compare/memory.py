"""Peak memory of one trial of each method, measured in fresh processes.

``python -m midam.compare.memory PARENT`` is such a process: it measures each task of its input in a separate fork.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import joblib

from midam.compare.plan import Task, run_task
from midam.data.bags import Bags
from midam.processes import end_with

_EPOCHS = 2
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peaks_mib(bags: Bags, tasks: Mapping[str, Task]) -> dict[str, float]:
    """Return the peak memory in MiB by method, above libraries and data; empty if processes cannot fork.

    It is measured over two epochs of the first fold of each task.
    """
    if not tasks:
        return {}
    small = [_first_fold(task) for task in tasks.values()]
    # A file without a name, which disappears if this process is killed.
    with tempfile.TemporaryFile() as file:
        joblib.dump((bags, small), file)
        file.seek(0)
        command = [sys.executable, "-m", "midam.compare.memory", str(os.getpid())]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {}
    return {name: peak for name, peak in zip(tasks, json.loads(done.stdout), strict=True) if peak is not None}


def _first_fold(task: Task) -> Task:
    few = None if task.config is None else task.config.replace(epochs=min(task.config.training.epochs, _EPOCHS))
    return dataclasses.replace(task, config=few, folds=task.folds[:1], parts=task.parts[:1])


def _measure(bags: Bags, task: Task) -> float | None:
    """Return the peak memory in MiB of a task in a fork, above its start; None if it failed."""
    reader, writer = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(reader)
        end_with(parent)
        # The parent's exit handlers must not run in the fork.
        try:
            before = _forget_peak()
            run_task(bags, task)
            os.write(writer, f"{max(0.0, _peak() - before)}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    return float(text) if text else None


def _peak() -> float:
    # On Linux, ru_maxrss includes memory inherited at the fork; VmHWM does not.
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    import resource  # missing on Windows

    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> float:
    """Return the peak so far; on Linux, reset it to the present use first."""
    with suppress(OSError):
        _RESET.write_text("5")
    return _peak()


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    held, tasks = joblib.load(sys.stdin.buffer)
    sys.stdout.write(json.dumps([_measure(held, task) for task in tasks]))
