"""Tests and code that the documentation names exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from docs import hooks

from studies.sets.catalog import names

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CITED = sorted({pair for page in PAGES for pair in re.findall(r"`(test_\w+\.py)::(\w+)`", page.read_text("utf-8"))})
NAMED = sorted(
    {
        name
        for page in PAGES
        for name in re.findall(
            r"`(?:midam\.)?((?:functional|nn|data|evaluate|train|runs|report)\.\w+(?:\.\w+)*)[`(]",
            page.read_text("utf-8"),
        )
        if not name.endswith(".html")
    }
)


def test_references_were_found() -> None:
    assert len(CITED) > 30
    assert len(NAMED) > 20


@pytest.mark.parametrize(("file", "test"), CITED)
def test_cited_tests_exist(file: str, test: str) -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in (ROOT / "tests").rglob(file)]
    functions = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert test in functions


@pytest.mark.parametrize("name", [name for name in NAMED if name != "report.html"])  # the file of a run
def test_named_code_exists(name: str) -> None:
    package, first, *rest = name.split(".")
    try:
        owner: object = importlib.import_module(f"midam.{package}.{first}")
    except ModuleNotFoundError:
        owner = getattr(importlib.import_module(f"midam.{package}"), first)
    for part in rest:
        owner = getattr(owner, part)


def test_each_file_of_the_example_package_is_shown() -> None:
    shown = re.findall(r'^--8<-- "([\w/.]+)"$', (ROOT / "docs" / "extending.md").read_text("utf-8"), flags=re.MULTILINE)
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "examples" / "plugin" / "src").rglob("[!_]*.py")}
    assert set(shown) == files


def test_the_page_of_data_sets_has_each_of_them_once() -> None:
    page = hooks.on_page_markdown((ROOT / "docs" / "studies.md").read_text("utf-8"))
    rows = re.findall(rf"^\| `([\w-]+)` \|{' [^|]+ [|]' * 3}$", page, flags=re.MULTILINE)
    assert rows == names()
    assert "<!-- catalog" not in page
