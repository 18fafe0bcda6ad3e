"""The list of called bags and of the instances that decided, as a CSV, as a page in one file, and in lines of text."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from midam.data.bags import Bags
from midam.errors import plural
from midam.explain.cards import feature_tables, instance_table, overview
from midam.explain.patches import is_picture
from midam.explain.tables import instance_rows, instances_csv
from midam.explain.tiles import picture_of, scans_of
from midam.explain.words import Entry, facts_text, feature_text, form_of, instance_text
from midam.report.page.render import Number, Section, render
from midam.report.words import capitalized

SHOWN = 200  # bags on a page
_LISTED = 10  # bags in the console
_SIDE = 144  # pixels of a picture on the page

_LEGEND = (
    "An instance is listed if the bag would still be called without those above it, or if it takes much of the score. "
    "They are found one after the other: of two that are alike, both are listed.",
    "Share: the part of the score that the instance carries, of what all listed ones carry together. Without: the "
    "score of the bag without this instance and those above it.",
)


def calls_csv(entries: Sequence[Entry]) -> str:
    """Return the CSV, a row for each listed instance, the bag of the highest score first."""
    return instances_csv([row for entry in entries for row in instance_rows(entry, _facts(entry))])


def _facts(entry: Entry) -> dict[str, Any]:
    facts = {"bag": entry["bag"], "group": entry["group"], "class": entry["called"], "explained": entry["explained"]}
    known = {name: value for name, value in facts.items() if value is not None}
    return {**known, "probability": entry["probability"], "score": entry["score"], "instances": entry["size"]}


def calls_lines(entries: Sequence[Entry]) -> list[str]:
    """Return lines for the console on the bags with the highest scores."""
    lines = []
    for entry in entries[:_LISTED]:
        lines.append(f"{entry['bag']}: {facts_text(entry)}")
        for one in entry["instances"]:
            features = ", ".join(feature_text(feature) for feature in one["features"])
            lines.append(f"  {instance_text(one)}: {_share_text(one, entry)}{'; ' if features else ''}{features}")
    if len(entries) > _LISTED:
        lines.append(f"... and {plural(len(entries) - _LISTED, 'more bag')}")
    return lines


def _share_text(one: Entry, entry: Entry) -> str:
    without = "" if one["without"] is None else f", without it {one['without']:{form_of(entry)}}"
    if one is not entry["instances"][0]:
        without = without.replace("without it", "without these")
    return f"{one['share']:.0%} of the score{without}"


def calls_page(title: str, entries: Sequence[Entry], bags: Bags, *, total: int) -> str:
    """Return the page: a table of the bags, then a section for each, at most 200, in one file.

    `total` counts the scored bags.
    """
    shown = entries[:SHOWN]
    counts = f"{plural(len(entries), 'bag')} of {total}" + (f", the first {SHOWN} here" if len(entries) > SHOWN else "")
    addresses = [f"#bag-{at}" for at in range(len(shown))]
    of_bags = overview(shown, addresses, ("its share", "share", ".0%"), _LEGEND, "This page keeps them.")
    sections = [Section("bags", "The bags", [f"{counts}, the highest score first.", *of_bags])]
    sections += [Section(f"bag-{at}", entry["bag"], _blocks(entry, bags)) for at, entry in enumerate(shown)]
    return render("page.html", title=title, kicker="Why", sections=sections)


def _blocks(entry: Entry, bags: Bags) -> list[Any]:
    """Return the blocks about a bag."""
    form, listed = form_of(entry), entry["instances"]
    facts, last = f"{capitalized(facts_text(entry))}.", listed[-1]["without"]
    if last is not None and entry["threshold"] is not None and last < entry["threshold"] <= entry["score"]:
        them = "this instance" if len(listed) == 1 else f"these {len(listed)} instances"
        facts += f" Without {them}, the score would be {last:{form}}: not called."
    cells: list[dict[str, Any]] = [
        {"share": Number(one["share"], ".0%"), "without": Number(one["without"], form)} for one in listed
    ]
    if is_picture(bags.instance_shape):
        cells = [{**numbers, "": _picture(bags, entry, one)} for numbers, one in zip(cells, listed)]
    return [facts, instance_table("The instances that decided", listed, cells), *feature_tables(listed)]


def _picture(bags: Bags, entry: Entry, one: Entry) -> Markup:
    """Return an instance that is a picture as an image in the page."""
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
