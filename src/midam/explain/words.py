"""Names of instances, values of their features, and facts about bags in words: for figures, pages and the console."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from midam.data.bags import Bags
from midam.data.batch import instance_tensor
from midam.data.target_labels import TargetLabels
from midam.errors import plural
from midam.evaluate.pooled import MOST_NUMBERS
from midam.nn.scorer import BagEnsemble
from midam.report.words import form_apart
from midam.runs.typical import percentiles

Entry = Mapping[str, Any]
# Columns of facts about an instance from its file.
OF_FILES = {
    **{"file": "file", "line": "line", "row": "row", "time": "time", "slice_index": "slice in the file"},
    **{"instance_number": "InstanceNumber", "frame_number": "frame", "position_mm": "position (mm)"},
    **{"laterality": "side", "view": "view", "slice_file": "file of the slice", "instance_label": "known label"},
}
UID = "sop_instance_uid"
# Facts about a bag, in words.
_FACTS = {
    **{"explained": "for {}", "called": "called {}", "score": "{}", "predicted": "{}", "label": "label {}"},
    **{"split": "{} bag", "size": "{}", "group": "group {}", "pooling": "{} pooling", "members": "{}"},
    "even": "no instance stands out (weights {} x uniform)",
}
_ROWS = ("line", "row")  # columns about instances of a table
# Facts about a slice from its file, in words.
_OF_SLICES = {"laterality": "{}", "view": "{}", "instance_number": "no. {}", "frame_number": "frame {}"}
_OF_SLICES |= {"slice_index": "index {}", "position_mm": "at {:.6g} mm"}
_LISTED = 10  # bags in the console
_LITTLE = 0.1  # of the score: listed instances that carry less together do not stand out
_SPLITS = ("train", "val", "test", "new")


def instance_name(instance: int, place: Iterable[float | None] = (), file: str = "") -> str:
    """Return the number of an instance, with its coordinates and file if they add information.

    Examples
    --------
    >>> instance_name(3, [512, 1024]), instance_name(3, [3]), instance_name(3), instance_name(3, [math.nan, 0], "a.h5")
    ('#3 (512, 1024)', '#3', '#3', '#3 (no place), a.h5')
    """
    numbers = list(place)
    unknown = any(x is None or not math.isfinite(x) for x in numbers)
    place_text = "no place" if unknown else ", ".join(f"{x:.10g}" for x in numbers)
    name = f"#{instance} ({place_text})" if place_text not in ("", str(instance)) else f"#{instance}"
    return f"{name}, {file}" if file else name


def row_text(columns: Mapping[str, Any]) -> str:
    """Return the table row of an instance, and its time if known; "" for other data.

    Examples
    --------
    >>> row_text({"line": 17, "score": 0.5}), row_text({"line": 17, "time": "2025-03-01 04:10"})
    ('line 17', 'line 17, 2025-03-01 04:10')
    """
    row = next((f"{name} {columns[name]}" for name in _ROWS if name in columns), "")
    return ", ".join([row, *filter(None, [columns.get("time")])]) if row else ""


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
    """Return the name of an instance: its number, place, file, and row of a table or slice.

    Examples
    --------
    >>> instance_text({"instance": 3, "place": [], "columns": {"file": "a.csv", "line": 17}})
    '#3, a.csv, line 17'
    """
    where = [one["columns"].get("file"), row_text(one["columns"]) or slice_text(one["columns"])]
    return instance_name(one["instance"], one["place"], ", ".join(filter(None, where)))


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
    form, probability = form_of(entry), entry.get("probability")
    score = f"score {entry['score']:{form}}"
    score += "" if entry.get("threshold") is None else f", threshold {entry['threshold']:{form}}"
    mean, members = "weighted mean" if entry.get("weighted") else "mean", entry.get("members", 1)
    facts = {
        **entry,
        "score": score if probability is None else f"probability {probability:.3f} ({score})",
        "predicted": predicted_words(entry.get("predicted")),
        "size": plural(entry["size"], "instance"),
        "members": f"{mean} of {members} scorers" if members > 1 else None,
    }
    return ", ".join(text.format(facts[key]) for key, text in _FACTS.items() if facts.get(key) is not None)


def feature_text(feature: Entry) -> str:
    """Return a feature with its value and the middle half of the ordinary ones.

    Examples
    --------
    >>> feature_text({"name": "mode", "value": "ramp", "quantiles": None, "share": 0.1})
    'mode ramp (10% have it)'
    """
    if feature["quantiles"] is None:
        return f"{feature['name']} {feature['value']} ({percent_text(feature['share'])} have it)"
    low, high = feature["quantiles"][2], feature["quantiles"][4]
    return f"{feature['name']} {feature['value']:.4g} (ordinary {low:.4g} to {high:.4g})"


def percent_text(share: float) -> str:
    """Return a share in percent, which is not 0% if it is positive."""
    return "less than 1%" if 0 < share < 0.01 else f"{share:.0%}"


def label_words(outcome: TargetLabels) -> str:
    """Return the label of one bag in words.

    Examples
    --------
    >>> label_words(TargetLabels.of("survival", [[12.5, 0]], names=["time", "event"]))
    'no event until 12.5'
    >>> label_words(TargetLabels.of("multilabel", [[1, 0, 1]], names=["fat", "blood", "bone"]))
    'fat, bone'
    """
    labels = {name: values[0] for name, values in outcome.columns().items()}
    if outcome.target == "multilabel":
        return ", ".join(name for name, value in zip(outcome.names, labels.values()) if value == 1) or "none"
    if outcome.target == "survival":
        return "{} {:g}".format("event at" if labels["event"] else "no event until", labels["time"])
    return f"{labels['label']:g}" if outcome.target == "continuous" else str(labels["label"])


def predicted_words(predicted: dict[str, Any] | None) -> str | None:
    """Return the prediction of a bag in words; None if there is none.

    Examples
    --------
    >>> predicted_words({"grade": "high"}), predicted_words({"number": 3.14159}), predicted_words({"risk": None})
    ('predicted grade high', 'predicted number 3.142', None)
    """
    present = {key: value for key, value in (predicted or {}).items() if value is not None}
    parts = [f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in present.items()]
    return f"predicted {', '.join(parts)}" if parts else None


def calls_lines(entries: Sequence[Entry]) -> list[str]:
    """Return lines for the console on the bags with the highest scores."""
    lines = []
    for entry in entries[:_LISTED]:
        lines += [f"{entry['bag']}: {facts_text(entry)}", *([] if stands_out(entry) else [f"  {without_text(entry)}"])]
        for one in entry["instances"] if stands_out(entry) else ():
            features = ", ".join(feature_text(feature) for feature in one["features"])
            lines.append(f"  {instance_text(one)}: {_share_text(one, entry)}{'; ' if features else ''}{features}")
    if len(entries) > _LISTED:
        lines.append(f"... and {plural(len(entries) - _LISTED, 'more bag')}")
    return lines


def stands_out(entry: Entry) -> bool:
    """Return whether the listed instances of a bag carry its call, or a tenth of its score; True without a threshold.

    Examples
    --------
    >>> one = {"share": 0.01, "without": 0.97}
    >>> stands_out({"score": 0.98, "threshold": 0.5, "instances": [one]})
    False
    >>> stands_out({"score": 0.98, "threshold": 0.975, "instances": [one]})
    True
    """
    listed, threshold = entry["instances"], entry["threshold"]
    if threshold is None or listed[-1]["without"] is None or listed[-1]["without"] < threshold <= entry["score"]:
        return True
    return sum(one["share"] for one in listed) >= _LITTLE


def without_text(entry: Entry) -> str:
    """Return the score without the listed instances, if they carry the call, or if none stands out; else ""."""
    count, last, threshold = len(entry["instances"]), entry["instances"][-1]["without"], entry["threshold"]
    if not stands_out(entry):
        them = "the one that adds most" if count == 1 else f"the {count} that add most"
        return f"No instance stands out: without {them}, the score would be {last:{form_of(entry)}}."
    if last is None or threshold is None or not last < threshold <= entry["score"]:
        return ""
    them = "this instance" if count == 1 else f"these {count} instances"
    return f"Without {them}, the score would be {last:{form_of(entry)}}: not called."


def splits_text(entries: Sequence[Entry]) -> str:
    """Return how many of the bags are in each part of the run; "" if all are new.

    Examples
    --------
    >>> splits_text([{"split": "train"}, {"split": None}, {"split": "train"}]), splits_text([{"split": None}])
    ('2 train, 1 new', '')
    """
    counts = Counter(entry["split"] or "new" for entry in entries)
    return ", ".join(f"{counts[name]} {name}" for name in _SPLITS if name in counts) if {*counts} - {"new"} else ""


def _share_text(one: Entry, entry: Entry) -> str:
    without = "" if one["without"] is None else f", without it {one['without']:{form_of(entry)}}"
    if one is not entry["instances"][0]:
        without = without.replace("without it", "without these")
    return f"{one['share']:.0%} of the score{without}"


MOST = 3  # features of an instance
_TELLING = 0.1  # of what the first feature adds; less is not shown
Losses = Callable[[Tensor, NDArray[np.int64]], NDArray[np.float64]]


class TellingFeature(NamedTuple):
    """A feature of an instance whose value raised the score of the bag.

    Attributes
    ----------
    name : str
        Name of the feature, or its number; of a category, the column.
    value, typical : float or str
        Its value, and the median over the ordinary instances; or a category, and the most frequent one. The ordinary
        instances are those of negative training bags; with other labels than two classes, all training instances.
    quantiles : tuple of float or None
        Quantiles over the ordinary instances, at `midam.runs.typical.LEVELS`; None for a category.
    percentile : float or None
        Percentage of the ordinary instances with a lower value, within 1 and 99; None for a category.
    share : float or None
        Share of the ordinary instances in this category; None for a number.
    adds : float
        The score minus the score of the bag with the typical value instead, above 0. The instances listed before are
        left out of the bag.

    Examples
    --------
    >>> heat = TellingFeature("heat", 9.5, 2.0, (0.0, 0.5, 1.5, 2.0, 2.5, 3.5, 4.0), 99.0, None, adds=0.4)
    >>> heat.value > heat.quantiles[-1]
    True
    """

    name: str
    value: float | str
    typical: float | str
    quantiles: tuple[float, ...] | None
    percentile: float | None
    share: float | None
    adds: float


@dataclass(frozen=True)
class Features:
    """What a run knows about the features of ordinary instances."""

    names: Sequence[str]  # of the features [D]
    columns: NDArray[np.str_]  # column of each feature
    typical: NDArray[np.float64]  # [D]
    means: NDArray[np.float64]  # [D]
    quantiles: NDArray[np.float64]  # [7, D]

    @classmethod
    def of(cls, data: Mapping[str, Any], model: BagEnsemble, bags: Bags) -> "Features | None":
        """Return the facts of a run's `data` about vectors; None for pictures, many features, or a network's."""
        typical, ordinary = data.get("typical"), data.get("ordinary")
        if typical is None or ordinary is None or "network" in (data.get("cut") or {}):
            return None
        names = bags.feature_names or [f"feature {j}" for j in range(len(typical))]
        known = model.inputs.columns if model.inputs is not None else None
        categories = known.of_categories if known is not None else {}  # a category has several features
        columns = np.array([categories.get(name, name) for name in names])
        return cls(names, columns, np.array(typical), np.array(ordinary["means"]), np.array(ordinary["quantiles"]))

    def telling(self, rows: NDArray[Any], losses: Losses, *, most: int = MOST) -> list[tuple[TellingFeature, ...]]:
        """Return at most `most` telling features of each of the instances `rows` [T, D].

        `losses(x, at)` returns what the score of a bag loses when its instance `at` [R], a position in `rows`, becomes
        x [R, D].
        """
        typical, width = self.typical.astype(rows.dtype), rows.shape[1]
        results: list[tuple[TellingFeature, ...]] = []
        step = max(1, MOST_NUMBERS // width**2)
        for low in range(0, len(rows), step):
            part = rows[low : low + step]
            at, feature = np.nonzero(part != typical)
            features: list[list[tuple[float, int]]] = [[] for _ in part]
            if len(at):
                first = (self.columns == self.columns[feature, None]).argmax(axis=1)
                at, first = np.unique([at, first], axis=1)
                changed = np.where(self.columns == self.columns[first, None], typical, part[at])
                lost = losses(instance_tensor(changed), low + at)
                for i, j, loss in zip(at.tolist(), first.tolist(), lost.tolist()):
                    features[i].append((loss, j))
            results += [self._described(row, lost_by, most) for row, lost_by in zip(part, features)]
        return results

    def _described(self, row: NDArray[Any], lost: Sequence[tuple[float, int]], most: int) -> tuple[TellingFeature, ...]:
        """Return the features of an instance that add most, from the losses and the first feature of each column."""
        best = sorted(lost, key=lambda pair: -pair[0])[:most]
        least = _TELLING * best[0][0] if best else 0.0
        return tuple(self._feature(row, j, loss) for loss, j in best if loss > max(least, 0.0))

    def _feature(self, row: NDArray[Any], first: int, loss: float) -> TellingFeature:
        name = str(self.columns[first])
        inside = np.flatnonzero(self.columns == name)
        value, typical = (_value(inside, name, self.names, x) for x in (row, self.typical))
        if isinstance(value, str):
            share = float(self.means[inside] @ (row[inside] != 0))
            return TellingFeature(name, value, typical, None, None, share, loss)
        quantiles = self.quantiles[:, first]
        (percentile,) = percentiles(np.array([value]), quantiles).tolist()
        return TellingFeature(name, value, typical, tuple(quantiles.tolist()), percentile, None, loss)


def _value(places: NDArray[np.int64], column: str, names: Sequence[str], x: NDArray[Any]) -> float | str:
    """Return the number of an instance in a column with features at these places, or the words of its category."""
    if names[places[0]] == column:
        return float(x[places[0]])
    return next((names[j][len(column) + 1 :] for j in places if x[j]), "none")
