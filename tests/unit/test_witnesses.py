"""Known witnesses: they are checked, stay with their instances, and change no training."""

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.data.store.format import unpack_witnesses
from midam.data.witnesses import counts_of, marks_of
from midam.errors import BagDataError
from midam.settings import Settings
from midam.train.trainer import Trainer


def make_bags(number=24, *, largest=40, marked=True):
    """Bags whose last instance is the witness."""
    rng = np.random.default_rng(2)
    labels = np.arange(number) % 2
    parts = [rng.normal(size=(int(rng.integers(2, largest)), 4)).astype(np.float32) for _ in labels]
    marks = []
    for bag, label in zip(parts, labels, strict=True):
        bag[-1] += 3 * label
        marks += [0] * (len(bag) - 1) + [int(label)]
    bags = Bags.from_list(parts, labels)
    return bags.replace(witnesses=marks) if marked else bags


def test_witnesses_are_checked_and_stay_with_their_instances():
    X = np.arange(5.0)[:, None]
    bags = Bags.from_arrays(X, [1, 0, 1, 0, 1], [0, 1], witnesses=[0, 1, 0, 0, 0])
    assert bags.witnesses.tolist() == [True, False, False, False, False], "in bag order"
    assert bags.witnesses.dtype == np.bool_
    assert marks_of(bags.subset([1, 0])).tolist() == [False] * 3 + [True, False]
    assert counts_of(bags).tolist() == [0, 0], "bag 0 is negative"
    assert counts_of(bags.replace(labels=None)).tolist() == [1, 0]
    assert counts_of(bags.replace(labels=[1, 0])).tolist() == [1, 0]
    assert marks_of(bags.replace(witnesses=None)) is None
    for wrong, message in (
        ([0, 1], r"witnesses \[5\], got shape \(2,\)"),
        ([0, 1, 2, 0, 0], "got 2 at instance 2"),
        ([0, 1, np.nan, 0, 0], "got nan at instance 2"),
        (list("abcde"), "got a at instance 0"),
    ):
        with pytest.raises(BagDataError, match=message):
            Bags.from_arrays(X, [0, 0, 0, 1, 1], [0, 1], witnesses=wrong)


@pytest.mark.parametrize("estimator", ["minibatch", "vrsp"])
def test_known_witnesses_change_no_training(estimator):
    settings = Settings(epochs=4, num_positive=4, num_negative=4, num_instances=4, members=2, estimator=estimator)
    plain, marked = (Trainer(settings, make_bags(marked=known)).fit() for known in (False, True))
    pairs = zip(plain.model.state_dict().values(), marked.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert marked.history == plain.history


def test_positions_in_a_store_lie_in_their_bags():
    sizes = np.array([2, 3])
    assert unpack_witnesses(["1", "0 2"], sizes).tolist() == [False, True, True, False, True]
    for wrong in (["2", ""], ["-1", ""], ["a", ""], ["1"]):
        with pytest.raises((ValueError, IndexError)):
            unpack_witnesses(wrong, sizes)
