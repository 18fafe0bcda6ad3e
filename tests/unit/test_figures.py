"""Figures are plotted whole, for every kind of run."""

import sys

import matplotlib.image
import numpy as np
import pytest

from midam.evaluate.metrics import summarize
from midam.evaluate.proportions import operating_points
from midam.report.figures import learning_curves, new_figure, save_figure, write_figure
from midam.report.plot_scores import plot_roc

pytestmark = pytest.mark.drawn

BLUE, ORANGE = np.array([0x00, 0x72, 0xB2]), np.array([0xD5, 0x5E, 0x00])
GREEN = np.array([0x00, 0x9E, 0x73])


def pixels(folder, figure, color):
    """Number of pixels of exactly this color."""
    write_figure(figure, folder / "figure.png")
    image = np.rint(255 * matplotlib.image.imread(folder / "figure.png")[..., :3]).astype(int)
    assert image.shape[0] > 400
    return int((image == color).all(axis=-1).sum())


@pytest.fixture
def sample():
    labels = np.arange(50) % 2
    return labels, np.random.default_rng(0).normal(size=50) + 1.5 * labels


def history(epochs):
    return [
        {"epoch": epoch, "lr": 0.1 if epoch <= 6 else 0.01, "loss": 1 / epoch, "val_auroc": 1 - 0.4 / epoch}
        for epoch in range(1, epochs + 1)
    ]


def test_roc_shows_the_curve_and_the_operating_point(tmp_path, sample):
    labels, scores = sample
    threshold = operating_points(labels, scores)[0].threshold
    plain = plot_roc(labels=labels, scores=scores, summary=summarize(labels, scores))
    summary = summarize(labels, scores, threshold=threshold)
    marked = plot_roc(labels=labels, scores=scores, summary=summary)
    assert pixels(tmp_path, plain, BLUE) > 1000
    assert pixels(tmp_path, plain, ORANGE) == 0
    assert pixels(tmp_path, marked, ORANGE) > 200


@pytest.mark.parametrize("ends", [1, -1])
def test_roc_of_perfect_and_reversed_scores(tmp_path, ends):
    labels, scores = np.repeat([0, 1], 8), ends * np.arange(16)
    summary = summarize(labels, scores, threshold=7.5)
    figure = plot_roc(labels=labels, scores=scores, summary=summary)
    assert pixels(tmp_path, figure, BLUE) > 1000


@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_curves_of_any_length(tmp_path, epochs):
    rows = history(epochs)
    loss, auroc = learning_curves(rows, best_epoch=epochs).values()
    assert pixels(tmp_path, loss, BLUE) > 0
    assert pixels(tmp_path, auroc, ORANGE) > 0


def test_curves_leave_out_what_was_not_measured(tmp_path):
    rows = [{"epoch": 1, "loss": 0.5, "val_auroc": None}, {"epoch": 2, "loss": 0.4, "train_auroc": None}]
    curves = learning_curves(rows)
    assert list(curves) == ["Loss"]
    assert pixels(tmp_path, curves["Loss"], BLUE) > 0
    assert pixels(tmp_path, curves["Loss"], ORANGE) == 0


def test_figures_are_replaced_in_one_step(tmp_path):
    path = tmp_path / "figure.png"
    path.write_bytes(b"old")
    save_figure(new_figure((4, 3)), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]


def test_failed_write_leaves_nothing_behind(tmp_path):
    target = tmp_path / "figure.png"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(OSError, match="figure"):
        save_figure(new_figure((4, 3)), target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]


def test_same_input_same_bytes(tmp_path, sample):
    labels, scores = sample
    for name in ("a.png", "b.png"):
        write_figure(plot_roc(labels=labels, scores=scores, summary=summarize(labels, scores)), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_pyplot_is_not_used():
    before = "matplotlib.pyplot" in sys.modules
    learning_curves(history(3))
    assert ("matplotlib.pyplot" in sys.modules) == before
