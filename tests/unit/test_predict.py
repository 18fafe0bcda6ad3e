import copy
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from midam.data.bags import Bags
from midam.data.batch import InstanceReader
from midam.evaluate.pooled import Member, PooledBags, instance_scores
from midam.evaluate.predict import bag_groups, predict
from midam.nn.scorer import BagEnsemble
from midam.settings import Settings
from midam.train.build import build_method

POOLINGS = ["attention", "gated-attention", "embedding-attention", "smoothed-max", "mean", "max", "noisy-and"]


def make_model(pooling="attention", width=4, **settings):
    config = Settings(pooling=pooling, estimator="exact", standardize=False, **settings)
    return build_method(config, instance_shape=(width,), num_bags=1).model


def make_bags(number=9, width=4):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 25, size=number)
    return Bags.from_list([rng.normal(size=(size, width)).astype(np.float32) for size in sizes])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_chunks_do_not_matter(pooling):
    model, bags = make_model(pooling), make_bags()
    whole = predict(model, bags, chunk_size=10**6)
    assert whole.dtype == np.float64
    assert whole.shape == (9,)
    assert ((whole >= 0) & (whole <= 1)).all()
    for chunk_size in (1, 7):
        np.testing.assert_allclose(predict(model, bags, chunk_size=chunk_size), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_chunks_of_large_bags_do_not_matter(pooling):
    model = make_model(pooling)
    x = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float16)
    bags = Bags(x, starts=[0, 15_000], sizes=[15_000, 5_000])
    whole = predict(model, bags, chunk_size=10**6)
    for chunk_size in (100, 1000):
        np.testing.assert_allclose(predict(model, bags, chunk_size=chunk_size), whole, rtol=0, atol=1e-6)


def test_a_bag_is_scored_alone(monkeypatch):
    model, bags = make_model(), make_bags()
    whole = predict(model, bags)
    alone = np.concatenate([predict(model, bags.subset([i])) for i in range(len(bags))])
    np.testing.assert_allclose(alone, whole, rtol=0, atol=1e-6)
    monkeypatch.setattr("midam.evaluate.predict._BAGS_AT_A_TIME", 2)
    np.testing.assert_allclose(predict(model, bags), whole, rtol=0, atol=1e-6)


def test_groups_of_bags_do_not_matter_and_are_told(monkeypatch):
    model, bags, told = make_model(), make_bags(60), []
    whole = predict(model, bags, chunk_size=1000)
    monkeypatch.setattr("midam.evaluate.predict._CHUNKS_AT_A_TIME", 2)
    found = predict(model, bags, chunk_size=20, on_bags=lambda group: told.append(list(group)))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-6)
    assert [i for group in told for i in group] == list(range(60))
    assert len(told) > 10
    assert all(bags.sizes[group].sum() <= 40 for group in told)


def test_groups_are_as_large_as_they_may_be():
    sizes = np.random.default_rng(0).integers(1, 40, size=200)
    groups = list(bag_groups(sizes, chunk_size=5))
    assert [i for group in groups for i in group] == list(range(200))
    for group, following in itertools.pairwise(groups):
        assert sizes[group].sum() <= 80
        assert sizes[group].sum() + sizes[following[0]] > 80
    assert [len(group) for group in bag_groups(np.ones(9000, int), chunk_size=4096)] == [4096, 4096, 808]
    assert list(bag_groups(np.array([10**6]), chunk_size=1)) == [range(1)]


def test_a_prediction_leaves_the_model_as_it_was():
    model, bags = make_model(dropout=0.5).train(), make_bags()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    before = copy.deepcopy(model.state_dict())
    assert np.array_equal(predict(model, bags), predict(model, bags)), "dropout must be off"
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("encoder", "layer", "shape", "threads"),
    [("mlp", nn.Linear, (4,), 1), ("mlp", nn.Linear, (600,), 3), ("resnet20", nn.Conv2d, (3, 8, 8), 3)],
)
def test_small_layers_take_one_thread_and_large_ones_all(encoder, layer, shape, threads, monkeypatch):
    """On a busy machine, threads that share microseconds wait for each other for tens of milliseconds."""
    config = Settings(encoder=encoder, estimator="exact", standardize=False)
    model, seen = build_method(config, instance_shape=shape, num_bags=1).model, []
    next(x for x in model.modules() if isinstance(x, layer)).register_forward_hook(
        lambda *_: seen.append(torch.get_num_threads())
    )
    score, pooled_with, now = Member.score, [], [3]
    # Three real threads would take seconds beside other tests.
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: now.__setitem__(0, count))

    def counted(self, *args):
        pooled_with.append(torch.get_num_threads())
        return score(self, *args)

    monkeypatch.setattr(Member, "score", counted)
    bags = Bags.from_list([np.ones((2, *shape), np.float32)] * 2)
    predict(model, bags)
    pooled = PooledBags(model, bags)
    pooled.scores(), pooled.contributions()
    pooled.with_instance(np.array([1]), torch.ones(1, *shape))
    assert now == [3]
    assert set(seen) == {threads}
    assert set(pooled_with) == {1}


def test_modes_come_back_after_an_error():
    model = make_model().train()
    with pytest.raises(RuntimeError):
        predict(model, make_bags(width=3))
    assert model.training


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("chunk_size", [3, 1000])
def test_instances_explain_the_score_of_their_bag(pooling, chunk_size):
    model, bags = make_model(pooling), make_bags()
    scores = predict(model, bags)
    for i in range(len(bags)):
        found = instance_scores(model, bags, i, chunk_size=chunk_size)
        assert found.score.shape == found.attention.shape == found.weight.shape == (bags.sizes[i],)
        np.testing.assert_allclose(found.weight.sum(dtype=np.float64), 1, rtol=1e-5)
        singles = predict(model, Bags.from_list([row[None] for row in bags[i]]))
        np.testing.assert_allclose(found.score, singles, rtol=1e-5)
        logits = np.log(found.score.astype(np.float64)) - np.log1p(-found.score.astype(np.float64))
        if pooling in ("attention", "gated-attention"):
            pooled = 1 / (1 + np.exp(-(found.weight * logits).sum()))
        elif pooling == "mean":
            pooled = (found.weight * found.score).sum()
        elif pooling == "max":
            pooled = found.score[found.weight.argmax()]
        else:
            continue  # embedding-attention pools vectors, the others are curved
        np.testing.assert_allclose(pooled, scores[i], rtol=2e-5)


def make_ensemble(pooling="attention", members=3):
    return BagEnsemble([make_model(pooling, seed=seed) for seed in range(members)])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_an_ensemble_scores_the_mean_of_its_members(pooling, chunk_size):
    model, bags = make_ensemble(pooling), make_bags()
    scores = predict(model, bags, chunk_size=chunk_size)
    alone = [predict(member, bags, chunk_size=chunk_size) for member in model.members]
    assert np.array_equal(scores, np.mean(alone, axis=0))
    assert np.ptp(alone, axis=0).min() > 1e-4, "equal members would show nothing"
    assert np.array_equal(predict(BagEnsemble([model.members[0]]), bags, chunk_size=chunk_size), alone[0])


def test_an_ensemble_reads_each_chunk_once_and_keeps_its_modes():
    model, bags = make_ensemble().train(), make_bags()
    model.members[1].eval()
    modes = [module.training for module in model.modules()]
    reader = InstanceReader(bags)
    read, rows = [], reader.rows
    reader.rows = lambda positions: read.extend(positions.tolist()) or rows(positions)
    predict(model, bags, chunk_size=7, reader=reader)
    assert read == list(range(bags.num_instances))
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("chunk_size", [3, 1000])
def test_instances_of_an_ensemble_are_averages(pooling, chunk_size):
    model, bags = make_ensemble(pooling), make_bags()
    for i in range(len(bags)):
        found = instance_scores(model, bags, i, chunk_size=chunk_size)
        alone = [instance_scores(member, bags, i, chunk_size=chunk_size) for member in model.members]
        for mine, other in zip(found.members, alone, strict=True):
            for name in ("score", "attention", "weight"):
                assert np.array_equal(getattr(mine, name), getattr(other, name))
            assert mine.members == ()
        singles = predict(model, Bags.from_list([row[None] for row in bags[i]]))
        np.testing.assert_allclose(found.score, singles, rtol=1e-5)
        np.testing.assert_allclose(found.weight, np.mean([one.weight for one in alone], axis=0), rtol=1e-5)
        np.testing.assert_allclose(found.weight.sum(dtype=np.float64), 1, rtol=1e-5)
        if pooling == "max":
            np.testing.assert_allclose(found.attention, np.mean([one.attention for one in alone], axis=0), rtol=1e-5)
        else:
            z = found.attention.astype(np.float64)
            np.testing.assert_allclose(np.exp(z - np.logaddexp.reduce(z)), found.weight, rtol=1e-4)
        if pooling == "mean":
            np.testing.assert_allclose((found.weight * found.score).sum(), predict(model, bags)[i], rtol=2e-5)


def test_equal_members_show_the_instances_of_one():
    scorer, bags = make_model(), make_bags()
    alone, found = instance_scores(scorer, bags, 1), instance_scores(BagEnsemble([scorer, scorer]), bags, 1)
    for name in ("score", "attention", "weight"):
        np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-5, atol=1e-6)
    assert alone.members == ()


# In a process of its own: what earlier tests left with the allocator would count.
_GROWTH = """
import sys
from pathlib import Path
import numpy as np
from midam.data.bags import Bags
from midam.evaluate.predict import predict
from midam.settings import Settings
from midam.train.build import build_method

path, rows, width, chunk_size = sys.argv[1], *map(int, sys.argv[2:])

def anonymous_memory():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

mapped = np.memmap(path, dtype=np.float32, mode="r", shape=(rows, width))
bags, seen = Bags(mapped, starts=[0], sizes=[rows]), []
config = Settings(estimator="exact", standardize=False)
model = build_method(config, instance_shape=(width,), num_bags=1).model
predict(model, bags, chunk_size=256)
model.encoder.register_forward_hook(lambda *_: seen.append(anonymous_memory()))
before = anonymous_memory()
predict(model, bags, chunk_size=chunk_size)
print(max(seen) - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure memory")
@pytest.mark.long
def test_a_huge_bag_is_read_in_chunks(tmp_path):
    rows, width = 200_000, 64
    path = tmp_path / "bag.dat"
    writing = np.memmap(path, dtype=np.float32, mode="w+", shape=(rows, width))
    for low in range(0, rows, 20_000):
        writing[low : low + 20_000] = np.float32(low / rows)
    writing.flush()
    del writing

    def growth(chunk_size):
        command = [sys.executable, "-c", _GROWTH, str(path), str(rows), str(width), str(chunk_size)]
        alone = os.environ | {"OMP_NUM_THREADS": "1"}
        return int(subprocess.run(command, capture_output=True, text=True, check=True, env=alone).stdout)

    # The bag holds 49 MiB; a chunk of 4096 rows 1 MiB, and as much in each of a few layers. The rest of the bound is
    # for what the allocator keeps.
    assert growth(4096) < 24 * 2**20
    assert growth(rows) > 49 * 2**20, "the measure must notice a bag that is read whole"
