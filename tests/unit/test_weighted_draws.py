"""Draws by remembered scores: contests, when a pass is due, what a resume needs."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.testing import assert_close

from midam.data.bags import Bags
from midam.data.draws import Top
from midam.data.score_memory import ScoreMemory
from midam.data.store import open_store, write_store
from midam.errors import CheckpointError, ConfigError
from midam.settings import Settings
from midam.train.checkpoint import load_checkpoint, save_checkpoint
from midam.train.trainer import Trainer

SIZES = np.array([7, 100, 3, 2000, 33, 64])


def rng(seed=0):
    return np.random.default_rng(seed)


def logits():
    return rng(1).normal(size=SIZES.sum()) * 2


def filled(z=None, **settings):
    made = Top(sizes=SIZES, **{"num_instances": 6, "refresh": 1} | settings)
    made.memory.fill(logits() if z is None else z)
    made.begin_epoch(0)
    return made


def of_bag(memory, bag):
    return memory.at(np.array([bag]), np.arange(memory.sizes[bag])[None])[0].astype(np.float64)


def test_a_memory_is_filled_in_runs_and_holds_two_bytes_an_instance():
    memory, z = ScoreMemory(SIZES), logits()
    for first in range(0, len(z), 50):
        assert memory.passes == 0
        memory.fill(z[first : first + 50], first=first)
    assert memory.passes == 1
    assert memory.state_dict()["values"].nbytes == 2 * SIZES.sum()
    rounded = z.astype(np.float16).astype(np.float64)
    assert np.array_equal(np.concatenate([of_bag(memory, i) for i in range(len(SIZES))]), rounded)
    naive_sums = [np.log(sum(np.exp(value) for value in of_bag(memory, i))) for i in range(len(SIZES))]
    np.testing.assert_allclose([memory.bag_log_sum(i) for i in range(len(SIZES))], naive_sums, rtol=1e-5)
    best = [set(np.argsort(-of_bag(memory, i), kind="stable")[:64].tolist()) for i in range(len(SIZES))]
    assert [set(row.tolist()) for row in memory.candidates] == best


def test_logits_of_any_size_are_remembered():
    memory = ScoreMemory([4])
    memory.fill(np.array([1e6, -1e9, 3.0, 65504.0]))
    assert of_bag(memory, 0).tolist() == [65504.0, -65504.0, 3.0, 65504.0]
    assert memory.bag_log_sum(0) == 65504.0 + np.log(np.float32(2))


def test_what_a_step_has_seen_is_remembered_the_later_of_equals():
    memory = ScoreMemory(SIZES)
    memory.observe(np.array([1]), np.array([[4, 7]]), np.array([[True, True]]), np.array([[9.0, 8.0]]))
    assert memory.at(np.array([1]), np.array([[4, 7, 8]])).tolist() == [[9.0, 8.0, -np.inf]]
    assert np.isnan(memory.drift)
    assert memory.bag_log_sum(0) == -np.inf
    assert memory.bag_log_sum(1) == pytest.approx(np.logaddexp(8.0, 9.0), rel=1e-6)
    memory.fill(logits())
    before = of_bag(memory, 1)
    bags, slots = np.array([1, 4, 1]), np.array([[4, 99], [32, 0], [5, 4]])
    mask = np.array([[True, True], [True, False], [True, True]])
    memory.observe(bags, slots, mask, np.array([[9.0, 8.0], [7.0, 99.0], [6.0, 5.0]], dtype=np.float16))
    after = of_bag(memory, 1)
    assert after[[4, 5, 99]].tolist() == [5.0, 6.0, 8.0]
    assert np.array_equal(np.delete(after, [4, 5, 99]), np.delete(before, [4, 5, 99]))
    assert of_bag(memory, 4)[32] == 7.0
    assert memory.drift > 1


def test_small_bags_are_taken_whole_and_draws_are_uniform_while_nothing_was_seen():
    made = Top(sizes=SIZES, num_instances=6, epochs=4, share=1.0, grow=0.0)
    for _ in range(2):
        drawn = made.draw(np.array([[0, 2, 1]]), np.array([[7, 3, 100]]), width=6, rng=rng())
        assert drawn.slots[0, 1, :3].tolist() == [0, 1, 2]
        assert drawn.mask[0].sum(axis=1).tolist() == [6, 3, 6]
        made.memory.fill(logits())
    made = Top(sizes=SIZES, num_instances=6, epochs=4, share=1.0, grow=0.0)
    drawn = made.draw(np.full((4000, 1), 1), np.full((4000, 1), 100), width=6, rng=rng(4))
    assert chisquare(np.bincount(drawn.slots.ravel(), minlength=100)).pvalue > 1e-3


def test_top_draws_hold_the_highest_and_the_rest_is_uniform():
    rule = filled(epochs=4, share=0.5, grow=0.0)
    for bag in (1, 3):
        bags = np.full((3000, 1), bag)
        drawn = rule.draw(bags, SIZES[bags], width=6, rng=rng())
        best = np.argsort(-of_bag(rule.memory, bag), kind="stable")[:3]
        counts = np.bincount(drawn.slots.ravel(), minlength=SIZES[bag])
        # Ties of float16 may be broken either way; the highest of all is drawn each time.
        assert counts[best[0]] >= 3000
        assert counts[best].sum() >= 0.99 * 9000
        rest = np.delete(counts, np.argsort(-counts)[:4])
        assert rest.sum() > 0.9 * 9000 * (1 - 4 / SIZES[bag]) - 100
        assert chisquare(rest).pvalue > 1e-3 or SIZES[bag] > 1000


@pytest.mark.parametrize("passed", [False, True])
def test_no_instance_competes_twice(passed):
    # Beside a large bag, one that is smaller than the list of candidates; and no list before the first pass.
    sizes = np.array([40, 1000])
    rule = Top(sizes=sizes, num_instances=16, epochs=4, share=1.0, grow=0.0)
    if passed:
        rule.memory.fill(rng(1).normal(size=1040))
    rule.begin_epoch(0)
    bags = np.tile([[0, 1]], (500, 1))
    drawn = rule.draw(bags, sizes[bags], width=16, rng=rng())
    assert {len(set(row)) for row in drawn.slots.reshape(-1, 16).tolist()} == {16}
    if not passed:
        counts = np.bincount(drawn.slots[:, 1].ravel(), minlength=1000)
        assert chisquare(counts).pvalue > 1e-3, "uniform while nothing was seen"


def test_the_contest_grows_from_uniform_to_the_whole_bag():
    rule = filled(epochs=10, share=1.0, grow=1.0)
    bags, found = np.full((400, 1), 1), []
    ranks = np.argsort(np.argsort(-of_bag(rule.memory, 1), kind="stable"))
    for epoch in range(10):
        rule.begin_epoch(epoch)
        found.append(float(ranks[rule.draw(bags, SIZES[bags], width=6, rng=rng(epoch)).slots].mean()))
    assert 45 < found[0] < 54, "ranks 0 to 99 of a uniform draw"
    assert all(np.diff(found) < 0)


def test_a_pass_is_due_by_budget_and_drift_or_by_number():
    rule = Top(epochs=9, sizes=np.full(10, 300), num_instances=10, pass_budget=1.0)
    assert not rule.pass_due(100), "nothing has been drawn twice"
    rule.memory.drift = 0.2
    # An epoch costs 3 * 10 * 10, a pass 3000.
    assert [rule.pass_due(epoch) for epoch in (0, 9, 10, 11)] == [False, False, True, True]
    rule.memory.fill(np.zeros(3000))
    assert not rule.pass_due(100), "what was just filled has not moved"
    rule.memory.drift = 0.2
    assert [rule.pass_due(epoch) for epoch in (19, 20)] == [False, True]
    assert not Top(epochs=9, sizes=np.full(10, 300), num_instances=300).pass_due(1000), "whole bags need no memory"
    rule = Top(epochs=9, sizes=np.full(10, 300), num_instances=10, refresh=3)
    assert [rule.pass_due(epoch) for epoch in range(5)] == [True, False, False, True, False]


def test_senseless_settings_are_refused():
    for settings in ({"refresh": 0}, {"stale": -1}, {"pass_budget": float("nan")}, {"share": 1.5}, {"grow": 2}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Top(sizes=SIZES, num_instances=4, epochs=3, **settings)
    bags = make_bags()
    with pytest.raises(ConfigError, match="instances weigh the same"):
        Trainer(config("top", pooling="mean"), bags)
    with pytest.raises(ConfigError, match="no `anneal`"):
        Trainer(config("uniform", pooling="mean", anneal=0.5), bags)
    with pytest.raises(ConfigError, match="uses whole bags"):
        Trainer(config("top", estimator="exact"), bags)
    with pytest.raises(ConfigError, match="attention gets no gradient"):
        Trainer(config("uniform", estimator="minibatch", num_instances=1), bags)


def make_bags(number=24, *, largest=40):
    made = rng(2)
    labels = np.arange(number) % 2
    parts = [made.normal(size=(int(made.integers(2, largest)), 4)).astype(np.float32) for _ in labels]
    for bag, label in zip(parts, labels, strict=True):
        bag[-1] += 3 * label
    return Bags.from_list(parts, labels)


def config(draw, **settings):
    own = {"epochs": 6, "num_positive": 4, "num_negative": 4, "num_instances": 4, "members": 1, "draw": draw}
    own["hidden"] = []
    return Settings(**own | settings)


@pytest.mark.parametrize(
    ("pooling", "estimator"),
    [("attention", "vrsp"), ("attention", "minibatch"), ("smoothed-max", "vrsp"), ("max", "minibatch")],
)
def test_a_resumed_training_is_the_uninterrupted_one(estimator, pooling, tmp_path):
    bags = make_bags()
    anneal = 0.0 if pooling == "max" else 0.5
    how = config("top", estimator=estimator, pooling=pooling, anneal=anneal, draw_args={"refresh": 2}, members=2)
    whole = Trainer(how, bags)
    while not whole.finished:
        row = whole.train_epoch()
    assert 0 < row["drawn_weight"] <= 1
    assert row["memory_age"] == 1
    first = Trainer(how, bags)
    for _ in range(3):
        first.train_epoch()
    save_checkpoint(tmp_path / "c.pt", {"trainer": first.state_dict()})
    resumed = Trainer(how, bags)
    resumed.load_state_dict(load_checkpoint(tmp_path / "c.pt")["trainer"])
    while not resumed.finished:
        resumed.train_epoch()
    assert resumed.history == whole.history
    assert all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True))
    uniform = Trainer(how.replace(draw="uniform", draw_args={}), bags)
    while not uniform.finished:
        uniform.train_epoch()
    assert not torch.equal(next(uniform.model.parameters()), next(whole.model.parameters()))


def test_workers_and_a_store_on_disk_change_nothing(tmp_path):
    bags = make_bags()
    write_store(bags, tmp_path / "s.store")
    trained = []
    for workers in (None, 0, 1, 4):
        source = bags if workers is None else open_store(tmp_path / "s.store")
        trainer = Trainer(config("top", draw_args={"refresh": 2}, standardize=False, workers=workers), source)
        while not trainer.finished:
            trainer.train_epoch()
        trained.append([p.detach() for p in trainer.model.parameters()])
    for other in trained[1:]:
        assert all(torch.equal(a, b) for a, b in zip(trained[0], other, strict=True))


def test_the_memory_of_other_bags_is_refused():
    state = filled(epochs=1).state_dict()
    with pytest.raises(CheckpointError, match="remembered scores"):
        Top(sizes=SIZES[:3], num_instances=6, epochs=1).load_state_dict(state)


@pytest.mark.parametrize("position", [-1, int(SIZES[1])])
def test_a_candidate_outside_its_bag_is_refused_and_changes_nothing(position):
    state, resumed = filled(epochs=1).memory.state_dict(), ScoreMemory(SIZES)
    state["candidates"][1, 3] = position
    with pytest.raises(CheckpointError, match=f"instances of bag 1 .*, got position {position}; restore a copy"):
        resumed.load_state_dict(state)
    assert resumed.passes == 0
    assert np.isinf(of_bag(resumed, 1)).all()


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max", "generalized-mean"])
def test_annealed_weights_begin_near_the_mean_and_leave_no_trace(pooling):
    bags = make_bags()
    trainer = Trainer(config("uniform", pooling=pooling, anneal=1.0, epochs=4), bags)
    training = trainer.members[0]
    before = {}
    for epoch in (0, 2):
        with training.epoch(epoch):
            before[epoch] = training.trained.pooling.weight_power
    assert before == {0: pytest.approx(0.2), 2: pytest.approx(0.2**0.5)}
    assert training.trained.pooling.weight_power == 1
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    own = training.model.instances(x)[0]
    with training.epoch(0):
        flat = training.model.instances(x)[0]
    assert_close(flat, own * 0.2)


def test_the_docs_have_the_arguments_with_their_defaults():
    text = (Path(__file__).parents[2] / "docs" / "draws.md").read_text("utf-8")
    said = dict(re.findall(r"\| `(\w+)` \| ([\d.]+|-) \|", text))
    offered = {"self", "sizes", "num_instances", "epochs"}
    own = inspect.signature(Top.__init__).parameters
    wanted = {name: "-" if p.default is None else f"{p.default:g}" for name, p in own.items() if name not in offered}
    assert said == wanted
