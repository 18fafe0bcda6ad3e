"""Denormal numbers count as 0 within a training step, and nowhere else."""

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.settings import Settings
from midam.train.loop import denormals_flushed
from midam.train.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot flush denormals")
CONFIG = Settings(epochs=2, members=1, num_positive=4, num_negative=4, num_instances=2)


def flushing() -> bool:
    return bool((torch.full((1,), 2.0**-126) * 0.5 == 0).item())


def make_bags() -> Bags:
    rng = np.random.default_rng(0)
    return Bags.from_list([rng.normal(size=(3, 4)).astype(np.float32) for _ in range(24)], np.arange(24) % 2)


def test_they_come_back_after_an_error_and_after_the_outer_block() -> None:
    def fail() -> None:
        raise ValueError

    with denormals_flushed():
        with pytest.raises(ValueError), denormals_flushed():
            fail()
        assert flushing()
    assert not flushing()


def test_a_trainer_flushes_them_in_its_steps_alone() -> None:
    bags, seen = make_bags(), []
    trainer = Trainer(CONFIG, bags.subset(np.arange(16)), bags.subset(np.arange(16, 24)))
    hook = trainer.members[0].model.encoder.register_forward_hook
    hook(lambda module, inputs, e: seen.append((module.training, flushing())))
    trainer.train_epoch()
    assert set(seen) == {(True, True), (False, False)}
    assert not flushing()
