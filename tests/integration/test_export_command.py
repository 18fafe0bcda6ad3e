"""`midam export`: a folder scores bags as `midam predict` does, in processes that cannot import midam."""

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from tests.integration.commands import table
from tests.unit.test_export import NAMES, bags_of, made

from midam import Bags, predict
from midam.cli import main
from midam.export.run import write_export
from midam.nn.pooling.base import RescaledPooling
from midam.nn.scorer import BagEnsemble, BagScorer, scorers_of
from midam.registry import ENCODERS, POOLINGS

pytestmark = [
    pytest.mark.traced,
    pytest.mark.filterwarnings(
        "ignore:the features have no names", "ignore:Expected scores that", "ignore:.*missing values are filled"
    ),
]

# The folder of each case holds an export and bags.npz; the scores are written next to them.
ALONE = """
import json, runpy, sys
from pathlib import Path
import numpy as np
form, *folders = sys.argv[1:]
for name in ("midam", "safetensors", "pandas", "lightning_fabric", "yaml"):
    sys.modules[name] = None
sys.modules["onnxruntime" if form == "torch" else "torch"] = None
for folder in map(Path, folders):
    model = runpy.run_path(str(folder / "reader.py"))["Model"](folder, form=form)
    bags, rows = np.load(folder / "bags.npz"), {}
    for name in bags:
        x = bags[name]
        empty = [x[:0], x[:2], x[:0], x[2:5], x[5:], x[:0]]
        rows[name] = [model.score(x, chunk_size=4), model.score(x), model.score(iter(empty), chunk_size=64)]
    (folder / f"{form}.json").write_text(json.dumps(rows))
assert not [name for name in sys.modules if name.startswith("midam.")]
"""
FAST = {"scaling": "linear"}
CASES = {
    **{name: {"pooling": name, "members": 2, "hidden": (6, 5), **FAST} for name in POOLINGS.names()},
    **{target: {"target": target, "members": 1, **FAST} for target in NAMES if target != "binary"},
    "undecided": {"target": "multilabel", "decided": False, "members": 1, **FAST},
    "a column a branch": {"target": "multiclass", "attention": "per-class", "pooling": "embedding-attention", **FAST},
    "ranks": {"scaling": "blend", "members": 2},
    "clipped": {"clip": 2.0, "members": 1, **FAST},
    "not standardized": {"standardize": False, "members": 1},
    "frozen": {"freeze": ("layers.0",), "members": 1, **FAST},
    "learned": {"pooling": "smoothed-max", "pooling_args": {"learn_temperature": True}, "members": 1, **FAST},
    "raw": {"pooling": "max", "objective": "bce", "members": 1, **FAST},
    "image": {"shape": (3, 8, 12), "norm": "group", "pooling": "max", "members": 1},
    "volume": {"shape": (1, 6, 8, 8), "norm": "batch", "members": 1},
    "own encoder": {"encoder": "linear-layer", "encoder_args": {"in_features": 4, "out_features": 3}, **FAST},
    **{name: {"members": 2, **FAST} for name in ("weighted", "rescaled", "imputed")},
    "mixed": {},  # of attention and the maximum
}
ONNX = ("mixed", "embedding-attention", "a column a branch", "imputed", "ranks", "image")
DTYPES = ("<f8", "<f4", "<f2", "<i8", ">f4", "u1")


def changed(run, case):
    """The run with members of several weights or scales, or with values that replace missing ones."""
    first, last = scorers_of(run.model)[0], scorers_of(run.model)[-1]
    if case == "rescaled":
        last = BagScorer(last.encoder, RescaledPooling(last.pooling, 2.0, -1.0), standardizer=last.standardizer)
    if case == "imputed":
        return replace(run, data={**run.data, "imputed": {"how": "mean", "values": [1.0, 2.0, 3.0, 4.5], "missing": 1}})
    weights = [0.3, 0.7] if case == "weighted" else None
    return replace(run, model=BagEnsemble([first, last], weights)) if case in ("weighted", "rescaled") else run


def expected(run, x, chunk_size):
    """The row of a bag in `midam predict`."""
    scores = predict(run.model, Bags.from_list([x], missing=True), chunk_size=chunk_size)
    row = dict(zip(run.target.score_columns, scores.reshape(-1).tolist()))
    made = {} if run.decision is None else run.target.predictions(scores, run.decision)
    return row | {name: value for name, [value] in made.items()}


def alone(form, folders):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-W", "ignore", "-c", ALONE, form, *map(str, folders)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def own_encoder():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENCODERS._added, "linear-layer", torch.nn.Linear)
        yield


def trained(folder):
    """Train, predict and export by commands; returns the folder of the export, with the bags."""
    data, run = table(folder / "bags.csv"), str(folder / "run")
    frame = pd.read_csv(data)
    features = [name for name in frame if name.startswith("f")]
    frame.loc[np.random.default_rng(0).random(len(frame)) < 0.2, features[0]] = np.nan
    frame[features[1]] += 1.7e9  # as a time in seconds, far from 0 in float32
    frame.to_csv(data, index=False)
    how = ["--epochs", "1", "--members", "1", "--num-instances", "2", "--scaling", "linear", "--impute", "median"]
    how += ["--no-baseline", "--folds", "0"]
    assert main(["fit", str(data), "--out", run, *how]) == 0
    assert main(["predict", run, str(data), "--out", str(folder / "scores.csv")]) == 0
    assert main(["export", run, "--out", str(folder / "model"), "--format", "safetensors,torch"]) == 0
    bags = {bag: part[features].to_numpy() for bag, part in list(frame.groupby("bag", sort=False))[::5]}
    np.savez(folder / "model" / "bags.npz", **bags)
    return folder / "model"


@pytest.fixture(scope="module")
def exported(tmp_path_factory, request, own_encoder, mixed_export):
    """Runs by case, and the folder of their exports and that of commands, which processes without midam have scored."""
    wanted = {
        item.callspec.params["case"] for item in request.session.items if "case" in getattr(item, "fixturenames", ())
    }
    root, runs = tmp_path_factory.mktemp("exports"), {}
    for case, settings in CASES.items():
        if case not in wanted:
            continue
        if case == "mixed":
            run, folder = mixed_export
            shutil.copytree(folder, root / case)
        else:
            run, formats = changed(made(**settings), case), ["torch", "onnx"] if case in ONNX else ["torch"]
            assert write_export(run, {}, root / case, formats=formats) == formats
        runs[case] = run
        bags = bags_of(tuple(run.data["instance_shape"]), [1, 7, 300 if len(run.data["instance_shape"]) == 1 else 9])
        some = {f"{i} {dtype}": bags[i].astype(dtype) for i in range(3) for dtype in (DTYPES if i == 1 else ("<f8",))}
        if case == "imputed":
            some = {name: np.where(np.arange(x.size).reshape(x.shape) % 5 == 0, np.nan, x) for name, x in some.items()}
        np.savez(root / case / "bags.npz", **some)
    (root / "command").mkdir()
    alone("torch", [*(root / case for case in runs), trained(root / "command")])
    if onnx := [root / case for case in runs if case in ONNX]:
        alone("onnx", onnx)
    return runs, root


@pytest.mark.parametrize("form", ["torch", "onnx"])
@pytest.mark.long  # `tests/unit/test_export.py` tests one of each kind
@pytest.mark.parametrize("case", CASES)
def test_an_export_scores_as_the_run(exported, case, form):
    if form == "onnx" and case not in ONNX:
        pytest.skip("only traced for torch")
    (runs, root), worst = exported, 0.0
    run, found = runs[case], json.loads((root / case / f"{form}.json").read_text())
    bags = np.load(root / case / "bags.npz")
    assert len(found) == 8
    for name, rows in found.items():
        for row, size in zip(rows, (4, 4096, 4096)):
            wanted = expected(run, bags[name], size)
            assert list(row) == list(wanted)
            # The same numbers in the same chunks differ in no bit of float32.
            same = form == "torch" and bags[name].dtype == np.dtype(run_dtype(root / case)) and row is not rows[2]
            for key, value in wanted.items():
                if isinstance(value, float):
                    atol = (1e-8 if same else 1e-5) * max(1.0, abs(value))
                    assert row[key] == pytest.approx(value, rel=0, abs=atol if key.startswith("score") else 10 * atol)
                else:
                    assert row[key] == value
                worst = max(worst, abs(row[key] - value)) if key.startswith("score") else worst


def run_dtype(folder):
    return json.loads((folder / "config.json").read_text())["dtype"]


def test_a_command_writes_what_scores_as_predict(exported):
    folder = exported[1] / "command"
    found = json.loads((folder / "model" / "torch.json").read_text())
    with (folder / "scores.csv").open(newline="", encoding="utf-8") as file:
        wanted = {row["bag"]: row for row in csv.DictReader(file)}
    assert found.keys() == {*list(wanted)[::5]}
    for bag, (_, row, _) in found.items():
        assert row["score"] == pytest.approx(float(wanted[bag]["score"]), abs=2e-6)
        assert row["probability"] == pytest.approx(float(wanted[bag]["probability"]), abs=2e-5)
        assert str(row["class"]) == wanted[bag]["class"]
    stated = json.loads((folder / "model/config.json").read_text())["data"]["imputed"]
    assert stated["how"] == "median"
    card = (folder / "model/README.md").read_text()
    assert "is filled with the median of the feature in the training bags." in card
