"""One self-contained HTML page of all bags of a call: their maps, pictures, top instances and files."""

import base64
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from midam.errors import MidamError
from midam.explain.explanation import instance_name
from midam.explain.outcomes import predicted_words
from midam.plain_files import open_plain
from midam.report.html.markup import Cell, Html, join, number, prose, tag
from midam.report.pseudonyms import naming
from midam.report.words import form_apart, signed

_VERDICTS = {
    "lowers": "lowers the score faster than any random order",
    "raises": "keeps the score higher than any random order",
    "neither": "is not told apart from random orders",
}
_DRAWN = {
    "overlay": "the image with its top patches, maps of what patches add, of weights and scores",
    "map": "maps of what patches add, of their weights and scores",
    "strip": "slices in their order, the top ones framed, and what each slice adds",
    "sheet": "the instances at both ends of the ranking",
    "bars": "what the instances add, in their order",
}
_FILES = {
    "picture": "picture (PNG)",
    "instances": "all instances (HDF5)",
    "table": "top instances (CSV)",
    "polygons": "patches for QuPath (GeoJSON)",
    "image": "image (JPEG)",
    "added": "map of what patches add (PNG)",
    "weight": "map of weights (PNG)",
    "score": "map of scores (PNG)",
}
_LEGEND = {
    "Adds": "what the score of the bag would lose without this instance: the score, less the score without it. Orange "
    "raises the score, blue lowers it, the stronger the more; what hardly changes it is white, or clear on an image. "
    "Instances are ranked by it, the greatest first.",
    "Weight": "the share of the bag that the pooling gives the instance, in multiples of the uniform share 1/n: 1 is "
    "what each would have if none were preferred. What weighs no more is clear on an image.",
    "Score": "that of a bag which held this instance alone, on a fixed scale from 0 to 1. On an image its color is as "
    "strong as what the instance adds.",
    "Removing the top": "instances leave the bag in 20 steps, those that add most first. The area under the score is "
    "compared with 20 random orders: if the ranking is right, the score falls faster.",
}


# What files say of an instance: the head of its column, and the form of its cells.
_OF_FILES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "file": ("File", str),
    "slice_index": ("Slice in the file", "{}".format),
    "instance_number": ("InstanceNumber", lambda value: "" if value is None else str(value)),
    "frame_number": ("Frame", lambda value: "" if value is None else str(value)),
    "position_mm": ("Position", lambda value: "" if value is None else f"{value:.10g} mm"),
    "sop_instance_uid": ("SOPInstanceUID", lambda value: value or ""),
}


def verdict_text(tested: Mapping[str, Any]) -> str:
    """What removing the top instances first does, and by how much of the area under the curve.

    Examples
    --------
    >>> deletion = {"area": 0.7, "random_area": 0.8, "random_area_range": [0.705, 0.9]}
    >>> verdict_text({"verdict": "lowers", "deletion": deletion})
    'lowers the score faster than any random order: area 0.005 below the nearest one, 0.100 below their mean'
    """
    deletion = tested["deletion"]
    area, mean, (low, high) = deletion["area"], deletion["random_area"], deletion["random_area_range"]
    beside = f"{abs(area - mean):.3f} {'below' if area < mean else 'above'} their mean"
    nearest = {"lowers": f"{low - area:.3f} below", "raises": f"{area - high:.3f} above"}.get(tested["verdict"])
    what = _VERDICTS[tested["verdict"]]
    return f"{what}: area {beside}" if nearest is None else f"{what}: area {nearest} the nearest one, {beside}"


def facts_text(entry: Mapping[str, Any]) -> str:
    """What is known of a bag beside its score, in a line."""
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
    }
    known = {**entry, "predicted": predicted_words(entry.get("predicted"))}
    if entry.get("threshold") is not None:
        known["threshold"] = f"{entry['threshold']:{_form(entry)}}"
    return ";  ".join(text.format(**known) for key, text in texts.items() if known.get(key) is not None) + several


def _form(entry: Mapping[str, Any]) -> str:
    return form_apart(entry["score"], entry.get("threshold"))


def page_text(title: str, entries: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """HTML of the entries of explain.json; the pictures, files of `folder`, stand in it, other files are linked."""
    own = files("midam.explain")
    style, script = (Html(own.joinpath(f"page.{kind}").read_text(encoding="utf-8")) for kind in ("css", "js"))
    legend = join(join([tag("dt", term), tag("dd", text)]) for term, text in _LEGEND.items())
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            tag("title", title) + tag("style", style) + "</head>\n<body>" + tag("h1", title) + "\n",
            _overview(entries) + "\n" + tag("p", prose(naming(len(entries)))) + "\n",
            tag("details", tag("summary", "How to read this page"), tag("dl", legend, class_="legend"), open="") + "\n",
            *(_section(number_of, entry, folder) for number_of, entry in enumerate(entries)),
            tag("script", script) + "</body></html>\n",
        ]
    )


def _overview(entries: Sequence[Mapping[str, Any]]) -> Html:
    """Table of all bags; on a narrow screen each is a block."""
    columns = ["Bag", "Label", "Split", "Score", "Probability", "Instances", "Top instance", "Removing the top"]
    several = any(entry.get("explained") is not None for entry in entries)
    columns[3:3] = ["Class"] if several else []
    rows = []
    for at, entry in enumerate(entries):
        tested, best = entry["faithfulness"], entry["top"][0]
        cells: list[Cell] = [
            tag("a", entry["bag"], href=f"#bag-{at}"),
            entry["label"],
            entry["split"],
            *([entry["explained"]] if several else []),
            number(entry["score"], form=_form(entry)),
            number(entry["probability"], form=".4f"),
            entry["instances"],
            join([f"#{best['instance']}, adds ", _added(best)]),
            None if tested is None else verdict_text(tested),
        ]
        rows.append(
            tag("tr", *(tag("td", tag("span", cell), data_name=column) for column, cell in zip(columns, cells)))
        )
    head = tag("tr", *(tag("th", column, scope="col") for column in columns))
    return tag("table", tag("thead", head), tag("tbody", *rows), class_="bags")


def _section(at: int, entry: Mapping[str, Any], folder: Path) -> Html:
    own = entry["files"]
    alt = f"Bag {entry['bag']}, score {entry['score']:{_form(entry)}}: {_DRAWN[entry['picture']]}"
    alt += "" if entry["faithfulness"] is None else "; the score as the top instances leave and enter"
    picture = tag("a", tag("img", alt=alt, src=_data(folder, own["picture"])), href=quote(own["picture"]))
    parts = [
        tag("h2", entry["bag"]),
        tag("p", "score ", number(entry["score"], form=_form(entry)), f"; {facts_text(entry)}"),
        *(tag("p", f"Note: {note}.", class_="note") for note in entry["notes"]),
        *(_slide(f"{at}-{place}", slide, entry, folder) for place, slide in enumerate(entry.get("slides", [entry]))),
        _top(entry),
        tag("figure", picture, tag("figcaption", "The picture; it opens at its full size.")),
        _files("Files: ", entry),
    ]
    return tag("section", join(parts, "\n"), id=f"bag-{at}")


def _slide(at: str, slide: Mapping[str, Any], entry: Mapping[str, Any], folder: Path) -> Html:
    """The maps of a slide; of one of several under its name, with its files."""
    viewer = _viewer(at, slide, folder, name=slide.get("file", entry["bag"])) if "layers" in slide else ""
    if slide is entry:
        return join([viewer])
    return join([tag("h3", slide["file"]), viewer, _files("Files of this slide: ", slide)])


def _files(title: str, entry: Mapping[str, Any]) -> Html:
    """Links to files; nothing where there are none."""
    links = join((tag("a", _FILES[kind], href=quote(name)) for kind, name in entry["files"].items()), ", ")
    return tag("p", title, links) if entry["files"] else join([])


def _viewer(at: str, entry: Mapping[str, Any], folder: Path, *, name: str) -> Html:
    """The maps upon the image, of which one is chosen; without a script the first one is shown."""
    own, layers = entry["files"], entry["layers"]
    shown, choices = list[Html](), list[Html]()
    if "image" in own:
        shown.append(tag("img", alt=f"Image of {name}", src=_data(folder, own["image"])))
        choices.append(_choice(at, "none", "the image alone", chosen=False))
    for place, layer in enumerate(layers):
        key, what = layer["key"], layer["name"]
        alt = f"Map of {name}: {what}; {layer['here']}"
        kinds = f"map {key}" + ("" if shown or place else " first")
        shown.append(tag("img", class_=kinds, alt=alt, src=_data(folder, own[key])))
        choices.append(_choice(at, key, what[0].lower() + what[1:], chosen=place == 0))
    slide = tag("input", type="range", min="0", max="100", value="100")
    strength = tag("label", "strength ", slide) if "image" in own else ""
    return tag(
        "figure",
        tag("div", *shown, class_="stack"),
        *map(_scale, layers),
        tag("fieldset", tag("legend", "Show"), *choices, strength),
        class_="viewer",
        data_map=layers[0]["key"],
    )


def _scale(layer: Mapping[str, Any]) -> Html:
    """What is shown, its colors with the values at both ends, what these mean, and the range of this bag."""
    low, high = layer["ends"]
    meaning = [tag("small", low), tag("small", "0"), tag("small", high)] if low else []
    bar = [tag("span", signed(layer["low"])), tag("i"), tag("span", signed(layer["high"]))]
    return tag("p", tag("b", layer["name"]), *bar, *meaning, tag("em", layer["here"]), class_=f"scale {layer['key']}")


def _choice(at: str, key: str, name: str, *, chosen: bool) -> Html:
    button = tag("input", type="radio", name=f"map-{at}", value=key, checked="" if chosen else None)
    return tag("label", button, f" {name}")


def _top(entry: Mapping[str, Any]) -> Html:
    """Table of the top instances, with what their files say of them."""
    known = {name: cells for name, cells in _OF_FILES.items() if any(name in one for one in entry["top"])}
    words = join(tag("th", known_as, class_="text") for known_as, _ in known.values())
    head = tag(
        "tr", tag("th", "Rank"), tag("th", "Instance"), words, *(tag("th", x) for x in ("Adds", "Weight", "Score"))
    )
    rows = (
        tag(
            "tr",
            *(tag("td", cell) for cell in _names(one)),
            *(tag("td", form(one[name]), class_="text") for name, (_, form) in known.items()),
            *(tag("td", cell) for cell in _numbers(one)),
        )
        for one in entry["top"]
    )
    return tag(
        "table",
        tag("caption", "Top instances, numbered from 0 in the order of the bag"),
        tag("thead", head),
        tag("tbody", *rows),
        class_="top",
    )


def _names(one: Mapping[str, Any]) -> list[Cell]:
    place = [value for key, value in one.items() if key.startswith("coord_")]
    return [one["rank"], instance_name(one["instance"], place)]


def _numbers(one: Mapping[str, Any]) -> list[Cell]:
    weight = join([number(one["relative_weight"], form=".3g"), "\N{MULTIPLICATION SIGN}"])
    return [_added(one), weight, number(one["score"])]


def _added(one: Mapping[str, Any]) -> Html:
    return number(one["contribution"], form="+#.3g")


def _data(folder: Path, name: str) -> str:
    """A picture of the folder, as a part of the page; entries of a call that was stopped may name any file."""
    path = folder / name
    if Path(name).name != name or path.is_symlink():
        raise MidamError(
            f"Expected pictures that midam wrote into {folder}, got {name!r}, which lies elsewhere; choose another "
            "folder, or remove this one."
        )
    kind = "jpeg" if path.suffix == ".jpg" else "png"
    with open_plain(path) as file:
        return f"data:image/{kind};base64,{base64.b64encode(file.read()).decode()}"
