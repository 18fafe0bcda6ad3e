"""What the recount rests on: the published trials, the folder of the data, and the statistics of the pages."""

import gzip
import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

ROOT = Path(__file__).parents[2]
Values = NDArray[np.float64]


def data_root() -> Path:
    """Return the folder of the real data, or one that does not exist."""
    return Path(os.environ.get("MIDAM_DATA") or "/nonexistent")


@cache
def trials(name: str, study: str = "") -> pd.DataFrame:
    """Return the published trials of a study, a row each, by the name of its file unless one is given."""
    with gzip.open(ROOT / "records" / "trials" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return pd.DataFrame([row for row in rows if row.get("study") == (study or name)])


def where(rows: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows with these values, or with one of several in a list."""
    for column, value in values.items():
        rows = rows[rows[column].isin(value if isinstance(value, list) else [value])]
    return rows


def t_interval(values: Values, *, overlap: float = 0.0) -> tuple[float, float, float]:
    """Return mean and 95% t interval; `overlap` is Nadeau and Bengio's, test bags for each training bag."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.sqrt((1 / len(values) + overlap) * np.var(values, ddof=1))
    return float(np.mean(values)), float(np.mean(values) - half), float(np.mean(values) + half)


def signed(values: Values) -> str:
    """Return the mean of paired differences and its interval, as the pages print it."""
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*t_interval(values))


def by_number(rows: pd.DataFrame, key: str, value: str = "test") -> pd.Series:
    """Return a number by repeat (or what else `key` is), each of one trial."""
    if rows[key].duplicated().any():
        raise ValueError(f"Expected one trial for each {key}, got several; name more columns.")
    return rows.set_index(key)[value].astype(float).sort_index()


def auroc(labels: NDArray[np.int64], scores: Values) -> float:
    """Return the share of pairs of a positive and a negative bag in the right order, equals by half."""
    ranks, positives = stats.rankdata(scores), int(labels.sum())
    wins = ranks[labels == 1].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * (len(labels) - positives)))
