"""What is known of a run's draws in words: lines for the console, a section of the page, a table of training bags."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from midam.explain.draws import DrawFacts
from midam.report.html.markup import DASH, Cell, Html, join, tag
from midam.runs.folder import csv_text

_COLUMNS = ("scorer", "bag", "label", "instances", "seen", "effective", "drawn_weight", "uniform_weight")
_OF_WITNESSES = ("witnesses", "witness_rank", "drawn_witness", "uniform_witness")
_LEGEND = {
    "Instances seen": "those whose score is remembered: a step drew them, or a pass scored all.",
    "Instances that carry the weight": "how many of equal weight would be as concentrated as the remembered weights w, "
    "which sum to 1: 1 / sum of w\N{SUPERSCRIPT TWO}. It is 1 if one has all, and the size of the bag if all weigh the "
    "same. Median of the bags.",
    "Weight in a draw": "share of a bag's remembered weight that a draw holds, as the rule draws at the end.",
    "Draws with a witness": "share of these draws that hold an instance which is known to make its bag positive.",
    "Witness among the highest": "share of the bags of which a witness is remembered among as many highest as are "
    "drawn.",
    "Witnesses drawn so far": "share of the known witnesses that some step of the training drew.",
}


def draw_lines(summary: Mapping[str, Any]) -> list[str]:
    """What is known of the draws, in lines; a single one of uniform draws.

    Examples
    --------
    >>> draw_lines({"draw": "uniform", "num_instances": 16, "missing": "data"})
    ['draws: uniform, up to 16 instances of a bag']
    >>> draw_lines({"draw": "uniform", "num_instances": None, "missing": None})
    ['draws: none, each step reads whole bags']
    """
    if summary["num_instances"] is None:
        return ["draws: none, each step reads whole bags"]
    first = f"draws: {summary['draw']}, up to {summary['num_instances']} instances of a bag"
    uniform = summary["draw"] == "uniform"
    if "classes" not in summary:
        known = "the training bags are known" if summary["missing"] == "data" else f"the run has {summary['missing']}"
        return [first if uniform else f"{first}; more is said where {known}"]
    if uniform:
        return [first + _uniform_text(summary)]
    memory = [] if summary["memory"] is None else [f"memory: {_memory_text(summary['memory'])}"]
    classes = [f"{name} bags ({of['bags']}): {_class_text(of)}" for name, of in summary["classes"].items()]
    found = summary["witnesses"]
    return [first, *memory, *classes, *([] if found is None else [_witness_text(found, summary["num_instances"])])]


def draws_table(facts: DrawFacts) -> str:
    """CSV of the training bags, a row a scorer and bag; without the columns of witnesses where none is known."""
    known = any(row["witnesses"] for row in facts.bags)
    columns = [*_COLUMNS, *(_OF_WITNESSES if known else ())]
    return csv_text([name for name in columns if any(name in row for row in facts.bags)], facts.bags)


def draws_section(facts: DrawFacts, file: str | None) -> Html:
    """The section of the page, a paragraph of uniform draws; `file` is the name of the table of training bags."""
    summary, lines = facts.summary, draw_lines(facts.summary)
    parts = [tag("h2", "How the training drew"), tag("p", _sentence(lines[0]))]
    if facts.bags:
        when = f"After epoch {summary['epoch']}, in the training bags; in brackets what uniform draws would have"
        if summary["memory"] is not None:
            parts.append(tag("p", _sentence(lines[1])))
        rows = _rows(summary)
        legend = join(join([tag("dt", name), tag("dd", _LEGEND[name])]) for name in rows if name in _LEGEND)
        parts.append(_table(rows, list(summary["classes"]), when))
        explained = tag("dl", legend, class_="legend")
        parts.append(tag("details", tag("summary", "What these are"), explained, open=""))
    if file is not None:
        parts.append(tag("p", "Files: ", tag("a", "all training bags (CSV)", href=quote(file))))
    return tag("section", join(parts, "\n"), id="draws")


def _rows(summary: Mapping[str, Any]) -> dict[str, list[Cell]]:
    """Figures by name, one a class; of witnesses those of positive bags alone, which come first."""
    classes, found = list(summary["classes"].values()), summary["witnesses"]
    rows: dict[str, list[Cell]] = {
        "Bags": [of["bags"] for of in classes],
        "Instances, median": [f"{of['instances']:g}" for of in classes],
    }
    if all("seen" in of for of in classes):
        rows["Instances seen"] = [_share(of["seen"]) for of in classes]
        rows["Instances that carry the weight"] = [_count(of["effective"]) for of in classes]
        rows["Weight in a draw"] = [_beside(of["drawn_weight"], of["uniform_weight"]) for of in classes]
    if found is not None:
        names = {"drawn": "Draws with a witness", "among_highest": "Witness among the highest"}
        names |= {"found": "Witnesses drawn so far"}
        for key, name in names.items():
            if key in found:
                uniform = found["uniform_found" if key == "found" else "uniform"]
                rows[name] = [_beside(found[key], uniform), *[DASH] * (len(classes) - 1)]
    return rows


def _table(rows: Mapping[str, list[Cell]], classes: list[str], caption: str) -> Html:
    """A row a figure, a column a class."""
    head = tag("tr", tag("td"), *(tag("th", f"{name} bags", scope="col") for name in classes))
    body = (
        tag("tr", tag("th", name, scope="row"), *(tag("td", cell) for cell in cells)) for name, cells in rows.items()
    )
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body), class_="draws")


def _uniform_text(summary: Mapping[str, Any]) -> str:
    """What uniform draws hold, after a comma."""
    classes, found = summary["classes"], summary["witnesses"]
    bags = sum(of["bags"] for of in classes.values())
    held = sum(of["uniform_weight"] * of["bags"] for of in classes.values()) / bags
    text = f", {_share(held)} of a training bag on average"
    return text if found is None else f"{text}; {_share(found['uniform'])} of the draws of positive bags hold a witness"


def _memory_text(memory: Mapping[str, Any]) -> str:
    if not memory["passes"]:
        return "no pass over all bags; what the steps have drawn is remembered"
    times = f"{memory['passes']:g} pass{'es' if memory['passes'] != 1 else ''} over all bags"
    age = "" if memory["age"] is None else f", epochs since the last one: {memory['age']:g}"
    drift = "" if memory["drift"] is None else f"{memory['drift']:.2g} standard deviations"
    return times + age + (f"; the logits of the last draws had moved by {drift}" if drift else "")


def _class_text(of: Mapping[str, Any]) -> str:
    if "seen" not in of:
        return f"a uniform draw would hold {_share(of['uniform_weight'])} of a bag"
    carried = f"{_count(of['effective'])} of {of['instances']:g} instances carry the remembered weight"
    held = f"a draw holds {_share(of['drawn_weight'])} of it (uniform: {_share(of['uniform_weight'])})"
    return f"{carried}, {held}; {_share(of['seen'])} seen"


def _witness_text(found: Mapping[str, Any], num_instances: int) -> str:
    parts = [f"in {_share(found['drawn'])} of the draws (uniform: {_share(found['uniform'])})"]
    if "among_highest" in found:
        parts.append(f"among the {num_instances} highest remembered in {_share(found['among_highest'])} of the bags")
    if "found" in found:
        parts.append(f"{_share(found['found'])} drawn so far (uniform: {_share(found['uniform_found'])})")
    return f"witnesses of {found['bags']} bags: {', '.join(parts)}"


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _share(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.3g}%"


def _beside(value: float | None, uniform: float) -> str:
    return f"{_share(value)} ({_share(uniform)})"


def _count(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
