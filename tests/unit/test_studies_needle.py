"""The study of the needle: what its ways cost, whom it compares, and the study itself, small."""

from pathlib import Path

import numpy as np
import pytest

from studies.options import StudyOptions
from studies.regime import needle
from studies.regime.needle import SMALLER, TRACKED, UNIFORM, WAYS, run
from studies.regime.needle_page import body
from studies.regime.references import reference_aurocs
from studies.regime.tracked_sets import Digits, Split


@pytest.fixture(scope="module")
def split() -> Split:
    return Digits(40, 0.025, train=64, score=16, distortion=0.25).load(0, Path())


def test_no_way_costs_more_than_it_says(split):
    sizes = split.bags.sizes[split.train]
    for way in WAYS:
        config = way.config(split, 0.01, 0)
        whole = way.settings["estimator"] == "exact"
        instances = int(sizes.sum()) if whole else 16 * 16 * (len(sizes) // 16)
        cost = config.training.epochs * instances * config.training.members
        assert 0.9 * way.times <= cost / (3000 * 256) <= way.times, way.name


@pytest.mark.long
def test_ways_that_label_instances_find_an_easy_witness(split):
    """A witness that no negative instance resembles; the labels must find it without being told."""
    instances = split.bags.instances.copy()
    instances[split.witness] = 4.0
    easy = Split(split.bags.replace(instances=instances, digests=None), split.train, split.score, split.witness)
    found = reference_aurocs(easy, 0, names=needle.NEW, rows=64 * 40, rate=0.01)
    assert min(found.values()) > 0.9


@pytest.mark.long
def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page = (options.out / "needle.md").read_text()
    assert (options.out / "needle.png").read_bytes().startswith(b"\x89PNG")
    store = options.cache / "needle-smaller.jsonl"
    lines = store.read_text().splitlines(keepends=True)
    trials = [line for line in lines if "wall" not in line]
    tuned, others = len(SMALLER.tuned), len(SMALLER.references)
    assert len(trials) == tuned * len(SMALLER.rates) + (tuned + others) * len(SMALLER.repeats)
    store.write_text("".join(lines[:2]))
    run(options)
    again = (options.out / "needle.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert [line for line in again.splitlines() if line.startswith("|")] == table


def test_the_page_decides_by_its_rules():
    spread = np.linspace(-0.01, 0.01, 10)
    rows = {
        UNIFORM.name: 0.5 + spread,
        TRACKED.name: 0.8 - spread,
        "attention, uniform": 0.7 + spread,
        "attention, uniform, tracked state": 0.7 - spread,
        "positive-unlabelled risk": 0.9 + spread,
        "told": 1 + 0 * spread,
    }
    text = "\n".join(
        body(
            {"1 of 500": rows},
            "x.png",
            rates={("1 of 500", TRACKED.name): 0.01},
            ways=(UNIFORM.name, TRACKED.name),
            tracked=needle.PAIRS,
            new=("positive-unlabelled risk",),
            bounds=("told",),
        )
    )
    assert "`uniform, tracked state` minus `uniform` +0.300 [+0.290, +0.310]: the tracked state is advised" in text
    assert "state help?** Ahead after Holm's correction: `uniform, tracked state` in bags with 1 of 500." in text
    assert "better?** Ahead after Holm's correction: `positive-unlabelled risk` in bags with 1 of 500." in text
    assert "Best: `positive-unlabelled risk`, mean test AUROC 0.900. found: " in text
    assert "at chance: `uniform`." in text
