"""The result of a run is read as it was written, and refused if it changed meanwhile."""

import json
import random

import pytest

from midam.errors import CheckpointError
from midam.runs.folder import RunFolder
from midam.runs.result import Result, read_target

TEST = {"bags": 30, "auroc": 0.75, "auroc_ci95": [0.6, 0.9], "auroc_method": "DeLong"}
DATA = {"name": "d.csv", "bags": 30, "instances": 90, "classes": ["benign", "malignant"], "notes": []}


@pytest.fixture
def folder(tmp_path):
    result = Result(test=TEST, data=DATA, baseline=None, seconds={"total": 2.5})
    assert result.write(RunFolder(tmp_path))["test"] == TEST
    return RunFolder(tmp_path)


def test_a_result_is_read_as_it_was_written(folder):
    result = Result.read(folder)
    assert (result.test, result.data, result.parts) == (TEST, DATA, {"test": TEST})
    entries = result.entries()
    assert entries["baseline"] is None
    assert "baseline_note" not in entries
    assert entries == {key: value for key, value in json.loads(folder.summary.read_text()).items() if key != "digest"}
    folder.summary.write_text(json.dumps(json.loads(folder.summary.read_text())))  # the same content in another form
    assert Result.read(folder) == result


def test_equal_runs_have_equal_digests_whatever_their_times(folder, tmp_path):
    first = json.loads(folder.summary.read_text())["digest"]
    assert Result(test=TEST, data=DATA, baseline=None, seconds={"total": 9.0}).write(folder)["digest"] == first
    assert Result(test={**TEST, "auroc": 0.76}, data=DATA, baseline=None).write(folder)["digest"] != first


def test_each_changed_byte_is_refused(folder):
    whole, rng = folder.summary.read_bytes(), random.Random(0)
    start, end = whole.index(b'"seconds"'), whole.index(b"}", whole.index(b'"seconds"'))
    for _ in range(300):
        at = rng.choice([place for place in range(len(whole)) if not start <= place <= end])
        if whole[at : at + 1].isspace():
            continue
        folder.summary.write_bytes(whole[:at] + bytes([rng.randrange(33, 127)]) + whole[at + 1 :])
        if folder.summary.read_bytes() != whole:
            with pytest.raises(CheckpointError, match=r"summary\.json"):
                Result.read(folder)


@pytest.mark.parametrize("change", [{"test": None}, {"target": "antigravity.fly"}, {"data": 3}, {"digest": None}])
def test_each_changed_entry_is_refused(folder, change):
    folder.summary.write_text(json.dumps({**json.loads(folder.summary.read_text()), **change}))
    with pytest.raises(CheckpointError, match=r"Expected summary\.json as midam wrote it"):
        Result.read(folder)


def test_a_class_path_in_a_file_is_never_imported(tmp_path):
    for name in ("antigravity.fly", "midam.targets.binary.Binary", "other"):
        with pytest.raises(CheckpointError, match="Expected a known target"):
            read_target({"target": name, "names": []}, tmp_path / "config.yaml")
    for names in (["a"], ["a", "a", "b"]):
        with pytest.raises(CheckpointError, match="names for the target multiclass"):
            read_target({"target": "multiclass", "names": names}, tmp_path / "config.yaml")
