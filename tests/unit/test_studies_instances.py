"""The study of instance scores: its sets, its numbers against naive ones, its rule, and the study itself, small."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from tests.trainings import make_scorers

from midam.data.bags import Bags
from midam.evaluate.labeled_instances import evaluate_instances
from midam.evaluate.predict import predict
from studies.engine import Store
from studies.instances import scores as numbers
from studies.instances.instances import METHODS, SMALLER, Design, _run, figures_of, run
from studies.instances.libraries import LIBRARIES, cells, compared
from studies.instances.page import SCORES, verdict
from studies.instances.scores import score_instances
from studies.instances.sets import SETS, load
from studies.options import StudyOptions


@pytest.mark.parametrize("name", SETS)
def test_labels_of_instances_make_the_labels_of_bags(name):
    train, test, best = load(name, 0, train=8, test=12)
    assert (len(train), len(test)) == (8, 12)
    assert test.labels.tolist() == [0, 1] * 6
    parts = np.split(test.instance_labels, np.cumsum(test.sizes)[:-1])
    speaks = 0 if name == "absence" else 1  # the label of the instances that decide
    for label, of_bag in zip(test.labels, parts, strict=True):
        decides = bool(label) != (name == "absence")
        if name == "compound" and not label:
            assert np.isnan(of_bag).all()
        else:
            assert (of_bag == speaks).any() == decides
    for values in best.values():
        assert evaluate_instances(test, values).auroc_in_bag.value > 0.75
    again = load(name, 0, train=8, test=12).test
    np.testing.assert_array_equal(again.instances, test.instances)


@pytest.mark.parametrize("pooling", ["attention", "smoothed-max", "mean"])
def test_numbers_are_those_of_naive_removals(pooling, monkeypatch):
    model = make_scorers(pooling, 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 4)).astype(np.float32)
    monkeypatch.setattr(numbers, "_ORDERS", 3000)
    found = score_instances(model, Bags.from_list([x]), np.zeros(4, np.float32))
    assert list(found) == list(SCORES)

    def score(members):
        return float(predict(model, Bags.from_list([x[list(members)]]))[0])

    whole = score(range(4))
    for at in range(4):
        others = [i for i in range(4) if i != at]
        np.testing.assert_allclose(found["contribution"][at], whole - score(others), atol=1e-5)
        np.testing.assert_allclose(found["value"][at], score([at]), atol=1e-5)
        added = [
            score(order[: order.index(at) + 1]) - score(order[: order.index(at)])
            for order in permutations(range(4))
            if order[0] != at
        ]
        np.testing.assert_allclose(found["order average"][at], np.mean(added), atol=3e-3)
    step, place = 1e-2, (1, 2)
    ends = []
    for side in (-step, step):
        moved = x.copy()
        moved[place] += side
        ends.append(float(predict(model, Bags.from_list([moved]))[0]))
    slope = (ends[1] - ends[0]) / (2 * step)
    only = np.zeros(4, np.float32)
    only[:] = x[1]
    only[2] = 0
    shown = score_instances(model, Bags.from_list([x]), only)["gradient x input"]
    np.testing.assert_allclose(shown[1], slope * x[place], atol=2e-4)


def test_the_rule_needs_a_choice_that_most_sets_agree_on_and_an_interval_above_zero():
    rng = np.random.default_rng(0)

    def tables(gain):
        made = {}
        for name in "abcde":
            values = 0.7 + 0.001 * rng.normal(size=(2, len(SCORES), 4))
            values[:, SCORES.index("gradient x input")] = 0.99  # which cannot be chosen
            values[:, SCORES.index("value")] += gain
            made[name] = {"method": values}
        return made

    assert verdict(tables(0.1)).default == "value"
    assert verdict(tables(0.1)).gain.low > 0.09
    assert verdict(tables(-0.1)).default == "contribution"


def test_every_pooling_and_estimator_is_in_the_study():
    assert {settings["estimator"] for settings in METHODS.values()} == {"vrsp", "minibatch", "exact"}
    assert len({settings["pooling"] for settings in METHODS.values()}) == 5
    trials = Design().trials
    assert len(trials) == len(set(trials)) == 7 * (9 * 3 + 1)


def repeated(value, count=5, *, spread=0.01):
    """Figures of some repeats around a value, [repeats, figures]."""
    return value + spread * np.random.default_rng(int(1000 * value)).normal(size=(count, 4))


def test_the_page_says_on_which_sets_other_libraries_are_behind_ahead_or_open():
    others = {"won": (0.6, 0.7), "lost": (0.9, 0.6), "open": (0.803, 0.6)}
    figures = {
        of_set: {
            **{"auto": repeated(0.85, 1), "attention": repeated(0.8), "attention, its weight": repeated(0.5)},
            **{library: repeated(value) for library, value in zip(LIBRARIES, values, strict=True)},
        }
        for of_set, values in others.items()
    }
    decided = [cell.decided for cell in cells(figures, LIBRARIES)]
    assert decided == [1, 1, -1, 1, 0, 1]
    text = "\n".join(compared(figures))
    assert "ahead of each library on 1 of 3 sets (won); the goal of two thirds is not reached" in text
    assert "Behind: torchmil-abmil on lost. Open: torchmil-abmil on open." in text
    row = next(line for line in text.splitlines() if line.startswith("| won | torchmil-abmil"))
    gap = figures["won"]["auto"][:, 0] - figures["won"]["torchmil-abmil"][:1, 0]
    assert f"| {gap[0]:+.3f} |" in row, "one repeat is compared with the same one"
    assert list(compared({name: {"attention": repeated(0.8)} for name in others})) == []


@pytest.mark.parametrize(("library", "package"), [*zip(LIBRARIES, ("torchmil.models", "milearn.network"))])
def test_a_library_gives_each_test_instance_its_attention(library, package, tmp_path):
    pytest.importorskip(package, reason="another library, see studies.peers")
    (row,) = _run((SMALLER, ("digits", library, 0)))
    assert 0 <= row["auroc"] <= 1
    assert len(row["scores"]["attention"]) == 4
    with Store(tmp_path, "trials") as store:
        store.add([SMALLER.name(("digits", library, 0)) | row])
        assert figures_of(SMALLER, store)["digits"][library].shape == (1, 4)


@pytest.mark.long
def test_the_study_writes_its_page(tmp_path):
    options = StudyOptions(smaller=True, out=tmp_path / "records", cache=tmp_path / "cache")
    run(options)
    page = (tmp_path / "records/instances.md").read_text()
    assert "By the rule, `midam explain`" in page
    assert "Best possible on neighbors: posterior, whole bag" in page
    assert (tmp_path / "records/instances.png").is_file()
    before = (tmp_path / "cache/instances-smaller.jsonl").read_text()
    run(options)
    assert Path(tmp_path / "cache/instances-smaller.jsonl").read_text() == before, "nothing is computed again"
