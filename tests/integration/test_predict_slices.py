"""Predictions of slices of the bags, and of several runs at once, are those of one pass of one run."""

import io
import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import fitted

from midam.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose bags are scored 16 at a time, another of another seed, its data, and 100 new bags."""
    folder = tmp_path_factory.mktemp("slices")
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


@pytest.mark.parametrize("edges", [(0, 100), (0, 37, 38, 1000)])
def test_slices_together_are_one_pass(edges, made, whole, tmp_path):
    tables = []
    for start, stop in pairwise(edges):
        out = tmp_path / f"s{start}.csv"
        assert predict(made[1], made[0], "--out", out, "--bags", f"{start}:{stop}") == 0
        tables.append(pd.read_csv(out))
    found, expected = pd.concat(tables, ignore_index=True), pd.read_csv(io.BytesIO(whole))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-5)
    assert len(list(tmp_path.iterdir())) == len(tables)


@pytest.mark.parametrize("text", ["100:", "5:5", "7:3", "1/2", "-3:", "a:b", "3"])
def test_a_slice_without_bags_is_refused(text, made, tmp_path, capsys):
    assert predict(made[1], made[0], "--out", tmp_path / "s.csv", f"--bags={text}") == 2
    assert "Expected --bags as START:STOP with at least one of 100 bags" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_files_of_instances_of_a_slice_are_those_of_one_pass(made, tmp_path):
    h5py = pytest.importorskip("h5py")
    many, run, *_ = made
    assert predict(run, many, "--out", tmp_path / "w.csv", "--instances", tmp_path / "one") == 0
    assert predict(run, many, "--out", tmp_path / "s.csv", "--bags", "40:45", "--instances", tmp_path / "part") == 0
    names = sorted(path.name for path in (tmp_path / "part").iterdir())
    assert len(names) == 5
    for name in names:
        with h5py.File(tmp_path / "one" / name) as one, h5py.File(tmp_path / "part" / name) as other:
            for key in ("score", "weight", "attention_scores"):
                assert np.array_equal(one[key][:], other[key][:])


def test_each_of_several_runs_has_a_file(made, whole, tmp_path):
    many, run, other, _ = made
    assert predict(other, many, "--out", tmp_path / "alone.csv") == 0
    assert predict(run, other, many, "--out", tmp_path / "s.csv") == 0
    assert (tmp_path / "s.run.csv").read_bytes() == whole
    assert (tmp_path / "s.other.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_runs_of_one_name_are_told_apart_by_their_folders(made, tmp_path):
    many, run, other, _ = made
    for name, source in (("a", run), ("b", other)):
        shutil.copytree(source, tmp_path / name / "run")
    assert predict(tmp_path / "a/run", tmp_path / "b/run", many, "--out", tmp_path / "s.csv") == 0
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["s.a-run.csv", "s.b-run.csv"]


def test_runs_of_other_targets_are_scored_in_one_call(tmp_path):
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
    assert predict(tmp_path / "kinds", tmp_path / "sizes", data, "--out", tmp_path / "s.csv") == 0
    for name in ("kinds", "sizes"):
        assert predict(tmp_path / name, data, "--out", tmp_path / "alone.csv") == 0
        assert (tmp_path / f"s.{name}.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()


def test_what_cannot_be_scored_together_is_refused(made, tmp_path, capsys):
    many, run, other, _ = made
    assert predict(run, run, many, "--out", tmp_path / "s.csv") == 2
    assert "Expected each run once" in capsys.readouterr().err
    assert predict(run, other, many, "--out", tmp_path / "s.csv", "--instances", tmp_path / "i") == 2
    assert "Expected one run with --instances" in capsys.readouterr().err
    assert not list(tmp_path.glob("s.*"))


def test_options_between_the_run_and_the_data_are_read_as_before(made, whole, tmp_path):
    many, run, *_ = made
    assert predict(run, "--out", tmp_path / "s.csv", many) == 0
    assert (tmp_path / "s.csv").read_bytes() == whole
    assert predict("--out", tmp_path / "t.csv", run, many) == 0
    assert (tmp_path / "t.csv").read_bytes() == whole
