"""The run folder: which file is what, and how each is written."""

import csv
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midam.errors import ConfigError, RunExistsError
from midam.files import write_bytes


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run.

    Parameters
    ----------
    root : Path
        The folder.
    """

    root: Path

    @property
    def config(self) -> Path:
        """Settings and the name of the data."""
        return self.root / "config.yaml"

    @property
    def metrics(self) -> Path:
        """A row an epoch."""
        return self.root / "metrics.csv"

    @property
    def predictions(self) -> Path:
        """A row a bag."""
        return self.root / "predictions.csv"

    @property
    def summary(self) -> Path:
        """What was measured."""
        return self.root / "summary.json"

    @property
    def last(self) -> Path:
        """Everything that a resume needs, as of the last whole epoch."""
        return self.root / "checkpoints" / "last.pt"

    @property
    def best(self) -> Path:
        """Weights of the epoch with the best validation AUROC."""
        return self.root / "checkpoints" / "best.pt"

    @property
    def model(self) -> Path:
        """The trained model and what applying it needs."""
        return self.root / "model.pt"

    @property
    def roc(self) -> Path:
        """ROC curve of the test bags."""
        return self.root / "roc.png"

    @property
    def curves(self) -> Path:
        """Loss and AUROC along the epochs."""
        return self.root / "curves.png"

    def require_free(self) -> None:
        """Refuse a folder that already holds something.

        Raises
        ------
        RunExistsError
            If it does, or cannot be made.
        """
        for parent in self.root.absolute().parents:
            if parent.exists() and not parent.is_dir():
                raise RunExistsError(
                    f"Expected a free run folder, got {self.root} below the file {parent}; choose another --out."
                )
        if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
            raise RunExistsError(
                f"Expected a free run folder, got {self.root}, which holds files; choose another --out, continue "
                f"it with --resume {self.root}, or remove it."
            )


def free_folder(parent: Path, name: str) -> RunFolder:
    """First of ``parent/name``, ``parent/name-2``, ... that does not exist."""
    root, number = parent / name, 1
    while root.exists():
        number += 1
        root = parent / f"{name}-{number}"
    return RunFolder(root)


@contextmanager
def held_alone(folder: Path, *, doing: str) -> Iterator[None]:
    """Make a folder where there is none, and hold it against other processes that ask for the same.

    Raises
    ------
    ConfigError
        If another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The folder itself is locked, not a file in it: nothing is left behind, whatever ends the process.
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"Expected no other {doing} in {folder}, got one that is running; wait for its end, or choose another "
                "--out."
            ) from None
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON atomically; a value that is not finite is an error."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header line; floats in 9 significant digits, None as an empty field."""
    lines = _Lines()
    writer = csv.DictWriter(lines, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: format_number(row.get(key)) for key in columns})
    return "".join(lines.parts)


def format_number(value: Any) -> Any:
    """Floats in 9 significant digits, enough to tell any two float32 apart."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else value


class _Lines:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return len(text)
