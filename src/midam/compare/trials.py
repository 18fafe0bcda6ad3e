"""A trial of a comparison, one method on one fold, as a row of `trials.csv`.

`auroc` and `auprc` are metrics of the test bags, None unless the `status` is "ok". `lr`, `margin` and `epoch` belong to
the tested scorer. `seconds` is the wall time with selection. `seed` sets validation part, weights and sampling.
`trials.jsonl` also holds the `scores` of the test bags, in the order of the fold, and in `instances` how well
contributions find their labeled instances: None without such, or for a method that only scores bags.

For other targets than two classes, the main metric replaces `auroc` and `auprc`, positive bags are not counted, and
with several score columns the scores of a bag are a list.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field

from midam.compare.folds import Fold
from midam.data.bags import Bags
from midam.errors import CheckpointError, with_article
from midam.evaluate.labeled_instances import IN_BAG
from midam.files import write_text
from midam.methods.store import Row, TrialStore
from midam.names import safe_cell, visible
from midam.reading import Form, Number, check_form, read_table
from midam.runs.result import read_target
from midam.settings import read_yaml
from midam.targets import Target, label_columns, target_of


class Status:
    """Outcomes of a trial, as texts of trials.csv and of the journal."""

    OK = "ok"
    DIVERGED = "diverged"
    ONE_CLASS_TEST = "one-class-test"
    ONE_CLASS_TRAIN = "one-class-train"
    UNRANKED_TEST = "unranked-test"
    UNFIT_TRAIN = "unfit-train"
    NO_VALIDATION = "no-validation"


TABLES = ("summary.csv", "trials.csv", "predictions.csv")
_KEPT = ("scores", "instances")  # in the journal, not in trials.csv
STATUSES = tuple(text for name, text in vars(Status).items() if name.isupper())


def measured_columns(metric: str) -> tuple[str, ...]:
    """Return the columns of measured metrics; `metric` is the main metric of the `midam.targets.Target`."""
    return (metric, *(["auprc"] if metric == "auroc" else []), "seconds", "lr", "margin", "epoch")


def counted_columns(metric: str) -> tuple[str, ...]:
    """Return the columns of counts, and the seed."""
    return ("test_bags", *(["test_positives"] if metric == "auroc" else []), "seed")


def trial_columns(metric: str) -> list[str]:
    """Return the columns of trials.csv."""
    return ["method", "repeat", "fold", *measured_columns(metric), *counted_columns(metric), "status"]


def trial_name(method: str, fold: Fold) -> Row:
    """Return the key of a trial."""
    return {"method": method, "repeat": fold.repeat, "fold": fold.fold}


def trial_result(bags: Bags, fold: Fold, *, status: str, **measured: Any) -> Row:
    """Return the other columns of a trial, with None for missing metrics."""
    target = target_of(bags)
    counts = {"test_bags": len(fold.test)}
    if target.name == "binary":
        counts["test_positives"] = int(bags.require_labels()[fold.test].sum())
    kept = {name: measured.pop(name, None) for name in _KEPT}
    columns = {**dict.fromkeys(measured_columns(target.metric)), **measured, **counts, "seed": fold.repeat}
    return {**columns, "status": status, **kept}


def open_trials(path: Path, *, metric: str = "auroc", columns: int = 1) -> TrialStore:
    """Open a journal of trials with `columns` score columns; a line that is not a trial raises a `CheckpointError`."""
    store, kept = TrialStore(path), [*trial_columns(metric), *_KEPT]
    for number, row in enumerate(store.rows, start=1):
        if list(row) != kept or not _is_trial(row, metric, columns):
            store.close()
            figure = "an AUROC" if metric == "auroc" else with_article(metric)
            raise CheckpointError(
                f"Expected a trial with {', '.join(kept)}, and for the status ok with {figure} in [0, 1] and a score "
                f"per test bag, got something else (in {path}, line {number}); remove the line to compute the trial "
                "again."
            )
    return store


def _is_trial(row: Row, metric: str, columns: int) -> bool:
    numbers = [row[name] for name in measured_columns(metric) if row[name] is not None]
    sound = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    counts = [row[name] for name in ("repeat", "fold", *counted_columns(metric))]
    sound = sound and all(type(count) is int for count in counts) and isinstance(row["method"], str)
    if not sound or not isinstance(row["status"], str) or row["status"] not in STATUSES:
        return False
    scores, figure, instances = row["scores"], row[metric], row["instances"]
    if instances is not None and not (isinstance(instances, dict) and [*instances] == [*IN_BAG]):
        return False
    if not all(value is None or (isinstance(value, float) and 0 <= value <= 1) for value in (instances or {}).values()):
        return False
    scored = isinstance(scores, list) and all(_is_score(score, columns) for score in scores)
    if row["status"] != Status.OK:
        return scores is None or scored
    return figure is not None and 0 <= figure <= 1 and scored and len(scores) == row["test_bags"]


def _is_score(score: Any, columns: int) -> bool:
    if columns > 1:
        return isinstance(score, list) and len(score) == columns and all(_is_score(part, 1) for part in score)
    return isinstance(score, float) and math.isfinite(score)


def write_trials(path: Path, rows: Iterable[Row], *, metric: str = "auroc") -> None:
    """Write the trials as CSV with full precision."""
    frame = pd.DataFrame(list(rows), columns=trial_columns(metric), dtype=object)
    write_text(path, safe_frame(frame).to_csv(index=False, lineterminator="\n"))


def safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its strings changed by `midam.names.safe_cell`."""
    texts = [str(name) for name, dtype in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(dtype)]
    safe = {name: [safe_cell(x) if isinstance(x, str) else x for x in frame[name]] for name in texts}
    made = {name: pd.Series(values, index=frame.index, dtype=frame[name].dtype) for name, values in safe.items()}
    return frame.assign(**made).rename(columns=lambda name: safe_cell(visible(name)))


def prediction_table(bags: Bags, rows: Iterable[Row], folds: Iterable[Fold]) -> pd.DataFrame:
    """Return the scores of each test bag in each trial: bag, method, repeat, fold, score, label and, if known, group.

    Several score columns are named "score_NAME"; labels have the columns of `midam.data.TargetLabels`. For two classes,
    "positive" follows the label: the name of the class that is scored.
    """
    tested, target = {(fold.repeat, fold.fold): fold.test for fold in folds}, target_of(bags)
    known = label_columns(bags) | ({} if target.positive is None else {"positive": [target.positive] * len(bags)})
    labels = {name: pd.Series(column).to_numpy() for name, column in known.items()}
    labels |= {} if bags.groups is None else {"group": bags.groups}
    parts = []
    for row in rows:
        test = tested.get((row["repeat"], row["fold"]))
        if row["scores"] is not None and test is not None:
            named = {name: row[name] for name in ("method", "repeat", "fold")}
            by_column = zip(*row["scores"]) if target.count > 1 else [row["scores"]]
            named |= zip(target.score_columns, by_column, strict=True)
            named |= {name: column[test] for name, column in labels.items()}
            parts.append(pd.DataFrame({"bag": bags.ids[test], **named}))
    columns = ["bag", "method", "repeat", "fold", *target.score_columns, *labels]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


class _Settings(Form):
    encoder: str
    target: str = "binary"


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
    files: dict[str, str] = Field(default_factory=dict)


def read_record(folder: Path) -> tuple[dict[str, Any], Target]:
    """Return the content of ``config.yaml`` and the target."""
    path = folder / "config.yaml"
    record = read_yaml(path)
    check_form(record, Record, path)
    return record, read_target(record, path)


def read_tables(
    folder: Path, record: Mapping[str, Any], target: Target
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read the tables of methods, trials and scores that the `record` of a comparison names."""
    names = [f"{kind}_{name}" for kind in ("label", "score") for name in target.columns]
    summary, trials, scores = (read_table(folder / name, record["files"][name], names=names) for name in TABLES)
    figures = summary.columns.drop("method")
    summary[figures] = summary[figures].replace("", "nan").astype(float)
    scores = scores.astype({"repeat": int, "fold": int, **dict.fromkeys(target.score_columns, float)})
    return summary, trials, scores
