"""Two-pass exact gradients against plain autograd, and the exact point by enumerating all samples."""

import math
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from tests.reference.cases import (
    ALL,
    OBJECTIVES,
    SMOOTH,
    exact_gradient,
    gradient,
    make_bags,
    make_model,
    make_objective,
    parameters,
    relative,
    subsets,
    tuples,
    whole_batch,
)
from torch import Tensor, nn

from midam.data.bags import Bags
from midam.errors import ConfigError
from midam.functional.logmean import BagStatistic, linearize, merge, point_weights, reduce, reduce_segments
from midam.nn.encoders import MLP
from midam.nn.encoders.custom import Encoder
from midam.nn.encoders.images import Norm, ResNet20
from midam.nn.pooling import make_pooling
from midam.nn.scorer import BagOutput, BagScorer
from midam.train.exact import Exact, ExactPoint, _Passes

OPTIONS = {
    "smoothed-max": {"learn_temperature": True},
    "generalized-mean": {"learn_exponent": True},
    "embedding-attention": {"gated": True},
}
# 32 instances in all: five chunks, the last of four, cut across the bags.
CHUNK = 7


class Tempered(nn.Module):
    """An encoder with a learnable temperature of its own, of which the estimator knows nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.log_tau = nn.Parameter(torch.tensor(0.3))
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) / self.log_tau.exp()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("objective", list(OBJECTIVES))
@pytest.mark.parametrize("pooling", ALL)
def test_two_passes_equal_full_autograd(pooling: str, objective: str, dtype: torch.dtype, bound: float) -> None:
    bags = make_bags(dtype=str(dtype).removeprefix("torch."))
    model = make_model(pooling, objective=objective, dtype=dtype, encoder=Tempered(4), **OPTIONS.get(pooling, {}))
    loss_of = make_objective(objective, dtype=dtype)
    want_loss, want = exact_gradient(model, loss_of, bags)
    batch, params = whole_batch(bags), parameters(model, loss_of)
    assert len(list(batch.chunks(CHUNK))) == 5

    loss = loss_of(Exact(chunk_size=CHUNK)(model, batch), batch.labels)
    assert loss.item() == pytest.approx(want_loss.item(), rel=bound)
    assert relative(gradient(loss, params), want) < bound
    # The same through .grad, on top of what is there already.
    for p in params:
        p.grad = torch.ones_like(p)
    loss_of(Exact(chunk_size=CHUNK)(model, batch), batch.labels).backward()
    assert relative(torch.cat([p.grad.flatten() for p in params]) - 1, want) < 10 * bound


@pytest.mark.parametrize("chunk_size", [1, 2, 31, 32, 1000])
def test_any_chunk_size_gives_the_same_gradient(chunk_size: int) -> None:
    bags, model, loss_of = make_bags(), make_model("embedding-attention"), make_objective("minmax-auc")
    want_loss, want = exact_gradient(model, loss_of, bags)
    batch = whole_batch(bags)
    loss = loss_of(Exact(chunk_size=chunk_size)(model, batch), batch.labels)
    assert loss.item() == pytest.approx(want_loss.item(), rel=1e-12)
    assert relative(gradient(loss, parameters(model, loss_of)), want) < 1e-12


def test_frozen_parameters_get_no_gradient_and_the_others_keep_theirs() -> None:
    bags, model, loss_of = make_bags(), make_model("attention"), make_objective("minmax-auc")
    batch = whole_batch(bags)
    model.encoder.requires_grad_(False)
    free = [p for p in model.parameters() if p.requires_grad]
    want = gradient(loss_of(model(batch.reader.all, batch.sizes), batch.labels), free)
    loss_of(Exact(chunk_size=CHUNK)(model, batch), batch.labels).backward()
    assert relative(torch.cat([p.grad.flatten() for p in free]), want) < 1e-12
    assert all(p.grad is None for p in model.encoder.parameters())


def chunked_autograd(model: BagScorer, bags: Bags, chunk_size: int) -> BagOutput:
    """One graph over all chunks: plain autograd under the masks that the chunks draw in turn."""
    batch = whole_batch(bags)
    total: BagStatistic | None = None
    for positions, segment in batch.chunks(chunk_size):
        z, v = model.instances(batch.reader.rows(positions))
        part = reduce_segments(z, v, segment, num_bags=len(bags))
        total = part if total is None else merge(total, part)
    return BagOutput(total.l, total.r, total.n, model.pooling)


@pytest.mark.parametrize("pooling", ["mean", "smoothed-max", "embedding-attention", "noisy-or"])
def test_dropout_is_replayed(pooling: str) -> None:
    bags = make_bags()
    model = make_model(pooling, encoder=MLP(4, hidden=(6, 4), dropout=0.4))
    loss_of, batch = make_objective("minmax-auc"), whole_batch(bags)
    params = parameters(model, loss_of)
    torch.manual_seed(11)
    reference = loss_of(chunked_autograd(model, bags, CHUNK), batch.labels)
    state = torch.get_rng_state()
    torch.manual_seed(11)
    loss = loss_of(Exact(chunk_size=CHUNK)(model, batch), batch.labels)
    torch.rand(3)
    between = torch.get_rng_state()
    assert loss.item() == pytest.approx(reference.item(), rel=1e-12)
    assert relative(gradient(loss, params), gradient(reference, params)) < 1e-12
    # The replay does not disturb the generator: neither what was drawn before it nor after the forward pass.
    assert torch.equal(between, torch.get_rng_state())
    torch.set_rng_state(state)
    torch.rand(3)
    assert torch.equal(between, torch.get_rng_state())


@pytest.mark.parametrize(("dropout", "kept"), [(0.0, 1), (0.4, 5)])
def test_random_states_take_memory_only_where_something_is_drawn(dropout: float, kept: int) -> None:
    model = make_model("attention", encoder=MLP(4, hidden=(6, 4), dropout=dropout)).train()
    passes = _Passes(model, whole_batch(make_bags()), CHUNK)
    with torch.no_grad():
        passes.first()
    assert len(passes.random_states) == 5
    assert len({id(state) for state in passes.random_states}) == kept


def test_gradients_reach_the_weights_inside_one_autocast_region() -> None:
    # The pass without graph fills autocast's cache of cast weights; the pass with graph must not reuse them.
    bags = make_bags(dtype="float32")
    for name, pooling in (("exact", "attention"), ("exact", "max"), ("exact-point", "attention")):
        model = make_model(pooling, dtype=torch.float32)
        plain = make_model(pooling, dtype=torch.float32)
        grads = []
        for net, enabled in ((model, True), (plain, False)):
            estimator = Exact(chunk_size=5) if name == "exact" else ExactPoint(num_instances=20, chunk_size=5)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                estimator(net, whole_batch(bags)).score.sum().backward()
            grads.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        assert relative(*grads) < 2e-2


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


@pytest.mark.parametrize("estimator", [Exact(chunk_size=5), ExactPoint(num_instances=4, chunk_size=5)])
def test_batch_statistics_are_refused_and_evaluation_statistics_are_not(estimator: nn.Module) -> None:
    model = make_model("attention", encoder=Normalized())
    batch = whole_batch(make_bags())
    with pytest.raises(
        ConfigError,
        match=r"batch normalization with the statistics of each chunk at 'encoder.norm'.*group normalization",
    ):
        estimator(model, batch)
    model.get_submodule("encoder.norm").eval()
    assert torch.isfinite(estimator(model, batch).score).all()
    model.encoder.norm = nn.BatchNorm1d(4, track_running_stats=False).double().eval()
    with pytest.raises(ConfigError, match="batch normalization"):
        estimator(model, batch)


def test_one_chunk_takes_one_ordinary_pass_with_batch_normalization() -> None:
    bags, model = make_bags(), make_model("mean", encoder=Normalized())
    batch = whole_batch(bags)
    out = Exact(chunk_size=32)(model, batch)
    assert torch.allclose(out.score, model(batch.reader.all, batch.sizes).score)


def test_group_normalization_gives_the_exact_gradient() -> None:
    torch.manual_seed(0)
    model = BagScorer(ResNet20(1), make_pooling("attention", 64)).double()
    bags = make_bags((3, 2), (1, 0), width=64)
    bags = Bags.from_list([bag.reshape(-1, 1, 8, 8) for bag in bags], labels=[1, 0])
    loss_of = make_objective("pairwise")
    _, want = exact_gradient(model, loss_of, bags)
    batch = whole_batch(bags)
    loss = loss_of(Exact(chunk_size=2)(model, batch), batch.labels)
    assert relative(gradient(loss, parameters(model)), want) < 1e-10


def test_active_dropout_is_refused_where_it_cannot_be_replayed() -> None:
    batch = whole_batch(make_bags())
    for pooling, estimator in (("max", Exact(chunk_size=5)), ("attention", ExactPoint(num_instances=4, chunk_size=5))):
        model = make_model(pooling, encoder=MLP(4, dropout=0.5))
        with pytest.raises(ConfigError, match=r"active dropout at 'encoder\.layers\.2'"):
            estimator(model, batch)
        estimator(model.eval(), batch)


# The exact point with a sampled gradient, enumerated.

N, B = 7, 3


def one_bag(pooling: str) -> tuple[BagScorer, Tensor]:
    options = {"temperature": 0.5} if pooling == "smoothed-max" else {}
    options |= OPTIONS.get(pooling, {})
    return make_model(pooling, **options), torch.from_numpy(make_bags((N,), (1,), seed=2).instances)


def sampled_scores(model: BagScorer, x: Tensor, rows: Tensor, proportional: bool) -> Tensor:
    """Score of the bag at its exact point under each sample, with that sample's gradient."""
    z, v = model.instances(x)
    point = reduce(z.detach()[None], v.detach()[None])
    level, r = point.l.expand(len(rows)), point.r.expand(len(rows), -1)
    z_rows, v_rows = z[rows], v[rows]
    w = point_weights(z_rows, level, torch.full_like(level, B))
    if proportional:
        w = torch.full_like(w, 1 / B)
    l_hat, r_hat = linearize(z_rows, v_rows, level, r, w)
    return model.pooling.score(l_hat, r_hat, torch.full_like(level, N))


@pytest.mark.parametrize("proportional", [False, True])
@pytest.mark.parametrize("pooling", SMOOTH)
def test_the_exact_point_gradient_is_unbiased_over_all_samples(pooling: str, proportional: bool) -> None:
    model, x = one_bag(pooling)
    q = torch.softmax(model.instances(x)[0].detach(), dim=0)
    rows = torch.tensor(tuples(N, B) if proportional else subsets(N, B))
    probability = q[rows].prod(dim=1) if proportional else torch.full((len(rows),), 1 / len(rows), dtype=x.dtype)
    exact = (model(x, torch.tensor([N])).score[0] - 0.8) ** 2
    scores = sampled_scores(model, x, rows, proportional)
    assert torch.allclose(scores, model(x, torch.tensor([N])).score, rtol=1e-12, atol=0)
    expected = probability @ (scores - 0.8) ** 2
    assert relative(gradient(expected, model.parameters()), gradient(exact, model.parameters())) < 1e-12


@pytest.mark.parametrize("pooling", ["smoothed-max", "mean"])
def test_the_estimator_draws_these_samples_with_these_probabilities(pooling: str) -> None:
    model, x = one_bag(pooling)
    weighted = model.pooling.weighted
    bags = make_bags((N,), (1,), seed=2)
    q = torch.softmax(model.instances(x)[0].detach(), dim=0)
    candidates: dict[tuple[int, ...], float] = Counter()
    for row in tuples(N, B) if weighted else subsets(N, B):
        candidates[tuple(sorted(row))] += q[list(row)].prod().item() if weighted else 1 / math.comb(N, B)
    rows = torch.tensor(list(candidates))
    samples = [sampled_scores(model, x, row[None], weighted).sum() for row in rows]
    table = torch.stack([gradient(score, model.parameters()) for score in samples])

    estimator, counts, draws = ExactPoint(num_instances=B, chunk_size=4, seed=1), torch.zeros(len(rows)), 400
    batch = whole_batch(bags)
    for _ in range(draws):
        got = gradient(estimator(model, batch).score.sum(), model.parameters())
        distance = (table - got).norm(dim=1) / table.norm(dim=1).max()
        assert distance.min() < 1e-12
        counts[distance.argmin()] += 1
    assert estimator.step == draws
    # Samples of an expected count below five are pooled, as the test wants it.
    expected = draws * torch.tensor(list(candidates.values()), dtype=torch.float64)
    large = expected >= 5
    observed = [*counts[large].tolist(), counts[~large].sum().item()]
    wanted = [*expected[large].tolist(), expected[~large].sum().item()]
    keep = [i for i, e in enumerate(wanted) if e > 0]
    assert chisquare([observed[i] for i in keep], [wanted[i] for i in keep]).pvalue > 1e-3


def test_steps_of_one_seed_repeat_and_differ_from_each_other() -> None:
    model, _ = one_bag("attention")
    batch = whole_batch(make_bags((60, 60), (1, 0)))

    def steps(estimator: ExactPoint, count: int) -> list[Tensor]:
        return [gradient(estimator(model, batch).score.sum(), model.parameters()) for _ in range(count)]

    first, again = (ExactPoint(num_instances=2, chunk_size=1024, seed=3) for _ in range(2))
    a, b = steps(first, 3), steps(again, 2)
    assert torch.equal(torch.stack(a[:2]), torch.stack(b))
    assert not torch.equal(a[0], a[1])
    resumed = ExactPoint(num_instances=2, chunk_size=1024, seed=3)
    resumed.load_state_dict(again.state_dict())
    assert torch.equal(steps(resumed, 1)[0], a[2])


@pytest.mark.parametrize("estimator", [Exact(chunk_size=3), ExactPoint(num_instances=4, chunk_size=3)])
def test_bags_stand_in_any_order_and_subset(estimator: nn.Module) -> None:
    bags, model = make_bags(), make_model("attention")
    everything = whole_batch(bags)
    all_scores = model(everything.reader.all, everything.sizes).score
    out = estimator(model, whole_batch(bags, [4, 0, 2]))
    assert torch.allclose(out.score, all_scores[[4, 0, 2]], rtol=1e-12)
    assert out.n.tolist() == [1.0, 7.0, 12.0]


@pytest.mark.parametrize(("dropout", "rows"), [(0.0, 6), (0.5, 32)])
def test_in_one_chunk_the_maximum_alone_is_back_propagated_unless_noise_would_move_it(
    dropout: float, rows: int
) -> None:
    bags, model = make_bags(), make_model("max", encoder=MLP(4, dropout=dropout).double())
    seen: list[int] = []
    model.encoder.register_forward_hook(lambda module, inputs, e: seen.append(len(e)) if e.requires_grad else None)
    Exact(chunk_size=100)(model.train(), whole_batch(bags)).logit.sum().backward()
    assert seen == [rows]


@pytest.mark.parametrize(("norm", "repeatable"), [("group", True), ("batch", False)])
def test_a_network_says_whether_it_encodes_an_instance_alike_each_time(norm: Norm, repeatable: bool) -> None:
    network = ResNet20(1, norm=norm)
    assert network.repeatable == Encoder(network, instance_shape=(1, 8, 8)).repeatable == repeatable
    assert not Encoder(nn.Flatten(), instance_shape=(1, 8, 8)).repeatable


@pytest.mark.parametrize("chunk_size", [1, 2, 10])
def test_ties_of_max_pooling_go_to_the_first_instance_across_chunks(chunk_size: int) -> None:
    # Equal scores, different instances: the second feature tells which one was back-propagated.
    model = make_model("max", width=2, encoder=nn.Identity())
    with torch.no_grad():
        model.pooling.scorer.weight.copy_(torch.tensor([[1.0, 0.0]]))
    bags = Bags.from_list([torch.tensor([[0.0, 9.0], [2.0, 3.0], [2.0, 5.0], [2.0, 7.0]]).double().numpy()], labels=[1])
    (grad,) = torch.autograd.grad(
        Exact(chunk_size=chunk_size)(model, whole_batch(bags)).logit.sum(), model.pooling.scorer.weight
    )
    assert (grad[0, 1] / grad[0, 0]).item() == pytest.approx(1.5)
