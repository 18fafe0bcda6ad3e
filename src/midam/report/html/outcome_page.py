"""The page of a run, or of an evaluation, whose bags are ranked by more than 0 and 1."""

from midam.report.html.beside import beside_baseline
from midam.report.html.frame import limits, whole_page
from midam.report.html.making import data_flow, provenance, training
from midam.report.html.markup import (
    Html,
    Section,
    box,
    interval,
    join,
    listing,
    paragraph,
    tag,
    tiles,
)
from midam.report.html.outcome_classes import Classes
from midam.report.html.outcome_grades import Grades
from midam.report.html.outcome_kind import Kind
from midam.report.html.outcome_labels import Labels
from midam.report.html.outcome_numbers import Numbers
from midam.report.html.outcome_study import OutcomeStudy
from midam.report.html.outcome_subgroups import beside_own_test, subgroups
from midam.report.html.outcome_survival import Times
from midam.report.html.study import NAMES, ROLES
from midam.report.html.tried import tried
from midam.report.html.tripod import checklist

_KINDS: dict[str, type[Kind]] = {
    "multiclass": Classes,
    "multilabel": Labels,
    "ordinal": Grades,
    "continuous": Numbers,
    "survival": Times,
}
_ROLES = {**ROLES, "val": "which helped to choose the model, so that this is no test"}
_WITHOUT = "the page has no such section for this kind of label"


def outcome_page(study: OutcomeStudy) -> str:
    """HTML of the page."""
    kind = _KINDS.get(study.target, Kind)(study)
    ranked = study.summary.get(study.merit) is not None
    sections = [_summary(study, kind), data_flow(study, kind.counts(), *kind.flow())]
    if ranked:
        errors = kind.errors()
        sections += [*kind.sections(), subgroups(study), *([] if errors is None else [errors])]
    sections += [training(study, left=58) if study.chosen is None else tried(study.chosen), provenance(study)]
    names = {section.name for section in sections}
    sections.append(checklist(study, names, label=kind.label, without=_WITHOUT))
    return whole_page(study, lead=_lead(study, kind, ranked=ranked), sections=sections)


def _lead(study: OutcomeStudy, kind: Kind, *, ranked: bool) -> list[Html]:
    counted = f"{kind.counted()}{study.tested.of_groups()}"
    if not ranked:
        which = f"The {NAMES[study.part]} bags ({counted})"
        return [join([f"{which} hold no two that the labels order: nothing can be said of ranking."])]
    found = study.figure(study.merit)
    if found is None:
        return []
    first = [f"On {counted}, {_ROLES[study.part]}{kind.claim} in ", tag("strong", f"{found.value:.1%}")]
    first += [f" of all {kind.pairs} ", interval(found.low, found.high, form=".1%"), "."]
    second = kind.second()
    return [join(first), *([] if second is None else [second])]


def _summary(study: OutcomeStudy, kind: Kind) -> Section:
    counted = f"n = {kind.counted()}{study.tested.of_groups()}. Brackets are 95% intervals."
    points = limits(study, few=kind.few(), shift=kind.shift())
    body = [
        tiles(kind.tiles()),
        paragraph(counted, note=True),
        beside_own_test(study),
        beside_baseline(study),
        box("Before you rely on it", listing(points), warn=True),
    ]
    return Section("summary", "In short", join(body))
