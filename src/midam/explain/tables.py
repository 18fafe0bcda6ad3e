"""Tables of bags, of their instances and of the features of these, as blocks of a page and as CSV."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from midam.explain.words import (
    OF_FILES,
    UID,
    Entry,
    form_of,
    instance_name,
    instance_text,
    percent_text,
)
from midam.report.page.render import Link, Note, Number, Part, Table
from midam.report.pseudonyms import NAMES
from midam.runs.folder import csv_text

_FEATURES = (
    "Features: those whose value, in this instance, raises the score: by the score of the bag minus its score with the "
    "typical value instead, the median or the most frequent category. Ordinary "
    "instances are those of the negative training bags; of all training bags, if there are not two classes."
)
_HEADS = ("bag", "group", "label", "split", "class", "probability", "score", "instances", "first instance")
_FEATURE_HEADS = ("feature", "here", "ordinary (middle half)", "of these", "adds")


def overview(
    entries: Sequence[Entry], addresses: Sequence[str], first: tuple[str, str, str], *, legend: Sequence[str], kept: str
) -> list[Any]:
    """Return the table of all bags, which links their sections, how to read the page, and what keeps the names.

    `first` is the number of the first instance of each bag in the table: its head, its key, and its format.
    """
    head, key, form = first
    rows = []
    for entry, address in zip(entries, addresses, strict=True):
        best, probability = entry["instances"][0], entry["probability"]
        group = None if entry["group"] == entry["bag"] else entry["group"]
        facts = [group, entry.get("label"), entry.get("split"), entry["explained"] or entry["called"]]
        numbers = [None if probability is None else Number(probability), Number(entry["score"], form_of(entry))]
        link = Link(entry["bag"], address)
        rows.append([link, *facts, *numbers, entry["size"], instance_text(best), Number(best[key], form)])
    featured = any(one.get("features") for entry in entries for one in entry["instances"])
    used = [any(row[at] is not None for row in rows) for at in range(len(_HEADS) + 1)]
    heads, *rows = ([cell for cell, use in zip(row, used) if use] for row in ([*_HEADS, head], *rows))
    return [
        Table("The bags", heads, rows, sorts=True),
        Part("How to read this page", [*legend, *([_FEATURES] if featured else [])], folded=True),
        Note(f"{NAMES} {kept}"),
    ]


def instance_table(caption: str, listed: Sequence[Entry], cells: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the listed instances of a bag: names, facts from their files, and further cells by head."""
    names = dict.fromkeys(name for one in listed for name, value in one["columns"].items() if value is not None)
    uid = [UID] if names.pop(UID, 0) is None else []  # the last one, because it is long
    heads = ["rank", "instance", *(OF_FILES.get(name, name) for name in names), *cells[0], *uid]
    rows = [
        [
            *(rank, instance_name(one["instance"], one["place"])),
            *(one["columns"].get(name) for name in names),
            *further.values(),
            *map(one["columns"].get, uid),
        ]
        for rank, (one, further) in enumerate(zip(listed, cells, strict=True), start=1)
    ]
    return Table(caption, heads, rows, sorts=True)


def feature_tables(listed: Sequence[Entry]) -> list[Table]:
    """Return a table for each instance with telling features."""
    unusual = [(rank, one) for rank, one in enumerate(listed, start=1) if one.get("features")]
    titles = [f"What is unusual about {instance_text(one)} (rank {rank})" for rank, one in unusual]
    return [
        Table(title, _FEATURE_HEADS, [*map(_feature_cells, one["features"])])
        for title, (_, one) in zip(titles, unusual)
    ]


def _feature_cells(feature: Entry) -> list[Any]:
    adds = Number(feature["adds"], "+.3g")
    if feature["quantiles"] is None:
        rare = f"{percent_text(feature['share'])} have it"
        return [feature["name"], feature["value"], f"most often {feature['typical']}", rare, adds]
    low, high = feature["quantiles"][2], feature["quantiles"][4]
    usual = f"{feature['typical']:.4g} ({low:.4g} to {high:.4g})"
    percentile = feature["percentile"]
    rank = f"above {percentile:.0f}%" if percentile >= 50 else f"below {100 - percentile:.0f}%"
    return [feature["name"], f"{feature['value']:.4g}", usual, rank, adds]


_NESTED = ("instance", "columns", "place", "features")  # of an entry; the others are numbers
_NAMES = {"without": "score_without"}


def instance_rows(entry: Entry, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each listed instance of a bag, with the `facts` about the bag.

    The columns of the k-th telling feature end in `_k`.
    """
    rows = []
    for rank, one in enumerate(entry["instances"], start=1):
        row = {**facts, "rank": rank, "instance": one["instance"], **one["columns"]}
        row |= {f"coord_{i}": x if x is None or math.isfinite(x) else None for i, x in enumerate(one["place"])}
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
        **{"feature": feature["name"], "value": feature["value"], "typical": feature["typical"]},
        **{"low": quantiles[2], "high": quantiles[4], "percentile": feature["percentile"]},
        **{"ordinary_share": feature["share"], "feature_adds": feature["adds"]},
    }


def calls_csv(entries: Sequence[Entry]) -> str:
    """Return the CSV, a row for each listed instance, the bag of the highest score first."""
    return instances_csv([row for entry in entries for row in instance_rows(entry, _bag_columns(entry))])


def _bag_columns(entry: Entry) -> dict[str, Any]:
    facts = {"bag": entry["bag"], "group": entry["group"], "split": entry["split"] or "new", "class": entry["called"]}
    facts["explained"] = entry["explained"]
    known = {name: value for name, value in facts.items() if value is not None}
    return {**known, "probability": entry["probability"], "score": entry["score"], "instances": entry["size"]}
