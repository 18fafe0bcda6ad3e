"""Figures of classes, grades, numbers and times are plotted whole, also where there is little to plot."""

import matplotlib.image
import numpy as np
import pytest
from tests import judging

from midam.report.figures import svg_text, write_figure
from midam.report.plot_scores import plot_class_rocs, plot_grade_scores, plot_number_scores, plot_survival

pytestmark = pytest.mark.drawn

BLUE, ORANGE, GREEN = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)


def pixels(folder, figure, color):
    """Number of pixels of exactly this color."""
    write_figure(figure, folder / "figure.png")
    image = np.rint(255 * matplotlib.image.imread(folder / "figure.png")[..., :3]).astype(int)
    assert image.shape[0] > 300
    # Nothing runs over the edge of the picture.
    assert all((edge == 255).all() for edge in (image[0], image[-1], image[:, 0], image[:, -1]))
    return int((image == np.array(color)).all(axis=-1).sum())


def classes(count, bags=80, seed=0):
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, count, bags)
    return codes, generator.normal(size=(bags, count)) + 2 * np.eye(count)[codes]


@pytest.mark.parametrize(("count", "colors"), [(2, 2), (3, 3), (10, 3)])
def test_each_class_has_a_curve(tmp_path, count, colors):
    codes, scores = classes(count)
    names = [f"a rather long name of class {number}" for number in range(count)]
    summary = judging.summarize("multiclass", names, codes[:, None], scores)
    figure = plot_class_rocs(names=names, labels=np.eye(count)[codes], scores=scores, summary=summary)
    assert [pixels(tmp_path, figure, color) > 200 for color in (BLUE, ORANGE, GREEN)].count(True) == colors


def test_names_are_no_formulas_and_no_markup():
    names = ["$\\frac{", "a$b$c", '<b> & "c"']
    codes, scores = classes(3)
    summary = judging.summarize("multiclass", names, codes[:, None], scores)
    shown = plot_class_rocs(names=names, labels=np.eye(3)[codes], scores=scores, summary=summary)
    drawn = svg_text(shown, 'the "ROC" <curves>')
    assert ">a$b$c: " in drawn
    assert ">&lt;b&gt; &amp; " in drawn
    assert 'aria-label="the &quot;ROC&quot; &lt;curves&gt;"' in drawn
    assert drawn == svg_text(
        plot_class_rocs(names=names, labels=np.eye(3)[codes], scores=scores, summary=summary), 'the "ROC" <curves>'
    )


def test_labels_without_bags_have_no_curve(tmp_path):
    labels, scores = np.zeros((9, 2)), np.zeros((9, 2))
    labels[0] = np.nan
    summary = judging.summarize("multilabel", "ab", labels, scores)
    assert pixels(tmp_path, plot_class_rocs(names="ab", labels=labels, scores=scores, summary=summary), BLUE) == 0


def test_grades_are_boxes(tmp_path):
    grades = np.repeat([0, 1, 3], [20, 400, 1])
    scores = np.random.default_rng(0).normal(size=421) + grades
    assert pixels(tmp_path, plot_grade_scores(names="0123", grades=grades, scores=scores), BLUE) > 300


@pytest.mark.parametrize("bags", [1, 50, 5000])
def test_numbers_are_dots_with_a_line(tmp_path, bags):
    values = np.random.default_rng(0).normal(size=bags)
    assert pixels(tmp_path, plot_number_scores("age", values, values, 2 * values), ORANGE) > (300 if bags > 1 else -1)


def test_each_group_of_risk_has_a_curve(tmp_path):
    generator = np.random.default_rng(0)
    groups = np.arange(90) % 3
    time, event = generator.exponential(10.0 / (1 + groups)), generator.random(90) < 0.7
    figure = plot_survival(time=time, event=event, groups=groups)
    assert all(pixels(tmp_path, figure, color) > 100 for color in (BLUE, ORANGE, GREEN))
    figure = plot_survival(time=time, event=np.zeros(90), groups=np.full(90, 2))
    assert pixels(tmp_path, figure, BLUE) == pixels(tmp_path, figure, GREEN) == 0
    assert pixels(tmp_path, figure, ORANGE) > 100
