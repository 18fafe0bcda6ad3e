"""The GPU benchmark: a small run on the CPU takes every path that needs no GPU, and full sizes are refused there."""

import json
import sys
import types

import pytest
import torch
from benchmarks import gpu


@pytest.fixture
def run(monkeypatch, capsys):
    """The command in this process, since another one takes long to import torch."""

    def call(*options):
        monkeypatch.setattr(sys, "argv", ["gpu.py", *options])
        code = 0
        try:
            gpu.main()
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return types.SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    return call


@pytest.mark.long
@pytest.mark.slow
def test_a_small_run_on_the_cpu_ends_with_the_table_and_writes_json(run, tmp_path) -> None:
    found = run("--device", "cpu", "--small", "--repeats", "1", "--json", str(tmp_path / "gpu.json"))
    assert found.returncode == 0, found.stderr
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert content["small"] is True
    rows = {(row["case"], row["who"], row["mode"]) for row in content["rows"]}
    for case in ("patches", "slices"):
        assert {
            (case, "bare", "float32"),
            (case, "midam", "bf16, channels last"),
            (case, "exact, n = 8", "float32"),
        } <= (rows)
        libauc = (case, "libauc", "float32") in rows
        assert libauc or any(note.startswith(f"{case}, libauc") for note in content["notes"])
    assert all(row["ms"] > 0 and row["steps"] == 1 and row["peak_mib"] is None for row in content["rows"])
    last = found.stdout.splitlines()[-1]
    assert last.startswith("| slices | exact, n = 8 | float32 |")
    assert "small sizes: no result" in found.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(run) -> None:
    found = run()
    assert found.returncode == 2
    assert "Expected a CUDA device, got none" in found.stderr


def test_full_sizes_are_not_for_a_cpu(run) -> None:
    found = run("--device", "cpu")
    assert found.returncode == 2
    assert "Expected --small with --device cpu" in found.stderr


def test_a_page_holds_the_parts_that_were_measured_before_the_command_was_stopped(run, monkeypatch, tmp_path) -> None:
    row = {"case": "patches", "who": "bare", "mode": "float32", "ms": 2.5, "ratio": 1.0, "steps": 3, "peak_mib": 7.0}
    parts = iter([json.dumps([[row], []])])
    monkeypatch.setattr(gpu, "PAGE", tmp_path / "gpu.md")
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: types.SimpleNamespace(returncode=0, stdout=next(parts)))
    with pytest.raises(StopIteration):
        run("--device", "cpu", "--small", "--write")
    text = (tmp_path / "gpu.md").read_text()
    assert "| patches | bare | float32 | 2.50 | 1.00 | 7 |" in text
    assert "- slices, plain: not measured (the command was stopped before)" in text
