"""Exports of runs: what the folder holds and refuses; `tests/integration/test_export_command.py` scores with it."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from midam import Bags, MIDAMClassifier, MidamError, Settings, predict
from midam.errors import CheckpointError, ExportError
from midam.export import export_run
from midam.export.programs import _ndtri, _searchsorted, trace
from midam.export.reader import Model
from midam.export.run import describe, write_export
from midam.nn.pooling.maximum import MaxPooling
from midam.nn.pooling.summary import FeatureSummary, Linear, Widened
from midam.nn.scorer import BagEnsemble, BagScorer, scorers_of
from midam.registry import ENCODERS, POOLINGS
from midam.runs.loaded import LoadedRun
from midam.targets import target_named
from midam.train.build import build_ensemble

pytestmark = [pytest.mark.traced, pytest.mark.filterwarnings("ignore:the features have no names")]

SIZES = [1, 7, 1000, 100_000]
NAMES = {
    "binary": (),
    "multiclass": ("bone", "lung", "skin"),
    "multilabel": ("fat", "blood", "rare"),
    "ordinal": ("low", "mid", "high"),
    "continuous": ("age",),
    "survival": ("time", "event"),
}
FEATURES = ("area", "contrast", "length", "sparse")
SUMMARY = {
    "test": {
        "auroc": 0.9,
        "auroc_ci95": [0.7, 1.0],
        "auroc_method": "logit-delong",
        "bags": 30,
        "positives": 12,
        "warnings": ["Fewer than 20 bags in a class"],
    },
    "selected": {"weights": "last", "epoch": 3},
    "method": {"pooling": "attention", "estimator": "vrsp", "objective": "minmax-auc"},
    "members": 2,
    "data": {"name": "/home/anna/bags.csv", "bags": 50, "instances": 900},
    "epochs": 3,
    "seconds": {"training": 0.5, "total": 1.0},
    "version": "0.1.0",
}


class Branching(nn.Module):
    """An encoder that looks at its numbers, which no trace can follow."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


class Decided:
    """A decision of another package."""

    def __init__(self, other):
        self.predict, self.to_dict, self.thresholds = other.predict, other.to_dict, None
        self.calibrator, self.threshold, self.call = other.calibrator, other.threshold, other.call


def instances(count, shape, seed=0):
    """Instances of heavy tails, far from 0, the last feature mostly 0: what a standardizer has to deal with."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, size=(count, *shape)) * 3 + 100
    if len(shape) == 1:
        x[:, -1] = np.where(rng.random(count) < 0.6, 0.0, x[:, -1])
        return x
    return np.clip(x, 0, 255).astype(np.uint8)


def labels_of(target, scores, rng):
    """Labels of validation bags that their scores [N, C] rank, if not without fault."""
    ranks = scores.argsort(axis=0).argsort(axis=0) + rng.normal(scale=8, size=scores.shape)
    return {
        "binary": ranks[:, 0] > 20,
        "multiclass": ranks.argmax(axis=1)[:, None],
        "multilabel": np.where(np.arange(scores.shape[1]) < 2, ranks > 20, 0),
        "ordinal": np.digitize(ranks, [13, 26]),
        "continuous": ranks,
        "survival": np.stack([50 - ranks[:, 0].clip(max=49), rng.integers(0, 2, len(ranks))], axis=1),
    }[target].astype(float)


def made(shape=(4,), *, target="binary", decided=True, **settings):
    """A run with random weights, whose standardizers know the bags and whose decision was fitted on its scores."""
    outcome = {"target": target, "names": list(NAMES[target])}
    known, settings = target_named(None if target == "binary" else outcome), Settings(**settings).resolve(shape)
    torch.manual_seed(1)
    model = build_ensemble(settings, instance_shape=shape, columns=known.count)
    with torch.no_grad():
        for member in scorers_of(model):
            if member.standardizer is not None:
                member.standardizer.fit(torch.from_numpy(instances(500, shape)))
            for value in member.parameters():
                value.add_(torch.randn_like(value), alpha=0.3)
            for name, value in member.named_buffers():
                if name.endswith("running_mean"):
                    value.add_(torch.rand_like(value))
    names = list(FEATURES) if shape == (4,) else None
    data = {"source": "/home/anna/bags.csv", "place": "/home/anna/bags.csv", "fingerprint": "f" * 64, "cut": None}
    data |= {"instance_shape": list(shape), "feature_names": names}
    data |= {} if target == "binary" else {"outcome": outcome}
    decision = None
    if decided:
        scores = predict(model.eval(), Bags.from_list([instances(3, shape, seed=seed) for seed in range(40)]))
        values = labels_of(target, scores.reshape(40, -1), np.random.default_rng(1))
        decision = known.decide(values, scores)
    return LoadedRun(model.eval(), settings, decision, {"secret-bag": "test"}, {}, {"anna"}, data)


def bags_of(shape, sizes):
    return Bags.from_list([instances(size, shape, seed=size) for size in sizes])


def mixed():
    """A run of two members, with attention and with the maximum."""
    run = made(members=2, scaling="linear")
    first, last = scorers_of(run.model)
    last = BagScorer(last.encoder, MaxPooling(last.pooling.in_features), standardizer=last.standardizer)
    return replace(run, model=BagEnsemble([first, last]))


@pytest.fixture(scope="module")
def exported(mixed_export):
    return mixed_export


@pytest.mark.parametrize("pooling", POOLINGS.names())
@pytest.mark.parametrize("target", ["binary", "multiclass"])
def test_the_modules_of_the_programs_score_as_the_run(pooling, target):
    run = made(pooling=pooling, target=target, members=2, hidden=(6, 5))
    chunk, merge, score = modules(run)
    bags, found = bags_of((4,), SIZES[:3]), []
    with torch.no_grad():
        for i in range(len(bags)):
            found.append(score(reduce(merge, map(chunk, torch.from_numpy(bags[i]).split(64)))).numpy())
    wanted, count = predict(run.model, bags), run.target.count
    np.testing.assert_allclose(np.stack(found)[:, :count], wanted.reshape(3, -1), rtol=0, atol=1e-6)
    assert np.ptp(wanted) > 0


def modules(run):
    """The three modules, untraced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.export.export", lambda module, *_, **__: module.eval())
        return trace(run, describe(run)).values()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["torch", "onnx"])
def test_the_reader_refuses_what_is_no_bag(exported, value, form):
    bag, model = instances(7, (4,)), Model(exported[1], form=form)
    bag[3, 1] = value
    with pytest.raises(ValueError, match="Expected finite numbers, got others"):
        model.score(bag)
    with pytest.raises(ValueError, match=r"Expected instances of shape \[4\], got \[5\]"):
        model.score(np.zeros((3, 5)))
    for empty in (np.zeros((0, 4)), [], [np.zeros((0, 4))]):
        with pytest.raises(ValueError, match="got an empty bag"):
            model.score(empty)


def test_the_reader_refuses_programs_of_others(exported, tmp_path):
    shutil.copytree(exported[1], tmp_path / "out")
    (tmp_path / "out" / "score.pt2").write_bytes(b"code")
    with pytest.raises(ValueError, match=r"Expected score\.pt2 as it was exported"):
        Model(tmp_path / "out", form="torch")


def test_programs_that_score_differently_are_not_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("midam.export.programs.TOLERANCES", {"torch": -1.0})
    with pytest.raises(ExportError, match="Expected torch scores within -1 of the run's"):
        write_export(made(members=1, scaling="linear"), SUMMARY, tmp_path, formats=["torch"])
    assert not list(tmp_path.glob("*.pt2"))


@pytest.mark.parametrize("part", ["pooling", "decision"])
def test_what_no_program_holds_is_refused_by_name(tmp_path, part):
    run = made(members=1)
    if part == "pooling":
        run = replace(run, model=BagEnsemble([BagScorer(Widened(), FeatureSummary(4, Linear))]), method="trees")
    else:
        run = replace(run, decision=Decided(run.decision))
    with pytest.warns(UserWarning, match=f"Expected poolings .* got '{'summary' * (part == 'pooling')}"):
        assert write_export(run, SUMMARY, tmp_path) == ["safetensors"]
    with pytest.raises(ExportError, match="Expected poolings by the log-weighted mean or the maximum and a decision"):
        write_export(run, SUMMARY, tmp_path / "torch", formats=["torch"])
    assert not (tmp_path / "reader.py").exists()


def test_an_encoder_that_cannot_be_traced_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(ENCODERS._added, "branching", Branching)
    run = made(members=1, encoder="branching")
    for form in ("torch", "onnx"):
        with pytest.raises(ExportError, match=r"Expected a model that torch can trace, got .*; write the encoder"):
            write_export(run, SUMMARY, tmp_path, formats=[form])
    assert not list(tmp_path.iterdir())


def test_the_card_says_what_a_user_must_know_and_no_secret(exported):
    _, folder = exported
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    front = yaml.safe_load(head)
    assert (front["library_name"], front["tags"][0]) == ("midam", "midam")
    heads = ["Intended use", "Out-of-scope use", "How to use it", "Results", "Data", "Training", "Limitations"]
    assert [body.index(f"## {title}") for title in heads] == sorted(body.index(f"## {title}") for title in heads)
    assert "0.900 (0.700 to 1.000)" in body
    assert "f" * 64 in body
    assert "- Of the test bags: Fewer than 20 bags in a class" in body
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [word for word in (b"secret-bag", b"/home/anna", b"anna", b"test_export") if word in content], (
                file
            )


HOSTILE = "x<script>alert(1)</script>`![a](javascript:b)|**c**\r\n# d"


def test_nothing_in_a_card_is_run_or_marks_it_up(tmp_path):
    run = made(members=1)
    data = {**run.data, "source": HOSTILE, "classes": [HOSTILE, "b"], "feature_names": [HOSTILE, *FEATURES[1:]]}
    data["cut"] = {HOSTILE: HOSTILE}
    summary = {**SUMMARY, "version": HOSTILE}
    for name in ("train", "test"):
        summary[name] = {**SUMMARY["test"], "warnings": [HOSTILE], "auroc_method": HOSTILE}
    write_export(replace(run, data=data), summary, tmp_path, formats=["safetensors"])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    assert "<" not in text
    assert isinstance(yaml.safe_load(head), dict)
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", body, flags=re.DOTALL)
    assert "alert(1)" in outside
    assert not re.search(r"(?<!\\)\]\(|(?<!\\)!\[|(?<!\\)\*\*c", outside)
    assert [line for line in body.splitlines() if line.startswith("# ")] == [body.strip().splitlines()[0]]
    assert "javascript:b)|" not in body


def test_the_card_of_a_chosen_model_says_what_it_is_the_mean_of(tmp_path):
    run = made(members=3)
    shares = {"bag-statistics-extratrees": 0.75, "midam": 0.25, "bag-statistics-logistic": 0.0}
    rows = [{"method": name, "weight": weight, "auroc": 0.8, "note": None} for name, weight in shares.items()]
    chosen = {"tried": rows, "auroc": 0.85, "folds": 5, "note": "Chosen by inner folds."}
    summary = {**SUMMARY, "members": 3, "auto": chosen}
    write_export(replace(run, method="auto"), summary, tmp_path, formats=["safetensors"])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "The score is a weighted mean of 2 methods (3 scorers)." in text
    assert "weights of `bag-statistics-extratrees` 0.75, `midam` 0.25\n" in text
    assert "- Chosen by inner folds.\n" in text
    assert "Dixian Zhu" in text, "midam is a part of it"
    assert "Attention may rest on the absence of something" in text
    rows[0]["weight"], rows[1]["weight"] = 1.0, 0.0
    write_export(replace(run, method="auto"), {**summary, "members": 1}, tmp_path, formats=["safetensors"])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "The score is" not in text
    assert "Dixian Zhu" not in text


def test_runs_that_fill_missing_values_differently_have_different_digests():
    digests = []
    for values in (None, [0.0] * 4, [0.5] * 4):
        run = made(members=1)
        run.data["imputed"] = values and {"how": "mean", "values": values, "missing": 1}
        digests.append(run.digest())
    assert len(set(digests)) == 3
    assert digests[0] == made(members=1).digest()


def test_the_config_holds_what_the_weights_do_not(tmp_path):
    run = made(members=1, labels="/home/anna/labels.csv")
    write_export(run, SUMMARY, tmp_path, formats=["safetensors"])
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["digest"] == run.digest()
    assert config["settings"]["labels"] == "labels.csv"
    assert config["programs"] == {}
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "model.safetensors")
    assert {name: value.tolist() for name, value in weights.items()} == {
        name: value.tolist() for name, value in run.model.state_dict().items()
    }


def test_a_place_that_is_taken_and_runs_that_are_none_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "config.yaml").write_text("data: digits\n")
    with pytest.raises(CheckpointError, match=r"if it was stopped, finish it with `midam fit --resume"):
        export_run(tmp_path / "stopped", tmp_path / "new")
    with pytest.raises(CheckpointError, match=r"Expected a run folder with summary\.json"):
        export_run(tmp_path, tmp_path / "new")
    with pytest.raises(ExportError, match="did you mean 'onnx'"):
        export_run(tmp_path, tmp_path / "new", formats=["onx"])
    assert not (tmp_path / "new").exists()
    assert issubclass(ExportError, MidamError)


def test_a_folder_of_the_user_beside_an_export_is_kept(tmp_path):
    bags = Bags.from_list([instances(3, (2,), seed=seed) + 30 * (seed % 2) for seed in range(30)])
    MIDAMClassifier(epochs=1, members=1).fit(bags, [0, 1] * 15).save(tmp_path / "run")
    (tmp_path / "out.part").mkdir()
    (tmp_path / "out.part" / "notes.txt").write_text("mine")
    assert export_run(tmp_path / "run", tmp_path / "out", formats=["safetensors"]) == ["safetensors"]
    assert (tmp_path / "out.part" / "notes.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out", "out.part"}


@pytest.mark.long
def test_a_saved_classifier_is_exported_with_a_card_without_results(tmp_path):
    bags = Bags.from_list([instances(5, (4,), seed=seed) + 30 * (seed % 2) for seed in range(30)])
    model = MIDAMClassifier(epochs=5, members=2, num_instances=2).fit(bags, [0, 1] * 15)
    model.save(tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out", formats=["torch"]) == ["torch"]
    found = [Model(tmp_path / "out").score(bags[i])["score"] for i in range(len(bags))]
    np.testing.assert_allclose(found, model.bag_scores(bags), atol=1e-6)
    text = (tmp_path / "out" / "README.md").read_text()
    assert "nothing is stated of how well it ranks" in text
    assert "30 bags" in text
    assert "## Results" not in text


def test_the_operations_that_onnx_lacks_are_made_of_others():
    p = torch.linspace(1e-9, 1 - 1e-9, 10_001, dtype=torch.float64)
    torch.testing.assert_close(_ndtri(p), torch.special.ndtri(p), rtol=1e-6, atol=1e-6)  # seven digits
    assert _ndtri(torch.tensor([0.0, 1.0]).double()).abs().min() > 6
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 200, 256):
        knots = torch.from_numpy(rng.integers(0, 20, (3, count)).astype(np.float32)).sort(dim=1).values
        x = torch.from_numpy(rng.integers(-2, 24, (3, 500)).astype(np.float32))
        for right in (False, True):
            assert torch.equal(_searchsorted(knots, x, right=right), torch.searchsorted(knots, x, right=right))


def test_a_card_shows_control_characters(tmp_path):
    run = made(members=1)
    data = {**run.data, "source": "a\x1b[2J", "classes": ["a\u202e", "b\x1b]0;t\x07"]}
    write_export(replace(run, data=data), SUMMARY, tmp_path, formats=["safetensors"])
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert r"b\x1b]0;t\x07" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_equal_calls_write_equal_bytes(tmp_path):
    imputed = {"how": "mean", "values": [0.5, 1.0, 2.0, 3.0]}
    run = made(members=1)
    run = replace(run, data={**run.data, "imputed": imputed})
    exports = set()
    for number in range(8):
        write_export(run, SUMMARY, tmp_path / str(number), formats=["safetensors"])
        files = sorted((tmp_path / str(number)).iterdir())
        exports.add(tuple((file.name, file.read_bytes()) for file in files))
    assert len(exports) == 1
    assert json.loads((tmp_path / "0" / "config.json").read_text())["data"]["imputed"] == imputed


AGAIN = """
import sys
from pathlib import Path
from tests.unit.test_export import SUMMARY, mixed, write_export
write_export(mixed(), SUMMARY, Path(sys.argv[1]))
"""


@pytest.mark.long
def test_another_process_writes_equal_programs(exported, tmp_path):
    folder = exported[1]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", AGAIN, str(tmp_path)], env=environment, check=True)
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) == 10
    assert [name for name in files if (tmp_path / name).read_bytes() != (folder / name).read_bytes()] == []
