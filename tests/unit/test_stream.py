import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.data.batch import InstanceReader, WholeBatch
from midam.evaluate.predict import output_of, stream_bags, stream_instances, stream_totals
from midam.settings import Settings
from midam.train.build import build_method

POOLINGS = [
    "attention",
    "gated-attention",
    "embedding-attention",
    "smoothed-max",
    "mean",
    "max",
    "generalized-mean",
    "noisy-or",
    "noisy-and",
]
SIZES = [1, 13, 2, 7, 30]


def make_model(pooling):
    settings = Settings(pooling=pooling, estimator="exact", hidden=[6], standardize=False)
    return build_method(settings, instance_shape=(4,), num_bags=5).model.double().eval()


def make_batch(order=(0, 1, 2, 3, 4)):
    rng = np.random.default_rng(0)
    bags = Bags.from_list([rng.normal(size=(size, 4)) for size in SIZES])
    return bags, WholeBatch(InstanceReader(bags), torch.tensor(order), torch.zeros(len(order)))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_a_stream_equals_the_whole(pooling, chunk_size):
    model, (bags, batch) = make_model(pooling), make_batch()
    whole = model(torch.from_numpy(bags.instances), torch.tensor(SIZES))
    streamed = stream_bags(model, batch, chunk_size=chunk_size)
    torch.testing.assert_close(streamed.score, whole.score, rtol=1e-9, atol=0)
    torch.testing.assert_close(streamed.logit, whole.logit, rtol=1e-9, atol=1e-12)
    assert not streamed.l.requires_grad
    assert not streamed.r.requires_grad


@pytest.mark.parametrize("pooling", ["attention", "max"])
def test_the_order_of_the_bags_does_not_matter(pooling):
    model = make_model(pooling)
    straight = stream_bags(model, make_batch()[1], chunk_size=5).score
    mixed = stream_bags(model, make_batch((3, 0, 4))[1], chunk_size=5).score
    torch.testing.assert_close(mixed, straight[[3, 0, 4]], rtol=1e-9, atol=0)


@pytest.mark.parametrize("chunk_size", [5, 1000])
def test_several_scorers_read_each_chunk_once(chunk_size, monkeypatch):
    models, (_, batch) = [make_model(pooling) for pooling in ("attention", "max", "mean")], make_batch()
    alone = [stream_bags(model, batch, chunk_size=chunk_size) for model in models]
    read, rows = [], batch.reader.rows
    monkeypatch.setattr(batch.reader, "rows", lambda positions: read.extend(positions.tolist()) or rows(positions))
    totals = stream_totals(models, batch, chunk_size=chunk_size)
    together = [output_of(model, total) for model, total in zip(models, totals)]
    assert read == list(range(sum(SIZES)))
    for mine, other in zip(together, alone, strict=True):
        assert torch.equal(mine.score, other.score)
        assert torch.equal(mine.n, other.n)
        assert not mine.l.requires_grad


def test_instances_come_in_order_with_their_bag():
    model, (bags, batch) = make_model("attention"), make_batch((4, 1))
    parts = list(stream_instances(model, batch, chunk_size=8))
    assert [len(part[0]) for part in parts] == [8, 8, 8, 8, 8, 3]
    positions = torch.cat([part[0] for part in parts])
    expected = [*range(bags.starts[4], bags.starts[4] + 30), *range(bags.starts[1], bags.starts[1] + 13)]
    assert positions.tolist() == expected
    assert torch.cat([part[1] for part in parts]).tolist() == [0] * 30 + [1] * 13


@pytest.mark.parametrize("chunk_size", [1, 4, 100])
def test_the_maximum_is_the_first_of_equals(chunk_size):
    model = make_model("max")
    row = np.ones((1, 4))
    bags = Bags.from_list([np.repeat(row, 6, axis=0), np.concatenate([-row, row, row])])
    batch = WholeBatch(InstanceReader(bags), torch.tensor([0, 1]), torch.zeros(2))
    (total,) = stream_totals([model], batch, chunk_size=chunk_size)
    z, _ = model.instances(torch.from_numpy(bags.instances))
    expected = [0, 6 + int(z[6:].argmax())]
    assert total.where.tolist() == expected
    torch.testing.assert_close(total.value().l, z[expected], rtol=1e-12, atol=0)
