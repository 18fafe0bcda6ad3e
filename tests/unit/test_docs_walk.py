"""The walk through the code names the files in the order in which a training enters them."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import midam
from midam.cli import main

SRC = Path(midam.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
STOPS = re.findall(r"^\d+\. `([\w/.]+)`, `(\w+)`:", PAGE.read_text("utf-8"), flags=re.MULTILINE)


def test_a_stranger_reads_at_most_twelve_files():
    assert 8 < len({file for file, _ in STOPS}) <= 12


@pytest.mark.filterwarnings("ignore::UserWarning")  # of few bags
def test_the_files_are_entered_in_this_order(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [f"b{i},{i % 2},{x:.3f},{y:.3f}" for i in range(24) for x, y in rng.normal(size=(3, 2))]
    (tmp_path / "bags.csv").write_text("\n".join(["bag,label,x,y", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    wanted = {(str(SRC / file), function) for file, function in STOPS}
    entered = []

    def note(frame, event, argument):
        stop = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and stop in wanted and stop not in entered:
            entered.append(stop)
            if len(entered) == len(wanted):
                sys.setprofile(None)  # slow

    sys.setprofile(note)
    try:
        assert main(["fit", "bags.csv", "--epochs", "1", "--members", "1", "--out", "run"]) == 0
    finally:
        sys.setprofile(None)
    assert [(str(Path(file).relative_to(SRC)), function) for file, function in entered] == STOPS
