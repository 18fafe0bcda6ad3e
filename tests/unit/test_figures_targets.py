"""Figures of classes, grades, numbers and times are written whole, as PNG, also where there is little to draw."""

import matplotlib.image
import numpy as np
import pytest
from tests import judging

from midam import report as figures
from midam.errors import BagDataError
from midam.report.figures import svg_text

pytestmark = pytest.mark.drawn

BLUE, ORANGE, GREEN = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)


def pixels(path, color):
    """Number of pixels of exactly this color."""
    image = np.rint(255 * matplotlib.image.imread(path)[..., :3]).astype(int)
    assert image.shape[0] > 400
    # Nothing runs over the edge of the picture.
    assert all((edge == 255).all() for edge in (image[0], image[-1], image[:, 0], image[:, -1]))
    return int((image == np.array(color)).all(axis=-1).sum())


def classes(count, bags=80, seed=0):
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, count, bags)
    return codes, generator.normal(size=(bags, count)) + 2 * np.eye(count)[codes]


@pytest.mark.parametrize(("count", "colors"), [(2, 2), (3, 3), (12, 3)])
def test_each_class_has_a_curve(tmp_path, count, colors):
    codes, scores = classes(count)
    names = [f"a rather long name of class {number}" for number in range(count)]
    summary = judging.summarize("multiclass", names, codes[:, None], scores)
    path, labels = tmp_path / "roc.png", np.eye(count)[codes]
    figures.plot_class_rocs(path, names=names, labels=labels, scores=scores, summary=summary, title="Test")
    assert [pixels(path, color) > 200 for color in (BLUE, ORANGE, GREEN)].count(True) == colors


def test_names_are_no_formulas_and_no_markup(tmp_path):
    names = ["$\\frac{", "a$b$c", '<b> & "c"']
    codes, scores = classes(3)
    summary = judging.summarize("multiclass", names, codes[:, None], scores)
    figures.plot_confusion(tmp_path / "c.png", names=names, confusion=np.eye(3), title="own$1$.csv")
    shown = figures.plot_class_rocs(names=names, labels=np.eye(3)[codes], scores=scores, summary=summary)
    drawn = svg_text(shown, 'the "ROC" <curves>')
    assert ">a$b$c: " in drawn
    assert ">&lt;b&gt; &amp; " in drawn
    assert 'aria-label="the &quot;ROC&quot; &lt;curves&gt;"' in drawn
    assert drawn == svg_text(
        figures.plot_class_rocs(names=names, labels=np.eye(3)[codes], scores=scores, summary=summary),
        'the "ROC" <curves>',
    )


def test_labels_without_bags_have_no_curve(tmp_path):
    labels, scores = np.zeros((9, 2)), np.zeros((9, 2))
    labels[0] = np.nan
    summary = judging.summarize("multilabel", "ab", labels, scores)
    figures.plot_class_rocs(
        tmp_path / "roc.png", names="ab", labels=labels, scores=scores, summary=summary, title="Test"
    )
    assert pixels(tmp_path / "roc.png", BLUE) == 0


@pytest.mark.parametrize("count", [2, 4, 14])
def test_the_confusion_is_shaded_by_row(tmp_path, count):
    path, names = tmp_path / "confusion.png", [f"class {number}" for number in range(count)]
    figure = figures.plot_confusion(path, names=names, confusion=np.diag(np.arange(1, count + 1)), title="Test")
    assert pixels(path, (255, 255, 255)) > 0
    shades = {patch.get_alpha() for patch in figure.axes[0].patches}
    assert (min(shades), max(shades)) == (0.04, 0.5), "a cell is empty, or holds its row"
    figure = figures.plot_confusion(path, names=names, confusion=np.ones((count, count)), title="Test")
    assert {patch.get_alpha() for patch in figure.axes[0].patches} == {0.04 + 0.46 / count}
    with pytest.raises(BagDataError, match="a row and column per class"):
        figures.plot_confusion(path, names=names, confusion=np.ones((2, 3)), title="Test")


def test_grades_are_boxes_with_cuts(tmp_path):
    grades = np.repeat([0, 1, 3], [20, 400, 1])
    scores = np.random.default_rng(0).normal(size=421) + grades
    summary = judging.summarize("ordinal", "0123", grades[:, None], scores)
    shown = {"names": "0123", "grades": grades, "scores": scores, "summary": summary, "title": "Test"}
    plain, cut = tmp_path / "plain.png", tmp_path / "cut.png"
    figures.plot_grade_scores(plain, **shown)
    figures.plot_grade_scores(cut, **shown, cuts=[0.5, 1.5, 1.5])
    assert pixels(plain, BLUE) > 300
    assert pixels(plain, ORANGE) == 0
    assert pixels(cut, ORANGE) > 300


@pytest.mark.parametrize("bags", [1, 50, 5000])
def test_numbers_are_dots_with_a_line(tmp_path, bags):
    values = np.random.default_rng(0).normal(size=bags)
    summary = judging.summarize("continuous", ["age"], values[:, None], values)
    path = tmp_path / "numbers.png"
    knots = ([-1.0, 1.0], [-2.0, 2.0])
    figures.plot_number_scores(
        path, name="age", values=values, scores=values, summary=summary, title="Test", knots=knots
    )
    assert pixels(path, ORANGE) > 300


def test_each_group_of_risk_has_a_curve(tmp_path):
    generator = np.random.default_rng(0)
    groups = np.arange(90) % 3
    time, event = generator.exponential(10.0 / (1 + groups)), generator.random(90) < 0.7
    path = tmp_path / "survival.png"
    figures.plot_survival(path, time=time, event=event, groups=groups, title="Test", unit="months")
    assert all(pixels(path, color) > 100 for color in (BLUE, ORANGE, GREEN))
    figures.plot_survival(path, time=time, event=np.zeros(90), groups=np.full(90, 2), title="Test")
    assert pixels(path, BLUE) == pixels(path, GREEN) == 0
    assert pixels(path, ORANGE) > 100
    with pytest.raises(BagDataError, match="90 groups from 0 to 2"):
        figures.plot_survival(path, time=time, event=event, groups=groups + 1, title="Test")
