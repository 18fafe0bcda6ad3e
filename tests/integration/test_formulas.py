"""Ids that a spreadsheet would run as formulas: every CSV that is written keeps them as text, and reads them back."""

import csv

import pandas as pd
import pytest
from tests.integration.commands import table

from midam.cli import main
from midam.data.sources.table_files import read_names
from midam.names import name_of, plain_cell, safe_cell
from midam.reading import file_digest, read_table

_NAMES = ["=cmd|'/C calc'!A1", "+1+1", "-2+3", "@SUM(A1)", "'=quoted", "=1", "-5", "plain"]
_FIT = ["--epochs", "1", "--members", "1", "--no-baseline", "--groups", "group", "--positive", "=yes"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table of such ids, groups, labels and a feature, and what commands wrote of it."""
    folder = tmp_path_factory.mktemp("formulas")
    frame = pd.read_csv(table(folder / "plain.csv"))
    names = dict(zip(sorted(set(frame["bag"])), [*_NAMES, *(f"=b{n}" for n in range(32))], strict=True))
    frame["group"] = ["@" + bag for bag in frame["bag"]]
    frame["label"] = ["=yes" if label else "no" for label in frame["label"]]
    frame["bag"] = frame["bag"].map(names)
    frame.rename(columns={"f0": "=f0"}).to_csv(folder / "bags.csv", index=False)
    data, run = str(folder / "bags.csv"), str(folder / "run")
    assert main(["fit", data, *_FIT, "--out", run]) == 0
    assert main(["predict", run, data, "--out", str(folder / "p.csv"), "--instances", str(folder / "i")]) == 0
    assert main(["explain", run, data, "--top", "2", "--out", str(folder / "why"), "--bags", _NAMES[0], "=1"]) == 0
    assert main(["export", run, "--out", str(folder / "export"), "--format", "safetensors"]) == 0
    some = ["--methods", "mean-map-svm,bag-statistics-logistic", "--cv", "1x2", "--jobs", "1"]
    assert main(["compare", data, *some, *_FIT[5:], "--out", str(folder / "compare")]) == 0
    return folder


def test_no_cell_of_any_table_is_a_formula(place):
    written = [path for path in place.rglob("*.csv") if path.parent != place or path.name == "p.csv"]
    assert len(written) >= 8, written
    for path in written:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                for cell in row:
                    assert cell[:1] not in tuple("=+-@\t\r") or _is_number(cell), (path, cell)


def test_what_was_written_is_read_back(place):
    names = sorted(name_of(name) for name in set(pd.read_csv(place / "bags.csv", dtype=str)["bag"]))
    for path in (place / "p.csv", place / "run/predictions.csv"):
        assert sorted(read_table(path, file_digest(path))["bag"]) == names
        assert sorted(read_names(path)["bag"]) == names


@pytest.mark.parametrize("text", ["", "'", "'a", "=", "'=a", "''=a", "-5", "'-5", "-5e3", "--5", "+", "=1", "\t=1"])
def test_a_cell_is_the_text_that_it_was(text):
    assert plain_cell(safe_cell(text)) == text
    assert safe_cell(text)[:1] not in tuple("=+-@\t\r\n") or _is_number(text)


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
