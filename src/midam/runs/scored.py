"""Scored bags as pages take them: of the parts of a run, from its predictions.csv, and of an evaluation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.outcome import Outcome
from midam.evaluate.outcomes.decide import RISKS
from midam.report.html.outcome_study import OutcomeBags
from midam.report.html.study import PartBags, ScoredBags
from midam.runs.apply import Evaluation
from midam.runs.folder import RunFolder
from midam.targets import Target

_PARTS = ("train", "val", "test")  # in the order of the flow


def recorded_parts(folder: RunFolder, target: Target) -> dict[str, Any]:
    """Scored bags of each part of the run's own data; none where the run did not finish."""
    if not folder.predictions.exists():
        return {}
    binary = target.name == "binary"
    # A class may be called NA, and a bag 007.
    texts: Any = {"bag": str, "group": str} if binary else str
    frame = pd.read_csv(folder.predictions, dtype=texts, keep_default_na=False, na_values={"probability": [""]})
    rows = {name: frame[frame["split"] == name] for name in _PARTS}
    return {name: _binary(own) if binary else _outcome(own, target) for name, own in rows.items() if len(own)}


def evaluated_bags(bags: Bags, found: Evaluation, inside: NDArray[np.bool_], target: Target) -> PartBags:
    """Those of the evaluated bags that are `inside` [N]."""
    known: dict[str, Any] = {
        "groups": None if bags.groups is None else bags.groups[inside],
        "sizes": bags.sizes[inside],
    }
    ids, scores = bags.ids[inside], found.scores[inside]
    if target.name == "binary":
        p = None if found.probabilities is None else found.probabilities[inside]
        return ScoredBags(ids, bags.require_labels()[inside], scores, p, **known)
    told = _told(target, target.told(scores, found.decision))
    return OutcomeBags(ids, target.values(bags)[inside], scores, told, **known)


def told_names(target: Target) -> tuple[str, ...]:
    """Names of what is told of a bag: of classes, labels, grades or groups of risk; of numbers, that of the number."""
    return RISKS if target.name == "survival" else target.names


def _binary(rows: pd.DataFrame) -> ScoredBags:
    return ScoredBags(
        rows["bag"].to_numpy(dtype=np.str_),
        rows["label"].to_numpy(dtype=np.int64),
        rows["score"].to_numpy(dtype=np.float64),
        None if rows["probability"].isna().any() else rows["probability"].to_numpy(dtype=np.float64),
        **_known(rows),
    )


def _outcome(rows: pd.DataFrame, target: Target) -> OutcomeBags:
    table = {str(name): column.tolist() for name, column in rows.items()}
    scores = np.stack([_numbers(rows[name]) for name in target.score_columns], axis=1)
    return OutcomeBags(
        rows["bag"].to_numpy(dtype=np.str_),
        Outcome.of_columns(target.name, target.names, table).values,
        scores[:, 0] if target.count == 1 else scores,
        _told(target, table),
        **_known(rows),
    )


def _known(rows: pd.DataFrame) -> dict[str, Any]:
    """Groups and sizes of the bags, where they are written."""
    return {
        "groups": rows["group"].to_numpy(dtype=np.str_) if "group" in rows else None,
        "sizes": rows["instances"].to_numpy(dtype=np.int64) if "instances" in rows else None,
    }


def _told(target: Target, table: Mapping[str, Sequence[Any]]) -> NDArray[np.float64] | None:
    """What is told of each bag, by the columns of `Target.told`: see `OutcomeBags`; None where nothing is."""
    if target.name in ("multiclass", "multilabel"):
        found = np.stack([_numbers(table[f"probability_{name}"]) for name in target.columns], axis=1)
    elif target.name == "continuous":
        found = _numbers(table["number"])
    else:
        codes = {name: code for code, name in enumerate(told_names(target))}
        column = table["grade" if target.name == "ordinal" else "risk"]
        found = np.array([codes.get(name, np.nan) for name in column], dtype=np.float64)
    return None if np.isnan(found).all() else found


def _numbers(column: Iterable[Any]) -> NDArray[np.float64]:
    """Numbers, or their texts; NaN where there is none."""
    return np.array([np.nan if value in ("", None) else float(value) for value in column], dtype=np.float64)
