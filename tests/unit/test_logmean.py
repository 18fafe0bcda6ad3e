"""The log-weighted mean: oracle, monoid, moving average, the linearized surrogate."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import naive
from torch import Tensor
from torch.testing import assert_close

from midam.functional.logmean import (
    MAX_LAG_EXPONENT,
    BagStatistic,
    cotangents,
    identity,
    linearize,
    merge,
    moving_average,
    point_weights,
    reduce,
    reduce_segments,
)

TOLERANCE = {torch.float64: {"rtol": 1e-9, "atol": 1e-12}, torch.float32: {"rtol": 1e-5, "atol": 1e-6}}
DTYPES = [torch.float64, torch.float32]


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def oracle(z: Tensor, v: Tensor) -> BagStatistic:
    n, level, r = naive.statistic(z.tolist(), v.tolist())
    return BagStatistic(*(torch.tensor(x, dtype=torch.float64) for x in (float(n), level, r)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_reduce_and_segments_agree_with_the_oracle(dtype: torch.dtype, width: int, scale: float) -> None:
    sizes = [5, 1, 3]
    # The oracle sees the numbers after their rounding to the dtype.
    z = draw(9, scale=scale).to(dtype)
    v = draw(9, width, seed=1).to(dtype)
    expected = [oracle(a.double(), b.double()) for a, b in zip(z.split(sizes), v.split(sizes), strict=True)]
    flat = reduce_segments(z, v, torch.repeat_interleave(torch.arange(3), torch.tensor(sizes)), num_bags=3)
    mask = torch.arange(5) < torch.tensor(sizes)[:, None]
    z_padded, v_padded = z.new_full((3, 5), 7e3), v.new_full((3, 5, width), -9e9)
    z_padded[mask], v_padded[mask] = z, v
    padded = reduce(z_padded, v_padded, mask=mask)
    for stat in (flat, padded):
        assert stat.l.dtype == dtype
        for i, want in enumerate(expected):
            got = BagStatistic(*(part[i].double() for part in stat))
            assert_close(got.n, want.n)
            assert_close(got.l, want.l, **TOLERANCE[dtype])
            assert_close(got.r, want.r.view(width), **TOLERANCE[dtype])


def test_reduce_gradients_are_those_of_the_definition() -> None:
    z, v = draw(2, 4).requires_grad_(), draw(2, 4, 3, seed=1).requires_grad_()
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])

    def padded(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(reduce(z, v, mask=mask)[1:])

    def flat(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(reduce_segments(z[mask], v[mask], mask.nonzero()[:, 0], num_bags=2)[1:])

    assert torch.autograd.gradcheck(padded, (z, v))
    assert torch.autograd.gradcheck(flat, (z, v))
    (grad,) = torch.autograd.grad(reduce(z, v, mask=mask).l.sum(), z)
    assert grad[0, 3] == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_merge_agrees_with_the_oracle(dtype: torch.dtype) -> None:
    z, v = draw(1, 7, scale=3.0).to(dtype), draw(1, 7, 2, seed=1).to(dtype)
    first, second = reduce(z[:, :3], v[:, :3]), reduce(z[:, 3:], v[:, 3:])
    want = naive.merge(
        naive.statistic(z[0, :3].tolist(), v[0, :3].tolist()), naive.statistic(z[0, 3:].tolist(), v[0, 3:].tolist())
    )
    got = merge(first, second)
    assert got.n.item() == want[0]
    assert_close(got.l.double(), torch.tensor([want[1]], dtype=torch.float64), **TOLERANCE[dtype])
    assert_close(got.r.double(), torch.tensor([want[2]], dtype=torch.float64), **TOLERANCE[dtype])


def test_identity_is_neutral_on_both_sides_and_with_itself() -> None:
    stat = reduce(draw(2, 3), draw(2, 3, 2, seed=1))
    empty = identity(2, 2, like=stat.l)
    for merged in (merge(empty, stat), merge(stat, empty)):
        for got, want in zip(merged, stat, strict=True):
            assert_close(got, want, rtol=0, atol=0)
    nothing = merge(empty, empty)
    assert nothing.l.tolist() == [-math.inf, -math.inf]
    assert not nothing.r.any()
    assert not nothing.n.any()


logits = st.floats(-1e4, 1e4, allow_nan=False)
values = st.floats(-1e3, 1e3, allow_nan=False)
instances = st.lists(st.tuples(logits, values), min_size=1, max_size=9)


def stat_of(rows: list[tuple[float, float]]) -> BagStatistic:
    table = torch.tensor(rows, dtype=torch.float64)
    return reduce(table[None, :, 0], table[None, :, 1:])


def assert_same(first: BagStatistic, second: BagStatistic) -> None:
    assert_close(first.n, second.n)
    assert_close(first.l, second.l, rtol=1e-9, atol=1e-9)
    assert_close(first.r, second.r, rtol=1e-9, atol=1e-7)


@given(rows=instances, shuffle=st.randoms(use_true_random=False), width=st.integers(0, 5), garbage=values)
def test_permutation_and_padding_change_nothing(rows: list, shuffle: object, width: int, garbage: float) -> None:
    want = stat_of(rows)
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    assert_same(stat_of(shuffled), want)
    table = torch.tensor([*rows, *([(1e5 * garbage, garbage)] * width)], dtype=torch.float64)
    mask = torch.arange(len(table))[None] < len(rows)
    assert_same(reduce(table[None, :, 0], table[None, :, 1:], mask=mask), want)


@given(a=instances, b=instances, c=instances)
def test_merge_is_a_commutative_monoid_and_equals_the_whole(a: list, b: list, c: list) -> None:
    x, y, w = stat_of(a), stat_of(b), stat_of(c)
    whole = stat_of([*a, *b, *c])
    assert_same(merge(merge(x, y), w), whole)
    assert_same(merge(x, merge(y, w)), whole)
    assert_same(merge(y, x), merge(x, y))


@given(rows=instances)
def test_log_mean_lies_between_the_maximum_and_log_n_below_it(rows: list) -> None:
    top = max(z for z, _ in rows)
    slack = 1e-9 * (1 + abs(top))
    level = stat_of(rows).l.item()
    assert top - math.log(len(rows)) - slack <= level <= top + slack


@pytest.mark.parametrize("gamma0", [0.1, 0.5, 0.9])
def test_moving_average_agrees_with_the_raw_space(gamma0: float) -> None:
    l_old, r_old, l_new, r_new = draw(3), draw(3, 2, seed=1), draw(3, seed=2), draw(3, 2, seed=3)
    level, r = moving_average(l_old, r_old, l_new, r_new, gamma0=torch.full((3,), gamma0, dtype=torch.float64))
    for i in range(3):
        s_old, s_new = (naive.raw(a[i].item(), b[i].tolist()) for a, b in ((l_old, r_old), (l_new, r_new)))
        want_l, want_r = naive.from_raw(naive.moving_average(s_old, s_new, gamma0))
        assert level[i].item() == pytest.approx(want_l, rel=1e-9)
        assert r[i].tolist() == pytest.approx(want_r, rel=1e-9)


@given(old=st.tuples(logits, values), new=st.tuples(logits, values))
def test_gamma0_of_one_forgets(old: tuple, new: tuple) -> None:
    args = [torch.tensor(x, dtype=torch.float64) for x in ([old[0]], [[old[1]]], [new[0]], [[new[1]]])]
    level, r = moving_average(*args, gamma0=torch.ones(1, dtype=torch.float64))
    assert (level.item(), r.item()) == new


def test_moving_average_from_an_empty_state_and_far_apart() -> None:
    gamma0 = torch.tensor([0.25, 0.25, 0.25])
    l_old, r_old = torch.tensor([-math.inf, 1e7, -1e7]), torch.tensor([[0.0], [2.0], [2.0]])
    level, r = moving_average(l_old, r_old, torch.tensor([3.0, -1e7, 1e7]), torch.full((3, 1), 5.0), gamma0=gamma0)
    assert_close(level, torch.tensor([3.0 + math.log(0.25), 1e7, 1e7]))
    assert_close(r, torch.tensor([[5.0], [2.0], [5.0]]))


# The surrogate.


def plain_surrogate(
    z: Tensor, v: Tensor, point: tuple[Tensor, Tensor], w: Tensor, at: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """The formulas of `linearize` written out; `at` are the stopped copies of z and v."""
    level, r = point
    dz, dv = z - at[0], v - at[1]
    r_hat = r + (w[..., None] * (dv + (at[1] - r[:, None]) * dz[..., None])).sum(dim=1)
    return level + (w * dz).sum(dim=1), r_hat


@pytest.mark.parametrize("width", [0, 1, 3])
def test_linearize_has_the_value_of_the_point_and_the_gradient_of_the_surrogate(width: int) -> None:
    z, v = draw(2, 4).requires_grad_(), draw(2, 4, width, seed=1).requires_grad_()
    point = draw(2, seed=2), draw(2, width, seed=3)
    w = draw(2, 4, seed=4).abs()
    at = z.detach().clone(), v.detach().clone()
    # The derivative of the formulas is right ...
    assert torch.autograd.gradcheck(lambda z, v: plain_surrogate(z, v, point, w, at), (z, v))
    # ... and linearize has the same one, for any loss of the point.
    results = []
    for l_hat, r_hat in (linearize(z, v, *point, w), plain_surrogate(z, v, point, w, at)):
        assert_close(l_hat, point[0], rtol=0, atol=1e-15)
        assert_close(r_hat, point[1], rtol=0, atol=1e-15)
        loss = (l_hat**2).sum() + (l_hat[:, None] * torch.sin(r_hat)).sum()
        # Of values of width 0 there is no gradient.
        results.append(torch.autograd.grad(loss, (z, v) if width else (z,)))
    for got, want in zip(*results, strict=True):
        assert_close(got, want, rtol=1e-12, atol=1e-14)


def test_linearize_takes_the_point_and_the_weights_as_constants() -> None:
    z, v = draw(1, 2).requires_grad_(), draw(1, 2, 1, seed=1)
    level, r, w = (draw(*shape, seed=2).requires_grad_() for shape in ((1,), (1, 1), (1, 2)))
    l_hat, r_hat = linearize(z, v, level, r, w)
    grads = torch.autograd.grad((l_hat.sum() + r_hat.sum()), (level, r, w), allow_unused=True)
    assert grads == (None, None, None)


def test_linearized_at_its_own_point_the_sample_has_its_plain_gradient() -> None:
    z, v = draw(2, 4).requires_grad_(), draw(2, 4, 2, seed=1).requires_grad_()
    mask = torch.tensor([[True, True, False, True], [True] * 4])
    stat = reduce(z, v, mask=mask)
    w = point_weights(z, stat.l.detach(), stat.n, mask=mask)
    point = linearize(z, v, stat.l.detach(), stat.r.detach(), w)
    weights = draw(2, seed=2), draw(2, 2, seed=3)
    results = [
        torch.autograd.grad((weights[0] * level).sum() + (weights[1] * r).sum(), (z, v))
        for level, r in (stat[1:], point)
    ]
    for got, want in zip(*results, strict=True):
        assert_close(got, want, rtol=1e-12, atol=1e-14)
    assert not results[1][0][0, 2].any()
    assert not results[1][1][0, 2].any()


def test_cotangents_are_the_surrogate_s_gradient() -> None:
    v, r, w = draw(5, 2), draw(5, 2, seed=1), draw(5, seed=2).abs()
    grad_l, grad_r = draw(5, seed=3), draw(5, 2, seed=4)
    grad_z, grad_v = cotangents(v, r, w, grad_l, grad_r)
    for j in range(5):
        inner = sum((v[j, d] - r[j, d]) * grad_r[j, d] for d in range(2))
        assert grad_z[j].item() == pytest.approx((w[j] * (grad_l[j] + inner)).item(), rel=1e-12)
        assert_close(grad_v[j], w[j] * grad_r[j])


def test_point_weights_clip_the_exponent_and_ignore_masked_slots() -> None:
    z = torch.tensor([[100.0, 1.0, 5.0]])
    mask = torch.tensor([[True, True, False]])
    w = point_weights(z, torch.zeros(1), torch.tensor([2.0]), mask=mask, max_exponent=MAX_LAG_EXPONENT)
    assert_close(w, torch.tensor([[math.exp(20) / 2, math.e / 2, 0.0]]))


@given(old=logits, rows=instances, gamma0=st.floats(0.05, 1.0))
def test_weights_at_a_point_that_holds_the_sample_sum_to_at_most_one_over_gamma0(
    old: float, rows: list, gamma0: float
) -> None:
    table = torch.tensor(rows, dtype=torch.float64)
    stat = reduce(table[None, :, 0], table[None, :, 1:])
    rate = torch.tensor([gamma0], dtype=torch.float64)
    level, _ = moving_average(torch.tensor([old], dtype=torch.float64), stat.r, stat.l, stat.r, gamma0=rate)
    assert point_weights(table[None, :, 0], level, stat.n).sum().item() <= 1 / gamma0 * (1 + 1e-6)
