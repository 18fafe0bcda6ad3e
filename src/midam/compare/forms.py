"""Forms of the files of a comparison, and their readers."""

from pathlib import Path
from typing import Any

import pandas as pd

from midam.compare.trials import STATUSES, measured_columns
from midam.errors import CheckpointError
from midam.reading import (
    Form,
    Number,
    check_form,
    counts,
    ids,
    known_numbers,
    numbers,
    one_of,
    read_columns,
    texts,
)
from midam.runs.forms import read_target
from midam.runs.trust import check_code
from midam.settings import read_yaml
from midam.targets import Target


class _Settings(Form):
    encoder: str
    target: str = "binary"
    memory_budget: Number | None = None


class Record(Form):
    """Content of ``config.yaml``."""

    version: str
    data: str
    fingerprint: str
    folds: str
    lrs: list[Number]
    margins: list[Number]
    select: str
    settings: _Settings


def read_record(folder: Path) -> tuple[dict[str, Any], Target]:
    """Content of ``config.yaml``, and the target, of which no code runs that was not trusted."""
    path = folder / "config.yaml"
    found = read_yaml(path)
    check_form(found, Record, path)
    if "." in found["settings"].get("target", "binary"):
        check_code(found["settings"], path)
    return found, read_target(found, path, trusted=found["settings"].get("target", "binary"))


def read_tables(folder: Path, target: Target) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The tables of methods, trials and scores, whose methods and folds fit each other."""
    metric, trial = target.metric, {"method": texts, "repeat": counts, "fold": counts}
    figures = [metric, "difference"]
    methods = {"method": ids, "folds": known_numbers, "seconds": known_numbers, "peak_mib": known_numbers}
    methods |= {f"{name}{end}": known_numbers for name in figures for end in ("", "_low", "_high")}
    methods |= {"auprc": known_numbers} if metric == "auroc" else {}
    measured = {**trial, **dict.fromkeys(measured_columns(metric), known_numbers), "status": one_of(*STATUSES)}
    scores = {"bag": texts, **trial, **dict.fromkeys(target.score_columns, numbers), **target.label_forms()}
    summary = pd.DataFrame(read_columns(folder / "summary.csv", methods, others=known_numbers))
    trials = pd.DataFrame(read_columns(folder / "trials.csv", measured))
    predictions = pd.DataFrame(read_columns(folder / "predictions.csv", scores))
    for table, keys, name in ((trials, list(trial), "trials"), (predictions, [*trial, "bag"], "predictions")):
        if table.duplicated(keys).any():
            raise CheckpointError(f"Expected each row once, got one twice (in {folder / name}.csv); restore a copy.")
    known = set(zip(*(trials[name] for name in trial)))
    if not len(summary) or set(zip(*(predictions[name] for name in trial))) - known:
        raise CheckpointError(
            f"Expected the methods and folds of {folder / 'trials.csv'}, got others (in "
            f"{folder / 'predictions.csv'}); restore both files of one comparison."
        )
    return summary, trials, predictions
