"""The CSV of instances: where they are in the data, their numbers, and their telling features."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from midam.explain.words import Entry
from midam.runs.folder import csv_text

_NESTED = ("instance", "columns", "place", "features")  # of an entry; the others are numbers
_NAMES = {"without": "score_without"}


def instance_rows(entry: Entry, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each listed instance of a bag, with the `facts` about the bag.

    The columns of the k-th telling feature end in `_k`.
    """
    rows = []
    for rank, one in enumerate(entry["instances"], start=1):
        row = {**facts, "rank": rank, "instance": one["instance"], **one["columns"]}
        places = enumerate(one["place"])
        row |= {f"coord_{axis}": x if x is None or math.isfinite(x) else None for axis, x in places}
        row |= {_NAMES.get(name, name): value for name, value in one.items() if name not in _NESTED}
        for number, feature in enumerate(one.get("features", ()), start=1):
            row |= {f"{name}_{number}": value for name, value in _feature_columns(feature).items()}
        rows.append(row)
    return rows


def instances_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the CSV of these rows."""
    return csv_text([*dict.fromkeys(name for row in rows for name in row)] or ["bag"], rows)


def _feature_columns(feature: Entry) -> dict[str, Any]:
    quantiles = feature["quantiles"] or [None] * 7
    return {
        "feature": feature["name"],
        "value": feature["value"],
        "typical": feature["typical"],
        "low": quantiles[2],
        "high": quantiles[4],
        "percentile": feature["percentile"],
        "ordinary_share": feature["share"],
        "feature_adds": feature["adds"],
    }
