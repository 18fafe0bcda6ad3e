"""Scored bags as pages take them: of the parts of a run, from its predictions.csv, and of an evaluation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.reading import ColumnForm, ids, numbers, one_of, positive_counts, read_columns, texts
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
    predicted = target.read_predictions(target.predictions(scores, found.decision))
    groups = None if bags.groups is None else bags.groups[inside]
    values = target.values(bags)[inside]
    return ScoredBags(bags.ids[inside], values, scores, predicted, groups=groups, sizes=bags.sizes[inside])


def _columns(target: Target) -> dict[str, ColumnForm]:
    """Columns of predictions.csv, with their forms."""
    scores = dict.fromkeys(target.score_columns, numbers)
    known = {"split": one_of(*_PARTS), "instances": positive_counts, "group": texts}
    return {"bag": ids, **target.label_forms(), **known, **scores, **target.prediction_forms()}


def _scored(table: Mapping[str, NDArray[Any]], target: Target) -> ScoredBags:
    columns = {name: column.tolist() for name, column in table.items()}
    scores = np.stack([table[name] for name in target.score_columns], axis=1)
    return ScoredBags(
        table["bag"],
        target.read_labels(columns),
        scores[:, 0] if target.count == 1 else scores,
        target.read_predictions(columns),
        groups=table.get("group"),
        sizes=table.get("instances"),
    )
