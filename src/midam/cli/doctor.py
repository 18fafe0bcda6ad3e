"""`midam doctor`: report installed packages, the machine, and its slow parts."""

import os
import platform
import re
import shutil
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import NamedTuple

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from midam._version import __version__
from midam.cli.parser import Parser
from midam.errors import install
from midam.lazy_imports import torch
from midam.report.program import note_result, stdout_console

_TEXT = """Print the installed packages, the missing extras and their use, the processors, memory and disks with their
speed, and what slows midam down here. No data leaves the machine."""
EXTRAS = {
    "parquet": "Parquet tables",
    "excel": "Excel tables",
    "hdf5": "HDF5 files",
    "zarr": "Zarr files",
    "images": "images, such as PNG, JPEG and TIFF",
    "pretrained": "a pretrained network for images, with its weights",
    "transformers": "pretrained networks by hf:NAME",
    "timm": "pretrained networks by timm:NAME",
    "medical": "NIfTI and DICOM",
    "wsi": "whole slides",
    "export": "export as ONNX and safetensors, networks by onnx:FILE",
    "track": "TensorBoard",
    "peers": "torchmil, for studies",
    "dask": "comparisons on a Dask cluster",
    "ray": "comparisons on a Ray cluster",
}
_REQUIRED = re.compile(r"(?P<package>[\w.-]+).*; extra == ['\"](?P<extra>\w+)['\"]")
_BASIS = ("torch", "numpy", "scipy", "scikit-learn", "pandas")
_LEAST_FREE, _LEAST_PACE = 2**30, 50.0  # bytes; MiB a second
_WRITTEN, _IMAGES, _STEPS = 32, 64, 3


class Entry(NamedTuple):
    """A line of the report: part, name, state, and advice, which is "" if all is well."""

    part: str
    name: str
    found: str
    advice: str = ""


def parser() -> ArgumentParser:
    """Return the parser of the command."""
    return Parser("doctor", _TEXT)


def run(options: Namespace, console: Console) -> int:  # noqa: ARG001
    """Check the installation and print the report; returns the exit code."""
    entries = [*_versions(), *_extras(), *_machine(), *_paces()]
    note_result(found=[entry._asdict() for entry in entries])
    out = stdout_console()
    for part in dict.fromkeys(entry.part for entry in entries):
        table = Table(part, "", "", box=None, header_style="bold")
        if part == "extras":
            names = [entry.name.partition(":")[0] for entry in entries if entry.part == part and not entry.advice]
            table.add_row("installed", escape(", ".join(names)), "")
        for entry in entries:
            if entry.part == part and (entry.advice or part != "extras"):
                table.add_row(*map(escape, entry[1:]))
        out.print(table)
        out.print()
    wrong = [entry.name for entry in entries if entry.advice and entry.part != "extras"]
    out.print(escape(f"to look at: {', '.join(wrong)}" if wrong else "nothing is wrong"))
    return 0


def _versions() -> list[Entry]:
    entries = [Entry("versions", "midam", f"{__version__}, in {Path(__file__).parents[1]}")]
    entries.append(Entry("versions", "Python", f"{platform.python_version()}, {sys.executable}"))
    return entries + [Entry("versions", name, _version(name) or "missing") for name in _BASIS]


def _extras() -> list[Entry]:
    """Return for each extra whether its packages are installed, and how to install missing ones."""
    matches = [_REQUIRED.fullmatch(line) for line in requires("midam") or ()]
    entries = []
    for name, purpose in EXTRAS.items():
        packages = [match["package"] for match in matches if match is not None and match["extra"] == name]
        bad = [package for package in packages if _version(package) is None]
        state = f"missing: {', '.join(bad)}" if bad else "installed"
        entries.append(Entry("extras", f"{name}: {purpose}", state, install(name) if bad else ""))
    return entries


def _machine() -> list[Entry]:
    from joblib import cpu_count

    from midam.data.on_disk import physical_memory
    from midam.report.describe import format_bytes

    cores, threads = int(cpu_count()), torch.get_num_threads()
    few = f"images train on {threads} of {cores} cores; unset OMP_NUM_THREADS" if threads < cores // 2 else ""
    entries = [
        Entry("machine", "system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        Entry("machine", "cores", f"{cores}, torch takes {threads}", few),
        Entry("machine", "memory", format_bytes(physical_memory())),
        _gpu(),
    ]
    for name, place in (("disk of this folder", Path.cwd()), ("disk for temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(place).free
        advice = "free disk space: runs and stores are written whole or not at all" if free < _LEAST_FREE else ""
        entries.append(Entry("machine", name, f"{format_bytes(free)} free ({place})", advice))
    data = os.environ.get("MIDAM_DATA")
    if data is not None:
        wrong = "" if Path(data).is_dir() else "no such folder: correct MIDAM_DATA, or unset it"
        entries.append(Entry("machine", "MIDAM_DATA", data, wrong))
    return entries


def _gpu() -> Entry:
    if torch.cuda.is_available():
        cards = [torch.cuda.get_device_properties(at) for at in range(torch.cuda.device_count())]
        return Entry(
            "machine", "GPU", ", ".join(f"{card.name} ({card.total_memory / 2**30:.0f} GiB)" for card in cards)
        )
    has_driver = Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-smi") is not None
    advice = "torch is built for CUDA, but finds no GPU: see whether `nvidia-smi` does"
    if torch.version.cuda is None:
        advice = "there is a GPU, but this torch is built for the CPU: install a CUDA build, see https://pytorch.org"
    return Entry("machine", "GPU", "none; training runs on the CPU", advice if has_driver else "")


def _paces() -> list[Entry]:
    """Measure the speed of training and of writing to disk in a few seconds."""
    from midam.nn.encoders import ResNet20

    encoder, images = ResNet20(3), torch.rand(_IMAGES, 3, 32, 32)
    encoder(images).sum().backward()  # the first pass is slower
    start = time.perf_counter()
    for _ in range(_STEPS):
        encoder(images).sum().backward()
    pace = _STEPS * _IMAGES / (time.perf_counter() - start)
    entries = [Entry("speed", "training, resnet20", f"{pace:.0f} images of 32 x 32 a second on the CPU")]
    with tempfile.NamedTemporaryFile(dir=Path.cwd() if os.access(Path.cwd(), os.W_OK) else None) as file:
        start = time.perf_counter()
        for _ in range(_WRITTEN):
            file.write(bytes(2**20))
        os.fsync(file.fileno())
        wrote = _WRITTEN / (time.perf_counter() - start)
    advice = "keep runs and stores on a faster disk, with --out" if wrote < _LEAST_PACE else ""
    return [*entries, Entry("speed", "writing to disk", f"{wrote:.0f} MiB a second", advice)]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
