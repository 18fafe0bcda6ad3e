"""A task whose worker dies is tried again, which GPU a worker gets, and what is said of clusters that fail."""

import os
import signal
import socket
from contextlib import closing
from importlib.util import find_spec
from multiprocessing import current_process

import pytest

from midam.compare.workers import Group, Workers, compute, run_tasks, visible_devices
from midam.errors import ConfigError, MidamError, TrialsLostError
from midam.methods.store import TrialStore


def deadly(task):
    if task < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * task


@pytest.mark.slow
@pytest.mark.long
def test_a_trial_that_kills_each_worker_is_named_and_alone_missing(tmp_path):
    groups = [Group([{"set": "a", "split": n}], [-1 if n == 1 else n]) for n in range(4)]
    with TrialStore(tmp_path / "t.jsonl") as store:
        with pytest.raises(
            TrialsLostError, match=r"of 4 trials, got none of 1, whose worker died 3 times \(set a, split 1\)"
        ) as caught:
            compute(groups, deadly, keep=keep_in(store), workers=Workers("loky", jobs=2))
        assert caught.value.names == [{"set": "a", "split": 1}]
        assert sorted(row["found"] for row in store.rows) == [0, 20, 30]
        assert store.missing(groups) == groups[1:2]


def keep_in(store):
    return lambda group, results: store.keep(group.names, [{"found": results[0]}])


def broken(task):
    raise OSError("no such disk")


@pytest.mark.parametrize("workers", [Workers(), Workers("threading", jobs=2)])
def test_what_a_task_raises_is_raised(workers):
    with pytest.raises(OSError, match="no such disk"):
        compute([Group([{"n": 0}], [0])], broken, keep=lambda *_: None, workers=workers)


def devices_of(task):
    return visible_devices(), current_process().name


@pytest.mark.long
def test_each_process_of_this_machine_has_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    assert visible_devices() == ["4", "6"]
    assert Workers(jobs=None, gpu=True).here() == 2
    found = {tuple(devices) for _, (devices, _) in run_tasks(Workers(jobs=2, gpu=True), devices_of, range(8))}
    assert found <= {("4",), ("6",)}
    assert {tuple(devices) for _, (devices, _) in run_tasks(Workers(jobs=2), devices_of, range(2))} == {("4", "6")}


def closed_port():
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_what_is_not_there_is_refused_before_anything_runs(tmp_path):
    for backend, package in (("dask", "distributed"), ("ray", "ray")):
        if find_spec(package) is None:
            with pytest.raises(MidamError, match=rf"Expected the package {package} .*midam\[{backend}\]"):
                Workers(backend).check()
    with pytest.raises(ConfigError, match="Expected the backend dask or ray for the cluster"):
        Workers(cluster="tcp://127.0.0.1:8786").check()


def test_a_cluster_without_workers_is_given_up():
    distributed = pytest.importorskip("distributed", reason="needs distributed (midam[dask])")
    missing = str(closed_port())
    with pytest.raises(ConfigError, match="Expected a scheduler file"):
        next(run_tasks(Workers("dask", cluster=f"{missing}.json"), abs, [1]))
    with distributed.LocalCluster(
        n_workers=0, dashboard_address="127.0.0.1:0", protocol="tcp", processes=False
    ) as cluster:
        workers, said = Workers("dask", cluster=cluster.scheduler_address, patience=0.1), r"got none in 0\.1 seconds"
        with pytest.raises(ConfigError, match=f"a worker in the dask cluster, {said}"):
            list(run_tasks(workers, abs, [1]))
