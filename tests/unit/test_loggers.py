"""A training is tracked by name: by TensorBoard, where it is installed, or by a logger of anybody's."""

import sys
from functools import cache

import numpy as np
import pytest

from midam import MidamError, Settings
from midam.errors import ConfigError, RunStoppedError
from midam.methods.callbacks import Callbacks
from midam.registry import LOGGERS
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder

EPOCHS = 3
pytestmark = pytest.mark.filterwarnings("ignore:.*bags:UserWarning", "ignore::DeprecationWarning")


@cache
def noted_logger():
    """The class of a logger that keeps what it is told; its base takes seconds to import, so not at collection."""
    from lightning_fabric.loggers.logger import Logger

    class Noted(Logger):
        name, version = "noted", "0"
        told: list = []  # noqa: RUF012 - shared on purpose, Fabric holds the instance

        def __init__(self, root, title, *, fails=None):
            self.fails, Noted.told = fails, [("title", title, root.name)]

        def _note(self, what, *values):
            if self.fails == what:
                raise ConnectionError("no route to host")
            Noted.told.append((what, *values))

        def log_hyperparams(self, params, *args, **kwargs):
            self._note("settings", params["pooling"])

        def log_metrics(self, metrics, step=None):
            self._note("metrics", dict(metrics), step)

        def finalize(self, status):
            self._note("end", status)

    return Noted


def fit(tmp_path, *, stop=None, **settings):
    rng = np.random.default_rng(0)
    rows = [f"b{i},{i % 2},{x:.3f},{y:.3f}" for i in range(40) for x, y in rng.normal(i % 2, 1, size=(3, 2))]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x,y", *rows]) + "\n")

    def on_epoch(row, trainer):
        if row["epoch"] == stop:
            raise KeyboardInterrupt

    chosen = Settings(epochs=EPOCHS, members=1, test_fraction=0.2, **settings)
    folder = RunFolder(tmp_path / "run")
    return fit_run(str(tmp_path / "bags.csv"), chosen, folder, callbacks=Callbacks(on_epoch=on_epoch)), folder


@pytest.fixture
def noted():
    LOGGERS.add("noted", noted_logger())
    yield noted_logger()
    LOGGERS.remove("noted")


def test_a_logger_hears_settings_epochs_and_the_end(tmp_path, noted):
    fit(tmp_path, logger="noted")
    (_, title, root), settings, *epochs, end = noted.told
    assert (title, root, settings) == ("run", "run", ("settings", "attention"))
    assert [step for _, _, step in epochs] == [1, 2, 3]
    assert {"loss", "lr", "train_auroc", "val_auroc"} <= set(epochs[0][1])
    assert end == ("end", "success")


def test_a_stopped_run_is_said_to_have_failed(tmp_path, noted):
    with pytest.raises(RunStoppedError):
        fit(tmp_path, logger="noted", stop=2)
    assert noted.told[-1] == ("end", "failed")


def test_a_server_that_goes_away_does_not_stop_the_training(tmp_path, noted):
    with pytest.warns(UserWarning, match="the logger failed, and this run logs no more: ConnectionError: no route"):
        summary, _ = fit(tmp_path, logger="noted", logger_args={"fails": "metrics"})
    assert summary["epochs"] == EPOCHS


def test_a_server_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path, noted):
    with pytest.raises(MidamError, match=r"the logger 'noted' to accept the run, got ConnectionError: no route"):
        fit(tmp_path, logger="noted", logger_args={"fails": "settings"})
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MidamError, match=r'package tensorboard for the logger, got none; run .*"midam\[track\]"'):
        fit(tmp_path, logger="tensorboard")
    assert not (tmp_path / "run").exists()


def no_logger(root):
    """A function that returns something else."""
    return root


class Strange:
    """No logger of Fabric."""


def test_what_is_no_logger_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"Expected a subclass of lightning_fabric\.loggers\..* as logger"):
        LOGGERS.add("strange", Strange)
    monkeypatch.setitem(LOGGERS._added, "none-at-all", no_logger)
    with pytest.raises(ConfigError, match="Expected a Logger of Lightning Fabric from 'none-at-all', got PosixPath"):
        fit(tmp_path, logger="none-at-all")
    assert not (tmp_path / "run").exists()


def test_an_unknown_logger_is_refused(tmp_path):
    with pytest.raises(MidamError, match="did you mean 'tensorboard'"):
        Settings(logger="tensorbord")


def test_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    _, folder = fit(tmp_path, logger="tensorboard")
    events = accumulator.EventAccumulator(str(folder.root / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]
