"""The direction of imports, and two rules that hold for each file of the package."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "midam"
MODULES = sorted(SRC.rglob("*.py"))
STUDIES = sorted((ROOT / "studies").rglob("*.py"))

# What the files of a part may import, besides themselves. A part that is not listed fails: give it its place.
CORE = {
    *("errors", "exports", "files", "names", "plain_files", "ranks", "reading", "registry", "settings", "starting"),
    "synonyms",
}
BELOW_EVALUATE = CORE | {"functional", "nn", "data"}
BELOW_TRAIN = BELOW_EVALUATE | {"evaluate"}
BELOW_RUNS = BELOW_TRAIN | {"targets", "train", "report"}
TOP = BELOW_RUNS | {"runs"}
ALLOWED = {
    "errors": {"synonyms"},
    "synonyms": set(),
    "exports": set(),
    "plain_files": {"errors"},
    "names": {"errors"},
    "files": {"errors", "plain_files", "reading"},
    "ranks": {"errors", "starting"},
    "starting": {"errors"},
    "reading": {"errors", "names"},
    "registry": {"errors"},
    "settings": {"errors", "names", "reading", "registry", "synonyms"},
    "functional": set(),
    "data": CORE | {"functional"},
    "nn": CORE | {"functional"},
    "evaluate": BELOW_EVALUATE,
    "targets": BELOW_TRAIN,
    "train": BELOW_TRAIN | {"targets"},
    "report": BELOW_TRAIN | {"train"},
    "runs": BELOW_RUNS,
    "explain": TOP,
    "export": TOP,
    "compare": TOP,
    "sklearn": TOP | {"explain"},
    "cli": TOP | {"compare", "explain", "export", "sklearn"},
    "__init__": TOP | {"sklearn", "export"},
}
FUNCTIONAL_MAY_USE = {"torch", "math", "typing", "collections"}


def part_of(path: Path) -> str:
    """Return `data` for `src/midam/data/bags.py` and `errors` for `src/midam/errors.py`."""
    return path.relative_to(SRC).with_suffix("").parts[0]


def imported_names(tree: ast.Module) -> list[str]:
    """Return the dotted name of everything that is imported, at any depth: `from a.b import c` gives `a.b.c`."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += ["." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names]
    return names


def violations(source: str, part: str) -> list[str]:
    """Return the imports in `source` that a file of `part` may not have."""
    wrong = []
    for name in imported_names(ast.parse(source)):
        package, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if package == "studies":
            wrong.append(name)
        elif package == "midam":
            version = target == "__version__" and part != "functional"
            if not version and target != part and target not in ALLOWED[part]:
                wrong.append(name)
        elif package == "" or (part == "functional" and package not in FUNCTIONAL_MAY_USE):
            wrong.append(name)
    return wrong


def has_print(source: str) -> bool:
    """Return whether `source` calls the built-in `print`."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == "print" for function in calls)


def test_the_package_was_found():
    assert {"__init__", "errors", "functional", "nn", "data"} <= {part_of(path) for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_imports_point_one_way(path):
    assert violations(path.read_text(encoding="utf-8"), part_of(path)) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_module_has_a_docstring_and_does_not_print(path):
    source = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source))
    assert not has_print(source)


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("nn", "from midam.data.bags import Bags"),
        ("data", "from midam.nn import pooling"),
        ("data", "from midam import nn"),
        ("evaluate", "import midam.train.trainer"),
        ("evaluate", "def late():\n    from midam.train import trainer"),
        ("train", "from midam.report import page"),
        ("functional", "import numpy as np"),
        ("functional", "from midam.errors import MidamError"),
        ("functional", "from midam.settings import usual_chunk"),
        ("settings", "from midam.data.batch import InstanceReader"),
        ("functional", "from midam import __version__"),
        ("compare", "from midam.cli.parser import Parser"),
        ("runs", "from midam.compare import run_comparison"),
        ("runs", "from midam.explain import explain_bag"),
        ("train", "from midam.compare.statistics import corrected_interval"),
        ("sklearn", "from midam.cli import main"),
        ("train", "import midam"),
        ("compare", "from studies.registry import STUDIES"),
        ("nn", "from . import pooling"),
        ("nn", "from .pooling import Head"),
    ],
)
def test_a_wrong_import_is_found(part, source):
    assert len(violations(source, part)) == 1


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("functional", "import math\nimport torch\nfrom torch.nn.functional import logsigmoid\nfrom typing import Any"),
        ("functional", "from midam.functional.logmean import merge"),
        ("nn", "from midam.errors import ConfigError\nfrom midam.functional import pooling\nimport numpy"),
        ("train", "from midam import __version__\nfrom midam.evaluate.predict import predict"),
        ("compare", "from midam.runs.data import read_data\nfrom midam.train.lockstep import train_trials"),
        ("cli", "from midam.sklearn import MIDAMClassifier"),
    ],
)
def test_a_right_import_passes(part, source):
    assert violations(source, part) == []


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: str(path.relative_to(ROOT)))
def test_studies_know_the_library_and_not_its_command_line(path):
    source = path.read_text(encoding="utf-8")
    names = imported_names(ast.parse(source))
    assert [name for name in names if name.startswith((".", "midam.cli", "tests", "benchmarks"))] == []
    assert ast.get_docstring(ast.parse(source))
    assert not has_print(source)


def test_a_print_is_found():
    assert has_print("def f():\n    print(1)")
    assert not has_print("console.print(1)\nprinter(2)")
