"""A small part of `make torture`: killed commands end as undisturbed ones, and leave nothing behind."""

import pytest
from tests.fuzz.torture import FAULTS, torture


@pytest.mark.slow
@pytest.mark.long
def test_killed_commands_end_as_undisturbed_ones():
    tallies = torture(6, seed=1, jobs=1, names=["import", "predict", "fit"])
    assert sum(tally.counts["kills"] for tally in tallies.values()) >= 6
    for name, tally in tallies.items():
        assert not any(tally.counts[fault] for fault in FAULTS), (name, tally.said)
