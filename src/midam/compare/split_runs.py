"""Runs of the folds of one split table: the main metric of each, their mean and its interval."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from midam.compare.statistics import CorrectedInterval, corrected_interval
from midam.errors import BagDataError
from midam.files import write_text
from midam.report.words import METRIC_NAMES, metric_of_part
from midam.runs.folder import RunFolder, read_run_config
from midam.runs.forms import read_summary


def fold_table(folders: Mapping[int, RunFolder]) -> pd.DataFrame:
    """A row for each fold: its number, its bags to train, validate and test on, and the figures of the test bags.

    A `BagDataError` for a fold without test bags.
    """
    rows = []
    for fold, folder in folders.items():
        summary = read_summary(folder, read_run_config(folder)[0])[0]
        if "test" not in summary:
            raise BagDataError(
                f"Expected test bags in each fold, got none in fold {fold} (in {folder.root}); name some as test in "
                "the split table."
            )
        tested = summary["test"]
        metric = metric_of_part(tested)
        low, high = tested.get(f"{metric}_ci95") or (None, None)
        counts = {f"{name}_bags": summary.get(name, {}).get("bags", 0) for name in ("train", "val", "test")}
        figures = {metric: tested[metric], f"{metric}_low": low, f"{metric}_high": high}
        figures |= {name: tested[name] for name in ("auprc", "brier") if tested.get(name) is not None}
        rows.append({"fold": fold, **counts, **figures})
    return pd.DataFrame(rows)


def write_folds(folders: Mapping[int, RunFolder], root: Path) -> tuple[pd.DataFrame, str]:
    """Write folds.csv and folds.md of finished runs into their folder; returns the table, and a sentence on it."""
    table = fold_table(folders)
    said = mean_words(table)
    write_text(root / "folds.csv", table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    names = list(table.columns)
    cells = [[cell(value) for value in row] for row in table.itertuples(index=False, name=None)]
    lines = [f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *cells)]
    write_text(root / "folds.md", "\n".join([*lines, "", said]) + "\n")
    return table, said


def mean_of(table: pd.DataFrame) -> CorrectedInterval:
    """Mean main metric over the folds that have one, with the interval of `corrected_interval`."""
    metric = _metric(table.columns)
    used = table.dropna(subset=[metric])
    trained = (used["train_bags"] + used["val_bags"]).to_numpy()
    ratio = float((used["test_bags"].to_numpy() / trained).mean()) if len(used) else 1.0
    return corrected_interval(used[metric].to_numpy(dtype=float), ratio=ratio)


def mean_words(table: pd.DataFrame) -> str:
    """The mean over the folds, its interval and what it rests on, in a sentence or two."""
    found, metric = mean_of(table), METRIC_NAMES[_metric(table.columns)]
    if not found.trials:
        return f"No fold has a test {metric}."
    interval = "" if found.low != found.low else f" (95% interval {max(found.low, 0):.3f} to {min(found.high, 1):.3f})"
    lost = len(table) - found.trials
    fewer = f" {lost} folds have none." if lost else ""
    return (
        f"Mean test {metric} {found.mean:.3f}{interval} of {found.trials} folds.{fewer} The interval is the corrected "
        "resampled t (Nadeau and Bengio). Scores of different folds have no common scale, and are not pooled."
    )


def _metric(columns: Iterable[str]) -> str:
    return next(name for name in METRIC_NAMES if name in columns)


def cell(value: Any) -> str:
    """A value of the table for people."""
    if pd.isna(value):
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
