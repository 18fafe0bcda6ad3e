"""The baseline beside `midam fit`: on which bags it stands, what is said of it, and that no run is lost for it."""

import csv
import json

import numpy as np
import pytest
from tests import quick
from tests.integration.commands import stop_at, table

from midam.cli import main
from midam.data.sources import read_bags
from midam.evaluate.intervals import auroc_interval, paired_delong
from midam.evaluate.ranking import auroc
from midam.methods.baselines import BagStatisticsTrees
from midam.methods.method import Baseline
from midam.registry import BASELINES
from midam.runs import results
from midam.runs.loaded import load_run, predict_run
from midam.train.side import Trial

TREES = "bag-statistics-extratrees"
QUICK = ["--epochs", "1", "--members", "1"]
HELD_OUT = ["--test-fraction", "0.2"]
# A step so small that nothing is learned.
IDLE = [*QUICK, *HELD_OUT, "--lr", "1e-9"]


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def summary_of(run):
    return json.loads((run / "summary.json").read_text())


@pytest.fixture(scope="module")
def maxima(tmp_path_factory):
    """120 bags of 60 patients: positive where one instance is far out, which trees see at once in the maximum."""
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("maxima") / "bags.csv"
    lines = ["bag,label,patient,f0,f1,f2"]
    for bag in range(120):
        for instance in range(4):
            features = rng.normal(size=3)
            features[0] += 6.0 * (bag % 2) * (instance == 0)
            lines.append(f"b{bag:03d},{bag % 2},p{bag // 2:02d}," + ",".join(f"{value:.5f}" for value in features))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def behind(maxima, tmp_path_factory):
    run = tmp_path_factory.mktemp("behind") / "run"
    with quick.drawing():
        assert main(["fit", str(maxima), "--groups", "patient", *IDLE, "--seed", "2", "--out", str(run)]) == 0
    return run


def test_the_numbers_are_those_of_the_baseline_on_the_split_of_the_run(maxima, behind):
    found, bags = summary_of(behind)["baseline"], read_bags(str(maxima), groups="patient")
    rows = read_csv(behind / "predictions.csv")
    split, model = np.array([row["split"] for row in rows]), np.array([float(row["score"]) for row in rows])
    train, test = (np.flatnonzero(split == name) for name in ("train", "test"))
    scores = BagStatisticsTrees().score(bags, Trial(train, test, 2))
    labels, groups = bags.require_labels()[test], bags.groups[test]
    assert (found["method"], found["part"]) == (TREES, "test")
    assert found["auroc"] == auroc(labels, scores)
    assert found["auroc_ci95"] == list(auroc_interval(labels, scores, groups=groups)[:2])
    difference, *bounds, _ = paired_delong(labels, model[test], scores, groups=groups)
    assert [found["difference"], *found["difference_ci95"]] == pytest.approx([difference, *bounds], abs=1e-9)
    assert found["difference_method"] == "paired obuchowski (groups)"
    assert bounds != pytest.approx(list(paired_delong(labels, model[test], scores)[1:3]), abs=1e-6)


@pytest.mark.drawn
def test_a_baseline_that_is_clearly_ahead_is_said_to_be(maxima, behind, tmp_path, capsys):
    # A resumed run that is done repeats what comes after the training.
    before = {name: (behind / name).read_bytes() for name in ("report.html", "predictions.csv")}
    summary = summary_of(behind)
    assert main(["fit", "--resume", str(behind)]) == 0
    out, error = capsys.readouterr()
    found = summary["baseline"]
    assert found["difference_ci95"][1] < 0
    (line,) = [line for line in out.splitlines() if line.startswith("baseline")]
    numbers = f"{found['auroc']:.3f} ({TREES}); model minus baseline {found['difference']:+.3f} (95% CI "
    assert line.startswith(f"baseline AUROC {numbers}")
    assert line.endswith(": the model is behind")
    (said,) = [line for line in out.splitlines() if line.startswith("warning: the simple baseline")]
    assert f"`midam compare DATA --methods midam,{TREES}`" in said
    assert f"`midam fit DATA --method {TREES}`" in said
    assert error.splitlines()[-3:] == [
        "training the baseline",
        "writing results",
        "changing bags",
    ]
    assert {name: (behind / name).read_bytes() for name in before} == before
    assert summary_of(behind) | {"seconds": 0} == summary | {"seconds": 0}


def test_the_report_shows_the_baseline_and_what_to_do(maxima, behind, capsys):
    page, found = (behind / "report.html").read_text(), summary_of(behind)["baseline"]
    assert f'value="{found["auroc"]!r}" data-key="baseline.auroc"' in page
    assert f'value="{found["difference"]!r}" data-key="baseline.difference"' in page
    assert "the model is behind" in page
    assert f"--method {TREES}</code>" in page
    # So does the page of an evaluation on the same bags, and none on others.
    assert main(["evaluate", str(behind), str(maxima), "--groups", "patient"]) == 0
    assert 'data-key="baseline.auroc"' in (behind / "report-bags.html").read_text()


def test_without_a_baseline_the_model_is_the_same(maxima, behind, tmp_path, capsys):
    run = tmp_path / "run"
    command = ["fit", str(maxima), "--groups", "patient", *IDLE, "--seed", "2", "--no-baseline", "--out", str(run)]
    assert main(command) == 0
    out, error = capsys.readouterr()
    assert not [line for line in (out + error).splitlines() if "baseline" in line.replace(str(tmp_path), "")]
    summary, other = summary_of(run), summary_of(behind)
    assert summary["baseline"] is None
    assert (summary["seconds"]["baseline"], "baseline_note" in summary) == (0.0, False)
    for name in ("predictions.csv", "metrics.csv"):
        assert (run / name).read_bytes() == (behind / name).read_bytes(), name
    leave = {"baseline", "seconds", "digest", "files"}
    assert {key: summary[key] for key in summary.keys() - leave} == {key: other[key] for key in other.keys() - leave}
    assert "trained with <code" in (run / "report.html").read_text()


def test_without_test_bags_validation_bags_take_their_place(tmp_path, capsys):
    words = ["--epochs", "3", "--members", "1", "--test-fraction", "0", "--select", "best"]
    assert main(["fit", str(table(tmp_path / "t.csv")), *words, "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert summary_of(tmp_path / "run")["baseline"]["part"] == "val"
    assert "warning: the baseline is compared on validation bags, which favors the model" in out


def test_without_bags_to_compare_on_there_is_none_and_a_line_says_why(tmp_path, capsys):
    words = [*QUICK, "--test-fraction", "0", "--val-fraction", "0"]
    assert main(["fit", str(table(tmp_path / "t.csv")), *words, "--out", str(tmp_path / "run")]) == 0
    why = "there are no test or validation bags of both classes to compare on"
    assert f"warning: no baseline to compare the model with: {why}" in capsys.readouterr().out
    summary = summary_of(tmp_path / "run")
    assert (summary["baseline"], summary["baseline_note"]) == (None, why)
    assert why in (tmp_path / "run" / "report.html").read_text()


def test_images_stand_beside_their_colors(tmp_path):
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 255, size=(60, 3, 8, 8), dtype=np.uint8), np.arange(30) % 2
    pixels[::2, 0] //= 1 + labels[:, None, None].astype(np.uint8)
    np.savez(tmp_path / "i.npz", X=pixels.astype(np.float32), bag=np.repeat(np.arange(30), 2), y=labels)
    assert main(["fit", str(tmp_path / "i.npz"), *QUICK, "--out", str(tmp_path / "run")]) == 0
    assert summary_of(tmp_path / "run")["baseline"]["method"] == "rgb-trees"


class Broken(Baseline):
    """A baseline that fails as packages of others do."""

    def score(self, bags, trial):
        """Fail."""
        raise ZeroDivisionError(f"{len(trial.train)} bags\nand more")


def test_no_run_is_lost_for_its_baseline(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(BASELINES._added, TREES, Broken)
    run = tmp_path / "run"
    assert main(["fit", str(table(tmp_path / "t.csv")), *QUICK, "--out", str(run)]) == 0
    said = f"{TREES} failed (ZeroDivisionError: 20 bags)"  # of 40 bags, without those of a fold
    assert f"warning: no baseline to compare the model with: {said}" in capsys.readouterr().out
    assert (summary_of(run)["baseline"], summary_of(run)["baseline_note"]) == (None, said)


def test_ctrl_c_in_the_baseline_keeps_the_model(tmp_path, monkeypatch):
    data, run = table(tmp_path / "t.csv"), tmp_path / "run"
    with monkeypatch.context() as patch:
        stop_at(patch, results, "train_baseline", 1)
        assert main(["fit", str(data), *QUICK, *HELD_OUT, "--out", str(run)]) == 130
    bags = read_bags(str(data))
    scores, _ = predict_run(load_run(run), bags)
    assert [f"{score:.9g}" for score in scores] == [row["score"] for row in read_csv(run / "predictions.csv")]
    kept = (run / "predictions.csv").read_bytes()
    assert main(["fit", "--resume", str(run)]) == 0
    assert summary_of(run)["baseline"]["method"] == TREES
    assert (run / "predictions.csv").read_bytes() == kept


def test_test_labels_do_not_reach_the_baseline(tmp_path):
    labels = np.arange(40) % 2
    splits = ["test" if bag % 4 < 2 else "train" for bag in range(40)]
    areas = []
    for flipped in (False, True):
        own = [label ^ (flipped and split == "test") for label, split in zip(labels, splits, strict=True)]
        data = table(tmp_path / f"{flipped}.csv", outcome=own, part=splits)
        words = ["--label-column", "outcome", "--split", "part", "--ignore", "label", *QUICK]
        assert main(["fit", str(data), *words, "--out", str(tmp_path / f"run-{flipped}")]) == 0
        areas.append(summary_of(tmp_path / f"run-{flipped}")["baseline"]["auroc"])
    assert areas[0] != 0.5
    assert areas[1] == pytest.approx(1 - areas[0])  # the same scores, against the other labels
