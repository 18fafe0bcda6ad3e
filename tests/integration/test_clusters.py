"""`midam compare` on two worker processes, of this machine, of Dask and of Ray, one of which is killed in a trial."""

import os
import secrets
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
from midam.cli import main
from midam.registry import BASELINES

# Kills the process that computes it, once, by a mark on the disk.
DEADLY = """
import os
import signal
from pathlib import Path

import numpy as np

from midam.compare import Baseline
from midam.registry import BASELINES


class Deadly(Baseline):
    def score(self, bags, trial):
        mark = Path({mark!r})
        if trial.seed == 1 and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return np.array([bags[i][:, 0].max() for i in trial.score])


BASELINES.add("deadly", Deadly)
"""
PACKAGES = {"dask": "distributed", "ray": "ray"}
COLUMNS = ["method", "repeat", "fold", "auroc", "auprc", "lr", "margin", "epoch", "seed", "test_bags", "status"]


@contextmanager
def dask_cluster(environment):
    port = free_port()
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port)]
    scheduler += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
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
    # The cluster takes tasks from those alone who know the token, whatever one the user may have.
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    process = started(["-m", "ray.scripts.scripts", *words], environment)
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
def processes(environment):
    yield None


CLUSTERS = {"loky": processes, "dask": dask_cluster, "ray": ray_cluster}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The data, a folder with the deadly method, and the trials that this process finds where it does not kill."""
    root = tmp_path_factory.mktemp("alone")
    data, mark = table(root / "bags.csv"), root / "mark"
    (root / "deadly.py").write_text(DEADLY.format(mark=str(mark)))
    mark.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root))
        assert main([*command(data, root / "out"), "--jobs", "1"]) == 0
    mark.unlink()
    yield root, data, mark, results(root / "out")
    BASELINES.remove("deadly")  # workers of other tests would load it too
    del sys.modules["deadly"]


def command(data, out):
    words = ["compare", str(data), "--methods", "midam-att,deadly", "--plugin", "deadly", "--cv", "2x2"]
    return [*words, "--epochs", "2", "--lrs", "0.1", "--margins", "1.0", "--out", str(out)]


def results(folder):
    found = pd.read_csv(folder / "trials.csv")
    return found[COLUMNS].sort_values(["method", "repeat", "fold"]).reset_index(drop=True)


@pytest.mark.long
@pytest.mark.parametrize("backend", list(CLUSTERS))
def test_a_worker_that_is_killed_in_a_trial_costs_no_trial(backend, alone, tmp_path):
    package = PACKAGES.get(backend)
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed; `make test-clusters` installs it and runs this test")
    root, data, mark, expected = alone
    mark.unlink(missing_ok=True)
    path = os.pathsep.join([str(root), str(Path(midam.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with CLUSTERS[backend](environment) as address:
        words = ["--jobs", "2", "--backend", backend, *(["--cluster", address] if address else [])]
        words = [sys.executable, "-m", "midam.cli", *command(data, tmp_path / "out"), *words]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert mark.read_text() != "", "a worker was killed"
    pd.testing.assert_frame_equal(results(tmp_path / "out"), expected, check_exact=True)
