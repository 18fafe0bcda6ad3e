"""Known witnesses are told of in curves, and change nothing else."""

import numpy as np
import pytest
import torch

from midam.data.bags import Bags
from midam.data.draws import Draw, Drawn
from midam.data.sampling import BagSampler
from midam.data.store import open_store, write_store
from midam.data.store.format import unpack_witnesses
from midam.data.witnesses import WitnessLog, counts_of, marks_of
from midam.errors import BagDataError, CheckpointError
from midam.settings import Settings
from midam.train.checkpoint import load_checkpoint, save_checkpoint
from midam.train.trainer import Trainer


def make_bags(number=24, *, largest=40, marked=True):
    """Bags whose last instance is the witness; a negative one and an unknown one are marked so too, and not."""
    rng = np.random.default_rng(2)
    labels = np.arange(number) % 2
    parts = [rng.normal(size=(int(rng.integers(2, largest)), 4)).astype(np.float32) for _ in labels]
    marks = []
    for bag, label in zip(parts, labels, strict=True):
        bag[-1] += 3 * label
        marks += [0] * (len(bag) - 1) + [int(label)]
    bags = Bags.from_list(parts, labels)
    marks[int(bags.sizes[0]) - 1] = 1  # in a negative bag
    marks[int(bags.sizes[:2].sum()) - 1] = 0  # nothing is known of bag 1
    return bags.replace(witnesses=marks) if marked else bags


def config(draw, **settings):
    own = {"epochs": 4, "num_positive": 4, "num_negative": 4, "num_instances": 4, "members": 1, "draw": draw}
    return Settings(**{**own, "estimator": "minibatch", "pooling": "smoothed-max", **settings})


def trained(how, bags, epochs=None):
    trainer = Trainer(how, bags)
    while not trainer.finished and trainer.epoch != epochs:
        trainer.train_epoch()
    return trainer


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


class Planned(Draw):
    """Draws that are given."""

    def __init__(self, drawn):
        self.drawn = drawn

    def draw(self, bags, sizes, *, width, rng):
        return self.drawn


def test_a_log_counts_as_a_loop_does():
    bags, rng = make_bags(), np.random.default_rng(1)
    log, marks = WitnessLog.of(bags), [bags.witnesses[s : s + n] for s, n in zip(bags.starts, bags.sizes, strict=True)]
    known = [i for i in range(len(bags)) if bags.labels[i] and marks[i].any()]
    assert len(log) == len(known) == 11
    ever = set()
    for _ in range(3):
        of = rng.integers(0, len(bags), (5, 6))
        slots, mask = rng.integers(0, bags.sizes[of][..., None], (5, 6, 4)), rng.random((5, 6, 4)) < 0.7
        told = log.note(of, Drawn(slots, mask))
        held = []
        for bag, own, drawn in zip(of.ravel(), slots.reshape(-1, 4), mask.reshape(-1, 4), strict=True):
            if bag in known:
                hits = {(bag, slot) for slot, there in zip(own, drawn, strict=True) if there and marks[bag][slot]}
                held.append(bool(hits))
                ever |= hits
        assert told == {"drawn_witnesses": np.mean(held), "found_witnesses": len(ever) / len(known)}
    nothing = log.note(np.array([[0, 1]]), Drawn(np.zeros((1, 2, 1), np.int64), np.ones((1, 2, 1), np.bool_)))
    assert np.isnan(nothing["drawn_witnesses"]), "no bag with a known witness"
    assert WitnessLog.of(make_bags(marked=False)) is None
    assert WitnessLog.of(bags.subset([0, 1])) is None, "no positive bag of which any is known"


@pytest.mark.parametrize("estimator", ["minibatch", "vrsp"])
def test_known_witnesses_change_no_training(estimator):
    how = config("top", estimator=estimator, members=2, draw_args={"refresh": 2})
    plain, marked = trained(how, make_bags(marked=False)), trained(how, make_bags())
    pairs = zip(plain.model.state_dict().values(), marked.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    memories = [trainer.members[0].sampler.draw.memory.state_dict()["values"] for trainer in (plain, marked)]
    assert torch.equal(*memories)
    told = ("drawn_witnesses", "found_witnesses")
    assert [{k: v for k, v in row.items() if k not in told} for row in marked.history] == plain.history
    assert all(0 <= row[name] <= 1 for row in marked.history for name in told)
    found = [row["found_witnesses"] for row in marked.history]
    assert found == sorted(found)
    assert found[-1] > 0


def test_uniform_draws_tell_nothing_new():
    plain, marked = trained(config("uniform"), make_bags(marked=False)), trained(config("uniform"), make_bags())
    assert plain.history == marked.history
    assert plain.state_dict()["members"][0]["sampler"].keys() == marked.state_dict()["members"][0]["sampler"].keys()
    assert "witnesses" not in marked.state_dict()["members"][0]["sampler"]


def test_a_resumed_training_goes_on_counting(tmp_path):
    how, bags = config("top"), make_bags()
    whole, first = trained(how, bags), trained(how, bags, epochs=2)
    save_checkpoint(tmp_path / "c.pt", {"trainer": first.state_dict()})
    # A store gives the same witnesses other flat positions.
    apart = bags.subset(np.arange(len(bags))[::-1])
    write_store(apart, tmp_path / "s.store")
    resumed = Trainer(how, open_store(tmp_path / "s.store").subset(np.arange(len(bags))[::-1]))
    resumed.load_state_dict(load_checkpoint(tmp_path / "c.pt")["trainer"])
    while not resumed.finished:
        resumed.train_epoch()
    counted = [[row["found_witnesses"] for row in trainer.history] for trainer in (resumed, whole)]
    assert counted[0] == counted[1]
    marks = bags.witnesses.copy()
    marks[int(bags.starts[1])] = True
    for other in (make_bags(marked=False), bags.replace(witnesses=marks)):
        with pytest.raises(CheckpointError, match=r"Expected the known witnesses .* resume with the data of the run"):
            Trainer(how, other).load_state_dict(first.state_dict())
    with pytest.raises(CheckpointError, match=r"Expected the known witnesses of the run .0., got others .11."):
        Trainer(how, bags).load_state_dict(trained(how, make_bags(marked=False), epochs=1).state_dict())


def test_a_sampler_tells_of_the_witnesses_of_any_rule():
    bags = Bags.from_list([np.zeros((3, 1)), np.zeros((3, 1))], [1, 0]).replace(witnesses=[0, 1, 0, 0, 0, 0])
    planned = Drawn(np.array([[[1], [1]]]), np.ones((1, 2, 1), dtype=np.bool_))
    how = {"num_positive": 1, "num_negative": 1, "num_instances": 1, "draw": Planned(planned)}
    sampler = BagSampler(bags.labels, bags.sizes, **how, witnesses=WitnessLog.of(bags))
    sampler.epoch()
    assert sampler.drawn == {"drawn_witnesses": 1.0, "found_witnesses": 1.0}


def test_bits_of_a_store_are_counted():
    marks = np.arange(11) % 4 == 1
    packed = np.packbits(marks)
    assert unpack_witnesses(packed, 11).tolist() == marks.tolist()
    for wrong, rows in ((packed, 17), (packed, 8), (packed.astype(np.int64), 11), (packed[None], 11)):
        with pytest.raises(ValueError, match="one bit for each"):
            unpack_witnesses(wrong, rows)
