"""What all tests share: the real data, the skips that say why, and a count of them at the end."""

import atexit
import gc
import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from tests import quick

quick.install()

# Each search for garbage looks through what torch, pandas and thousands of tests have made, which lives to the end.
gc.set_threshold(10_000)
atexit.register(gc.freeze)

# Tests run beside each other: a command that is given no number of processes starts none, which would import torch.
os.environ["LOKY_MAX_CPU_COUNT"] = "1"

# The same examples on each run, and no deadline: a slow or shared machine must not turn a right answer red.
settings.register_profile("midam", deadline=None, derandomize=True)
settings.load_profile("midam")
# It would look for numbers to try in the files that a worker happens to have imported, which takes it seconds.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants


_FORKING = {
    ("tests.integration.commands", "start"),
    ("tests.integration.commands", "fork"),
    ("tests.ranked", "launch"),
}


def _data_root() -> tuple[Path | None, str]:
    """Return the folder of the real data, or None and the reason."""
    value = os.environ.get("MIDAM_DATA", "")
    if not value:
        return None, "MIDAM_DATA is not set"
    if not (Path(value) / "tabular").is_dir():
        return None, f"MIDAM_DATA={value} holds no folder 'tabular'"
    return Path(value), ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-data", action="store_true", help="missing real data or any skipped test is an error")


def pytest_configure(config: pytest.Config) -> None:
    root, reason = _data_root()
    if config.getoption("--require-data") and root is None:
        raise pytest.UsageError(f"Expected the real data, got none ({reason}); set MIDAM_DATA to its folder.")


@cache
def _forks(module: ModuleType | None) -> bool:
    """Whether a file of tests has what starts commands in processes."""
    known = () if module is None else vars(module).values()
    return any((getattr(x, "__module__", ""), getattr(x, "__name__", "")) in _FORKING for x in known)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch  # seconds, which the process that only shares out the tests does without

    from studies.peers import libauc_folder

    torch.set_num_threads(1)
    # One worker has them all: the import of the tracers takes seconds.
    items.sort(key=lambda item: item.get_closest_marker("traced") is None)
    # The second of two workers begins with those that fork a server of commands, which imports what they need.
    forking, others = [], list[pytest.Item]()
    for item in items:
        forks = _forks(getattr(item, "module", None)) and not item.get_closest_marker("traced")
        (forking if forks else others).append(item)
    middle = len(items) // 2
    items[:] = [*others[:middle], *forking, *others[middle:]]
    root, data_reason = _data_root()
    available = {
        "data": (root is not None, data_reason),
        "gpu": (torch.cuda.is_available(), "no CUDA device"),
        "timm": (find_spec("timm") is not None, "timm is not installed; run `make test-timm`"),
        "libauc": (libauc_folder() is not None, "LibAUC is not installed; run `make libauc`"),
    }
    for item in items:
        for marker, (present, reason) in available.items():
            if item.get_closest_marker(marker) and not present:
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("drawn")
    quick.draw(marker is not None and marker.args != (False,))


def _skipped(reporter: pytest.TerminalReporter, marker: str | None = None) -> int:
    reports = reporter.stats.get("skipped", [])
    return sum(marker is None or marker in report.keywords for report in reports)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    required = session.config.getoption("--require-data")
    if required and reporter is not None and _skipped(reporter) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    skipped = _skipped(terminalreporter, "data")
    advice = " (set MIDAM_DATA to run them)" if skipped and _data_root()[0] is None else ""
    terminalreporter.write_line(f"data tests skipped: {skipped}{advice}")
    total = _skipped(terminalreporter)
    if config.getoption("--require-data") and total:
        terminalreporter.write_line(f"--require-data: {total} skipped tests count as failures", red=True)


@pytest.fixture(scope="session")
def mixed_export(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Return a run and its export in all forms: to trace a model takes seconds."""
    from tests.unit.test_export import SUMMARY, mixed

    from midam.export.run import FORMATS, write_export

    run, folder = mixed(), tmp_path_factory.mktemp("export")
    operations = import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
    with pytest.MonkeyPatch.context() as patch:  # torch looks through all of them for each of three programs
        patch.setattr(operations, "from_torchlib", staticmethod(cache(operations.from_torchlib)))
        if write_export(run, SUMMARY, folder) != list(FORMATS):
            raise RuntimeError("the run was not exported")
    return run, folder


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of the real data; a test that asks for it carries `@pytest.mark.data`."""
    root, reason = _data_root()
    if root is None:
        raise pytest.UsageError(f"Expected the real data, got none ({reason}); mark the test with @pytest.mark.data.")
    return root
