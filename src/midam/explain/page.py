"""The pages of `midam explain` and of `midam predict --why`: a table of bags, then a section for each, in one file."""

import base64
import io
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
from midam.explain.tables import feature_tables, instance_table, overview
from midam.explain.tiles import picture_of, scans_of
from midam.explain.words import Entry, facts_text, form_of, instance_text, splits_text, stands_out, without_text
from midam.files import open_plain
from midam.report.page.render import Link, Note, Number, Part, Section, cell, render
from midam.report.words import capitalized
from midam.runs.instance_files import file_name, unique_names

_NUMBERS = {
    "contribution": ("adds", "+#.3g"),
    "relative_weight": ("weight (x uniform)", ".3g"),
    "score": ("score", ".3f"),
}
PAGE = "index.html"
_ON_ONE_PAGE = 2  # patients
_KEPT = "This page and the files next to it keep them."
_KINDS = {"picture": "picture (PNG)", "instances": "all instances (HDF5)", "table": "top instances (CSV)"}
_DRAWN = {
    "overlay": "the image with its top patches, maps of what patches add, of weights and scores",
    "map": "maps of what patches add, of their weights and scores",
    "strip": "slices in their order, the top ones larger, with maps of what their parts add, and what each slice adds",
    "sheet": "the instances at both ends of the ranking",
    "bars": "what the instances add, in their order",
}
_LEGEND = (
    "Adds: the score of the bag minus its score without this instance. Orange instances raise the score, blue ones "
    "lower it, and a stronger color means a larger change. Instances are ranked by this number, the greatest first.",
    "Weight: the weight that the pooling gives the instance, in multiples of the uniform weight 1/n: 1 means that the "
    "instance is not preferred. On an image, instances with a weight of at most 1 are transparent.",
    "Parts: on the top slices and images that were embedded, a map shows what each part adds: the score of the bag "
    "minus its score with the part covered by its background. + marks the peak, in the table of top instances (CSV) "
    "`peak_x` and `peak_y`, in pixels.",
    "Score: the score of a bag with this instance alone. On an image, a stronger color means that it adds more.",
)
_WHY_LEGEND = (
    "An instance is listed if the bag would still be called without those above it, or if it takes much of the score. "
    "They are found one after the other: of two that are alike, both are listed.",
    "Share: the part of the score that the instance carries, of what all listed ones carry together. Without: the "
    "score of the bag without this instance and those above it.",
)
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
        *overview(entries, addresses, ("adds", "contribution", "+.3g"), legend=_LEGEND, kept=_KEPT),
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
    addresses, kept = [f"#bag-{at}" for at in range(len(shown))], "This page keeps them."
    of_bags = overview(shown, addresses, ("its share", "share", ".0%"), legend=_WHY_LEGEND, kept=kept)
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
