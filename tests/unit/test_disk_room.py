"""What does not fit on the disk is refused before it is written."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from midam.data import Bags
from midam.data.store.write import write_store
from midam.errors import MidamError, StoreError
from midam.files import require_space
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings

pytestmark = pytest.mark.drawn

SMALL = Settings(epochs=2, members=2, num_instances=4, baseline=False, optimizer="adam")


@pytest.fixture
def disk(monkeypatch):
    """A disk whose `free` bytes can be set."""
    found = SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: found)
    return found


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_store_that_does_not_fit_is_refused_before_it_is_written(tmp_path, disk):
    bags = Bags.from_list([np.ones((5, 4), np.float32), np.zeros((3, 4), np.float32)], labels=[0, 1])
    disk.free = 255
    with pytest.raises(StoreError, match=r"space for 256 bytes .*, got 255 bytes free"):
        write_store(bags, tmp_path / "store")
    assert list(tmp_path.iterdir()) == []
    disk.free = 256
    assert write_store(bags, tmp_path / "store").is_dir()


def test_a_system_that_does_not_say_what_is_free_refuses_nothing(tmp_path, monkeypatch):
    def fails(_):
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", fails)
    require_space(tmp_path, 1 << 60, "scores")
    monkeypatch.delattr(shutil, "disk_usage")
    require_space(tmp_path, 1 << 60, "scores")


@pytest.mark.parametrize("method", [None, "bag-statistics-logistic"])
def test_a_run_that_does_not_fit_is_refused(method, tmp_path, disk):
    disk.free = 1 << 20
    settings = SMALL if method is None else Settings()
    with pytest.raises(MidamError, match=r"of checkpoints, predictions and report of the run, got 1\.0 MiB free"):
        fit_run("digits", settings, RunFolder(tmp_path / "run"), method=method)
    assert list(tmp_path.iterdir()) == []
