"""Score columns: rows of branches, what the poolings hold, what is refused, streams, draws, state."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.contract.test_extensions import Remembered, Softened
from tests.reference.cases import (
    ALL,
    COLUMNED,
    columns_alone,
    gradient,
    make_bags,
    make_columns,
    make_model,
    relative,
    whole_batch,
)
from torch import nn

from midam.errors import CheckpointError, ConfigError
from midam.evaluate.pooled import instance_scores
from midam.evaluate.predict import predict, stream_bags
from midam.explain.explanation import explain_bag
from midam.nn import BagEnsemble, column_of, make_pooling
from midam.nn.objectives import BCELoss
from midam.nn.pooling import AttentionPooling, MeanPooling, SmoothedMaxPooling
from midam.nn.pooling.base import RescaledPooling
from midam.nn.scorer import each, fold, fold_chunk, fold_slots, own_branch, rows_of, unfold
from midam.registry import OBJECTIVES, POOLINGS
from midam.settings import Settings
from midam.train.build import build_ensemble, build_method
from midam.train.checkpoint import fitting
from midam.train.estimators import VarianceReduced
from midam.train.exact import ExactPoint, draw_proportional

BRANCHED = [case for case in COLUMNED if case[1] or case[0] in ("smoothed-max", "generalized-mean")]


# Rows.


def test_rows_of_bags_and_of_instances_are_numbered_alike():
    index, sizes = torch.tensor([3, 0]), torch.tensor([2, 1])
    assert rows_of(index, 2).tolist() == [6, 7, 0, 1]
    assert each(sizes, 2).tolist() == [2, 2, 1, 1]
    z, v = torch.arange(6).view(3, 2), torch.arange(12).view(3, 2, 2)
    positions, segment, flat_z, flat_v = fold_chunk(torch.tensor([7, 8, 9]), torch.tensor([0, 0, 1]), z, v)
    for row in range(6):
        instance, branch = divmod(row, 2)
        assert positions[row] == 7 + instance
        assert segment[row] == 2 * (instance // 2) + branch
        assert flat_z[row] == z[instance, branch]
        assert torch.equal(flat_v[row], v[instance, branch])
    assert torch.equal(unfold(fold(z, v)[1], 2), v)
    assert own_branch(z[[0, 2]], v[[0, 2]])[0].tolist() == [0, 5]


def test_slots_keep_their_order_in_each_branch():
    z, v = torch.randn(2, 4, 3), torch.randn(2, 4, 3, 5)
    rows, values = fold_slots(z, v)
    for bag in range(2):
        for branch in range(3):
            assert torch.equal(rows[3 * bag + branch], z[bag, :, branch])
            assert torch.equal(values[3 * bag + branch], v[bag, :, branch])


def test_one_branch_is_left_as_it_is():
    z, v, x = torch.randn(4), torch.randn(4, 2), torch.arange(4)
    assert all(a is b for a, b in zip(fold_chunk(x, x, z, v), (x, x, z, v), strict=True))
    assert rows_of(x, 1) is each(x, 1) is unfold(x, 1) is x
    assert all(a is b for a, b in zip(own_branch(z, v), (z, v), strict=True))


# What the poolings hold.

SHAPES = {
    "attention": {"hidden": (6, 6), "attention": (1, 6), "scorer": (1, 6)},
    "gated-attention": {"hidden": (6, 6), "gate": (6, 6), "attention": (1, 6), "scorer": (1, 6)},
    "embedding-attention": {"hidden": (6, 6), "attention": (1, 6), "head.0": (6, 6), "head.2": (1, 6)},
    "smoothed-max": {"scorer": (1, 6)},
    "mean": {"scorer": (1, 6)},
    "max": {"scorer": (1, 6)},
    "generalized-mean": {"scorer": (1, 6)},
    "noisy-or": {"scorer": (1, 6)},
    "noisy-and": {"scorer": (1, 6)},
}
OTHERS = {"noisy-and": {"b_logit": (), "a": ()}}


def layers_of(shapes):
    return {
        f"{name}.{part}": shape[:size] for name, shape in shapes.items() for part, size in (("weight", 2), ("bias", 1))
    }


@pytest.mark.parametrize("name", ALL)
def test_one_column_has_the_weights_and_the_random_stream_that_it_always_had(name):
    torch.manual_seed(5)
    pooling = make_pooling(name, 6)
    after = torch.rand(1)
    shapes = {key: tuple(x.shape) for key, x in pooling.state_dict().items()}
    assert shapes == layers_of(SHAPES[name]) | OTHERS.get(name, {})
    # Layers are made in this order, and nothing else is drawn.
    torch.manual_seed(5)
    for layer, (out, width) in SHAPES[name].items():
        made = nn.Linear(width, out)
        assert torch.equal(pooling.get_submodule(layer).weight, made.weight)
        assert torch.equal(pooling.get_submodule(layer).bias, made.bias)
    assert torch.equal(after, torch.rand(1))
    assert (pooling.columns, pooling.branches) == (1, 1)
    z, v = pooling(torch.randn(4, 6))
    assert z.shape == (4,)
    assert v.shape == (4, pooling.value_size)


@pytest.mark.parametrize(
    ("name", "attention", "branches", "width", "by_column"),
    [
        ("attention", "shared", 1, 3, {"scorer"}),
        ("attention", "per-class", 3, 1, {"scorer", "attention"}),
        ("gated-attention", "shared", 1, 3, {"scorer"}),
        ("gated-attention", "per-class", 3, 1, {"scorer", "attention"}),
        ("embedding-attention", "shared", 1, 6, {"head.2"}),
        ("embedding-attention", "per-class", 3, 6, {"head.2", "attention"}),
        ("smoothed-max", "shared", 3, 0, {"scorer"}),
        ("max", "shared", 3, 0, {"scorer"}),
        ("generalized-mean", "shared", 3, 0, {"scorer"}),
        ("mean", "shared", 1, 3, {"scorer"}),
        ("noisy-or", "shared", 1, 3, {"scorer"}),
        ("noisy-and", "shared", 1, 3, {"scorer"}),
    ],
)
def test_columns_have_outputs_of_their_own_on_shared_layers(name, attention, branches, width, by_column):
    pooling = make_pooling(name, 6, columns=3, attention=attention)
    assert (pooling.columns, pooling.branches, pooling.value_size) == (3, branches, width)
    own = {layer: (3, 6) if layer in by_column else shape for layer, shape in SHAPES[name].items()}
    others = {"b_logit": (3,), "a": ()} if name == "noisy-and" else {}
    assert {key: tuple(x.shape) for key, x in pooling.state_dict().items()} == layers_of(own) | others
    z, v = pooling(torch.randn(4, 6))
    assert z.shape == ((4,) if branches == 1 else (4, 3))
    assert v.shape == (*z.shape, width)


@pytest.mark.parametrize(("name", "options"), COLUMNED)
def test_half_precision_encodings_of_columns_are_pooled_in_float32(name, options):
    z, v = make_pooling(name, 2, columns=3, **options).to(torch.bfloat16)(torch.zeros(3, 2, dtype=torch.bfloat16))
    assert z.dtype == torch.float32
    assert v.dtype == torch.float32 or v.shape[-1] == 0


def test_one_column_of_per_class_attention_is_shared_attention():
    pooling = make_pooling("attention", 4, attention="per-class")
    assert (pooling.columns, pooling.branches, pooling.value_size) == (1, 1, 1)


# What is refused.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: make_pooling("softened", 4, columns=3),
            "3 score columns, got 'softened' with 1; .* attention, gated-attention, .*, noisy-and",
        ),
        (lambda: make_pooling("attention", 4, attention="both"), "'shared', 'per-class', got 'both'"),
        (lambda: RescaledPooling(MeanPooling(4, columns=2)), "one score column, got 'mean' with 2"),
        (
            lambda: BagEnsemble([make_model("mean"), make_columns("mean")]),
            r"number of score columns .*, got \[1, 3\]",
        ),
        (lambda: column_of(make_columns("mean"), None), "column from 0 to 2, got None"),
        (lambda: column_of(make_columns("mean"), 3), "column from 0 to 2, got 3"),
        (lambda: column_of(make_model("mean"), 1), "column from 0 to 0, got 1"),
        (lambda: instance_scores(make_columns("mean"), make_bags(), 0), "column from 0 to 2, got None"),
        (lambda: build("mean", columns=1, pooling_args={"columns": 2}), "1 score columns, got 'mean' with 2"),
    ],
)
def test_columns_that_cannot_be_are_refused(build, message, monkeypatch):
    monkeypatch.setitem(POOLINGS._added, "softened", Softened)
    with pytest.raises(ValueError, match=message):
        build()


def build(pooling, *, columns=3, estimator="vrsp", **settings):
    config = Settings(pooling=pooling, estimator=estimator, **settings)
    return build_method(config, instance_shape=(4,), num_bags=5, columns=columns)


def test_an_estimator_that_knows_of_bags_alone_takes_columns_of_one_branch():
    remembered = Remembered(num_bags=5, value_size=3)
    remembered.check(make_columns("attention", attention="shared"))
    with pytest.raises(ConfigError, match="'remembered', got 'attention' with weights for each of 3; use attention"):
        remembered.check(make_columns("attention", attention="per-class"))


class Told(BCELoss):
    """Remembers what it was made with."""

    def __init__(self, *, num_bags, columns):
        super().__init__()
        self.told = num_bags, columns


@pytest.mark.parametrize(("args", "rows"), [({"attention": "shared"}, 5), ({}, 15)])
def test_a_method_is_built_with_columns(args, rows, monkeypatch):
    monkeypatch.setitem(OBJECTIVES._added, "told", Told)
    parts = build("attention", pooling_args=args, objective="told")
    assert parts.objective.told == (5, 3)
    assert parts.model.pooling.columns == 3
    assert len(parts.estimator.bag_state) == rows
    assert parts.estimator.branches == parts.model.pooling.branches
    config = Settings(pooling="attention", members=2)
    members = build_ensemble(config, instance_shape=(4,), columns=3).members
    assert [member.pooling.columns for member in members] == [3, 3]


# State, checkpoints, memory.


@pytest.mark.parametrize(("name", "options"), COLUMNED)
def test_weights_and_state_load_where_the_columns_are_as_many_and_nowhere_else(name, options, tmp_path):
    def parts(columns):
        model = make_columns(name, columns=columns, seed=columns, **options)
        head = model.pooling
        return model, VarianceReduced(5, head.value_size, branches=head.branches)

    model, estimator = parts(3)
    estimator.bag_state.normal_()
    for part, other, fewer in zip((model, estimator), parts(3), parts(2), strict=True):
        other.load_state_dict(part.state_dict())
        assert all(torch.equal(x, part.state_dict()[key]) for key, x in other.state_dict().items())
        if part is model or estimator.bag_state.shape != fewer.bag_state.shape:
            with pytest.raises(CheckpointError, match="size mismatch"), fitting(tmp_path):
                fewer.load_state_dict(part.state_dict())


# Streams and predictions.


@pytest.mark.parametrize(
    ("name", "options", "chunk_size"), [(*case, (1, 7, 1000)[at % 3]) for at, case in enumerate(COLUMNED)]
)
def test_streamed_columns_are_those_of_the_whole_and_of_each_alone(name, options, chunk_size):
    model, bags = make_columns(name, **options), make_bags()
    batch = whole_batch(bags)
    whole, streamed = model(batch.reader.all, batch.sizes), stream_bags(model, batch, chunk_size=chunk_size)
    torch.testing.assert_close(streamed.score, whole.score.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(streamed.n, whole.n)
    scores = predict(model, bags, chunk_size=chunk_size)
    assert scores.shape == (6, 3)
    alone = [predict(own, bags, chunk_size=chunk_size) for own in columns_alone(model, name, **options)]
    np.testing.assert_allclose(scores, np.stack(alone, axis=1), rtol=1e-10)
    for column, own in enumerate(alone):
        np.testing.assert_allclose(predict(column_of(model, column), bags, chunk_size=chunk_size), own, rtol=1e-10)


@pytest.mark.parametrize("weights", [None, [0.5, 0.3, 0.2]])
@pytest.mark.parametrize("name", ["attention", "smoothed-max"])
def test_an_ensemble_averages_each_column(name, weights):
    bags, members = make_bags(), [make_columns(name, seed=seed) for seed in range(3)]
    model = BagEnsemble(members, weights)
    alone = np.stack([predict(member, bags) for member in members])
    np.testing.assert_allclose(predict(model, bags), np.average(alone, axis=0, weights=weights), rtol=1e-12)
    x = torch.from_numpy(bags.instances)
    np.testing.assert_allclose(model(x, torch.from_numpy(bags.sizes)).detach(), predict(model, bags), rtol=1e-12)
    np.testing.assert_allclose(predict(column_of(model, 2), bags), predict(model, bags)[:, 2], rtol=1e-12)


@pytest.mark.parametrize(("name", "options", "members"), [(*case, 1 + at % 2) for at, case in enumerate(COLUMNED)])
def test_instances_contribute_to_a_column_what_they_do_to_it_alone(name, options, members):
    bags = make_bags()
    several = [make_columns(name, seed=seed, **options) for seed in range(members)]
    parts = list(zip(*(columns_alone(member, name, **options) for member in several), strict=True))
    model = BagEnsemble(several)
    for column, alone in enumerate(parts):
        got = instance_scores(model, bags, 2, column=column, chunk_size=5)
        want = instance_scores(BagEnsemble(alone), bags, 2, chunk_size=5)
        for key in ("score", "attention", "weight"):
            np.testing.assert_allclose(getattr(got, key), getattr(want, key), rtol=1e-6, atol=1e-7)
        got = explain_bag(column_of(model, column), bags, 2, chunk_size=5)
        want = explain_bag(BagEnsemble(alone), bags, 2, chunk_size=5)
        assert got.score == pytest.approx(want.score, rel=1e-10)
        np.testing.assert_allclose(got.contribution, want.contribution, rtol=1e-5, atol=1e-7)


# The exact point with a sampled gradient.

N = 7


@pytest.mark.parametrize(("name", "options"), [("smoothed-max", {}), ("attention", {"attention": "per-class"})])
def test_the_exact_point_draws_from_the_mixture_and_is_unbiased_for_all_columns(name, options):
    model, bags = make_columns(name, **options), make_bags((N,), (1,), seed=2)
    batch = whole_batch(bags)
    z, _ = model.instances(batch.reader.all)
    q = torch.softmax(z.detach(), dim=0).mean(dim=1)
    estimator = ExactPoint(num_instances=1, chunk_size=3, seed=1)
    found, counts, draws = {}, np.zeros(N), 400
    for step in range(draws):
        drawn = draw_proportional(model, batch, 1, chunk_size=3, rng=np.random.default_rng([1, step]))
        instance = int(drawn.positions)
        counts[instance] += 1
        if instance not in found:
            estimator.step = step
            score = estimator(model, batch).score
            found[instance] = gradient(((score - 0.8) ** 2).sum(), model.parameters())
    whole = model(batch.reader.all, batch.sizes).score
    assert torch.allclose(score, whole, rtol=1e-10)
    assert len(found) == N
    expected = sum(q[instance] * own for instance, own in found.items())
    assert relative(expected, gradient(((whole - 0.8) ** 2).sum(), model.parameters())) < 1e-10
    assert chisquare(counts, draws * q.numpy()).pvalue > 1e-3


def test_branches_take_turns_at_the_slots():
    model = make_model("smoothed-max", objective="bce", width=3, columns=3, temperature=1e-3, encoder=nn.Identity())
    with torch.no_grad():
        model.pooling.scorer.weight.copy_(torch.eye(3))
    bags = make_bags((9, 4), (1, 0), width=3)
    tops = np.array([[7, 2, 4], [9 + 3, 9, 9 + 1]])
    for own in tops:
        bags.instances[own, range(3)] = 9.0
    batch = whole_batch(bags)
    firsts = set()
    for step in range(20):
        drawn = draw_proportional(model, batch, 3, chunk_size=4, rng=np.random.default_rng(step)).positions.numpy()
        assert np.array_equal(np.sort(drawn, axis=1), np.sort(tops, axis=1))
        firsts.add(tops[0].tolist().index(drawn[0, 0]))
    assert firsts == {0, 1, 2}


def test_small_bags_of_several_branches_are_taken_whole():
    model, bags = make_columns("attention", attention="per-class"), make_bags()
    batch = whole_batch(bags)
    loss = lambda out: ((out.score - 0.8) ** 2).sum()  # noqa: E731
    got = gradient(loss(ExactPoint(num_instances=12, chunk_size=7)(model, batch)), model.parameters())
    want = gradient(loss(model(batch.reader.all, batch.sizes)), model.parameters())
    assert relative(got, want) < 1e-10


def test_one_column_looks_at_the_weights_of_the_model():
    model, bags = make_columns("smoothed-max"), make_bags()
    own = column_of(model, 1)
    before = predict(own, bags)
    with torch.no_grad():
        model.pooling.scorer.bias[1] += 1
    assert (predict(own, bags) > before).all()
    single = make_model("mean")
    assert column_of(single, None) is column_of(single, 0) is single


def test_learnable_settings_of_columns_start_alike_and_are_their_own():
    pooling = SmoothedMaxPooling(2, temperature=0.25, learn_temperature=True, columns=3)
    assert pooling.tau.tolist() == pytest.approx([0.25] * 3)
    assert AttentionPooling(2, columns=3, attention="per-class").attention.weight.unique().numel() == 6
