"""The items of TRIPOD+AI: which the page answers, which in part, and who answers the others.

Collins et al. (2024), TRIPOD+AI statement, BMJ 385:e078378, doi 10.1136/bmj-2023-078378. Names are in our
words.
"""

from collections.abc import Collection
from typing import NamedTuple

from midam.report.html.markup import Html, Section, folded, join, paragraph, prose, table, tag
from midam.report.html.study import BY_GROUP, BY_SIZE, Report
from midam.report.html.subgroups import names_sites

_AUTHORS, _CLINIC, _DATA = "the authors", "clinical lead", "whoever holds the data"


class Item(NamedTuple):
    """An item: its number and name, whether it is answered ("yes", "part", "no"), where, and what is left to whom."""

    number: str
    name: str
    answered: str
    where: str = ""
    left: str = ""


def checklist(
    study: Report,
    names: Collection[str],
    *,
    label: str = "label 1",
    without: str = "needs tested bags of both classes",
) -> Section:
    """The table of items; `names` are the sections that the page has.

    `label` is what the authors have to define, `without` why a section is missing.
    """
    lacks = Item("", "", "no", left=without)
    items = [
        lacks._replace(number=item.number, name=item.name) if item.where and item.where not in names else item
        for item in _items(study, label)
    ]
    counts = {kind: sum(item.answered == kind for item in items) for kind in ("yes", "part", "no")}
    words = (
        f"Of the {len(items)} items and parts of items, this page answers {counts['yes']}, {counts['part']} in part, "
        f"and {counts['no']} not: a page made from data and weights cannot know the clinical question. A published "
        "report needs all of them."
    )
    source = (
        "Collins et al., TRIPOD+AI statement, BMJ 2024;385:e078378 (doi 10.1136/bmj-2023-078378); names in our words."
    )
    answered, others = ([item for item in items if (item.answered == "no") == away] for away in (False, True))
    body = [
        paragraph(words),
        table("Answered here, or in part", ["item", "what", "left to do, and by whom"], map(_row, answered)),
        folded(f"The {len(others)} that others answer", table("Not here", ["item", "what", "who"], map(_row, others))),
        paragraph(source, note=True),
    ]
    return Section("tripod", "TRIPOD+AI: what a published report needs", join(body))


def _row(item: Item) -> list[Html | str]:
    if item.answered == "no":
        return [item.number, item.name, prose(item.left)]
    status = tag("span", {"yes": "here", "part": "in part"}[item.answered], class_=f"tag {item.answered}")
    where = tag("a", f"#{item.where}", href=f"#{item.where}")
    return [item.number, join([item.name, tag("span", status, " ", where, class_="below")]), prose(item.left)]


def _items(study: Report, label: str) -> list[Item]:
    by_site, asked = any(map(names_sites, study.columns)), bool(set(study.columns) - {BY_GROUP, BY_SIZE})
    outside = study.external
    return [
        Item("1", "Title", "no", left=f"{_AUTHORS}: model development or evaluation, population, outcome"),
        Item("2", "Abstract", "part", "summary", f"{_AUTHORS}: the rest of the abstract's own list"),
        Item("3a", "Healthcare context and existing models", "no", left=_CLINIC),
        Item("3b", "Target population, intended use and users", "no", left=_CLINIC),
        Item("3c", "Known health inequalities", "no", left=_CLINIC),
        Item("4", "Objectives", "no", left=_AUTHORS),
        Item(
            "5a", "Sources of data", "part", "flow", f"{_DATA}: origin, and whether it represents the target population"
        ),
        Item("5b", "Dates of the data", "no", left=_DATA),
        Item("6a", "Setting and centers", "part" if by_site else "no", "subgroups" if by_site else "", _DATA),
        Item("6b", "Eligibility of participants", "no", left=_DATA),
        Item("6c", "Treatments received", "no", left=_CLINIC),
        Item("7", "Data preparation", "part", "provenance", f"{_DATA}: what happened before the files that midam read"),
        Item(
            "8a", "Outcome: definition and time", "no", left=f"{_CLINIC}: what {label} means, how and when it was set"
        ),
        Item("8b", "Outcome: who assessed it", "no", left=_CLINIC),
        Item("8c", "Outcome: blinding of the assessment", "no", left=_CLINIC),
        Item("9a", "Choice of predictors", "no", left=f"{_AUTHORS}: why these images or features"),
        Item("9b", "Definition of predictors", "part", "flow", f"{_AUTHORS}: acquisition, encoder of the features"),
        Item("9c", "Predictors: who assessed them", "no", left=_CLINIC),
        Item("10", "Sample size", "part", "flow", f"{_AUTHORS}: how it was arrived at; here are the numbers"),
        Item(
            "11", "Missing data", "part", "flow", f"{_DATA}: why data is missing; what was left out on reading is here"
        ),
        Item("12a", "Use and partition of the data", "yes", "flow"),
        Item("12b", "Handling of predictors", "yes", "provenance"),
        Item(
            "12c",
            "Model, building steps, internal validation",
            "part",
            "provenance",
            f"{_AUTHORS}: rationale; runs that are not here",
        ),
        _clusters("12d", "method", by_site=by_site),
        Item("12e", "Measures and plots of performance", "yes", "ranking"),
        Item("12f", "Model updating", "part", "calibration", f"{_AUTHORS}: updates made after this evaluation"),
        Item("12g", "How predictions were calculated", "yes", "provenance"),
        Item("13", "Class imbalance", "yes", "flow"),
        Item(
            "14",
            "Fairness: approach",
            "part" if asked else "no",
            "subgroups",
            f"{_AUTHORS}: which groups matter, and why",
        ),
        Item("15", "Model output and thresholds", "yes", "operating"),
        Item(
            "16",
            "Training versus evaluation data",
            "part" if outside else "no",
            "flow" if outside else "",
            f"{_DATA}: differences in setting, eligibility, outcome and predictors",
        ),
        Item("17", "Ethical approval", "no", left=_AUTHORS),
        Item("18a", "Funding", "no", left=_AUTHORS),
        Item("18b", "Conflicts of interest", "no", left=_AUTHORS),
        Item("18c", "Protocol", "no", left=_AUTHORS),
        Item("18d", "Registration", "no", left=_AUTHORS),
        Item("18e", "Data sharing", "part", "provenance", f"{_DATA}: how to obtain it; its hash is here"),
        Item("18f", "Code sharing", "part", "provenance", f"{_AUTHORS}: your own code; version and command are here"),
        Item("19", "Patient and public involvement", "no", left=_AUTHORS),
        Item("20a", "Flow of participants", "part", "flow", f"{_DATA}: participants before the data set"),
        Item(
            "20b",
            "Characteristics of participants",
            "part",
            "flow",
            f"{_DATA}: demographics and clinical characteristics",
        ),
        Item(
            "20c",
            "Comparison with the development data",
            "part" if outside else "no",
            "flow" if outside else "",
            f"{_DATA}: distribution of important predictors",
        ),
        Item("21", "Participants and events in each analysis", "yes", "flow"),
        Item("22", "Full model", "part", "provenance", f"{_AUTHORS}: share model.pt, whose hash is here"),
        Item(
            "23a",
            "Performance with intervals, also of key subgroups",
            "yes" if asked else "part",
            "ranking",
            "" if asked else f"{_AUTHORS}: sociodemographic subgroups, `--subgroups`",
        ),
        _clusters("23b", "results", by_site=by_site),
        Item("24", "Results of model updating", "no", left=_AUTHORS),
        Item("25", "Interpretation, fairness included", "no", left=_AUTHORS),
        Item("26", "Limitations", "part", "summary", f"{_AUTHORS}: those that numbers do not show"),
        Item("27a", "Poor or missing input in use", "no", left=_CLINIC),
        Item("27b", "Interaction and expertise of users", "no", left=_CLINIC),
        Item("27c", "Next steps, applicability", "no", left=_AUTHORS),
    ]


def _clusters(number: str, what: str, *, by_site: bool) -> Item:
    """What is asked of differences between sites."""
    name = f"Differences between clusters: {what}"
    if by_site:
        return Item(number, name, "yes", "subgroups")
    return Item(number, name, "no", left=f"{_AUTHORS}: `--subgroups SITE --table FILE`")
