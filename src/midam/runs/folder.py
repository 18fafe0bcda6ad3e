"""The run folder: which file is what, and how numbers are written in CSV."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midam.errors import RunExistsError


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


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header line; floats in 9 significant digits, None as an empty field."""
    lines = io.StringIO()
    writer = csv.DictWriter(lines, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _field(row.get(key)) for key in columns})
    return lines.getvalue()


def _field(value: Any) -> Any:
    """Nine significant digits tell any two float32 apart."""
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value
