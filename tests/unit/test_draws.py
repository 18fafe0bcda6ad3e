"""Draws of the exact point: frequencies whatever the chunking, small bags whole, extreme logits."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.reference.cases import make_bags, make_model, whole_batch
from torch import nn
from torch.testing import assert_close

from midam.data.bags import Bags
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagScorer
from midam.train.exact import draw_proportional, draw_uniform

N = 7
COPIES = 1500


def scores_model(weight: float = 1.0) -> BagScorer:
    """Bag of numbers: the logit of an instance is the number itself."""
    model = BagScorer(nn.Identity(), make_pooling("smoothed-max", 1, temperature=1.0, squash=False)).double()
    with torch.no_grad():
        model.pooling.scorer.weight.fill_(weight)
        model.pooling.scorer.bias.zero_()
    return model


@pytest.mark.parametrize("chunk_size", [1, 3, 7, 10_000])
def test_proportional_draws_follow_exp_z_whatever_the_chunking(chunk_size: int) -> None:
    # Bags of five and of seven, so that chunks cut bags at ever other places.
    bags = make_bags((5, N), (0, 1), width=1, seed=4)
    copies = {1: 120, 3: 300, 7: 300}.get(chunk_size, COPIES)  # each chunk takes its time
    batch = whole_batch(bags, [0, 1] * copies)
    drawn = draw_proportional(scores_model(), batch, 3, chunk_size=chunk_size, rng=np.random.default_rng(0))
    assert drawn.mask.all()
    assert drawn.proportional.all()
    for bag in (0, 1):
        z = torch.from_numpy(bags[bag]).flatten()
        slots = drawn.positions[bag::2] - int(bags.starts[bag])
        assert slots.min() >= 0
        assert slots.max() < len(z)
        q = torch.softmax(z, 0)
        counts = torch.bincount(slots.flatten(), minlength=len(z))
        assert chisquare(counts.numpy(), (q * slots.numel()).numpy()).pvalue > 1e-3
        # The slots of a bag are independent: pairs have the product of the frequencies.
        pairs = torch.bincount(slots[:, 0] * len(z) + slots[:, 1], minlength=len(z) ** 2)
        expected = torch.outer(q, q).flatten() * len(slots)
        order = expected.argsort(descending=True)
        large = order[expected[order] >= 5]
        rest = len(slots) - pairs[large].sum().item(), len(slots) - expected[large].sum().item()
        assert chisquare([*pairs[large].tolist(), rest[0]], [*expected[large].tolist(), rest[1]]).pvalue > 1e-3


def test_uniform_draws_are_distinct_and_uniform() -> None:
    bags = make_bags((N,), (1,), width=1)
    batch = whole_batch(bags, [0] * COPIES)
    drawn = draw_uniform(scores_model(), batch, 3, chunk_size=1000, rng=np.random.default_rng(0))
    assert not drawn.proportional.any()
    assert all(len(set(row)) == 3 for row in drawn.positions.tolist())
    counts = torch.bincount(drawn.positions.flatten(), minlength=N)
    assert chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("draw", [draw_proportional, draw_uniform])
def test_small_bags_come_whole_and_the_point_is_exact(draw: object) -> None:
    bags, model = make_bags((3, 9, 4), (1, 0, 1)), make_model("attention")
    batch = whole_batch(bags)
    drawn = draw(model, batch, 4, chunk_size=5, rng=np.random.default_rng(0))
    assert drawn.positions[0, :3].tolist() == [0, 1, 2]
    assert drawn.mask.tolist() == [[True, True, True, False], [True] * 4, [True] * 4]
    assert drawn.positions[2].tolist() == [12, 13, 14, 15]
    assert not drawn.proportional[[0, 2]].any()
    exact = model(batch.reader.all, batch.sizes)
    assert_close(drawn.l, exact.l.detach(), rtol=1e-12, atol=1e-12)
    assert_close(drawn.r, exact.r.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk_size", [1, 2, 100])
@pytest.mark.parametrize("level", [1e7, -1e7, 0.0])
def test_extreme_logits_draw_the_dominant_instance(level: float, chunk_size: int) -> None:
    bag = np.array([[-2e7], [level], [level - 200.0], [-2e7], [level - 1e6]])
    batch = whole_batch(Bags.from_list([bag, np.zeros((6, 1))], labels=[1, 0]))
    drawn = draw_proportional(scores_model(), batch, 4, chunk_size=chunk_size, rng=np.random.default_rng(0))
    assert drawn.positions[0].tolist() == [1, 1, 1, 1]
    assert torch.isfinite(drawn.l).all()
    assert drawn.positions[1].min() >= 5
