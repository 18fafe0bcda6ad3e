"""What a notebook shows of runs and comparisons."""

import pytest

import midam
from midam.cli import main
from midam.compare import repeated_folds, run_comparison


@pytest.mark.drawn
def test_a_run_is_shown_with_its_figures(tmp_path):
    assert main(["fit", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    text = midam.load_run(tmp_path / "run")._repr_html_()
    assert "AUROC, test" in text
    (tmp_path / "run/summary.json").unlink()
    assert "attention" in midam.load_run(tmp_path / "run")._repr_html_()


@pytest.mark.drawn
def test_a_comparison_is_shown_with_its_intervals():
    bags, names = midam.read_bags("digits"), ["bag-statistics-logistic", "bag-statistics-extratrees"]
    text = run_comparison(bags, names, repeated_folds(bags, repeats=1, folds=3))._repr_html_()
    assert "<th>bag-statistics-logistic</th><td>0." in text
    assert ", difference " in text.partition("bag-statistics-extratrees")[2]
    assert "folds left out" not in text
