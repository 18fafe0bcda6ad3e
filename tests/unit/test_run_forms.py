"""The form of summary.json: what midam measures passes, and nothing of another type, length or meaning does."""

import copy
import json

import numpy as np
import pytest

from midam.errors import CheckpointError
from midam.evaluate.metrics import summarize
from midam.runs.folder import RunFolder
from midam.runs.forms import read_summary
from midam.targets import target_named

RNG = np.random.default_rng(0)
N = 30
LABELS = np.stack([np.arange(N) % 2, np.arange(N) // 2 % 2], axis=1)
VALUES = {
    "multiclass": (("a", "b", "c"), np.arange(N)[:, None] % 3, RNG.random((N, 3))),
    "multilabel": (("a", "b"), LABELS, LABELS + RNG.random((N, 2))),
    "ordinal": (("low", "mid", "high"), np.arange(N)[:, None] % 3, RNG.random(N)),
    "continuous": (("age",), RNG.random((N, 1)), RNG.random(N)),
    "survival": (("time", "event"), np.stack([1 + RNG.random(N), np.arange(N) % 2], axis=1), RNG.random(N)),
}
STRANGE = (-1, 2**70, float("nan"), "x", True, [None], [0.9, 0.1])


def summary_of(target: str) -> dict:
    data = {"name": "d.csv", "bags": N, "instances": 3 * N, "fingerprint": "f", "instance_shape": [4], "classes": None}
    whole = {"data": data, "version": "0", "members": 1, "selected": {"weights": "last", "epoch": 2}, "epochs": 2}
    if target == "binary":
        labels = np.arange(N) % 2
        found = summarize(labels, RNG.random(N), threshold=0.5, probabilities=RNG.random(N), groups=None)
        return {**whole, "test": found}
    names, values, scores = VALUES[target]
    made = target_named({"target": target, "names": names})
    decision = made.decide(values, scores)
    return {**whole, "target": target, "names": list(names), "test": made.summarize(values, scores, decision=decision)}


def places(tree, at=()):
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [place for key, value in inner for place in ((*at, key), *places(value, (*at, key)))]


def changed(tree: dict, at: tuple, value: object) -> dict:
    found = copy.deepcopy(tree)
    held = found
    for key in at[:-1]:
        held = held[key]
    held[at[-1]] = value
    return found


@pytest.mark.parametrize("target", ["binary", *VALUES])
def test_what_is_measured_has_the_form(tmp_path, target):
    folder = RunFolder(tmp_path)
    whole = summary_of(target)
    folder.summary.write_text(json.dumps(whole))
    assert read_summary(folder)[0] == whole


@pytest.mark.parametrize("target", ["binary", *VALUES])
def test_no_change_of_a_value_ends_in_a_traceback(tmp_path, target):
    folder, whole = RunFolder(tmp_path), summary_of(target)
    said = []
    for at in places(whole):
        for value in STRANGE:
            folder.summary.write_text(json.dumps(changed(whole, at, value)))
            try:
                read_summary(folder)
            except CheckpointError as error:
                said.append(str(error))
    assert len(said) > 100
    assert all("summary.json" in text for text in said)


def test_a_class_path_in_a_summary_is_never_imported(tmp_path):
    folder, whole = RunFolder(tmp_path), summary_of("binary")
    for name in ("antigravity.fly", "midam.targets.binary.Binary", "other"):
        folder.summary.write_text(json.dumps({**whole, "target": name, "names": []}))
        with pytest.raises(CheckpointError, match="Expected a known target"):
            read_summary(folder)
