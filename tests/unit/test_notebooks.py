"""What a notebook shows of bags, runs and comparisons."""

import numpy as np
import pytest

import midam
from midam.cli import main
from midam.compare import repeated_folds, run_comparison


def test_bags_are_shown_with_their_counts_and_sizes():
    rng = np.random.default_rng(0)
    bags = midam.Bags.from_list([rng.random((n, 2)) for n in (3, 3, 40)], [0, 1, 1], ids=["a", "b", "<c>"])
    text = bags.replace(source="<script>")._repr_html_()
    assert "<th>positive bags</th><td>2</td>" in text
    assert "<th>instances</th><td>46 of (2,)</td>" in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<th>instances of a bag</th><td>3 to 40</td>" in text


def test_bags_without_labels_and_of_one_size_are_shown():
    bags = midam.Bags.from_list([np.zeros((2, 3))])
    text = bags._repr_html_()
    assert "positive" not in text


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
