"""What the changes of `midam.evaluate.assumption.check_assumption` mean: sentences, and a part of a page."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from midam.errors import plural
from midam.evaluate.assumption import ADDED, DOUBLED, LARGER
from midam.evaluate.proportions import Estimate
from midam.report.page.render import Note, Number, Part, Table
from midam.report.words import PART_NAMES, capitalized

TITLE = "Does it keep the assumption: positive because of what a bag holds?"
_DONE = {
    **{ADDED: "with a negative bag added", f"{LARGER} times as large": f"{LARGER} times as large by such"},
    **{"top 10%": "without the tenth that adds most", "random 10%": "without as many at random"},
    **{"top 50%": "without the half that adds most", "random 50%": "without as many at random"},
    DOUBLED: "each instance twice",
}
# By whether the test is passed; "many" and "more" are cases of their own, and None is not judged.
_MEANINGS: dict[str, dict[bool | str | None, str]] = {
    "adding": {
        True: "what negative bags hold hardly hides what a positive bag holds",
        False: "ordinary instances dilute the score, and the same finding in a larger bag may be missed; a pooling "
        "nearer to the maximum, such as `--pooling smoothed-max`, is diluted less",
        "many": "a few ordinary instances hardly change the score, many do: a positive bag much larger than those of "
        "training may be missed",
        "more": "a larger bag scores higher, whatever it holds; compare bags of like size only",
    },
    "removing": {
        True: "the score rests on few instances, which `midam explain` names",
        False: "the score rests on many instances, of which a list of the top ones shows a part",
    },
    "doubling": {
        True: "the number of instances alone changes nothing",
        False: "the score depends on how many instances there are, not only on which",
        None: "the pooling counts instances by its definition",
    },
}


def assumption_words(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence on each of the three tests, with the medians of positive bags before and after the changes."""
    medians = {row["name"]: row["median"] for row in result["changes"]}
    before, negatives = result["before"]["median"], result["negatives"]["median"]
    outcomes: dict[str, bool | str | None] = {**dict.fromkeys(_MEANINGS), **result["passed"]}
    if result["changes"][0]["change"]["value"] > 0.05:
        outcomes["adding"] = "more"
    elif outcomes["adding"] and medians[f"{LARGER} times as large"] - before < -0.1:
        outcomes["adding"] = "many"
    lines, whole = [], f"median {result['measure']} {before:.2f}, of negative bags {negatives:.2f}"
    for test, outcome in outcomes.items():
        after = [f"{_DONE[row['name']]} {row['median']:.2f}" for row in result["changes"] if row["test"] == test]
        lines.append(f"{capitalized(test)}: {_MEANINGS[test][outcome]} ({whole}; {', '.join(after)}).")
    return lines


def assumption_part(result: Mapping[str, Any]) -> Part:
    """Return the part of the page of a run, from the entry "assumption" of summary.json."""
    levels = {"positive bags as they are": "before", "negative bags as they are": "negatives"}
    rows = [_row(name, result[level], level, result["positive"]) for name, level in levels.items()]
    for at, row in enumerate(result["changes"]):
        rows.append(_row(_DONE[row["name"]], row, f"changes.{at}", result["positive"]))
    heads = [f"{plural(result['positive'], 'positive bag')}", f"median {result['measure']}", "median change"]
    caption = f"Changed {PART_NAMES[result['part']]} bags"
    if result["before"]["called"] is None:
        rows = [row[:-1] for row in rows]
    table = Table(caption, [*heads, "called positive"][: len(rows[0])], rows)
    notes = ["Raff and Holt, NeurIPS 2023. Intervals of changes: bootstrap of whole groups, or of bags without groups."]
    if result["part"] == "out_of_fold":
        notes.append("The model in the folder was trained on these bags: what it needs of them may be too clear here.")
    return Part(TITLE, [*assumption_words(result), table, *map(Note, notes)])


def _row(name: str, level: Mapping[str, Any], place: str, bags: int) -> list[Any]:
    def number(entry: str, form: str) -> Number | None:
        known = level.get(entry)
        if known is None:
            return None
        low, high = (np.nan if known[end] is None else known[end] for end in ("low", "high"))
        return Number(Estimate(known["value"], low, high, bags), form, f"assumption.{place}.{entry}.value")

    median = Number(level["median"], ".3f", f"assumption.{place}.median")
    return [name, median, number("change", "+.3f"), number("called", ".0%")]
