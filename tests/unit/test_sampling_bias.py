"""Samples of a bag, all enumerated: what is unbiased to rounding, and how fast the bias of the rest falls."""

import pytest
import torch
from tests.reference import naive
from tests.reference.cases import subsets, tuples
from torch import Tensor
from torch.testing import assert_close

from midam.functional.logmean import BagStatistic, reduce

# All samples of B = 3 from n = 7.

N, B = 7, 3


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def population() -> tuple[Tensor, Tensor, list[float]]:
    z, v = draw(N, seed=5), draw(N, 2, seed=6)
    level, r = naive.statistic(z.tolist(), v.tolist())[1:]
    return z, v, naive.raw(level, r)


def expectation(stat: BagStatistic, probability: Tensor) -> Tensor:
    weight = torch.exp(stat.l)
    return torch.cat([probability @ (weight[:, None] * stat.r), (probability @ weight)[None]])


def test_uniform_draws_without_replacement_are_unbiased() -> None:
    z, v, exact = population()
    rows = torch.tensor(subsets(N, B))
    assert len(rows) == 35
    got = expectation(reduce(z[rows], v[rows]), torch.full((35,), 1 / 35, dtype=torch.float64))
    assert_close(got, torch.tensor(exact, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("what", ["l", "r", "smoothed-max", "attention"])
def test_bias_of_l_r_and_h_falls_like_one_over_b(what: str) -> None:
    # Mild logits: the terms beyond 1/B are small, so that each doubling of B halves the bias.
    n = 5
    z = draw(n, seed=9, scale=0.2)
    v = 3 * z[:, None] + 1
    select = {
        "l": lambda s: s.l,
        "r": lambda s: s.r[:, 0],
        "smoothed-max": lambda s: 0.1 * s.l,
        "attention": lambda s: torch.sigmoid(s.r[:, 0]),
    }[what]
    exact = select(reduce(z[None], v[None])).item()
    bias = [
        (select(reduce(z[rows], v[rows])).mean() - exact).item()
        for rows in map(torch.tensor, (tuples(n, b) for b in (1, 2, 4)))
    ]
    assert min(map(abs, bias)) > 1e-4
    assert bias[0] / bias[1] == pytest.approx(2, abs=0.25)
    assert bias[1] / bias[2] == pytest.approx(2, abs=0.25)
