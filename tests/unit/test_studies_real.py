"""The study of draws on real data, small, and the bags that it makes of MNIST."""

import numpy as np
import pytest

from midam.data.bags import Bags
from midam.errors import DataNotFoundError
from studies.options import StudyOptions
from studies.regime.bags import Counts
from studies.regime.real import EXACT, FULL, MINIBATCH, SMALLER, SMX, TOP, Case, _same_rate, run
from studies.regime.real_page import Outcome, body
from studies.regime.real_sets import cross_validated, load_real, mnist_bags

pytestmark = pytest.mark.drawn


def test_the_study_is_written_and_carried_on(tmp_path):
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    run(options)
    page = (options.out / "real-draws.md").read_text()
    assert (options.out / "real-draws.png").read_bytes().startswith(b"\x89PNG")
    (case,) = SMALLER
    for pooling, arms in case.arms.items():
        for arm in arms:
            assert f"\n| {pooling}, {arm.name} | " in page
    stored = (options.cache / "real-draws-smaller.jsonl").read_text()
    run(options)
    assert (options.cache / "real-draws-smaller.jsonl").read_text() == stored


def test_all_arms_of_a_case_spend_the_same():
    case, found = Case("digits", "digits", 100, {}, 2), load_real("digits", 0)
    drawn = case.config(SMX, MINIBATCH, 0.01, found)
    assert drawn.training.epochs == 100
    assert case.config(SMX, TOP, 0.01, found).training.epochs == round(100 / 1.1)
    whole = case.config(SMX, EXACT, 0.01, found)
    sizes = found.bags.sizes[found.trials[0].train]
    assert whole.training.epochs * sizes.sum() == pytest.approx(100 * 2 * len(sizes), rel=0.05)


def test_mnist_bags_hold_the_witnesses_that_they_say(tmp_path, monkeypatch):
    digits = np.arange(400) % 10
    # The image of a digit is its number everywhere.
    images = np.repeat(digits.astype(np.uint8), 28 * 28).reshape(-1, 28, 28)
    (tmp_path / "digits").mkdir()
    np.savez(tmp_path / "digits" / "mnist_20k.npz", x_train=images, y_train=digits, x_test=images, y_test=digits)
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path))
    found = mnist_bags(20, witnesses=3, repeat=5, counts=Counts(train=6, val=4, test=8))
    nines = [int((found.bags[i][:, 0, 0, 0] == 9).sum()) for i in range(len(found.bags))]
    assert nines == [0, 3] * 9
    assert len(found.trials[0].score) == 12
    assert found.validation == 4


def test_without_mnist_the_study_says_where_it_belongs(tmp_path, monkeypatch):
    monkeypatch.setenv("MIDAM_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=r"mnist_20k\.npz"):
        load_real("mnist/20/1", 999)


def test_folds_of_a_table_test_each_bag_once():
    bags = Bags.from_list([np.zeros((2, 3), np.float32)] * 40, np.arange(40) % 2)
    trials = cross_validated(bags, 1).trials
    assert sorted(np.concatenate([trial.score for trial in trials]).tolist()) == list(range(40))
    assert all(not set(trial.train) & set(trial.score) for trial in trials)


def test_the_page_says_what_is_lost_and_where_a_state_is_ahead():
    test = np.linspace(0.7, 0.8, 8)
    arms = {"minibatch": test, "vrsp": test + 0.1 + test / 50, "exact": test, "top, minibatch": test + 0.2 + test / 9}
    found = {"breast": [Outcome(SMX, arm, (), areas, 0.0) for arm, areas in arms.items()]}
    text = "\n".join(body(found, "x.png"))
    assert "breast: +0.16" in text
    assert "(no loss)" in text
    assert "`exact` as well: breast, smoothed-max, `vrsp`." in text
    assert "ahead: breast +0." in text
    assert "Of the 1 differences of a tracked state to `minibatch`, above 0 after Holm" in text
    assert "below 0.05): breast, smoothed-max, `vrsp` (0.0000)." in text


def test_arms_at_one_rate_share_it():
    (case,) = [case for case in FULL if case.same_rate is not None]
    same = _same_rate(FULL)
    assert {task.rate for task in same} == {case.same_rate}
    assert len(same) == case.repeats * sum(len(arms) for arms in case.arms.values())


def test_the_defaults_are_tried_on_each_kind_of_bags():
    titles = [case.title for case in FULL]
    assert len(set(titles)) == len(titles)
    assert {"musk1", "breast", "colon"} <= set(titles)
