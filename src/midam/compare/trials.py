"""A trial of a comparison, one method on one fold, as a row of `trials.csv`.

`auroc` and `auprc` are of the test bags, None unless the `status` is "ok"; `lr`, `margin` and `epoch` of the scorer
that was tested; `seconds` wall time, selection included, which trials trained in lockstep share equally; `peak_mib`,
measured in one trial a method, the memory of a training above libraries and data; `seed` of validation part, weights
and sampling. `trials.jsonl` holds the `scores` of the test bags too, in the order of the fold.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from midam.compare.engine import Row, TrialStore
from midam.compare.folds import Fold
from midam.data.bags import Bags
from midam.errors import CheckpointError
from midam.files import write_text

OK = "ok"
DIVERGED = "diverged"
ONE_CLASS_TEST = "one-class-test"
ONE_CLASS_TRAIN = "one-class-train"
NO_VALIDATION = "no-validation"
STATUSES = (OK, DIVERGED, ONE_CLASS_TEST, ONE_CLASS_TRAIN, NO_VALIDATION)

_MEASURED = ("auroc", "auprc", "seconds", "peak_mib", "lr", "margin", "epoch")
_COUNTS = ("repeat", "fold", "test_bags", "test_positives", "seed")
COLUMNS = ["method", "repeat", "fold", *_MEASURED, "test_bags", "test_positives", "seed", "status"]
_KEPT = [*COLUMNS, "scores"]


def trial_name(method: str, fold: Fold) -> Row:
    """What names a trial."""
    return {"method": method, "repeat": fold.repeat, "fold": fold.fold}


def trial_result(bags: Bags, fold: Fold, *, status: str, **measured: Any) -> Row:
    """The other columns of a trial; what was not measured is None."""
    positives = int(bags.require_labels()[fold.test].sum())
    counts = {"test_bags": len(fold.test), "test_positives": positives, "seed": fold.repeat}
    scores = measured.pop("scores", None)
    return {**dict.fromkeys(_MEASURED), **measured, **counts, "status": status, "scores": scores}


def open_trials(path: Path) -> TrialStore:
    """Trials in a journal; a line that is none raises a `CheckpointError`."""
    store = TrialStore(path)
    for number, row in enumerate(store.rows, start=1):
        if list(row) != _KEPT or not _is_trial(row):
            store.close()
            raise CheckpointError(
                f"Expected a trial with {', '.join(_KEPT)}, where its status is ok an AUROC in [0, 1] and as many "
                f"scores as test bags, got something else (in {path}, line {number}); remove the line to compute the "
                "trial again."
            )
    return store


def _is_trial(row: Row) -> bool:
    numbers = [row[name] for name in _MEASURED if row[name] is not None]
    sound = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    sound = sound and all(type(row[name]) is int for name in _COUNTS) and isinstance(row["method"], str)
    if not sound or not isinstance(row["status"], str) or row["status"] not in STATUSES:
        return False
    scores = row["scores"]
    scored = isinstance(scores, list) and all(isinstance(score, float) and math.isfinite(score) for score in scores)
    if row["status"] != OK:
        return scores is None or scored
    return row["auroc"] is not None and 0 <= row["auroc"] <= 1 and scored and len(scores) == row["test_bags"]


def write_trials(path: Path, rows: Iterable[Row]) -> None:
    """Write the trials as CSV, floats in full."""
    frame = pd.DataFrame(list(rows), columns=COLUMNS, dtype=object)
    write_text(path, frame.to_csv(index=False, lineterminator="\n"))


def prediction_table(bags: Bags, rows: Iterable[Row], folds: Iterable[Fold]) -> pd.DataFrame:
    """The score of each test bag in each trial: bag, method, repeat, fold, score, label and, where known, group."""
    tested, labels = {(fold.repeat, fold.fold): fold.test for fold in folds}, bags.require_labels()
    parts = []
    for row in rows:
        test = tested.get((row["repeat"], row["fold"]))
        if row["scores"] is not None and test is not None:
            named = {name: row[name] for name in ("method", "repeat", "fold")}
            part = pd.DataFrame({"bag": bags.ids[test], **named, "score": row["scores"], "label": labels[test]})
            parts.append(part if bags.groups is None else part.assign(group=bags.groups[test]))
    columns = ["bag", "method", "repeat", "fold", "score", "label", *(["group"] if bags.groups is not None else [])]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
