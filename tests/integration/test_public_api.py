"""The public names: exported, documented, found on the API page."""

import ast
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from tests.integration.commands import table

import midam
from midam.cli import main

ROOT = Path(__file__).parents[2]
PACKAGES = ("data", "evaluate", "explain", "export", "imaging", "report", "runs", "sklearn", "train")
LAZY = [midam, *(importlib.import_module(f"midam.{name}") for name in PACKAGES)]
# Packages whose classes a user makes or subclasses.
SHOWN = [
    *("midam", "midam.compare", "midam.data", "midam.imaging", "midam.evaluate", "midam.explain", "midam.functional"),
    *("midam.nn", "midam.settings", "midam.sklearn", "midam.targets", "midam.train"),
]


def seen_by_type_checkers(package: ModuleType) -> dict[str, str]:
    """Name and module of all that a package imports for type checkers."""
    (block,) = (node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If))
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "or strict type checkers do not take it for an export"
            found[alias.name] = node.module
    return found


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_type_checkers_see_what_is_exported(package):
    seen = seen_by_type_checkers(package)
    assert package.__all__ == sorted(seen)
    for name, module in seen.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
        assert name in dir(package)
        assert inspect.getdoc(getattr(package, name))
        # A module of that name would take its place as soon as it is imported.
        assert importlib.util.find_spec(f"{package.__name__}.{name}") is None


@pytest.mark.parametrize("package", SHOWN)
def test_each_class_shows_an_example(package):
    """But exceptions, which are raised and not made: their messages say what to do."""
    found = importlib.import_module(package)
    classes = [value for name in found.__all__ if inspect.isclass(value := getattr(found, name))]
    made = [kind for kind in classes if not issubclass(kind, BaseException)]
    assert made
    assert [kind.__name__ for kind in made if ">>>" not in (kind.__doc__ or "")] == []


def test_a_name_that_is_none_is_no_attribute():
    with pytest.raises(AttributeError, match="module 'midam' has no attribute 'Bagz'"):
        _ = midam.Bagz
    with pytest.raises(ImportError):
        exec("from midam import Bagz")


def loaded_by(*stages: str, then: Sequence[Sequence[str]] = ()) -> list[set[str]]:
    """Modules and their parts, as `scipy` and `scipy.stats`, that a new program has loaded at the end of each stage.

    `then` are stages of forks of it, which have loaded what it has.
    """
    show = "\nimport sys; print('loaded', *{'.'.join(name.split('.')[:2]) for name in sys.modules}, flush=True)\n"
    code = "".join(stage + show for stage in stages)
    for branch in then:
        rest = "".join(stage + show for stage in branch)
        code += (
            f"import os\nif kid := os.fork(): assert os.waitpid(kid, 0)[1] == 0\nelse: exec({rest!r}); os._exit(0)\n"
        )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded ")]


HEAVY = {"pandas", "sklearn", "scipy", "lightning_fabric", "pydantic", "matplotlib", "yaml", "joblib"}


def test_what_needs_no_tensor_loads_no_torch(tmp_path):
    path = table(tmp_path / "bags.csv")
    names, first_help, store, wrong_table = loaded_by(
        "import midam; from midam import MidamError, __version__; from midam.cli import main",
        "for words in ([], ['--help'], ['--version']):\n    try: main(words)\n    except SystemExit: pass",
        "import midam.data.store",
        f"assert main(['fit', {str(path)!r}, '--label-column', 'labl']) == 2",
    )
    assert not (names | first_help) & (HEAVY | {"torch", "numpy"})
    assert "torch" not in store
    assert not wrong_table & {"torch", "sklearn", "lightning_fabric", "matplotlib", "joblib"}


def test_pure_functions_load_torch_alone_an_estimator_nothing_that_shows_and_scores_no_scikit_learn(tmp_path):
    path, run, out = str(table(tmp_path / "bags.csv")), str(tmp_path / "run"), str(tmp_path / "scores.csv")
    words = ["fit", path, "--epochs", "1", "--members", "1", "--no-baseline", "--folds", "0"]
    words += ["--accelerator", "cpu", "--out"]
    assert main([*words, run]) == 0
    interface = (
        "from midam import MIDAMClassifier, BagClassifier",
        # packages are attributes from the start
        "import midam; midam.data; midam.nn; midam.registry; midam.evaluate.auroc; midam.runs.load_run",
    )
    commands = (
        f"from midam.cli import main\nassert main({['predict', run, path, '--out', out]}) == 0",
        "from tests import quick; quick.install(); quick.draw(False)",
        f"assert main({[*words, str(tmp_path / 'again')]}) == 0",
        f"assert main({['fit', path, *words[-3:], str(tmp_path / 'auto')]}) == 0",
    )
    pure, estimator, _, predicting, _, fitting, choosing = loaded_by(
        "import midam.functional, midam.functional.logmean, midam.functional.objectives", then=[interface, commands]
    )
    assert not pure & HEAVY
    assert "torch" in pure
    assert not estimator & {"matplotlib", "rich", "jinja2", "lightning_fabric", "lightning", "PIL", "h5py"}
    assert not predicting & {"lightning_fabric", "matplotlib", "sklearn", "scipy.stats"}
    assert not (fitting | choosing) & {"lightning_fabric", "sympy"}  # which torch._dynamo would bring along
