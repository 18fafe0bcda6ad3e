"""`trials.csv`: a row a trial, appended as trials finish, read again by a run that goes on."""

import csv
import dataclasses
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midam.errors import CheckpointError
from midam.files import write_text

OK = "ok"
DIVERGED = "diverged"
ONE_CLASS_TEST = "one-class-test"
ONE_CLASS_TRAIN = "one-class-train"
NO_VALIDATION = "no-validation"
STATUSES = (OK, DIVERGED, ONE_CLASS_TEST, ONE_CLASS_TRAIN, NO_VALIDATION)

Key = tuple[str, int, int]


@dataclass(frozen=True)
class TrialRow:
    """One method on one fold.

    Attributes
    ----------
    method : str
        Its name.
    repeat, fold : int
        The fold.
    auroc, auprc : float or None
        Of the test bags; None unless the status is "ok".
    seconds : float or None
        Wall time of the trial, selection included; trials trained in lockstep share theirs equally.
    peak_mib : float or None
        Peak memory of one training in MiB above libraries and data; measured in one trial a method.
    lr, margin : float or None
        Of the scorer that was tested; None where the method has none.
    epoch : int or None
        Epoch whose weights were tested.
    test_bags, test_positives : int
        Counts.
    seed : int
        Of validation part, weights and sampling.
    status : str
        "ok"; "diverged"; "one-class-test", "one-class-train": no AUROC, or nothing to learn, without both classes;
        "no-validation": the training part cannot spare a validation part with both classes.
    """

    method: str
    repeat: int
    fold: int
    auroc: float | None
    auprc: float | None
    seconds: float | None
    peak_mib: float | None
    lr: float | None
    margin: float | None
    epoch: int | None
    test_bags: int
    test_positives: int
    seed: int
    status: str

    @property
    def key(self) -> Key:
        """What names the trial."""
        return self.method, self.repeat, self.fold


COLUMNS = [field.name for field in dataclasses.fields(TrialRow)]
_INTEGERS = ("repeat", "fold", "epoch", "test_bags", "test_positives", "seed")
_TEXTS = ("method", "status")


def start_trials(path: Path) -> list[TrialRow]:
    """Rows of `trials.csv`; makes the file where there is none, and drops a last line that was not finished.

    Raises
    ------
    CheckpointError
        If the file is no such table.
    """
    if not path.exists():
        write_text(path, ",".join(COLUMNS) + "\n")
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise CheckpointError(
            f"Expected text in UTF-8, got other bytes (in {path}, line {line}); remove the line to compute the trial "
            "again."
        ) from None
    whole = text[: text.rfind("\n") + 1]
    rows = _parse(whole, path)
    if whole != text:
        write_text(path, whole)
    return rows


def append_trials(path: Path, rows: Iterable[TrialRow]) -> None:
    """Append rows in one write and see them on the disk."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # Floats in full, as csv writes them: a row that is read again is the row that was written.
    writer.writerows([getattr(row, column) for column in COLUMNS] for row in rows)
    with path.open("ab", buffering=0) as file:
        file.write(text.getvalue().encode())
        os.fsync(file.fileno())


def _parse(text: str, path: Path) -> list[TrialRow]:
    lines = csv.reader(io.StringIO(text))
    if next(lines, None) != COLUMNS:
        raise CheckpointError(
            f"Expected the columns {','.join(COLUMNS)}, got others (in {path}); choose another --out."
        )
    rows = []
    for number, line in enumerate(lines, start=2):
        try:
            fields: dict[str, Any] = {name: _value(name, cell) for name, cell in zip(COLUMNS, line, strict=True)}
            rows.append(_sound(TrialRow(**fields)))
        except (ValueError, TypeError):
            raise CheckpointError(
                f"Expected a trial of {len(COLUMNS)} fields, with an AUROC in [0, 1] where its status is ok, got "
                f"something else (in {path}, line {number}); remove the line to compute the trial again."
            ) from None
    return rows


def _sound(row: TrialRow) -> TrialRow:
    if row.status == OK and (row.auroc is None or not 0 <= row.auroc <= 1):
        raise ValueError(row.auroc)
    return row


def _value(name: str, cell: str) -> str | int | float | None:
    if name in _TEXTS:
        if name == "status" and cell not in STATUSES:
            raise ValueError(cell)
        return cell
    if cell == "":
        return None
    return int(cell) if name in _INTEGERS else float(cell)
