"""`midam compare`: stopped and killed runs, bad input, and the same result from processes and threads."""

import re
import signal

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from tests.integration.commands import Moment, finish, start, stop, table

from midam.cli import main
from midam.compare import Grid, Workers, repeated_folds, run_comparison
from midam.data.sources import read_bags
from midam.settings import Settings

METHODS = ["midam-att", "bag-statistics-logistic"]
TOTAL = 2 * 2 * 2
FILES = {"config.yaml", "trials.jsonl", "trials.csv", "summary.csv", "summary.md"}
FILES |= {"predictions.csv", "report.html"}


def uninterrupted(data, **options):
    bags = read_bags(data)
    folds = repeated_folds(bags, repeats=2, folds=2)
    settings = Settings(epochs=3)
    return run_comparison(bags, METHODS, folds, settings=settings, grid=Grid([0.1, 0.01], [1.0]), **options)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return uninterrupted(table(tmp_path_factory.mktemp("expected") / "t.csv"))


def results(trials):
    columns = ["method", "repeat", "fold", "auroc", "auprc", "lr", "margin", "epoch", "seed", "status"]
    return trials[columns].sort_values(["method", "repeat", "fold"]).reset_index(drop=True)


def test_a_stopped_and_killed_comparison_ends_as_an_uninterrupted_one(expected, tmp_path):
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    command = ["compare", str(data), "--methods", ",".join(METHODS), "--cv", "2x2", "--epochs", "3", "--jobs", "1"]
    command += ["--lrs", "0.1,0.01", "--margins", "1.0", "--out", str(out)]
    log = tmp_path / "log"
    trials = out / "trials.csv"
    assert stop(start(*command, log=log, wait_at=Moment(trials, 3)), signal.SIGTERM) == 130
    first = trials.read_text()
    assert 3 <= len(first.splitlines()) - 1 < TOTAL
    assert "The same command continues" in log.read_text()
    further = Moment(trials, len(first.splitlines()) + 2)
    assert stop(start(*command, log=log, wait_at=further), signal.SIGKILL) == -signal.SIGKILL
    second = trials.read_text()
    assert second.startswith(first)
    assert len(second.splitlines()) - 1 < TOTAL
    with (out / "trials.jsonl").open("a") as file:
        file.write('{"method": "midam-att", "repeat": 1')
    assert finish(start(*command, log=log)) == 0
    assert trials.read_text().startswith(second)
    found = pd.read_csv(trials)
    assert len(found) == TOTAL
    pd.testing.assert_frame_equal(results(found), results(expected.trials), check_exact=True, check_dtype=False)
    summary = pd.read_csv(out / "summary.csv")
    np.testing.assert_allclose(summary["difference_low"], expected.summary["difference_low"], rtol=1e-8)
    assert {path.name for path in out.iterdir()} == FILES
    last = trials.read_text()
    assert main(command) == 0
    assert trials.read_text() == last


def test_out_of_fold_scores_are_kept(tmp_path):
    data, out = table(tmp_path / "t.csv", patient=[f"p{bag // 2}" for bag in range(40)]), tmp_path / "out"
    methods = ["midam-att", "ce-mean", "midam", "mean-map-svm"]
    command = ["compare", str(data), "--methods", ",".join(methods), "--cv", "1x2", "--epochs", "3", "--jobs", "1"]
    command += ["--lrs", "0.1", "--margins", "1.0", "--groups", "patient", "--out", str(out)]
    assert main(command) == 0
    bags = read_bags(data, groups="patient")
    (fold, other), found = repeated_folds(bags, repeats=1, folds=2), pd.read_csv(out / "predictions.csv")
    assert list(found) == ["bag", "method", "repeat", "fold", "score", "label", "positive", "group"]
    assert found["method"].unique().tolist() == methods
    for (method, _, number), part in found.groupby(["method", "repeat", "fold"]):
        test = (fold, other)[number].test
        assert part["bag"].tolist() == bags.ids[test].tolist()
        assert part["label"].tolist() == bags.labels[test].tolist()
        assert part["group"].tolist() == bags.groups[test].tolist()
        area = pd.read_csv(out / "trials.csv").query(f"method == {method!r} and fold == {number}")["auroc"].item()
        assert roc_auc_score(part["label"], part["score"]) == pytest.approx(area)
    page = re.sub(r"<[^>]+>|\s+", " ", (out / "report.html").read_text("utf-8"))
    assert re.search(r"Settings that differ from the defaults .* groups +patient +null .* All \d+ settings", page)


@pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.long), "threading"])
def test_tasks_at_the_same_time_find_the_same(backend, expected, tmp_path):
    together = uninterrupted(table(tmp_path / "t.csv"), workers=Workers(backend, 2))
    pd.testing.assert_frame_equal(results(expected.trials), results(together.trials), check_exact=True)


BAD = {
    "unknown method": (["--methods", "midam-att,midam-atn"], "did you mean 'midam-att'"),
    "one method": (["--methods", "midam-att"], "at least two methods"),
    "no methods": ([], "Expected --methods, got nothing"),
    "cv": (["--methods", "midam,ce-att", "--cv", "5"], "REPEATSxFOLDS"),
    "an option that chooses nothing": (["--methods", "midam,ce-att", "--val-every", "2"], "got 'val-every'"),
    "lr": (["--methods", "midam,ce-att", "--lrs", "0.1,-1"], "lr, got -1"),
    "no number": (["--methods", "midam,ce-att", "--margins", "big"], "--margins as numbers"),
    "an option of fit": (["--methods", "midam,ce-att", "--lr", "0.1"], "known setting, got 'lr'"),
    "jobs": (["--methods", "midam,ce-att", "--jobs", "0"], "--jobs as a whole number of at least 1, got 0"),
    "backend": (["--methods", "midam,ce-att", "--backend", "mpi"], "mpi"),
    "no validation": (["--methods", "midam,ce-att", "--val-fraction", "0"], "val_fraction > 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line_and_nothing_is_written(case, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options, words = BAD[case]
    table("t.csv")
    assert main(["compare", "t.csv", *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("midam: error: ")
    assert words in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_what_reading_told_and_fewer_folds_than_asked_for_are_said_in_the_summary(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = table("t.csv")
    frame = pd.read_csv(data)
    frame = frame[frame["bag"] < "b12"]
    frame.assign(label=np.where(frame["label"], "malignant", "benign")).to_csv(data, index=False)
    command = ["compare", data.name, "--methods", "bag-statistics-logistic,mean-map-svm", "--cv", "1x21"]
    command += ["--jobs", "1", "--epochs", "1"]
    assert main([*command, "--out", "out"]) == 0
    printed = capsys.readouterr()
    asked, read = "3 folds per repeat instead of 21", "malignant is positive (1) and benign negative (0)"
    for note in (asked, read):
        assert note in (tmp_path / "out" / "summary.md").read_text()
    assert asked in printed.out
    assert printed.err.count(read) + printed.out.count(read) == 1
    assert "warning: 21 folds reduced to 3" in printed.err
    trials = (tmp_path / "out" / "trials.csv").read_text()
    # The same bags by another path: the comparison goes on.
    assert main(["compare", str(data.resolve()), *command[2:], "--out", "out"]) == 0
    assert (tmp_path / "out" / "trials.csv").read_text() == trials


def test_one_class_data_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.read_csv(table("t.csv"))
    frame.assign(label=1).to_csv("t.csv", index=False)
    assert main(["compare", "t.csv", "--methods", "midam,ce-att"]) == 2
    assert "40 positive and 0 negative" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
