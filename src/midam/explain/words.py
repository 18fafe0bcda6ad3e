"""Names of instances, values of their features, and facts about bags in words: for figures, pages and the console."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from midam.errors import plural
from midam.report.words import capitalized, form_apart

Entry = Mapping[str, Any]
# Facts about a bag, and about a slice from its file, in words.
_FACTS = {
    **{"explained": "for {}", "called": "called {}", "score": "{}", "predicted": "predicted {}", "label": "label {}"},
    **{"split": "{} bag", "size": "{}", "group": "group {}"},
}
_OF_SLICES = {"laterality": "{}", "view": "{}", "instance_number": "no. {}", "frame_number": "frame {}"}
_OF_SLICES |= {"slice_index": "index {}", "position_mm": "at {:.6g} mm"}
_LITTLE = 0.1  # of the score: listed instances that carry less together do not stand out
_SPLITS = ("train", "val", "test", "new")


def instance_name(instance: int, place: Iterable[float | None] = ()) -> str:
    """Return the number of an instance, with its coordinates if they add information.

    Examples
    --------
    >>> instance_name(3, [512, 1024]), instance_name(3, [3]), instance_name(3), instance_name(3, [math.nan, 0])
    ('#3 (512, 1024)', '#3', '#3', '#3 (no place)')
    """
    numbers = list(place)
    unknown = any(x is None or not math.isfinite(x) for x in numbers)
    text = "no place" if unknown else ", ".join(f"{x:.10g}" for x in numbers)
    return f"#{instance} ({text})" if text not in ("", str(instance)) else f"#{instance}"


def slice_text(facts: Mapping[str, Any]) -> str:
    """Return number and position of a slice, or side, view and file of an image without a position; "" if unknown.

    Examples
    --------
    >>> slice_text({"instance_number": 13, "position_mm": 58.5, "slice_file": "012.dcm"})
    'no. 13 at 58.5 mm'
    >>> slice_text({"laterality": "L", "view": "CC", "slice_file": "left.dcm"})
    'L CC, left.dcm'
    """
    known = {name: value for name, value in facts.items() if value is not None}
    text = " ".join(text.format(known[name]) for name, text in _OF_SLICES.items() if name in known)
    file = "" if "position_mm" in known else known.get("slice_file", "")
    return ", ".join(filter(None, [text, file]))


def instance_text(one: Entry) -> str:
    """Return the name of an instance: its number, place, file, and row of a table with its time, or slice.

    Examples
    --------
    >>> instance_text({"instance": 3, "place": [], "columns": {"file": "a.csv", "line": 17, "time": "04:10"}})
    '#3, a.csv, line 17, 04:10'
    """
    columns = one["columns"]
    row = [f"{name} {columns[name]}" for name in ("line", "row") if name in columns][:1]
    where = [*row, columns.get("time")] if row else [slice_text(columns)]
    return ", ".join(filter(None, [instance_name(one["instance"], one["place"]), columns.get("file"), *where]))


def form_of(entry: Entry) -> str:
    """Return a format that tells the scores of a bag, also without instances, from its threshold."""
    rest = [one["without"] for one in entry.get("instances", ()) if one.get("without") is not None]
    return form_apart([entry["score"], *rest], entry.get("threshold"), least=3)


def facts_text(entry: Entry) -> str:
    """Return prediction, score, size and origin of a bag in words, as far as they are known.

    Examples
    --------
    >>> facts_text({"called": "yes", "probability": 0.98, "score": 0.96, "threshold": 0.4, "size": 23, "group": "p6"})
    'called yes, probability 0.980 (score 0.960, threshold 0.400), 23 instances, group p6'
    """
    form, probability, threshold = form_of(entry), entry.get("probability"), entry.get("threshold")
    score = f"score {entry['score']:{form}}" + ("" if threshold is None else f", threshold {threshold:{form}}")
    score = score if probability is None else f"probability {probability:.3f} ({score})"
    facts = {**entry, "score": score, "size": plural(entry["size"], "instance")}
    facts["predicted"] = named_values(entry.get("predicted") or {}) or None
    return ", ".join(text.format(facts[key]) for key, text in _FACTS.items() if facts.get(key) is not None)


def named_values(values: Mapping[str, Any]) -> str:
    """Return values behind their names, without those that are None.

    Examples
    --------
    >>> named_values({"grade": "high", "number": 3.5, "risk": None})
    'grade high, number 3.5'
    """
    known = ((name, value) for name, value in values.items() if value is not None)
    return ", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}" for name, value in known)


def feature_text(feature: Entry) -> str:
    """Return a feature with its value and the middle half of the ordinary ones.

    Examples
    --------
    >>> feature_text({"name": "mode", "value": "ramp", "low": None, "share": 0.1})
    'mode ramp (10% have it)'
    """
    if feature["low"] is None:
        return f"{feature['name']} {feature['value']} ({percent_text(feature['share'])} have it)"
    usual = f"ordinary {feature['low']:.4g} to {feature['high']:.4g}"
    return f"{feature['name']} {feature['value']:.4g} ({usual})"


def percent_text(share: float) -> str:
    """Return a share in percent, which is not 0% if it is positive."""
    return "less than 1%" if 0 < share < 0.01 else f"{share:.0%}"


def bag_lines(entry: Entry, *, most: int | None = None) -> list[str]:
    """Return lines for the console on a bag and on the first of its instances, at most `most`."""
    lines = [f"{entry['bag']}: {facts_text(entry)}"]
    if not stands_out(entry):
        return [*lines, f"  {without_text(entry)}"]
    form = form_of(entry)
    for at, one in enumerate(entry["instances"][:most]):
        if "share" in one:
            without = "" if one["without"] is None else f", without {'these' if at else 'it'} {one['without']:{form}}"
            numbers = f"{one['share']:.0%} of the score{without}"
        else:
            weight = f"weight {one['relative_weight']:.3g} x uniform, score {one['score']:.4f}"
            numbers = f"adds {one['contribution']:+.3g} to the score, {weight}"
        features = ", ".join(map(feature_text, one["features"]))
        lines.append(f"  {instance_text(one)}: {numbers}{'; ' if features else ''}{features}")
    return lines


def stands_out(entry: Entry) -> bool:
    """Return whether the listed instances of a bag carry its call, or a tenth of its score; True if that is unknown.

    Examples
    --------
    >>> one = {"share": 0.01, "without": 0.97}
    >>> stands_out({"score": 0.98, "threshold": 0.5, "instances": [one]})
    False
    >>> stands_out({"score": 0.98, "threshold": 0.975, "instances": [one]})
    True
    """
    listed, threshold = entry["instances"], entry["threshold"]
    last = listed[-1].get("without")
    if threshold is None or last is None or last < threshold <= entry["score"]:
        return True
    return sum(one["share"] for one in listed) >= _LITTLE


def without_text(entry: Entry) -> str:
    """Return the score without the listed instances, if they carry the call, or if none stands out; else ""."""
    last, threshold = entry["instances"][-1]["without"], entry["threshold"]
    if last is None or threshold is None:
        return ""
    text = f"without the top {len(entry['instances'])}, the score would be {last:{form_of(entry)}}"
    if not stands_out(entry):
        return f"No instance stands out: {text}."
    return f"{capitalized(text)}: not called." if last < threshold <= entry["score"] else ""


def splits_text(entries: Sequence[Entry]) -> str:
    """Return how many of the bags are in each part of the run; "" if all are new.

    Examples
    --------
    >>> splits_text([{"split": "train"}, {"split": None}, {"split": "train"}]), splits_text([{"split": None}])
    ('2 train, 1 new', '')
    """
    counts = Counter(entry["split"] or "new" for entry in entries)
    return ", ".join(f"{counts[name]} {name}" for name in _SPLITS if name in counts) if {*counts} - {"new"} else ""
