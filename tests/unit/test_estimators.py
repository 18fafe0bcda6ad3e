"""Mini-batch and VRSP: whole bags, masks, and the tracked state."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.pairs import each
from tests.reference.cases import (
    ALL,
    COLUMNED,
    OBJECTIVES,
    SIZES,
    SMOOTH,
    exact_gradient,
    full_sample,
    gradient,
    make_bags,
    make_columns,
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
from midam.evaluate.predict import stream_bags
from midam.functional.logmean import linearize, moving_average, point_weights, reduce, track
from midam.nn.objectives import PairwiseAUCLoss
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagOutput, BagScorer, rows_of
from midam.nn.tracked import TrackedPooling, settled_rate, usual_rate
from midam.settings import Settings
from midam.train.estimators import AsPrinted, Estimator, MiniBatch, VarianceReduced
from midam.train.trainer import Trainer

# Smooth poolings of three score columns, and how their weights go by column where there is a choice.
SHIFTED = [case for case in COLUMNED if case[0] in SMOOTH]
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
        size = model.pooling.value_size
        for make in (VarianceReduced, AsPrinted, partial(AsPrinted, lag=True)):
            estimators += [make(len(bags), size, state_rate=rate).double() for rate in (1.0, 0.1, "auto")]
    for estimator in estimators:
        if isinstance(estimator, VarianceReduced):
            estimator.bag_state.normal_()  # Whatever was tracked must be forgotten.
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
    assert_close(committed[[2, 0], 1], (sample.l - sample.l.mean()).detach())
    assert_close(committed[[2, 0], 2:], (sample.r - sample.r.mean(dim=0)).detach())
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


def rates(estimator: AsPrinted, *, visits: int, draws: int = 2, size: int = 12) -> list[float]:
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
    def rate(visits: int, *, draws: int = 2, size: int = 12) -> list[float]:
        return rates(AsPrinted(1, 0, state_rate=0.2).double(), visits=visits, draws=draws, size=size)

    assert rate(3) == pytest.approx([1.0, 0.2, 0.2], rel=1e-9)
    assert rate(3, draws=4, size=4) == pytest.approx([1.0] * 3, rel=1e-9)


def test_mini_batches_of_one_instance_teach_attention_nothing() -> None:
    with pytest.raises(ConfigError, match="attention gets no gradient"):
        MiniBatch(num_instances=1).check(make_model("attention"))
    MiniBatch(num_instances=1).check(make_model("smoothed-max"))


def test_lag_linearizes_at_the_old_state_and_counts_clips() -> None:
    model = make_model("attention")
    bags = make_bags()
    batch = sampled_batch(bags, [[0, 1, 2], [3, 4, 5]], index=[0, 2])
    estimator = AsPrinted(6, 1, lag=True, state_rate=0.5).double()
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
    estimator = AsPrinted(6, 1, lag=True, state_rate=0.5).double()
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
    estimator = AsPrinted(num, 0, state_rate=gamma0).double()
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
    z, v, old = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((3, 4), (3, 4, 2), (3, 3)))
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True] * 3 + [False]]) if masked else None
    gamma0 = torch.tensor([[1.0], [0.5], [0.1]], dtype=torch.float64)
    low = z if mask is None else z.masked_fill(~mask, torch.finfo(z.dtype).min / 4)
    got_l, got_r, kept = track(low.requires_grad_(), v, old, gamma0=gamma0, mask=mask)
    sample = reduce(z, v, mask=mask)
    want_l, want_r = moving_average(old[:, 0], old[:, 1:], sample.l, sample.r, gamma0=gamma0[:, 0])
    torch.testing.assert_close((got_l, got_r), (want_l, want_r), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(kept, torch.cat([want_l.unsqueeze(1), want_r], dim=1), rtol=1e-9, atol=1e-12)
    (weights,) = torch.autograd.grad(got_l.sum(), low)
    torch.testing.assert_close(weights, point_weights(z, want_l, sample.n, mask=mask), rtol=1e-9, atol=1e-12)


# What the state remembers is relative to the step.


def definition(
    z: Tensor, v: Tensor, old: Tensor, gamma0: float, *, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """`track` with a level, by its definition: a printed state of logits and values that count from the level."""
    sample = reduce(z, v, mask=mask)
    level_l, level_r = sample.l.mean(), sample.r.mean(dim=0)
    z, v = z - level_l, v - level_r
    l, r = moving_average(  # noqa: E741
        old[:, 0], old[:, 1:], *(x.detach() for x in reduce(z, v, mask=mask)[1:]), gamma0=gamma0
    )
    w = point_weights(z, l, sample.n, mask=mask)
    l_hat, r_hat = linearize(z, v, l, r, w)
    return l_hat + level_l, r_hat + level_r, torch.cat([l.unsqueeze(1), r], dim=1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("gamma0", [0.2, 0.9, 1.0])
def test_the_relative_state_agrees_with_its_definition(gamma0: float, width: int, masked: bool) -> None:
    rng = torch.Generator().manual_seed(0)
    z, v, old, a, b = (
        torch.randn(*shape, dtype=torch.float64, generator=rng)
        for shape in ((5, 4), (5, 4, width), (5, 1 + width), (5,), (5, width))
    )
    mask = torch.rand(5, 4, generator=rng).argsort(dim=1) < torch.tensor([[4], [2], [1], [3], [4]]) if masked else None
    z = z if mask is None else z.masked_fill(~mask, torch.finfo(z.dtype).min / 4)
    inputs = [x.requires_grad_() for x in (z, v)]
    mean = lambda x: x.mean(dim=0, keepdim=True)  # noqa: E731
    results = []
    for l, r, kept in (  # noqa: E741
        track(z, v, old, gamma0=gamma0, mask=mask, level=mean),
        definition(z, v, old, gamma0, mask=mask),
    ):
        loss = (a * torch.sin(l)).sum() + (b * torch.sin(r)).sum() + (l.unsqueeze(1) * r).sum()
        grads = torch.autograd.grad(loss, inputs[: 1 + bool(width)])
        results.append((l, r, kept, *(x if mask is None else x[mask] for x in grads)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("pooling", "options", "rate", "masked"),
    [(*case, rate, masked) for case, rate, masked in each(SHIFTED, [0.2, 0.9, "auto"], [False, True])],
)
def test_a_shift_of_all_logits_or_values_changes_scores_as_those_of_the_bags(
    pooling: str, options: dict, rate: float | str, masked: bool
) -> None:
    """Steps of two trainings, of which one has logits and values with a constant more at each step."""
    model, branches = make_columns(pooling, **options), make_columns(pooling, **options).pooling.branches
    head = model.pooling
    plain, shifted = (VarianceReduced(6, head.value_size, branches=branches, state_rate=rate).double() for _ in "ab")
    rng = torch.Generator().manual_seed(0)
    for step, bags in enumerate(([0, 1, 2, 3, 4, 5], [3, 0, 5, 1], [2, 4, 1, 0], [0, 1, 5, 3])):
        index = rows_of(torch.tensor(bags), branches)
        z = torch.randn(len(index), 3, dtype=torch.float64, generator=rng)
        v = torch.randn(len(index), 3, head.value_size, dtype=torch.float64, generator=rng)
        mask = torch.ones(z.shape, dtype=torch.bool)
        mask[: 2 * branches, 1:] = not masked
        c, d = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (5.0 - 3 * step, 2.0 * step - 1))
        weights = torch.randn(len(bags), 3, dtype=torch.float64, generator=rng)
        given = {"sizes": None, "mask": mask if masked else None}
        low = torch.finfo(torch.float64).min / 4

        def score(l: Tensor, r: Tensor, count: int = len(index)) -> Tensor:  # noqa: E741
            return BagOutput(l, r, torch.full((count,), 7.0, dtype=torch.float64), head).score

        # If z is 0 for all instances, as in means, there are no logits to be shifted.
        moves = head.weighted
        l, r = plain.at_state(z.masked_fill(~mask, low), v, index, **given)  # noqa: E741
        want = score(l.detach() + (c if moves else 0), r.detach() + d)
        by_bag = torch.autograd.grad((weights * want).sum(), (c, d), allow_unused=True)
        l, r = shifted.at_state((z + (c if moves else 0)).masked_fill(~mask, low), v + d, index, **given)  # noqa: E741
        got = score(l, r)
        by_state = torch.autograd.grad((weights * got).sum(), (c, d), allow_unused=True)
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
        for ours, theirs in zip(by_state, by_bag):
            torch.testing.assert_close(
                torch.zeros(()).double() if ours is None else ours,
                torch.zeros(()).double() if theirs is None else theirs,
                rtol=1e-6,
                atol=1e-12,
            )
        for estimator in (plain, shifted):
            estimator.commit(torch.tensor(0.0))
        torch.testing.assert_close(plain.bag_state, shifted.bag_state, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("pooling", "options"), [case for case in SHIFTED if "attention" in case[0]])
def test_the_bias_of_the_logits_of_attention_has_no_effect_and_no_gradient(pooling: str, options: dict) -> None:
    bags, model = make_bags(), make_columns(pooling, **options)
    head = model.pooling
    estimators = {
        make: make(len(bags), head.value_size, branches=head.branches, state_rate=0.3).double()
        for make in (VarianceReduced, AsPrinted)
    }
    drift = {}
    for step in range(3):
        batch = sampled_batch(bags, [[(step + j) % n for j in range(min(2, n))] for n in SIZES])
        batch = replace(batch, may_be_whole=False)
        for make, estimator in estimators.items():
            scores = []
            for shift in (0.0, 3.0):
                with torch.no_grad():
                    head.attention.bias.add_(shift)
                output = estimator(model, batch)
                loss = PairwiseAUCLoss()(output.score[:, 0], batch.labels)
                (grad,) = torch.autograd.grad(loss, head.attention.bias)
                scores.append(output.score.detach())
                with torch.no_grad():
                    head.attention.bias.sub_(shift)
            drift[make] = max(grad.abs().max().item(), (scores[1] - scores[0]).abs().max().item())
            estimator(model, batch)
            estimator.commit(torch.tensor(0.0))
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.3 * torch.sin(p))
    assert drift[VarianceReduced] < 1e-12
    assert drift[AsPrinted] > 1e-3


def test_a_state_averages_over_32_instances_or_twice_the_median_bag_that_is_sampled_in_part() -> None:
    for sizes, drawn, memory in (([5, 200, 90], 2, 32), ([5, 11, 200], 2, 22), ([5, 11, 200], 8, 32), ([4, 6], 8, 32)):
        assert settled_rate(drawn, np.array(sizes)) == pytest.approx(2 * drawn / (memory + drawn))
    config = Settings(num_instances=2, num_positive=2, num_negative=2, members=1, epochs=1)
    for size, want in ((6, 4 / 14), (200, 4 / 34)):
        bags = Bags.from_list([np.random.default_rng(i).normal(size=(size, 3)) for i in range(8)], [0, 1] * 4)
        (member,) = Trainer(config, bags).members
        assert member.estimator.settled_rate(2) == pytest.approx(want)
        pool = TrackedPooling("attention", num_bags=8, sizes=bags.sizes)
        pool.bag_state[:, 0] = 99
        pool.start_epoch()
        assert pool.rate(2) == pytest.approx(want)
        assert TrackedPooling("attention", num_bags=8).settled_rate(2) == pytest.approx(4 / 34)


def test_the_usual_rate_is_equal_for_all_bags_of_a_step_and_falls_with_visits() -> None:
    rates = [usual_rate(torch.tensor([v, 99.0]), settled_rate(8)).item() for v in (0.0, 2.0, 3.0, 5.0, 9.0)]
    assert rates == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.4])
    # The variance of a moving average is gamma / (2 - gamma) of that of a sample: as of so many instances.
    for drawn in (1, 2, 8, 16):
        rate = settled_rate(drawn)
        assert drawn * (2 - rate) / rate == pytest.approx(32)
    assert settled_rate(32) == settled_rate(100) == 1.0
    estimator = VarianceReduced(3, 0)
    estimator.bag_state[:, 0] = torch.tensor([40.0, 60.0, 50.0])
    z, v, index = torch.randn(2, 8), torch.empty(2, 8, 0), torch.tensor([0, 1])
    for settle in (False, True):  # by the visits of the step, or known to be settled
        if settle:
            estimator.start_epoch()
        estimator.at_state(z, v, index, sizes=None, mask=None)
        sample = reduce(z, v)
        want = torch.logaddexp(torch.tensor(0.6).log(), sample.l - sample.l.mean() + math.log(0.4))
        torch.testing.assert_close(estimator._proposed[0][2][:, 1], want)
    assert estimator.rate(8) == pytest.approx(0.4)
    estimator.state_rate = 0.5  # the learning rate has fallen
    assert estimator.rate(8) == pytest.approx(0.2)
