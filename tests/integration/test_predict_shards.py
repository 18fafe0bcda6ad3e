"""Predictions in parts, and of several runs at once, are to the byte those of one pass of one run."""

import shutil

import numpy as np
import pytest
from tests.integration.commands import fitted, stop_at

import midam.runs.scoring
from midam.cli import main
from midam.runs.loaded import load_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose bags are scored 16 at a time, another of another seed, its data, and 100 new bags."""
    folder = tmp_path_factory.mktemp("shards")
    words = ("--epochs", "2", "--members", "2", "--chunk-size", "3")
    data, run = fitted(folder, *words)
    other = folder / "other"
    assert main(["fit", str(data), *words, "--seed", "1", "--no-baseline", "--out", str(other)]) == 0
    rng = np.random.default_rng(0)
    many, bags = folder / "many.npz", np.repeat(np.arange(100), rng.integers(1, 6, 100))
    np.savez(many, X=rng.normal(size=(len(bags), 4)).astype(np.float32), bag=bags)
    return many, run, other, data


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory):
    """File of one pass."""
    out = tmp_path_factory.mktemp("whole") / "whole.csv"
    assert main(["predict", str(made[1]), str(made[0]), "--out", str(out)]) == 0
    return out.read_bytes()


def predict(*words):
    return main(["predict", *map(str, words)])


def score_all(made, out, count, *words):
    for number in range(1, count + 1):
        assert predict(made[1], made[0], "--out", out, "--shard", f"{number}/{count}", *words) == 0


@pytest.mark.parametrize("count", [1, 3, 12])
def test_shards_together_are_one_pass(count, made, whole, tmp_path, capsys):
    score_all(made, tmp_path / "s.csv", count)
    assert f"shard 1/{count}: bags 1 to " in capsys.readouterr().err
    files = sorted(path.name for path in tmp_path.iterdir())
    assert len(files) == 2 * count, "a table and its facts each, and no journal"
    assert predict("--merge", tmp_path, "--out", tmp_path / "s.csv") == 0
    assert f"100 bags of {count} shard{'s' * (count > 1)}:" in capsys.readouterr().out
    assert (tmp_path / "s.csv").read_bytes() == whole
    tables = [tmp_path / name for name in files if name.endswith(".csv")]
    assert predict("--merge", *reversed(tables), "--out", tmp_path / "t.csv") == 0
    assert (tmp_path / "t.csv").read_bytes() == whole


def test_a_task_of_an_array_scores_its_shard(made, tmp_path, monkeypatch, capsys):
    for name, value in {"ID": 5, "MIN": 4, "MAX": 6, "COUNT": 3, "STEP": 1}.items():
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    assert predict(made[1], made[0], "--out", tmp_path / "s.csv", "--shard", "auto") == 0
    assert "shard 2/3: bags " in capsys.readouterr().err
    assert (tmp_path / "s.shard-2-of-3.csv").exists()


def test_a_shard_goes_on_after_a_stop(made, whole, tmp_path, monkeypatch, capsys):
    words = (made[1], made[0], "--out", tmp_path / "s.csv", "--shard", "1/2")
    calls = stop_at(monkeypatch, midam.runs.scoring, "predict_each", 3)
    assert predict(*words) == 130
    assert "s.shard-1-of-2.csv.part holds" in capsys.readouterr().err
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 2
    assert predict(*words) == 0
    before = len(calls)
    assert predict(made[1], made[0], "--out", tmp_path / "s.csv", "--shard", "2/2") == 0
    assert len(calls) > before
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 0
    assert (tmp_path / "m.csv").read_bytes() == whole


def test_shards_of_other_runs_and_data_are_refused(made, tmp_path, capsys):
    many, run, other, _ = made
    assert predict(run, many, "--out", tmp_path / "s.csv", "--shard", "1/2") == 0
    assert predict(other, many, "--out", tmp_path / "s.csv", "--shard", "2/2") == 0
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 2
    said = capsys.readouterr().err
    assert "Expected shards of one run" in said
    assert str(other) in said
    changed = tmp_path / "changed.npz"
    content = dict(np.load(many))
    content["X"][0, 0] += 1
    np.savez(changed, **content)
    assert predict(run, changed, "--out", tmp_path / "s.csv", "--shard", "2/2") == 0
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 2
    assert "Expected shards of the same data" in capsys.readouterr().err
    (tmp_path / "s.shard-2-of-2.csv").unlink()
    (tmp_path / "s.shard-2-of-2.json").unlink()
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 2
    assert "Expected all 2 shards, got 1, without 2" in capsys.readouterr().err
    assert not (tmp_path / "m.csv").exists()


def test_files_of_instances_of_shards_are_those_of_one_pass(made, tmp_path):
    h5py = pytest.importorskip("h5py")
    many, run, *_ = made
    assert predict(run, many, "--out", tmp_path / "w.csv", "--instances", tmp_path / "one") == 0
    score_all(made, tmp_path / "s.csv", 3, "--instances", tmp_path / "parts")
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 0
    assert (tmp_path / "m.csv").read_bytes() == (tmp_path / "w.csv").read_bytes()
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "parts").iterdir())
    for name in names[::17]:
        with h5py.File(tmp_path / "one" / name) as one, h5py.File(tmp_path / "parts" / name) as other:
            for key in ("score", "weight", "attention_scores"):
                assert np.array_equal(one[key][:], other[key][:])


def test_several_runs_read_each_chunk_once(made, whole, tmp_path, monkeypatch):
    many, run, other, _ = made
    assert predict(other, many, "--out", tmp_path / "alone.csv") == 0
    calls = stop_at(monkeypatch, midam.runs.scoring, "predict_each", 10**6)
    assert predict(run, other, many, "--out", tmp_path / "s.csv") == 0
    assert {len(models) for models, _ in calls} == {2}
    assert sum(len(bags) for _, bags in calls) == 100
    assert (tmp_path / "s.run.csv").read_bytes() == whole
    assert (tmp_path / "s.other.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_several_runs_go_on_after_a_stop(made, whole, tmp_path, monkeypatch, capsys):
    many, run, other, _ = made
    words = (run, other, many, "--out", tmp_path / "s.csv")
    stop_at(monkeypatch, midam.runs.scoring, "predict_each", 3)
    assert predict(*words) == 130
    assert "s.run.csv.part holds" in capsys.readouterr().err
    (tmp_path / "s.other.csv.part").unlink()
    assert predict(*words) == 0
    assert predict(other, many, "--out", tmp_path / "alone.csv") == 0
    assert (tmp_path / "s.run.csv").read_bytes() == whole
    assert (tmp_path / "s.other.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_shards_of_several_runs_are_merged_run_by_run(made, whole, tmp_path, capsys):
    many, run, other, _ = made
    for number in (1, 2):
        assert predict(run, other, many, "--out", tmp_path / "s.csv", "--shard", f"{number}/2") == 0
    assert predict("--merge", tmp_path, "--out", tmp_path / "m.csv") == 2
    assert "Expected shards of one run" in capsys.readouterr().err
    assert predict("--merge", *tmp_path.glob("s.run.shard-*.csv"), "--out", tmp_path / "m.csv") == 0
    assert (tmp_path / "m.csv").read_bytes() == whole


def test_runs_of_one_name_are_told_apart_by_their_folders(made, tmp_path):
    many, run, other, _ = made
    for name, source in (("a", run), ("b", other)):
        shutil.copytree(source, tmp_path / name / "run")
    assert predict(tmp_path / "a/run", tmp_path / "b/run", many, "--out", tmp_path / "s.csv") == 0
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["s.a-run.csv", "s.b-run.csv"]


def test_runs_of_other_targets_are_scored_in_one_pass(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    classes, numbers = np.arange(40) % 3, rng.normal(size=40).round(3)
    data, bag = tmp_path / "bags.csv", np.repeat(np.arange(40), 3)
    x = rng.normal(size=(120, 2)).round(4) + classes[bag, None]
    rows = [f"b{i:02d},k{classes[i]},{numbers[i]},{a},{b}" for i, (a, b) in zip(bag, x)]
    data.write_text("\n".join(["bag,label,size,f0,f1", *rows]) + "\n")
    common = ["--epochs", "2", "--members", "1", "--no-baseline", "--chunk-size", "3"]
    assert main(["fit", str(data), *common, "--ignore", "size", "--out", str(tmp_path / "kinds")]) == 0
    words = ["--label-column", "size", "--target", "continuous", "--ignore", "label"]
    assert main(["fit", str(data), *common, *words, "--out", str(tmp_path / "sizes")]) == 0
    calls = stop_at(monkeypatch, midam.runs.scoring, "predict_each", 10**6)
    assert predict(tmp_path / "kinds", tmp_path / "sizes", data, "--out", tmp_path / "s.csv") == 0
    assert {len(models) for models, _ in calls} == {2}
    for name in ("kinds", "sizes"):
        assert predict(tmp_path / name, data, "--out", tmp_path / "alone.csv") == 0
        assert (tmp_path / f"s.{name}.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_what_cannot_be_scored_together_is_refused(made, tmp_path, capsys):
    many, run, other, data = made
    narrow = tmp_path / "narrow"
    words = ["--epochs", "1", "--members", "1", "--no-baseline", "--ignore", "f3", "--out", str(narrow)]
    assert main(["fit", str(data), *words]) == 0
    assert predict(run, narrow, data, "--out", tmp_path / "s.csv") == 2
    assert "Expected runs with the same instance shape, got [4] of" in capsys.readouterr().err
    assert predict(run, run, many, "--out", tmp_path / "s.csv") == 2
    assert "Expected each run once" in capsys.readouterr().err
    assert predict(run, other, many, "--out", tmp_path / "s.csv", "--instances", tmp_path / "i") == 2
    assert "Expected one run with --instances" in capsys.readouterr().err
    assert predict(run, many, "--out", "/dev/stdout", "--shard", "1/2") == 2
    assert "Expected a file for the scores of several runs, or of a shard" in capsys.readouterr().err
    assert not list(tmp_path.glob("s.*"))


def test_runs_with_other_chunks_take_a_pass_of_their_own(made, whole, tmp_path, capsys):
    many, run, _, data = made
    other = tmp_path / "chunks"
    words = ["--epochs", "1", "--members", "1", "--no-baseline", "--chunk-size", "2", "--out", str(other)]
    assert main(["fit", str(data), *words]) == 0
    assert load_run(other).settings.run.chunk_size == 2
    assert predict(run, other, many, "--out", tmp_path / "s.csv") == 0
    assert "2 passes" in capsys.readouterr().err
    assert (tmp_path / "s.run.csv").read_bytes() == whole


def test_options_between_the_run_and_the_data_are_read_as_before(made, whole, tmp_path):
    many, run, *_ = made
    assert predict(run, "--out", tmp_path / "s.csv", many) == 0
    assert (tmp_path / "s.csv").read_bytes() == whole
    assert predict("--out", tmp_path / "t.csv", run, many) == 0
    assert (tmp_path / "t.csv").read_bytes() == whole
