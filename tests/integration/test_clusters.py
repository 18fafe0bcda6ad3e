"""`midam compare` on two worker processes, of this machine, of Dask and of Ray, one of which is killed in a trial."""

import os
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from tests.integration.commands import PATIENCE, table

import midam

# Kills the process that computes it, once, by a mark on the disk.
DEADLY = """
import os
import signal
from pathlib import Path

import numpy as np

from midam.compare import Baseline


class Deadly(Baseline):
    def score(self, bags, trial):
        mark = Path({mark!r})
        if trial.seed == 1 and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return np.array([bags[i][:, 0].max() for i in trial.score])
"""
PACKAGES = {"dask": "distributed", "ray": "ray"}
COLUMNS = ["method", "repeat", "fold", "auroc", "auprc", "lr", "margin", "epoch", "seed", "test_bags", "status"]


@contextmanager
def dask_cluster(environment):
    port = free_port()
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = ["distributed.cli.dask_worker", f"tcp://127.0.0.1:{port}", "--nworkers", "2", "--nthreads", "1"]
    both = [started(["-m", *words], environment) for words in (scheduler, [*worker, "--no-dashboard"])]
    try:
        answered(port)
        yield f"tcp://127.0.0.1:{port}"
    finally:
        for process in reversed(both):
            process.terminate()
            process.wait(PATIENCE)


@contextmanager
def ray_cluster(environment):
    port = free_port()
    words = ["start", "--head", "--block", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false"]
    words += ["--node-ip-address", "127.0.0.1"]
    process = started(["-m", "ray.scripts.scripts", *words], environment | {"RAY_USAGE_STATS_ENABLED": "0"})
    try:
        answered(port)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def free_port():
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def started(words, environment):
    null = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, *words], env=environment, stdout=null, stderr=null)


def answered(port):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the cluster did not start")


@contextmanager
def no_cluster(environment):
    yield None


CLUSTERS = {"loky": no_cluster, "dask": dask_cluster, "ray": ray_cluster}


def compared(folder, data, environment, *words):
    command = [sys.executable, "-m", "midam.cli", "compare", str(data), "--methods", "midam-att,deadly.Deadly"]
    command += ["--cv", "2x2", "--epochs", "2", "--lrs", "0.1", "--margins", "1.0", "--out", str(folder), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


def results(folder):
    found = pd.read_csv(folder / "trials.csv")
    return found[COLUMNS].sort_values(["method", "repeat", "fold"]).reset_index(drop=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", CLUSTERS)
def test_a_worker_that_is_killed_in_a_trial_costs_no_trial(backend, tmp_path):
    package = PACKAGES.get(backend)
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make test-clusters` installs it and runs this test")
    mark, data = tmp_path / "mark", table(tmp_path / "bags.csv")
    (tmp_path / "deadly.py").write_text(DEADLY.format(mark=str(mark)))
    path = os.pathsep.join([str(tmp_path), str(Path(midam.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with CLUSTERS[backend](environment) as address:
        words = ["--jobs", "2", "--backend", backend, *(["--cluster", address] if address else [])]
        done = compared(tmp_path / backend, data, environment, *words)
        assert done.returncode == 0, done.stderr
        assert mark.is_file()
    alone = compared(tmp_path / "alone", data, environment, "--jobs", "1")
    assert alone.returncode == 0, alone.stderr
    pd.testing.assert_frame_equal(results(tmp_path / backend), results(tmp_path / "alone"), check_exact=True)
