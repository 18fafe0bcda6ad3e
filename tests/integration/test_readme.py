"""The README keeps its word: it is short, its Python runs, its commands exist, its links and figures lead somewhere."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.house import prose, sentences
from tests.pages import blocks, walk_throughs

from midam import Bags, auroc, read_bags
from midam.cli import main, parse
from midam.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def test_sentences_are_counted_without_code_tables_and_addresses() -> None:
    page = "# A title\n\nOne of [two three](https://a.b/c). Four five six!\n\n```sh\nno words here\n```\n\n"
    page += "- an entry of four\n| a | b |\n"
    assert sentences(page) == ["One of two three.", "Four five six!", "an entry of four"]


def test_it_is_short() -> None:
    assert len(README.partition("```bibtex")[0].split()) <= 700
    assert max((len(part.split()), part) for part in sentences(README))[0] <= 30
    assert len(re.findall(r"\d*\.\d+", prose(README))) <= 6
    assert len(re.findall(r"^!\[", README, flags=re.MULTILINE)) == 1


def test_each_result_stands_on_the_page_behind_its_link() -> None:
    results = re.findall(r"^- (.*?)(?=^- |^$)", README.split("## What was measured")[1], flags=re.MULTILINE | re.DOTALL)
    checked = []
    for part in (part for part in results if "docs/results/" in part):
        (page,) = re.findall(r"\((docs/results/[\w-]+\.md)\)", part)
        figures = re.findall(r"\d+\.\d+|\b\d+ of its \d+", part)
        text = (ROOT / page).read_text(encoding="utf-8")
        checked += [(figure, page) for figure in figures if "of" not in figure and figure not in text]
        assert len(figures) == 1
    assert len([part for part in results if "docs/results/" in part]) == 3
    assert checked == []


# The long tests run an example as it stands, the others with fewer epochs.
whole = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])


def shortened(example: str) -> str:
    assert example.count("epochs=50") == 1
    return example.replace("epochs=50", "epochs=12")


@whole
def test_the_python_runs(whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python", README)
    assert len([line for line in example.splitlines() if line]) <= 8
    names: dict[str, object] = {}
    exec(example if whole else shortened(example), names)
    test, scores = names["test"], np.asarray(names["scores"])
    assert isinstance(test, Bags)
    assert auroc(test.require_labels(), scores) > 0.8
    assert "Interval(low=" in capsys.readouterr().out


def test_the_torch_loop_has_at_most_25_lines_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "own-loop.md").read_text(encoding="utf-8")
    loop = "".join(blocks("python", dict(walk_throughs(page))["the loop of midam fit"])[:2])
    assert len(loop.splitlines()) <= 25
    exec(loop, {})
    assert float(capsys.readouterr().out) > 0.9


def test_the_table_of_the_quick_start_is_read(tmp_path: Path) -> None:
    (table,) = blocks("csv", QUICKSTART)
    path = tmp_path / "bags.csv"
    path.write_text(table, encoding="utf-8")
    bags = read_bags(path, groups="patient", split="split")
    assert bags.ids.tolist() == ["scan-1", "scan-2"]
    assert bags.require_labels().tolist() == [1, 0]
    assert bags.groups is not None
    assert bags.groups.tolist() == ["anna", "ben"]
    assert bags.feature_names == ("area", "contrast")


def test_the_commands_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("midam.yaml").write_text("data: digits\n", encoding="utf-8")
    text = "\n".join(blocks("sh", README)) + "\n" + "\n".join(re.findall(r"`(midam [^`]+)`", README))
    commands = re.findall(r"^midam ([^#\n]+)", text.replace(" && midam", "\nmidam"), flags=re.MULTILINE)
    assert len([line for block in blocks("sh", README) for line in block.splitlines()]) == 4
    assert len(commands) == 8
    for command in commands:
        parse(command.split())


def test_the_demo_is_the_command_that_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "fit digits --num-instances 4 --seed 0" in makefile
    assert "midam fit digits --num-instances 4 --seed 0" in README
    first_screen = README.splitlines()[:35]
    assert all(any(line.startswith(f"make {target} ") for line in first_screen) for target in ("demo", "test"))


def test_links_lead_to_files() -> None:
    targets = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert targets
    assert [target for target in targets if not (ROOT / target).is_file()] == []


@pytest.mark.long
def test_the_example_of_the_quick_start_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example, _ = blocks("python", QUICKSTART)
    names: dict[str, Any] = {}
    exec(example, names)
    test = names["test"]
    assert isinstance(test, Bags)
    assert auroc(test.require_labels(), np.asarray(names["scores"])) > 0.8
    # Calibration keeps the ranking.
    assert auroc(test.require_labels(), names["probabilities"]) == auroc(test.require_labels(), names["scores"])
    assert np.asarray(names["first"].weight).sum() == pytest.approx(1, rel=1e-5)
    assert len(names["first"].weight) == test.sizes[0]
    assert set(np.asarray(names["classes"]).tolist()) == {0, 1}
    assert "Interval(low=" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Expected scores that rank held-out bags")
def test_a_run_is_loaded_as_the_quick_start_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "digits", "--epochs", "1", "--members", "1", "--out", "runs/demo"]) == 0
    _, example = blocks("python", QUICKSTART)
    names: dict[str, Any] = {}
    exec(example, names)
    written = pd.read_csv("runs/demo/predictions.csv")
    np.testing.assert_allclose(names["scores"], written["score"], rtol=1e-6)
    np.testing.assert_allclose(names["probabilities"], written["probability"], rtol=1e-6)
    assert names["called"].tolist() == (written["class"] == 1).tolist()


def test_files_of_a_run_are_named_in_the_quick_start() -> None:
    paths = [
        path.relative_to("run").as_posix()
        for name, path in vars(RunFolder(Path("run"))).items()
        if isinstance(path, Path) and name != "root"
    ]
    assert len(paths) >= 9
    assert [path for path in paths if f"`{path}`" not in QUICKSTART] == []
