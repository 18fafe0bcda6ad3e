"""One self-contained HTML page of all bags of a call: their maps, pictures, top instances and files."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from midam.errors import MidamError
from midam.explain.words import FEATURE_HEADS, OF_FILES, feature_row, instance_name, origin_text, predicted_words
from midam.plain_files import open_plain
from midam.report.page.render import Link, Note, Number, Part, Section, Table, cell, render
from midam.report.pseudonyms import NAMES
from midam.report.words import form_apart, signed
from midam.runs.instance_files import file_name, with_digest

_UID = "sop_instance_uid"
_NUMBERS = {"contribution": "+#.3g", "relative_weight": ".3g", "score": ".3f"}
PAGE = "index.html"
_ON_ONE_PAGE = 2  # patients
_KNOWN = {"patient": "patient", "label": "label", "split": "split", "explained": "class"}
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
_FEATURES = (
    "Features: for each top instance, up to five features whose values add most: the score of the bag minus its score "
    "with the typical value instead, the median or the most frequent category. "
)


class Picture(NamedTuple):
    """An image that opens its file."""

    image: str
    file: str
    text: str


def facts_text(entry: Mapping[str, Any]) -> str:
    """Return a line of facts about a bag besides its score."""
    kind = "weighted mean" if entry.get("weighted") else "mean"
    several = f", {kind} of {entry['members']} scorers" if entry["members"] > 1 else ""
    texts = {
        "explained": "for {explained}",
        "probability": "probability {probability:.3f}",
        "called": "called {called} (threshold {threshold})",
        "predicted": "{predicted}",
        "label": "label {label}",
        "split": "{split} bag",
        "instances": "n = {instances} instances",
        "pooling": "{pooling} pooling",
        "even": "no instance stands out (weights {even} x uniform)",
    }
    facts = {**entry, "predicted": predicted_words(entry.get("predicted"))}
    if entry.get("threshold") is not None:
        facts["threshold"] = f"{entry['threshold']:{_form(entry)}}"
    return ";  ".join(text.format(**facts) for key, text in texts.items() if facts.get(key) is not None) + several


def _labels_text(entry: Mapping[str, Any]) -> str:
    """Return how well the contributions find the labeled instances of a bag."""
    labels = entry["labels"]
    top = "is" if labels["hit_rate"] == 1 else "is not" if labels["hit_rate"] == 0 else "is tied with"
    counts = (
        f"{labels['positive']} of {labels['labeled']} labeled instances are positive: the top one {top} one of them"
    )
    return f"{counts}, AUROC {labels['auroc_in_bag']:.3f}, average precision {labels['auprc_in_bag']:.3f}."


def _form(entry: Mapping[str, Any]) -> str:
    return form_apart(entry["score"], entry.get("threshold"))


def page_names(patients: Sequence[str]) -> dict[str, str]:
    """Return the file of each patient's page; none for one or two patients, whose bags are on the first page."""
    patients = list(dict.fromkeys(patients))
    stems = {patient: file_name(patient) for patient in patients}
    counts = Counter(["index", *(stem.lower() for stem in stems.values())])
    unique = {name: stem if counts[stem.lower()] == 1 else with_digest(stem, name) for name, stem in stems.items()}
    return {name: f"{stem}.html" for name, stem in unique.items()} if len(patients) > _ON_ONE_PAGE else {}


def page_texts(
    source: str, entries: Sequence[Mapping[str, Any]], folder: Path, pages: Mapping[str, str], *, left: int = 0
) -> dict[str, str]:
    """Return the HTML pages of the entries of explain.json by file: one, or a page a patient and an index.

    The pages embed pictures from `folder` and link other files. `left` is the number of bags that are not explained
    yet, because the command was stopped.
    """
    title, texts = f"Explanations: {source}", dict[str, str]()
    for patient, name in pages.items():
        of_patient = [entry for entry in entries if entry["patient"] == patient]
        if of_patient:
            texts[name] = _page(f"{patient}: explanations", of_patient, folder, pages={}, back=title)
    return texts | {PAGE: _page(title, entries, folder, pages=pages, left=left)}


def _page(
    title: str,
    entries: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    pages: Mapping[str, str],
    left: int = 0,
    back: str = "",
) -> str:
    """Return a page of entries, or with `pages` their index."""
    known = [key for key in _KNOWN if any(entry[key] not in (None, entry["bag"]) for entry in entries)]
    rows, places = list[list[Any]](), Counter[str]()
    for at, entry in enumerate(entries):
        best, patient = entry["top"][0], entry["patient"]
        address = f"{quote(pages[patient])}#bag-{places[patient]}" if pages else f"#bag-{at}"
        places[patient] += 1
        numbers = [Number(entry["score"], _form(entry)), Number(entry["probability"], ".4f"), entry["instances"]]
        origin = origin_text(best)
        top = f"#{best['instance']}{f' ({origin})' * bool(origin)}, adds {signed(best['contribution'], '+#.3g')}"
        rows.append([Link(entry["bag"], address), *(entry[key] for key in known), *numbers, top])
    heads = ["bag", *(_KNOWN[key] for key in known), "score", "probability", "instances", "top instance"]
    unfinished = f"Unfinished: {left} more bags were to be explained. Repeat the command to continue."
    legend = [*_LEGEND, *([_FEATURES] if any("features" in entry["top"][0] for entry in entries) else [])]
    first = [
        *([unfinished] if left else []),
        *([Markup("{}").format(cell(Link(f"All patients: {back}", PAGE)))] if back else []),
        Table("The bags", heads, rows, sorts=True),
        Note(f"{NAMES} This page and the files next to it keep them."),
        Part("How to read this page", legend, folded=True),
    ]
    shown = [] if pages else entries
    bags = [Section(f"bag-{at}", entry["bag"], _bag(entry, folder)) for at, entry in enumerate(shown)]
    sections = [Section("bags", "The bags", first), *bags]
    return render("page.html", title=title, kicker="Explanations", sections=sections)


def _bag(entry: Mapping[str, Any], folder: Path) -> list[Any]:
    """Return the blocks about a bag: facts, notes, picture, tables of its top instances, and files."""
    top, form = entry["top"], _form(entry)
    blocks: list[Any] = [Markup("score {}; {}").format(cell(Number(entry["score"], form)), facts_text(entry))]
    blocks += [Note(f"Note: {note}.") for note in entry["notes"]]
    blocks += [Note(f"Known labels: {_labels_text(entry)}")] if "labels" in entry else []
    text = f"Bag {entry['bag']}, score {entry['score']:{form}}: {_DRAWN[entry['picture']]}"
    blocks.append(Picture(_data(folder, entry["files"]["picture"]), entry["files"]["picture"], text))
    columns = [name for name in OF_FILES if any(name in instance for instance in top)]
    uid = [_UID] if any(_UID in instance for instance in top) else []
    rows, shares = list[list[Any]](), list[list[Any]]()
    for instance in top:
        place = [value for key, value in instance.items() if key.startswith("coord_")]
        name = instance_name(instance["instance"], place)
        numbers = [Number(instance[key], form) for key, form in _NUMBERS.items()]
        rows.append([instance["rank"], name, *map(instance.get, columns), *numbers, *map(instance.get, uid)])
        for feature in instance.get("features", ()):
            shares.append([name, *feature_row(feature), Number(feature["adds"], "+.3g")])
    caption = "Top instances, numbered from 0 in the order of the bag"
    heads = ["rank", "instance", *(OF_FILES[name] for name in columns), "adds", "weight (x uniform)", "score"]
    heads += ["SOPInstanceUID"] * len(uid)  # the last one, because it is long
    blocks.append(Table(caption, heads, rows, sorts=True))
    if shares:
        heads = ["instance", *FEATURE_HEADS, "adds"]
        title = "What the features of the top instances add"
        blocks.append(Part(title, [Table(title, heads, shares)], folded=True))
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
