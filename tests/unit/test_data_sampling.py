import io
import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from midam.data.sampling import BagSampler, StrataSampler, uniform_slots
from midam.errors import BagDataError, CheckpointError, ConfigError, OneClassError


def make(positives=5, negatives=9, size=20, **settings):
    labels = np.array([1] * positives + [0] * negatives)
    chosen = {"num_positive": 3, "num_negative": 4, "num_instances": 4, "seed": 7, **settings}
    return BagSampler(labels, np.full(len(labels), size), **chosen)


def equal(one, other):
    return all(
        torch.equal(a, b) for a, b in zip((one.bags, one.slots, one.mask), (other.bags, other.slots, other.mask))
    )


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_layout_distinct_bags_and_even_visits(bags, batch, epochs, seed):
    (positives, negatives), (num_positive, num_negative) = bags, batch
    num_positive, num_negative = min(num_positive, positives), min(num_negative, negatives)
    sampler = make(positives, negatives, num_positive=num_positive, num_negative=num_negative, seed=seed)
    visits = np.zeros(positives + negatives, dtype=int)
    for _ in range(epochs):
        plan = sampler.epoch()
        steps = -(-(positives + negatives) // (num_positive + num_negative))
        assert len(plan) == sampler.steps_per_epoch == steps
        assert sampler.num_positive == num_positive
        assert (plan.bags[:, :num_positive] < positives).all()
        assert (plan.bags[:, num_positive:] >= positives).all()
        assert all(len(set(row)) == len(row) for row in plan.bags.tolist())
        visits += np.bincount(plan.bags.flatten().numpy(), minlength=len(visits))
        # Also between epochs the visits of a class differ by one at most.
        assert np.ptp(visits[:positives]) <= 1
        assert np.ptp(visits[positives:]) <= 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 7), st.integers(0, 99))
def test_slots_are_distinct_ascending_and_whole_where_the_bag_is_small(sizes, width, seed):
    slots, mask = uniform_slots(sizes, width, np.random.default_rng(seed))
    assert slots.shape == mask.shape == (len(sizes), width)
    for size, row, valid in zip(sizes, slots, mask):
        drawn = row[valid]
        assert len(drawn) == min(size, width)
        assert (np.diff(drawn) > 0).all()
        assert drawn[0] >= 0
        assert drawn[-1] < size
        assert (row[~valid] == 0).all()


def test_every_set_of_slots_is_equally_likely():
    sets = list(itertools.combinations(range(5), 3))
    slots, _ = uniform_slots(np.full((200, 100), 5), 3, np.random.default_rng(3))
    counts = [int((slots == chosen).all(-1).sum()) for chosen in sets]
    assert sum(counts) == 20_000
    assert chisquare(counts).pvalue > 1e-3


def test_a_bag_of_a_billion_is_drawn_from_uniformly():
    slots, mask = uniform_slots([10**9] * 20_000, 4, np.random.default_rng(5))
    assert mask.all()
    counts = np.histogram(slots, bins=20, range=(0, 10**9))[0]
    # Four ordered draws of a bag are negatively correlated only to 1e-9: the bins are multinomial.
    assert chisquare(counts).pvalue > 1e-3


def test_bags_of_a_batch_are_uniform():
    sampler = make(4, 4, num_positive=2, num_negative=2)
    pairs = list(itertools.combinations(range(4), 2))
    drawn = torch.cat([sampler.epoch().bags[:1, :2] for _ in range(6000)]).sort(dim=1).values
    counts = [int((drawn == torch.tensor(pair)).all(1).sum()) for pair in pairs]
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_a_resumed_sampler_equals_an_uninterrupted_one(epochs):
    sampler = make()
    for _ in range(epochs):
        sampler.epoch()
    file = io.BytesIO()
    torch.save(sampler.state_dict(), file)
    file.seek(0)
    resumed = make()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(3):
        assert equal(sampler.epoch(), resumed.epoch())


def test_a_state_stays_what_it_was():
    sampler = make()
    sampler.epoch()
    state = sampler.state_dict()
    kept = state["queues"][0]["queue"].clone()
    sampler.epoch()
    assert torch.equal(state["queues"][0]["queue"], kept)


def test_seed_and_epoch_change_the_draws_and_other_generators_do_not():
    torch.manual_seed(1)
    first = make()
    one = first.epoch()
    assert equal(one, make().epoch())
    assert not equal(one, make(seed=8).epoch())
    assert not torch.equal(one.slots, first.epoch().slots)


def test_draws_of_bags_are_keyed_by_seed_shuffle_and_class():
    labels = np.repeat([1, 0], 36)

    def order(members, purpose):
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([3, 0, purpose]))).permutation(members)

    for kind, positive, negative in ((BagSampler, 1, 0), (StrataSampler, 4, 3)):
        sampler = kind(labels, np.full(72, 5), num_positive=4, num_negative=4, num_instances=2, seed=3)
        drawn = [order(np.flatnonzero(labels == 1), positive)[:4], order(np.flatnonzero(labels == 0), negative)[:4]]
        row = sampler.epoch().bags.numpy()[0].tolist()
        assert row == np.concatenate(drawn if kind is BagSampler else drawn[::-1]).tolist()


def test_a_stratified_sampler_continues_where_it_was_and_refuses_other_strata():
    def of(strata):
        return StrataSampler(strata, np.full(30, 5), num_positive=4, num_negative=4, num_instances=2)

    sampler = of(np.arange(30) % 3)
    state, then = sampler.state_dict(), sampler.epoch().bags.tolist()
    fresh = of(np.arange(30) % 3)
    fresh.load_state_dict(state)
    assert fresh.epoch().bags.tolist() == then
    with pytest.raises(CheckpointError, match="2 strata"):
        of(np.arange(30) % 2).load_state_dict(state)


def test_whole_bags_have_no_slots():
    plan = make(num_instances=None).epoch()
    assert plan.slots is None
    assert plan.mask is None


def test_the_width_is_at_most_the_largest_bag():
    assert make(size=3).epoch().slots.shape == (2, 7, 3)


def test_too_few_bags_reduce_the_batch_with_one_warning():
    with pytest.warns(UserWarning, match="a batch now holds 2 positive and 3 negative") as caught:
        sampler = make(2, 3)
    assert len(caught) == 1
    assert (sampler.num_positive, sampler.num_negative) == (2, 3)
    assert sampler.epoch().bags.shape == (1, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(3, 4)


def test_bad_settings_are_refused():
    with pytest.raises(OneClassError, match="0 positive and 9 negative"):
        make(0)
    for name in ("num_positive", "num_negative", "num_instances"):
        with pytest.raises(ConfigError, match=name):
            make(**{name: 0})
    with pytest.raises(BagDataError, match="one label for each of the 1 bags"):
        BagSampler([0, 1], [3], num_instances=1)


def test_a_foreign_state_is_refused():
    sampler = make()
    with pytest.raises(CheckpointError, match="14 bags, got one of 15"):
        sampler.load_state_dict(make(6).state_dict())
    other = make(9, 5)
    other.epoch()
    with pytest.raises(CheckpointError, match="of other bags"):
        sampler.load_state_dict(other.state_dict())
