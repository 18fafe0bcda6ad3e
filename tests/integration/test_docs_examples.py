"""What the pages show can be typed: the Python runs, the commands are understood."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.pages import blocks, without_walk_throughs

from midam.cli import main, parse
from midam.nn import MLP, MeanPooling
from midam.registry import ENCODERS, POOLINGS

DOCS = Path(__file__).parents[2] / "docs"
SHELL = re.compile(r"^ *```\s*\{?\.?(?:sh|bash|console)\b[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMANDS = sorted(
    {
        (page.name, " ".join(line.split()))
        for page in DOCS.glob("*.md")
        for block in SHELL.findall(page.read_text("utf-8"))
        for line in re.findall(r"^ *(?:\w+=\S+ )?midam ([^#>\n]+)", block.replace("\\\n", " "), flags=re.MULTILINE)
    }
)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_of_the_pages_are_understood(page, line, tmp_path, monkeypatch):
    words = shlex.split(line)
    if "my_plugin" in words:  # its class stands on the page
        monkeypatch.setitem(POOLINGS._added, "trimmed-mean", MeanPooling)
        monkeypatch.setitem(ENCODERS._added, "my-network", MLP)
        monkeypatch.setitem(sys.modules, "my_plugin", ModuleType("my_plugin"))
    for place in (n for n, word in enumerate(words) if word == "--config"):
        words[place + 1] = str(tmp_path / "config.yaml")
        (tmp_path / "config.yaml").write_text("data: digits\n")
    if words == ["--version"]:
        with pytest.raises(SystemExit, match="0"):
            parse(words)
        return
    parse(words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the table and the run that the pages speak of."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    rows = [f"b{i:02},{i % 2},{x:.3f},{y:.3f}" for i in range(60) for x, y in rng.normal(i % 2, size=(4, 2))]
    (folder / "bags.csv").write_text("\n".join(["bag,label,area,contrast", *rows]) + "\n")
    run = str(folder / "runs" / "one")
    assert main(["fit", str(folder / "bags.csv"), "--epochs", "1", "--members", "1", "--out", run]) == 0
    return folder


@pytest.mark.filterwarnings("ignore:.*few bags.*:UserWarning")
@pytest.mark.parametrize(
    "page", [pytest.param("compare", marks=pytest.mark.long), "evaluation", "explain", "formats", "own-loop"]
)
def test_the_python_of_a_page_runs(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    examples = blocks("python", without_walk_throughs((DOCS / f"{page}.md").read_text("utf-8")))
    assert examples
    names: dict[str, object] = {}
    for block in examples:
        exec(block.replace("musk2.npz", "digits"), names)  # a set that needs no download


def test_the_gallery_has_a_picture_commands_and_an_instance_auroc_of_each_set():
    sections = (DOCS / "gallery.md").read_text("utf-8").split("\n## ")[1:]
    assert len(sections) == 6
    for section in sections:
        (picture,) = re.findall(r"!\[[^\]]+\]\((figures/\S+)\)", section)
        assert (DOCS / picture).is_file()
        assert re.search(r"Test AUROC \*\*\d\.\d{3}\*\* \[\d\.\d{3}, \d\.\d{3}\], \d+ bags\.", section)
        area, right, positive = re.search(
            r"Instance AUROC \*\*(\d\.\d{3})\*\*; the top instance is a witness in (\d+) of (\d+) positive", section
        ).groups()
        assert float(area) > 0.5
        assert int(right) <= int(positive)
        assert re.search(r"Witnesses in the picture: #\d", section)
        assert re.search(r"midam fit .*\nmidam explain ", "".join(blocks("sh", section)))
        assert "Source: " in section
    (code,) = blocks("python", sections[0])
    assert len(code.splitlines()) <= 10
    compile(code, "gallery", "exec")
