"""Pages and tables (CSV) of `midam explain` and of `midam predict --why`: the bags, and the instances of each."""

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from midam.data.bags import Bags
from midam.errors import MidamError, plural
from midam.explain import words
from midam.explain.patches import is_picture
from midam.explain.picture import Pictures
from midam.explain.words import Entry
from midam.files import open_plain
from midam.report.page.render import Link, Note, Number, Part, Section, Table, cell, render
from midam.report.pseudonyms import NAMES
from midam.report.words import capitalized
from midam.runs.folder import csv_text
from midam.runs.instance_files import file_name, unique_names

# Heads and formats of the numbers of an instance.
_NUMBERS = {
    **{"contribution": ("adds", "+#.3g"), "relative_weight": ("weight (x uniform)", ".3g"), "score": ("score", ".3f")},
    **{"share": ("share", ".0%"), "without": ("without", "")},
}
_NESTED = ("instance", "columns", "place", "features")  # entries of an instance that are no numbers
_OF_FEATURES = {"name": "feature", "share": "ordinary_share", "adds": "feature_adds"}  # columns of a table
_OF_BAG = ("bag", "group", "split", "called", "explained", "probability", "score", "size")
_FEATURE_HEADS = ("instance", "feature", "here", "ordinary (middle half)", "adds")
PAGE = "index.html"
_ON_ONE_PAGE = 2  # patients
SHOWN = 200  # bags on a page of calls
_SIDE = 144  # pixels of a picture of an instance
_SEEN = "The model has learned from train bags, its threshold from val bags: only test and new ones show what it finds."


class Picture(NamedTuple):
    """An image that opens its file."""

    image: str
    file: str
    text: str


def page_texts(source: str, entries: Sequence[Entry], folder: Path, *, left: int = 0) -> dict[str, str]:
    """Return the HTML pages of the entries of explain.json by file: one, or of more than two patients one each.

    These have an index. The pages embed pictures from `folder` and link other files. `left` is the number of bags that
    are not explained yet, because the command was stopped.
    """
    title, blocks = f"Explanations: {source}", partial(_explained, folder=folder)
    by_patient, texts, addresses = dict[str, list[Entry]](), dict[str, str](), dict[str, str]()
    for entry in entries:
        by_patient.setdefault(entry["group"], []).append(entry)  # bags without groups are on one page
    if len(by_patient) > _ON_ONE_PAGE:
        names = unique_names([*map(file_name, by_patient)], [*by_patient], taken=["index"])
        back = Markup("{}").format(cell(Link(f"All patients: {title}", PAGE)))
        for name, (patient, bags) in zip(names, by_patient.items()):
            texts[f"{name}.html"] = _page(f"{patient}: explanations", [back, *_overview(bags)], bags, blocks)
            addresses |= {entry["bag"]: f"{quote(name)}.html#bag-{at}" for at, entry in enumerate(bags)}
    unfinished = [f"Unfinished: {left} more bags were to be explained. Repeat the command to continue."] if left else []
    first = [*unfinished, *_overview(entries, addresses)]
    return texts | {PAGE: _page(title, first, [] if texts else entries, blocks)}


def calls_page(title: str, entries: Sequence[Entry], bags: Bags, *, total: int) -> str:
    """Return the page: a table of the bags, then a section for each, at most 200, in one file.

    `total` counts the scored bags.
    """
    shown = entries[:SHOWN]
    counts = f"{plural(len(entries), 'bag')} of {total}" + (f", the first {SHOWN} here" if len(entries) > SHOWN else "")
    known = [f"Bags of the run: {splits}. {_SEEN}"] if (splits := words.splits_text(entries)) else []
    first = [f"{counts}, the highest score first.", *known, *_overview(shown, why=True)]
    return _page(title, first, shown, partial(_called, bags=bags))


def _page(title: str, first: Sequence[Any], entries: Sequence[Entry], blocks: Callable[[Entry], list[Any]]) -> str:
    """Return a page: the blocks `first` about all bags, then a section for each of the entries."""
    bags = [Section(f"bag-{at}", entry["bag"], blocks(entry)) for at, entry in enumerate(entries)]
    sections = [Section("bags", "The bags", first), *bags]
    return render("page.html", title=title, kicker="Explanations", sections=sections)


def _overview(
    entries: Sequence[Entry], addresses: Mapping[str, str] = MappingProxyType({}), *, why: bool = False
) -> list[Any]:
    """Return the table of all bags, which links their sections, how to read the page, and what keeps the names."""
    rows = list[dict[str, Any]]()
    for at, entry in enumerate(entries):
        best, probability, bag = entry["instances"][0], entry["probability"], entry["bag"]
        row: dict[str, Any] = {"bag": Link(bag, addresses.get(bag, f"#bag-{at}"))}
        row["group"] = entry["group"] if entry["group"] != bag else None
        row |= {"label": entry["label"], "split": entry["split"], "class": entry["explained"] or entry["called"]}
        row["probability"] = None if probability is None else Number(probability)
        row |= {"score": Number(entry["score"], words.form_of(entry)), "instances": entry["size"]}
        row["first instance"] = words.instance_text(best)
        row |= {"its share": Number(best["share"], ".0%")} if why else {"adds": Number(best["contribution"], "+.3g")}
        rows.append(row)
    heads = [head for head in (rows or [{}])[0] if any(row[head] is not None for row in rows)]
    featured = any(one["features"] for entry in entries for one in entry["instances"])
    legend = render("how_to_read.html", why=why, featured=featured).strip()
    return [
        Table("The bags", heads, [[row[head] for head in heads] for row in rows], sorts=True),
        Part("How to read this page", [*map(Markup, legend.split("\n\n"))], folded=True),
        Note(f"{NAMES} {'This page keeps' if why else 'This page and the files next to it keep'} them."),
    ]


def _explained(entry: Entry, folder: Path) -> list[Any]:
    """Return the blocks about a bag: facts, notes, picture, tables of its top instances, and files."""
    picture, files = entry["files"]["picture"], entry["files"]
    text = f"Bag {entry['bag']}, score {entry['score']:{words.form_of(entry)}}: what its instances add to the score"
    links = Markup(", ").join(cell(Link(name, quote(name))) for name in (*files.values(), *entry["slides"]))
    return [
        f"{capitalized(words.facts_text(entry))}.",
        *(Note(f"Note: {note}.") for note in entry["notes"]),
        Picture(_data(folder, picture), picture, text),
        *_tables(entry, "Top instances, numbered from 0 in the order of the bag"),
        Markup("Files: {}").format(links),
    ]


def _called(entry: Entry, bags: Bags) -> list[Any]:
    """Return the blocks about a bag in a list of called bags."""
    title = "The instances that decided" if words.stands_out(entry) else "The instances that add most"
    shown = Pictures(bags.subset([entry["index"]]))
    pictures = [_picture(shown, entry, one) for one in entry["instances"]] if is_picture(bags.instance_shape) else []
    return [
        f"{capitalized(words.facts_text(entry))}. {words.without_text(entry)}".strip(),
        *_tables(entry, title, pictures),
    ]


def _data(folder: Path, name: str) -> str:
    """Return a picture of the folder as a data URL; refuse other files, which a forged entry may name."""
    path = folder / name
    if Path(name).name != name or path.is_symlink():
        raise MidamError(f"Expected pictures in {folder}, got {name!r}, which lies elsewhere; remove the folder.")
    with open_plain(path) as file:
        return _png(file.read())


def _picture(pictures: Pictures, entry: Entry, one: Entry) -> Markup:
    """Return an instance that is a picture as an image in the page."""
    from PIL import Image  # comes with matplotlib

    (scan,) = pictures.scans(np.array([one["instance"]]))
    image = Image.fromarray(pictures.picture(one["instance"], scan.ends))
    image.thumbnail((_SIDE, _SIDE))
    image.save(file := io.BytesIO(), "PNG")
    text, width = f"{entry['bag']}, {words.instance_text(one)}", image.width * max(1, _SIDE // (2 * max(image.size)))
    return Markup('<img alt="{}" width="{}" src="{}">').format(text, width, _png(file.getvalue()))


def _png(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _tables(entry: Entry, caption: str, pictures: Sequence[Markup] = ()) -> list[Table]:
    """Return the tables of the listed instances of a bag, and of their telling features if there are any."""
    listed = entry["instances"]
    names = dict.fromkeys(name for one in listed for name, value in one["columns"].items() if value is not None)
    names.pop("sop_instance_uid", None)  # it is long, and in the CSV
    numbers = {key: (head, form or words.form_of(entry)) for key, (head, form) in _NUMBERS.items() if key in listed[0]}
    heads = ["rank", "instance", *(name.replace("_", " ") for name in names), *(head for head, _ in numbers.values())]
    rows, features = list[list[Any]](), list[list[Any]]()
    for at, one in enumerate(listed):
        cells = [Number(one[key], form) for key, (_, form) in numbers.items()]
        facts = map(one["columns"].get, names)
        rows.append(
            [at + 1, words.instance_name(one["instance"], one["place"]), *facts, *cells, *pictures[at : at + 1]]
        )
        features += [[f"#{one['instance']}", *_feature_cells(feature)] for feature in one["features"]]
    of_features = Table("What is unusual about them", _FEATURE_HEADS, features, sorts=True)
    every = Table(caption, [*heads, *([""] if pictures else [])], rows, sorts=True)
    return [every, of_features] if features else [every]


def _feature_cells(feature: Entry) -> list[Any]:
    adds, name, value, typical = Number(feature["adds"], "+.3g"), feature["name"], feature["value"], feature["typical"]
    if feature["low"] is None:
        return [name, value, f"most often {typical}; {words.percent_text(feature['share'])} have it", adds]
    return [name, f"{value:.4g}", f"{typical:.4g} ({feature['low']:.4g} to {feature['high']:.4g})", adds]


def instance_row(facts: Mapping[str, Any], rank: int, one: Entry) -> dict[str, Any]:
    """Return the row of an instance in a table, behind the `facts` about its bag.

    The columns of the k-th telling feature end in `_k`.
    """
    row = {**facts, "rank": rank, "instance": one["instance"], **one["columns"]}
    row |= {f"coord_{i}": x for i, x in enumerate(one["place"])}
    row |= {name: value for name, value in one.items() if name not in _NESTED}
    for number, feature in enumerate(one["features"], start=1):
        row |= {f"{_OF_FEATURES.get(name, name)}_{number}": value for name, value in feature.items()}
    return row


def instances_csv(rows: Iterable[Mapping[str, Any]], *, shown: int | None = None) -> str:
    """Return the CSV of rows, with the columns of the first `shown`; default: of all."""
    rows = iter(rows)
    first = [*islice(rows, shown)]
    return csv_text([*dict.fromkeys(name for row in first for name in row)] or ["bag"], chain(first, rows))


def calls_csv(entries: Sequence[Entry]) -> str:
    """Return the CSV, a row for each listed instance, the bag of the highest score first."""
    rows = []
    for entry in entries:
        facts = {name: entry[name] for name in _OF_BAG} | {"split": entry["split"] or "new"}
        rows += [instance_row(facts, rank, one) for rank, one in enumerate(entry["instances"], start=1)]
    return instances_csv(rows)
