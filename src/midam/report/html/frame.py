"""What the pages of all targets share: the title, what no number of theirs can show, the foot."""

import re
from collections.abc import Sequence
from html import escape

from midam._version import __version__
from midam.report.html.markup import Html, Section, document, join, paragraph
from midam.report.html.study import NAMES, Report
from midam.report.pseudonyms import naming
from midam.report.words import MERITS, merit_of


def whole_page(study: Report, *, lead: Sequence[Html], sections: Sequence[Section]) -> str:
    """HTML of the page of a run, or of an evaluation on other data."""
    kind = "External evaluation" if study.external else "Report of a run"
    title = (
        f"Trained on {study.trained_on}, tested on {study.data}" if study.external else f"{study.data}: {study.method}"
    )
    first, *others = sections
    words = _names(study, sections)
    first = first._replace(body=join([first.body, paragraph(words, note=True)])) if words else first
    return document(
        title=title,
        kicker=f"midam \N{MIDDLE DOT} {kind}" + (f" \N{MIDDLE DOT} {study.method}" if study.external else ""),
        lead=lead,
        sections=[first, *others],
        footer=foot(),
        description=f"{kind}: {title}",
    )


def _names(study: Report, sections: Sequence[Section]) -> str:
    """What to know of the names on the page before it is shared; nothing where there are none."""
    if study.pseudonyms:
        return (
            "Names of bags, groups, levels and files are pseudonyms here; the key is a file of whoever wrote this page."
        )
    cells = {cell for section in sections for cell in re.findall(r">([^<>]+)<", section.body)}
    cells |= {cell.partition(": ")[0] for cell in cells}  # of a dot in a chart
    known = (study.tested.ids, study.tested.groups)
    bags, groups = (0 if names is None else len({*map(escape, names.tolist())} & cells) for names in known)
    return naming(bags, groups) if bags or groups else ""


def foot() -> Html:
    """What stands below every page."""
    words = (
        f"Made by midam {__version__}. One file, no network. Intervals are 95% intervals. Research software, not a "
        "medical device: whether and how to act on these numbers is for those who know the patients."
    )
    return paragraph(words)


def limits(study: Report, *, few: Sequence[str] = (), shift: Sequence[str] = ()) -> list[str]:
    """What the numbers of a page cannot show.

    `few` says what rests on few bags, `shift` what changes where the bags are of another mix.
    """
    points = [f"{message}." for message in study.cautions]
    if study.part in ("val", "train"):
        points.append(f"These are {NAMES[study.part]} bags: the figures are too good, and no test of anything.")
    points += few
    if study.external:
        points.append("Other data, one site or several: it says nothing about a third place.")
    else:
        points.append(
            "One split of one data set: how it does elsewhere is not known. `midam report RUN DATA` tests it on "
            "other data."
        )
    if study.tested.groups is None:
        points.append("No groups are named: if bags share patients, every interval here is too narrow. See `--groups`.")
    points += shift
    if study.selected.get("weights") == "best":
        merit = MERITS[merit_of(study.history)]
        points.append(
            f"The epoch was chosen by its {merit} on the validation bags, whose figures are therefore too good."
        )
    return points
