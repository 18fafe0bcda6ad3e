"""Scored bags as pages take them: of the parts of a run, from its predictions.csv, and of an evaluation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.outcome import CODED, Outcome
from midam.evaluate.decisions import RISKS
from midam.reading import (
    ColumnForm,
    as_written,
    ids,
    known_numbers,
    numbers,
    one_of,
    positive_counts,
    positive_numbers,
    read_columns,
    shares,
    texts,
)
from midam.report.page.study import ScoredBags
from midam.runs.apply import Evaluation
from midam.runs.folder import RunFolder
from midam.targets import Target

_PARTS = ("train", "val", "test")  # in the order of the flow


def recorded_parts(folder: RunFolder, target: Target) -> dict[str, ScoredBags]:
    """Scored bags of each part of the run's own data; none where the run did not finish."""
    if not folder.predictions.exists():
        return {}
    columns = read_columns(folder.predictions, _columns(target), optional=("instances", "group"))
    rows = {name: columns["split"] == name for name in _PARTS}
    tables = {name: {key: column[inside] for key, column in columns.items()} for name, inside in rows.items()}
    return {name: _scored(table, target) for name, table in tables.items() if len(table["bag"])}


def evaluated_bags(bags: Bags, found: Evaluation, inside: NDArray[np.bool_], target: Target) -> ScoredBags:
    """Those of the evaluated bags that are `inside` [N]."""
    scores = found.scores[inside]
    if target.name == "binary":
        predicted = None if found.probabilities is None else found.probabilities[inside]
    else:
        predicted = _predicted(target, target.told(scores, found.decision))
    groups = None if bags.groups is None else bags.groups[inside]
    values = target.values(bags)[inside]
    return ScoredBags(bags.ids[inside], values, scores, predicted, groups=groups, sizes=bags.sizes[inside])


def predicted_names(target: Target) -> tuple[str, ...]:
    """Names of what is predicted: of classes, labels, grades or risk groups; of numbers, that of the number."""
    return RISKS if target.name == "survival" else target.names


def label_columns(target: Target) -> dict[str, ColumnForm]:
    """Columns of the labels of bags, as `midam.data.outcome.Outcome.columns` has them: texts of their forms."""
    if target.name == "binary":
        return {"label": one_of("0", "1")}
    if target.name == "survival":
        return {"time": as_written(positive_numbers), "event": one_of("0", "1")}
    if target.name == "multilabel":
        return {f"label_{name}": one_of("0", "1", "") for name in target.names}
    return {"label": one_of(*target.names) if target.name in CODED else as_written(numbers)}


def _columns(target: Target) -> dict[str, ColumnForm]:
    """Columns of predictions.csv, with their forms."""
    found = {"bag": ids, **label_columns(target), "split": one_of(*_PARTS)}
    found |= {"instances": positive_counts, "group": texts}
    if target.name == "binary":
        return {**found, "score": numbers, "probability": shares, "class": texts}
    found |= dict.fromkeys(target.score_columns, numbers)
    if target.name in ("multiclass", "multilabel"):
        return found | {f"probability_{name}": shares for name in target.columns}
    if target.name == "continuous":
        return found | {"number": known_numbers}
    return found | {"grade" if target.name == "ordinal" else "risk": one_of(*predicted_names(target), "")}


def _scored(table: Mapping[str, NDArray[Any]], target: Target) -> ScoredBags:
    columns = {name: column.tolist() for name, column in table.items()}
    if target.name == "binary":
        values: NDArray[Any] = table["label"].astype(np.int64)
        predicted = None if np.isnan(table["probability"]).any() else table["probability"]
    else:
        values = Outcome.of_columns(target.name, target.names, columns).values
        predicted = _predicted(target, columns)
    scores = np.stack([table[name] for name in target.score_columns], axis=1)
    known = {"groups": table.get("group"), "sizes": table.get("instances")}
    return ScoredBags(table["bag"], values, scores[:, 0] if target.count == 1 else scores, predicted, **known)


def _predicted(target: Target, table: Mapping[str, Sequence[Any]]) -> NDArray[np.float64] | None:
    """Meaning of the scores, by the columns of `Target.told`: see `ScoredBags`; None where nothing was decided."""
    if target.name in ("multiclass", "multilabel"):
        found = np.stack([_numbers(table[f"probability_{name}"]) for name in target.columns], axis=1)
    elif target.name == "continuous":
        found = _numbers(table["number"])
    else:
        codes = {name: code for code, name in enumerate(predicted_names(target))}
        column = table["grade" if target.name == "ordinal" else "risk"]
        found = np.array([codes.get(name, np.nan) for name in column], dtype=np.float64)
    return None if np.isnan(found).all() else found


def _numbers(column: Iterable[Any]) -> NDArray[np.float64]:
    """Numbers, or their texts; NaN where there is none."""
    return np.array([np.nan if value in ("", None) else float(value) for value in column], dtype=np.float64)
