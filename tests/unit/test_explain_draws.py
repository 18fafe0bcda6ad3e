"""What is said of a run's draws is what its checkpoint, its curves and plain counting give."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from midam.data.bags import Bags
from midam.data.sources.npz import read_npz, write_npz
from midam.data.weighted_draws import Top
from midam.errors import CheckpointError
from midam.explain.draws import _rank, draw_facts
from midam.explain.draws_text import draw_lines, draws_section, draws_table
from midam.runs.apply import load_run, read_for
from midam.runs.fit import fit_run
from midam.runs.folder import RunFolder
from midam.settings import Settings

B = 4
HOW = {"epochs": 5, "num_positive": 4, "num_negative": 4, "num_instances": B, "members": 2, "pooling": "smoothed-max"}
HOW |= {"estimator": "minibatch", "accelerator": "cpu", "lr": 0.05}

pytestmark = pytest.mark.filterwarnings(
    "ignore:Expected scores that rank validation bags", "ignore:the .* bags hold", "ignore:single features rank"
)


def make_bags(number=40, seed=3):
    """Bags of 3 to 30 instances, of which one or two make it positive; of one bag in five that is not known."""
    rng, labels = np.random.default_rng(seed), np.arange(number) % 2
    sizes, marks, parts = rng.integers(3, 31, number), [], []
    for bag, (size, label) in enumerate(zip(sizes, labels, strict=True)):
        part, own = rng.normal(size=(size, 3)), np.zeros(size, bool)
        own[: 1 + bag % 4 // 2] = label
        part[own] += 3
        parts.append(part)
        marks.append(own & (bag % 5 > 0))
    ids = [f"bag {i}" for i in range(number)]
    return Bags.from_list(parts, labels, ids=ids).replace(witnesses=np.concatenate(marks))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs by rule, and their data."""
    folder = tmp_path_factory.mktemp("draws")
    data = folder / "bags.npz"
    write_npz(make_bags(), data)
    own = {"top": {"draw_args": {"refresh": 2}}, "scored": {"draw_args": {"pass_budget": 0.0}, "members": 1}}
    for draw in ("top", "scored", "uniform"):
        fit_run(str(data), Settings(**HOW | {"draw": draw} | own.get(draw, {})), RunFolder(folder / draw))
    return folder, data


def facts_of(made, draw):
    folder, data = made
    run = load_run(folder / draw)
    return draw_facts(folder / draw, run, read_for(run, str(data)))


def train_of(made, draw):
    rows = pd.read_csv(made[0] / draw / "predictions.csv").query("split == 'train'")
    bags = read_npz(made[1])
    return bags.subset([bags.ids.tolist().index(bag) for bag in rows["bag"]])


@pytest.mark.parametrize(("draw", "passes"), [("top", 3), ("scored", 0)])
def test_the_rows_are_what_the_memory_holds(made, draw, passes):
    facts, train = facts_of(made, draw), train_of(made, draw)
    last = torch.load(made[0] / draw / "checkpoints/last.pt", weights_only=True)["trainer"]
    assert len(facts.bags) == len(train) * len(last["members"])
    rows = iter(facts.bags)
    for scorer, member in enumerate(last["members"], start=1):
        values, at = member["sampler"]["draw"]["memory"]["values"].double().numpy(), 0
        for bag, (name, size, label) in enumerate(zip(train.ids, train.sizes, train.labels, strict=True)):
            row, z, at = next(rows), values[at : at + size], at + size
            assert (row["scorer"], row["bag"], row["label"], row["instances"]) == (scorer, name, label, size)
            weights = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            assert row["seen"] == np.isfinite(z).sum()
            assert row["effective"] == pytest.approx(1 / (weights**2).sum())
            assert 1 <= row["effective"] <= size + 1e-9
            highest = np.sort(weights)[::-1][:B].sum()
            assert 0 < row["drawn_weight"] <= highest + 1e-9
            if size <= B:
                assert row["drawn_weight"] == pytest.approx(1)
            assert row["uniform_weight"] == min(1, B / size)
            start = train.starts[bag]
            known = np.flatnonzero(train.witnesses[start : start + size]) if label else []
            assert row["witnesses"] == len(known)
            if len(known):
                best = z[known].max()
                rank = 1 + sum(z[j] >= best for j in range(size) if j not in known)
                assert row["witness_rank"] == (rank if best > -np.inf else None)
                assert 0 <= row["drawn_witness"] <= 1
            else:
                assert "witness_rank" not in row
    summary, positive = facts.summary, [row for row in facts.bags if row["label"] == 1]
    history = pd.read_csv(made[0] / draw / "metrics.csv").iloc[-1]
    assert (summary["draw"], summary["num_instances"], summary["epoch"]) == (draw, B, 5)
    assert summary["memory"]["passes"] == passes
    assert summary["memory"]["age"] == (history["memory_age"] if passes else None)
    assert summary["memory"]["drift"] == pytest.approx(history["memory_drift"], rel=1e-6)
    of = summary["classes"]["positive"]
    assert of["effective"] == np.median([row["effective"] for row in positive])
    assert of["seen"] == pytest.approx(np.mean([row["seen"] / row["instances"] for row in positive]))
    assert (of["seen"] == 1) == bool(passes)
    known = [row for row in positive if row["witnesses"]]
    found = summary["witnesses"]
    assert found["bags"] == len({row["bag"] for row in known}) < of["bags"]
    assert found["drawn"] == pytest.approx(np.mean([row["drawn_witness"] for row in known]))
    assert found["among_highest"] == pytest.approx(np.mean([(row["witness_rank"] or np.inf) <= B for row in known]))
    assert found["found"] == pytest.approx(history["found_witnesses"], rel=1e-6)
    assert found["uniform"] < found["uniform_found"] <= 1


def test_a_witness_stands_behind_others_of_its_score():
    marked = np.array([False, True, False, True])
    assert _rank(np.zeros(4), marked) == 3, "a memory that knows nothing has found nothing"
    assert _rank(np.array([0.0, 1.0, 0.5, 0.0]), marked) == 1
    assert _rank(np.array([0.0, -np.inf, 0.5, -np.inf]), marked) is None


def test_a_draw_is_that_of_the_last_epoch(made, monkeypatch):
    epochs = []
    monkeypatch.setattr(Top, "_contest", _noted(Top._contest, epochs))
    facts_of(made, "top")
    assert set(epochs) == {4}, "not of one that was never trained, where `until` ends mined draws"


def _noted(method, epochs):
    def note(self, *args):
        epochs.append(self._epoch)
        return method(self, *args)

    return note


def test_uniform_draws_take_one_line(made):
    facts, train = facts_of(made, "uniform"), train_of(made, "uniform")
    (line,) = draw_lines(facts.summary)
    held = np.minimum(B / train.sizes, 1)
    assert (
        f"draws: uniform, up to {B} instances of a bag, {100 * held.mean():.3g}% of a training bag on average" in line
    )
    assert "of the draws of positive bags hold a witness" in line
    assert facts.bags == []
    assert draws_section(facts, None).count("<p>") == 1
    bare = {**facts.summary, "witnesses": None}
    assert draw_lines(bare)[0].endswith("on average")


def test_the_words_hold_the_numbers(made):
    facts = facts_of(made, "top")
    lines, section = draw_lines(facts.summary), draws_section(facts, "draws.csv")
    found, of = facts.summary["witnesses"], facts.summary["classes"]["negative"]
    assert [line.partition(":")[0].partition(" ")[0] for line in lines] == [
        *("draws", "memory", "positive", "negative", "witnesses"),
    ]
    assert lines[1].startswith("memory: 3 passes over all bags, epochs since the last one: 0; the logits")
    for share in (found["drawn"], found["uniform"], found["among_highest"], found["found"], of["drawn_weight"]):
        assert f"{100 * share:.3g}%" in " ".join(lines)
        assert f"{100 * share:.3g}%" in section
    assert 'href="draws.csv"' in section
    table = pd.read_csv(pd.io.common.StringIO(draws_table(facts)))
    assert len(table) == len(facts.bags)
    assert table["witness_rank"].notna().sum() == sum(row["witnesses"] > 0 for row in facts.bags)
    assert table["uniform_witness"].notna().sum() == table["witness_rank"].notna().sum()
    json.dumps(facts.summary)
    never = draw_lines(facts_of(made, "scored").summary)[1]
    assert never == "memory: no pass over all bags; what the steps have drawn is remembered"


def test_bags_without_known_witnesses_or_labels(made):
    folder, data = made
    run = load_run(folder / "top")
    bags = read_for(run, str(data))
    plain = draw_facts(folder / "top", run, bags.replace(witnesses=None))
    assert plain.summary["witnesses"] is None
    assert "witness" not in draws_table(plain)
    assert "witness" not in " ".join(draw_lines(plain.summary))
    assert draws_section(plain, None).count("<tr>") == 6
    assert "itness" not in draws_section(plain, None)
    unlabeled = draw_facts(folder / "top", run, bags.replace(labels=None))
    assert list(unlabeled.summary["classes"]) == ["all"]
    assert "all bags" in " ".join(draw_lines(unlabeled.summary))
    assert draws_section(unlabeled, None)


def test_without_the_training_bags_only_the_rule_is_told(made, tmp_path):
    folder, data = made
    run = load_run(folder / "top")
    bags = read_for(run, str(data))
    train = np.flatnonzero([run.splits[bag] == "train" for bag in bags.ids])
    others = [bags.subset(train[1:]), Bags(bags.instances[::-1].copy(), sizes=bags.sizes, ids=bags.ids)]
    for other in others:
        assert draw_facts(folder / "top", run, other).summary["missing"] == "data"
    facts = draw_facts(folder / "top", run, bags.subset(train[::-1]))
    assert facts.bags == facts_of(made, "top").bags, "in the order of the run"
    (line,) = draw_lines(draw_facts(folder / "top", run, others[0]).summary)
    assert line == "draws: top, up to 4 instances of a bag; more is said where the training bags are known"
    shutil.copytree(folder / "top", tmp_path / "run")
    last = tmp_path / "run/checkpoints/last.pt"
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"last\.pt"):
        draw_facts(tmp_path / "run", run, bags)
    last.unlink()
    (line,) = draw_lines(draw_facts(tmp_path / "run", run, bags).summary)
    assert line.endswith("; more is said where the run has checkpoints/last.pt")


def test_whole_bags_are_said_to_be_whole(tmp_path, made):
    fit_run(str(made[1]), Settings(**HOW | {"estimator": "exact", "epochs": 1}), RunFolder(tmp_path / "run"))
    run = load_run(tmp_path / "run")
    facts = draw_facts(tmp_path / "run", run, read_for(run, str(made[1])))
    assert draw_lines(facts.summary) == ["draws: none, each step reads whole bags"]


def test_a_rule_without_a_memory_is_asked_for_its_draws(tmp_path, made):
    how = HOW | {"draw": "tests.contract.test_extensions.Doubled", "estimator": "minibatch", "epochs": 2}
    fit_run(str(made[1]), Settings(**how), RunFolder(tmp_path / "run"))
    assert {"drawn_witnesses", "found_witnesses"} <= set(pd.read_csv(tmp_path / "run/metrics.csv").columns)
    run = load_run(tmp_path / "run", trust=True)
    facts = draw_facts(tmp_path / "run", run, read_for(run, str(made[1])))
    assert facts.summary["memory"] is None
    assert 0 < facts.summary["witnesses"]["drawn"] < 1
    lines = draw_lines(facts.summary)
    assert "a uniform draw would hold" in lines[1]
    assert "highest remembered" not in lines[-1]
    assert "seen" not in draws_table(facts)
    assert draws_section(facts, "draws.csv").count("<tr>") == 5
