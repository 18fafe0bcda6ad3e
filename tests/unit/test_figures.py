"""Figures are written whole, as PNG, for every kind of run."""

import sys

import matplotlib.image
import numpy as np
import pytest

from midam.errors import BagDataError
from midam.evaluate.metrics import summarize
from midam.evaluate.proportions import operating_point
from midam.report import plot_curves, plot_roc, plot_sizes

pytestmark = pytest.mark.drawn

BLUE, ORANGE = np.array([0x00, 0x72, 0xB2]), np.array([0xD5, 0x5E, 0x00])
GREEN = np.array([0x00, 0x9E, 0x73])
GRAY = np.array([0x6E, 0x6E, 0x6E])


def pixels(path, color):
    """Number of pixels of exactly this color."""
    image = np.rint(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
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
    threshold = operating_point(labels, scores)
    plain, marked = tmp_path / "plain.png", tmp_path / "marked.png"
    plot_roc(plain, labels=labels, scores=scores, summary=summarize(labels, scores), title="Test")
    summary = summarize(labels, scores, threshold=threshold)
    plot_roc(marked, labels=labels, scores=scores, summary=summary, title="Test", threshold=threshold)
    assert pixels(plain, BLUE) > 1000
    assert pixels(plain, ORANGE) == 0
    assert pixels(marked, ORANGE) > 200
    assert pixels(plain, GREEN) == 0
    beside, baseline = tmp_path / "beside.png", np.asarray(scores)[::-1]
    plot_roc(beside, labels=labels, scores=scores, summary=summary, title="Test", baseline=baseline)
    assert pixels(beside, GREEN) > 200


def test_roc_of_one_class_has_no_curve(tmp_path):
    path = tmp_path / "roc.png"
    summary = summarize([1, 1], [0.1, 0.2], threshold=0.15)
    plot_roc(path, labels=[1, 1], scores=[0.1, 0.2], summary=summary, title="Test", threshold=0.15)
    assert pixels(path, BLUE) == pixels(path, ORANGE) == 0


@pytest.mark.parametrize("ends", [1, -1])
def test_roc_of_perfect_and_reversed_scores(tmp_path, ends):
    labels, scores = np.repeat([0, 1], 8), ends * np.arange(16)
    summary = summarize(labels, scores, threshold=7.5)
    plot_roc(tmp_path / "roc.png", labels=labels, scores=scores, summary=summary, title="Test", threshold=7.5)
    assert pixels(tmp_path / "roc.png", BLUE) > 1000


@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_curves_of_any_length(tmp_path, epochs):
    path = tmp_path / "curves.png"
    plot_curves(path, history(epochs), best_epoch=epochs)
    assert pixels(path, BLUE) > 0
    assert pixels(path, ORANGE) > 0


def test_curves_leave_out_what_was_not_measured(tmp_path):
    path = tmp_path / "curves.png"
    rows = [{"epoch": 1, "loss": 0.5, "val_auroc": None}, {"epoch": 2, "loss": 0.4, "train_auroc": None}]
    plot_curves(path, rows)
    assert pixels(path, BLUE) > 0
    assert pixels(path, ORANGE) == 0
    plot_curves(path, [])
    assert pixels(path, BLUE) == 0


def test_figures_are_replaced_in_one_step(tmp_path, sample):
    labels, scores = sample
    path = tmp_path / "roc.png"
    path.write_bytes(b"old")
    with pytest.raises(BagDataError):
        plot_roc(path, labels=labels, scores=scores[:-1], summary=summarize(labels, scores), title="Test")
    assert path.read_bytes() == b"old"
    plot_roc(str(path), labels=labels, scores=scores, summary=summarize(labels, scores), title="Test")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in tmp_path.iterdir()] == ["roc.png"]


def test_failed_write_leaves_nothing_behind(tmp_path):
    target = tmp_path / "curves.png"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(OSError, match="curves"):
        plot_curves(target, history(2))
    assert [entry.name for entry in tmp_path.iterdir()] == ["curves.png"]


def test_same_input_same_bytes(tmp_path, sample):
    labels, scores = sample
    for name in ("a.png", "b.png"):
        plot_roc(tmp_path / name, labels=labels, scores=scores, summary=summarize(labels, scores), title="Test")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_pyplot_is_not_used(tmp_path, sample):
    before = "matplotlib.pyplot" in sys.modules
    plot_curves(tmp_path / "curves.png", history(3))
    assert ("matplotlib.pyplot" in sys.modules) == before


@pytest.mark.parametrize(("sizes", "ticks"), [([672] * 20, [672]), ([22] * 4 + [23], [22, 23]), ([1], [1])])
def test_sizes_are_whole_numbers_also_of_equal_bags(sizes, ticks, tmp_path):
    figure = plot_sizes(tmp_path / "p.png", sizes=np.array(sizes), labels=None, title="sizes")
    (axes,) = figure.axes
    for axis in (axes.xaxis, axes.yaxis):
        found = axis.get_major_locator()()
        assert (found == np.round(found)).all()
    assert set(ticks) <= set(axes.get_xticks())
