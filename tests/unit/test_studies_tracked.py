"""The study of remembering: its bags, who chooses and who is judged, its page."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest

from midam.data.bags import Bags
from midam.errors import ConfigError
from studies.differences import Difference
from studies.engine import Store
from studies.options import StudyOptions
from studies.regime import tracked, tracked_sets
from studies.regime.references import reference_aurocs
from studies.regime.tracked import (
    ANY,
    ARMS,
    EXACT,
    FULL,
    MINIBATCH,
    SMALLER,
    VRSP,
    Cell,
    Optimizer,
    run,
    start_grid,
    tune,
)
from studies.regime.tracked_page import PRINTED, Outcomes, body, corrected, over_tasks, task_gains
from studies.regime.tracked_sets import CHOOSING, Customers, Digits, Real


def test_no_two_digits_of_a_set_are_alike():
    split = Digits(30, 0.1, train=20, score=10).load(0, None)
    rows = np.asarray(split.bags.instances)
    assert len(np.unique(rows, axis=0)) == len(rows) == 900
    found = split.witness.reshape(30, 30).sum(axis=1)
    assert found.tolist() == [0, 3] * 15


@pytest.mark.parametrize("groups", [None, [f"g{i // 4}" for i in range(80)]])
def test_no_test_bag_has_chosen(monkeypatch, tmp_path, groups):
    bags = Bags.from_list([[[float(i)]] for i in range(80)], [i % 2 for i in range(80)], groups=groups)
    monkeypatch.setattr(tracked_sets.catalog, "load", lambda name: bags)
    data = Real(f"made-{groups is None}")
    choosing = [data.load(repeat, tmp_path) for repeat in CHOOSING]
    chose = set(np.concatenate([np.append(split.train, split.score) for split in choosing]))
    assert len(np.unique(np.concatenate([split.score for split in choosing]))) == len(chose) == 40
    for repeat in FULL.repeats:
        split = data.load(repeat, tmp_path)
        assert not chose & set(split.score)
        assert sorted([*split.train, *split.score]) == list(range(80))


def test_arms_have_one_grid_and_the_richest_contains_the_others():
    grid = list(start_grid(deep=False))
    by_name = {arm.name: arm.options(tuple(grid)) for arm in ARMS}
    assert len(grid) == 6
    for name, options in by_name.items():
        assert [optimizer for _, optimizer in options] == grid * (4 if name == ANY else 1)
    richest = by_name.pop(ANY)
    assert all(option in richest for name in (MINIBATCH.name, VRSP.name) for option in by_name[name])


def test_what_another_process_is_sent_trains_as_long():
    (exact,) = EXACT.ways
    task, split = FULL.tasks[1], Digits(20, 0.2, train=400, score=10).load(0, None)
    cell = Cell(task.name, "attention", 2)
    sent = pickle.loads(pickle.dumps(exact))
    adam = start_grid(deep=False)[0]
    assert task.config(cell, sent, adam, split) == task.config(cell, exact, adam, split)


@pytest.mark.long
def test_a_choice_at_an_edge_widens_the_grid_of_all_arms(monkeypatch, tmp_path):
    best = {"minibatch": Optimizer("sgd", 0.003), "vrsp": Optimizer("adam", 0.03)}

    def train(work):
        near = best.get(work.way.name, Optimizer("adam", 0.003))
        apart = abs(np.log10(work.optimizer.lr / near.lr)) + 9 * (work.optimizer.kind != near.kind)
        return [{"auroc": 1 / (1 + apart), "seconds": 0.0}]

    monkeypatch.setattr(tracked, "_train", train)
    options = StudyOptions(cache=tmp_path)
    with Store(tmp_path, "tracked") as store:
        chosen = tune(replace(SMALLER, instances=(2, 8)), store, options)
        tried = {arm: set() for arm in ("minibatch", "vrsp", "exact")}
        for row in store.rows:
            if row.get("arm") in tried and row["pooling"] == "attention":
                tried[row["arm"]].add((row["option"]["optimizer"], row["option"]["lr"]))
    for (_, arm), ((_, optimizer), _) in chosen.items():
        assert optimizer == best.get(arm, optimizer)
    assert tried["minibatch"] == tried["vrsp"] > tried["exact"] | {("sgd", 0.001), ("adam", 0.1)}
    assert len(tried["exact"]) == 6


def test_customers_hide_one_to_three_rows_in_few_bags():
    split = Customers(train=400, score=100).load(0, None)
    counts, labels = split.witness.reshape(500, 30).sum(axis=1), split.bags.labels
    assert set(counts[labels == 1]) == {1, 2, 3}
    assert not counts[labels == 0].any()
    assert labels.mean() == pytest.approx(0.12, abs=0.05)


@pytest.mark.long
def test_labels_of_instances_find_the_nines_and_are_not_needed_by_the_others():
    split = Digits(20, 0.2, train=60, score=40).load(0, None)
    found = reference_aurocs(split, 0)
    assert found["each instance's label, RBF-SVM"] > 0.9
    blind = tracked_sets.Split(split.bags, split.train, split.score, np.roll(split.witness, 7))
    again = reference_aurocs(blind, 0)
    assert again["each instance's label, RBF-SVM"] < 0.8
    assert all(again[name] == found[name] for name in ("novelty", "mi-SVM"))


def outcome(task, b, gain, **tests):
    rng = np.random.default_rng(b)
    minibatch = 0.7 + rng.normal(0, 0.01, 10)
    arms = {"minibatch": minibatch, "vrsp": minibatch + gain + rng.normal(0, 0.005, 10)} | tests
    return Outcomes(Cell(task, "attention", b), arms, {}, 0.0)


def test_a_clear_gain_survives_holm_and_noise_does_not():
    found = [outcome("a", 1, 0.1), outcome("a", 2, 0.0), outcome("b", 8, 0.1)]
    p = {cell: value for cell, (_, value) in corrected(found).items()}
    assert p[found[0].cell] < 1e-6
    assert p[found[1].cell] > 0.05
    gains = task_gains(found, (None, (1, 2)))
    assert list(gains) == ["a"]
    assert gains["a"].mean == pytest.approx(0.05, abs=0.01)
    assert over_tasks({"a": Difference(0.1, 0.0, 0.2), "b": Difference(0.1, 0.0, 0.2)}).low == pytest.approx(
        0.0293, abs=1e-4
    )


@pytest.mark.parametrize(
    ("gains", "advice"),
    [
        ((0.1, 0.1), "remember"),
        ((-0.1, -0.1), "mini-batch"),
        ((-0.1, 0.1), "differs by task"),
        ((0, 0), "no difference"),
    ],
)
def test_advice_follows_the_tasks(gains, advice):
    found = [outcome(task, 2, gain) for task, gain in zip("ab", gains)]
    (row,) = [line for line in body(found, {}, "x.png") if line.startswith("| attention | 2 | 2 |")]
    assert advice in row


def test_the_printed_state_is_compared_too():
    step = np.linspace(-0.01, 0.01, 10)
    found = [outcome(task, 2, 0.0, **{PRINTED: 0.7 + gain + step}) for task, gain in (("a", 0.2), ("b", 0.0))]
    text = "\n".join(body(found, {}, "x.png"))
    rows = text.partition("## The arm `vrsp-printed`")[2].partition("\n## ")[0]
    assert re.search(r"\| a \| attention \| 2 \| \+0\.\d+ \[.*\] \| < 0\.001 \| -0\.\d+ \[.*\] \| < 0\.001 \|", rows)
    assert "| b | attention | 2 |" in rows


@pytest.mark.drawn
@pytest.mark.long
def test_a_trial_writes_the_page_and_goes_on_from_its_trials(tmp_path):
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    run(options)
    text = (tmp_path / "out" / "tracked.md").read_text()
    for title in (
        "By pooling and B",
        "All cells",
        "The arm `vrsp-printed`",
        "What the digits allow",
        "What was chosen",
        "Do validation bags show which is better?",
    ):
        assert f"## {title}\n" in text
    cells = text.partition("## All cells\n")[2].partition("\n## ")[0]
    assert [
        cells.count(f"| digits | {pooling} | {b} |") for pooling in ("smoothed-max", "attention") for b in (1, 4)
    ] == [1] * 4
    assert (tmp_path / "out" / "tracked.png").stat().st_size > 5000
    trials = (tmp_path / "cache" / "tracked-smaller.jsonl").read_text()
    run(options)
    assert (tmp_path / "cache" / "tracked-smaller.jsonl").read_text() == trials
    with pytest.raises(ConfigError, match="full or small"):
        run(replace(options, size="paper"))
    assert len(SMALLER.repeats) == 2
