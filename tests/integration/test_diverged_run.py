"""A training whose loss is no longer finite names the last good checkpoint."""

import pytest
from tests.integration.commands import table

from midam.errors import DivergedError
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings
from midam.train.trainer import Trainer


def test_the_last_good_checkpoint_is_named(tmp_path, monkeypatch):
    train = Trainer.train_epoch

    def second_fails(trainer):
        if trainer.epoch == 1:
            raise DivergedError("Expected a finite loss, got nan; lower lr.")
        return train(trainer)

    monkeypatch.setattr(Trainer, "train_epoch", second_fails)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(DivergedError, match=r"lower lr\. .*last\.pt holds epoch 1, the last good one\."):
        fit_run(str(table(tmp_path / "bags.csv")), Settings(epochs=3, members=1), folder)
    assert folder.last.exists()
