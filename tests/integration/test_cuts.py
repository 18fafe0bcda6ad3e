"""A run remembers how the images of its store were cut, and cuts new ones so."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from midam.cli import main
from midam.data.sources import read_bags
from midam.data.sources.request import ImageOptions
from midam.runs.loaded import load_run

CUT = ["--patch-size", "16", "--stride", "8"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Sixteen images of 48x48, half of them with a red corner, and a table of them."""
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for number in range(16):
        pixels = rng.integers(0, 120, (48, 48, 3), dtype=np.uint8)
        if number % 2:
            pixels[:16, :16, 0] = 250
        Image.fromarray(pixels).save(tmp_path / "images" / f"i{number:02d}.png")
    rows = [{"slide": f"i{number:02d}", "label": number % 2} for number in range(16)]
    pd.DataFrame(rows).to_csv(tmp_path / "labels.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FEW = ["--members", "1", "--folds", "0", "--num-positive", "3", "--num-negative", "3", "--no-baseline"]


def import_store(name, *options):
    assert main(["data", "import", "images", "--labels", "labels.csv", *options, "--out", name]) == 0


@pytest.mark.filterwarnings("ignore:.*validation.*", "ignore:Expected at least", "ignore:.*mlp.*")
def test_a_run_on_a_store_cuts_files_as_the_store_was_cut(here, capsys):
    import_store("cut.store", *CUT)
    assert read_bags("cut.store").cut == ImageOptions(patch_size=16, stride=8).cut("patches")
    few = [*FEW, "--epochs", "2"]
    assert main(["fit", "cut.store", *few, "--out", "run"]) == 0
    assert load_run(here / "run").data["cut"]["stride"] == 8
    for data in ("cut.store", "images"):
        assert main(["predict", "run", data, "--out", f"{data}.csv"]) == 0
    scores = [pd.read_csv(f"{data}.csv").set_index("bag")["score"] for data in ("cut.store", "images")]
    pd.testing.assert_series_equal(*scores)

    import_store("other.store", "--patch-size", "16")
    capsys.readouterr()
    assert main(["predict", "run", "other.store", "--out", "p.csv"]) == 2
    assert "--stride 8 as in training, got 16 (in other.store)" in capsys.readouterr().err
    assert main(["data", "describe", "other.store"]) == 0
    assert "cut: patch_size 16, stride 16" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*validation.*", "ignore:Expected at least", "ignore:.*mlp.*")
def test_a_run_is_applied_from_another_folder(here, monkeypatch):
    few = [*FEW, "--epochs", "1"]
    assert main(["fit", "images", "--labels", "labels.csv", *CUT, *few, "--out", "run"]) == 0
    (here / "elsewhere").mkdir()
    (here / "images").rename(here / "elsewhere" / "images")
    monkeypatch.chdir(here / "elsewhere")
    assert main(["predict", "../run", "images", "--out", "p.csv"]) == 0
    (here / "elsewhere" / "images").rename(here / "images")
    assert main(["predict", "../run", "../images", "--out", "q.csv"]) == 0
    first, second = (pd.read_csv(name)["score"].tolist() for name in ("p.csv", "q.csv"))
    assert first == second
