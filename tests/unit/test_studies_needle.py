"""The study of the needle: costs by hand, and the study itself, small."""

import numpy as np
import pytest

from midam.train.trainer import Trainer
from studies.options import StudyOptions
from studies.regime.bags import Counts, nine_bags
from studies.regime.needle import EXACT, FULL, GROWN, LABELED, SMALLER, UNIFORM, Cell, Design, cost, run
from studies.regime.needle_page import interval


@pytest.mark.parametrize(("rule", "wanted"), [(UNIFORM, 3 * 16 * 16 * 2), (EXACT, 3 * 60 * 16 * 2)])
def test_the_cost_counts_backward_passes_twice(rule, wanted):
    design = Design((Cell("smoothed-max", 60, 1, (rule,)),), (0,), epochs=2, counts=Counts(16, 4, 4))
    bags = nine_bags(60, sets=[(1, 0)], counts=design.counts)
    train = bags.subset(design.counts.positions("train"))
    trainer = Trainer(design.config(design.cells[0], rule, 0), train)
    while not trainer.finished:
        trainer.train_epoch()
    assert cost(trainer, design.cells[0], design) * 2400 * 16 * 16 * 3 == pytest.approx(wanted)


def test_the_cost_counts_passes():
    cell = Cell("smoothed-max", 60, 1, (GROWN,), pass_budget=4.0)
    design = Design((cell,), (0,), epochs=12, counts=Counts(16, 4, 4))
    train = nine_bags(60, sets=[(1, 0)], counts=design.counts).subset(design.counts.positions("train"))
    trainer = Trainer(design.config(cell, GROWN, 0), train)
    while not trainer.finished:
        trainer.train_epoch()
    passes = trainer.members[0].sampler.draw.memory.passes
    assert passes > 0
    assert cost(trainer, cell, design) * 2400 * 16 * 16 * 3 == pytest.approx(12 * 3 * 16 * 16 + passes * 16 * 60)


def test_the_budgets_of_the_study_are_twice_the_plain_one():
    for cell in FULL.cells:
        for rule in cell.rules:
            if rule not in (EXACT, LABELED):
                epochs = FULL.config(cell, rule, 0).training.epochs
                passes = 1 + (cell.pass_budget if "draw" in rule.settings else 0)
                assert epochs * 6 / 2400 * passes <= 2


def test_intervals_are_those_of_students_t():
    assert interval(np.array([0.1, 0.2, 0.3])) == "+0.200 [-0.048, +0.448]"


def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "needle.md").read_text()
    assert (options.out / "needle.png").read_bytes().startswith(b"\x89PNG")
    store = options.cache / "needle-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    assert len([line for line in lines if "wall" not in line]) == 3 * len(SMALLER.repeats)
    store.write_text("".join(lines[:2]))
    run(options)
    again = (options.out / "needle.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert [line for line in again.splitlines() if line.startswith("|")] == table
