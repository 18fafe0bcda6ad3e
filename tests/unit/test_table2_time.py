"""The time of Table 2's protocol is that of its trainings, and they are checked against the published ones."""

import pytest
from benchmarks import table2_time

from midam.data.bags import Bags
from studies.options import StudyOptions
from studies.synthetic import synthetic_sets
from studies.tabular.table2_trials import Plan


@pytest.fixture
def measured(monkeypatch):
    shift: Bags = synthetic_sets()["shift"]
    monkeypatch.setattr(table2_time.catalog, "load", {"musk1": shift}.__getitem__)
    options = StudyOptions(margin=1.0, device="cpu")
    wanted = Plan(("midam-att", "ce-mean"), (0.1, 0.01), margin=1.0, splits=1, folds=2, epochs=2)
    return options, *table2_time.measure(wanted, options, ("musk1",))


def test_every_training_is_counted_and_told(measured):
    options, seconds, found = measured
    assert len(found["musk1"]) == 2 * 2 * 2
    assert 0 < sum(row["seconds"] for row in found["musk1"]) <= seconds
    text = table2_time.page(seconds, found, options, (0, 0.0, 0.0))
    steps = sum(row["steps"] for row in found["musk1"])
    assert f"| musk1 | 8 | {steps} | " in text


def test_trainings_are_compared_with_those_of_the_same_name(measured):
    _, _, found = measured
    rows = found["musk1"]
    assert table2_time.agreement(found, [*rows, {"wall": 1.0}]) == (8, 1.0, 0.0)
    moved = [{**row, "test_last": row["test_last"] - 0.25 * (row["lr"] == 0.1)} for row in rows]
    assert table2_time.agreement(found, moved) == (8, 0.5, pytest.approx(0.25))
    assert table2_time.agreement(found, [{**row, "set": "fox"} for row in rows]) == (0, 0.0, 0.0)
