"""The peak memory of each task of a file, each in a fork of its own.

Run as ``python -m midam.compare.measure FILE``; writes a JSON list in MiB.
"""

import json
import os
import resource
import sys
from pathlib import Path

import joblib

from midam.compare.tasks import Task, run_task
from midam.data.bags import Bags

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def measure(bags: Bags, task: Task) -> float | None:
    """Peak memory in MiB of a task in a fork of this process, above what it starts with; None if it failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Nothing of the parent's exit handlers may run in the fork.
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
    # Linux: ru_maxrss counts what a process inherited at its fork; VmHWM is its own.
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _forget_peak() -> float:
    """Peak so far; on Linux, counted from the present use on."""
    if _RESET.exists():
        try:
            _RESET.write_text("5")
        except OSError:
            return _peak()
    return _peak()


if __name__ == "__main__":
    held, tasks = joblib.load(sys.argv[1])
    sys.stdout.write(json.dumps([measure(held, task) for task in tasks]))
