"""The page of a run, or of an evaluation on other data: its key figures first, then everything behind them."""

from collections.abc import Mapping
from typing import Any

from midam.evaluate.bands import Bands, curve_bands
from midam.evaluate.metrics import FEW_BAGS
from midam.evaluate.proportions import Estimate, proportion
from midam.report.html.beside import beside_baseline, beside_covariates
from midam.report.html.decisions import abstention, errors, operating_points
from midam.report.html.discrimination import calibration, ranking, usefulness
from midam.report.html.frame import limits, whole_page
from midam.report.html.making import data_flow, provenance, training
from midam.report.html.markup import (
    DASH,
    Html,
    Section,
    box,
    interval,
    join,
    listing,
    number,
    paragraph,
    tag,
    tiles,
)
from midam.report.html.study import NAMES, ROLES, Study
from midam.report.html.subgroups import beside_own_test, subgroups
from midam.report.html.tried import tried
from midam.report.html.tripod import checklist

# Bags of a class, below which calibration says little (Collins et al. 2016, Statistics in Medicine 35:214).
_FEW = 100


def study_page(study: Study) -> str:
    """HTML of the page."""
    tested = study.tested
    sections = []
    if tested.both_classes:
        p = tested.probabilities
        bands = curve_bands(tested.labels, tested.scores, groups=tested.groups, probabilities=p)
        sections = [_summary(study, bands), data_flow(study), ranking(study, bands), calibration(study)]
        sections += [usefulness(study, bands), operating_points(study), subgroups(study), abstention(study)]
    else:
        sections = [_summary(study, None), data_flow(study)]
    made = training(study) if study.chosen is None else tried(study.chosen)
    sections += [errors(study), made, provenance(study)]
    sections.append(checklist(study, {section.name for section in sections}))
    return whole_page(study, lead=_lead(study), sections=sections)


def _lead(study: Study) -> list[Html]:
    tested, summary, at = study.tested, study.summary, study.summary.get("at_threshold")
    which = NAMES[study.part]
    if not tested.both_classes:
        return [join([f"The {which} bags ({tested.counts()}) hold one class only: nothing can be said of ranking."])]
    low, high = summary["auroc_ci95"]
    first = [f"On {tested.counts()}, {ROLES[study.part]}, a positive bag scored above a negative one in "]
    first += [tag("strong", f"{summary['auroc']:.1%}"), " of all pairs ", interval(low, high, form=".1%"), "."]
    if at is None or study.validation is None:
        return [join(first)]
    found, cleared = (round(at[what] * count) for what, count in _classes(study))
    negatives = len(tested) - tested.positives
    second = (
        f"At the threshold chosen on {len(study.validation)} validation bags it found {found} of {tested.positives} "
        f"positive bags and cleared {cleared} of {negatives} negative ones."
    )
    return [join(first), Html(second)]


def _classes(study: Study) -> tuple[tuple[str, int], tuple[str, int]]:
    positives = study.tested.positives
    return ("sensitivity", positives), ("specificity", len(study.tested) - positives)


def _summary(study: Study, bands: Bands | None) -> Section:
    summary, tested = study.summary, study.tested
    at: Mapping[str, Any] = summary.get("at_threshold") or {}
    bounds = summary["auroc_ci95"]
    entries: list[tuple[str, Html, Html | str]] = [
        ("AUROC", number(summary["auroc"], key="auroc"), DASH if bounds is None else interval(*bounds)),
        ("Average precision", number(summary["auprc"], key="auprc"), _bounds(None if bands is None else bands.auprc)),
    ]
    for label, name in ((1, "sensitivity"), (0, "specificity")):
        own = tested.labels == label
        groups = None if tested.groups is None else tested.groups[own]
        hits = None if study.threshold is None else (tested.scores[own] >= study.threshold) == bool(label)
        share = None if hits is None else proportion(hits, groups=groups)
        entries.append((name.capitalize(), number(at.get(name), key=f"at_threshold.{name}"), _bounds(share)))
    entries.append(("Calibration slope", number(summary.get("calibration_slope"), form=".2f"), "1 is perfect"))
    entries.append(("Brier score", number(summary.get("brier")), "0 is perfect"))
    what = "sensitivity and specificity are those of the threshold chosen on validation."
    named = "" if study.classes is None else f" Positive is {study.classes[1]}, negative {study.classes[0]}."
    counted = f"n = {tested.counts()}.{named} Brackets are 95% intervals; {what}"
    body = [
        tiles(entries),
        paragraph(counted, note=True),
        beside_own_test(study),
        beside_baseline(study),
        beside_covariates(study),
        box("Before you rely on it", listing(_limits(study)), warn=True),
    ]
    return Section("summary", "In short", join(body))


def _bounds(found: Estimate | None) -> Html:
    return DASH if found is None else interval(found.low, found.high)


def _limits(study: Study) -> list[str]:
    """What these numbers cannot show, of this study."""
    tested, rare = study.tested, list[str]()
    few = min(tested.positives, len(tested) - tested.positives)
    if few < FEW_BAGS:
        rare.append(f"{few} bags of the rarer class: every interval is wide, and its coverage approximate.")
    elif few < _FEW:
        rare.append(
            f"{few} bags of the rarer class: calibration, subgroups and net benefit rest on few bags; a hundred or "
            "more of each class are usually asked for."
        )
    shift = (
        f"{tested.positives / len(tested):.0%} of these bags are positive. Where the share differs, PPV, NPV, "
        "average precision and net benefit differ, and probabilities need to be calibrated again."
    )
    return limits(study, few=rare, shift=[shift])
