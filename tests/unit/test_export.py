"""A run that was exported scores bags as the run does: by the Python file, and in onnxruntime."""

import csv
import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open
from torch import nn

from midam import Bags, ExportError, MIDAMClassifier, MidamError, Settings, predict
from midam.errors import CheckpointError
from midam.evaluate.calibrate import BinaryDecision, PlattCalibrator
from midam.export import export_run
from midam.export.onnx import Chunk, Merge, Outer, _ndtri, _searchsorted
from midam.export.run import FORMATS, write_export
from midam.export.score_onnx import Model as OnnxModel
from midam.nn.ensemble import BagEnsemble, scorers_of
from midam.nn.pooling.maximum import MaxPooling
from midam.nn.pooling.rescaled import RescaledPooling
from midam.nn.scorer import BagScorer
from midam.registry import ENCODERS, POOLINGS
from midam.runs.loaded import LoadedRun
from midam.train.build import build_ensemble

pytestmark = pytest.mark.filterwarnings("ignore:the features have no names")

LONG = pytest.mark.long  # traced for a quarter of a minute
SIZES = [1, 7, 1000, 100_000]
FEATURES = ("area", "contrast", "length", "sparse")
SUMMARY = {
    "test": {"auroc": 0.9, "auroc_ci95": [0.7, 1.0], "auroc_method": "logit-delong", "bags": 30, "positives": 12},
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


def instances(count, shape, seed=0):
    """Instances of heavy tails, far from 0, the last feature mostly 0: what a standardizer has to deal with."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, size=(count, *shape)) * 3 + 100
    if len(shape) == 1:
        x[:, -1] = np.where(rng.random(count) < 0.6, 0.0, x[:, -1])
        return x
    return np.clip(x, 0, 255).astype(np.uint8)


def made(shape=(4,), *, calibrated=True, **settings):
    """A run with random weights, whose standardizers know the bags."""
    settings = Settings(**settings).resolve(shape)
    torch.manual_seed(1)
    model = build_ensemble(settings, instance_shape=shape)
    with torch.no_grad():
        for member in scorers_of(model):
            member.standardizer.fit(torch.from_numpy(instances(500, shape)))
            for value in member.parameters():
                value.add_(torch.randn_like(value), alpha=0.3)
            for name, value in member.named_buffers():
                if name.endswith("running_mean"):
                    value.add_(torch.rand_like(value))
    calibrator = PlattCalibrator().fit([0.1, 0.3, 0.6, 0.9], [0, 1, 0, 1]) if calibrated else None
    names = list(FEATURES) if shape == (4,) else None
    data = {"source": "/home/anna/bags.csv", "place": "/home/anna/bags.csv", "fingerprint": "f" * 64, "cut": None}
    data |= {"instance_shape": list(shape), "feature_names": names}
    decision = None if calibrator is None else BinaryDecision(calibrator, 0.5)
    return LoadedRun(model.eval(), settings, decision, {"secret-bag": "test"}, {}, {"anna"}, data)


def bags_of(shape, sizes):
    return Bags.from_list([instances(size, shape, seed=size) for size in sizes])


def python_scores(folder, bags, **how):
    """Scores by score_bags.py, run as the file that it is."""
    model = runpy.run_path(str(folder / "score_bags.py"))["Model"](folder)
    return [model.score(torch.from_numpy(np.array(bags[i])), **how) for i in range(len(bags))]


def onnx_scores(folder, bags, **how):
    model = OnnxModel(folder)
    return [model.score(np.array(bags[i]), **how) for i in range(len(bags))]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run and all of its export; tracing takes seconds."""
    folder = tmp_path_factory.mktemp("export")
    run = made(members=1, scaling="linear")
    assert write_export(run, SUMMARY, folder, license="mit") == list(FORMATS)
    return run, folder


@pytest.mark.parametrize("objective", ["minmax-auc", "bce"])
@pytest.mark.parametrize("pooling", POOLINGS.names())
def test_the_python_file_scores_as_the_run(tmp_path, pooling, objective):
    run = made(pooling=pooling, objective=objective, members=2, hidden=(6, 5))
    assert write_export(run, SUMMARY, tmp_path, formats=["python"]) == ["python"]
    bags = bags_of((4,), SIZES)
    wanted = predict(run.model, bags)
    assert np.ptp(wanted) > 0
    found = python_scores(tmp_path, bags)
    np.testing.assert_allclose([score.score for score in found], wanted, atol=1e-6)
    np.testing.assert_allclose([score.probability for score in found], run.calibrator.predict(wanted), atol=1e-5)
    assert [score.positive for score in found] == (wanted >= 0.5).tolist()


@pytest.mark.parametrize("pooling", POOLINGS.names())
def test_the_functions_that_onnx_holds_score_as_the_run(pooling):
    run = made(pooling=pooling, members=2, hidden=(6, 5))
    members = scorers_of(run.model)
    chunk, merge = Chunk(members), Merge(largest=pooling == "max")
    outer = Outer(members, {"calibration": run.calibrator.to_dict()})
    bags = bags_of((4,), SIZES)
    found = []
    with torch.no_grad():
        for i in range(len(bags)):
            parts = [chunk(x)[2:] for x in torch.from_numpy(bags[i]).split(4096)]
            found.append(outer(*reduce(lambda a, b: merge(*a, *b), parts)))
    wanted = predict(run.model, bags)
    np.testing.assert_allclose([float(score) for score, _, _ in found], wanted, atol=1e-6)
    np.testing.assert_allclose([float(chance) for _, _, chance in found], run.calibrator.predict(wanted), atol=1e-6)


# Traced in seconds each: one of either statistic, one with a network as outer function; `make test-exports` has all.
@pytest.mark.parametrize(
    "pooling", ["attention", *(pytest.param(name, marks=LONG) for name in ("max", "embedding-attention"))]
)
def test_onnx_scores_as_the_run(tmp_path, pooling):
    run = made(pooling=pooling, members=1, scaling="linear")
    assert write_export(run, SUMMARY, tmp_path, formats=["onnx"]) == ["onnx"]
    bags = bags_of((4,), SIZES)
    wanted = predict(run.model, bags)
    found = onnx_scores(tmp_path, bags)
    np.testing.assert_allclose([score.score for score in found], wanted, atol=1e-5)
    np.testing.assert_allclose([score.probability for score in found], run.calibrator.predict(wanted), atol=1e-5)


SETTINGS = [
    {"pooling": "smoothed-max", "pooling_args": {"learn_temperature": True}, "scaling": "linear"},
    {"freeze": ("layers.0",), "members": 2},
    {"pooling": "generalized-mean", "pooling_args": {"learn_exponent": True, "exponent": 2.5}},
    {"pooling": "attention", "pooling_args": {"gated": True, "hidden": 3}},
    {"pooling": "embedding-attention", "pooling_args": {"head_hidden": 0}, "objective": "pairwise"},
    {"pooling": "noisy-and", "pooling_args": {"slope": 4.0}, "dropout": 0.2, "hidden": (6, 5)},
    {"scaling": "blend"},
    {"scaling": "linear", "clip": 2.0},
    {"standardize": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_settings_change_is_in_the_python_file(tmp_path, settings):
    run = made(**settings)
    write_export(run, SUMMARY, tmp_path, formats=["python"])
    bags = bags_of((4,), [1, 7, 1000])
    found = [score.score for score in python_scores(tmp_path, bags, chunk_size=64)]
    np.testing.assert_allclose(found, predict(run.model, bags), atol=1e-6)


@pytest.mark.long
def test_ranks_frozen_parts_and_several_members_are_in_onnx(tmp_path):
    run = made(freeze=("layers.0",), members=2, pooling="smoothed-max", pooling_args={"learn_temperature": True})
    write_export(run, SUMMARY, tmp_path, formats=["onnx"])
    bags = bags_of((4,), [1, 7, 1000])
    found = [score.score for score in onnx_scores(tmp_path, bags, chunk_size=64)]
    np.testing.assert_allclose(found, predict(run.model, bags), atol=1e-5)


@pytest.mark.parametrize(("shape", "norm"), [((3, 8, 12), "group"), ((1, 6, 8, 8), "batch")])
@pytest.mark.long
def test_images_and_volumes(tmp_path, shape, norm):
    run = made(shape, norm=norm, pooling="max")
    assert write_export(run, SUMMARY, tmp_path) == list(FORMATS)
    bags = bags_of(shape, [1, 7, 40])
    wanted = predict(run.model, bags)
    np.testing.assert_allclose(
        [score.score for score in python_scores(tmp_path, bags, chunk_size=8)], wanted, atol=1e-5
    )
    np.testing.assert_allclose([score.score for score in onnx_scores(tmp_path, bags, chunk_size=8)], wanted, atol=1e-5)


def test_float32_features_are_taken_too(exported):
    run, folder = exported
    bags = Bags.from_list([instances(size, (4,), seed=size).astype(np.float32) for size in SIZES[:3]])
    wanted = predict(run.model, bags)
    for found in (python_scores(folder, bags), onnx_scores(folder, bags)):
        np.testing.assert_allclose([score.score for score in found], wanted, atol=1e-5)


def test_a_bag_may_come_in_parts(exported):
    _, folder = exported
    x = instances(1000, (4,))
    parts = [x[:1], x[1:500], x[500:]]
    onnx_model = runpy.run_path(str(folder / "score_onnx.py"))["Model"](folder)
    for score, convert in ((python_model(folder).score, torch.from_numpy), (onnx_model.score, np.array)):
        assert score(convert(part) for part in parts).score == pytest.approx(score(convert(x)).score, abs=1e-6)


def python_model(folder):
    return runpy.run_path(str(folder / "score_bags.py"))["Model"](folder)


@pytest.mark.parametrize(
    ("shape", "imputed", "words"),
    [
        ((4,), {"how": "zero", "values": [0.0] * 4, "missing": 1}, "is filled with 0."),
        ((1, 2, 3), {"how": "mean", "values": [[[1, 2, 3], [4, 5, 6.5]]], "missing": 1}, "the mean of the feature"),
    ],
)
def test_missing_values_of_any_shape_are_filled(tmp_path, shape, imputed, words):
    run = made(shape, members=1, encoder="mlp")
    run.data["imputed"] = imputed
    write_export(run, SUMMARY, tmp_path, formats=["python"])
    gaps = np.random.default_rng(0).normal(size=(50, *shape))
    gaps.ravel()[::3] = np.nan
    filled = Bags.from_list([np.where(np.isnan(gaps), imputed["values"], gaps)])
    found = python_model(tmp_path).score(torch.from_numpy(gaps)).score
    assert found == pytest.approx(predict(run.model, filled)[0], abs=1e-6)
    assert words in (tmp_path / "README.md").read_text()
    with pytest.raises(ValueError, match="Expected finite numbers"):
        python_model(tmp_path).score(torch.full((2, *shape), torch.inf))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_onnx_refuses_what_is_no_number(exported, value):
    bag = instances(7, (4,))
    bag[3, 1] = value
    with pytest.raises(ValueError, match="Expected finite numbers, got others"):
        OnnxModel(exported[1]).score(bag)


@pytest.mark.parametrize("bag", [torch.zeros(3, 5), torch.full((2, 4), float("nan")), torch.zeros(0, 4)])
def test_the_python_file_refuses_what_is_no_bag(tmp_path, bag):
    write_export(made(members=1), SUMMARY, tmp_path, formats=["python"])
    with pytest.raises(ValueError, match="Expected"):
        python_model(tmp_path).score(bag)


def test_an_uncalibrated_run_has_no_probability(tmp_path):
    run = made(members=2, calibrated=False)
    write_export(run, SUMMARY, tmp_path, formats=["python"])
    assert python_scores(tmp_path, bags_of((4,), [7]))[0][1:] == (None, None)
    assert (
        len(Outer(scorers_of(run.model), {"calibration": None})(torch.ones(()), torch.zeros(2), torch.zeros(2, 1))) == 2
    )
    assert "not calibrated" in (tmp_path / "README.md").read_text()


@pytest.mark.long
def test_an_encoder_of_others_goes_out_as_onnx_and_weights(tmp_path, monkeypatch):
    monkeypatch.setitem(ENCODERS._added, "linear-layer", nn.Linear)
    run = made(members=1, encoder="linear-layer", encoder_args={"out_features": 3}, scaling="linear")
    with pytest.warns(UserWarning, match="without python: Expected an encoder of midam for score_bags.py"):
        assert write_export(run, SUMMARY, tmp_path) == ["safetensors", "onnx"]
    bags = bags_of((4,), [1, 7, 1000])
    np.testing.assert_allclose(
        [found.score for found in onnx_scores(tmp_path, bags)], predict(run.model, bags), atol=1e-5
    )
    assert not (tmp_path / "score_bags.py").exists()
    with pytest.raises(ExportError, match=r"got the encoder 'linear-layer'; export ONNX"):
        write_export(run, SUMMARY, tmp_path / "python", formats=["python"])


@pytest.mark.parametrize("kind", ["weighted", "mixed", "rescaled"])
def test_models_of_several_kinds_go_out_as_weights_alone(tmp_path, kind):
    run = made(members=2)
    first, last = scorers_of(run.model)
    if kind == "mixed":
        last = BagScorer(last.encoder, MaxPooling(last.pooling.in_features), standardizer=last.standardizer)
    if kind == "rescaled":
        first, last = (
            BagScorer(x.encoder, RescaledPooling(x.pooling), standardizer=x.standardizer) for x in (first, last)
        )
    model = BagEnsemble([first, last], [0.3, 0.7] if kind == "weighted" else None)
    run = replace(run, model=model)
    for name in ("onnx", "python"):
        with pytest.raises(ExportError, match=r"Expected scorers of one kind for .* several models"):
            write_export(run, SUMMARY, tmp_path / name, formats=[name])
    assert write_export(run, SUMMARY, tmp_path, formats=["safetensors"]) == ["safetensors"]
    architecture = json.loads((tmp_path / "config.json").read_text())["architecture"]
    assert architecture["poolings"] == ["attention", "max" if kind == "mixed" else "attention"]


def test_an_encoder_that_cannot_be_traced_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(ENCODERS._added, "branching", Branching)
    run = made(members=1, encoder="branching")
    with pytest.raises(ExportError, match=r"Expected a model that torch.onnx can trace, got .*; write the encoder"):
        write_export(run, SUMMARY, tmp_path, formats=["onnx"])
    assert not (tmp_path / "onnx").exists()


def test_the_card_says_what_a_user_must_know_and_no_secret(exported):
    _, folder = exported
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    front = yaml.safe_load(head)
    assert (front["license"], front["library_name"], front["tags"][0]) == ("mit", "midam", "midam")
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0] == {"type": "roc_auc", "name": "AUROC", "value": 0.9}
    assert result["dataset"] == {"name": "bags.csv", "type": "bags.csv", "split": "test"}
    heads = ["Intended use", "Out-of-scope use", "How to use it", "Results", "Data", "Training", "Limitations"]
    assert [body.index(f"## {title}") for title in heads] == sorted(body.index(f"## {title}") for title in heads)
    assert "0.900 (0.700 to 1.000)" in body
    assert "f" * 64 in body
    assert "12 bags of the rarer class" in body
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
    summary = {**SUMMARY, "version": HOSTILE, "deployed": {"note": HOSTILE}}
    for name in ("train", "test"):
        summary[name] = {**SUMMARY["test"], "warnings": [HOSTILE], "auroc_method": HOSTILE}
    for left_out in ((), ("deployed",)):
        told = {name: value for name, value in summary.items() if name not in left_out}
        write_export(replace(run, data=data), told, tmp_path, formats=["safetensors"])
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
    assert "onnx" not in config
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "model.safetensors")
    assert {name: value.tolist() for name, value in weights.items()} == {
        name: value.tolist() for name, value in run.model.state_dict().items()
    }


ALONE = """
import sys, runpy
for name in ("midam", "numpy", "safetensors", "pandas", "lightning_fabric", "yaml"):
    sys.modules[name] = None
sys.argv = ["score_bags.py", *sys.argv[2:]]
runpy.run_path("score_bags.py", run_name="__main__")
"""


@pytest.mark.parametrize(("separator", "point"), [(",", "."), (";", ",")])
def test_the_python_file_scores_tables_with_torch_alone(tmp_path, separator, point):
    run = made(members=2)
    write_export(run, SUMMARY, tmp_path / "out", formats=["python"])
    bags = bags_of((4,), [1, 7, 300])
    rows = [(f"b{i}", *(str(value).replace(".", point) for value in x)) for i in range(3) for x in bags[i]]
    np.random.default_rng(0).shuffle(rows)  # the rows of a bag need not stand together, the columns in no order
    with (tmp_path / "bags.csv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow([*reversed(FEATURES), "label", "bag"])
        writer.writerows([*reversed(row[1:]), "unknown", row[0]] for row in rows)
    torch.save(torch.from_numpy(bags[1]), tmp_path / "one.pt")
    command = [sys.executable, "-c", ALONE, "-", "../bags.csv", "../one.pt", "--chunk-size", "50"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {row["bag"]: float(row["score"]) for row in csv.DictReader(done.stdout.splitlines())}
    wanted = predict(run.model, bags)
    assert found == pytest.approx(dict(zip(("b0", "b1", "b2", "one"), [*wanted, wanted[1]])), abs=1e-6)


def test_a_bad_table_is_one_message(tmp_path):
    write_export(made(members=1), SUMMARY, tmp_path, formats=["python"])
    (tmp_path / "bags.csv").write_text("bag,area\nb,1\n")
    command = [sys.executable, "score_bags.py", "bags.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("score_bags: error: Expected the columns contrast, length, sparse")
    assert "Traceback" not in done.stderr


def test_a_place_that_is_taken_and_runs_that_are_none_are_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / "config.yaml").write_text("data: digits\n")
    with pytest.raises(CheckpointError, match=r"got one that was stopped .* finish it with `midam fit --resume"):
        export_run(tmp_path / "stopped", tmp_path / "new")
    with pytest.raises(CheckpointError, match=r"Expected a run folder with summary\.json"):
        export_run(tmp_path, tmp_path / "new")
    with pytest.raises(ExportError, match="did you mean 'onnx'"):
        export_run(tmp_path, tmp_path / "new", formats=["onx"])
    assert not (tmp_path / "new").exists()
    assert issubclass(ExportError, MidamError)


def test_a_saved_classifier_is_exported_with_a_card_without_results(tmp_path):
    bags = Bags.from_list([instances(5, (4,), seed=seed) + 30 * (seed % 2) for seed in range(30)])
    model = MIDAMClassifier(epochs=5, members=2, num_instances=2).fit(bags, [0, 1] * 15)
    model.save(tmp_path / "run")
    assert export_run(tmp_path / "run", tmp_path / "out", formats=["python"]) == ["python"]
    found = [score.score for score in python_scores(tmp_path / "out", bags)]
    np.testing.assert_allclose(found, model.bag_scores(bags), atol=1e-6)
    text = (tmp_path / "out" / "README.md").read_text()
    assert "nothing is stated of how well it ranks" in text
    assert "30 bags" in text
    assert "## Results" not in text
    assert "model-index" not in text


def test_the_operations_that_onnx_lacks_are_made_of_others():
    p = torch.linspace(1e-9, 1 - 1e-9, 10_001, dtype=torch.float64)
    torch.testing.assert_close(_ndtri(p), torch.special.ndtri(p), rtol=1e-12, atol=1e-12)
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
        write_export(run, SUMMARY, tmp_path / str(number), formats=["safetensors", "python"])
        files = sorted((tmp_path / str(number)).iterdir())
        exports.add(tuple((file.name, file.read_bytes()) for file in files))
    assert len(exports) == 1
    with safe_open(tmp_path / "0" / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["imputed"]) == imputed


@LONG
def test_equal_calls_write_equal_onnx_files(exported, tmp_path):
    run, folder = exported
    write_export(run, SUMMARY, tmp_path, license="mit")
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    assert len(files) == 8
    assert [name for name in files if (tmp_path / name).read_bytes() != (folder / name).read_bytes()] == []
