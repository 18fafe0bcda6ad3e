"""Evaluation of which instances decided: contributions against known labels of instances, for each part of the bags."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midam.data.bags import Bags
from midam.data.instance_labels import label_counts
from midam.evaluate import Decision
from midam.evaluate.labeled_instances import evaluate_instances
from midam.evaluate.pooled import instance_ranks
from midam.nn.ensemble import BagEnsemble
from midam.targets import Target

SCORE = "contribution"


def labeled_bags(bags: Bags, parts: NDArray[np.str_], names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the bags with a labeled instance, by part; without parts that have no such bag."""
    if bags.instance_labels is None:
        return {}
    known = label_counts(bags)[:, :2].sum(axis=1) > 0
    positions = {name: np.flatnonzero(known & (parts == name)) for name in names}
    return {name: index for name, index in positions.items() if len(index)}


def summarize_instances(
    model: BagEnsemble,
    bags: Bags,
    target: Target,
    labeled: dict[str, NDArray[np.int64]],
    scores: NDArray[np.float64],
    *,
    decision: Decision | None,
    chunk_size: int | None,
) -> dict[str, Any]:
    """Return the entry `instances` of summary.json: for each part the metrics of contributions; empty without labels.

    Parameters
    ----------
    model, bags : BagEnsemble, Bags
        The model, and bags with its features.
    target, decision : Target, Decision or None
        They choose the score column of each bag that is explained, as `midam explain` does.
    labeled : dict
        Result of `labeled_bags`.
    scores : array [N] or [N, C]
        Scores of all bags.
    chunk_size : int, optional
        Instances encoded at a time.
    """
    entry: dict[str, Any] = {}
    for name, index in labeled.items():
        part = bags.subset(index)
        columns = None if target.count == 1 else target.main_column(scores[index], decision)
        ranks = instance_ranks(model, part, columns=columns, chunk_size=chunk_size)
        entry[name] = evaluate_instances(part, ranks).entries()
    return {"score": SCORE, **entry} if entry else {}
