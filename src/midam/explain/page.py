"""Pages and tables (CSV) of `midam explain` and of `midam predict --why`: the bags, and the instances of each."""

import base64
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from midam.data.bags import Bags
from midam.errors import MidamError, plural
from midam.explain.patches import is_picture
from midam.explain.tiles import picture_of, scans_of
from midam.explain.words import (
    OF_FILES,
    UID,
    Entry,
    facts_text,
    form_of,
    instance_name,
    instance_text,
    percent_text,
    splits_text,
    stands_out,
    without_text,
)
from midam.files import open_plain
from midam.report.page.render import Link, Note, Number, Part, Section, Table, cell, render
from midam.report.pseudonyms import NAMES
from midam.report.words import capitalized
from midam.runs.folder import csv_text
from midam.runs.instance_files import file_name, unique_names

_NUMBERS = {
    "contribution": ("adds", "+#.3g"),
    "relative_weight": ("weight (x uniform)", ".3g"),
    "score": ("score", ".3f"),
}
PAGE = "index.html"
_ON_ONE_PAGE = 2  # patients
_KINDS = {"picture": "picture (PNG)", "instances": "all instances (HDF5)", "table": "top instances (CSV)"}
_DRAWN = {
    "overlay": "the image with its top patches, maps of what patches add, of weights and scores",
    "map": "maps of what patches add, of their weights and scores",
    "strip": "slices in their order, the top ones larger, with maps of what their parts add, and what each slice adds",
    "sheet": "the instances at both ends of the ranking",
    "bars": "what the instances add, in their order",
}
SHOWN = 200  # bags on a page of calls
_SIDE = 144  # pixels of a picture of an instance


class Picture(NamedTuple):
    """An image that opens its file."""

    image: str
    file: str
    text: str


_SEEN = "The model has learned from train bags, its threshold from val bags: only test and new ones show what it finds."


def patient_of(entry: Entry) -> str:
    """Return the group of a bag; without groups, the bag itself."""
    return str(entry["bag"] if entry["group"] is None else entry["group"])


def page_names(patients: Sequence[str]) -> dict[str, str]:
    """Return the file of each patient's page; none for one or two patients, whose bags are on the first page."""
    patients = list(dict.fromkeys(patients))
    names = unique_names([*map(file_name, patients)], patients, taken=["index"])
    return {patient: f"{name}.html" for patient, name in zip(patients, names)} if len(patients) > _ON_ONE_PAGE else {}


def page_texts(
    source: str, entries: Sequence[Entry], folder: Path, pages: Mapping[str, str], *, left: int = 0
) -> dict[str, str]:
    """Return the HTML pages of the entries of explain.json by file: one, or a page a patient and an index.

    The pages embed pictures from `folder` and link other files. `left` is the number of bags that are not explained
    yet, because the command was stopped.
    """
    title, texts = f"Explanations: {source}", dict[str, str]()
    for patient, name in pages.items():
        of_patient = [entry for entry in entries if patient_of(entry) == patient]
        if of_patient:
            texts[name] = _page(f"{patient}: explanations", of_patient, folder, pages={}, back=title)
    return texts | {PAGE: _page(title, entries, folder, pages=pages, left=left)}


def _page(
    title: str, entries: Sequence[Entry], folder: Path, *, pages: Mapping[str, str], left: int = 0, back: str = ""
) -> str:
    """Return a page of entries, or with `pages` their index."""
    addresses, places = [], Counter[str]()
    for at, entry in enumerate(entries):
        patient = patient_of(entry)
        addresses.append(f"{quote(pages[patient])}#bag-{places[patient]}" if pages else f"#bag-{at}")
        places[patient] += 1
    unfinished = f"Unfinished: {left} more bags were to be explained. Repeat the command to continue."
    first = [
        *([unfinished] if left else []),
        *([Markup("{}").format(cell(Link(f"All patients: {back}", PAGE)))] if back else []),
        *overview(entries, addresses, why=False),
    ]
    return _rendered(title, "Explanations", first, [] if pages else entries, partial(_bag, folder=folder))


def _rendered(
    title: str, kicker: str, first: Sequence[Any], entries: Sequence[Entry], blocks: Callable[[Entry], list[Any]]
) -> str:
    """Return a page: the blocks `first` about all bags, then a section for each of the entries."""
    bags = [Section(f"bag-{at}", entry["bag"], blocks(entry)) for at, entry in enumerate(entries)]
    return render("page.html", title=title, kicker=kicker, sections=[Section("bags", "The bags", first), *bags])


def _bag(entry: Entry, folder: Path) -> list[Any]:
    """Return the blocks about a bag: facts, notes, picture, tables of its top instances, and files."""
    listed, facts = entry["instances"], f"{capitalized(facts_text(entry))}."
    blocks: list[Any] = [facts, *(Note(f"Note: {note}.") for note in entry["notes"])]
    text = f"Bag {entry['bag']}, score {entry['score']:{form_of(entry)}}: {_DRAWN[entry['picture']]}"
    blocks.append(Picture(_data(folder, entry["files"]["picture"]), entry["files"]["picture"], text))
    cells = [{head: Number(one[key], form) for key, (head, form) in _NUMBERS.items()} for one in listed]
    blocks.append(instance_table("Top instances, numbered from 0 in the order of the bag", listed, cells))
    features = feature_tables(listed)
    blocks += [Part("What the features of the top instances add", features, folded=True)] if features else []
    polygons = [(f"patches {slide['file'] or ''} (GeoJSON)", slide["geojson"]) for slide in entry["slides"]]
    files = [*((_KINDS[kind], name) for kind, name in entry["files"].items()), *polygons]
    links = Markup(", ").join(cell(Link(text, quote(name))) for text, name in files)
    return [*blocks, Markup("Files: {}").format(links)]


def _data(folder: Path, name: str) -> str:
    """Return a picture of the folder as a data URL; refuse other files, which a forged entry may name."""
    path = folder / name
    if Path(name).name != name or path.is_symlink():
        raise MidamError(
            f"Expected pictures that midam wrote into {folder}, got {name!r}, which lies elsewhere; choose another "
            "folder, or remove this one."
        )
    with open_plain(path) as file:
        return f"data:image/png;base64,{base64.b64encode(file.read()).decode()}"


def calls_page(title: str, entries: Sequence[Entry], bags: Bags, *, total: int) -> str:
    """Return the page: a table of the bags, then a section for each, at most 200, in one file.

    `total` counts the scored bags.
    """
    shown = entries[:SHOWN]
    counts = f"{plural(len(entries), 'bag')} of {total}" + (f", the first {SHOWN} here" if len(entries) > SHOWN else "")
    of_bags = overview(shown, [f"#bag-{at}" for at in range(len(shown))], why=True)
    known = f"Bags of the run: {splits}. {_SEEN}" if (splits := splits_text(entries)) else None
    first = [f"{counts}, the highest score first.", *filter(None, [known]), *of_bags]
    return _rendered(title, "Why", first, shown, partial(_called, bags=bags))


def _called(entry: Entry, bags: Bags) -> list[Any]:
    """Return the blocks about a bag."""
    form, listed = form_of(entry), entry["instances"]
    facts = f"{capitalized(facts_text(entry))}. {without_text(entry)}".strip()
    title = "The instances that decided" if stands_out(entry) else "The instances that add most"
    cells: list[dict[str, Any]] = [
        {"share": Number(one["share"], ".0%"), "without": Number(one["without"], form)} for one in listed
    ]
    if is_picture(bags.instance_shape):
        cells = [{**numbers, "": _picture(bags, entry, one)} for numbers, one in zip(cells, listed)]
    return [facts, instance_table(title, listed, cells), *feature_tables(listed)]


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


_HEADS = ("bag", "group", "label", "split", "class", "probability", "score", "instances", "first instance")
_FEATURE_HEADS = ("feature", "here", "ordinary (middle half)", "of these", "adds")


def overview(entries: Sequence[Entry], addresses: Sequence[str], *, why: bool) -> list[Any]:
    """Return the table of all bags, which links their sections, how to read the page, and what keeps the names."""
    head, key, form = ("its share", "share", ".0%") if why else ("adds", "contribution", "+.3g")
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
    legend = render("how_to_read.html", why=why, featured=featured).strip()
    return [
        Table("The bags", heads, rows, sorts=True),
        Part("How to read this page", [*map(Markup, legend.split("\n\n"))], folded=True),
        Note(f"{NAMES} {'This page keeps' if why else 'This page and the files next to it keep'} them."),
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
    tables = []
    for rank, one in enumerate(listed, start=1):
        if one.get("features"):
            title = f"What is unusual about {instance_text(one)} (rank {rank})"
            tables.append(Table(title, _FEATURE_HEADS, [*map(_feature_cells, one["features"])]))
    return tables


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
