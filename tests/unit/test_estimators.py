"""Mini-batch and VRSP: whole bags, masks, and the tracked state."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from tests.reference.cases import (
    ALL,
    OBJECTIVES,
    SIZES,
    exact_gradient,
    full_sample,
    gradient,
    make_bags,
    make_model,
    make_objective,
    parameters,
    relative,
    sampled_batch,
    whole_batch,
)
from torch import Tensor, nn
from torch.testing import assert_close

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.evaluate.stream import stream_bags
from midam.functional.logmean import moving_average, point_weights, rate_of, reduce, track
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagScorer
from midam.train.estimators import Estimator, MiniBatch, VarianceReduced

OPTIONS = {"smoothed-max": {"learn_temperature": True}, "generalized-mean": {"learn_exponent": True}}


@pytest.mark.parametrize("objective", list(OBJECTIVES))
@pytest.mark.parametrize("pooling", ALL)
def test_whole_bags_with_gamma0_of_one_give_the_exact_gradient(pooling: str, objective: str) -> None:
    bags = make_bags()
    model = make_model(pooling, objective=objective, **OPTIONS.get(pooling, {}))
    loss_of = make_objective(objective)
    want_loss, want = exact_gradient(model, loss_of, bags)
    batch = full_sample(bags)
    estimators: list[Estimator] = [MiniBatch()]
    if model.pooling.statistic.trackable:
        rules = {"fresh_first": False, "fresh_whole": False}
        estimators += [
            VarianceReduced(len(bags), model.pooling.value_size, state_rate=1.0, **rules).double(),
            VarianceReduced(len(bags), model.pooling.value_size, state_rate=1.0, lag=True, **rules).double(),
            VarianceReduced(len(bags), model.pooling.value_size, state_rate=0.1).double(),
        ]
    for estimator in estimators:
        if isinstance(estimator, VarianceReduced):
            estimator.bag_state.normal_()  # Whatever was tracked must be forgotten.
            if estimator.fresh_whole:
                estimator.bag_state[:, 0] = 5.0
        loss = loss_of(estimator(model, batch), batch.labels)
        assert loss.item() == pytest.approx(want_loss.item(), rel=1e-12)
        assert relative(gradient(loss, parameters(model, loss_of)), want) < 1e-12


@pytest.mark.parametrize("pooling", ALL)
def test_what_a_masked_slot_holds_changes_nothing(pooling: str) -> None:
    bags = make_bags()
    model, objective = make_model(pooling), make_objective("minmax-auc")
    slots = [list(range(min(n, 4))) for n in SIZES]
    batch = sampled_batch(bags, slots)
    assert batch.mask is not None
    hidden = ~batch.mask.flatten()
    garbage = torch.where(hidden[:, None], torch.randn_like(batch.x) * 1e4, batch.x)
    wide = sampled_batch(bags, [*slots[:-1], [*slots[-1], 0, 1, 2]])
    assert wide.mask is not None
    wide.mask[-1, 4:] = False

    def results(batch: object) -> Iterator[Tensor]:
        estimators = [MiniBatch(), VarianceReduced(6, model.pooling.value_size).double()]
        for estimator in estimators[: 1 + model.pooling.statistic.trackable]:
            out = estimator(model, batch)
            yield out.score.detach()
            yield gradient(objective(out, batch.labels), parameters(model, objective))

    for want, changed, wider in zip(results(batch), results(replace(batch, x=garbage)), results(wide), strict=True):
        assert torch.isfinite(want).all()
        assert torch.equal(want, changed)
        # The divisor is the number of drawn instances, whatever the padded width.
        assert_close(wider, want, rtol=1e-12, atol=1e-13)


def test_minibatch_pools_the_sample_as_if_it_were_the_bag() -> None:
    bags = make_bags()
    model = make_model("noisy-or")
    batch = sampled_batch(bags, [[0, 1]] * 2, index=[0, 2])
    x = batch.x.view(2, 2, -1)
    want = model(x.flatten(0, 1), torch.tensor([2, 2]))
    assert_close(MiniBatch()(model, batch).score, want.score)
    assert MiniBatch()(model, batch).n.tolist() == [2.0, 2.0]
    # The tracked score is that of the bag: f2 sees its true size.
    assert VarianceReduced(6, 1)(model, batch).n.tolist() == [7.0, 12.0]


# The tracked state.


def tracked(**options: object) -> tuple[BagScorer, VarianceReduced, Bags]:
    model = make_model("attention")
    return model, VarianceReduced(6, 1, **options).double(), make_bags()


def test_state_is_written_by_commit_alone_and_once() -> None:
    model, estimator, bags = tracked(state_rate=0.5)
    batch = sampled_batch(bags, [[0, 1], [3, 4]], index=[2, 0])
    before = estimator.bag_state.clone()
    estimator(model, batch)
    assert torch.equal(estimator.bag_state, before)
    estimator.commit(torch.tensor(1.0))
    committed = estimator.bag_state.clone()
    z, v = model.instances(batch.x)
    sample = reduce(z.view(2, 2), v.view(2, 2, 1))
    assert_close(committed[[2, 0], 1], sample.l.detach())
    assert_close(committed[[2, 0], 2:], sample.r.detach())
    assert committed[:, 0].tolist() == [1, 0, 1, 0, 0, 0]
    assert not committed[[1, 3, 4, 5]].any()
    estimator.commit(torch.tensor(1.0))
    assert torch.equal(estimator.bag_state, committed)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_commits_nothing(bad: float) -> None:
    model, estimator, bags = tracked()
    estimator(model, sampled_batch(bags, [[0, 1]], index=[0]))
    estimator.commit(torch.tensor(bad))
    assert not estimator.bag_state.any()


def test_evaluation_changes_no_state() -> None:
    model, estimator, bags = tracked()
    estimator(model, sampled_batch(bags, [[0, 1]], index=[0]))
    estimator.commit(torch.tensor(0.0))
    before = {name: x.clone() for m in (model, estimator) for name, x in m.state_dict().items()}
    batch = whole_batch(bags)
    model.eval()
    stream_bags(model, batch, chunk_size=4)
    model(batch.reader.all, batch.sizes)
    estimator.commit(torch.tensor(0.0))
    after = {name: x for m in (model, estimator) for name, x in m.state_dict().items()}
    assert all(torch.equal(after[name], x) for name, x in before.items())


def rates(estimator: VarianceReduced, *, visits: int, draws: int = 2, size: int = 12) -> list[float]:
    """The gamma0 in force at each visit, read off a state that moves from exp(l) = 1 towards the sample."""
    model = BagScorer(nn.Identity(), make_pooling("smoothed-max", 1, temperature=1.0, squash=False)).double()
    with torch.no_grad():
        model.pooling.scorer.weight.fill_(1.0)
        model.pooling.scorer.bias.zero_()
    bags = make_bags((size,), (1,), width=1)
    bags.instances[:] = 2.0
    batch = sampled_batch(bags, [list(range(draws))])
    out = []
    for _ in range(visits):
        old = estimator.bag_state[0, 1].exp().item()
        estimator(model, batch)
        estimator.commit(torch.tensor(0.0))
        new = estimator.bag_state[0, 1].exp().item()
        out.append((new - old) / (math.exp(2.0) - old))
        estimator.bag_state[0, 1] = 0.0
    return out


def test_first_visit_and_whole_bag_rules() -> None:
    def rate(visits: int, *, draws: int = 2, size: int = 12, **options: object) -> list[float]:
        return rates(VarianceReduced(1, 0, **options).double(), visits=visits, draws=draws, size=size)

    assert rate(3, state_rate=0.2) == pytest.approx([1.0, 0.2, 0.2], rel=1e-9)
    assert rate(3, state_rate=0.2, fresh_first=False) == pytest.approx([0.2] * 3, rel=1e-9)
    assert rate(3, state_rate=0.2, draws=4, size=4) == pytest.approx([1.0] * 3, rel=1e-9)
    assert rate(3, state_rate=0.2, draws=4, size=4, fresh_whole=False) == pytest.approx([1.0, 0.2, 0.2], rel=1e-9)


def test_weighted_draws_do_not_count_as_the_whole_bag() -> None:
    model, estimator, bags = tracked(state_rate=0.5, fresh_first=False)
    slots = [[0, 1, 1]]  # A bag of three, drawn with replacement.
    plain = sampled_batch(bags, slots, index=[1])
    weighted = replace(plain, log_ratio=torch.zeros(1, 3, dtype=torch.float64))
    z, v = model.instances(plain.x)
    sample = reduce(z[None], v[None])
    assert_close(estimator(model, plain).l, sample.l)
    assert_close(estimator(model, weighted).l, torch.log(0.5 * sample.l.exp() + 0.5))


def test_lag_linearizes_at_the_old_state_and_counts_clips() -> None:
    model = make_model("attention")
    bags = make_bags()
    batch = sampled_batch(bags, [[0, 1, 2], [3, 4, 5]], index=[0, 2])
    estimator = VarianceReduced(6, 1, lag=True, state_rate=0.5).double()
    estimator.bag_state[:, 0] = 1.0
    estimator.bag_state[0, 1:] = torch.tensor([0.25, 0.75])
    estimator.bag_state[2, 1:] = torch.tensor([-50.0, 0.125])
    out = estimator(model, batch)
    assert out.l.tolist() == [0.25, -50.0]
    assert out.r.flatten().tolist() == [0.75, 0.125]
    assert estimator.clips.item() == 3
    got = gradient(out.l[1], model.parameters())
    z, _ = model.instances(batch.x[3:])
    assert_close(got, gradient(math.exp(20) / 3 * z.sum(), model.parameters()))


def test_clips_of_masked_slots_do_not_count() -> None:
    model, bags = make_model("attention"), make_bags()
    batch = sampled_batch(bags, [[0, 1, 2], [3]], index=[0, 2])
    estimator = VarianceReduced(6, 1, lag=True, state_rate=0.5).double()
    estimator.bag_state[:, 0] = 1.0
    estimator.bag_state[:, 1] = -50.0
    estimator(model, batch)
    assert estimator.clips.item() == 4


def test_stationary_variance_is_gamma_over_two_minus_gamma_of_the_minibatch_s() -> None:
    # A fixed model, so that s averages independent samples; 600 bags alike, observed once the start is forgotten.
    gamma0, num, steps = 0.5, 600, 24
    bags = make_bags((30,) * 1, (1,), seed=3)
    model = make_model("smoothed-max", temperature=0.5)
    z, _ = model.instances(torch.from_numpy(bags.instances))
    z = z.detach()
    estimator = VarianceReduced(num, 0, state_rate=gamma0).double()
    generator = torch.Generator().manual_seed(0)
    batch = sampled_batch(bags, [[0, 0, 0]] * num, index=[0] * num)
    batch = replace(batch, index=torch.arange(num))
    samples, states = [], []
    x = torch.from_numpy(bags.instances)
    for step in range(steps):
        drawn = torch.rand(num, 30, generator=generator).argsort(dim=1)[:, :3]
        estimator(model, replace(batch, x=x[drawn.flatten()]))
        estimator.commit(torch.tensor(0.0))
        if step >= 12:
            samples.append(torch.exp(z[drawn]).mean(dim=1))
            states.append(torch.exp(estimator.bag_state[:, 1]))
    # 7200 samples and 600 chains: the ratio's standard error is below 0.02.
    ratio = (torch.cat(states).var() / torch.cat(samples).var()).item()
    assert ratio == pytest.approx(gamma0 / (2 - gamma0), abs=0.06)
    assert torch.cat(states).mean().item() == pytest.approx(torch.exp(z).mean().item(), rel=0.01)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5])
def test_a_state_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"state_rate in \(0, 1\]"):
        VarianceReduced(3, 1, state_rate=rate)


@pytest.mark.parametrize("masked", [False, True])
def test_track_is_reduce_moving_average_and_weights_in_one(masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    z, v, l_old, r_old = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 4), (3, 4, 2), (3, 1), (3, 2))
    )
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True] * 3 + [False]]) if masked else None
    gamma0 = torch.tensor([[1.0], [0.5], [0.1]], dtype=torch.float64)
    low = z if mask is None else z.masked_fill(~mask, torch.finfo(z.dtype).min / 4)
    got_l, got_r, got_w = track(low, v, l_old, r_old, rate=rate_of(gamma0), mask=mask)
    sample = reduce(z, v, mask=mask)
    want_l, want_r = moving_average(l_old[:, 0], r_old, sample.l, sample.r, gamma0=gamma0[:, 0])
    torch.testing.assert_close((got_l[:, 0], got_r), (want_l, want_r), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(got_w, point_weights(z, want_l, sample.n, mask=mask), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("floor", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("masked", [False, True])
def test_the_floor_is_the_least_share_of_the_sample_in_a_state_with_values(floor: float, masked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    z, v = torch.randn(6, 4, generator=generator), torch.ones(6, 4, 1)
    l_old, r_old = torch.tensor([[-math.inf], [-90.0], [0.0], [3.0], [90.0], [900.0]]), torch.zeros(6, 1)
    mask = torch.arange(4).expand(6, 4) < 3 if masked else None
    z = z if mask is None else z.masked_fill(~mask, torch.finfo(z.dtype).min / 4)
    gamma0 = torch.tensor([[0.3], [0.3], [0.9], [0.9], [0.9], [0.9]])
    # Old values are 0 and new ones 1: the new value of the state is the sample's share of it.
    new, share, w = track(z, v, l_old, r_old, rate=rate_of(gamma0, floor=floor), mask=mask)
    _, before, _ = track(z, v, l_old, r_old, rate=rate_of(gamma0), mask=mask)
    least = gamma0.clamp(max=floor)
    assert torch.isfinite(new).all()
    torch.testing.assert_close(share, torch.maximum(before, least), rtol=1e-5, atol=0)
    torch.testing.assert_close((w * gamma0).sum(dim=1, keepdim=True), share, rtol=1e-5, atol=0)
    assert share[-1].item() == pytest.approx(min(floor, 0.9))
    assert before[-1].item() == 0


def test_a_state_that_is_the_score_itself_has_no_floor() -> None:
    z, none = torch.zeros(1, 2), torch.zeros(1, 0)
    old = torch.full((1, 1), 30.0)
    gamma0 = torch.full((1, 1), 0.9)
    found = [track(z, torch.zeros(1, 2, 0), old, none, rate=rate_of(gamma0, floor=f), mask=None) for f in (0.0, 0.5)]
    assert all(torch.equal(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("floor", [-0.1, 1.0])
def test_a_floor_out_of_range_is_refused(floor: float) -> None:
    with pytest.raises(ConfigError, match=r"state_floor in \[0, 1\)"):
        VarianceReduced(3, 1, state_floor=floor)
