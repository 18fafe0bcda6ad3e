"""What the changes of `midam.evaluate.assumption.check_assumption` mean: sentences, and a part of a page."""

from collections.abc import Mapping
from typing import Any

from midam.errors import plural
from midam.evaluate.assumption import ADDED, DOUBLED, LARGER
from midam.evaluate.proportions import Estimate
from midam.report.page.render import Note, Number, Part, Table
from midam.report.words import PART_NAMES

TITLE = "Does it keep the assumption: positive because of what a bag holds?"
_DONE = {
    **{
        ADDED: "with a negative bag added",
        f"{LARGER} times as large": f"{LARGER} times as large by such",
    },
    **{"top 10%": "without the tenth that adds most", "random 10%": "without as many at random"},
    **{"top 50%": "without the half that adds most", "random 50%": "without as many at random"},
    DOUBLED: "each instance twice",
}


def assumption_words(result: Mapping[str, Any]) -> list[str]:
    """Return a sentence or two on each of the three tests."""
    rows, passed = {row["name"]: row for row in result["changes"]}, result["passed"]
    return [
        _adding(result, rows, passed["adding"]),
        _removing(result, rows, passed["removing"]),
        _doubling(result, rows),
    ]


def assumption_part(result: Mapping[str, Any], *, key: str | None = None) -> Part:
    """Return the part of a page; `key` is the place of the result in summary.json."""
    measure, known = result["measure"], result["before"]["called"] is not None
    rows: list[list[Any]] = []
    for name, level in (
        ("positive bags as they are", result["before"]),
        ("negative bags as they are", result["negatives"]),
    ):
        place = None if key is None else f"{key}.{'before' if not rows else 'negatives'}"
        rows.append([name, _number(level["median"], place, "median"), None, _estimate(level["called"], place)])
    for at, row in enumerate(result["changes"]):
        place = None if key is None else f"{key}.changes.{at}"
        change = Estimate(row["change"]["value"], *_bounds(row["change"]), result["positive"])
        cells = [_number(row["median"], place, "median"), Number(change, "+.3f", place and f"{place}.change.value")]
        rows.append([_DONE[row["name"]], *cells, _estimate(row["called"], place)])
    heads = [f"{plural(result['positive'], 'positive bag')}", f"median {measure}", "median change", "called positive"]
    rows = rows if known else [row[:-1] for row in rows]
    caption = f"Changed {PART_NAMES[result['part']]} bags"
    if result["positives"] == "called":
        caption += "; without labels, those that the run calls positive count as positive"
    table = Table(caption, heads if known else heads[:-1], rows)
    notes = ["Raff and Holt, NeurIPS 2023. Intervals of changes: bootstrap of whole groups, or of bags without groups."]
    if result["part"] in ("out_of_fold", "train"):
        notes.append("The model in the folder was trained on these bags: what it needs of them may be too clear here.")
    return Part(TITLE, [*assumption_words(result), table, *map(Note, notes)])


def _adding(result: Mapping[str, Any], rows: Mapping[str, Any], passed: bool) -> str:
    one, many, measure = rows[ADDED], rows[f"{LARGER} times as large"], result["measure"]
    change = one["change"]["value"]
    numbers = (
        f"with the instances of a negative bag the median {measure} of positive bags goes from "
        f"{result['before']['median']:.2f} to {one['median']:.2f}, and to {many['median']:.2f} when these make them "
        f"{LARGER} times as large{_called(result['before'], many)}"
    )
    if change > 0.05:
        return f"Adding: a larger bag scores higher, whatever it holds: {numbers}. Compare bags of like size only."
    diluted = many["median"] - result["before"]["median"] < -0.1
    if passed and not diluted:
        return f"Adding: what negative bags hold hardly hides what a positive bag holds: {numbers}."
    if passed:
        return (
            f"Adding: a few ordinary instances hardly change the score, many do: {numbers}. A positive bag much larger "
            "than those of training may be missed."
        )
    return (
        f"Adding: ordinary instances dilute the score: {numbers}. The same finding in a larger bag may be missed; a "
        "pooling nearer to the maximum, such as `--pooling smoothed-max`, is diluted less."
    )


def _removing(result: Mapping[str, Any], rows: Mapping[str, Any], passed: bool) -> str:
    top, random, measure = rows["top 10%"], rows["random 10%"], result["measure"]
    numbers = (
        f"without the tenth of the instances that adds most the median {measure} is {top['median']:.2f}, without as "
        f"many at random {random['median']:.2f}; that of negative bags is {result['negatives']['median']:.2f}"
    )
    if passed:
        return f"Removing: the score rests on few instances, which `midam explain` names: {numbers}."
    half = rows["top 50%"]
    if half["median"] - result["negatives"]["median"] > 0.5 * (
        result["before"]["median"] - result["negatives"]["median"]
    ):
        text = f"even without the half that adds most it is {half['median']:.2f}"
        return (
            f"Removing: the score does not rest on few instances: {numbers}; {text}. The model judges the bag as a "
            "whole: read its explanations with care."
        )
    return (
        f"Removing: the score rests on many instances: {numbers}; without the half that adds most it is "
        f"{half['median']:.2f}. A list of the top instances shows a part of the reason."
    )


def _doubling(result: Mapping[str, Any], rows: Mapping[str, Any]) -> str:
    row, measure = rows[DOUBLED], result["measure"]
    change = f"the median {measure} changes by {row['change']['value']:+.2f} when each instance counts twice"
    if result["counts"]:
        return f"Doubling: the pooling counts instances by its definition: {change}."
    if result["passed"]["doubling"]:
        return f"Doubling: the number of instances alone changes nothing: {change}."
    return f"Doubling: the score depends on how many instances there are, not only on which: {change}."


def _called(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before["called"] is None:
        return ""
    return f" (called positive: {before['called']['value']:.0%} before, {after['called']['value']:.0%} then)"


def _bounds(entry: Mapping[str, Any]) -> tuple[float, float]:
    return (float("nan"), float("nan")) if entry["low"] is None else (entry["low"], entry["high"])


def _number(value: float, place: str | None, name: str) -> Number:
    return Number(value, ".3f", place and f"{place}.{name}")


def _estimate(entry: Mapping[str, Any] | None, place: str | None) -> Number | None:
    if entry is None:
        return None
    return Number(Estimate(entry["value"], *_bounds(entry), 0), ".0%", place and f"{place}.called.value")
