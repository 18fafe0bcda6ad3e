"""One self-contained HTML page of all pictures of a call."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border-bottom:1px solid #ddd;padding:.3rem .8rem;"
    "text-align:left}img{max-width:100%;height:auto;margin:1rem 0;border:1px solid #ddd}"
)

_VERDICTS = {
    "lowers": "lowers the score faster than any random order",
    "raises": "keeps the score higher than any random order",
    "neither": "is not told apart from random orders",
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
    """HTML of the entries of explain.json; the pictures, files of `folder`, stand in it."""
    rows = "".join(f"<tr>{_row('td', _cells(entry))}</tr>" for entry in entries)
    columns = ("bag", "label", "split", "score", "probability", "instances", "top instance", "deletion")
    head = _row("th", (*columns, "removing the top"))
    pictures = "".join(_picture(entry, folder) for entry in entries)
    name = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{name}</h1>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{pictures}</body></html>\n"
    )


def _row(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)


def _cells(entry: Mapping[str, Any]) -> list[str]:
    tested = entry["faithfulness"]
    return [
        entry["bag"],
        *("-" if entry[key] is None else str(entry[key]) for key in ("label", "split")),
        f"{entry['score']:.4f}",
        "-" if entry["probability"] is None else f"{entry['probability']:.4f}",
        str(entry["instances"]),
        f"#{entry['top'][0]['instance']}",
        "-" if tested is None else f"{tested['deletion']['area']:.3f}",
        "-" if tested is None else verdict_text(tested),
    ]


def _picture(entry: Mapping[str, Any], folder: Path) -> str:
    bag = html.escape(entry["bag"])
    data = base64.b64encode((folder / entry["files"]["picture"]).read_bytes()).decode()
    return f'<h2>{bag}</h2><img alt="Explanation of bag {bag}" src="data:image/png;base64,{data}">'
