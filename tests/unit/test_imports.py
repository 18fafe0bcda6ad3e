"""The direction of imports, and rules that every file of the package follows."""

import ast

import pytest
from tests.house import SRC, circles, measure, wrong_imports


def test_imports_point_one_way_and_each_file_says_what_it_is():
    assert measure().against_layers == []
    for path in sorted(SRC.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert not any(isinstance(function, ast.Name) and function.id == "print" for function in called), path


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
    assert len(wrong_imports(source, part)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("functional", "import math\nimport torch\nfrom torch.nn.functional import logsigmoid\nfrom typing import Any"),
        ("nn", "from midam.errors import ConfigError\nfrom midam.functional import pooling\nimport numpy"),
        ("cli", "from midam.sklearn import MIDAMClassifier"),
    ],
)
def test_a_right_import_passes(part, source):
    assert wrong_imports(source, part) == []


def test_a_circle_is_found_whole():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert circles(imports) == [["a", "b", "c"]]
