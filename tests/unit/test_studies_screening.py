"""The study of screening: its bags, its metric, its choice of a rate, and the study itself, small."""

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from studies.options import StudyOptions
from studies.registry import find_study
from studies.screening.screening import run
from studies.screening.trials import FULL, RULES, SMALLER, screening_bags, sensitivities


@pytest.mark.parametrize("seed", range(4))
def test_the_sensitivity_is_that_of_the_highest_point_of_the_curve_within_the_false_alarms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random(300) < 0.2).astype(np.int64)
    scores = np.round(rng.normal(size=300) + labels, 1)  # with ties
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    rates = [0.0, 0.01, 0.05, 0.2]
    want = [true[false <= rate + 1e-12].max() for rate in rates]
    assert sensitivities(labels, scores, rates).tolist() == pytest.approx(want)


def test_scores_that_are_lost_find_nothing() -> None:
    assert sensitivities(np.array([1, 0]), np.array([np.nan, 0.0]), [0.5]).tolist() == [0.0]


def test_training_and_test_bags_share_no_image_and_one_nine_makes_a_bag_positive() -> None:
    bags = screening_bags(FULL, (0,))
    assert len(bags) == 2400
    assert bags.labels[:400].sum() == 20
    assert bags.labels[400:].sum() == 100
    train, test = ({x.tobytes() for i in part for x in bags[i]} for part in (range(400), range(400, 2400)))
    assert len(train) > 500
    assert not train & test
    again = screening_bags(FULL, (1, 0))
    np.testing.assert_array_equal(again.instances[2400 * 20 :], bags.instances)


@pytest.mark.long
def test_the_study_goes_on_where_it_was_stopped(tmp_path) -> None:
    assert find_study("screening").store == "screening"
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "screening.md").read_text()
    assert (options.out / "screening.png").read_bytes().startswith(b"\x89PNG")
    store = options.cache / "screening-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    trials = len(RULES) * (len(SMALLER.rates) * len(SMALLER.choice_seeds) + len(SMALLER.seeds))
    assert len([line for line in lines if "wall" not in line]) == trials
    store.write_text("".join(lines[:-3]))
    run(options)
    again = (options.out / "screening.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 4 + 2 * len(RULES) - 1
    assert [line for line in again.splitlines() if line.startswith("|")] == rows
