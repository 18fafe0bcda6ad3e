"""The direction of imports, and rules that every file of the package follows."""

import ast
import importlib.util

import pytest
from tests import quick
from tests.house import SRC, circles, imported_names, part_of, wrong_imports


def tree_of(path):
    """The syntax tree of a file that has a docstring and leaves `print` to the console."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert ast.get_docstring(tree), path
    assert not any(isinstance(function, ast.Name) and function.id == "print" for function in called), path
    return tree


def test_imports_point_one_way():
    for path in sorted(SRC.rglob("*.py")):
        assert wrong_imports(tree_of(path), part_of(path)) == [], path


def test_studies_know_the_library_and_not_its_command_line():
    for path in sorted((SRC.parents[1] / "studies").rglob("*.py")):
        names = imported_names(tree_of(path))
        assert [name for name in names if name.startswith((".", "midam.cli", "tests", "benchmarks"))] == [], path


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("nn", "from midam.data.bags import Bags"),
        ("data", "from midam import nn"),
        ("evaluate", "def late():\n    from midam.train import trainer"),
        ("functional", "import numpy as np"),
        ("functional", "from midam.errors import MidamError"),
        ("settings", "from midam.data.batch import InstanceReader"),
        ("runs", "from midam.compare import run_comparison"),
        ("train", "import midam"),
        ("compare", "from studies.registry import STUDIES"),
        ("nn", "from .pooling import Head"),
    ],
)
def test_a_wrong_import_is_found(part, source):
    assert len(wrong_imports(ast.parse(source), part)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("functional", "import math\nimport torch\nfrom torch.nn.functional import logsigmoid\nfrom typing import Any"),
        ("nn", "from midam.errors import ConfigError\nfrom midam.functional import pooling\nimport numpy"),
        ("cli", "from midam.sklearn import MIDAMClassifier"),
    ],
)
def test_a_right_import_passes(part, source):
    assert wrong_imports(ast.parse(source), part) == []


def test_a_circle_is_found_whole():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert circles(imports) == [["a", "b", "c"]]


def test_the_modules_that_tests_make_quick_exist():
    """A module that was renamed would be slow again, and nothing else would say so."""
    assert [name for name in quick._CHANGES if importlib.util.find_spec(name) is None] == []
