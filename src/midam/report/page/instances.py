"""The block of a page on labeled instances: how well contributions find those that make a bag positive."""

from collections.abc import Mapping
from typing import Any

from midam.evaluate.labeled_instances import FIGURES
from midam.evaluate.proportions import Estimate
from midam.report.page.render import Note, Number, Part, Table, interval
from midam.report.words import INSTANCE_NAMES, PART_NAMES, capitalized

_TEXT = (
    "Some instances have known labels, which no training used. The contribution of an instance is the score of the bag "
    "minus its score without the instance, as `midam explain` shows it. In a bag: the mean over the bags that hold "
    "both labels. Pooled: all labeled instances on one scale. Intervals resample whole {units}."
)
_SEEN = "These bags trained the model. `--test-fraction 0.2` holds bags out."
_FEW = 20  # bags


def instances_part(entry: Mapping[str, Any], part: str, *, grouped: bool) -> Part:
    """Return the block on the labeled instances of a part, whose entry `InstanceMetrics.entries` has made."""
    rows, fewest = list[list[Any]](), _FEW
    for name in FIGURES:
        if entry[name] is not None:
            low, high = entry[f"{name}_ci95"]
            estimate = Estimate(entry[name], low, high, entry[f"{name}_bags"])
            chance = Number(entry["chance"][name])
            rows.append([capitalized(INSTANCE_NAMES[name]), Number(entry[name]), interval(estimate), chance])
            rows[-1].append(estimate.bags)
            fewest = min(fewest, estimate.bags)
    counts = f"{entry['instances']} labeled instances, {entry['positives']} positive, of {entry['bags']}"
    caption = f"Contributions of {counts} {PART_NAMES[part]} bags"
    table = Table(caption, ["metric", "value", "95% interval", "chance", "bags"], rows)
    blocks: list[Any] = [_TEXT.format(units="groups" if grouped else "bags"), table]
    blocks += [Note(_SEEN)] if part == "train" else []
    if fewest < _FEW:
        blocks.append(Note(f"Fewer than {_FEW} bags: the intervals are wide, and approximate."))
    return Part("Did the right instances decide?", blocks)
