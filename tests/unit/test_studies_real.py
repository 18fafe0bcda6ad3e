"""The study of draws on real data, small."""

import numpy as np
import pytest

from midam.data.bags import Bags
from studies.options import StudyOptions
from studies.regime.real import ARMS, FULL, MINIBATCH, SMALLER, TOP, Case, body, run
from studies.regime.real_sets import cross_validated

pytestmark = pytest.mark.drawn


def test_the_study_is_written_and_carried_on(tmp_path):
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    run(options)
    page = (options.out / "real-draws.md").read_text()
    (case,) = SMALLER
    assert f"\n| {case.title} | 0." in page
    stored = (options.cache / "real-draws-smaller.jsonl").read_text()
    trained = len(ARMS) * (len(case.choosing) * len(case.rates) + case.repeats)
    assert sum('"wall"' not in line for line in stored.splitlines()) == trained
    run(options)
    assert (options.cache / "real-draws-smaller.jsonl").read_text() == stored


def test_all_arms_of_a_case_spend_the_same():
    case = Case("digits", "digits", 100, 2)
    assert case.config(MINIBATCH, 0.01).training.epochs == 100
    assert case.config(TOP, 0.01).training.epochs == round(100 / (1 + case.pass_budget))


def test_folds_of_a_table_test_each_bag_once():
    bags = Bags.from_list([np.zeros((2, 3), np.float32)] * 40, np.arange(40) % 2)
    trials = cross_validated(bags, 1).trials
    assert sorted(np.concatenate([trial.score for trial in trials]).tolist()) == list(range(40))
    assert all(not set(trial.train) & set(trial.score) for trial in trials)


@pytest.mark.parametrize(("gain", "verdict"), [(0.1, "no loss"), (-0.1, "a loss"), (0.0, "open")])
def test_the_page_says_what_is_lost(gain, verdict):
    test = np.linspace(0.7, 0.8, 8)
    case = next(case for case in FULL if case.title == "breast")
    tests = {"minibatch": test, "vrsp": test, "top, minibatch": test[:: 1 if gain else -1] * (1 + gain / 10) + gain}
    text = "\n".join(body({case: tests}))
    assert f"`top, minibatch` minus `vrsp`, breast: {gain:+.1f}"[:-1] in text
    assert f"({verdict})." in text


def test_the_defaults_are_tried_on_each_kind_of_bags():
    titles = [case.title for case in FULL]
    assert len(set(titles)) == len(titles)
    assert {"musk1", "breast", "colon"} <= set(titles)
