"""`benchmarks/digests.py`: what repeats is told to be identical, another seed is found."""

import json

import pytest
from benchmarks.digest_cases import CASES
from benchmarks.digests import compare, main, write


@pytest.mark.slow
def test_two_runs_are_identical_and_another_seed_is_not(tmp_path, capsys):
    (fit,), (_, pictures, _) = CASES["mean-minibatch"], CASES["import"]
    cases = {"fit": [fit], "import": [pictures]}
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first, second = write(cases, tmp_path / "a"), write(cases, tmp_path / "b", jobs=1)
    changed = write({"fit": [[*fit, "--seed", "1"]]}, tmp_path / "c")
    for name, found in (("a", first), ("b", second), ("c", changed)):
        (tmp_path / f"{name}.json").write_text(json.dumps(found))
    assert {"run/predictions.csv", "run/metrics.csv", "run/model.pt"} <= first["fit"].keys()
    assert {"images.store/instances.bin", "images.store/bags.npz"} <= first["import"].keys()
    capsys.readouterr()
    assert main(["--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert capsys.readouterr().out.startswith("fit: identical\nimport: identical\n")
    assert compare({"fit": first["fit"]}, changed, expected=[], renamed={}) == 1
    out = capsys.readouterr().out
    assert "run/config.yaml:seed  1\n" in out
    assert "run/predictions.csv:score  0." in out
    assert compare({"fit": first["fit"]}, changed, expected=["fit:*"], renamed={}) == 0
