"""`TrackedPooling` and the losses outside of the trainer: what they are given, what they keep, what they refuse."""

import copy
import io
import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from midam.errors import BagDataError, CheckpointError, ConfigError
from midam.functional import logmean
from midam.nn import (
    AttentionPooling,
    AveragePrecisionLoss,
    BCELoss,
    CoxLoss,
    CrossEntropyLoss,
    EmbeddingAttentionPooling,
    MinMaxAUCLoss,
    PairwiseAUCLoss,
    PartialAUCLoss,
    Pooling,
    TrackedPooling,
    commit,
)

NAMES = ("attention", "mean", "smoothed-max", "generalized-mean", "noisy-or", "noisy-and")


def make(name="attention", num_bags=10, **how):
    sizes = [7] * num_bags if name == "noisy-or" else None
    return TrackedPooling(name, num_bags=num_bags, **{"sizes": sizes, **how})


def sample(bags=3, drawn=4, *, seed=0, grad=True):
    rng = torch.Generator().manual_seed(seed)
    z, v = (torch.randn(bags, drawn, generator=rng).requires_grad_(grad) for _ in range(2))
    return z, v


@pytest.mark.parametrize("name", NAMES)
def test_a_bag_that_is_seen_for_the_first_time_has_the_score_of_its_sample(name):
    pool = make(name, sizes=[4] * 10)
    z, v = sample()
    trained = pool(z, v, torch.tensor([5, 0, 9]))
    exact = pool.eval()(z, v)
    torch.testing.assert_close(trained, exact)
    ours = torch.autograd.grad(trained.sum(), (z, v), allow_unused=True)
    theirs = torch.autograd.grad(exact.sum(), (z, v), allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None) == (a is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_tracked_state(name):
    pool = make(name, state_rate=0.3, relative=False)
    index = torch.tensor([2, 4, 1])
    first, second = sample(seed=1), sample(seed=2)
    pool(*first, index)
    commit(pool)
    scores = pool(*second, index)
    commit(pool)
    stats = [pool.pooling.statistic.sample(*pool._terms(*x), mask=None) for x in (first, second)]
    rate = torch.full((3,), 0.3)
    l, r = logmean.moving_average(  # noqa: E741
        stats[0].l, stats[0].r, stats[1].l, stats[1].r, gamma0=rate
    )
    n = torch.full((3,), 7.0 if name == "noisy-or" else 4.0)
    torch.testing.assert_close(scores, pool.pooling.score(l, r, n), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pool.bag_state[index], torch.cat([2 * torch.ones(3, 1), l[:, None], r], dim=1).detach())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [[9], [1, 8], [4, 4, 1]])
def test_chunks_of_a_bag_score_as_the_whole(name, cuts):
    pool = make(name)
    z, v = sample(1, 9, grad=False)
    before = copy.deepcopy(pool.state_dict())
    parts = zip(z[0].split(cuts), v[0].split(cuts), strict=True)
    merged = pool.evaluate(part for part in parts)
    torch.testing.assert_close(merged, pool.eval()(z, v)[0], rtol=1e-6, atol=1e-7)
    assert all(torch.equal(before[key], value) for key, value in pool.state_dict().items())
    assert merged.shape == ()


def test_chunks_are_encoded_without_a_graph_one_at_a_time():
    pool, alive = make(), []

    def chunks():
        for _ in range(3):
            assert not torch.is_grad_enabled()
            alive.append(1)
            yield torch.zeros(2), torch.ones(2)

    assert pool.evaluate(chunks()).item() == pytest.approx(torch.sigmoid(torch.tensor(1.0)).item())
    assert len(alive) == 3


@pytest.mark.parametrize("name", NAMES)
def test_masked_slots_change_nothing(name):
    sizes = [4] * 10 if name != "noisy-or" else [7] * 10
    with_mask, without = (make(name, sizes=sizes) for _ in range(2))
    z, v = sample(2, 3, grad=False)
    junk = torch.full((2, 2), torch.nan)
    padded = [torch.cat([x, junk], dim=1).requires_grad_() for x in (z, v)]
    mask = torch.tensor([[True] * 3 + [False] * 2] * 2)
    index = torch.tensor([0, 3])
    scores = with_mask(*padded, index, mask=mask)
    torch.testing.assert_close(scores, without(z, v, index))
    scores.sum().backward()
    for x in padded:
        if x.grad is not None:
            assert torch.isfinite(x.grad).all()
            assert not x.grad[:, 3:].any()
    commit(with_mask, without)
    torch.testing.assert_close(with_mask.bag_state, without.bag_state)


def test_evaluation_mode_reads_and_writes_no_state():
    pool, loss_fn = make(), AveragePrecisionLoss(num_bags=10)
    index = torch.tensor([0, 1, 2])
    loss_fn(pool(*sample(), index), torch.tensor([1, 0, 0]), index).backward()
    commit(pool, loss_fn)
    before = copy.deepcopy([pool.state_dict(), loss_fn.state_dict()])
    pool.eval()
    loss_fn.eval()
    loss_fn(pool(*sample(seed=4)), torch.tensor([1, 0, 1]))
    commit(pool, loss_fn)
    for old, module in zip(before, (pool, loss_fn), strict=True):
        assert all(torch.equal(old[key], value) for key, value in module.state_dict().items())


def test_state_is_saved_and_loaded_and_goes_on_as_if_nothing_had_happened():
    index, labels = torch.tensor([0, 4, 2]), torch.tensor([1, 0, 0])

    def step(pool, loss_fn, seed):
        loss = loss_fn(pool(*sample(seed=seed), index), labels, index)
        commit(pool, loss_fn)
        return loss.item()

    pool, loss_fn = make(), MinMaxAUCLoss()
    step(pool, loss_fn, 0)
    file = io.BytesIO()
    torch.save([pool.state_dict(), loss_fn.state_dict()], file)
    file.seek(0)
    again, loss_again = make(), MinMaxAUCLoss()
    for module, state in zip((again, loss_again), torch.load(file, weights_only=True), strict=True):
        module.load_state_dict(state)
    assert [step(pool, loss_fn, s) for s in (1, 2)] == [step(again, loss_again, s) for s in (1, 2)]
    assert loss_fn.dual.item() > 0
    assert torch.equal(pool.bag_state, again.bag_state)
    assert copy.deepcopy(pool).bag_state.sum() == pool.bag_state.sum()


@pytest.mark.parametrize(
    ("saved", "other", "text"),
    [
        (make("mean"), make("smoothed-max"), "pooling='smoothed-max', got one with 'mean'"),
        (make("mean"), make("attention"), "pooling='attention'"),
        (make(), make(relative=False), "relative=False, got one with True"),
        (make(state_rate=0.5), make(), "state_rate='auto', got one with 'a number'"),
        (make("smoothed-max"), make("smoothed-max", temperature=0.5), "temperature=0.5, got one with 0.1"),
        (make("mean"), make("mean", logits=True), "squash=False"),
        (make("attention", columns=2), make("mean", columns=2), "pooling='mean'"),
        (make("mean", num_bags=12), make("attention", num_bags=12, columns=1), "pooling='attention'"),
        (PartialAUCLoss(num_bags=9), PartialAUCLoss(num_bags=9, max_fpr=0.1), "max_fpr=0.1, got one with None"),
        (MinMaxAUCLoss(dual_domain="real"), MinMaxAUCLoss(), "dual_domain='nonnegative'"),
        (PairwiseAUCLoss(), BCELoss(), "loss='bce', got one with 'pairwise'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_of_other_settings_is_refused(saved, other, text):
    for model, state in ((other, saved), (torch.nn.ModuleList([other]), torch.nn.ModuleList([saved]))):
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(CheckpointError, match=re.escape(text)):
            model.load_state_dict(state.state_dict())
        assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())


def test_rates_that_have_fallen_are_part_of_the_state():
    pool, loss_fn = make("smoothed-max"), AveragePrecisionLoss(num_bags=10)
    pool.state_rate /= 2
    loss_fn.pair_rate /= 3
    for module, other in ((pool, make("smoothed-max")), (loss_fn, AveragePrecisionLoss(num_bags=10))):
        assert not other.load_state_dict(module.state_dict()).missing_keys
        assert [getattr(other, rate) for rate in other.rates] == [getattr(module, rate) for rate in module.rates]
    assert (pool.rates, loss_fn.rates) == (("state_rate",), ("pair_rate",))


def test_nothing_that_waited_is_committed_over_a_loaded_state():
    pool, loss_fn, index = make(), AveragePrecisionLoss(num_bags=10), torch.tensor([0, 4, 2])
    saved = [copy.deepcopy(module.state_dict()) for module in (pool, loss_fn)]
    loss_fn(pool(*sample(), index), torch.tensor([1, 0, 1]), index).backward()
    for module, state in zip((pool, loss_fn), saved, strict=True):
        module.load_state_dict(state)
    commit(pool, loss_fn)
    for module, state in zip((pool, loss_fn), saved, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize("loss_fn", [MinMaxAUCLoss(), AveragePrecisionLoss(num_bags=10)])
def test_a_backward_pass_after_commit_is_refused_with_the_right_order(loss_fn):
    pool, index, labels = make(), torch.tensor([0, 4, 2]), torch.tensor([1, 0, 0])
    loss = loss_fn(pool(*sample(), index), labels, index)
    commit(pool, loss_fn)
    with pytest.raises(
        ConfigError, match=r"Expected loss.backward\(\) before commit, got commit first .* in this order"
    ):
        loss.backward()
    loss = loss_fn(pool(*sample(), index), labels, index)
    loss.backward(retain_graph=True)
    loss.backward()
    commit(pool, loss_fn)


def test_nothing_is_kept_of_a_loss_that_is_not_finite():
    pool, loss_fn = make(), MinMaxAUCLoss()
    index, labels = torch.tensor([0, 4, 2]), torch.tensor([1, 0, 0])
    z, v = sample()
    loss = loss_fn(pool(z, v * torch.nan, index), labels)
    assert math.isnan(loss.item())
    with pytest.warns(UserWarning, match="the loss is not finite, so no state was written"):
        commit(pool, loss_fn)
    assert not pool.bag_state.any()
    assert not loss_fn.dual.any()
    pool(z, v * torch.nan, index)
    commit(pool)  # with a loss of one's own, what is proposed is looked at
    assert not pool.bag_state.any()
    pool(z, v, index)
    with pytest.warns(UserWarning, match="the loss is not finite"):
        commit(pool, loss=torch.tensor(torch.inf))
    assert not pool.bag_state.any()
    (pool(z, v, index).sum() * torch.nan).backward()
    commit(pool)  # so is the gradient of a loss of one's own
    assert not pool.bag_state.any()
    pool(z, v, index)
    commit(pool)
    assert pool.bag_state[index, 0].tolist() == [1, 1, 1]


def test_modules_inside_a_model_are_found_and_a_missing_commit_is_said_once():
    pool, loss_fn = make(), MinMaxAUCLoss()
    model = nn.ModuleDict({"pool": pool, "loss": nn.Sequential(loss_fn)})
    index, labels = torch.tensor([0, 4, 2]), torch.tensor([1, 0, 0])
    loss_fn(pool(*sample(), index), labels)
    commit(model)
    assert pool.bag_state[index, 0].tolist() == [1, 1, 1]
    assert loss_fn.dual.item() > 0
    scores = pool(*sample(), index)
    with pytest.warns(UserWarning, match="TrackedPooling was called again before midam.nn.commit: call commit after"):
        pool(*sample(), index)
    loss_fn(scores, labels)
    with pytest.warns(UserWarning, match="MinMaxAUCLoss was called again before midam.nn.commit"):
        loss_fn(scores, labels)
    pool(*sample(), index)
    with pytest.raises(ConfigError, match=r"Expected a TrackedPooling or a loss .* call commit\(pool, loss_fn\)"):
        commit(nn.Linear(1, 1))


def test_a_pooling_of_ones_own_is_called_on_encodings():
    class Third(Pooling):
        """A third of the mean."""

        value_size = 1

        def forward(self, e):
            return e.new_zeros(len(e)), e.sum(dim=1, keepdim=True)

        def score(self, l, r, n):  # noqa: E741
            return r.squeeze(1) / 3

    own = Third(2)
    pool = TrackedPooling(own, num_bags=4)
    z, v = own(torch.ones(6, 2))
    assert pool(z.view(2, 3), v.view(2, 3), torch.tensor([3, 1])).tolist() == pytest.approx([2 / 3] * 2)
    head = EmbeddingAttentionPooling(5)
    pool = TrackedPooling(head, num_bags=4)
    z, v = head(torch.randn(6, 5))
    scores = pool(z.view(2, 3), v.view(2, 3, 5), torch.tensor([3, 1]))
    scores.sum().backward()
    assert pool.bag_state.shape == (4, 7)
    assert head.head[0].weight.grad.any()


@pytest.mark.parametrize("name", ["attention", "mean", "smoothed-max", "noisy-or"])
@pytest.mark.parametrize("options", [{}, {"attention": "shared"}])
def test_several_columns(name, options):
    if options and name != "attention":
        return
    pool = make(name, columns=3, **options)
    rng = torch.Generator().manual_seed(0)
    z, v = torch.randn(2, 4, 3, generator=rng), torch.randn(2, 4, 3, generator=rng)
    one = [make(name, logits=False) for _ in range(3)]
    index = torch.tensor([5, 3])
    if options:
        z = z[..., :1].squeeze(-1)
    values = v if options or name != "attention" else v.unsqueeze(-1)
    scores = pool(z, values, index)
    for column, alone in enumerate(one):
        own = z if options else z[..., column]
        torch.testing.assert_close(scores[:, column], alone(own, v[..., column], index))
    commit(pool)
    whole = pool.eval()(z, values)
    torch.testing.assert_close(pool.evaluate([(z[0], values[0])]), whole[0], rtol=1e-5, atol=1e-6)


def test_losses_of_other_labels():
    h = torch.tensor([0.2, 1.0, -0.4], requires_grad=True)
    times = torch.tensor([[3.0, 1], [1.0, 1], [2.0, 0]])
    assert CoxLoss()(h, times).item() > 0
    classes = torch.tensor([2, 0, 1])
    logits = torch.randn(3, 3)
    ours = CrossEntropyLoss(columns=3)(logits, classes)
    torch.testing.assert_close(ours, nn.functional.cross_entropy(logits, classes))
    grades = PairwiseAUCLoss(pairs="order")
    assert grades(h, torch.tensor([1, 2, 0])).item() == pytest.approx(
        sum(max(0.0, 1 - d) ** 2 for d in (0.8, 1.4, 0.6)) / 3
    )
    h, one = h.sigmoid(), MinMaxAUCLoss(center_start=0.3).eval()
    torch.testing.assert_close(one(h, torch.tensor([1, 0, 1])), one(h.view(3, 1), torch.tensor([[1.0], [0], [1]])))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("max"), "Expected a smooth pooling, got 'max'; use 'smoothed-max'"),
        (lambda: make("embedding-attention"), "got 'embedding-attention'; give an instance"),
        (lambda: make("attentoin"), "did you mean 'attention'"),
        (lambda: TrackedPooling("noisy-or", num_bags=3), "Expected the sizes of the training bags for 'noisy-or'"),
        (lambda: TrackedPooling("mean", num_bags=3, sizes=[1, 2]), "Expected a size above 0 of each of 3 bags, got"),
        (lambda: TrackedPooling("mean", num_bags=3, sizes=[1, 2, 0]), r"of each of 3 bags, got tensor\(\[1, 2, 0\]\)"),
        (lambda: TrackedPooling("mean", num_bags=2, sizes=[1, math.nan]), r"of each of 2 bags, got tensor\(\[1., nan"),
        (lambda: make("smoothed-max", temperature=0.0), "temperature > 0"),
        (lambda: make("smoothed-max", temprature=1.0), "did you mean 'temperature'"),
        (lambda: make()(*sample()), "Expected `index`"),
        (lambda: make()(*sample(), torch.tensor([0, 1])), "Expected 3 different bags from 0 to 9 as index"),
        (lambda: make()(*sample(), [0, 1, 2]), "Expected `index` of type Tensor, got list"),
        (lambda: make("mean")(sample()[1], [0, 1, 2]), "Expected `index` of type Tensor, got list"),
        (lambda: make()(*sample(), torch.tensor([0, 1, 1])), "each once per batch"),
        (lambda: make()(*sample(), torch.tensor([0, 1, 10])), "Expected 3 different bags from 0 to 9 as index"),
        (lambda: make()(*sample(), torch.tensor([0, 1, -1])), "Expected 3 different bags"),
        (lambda: make()(torch.zeros(3, 4), None, torch.arange(3)), "Expected values of width 1 for 'attention', got 0"),
        (lambda: make()(torch.zeros(3, 4), torch.zeros(3, 5), torch.arange(3)), r"shapes \[\[3, 4\], \[3, 5\], None"),
        (lambda: make()(torch.zeros(4), None, torch.arange(4)), r"\[K, B\] .*, got shapes \[\[4\], None, None\]"),
        (lambda: make()(*sample(), torch.arange(3), mask=torch.ones(3, 5).bool()), r"\[3, 5\]\]; give all"),
        (
            lambda: make()(torch.zeros(3, 0), torch.zeros(3, 0), torch.arange(3)),
            r"shapes \[\[3, 0\], \[3, 0\], None",
        ),
        (lambda: make().eval()(torch.zeros(3, 0), torch.zeros(3, 0)), r"shapes \[\[3, 0\], \[3, 0\], None"),
        (
            lambda: make()(torch.zeros(0, 4), torch.zeros(0, 4), torch.arange(0)),
            r"shapes \[\[0, 4\], \[0, 4\], None",
        ),
        (lambda: MinMaxAUCLoss()(torch.zeros(3), torch.zeros(4)), r"got scores \[3\] and labels \[4\]"),
        (lambda: PairwiseAUCLoss(columns=2, pairs="labels")(torch.zeros(3), torch.zeros(3, 2)), "Expected 2 scores"),
        (lambda: CoxLoss()(torch.zeros(2), torch.zeros(2)), r"Expected labels \[K, 2\], time and event .* for 'cox'"),
        (lambda: AveragePrecisionLoss(num_bags=3)(torch.zeros(2), torch.zeros(2)), "call it with .scores, labels, in"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("loss_fn", "right", "wrong"),
    [
        (BCELoss(), [0, 1, 1], [[0, 1, 2], [0, 1, math.nan]]),
        (CrossEntropyLoss(columns=3), [0, 2, math.nan], [[0, 1, 3], [-1, 1, 2], [0.5, 1, 2], np.eye(3)]),
        (MinMaxAUCLoss(columns=3, pairs="classes"), [0, 1, 2], [[0, 1, 3], np.eye(3)]),
        (BCELoss(columns=3, pairs="labels"), [[0, 1, math.nan]] * 3, [[[0, 1, 2]] * 3, [[0, 1, -1]] * 3]),
        (PairwiseAUCLoss(pairs="order"), [-1, 2.5, 7], [np.eye(3)]),
        (PairwiseAUCLoss(pairs="survival"), [[2, 1], [3, 0], [2.5, 1]], [[[2, 1], [3, 2], [4, 0]], [2, 3, 4]]),
        (CoxLoss(), [[2, 1], [3, 0], [2.5, 1]], [[[2, 1], [3, math.nan], [4, 0]], [[2, 1], [math.nan, 1], [4, 0]]]),
    ],
)
def test_labels_that_a_loss_does_not_take_are_refused(loss_fn, right, wrong):
    scores = torch.rand(3, loss_fn.columns, generator=torch.Generator().manual_seed(0))
    assert loss_fn.eval()(scores, torch.tensor(right)).isfinite()
    for labels in wrong:
        with pytest.raises(ConfigError, match=f"for '{loss_fn.name}', got .*; (give|stack)"):
            loss_fn(scores, torch.tensor(np.asarray(labels)))


@pytest.mark.parametrize("index", [[0, 1, 1], [0, 1, -1], [0, 1, 10], [0, 1], [0.0, 1.0, 2.0]])
def test_a_loss_that_remembers_bags_takes_different_bags_alone(index):
    scores, labels = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([0, 1, 1])
    for loss_fn in (AveragePrecisionLoss(num_bags=10), PartialAUCLoss(num_bags=10, max_fpr=0.5)):
        with pytest.raises(ConfigError, match="Expected 3 different bags from 0 to 9 as index"):
            loss_fn(scores, labels, torch.tensor(index))
        loss_fn(scores, labels, torch.tensor([0, 1, 2], dtype=torch.int32))


@pytest.mark.parametrize("chunks", [[], [(torch.zeros(0), torch.zeros(0))]])
def test_a_bag_without_instances_has_no_score(chunks):
    with pytest.raises(BagDataError, match="Expected at least one instance"):
        make().evaluate(chunks)
    assert make().evaluate([*chunks, (torch.zeros(2), torch.zeros(2))]).item() == 0.5


def test_half_precision_is_pooled_in_float32():
    pool, loss_fn = make(), MinMaxAUCLoss()
    z, v = (x.detach().to(torch.bfloat16).requires_grad_() for x in sample())
    scores = pool(z, v, torch.arange(3))
    assert scores.dtype == torch.float32
    loss_fn(scores, torch.tensor([1, 0, 1])).backward()
    assert z.grad.dtype == torch.bfloat16
    assert AttentionPooling(4).without_layers().score(torch.zeros(1), torch.zeros(1, 1), torch.ones(1)).item() == 0.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_module_in_half_precision_keeps_its_state_in_float32(dtype):
    pool, loss_fn = make().to(dtype), MinMaxAUCLoss().to(dtype)
    assert {pool.bag_state.dtype, loss_fn.dual.dtype, loss_fn.positive_center.dtype} == {
        torch.float64 if dtype == torch.float64 else torch.float32
    }
    z, v = (x.detach().to(dtype).requires_grad_() for x in sample())
    loss_fn(pool(z, v, torch.arange(3)), torch.tensor([1, 0, 1])).backward()
    commit(pool, loss_fn)
    assert z.grad.dtype == dtype
    assert pool.bag_state[:3, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_a_mask_without_instances_is_refused(name):
    mask = torch.tensor([[True] * 4, [False] * 4, [True] * 4])
    pool, values = make(name), sample() if name == "attention" else sample()[:1]
    for call in (lambda: pool(*values, torch.arange(3), mask=mask), lambda: pool.eval()(*values, mask=mask)):
        with pytest.raises(ConfigError, match=r"Expected an instance in each row of mask, got none \(in row 1\)"):
            call()


def test_a_bag_that_fills_half_of_its_slots_is_not_drawn_whole():
    pool = make(num_bags=2, sizes=[4, 4], state_rate=0.5)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    rates = []
    for seed in range(2):
        _, old, _ = (pool(*sample(2, seed=seed), torch.arange(2), mask=mask), *pool._proposed)[1]
        rates.append(pool._rate(old[:, :1], pool.sizes, drawn=4, mask=mask, ranks=None).flatten().tolist())
        commit(pool)
    assert rates == [[1, 1], [1, 0.5]]


def test_parameters_that_no_optimizer_has_are_said_once():
    pool, loss_fn, labels = make(), MinMaxAUCLoss(), torch.tensor([1, 0, 1])

    def steps(optimizer=None):
        for _ in range(60):
            loss_fn(pool(*sample(), torch.arange(3)), labels).backward()
            if optimizer is not None:
                optimizer.step()
            commit(pool, loss_fn)

    with pytest.warns(
        UserWarning, match=r"no parameter of MinMaxAUCLoss has moved .* give loss_fn.parameters\(\)"
    ) as said:
        steps()
    assert len(said) == 1
    loss_fn = MinMaxAUCLoss()
    steps(torch.optim.SGD(loss_fn.parameters(), lr=0.01))  # warnings are errors here


def test_a_parameter_of_a_pooling_that_no_optimizer_has_is_said_once():
    pool, loss_fn, labels = TrackedPooling("noisy-and", num_bags=3), MinMaxAUCLoss(), torch.tensor([1, 0, 1])

    def steps(*learned):
        optimizer = torch.optim.SGD([*loss_fn.parameters(), *learned], lr=0.01)
        for _ in range(60):
            loss_fn(pool(sample()[0], torch.arange(3)), labels).backward()
            optimizer.step()
            commit(pool, loss_fn)

    with pytest.warns(UserWarning, match=r"no parameter of TrackedPooling has .* give pool.parameters\(\)") as said:
        steps()
    assert len(said) == 1
    pool = TrackedPooling("noisy-and", num_bags=3)
    steps(*pool.parameters())


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_an_evaluation_before_commit_changes_no_state(how):
    def trained(evaluate):
        pool, loss_fn, labels = make(), MinMaxAUCLoss(), torch.tensor([1, 0, 1])
        scores = pool(*sample(), torch.arange(3))
        loss_fn(scores, labels).backward()
        if evaluate:
            loss_fn.train(how != "eval")
            with torch.no_grad():
                loss_fn(1 - scores, labels)
            loss_fn.train()
        commit(pool, loss_fn)
        return loss_fn.dual.item(), pool.bag_state.tolist()

    assert trained(evaluate=True) == trained(evaluate=False)
    assert trained(evaluate=True)[0] > 0


def test_scores_of_other_bags_in_training_mode_are_warned_of():
    pool = make()
    with torch.no_grad(), pytest.warns(UserWarning, match="mixes what it remembers of training bags"):
        pool(*sample(grad=False), torch.arange(3))


LOSSES = {
    "min-max": MinMaxAUCLoss,
    "dual_lr": lambda: MinMaxAUCLoss(dual_lr=0.5),
    "partial": lambda: PartialAUCLoss(num_bags=10),
    "average precision": lambda: AveragePrecisionLoss(num_bags=10),
}


@pytest.mark.parametrize("make_loss", LOSSES.values(), ids=LOSSES)
def test_a_network_of_doubles_trains_like_one_of_floats(make_loss):
    def losses(of_network, of_loss):
        pool, loss_fn, index, values = make("attention"), make_loss().to(of_loss), torch.tensor([4, 0, 7]), []
        for step in range(4):
            z, v = (x.detach().to(of_network).requires_grad_() for x in sample(seed=step))
            more = (index,) if loss_fn.per_bag else ()
            loss = loss_fn(pool(z, v, index), torch.tensor([1, 0, 1]), *more)
            loss.backward()
            assert z.grad.dtype == v.grad.dtype == of_network
            commit(pool, loss_fn)
            values.append(loss.item())
        return values

    floats = losses(torch.float32, torch.float32)
    for types in ((torch.float64, torch.float32), (torch.float32, torch.float64), (torch.float64, torch.float64)):
        np.testing.assert_allclose(losses(*types), floats, rtol=1e-5)
