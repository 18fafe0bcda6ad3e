"""The study of probabilities from few bags: a small trial of it, and what it takes for a signal and for noise."""

import pytest

from studies.options import StudyOptions
from studies.registry import find_study
from studies.synthetic import synthetic_sets
from studies.tabular.calibration import body


def figures(**changes: float) -> dict[str, float]:
    usual = {"auroc": 0.8, "inside": 0.7, "pooled": 0.6, "ranks": 1.0, "slope": 2.0, "brier": 0.2, "lost": 0.1}
    return {**usual, "sensitivity": 0.9, **changes}


def test_the_page_compares_both_ways_where_there_is_a_signal() -> None:
    signal = ("auto", False, (figures(), figures(pooled=0.7, slope=1.0, brier=0.15)))
    weak = ("auto", False, (figures(auroc=0.6), figures(auroc=0.6)))
    noise = ("auto", True, (figures(auroc=0.5, pooled=0.45), figures(auroc=0.5, pooled=0.5)))
    lines = list(body([signal, signal, weak, noise]))
    assert "| auto | as they are | 2 | 0.700 | 0.600 | 2.00 (2.00 to 2.00) | 0.2000 | 0.100 | 0.90 | 0 |" in lines
    assert "| auto | one scale | 2 | 0.700 | 0.700 | 1.00 (1.00 to 1.00) | 0.1500 | 0.100 | 0.90 | 0 |" in lines
    assert "| auto | 2 | -0.0500 [-0.0500, -0.0500] |" in lines
    assert "| auto | 1 | 0.700 | 0.450 | 0.500 |" in lines


def test_bags_without_strength_are_noise() -> None:
    for name, bags in synthetic_sets(bags=400, every=2, strength=0.0).items():
        if name != "pair":  # whose negative bags are made in three ways
            positive = [bags[i][:, :8].mean() for i in range(len(bags)) if bags.labels[i]]
            negative = [bags[i][:, :8].mean() for i in range(len(bags)) if not bags.labels[i]]
            assert abs(sum(positive) / len(positive) - sum(negative) / len(negative)) < 0.05


@pytest.mark.long
def test_a_trial_runs(tmp_path) -> None:
    options = StudyOptions(out=tmp_path / "out", cache=tmp_path / "cache", smaller=True)
    find_study("calibration")(options)
    page = (tmp_path / "out" / "calibration.md").read_text()
    assert all(f"| {name} | one scale |" in page for name in ("auto", "midam", "mean-map-svm"))
