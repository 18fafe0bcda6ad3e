"""`benchmarks/digests.py`: what repeats is told to be identical, another seed is found."""

import json

import pytest
from benchmarks.digest_cases import CASES
from benchmarks.digests import compare, main, write

pytestmark = pytest.mark.drawn


@pytest.mark.long
@pytest.mark.slow
def test_two_runs_are_identical_and_another_seed_is_not(tmp_path, capsys):
    (fit,), (_, pictures, _) = CASES["mean-minibatch"], CASES["import"]
    cases = {"fit": [fit], "import": [pictures], "again": [fit], "imported": [pictures]}
    found = write(cases | {"seed": [[*fit, "--seed", "1"]]}, tmp_path, jobs=1)
    assert {"run/predictions.csv", "run/metrics.csv", "run/model.pt"} <= found["fit"].keys()
    assert {"images.store/instances.npy", "images.store/bags.csv"} <= found["import"].keys()
    first = {"fit": found["fit"], "import": found["import"]}
    (tmp_path / "a.json").write_text(json.dumps(first))
    (tmp_path / "b.json").write_text(json.dumps({"fit": found["again"], "import": found["imported"]}))
    capsys.readouterr()
    assert main(["--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 0
    assert capsys.readouterr().out.startswith("fit: identical\nimport: identical\n")
    changed = {"fit": found["seed"], "import": found["import"]}
    assert compare(first, changed, expected=[], renamed={}) == 1
    out = capsys.readouterr().out
    assert "run/config.yaml:seed  1\n" in out
    assert "run/predictions.csv:score  0." in out
    assert compare(first, changed, expected=["fit:*"], renamed={}) == 0
