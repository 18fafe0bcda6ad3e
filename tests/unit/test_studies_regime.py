"""The study of regimes: budgets by hand and by count, its bags, its statistics, and the study itself, small."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from midam.errors import ConfigError
from midam.train.lockstep import Trial, train_trials
from midam.train.step import train_step
from midam.train.training import build_training
from studies.options import StudyOptions
from studies.regime import trials
from studies.regime.advice import advice, in_short
from studies.regime.bags import Counts, draw_rows, nine_bags, split_images, witnesses
from studies.regime.budget import affordable_steps, step_cost
from studies.regime.design import CONSTANT, EXACT, EXACT_POINT, METHODS, MINIBATCH, WARMUP, Cell, Design
from studies.regime.regime import FULL, QUICK, SMALLER, run
from studies.regime.results import Results
from studies.regime.trials import choose, train_steps

SMALL = Counts(train=8, val=4, test=6)
CELL = Cell("attention", 20, 2, 3, 4)
DESIGN = Design(("attention",), (20,), (0.1,), (3,), (4,), (0.1,), (0, 1), counts=SMALL, bags=4)


@pytest.mark.parametrize(
    ("estimator", "size", "instances", "cost"),
    [
        ("minibatch", 500, 4, 16 * 3 * 4),
        ("vrsp", 5000, 16, 16 * 3 * 16),
        ("exact", 50, 4, 16 * 3 * 50),
        ("exact", 256, 4, 16 * 3 * 256),
        ("exact", 257, 4, 16 * 4 * 257),
        ("exact-point", 500, 4, 16 * (500 + 12)),
        ("vrsp", 3, 4, 16 * 3 * 3),
    ],
)
def test_the_cost_of_a_step_by_hand(estimator, size, instances, cost):
    assert step_cost(estimator, size=size, instances=instances, bags=16, chunk_size=4096) == cost


@pytest.mark.parametrize(
    ("estimator", "size", "instances", "steps", "expected"),
    [
        ("minibatch", 5000, 4, 300, 300),
        ("exact", 50, 4, 300, 24),  # 57600 / 2400
        ("exact-point", 50, 4, 300, 58),  # 57600 / 992
        ("exact", 500, 4, 300, 1),  # 57600 / 32000
        ("exact-point", 5000, 4, 300, 0),  # 57600 < 80192
        ("exact", 5000, 16, 3000, 7),  # 2304000 / 320000
    ],
)
def test_the_steps_that_a_budget_buys_by_hand(estimator, size, instances, steps, expected):
    found = affordable_steps(estimator, size=size, instances=instances, steps=steps, bags=16, chunk_size=4096)
    assert found == expected


@pytest.mark.parametrize("chunk_size", [16, 4096])
@pytest.mark.parametrize("method", [MINIBATCH, CONSTANT[0], EXACT_POINT, EXACT], ids=lambda method: method.estimator)
def test_the_cost_of_a_step_is_what_the_library_encodes(method, chunk_size):
    bags = nine_bags(20, sets=[(2, 0)], counts=SMALL)
    config = DESIGN.config(CELL, method, 0.1).replace(chunk_size=chunk_size)
    train = bags.subset(SMALL.positions("train"))
    member = build_training(config, train)
    spent = []
    # The graph is built where a backward pass will follow: forward 1 and backward 2.
    member.model.encoder.register_forward_hook(
        lambda module, inputs, output: spent.append(len(inputs[0]) * (3 if torch.is_grad_enabled() else 1))
    )
    batch = next(member.batches())
    train_step(member.model, member.estimator, member.objective, member.optimizer, batch)
    assert sum(spent) == step_cost(method.estimator, size=20, instances=3, bags=4, chunk_size=chunk_size)


def test_a_rate_gives_at_least_one_witness():
    assert [witnesses(50, rate) for rate in (0.001, 0.01, 0.1)] == [1, 1, 5]
    assert [witnesses(5000, rate) for rate in (0.001, 0.01, 0.1)] == [5, 50, 500]


def test_positive_bags_hold_their_nines_and_negative_ones_none():
    rows = draw_rows(200, positive=3, repeat=5, counts=SMALL)
    nines = (load_digits().target[rows] == 9).sum(axis=1)
    assert rows.shape == (18, 200)
    np.testing.assert_array_equal(nines, np.tile([0, 3], 9))


def test_witnesses_stand_anywhere_in_a_bag():
    rows = draw_rows(30, positive=1, repeat=0, counts=Counts())[1::2]
    assert len(set((load_digits().target[rows] == 9).argmax(axis=1))) > 15


def test_splits_share_no_image():
    rows = draw_rows(3000, positive=300, repeat=1, counts=SMALL)
    parts = [set(rows[SMALL.positions(split)].flatten()) for split in ("train", "val", "test")]
    assert len(set.union(*parts)) == sum(len(part) for part in parts)
    assert sum(len(np.concatenate(part)) for part in split_images(1).values()) == 1797
    assert set(split_images(1)["train"][0]) != set(split_images(2)["train"][0])


def test_bags_are_a_pure_function_of_their_numbers():
    one = nine_bags(20, sets=[(2, 3), (1, 4)], counts=SMALL)
    other = nine_bags(20, sets=[(1, 4)], counts=SMALL)
    np.testing.assert_array_equal(one.instances[18 * 20 :], other.instances)
    assert one.require_labels().tolist() == [0, 1] * 18
    np.testing.assert_array_equal(SMALL.positions("test", place=1), np.arange(30, 36))


def test_bags_are_scaled_images_of_the_training_set():
    rows = draw_rows(20, positive=2, repeat=3, counts=SMALL)
    images = load_digits().data
    own = images[np.concatenate(split_images(3)["train"])]
    bags = nine_bags(20, sets=[(2, 3)], counts=SMALL)
    np.testing.assert_allclose(bags[7], (images[rows[7]] - own.mean()) / own.std(), rtol=1e-3)


def test_more_witnesses_than_instances_are_refused():
    with pytest.raises(ConfigError, match="1 to 5 witnesses"):
        nine_bags(5, sets=[(6, 0)])


@pytest.mark.parametrize("design", [FULL, QUICK, SMALLER])
def test_whole_epochs_make_the_steps_of_a_design(design):
    for cell in design.cells():
        config = design.config(cell, MINIBATCH, design.lrs[0])
        assert config.training.epochs * design.counts.train == cell.steps * design.bags
    assert len(set(design.cells())) == len(design.cells())


@pytest.mark.parametrize("method", [EXACT_POINT, EXACT], ids=lambda method: method.name)
def test_training_by_steps_equals_the_trainer(method):
    bags = nine_bags(20, sets=[(2, 0)], counts=SMALL)
    config = DESIGN.config(CELL, method, 0.1)
    config = config.replace(decay_at=[])
    trial = Trial(SMALL.positions("train"), SMALL.positions("test"), 1)
    expected = train_trials(config, bags, [trial])[0].scores[-1]
    scores, loss, seconds = train_steps(config, bags, trial, steps=config.training.epochs * 2)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert np.isfinite(loss)
    assert seconds > 0


@pytest.mark.parametrize("steps", [1, 7])
def test_training_takes_the_steps_asked_for_and_lowers_the_rate(monkeypatch, steps):
    rates = []

    def spy(model, estimator, objective, optimizer, batch):
        rates.append(optimizer.param_groups[0]["lr"])
        return train_step(model, estimator, objective, optimizer, batch)

    monkeypatch.setattr(trials, "train_step", spy)
    bags = nine_bags(20, sets=[(2, 0)], counts=SMALL)
    config = DESIGN.config(CELL, EXACT, 0.1)
    train_steps(config, bags, Trial(SMALL.positions("train"), SMALL.positions("test"), 0), steps=steps)
    expected = [0.1] if steps == 1 else [0.1] * 4 + [0.01] + [0.001] * 2
    assert rates == pytest.approx(expected)


def test_the_learning_rate_is_chosen_by_validation_alone():
    def row(repeat, lr, val, test):
        return {"repeat": repeat, "lr": lr, "val": val, "test": test}

    rows = [row(0, 0.5, 0.8, 0.1), row(0, 0.1, 0.8, 0.2), row(1, 0.1, 0.6, 0.9), row(1, 0.5, 0.7, 0.3)]
    rows += [row(2, 0.1, None, None), row(2, 0.5, 0.4, 0.5), row(3, 0.1, 0.9, 0.9), row(4, 0.1, None, None)]
    rows += [row(4, 0.5, None, None)]
    assert {repeat: chosen["test"] for repeat, chosen in choose(rows, [0.1, 0.5]).items()} == {0: 0.2, 1: 0.3, 2: 0.5}


@pytest.fixture
def results():
    """Return two cells and three repeats with AUROCs by hand; exact cannot take a step in the second cell."""
    design = Design(("attention",), (20, 5000), (0.1,), (3,), (300,), (0.1,), (0, 1, 2))
    cells = tuple(design.cells())
    nan = np.full(3, np.nan)
    test = {method.name: np.array([[0.6, 0.7, 0.8], [0.5, 0.5, 0.5]]) for method in METHODS}
    test["constant 0.5"] = np.array([[0.7, 0.8, 0.9], [0.6, 0.5, 0.4]])
    test["constant 0.1"] = np.array([[0.9, 0.9, 0.9], [0.9, 0.9, 0.9]])
    test["exact"] = np.array([[0.9, 0.95, 1.0], nan])
    test["exact-point"] = np.array([[0.9, 0.95, 0.9], nan])
    val = {method.name: np.full((2, 3), 0.6) for method in METHODS}
    val["constant 0.5"] = np.full((2, 3), 0.7)
    return Results(design, cells, val, test)


def test_the_rule_is_chosen_by_validation_alone(results):
    assert (results.rule, results.constant, results.warmup) == (CONSTANT[1], CONSTANT[1], WARMUP[0])


def test_intervals_by_hand(results):
    rule, small, large = CONSTANT[1], *results.cells
    area = results.area(rule, small)
    # sd 0.1 over 3 repeats, t_2 = 4.3027: 0.8 -+ 4.3027 * 0.1 / sqrt(3)
    assert (area.mean, area.low) == pytest.approx((0.8, 0.8 - 0.248413), abs=1e-5)
    assert results.difference(rule, MINIBATCH, small).low == pytest.approx(0.1)
    assert results.difference(rule, MINIBATCH, large).low == pytest.approx(-0.248413, abs=1e-5)
    # Means over the cells: 0.1, 0.05, 0.0
    mean = results.mean_difference(rule, MINIBATCH)
    assert (mean.mean, mean.low) == pytest.approx((0.05, 0.05 - 0.124207), abs=1e-5)
    assert results.mean_difference(MINIBATCH, CONSTANT[2], lambda cell: cell.size == 5000).low == pytest.approx(-0.4)
    assert results.counts(rule, MINIBATCH) == (1, 0, 1)
    assert results.counts(MINIBATCH, rule) == (0, 1, 1)
    assert results.counts(rule, EXACT) == (0, 1, 0)
    assert results.area(EXACT, large) is None
    assert results.mean_area(EXACT).mean == pytest.approx(0.95)


def test_the_winner_of_a_cell(results):
    small, large = (results.winner(cell) for cell in results.cells)
    assert (small.method, small.equals, small.learns) == (EXACT, (EXACT_POINT,), True)
    # minibatch and vrsp both have 0.5: vrsp is named. Another rule of it is above chance.
    assert (large.method, large.learns) == (CONSTANT[1], True)
    assert set(large.equals) == {MINIBATCH}
    results.test["constant 0.1"][1] = [0.6, 0.5, 0.4]
    assert not results.winner(results.cells[1]).learns


def test_the_advice_follows_the_numbers(results):
    text = " ".join(advice(results))
    assert "For bags of 20 take exact or exact-point with the budget of 300 steps (mean test AUROC 0.950;" in text
    assert "take constant gamma0 = 0.5" in text
    assert "is shown above chance" not in text
    results.test["constant 0.1"][1] = [0.6, 0.5, 0.4]
    text = " ".join(advice(results))
    assert "In 1 of 2 cells no method is shown above chance by 3 repeats; above chance were 1 of 2 with T = 300" in text
    assert "witnesses (the least" not in text  # no cell is that poor in witnesses
    results.val["warm-up 0.02"][:] = 0.9
    assert "take gamma0 = max(0.02, 1/k)" in " ".join(advice(results))
    results.test["exact"][0] = [0.99, 1.0, 1.0]
    text = " ".join(advice(results))
    assert "For bags of 20 take exact with the budget of 300 steps" in text
    assert ", a gain)" in text


def test_the_answer_comes_first_in_plain_words(results):
    first, _, head, _, *rows = in_short(results)
    assert "on average they cannot be told apart. They differ in 1 of 2 cells." in first
    assert "[" not in first
    assert head == "| what | test AUROC, mean over cells [95%] | verdict |"
    assert rows[0].startswith("| `vrsp` minus `minibatch`, at equal cost | ")
    assert rows[0].endswith(" | no difference found |")
    # The verdict follows the numbers.
    results.test["minibatch"][:] = 0.1
    assert "ahead of `minibatch`. They differ in 2 of 2 cells" in in_short(results)[0]
    results.test["minibatch"][:] = 1.0
    assert in_short(results)[0].startswith("**In short.** Take `minibatch`")


def test_what_larger_budgets_add_is_paired_by_cell():
    design = Design(("attention",), (20,), (0.1, 0.5), (4, 16), (300, 2400), (0.1,), (0, 1, 2))
    cells = tuple(design.cells())
    # 0.1 for the steps, 0.02 for the instances, whatever else a cell is.
    gain = [0.1 * (cell.steps == 2400) + 0.02 * (cell.instances == 16) + 0.2 * (cell.rate == 0.5) for cell in cells]
    areas = np.array([[0.5 + own + 0.01 * repeat for repeat in range(3)] for own in gain])
    found = Results(design, cells, *[{method.name: areas for method in METHODS}] * 2)
    text = " ".join(advice(found))
    assert "All else equal, 8 times the steps add +0.100 [+0.100, +0.100] and 4 times the instances a draw add" in text
    assert "a draw add +0.020 [+0.020, +0.020] of test AUROC to vrsp, mean over cells." in text


def _rows(folder):
    lines = [json.loads(line) for line in (folder / "regime-smaller.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in lines if "wall" not in row]


def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "regime.md").read_text()
    assert (options.out / "regime.png").read_bytes().startswith(b"\x89PNG")
    assert "| no step |" in page
    whole = _rows(options.cache)
    assert f"**{len(whole)} trainings.**" in page
    assert {row["method"] for row in whole} == {method.name for method in METHODS} - {"exact"}
    store = options.cache / "regime-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    kept = lines[: len(whole) // 2 - 1]
    store.write_text("".join(kept))
    run(options)
    assert store.read_text().startswith("".join(kept))
    again = _rows(options.cache)

    def by_name(row):
        return str(sorted((k, v) for k, v in row.items() if k not in {"val", "test", "loss"}))

    assert len(again) == len(whole)
    for one, other in zip(sorted(whole, key=by_name), sorted(again, key=by_name)):
        assert by_name(one) == by_name(other)
        # Trials in lockstep with fewer others agree to rounding.
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert (one["val"], one["test"]) == pytest.approx((other["val"], other["test"]), abs=1e-12)
    trained = len(store.read_text().splitlines())
    run(options)
    assert len(store.read_text().splitlines()) == trained
