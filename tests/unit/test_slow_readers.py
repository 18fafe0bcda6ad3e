import time
import warnings

import pytest

from midam.data.batch import InstanceReader
from midam.errors import RunStoppedError
from midam.methods.callbacks import Callbacks
from midam.runs import fit, kept
from midam.runs.folder import RunFolder
from midam.settings import Settings
from midam.train.checkpoint import TrainerContent, load_checkpoint


@pytest.mark.parametrize(("waited", "trained", "told"), [(3, 6, True), (1.2, 6, False), (3, 4, False)])
def test_a_fifth_of_some_seconds_is_told(waited, trained, told):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert kept.tell_waiting(waited, trained) == told
    assert len(shown) == told


def test_a_slow_reader_is_told_once(tmp_path, monkeypatch):
    fetch = InstanceReader._fetch

    def slow(self, positions):
        time.sleep(0.02)
        return fetch(self, positions)

    monkeypatch.setattr(InstanceReader, "_fetch", slow)
    monkeypatch.setattr(kept, "_TRAINED_S", 0.0)
    settings = Settings(epochs=3, members=1, num_instances=4, resident=False, baseline=False, workers=0)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        summary = fit.fit_run("digits", settings, RunFolder(tmp_path / "run"))
    found = [str(warning.message) for warning in shown if "waiting for instances" in str(warning.message)]
    assert len(found) == 1
    assert "`workers`" in found[0]
    seconds = summary["seconds"]
    assert 0.2 * seconds["training"] < seconds["waiting"] < seconds["training"]
    # What is stopped and goes on has waited in both sessions.
    (tmp_path / "run" / "summary.json").unlink()
    again = fit.resume_run(None, RunFolder(tmp_path / "run"))["seconds"]
    assert (again["waiting"], again["training"]) == (seconds["waiting"], seconds["training"])


def test_sessions_wait_together(tmp_path, monkeypatch):
    settings = Settings(epochs=3, members=1, num_instances=4, resident=False, baseline=False)
    folder = RunFolder(tmp_path / "run")

    def stop(row, trainer):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(RunStoppedError):
        fit.fit_run("digits", settings, folder, callbacks=Callbacks(on_epoch=stop))
    before = load_checkpoint(folder.last, TrainerContent)["waited"]
    seconds = fit.resume_run(None, folder)["seconds"]
    assert 0 < before <= seconds["waiting"] + 0.0005  # milliseconds, rounded
    assert seconds["waiting"] < seconds["training"]
