"""Annealing of the instances' weights."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.settings import Settings
from midam.train.trainer import Trainer


def make_trainer(pooling, **settings):
    rng, labels = np.random.default_rng(2), np.arange(24) % 2
    bags = Bags.from_list([rng.normal(size=(int(rng.integers(2, 40)), 4)).astype(np.float32) for _ in labels], labels)
    own = {"num_positive": 4, "num_negative": 4, "num_instances": 4, "members": 1, "hidden": []}
    return Trainer(Settings(pooling=pooling, **own, **settings), bags)


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max", "generalized-mean"])
def test_annealed_weights_begin_near_the_mean_and_leave_no_trace(pooling):
    training = make_trainer(pooling, anneal=1.0, epochs=4).members[0]
    before = {}
    for epoch in (0, 2):
        with training.epoch(epoch):
            before[epoch] = training.trained.pooling.weight_power
    assert before == {0: pytest.approx(0.2), 2: pytest.approx(0.2**0.5)}
    assert training.trained.pooling.weight_power == 1
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    own = training.model.instances(x)[0]
    with training.epoch(0):
        flat = training.model.instances(x)[0]
    assert_close(flat, own * 0.2)


def test_a_pooling_without_weights_is_not_annealed():
    with pytest.raises(ConfigError, match="no `anneal`"):
        make_trainer("mean", anneal=0.5)
