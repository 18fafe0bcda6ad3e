"""`midam data` on bags ranked by more than 0 and 1: listed, described, imported and verified, or refused in words."""

import numpy as np
import pytest
from tests.integration.commands import table

from midam.cli import main
from midam.data.store import open_store, write_store
from studies.sets import catalog

RNG = np.random.default_rng(0)
COLUMNS = {
    "multiclass": {"kind": np.array(["brain", "lung", "skin", "eye"])[np.arange(40) % 4]},
    "ordinal": {"kind": np.arange(40) % 3 + 1},
    "multilabel": {"a": np.arange(40) % 2, "b": ["" if bag == 7 else bag // 20 for bag in range(40)]},
    "continuous": {"kind": np.round(RNG.normal(size=40), 3)},
    "survival": {"months": np.arange(1, 41), "end": np.array(["died", "alive", "moved"])[np.arange(40) % 3]},
}
HOW = {target: ["--label-column", ",".join(columns)] for target, columns in COLUMNS.items()}
HOW["survival"] += ["--positive", "died"]
SAID = {
    "multiclass": [
        "classes: brain 10, eye 10, lung 10, skin 10",
        "few bags of a class: brain (10)",
    ],
    "ordinal": ["grades: 1 14, 2 13, 3 13", "few bags of a class: 1 (14)"],
    "multilabel": ["labels: a 20, b 20, entries unknown 1", "few bags of a class: b (19)"],
    "continuous": ["bags: 40", "numbers: -"],
    "survival": [
        "events: 14",
        "median follow-up: 27",
        "few events: 14",
    ],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.drawn
@pytest.mark.parametrize("target", list(COLUMNS))
def test_bags_are_described_imported_and_verified(here, capsys, target):
    data = str(table("t.csv", **{name: list(values) for name, values in COLUMNS[target].items()}))
    how = ["--target", target, "--ignore", "[label]", *HOW[target]]
    assert main(["data", "describe", data, *how]) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in [f"target: {target}", *SAID[target]])
    assert main(["data", "import", data, *how, "--out", "s"]) == 0
    assert "next: midam fit s" in capsys.readouterr().out
    assert open_store("s").outcome.target == target
    assert main(["data", "verify", "s"]) == 0
    capsys.readouterr()
    assert main(["data", "describe", "s"]) == 0
    again = capsys.readouterr().out
    assert all(words in again for words in [f"target: {target}", *SAID[target]])
    assert main(["data", "describe", "s", "--target", target]) == 0


@pytest.mark.parametrize("name", ["digits-classes", "digits-labels"])
def test_the_drawn_sets(here, capsys, name):
    write_store(catalog.load(name), name)
    assert main(["data", "describe", name]) == 0
    out = capsys.readouterr().out
    assert ("the bag size predicts the label" in out) is (name == "digits-labels")
    assert open_store(name).outcome.names == tuple("0123456789")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["describe", "digits", "--target", "ordinal"], ["'ordinal', got 'binary'", "leave --target out"]),
        (["import", "digits", "--target", "survival", "--out", "s"], ["'survival', got 'binary'"]),
        (
            ["describe", "t.csv", "--label-column", "kind"],
            ["column kind", "--target", "multiclass, ordinal or continuous"],
        ),
        (["describe", "t.csv", "--label-column", "kind", "--target", "survival"], ["time and event"]),
    ],
)
def test_what_does_not_fit_is_refused_in_words(here, capsys, command, words):
    table("t.csv", kind=list(np.arange(40) % 3))
    assert main(["data", *command]) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error
    assert not (here / "s").exists()


def test_a_run_takes_its_target_from_its_data(here, capsys):
    short = ["--epochs", "1", "--members", "1", "--no-baseline"]
    for name in ("digits-classes", "digits-labels"):
        write_store(catalog.load(name), name)
    assert main(["fit", "digits-labels", *short, "--out", "run"]) == 0
    assert "test macro AUROC" in capsys.readouterr().out
    assert main(["evaluate", "run", "digits-labels"]) == 0
    capsys.readouterr()
    assert main(["predict", "run", "digits-classes", "--out", "p.csv"]) == 0
    assert "labels are ignored" in capsys.readouterr().err
    assert main(["evaluate", "run", "digits-classes"]) == 2
    assert "'multilabel', got 'multiclass'" in capsys.readouterr().err
