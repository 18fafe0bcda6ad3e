"""What does not fit on the disk is refused before it is written."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.integration.commands import fitted

from midam.cli import main
from midam.data import Bags
from midam.data.store.write import write_store
from midam.errors import MidamError, RunStoppedError, StoreError
from midam.files import free_room, require_space
from midam.methods.callbacks import Callbacks
from midam.runs import kept, scoring
from midam.runs.apply import read_for
from midam.runs.fit import fit_run, resume_run
from midam.runs.folder import RunFolder
from midam.runs.loaded import load_run
from midam.runs.scoring import ScoreTable
from midam.settings import Settings

pytestmark = pytest.mark.drawn

SMALL = Settings(epochs=2, members=2, num_instances=4, baseline=False, optimizer="adam")


@pytest.fixture
def disk(monkeypatch):
    """A disk whose `free` bytes can be set."""
    found = SimpleNamespace(free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: found)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table and a run."""
    return fitted(tmp_path_factory.mktemp("room"), "--epochs", "1", "--members", "1", "--chunk-size", "3")


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


def test_what_goes_to_one_disk_is_added_up(tmp_path, disk):
    disk.free = 10
    needed = {tmp_path / "none" / "a": 6, tmp_path / "b": 4, Path("/dev/null"): 1000}
    require_space(needed, "scores")
    with pytest.raises(MidamError, match=r"space for 11 bytes of scores, got 10 bytes free \(in .*none/a\)"):
        require_space({**needed, tmp_path / "b": 5}, "scores")


def test_a_system_that_does_not_say_what_is_free_refuses_nothing(tmp_path, monkeypatch):
    def fails(_):
        raise OSError

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert free_room(tmp_path) is None
    monkeypatch.delattr(shutil, "disk_usage")
    assert free_room(tmp_path) is None
    require_space({tmp_path: 1 << 60}, "scores")


def test_scores_that_do_not_fit_are_refused(made, tmp_path, disk, capsys):
    data, run = made
    words = ["predict", str(run), str(data), "--out", str(tmp_path / "new" / "s.csv")]
    disk.free = 100
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "of scores, got 100 bytes free" in said
    assert str(tmp_path / "new" / "s.csv") in said
    assert files(tmp_path) == {}
    disk.free = 1 << 30
    assert main(words) == 0
    disk.free = 100
    assert main([*words[:-1], "/dev/null"]) == 0, "a stream takes no room"


def test_the_room_for_scores_is_about_what_they_take(made, tmp_path):
    data, run = made
    trained = load_run(run)
    bags = read_for(trained, str(data))
    one = ScoreTable(trained, bags, range(len(bags)))
    assert main(["predict", str(run), str(data), "--out", str(tmp_path / "s.csv")]) == 0
    size = (tmp_path / "s.csv").stat().st_size
    journal = 11 * len(bags) + 128 * len(list(one.groups()))
    assert size < scoring._bytes_of_scores(one) < 1.2 * size + journal
    assert scoring._bytes_of_scores(ScoreTable(trained, bags, range(0))) == 0


def test_files_of_instances_count(made, tmp_path, disk, capsys):
    pytest.importorskip("h5py")
    data, run = made
    words = ["predict", str(run), str(data), "--out", str(tmp_path / "s.csv"), "--instances", str(tmp_path / "i")]
    disk.free = 40 * 4096
    assert main(words) == 2
    assert "of scores, got 163840 bytes free" in capsys.readouterr().err
    assert files(tmp_path) == {}
    disk.free = 40 * 4096 + 40_000
    assert main(words) == 0
    written = sum(len(content) for content in files(tmp_path).values())
    assert disk.free < 1.5 * written


@pytest.mark.parametrize("method", [None, "bag-statistics-logistic"])
def test_a_run_that_does_not_fit_is_refused(method, tmp_path, disk):
    disk.free = 1 << 20
    settings = SMALL if method is None else Settings()
    with pytest.raises(MidamError, match=r"of checkpoints, predictions and report of the run, got 1\.0 MiB free"):
        fit_run("digits", settings, RunFolder(tmp_path / "run"), method=method)
    assert list(tmp_path.iterdir()) == []


def test_the_room_for_a_run_is_about_what_it_takes(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(kept, "require_space", lambda needed, what: asked.append(sum(needed.values())))
    # Weights that outweigh the report.
    fit_run("digits", SMALL.replace(hidden=(1000, 500)), RunFolder(tmp_path / "run"))
    last = (tmp_path / "run" / "checkpoints" / "last.pt").stat().st_size
    written = sum(len(content) for content in files(tmp_path).values()) + last  # the old one beside the new one
    assert 0.9 * written < asked[0] < 1.3 * written + kept._REPORT


def test_a_run_that_goes_on_needs_the_rest_alone(tmp_path, disk):
    folder = RunFolder(tmp_path / "run")

    def stop(row, trainer):
        raise KeyboardInterrupt

    disk.free = 1 << 30
    with pytest.raises(RunStoppedError):
        fit_run("digits", SMALL, folder, callbacks=Callbacks(on_epoch=stop))
    before = files(tmp_path)
    disk.free = 1000
    with pytest.raises(MidamError, match="got 1000 bytes free"):
        resume_run(None, folder)
    assert files(tmp_path) == before
    disk.free = 1 << 30
    assert resume_run(None, folder)["epochs"] == 2


def test_a_checkpoint_is_counted_by_its_tensors_and_texts():
    content = {"a": torch.zeros(10), "b": ["xy", 1.0, None], "c": {"d": (2, 3)}}
    assert 40 <= kept.stored_bytes(content) <= 400
    assert kept.stored_bytes({"a": torch.zeros(1000, dtype=torch.float64)}) >= 8000
