"""The study of the witness search: its labels, what its page decides, and the study itself, small."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from midam.nn.scorer import scorers_of
from studies.options import StudyOptions
from studies.regime import witnesses
from studies.regime.witnesses import FULL, SMALLER, run


def test_a_share_of_each_class_has_the_wrong_label():
    (bags, wrong), split = SMALLER.needles[1], SMALLER.needles[1][0].load(0, Path())
    train = witnesses._mislabeled(split, witnesses._Work("needle", bags, wrong))
    changed = train.require_labels() != split.bags.require_labels()[split.train]
    assert changed.sum() == 4
    assert train.require_labels().sum() == 16
    assert not changed[-1] or not changed.all()


@pytest.mark.parametrize(("areas", "word"), [((0.91, 0.81), "reached"), ((0.89, 0.79), "not reached")])
def test_the_page_decides_by_its_goals(areas, word):
    rows = {
        witnesses._Work("needle", bags, wrong, repeat): {"auroc": area, "hits": 0.5, "seconds": 1.0}
        for (bags, wrong), area in zip(FULL.needles, [*areas, 0.5, 0.5, 0.5])
        for repeat in range(3)
    }
    page = "\n".join(witnesses._needle_lines(FULL, rows))
    assert f"1 of 500: mean {areas[0]:.3f}, goal 0.90 {word}; 1 of 1000: mean {areas[1]:.3f}, goal 0.80 {word}." in page
    assert "| 1 of 500, 10% of the labels wrong | 0.500" in page


def test_the_cost_is_decided_by_time_and_memory():
    work = witnesses._Work("cost", FULL.large)
    row = {"seconds": 599.0, "clock": 700.0, "bytes": 1.9e9, "instances": 10**6}
    assert "goal is reached" in "\n".join(witnesses._cost_lines({work: row}))
    for change in ({"seconds": 601.0}, {"bytes": 2.1e9}):
        assert "goal is not reached" in "\n".join(witnesses._cost_lines({work: row | change}))


def test_midam_starts_as_the_search_ends():
    """With a rate of almost 0, a training leaves the order of the instances."""
    split = SMALLER.started.load(0, Path())
    train = split.bags.subset(split.train)
    model = witnesses.WitnessSearch().scorer(train, seed=0)
    trained = witnesses._trained(model, train, replace(witnesses._Work("start"), lr=1e-12, steps=4))
    x = torch.from_numpy(np.asarray(train.instances[:200], dtype=np.float32))
    z = [scorer.instances(x)[0].detach().numpy() for scorer in (model, *scorers_of(trained))]
    assert spearmanr(*z).statistic > 0.999


@pytest.mark.long
def test_the_study_goes_on_where_it_was_stopped(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "out", cache=tmp_path / "cache")
    run(options)
    page, store = options.out / "witness-search.md", options.cache / "witness-search-smaller.jsonl"
    tables = [line for line in page.read_text().splitlines() if line.startswith("|") and " s |" not in line]
    store.write_text("".join(store.read_text().splitlines(keepends=True)[:2]))
    run(options)
    assert [line for line in page.read_text().splitlines() if line.startswith("|") and " s |" not in line] == tables
