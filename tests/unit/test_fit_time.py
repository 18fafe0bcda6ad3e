"""The benchmark of `midam fit` divides what it says, and does not take a failed call for a quick one."""

import shutil
import sys

import pytest
from benchmarks import fit_time


def test_ratios_are_those_of_the_seconds(monkeypatch):
    seconds = iter([10.0, 15.0, 60.0, 9.0, 18.0, 50.0])
    calls = []
    monkeypatch.setattr(fit_time, "seconds_of", lambda data, words: calls.append((data, words)) or next(seconds))
    found = fit_time.measure(("musk1",), 2)
    assert found == {"musk1": {"bare": 9.0, "midam": 15.0, "default": 50.0}}
    assert [words for _, words in calls[:3]] == list(fit_time.CALLS.values())
    text = fit_time.page(found, 2)
    assert "| musk1 | 9.0 | 15.0 | 50.0 | 1.67 | 3.33 |" in text
    assert "at most 1.67 times the bare method (wanted: 2)" in text
    assert "is that of musk1, 0.8 minutes" in text


def test_a_call_that_fails_has_no_time(monkeypatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match="ended with 1"):
        fit_time.seconds_of("musk1", [])
