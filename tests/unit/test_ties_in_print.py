"""A score below the threshold never reads as one that reaches it: console, report, explanations, model card."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from midam.cli.app import main
from midam.report.words import form_apart
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.runs.result import Result
from midam.settings import Settings

GAPS = [4e-5, 3e-8, 2e-15]


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_numbers_that_differ_read_in_their_order(score, threshold):
    form = form_apart(score, threshold)
    assert (float(f"{score:{form}}") < float(f"{threshold:{form}}")) == (score < threshold)
    assert (float(f"{score:{form}}") == float(f"{threshold:{form}}")) == (score == threshold)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ties")
    rng = np.random.default_rng(0)
    rows = [(f"b{i}", i % 2, *(rng.normal(size=2) + i % 2).round(3)) for i in range(40) for _ in range(3)]
    pd.DataFrame(rows, columns=["bag", "label", "x", "y"]).to_csv(folder / "t.csv", index=False)
    fit_run(str(folder / "t.csv"), Settings(epochs=2, members=1, test_fraction=0.3), RunFolder(folder / "run"))
    return folder


@pytest.fixture
def tied(trained, request):
    """The run with a threshold just above the score of a positive test bag; that bag, its score, the threshold."""
    run = trained / "run"
    scored = pd.read_csv(run / "predictions.csv").query("split == 'test' and label == 1").sort_values("score")
    bag, score = scored["bag"].iloc[0], float(scored["score"].iloc[0])
    threshold = score + request.param
    content = torch.load(run / "model.pt", weights_only=True)
    summary = Result.read(RunFolder(run)).entries()
    for part in (content, summary):  # what the run's rule has chosen stands first
        part["thresholds"]["points"][0]["threshold"] = threshold
    torch.save(content | {"threshold": threshold}, run / "model.pt")
    summary["test"]["at_threshold"]["threshold"] = threshold
    Result(**summary).write(RunFolder(run))
    return run, bag, score, threshold


def read_below(shown, threshold):
    assert float(shown) < float(threshold), (shown, threshold)


@pytest.mark.parametrize("tied", GAPS, indirect=True)
def test_the_report_tells_them_apart(tied):
    run, bag, _, _ = tied
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text()
    told = re.search(r"called negative, at the threshold ([\d.]+\d)<", page)[1]
    shown = re.search(rf'<th scope="row">{bag}</th><td class="n"><data [^>]*>([^<]*)</data>', page)[1]
    read_below(shown, told)
    point = re.search(r'data-key="at_threshold.threshold">([^<]*)<', page)[1]
    read_below(shown, point)


@pytest.mark.parametrize("tied", GAPS[:2], indirect=True)  # predictions.csv holds nine digits
def test_explanations_tell_them_apart(tied, tmp_path, capsys):
    run, bag, _, threshold = tied
    args = ["explain", str(run), str(run.parent / "t.csv"), "--bags", bag, "--out", str(tmp_path / "e")]
    assert main(args) == 0
    page = (tmp_path / "e" / "index.html").read_text()
    for text in (page, capsys.readouterr().out):
        shown = re.findall(r"[Cc]alled 0, [^<]*\(score ([\d.]+), threshold ([\d.]+)\)", text)
        assert shown
        for score, told in shown:
            read_below(score, told)
            read_below(score, threshold)


@pytest.mark.parametrize("tied", GAPS[-1:], indirect=True)  # the hardest
def test_the_model_card_holds_the_threshold_as_it_is(tied, tmp_path):
    run, _, _, threshold = tied
    assert main(["export", str(run), "--out", str(tmp_path / "x"), "--format", "safetensors"]) == 0
    assert f"The threshold is {threshold!r}: " in next((tmp_path / "x").glob("*.md")).read_text()


def test_an_equal_score_has_the_usual_digits():
    assert form_apart([0.5, 0.5], 0.5) == ".4f"
