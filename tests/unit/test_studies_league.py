"""The study `league`: its sets, what `auto` and a library choose from known scores, and that it writes its page."""

import numpy as np
import pytest

from midam.data.bags import Bags
from midam.evaluate.ranking import auroc
from midam.methods.auto.candidates import VECTORS
from studies.options import StudyOptions
from studies.sets import league as sets
from studies.tabular import league
from studies.tabular.league import BOOSTING, LIBRARIES, OURS, SVM, areas_of, judged, prior_without, trials_of

LABELS = np.arange(40) % 2
KINDS = {"k": ["a"], "l": ["b"]}
FOLDS = 2  # of the five, as where the others were not run


@pytest.fixture
def one_set(monkeypatch):
    bags = Bags.from_list([[[float(i)]] for i in range(40)], LABELS)
    monkeypatch.setattr(league, "_bags", lambda name: bags)
    return bags


def rows(bags, inner, test):
    """Rows of two sets: scores that rank the inner folds and the test bags right (1), reversed (-1), or not at all."""
    for fold in range(FOLDS):
        trials = trials_of(bags, fold)
        for method, signs in {m: (inner.get(m, 0), test.get(m, 0)) for m in (*VECTORS, BOOSTING, SVM)}.items():
            each = [signs[0]] * (len(trials) - 1) + [signs[1]]
            scores = [[(0.5 + 0.4 * sign * (2 * LABELS[t.score] - 1)).tolist()] for t, sign in zip(trials, each)]
            for name in "ab":
                yield {"set": name, "fold": fold, "method": method, "scores": scores, "seconds": 1.0}


def areas(found):
    return areas_of(judged(list(found), KINDS))


def test_inner_folds_alone_choose(one_set):
    found = areas(rows(one_set, {SVM: 1, VECTORS[0]: 1}, {BOOSTING: 1, SVM: -1, VECTORS[0]: 1}))
    assert found["a"]["scikit-learn"].tolist() == [1.0] * FOLDS, "of equal methods the first, not the best of the test"
    found = areas(rows(one_set, {SVM: 1, VECTORS[3]: 1}, {BOOSTING: 1, SVM: -1, VECTORS[3]: 1}))
    assert found["a"]["scikit-learn"].tolist() == [0.0] * FOLDS
    assert found["a"][OURS].tolist() == [1.0] * FOLDS, "its only method that ranks the inner folds"
    assert "mikit-learn" not in found["a"], "not run"


def test_the_prior_of_a_kind_does_not_see_it(one_set):
    kinds = {"k": ["a"], "l": ["b", "c"], "m": ["d"]}
    weights = {
        (name, 0): dict.fromkeys(VECTORS, 0.0) | {VECTORS[0]: value} for name, value in zip("abcd", (1, 1, 0, 0))
    }
    assert prior_without("k", kinds, weights)[VECTORS[0]] == 0.25
    assert prior_without("m", kinds, weights)[VECTORS[0]] == 0.75
    assert prior_without("k", kinds, weights)[VECTORS[1]] == 0.01


@pytest.mark.long
def test_better_of_two_by_test_bags_for_libraries_without_inner_folds(one_set):
    usual = list(rows(one_set, {}, {}))
    first, second = LIBRARIES["LibAUC"]
    for fold in range(FOLDS):
        score = trials_of(one_set, fold)[-1].score
        for method, sign in ((first, -1), (second, 1)):
            scores = [[(0.5 + 0.4 * sign * (2 * LABELS[score] - 1)).tolist()]]
            usual.append({"set": "a", "fold": fold, "method": method, "scores": scores, "seconds": 1.0})
    assert areas(usual)["a"]["LibAUC"].tolist() == [1.0] * FOLDS


def test_a_draw_keeps_each_content_once_and_the_share_of_positive_bags():
    parts = [[[float(i // 2)]] for i in range(1000)]
    labels = (np.arange(1000) // 2 % 5 == 0).astype(int)
    bags = sets.drawn(Bags.from_list(parts, labels), labels)
    assert (len(bags), int(bags.labels.sum())) == (200, 40)
    assert len({float(bags[i][0, 0]) for i in range(200)}) == 200
    assert auroc(bags.labels, [float(bags[i][0, 0]) % 5 != 0 for i in range(200)]) == 0.0


@pytest.mark.long
@pytest.mark.data
def test_a_small_league_writes_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    monkeypatch.setattr("midam.methods.networks._EPOCHS", 2)
    monkeypatch.setattr("midam.methods.auto.candidates._SHARES", (0.02,))
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    league.run(options)
    text = (options.out / "league.md").read_text(encoding="utf-8")
    assert "| musk | musk1 | " in text
    assert "The best other library in the mean over the kinds is scikit-learn" in text
    league.run(options)
    assert (options.out / "league.md").read_text(encoding="utf-8") == text
