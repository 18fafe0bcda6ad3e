"""Training on instances that stay on disk: the same batches and weights however they are read, resumed or not."""

import copy

import numpy as np
import pytest
import torch
from tests.row_files import row_file
from tests.trainings import train, weights

from midam.data.bags import Bags
from midam.data.batch import SampledBatch
from midam.settings import Settings
from midam.train import members
from midam.train.members import distinct_sorted, fit_standardizers
from midam.train.trainer import Trainer

ESTIMATORS = ["vrsp", "minibatch", "exact", "exact-point"]


@pytest.fixture
def stays(monkeypatch):
    """Bags on disk that are too large to be read into memory before the training."""
    monkeypatch.setattr(members, "_MOST_READ_ONCE", 0)


@pytest.fixture
def memory():
    rng = np.random.default_rng(0)
    sizes = rng.integers(5, 60, size=20)
    labels = np.arange(20) % 2
    x = rng.normal(size=(int(sizes.sum()), 5)).astype(np.float16)
    starts = np.cumsum(sizes) - sizes
    x[starts] += 2 * labels[:, None].astype(np.float16)
    return Bags(x, starts=starts, sizes=sizes, labels=labels)


@pytest.fixture
def disk(memory, tmp_path, stays):
    rows = row_file(tmp_path / "rows", memory.instances, reads="pread")
    return Bags(rows, starts=memory.starts, sizes=memory.sizes, labels=memory.labels)


def make_config(**settings):
    small = {"epochs": 3, "num_positive": 4, "num_negative": 4, "num_instances": 4, "chunk_size": 64, "lr": 0.01}
    # No floor: under it a state moves to the level of the sample, however small its rate.
    return Settings(**{**small, **settings})


def states(trainer):
    return torch.stack([member.estimator.bag_state for member in trainer.members])


def batches(trainer, epochs=2):
    member = trainer.members[0]
    return [batch for _ in range(epochs) for batch in member.batches()]


def content(batch):
    x = batch.x if isinstance(batch, SampledBatch) else torch.cat([x for _, _, x in batch.read(16)])
    return torch.cat([x.flatten(), batch.index, batch.labels, batch.sizes])


@pytest.mark.parametrize("estimator", ["vrsp", "exact"])
def test_batches_do_not_depend_on_the_workers(disk, estimator):
    found = [
        [content(batch) for batch in batches(Trainer(make_config(estimator=estimator, workers=workers), disk))]
        for workers in (0, 1, 4)
    ]
    assert len(found[0]) == 6
    for other in found[1:]:
        assert all(torch.equal(mine, its) for mine, its in zip(found[0], other, strict=True))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_weights_do_not_depend_on_workers_and_residence(disk, estimator):
    settings = {"estimator": estimator, "scaling": "linear"}
    reference = train(Trainer(make_config(**settings, workers=0), disk))
    ways = [{"workers": 4}, {"resident": True}]  # one worker: see above
    for way in ways:
        other = train(Trainer(make_config(**settings, **way), disk))
        assert torch.equal(weights(other), weights(reference))
        assert [row["loss"] for row in other.history] == [row["loss"] for row in reference.history]


@pytest.mark.parametrize(("estimator", "workers"), [*zip(ESTIMATORS, (0, 3, 3, 0))])
def test_a_resumed_training_on_disk_is_the_uninterrupted_one(disk, estimator, workers):
    config = make_config(estimator=estimator, workers=workers, epochs=2)
    whole = train(Trainer(config, disk, disk), 1)
    state = copy.deepcopy(whole.state_dict())
    train(whole)
    resumed = Trainer(make_config(estimator=estimator, workers=3 - workers, epochs=2), disk, disk)
    resumed.load_state_dict(state)
    train(resumed)
    assert resumed.history == whole.history
    assert torch.equal(weights(resumed), weights(whole))


def test_few_vectors_on_disk_are_read_once_and_train_alike(disk, monkeypatch):
    streamed = train(Trainer(make_config(), disk, disk))
    monkeypatch.undo()
    once = train(Trainer(make_config(), disk, disk))
    assert (once.waited_s, streamed.waited_s > 0) == (0, True)
    assert torch.equal(weights(once), weights(streamed))
    assert once.history == streamed.history


def test_large_validation_bags_are_scored_as_rarely_as_costs_no_more_than_the_training(memory):
    many = Bags(np.repeat(memory.instances, 3, axis=0), sizes=memory.sizes * 3, labels=memory.labels)

    def made(val, **settings):
        return Trainer(make_config(epochs=60, members=1, **settings), memory, val)

    history = train(made(many)).history
    assert [row["epoch"] for row in history if row["val_auroc"] is not None] == list(range(3, 61, 3))
    each = [made(many, select="best"), made(many, val_every=1), made(memory.subset(range(4)))]
    assert [trainer._val_every for trainer in each] == [1, 1, 1]


def test_a_training_on_disk_is_that_in_memory(memory, disk):
    settings = make_config(scaling="linear")
    torch.testing.assert_close(
        weights(train(Trainer(settings, disk))), weights(train(Trainer(settings, memory))), rtol=1e-4, atol=1e-5
    )


def test_the_time_waited_for_reads_is_a_part_of_the_training(memory, disk):
    trainer = train(Trainer(make_config(), disk))
    assert 0 < trainer.waited_s < trainer.trained_s
    assert train(Trainer(make_config(), memory)).waited_s == 0


def plain_state(trainer, bags):
    """Rows (l, r) of the state, from the definition."""
    found = []
    for member in trainer.members:
        member.model.eval()
        with torch.no_grad():
            outputs = [member.model.instances(torch.from_numpy(np.array(bags[i]))) for i in range(len(bags))]
        parts = [(z.double(), v.double()) for z, v in outputs]
        member.model.train()
        rows = []
        for z, v in parts:
            rows.append(torch.cat([torch.logsumexp(z, 0, keepdim=True) - np.log(len(z)), torch.softmax(z, 0) @ v]))
        found.append(torch.stack(rows))
    return torch.stack(found)


def test_validation_every_few_epochs_and_at_the_end(memory):
    trainer = train(Trainer(make_config(epochs=5, val_every=2), memory, memory))
    scored = [row["epoch"] for row in trainer.history if row["val_auroc"] is not None]
    assert scored == [2, 4, 5]
    assert trainer.best_epoch in scored


def test_patience_counts_epochs_between_validations(memory, monkeypatch):
    values = iter([None, 0.7, None, 0.6, None, 0.9])
    trainer = Trainer(make_config(epochs=20, patience=2, val_every=2), memory, memory)
    monkeypatch.setattr(trainer, "_validate", lambda: next(values))
    train(trainer)
    assert (trainer.epoch, trainer.best_epoch) == (4, 2)


@pytest.mark.parametrize(("total", "count"), [(1, 1), (9, 4), (9, 8), (9, 9), (9, 0), (10**12, 1000)])
def test_distinct_numbers(total, count):
    found = distinct_sorted(total, count, np.random.default_rng(0))
    assert len(set(found.tolist())) == len(found) == count
    assert (np.diff(found) > 0).all()
    assert count == 0 or (found[0] >= 0 and found[-1] < total)


@pytest.mark.parametrize("count", [2, 4])
def test_distinct_numbers_are_uniform(count):
    from scipy.stats import chisquare

    rng = np.random.default_rng(0)
    sets = [tuple(distinct_sorted(5, count, rng).tolist()) for _ in range(3000)]
    counts = np.unique(sets, axis=0, return_counts=True)[1]
    assert len(counts) == (10 if count == 2 else 5)
    assert chisquare(counts).pvalue > 1e-3


def test_the_sample_of_the_standardizer_is_bounded_and_near(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.train.members._MAX_VALUES_ON_DISK", 3000)
    array = np.random.default_rng(0).normal(loc=5.0, size=(20_000, 3)).astype(np.float32)
    rows = row_file(tmp_path / "rows", array)
    taken = []
    monkeypatch.setattr(rows, "gather", lambda index, read=rows.gather: taken.append(len(index)) or read(index))
    disk, memory = (Bags(x, starts=[10_000, 0], sizes=[10_000, 10_000], labels=[0, 1]) for x in (rows, array))
    standardizers = [
        Trainer(make_config(num_positive=1, num_negative=1, members=2), bags).members for bags in (disk, memory)
    ]
    assert taken == [1000]
    few, all_rows = (members[1].model.standardizer for members in standardizers)
    torch.testing.assert_close(few.center, all_rows.center, atol=0.15, rtol=0)
    torch.testing.assert_close(few.scale, all_rows.scale, atol=0.1, rtol=0)
    assert not torch.equal(few.center, all_rows.center)
    fit_standardizers([few], memory, seed=0)
    assert torch.equal(few.center, all_rows.center)
