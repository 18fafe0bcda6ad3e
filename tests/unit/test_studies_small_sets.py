"""The study `small-sets`: what its rules give for known scores, and that it writes its page."""

import numpy as np
import pytest

from midam.methods.auto.candidates import VECTORS
from midam.methods.auto.search import prior_weights
from studies.options import StudyOptions
from studies.tabular import small_sets
from studies.tabular.small_sets import BEFORE, BEST, FOLDS, NOW, PRIOR_ALONE, TWICE, judged


def test_each_rule_gives_the_ranking_of_its_weights():
    random, y = np.random.default_rng(0), np.arange(20) % 2
    parts, new = [y, y], np.arange(100) % 2
    good = [[np.where(y == 1, 0.8, 0.2) + 0.1 * random.normal(size=20) for _ in parts] for _ in range(4)]
    inner = [[np.clip(x, 0.01, 0.99) for x in own] for own in good]
    inner.append([1 - x for x in inner[0]])  # at chance, or worse, in the folds
    scores = [[np.clip(0.5 + 0.1 * random.normal(size=100), 0.01, 0.99)] for _ in range(4)] + [[new * 0.98 + 0.01]]
    found = judged(parts, inner, new, scores)
    assert found[VECTORS[-1]] == 1
    assert found[PRIOR_ALONE] > found[BEFORE] == pytest.approx(found[NOW], abs=0.1)
    assert set(found) == {BEFORE, NOW, FOLDS, TWICE, PRIOR_ALONE, BEST, *VECTORS}
    assert found[BEST] in [found[name] for name in VECTORS]


def test_the_earlier_weights_left_out_what_was_at_chance():
    y = np.arange(20) % 2
    up, down = (np.where(y == 1, sign, -sign) + 0.01 * np.arange(20) for sign in (1.0, -1.0))
    weights = small_sets._earlier([up[None], down[None]], [0.9, 0.1], y, prior_weights(VECTORS[:2]))
    assert weights.tolist() == [1, 0]
    assert small_sets._earlier([down[None]], [0.1], y, np.ones(1)).tolist() == [1]


@pytest.mark.long
def test_a_small_study_writes_its_page(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.methods.statistics_models._TREES", 10)
    monkeypatch.setattr("midam.methods.networks._EPOCHS", 2)
    monkeypatch.setattr("midam.methods.auto.candidates._SHARES", (0.02,))
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    small_sets.run(options)
    text = (options.out / "small-sets.md").read_text(encoding="utf-8")
    assert "| witness | 0." in text
    assert "| min(1, 2 p) within folds | " in text
    small_sets.run(options)
    assert (options.out / "small-sets.md").read_text(encoding="utf-8") == text
