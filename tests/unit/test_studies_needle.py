"""The study of the needle: costs by hand, and the study itself, small."""

import numpy as np
import pytest
import torch
from torch import nn

from midam.data.bags import Bags
from midam.data.store import write_store
from midam.train.trainer import Trainer
from studies.options import StudyOptions
from studies.regime import needle
from studies.regime.bags import Counts, draw_rows, is_nine, nine_bags, split_images
from studies.regime.needle import EXACT, FULL, GROWN, LABELED, SMALLER, UNIFORM, Cell, Design, cost, run
from studies.regime.needle_page import interval

pytestmark = pytest.mark.drawn


class Halves(nn.Module):
    """Brightness of the upper and of the lower half of an image."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x.mean(1).unflatten(1, (2, -1)).mean((2, 3)) * self.scale


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


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer", "ignore:Expected at least 32 positive")
def test_the_study_on_vectors(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 255, (400, 28, 28), dtype=np.uint8)
    digits = np.arange(400) % 10
    images[digits == 9, :14] = 255
    (tmp_path / "digits").mkdir()
    parts = {
        f"{n}_{split}": part
        for n, a in (("x", images), ("y", digits))
        for split, part in (("train", a), ("test", a[:0]))
    }
    np.savez(tmp_path / "digits/mnist_20k.npz", **parts)
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path))
    monkeypatch.setattr(needle, "NETWORK", f"{__name__}.Halves")
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    needle.run_vectors(options)
    page = (options.out / "needle-vectors.md").read_text()
    rows = dict(line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| "))
    assert float(rows["instances labeled"].split(" | ")[0]) > 0.8
    # Steps too few to learn anything: that they are taken, on the images, is what can be seen.
    assert rows.keys() >= {
        "instances labeled, fine-tuned",
        "smoothed-max, exact",
        "smoothed-max, uniform, fine-tuned",
        "mean, exact",
        "trees on bag statistics",
    }


def test_vectors_of_digits_are_those_of_the_images(tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    write_store(Bags.from_list([vectors[:40], vectors[40:]], [0, 1]), tmp_path / "s")
    monkeypatch.setattr("studies.regime.bags.mnist", lambda: (np.zeros((90, 28, 28), np.uint8), np.arange(90) % 10))
    parts = split_images(3, tmp_path / "s")
    used = np.concatenate([rows for pair in parts.values() for rows in pair])
    assert sorted(used) == list(range(60))
    rows = draw_rows(7, positive=1, repeat=3, counts=Counts(8, 4, 4), vectors=tmp_path / "s")
    assert is_nine(rows, tmp_path / "s").sum(axis=1).tolist() == [0, 1] * 8
    bags = nine_bags(7, sets=[(1, 3)], counts=Counts(8, 4, 4), vectors=tmp_path / "s")
    train = vectors[np.concatenate(parts["train"])]
    turned = np.linalg.eigh(np.cov(train.T))[1]
    wanted = (vectors[rows[2]] - train.mean(0)) @ turned / (train @ turned).std(0)
    np.testing.assert_allclose(np.abs(bags[2]), np.abs(wanted).clip(max=3), atol=4e-3)  # signs are arbitrary


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
