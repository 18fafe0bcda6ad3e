"""The map: its bags, budgets as the library spends them, what its results say, and the study itself, small."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from midam.errors import ConfigError
from midam.train.trainer import Trainer
from studies.options import StudyOptions
from studies.regime.bags import Counts, draw_rows, is_nine, nine_bags, split_images
from studies.regime.design import (
    CEILING,
    DRAWN,
    EXACT,
    MINIBATCH,
    RULES,
    TOP,
    TOP_VRSP,
    VRSP,
    Block,
    Cell,
    Design,
)
from studies.regime.page import body
from studies.regime.regime import FULL, QUICK, SMALLER, run
from studies.regime.results import Results
from studies.regime.trials import wanted_groups

pytestmark = pytest.mark.drawn

SMALL = Counts(train=8, val=4, test=6)


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


def test_witnesses_are_known():
    rows = draw_rows(200, positive=3, repeat=5, counts=SMALL)
    np.testing.assert_array_equal(is_nine(rows).sum(axis=1), np.tile([0, 3], 9))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule is not CEILING], ids=lambda rule: rule.name)
def test_no_rule_spends_more_than_the_budget(rule):
    cell = Cell("smoothed-max", 20, 2, 3, 96)
    design = Design((Block(("smoothed-max",), 20, (2,), ((3, 96),)),), (0,), (), (), counts=Counts(32, 4, 4))
    train = nine_bags(20, sets=[(2, 0)], counts=design.counts).subset(design.counts.positions("train"))
    for option in rule.options:
        trainer = Trainer(design.config(cell, rule, option), train)
        spent = []
        # The graph is built where a backward pass will follow: forward 1 and backward 2.
        trainer.members[0].trained.encoder.register_forward_hook(
            lambda module, inputs, output, spent=spent: spent.append(
                len(inputs[0]) * (3 if torch.is_grad_enabled() else 1)
            )
        )
        while not trainer.finished:
            trainer.train_epoch()
        assert 0.8 * cell.budget <= sum(spent) <= cell.budget


@pytest.mark.parametrize("design", [FULL, QUICK, SMALLER])
def test_designs_name_each_cell_once_and_choose_on_other_repeats(design):
    assert len(set(design.cells)) == len(design.cells)
    assert not set(design.repeats) & set(design.choice_repeats)
    assert {cell.pooling for cell in design.choice_cells} == {cell.pooling for cell in design.cells}
    assert len(design.repeats) >= (8 if design is FULL else 2)


def test_attention_has_no_gradient_from_one_instance():
    design = Design((Block(("attention",), 20, (2,), ((1, 96),)),), (0,), (), ())
    (cell,) = design.cells
    assert [rule.name for rule in DRAWN if not design.runs(cell, rule)] == [MINIBATCH.name, TOP.name]


def test_whole_bags_are_trained_once_for_budgets_that_buy_as_many():
    design = Design((Block(("attention",), 20, (2,), ((4, 96), (16, 24))),), (0, 1), (), ())
    groups = wanted_groups(
        design, design.cells, design.repeats, lambda rule, pooling: (rule.options or VRSP.options)[:1]
    )
    names = [name["rule"] for group in groups for name in group.names]
    assert names.count(EXACT.name) == 2
    assert names.count(VRSP.name) == 4


@pytest.fixture
def results():
    """Return three cells and three repeats with AUROCs by hand: informative, saturated, at chance."""
    design = Design((Block(("attention",), 20, (1, 2, 5), ((4, 300),)),), (0, 1, 2), (), (), ceiling=20)
    test = {rule.name: np.array([[0.6, 0.7, 0.8], [0.99, 1.0, 1.0], [0.5, 0.4, 0.6]]) for rule in RULES}
    test[VRSP.name] = np.array([[0.7, 0.8, 0.9], [0.99, 1.0, 1.0], [0.5, 0.4, 0.6]])
    test[EXACT.name][0] = [0.6, 0.65, 0.75]
    test[CEILING.name][0] = [0.9, 0.95, 1.0]
    val = {rule.name: np.full((3, 3), 0.6) for rule in RULES}
    val[VRSP.name][:] = 0.7
    chosen = {(rule.name, "attention"): (rule.options or VRSP.options)[0] for rule in RULES}
    return Results(design, chosen, val, test)


def test_cells_that_can_tell_nothing_are_marked(results):
    small, middle, large = results.cells
    assert [results.kind(cell) for cell in results.cells] == ["informative", "saturated", "at chance"]
    assert results.informative() == [small]
    results.test[TOP.name][1] = [0.9, 0.9, 0.9]
    assert results.informative() == [small, middle]
    results.test[TOP_VRSP.name][2] = [0.6, 0.61, 0.62]
    assert results.kind(large) == "informative"


def test_intervals_by_hand(results):
    small = results.cells[0]
    area = results.area(VRSP, small)
    # sd 0.1 over 3 repeats, t_2 = 4.3027: 0.8 -+ 4.3027 * 0.1 / sqrt(3)
    assert (area.mean, area.low) == pytest.approx((0.8, 0.8 - 0.248413), abs=1e-5)
    assert results.difference(VRSP, MINIBATCH, small).low == pytest.approx(0.1)
    mean = results.mean_difference(VRSP, MINIBATCH, list(results.cells))
    assert (mean.mean, mean.low) == pytest.approx((0.1 / 3, 0.1 / 3))
    assert results.counts(VRSP, MINIBATCH, list(results.cells)) == (1, 0, 2)
    assert results.counts(MINIBATCH, VRSP, list(results.cells)) == (0, 1, 2)
    results.test[EXACT.name][1] = np.nan
    assert results.area(EXACT, results.cells[1]) is None
    assert results.mean_area(EXACT, list(results.cells)).mean == pytest.approx((2 / 3 + 0.5) / 2)


def test_the_best_rule_is_chosen_by_validation_alone(results):
    assert results.best(results.informative()) == VRSP
    results.val[TOP_VRSP.name][:] = 0.9
    assert results.best(results.informative()) == TOP_VRSP


def test_a_tracked_state_is_ahead_where_it_beats_both(results):
    small, middle, _ = results.cells
    assert results.tracked_ahead(small) == [VRSP]
    assert results.tracked_ahead(middle) == []
    results.test[EXACT.name][0] = [0.9, 0.9, 0.9]
    assert results.tracked_ahead(small) == []


def test_the_ceiling_is_compared_where_it_is_high(results):
    found = results.below_ceiling()
    assert [(cell, rule) for cell, rule, _, _ in found] == [(results.cells[0], VRSP), (results.cells[1], VRSP)]
    assert found[0][2].mean == pytest.approx(0.8 - 0.95)
    # 300 steps of 16 bags of 4, against 100 epochs of 96 bags of 20
    assert found[0][3] == pytest.approx(300 * 16 * 4 / (100 * 96 * 20))


def test_the_page_says_what_the_numbers_say(results):
    text = "\n".join(body(results, "map.png"))
    assert "3 cells: 1 informative, 1 saturated, 1 at chance." in text
    assert "with attention in 1 of 3 cells (1 of 3 at B = 4)" in text
    assert "- attention, 1 of 20, B = 4: vrsp" in text
    assert "`vrsp` +0.033 [+0.033, +0.033] (a gain)" in text
    assert "`top, minibatch` +0.000 [+0.000, +0.000] (no loss)" in text


def _rows(folder):
    lines = [json.loads(line) for line in (folder / "regime-smaller.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in lines if "wall" not in row]


def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "regime.md").read_text()
    assert (options.out / "regime.png").read_bytes().startswith(b"\x89PNG")
    whole = _rows(options.cache)
    assert {row["rule"] for row in whole} == {rule.name for rule in RULES}
    store = options.cache / "regime-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    kept = lines[: len(whole) - 12]
    store.write_text("".join(kept))
    run(options)
    assert store.read_text().startswith("".join(kept))
    assert len(_rows(options.cache)) == len(whole)
    again = (options.out / "regime.md").read_text()
    assert page.split("## Settings")[0] == again.split("## Settings")[0]
    trained = len(store.read_text().splitlines())
    run(options)
    assert len(store.read_text().splitlines()) == trained
