import time

import pytest

from midam.data.batch import InstanceReader
from midam.errors import RunStoppedError
from midam.methods.callbacks import Callbacks
from midam.runs import fit
from midam.runs.folder import RunFolder
from midam.settings import Settings
from midam.train.checkpoint import TrainerContent, load_checkpoint


def test_the_time_of_waiting_for_a_slow_reader_is_kept(tmp_path, monkeypatch):
    fetch = InstanceReader._fetch

    def slow(self, positions):
        time.sleep(0.02)
        return fetch(self, positions)

    monkeypatch.setattr(InstanceReader, "_fetch", slow)
    settings = Settings(epochs=1, members=1, num_instances=4, resident=False, baseline=False, workers=0, folds=0)
    summary = fit.fit_run("digits", settings, RunFolder(tmp_path / "run"))
    seconds = summary["seconds"]
    assert 0.2 * seconds["training"] < seconds["waiting"] < seconds["training"]
    # What is stopped and goes on has waited in both sessions.
    (tmp_path / "run" / "summary.json").unlink()
    again = fit.resume_run(None, RunFolder(tmp_path / "run"))["seconds"]
    assert (again["waiting"], again["training"]) == (seconds["waiting"], seconds["training"])


def test_sessions_wait_together(tmp_path, monkeypatch):
    settings = Settings(epochs=2, members=1, num_instances=4, resident=False, baseline=False, folds=0)
    folder = RunFolder(tmp_path / "run")

    def stop(row, trainer):
        if row["epoch"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(RunStoppedError):
        fit.fit_run("digits", settings, folder, callbacks=Callbacks(on_epoch=stop))
    before = load_checkpoint(folder.last, TrainerContent)["waited"]
    seconds = fit.resume_run(None, folder)["seconds"]
    assert 0 < before <= seconds["waiting"] + 0.0005  # milliseconds, rounded
    assert seconds["waiting"] < seconds["training"]
