"""One self-contained HTML page of all bags of a call: their maps, pictures, top instances and files."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
    "raises the score, blue lowers it, clear hardly changes it. Instances are ranked by it, the greatest first.",
    "Weight": "the share of the bag that the pooling gives the instance, in multiples of the uniform share 1/n: 1 is "
    "what each would have if none were preferred. What weighs no more is clear on an image.",
    "Score": "that of a bag which held this instance alone, on a fixed scale from 0 to 1. On an image its color is as "
    "strong as what the instance adds.",
    "Removing the top": "instances leave the bag in 20 steps, those that add most first. The area under the score is "
    "compared with 20 random orders: if the ranking is right, the score falls faster.",
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


def page_text(title: str, entries: Sequence[Mapping[str, Any]], folder: Path) -> str:
    """HTML of the entries of explain.json; the pictures, files of `folder`, stand in it, other files are linked."""
    name = html.escape(title)
    own = files("midam.explain")
    style, script = (own.joinpath(f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    legend = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in _LEGEND.items())
    sections = "".join(_section(number, entry, folder) for number, entry in enumerate(entries))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>\n{style}</style></head>\n<body><h1>{name}</h1>\n{_overview(entries)}\n"
        f'<details open><summary>How to read this page</summary><dl class="legend">{legend}</dl></details>\n'
        f"{sections}<script>\n{script}</script></body></html>\n"
    )


def _overview(entries: Sequence[Mapping[str, Any]]) -> str:
    """Table of all bags; on a narrow screen each is a block."""
    columns = ("Bag", "Label", "Split", "Score", "Probability", "Instances", "Top instance", "Removing the top")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    rows = []
    for number, entry in enumerate(entries):
        tested, best = entry["faithfulness"], entry["top"][0]
        cells = [
            f'<a href="#bag-{number}">{html.escape(entry["bag"])}</a>',
            *("-" if entry[key] is None else html.escape(str(entry[key])) for key in ("label", "split")),
            f"{entry['score']:.4f}",
            "-" if entry["probability"] is None else f"{entry['probability']:.4f}",
            str(entry["instances"]),
            f"#{best['instance']}, adds {best['contribution']:+.3g}",
            "-" if tested is None else verdict_text(tested),
        ]
        body = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in zip(columns, cells))
        rows.append(f"<tr>{body}</tr>")
    return f'<table class="bags"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _section(number: int, entry: Mapping[str, Any], folder: Path) -> str:
    bag, own = html.escape(entry["bag"]), entry["files"]
    facts = [f"score {entry['score']:.4f}"]
    facts += [] if entry["probability"] is None else [f"probability {entry['probability']:.4f}"]
    facts += [] if entry["called"] is None else [f"called {entry['called']} (threshold {entry['threshold']:.3f})"]
    facts += [f"{name} {entry[name]}" for name in ("label", "split") if entry[name] is not None]
    facts += [f"{entry['instances']} instances", f"{html.escape(entry['pooling'])} pooling"]
    links = ", ".join(f'<a href="{quote(name)}">{_FILES[kind]}</a>' for kind, name in own.items())
    alt = f"Bag {bag}, score {entry['score']:.3f}: {_DRAWN[entry['picture']]}"
    alt += "" if entry["faithfulness"] is None else "; the score as the top instances leave and enter"
    picture = f'<a href="{quote(own["picture"])}"><img alt="{alt}" src="{_data(folder / own["picture"])}"></a>'
    return (
        f'<section id="bag-{number}"><h2>{bag}</h2><p>{"; ".join(facts)}</p>\n'
        f"{_viewer(number, entry, folder) if 'layers' in entry else ''}{_top(entry)}\n"
        f"<figure>{picture}<figcaption>The picture; it opens at its full size.</figcaption></figure>\n"
        f"<p>Files: {links}</p></section>\n"
    )


def _viewer(number: int, entry: Mapping[str, Any], folder: Path) -> str:
    """The maps upon the image, of which one is chosen; without a script the first one is shown."""
    own, layers, bag = entry["files"], entry["layers"], html.escape(entry["bag"])
    shown, choices, scales = [], [], []
    if "image" in own:
        shown.append(f'<img alt="Image of bag {bag}" src="{_data(folder / own["image"])}">')
        choices.append(_choice(number, "none", "the image alone", chosen=False))
    for place, layer in enumerate(layers):
        key, name = layer["key"], layer["name"]
        on = "" if shown or place else " first"
        source = _data(folder / own[key])
        shown.append(f'<img class="map {key}{on}" alt="Map of bag {bag}: {name}; {layer["here"]}" src="{source}">')
        choices.append(_choice(number, key, name[0].lower() + name[1:], chosen=place == 0))
        low, high = f"{layer['low']:.3g}", f"{layer['high']:.3g}"
        scales.append(f'<p class="scale {key}"><span>{low}</span><i></i><span>{high}</span> <b>{layer["here"]}</b></p>')
    strength = '<label>strength <input type="range" min="0" max="100" value="100"></label>' if "image" in own else ""
    return (
        f'<figure class="viewer" data-map="{layers[0]["key"]}"><div class="stack">{"".join(shown)}</div>'
        f"{''.join(scales)}<fieldset><legend>Show</legend>{''.join(choices)}{strength}</fieldset></figure>\n"
    )


def _choice(number: int, key: str, name: str, *, chosen: bool) -> str:
    on = " checked" if chosen else ""
    return f'<label><input type="radio" name="map-{number}" value="{key}"{on}> {html.escape(name)}</label>'


def _top(entry: Mapping[str, Any]) -> str:
    """Table of the top instances."""
    head = _row("th", ("Rank", "Instance", "Adds", "Weight", "Score"))
    rows = "".join(_row("td", _top_cells(one)) for one in entry["top"])
    return f'<table class="top"><caption>Top instances</caption><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _top_cells(one: Mapping[str, Any]) -> list[str]:
    places = [f"{value:g}" for key, value in one.items() if key.startswith("coord_")]
    return [
        str(one["rank"]),
        f"#{one['instance']}" + (f" ({', '.join(places)})" if places else ""),
        f"{one['contribution']:+.3g}",
        f"{one['relative_weight']:.3g}\N{MULTIPLICATION SIGN}",
        f"{one['score']:.3f}",
    ]


def _row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _data(path: Path) -> str:
    kind = "jpeg" if path.suffix == ".jpg" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
