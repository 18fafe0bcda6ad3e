"""What an explanation says of a bag whose label is more than 0 or 1: of which class, what is predicted and true."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.outcome import Outcome
from midam.explain.explanation import Explanation
from midam.runs.loaded import LoadedRun
from midam.runs.scoring import predict_run


def leading_columns(run: LoadedRun, scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Column of the most probable class or label of bags of these scores [N, C]."""
    return run.target.main_column(scores, run.decision)


def column_scores(run: LoadedRun, bags: Bags, index: int, of: str | None) -> tuple[NDArray[np.float64], int] | None:
    """Scores [1, C] of a bag, and the column to explain: that of a class, else the leading one; None of one column."""
    if run.target.count == 1:
        return None
    scores, _ = predict_run(run, bags.subset([index]))
    return scores, int(leading_columns(run, scores)[0]) if of is None else run.target.column(of)


def outcome_entry(
    run: LoadedRun, bags: Bags, found: Explanation, several: tuple[NDArray[np.float64], int] | None
) -> dict[str, Any]:
    """Entries of explain.json of a bag; `several` is what `column_scores` gave."""
    scores, column = (np.array([found.score]), None) if several is None else several
    told = {name: said[0] for name, said in run.target.predictions(scores, run.decision).items()}
    name = None if column is None else run.target.columns[column]
    return {
        "explained": name,
        "label": None if bags.outcome is None else label_words(bags.outcome.subset([found.index])),
        "probability": told.get(f"probability_{name}"),
        "predicted": {key: value for key, value in told.items() if not key.startswith("probability_")},
    }


def label_words(outcome: Outcome) -> str:
    """What is known of one bag.

    Examples
    --------
    >>> label_words(Outcome.of("survival", [[12.5, 0]], names=["time", "event"]))
    'no event until 12.5'
    >>> label_words(Outcome.of("multilabel", [[1, 0, 1]], names=["fat", "blood", "bone"]))
    'fat, bone'
    """
    said = {name: values[0] for name, values in outcome.columns().items()}
    if outcome.target == "multilabel":
        return ", ".join(name for name, value in zip(outcome.names, said.values()) if value == 1) or "none"
    if outcome.target == "survival":
        return "{} {:g}".format("event at" if said["event"] else "no event until", said["time"])
    return f"{said['label']:g}" if outcome.target == "continuous" else str(said["label"])


def predicted_words(predicted: dict[str, Any] | None) -> str | None:
    """What is predicted of a bag; None of nothing.

    Examples
    --------
    >>> predicted_words({"grade": "high"}), predicted_words({"number": 3.14159}), predicted_words({"risk": None})
    ('predicted grade high', 'predicted number 3.142', None)
    """
    known = {key: value for key, value in (predicted or {}).items() if value is not None}
    parts = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in known.items()]
    return f"predicted {', '.join(parts)}" if parts else None
