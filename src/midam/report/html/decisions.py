"""The sections on single bags: operating points, abstention with its coverage, and the most wrong bags."""

import numpy as np
from numpy.typing import NDArray

from midam.evaluate.conformal import ConformalSets, coverage_range
from midam.evaluate.proportions import Estimate, proportion, threshold_for
from midam.report.html.bag_tables import bag_table, why
from midam.report.html.markup import (
    DASH,
    Column,
    Html,
    Section,
    box,
    estimate,
    join,
    listing,
    number,
    paragraph,
    table,
    tag,
)
from midam.report.html.study import ScoredBags, Study
from midam.report.words import form_apart

_GOALS = (("sensitivity", 0.95), ("sensitivity", 0.90), ("specificity", 0.90), ("specificity", 0.95))
_ERRORS = (0.05, 0.10, 0.20)
_WORST = 10  # bags shown of a kind
_NO_VALIDATION = "This needs validation bags of both classes, and the run has none."


def operating_points(study: Study) -> Section:
    """Sensitivity and specificity at thresholds chosen on validation bags."""
    title, tested, validation = "Operating points", study.tested, study.validation
    if study.threshold is None or validation is None or not validation.both_classes:
        return Section("operating", title, paragraph(_NO_VALIDATION))
    wanted = [("Youden's J (the run's threshold)", study.threshold, "at_threshold")]
    for goal, share in _GOALS:
        threshold = threshold_for(validation.labels, validation.scores, **{goal: share})
        wanted.append((f"{goal} of {share:.0%}", threshold, ""))
    rows = []
    for name, threshold, place in wanted:
        called = tested.scores >= threshold
        sensitivity, specificity = (_share(tested, tested.labels == label, called == bool(label)) for label in (1, 0))
        ppv, npv = (_share(tested, called == bool(label), tested.labels == label) for label in (1, 0))
        keys = [f"{place}.{what}" if place else None for what in ("threshold", "sensitivity", "specificity")]
        form = form_apart(tested.scores, threshold, least=3)
        cells = [name, number(threshold, form=form, key=keys[0]), estimate(sensitivity, key=keys[1])]
        cells += [estimate(specificity, key=keys[2]), estimate(ppv), estimate(npv)]
        rows.append([*cells, f"{int(called.sum())} of {len(tested)}"])
    heads = ["chosen on validation for", *("threshold", "sensitivity", "specificity", "PPV", "NPV", "called positive")]
    words = (
        f"Each threshold was chosen on the {len(validation)} validation bags ({validation.positives} positive), "
        "never on the bags below, and then applied to them once. So the goal is met here only as far as it carries "
        f"over. PPV and NPV hold for a share of {tested.positives / len(tested):.1%} positive bags."
    )
    unit = "Wilson intervals, with bags counted by their groups" if tested.grouped else "Wilson intervals"
    caption = f"Operating points on {tested.counts()}. 95% {unit}."
    columns = [Column(head, head == "threshold") for head in heads]
    return Section("operating", title, join([paragraph(words), table(caption, columns, rows)]))


def _share(bags: ScoredBags, among: NDArray[np.bool_], hits: NDArray[np.bool_]) -> Estimate | None:
    return proportion(hits[among], groups=None if bags.groups is None else bags.groups[among])


def abstention(study: Study) -> Section:
    """What is decided, and how rarely wrongly, when unsure bags are left to a person."""
    title, tested, validation = "Abstention: leaving the unsure to a person", study.tested, study.validation
    if validation is None or not validation.both_classes:
        return Section("abstention", title, paragraph(_NO_VALIDATION))
    sets = ConformalSets().fit(validation.scores, validation.labels, groups=validation.groups)
    units = dict(zip((0, 1), sets.counts))
    rows, off = [], False
    for error in _ERRORS:
        found = sets.predict(tested.scores, error=error)
        held = found[np.arange(len(tested)), tested.labels]
        decided = found.sum(axis=1) == 1
        cells: list[Html | str] = [f"{1 - error:.0%}"]
        for label in (1, 0):
            own = tested.labels == label
            share = _share(tested, own, held)
            shown = estimate(share, key=f"conformal.{error:g}.{label}")
            if share is not None and not tested.grouped and not validation.grouped:
                low, high = coverage_range(units[label], int(own.sum()), error=error)
                inside = low - 1e-9 <= share.value <= high + 1e-9
                off = off or not inside
                note = f"{'as' if inside else 'not as'} expected: {low:.2f} to {high:.2f}"
                shown = join([shown, tag("span", note, class_="ci below")])
            cells.append(shown)
        everyone = np.ones(len(tested), bool)
        wrong = _share(tested, decided, ~held)
        cells += [estimate(_share(tested, everyone, decided)), estimate(wrong)]
        cells.append(f"{int((found.sum(axis=1) == 2).sum())} / {int((~found.any(axis=1)).sum())}")
        rows.append(cells)
    heads = ["promised coverage", "coverage, positive bags", "coverage, negative bags", "bags decided"]
    heads += ["wrong among decided", "left: both labels / none fits"]
    words = (
        "A bag is decided when only one label is compatible with it at the promised coverage, judged against the "
        "validation bags of that label (class-conditional conformal prediction); any other bag is left to a person. "
        "The promise holds for each class by itself and needs no calibrated probabilities."
    )
    caption = f"Conformal sets from {validation.counts()} in validation, on {tested.counts()}"
    body = [
        paragraph(words),
        table(caption, heads, rows),
        box("What the promise rests on", listing(_caveats(study, units))),
    ]
    if off:
        text = "Coverage lies outside the expected range: the bags below are not exchangeable with the validation bags."
        body.append(box("Coverage is off", paragraph(text), warn=True))
    return Section("abstention", title, join(body))


def _caveats(study: Study, units: dict[int, int]) -> list[str]:
    points, validation = (
        ["New bags are exchangeable with the validation bags: same scanner, same mix, same labels."],
        study.validation,
    )
    if study.external:
        points[0] += " These bags come from other data, so the promise is being tested here, not given."
    if study.selected.get("weights") == "best":
        points.append("The validation bags also chose the epoch, which makes coverage a little too low.")
    grouped = (validation is not None and validation.grouped) or study.tested.grouped
    if grouped:
        points.append(
            "Bags of one group resemble each other: each group of the validation bags has the same weight, whatever "
            "its number of bags, and the promise is for a bag of a new group. No expected range is given for groups."
        )
    for label, name in ((1, "positive"), (0, "negative")):
        needed = int(np.ceil(1 / min(_ERRORS) - 1))
        if units[label] < needed:
            points.append(
                f"With {units[label]} {name} validation {'groups' if grouped else 'bags'} the {name} label can never "
                f"be ruled out at {1 - min(_ERRORS):.0%}; {needed} are needed."
            )
    return points


def errors(study: Study) -> Section:
    """The most wrong bags of both kinds, with links to their explanations."""
    title, tested, threshold = "Errors: the most wrong bags", study.tested, study.threshold
    if threshold is None:
        return Section("errors", title, paragraph(_NO_VALIDATION))
    called = tested.scores >= threshold
    parts, worst = list[Html](), list[int]()
    for label, name in (
        (1, "Missed: positive bags called negative"),
        (0, "False alarms: negative bags called positive"),
    ):
        wrong = np.flatnonzero((tested.labels == label) & (called != bool(label)))
        order = wrong[np.argsort(tested.scores[wrong] * (1 if label else -1), kind="stable")][:_WORST]
        of = int((tested.labels == label).sum())
        if not wrong.size:
            parts.append(join([tag("h3", name), paragraph(f"None of {of}.")]))
            continue
        worst += order.tolist()
        rest = f", the {len(order)} furthest from the threshold" if wrong.size > len(order) else ""
        shown = f"{wrong.size} of {of}{rest}"
        parts.append(join([tag("h3", name), _bags(study, order, caption=shown)]))
    told = f"{threshold:{form_apart(tested.scores[worst], threshold, least=3)}}"
    body = [paragraph(f"At the run's threshold, {told}. Look at them: labels can be wrong too."), *parts]
    body += why(study, tested.ids[worst].tolist())
    return Section("errors", title, join(body))


def _bags(study: Study, index: NDArray[np.int64], *, caption: str) -> Html:
    tested = study.tested

    def cells(i: int) -> list[Html]:
        known = tested.probabilities
        score = float(tested.scores[i])
        form = form_apart(score, study.threshold, least=3)
        return [number(score, form=form), DASH if known is None else number(float(known[i]))]

    heads = [Column("score", True), Column("probability", True)]
    return bag_table(study, index.tolist(), heads, cells, caption=caption)
