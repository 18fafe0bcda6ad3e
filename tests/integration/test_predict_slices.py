"""Predictions of slices of the bags are those of one pass."""

import io
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from tests.integration.commands import fitted

from midam.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """100 new bags, and a run whose bags are scored 16 at a time."""
    folder = tmp_path_factory.mktemp("slices")
    words = ("--epochs", "2", "--members", "2", "--chunk-size", "3")
    _, run = fitted(folder, *words)
    rng = np.random.default_rng(0)
    many, bags = folder / "many.npz", np.repeat(np.arange(100), rng.integers(1, 6, 100))
    np.savez(many, X=rng.normal(size=(len(bags), 4)).astype(np.float32), bag=bags)
    return many, run


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
    many, run = made
    assert predict(run, many, "--out", tmp_path / "w.csv", "--bags", "20:60", "--instances", tmp_path / "one") == 0
    assert predict(run, many, "--out", tmp_path / "s.csv", "--bags", "40:45", "--instances", tmp_path / "part") == 0
    names = sorted(path.name for path in (tmp_path / "part").iterdir())
    assert len(names) == 5
    for name in names:
        with h5py.File(tmp_path / "one" / name) as one, h5py.File(tmp_path / "part" / name) as other:
            for key in ("score", "weight", "attention_scores"):
                assert np.array_equal(one[key][:], other[key][:])


def test_options_between_the_run_and_the_data_are_read_as_before(made, whole, tmp_path):
    many, run = made
    assert predict(run, "--out", tmp_path / "s.csv", many) == 0
    assert (tmp_path / "s.csv").read_bytes() == whole
    assert predict("--out", tmp_path / "t.csv", run, many) == 0
    assert (tmp_path / "t.csv").read_bytes() == whole
