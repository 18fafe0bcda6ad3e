"""Folders from a stranger: what somebody can put in place of a file, and the names that a file can carry.

The canaries are a file and a folder outside, which must not change, and a module on the path that must not be imported.
"""

import json
import os
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import yaml
from tests.integration.commands import table

from midam.cli import main
from midam.data.store.format import _checksum

SECONDS = 60  # of a command; a pipe that is waited for lasts for ever
MODULE = "canary_module"
EVIL = f"{MODULE}.Net"
_FIT = ("--epochs", "1", "--members", "1", "--num-instances", "2", "--no-baseline")
_COMPARE = ("--methods", "mean-map-svm,bag-statistics-logistic", "--cv", "1x2", "--jobs", "1")

Trick = Callable[[Path, Path], None]  # changes a folder; the second is the folder of the canaries


class Canaries:
    """A folder outside, with a file and an empty folder, and a module that tells of its import."""

    def __init__(self, place: Path) -> None:
        self.place, self.file, self.folder = place, place / "canary", place / "canary-folder"
        self.imported = place / "imported"
        self.folder.mkdir(parents=True)
        self.file.write_text("a file of the user\n")
        self.file.chmod(0o600)
        (place / f"{MODULE}.py").write_text(
            f"open({str(self.imported)!r}, 'w').close()\nfrom torch import nn\nclass Net(nn.Linear): pass\n"
        )
        self._before = self._facts()

    def _facts(self) -> list[Any]:
        known = self.file.stat()
        inside = sorted(str(path.relative_to(self.place)) for path in self.place.rglob("*"))
        return [self.file.read_bytes(), stat.S_IMODE(known.st_mode), known.st_mtime_ns, known.st_ino, inside]

    def check(self) -> None:
        """Fail if anything outside has changed, or the module was imported."""
        assert not self.imported.exists(), "the module was imported"
        assert MODULE not in sys.modules
        found = self._facts()
        found[4] = [name for name in found[4] if "__pycache__" not in name]
        assert found == self._before


class HangError(BaseException):  # no handler of errors takes it
    """A command waits for something that never comes."""


@contextmanager
def in_time() -> Iterator[None]:
    """Raise `HangError` after `SECONDS`."""

    def stop(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _socket(path: Path) -> None:
    home = os.getcwd()
    os.chdir(path.parent)  # a name may have 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(home)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, outside: path.symlink_to(outside / "canary"),
    "hard link": lambda path, outside: path.hardlink_to(outside / "canary"),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "link to a folder": lambda path, outside: path.symlink_to(outside / "canary-folder"),
    "link to itself": lambda path, outside: path.symlink_to(path.name),
    "pipe": lambda path, outside: os.mkfifo(path),
    "device": lambda path, outside: path.symlink_to("/dev/zero"),
    "socket": lambda path, outside: _socket(path),
    "folder": lambda path, outside: path.mkdir(),
}


def _put(name: str, kind: str) -> Trick:
    def trick(folder: Path, outside: Path) -> None:
        path = folder / name
        with suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[kind](path, outside)

    return trick


def _tricks(*names: str) -> dict[str, Trick]:
    return {f"{kind} at {name}": _put(name, kind) for name in names for kind in KINDS}


def _model(**changes: Any) -> Trick:
    def trick(folder: Path, outside: Path) -> None:
        for name in ("model.pt", "checkpoints/last.pt"):
            content = torch.load(folder / "run" / name, weights_only=True)
            content["config"] |= changes
            torch.save(content, folder / "run" / name)

    return trick


def _yaml(name: str, **changes: Any) -> Trick:
    def trick(folder: Path, outside: Path) -> None:
        told = json.loads(json.dumps(changes).replace("OUTSIDE", str(outside)))
        path = folder / name
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | told))

    return trick


def _json(name: str, **changes: Any) -> Trick:
    def trick(folder: Path, outside: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) | changes
        if content.pop("checksum", None) is not None:
            content["checksum"] = _checksum(content)
        path.write_text(json.dumps(content))

    return trick


def _origin(**changes: Any) -> Trick:
    def trick(folder: Path, outside: Path) -> None:
        content = torch.load(folder / "run/model.pt", weights_only=True)
        content["data"] |= changes
        torch.save(content, folder / "run/model.pt")

    return trick


_TARGET = {"target": EVIL, "names": ["a", "b"]}
_NAMES = ("encoder", "pooling", "estimator", "objective", "reader", "logger")
RUN: dict[str, Trick] = {
    **_tricks("run/report.html", "run/report-bags.html", "run/.lock", "run/model.pt", "run/config.yaml"),
    **_tricks(
        "run/summary.json", "run/predictions.csv", "run/metrics.csv", "run/checkpoints", "run/checkpoints/last.pt"
    ),
    **_tricks("run/predict-bags", "run/predict-bags/predictions.csv", "run/predict-bags/why.html"),
    **{f"class path as {name} in the model": _model(**{name: EVIL}) for name in _NAMES},
    **{f"class path as {name} in the settings": _yaml("run/config.yaml", **{name: EVIL}) for name in _NAMES},
    "class path as method": _yaml("run/config.yaml", method=EVIL),
    "class path in a method": _yaml("run/config.yaml", method=f"midam.x+vrsp+{EVIL}"),
    "class path as target of the model": _origin(outcome=_TARGET),
    "class path as target of the summary": _json("run/summary.json", **_TARGET),
    "logger that writes elsewhere": _yaml(
        "run/config.yaml", logger="tensorboard", logger_args={"root_dir": "OUTSIDE/canary-folder"}
    ),
    "labels that are a device": _yaml("run/config.yaml", labels="/dev/zero"),
    "weights that are a device": _yaml("run/config.yaml", encoder_weights="/dev/zero"),
    "data that are a device": _yaml("run/config.yaml", data="/dev/zero"),
}
STORE: dict[str, Trick] = {
    **_tricks("store/store.json", "store/bags.csv", "store/instances.npy", ".again.part", ".again.journal"),
    **_tricks(".again.journal.lock"),
    "class path as target": _json("store/store.json", outcome={"target": EVIL, "names": ["a", "b"]}),
    "file of another folder": _json("store/store.json", table="../canary"),
}
COMPARISON: dict[str, Trick] = {
    **_tricks("compare/config.yaml", "compare/trials.jsonl", "compare/trials.jsonl.lock", "compare/trials.csv"),
    **_tricks("compare/summary.csv", "compare/summary.md", "compare/predictions.csv"),
    **_tricks("compare/report.html"),
    "class path as target": _yaml("compare/config.yaml", **_TARGET),
    "class path as method": _yaml("compare/config.yaml", methods=[EVIL, "mean-map-svm"]),
}
EXPORT: dict[str, Trick] = _tricks("export", "export.part", "export.export.lock", "export/config.json")
COMMANDS: dict[str, list[list[str]]] = {
    "run": [
        ["report", "run"],
        ["predict", "run", "bags.csv", "--out", "p.csv"],
        ["predict", "run", "bags.csv", "--why", "all"],
        ["report", "run", "bags.csv"],
        ["fit", "--resume", "run"],
    ],
    "store": [
        ["data", "verify", "store"],
        ["fit", "store", "--out", "new", *_FIT],
        ["data", "import", "bags.csv", "--out", "again"],
    ],
    "comparison": [["report", "compare"], ["compare", "bags.csv", *_COMPARE, "--out", "compare"]],
    "export": [["export", "run", "--out", "export", "--format", "safetensors"]],
}
FOLDERS: dict[str, dict[str, Trick]] = {"run": RUN, "store": STORE, "comparison": COMPARISON, "export": EXPORT}


def make_sound(folder: Path) -> None:
    """A run, a store and a comparison, with their data."""
    data = table(folder / "bags.csv")
    home = os.getcwd()
    os.chdir(folder)
    try:
        for words in (
            ["fit", data.name, *_FIT, "--out", "run"],
            ["data", "import", data.name, "--out", "store"],
            ["compare", data.name, *_COMPARE, "--out", "compare"],
        ):
            if main(words):
                raise RuntimeError(" ".join(words))
    finally:
        os.chdir(home)
