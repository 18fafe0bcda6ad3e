"""`midam check`, and the same in the summary and the report of a run."""

import json
import re

import numpy as np
import pytest
from tests.integration.commands import fitted

from midam.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    words = ("--epochs", "3", "--members", "1", "--test-fraction", "0.4", "--val-fraction", "0.2")
    return fitted(folder, *words)


def test_a_fit_says_it_in_summary_and_report(made):
    _, run = made
    entry = json.loads((run / "summary.json").read_text())["assumption"]
    assert (entry["part"], entry["positives"], entry["positive"], entry["negative"]) == ("test", "labeled", 8, 8)
    assert [row["test"] for row in entry["changes"]] == ["adding"] * 2 + ["removing"] * 4 + ["doubling"]
    assert set(entry["passed"]) == {"adding", "removing", "doubling"}
    page = (run / "report.html").read_text()
    before = page.index("Before you rely on it")
    part = page[page.index("Does it keep the assumption", before) :]
    for at, row in enumerate(entry["changes"]):
        (shown,) = re.findall(rf'<data value="([^"]+)" data-key="assumption\.changes\.{at}\.median"', part)
        assert float(shown) == row["median"]
    assert all(f"{test}:" in part for test in ("Adding", "Removing", "Doubling"))


def test_the_command_says_it_of_other_bags(made, tmp_path, capsys):
    data, run = made
    assert main(["check", str(run), str(data), "--most", "12"]) == 0
    out = capsys.readouterr().out
    assert "12 positive and 12 negative bags\n" in out
    assert re.search(r"^Adding: .*\nRemoving: .*\nDoubling: ", out, re.MULTILINE)
    assert "most of these bags trained or validated the run" in out
    lines = data.read_text().splitlines()
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.split(",", 2)[0] + "," + line.split(",", 2)[2] for line in lines) + "\n")
    assert main(["--json", "check", str(run), str(bare)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["positives"] == "called"
    assert result["positive"] + result["negative"] == 40
    assert result["before"]["called"]["value"] == 1


def test_what_cannot_be_checked_is_said(made, tmp_path, capsys):
    data, run = made
    assert main(["check", str(run), str(data), "--most", "0"]) == 2
    rng = np.random.default_rng(0)
    lines = [f"b{bag},{bag % 3},{rng.normal():.3f}" for bag in range(60) for _ in range(2)]
    (tmp_path / "several.csv").write_text("\n".join(["bag,label,x", *lines]) + "\n")
    words = ["--target", "multiclass", "--epochs", "1", "--members", "1", "--folds", "0", "--no-baseline"]
    assert main(["fit", str(tmp_path / "several.csv"), *words, "--out", str(tmp_path / "several")]) == 0
    assert "assumption" not in json.loads((tmp_path / "several" / "summary.json").read_text())
    assert main(["check", str(tmp_path / "several"), str(tmp_path / "several.csv")]) == 2
    assert "Expected a run of two classes, got the target 'multiclass'" in capsys.readouterr().err
