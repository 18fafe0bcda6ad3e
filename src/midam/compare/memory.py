"""Peak memory of one trial a method, measured in fresh processes."""

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import joblib

from midam.compare.tasks import Task
from midam.data.bags import Bags

_EPOCHS = 2


def peaks_mib(bags: Bags, tasks: Mapping[str, Task]) -> dict[str, float]:
    """Peak memory in MiB of one training a method, above what libraries and data take.

    A training repeats itself epoch after epoch, so two epochs of the first fold are enough.

    Parameters
    ----------
    bags : Bags
        The bags.
    tasks : mapping of str to Task
        A task a method; its first fold counts.

    Returns
    -------
    dict of str to float
        MiB by method; empty where a process cannot be measured (outside Unix).
    """
    if not tasks:
        return {}
    small = [_first_fold(task) for task in tasks.values()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.joblib"
        joblib.dump((bags, small), path)
        command = [sys.executable, "-m", "midam.compare.measure", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {}
    return {name: peak for name, peak in zip(tasks, json.loads(done.stdout), strict=True) if peak is not None}


def _first_fold(task: Task) -> Task:
    config = task.config
    if config is not None:
        config = dataclasses.replace(config, epochs=min(config.epochs, _EPOCHS))
    return dataclasses.replace(task, config=config, folds=task.folds[:1], parts=task.parts[:1])
