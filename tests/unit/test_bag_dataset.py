"""`BagDataset` and `BalancedBags`, in a `DataLoader` of torch."""

import warnings
from collections import Counter

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

from midam.data import BagDataset, Bags, BagSampler, BalancedBags
from midam.errors import BagDataError, CheckpointError, ConfigError, OneClassError
from midam.nn import (
    AveragePrecisionLoss,
    BCELoss,
    MinMaxAUCLoss,
    PairwiseAUCLoss,
    PartialAUCLoss,
    TrackedPooling,
    commit,
)


def rows(size):
    return np.arange(size, dtype=np.float32).reshape(-1, 1)


def test_instances_are_drawn_without_replacement_and_all_alike_often():
    torch.manual_seed(0)
    data = BagDataset([rows(10)], [1], num_instances=4)
    seen = Counter()
    for _ in range(2000):
        x, _, _ = data[0]
        assert len(x.unique()) == 4
        seen.update(x.flatten().tolist())
    assert len(seen) == 10
    assert all(abs(count - 800) < 5 * np.sqrt(2000 * 0.4 * 0.6) for count in seen.values())


def test_a_small_bag_gives_all_and_some_again():
    torch.manual_seed(0)
    data = BagDataset([rows(3)], [1], num_instances=8)
    twice = Counter()
    for _ in range(300):
        counts = Counter(data[0][0].flatten().tolist())
        assert sorted(counts.values()) == [2, 3, 3]
        twice.update(number for number, count in counts.items() if count == 2)
    assert all(abs(count - 100) < 5 * np.sqrt(300 * 2 / 9) for count in twice.values())


def test_whatever_has_rows_is_a_bag(tmp_path):
    array = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    np.save(tmp_path / "bag.npy", array)
    with h5py.File(tmp_path / "bags.h5", "w") as file:
        file["a"] = array
        bags = [array, torch.from_numpy(array), np.load(tmp_path / "bag.npy", mmap_mode="r"), file["a"]]
        data = BagDataset(bags, [0, 1, 0, 1], num_instances=5)
        found = []
        for index in range(4):
            torch.manual_seed(1)
            found.append(data[index][0])
            assert torch.equal(torch.cat(list(data.chunks(index, 4))), torch.from_numpy(array))
    assert all(torch.equal(x, found[0]) for x in found)
    ours = Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], labels=[0, 1])
    x, y, index = BagDataset(ours, ours.labels, num_instances=2, transform=lambda x: -x)[1]
    assert (sorted(x.flatten().tolist()), y.item(), index) == ([-6, -5, -4, -3], 1, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_draws_anew_each_epoch_and_the_same_from_the_same_seed(workers):
    def epochs(seed):
        labels = np.arange(8) % 2
        data = BagDataset([rows(30)] * 8, labels, num_instances=3)
        torch.manual_seed(seed)
        loader = DataLoader(
            data, batch_sampler=BalancedBags(labels, num_positive=2, num_negative=2), num_workers=workers
        )
        return [torch.cat([x for x, _, _ in loader]) for _ in range(2)]

    first, second = epochs(0)
    assert first.shape == (8, 3, 1)
    assert not torch.equal(first, second)
    assert torch.equal(second, epochs(0)[1])
    assert not torch.equal(second, epochs(1)[1])


def test_batches_hold_both_classes_and_resume():
    labels = np.array([1] * 5 + [0] * 15)
    sampler = BalancedBags(labels, num_positive=2, num_negative=3)
    assert len(sampler) == 4
    visits = Counter()
    for _ in range(15):
        for batch in sampler:
            assert len(set(batch)) == 5
            assert labels[batch].sum() == 2
            visits.update(batch)
    assert max(visits[i] for i in range(5)) - min(visits[i] for i in range(5)) <= 1
    again = BalancedBags(labels, num_positive=2, num_negative=3)
    again.load_state_dict(sampler.state_dict())
    assert list(again) == list(sampler)
    parts = [BalancedBags(labels, num_positive=2, num_negative=4, rank=rank, num_ranks=2) for rank in (0, 1)]
    whole = BalancedBags(labels, num_positive=2, num_negative=4)
    for own, others, batch in zip(*parts, whole, strict=True):
        assert labels[own].tolist() == labels[others].tolist() == [1, 0, 0]
        assert sorted(own + others) == sorted(batch)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: BagDataset([rows(3)], [1, 0]), BagDataError, "each of 1 bags, got int64 .2,.; give numbers"),
        (lambda: BagDataset([rows(3), rows(0)], [1, 0]), BagDataError, r"got none \(in bag 1\)"),
        (lambda: BagDataset([rows(3)], [1], num_instances=0), ConfigError, "num_instances"),
        (lambda: BalancedBags([0, 0]), OneClassError, "positive and negative"),
        (lambda: BalancedBags([0, 1], num_positive=1, num_negative=1, rank=2, num_ranks=2), ConfigError, "got 2 of 2"),
        (lambda: BalancedBags([0, 1], num_positive=1, num_negative=1, num_ranks=3), ConfigError, "the 2 bags of a bat"),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_state_of_other_bags_is_refused():
    state = BalancedBags([0, 1, 1], num_positive=1, num_negative=1).state_dict()
    with pytest.raises(CheckpointError):
        BalancedBags([0, 1], num_positive=1, num_negative=1).load_state_dict(state)


@pytest.mark.parametrize(
    ("bags", "match"),
    [
        ([np.zeros((3, 2)), np.zeros((3, 4))], r"\[2\] and \[4\] \(in bag 1\)"),
        ([np.zeros(3), np.zeros(3)], "one row each"),
    ],
)
def test_bags_of_different_shapes_are_refused(bags, match):
    with pytest.raises(BagDataError, match=match):
        BagDataset(bags, [0, 1])


def test_a_bag_with_nan_is_named_when_it_is_read():
    train = BagDataset([np.zeros((3, 2)), np.full((3, 2), np.nan)], [0, 1], num_instances=2)
    assert train[0][0].dtype == torch.float32
    with pytest.raises(BagDataError, match="in bag 1"):
        train[1]


def test_batches_of_other_labels_are_refused():
    with pytest.raises(BagDataError, match="labels 0 and 1"):
        BalancedBags([1, 2, 1, 2])


def test_a_loop_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    bags = [np.random.default_rng(i).normal(i % 2, 1, size=(8 + i, 5)) for i in range(20)]
    labels = np.arange(20) % 2

    def parts():
        torch.manual_seed(0)
        network = torch.nn.Linear(5, 2)
        batches = BalancedBags(labels, num_positive=4, num_negative=4)
        pool, loss = TrackedPooling("attention", num_bags=20), MinMaxAUCLoss()
        optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=0.01)
        return {"network": network, "pool": pool, "loss": loss, "optimizer": optimizer, "batches": batches}

    def train(own, epochs):
        loader = DataLoader(BagDataset(bags, labels, num_instances=4), batch_sampler=own["batches"])
        for _ in range(epochs):
            for x, y, index in loader:
                own["loss"](own["pool"](*own["network"](x).unbind(dim=-1), index), y).backward()
                own["optimizer"].step()
                own["optimizer"].zero_grad()
                commit(own["pool"], own["loss"])
        return own["network"].weight.detach().clone()

    straight = train(parts(), 4)
    first = parts()
    train(first, 2)
    torch.save({n: p.state_dict() for n, p in first.items()} | {"random": torch.get_rng_state()}, tmp_path / "c.pt")
    again, state = parts(), torch.load(tmp_path / "c.pt", weights_only=True)
    for name, part in again.items():
        part.load_state_dict(state[name])
    torch.set_rng_state(state["random"])
    assert torch.equal(train(again, 2), straight)


@pytest.mark.parametrize("loss", [MinMaxAUCLoss, PairwiseAUCLoss, PartialAUCLoss, AveragePrecisionLoss, BCELoss])
def test_losses_refuse_labels_that_are_no_class(loss):
    module = loss(num_bags=4) if loss.per_bag else loss()
    scores, index = torch.tensor([0.2, 0.7]), torch.tensor([0, 1])
    for wrong in ([1, 2], [0.1, 0.9], [float("nan"), 1.0]):
        with pytest.raises(ConfigError, match="labels 0 and 1"):
            module(scores, torch.tensor(wrong), index)


def test_a_batch_of_one_class_warns_once():
    module = MinMaxAUCLoss()
    scores, ones = torch.tensor([0.2, 0.7]), torch.ones(2)
    with pytest.warns(UserWarning, match="both classes"):
        module(scores, ones)
    module.commit(torch.zeros(()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(scores, ones)
        BCELoss()(scores, ones)


def test_a_pooling_of_one_score_takes_the_index_second():
    pool = TrackedPooling("smoothed-max", num_bags=4)
    scores, index = torch.rand(2, 3), torch.tensor([1, 3])
    first = pool(scores, index)
    assert torch.equal(first, TrackedPooling("smoothed-max", num_bags=4)(scores, index=index))


@pytest.mark.parametrize(("given", "reads"), [(None, 6), ([5] * 6, 0)])
def test_a_cohort_that_reads_lazily_is_asked_once_for_each_bag_or_not_at_all(given, reads):
    asked = []

    class Cohort:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            if index >= len(self):
                raise IndexError(index)
            asked.append(index)
            return np.full((5, 3), index, dtype=np.float32)

    train = BagDataset(Cohort(), np.arange(6) % 2, num_instances=2, sizes=given)
    assert len(asked) == reads
    assert train.sizes.tolist() == [5] * 6
    assert train[4][0].unique().tolist() == [4.0]


@pytest.mark.parametrize("mark", [np.nan, np.inf, 1e20, -3.4028235e38, 1e300])
def test_marks_of_missing_values_are_refused_when_they_are_read(mark):
    arrays = [np.ones((5, 3), np.float64 if mark == 1e300 else np.float32) for _ in range(4)]
    arrays[2][1, 1] = mark
    bags = BagDataset(arrays, [0, 1, 0, 1], num_instances=5)
    with pytest.raises(BagDataError, match=r"Expected finite numbers of at most 2\^64, .*in bag 2"):
        bags[2]
    with pytest.raises(BagDataError, match="in bag 2"):
        list(bags.chunks(2))
    assert bags[1][0].shape == (5, 3)


def test_bags_that_are_no_arrays_or_have_other_sizes_are_refused():
    frames = [pd.DataFrame(np.arange(6.0).reshape(2, 3)), pd.DataFrame(np.ones((4, 3)))]
    lists = [[[1.0, 2.0]], [[3.0, 4.0]]]
    for bags, sizes in ((frames, None), (lists, None), ([rows(6), rows(6)], [3, 3]), ([rows(6), rows(6)], [9, 6])):
        data = BagDataset(bags, [0, 1], sizes=sizes)
        with pytest.raises(BagDataError, match=r"Expected an array of \d rows, got .* \(bag 0\)"):
            data[0]
        with pytest.raises(BagDataError, match="Expected an array of"):
            next(data.chunks(0))


def test_labels_are_those_of_the_bags_in_any_layout():
    labels = np.array([0, 1, 1])
    assert BagDataset([rows(2)] * 3, labels[::-1]).labels.tolist() == [1, 1, 0]
    bags = Bags.from_list([rows(2)] * 3, ids=["a", "b", "c"])
    named = pd.Series(labels, index=["c", "a", "b"])
    assert BagDataset(bags, named).labels.tolist() == [1, 1, 0]
    with pytest.raises(BagDataError, match="in one order"):
        BagDataset([rows(2)] * 3, named, sizes=pd.Series([2, 2, 2], index=["a", "b", "c"]))
    with pytest.raises(BagDataError, match="in one order"):
        BagSampler(named, pd.Series([2, 2, 2], index=["a", "b", "c"]), num_instances=1)
    for wrong in ([0, 1, 2], [0, 1, np.nan]):  # such bags would never be drawn
        with pytest.raises(BagDataError, match="Expected labels 0 and 1"):
            BagSampler(wrong, [2, 2, 2], num_instances=1)


def test_a_state_in_the_middle_of_an_epoch_says_what_it_leaves_out():
    sampler = BalancedBags(np.arange(12) % 2, num_positive=2, num_negative=2)
    batches = iter(sampler)
    next(batches)
    with pytest.warns(UserWarning, match="2 batches of this epoch are left"):
        sampler.state_dict()
    list(batches)
    sampler.state_dict()  # at the end of an epoch, also of one that was broken off
    for _ in DataLoader(BagDataset([rows(2)] * 12, np.arange(12) % 2), batch_sampler=sampler):
        break
    sampler.state_dict()
