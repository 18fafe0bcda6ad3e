"""Scored bags as pages take them: of the parts of a run, from its predictions.csv, and of an evaluation."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.outcome import CODED, Outcome
from midam.evaluate.outcomes.decide import RISKS
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
    binary, optional = target.name == "binary", ("instances", "group")
    found = read_columns(folder.predictions, _columns(target), optional=optional)
    rows = {name: found["split"] == name for name in _PARTS}
    make = _binary if binary else partial(_outcome, target=target)
    own = {name: {key: column[inside] for key, column in found.items()} for name, inside in rows.items()}
    return {name: make(table) for name, table in own.items() if len(table["bag"])}


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
    return found | {"grade" if target.name == "ordinal" else "risk": one_of(*told_names(target), "")}


def _binary(table: Mapping[str, NDArray[Any]]) -> ScoredBags:
    p = table["probability"]
    return ScoredBags(
        table["bag"],
        table["label"].astype(np.int64),
        table["score"],
        None if np.isnan(p).any() else p,
        groups=table.get("group"),
        sizes=table.get("instances"),
    )


def _outcome(table: Mapping[str, NDArray[Any]], target: Target) -> OutcomeBags:
    columns = {name: column.tolist() for name, column in table.items()}
    scores = np.stack([table[name] for name in target.score_columns], axis=1)
    return OutcomeBags(
        table["bag"],
        Outcome.of_columns(target.name, target.names, columns).values,
        scores[:, 0] if target.count == 1 else scores,
        _told(target, columns),
        groups=table.get("group"),
        sizes=table.get("instances"),
    )


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
