"""`midam doctor`: report the versions, the missing extras and the machine."""

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rich.console import Console

from midam._version import __version__
from midam.cli.parser import Options, Parser
from midam.errors import install
from midam.files import size_text
from midam.lazy_imports import torch
from midam.report.program import note_result, say

_TEXT = """Print the installed versions, the extras whose packages are missing and how to install them, and the
processors, memory, GPUs and free disk space. No data leaves the machine."""
_REQUIRED = re.compile(r"(?P<package>[\w.-]+).*; extra == ['\"](?P<extra>\w+)['\"]")
_OF_DEVELOPERS = ("dev", "docs", "peers")


def parser() -> Parser:
    """Return the parser of the command."""
    return Parser("doctor", _TEXT)


def run(options: Options, console: Console) -> int:  # noqa: ARG001
    """Print what is there and what is missing; returns the exit code."""
    from joblib import cpu_count

    from midam.data.on_disk import physical_memory

    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    facts = {"midam": f"{__version__}, in {Path(__file__).parents[1]}"}
    facts["Python"] = f"{platform.python_version()}, {sys.executable}"
    facts |= {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn", "pandas")}
    facts["system"] = f"{platform.system()} {platform.release()}, {platform.machine()}"
    facts["cores"] = f"{cpu_count()}, torch takes {torch.get_num_threads()}"
    facts["memory"] = f"{size_text(physical_memory())}, {size_text(shutil.disk_usage(Path.cwd()).free)} free on disk"
    facts["GPU"] = ", ".join(gpus) or f"none for torch, built for {torch.version.cuda or 'the CPU'}"
    facts |= {f"extra {name}": f"missing; {install(name)}" for name in _missing()}
    note_result(found=facts)
    for name, fact in facts.items():
        say(f"{name}: {fact}")
    return 0


def _missing() -> Iterator[str]:
    """Yield the extras with a package that is not installed."""
    matches = [match for match in map(_REQUIRED.fullmatch, requires("midam") or ()) if match is not None]
    for extra in dict.fromkeys(match["extra"] for match in matches):
        try:
            if extra not in _OF_DEVELOPERS:
                [version(match["package"]) for match in matches if match["extra"] == extra]
        except PackageNotFoundError:
            yield extra
