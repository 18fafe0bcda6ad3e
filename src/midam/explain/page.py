"""One self-contained HTML page of all bags of a call: their maps, pictures, top instances and files."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from midam.errors import MidamError
from midam.explain.explanation import instance_name, predicted_words
from midam.plain_files import open_plain
from midam.report.page.render import render
from midam.report.pseudonyms import naming
from midam.report.words import form_apart

# Columns of facts about an instance from its file.
_OF_FILES = (
    *("file", "line", "row", "slice_index", "instance_number"),
    *("frame_number", "position_mm", "sop_instance_uid"),
)


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


def _form(entry: Mapping[str, Any]) -> str:
    return form_apart(entry["score"], entry.get("threshold"))


def page_text(title: str, entries: Sequence[Mapping[str, Any]], folder: Path, *, left: int = 0) -> str:
    """Return the HTML page of the entries of explain.json; it embeds pictures from `folder` and links other files.

    `left` is the number of bags that are not explained yet, because the command was stopped.
    """
    bags = [_bag(entry, folder) for entry in entries]
    several = any(entry.get("explained") is not None for entry in entries)
    caution = naming(len(entries)) + " This page and the files next to it keep them."
    return render("explain.html", title=title, bags=bags, several=several, naming=caution, left=left)


def _bag(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the content of the page about a bag: its entry, with texts and pictures."""
    top = entry["top"]
    known = {name for instance in top for name in instance}
    places = [[value for key, value in instance.items() if key.startswith("coord_")] for instance in top]
    return {
        **entry,
        "explained": entry.get("explained"),
        "form": _form(entry),
        "facts": facts_text(entry),
        "columns": [name for name in _OF_FILES if name in known],
        "names": [instance_name(instance["instance"], place) for instance, place in zip(top, places)],
        "image": _data(folder, entry["files"]["picture"]),
        "slides": [_slide(slide, entry, folder) for slide in entry.get("slides", [entry])],
    }


def _slide(slide: Mapping[str, Any], entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the maps of a slide, and its name and files if there are several slides."""
    files, layers = slide["files"], slide.get("layers", ())
    several = slide is not entry
    return {
        "title": slide["file"] if several else None,
        "files": files if several else {},
        "name": slide.get("file", entry["bag"]),
        "image": _data(folder, files["image"]) if layers and "image" in files else None,
        "layers": [{**layer, "picture": _data(folder, files[layer["key"]])} for layer in layers],
    }


def _data(folder: Path, name: str) -> str:
    """Return a picture of the folder as a data URL; refuse other files, which a forged entry may name."""
    path = folder / name
    if Path(name).name != name or path.is_symlink():
        raise MidamError(
            f"Expected pictures that midam wrote into {folder}, got {name!r}, which lies elsewhere; choose another "
            "folder, or remove this one."
        )
    kind = "jpeg" if path.suffix == ".jpg" else "png"
    with open_plain(path) as file:
        return f"data:image/{kind};base64,{base64.b64encode(file.read()).decode()}"
