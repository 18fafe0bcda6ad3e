"""The list of called bags and of the instances that decided, as a CSV, as a page in one file, and in lines of text."""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from midam.data.bags import Bags
from midam.errors import plural
from midam.explain.patches import is_picture
from midam.explain.tiles import picture_of, scans_of
from midam.explain.words import FEATURE_HEADS, OF_FILES, Entry, feature_row, instance_name, instance_text, short_text
from midam.report.page.render import Link, Note, Number, Part, Section, Table, render
from midam.report.pseudonyms import NAMES
from midam.report.words import capitalized, form_apart
from midam.runs.folder import csv_text

SHOWN = 200  # bags on a page
_LISTED = 10  # bags in the console
_SIDE = 144  # pixels of a picture on the page

_LEGEND = (
    "An instance is listed if the bag would still be called without those above it, or if it takes much of the score. "
    "They are found one after the other: of two that are alike, both are listed.",
    "Share: the part of the score that the instance carries, of what all listed ones carry together. Without: the "
    "score of the bag without this instance and those above it.",
    "Features: those whose value, in this instance, raises the score; the first one most. The bar shows the ordinary "
    "values: the line from the 1st to the 99th percentile, the box the middle half, the tick the median; the dot is "
    "the value here.",
)
_ORDINARY = {
    "negative": "Ordinary instances are those of the negative training bags",
    "all": "Ordinary instances are those of the training bags",
}


def calls_csv(entries: Sequence[Entry]) -> str:
    """Return the CSV, a row for each listed instance, the bag of the highest score first."""
    rows = [_row(entry, rank, one) for entry in entries for rank, one in enumerate(entry["instances"], start=1)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    tail = [name for name in names if name.startswith(("adds", "share", "score_without"))]
    features = [name for name in names if name.rpartition("_")[2].isdigit() and not name.startswith("coord_")]
    head = [name for name in names if name not in {*tail, *features}]
    features.sort(key=lambda name: int(name.rpartition("_")[2]))
    return csv_text([*head, *tail, *features] or ["bag"], rows)


def _row(entry: Entry, rank: int, one: Entry) -> dict[str, Any]:
    facts = {"bag": entry["bag"], "group": entry["group"], "class": entry["called"], "explained": entry["explained"]}
    known = {name: value for name, value in facts.items() if value is not None}
    row = {**known, "probability": entry["probability"], "score": entry["score"], "instances": entry["size"]}
    row |= {"rank": rank, "instance": one["instance"], **one["columns"]}
    row |= {f"coord_{axis}": x if math.isfinite(x) else None for axis, x in enumerate(one["place"])}
    row |= {"share": one["share"], "score_without": one["without"], "adds": one["adds"]}
    for number, feature in enumerate(one["features"], start=1):
        quantiles = feature["quantiles"] or [None] * 7
        values = {"feature": feature["name"], "value": feature["value"], "typical": feature["typical"]}
        values |= {"low": quantiles[2], "high": quantiles[4], "percentile": feature["percentile"]}
        values |= {"ordinary_share": feature["share"]}
        row |= {f"{name}_{number}": value for name, value in values.items()}
    return row


def calls_lines(entries: Sequence[Entry]) -> list[str]:
    """Return lines for the console on the bags with the highest scores."""
    lines = []
    for entry in entries[:_LISTED]:
        lines.append(f"{entry['bag']}: {facts_of_call(entry)}")
        for one in entry["instances"]:
            features = ", ".join(short_text(feature) for feature in one["features"])
            lines.append(f"  {instance_text(one)}: {_share_text(one, entry)}{'; ' if features else ''}{features}")
    if len(entries) > _LISTED:
        lines.append(f"... and {plural(len(entries) - _LISTED, 'more bag')}")
    return lines


def facts_of_call(entry: Entry) -> str:
    """Return probability, score, size and group of a bag in words."""
    form = _form(entry)
    score = f"score {entry['score']:{form}}"
    if entry["threshold"] is not None:
        score += f", threshold {entry['threshold']:{form}}"
    shown = "" if entry["probability"] is None else f"probability {entry['probability']:.3f} "
    texts = [f"{shown}({score})" if shown else score, plural(entry["size"], "instance")]
    texts[:0] = [f"called {entry['called']}"] if entry["called"] is not None else []
    texts[:0] = [f"for {entry['explained']}"] if entry["explained"] is not None else []
    return ", ".join([*texts, *([] if entry["group"] is None else [f"group {entry['group']}"])])


def _form(entry: Entry) -> str:
    """Return a format that tells the scores of a bag, also without instances, from the threshold."""
    rest = [one["without"] for one in entry["instances"] if one["without"] is not None]
    return form_apart([entry["score"], *rest], entry["threshold"], least=3)


def _share_text(one: Entry, entry: Entry) -> str:
    without = "" if one["without"] is None else f", without it {one['without']:{_form(entry)}}"
    if one is not entry["instances"][0]:
        without = without.replace("without it", "without these")
    return f"{one['share']:.0%} of the score{without}"


def calls_page(title: str, entries: Sequence[Entry], bags: Bags, *, ordinary: str | None, total: int) -> str:
    """Return the page: a table of the bags, then a section for each, at most 200, in one file.

    `ordinary` is the entry "bags" of the run's ordinary values, if it has any; `total` counts the scored bags.
    """
    shown = entries[:SHOWN]
    heads = ["bag", "group", "class", "probability", "score", "instances", "first instance", "its share"]
    rows = [_summary(at, entry) for at, entry in enumerate(shown)]
    used = [any(row[at] is not None for row in rows) for at in range(len(heads))]
    rows = [[value for value, use in zip(row, used) if use] for row in rows]
    legend = [*_LEGEND[:2], *([f"{_LEGEND[2]} {_ORDINARY[ordinary]}."] if ordinary else [])]
    counts = f"{plural(len(entries), 'bag')} of {total}" + (f", the first {SHOWN} here" if len(entries) > SHOWN else "")
    first: list[Any] = [f"{counts}, the highest score first."]
    first.append(Table("The bags", [head for head, use in zip(heads, used) if use], rows, sorts=True))
    first += [Part("How to read this page", legend, folded=True), Note(f"{NAMES} This page keeps them.")]
    sections = [Section("bags", "The bags", first)]
    sections += [Section(f"bag-{at}", entry["bag"], _blocks(entry, bags)) for at, entry in enumerate(shown)]
    return render("page.html", title=title, kicker="Why", sections=sections)


def _summary(at: int, entry: Entry) -> list[Any]:
    best = entry["instances"][0]
    score = Number(entry["score"], _form(entry))
    probability = None if entry["probability"] is None else Number(entry["probability"])
    facts = [entry["group"], entry["called"] or entry["explained"], probability, score, entry["size"]]
    return [Link(entry["bag"], f"#bag-{at}"), *facts, instance_text(best), Number(best["share"], ".0%")]


def _blocks(entry: Entry, bags: Bags) -> list[Any]:
    """Return the blocks about a bag."""
    blocks: list[Any] = [f"{capitalized(facts_of_call(entry))}."]
    listed, last = entry["instances"], entry["instances"][-1]["without"]
    if last is not None and entry["threshold"] is not None and last < entry["threshold"] <= entry["score"]:
        them = "this instance" if len(listed) == 1 else f"these {len(listed)} instances"
        blocks[0] += f" Without {them}, the score would be {last:{_form(entry)}}: not called."
    columns = [name for one in listed for name in one["columns"]]
    names = list(dict.fromkeys(columns))
    rows = []
    for rank, one in enumerate(listed, start=1):
        numbers = [Number(one["share"], ".0%"), Number(one["without"], _form(entry))]
        name = instance_name(one["instance"], one["place"])
        rows.append(
            [rank, name, *(one["columns"].get(column) for column in names), *numbers, _picture(bags, entry, one)]
        )
    heads = ["rank", "instance", *(OF_FILES.get(name, name) for name in names), "share", "without", ""]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    blocks.append(Table("The instances that decided", heads, rows))
    for rank, one in enumerate(listed, start=1):
        if one["features"]:
            title = f"What is unusual about {instance_text(one)} (rank {rank})"
            blocks.append(Table(title, FEATURE_HEADS, [feature_row(feature) for feature in one["features"]]))
    return blocks


def _picture(bags: Bags, entry: Entry, one: Entry) -> Markup | None:
    """Return an instance that is a picture as an image in the page; None for other instances."""
    if not is_picture(bags.instance_shape):
        return None
    from PIL import Image  # comes with matplotlib

    index, place = entry["index"], np.array([one["instance"]])
    (scan,) = scans_of(bags, index, place, sliced="slice_index" in one["columns"])
    image = Image.fromarray(picture_of(bags, index, one["instance"], scan.ends))
    image.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    image.save(file, "PNG")
    text, scale = f"{entry['bag']}, {instance_text(one)}", max(1, _SIDE // (2 * max(image.size)))
    return Markup('<img alt="{}" width="{}" height="{}" src="data:image/png;base64,{}">').format(
        text, *(scale * side for side in image.size), base64.b64encode(file.getvalue()).decode()
    )
