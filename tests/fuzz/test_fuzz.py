"""A small part of `make fuzz`: each input made by hand, and damage to each format that Hypothesis chooses."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.campaign import BAD, Bench, Craft, crafts_of, run_one
from tests.fuzz.children import Server
from tests.fuzz.samples import samples

# Most of the others train a run first.
COMMANDS = {name for name, sample in samples().items() if sample.how["do"] not in ("bags", "store", "settings")}

# Another input comes to the same reader.
ALIKE = {"npz of bags npz_bomb", "ome-tiff tiff_bomb", "slide strips tiff_bomb"}


def is_long(name: str, craft: Craft) -> bool:
    """Whether an input waits for the long tests: of a command, alike, or a table of many columns or megabytes."""
    return (
        name in COMMANDS or f"{name} {craft.__name__}" in ALIKE or craft.__name__ in ("table_large_field", "table_wide")
    )


BY_HAND = [
    pytest.param(name, craft, id=f"{name}-{craft.__name__}", marks=[pytest.mark.long] if is_long(name, craft) else [])
    for name in samples()
    for craft in dict.fromkeys(crafts_of(name))
]


@pytest.fixture(scope="module")
def bench(request, tmp_path_factory) -> Iterator[tuple[Bench, Server]]:
    commands = any(item.get_closest_marker("long") for item in request.session.items)
    with Server(commands=commands) as server:
        yield Bench(tmp_path_factory.mktemp("bench")), server


def check(bench: tuple[Bench, Server], name: str, **how: Any) -> None:
    made, server = bench
    made.prepare(name, server)
    found = run_one(made, server, name, 0, made.folder / "input", **how)
    assert found.outcome not in BAD, (found.outcome, found.made, found.answer)


@pytest.mark.filterwarnings("ignore:Duplicate name")  # which a file made by hand holds on purpose
@pytest.mark.parametrize(("name", "craft"), BY_HAND)
def test_inputs_made_by_hand(bench, name, craft):
    check(bench, name, rng=Random(0), craft=craft)


@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(set(samples()) - COMMANDS)), seed=st.integers(0, 2**32 - 1))
def test_damaged_inputs(bench, name, seed):
    check(bench, name, rng=Random(seed))  # Hypothesis would note each of the thousands of draws of a damage
